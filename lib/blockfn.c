/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blockfn.c - finds torch_npu's hidden block report function in the code of libtorch_npu.so.
 *
 * The function builds a MemoryData object, so it loads that class's vtable from one GOT slot, which
 * a relocation by name gives away. Exported FreeBlock calls the caching allocator's free(), which
 * calls the function. Unwind tables say where functions start and end. All three facts together fit
 * one function in every wheel (docs/BLOCK_FUNCTION.md).
 *
 * Owns nothing. Must not allocate. Invariants: code is read through elf_image_at() only; a search
 * ends after BLOCKFN_WORK_MAX steps.
 */
#include "blockfn.h"

#include <elf.h>
#include <string.h>

#include "cleanup.h"

static const char vtable_name[] = "_ZTVN9torch_npu7toolkit8profiler10MemoryDataE";
static const char free_block_name[] = "_ZN7c10_npu19NPUCachingAllocator9FreeBlockEPv";
static const char report_name[] =
    "_ZN9torch_npu8profiler29reportMemoryDataToNpuProfilerERKNS0_11MemoryUsageE";

enum {
    SLOTS_MAX = 8,          /* GOT slots of the vtable; the linker makes 1 */
    CALLEES_MAX = 512,      /* of one function */
    FUNCTION_MAX = 1 << 18, /* bytes of one function that are looked at; free() has 5,000 */
    LOOKUP_WORK = 32,       /* steps of one binary search in the unwind table */
};

/* The unwind table: function starts, ascending, as int32 relative to the table's own vaddr. */
struct function_table {
    const uint8_t *entries; /* pairs {start, fde} */
    uint64_t base, count;
};

struct search {
    const struct elf_image *elf;
    struct function_table functions;
    uint64_t slots[SLOTS_MAX];
    unsigned slot_count;
    uint64_t work; /* steps done, see BLOCKFN_WORK_MAX */
};

struct code {
    const uint8_t *bytes;
    uint64_t vaddr, size;
};

/* Encodings that every linker writes; Source: LSB core, .eh_frame_hdr. */
enum { EH_PCREL_SDATA4 = 0x1b, EH_UDATA4 = 0x03, EH_DATAREL_SDATA4 = 0x3b };

static int function_table_read(const struct elf_image *e, struct function_table *ret)
{
    const uint8_t *p = elf_image_at(e, e->eh_frame_hdr_vaddr, e->eh_frame_hdr_bytes, NULL);
    uint32_t count;

    if (!p || e->eh_frame_hdr_bytes < 12 || p[0] != 1 || p[2] != EH_UDATA4 ||
        p[3] != EH_DATAREL_SDATA4)
        return -ENOENT;
    memcpy(&count, p + 8, sizeof(count));
    if (count == 0 || count > (e->eh_frame_hdr_bytes - 12) / 8)
        return -ENOENT;
    *ret = (struct function_table){p + 12, e->eh_frame_hdr_vaddr, count};
    return 0;
}

static uint64_t function_start(const struct function_table *t, uint64_t i)
{
    int32_t start;
    memcpy(&start, t->entries + 8 * i, sizeof(start));
    return t->base + (uint64_t)(int64_t)start;
}

/* The code of the function that begins exactly at vaddr, up to the next function. */
static bool function_code(const struct search *s, uint64_t vaddr, struct code *ret)
{
    const struct function_table *t = &s->functions;
    uint64_t low = 0, high = t->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (function_start(t, middle) < vaddr)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == t->count || function_start(t, low) != vaddr)
        return false;

    for (unsigned i = 0; i < s->elf->segment_count; i++) {
        const struct elf_segment *segment = &s->elf->segments[i];
        if (!segment->executable || vaddr < segment->vaddr ||
            vaddr - segment->vaddr >= segment->file_bytes)
            continue;
        uint64_t at = vaddr - segment->vaddr, size = segment->file_bytes - at;
        if (low + 1 < t->count && function_start(t, low + 1) - vaddr < size)
            size = function_start(t, low + 1) - vaddr;
        *ret = (struct code){s->elf->data + segment->offset + at, vaddr,
                             size < FUNCTION_MAX ? size : FUNCTION_MAX};
        return true;
    }
    return false;
}

static uint32_t word_at(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof(word));
    return word;
}

