/* SPDX-License-Identifier: Apache-2.0 */
/* timespec: every form of systemd.time(7) that is promised; expected values from date(1). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "local_time.h"
#include "timespec.h"

#define NOW 1796024700123456789ll /* 2026-11-30T07:45:00.123456789Z */
#define S 1000000000ll

static int64_t at(const char *text)
{
    struct timespec_value v = {.wall_ns = -1};
    int r = timespec_parse(text, NOW, NULL, &v);
    if (r < 0)
        return r;
    assert_int_equal(v.kind, TIMESPEC_AT);
    return v.wall_ns;
}

static void test_relative(void **state)
{
    assert_int_equal(at("now"), NOW);
    assert_int_equal(at("-2h"), NOW - 7200 * S);
    assert_int_equal(at("+30s"), NOW + 30 * S);
    assert_int_equal(at("10 min ago"), NOW - 600 * S);
    assert_int_equal(at("1h 30min ago"), NOW - 5400 * S);
    assert_int_equal(at("-90"), NOW - 90 * S);
}

static void test_absolute(void **state)
{
    assert_int_equal(at("@1796024700"), 1796024700 * S);
    assert_int_equal(at("@1796024700.25"), 1796024700 * S + S / 4);
    assert_int_equal(at("2026-11-30T07:45:00Z"), 1796024700 * S);
    assert_int_equal(at("2026-11-30T07:45:00.123456789Z"), NOW);
    assert_int_equal(at("2026-11-30T09:45:00+02:00"), 1796024700 * S);
    assert_int_equal(at("2026-11-30T02:15:00-0530"), 1796024700 * S);
    assert_int_equal(at("2026-11-30 07:45"), 1796024700 * S);
    assert_int_equal(at("2026-11-30 07:45:00 UTC"), 1796024700 * S);
    assert_int_equal(at("2024-02-29"), 1709164800 * S);
    assert_int_equal(at("2000-02-29 12:00"), 951825600 * S);
    assert_int_equal(at("1970-01-01"), 0);
    assert_int_equal(at("07:45"), 1796024700 * S);
    assert_int_equal(at("07:45:10.5"), 1796024710 * S + S / 2);
    assert_int_equal(at("today"), 1795996800 * S);
    assert_int_equal(at("yesterday"), 1795910400 * S);
    assert_int_equal(at("tomorrow"), 1796083200 * S);
}

static void test_not_moments(void **state)
{
    static const char *const wrong[] = {
        "",
        "soon",
        "10 min",
        "ago",
        " ago",
        "-",
        "@",
        "@-1",
        "@1x",
        "2026-02-29",
        "25:00",
        "2026-13-01",
        "2026-11-30T",
        "2026-11-30T7",
        "2026-11-30T07:45:00+2",
        "mark:",
        "peaks",
        "now now",
        "2026-11-30 07:45 CET",
        "12:61",
        "2026-00-10",
        "2026-11-30T07:45:00Z Z",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(at(wrong[i]), -EINVAL);
    assert_int_equal(at("@99999999999999999999"), -ERANGE);
    assert_int_equal(at("@9999999999999"), -ERANGE);
    assert_int_equal(at("-10000d"), NOW - 864000000 * S);
    assert_int_equal(at("-40000d"), -ERANGE);
}

static void test_marks_and_peak(void **state)
{
    struct timespec_value v;
    assert_int_equal(timespec_parse("mark:before wake", NOW, NULL, &v), 0);
    assert_int_equal(v.kind, TIMESPEC_MARK);
    assert_string_equal(v.mark, "before wake");
    assert_int_equal(timespec_parse("peak", NOW, NULL, &v), 0);
    assert_int_equal(v.kind, TIMESPEC_PEAK);
}

/* mktime of a zone that is 9 hours east, without daylight saving. */
static void test_local_time(void **state)
{
    struct timespec_value v;
    setenv("TZ", "TST-9", 1);
    tzset();
    assert_int_equal(timespec_parse("2026-11-30 16:45", NOW, local_seconds, &v), 0);
    assert_int_equal(v.wall_ns, 1796024700 * S);
    assert_int_equal(timespec_parse("16:45", NOW, local_seconds, &v), 0);
    assert_int_equal(v.wall_ns, 1796024700 * S);
    assert_int_equal(timespec_parse("today", NOW, local_seconds, &v), 0);
    assert_int_equal(v.wall_ns, (1795996800 - 9 * 3600) * S);
    assert_int_equal(timespec_parse("2026-11-30T07:45:00Z", NOW, local_seconds, &v), 0);
    assert_int_equal(v.wall_ns, 1796024700 * S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relative),    cmocka_unit_test(test_absolute),
        cmocka_unit_test(test_not_moments), cmocka_unit_test(test_marks_and_peak),
        cmocka_unit_test(test_local_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
