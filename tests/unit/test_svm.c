/* SPDX-License-Identifier: Apache-2.0 */
/* svm: the driver's tables, with the column widths and names that the 910B driver has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "svm.h"

static const char task_summary[] =
    "hostpid=4711 devpid=1203 devid=3\n"
    "cgroup used: 4K 12 2M 200 1G 0 peak 4K 12 2M 240 1G 0\n"
    "\nMem stats(Bytes):\n"
    "Devid   Mem_type                Module_name     Module_id       Current_alloced_size    "
    "Alloced_peak_size       Alloc_cnt       Free_cnt\n"
    "NA      HOST_MEM                RUNTIME         7               0                       "
    "11341824                3               3               \n"
    "dev3    MEM_DEV_SMALL_HBM       RUNTIME         7               28672                   "
    "118784                  14              7               \n"
    "dev3    MEM_DEV_HUGE_HBM        APP             33              64680361984             "
    "64680361984             3113            0               \n";

static void test_rows_of_a_task(void **state)
{
    struct svm_reader r;
    struct svm_row row;
    svm_reader_init(&r, task_summary, sizeof(task_summary) - 1);
    assert_int_equal(svm_next(&r, &row), 1);
    assert_int_equal(row.device, SVM_DEVICE_NONE);
    assert_string_equal(row.mem_type, "HOST_MEM");
    assert_false(svm_row_is_device(&row));
    assert_int_equal(row.peak_bytes, 11341824);
    assert_int_equal(svm_next(&r, &row), 1);
    assert_int_equal(row.device, 3);
    assert_int_equal(row.module_id, 7);
    assert_int_equal(row.alloc_count, 14);
    assert_int_equal(row.free_count, 7);
    assert_int_equal(svm_next(&r, &row), 1);
    assert_string_equal(row.mem_type, "MEM_DEV_HUGE_HBM");
    assert_string_equal(row.module_name, "APP");
    assert_int_equal(row.module_id, 33);
    assert_true(row.current_bytes == 64680361984);
    assert_int_equal(row.tgid, 0);
    assert_true(svm_row_is_device(&row));
    assert_int_equal(svm_next(&r, &row), 0);
}

static void test_device_summary_says_whose_rows_follow(void **state)
{
    static const char text[] = "Mem stats(Bytes):\n"
                               "Hostpid=4711\n"
                               "dev0 MEM_DEV_HUGE_HBM HCCL 3 419467264 419500032 6 2\n"
                               "Hostpid=4800\n"
                               "Hostpid=4900\n"
                               "dev0 MEM_DEV_HUGE_HBM APP 33 2097152 2097152 1 0";
    struct svm_reader r;
    struct svm_row row;
    svm_reader_init(&r, text, sizeof(text) - 1);
    assert_int_equal(svm_next(&r, &row), 1);
    assert_int_equal(row.tgid, 4711);
    assert_int_equal(row.module_id, 3);
    assert_int_equal(svm_next(&r, &row), 1);
    assert_int_equal(row.tgid, 4900);
    assert_int_equal(row.current_bytes, 2097152);
    assert_int_equal(svm_next(&r, &row), 0);
}

static void check_no_row(const char *text)
{
    struct svm_reader r;
    struct svm_row row;
    svm_reader_init(&r, text, strlen(text));
    assert_int_equal(svm_next(&r, &row), 0);
}

static void test_what_is_not_a_row_is_passed_over(void **state)
{
    check_no_row("");
    check_no_row("dev0 MEM_DEV_HUGE_HBM APP 33 1 1 1\n");                      /* a column short */
    check_no_row("dev0 MEM_DEV_HUGE_HBM APP 33 18446744073709551616 1 1 1\n"); /* 2^64 */
    check_no_row("dev0 MEM_DEV_HUGE_HBM APP 256 1 1 1 1\n");                   /* no such module */
    check_no_row("devX MEM_DEV_HUGE_HBM APP 33 1 1 1 1\n");
    check_no_row("dev65535 MEM_DEV_HUGE_HBM APP 33 1 1 1 1\n");
    check_no_row("dev0 MEM_DEV_HUGE_HBM APP 33 -1 1 1 1\n");
    check_no_row("0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n");
}

static void test_plain_device_numbers_and_tabs(void **state)
{
    static const char text[] = "5\tMEM_DEV_HUGE_HBM\tMY MODULE\t33\t1\t2\t3\t4\r\n";
    struct svm_reader r;
    struct svm_row row;
    svm_reader_init(&r, text, sizeof(text) - 1);
    assert_int_equal(svm_next(&r, &row), 1);
    assert_int_equal(row.device, 5);
    assert_string_equal(row.module_name, "MY MODULE");
    assert_int_equal(row.free_count, 4);
}

static void test_long_names_are_cut(void **state)
{
    static const char text[] =
        "dev0 MEM_DEV_HUGE_HBM ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUVWXYZ 1 2 3 4 5\n";
    struct svm_reader r;
    struct svm_row row;
    svm_reader_init(&r, text, sizeof(text) - 1);
    assert_int_equal(svm_next(&r, &row), 1);
    assert_string_equal(row.module_name, "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDE");
}

static void test_scheduler_memory_is_not_the_cards(void **state)
{
    struct svm_row row = {.device = 0};
    snprintf(row.mem_type, sizeof(row.mem_type), "MEM_DEV_HUGE_TS_DDR");
    assert_false(svm_row_is_device(&row));
    snprintf(row.mem_type, sizeof(row.mem_type), "MEM_DEV_SMALL_P2P_HBM");
    assert_true(svm_row_is_device(&row));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_a_task),
        cmocka_unit_test(test_device_summary_says_whose_rows_follow),
        cmocka_unit_test(test_what_is_not_a_row_is_passed_over),
        cmocka_unit_test(test_plain_device_numbers_and_tabs),
        cmocka_unit_test(test_long_names_are_cut),
        cmocka_unit_test(test_scheduler_memory_is_not_the_cards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
