/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes and durations as text, both ways. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "units.h"

static void bytes_are_written_in_the_largest_unit_that_fits(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1.00 KiB"},
        {1536, "1.50 KiB"},
        {1048575, "1024.00 KiB"},
        {20971520, "20.00 MiB"},
        {68719476736, "64.00 GiB"},
        {UINT64_MAX, "17179869184.00 GiB"},
    };
    char text[UNITS_TEXT_BYTES];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(units_format_bytes(text, cases[i].bytes, UNITS_AUTO), cases[i].text);
}

static void bytes_are_written_in_the_unit_that_was_asked_for(void **state)
{
    char text[UNITS_TEXT_BYTES];
    assert_string_equal(units_format_bytes(text, 20971520, UNITS_B), "20971520 B");
    assert_string_equal(units_format_bytes(text, 20971520, UNITS_KIB), "20480.00 KiB");
    assert_string_equal(units_format_bytes(text, 20971520, UNITS_GIB), "0.02 GiB");
    assert_string_equal(units_format_bytes(text, UINT64_MAX, UNITS_B), "18446744073709551615 B");
}

static void a_difference_has_a_sign_only_when_negative(void **state)
{
    char text[UNITS_TEXT_BYTES];
    assert_string_equal(units_format_signed_bytes(text, -1536, UNITS_AUTO), "-1.50 KiB");
    assert_string_equal(units_format_signed_bytes(text, 1536, UNITS_AUTO), "1.50 KiB");
    assert_string_equal(units_format_signed_bytes(text, INT64_MIN, UNITS_B),
                        "-9223372036854775808 B");
}

static void sizes_are_read_with_and_without_a_unit(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},          {"4096", 4096},          {" 4096 B ", 4096},
        {"2MiB", 2097152}, {"2m", 2097152},         {"1.5 GiB", 1610612736},
        {"0.5kib", 512},   {"1TiB", 1099511627776}, {"18446744073709551615", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t bytes = 1;
        assert_int_equal(units_parse_bytes(cases[i].text, &bytes), 0);
        assert_int_equal(bytes, cases[i].bytes);
    }
}

static void what_is_no_size_is_refused_and_the_result_stays(void **state)
{
    static const char *const cases[] = {
        "",      " ",    "MiB", "-1",  "1.",  ".5",   "1.2.3", "1 XiB",          "1MB",
        "1MiBx", "0x10", "1 2", "0.3", "1e3", "1,5M", "nan",   "0.1234567891GiB"};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t bytes = 77;
        assert_int_equal(units_parse_bytes(cases[i], &bytes), -EINVAL);
        assert_int_equal(bytes, 77);
    }
}

static void a_size_beyond_64_bits_is_out_of_range(void **state)
{
    uint64_t bytes = 77;
    assert_int_equal(units_parse_bytes("18446744073709551616", &bytes), -ERANGE);
    assert_int_equal(units_parse_bytes("16384PiB", &bytes), -ERANGE);
    assert_int_equal(units_parse_bytes("18446744073709551615KiB", &bytes), -ERANGE);
    assert_int_equal(bytes, 77);
    assert_int_equal(units_parse_bytes("16383PiB", &bytes), 0);
    assert_int_equal(bytes, (uint64_t)16383 << 50);
}

static void scales_have_names(void **state)
{
    enum units_scale scale = UNITS_AUTO;
    assert_int_equal(units_parse_scale("mib", &scale), 0);
    assert_int_equal(scale, UNITS_MIB);
    assert_int_equal(units_parse_scale("auto", &scale), 0);
    assert_int_equal(scale, UNITS_AUTO);
    assert_int_equal(units_parse_scale("MB", &scale), -EINVAL);
}

static void durations_are_written_in_their_two_largest_units(void **state)
{
    static const struct {
        uint64_t ns;
        const char *text;
    } cases[] = {
        {999, "999 ns"},
        {1500, "1 us"},
        {12345678, "12 ms"},
        {5200000000, "5.2 s"},
        {200000000000, "3 min 20 s"},
        {7500000000000, "2 h 5 min"},
        {356400000000000, "4 d 3 h"},
    };
    char text[UNITS_TEXT_BYTES];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(units_format_duration(text, cases[i].ns), cases[i].text);
}

static void durations_are_read_alone_or_in_a_row(void **state)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } cases[] = {
        {"5", 5000000000},
        {"250ms", 250000000},
        {"1.5 s", 1500000000},
        {"2min", 120000000000},
        {"1h 30min", 5400000000000},
        {"1d", 86400000000000},
        {"10us", 10000},
        {"7 ns", 7},
        {"1h30min5s", 5405000000000},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t ns = 1;
        assert_int_equal(units_parse_duration(cases[i].text, &ns), 0);
        assert_int_equal(ns, cases[i].ns);
    }
}

static void what_is_no_duration_is_refused(void **state)
{
    uint64_t ns = 77;
    assert_int_equal(units_parse_duration("", &ns), -EINVAL);
    assert_int_equal(units_parse_duration("1y", &ns), -EINVAL);
    assert_int_equal(units_parse_duration("1h 5", &ns), -EINVAL);
    assert_int_equal(units_parse_duration("-5s", &ns), -EINVAL);
    assert_int_equal(units_parse_duration("99999999999w", &ns), -ERANGE);
    assert_int_equal(ns, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_written_in_the_largest_unit_that_fits),
        cmocka_unit_test(bytes_are_written_in_the_unit_that_was_asked_for),
        cmocka_unit_test(a_difference_has_a_sign_only_when_negative),
        cmocka_unit_test(sizes_are_read_with_and_without_a_unit),
        cmocka_unit_test(what_is_no_size_is_refused_and_the_result_stays),
        cmocka_unit_test(a_size_beyond_64_bits_is_out_of_range),
        cmocka_unit_test(scales_have_names),
        cmocka_unit_test(durations_are_written_in_their_two_largest_units),
        cmocka_unit_test(durations_are_read_alone_or_in_a_row),
        cmocka_unit_test(what_is_no_duration_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
