/* SPDX-License-Identifier: Apache-2.0 */
/* elf_image: on the running libc (oracle: the loader) and on a small image made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "elf_image.h"
#include "procmaps.h"

/*
 * The image by hand: headers and tables in one segment (offset 0 = vaddr 0), code in another one
 * whose offset 0x1000 is vaddr 0x5000, so that a mix-up of the two is seen. 8 bytes of .bss follow.
 */
struct image {
    Elf64_Ehdr eh;
    Elf64_Phdr ph[4];
    struct {
        Elf64_Nhdr head;
        char name[4];
        uint8_t id[20];
    } note;
    Elf64_Dyn dynamic[6];
    Elf64_Sym symbols[5];
    char strings[64];
    uint32_t gnu_hash[4 + 2 + 1 + 4]; /* header, one bloom word, one bucket, chain of 4 */
    uint8_t padding[0x1000];
};
enum { CODE_OFFSET = 0x1000, CODE_VADDR = 0x5000, CODE_BYTES = 0x40, IMAGE_BYTES = 0x1040 };

static const char names[] = "\0alpha\0beta\0gamma\0data";

static uint8_t *image_new(void)
{
    struct image *m = calloc(1, sizeof(*m));
    assert_non_null(m);
    memcpy(m->eh.e_ident, ELFMAG, SELFMAG);
    m->eh.e_ident[EI_CLASS] = ELFCLASS64;
    m->eh.e_ident[EI_DATA] = ELFDATA2LSB;
    m->eh.e_type = ET_DYN;
    m->eh.e_machine = EM_X86_64;
    m->eh.e_phoff = offsetof(struct image, ph);
    m->eh.e_phentsize = sizeof(Elf64_Phdr);
    m->eh.e_phnum = 4;
    m->ph[0] = (Elf64_Phdr){.p_type = PT_LOAD, .p_flags = PF_R, .p_filesz = 0x1000};
    m->ph[1] = (Elf64_Phdr){.p_type = PT_LOAD,
                            .p_flags = PF_R | PF_X,
                            .p_offset = CODE_OFFSET,
                            .p_vaddr = CODE_VADDR,
                            .p_filesz = CODE_BYTES,
                            .p_memsz = CODE_BYTES + 8};
    m->ph[2] = (Elf64_Phdr){.p_type = PT_DYNAMIC,
                            .p_offset = offsetof(struct image, dynamic),
                            .p_filesz = sizeof(m->dynamic)};
    m->ph[3] = (Elf64_Phdr){.p_type = PT_NOTE,
                            .p_offset = offsetof(struct image, note),
                            .p_filesz = sizeof(m->note),
                            .p_align = 4};
    m->note.head = (Elf64_Nhdr){4, 20, NT_GNU_BUILD_ID};
    memcpy(m->note.name, "GNU", 4);
    for (uint8_t i = 0; i < 20; i++)
        m->note.id[i] = (uint8_t)(0xa0 + i);
    m->dynamic[0] = (Elf64_Dyn){DT_SYMTAB, {offsetof(struct image, symbols)}};
    m->dynamic[1] = (Elf64_Dyn){DT_STRTAB, {offsetof(struct image, strings)}};
    m->dynamic[2] = (Elf64_Dyn){DT_STRSZ, {sizeof(names)}};
    m->dynamic[3] = (Elf64_Dyn){DT_GNU_HASH, {offsetof(struct image, gnu_hash)}};
    memcpy(m->strings, names, sizeof(names));
    m->symbols[1] = (Elf64_Sym){.st_name = 1, .st_info = STT_FUNC, .st_shndx = SHN_UNDEF};
    m->symbols[2] =
        (Elf64_Sym){.st_name = 7, .st_info = STT_FUNC, .st_shndx = 1, .st_value = 0x5010};
    m->symbols[3] =
        (Elf64_Sym){.st_name = 12, .st_info = STT_FUNC, .st_shndx = 1, .st_value = 0x5020};
    m->symbols[4] = (Elf64_Sym){
        .st_name = 18, .st_info = STT_OBJECT, .st_shndx = 1, .st_value = 0x5030, .st_size = 8};
    /* one bucket, symbols from 1 on, one bloom word; the last chain word has its lowest bit set */
    const uint32_t hash[] = {1, 1, 1, 0, 0, 0, 1, 2, 4, 6, 9};
    memcpy(m->gnu_hash, hash, sizeof(hash));

    uint8_t *bytes = malloc(IMAGE_BYTES); /* exactly: ASan sees a read beyond */
    assert_non_null(bytes);
    memcpy(bytes, m, IMAGE_BYTES);
    free(m);
    return bytes;
}

