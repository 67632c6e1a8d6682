/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf_image.c - ELF headers and addresses from given bytes.
 *
 * Owns nothing. Must not allocate, open files or trust a number that it read.
 * Invariants after elf_image_init: every elf_table and every segment's file range lies inside
 * data[0..size); the last byte of a string table is NUL. Records are read with memcpy: no alignment
 * is assumed.
 */
#include "elf_image.h"

#include <elf.h>
#include <string.h>

#include "cleanup.h"
#include "procmaps.h"

static bool range_inside(uint64_t offset, uint64_t bytes, uint64_t size)
{
    return offset <= size && bytes <= size - offset;
}

const char *elf_machine_name(uint16_t machine)
{
    switch (machine) {
    case ELF_MACHINE_X86_64:
        return "x86_64";
    case ELF_MACHINE_AARCH64:
        return "aarch64";
    default:
        return "unknown machine";
    }
}

const uint8_t *elf_image_at(const struct elf_image *e, uint64_t vaddr, uint64_t bytes,
                            uint64_t *ret_left)
{
    for (unsigned i = 0; i < e->segment_count; i++) {
        const struct elf_segment *s = &e->segments[i];
        if (vaddr < s->vaddr || !range_inside(vaddr - s->vaddr, bytes, s->file_bytes))
            continue;
        if (ret_left)
            *ret_left = s->file_bytes - (vaddr - s->vaddr);
        return e->data + s->offset + (vaddr - s->vaddr);
    }
    return NULL;
}

int elf_vaddr_to_offset(const struct elf_image *e, uint64_t vaddr, uint64_t *ret_offset)
{
    const uint8_t *p = elf_image_at(e, vaddr, 1, NULL);
    if (!p)
        return -ENXIO;
    *ret_offset = (uint64_t)(p - e->data);
    return 0;
}

int elf_offset_to_vaddr(const struct elf_image *e, uint64_t offset, uint64_t *ret_vaddr)
{
    for (unsigned i = 0; i < e->segment_count; i++) {
        const struct elf_segment *s = &e->segments[i];
        if (offset < s->offset || offset - s->offset >= s->file_bytes)
            continue;
        *ret_vaddr = s->vaddr + (offset - s->offset);
        return 0;
    }
    return -ENXIO;
}

int elf_load_bias(const struct elf_image *e, const struct maps_entry *m, uint64_t *ret)
{
    for (unsigned i = 0; i < e->segment_count; i++) {
        const struct elf_segment *s = &e->segments[i];
        if (s->executable != m->executable || m->offset >= s->offset + s->file_bytes ||
            s->offset >= m->offset + (m->end - m->start))
            continue;
        *ret = m->start - (s->vaddr - s->offset + m->offset);
        return 0;
    }
    return -ENXIO;
}

static void notes_read(struct elf_image *e, const Elf64_Phdr *ph)
{
    if (!range_inside(ph->p_offset, ph->p_filesz, e->size))
        return;
    const uint8_t *p = e->data + ph->p_offset;
    uint64_t left = ph->p_filesz, align = ph->p_align == 8 ? 8 : 4;

    while (left >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr n;
        memcpy(&n, p, sizeof(n));
        uint64_t name_bytes = ((uint64_t)n.n_namesz + align - 1) & ~(align - 1);
        uint64_t desc_bytes = ((uint64_t)n.n_descsz + align - 1) & ~(align - 1);
        uint64_t desc_at = sizeof(n) + name_bytes;
        if (!range_inside(desc_at, n.n_descsz, left))
            return;
        if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && !memcmp(p + sizeof(n), "GNU", 4) &&
            n.n_descsz > 0) {
            e->build_id_bytes = n.n_descsz < ELF_BUILD_ID_MAX ? n.n_descsz : ELF_BUILD_ID_MAX;
            memcpy(e->build_id, p + desc_at, e->build_id_bytes);
            return;
        }
        if (desc_at + desc_bytes >= left)
            return;
        p += desc_at + desc_bytes;
        left -= desc_at + desc_bytes;
    }
}

/* Symbols of DT_GNU_HASH: the last chain's end. 0 if the table is malformed. */
static uint64_t gnu_hash_count(const struct elf_image *e, uint64_t vaddr)
{
    uint32_t head[4]; /* buckets, first hashed symbol, bloom words, bloom shift */
    uint64_t left;
    const uint8_t *p = elf_image_at(e, vaddr, sizeof(head), &left);
    if (!p)
        return 0;
    memcpy(head, p, sizeof(head));
    uint64_t buckets_at = sizeof(head) + 8 * (uint64_t)head[2];
    uint64_t chains_at = buckets_at + 4 * (uint64_t)head[0];
    if (chains_at > left)
        return 0;

    uint32_t last = 0, word;
    for (uint64_t i = 0; i < head[0]; i++) {
        memcpy(&word, p + buckets_at + 4 * i, 4);
        if (word > last)
            last = word;
    }
    if (last < head[1])
        return head[1]; /* nothing hashed: only imports, which come first */
    for (uint64_t at = chains_at + 4 * (uint64_t)(last - head[1]); at + 4 <= left;
         at += 4, last++) {
        memcpy(&word, p + at, 4);
        if (word & 1)
            return (uint64_t)last + 1;
    }
    return 0;
}

