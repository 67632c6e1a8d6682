/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_scan.c - see layout_scan.h.
 *
 * Invariant: the free bytes of the layout are those of the table.
 */
#include "layout_scan.h"

#include <string.h>

#include "view_rows.h"

/* Whether a block is in the same segment as the one before it. */
static bool is_continued(const struct layout_segment *s, const struct npualloc_block *last,
                         const struct npualloc_block *b)
{
    if (last->device != b->device || last->address + last->bytes != b->address ||
        last->pool != b->pool || last->stream != b->stream)
        return false;
    if (last->state == NPUALLOC_FREE && b->state == NPUALLOC_FREE)
        return false; /* the allocator would have merged them */
    return s->is_granule || !s->is_small || s->bytes < LAYOUT_SMALL_SEGMENT_BYTES;
}

/* Where the row of addresses of one pool ends that block i begins; whether part of it has no
 * memory: expandable segments reserve far more addresses than a card has memory. */
static uint32_t row_end(const struct scan_result *r, uint32_t i, bool *ret_expandable)
{
    *ret_expandable = false;
    for (;; i++) {
        const struct npualloc_block *b = &r->blocks[i];
        *ret_expandable |= b->state == NPUALLOC_UNMAPPED;
        if (i + 1 == r->s.block_count || b[1].device != b->device ||
            b->address + b->bytes != b[1].address || b->pool != b[1].pool)
            return i + 1;
    }
}

static int add_block(const struct scan_result *r, uint32_t i, struct layout *l)
{
    const struct npualloc_block *b = &r->blocks[i];
    uint32_t tensor = r->block_tensors[i];
    struct layout_block block = {
        .address = b->address,
        .bytes = b->bytes,
        .stream = b->stream,
        .owner = tensor == SCAN_NONE ? SCAN_NONE : r->tensors[tensor].owner,
        .detail = tensor,
        .is_pending = b->state == NPUALLOC_PENDING,
    };
    return b->state == NPUALLOC_FREE ? 0 : layout_add_block(l, &block);
}

int layout_from_scan(const struct scan_result *r, const struct process_facts *facts, int device,
                     struct layout *ret)
{
    const struct npualloc_block *last = NULL;
    struct layout_segment s = {.bytes = 0};
    bool is_expandable = false;
    uint32_t end = 0;
    int e = 0;

    memset(ret, 0, sizeof(*ret));
    for (uint32_t i = 0; e == 0 && i < r->s.block_count; i++) {
        const struct npualloc_block *b = &r->blocks[i];
        if (i >= end)
            end = row_end(r, i, &is_expandable);
        if (view_device_of(facts, b->device) != device || b->state == NPUALLOC_UNMAPPED)
            continue;
        if (last && is_continued(&s, last, b)) {
            s.bytes += b->bytes;
        } else {
            if (s.bytes)
                e = layout_add_segment(ret, &s);
            s = (struct layout_segment){.address = b->address,
                                        .bytes = b->bytes,
                                        .owner = SCAN_NONE,
                                        .is_small = b->is_small,
                                        .is_private = b->is_private,
                                        .is_granule = is_expandable};
        }
        last = b;
        if (e == 0)
            e = add_block(r, i, ret);
    }
    if (e == 0 && s.bytes)
        e = layout_add_segment(ret, &s);
    if (e < 0)
        layout_done(ret);
    return e;
}