static Elf64_Ehdr *header(uint8_t *bytes)
{
    return (Elf64_Ehdr *)bytes;
}

static void check_init_fails(uint8_t *bytes, size_t size, int code, const char *what)
{
    struct elf_image e;
    struct error error;
    assert_int_equal(elf_image_init(&e, bytes, size, &error), code);
    if (!strstr(error.what, what))
        fail_msg("'%s' does not say '%s'", error.what, what);
}

static void test_text_is_not_elf(void **state)
{
    uint8_t text[] = "#!/bin/sh\n";
    check_init_fails(text, sizeof(text), -ENOEXEC, "not an ELF file");
    check_init_fails(text, 0, -ENOEXEC, "not an ELF file");
}

static void test_truncated_is_said(void **state)
{
    _cleanup_free_ uint8_t *bytes = image_new();
    check_init_fails(bytes, 20, -EBADMSG, "truncated");
    check_init_fails(bytes, sizeof(Elf64_Ehdr) + 8, -EBADMSG, "program headers end beyond");
    check_init_fails(bytes, IMAGE_BYTES - 1, -EBADMSG, "a segment ends beyond");
}

static void test_other_machines_are_refused(void **state)
{
    _cleanup_free_ uint8_t *bytes = image_new();
    header(bytes)->e_machine = EM_RISCV;
    check_init_fails(bytes, IMAGE_BYTES, -ENOTSUP, "another machine (243)");
    header(bytes)->e_machine = EM_X86_64;
    header(bytes)->e_ident[EI_CLASS] = ELFCLASS32;
    check_init_fails(bytes, IMAGE_BYTES, -ENOTSUP, "64-bit");
    header(bytes)->e_ident[EI_CLASS] = ELFCLASS64;
    header(bytes)->e_ident[EI_DATA] = ELFDATA2MSB;
    check_init_fails(bytes, IMAGE_BYTES, -ENOTSUP, "little-endian");
}

static void test_the_other_supported_machine_is_not_this_host(void **state)
{
    _cleanup_free_ uint8_t *bytes = image_new();
    struct elf_image e;
    struct error error;
    header(bytes)->e_machine =
        ELF_MACHINE_HOST == ELF_MACHINE_X86_64 ? ELF_MACHINE_AARCH64 : ELF_MACHINE_X86_64;
    assert_int_equal(elf_image_init(&e, bytes, IMAGE_BYTES, &error), 0);
    assert_int_equal(elf_image_check_host(&e, &error), -ENOTSUP);
    assert_non_null(strstr(error.what, "another machine"));
    header(bytes)->e_machine = ELF_MACHINE_HOST;
    assert_int_equal(elf_image_init(&e, bytes, IMAGE_BYTES, &error), 0);
    assert_int_equal(elf_image_check_host(&e, &error), 0);
}

static void test_symbol_offset_goes_through_the_segment(void **state)
{
    _cleanup_free_ uint8_t *bytes = image_new();
    struct elf_image e;
    struct error error;
    uint64_t offset;
    assert_int_equal(elf_image_init(&e, bytes, IMAGE_BYTES, &error), 0);
    assert_int_equal(e.dynsym.count, 5); /* from the hash alone: there are no section headers */
    assert_int_equal(elf_image_symbol(&e, "gamma", &offset, &error), 0);
    assert_int_equal(offset, 0x1020);
}

