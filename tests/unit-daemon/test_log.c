/* SPDX-License-Identifier: Apache-2.0 */
/* Lines as they arrive on stderr. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "log.h"

static int saved_stderr = -1, file = -1;
static char captured[16384];

static void capture_begin(void)
{
    char path[] = "/tmp/npumem-log-XXXXXX";

    saved_stderr = dup(STDERR_FILENO);
    file = mkstemp(path);
    unlink(path);
    dup2(file, STDERR_FILENO);
}

static const char *capture_end(void)
{
    ssize_t n;

    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    n = pread(file, captured, sizeof(captured) - 1, 0);
    captured[n > 0 ? n : 0] = '\0';
    close(file);
    return captured;
}

static void journal_stream(int offset)
{
    struct stat st;
    char text[64];

    fstat(STDERR_FILENO, &st);
    snprintf(text, sizeof(text), "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino + (unsigned)offset);
    setenv("JOURNAL_STREAM", text, 1);
    log_open();
}

static void test_terminal(void **state)
{
    const char *text;
    int r;

    unsetenv("JOURNAL_STREAM");
    log_open();
    log_set_level(LOG_INFO);
    capture_begin();
    log_info("one %d", 1);
    log_debug("not seen");
    r = log_error(ENOSPC, "store");
    text = capture_end();
    assert_int_equal(r, -ENOSPC);
    assert_non_null(strstr(text, " npumemd info: one 1\n"));
    assert_non_null(strstr(text, " npumemd error: store: No space left on device\n"));
    assert_null(strstr(text, "not seen"));
    /* 2024-01-31T12:00:00.000 */
    assert_int_equal(text[10], 'T');
    assert_int_equal(text[19], '.');
}

static void test_journal(void **state)
{
    const char *text;

    capture_begin();
    journal_stream(0);
    assert_true(log_to_journal());
    log_warning("careful");
    log_info("fine");
    text = capture_end();
    assert_string_equal(text, "<4>careful\n<6>fine\n");
    /* Another file than stderr: the variable was inherited, the journal is not there. */
    capture_begin();
    journal_stream(1);
    assert_false(log_to_journal());
    setenv("JOURNAL_STREAM", "nonsense", 1);
    log_open();
    assert_false(log_to_journal());
    capture_end();
}

/* Titles of processes come into messages: they must not forge lines or drive the terminal. */
static void test_hostile_text(void **state)
{
    static char longer[5000];
    const char *text;

    capture_begin();
    journal_stream(0);
    log_info("title %s", "a\n<0>forged\033[2J\x7f");
    memset(longer, 'x', sizeof(longer) - 1);
    log_info("%s", longer);
    text = capture_end();
    assert_memory_equal(text, "<6>title a?<0>forged?[2J?\n", 26);
    assert_int_equal(strlen(text + 26), LOG_LINE_BYTES - 1);
    assert_int_equal(text[strlen(text) - 1], '\n');
    unsetenv("JOURNAL_STREAM");
    log_open();
}

static void test_rate_limit(void **state)
{
    struct log_ratelimit limit = {.interval_ns = 50 * 1000000, .burst = 2};
    const char *text;
    unsigned lines = 0;

    capture_begin();
    for (int i = 0; i < 10; i++)
        log_limited(&limit, LOG_INFO, "again");
    usleep(60000);
    assert_true(log_limited(&limit, LOG_INFO, "again"));
    text = capture_end();
    for (const char *p = text; (p = strchr(p, '\n')); p++)
        lines++;
    assert_int_equal(lines, 3);
    assert_non_null(strstr(text, "again (8 more like this were left out)\n"));
}

static void test_levels(void **state)
{
    assert_int_equal(log_level_parse("error"), 3);
    assert_int_equal(log_level_parse("debug"), 7);
    assert_int_equal(log_level_parse("loud"), -EINVAL);
    errno = ENOENT;
    capture_begin();
    errno = ENOENT;
    log_info("%m");
    assert_int_equal(errno, ENOENT);
    assert_non_null(strstr(capture_end(), "No such file or directory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_terminal),     cmocka_unit_test(test_journal),
        cmocka_unit_test(test_hostile_text), cmocka_unit_test(test_rate_limit),
        cmocka_unit_test(test_levels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
