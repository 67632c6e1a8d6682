/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that are too large, too slow, too many, or never read. */
#include "api_fixture.h"

static void test_request_too_large(void **state)
{
    struct fixture *f = *state;
    static char request[200000];
    int fd = client_connect(f);
    char *reply;

    memset(request, ' ', sizeof(request));
    client_send(f, fd, request, sizeof(request));
    reply = client_receive(f, fd);
    assert_non_null(reply);
    assert_non_null(strstr(reply, "io.npumem.Control.BadParameter"));
    assert_non_null(strstr(reply, "larger than 65536 bytes"));
    free(reply);
    assert_null(client_receive(f, fd));
    close(fd);
    assert_int_equal(api_stats(f->api)->too_large, 1);
    assert_int_equal(api_stats(f->api)->connections, 0);
}

/* Exactly the bound is a request, one byte more is not. */
static void test_request_at_the_bound(void **state)
{
    struct fixture *f = *state;
    static char request[65536 + 2];
    static const char head[] = "{\"method\":\"io.npumem.Control.Change\"}";

    memset(request, ' ', sizeof(request) - 2);
    memcpy(request, head, strlen(head));
    expect_reply(f, request, "{\"parameters\":{}}");
    request[65536] = ' ';
    EXPECT(f, request, "larger than 65536 bytes");
}

static void test_half_request(void **state)
{
    struct fixture *f = *state;
    int fd = client_connect(f);
    uint64_t begin = test_now_ms();
    char *reply;

    assert_int_equal(client_send(f, fd, "{\"method\":", 10), 10);
    reply = client_receive(f, fd);
    assert_non_null(reply);
    assert_non_null(strstr(reply, "did not end in time"));
    free(reply);
    assert_null(client_receive(f, fd));
    assert_in_range(test_now_ms() - begin, 290, 2000);
    close(fd);
    assert_int_equal(api_stats(f->api)->too_slow, 1);
}

/* A byte now and then does not buy more time. */
static void test_never_ending_request(void **state)
{
    struct fixture *f = *state;
    int fd = client_connect(f);
    uint64_t begin = test_now_ms();
    unsigned sent = 0;

    while (send(fd, " ", 1, MSG_NOSIGNAL) == 1 && test_now_ms() - begin < 3000) {
        sent++;
        pump(f, 20);
    }
    assert_in_range(test_now_ms() - begin, 290, 2000);
    assert_true(sent > 3);
    expect_end(f, fd);
    assert_int_equal(api_stats(f->api)->too_slow, 1);
}

/* Idle between requests is no offence. */
static void test_idle_connection_stays(void **state)
{
    struct fixture *f = *state;
    int fd = client_connect(f);
    char *reply;

    for (int i = 0; i < 2; i++) {
        client_send_text(f, fd, "{\"method\":\"io.npumem.Control.Change\"}");
        reply = client_receive(f, fd);
        assert_string_equal(reply, "{\"parameters\":{}}");
        free(reply);
        pump(f, 450);
    }
    close(fd);
}

static void test_too_many_connections(void **state)
{
    struct fixture *f = *state;
    int fds[4], more;
    char *reply;

    for (int i = 0; i < 4; i++)
        fds[i] = client_connect(f);
    more = client_connect(f);
    reply = client_receive(f, more);
    assert_non_null(reply);
    assert_non_null(strstr(reply, "io.npumem.Control.Busy"));
    free(reply);
    assert_null(client_receive(f, more));
    close(more);
    assert_int_equal(api_stats(f->api)->connections, 4);
    assert_int_equal(api_stats(f->api)->refused_connections, 1);
    close(fds[0]);
    pump(f, 5);
    expect_reply(f, "{\"method\":\"io.npumem.Control.Change\"}", "{\"parameters\":{}}");
    for (int i = 1; i < 4; i++)
        close(fds[i]);
}

/* A stream into a reader that sleeps ends at the bound, and the stream is told. */
static void test_slow_reader_of_a_stream(void **state)
{
    struct fixture *f = *state;
    int fd = client_connect(f), r;
    static char event[10000];
    unsigned sent = 0;

    snprintf(event, sizeof(event), "{\"x\":\"%0*d\"}", 9900, 0);
    client_send_text(f, fd, "{\"method\":\"io.npumem.Control.Stream\",\"more\":true}");
    pump(f, 10);
    assert_non_null(f->stream);
    do
        r = api_reply_more(f->stream, event);
    while (r == 0 && ++sent < 10000);
    assert_int_equal(r, -ENOBUFS);
    /* 4 MiB of 9.9 kB */
    assert_in_range(sent, 400, 430);
    assert_int_equal(api_reply_more(f->stream, event), -EPIPE);
    pump(f, 10);
    assert_int_equal(f->stream_closed, 1);
    assert_int_equal(api_stats(f->api)->connections, 0);
    assert_int_equal(api_stats(f->api)->overflowed, 1);
    expect_end(f, fd);
}

/* Asks, never reads: the answer waits for a while, then the connection ends. */
static void test_reader_that_takes_nothing(void **state)
{
    struct fixture *f = *state;
    int fd = client_connect(f);
    uint64_t begin = test_now_ms();

    client_send_text(f, fd,
                     "{\"method\":\"io.npumem.Control.Big\",\"parameters\":{\"size\":3000000}}");
    while (api_stats(f->api)->connections && test_now_ms() - begin < 5000)
        pump(f, 5);
    assert_in_range(test_now_ms() - begin, 290, 2000);
    assert_int_equal(api_stats(f->api)->stalled, 1);
    close(fd);
}

/* Many large answers asked for at once do not pile up: the next is begun when the last is nearly
 * out. */
static void test_pipelined_large_answers(void **state)
{
    struct fixture *f = *state;
    int fd = client_connect(f);
    char *reply;

    for (int i = 0; i < 20; i++)
        client_send_text(
            f, fd, "{\"method\":\"io.npumem.Control.Big\",\"parameters\":{\"size\":1500000}}");
    pump(f, 20);
    assert_in_range(api_stats(f->api)->messages, 1, 2);
    for (int i = 0; i < 20; i++) {
        reply = client_receive(f, fd);
        assert_non_null(reply);
        assert_int_equal(strlen(reply), 1500000 + strlen("{\"parameters\":{\"big\":\"\"}}"));
        free(reply);
    }
    close(fd);
}

static void test_answer_over_the_bound(void **state)
{
    EXPECT(*state, "{\"method\":\"io.npumem.Control.Big\",\"parameters\":{\"size\":5000000}}",
           "io.npumem.Control.Failed", "too large");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SOCKET(test_request_too_large),
        WITH_SOCKET(test_request_at_the_bound),
        WITH_SOCKET(test_half_request),
        WITH_SOCKET(test_never_ending_request),
        WITH_SOCKET(test_idle_connection_stays),
        WITH_SOCKET(test_too_many_connections),
        WITH_SOCKET(test_slow_reader_of_a_stream),
        WITH_SOCKET(test_reader_that_takes_nothing),
        WITH_SOCKET(test_pipelined_large_answers),
        WITH_SOCKET(test_answer_over_the_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