static void test_imports_and_objects_are_no_functions(void **state)
{
    _cleanup_free_ uint8_t *bytes = image_new();
    struct elf_image e;
    struct error error;
    struct elf_symbol symbol;
    uint64_t offset;
    uint32_t index;
    assert_int_equal(elf_image_init(&e, bytes, IMAGE_BYTES, &error), 0);
    assert_int_equal(elf_image_symbol(&e, "alpha", &offset, &error), -ENOENT);
    assert_string_equal(error.what, "no such symbol: alpha");
    assert_int_equal(elf_image_symbol(&e, "data", &offset, &error), -ENOENT);
    assert_int_equal(elf_image_dynamic(&e, "data", &symbol), 0);
    assert_int_equal(symbol.vaddr, 0x5030);
    assert_int_equal(symbol.size_bytes, 8);
    assert_int_equal(elf_image_dynamic_index(&e, "alpha", &index),
                     0); /* relocations name imports */
    assert_int_equal(index, 1);
    assert_int_equal(elf_image_static(&e, "alpha", &symbol), -ENODATA);
}

static void test_batch_gives_each_its_own_offset(void **state)
{
    _cleanup_free_ uint8_t *bytes = image_new();
    struct elf_image e;
    const char *const wanted[] = {"nothing", "gamma", "alpha", "beta"};
    uint64_t offsets[4];
    assert_int_equal(elf_image_init(&e, bytes, IMAGE_BYTES, NULL), 0);
    assert_int_equal(elf_image_symbols(&e, wanted, 4, offsets), 2);
    assert_int_equal(offsets[0], ELF_NO_OFFSET);
    assert_int_equal(offsets[1], 0x1020);
    assert_int_equal(offsets[2], ELF_NO_OFFSET);
    assert_int_equal(offsets[3], 0x1010);
    assert_int_equal(elf_image_symbols(&e, wanted, ELF_BATCH_MAX + 1, offsets), -E2BIG);
}

static void test_build_id(void **state)
{
    _cleanup_free_ uint8_t *bytes = image_new();
    struct elf_image e;
    uint8_t id[ELF_BUILD_ID_MAX];
    size_t id_bytes;
    assert_int_equal(elf_image_init(&e, bytes, IMAGE_BYTES, NULL), 0);
    assert_int_equal(elf_image_build_id(&e, id, &id_bytes), 0);
    assert_int_equal(id_bytes, 20);
    assert_int_equal(id[0], 0xa0);
    assert_int_equal(id[19], 0xb3);
    ((struct image *)bytes)->ph[3].p_type = PT_NULL;
    assert_int_equal(elf_image_init(&e, bytes, IMAGE_BYTES, NULL), 0);
    assert_int_equal(elf_image_build_id(&e, id, &id_bytes), -ENODATA);
}

static void test_addresses_translate_both_ways(void **state)
{
    _cleanup_free_ uint8_t *bytes = image_new();
    struct elf_image e;
    uint64_t value;
    assert_int_equal(elf_image_init(&e, bytes, IMAGE_BYTES, NULL), 0);
    assert_int_equal(elf_vaddr_to_offset(&e, 0x503f, &value), 0);
    assert_int_equal(value, 0x103f);
    assert_int_equal(elf_vaddr_to_offset(&e, 0x5040, &value), -ENXIO); /* .bss: not in the file */
    assert_int_equal(elf_vaddr_to_offset(&e, 0x1000, &value), -ENXIO);
    assert_int_equal(elf_offset_to_vaddr(&e, 0x1008, &value), 0);
    assert_int_equal(value, 0x5008);
    assert_int_equal(elf_offset_to_vaddr(&e, 0x1040, &value), -ENXIO);
}

/* Segments share pages where these are large. By hand: code is linked at 0x5000 and lies at 0x1000
 * of the file, so a mapping from the file's begin on holds what is linked at 0x4000 and later. */
