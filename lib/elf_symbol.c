/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf_symbol.c - symbols of an elf_image, and the first instruction of a function.
 *
 * Owns nothing. Must not allocate. Relies on elf_image_init's invariants: tables lie inside the
 * file and every string of a string table ends inside it.
 */
#include <elf.h>
#include <string.h>

#include "elf_image.h"

static bool inside(uint64_t offset, uint64_t bytes, uint64_t size)
{
    return offset <= size && bytes <= size - offset;
}

static bool symbol_defined(const Elf64_Sym *s)
{
    return s->st_shndx != SHN_UNDEF && s->st_shndx < SHN_LORESERVE;
}

/* File offset of a defined function, ELF_NO_OFFSET for anything else. */
static uint64_t function_offset(const struct elf_image *e, const Elf64_Sym *s)
{
    uint64_t offset;
    if (!symbol_defined(s) || ELF64_ST_TYPE(s->st_info) != STT_FUNC ||
        elf_vaddr_to_offset(e, s->st_value, &offset) < 0)
        return ELF_NO_OFFSET;
    return offset;
}

static int table_find(const struct elf_table *symbols, const struct elf_table *strings,
                      const char *name, bool defined, Elf64_Sym *ret, uint64_t *ret_index)
{
    size_t name_bytes = strlen(name) + 1;

    for (uint64_t i = 1; i < symbols->count; i++) {
        Elf64_Sym s;
        memcpy(&s, symbols->data + i * sizeof(s), sizeof(s));
        if (!inside(s.st_name, name_bytes, strings->count) ||
            memcmp(strings->data + s.st_name, name, name_bytes) != 0 ||
            (defined && !symbol_defined(&s)))
            continue;
        *ret = s;
        *ret_index = i;
        return 0;
    }
    return -ENOENT;
}

int elf_image_dynamic(const struct elf_image *e, const char *name, struct elf_symbol *ret)
{
    Elf64_Sym s;
    uint64_t index;
    int r = table_find(&e->dynsym, &e->dynstr, name, true, &s, &index);
    if (r == 0)
        *ret = (struct elf_symbol){s.st_value, s.st_size, ELF64_ST_TYPE(s.st_info)};
    return r;
}

const char *elf_image_dynamic_at(const struct elf_image *e, uint64_t vaddr)
{
    for (uint64_t i = 1; i < e->dynsym.count; i++) {
        Elf64_Sym s;
        memcpy(&s, e->dynsym.data + i * sizeof(s), sizeof(s));
        /* every string of a table ends inside it */
        if (s.st_value == vaddr && symbol_defined(&s) && s.st_name < e->dynstr.count &&
            e->dynstr.data[s.st_name])
            return (const char *)e->dynstr.data + s.st_name;
    }
    return NULL;
}

int elf_image_dynamic_index(const struct elf_image *e, const char *name, uint32_t *ret_index)
{
    Elf64_Sym s;
    uint64_t index;
    int r = table_find(&e->dynsym, &e->dynstr, name, false, &s, &index);
    if (r == 0)
        *ret_index = (uint32_t)index;
    return r;
}

int elf_image_static(const struct elf_image *e, const char *name, struct elf_symbol *ret)
{
    Elf64_Sym s;
    uint64_t index;
    if (e->symtab.count == 0)
        return -ENODATA;
    int r = table_find(&e->symtab, &e->strtab, name, true, &s, &index);
    if (r == 0)
        *ret = (struct elf_symbol){s.st_value, s.st_size, ELF64_ST_TYPE(s.st_info)};
    return r;
}

int elf_image_symbol(const struct elf_image *e, const char *name, uint64_t *ret_offset,
                     struct error *reterr)
{
    const char *names[1] = {name};
    uint64_t offset;
    int r = elf_image_symbols(e, names, 1, &offset);
    if (r == 1) {
        *ret_offset = offset;
        return 0;
    }
    if (e->dynsym.count == 0)
        return error_set(reterr, ENOENT, "no such symbol: %s: the file has no dynamic symbols",
                         name);
    return error_set(reterr, ENOENT, "no such symbol: %s", name);
}

/* FNV-1a over at most NAME_HASHED bytes: a hostile table may hold one string of many megabytes. */
static uint32_t name_hash(const char *name)
{
    enum { NAME_HASHED = 256 };
    uint32_t h = 2166136261u;
    for (unsigned i = 0; i < NAME_HASHED && name[i]; i++)
        h = (h ^ (uint8_t)name[i]) * 16777619u;
    return h;
}

int elf_image_symbols(const struct elf_image *e, const char *const names[], size_t n,
                      uint64_t ret_offsets[])
{
    enum { SLOTS = 2 * ELF_BATCH_MAX };
    uint16_t slots[SLOTS] = {0}; /* index + 1 of names, open addressing */
    int found = 0;

    if (n > ELF_BATCH_MAX)
        return -E2BIG;
    for (size_t i = 0; i < n; i++) {
        uint32_t h = name_hash(names[i]) % SLOTS;
        while (slots[h])
            h = (h + 1) % SLOTS;
        slots[h] = (uint16_t)(i + 1);
        ret_offsets[i] = ELF_NO_OFFSET;
    }
    for (uint64_t i = 1; i < e->dynsym.count && found < (int)n; i++) {
        Elf64_Sym s;
        memcpy(&s, e->dynsym.data + i * sizeof(s), sizeof(s));
        if (!symbol_defined(&s) || s.st_name >= e->dynstr.count)
            continue;
        const char *name = (const char *)e->dynstr.data + s.st_name;
        for (uint32_t h = name_hash(name) % SLOTS; slots[h]; h = (h + 1) % SLOTS) {
            size_t k = slots[h] - 1u;
            if (ret_offsets[k] != ELF_NO_OFFSET || strcmp(names[k], name) != 0)
                continue;
            ret_offsets[k] = function_offset(e, &s);
            found += ret_offsets[k] != ELF_NO_OFFSET;
        }
    }
    return found;
}

static const uint8_t endbr64[4] = {0xf3, 0x0f, 0x1e, 0xfa};

static bool is_push(const uint8_t *p, size_t left)
{
    if (left >= 1 && p[0] >= 0x50 && p[0] <= 0x57) /* push r64 */
        return true;
    return left >= 2 && p[0] == 0x41 && p[1] >= 0x50 && p[1] <= 0x57; /* push r8..r15 */
}

uint64_t elf_probe_offset_hint(const struct elf_image *e, uint64_t offset)
{
    if (e->machine != ELF_MACHINE_X86_64 || !inside(offset, sizeof(endbr64) + 2, e->size) ||
        memcmp(e->data + offset, endbr64, sizeof(endbr64)) != 0)
        return offset;
    uint64_t next = offset + sizeof(endbr64);
    return is_push(e->data + next, e->size - next) ? next : offset;
}

const char *elf_probe_cost(const struct elf_image *e, uint64_t offset)
{
    if (e->machine != ELF_MACHINE_X86_64 || offset >= e->size)
        return "unknown";
    const uint8_t *p = e->data + offset;
    size_t left = e->size - offset;
    bool emulated = is_push(p, left) || p[0] == 0x90 /* nop */ || p[0] == 0xe8 /* call */ ||
                    p[0] == 0xe9 /* jmp rel32 */ || p[0] == 0xeb /* jmp rel8 */ ||
                    (p[0] & 0xf0) == 0x70 /* jcc rel8 */ ||
                    (left >= 2 && p[0] == 0x0f && (p[1] & 0xf0) == 0x80 /* jcc rel32 */);
    return emulated ? "emulated" : "stepped";
}
