/* SPDX-License-Identifier: Apache-2.0 */
/* Requests, parameters, replies and errors of the control socket, against bytes written by hand. */
#include "api_fixture.h"

#define BAD "\"error\":\"io.npumem.Control.BadParameter\""

static void test_echo_every_type(void **state)
{
    /* 2^53+1 and 2^64-1: what a double would not hold. */
    expect_reply(
        *state,
        "{\"method\":\"io.npumem.Control.Echo\",\"parameters\":{\"text\":\"a\\u00e9\\n\","
        "\"number\":9007199254740993,\"flag\":true,\"list\":[1,1000],\"names\":[\"x\",\"\"]}}",
        "{\"parameters\":{\"text\":\"a\303\251\\n\",\"number\":9007199254740993,\"flag\":true,"
        "\"list\":[1,1000],\"names\":[\"x\",\"\"]}}");
    expect_reply(
        *state,
        "{\"method\":\"io.npumem.Control.Echo\",\"parameters\":{\"number\":18446744073709551615}}",
        "{\"parameters\":{\"text\":\"\",\"number\":18446744073709551615,\"flag\":false,"
        "\"list\":[],\"names\":[]}}");
    expect_reply(
        *state, " {\"method\":\"io.npumem.Control.Echo\",\"parameters\":{\"text\":null}}\n",
        "{\"parameters\":{\"text\":\"\",\"number\":0,\"flag\":false,\"list\":[],\"names\":[]}}");
}