static uint64_t sysv_hash_count(const struct elf_image *e, uint64_t vaddr)
{
    uint32_t head[2];
    const uint8_t *p = elf_image_at(e, vaddr, sizeof(head), NULL);
    if (!p)
        return 0;
    memcpy(head, p, sizeof(head));
    return head[1]; /* nchain equals the number of symbols */
}

/* Section headers are a hint: what does not fit is left out. */
static bool section_read(const struct elf_image *e, const Elf64_Ehdr *eh, unsigned i,
                         Elf64_Shdr *ret)
{
    uint64_t at = eh->e_shoff + (uint64_t)i * sizeof(*ret);
    if (eh->e_shoff == 0 || eh->e_shentsize != sizeof(*ret) || i >= eh->e_shnum ||
        at < eh->e_shoff || !range_inside(at, sizeof(*ret), e->size))
        return false;
    memcpy(ret, e->data + at, sizeof(*ret));
    return true;
}

/* Cuts a string table behind its last NUL, so that every string in it ends. */
static void strings_cut(struct elf_table *strings)
{
    const uint8_t *end = strings->count ? memrchr(strings->data, 0, strings->count) : NULL;
    strings->count = end ? (uint64_t)(end - strings->data) + 1 : 0;
}

/* A symbol table section and its strings. */
static bool section_symbols(const struct elf_image *e, const Elf64_Ehdr *eh, const Elf64_Shdr *sh,
                            struct elf_table *ret_symbols, struct elf_table *ret_strings)
{
    Elf64_Shdr strings;
    if (sh->sh_entsize != sizeof(Elf64_Sym) || !range_inside(sh->sh_offset, sh->sh_size, e->size) ||
        !section_read(e, eh, sh->sh_link, &strings) || strings.sh_type != SHT_STRTAB ||
        !range_inside(strings.sh_offset, strings.sh_size, e->size))
        return false;
    *ret_symbols = (struct elf_table){e->data + sh->sh_offset, sh->sh_size / sizeof(Elf64_Sym)};
    *ret_strings = (struct elf_table){e->data + strings.sh_offset, strings.sh_size};
    strings_cut(ret_strings);
    return true;
}

/* Table of `count` records at vaddr, cut to what its segment has in the file. */
static struct elf_table table_at(const struct elf_image *e, uint64_t vaddr, uint64_t count,
                                 uint64_t record_bytes)
{
    uint64_t left;
    const uint8_t *p = elf_image_at(e, vaddr, 1, &left);
    if (!p)
        return (struct elf_table){NULL, 0};
    if (count > left / record_bytes)
        count = left / record_bytes;
    return (struct elf_table){p, count};
}

static void dynamic_read(struct elf_image *e, const Elf64_Ehdr *eh, const Elf64_Phdr *ph)
{
    uint64_t symtab = 0, strtab = 0, strsz = 0, rela = 0, relasz = 0, hash = 0, gnu_hash = 0;

    if (!range_inside(ph->p_offset, ph->p_filesz, e->size))
        return;
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= ph->p_filesz; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn d;
        memcpy(&d, e->data + ph->p_offset + at, sizeof(d));
        if (d.d_tag == DT_NULL)
            break;
        switch (d.d_tag) {
        case DT_SYMTAB:
            symtab = d.d_un.d_ptr;
            break;
        case DT_STRTAB:
            strtab = d.d_un.d_ptr;
            break;
        case DT_STRSZ:
            strsz = d.d_un.d_val;
            break;
        case DT_RELA:
            rela = d.d_un.d_ptr;
            break;
        case DT_RELASZ:
            relasz = d.d_un.d_val;
            break;
        case DT_HASH:
            hash = d.d_un.d_ptr;
            break;
        case DT_GNU_HASH:
            gnu_hash = d.d_un.d_ptr;
            break;
        }
    }
    if (rela)
        e->rela = table_at(e, rela, relasz / sizeof(Elf64_Rela), sizeof(Elf64_Rela));
    if (!symtab || !strtab)
        return;

    uint64_t count = hash ? sysv_hash_count(e, hash) : 0;
    if (count == 0 && gnu_hash)
        count = gnu_hash_count(e, gnu_hash);
    /* Imports after the last hashed symbol do not exist, but a library without exports has no
     * count in its hash: then the section header is all there is. */
    for (unsigned i = 0; i < eh->e_shnum; i++) {
        Elf64_Shdr sh;
        if (!section_read(e, eh, i, &sh))
            break;
        if (sh.sh_type == SHT_DYNSYM && sh.sh_addr == symtab &&
            sh.sh_size / sizeof(Elf64_Sym) > count)
            count = sh.sh_size / sizeof(Elf64_Sym);
    }
    e->dynsym = table_at(e, symtab, count, sizeof(Elf64_Sym));
    e->dynstr = table_at(e, strtab, strsz, 1);
    strings_cut(&e->dynstr);
}

