/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are looked at and cut meanwhile: mapped_file.h. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "mapped_file.h"

#define PAGES 4

static char path[] = "/tmp/npumem-mapped.XXXXXX";
static size_t page;

static int file_make(void **state)
{
    int fd;

    (void)state;
    strcpy(path + strlen(path) - 6, "XXXXXX");
    fd = mkstemp(path);
    page = (size_t)sysconf(_SC_PAGESIZE);
    char *bytes = malloc(PAGES * page);
    memset(bytes, 'x', PAGES * page);
    assert_int_equal(write(fd, bytes, PAGES * page), PAGES * page);
    free(bytes);
    close(fd);
    return 0;
}

static int file_remove(void **state)
{
    (void)state;
    return unlink(path);
}

/* Without a range that the process maps, the file is reached by its name. */
static struct maps_entry entry_of(void)
{
    return (struct maps_entry){.path = path};
}

static void test_whole(void **state)
{
    struct mapped_file f = MAPPED_FILE_NONE;
    struct maps_entry entry = entry_of();
    const char *data;

    (void)state;
    assert_int_equal(mapped_file_get((uint32_t)getpid(), &entry, UINT64_MAX, &f), 0);
    data = f.data;
    assert_int_equal(f.bytes, PAGES * page);
    assert_int_equal(data[PAGES * page - 1], 'x');
    assert_false(f.is_torn);
    mapped_file_close(&f);
    mapped_file_close(&f); /* closed already */
}

/* Two files at once: the cut one reads as zeroes beyond its end, the other is untouched. */
static void test_cut(void **state)
{
    struct mapped_file f = MAPPED_FILE_NONE, other = MAPPED_FILE_NONE;
    struct maps_entry entry = entry_of(), self = {.path = "/proc/self/exe"};
    char exe[256] = "";
    const volatile char *data;

    (void)state;
    mapped_file_guard(); /* in each test: cmocka has a handler of its own around them */
    assert_true(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
    self.path = exe;
    assert_int_equal(mapped_file_get((uint32_t)getpid(), &entry, UINT64_MAX, &f), 0);
    assert_int_equal(mapped_file_get((uint32_t)getpid(), &self, UINT64_MAX, &other), 0);
    data = f.data;
    assert_int_equal(data[3 * page], 'x');
    assert_int_equal(truncate(path, (off_t)page), 0);
    assert_false(f.is_torn); /* nobody looked */
    assert_int_equal(data[page - 1], 'x');
    assert_int_equal(data[page], 0);
    assert_int_equal(data[PAGES * page - 1], 0);
    assert_true(f.is_torn);
    assert_int_equal(((const char *)other.data)[1], 'E');
    assert_false(other.is_torn);
    mapped_file_close(&f);
    assert_int_equal(((const char *)other.data)[2], 'L');
    mapped_file_close(&other);
}

static void test_refused(void **state)
{
    struct mapped_file f = MAPPED_FILE_NONE;
    struct maps_entry entry = entry_of(), directory = {.path = "/tmp"}, none = {.path = "/none"};

    (void)state;
    assert_int_equal(mapped_file_get((uint32_t)getpid(), &entry, PAGES * page - 1, &f), -EFBIG);
    mapped_file_close(&f);
    assert_int_equal(mapped_file_get((uint32_t)getpid(), &directory, UINT64_MAX, &f), -EINVAL);
    mapped_file_close(&f);
    assert_int_equal(mapped_file_get((uint32_t)getpid(), &none, UINT64_MAX, &f), -ENOENT);
    mapped_file_close(&f);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(mapped_file_get((uint32_t)getpid(), &entry, UINT64_MAX, &f), -ENODATA);
    mapped_file_close(&f);
}

/* A missing page of anything else is a fault as ever, also while a file is open. */
static void test_elsewhere(void **state)
{
    int status = 0;
    pid_t child;

    (void)state;
    mapped_file_guard();
    child = fork();
    if (child == 0) {
        struct mapped_file f = MAPPED_FILE_NONE;
        struct maps_entry entry = entry_of();
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        const volatile char *other = mmap(NULL, PAGES * page, PROT_READ, MAP_SHARED, fd, 0);
        if (mapped_file_get((uint32_t)getpid(), &entry, UINT64_MAX, &f) < 0 ||
            truncate(path, (off_t)page) < 0)
            _exit(1);
        _exit(other[2 * page] ? 2 : 3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGBUS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whole, file_make, file_remove),
        cmocka_unit_test_setup_teardown(test_cut, file_make, file_remove),
        cmocka_unit_test_setup_teardown(test_refused, file_make, file_remove),
        cmocka_unit_test_setup_teardown(test_elsewhere, file_make, file_remove),
    };
    return cmocka_run_group_tests_name("mapped_file", tests, NULL, NULL);
}
