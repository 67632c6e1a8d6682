/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sideband: records written byte for byte as perf_event_open(2) lays them out, gathered from two
 * buffers in the order in which a reader can meet them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "sideband.h"

#define MMAP2 10
#define FORK 7
#define COMM 3
#define LOST 2
#define EXIT 4
#define MISC_COMM_EXEC (1u << 13)

struct bytes {
    uint8_t data[512];
    size_t length;
};

static void put(struct bytes *b, const void *from, size_t length)
{
    memcpy(b->data + b->length, from, length);
    b->length += length;
}

static void put_u32(struct bytes *b, uint32_t value)
{
    put(b, &value, sizeof(value));
}

static void put_u64(struct bytes *b, uint64_t value)
{
    put(b, &value, sizeof(value));
}

/* The text, padded to a multiple of 8. */
static void put_text(struct bytes *b, const char *text)
{
    char padded[128] = "";

    strcpy(padded, text);
    put(b, padded, (strlen(text) + 8) / 8 * 8);
}

static void begin(struct bytes *b, uint32_t type, uint16_t misc)
{
    b->length = 0;
    put_u32(b, type);
    put(b, &misc, sizeof(misc));
    put(b, &misc, sizeof(misc)); /* the length, which end() knows */
}

static void end(struct bytes *b, uint64_t time_ns)
{
    put_u64(b, time_ns);
    uint16_t length = (uint16_t)b->length;
    memcpy(b->data + 6, &length, sizeof(length));
}

static struct bytes mmap2(uint32_t tgid, const char *name, uint64_t time_ns)
{
    struct bytes b;

    begin(&b, MMAP2, 0);
    put_u32(&b, tgid);
    put_u32(&b, tgid + 1);
    for (int i = 0; i < 3; i++)
        put_u64(&b, 0x1000); /* address, length, offset */
    put_u32(&b, 8);
    put_u32(&b, 1);
    put_u64(&b, 77); /* inode */
    put_u64(&b, 0);
    put_u32(&b, 5);
    put_u32(&b, 2);
    put_text(&b, name);
    end(&b, time_ns);
    return b;
}

static struct bytes fork_of(uint32_t type, uint32_t tgid, uint32_t parent, uint64_t time_ns)
{
    struct bytes b;

    begin(&b, type, 0);
    put_u32(&b, tgid);
    put_u32(&b, parent);
    put_u32(&b, tgid + 1);
    put_u32(&b, parent);
    put_u64(&b, 5); /* the record's own time, in a clock of its own */
    end(&b, time_ns);
    return b;
}

static struct bytes comm(uint32_t tgid, uint16_t misc, uint64_t time_ns)
{
    struct bytes b;

    begin(&b, COMM, misc);
    put_u32(&b, tgid);
    put_u32(&b, tgid);
    put_text(&b, "python3");
    end(&b, time_ns);
    return b;
}

static struct bytes lost(uint64_t time_ns)
{
    struct bytes b;

    begin(&b, LOST, 0);
    put_u64(&b, 1);
    put_u64(&b, 12);
    end(&b, time_ns);
    return b;
}

static void decodes(struct bytes b, enum sideband_kind kind, uint32_t tgid, uint64_t time_ns)
{
    struct sideband s;

    assert_true(sideband_decode(b.data, b.length, &s));
    assert_int_equal(s.kind, kind);
    assert_int_equal(s.tgid, tgid);
    assert_int_equal(s.time_ns, time_ns);
}

static void test_decode(void **state)
{
    struct sideband s;
    struct bytes b = fork_of(FORK, 30, 20, 8);

    decodes(mmap2(10, "/usr/lib/libascendcl.so", 7), SIDEBAND_MAPPED, 10, 7);
    decodes(b, SIDEBAND_FORKED, 30, 8);
    assert_true(sideband_decode(b.data, b.length, &s));
    assert_int_equal(s.parent_tgid, 20);
    decodes(comm(40, 0, 9), SIDEBAND_RENAMED, 40, 9);
    decodes(comm(40, MISC_COMM_EXEC, 9), SIDEBAND_EXECUTED, 40, 9);
    decodes(lost(11), SIDEBAND_LOST, 0, 11);
}

