/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON writer: texts by hand, misuse, broken UTF-8, running out of memory. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "json_write.h"

#define assert_text(j, text)                                                                       \
    do {                                                                                           \
        assert_int_equal(json_finish(j), 0);                                                       \
        assert_string_equal((j)->data, text);                                                      \
        assert_int_equal((j)->length, strlen(text));                                               \
        json_done(j);                                                                              \
    } while (0)

static void an_object_with_every_kind_of_value(void **state)
{
    struct json j = {0};
    json_object(&j);
    json_kstr(&j, "s", "x");
    json_ku64(&j, "u", 1);
    json_ki64(&j, "i", -1);
    json_kdouble(&j, "d", 0.5);
    json_kbool(&j, "t", true);
    json_kbool(&j, "f", false);
    json_kstr(&j, "n", NULL);
    json_khex(&j, "h", 0x12c0);
    json_karray(&j, "a");
    json_u64(&j, 1);
    json_object(&j);
    json_end(&j);
    json_null(&j);
    json_end(&j);
    json_kobject(&j, "o");
    json_end(&j);
    json_end(&j);
    assert_text(&j, "{\"s\":\"x\",\"u\":1,\"i\":-1,\"d\":0.5,\"t\":true,\"f\":false,\"n\":null,"
                    "\"h\":\"0x12c0\",\"a\":[1,{},null],\"o\":{}}");
}

static void integers_are_exact_to_64_bits(void **state)
{
    struct json j = {0};
    json_array(&j);
    json_u64(&j, UINT64_MAX);
    json_u64(&j, 9007199254740993u); /* 2^53 + 1 */
    json_i64(&j, INT64_MIN);
    json_end(&j);
    assert_text(&j, "[18446744073709551615,9007199254740993,-9223372036854775808]");
}

static void doubles_read_back_as_written_and_non_finite_is_null(void **state)
{
    struct json j = {0};
    json_array(&j);
    json_double(&j, 0.1);
    json_double(&j, 1e300);
    json_double(&j, 1.0 / 3.0);
    json_double(&j, NAN);
    json_double(&j, INFINITY);
    json_end(&j);
    assert_text(&j, "[0.1,1e+300,0.33333333333333331,null,null]");
}

static void control_characters_quotes_and_backslashes_are_escaped(void **state)
{
    struct json j = {0};
    json_strn(&j, "a\"\\/\b\t\n\v\f\r\0\x1f\x7f", 13);
    assert_text(&j, "\"a\\\"\\\\/\\b\\t\\n\\u000b\\f\\r\\u0000\\u001f\\u007f\"");
}

static void valid_utf8_passes_unchanged(void **state)
{
    struct json j = {0};
    json_str(&j, "\xc3\xa4 \xe6\x98\x87 \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf");
    assert_text(&j, "\"\xc3\xa4 \xe6\x98\x87 \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf\"");
}