static void test_load_bias_with_pages_of_any_size(void **state)
{
    _cleanup_free_ uint8_t *bytes = image_new();
    struct elf_image e;
    uint64_t bias = 1;
    struct maps_entry small = {
        .start = 0x7f0000001000, .end = 0x7f0000002000, .offset = 0x1000, .executable = true};
    struct maps_entry large = {.start = 0x7f0000000000, .end = 0x7f0000010000, .executable = true};
    struct maps_entry data = {.start = 0x7f0000020000, .end = 0x7f0000030000};
    struct maps_entry other = {
        .start = 0x7f0000000000, .end = 0x7f0000001000, .offset = 0x2000, .executable = true};
    assert_int_equal(elf_image_init(&e, bytes, IMAGE_BYTES, NULL), 0);
    assert_int_equal(elf_load_bias(&e, &small, &bias), 0);
    assert_int_equal(bias, 0x7f0000001000 - 0x5000);
    assert_int_equal(elf_load_bias(&e, &large, &bias), 0);
    assert_int_equal(bias, 0x7f0000000000 - 0x4000);
    assert_int_equal(elf_load_bias(&e, &data, &bias), 0);
    assert_int_equal(bias, 0x7f0000020000);
    assert_int_equal(elf_load_bias(&e, &other, &bias), -ENXIO);
    other.offset = 0; /* the page before the code alone */
    assert_int_equal(elf_load_bias(&e, &other, &bias), -ENXIO);
}

static void test_strings_that_do_not_end_are_cut(void **state)
{
    _cleanup_free_ uint8_t *bytes = image_new();
    struct image *m = (struct image *)bytes;
    struct elf_image e;
    struct error error;
    uint64_t offset;
    m->dynamic[2].d_un.d_val = 15; /* in the middle of "gamma" */
    assert_int_equal(elf_image_init(&e, bytes, IMAGE_BYTES, NULL), 0);
    assert_int_equal(elf_image_symbol(&e, "gamma", &offset, &error), -ENOENT);
    assert_int_equal(elf_image_symbol(&e, "beta", &offset, &error), 0);
}

static void test_hostile_hash_counts_stay_inside(void **state)
{
    _cleanup_free_ uint8_t *bytes = image_new();
    struct image *m = (struct image *)bytes;
    struct elf_image e;
    const char *const wanted[] = {"beta"};
    uint64_t offset;
    for (unsigned word = 0; word < 7; word++) {
        uint32_t saved = m->gnu_hash[word];
        m->gnu_hash[word] = 0xfffffff0;
        assert_int_equal(elf_image_init(&e, bytes, IMAGE_BYTES, NULL), 0);
        assert_true(e.dynsym.count <= IMAGE_BYTES / sizeof(Elf64_Sym));
        elf_image_symbols(&e, wanted, 1, &offset);
        m->gnu_hash[word] = saved;
    }
}

static void test_probe_hint_skips_endbr64_before_a_push_only(void **state)
{
    _cleanup_free_ uint8_t *bytes = image_new();
    struct elf_image e;
    static const uint8_t endbr_push[] = {0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x57}; /* push r15 */
    static const uint8_t endbr_sub[] = {0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83};  /* sub rsp */
    memcpy(bytes + 0x1000, endbr_push, 6);
    memcpy(bytes + 0x1010, endbr_sub, 6);
    bytes[0x1020] = 0x55; /* push rbp */
    assert_int_equal(elf_image_init(&e, bytes, IMAGE_BYTES, NULL), 0);
    assert_int_equal(elf_probe_offset_hint(&e, 0x1000), 0x1004);
    assert_int_equal(elf_probe_offset_hint(&e, 0x1010), 0x1010);
    assert_int_equal(elf_probe_offset_hint(&e, 0x1020), 0x1020);
    assert_int_equal(elf_probe_offset_hint(&e, IMAGE_BYTES - 2), IMAGE_BYTES - 2);
    assert_string_equal(elf_probe_cost(&e, 0x1004), "emulated");
    assert_string_equal(elf_probe_cost(&e, 0x1010), "stepped");
    assert_string_equal(elf_probe_cost(&e, IMAGE_BYTES), "unknown");
    header(bytes)->e_machine = EM_AARCH64;
    assert_int_equal(elf_image_init(&e, bytes, IMAGE_BYTES, NULL), 0);
    assert_int_equal(elf_probe_offset_hint(&e, 0x1000), 0x1000);
    assert_string_equal(elf_probe_cost(&e, 0x1000), "unknown");
}

