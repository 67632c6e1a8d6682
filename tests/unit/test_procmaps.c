/* SPDX-License-Identifier: Apache-2.0 */
/* procmaps and caller_map: lines as Linux 6.x prints them, and this process's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "procmaps.h"

static int read_one(const char *text, struct maps_reader *r, struct maps_entry *ret)
{
    maps_reader_init(r, text, strlen(text));
    return maps_next(r, ret);
}

static void test_a_line_of_a_library(void **state)
{
    struct maps_reader r;
    struct maps_entry e;
    assert_int_equal(
        read_one("7f1c00000000-7f1c00021000 r-xp 00026000 fe:01 1048602                    "
                 "/usr/local/Ascend/lib64/libascendcl.so\n",
                 &r, &e),
        1);
    assert_int_equal(e.start, 0x7f1c00000000);
    assert_int_equal(e.end, 0x7f1c00021000);
    assert_int_equal(e.offset, 0x26000);
    assert_int_equal(e.dev_major, 0xfe);
    assert_int_equal(e.dev_minor, 1);
    assert_int_equal(e.inode, 1048602);
    assert_true(e.readable && e.executable && !e.writable && !e.shared && !e.deleted);
    assert_string_equal(e.path, "/usr/local/Ascend/lib64/libascendcl.so");
    assert_int_equal(maps_next(&r, &e), 0);
    assert_int_equal(r.malformed_count, 0);
}

static void test_deleted_is_stripped_and_told(void **state)
{
    struct maps_reader r;
    struct maps_entry e;
    assert_int_equal(read_one("1000-2000 r-xp 00000000 00:1b 7 /lib/my lib.so (deleted)", &r, &e),
                     1);
    assert_true(e.deleted);
    assert_string_equal(e.path, "/lib/my lib.so");
}

static void test_newline_in_a_path_is_decoded_and_a_backslash_kept(void **state)
{
    struct maps_reader r;
    struct maps_entry e;
    assert_int_equal(read_one("1000-2000 r--s 00000000 00:1b 7 /a\\012b\\040c", &r, &e), 1);
    assert_string_equal(e.path, "/a\nb\\040c");
    assert_true(e.shared);
}

static void test_anonymous_memory_has_no_path(void **state)
{
    struct maps_reader r;
    struct maps_entry e;
    assert_int_equal(read_one("1000-2000 rw-p 00000000 00:00 0 \n", &r, &e), 1);
    assert_string_equal(e.path, "");
    assert_int_equal(e.inode, 0);
}

static void test_malformed_lines_are_skipped_and_counted(void **state)
{
    struct maps_reader r;
    struct maps_entry e;
    assert_int_equal(read_one("zzz\n2000-1000 r-xp 0 0:0 0\n1000-2000 r-xp\n"
                              "11111111111111111-2 r-xp 0 0:0 0\n"
                              "3000-4000 r-xp 00000000 00:1b 7 /ok\n",
                              &r, &e),
                     1);
    assert_int_equal(e.start, 0x3000);
    assert_int_equal(r.malformed_count, 4);
}

static void test_a_path_too_long_makes_the_line_malformed(void **state)
{
    static char text[MAPS_PATH_MAX + 100];
    struct maps_reader r;
    struct maps_entry e;
    int n = snprintf(text, sizeof(text), "1000-2000 r-xp 00000000 00:1b 7 /");
    memset(text + n, 'x', MAPS_PATH_MAX);
    assert_int_equal(read_one(text, &r, &e), 0);
    assert_int_equal(r.malformed_count, 1);
}

static void check_library(const char *path, const char *name)
{
    int id = library_match(path);
    if (!name) {
        assert_int_equal(id, -1);
        return;
    }
    assert_true(id >= 0 && id < library_count());
    assert_string_equal(library_name(id), name);
}

static void test_library_names_match_exactly(void **state)
{
    check_library("/usr/local/Ascend/lib64/libascendcl.so", "ascendcl");
    check_library("/x/libascendcl.so.1", "ascendcl");
    check_library("/x/libascendcl.so.1.2.3", "ascendcl");
    check_library("libhcomm.so", "hccl");
    check_library("/x/libascendcl_impl.so", "ascendcl_impl");
    check_library("/x/libascendcl.so.bak", NULL);
    check_library("/x/libascendcl.so.", NULL);
    check_library("/x/libascendcl.so1", NULL);
    check_library("/x/mylibascendcl.so", NULL);
    check_library("/usr/lib/x86_64-linux-gnu/libacl.so.1", NULL); /* POSIX ACL of every ls */
    check_library("/x/libascendcl.so/other.so", NULL);
}

static void check_name(const char *path, const char *name)
{
    char got[CALLER_NAME_MAX];
    caller_name_from_path(path, got);
    assert_string_equal(got, name);
}

