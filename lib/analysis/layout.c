/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.c - see layout.h.
 *
 * Invariant after layout_measure(): used + pending + sum of holes = bytes of a segment, unless
 * blocks overlap or reach over its end (then they are cut, and counted in overlaps).
 */
#include "layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "cleanup.h"
#include "sort.h"

void layout_done(struct layout *l)
{
    free(l->segments);
    free(l->blocks);
    memset(l, 0, sizeof(*l));
}

int layout_add_segment(struct layout *l, const struct layout_segment *segment)
{
    int r = ARRAY_ROOM(l->segments, l->segment_capacity, l->segment_count);
    if (r == 0)
        l->segments[l->segment_count++] = *segment;
    return r;
}

int layout_add_block(struct layout *l, const struct layout_block *block)
{
    int r = ARRAY_ROOM(l->blocks, l->block_capacity, l->block_count);
    if (r == 0)
        l->blocks[l->block_count++] = *block;
    return r;
}

/* Brings the items into the order of their keys where they are: a second array of a million blocks
 * costs more than to sort their addresses. */
#define DEFINE_ORDER(kind)                                                                         \
    static int order_##kind##s(struct layout *l)                                                   \
    {                                                                                              \
        size_t n = l->kind##_count;                                                                \
        struct layout_##kind *items = l->kind##s;                                                  \
        _cleanup_free_ struct sort_key *keys = malloc((n ? n : 1) * sizeof(*keys));                \
        if (!keys)                                                                                 \
            return -ENOMEM;                                                                        \
        for (size_t i = 0; i < n; i++)                                                             \
            keys[i] = (struct sort_key){items[i].address, (uint32_t)i};                            \
        int r = sort_keys(keys, n);                                                                \
        for (size_t i = 0; r == 0 && i < n; i++) {                                                 \
            struct layout_##kind first = items[i];                                                 \
            size_t at = i;                                                                         \
            for (size_t from; (from = keys[at].index) != i; at = from) {                           \
                items[at] = items[from];                                                           \
                keys[at].index = (uint32_t)at;                                                     \
            }                                                                                      \
            items[at] = first;                                                                     \
            keys[at].index = (uint32_t)at;                                                         \
        }                                                                                          \
        return r;                                                                                  \
    }
DEFINE_ORDER(segment)
DEFINE_ORDER(block)

static uint64_t end_of(uint64_t address, uint64_t bytes)
{
    return bytes > UINT64_MAX - address ? UINT64_MAX : address + bytes;
}

static void merge_granules(struct layout *l)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->segment_count; i++) {
        struct layout_segment *s = &l->segments[i], *last = kept ? &l->segments[kept - 1] : NULL;
        if (last && last->is_granule && s->is_granule && last->is_small == s->is_small &&
            last->is_private == s->is_private && end_of(last->address, last->bytes) == s->address) {
            last->bytes += s->bytes;
            continue;
        }
        l->segments[kept++] = *s;
    }
    l->segment_count = kept;
}

int layout_each_piece(const struct layout *l, const struct layout_segment *s,
                      int (*fn)(void *userdata, const struct layout_piece *piece), void *userdata)
{
    uint64_t end = end_of(s->address, s->bytes), at = s->address + s->head_bytes;
    struct layout_piece p = {.address = s->address, .bytes = s->head_bytes, .is_last = at >= end};
    int r = p.bytes ? fn(userdata, &p) : 0;

    for (uint32_t i = s->first; r == 0 && i < s->first + s->blocks; i++) {
        const struct layout_block *b = &l->blocks[i];
        uint64_t from = b->address > at ? b->address : at, to = end_of(b->address, b->bytes);
        to = to < end ? to : end;
        if (to <= from)
            continue; /* inside another: counted in overlaps */
        if (from > at) {
            p = (struct layout_piece){.address = at, .bytes = from - at, .is_hole = true};
            r = fn(userdata, &p);
        }
        p = (struct layout_piece){from, to - from, .block = b, .is_last = to == end};
        if (r == 0)
            r = fn(userdata, &p);
        at = to;
    }
    p = (struct layout_piece){at, end - at, .is_hole = true, .is_last = true};
    return r == 0 && at < end ? fn(userdata, &p) : r;
}

static int add_piece(void *userdata, const struct layout_piece *p)
{
    struct layout_segment *s = userdata;

    if (p->is_hole) {
        s->holes++;
        if (p->bytes > s->largest_hole_bytes)
            s->largest_hole_bytes = p->bytes;
    } else if (p->block && p->block->is_pending) {
        s->pending_bytes += p->bytes;
    } else {
        s->used_bytes += p->bytes;
    }
    return 0;
}

/* Takes the blocks from `at` on that begin in a segment. Returns the first behind it. */
static size_t take_blocks(struct layout *l, size_t index, size_t at)
{
    struct layout_segment *s = &l->segments[index];
    uint64_t end = end_of(s->address, s->bytes), filled = s->address + s->head_bytes;

    s->first = (uint32_t)at;
    for (; at < l->block_count && l->blocks[at].address < end; at++) {
        struct layout_block *b = &l->blocks[at];
        uint64_t to = end_of(b->address, b->bytes);
        if (b->address < filled || to > end)
            l->overlaps++;
        filled = to > filled ? to : filled;
        b->segment = (uint32_t)index;
        if (s->blocks++ == 0)
            s->stream = b->stream;
        else if (s->stream != b->stream)
            s->stream = LAYOUT_STREAMS_MIXED;
        if (s->pin == LAYOUT_NONE || b->bytes > l->blocks[s->pin].bytes)
            s->pin = (uint32_t)at;
    }
    return at;
}

/* Blocks that begin in no segment. *covered: where the last of them ends, which may be in the next
 * one: of an expandable segment that was seen in part. */
static size_t skip_unplaced(struct layout *l, size_t at, uint64_t end, uint64_t *covered)
{
    for (; at < l->block_count && l->blocks[at].address < end; at++) {
        struct layout_block *b = &l->blocks[at];
        uint64_t to = end_of(b->address, b->bytes);
        b->segment = LAYOUT_NONE;
        l->unplaced_blocks++;
        l->unplaced_bytes += b->bytes;
        *covered = to > *covered ? to : *covered;
    }
    return at;
}

int layout_measure(struct layout *l)
{
    uint64_t covered = 0;
    size_t at = 0;
    int r = order_segments(l);

    if (r == 0)
        r = order_blocks(l);
    if (r < 0)
        return r;
    merge_granules(l);
    l->unplaced_blocks = l->unplaced_bytes = l->overlaps = 0;
    for (size_t i = 0; i < l->segment_count; i++) {
        struct layout_segment *s = &l->segments[i];
        uint64_t end = end_of(s->address, s->bytes);
        s->used_bytes = s->pending_bytes = s->largest_hole_bytes = s->head_bytes = 0;
        s->blocks = s->holes = 0;
        s->stream = LAYOUT_STREAMS_MIXED;
        s->pin = LAYOUT_NONE;
        at = skip_unplaced(l, at, s->address, &covered);
        if (covered > s->address)
            s->head_bytes = (covered < end ? covered : end) - s->address;
        at = take_blocks(l, i, at);
        layout_each_piece(l, s, add_piece, s);
    }
    skip_unplaced(l, at, UINT64_MAX, &covered);
    return 0;
}
