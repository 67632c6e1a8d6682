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

#include "cleanup.h"
#include "sort.h"

void layout_done(struct layout *l)
{
    free(l->segments);
    free(l->blocks);
    memset(l, 0, sizeof(*l));
}

static int grow(void **items, size_t *capacity, size_t count, size_t size)
{
    if (count < *capacity)
        return 0;
    size_t wanted = *capacity ? *capacity * 2 : 256;
    void *more = reallocarray(*items, wanted, size);
    if (!more)
        return -ENOMEM;
    *items = more;
    *capacity = wanted;
    return 0;
}

int layout_add_segment(struct layout *l, const struct layout_segment *segment)
{
    int r =
        grow((void **)&l->segments, &l->segment_capacity, l->segment_count, sizeof(*l->segments));
    if (r == 0)
        l->segments[l->segment_count++] = *segment;
    return r;
}

int layout_add_block(struct layout *l, const struct layout_block *block)
{
    int r = grow((void **)&l->blocks, &l->block_capacity, l->block_count, sizeof(*l->blocks));
    if (r == 0)
        l->blocks[l->block_count++] = *block;
    return r;
}

#define DEFINE_ORDER(kind)                                                                         \
    static int order_##kind##s(struct layout *l)                                                   \
    {                                                                                              \
        size_t n = l->kind##_count;                                                                \
        _cleanup_free_ struct sort_key *keys = malloc((n ? n : 1) * sizeof(*keys));                \
        struct layout_##kind *sorted = malloc((n ? n : 1) * sizeof(*sorted));                      \
        if (!keys || !sorted) {                                                                    \
            free(sorted);                                                                          \
            return -ENOMEM;                                                                        \
        }                                                                                          \
        for (size_t i = 0; i < n; i++)                                                             \
            keys[i] = (struct sort_key){l->kind##s[i].address, (uint32_t)i};                       \
        int r = sort_keys(keys, n);                                                                \
        for (size_t i = 0; r == 0 && i < n; i++)                                                   \
            sorted[i] = l->kind##s[keys[i].index];                                                 \
        if (r < 0) {                                                                               \
            free(sorted);                                                                          \
            return r;                                                                              \
        }                                                                                          \
        free(l->kind##s);                                                                          \
        l->kind##s = sorted;                                                                       \
        l->kind##_capacity = n ? n : 1;                                                            \
        return 0;                                                                                  \
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
            end_of(last->address, last->bytes) == s->address) {
            last->bytes += s->bytes;
            continue;
        }
        l->segments[kept++] = *s;
    }
    l->segment_count = kept;
}

struct walk {
    struct layout *l;
    void (*hole_fn)(void *, const struct layout_segment *, uint64_t, uint64_t);
    void *userdata;
};

static void add_hole(const struct walk *w, struct layout_segment *s, uint64_t address, uint64_t end)
{
    if (end <= address)
        return;
    s->holes++;
    if (end - address > s->largest_hole_bytes)
        s->largest_hole_bytes = end - address;
    if (w->hole_fn)
        w->hole_fn(w->userdata, s, address, end - address);
}

/* Goes through one segment's blocks, which begin at `at`. Returns the first block behind it. */
static size_t walk_segment(const struct walk *w, size_t index, size_t at)
{
    struct layout *l = w->l;
    struct layout_segment *s = &l->segments[index];
    uint64_t end = end_of(s->address, s->bytes), filled = s->address;

    for (; at < l->block_count && l->blocks[at].address < end; at++) {
        struct layout_block *b = &l->blocks[at];
        uint64_t from = b->address, to = end_of(b->address, b->bytes);
        if (from < filled || to > end)
            l->overlaps++;
        if (to > end)
            to = end;
        if (from < filled)
            from = filled;
        b->segment = (uint32_t)index;
        s->blocks++;
        if (to <= from)
            continue;
        add_hole(w, s, filled, from);
        *(b->is_pending ? &s->pending_bytes : &s->used_bytes) += to - from;
        if (s->pin == LAYOUT_NONE || b->bytes > l->blocks[s->pin].bytes)
            s->pin = (uint32_t)at;
        filled = to;
    }
    add_hole(w, s, filled, end);
    return at;
}

static size_t skip_unplaced(struct layout *l, size_t at, uint64_t end)
{
    for (; at < l->block_count && l->blocks[at].address < end; at++) {
        l->blocks[at].segment = LAYOUT_NONE;
        l->unplaced_blocks++;
        l->unplaced_bytes += l->blocks[at].bytes;
    }
    return at;
}

int layout_measure(struct layout *l,
                   void (*hole_fn)(void *userdata, const struct layout_segment *segment,
                                   uint64_t address, uint64_t bytes),
                   void *userdata)
{
    struct walk w = {l, hole_fn, userdata};
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
        s->used_bytes = s->pending_bytes = s->largest_hole_bytes = 0;
        s->blocks = s->holes = 0;
        s->pin = LAYOUT_NONE;
        at = skip_unplaced(l, at, s->address);
        at = walk_segment(&w, i, at);
    }
    skip_unplaced(l, at, UINT64_MAX);
    return 0;
}