struct loaded {
    uintptr_t base;
    char path[4096];
    uintptr_t address;
};

static int library_of(struct dl_phdr_info *info, size_t size, void *userdata)
{
    struct loaded *l = userdata;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        if (ph->p_type == PT_LOAD && l->address >= info->dlpi_addr + ph->p_vaddr &&
            l->address < info->dlpi_addr + ph->p_vaddr + ph->p_memsz) {
            l->base = info->dlpi_addr;
            snprintf(l->path, sizeof(l->path), "%s", info->dlpi_name);
            return 1;
        }
    }
    return 0;
}

static uint8_t *libc_read(struct loaded *l, size_t *ret_size)
{
    l->address = (uintptr_t)dlsym(RTLD_DEFAULT, "getppid");
    assert_int_equal(dl_iterate_phdr(library_of, l), 1);
    _cleanup_fclose_ FILE *f = fopen(l->path, "r");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *ret_size = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*ret_size);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *ret_size, f), *ret_size);
    return data;
}

static void test_libc_symbol_is_where_the_loader_has_it(void **state)
{
    struct loaded l;
    struct elf_image e;
    struct error error;
    size_t size;
    uint64_t offset, vaddr;
    _cleanup_free_ uint8_t *data = libc_read(&l, &size);
    assert_int_equal(elf_image_init(&e, data, size, &error), 0);
    assert_int_equal(e.machine, ELF_MACHINE_HOST);
    assert_int_equal(elf_image_symbol(&e, "getppid", &offset, &error), 0);
    assert_int_equal(elf_offset_to_vaddr(&e, offset, &vaddr), 0);
    assert_int_equal(vaddr, l.address - l.base);
    assert_memory_equal(data + offset, (const void *)l.address, 16); /* the code that runs */
}

static void test_section_headers_are_not_needed(void **state)
{
    struct loaded l;
    struct elf_image with, without;
    struct error error;
    size_t size;
    uint64_t a, b;
    _cleanup_free_ uint8_t *data = libc_read(&l, &size);
    assert_int_equal(elf_image_init(&with, data, size, &error), 0);
    assert_int_equal(elf_image_symbol(&with, "getppid", &a, &error), 0);
    header(data)->e_shoff = 0;
    header(data)->e_shnum = 0;
    assert_int_equal(elf_image_init(&without, data, size, &error), 0);
    assert_int_equal(without.dynsym.count, with.dynsym.count);
    assert_int_equal(elf_image_symbol(&without, "getppid", &b, &error), 0);
    assert_int_equal(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_not_elf),
        cmocka_unit_test(test_truncated_is_said),
        cmocka_unit_test(test_other_machines_are_refused),
        cmocka_unit_test(test_the_other_supported_machine_is_not_this_host),
        cmocka_unit_test(test_symbol_offset_goes_through_the_segment),
        cmocka_unit_test(test_imports_and_objects_are_no_functions),
        cmocka_unit_test(test_batch_gives_each_its_own_offset),
        cmocka_unit_test(test_build_id),
        cmocka_unit_test(test_addresses_translate_both_ways),
        cmocka_unit_test(test_load_bias_with_pages_of_any_size),
        cmocka_unit_test(test_strings_that_do_not_end_are_cut),
        cmocka_unit_test(test_hostile_hash_counts_stay_inside),
        cmocka_unit_test(test_probe_hint_skips_endbr64_before_a_push_only),
        cmocka_unit_test(test_libc_symbol_is_where_the_loader_has_it),
        cmocka_unit_test(test_section_headers_are_not_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
