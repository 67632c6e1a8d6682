/* SPDX-License-Identifier: Apache-2.0 */
/* blockfn: on look-alikes of libtorch_npu.so that are built beside the test. Oracle: nm. The real
 * wheels are read by tests/wheels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blockfn.h"
#include "cleanup.h"

struct fixture {
    uint8_t *data;
    size_t size;
    uint64_t report_vaddr; /* what nm says */
};

static void fixture_open(const char *name, struct fixture *ret)
{
    char path[4096], line[512];
    snprintf(path, sizeof(path), FIXTURES "/%s.so", name);
    _cleanup_fclose_ FILE *f = fopen(path, "r");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    ret->size = (size_t)ftell(f);
    rewind(f);
    ret->data = malloc(ret->size); /* exactly as large: a read beyond it is seen by ASan */
    assert_non_null(ret->data);
    assert_int_equal(fread(ret->data, 1, ret->size, f), ret->size);

    ret->report_vaddr = 0;
    snprintf(path, sizeof(path), FIXTURES "/%s.nm", name);
    _cleanup_fclose_ FILE *nm = fopen(path, "r");
    assert_non_null(nm);
    while (fgets(line, sizeof(line), nm))
        if (strstr(line, "reportMemoryDataToNpuProfiler"))
            ret->report_vaddr = strtoull(line, NULL, 16);
    assert_int_not_equal(ret->report_vaddr, 0);
}

static void fixture_close(struct fixture *f)
{
    free(f->data);
}

static int find(const struct fixture *f, struct blockfn *ret, struct error *error)
{
    struct elf_image e;
    int r = elf_image_init(&e, f->data, f->size, error);
    return r < 0 ? r : blockfn_find(&e, ret, error);
}

static void check_found(const char *name, enum blockfn_source source, enum blockfn_layout layout)
{
    struct fixture f;
    struct blockfn found;
    struct error error;
    struct elf_image e;

    fixture_open(name, &f);
    if (find(&f, &found, &error) < 0)
        fail_msg("%s: %s", name, error.what);
    assert_int_equal(found.vaddr, f.report_vaddr);
    assert_int_equal(found.source, source);
    assert_int_equal(found.layout, layout);
    /* the offset is where a loader maps that address from */
    assert_int_equal(elf_image_init(&e, f.data, f.size, &error), 0);
    const Elf64_Ehdr *eh = (const Elf64_Ehdr *)f.data;
    const Elf64_Phdr *ph = (const Elf64_Phdr *)(f.data + eh->e_phoff);
    uint64_t offset = 0;
    for (int i = 0; i < eh->e_phnum; i++)
        if (ph[i].p_type == PT_LOAD && f.report_vaddr >= ph[i].p_vaddr &&
            f.report_vaddr < ph[i].p_vaddr + ph[i].p_filesz)
            offset = f.report_vaddr - ph[i].p_vaddr + ph[i].p_offset;
    assert_int_equal(found.offset, offset);
    fixture_close(&f);
}

static void test_finds_it_in_a_stripped_library(void **state)
{
    check_found("component", BLOCKFN_BY_CODE, BLOCKFN_LAYOUT_COMPONENT);
}

static void test_tells_the_struct_without_component(void **state)
{
    check_found("v24", BLOCKFN_BY_CODE, BLOCKFN_LAYOUT_V24);
}

static void test_takes_the_symbol_where_the_code_does_not_say(void **state)
{
    check_found("named", BLOCKFN_BY_SYMBOL, BLOCKFN_LAYOUT_COMPONENT);
}

static void test_other_machine_and_linker(void **state)
{
#ifdef FIXTURE_CROSS
    check_found("component_x86_64", BLOCKFN_BY_CODE, BLOCKFN_LAYOUT_COMPONENT);
    check_found("v24_x86_64", BLOCKFN_BY_CODE, BLOCKFN_LAYOUT_V24);
    check_found("component_aarch64", BLOCKFN_BY_CODE, BLOCKFN_LAYOUT_COMPONENT);
    check_found("v24_aarch64", BLOCKFN_BY_CODE, BLOCKFN_LAYOUT_V24);
#else
    skip(); /* no ld.lld on this machine */
#endif
}