static void test_caller_names(void **state)
{
    check_name("/x/torch_npu/lib/libtorch_npu.so", "torch_npu");
    check_name("/x/libascend_hal.so", "hal");
    check_name("/x/vllm_ascend_C.cpython-311-x86_64-linux-gnu.so", "vllm_ascend_C");
    check_name("/x/vllm_ascend_C.abi3.so", "vllm_ascend_C");
    check_name("/x/libtorch_cpu.so", "torch_cpu");
    check_name("/x/libgomp-a34b3233.so.1.0.0", "gomp");
    check_name("/x/libfoo-1.2.so.3", "foo-1.2");
    check_name("/usr/bin/python3.11", "python");
    check_name("/usr/lib/libpython3.13t.so.1.0", "python");
    check_name("/usr/bin/librarian", "librarian");
    check_name("/usr/bin/pythonista", "pythonista");
    check_name("[vdso]", "");
    check_name("", "");
}

static void test_caller_map_knows_where_functions_are(void **state)
{
    static char text[1 << 20];
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    size_t bytes = fread(text, 1, sizeof(text), f);
    fclose(f);
    struct caller_map *m;
    bool truncated;
    assert_int_equal(caller_map_new(text, bytes, &m), 0);
    assert_string_equal(caller_map_name(m, (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, "getppid")),
                        "c");
    assert_string_equal(caller_map_name(m, (uint64_t)(uintptr_t)&test_caller_names),
                        "test_procmaps");
    assert_string_equal(caller_map_name(m, (uint64_t)(uintptr_t)text), ""); /* data, not code */
    assert_true(caller_map_count(m, &truncated) >= 3);
    assert_false(truncated);
    assert_null(caller_map_free(m));
}

static void test_caller_map_ends_are_exclusive(void **state)
{
    static const char text[] = "1000-2000 r-xp 00000000 00:1b 7 /a/libhccl.so\n"
                               "2000-3000 r-xp 00001000 00:1b 7 /a/libhccl.so\n"
                               "3000-4000 r--p 00002000 00:1b 7 /a/libhccl.so\n"
                               "5000-6000 r-xp 00000000 00:00 0 \n"
                               "6000-7000 r-xp 00000000 00:1b 8 /a/libatb.so\n";
    struct caller_map *m;
    assert_int_equal(caller_map_new(text, sizeof(text) - 1, &m), 0);
    assert_int_equal(caller_map_count(m, NULL), 2); /* neighbours of one name are one range */
    assert_string_equal(caller_map_name(m, 0xfff), "");
    assert_string_equal(caller_map_name(m, 0x1000), "hccl");
    assert_string_equal(caller_map_name(m, 0x2fff), "hccl");
    assert_string_equal(caller_map_name(m, 0x3000), "");
    assert_string_equal(caller_map_name(m, 0x5500), ""); /* code made at run time */
    assert_string_equal(caller_map_name(m, 0x6000), "atb");
    assert_string_equal(caller_map_name(m, UINT64_MAX), "");
    assert_string_equal(caller_map_name(NULL, 0x6000), "");
    caller_map_free(m);
}

static void test_caller_map_sorts_what_is_not_sorted(void **state)
{
    static const char text[] = "6000-7000 r-xp 00000000 00:1b 8 /a/libatb.so\n"
                               "1000-2000 r-xp 00000000 00:1b 7 /a/libhccl.so\n";
    struct caller_map *m;
    assert_int_equal(caller_map_new(text, sizeof(text) - 1, &m), 0);
    assert_string_equal(caller_map_name(m, 0x1800), "hccl");
    assert_string_equal(caller_map_name(m, 0x6800), "atb");
    caller_map_free(m);
}

static void test_caller_map_is_bounded(void **state)
{
    enum { LINES = CALLER_RANGES_MAX + 500, LINE_BYTES = 96 };
    char *text = malloc(LINES * LINE_BYTES);
    size_t bytes = 0;
    struct caller_map *m;
    bool truncated;
    assert_non_null(text);
    for (unsigned i = 0; i < LINES; i++) /* every other one merges with its neighbour */
        bytes +=
            (size_t)snprintf(text + bytes, LINE_BYTES, "%x-%x r-xp 00000000 00:1b 7 /a/lib%u.so\n",
                             0x10000 + i * 0x1000, 0x11000 + i * 0x1000, i / 2);
    assert_int_equal(caller_map_new(text, bytes, &m), 0);
    assert_int_equal(caller_map_count(m, &truncated), CALLER_RANGES_MAX / 2);
    assert_true(truncated);
    assert_string_equal(caller_map_name(m, 0x10000), "0");
    assert_string_equal(caller_map_name(m, 0x10000 + 4095 * 0x1000), "2047");
    assert_string_equal(caller_map_name(m, 0x10000 + 4096 * 0x1000), "");
    caller_map_free(m);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_of_a_library),
        cmocka_unit_test(test_deleted_is_stripped_and_told),
        cmocka_unit_test(test_newline_in_a_path_is_decoded_and_a_backslash_kept),
        cmocka_unit_test(test_anonymous_memory_has_no_path),
        cmocka_unit_test(test_malformed_lines_are_skipped_and_counted),
        cmocka_unit_test(test_a_path_too_long_makes_the_line_malformed),
        cmocka_unit_test(test_library_names_match_exactly),
        cmocka_unit_test(test_caller_names),
        cmocka_unit_test(test_caller_map_knows_where_functions_are),
        cmocka_unit_test(test_caller_map_ends_are_exclusive),
        cmocka_unit_test(test_caller_map_sorts_what_is_not_sorted),
        cmocka_unit_test(test_caller_map_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