/* Target of a direct call or jump at p, 0: none there. x86 is looked at byte by byte, without
 * decoding: only a displacement that leads exactly to a function's first byte is believed. */
static uint64_t branch_target(uint16_t machine, const struct code *c, uint64_t at)
{
    if (machine == ELF_MACHINE_X86_64) {
        if (at + 5 > c->size || (c->bytes[at] != 0xe8 && c->bytes[at] != 0xe9))
            return 0;
        int32_t distance = (int32_t)word_at(c->bytes + at + 1);
        return c->vaddr + at + 5 + (uint64_t)(int64_t)distance;
    }
    if (at + 4 > c->size)
        return 0;
    uint32_t word = word_at(c->bytes + at);
    if ((word & 0x7c000000) != 0x14000000) /* b, bl */
        return 0;
    int32_t words = (int32_t)(word << 6) >> 6;
    return c->vaddr + at + (uint64_t)((int64_t)words * 4);
}

static unsigned instruction_step(uint16_t machine)
{
    return machine == ELF_MACHINE_X86_64 ? 1 : 4;
}

/* Starts of the functions that `c` calls or jumps to, each once, at most CALLEES_MAX. */
static unsigned callees_read(struct search *s, const struct code *c, struct code ret[CALLEES_MAX])
{
    unsigned n = 0, step = instruction_step(s->elf->machine);
    s->work += c->size;
    for (uint64_t at = 0; at + 4 <= c->size && n < CALLEES_MAX; at += step) {
        if (s->work > BLOCKFN_WORK_MAX)
            break; /* the caller says so */
        uint64_t target = branch_target(s->elf->machine, c, at);
        struct code callee;
        if (target == 0 || target == c->vaddr)
            continue;
        s->work += LOOKUP_WORK + n;
        if (!function_code(s, target, &callee))
            continue;
        unsigned known = 0;
        while (known < n && ret[known].vaddr != target)
            known++;
        if (known == n)
            ret[n++] = callee;
    }
    return n;
}

static bool is_slot(const struct search *s, uint64_t address)
{
    for (unsigned i = 0; i < s->slot_count; i++)
        if (s->slots[i] == address)
            return true;
    return false;
}

/* aarch64: adrp xN, page; ...; ldr xM, [xN, #low12]. The last adrp of each register counts. */
static bool loads_slot_aarch64(const struct search *s, const struct code *c)
{
    uint64_t page[32];
    uint32_t known = 0; /* bit per register */

    for (uint64_t at = 0; at + 4 <= c->size; at += 4) {
        uint32_t word = word_at(c->bytes + at), base = (word >> 5) & 31;
        if ((word & 0x9f000000) == 0x90000000) { /* adrp */
            uint32_t imm21 = ((word >> 3) & 0x1ffffc) | ((word >> 29) & 3);
            int64_t pages = (int32_t)(imm21 << 11) >> 11;
            page[word & 31] = ((c->vaddr + at) & ~0xfffULL) + (uint64_t)(pages * 4096);
            known |= 1u << (word & 31);
        } else if ((word & 0xffc00000) == 0xf9400000 && known & (1u << base)) { /* ldr x, [x, #] */
            if (is_slot(s, page[base] + 8 * ((word >> 10) & 0xfff)))
                return true;
        }
    }
    return false;
}

/* x86: any 4-byte displacement, relative to the next instruction, that leads to a slot. */
static bool loads_slot_x86(const struct search *s, const struct code *c)
{
    for (uint64_t at = 0; at + 4 <= c->size; at++) {
        int32_t distance = (int32_t)word_at(c->bytes + at);
        if (is_slot(s, c->vaddr + at + 4 + (uint64_t)(int64_t)distance))
            return true;
    }
    return false;
}

static bool loads_slot(struct search *s, const struct code *c)
{
    s->work += c->size;
    return s->elf->machine == ELF_MACHINE_X86_64 ? loads_slot_x86(s, c) : loads_slot_aarch64(s, c);
}