static void each_broken_byte_becomes_the_replacement_character(void **state)
{
    static const struct {
        const char *in;
        int replaced;
    } cases[] = {
        {"\x80", 1},             /* continuation alone */
        {"\xc3", 1},             /* cut */
        {"\xc0\xaf", 2},         /* overlong */
        {"\xe0\x80\x80", 3},     /* overlong */
        {"\xed\xa0\x80", 3},     /* surrogate */
        {"\xf0\x80\x80\x80", 4}, /* overlong */
        {"\xf4\x90\x80\x80", 4}, /* above U+10FFFF */
        {"\xff", 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct json j = {0};
        char expected[32] = "\"";
        for (int k = 0; k < cases[i].replaced; k++)
            strcat(expected, "\xef\xbf\xbd");
        strcat(expected, "\"");
        json_str(&j, cases[i].in);
        assert_text(&j, expected);
    }
}

static void text_around_a_broken_byte_survives(void **state)
{
    struct json j = {0};
    json_str(&j, "ab\xff\"cd");
    assert_text(&j, "\"ab\xef\xbf\xbd\\\"cd\"");
}

static void a_value_without_a_key_in_an_object_is_an_error(void **state)
{
    struct json j = {0};
    json_object(&j);
    json_u64(&j, 1);
    json_end(&j);
    assert_int_equal(json_finish(&j), -EINVAL);
    json_done(&j);
}

static void a_key_in_an_array_is_an_error(void **state)
{
    struct json j = {0};
    json_array(&j);
    json_key(&j, "k");
    assert_int_equal(json_finish(&j), -EINVAL);
    json_done(&j);
}

static void a_key_without_a_value_is_an_error(void **state)
{
    struct json j = {0};
    json_object(&j);
    json_key(&j, "k");
    json_end(&j);
    assert_int_equal(json_finish(&j), -EINVAL);
    json_done(&j);
}

static void an_unclosed_container_is_an_error(void **state)
{
    struct json j = {0};
    json_array(&j);
    assert_int_equal(json_finish(&j), -EINVAL);
    json_done(&j);
}

static void an_end_too_many_is_an_error(void **state)
{
    struct json j = {0};
    json_array(&j);
    json_end(&j);
    json_end(&j);
    assert_int_equal(json_finish(&j), -EINVAL);
    json_done(&j);
}

static void two_top_level_values_are_an_error(void **state)
{
    struct json j = {0};
    json_u64(&j, 1);
    json_u64(&j, 2);
    assert_int_equal(json_finish(&j), -EINVAL);
    json_done(&j);
}

static void nothing_at_all_is_an_error(void **state)
{
    struct json j = {0};
    assert_int_equal(json_finish(&j), -EINVAL);
    json_done(&j);
}

static void sixty_four_levels_fit_and_one_more_is_an_error(void **state)
{
    struct json j = {0};
    for (int i = 0; i < 64; i++)
        json_array(&j);
    for (int i = 0; i < 64; i++)
        json_end(&j);
    assert_int_equal(json_finish(&j), 0);
    assert_int_equal(j.length, 128);
    json_done(&j);
    j = (struct json){0};
    for (int i = 0; i < 65; i++)
        json_array(&j);
    assert_int_equal(j.error, -EINVAL);
    json_done(&j);
}

static void an_error_sticks(void **state)
{
    struct json j = {.error = -ENOMEM};
    json_array(&j);
    json_u64(&j, 1);
    json_end(&j);
    assert_int_equal(json_finish(&j), -ENOMEM);
    assert_null(j.data);
}

static void a_long_text_grows_the_buffer(void **state)
{
    struct json j = {0};
    json_array(&j);
    for (int i = 0; i < 100000; i++)
        json_u64(&j, 7);
    json_end(&j);
    assert_int_equal(json_finish(&j), 0);
    assert_int_equal(j.length, 200001);
    assert_int_equal(j.data[200000], ']');
    json_done(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_with_every_kind_of_value),
        cmocka_unit_test(integers_are_exact_to_64_bits),
        cmocka_unit_test(doubles_read_back_as_written_and_non_finite_is_null),
        cmocka_unit_test(control_characters_quotes_and_backslashes_are_escaped),
        cmocka_unit_test(valid_utf8_passes_unchanged),
        cmocka_unit_test(each_broken_byte_becomes_the_replacement_character),
        cmocka_unit_test(text_around_a_broken_byte_survives),
        cmocka_unit_test(a_value_without_a_key_in_an_object_is_an_error),
        cmocka_unit_test(a_key_in_an_array_is_an_error),
        cmocka_unit_test(a_key_without_a_value_is_an_error),
        cmocka_unit_test(an_unclosed_container_is_an_error),
        cmocka_unit_test(an_end_too_many_is_an_error),
        cmocka_unit_test(two_top_level_values_are_an_error),
        cmocka_unit_test(nothing_at_all_is_an_error),
        cmocka_unit_test(sixty_four_levels_fit_and_one_more_is_an_error),
        cmocka_unit_test(an_error_sticks),
        cmocka_unit_test(a_long_text_grows_the_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
