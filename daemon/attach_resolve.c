/* SPDX-License-Identifier: Apache-2.0 */
/* attach_resolve.c - which functions of probes.def a library has, and where; see attach.h. */
#include <stdlib.h>
#include <string.h>

#include "attach.h"
#include "blockfn.h"
#include "probes.h"

static void point_add(struct attach_file *f, const struct elf_image *e, unsigned row,
                      uint64_t offset)
{
    for (size_t i = 0; i < f->point_count; i++)
        if (f->points[i].offset == offset)
            return; /* two names of one function: one fact */
    f->points[f->point_count++] = (struct probe_point){
        .row = row,
        .offset = offset,
        .entry_offset = elf_probe_offset_hint(e, offset),
    };
}

/* A program exports its functions only on demand: .symtab has them unless it is stripped. */
static int program_resolve(struct attach_file *f, const struct elf_image *e)
{
    static const unsigned rows[] = {PROBE_TAG_PUSH, PROBE_TAG_POP, PROBE_TAG_MEMORY};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct elf_symbol symbol;
        uint64_t offset;
        if ((elf_image_dynamic(e, probe_name(rows[i]), &symbol) == 0 ||
             elf_image_static(e, probe_name(rows[i]), &symbol) == 0) &&
            elf_vaddr_to_offset(e, symbol.vaddr, &offset) == 0)
            point_add(f, e, rows[i], offset);
    }
    return 0;
}

int attach_file_resolve(struct attach_file *f, const struct elf_image *e)
{
    const char *names[PROBE_COUNT];
    uint64_t offsets[PROBE_COUNT];
    struct blockfn block;
    int found, r;

    f->points = calloc(PROBE_COUNT, sizeof(*f->points));
    if (!f->points)
        return -ENOMEM;
    if (strcmp(library_name(f->library), "program") == 0)
        return program_resolve(f, e);
    for (unsigned row = 1; row < PROBE_ALWAYS_COUNT; row++)
        names[row - 1] = probe_name(row);
    found = elf_image_symbols(e, names, PROBE_ALWAYS_COUNT - 1, offsets);
    if (found < 0)
        return found;
    for (unsigned row = 1; row < PROBE_ALWAYS_COUNT; row++)
        if (offsets[row - 1] != ELF_NO_OFFSET) {
            point_add(f, e, row, offsets[row - 1]);
            f->has_hal |= probe_row(row)->level == PROBE_LEVEL_HAL;
            f->has_acl |= probe_row(row)->level == PROBE_LEVEL_ACL;
        }
    if (strcmp(library_name(f->library), "torch_npu") != 0)
        return 0;
    r = blockfn_find(e, &block, &f->error);
    if (r == 0 && block.layout == BLOCKFN_LAYOUT_UNKNOWN)
        error_set(&f->error, ENOTSUP,
                  "block function found, but its argument has an unknown layout");
    else if (r == 0) {
        point_add(f, e, block.layout == BLOCKFN_LAYOUT_V24 ? PROBE_BLOCK_V24 : PROBE_BLOCK,
                  block.offset);
        f->has_block = true;
        f->block_layout = blockfn_layout_name(block.layout);
    }
    return 0;
}