static void test_wrong_parameters(void **state)
{
    static const char *const cases[][2] = {
        {"{\"text\":5}", "parameter text: expected a string, got int"},
        {"{\"text\":\"a\\u0000b\"}", "parameter text: holds a NUL"},
        {"{\"number\":\"5\"}", "parameter number: expected a number, got string"},
        {"{\"number\":1.5}", "parameter number: expected a number, got double"},
        {"{\"number\":-1}", "parameter number: -1 is not in 0 to 18446744073709551615"},
        {"{\"flag\":1}", "parameter flag: expected true or false, got int"},
        {"{\"list\":7}", "parameter list: expected a list, got int"},
        {"{\"list\":[1,\"2\"]}", "parameter list: expected a number, got string"},
        {"{\"list\":[1,null]}", "parameter list: expected a number, got null"},
        {"{\"list\":[1001]}", "parameter list: 1001 is not in 0 to 1000"},
        {"{\"list\":[1,2,3,4,5]}", "parameter list: more than 4 items"},
        {"{\"names\":[[]]}", "parameter names: expected a string, got array"},
        {"{\"nmuber\":1}", "unknown parameter \\\"nmuber\\\""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char request[256];
        snprintf(request, sizeof(request),
                 "{\"method\":\"io.npumem.Control.Echo\",\"parameters\":%s}", cases[i][0]);
        EXPECT(*state, request, BAD, cases[i][1]);
    }
}

static void test_unknown_names(void **state)
{
    expect_reply(*state, "{\"method\":\"io.npumem.Control.Nothing\"}",
                 "{\"error\":\"org.varlink.service.MethodNotFound\",\"parameters\":{\"method\":"
                 "\"io.npumem.Control.Nothing\"}}");
    expect_reply(
        *state, "{\"method\":\"org.example.Echo\"}",
        "{\"error\":\"org.varlink.service.InterfaceNotFound\",\"parameters\":{\"interface\":"
        "\"org.example\"}}");
    expect_reply(
        *state, "{\"method\":\"Echo\"}",
        "{\"error\":\"org.varlink.service.InterfaceNotFound\",\"parameters\":{\"interface\":"
        "\"Echo\"}}");
    expect_reply(*state, "{\"method\":\"org.varlink.service.Nothing\"}",
                 "{\"error\":\"org.varlink.service.MethodNotFound\",\"parameters\":{\"method\":"
                 "\"org.varlink.service.Nothing\"}}");
}

/* What is no request gets an error that says why, and the connection ends. */
static void test_malformed(void **state)
{
    static const char *const cases[][2] = {
        {"", "ends too early"},
        {"x", "malformed request"},
        {"{\"method\":\"io.npumem.Control.Echo\"", "ends too early"},
        {"{\"method\":\"io.npumem.Control.Echo\"} x", "malformed request"},
        {"{\"method\":\"io.npumem.Control.Echo\",}", "malformed request"},
        {"{'method':'io.npumem.Control.Echo'}", "malformed request"},
        {"{\"method\":\"io.npumem.Control.Echo\"}{}", "malformed request"},
        {"{\"method\":\"\xff\xfe\"}", "malformed request"},
        {"[]", "not a JSON object"},
        {"null ", "not a JSON object"},
        {"{}", "no string \\\"method\\\""},
        {"{\"method\":5}", "no string \\\"method\\\""},
        {"{\"method\":\"a\\u0000b\"}", "NUL character"},
        {"{\"method\":\"io.npumem.Control.Echo\",\"parameters\":[]}", "not an object"},
        {"{\"method\":\"io.npumem.Control.Echo\",\"more\":1}",
         "\\\"more\\\" must be true or false"},
        {"{\"method\":\"io.npumem.Control.Echo\",\"upgrade\":true}", "not supported"},
        {"{\"method\":\"io.npumem.Control.Stream\",\"more\":true,\"oneway\":true}", "exclude"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int fd = client_connect(f);
        char *reply;

        client_send_text(f, fd, cases[i][0]);
        reply = client_receive(f, fd);
        assert_non_null(reply);
        if (!strstr(reply, BAD) || !strstr(reply, cases[i][1]))
            fail_msg("%s: %s", cases[i][0], reply);
        free(reply);
        assert_null(client_receive(f, fd));
        close(fd);
    }
    assert_int_equal(api_stats(f->api)->connections, 0);
}

static void test_nested(void **state)
{
    static char request[65000];
    struct fixture *f = *state;
    size_t depths[] = {29, 10000};

    for (size_t i = 0; i < ARRAY_SIZE(depths); i++) {
        size_t n = (size_t)sprintf(request,
                                   "{\"method\":\"io.npumem.Control.Echo\",\"parameters\":{\"x\":");
        memset(request + n, '[', depths[i]);
        memset(request + n + depths[i], ']', depths[i]);
        strcpy(request + n + 2 * depths[i], "}}");
        if (depths[i] < 32)
            EXPECT(f, request, "unknown parameter \\\"x\\\"");
        else
            EXPECT(f, request, BAD, "nesting too deep");
    }
}

static void test_introspection(void **state)
{
    struct fixture *f = *state;
    static char file_text[65536];
    FILE *file = fopen(NPUMEM_SOURCE_DIR "/schema/npumem.varlink", "re");
    static char expected[70000] = "{\"parameters\":{\"description\":\"";
    char *end = expected + strlen(expected);
    char *reply;
    int fd;

    assert_non_null(file);
    file_text[fread(file_text, 1, sizeof(file_text) - 1, file)] = '\0';
    fclose(file);
    EXPECT(f, "{\"method\":\"org.varlink.service.GetInfo\",\"parameters\":{}}",
           "\"product\":\"npumemd\"", "\"version\":\"" NPUMEM_VERSION "\"",
           "\"interfaces\":[\"org.varlink.service\",\"io.npumem.Control\"]");
    fd = client_connect(f);
    client_send_text(f, fd,
                     "{\"method\":\"org.varlink.service.GetInterfaceDescription\",\"parameters\":"
                     "{\"interface\":\"io.npumem.Control\"}}");
    reply = client_receive(f, fd);
    for (const char *c = file_text; *c; c++) {
        if (*c == '"' || *c == '\\' || *c == '\n')
            *end++ = '\\';
        *end++ = *c == '\n' ? 'n' : *c;
    }
    strcpy(end, "\"}}");
    assert_string_equal(reply, expected);
    free(reply);
    close(fd);
    EXPECT(
        f,
        "{\"method\":\"org.varlink.service.GetInterfaceDescription\",\"parameters\":{\"interface\":"
        "\"org.varlink.service\"}}",
        "method GetInfo()");
    EXPECT(
        f,
        "{\"method\":\"org.varlink.service.GetInterfaceDescription\",\"parameters\":{\"interface\":"
        "\"a.b\"}}",
        "org.varlink.service.InterfaceNotFound");
    EXPECT(f, "{\"method\":\"org.varlink.service.GetInterfaceDescription\"}",
           "org.varlink.service.InvalidParameter");
}

static void test_handler_without_answer(void **state)
{
    EXPECT(*state, "{\"method\":\"io.npumem.Control.Silent\"}",
           "\"error\":\"io.npumem.Control.Failed\"", "gave no answer");
    EXPECT(*state, "{\"method\":\"io.npumem.Control.Broken\"}",
           "\"error\":\"io.npumem.Control.Failed\"", "Input/output error");
}

static void test_pipelined_in_order(void **state)
{
    struct fixture *f = *state;
    int fd = client_connect(f);
    static char requests[300000];
    size_t length = 0;

    for (unsigned i = 0; i < 2000; i++)
        length += (size_t)sprintf(
                      requests + length,
                      "{\"method\":\"io.npumem.Control.Echo\",\"parameters\":{\"number\":%u}}", i) +
                  1;
    assert_int_equal(client_send(f, fd, requests, length), length);
    /* The writer is done: answers still come. */
    shutdown(fd, SHUT_WR);
    for (unsigned i = 0; i < 2000; i++) {
        char expected[64], *reply = client_receive(f, fd);

        assert_non_null(reply);
        snprintf(expected, sizeof(expected), "\"number\":%u,", i);
        assert_non_null(strstr(reply, expected));
        free(reply);
    }
    assert_null(client_receive(f, fd));
    close(fd);
}

static void test_oneway(void **state)
{
    struct fixture *f = *state;
    int fd = client_connect(f);
    char *reply;

    client_send_text(f, fd, "{\"method\":\"io.npumem.Control.Change\",\"oneway\":true}");
    client_send_text(f, fd, "{\"method\":\"io.npumem.Control.Nothing\",\"oneway\":true}");
    client_send_text(f, fd, "{\"method\":\"io.npumem.Control.Change\"}");
    reply = client_receive(f, fd);
    assert_string_equal(reply, "{\"parameters\":{}}");
    free(reply);
    assert_int_equal(f->oneway_calls, 2);
    close(fd);
    /* Sent and gone: done all the same. */
    fd = client_connect(f);
    client_send_text(f, fd, "{\"method\":\"io.npumem.Control.Change\",\"oneway\":true}");
    close(fd);
    pump(f, 20);
    assert_int_equal(f->oneway_calls, 3);
    assert_int_equal(api_stats(f->api)->connections, 0);
}

static void test_stream(void **state)
{
    struct fixture *f = *state;
    int fd = client_connect(f);
    char *reply;

    EXPECT(f, "{\"method\":\"io.npumem.Control.Stream\"}", "org.varlink.service.ExpectedMore");
    client_send_text(f, fd, "{\"method\":\"io.npumem.Control.Stream\",\"more\":true}");
    /* Waits its turn until the stream has ended. */
    client_send_text(f, fd, "{\"method\":\"io.npumem.Control.Change\"}");
    pump(f, 10);
    assert_non_null(f->stream);
    assert_int_equal(api_reply_more(f->stream, "{\"n\":1}"), 0);
    pump(f, 10);
    assert_int_equal(f->oneway_calls, 0);
    assert_int_equal(api_reply(f->stream, "{\"n\":2}"), 0);
    f->stream = NULL;
    static const char *const expected[] = {"{\"parameters\":{\"n\":1},\"continues\":true}",
                                           "{\"parameters\":{\"n\":2}}", "{\"parameters\":{}}"};
    for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
        reply = client_receive(f, fd);
        assert_string_equal(reply, expected[i]);
        free(reply);
    }
    assert_int_equal(f->stream_closed, 0);
    client_send_text(f, fd, "{\"method\":\"io.npumem.Control.Stream\",\"more\":true}");
    pump(f, 10);
    assert_non_null(f->stream);
    close(fd);
    pump(f, 10);
    assert_int_equal(f->stream_closed, 1);
    assert_int_equal(api_stats(f->api)->connections, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SOCKET(test_echo_every_type),
        WITH_SOCKET(test_wrong_parameters),
        WITH_SOCKET(test_unknown_names),
        WITH_SOCKET(test_malformed),
        WITH_SOCKET(test_nested),
        WITH_SOCKET(test_introspection),
        WITH_SOCKET(test_handler_without_answer),
        WITH_SOCKET(test_pipelined_in_order),
        WITH_SOCKET(test_oneway),
        WITH_SOCKET(test_stream),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