static void test_probe_goes_behind_endbr64(void **state)
{
#ifdef FIXTURE_ENDBR
    struct fixture f;
    struct blockfn found;
    struct error error;
    fixture_open("endbr", &f);
    assert_int_equal(find(&f, &found, &error), 0);
    assert_int_equal(found.vaddr, f.report_vaddr);
    static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
    assert_memory_equal(f.data + found.offset, endbr64, 4);
    bool push = (f.data[found.offset + 4] & 0xf8) == 0x50 || f.data[found.offset + 4] == 0x41;
    assert_int_equal(found.probe_offset, found.offset + (push ? 4 : 0));
    fixture_close(&f);
#else
    skip();
#endif
}

static void check_refused(const char *name, int code, const char *what)
{
    struct fixture f;
    struct blockfn found;
    struct error error;
    fixture_open(name, &f);
    assert_int_equal(find(&f, &found, &error), code);
    assert_non_null(strstr(error.what, what));
    fixture_close(&f);
}

static void test_refuses_to_choose_between_two(void **state)
{
    check_refused("ambiguous", -ENOTUNIQ, "2 functions fit");
}

static void test_says_which_step_failed(void **state)
{
    check_refused("absent", -ENOENT, "FreeBlock is not exported");
}

static void test_another_library_has_none(void **state)
{
    struct elf_image e;
    struct blockfn found;
    struct error error;
    _cleanup_fclose_ FILE *f = fopen("/proc/self/exe", "r");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    size_t size = (size_t)ftell(f);
    rewind(f);
    _cleanup_free_ uint8_t *data = malloc(size);
    assert_int_equal(fread(data, 1, size, f), size);
    assert_int_equal(elf_image_init(&e, data, size, &error), 0);
    assert_int_equal(blockfn_find(&e, &found, &error), -ENOENT);
    assert_non_null(strstr(error.what, "does not refer to MemoryData"));
}

static void test_missing_unwind_table_is_said(void **state)
{
    struct fixture f;
    struct blockfn found;
    struct error error;
    fixture_open("component", &f);
    Elf64_Ehdr *eh = (Elf64_Ehdr *)f.data;
    Elf64_Phdr *ph = (Elf64_Phdr *)(f.data + eh->e_phoff);
    for (int i = 0; i < eh->e_phnum; i++)
        if (ph[i].p_type == PT_GNU_EH_FRAME)
            ph[i].p_type = PT_NULL;
    assert_int_equal(find(&f, &found, &error), -ENOENT);
    assert_non_null(strstr(error.what, "unwind table"));
    fixture_close(&f);
}

/* Whatever is broken, an answer is either the true place or an error, and nothing is read outside.
 */
static void test_corrupt_copies_never_mislead(void **state)
{
    struct fixture f;
    unsigned found_count = 0, refused_count = 0;
    fixture_open("component", &f);
    uint8_t *broken = malloc(f.size);
    assert_non_null(broken);
    for (size_t cut = 0; cut < f.size; cut += f.size / 97) {
        struct fixture copy = {malloc(cut + 1), cut, 0};
        struct blockfn found;
        struct error error;
        memcpy(copy.data, f.data, cut);
        int r = find(&copy, &found, &error);
        assert_true(r < 0 || found.vaddr == f.report_vaddr);
        free(copy.data);
    }
    uint32_t random = 12345;
    for (unsigned i = 0; i < 3000; i++) {
        struct fixture copy = {broken, f.size, 0};
        struct blockfn found;
        struct error error;
        memcpy(broken, f.data, f.size);
        for (unsigned k = 0; k < 4; k++) {
            random = random * 1664525 + 1013904223;
            broken[(random >> 8) % f.size] = (uint8_t)random;
        }
        int r = find(&copy, &found, &error);
        found_count += r == 0;
        refused_count += r < 0;
    }
    assert_true(found_count > 1000); /* most bytes do not matter */
    assert_true(refused_count > 0);
    free(broken);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_it_in_a_stripped_library),
        cmocka_unit_test(test_tells_the_struct_without_component),
        cmocka_unit_test(test_takes_the_symbol_where_the_code_does_not_say),
        cmocka_unit_test(test_other_machine_and_linker),
        cmocka_unit_test(test_probe_goes_behind_endbr64),
        cmocka_unit_test(test_refuses_to_choose_between_two),
        cmocka_unit_test(test_says_which_step_failed),
        cmocka_unit_test(test_another_library_has_none),
        cmocka_unit_test(test_missing_unwind_table_is_said),
        cmocka_unit_test(test_corrupt_copies_never_mislead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