static int header_check(const Elf64_Ehdr *eh, size_t size, struct error *reterr)
{
    if (eh->e_ident[EI_CLASS] != ELFCLASS64)
        return error_set(reterr, ENOTSUP, "not a 64-bit ELF file");
    if (eh->e_ident[EI_DATA] != ELFDATA2LSB)
        return error_set(reterr, ENOTSUP, "not a little-endian ELF file");
    if (eh->e_machine != ELF_MACHINE_X86_64 && eh->e_machine != ELF_MACHINE_AARCH64)
        return error_set(reterr, ENOTSUP, "ELF file of another machine (%u): not x86_64 or aarch64",
                         eh->e_machine);
    if (eh->e_phentsize != sizeof(Elf64_Phdr) || eh->e_phnum == 0)
        return error_set(reterr, EBADMSG, "malformed ELF file: no program headers");
    if (!range_inside(eh->e_phoff, (uint64_t)eh->e_phnum * sizeof(Elf64_Phdr), size))
        return error_set(reterr, EBADMSG,
                         "truncated ELF file: program headers end beyond its %zu bytes", size);
    return 0;
}

static int segment_add(struct elf_image *e, const Elf64_Phdr *ph, struct error *reterr)
{
    if (!range_inside(ph->p_offset, ph->p_filesz, e->size))
        return error_set(reterr, EBADMSG, "truncated ELF file: a segment ends beyond its %zu bytes",
                         e->size);
    if (ph->p_vaddr + ph->p_filesz < ph->p_vaddr)
        return error_set(reterr, EBADMSG, "malformed ELF file: a segment wraps around");
    if (e->segment_count == ELF_SEGMENTS_MAX)
        return error_set(reterr, EBADMSG, "malformed ELF file: more than %d segments",
                         ELF_SEGMENTS_MAX);
    e->segments[e->segment_count++] = (struct elf_segment){
        .offset = ph->p_offset,
        .vaddr = ph->p_vaddr,
        .file_bytes = ph->p_filesz,
        .memory_bytes = ph->p_memsz,
        .executable = (ph->p_flags & PF_X) != 0,
    };
    return 0;
}

int elf_image_init(struct elf_image *e, const void *data, size_t size, struct error *reterr)
{
    Elf64_Ehdr eh;
    Elf64_Phdr ph, dynamic = {.p_type = PT_NULL};
    Elf64_Shdr sh;

    memset(e, 0, sizeof(*e));
    if (size < SELFMAG || memcmp(data, ELFMAG, SELFMAG) != 0)
        return error_set(reterr, ENOEXEC, "not an ELF file");
    if (size < sizeof(eh))
        return error_set(reterr, EBADMSG, "truncated ELF file: %zu bytes are less than its header",
                         size);
    memcpy(&eh, data, sizeof(eh));
    int r = header_check(&eh, size, reterr);
    if (r < 0)
        return r;
    e->data = data;
    e->size = size;
    e->machine = eh.e_machine;

    for (unsigned i = 0; i < eh.e_phnum; i++) {
        memcpy(&ph, e->data + eh.e_phoff + i * sizeof(ph), sizeof(ph));
        if (ph.p_type == PT_LOAD) {
            r = segment_add(e, &ph, reterr);
            if (r < 0)
                return r;
        } else if (ph.p_type == PT_DYNAMIC) {
            dynamic = ph;
        } else if (ph.p_type == PT_NOTE && e->build_id_bytes == 0) {
            notes_read(e, &ph);
        } else if (ph.p_type == PT_GNU_EH_FRAME) {
            e->eh_frame_hdr_vaddr = ph.p_vaddr;
            e->eh_frame_hdr_bytes = ph.p_filesz;
        }
    }
    if (dynamic.p_type == PT_DYNAMIC)
        dynamic_read(e, &eh, &dynamic);
    for (unsigned i = 0; i < eh.e_shnum && section_read(e, &eh, i, &sh); i++)
        if (sh.sh_type == SHT_SYMTAB && section_symbols(e, &eh, &sh, &e->symtab, &e->strtab))
            break;
    return 0;
}

int elf_image_check_host(const struct elf_image *e, struct error *reterr)
{
    if (e->machine == ELF_MACHINE_HOST)
        return 0;
    return error_set(reterr, ENOTSUP, "ELF file of another machine: %s, this host is %s",
                     elf_machine_name(e->machine), elf_machine_name(ELF_MACHINE_HOST));
}

int elf_image_build_id(const struct elf_image *e, uint8_t ret_id[ELF_BUILD_ID_MAX],
                       size_t *ret_bytes)
{
    if (e->build_id_bytes == 0)
        return -ENODATA;
    memcpy(ret_id, e->build_id, e->build_id_bytes);
    *ret_bytes = e->build_id_bytes;
    return 0;
}