/* GOT slots that the loader fills with the vtable's address. */
static void slots_read(struct search *s, uint32_t symbol)
{
    uint32_t wanted =
        s->elf->machine == ELF_MACHINE_X86_64 ? R_X86_64_GLOB_DAT : R_AARCH64_GLOB_DAT;

    for (uint64_t i = 0; i < s->elf->rela.count && s->slot_count < SLOTS_MAX; i++) {
        Elf64_Rela r;
        memcpy(&r, s->elf->rela.data + i * sizeof(r), sizeof(r));
        if (ELF64_R_TYPE(r.r_info) == wanted && ELF64_R_SYM(r.r_info) == symbol && r.r_addend == 0)
            s->slots[s->slot_count++] = r.r_offset;
    }
}

static int find_by_code(struct search *s, struct code *ret, struct error *reterr)
{
    const struct elf_image *e = s->elf;
    struct code free_block, direct[CALLEES_MAX], indirect[CALLEES_MAX];
    struct elf_symbol symbol;
    uint32_t index;
    unsigned found = 0;

    if (elf_image_dynamic_index(e, vtable_name, &index) < 0)
        return error_set(reterr, ENOENT, "no block function: it does not refer to MemoryData");
    slots_read(s, index);
    if (s->slot_count == 0)
        return error_set(reterr, ENOENT, "no block function: no relocation of MemoryData's vtable");
    if (function_table_read(e, &s->functions) < 0)
        return error_set(reterr, ENOENT, "no block function: no usable unwind table");
    if (elf_image_dynamic(e, free_block_name, &symbol) < 0)
        return error_set(reterr, ENOENT, "no block function: FreeBlock is not exported");
    if (!function_code(s, symbol.vaddr, &free_block))
        return error_set(reterr, ENOENT, "no block function: FreeBlock has no unwind entry");

    unsigned direct_count = callees_read(s, &free_block, direct);
    for (unsigned i = 0; i < direct_count; i++) {
        unsigned indirect_count = callees_read(s, &direct[i], indirect);
        for (unsigned k = 0; k < indirect_count && s->work <= BLOCKFN_WORK_MAX; k++) {
            if ((found && indirect[k].vaddr == ret->vaddr) || !loads_slot(s, &indirect[k]))
                continue;
            *ret = indirect[k];
            found++;
        }
    }
    if (s->work > BLOCKFN_WORK_MAX)
        return error_set(reterr, EFBIG, "no block function: too much code to search");
    if (found > 1)
        return error_set(reterr, ENOTUNIQ, "no block function: %u functions fit", found);
    if (found == 0)
        return error_set(reterr, ENOENT,
                         "no block function: nothing that frees a block makes a MemoryData");
    return 0;
}

static int find_by_symbol(struct search *s, struct code *ret)
{
    struct elf_symbol symbol;
    if (elf_image_static(s->elf, report_name, &symbol) < 0 || symbol.type != STT_FUNC)
        return -ENOENT;
    if (function_code(s, symbol.vaddr, ret))
        return 0;
    ret->bytes = elf_image_at(s->elf, symbol.vaddr, symbol.size_bytes, NULL);
    ret->vaddr = symbol.vaddr;
    ret->size = symbol.size_bytes < FUNCTION_MAX ? symbol.size_bytes : FUNCTION_MAX;
    return ret->bytes ? 0 : -ENOENT;
}

int blockfn_find(const struct elf_image *e, struct blockfn *ret, struct error *reterr)
{
    struct search s = {.elf = e};
    struct code function = {0};
    enum blockfn_source source = BLOCKFN_BY_CODE;

    int r = find_by_code(&s, &function, reterr);
    if (r < 0) {
        if (find_by_symbol(&s, &function) < 0)
            return r;
        source = BLOCKFN_BY_SYMBOL;
    }
    uint64_t offset = (uint64_t)(function.bytes - e->data);
    *ret = (struct blockfn){
        .offset = offset,
        .vaddr = function.vaddr,
        .probe_offset = elf_probe_offset_hint(e, offset),
        .source = source,
        .layout = blockfn_layout_read(e->machine, function.bytes, function.size),
    };
    return 0;
}

const char *blockfn_source_name(enum blockfn_source source)
{
    return source == BLOCKFN_BY_CODE ? "code" : "symbol";
}

const char *blockfn_layout_name(enum blockfn_layout layout)
{
    switch (layout) {
    case BLOCKFN_LAYOUT_V24:
        return "v24";
    case BLOCKFN_LAYOUT_COMPONENT:
        return "component";
    default:
        return "unknown";
    }
}