static void test_of_no_interest(void **state)
{
    struct bytes all[] = {mmap2(10, "/usr/lib/libc.so.6", 7), fork_of(FORK, 20, 20, 8),
                          fork_of(EXIT, 30, 20, 8)};
    struct sideband s;

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        assert_false(sideband_decode(all[i].data, all[i].length, &s));
}

/* Cut anywhere, into a buffer of just that size. */
static void test_cut(void **state)
{
    struct bytes all[] = {mmap2(10, "/usr/lib/libascendcl.so", 7), fork_of(FORK, 30, 20, 8),
                          comm(40, 0, 9)};
    static const size_t least[] = {72 + 24 + 8, 24 + 8, 16 + 8};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        for (size_t length = 0; length < least[i]; length++) {
            uint8_t *exact = malloc(length ? length : 1);
            struct sideband s;
            assert_non_null(exact);
            memcpy(exact, all[i].data, length);
            assert_false(sideband_decode(exact, length, &s));
            free(exact);
        }
}

static void add(struct sideband_list *list, uint64_t time_ns, enum sideband_kind kind)
{
    assert_int_equal(
        sideband_add(list, &(struct sideband){.time_ns = time_ns, .kind = kind, .tgid = 1}), 0);
}

static void expect(const struct sideband_list *list, const enum sideband_kind *kinds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_int_equal(list->records[i].kind, kinds[i]);
}

/* The process was forked on one CPU, called exec on a second, mapped on the first; a buffer is read
 * after the other. */
static void test_across_cpus(void **state)
{
    static const enum sideband_kind kinds[] = {SIDEBAND_FORKED, SIDEBAND_EXECUTED, SIDEBAND_MAPPED};
    struct sideband_list list = {};

    add(&list, 100, SIDEBAND_FORKED);
    add(&list, 300, SIDEBAND_MAPPED);
    add(&list, 200, SIDEBAND_EXECUTED);
    assert_int_equal(sideband_sort(&list, 300), 3);
    expect(&list, kinds, 3);
    sideband_clear(&list);
}

/* Between the readings of two buffers a process called exec (first buffer, read already) and mapped
 * (second): what it mapped waits for the round that has the exec. */
static void test_later_than_the_reading(void **state)
{
    static const enum sideband_kind kinds[] = {SIDEBAND_EXECUTED, SIDEBAND_MAPPED};
    struct sideband_list list = {};

    add(&list, 100, SIDEBAND_FORKED);
    add(&list, 300, SIDEBAND_MAPPED);
    assert_int_equal(sideband_sort(&list, 150), 1);
    expect(&list, (enum sideband_kind[]){SIDEBAND_FORKED}, 1);
    sideband_drop(&list, 1);
    add(&list, 200, SIDEBAND_EXECUTED);
    assert_int_equal(sideband_sort(&list, 400), 2);
    expect(&list, kinds, 2);
    sideband_drop(&list, 2);
    assert_int_equal(list.count, 0);
    assert_int_equal(sideband_sort(&list, 500), 0);
    sideband_clear(&list);
}

static void test_equal_times(void **state)
{
    struct sideband_list list = {};

    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(sideband_add(&list, &(struct sideband){.time_ns = 7 - i % 2, .tgid = i}),
                         0);
    assert_int_equal(sideband_sort(&list, 7), 1000);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(list.records[i].tgid, i < 500 ? 2 * i + 1 : 2 * (i - 500));
    sideband_clear(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode),      cmocka_unit_test(test_of_no_interest),
        cmocka_unit_test(test_cut),         cmocka_unit_test(test_across_cpus),
        cmocka_unit_test(test_equal_times), cmocka_unit_test(test_later_than_the_reading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
