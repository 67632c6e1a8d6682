/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf_image.h - a 64-bit little-endian ELF file, read from bytes that somebody else mapped.
 *
 * Owns nothing: a struct elf_image borrows `data` and is valid as long as that is; no allocation,
 * nothing to free. The bytes are hostile: no function reads outside data[0..size).
 * Symbols are taken from where the loader takes them (PT_DYNAMIC); section headers are a hint for
 * counts and for .symtab, and may be absent.
 *
 * vaddr: address as linked. offset: byte offset in the file, which is what a uprobe is put at.
 * Source of the format: System V ABI, ELF-64 object file format; <elf.h>.
 */
#ifndef NPUMEM_ELF_IMAGE_H
#define NPUMEM_ELF_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

#define ELF_MACHINE_X86_64 62
#define ELF_MACHINE_AARCH64 183
#if defined(__x86_64__)
#define ELF_MACHINE_HOST ELF_MACHINE_X86_64
#elif defined(__aarch64__)
#define ELF_MACHINE_HOST ELF_MACHINE_AARCH64
#else
#define ELF_MACHINE_HOST 0
#endif

#define ELF_SEGMENTS_MAX 64 /* PT_LOAD headers kept; linkers make 2 to 8 */
#define ELF_BUILD_ID_MAX 20 /* what the kernel keeps of a build id, too */
#define ELF_BATCH_MAX 1024  /* names in one elf_image_symbols() call */
#define ELF_NO_OFFSET UINT64_MAX

/* One PT_LOAD header. Its file range is inside the file (checked by elf_image_init). */
struct elf_segment {
    uint64_t offset, vaddr, file_bytes, memory_bytes;
    bool executable;
};

/* A table of fixed-size records or a string table, inside the file. */
struct elf_table {
    const uint8_t *data;
    uint64_t count; /* records, or bytes of a string table */
};

struct elf_image {
    const uint8_t *data;
    size_t size;
    uint16_t machine; /* ELF_MACHINE_X86_64 or ELF_MACHINE_AARCH64 */
    uint16_t segment_count;
    struct elf_segment segments[ELF_SEGMENTS_MAX];
    struct elf_table dynsym, dynstr; /* count 0: none */
    struct elf_table symtab, strtab; /* count 0: stripped */
    struct elf_table rela;           /* DT_RELA: Elf64_Rela records */
    uint64_t eh_frame_hdr_vaddr;     /* PT_GNU_EH_FRAME */
    uint64_t eh_frame_hdr_bytes;     /* 0: none */
    uint8_t build_id[ELF_BUILD_ID_MAX];
    uint8_t build_id_bytes; /* 0: none */
};

/* A defined symbol. */
struct elf_symbol {
    uint64_t vaddr, size_bytes;
    uint8_t type; /* STT_FUNC, STT_OBJECT ... */
};

/*
 * Reads the headers of data[0..size) into *e.
 * Errors: -ENOEXEC not an ELF file; -ENOTSUP 32-bit, big-endian, or another machine than x86_64 and
 * aarch64; -EBADMSG truncated or malformed. reterr->what names which, without the file's name.
 * Cost: linear in the number of program and section headers.
 */
int elf_image_init(struct elf_image *e, const void *data, size_t size, struct error *reterr);

/* Refuses a file of another machine than this one. Errors: -ENOTSUP. */
int elf_image_check_host(const struct elf_image *e, struct error *reterr);

/* "x86_64", "aarch64" or "unknown machine". */
const char *elf_machine_name(uint16_t machine);

/* Copies the GNU build id; *ret_bytes is at most ELF_BUILD_ID_MAX. Errors: -ENODATA none. */
int elf_image_build_id(const struct elf_image *e, uint8_t ret_id[ELF_BUILD_ID_MAX],
                       size_t *ret_bytes);

/*
 * File offset of a defined function in .dynsym. If a name is defined more than once (symbol
 * versions), the first wins. Errors: -ENOENT no such symbol (also: defined, but not as a function).
 * Cost: linear in .dynsym; for several names use elf_image_symbols().
 */
int elf_image_symbol(const struct elf_image *e, const char *name, uint64_t *ret_offset,
                     struct error *reterr);

/*
 * Like elf_image_symbol for n names (at most ELF_BATCH_MAX, distinct) in one pass over .dynsym:
 * ret_offsets[i] is names[i]'s file offset, or ELF_NO_OFFSET.
 * Returns the number found; -E2BIG too many names.
 */
int elf_image_symbols(const struct elf_image *e, const char *const names[], size_t n,
                      uint64_t ret_offsets[]);

/* A defined symbol of any type in .dynsym. Errors: -ENOENT. Cost: linear in .dynsym. */
int elf_image_dynamic(const struct elf_image *e, const char *name, struct elf_symbol *ret);

/* Name of a defined symbol of .dynsym that begins at vaddr, NULL none. Borrowed from the image.
 * Cost: linear in .dynsym. */
const char *elf_image_dynamic_at(const struct elf_image *e, uint64_t vaddr);

/* Index of a symbol in .dynsym, defined or not: what relocations refer to. Errors: -ENOENT. */
int elf_image_dynamic_index(const struct elf_image *e, const char *name, uint32_t *ret_index);

/* A defined symbol of any type in .symtab, local ones too. Errors: -ENOENT no such symbol; -ENODATA
 * stripped. Cost: linear in .symtab. */
int elf_image_static(const struct elf_image *e, const char *name, struct elf_symbol *ret);

/* Translate between vaddr and offset through PT_LOAD. Errors: -ENXIO not in the file. */
int elf_vaddr_to_offset(const struct elf_image *e, uint64_t vaddr, uint64_t *ret_offset);
int elf_offset_to_vaddr(const struct elf_image *e, uint64_t offset, uint64_t *ret_vaddr);

/*
 * Load address less linked address, from one mapping of the file: that of the first segment which
 * is executable as the mapping is and has bytes in it. The kernel maps whole pages, so a mapping
 * may begin before its segment and have bytes of another in it; pages may be of any size. Errors:
 * -ENXIO none.
 */
struct maps_entry;
int elf_load_bias(const struct elf_image *e, const struct maps_entry *m, uint64_t *ret);

/* The file's bytes behind [vaddr, vaddr+bytes) of one segment, NULL if not wholly in the file.
 * ret_left, if not NULL: bytes of the segment from vaddr on. Borrowed. */
const uint8_t *elf_image_at(const struct elf_image *e, uint64_t vaddr, uint64_t bytes,
                            uint64_t *ret_left);

/*
 * Where to put an entry probe for a function that starts at file offset `offset`: x86_64 `endbr64`
 * followed by a push is 5 times dearer to trap on than the push itself (out-of-line single step
 * against emulation; arguments are still in their registers), so offset + 4 there; else offset.
 * Source: kernel arch/x86/kernel/uprobes.c emulates push, nop, jmp and call; measured.
 */
uint64_t elf_probe_offset_hint(const struct elf_image *e, uint64_t offset);

/* Whether a probe at this file offset is emulated by the kernel ("emulated"), single-stepped
 * ("stepped"), or not told ("unknown": aarch64, or outside the file). */
const char *elf_probe_cost(const struct elf_image *e, uint64_t offset);

#endif
