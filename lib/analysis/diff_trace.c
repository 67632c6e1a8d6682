/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_trace.c - a recorded trace as one side of a comparison, or as both.
 *
 * Blocks count until their user lets go (the level "allocated"); segments are the level "physical".
 * What a trace lost shows as frees of unknown blocks, and as addresses that are taken again: then
 * the block before has ended.
 */
#include "diff_internal.h"

#include <errno.h>
#include <string.h>

struct live {
    struct map_key key; /* address, and what it is: see key_of() */
    uint64_t bytes;
    uint32_t row, zero;
};

/* Sum of a row while the trace is read. */
struct sum {
    uint64_t bytes, blocks, peak_bytes;
};

struct cached_row {
    struct map_key key; /* the trace's ids: owner << 32 | stack, level */
    uint64_t row;
};

struct reading {
    struct diff *d;
    enum diff_side side;
    struct map live;
    struct map by_ids; /* struct cached_row */
    struct trace_names names;
    struct sum *sums; /* by row */
    size_t sum_capacity;
    struct diff_trace *told;
    uint64_t total_bytes[2]; /* allocated, reserved */
    uint64_t begin_ns;       /* records up to this time were there before; grown only */
    uint64_t done_address;   /* the newest record was the end of this block; 0 not */
    bool is_grown, began;
};

#define KEY_SEGMENT 0xff000000u

static uint32_t key_of(const struct nm_trace_record *r, bool is_segment)
{
    return is_segment ? KEY_SEGMENT : (uint32_t)r->device << 8 | r->component;
}

static struct sum *sum_of(struct reading *t, uint64_t row)
{
    if (row >= t->sum_capacity) {
        size_t capacity = row + 64;
        struct sum *sums = reallocarray(t->sums, 2 * capacity, sizeof(*sums));
        if (!sums)
            return NULL;
        memset(sums + t->sum_capacity, 0, (2 * capacity - t->sum_capacity) * sizeof(*sums));
        t->sums = sums;
        t->sum_capacity = 2 * capacity;
    }
    return &t->sums[row];
}

static int64_t row_of(struct reading *t, const struct nm_trace_record *r, bool is_segment)
{
    uint32_t level = is_segment ? LEVEL_PHYSICAL : LEVEL_BLOCK;
    uint64_t ids = (uint64_t)r->owner << 32 | r->stack;
    uint32_t n = map_find(&t->by_ids, ids, level);
    int64_t owner, frames, row;

    if (n)
        return (int64_t)((struct cached_row *)map_at(&t->by_ids, n))->row;
    owner = diff_name(t->d, trace_name(&t->names, r->owner));
    if (owner == 0)
        owner = diff_name(t->d, "unknown");
    frames = diff_name(t->d, trace_name(&t->names, r->stack));
    if (owner < 0 || frames < 0)
        return -ENOMEM;
    struct diff_place place = {
        .device = -1, .level = level, .owner = (uint32_t)owner, .frames = (uint32_t)frames};
    row = diff_row(t->d, &place);
    if (row < 0 || !sum_of(t, (uint64_t)row) || map_add(&t->by_ids, ids, level, &n) < 0)
        return -ENOMEM;
    ((struct cached_row *)map_at(&t->by_ids, n))->row = (uint64_t)row;
    return row;
}

static void total_add(struct reading *t, bool is_segment, uint64_t bytes)
{
    uint64_t *peak = is_segment ? &t->told->peak_reserved_bytes : &t->told->peak_allocated_bytes;

    t->total_bytes[is_segment] += bytes;
    if (t->total_bytes[is_segment] > *peak)
        *peak = t->total_bytes[is_segment];
}

static void live_end(struct reading *t, uint32_t number)
{
    const struct live *l = map_at(&t->live, number);
    struct sum *s = &t->sums[l->row];

    t->total_bytes[l->key.b == KEY_SEGMENT] -= l->bytes;
    s->bytes -= l->bytes;
    s->blocks--;
    map_remove(&t->live, number);
}

static int taken(struct reading *t, const struct nm_trace_record *r, bool is_segment)
{
    uint32_t n = map_find(&t->live, r->address, key_of(r, is_segment));
    int64_t row;

    if (n) {
        t->told->reused_addresses++;
        live_end(t, n);
    }
    row = row_of(t, r, is_segment);
    if (row < 0 || map_add(&t->live, r->address, key_of(r, is_segment), &n) < 0)
        return -ENOMEM;
    struct live *l = map_at(&t->live, n);
    l->bytes = r->size_bytes;
    l->row = (uint32_t)row;
    struct sum *s = &t->sums[row];
    s->bytes += l->bytes;
    s->blocks++;
    if (s->bytes > s->peak_bytes)
        s->peak_bytes = s->bytes;
    total_add(t, is_segment, l->bytes);
    return 0;
}

static void given(struct reading *t, const struct nm_trace_record *r, bool is_segment)
{
    uint32_t n = map_find(&t->live, r->address, key_of(r, is_segment));

    if (n)
        live_end(t, n);
    else if (r->kind !=
                 NM_TRACE_BLOCK_DONE &&     /* one that waited for a stream ends after its FREE, */
             t->done_address != r->address) /* an ordinary one before it */
        t->told->unknown_frees++;
    t->done_address = n && r->kind == NM_TRACE_BLOCK_DONE ? r->address : 0;
}

static int side_take(struct reading *t, enum diff_side side, bool with_peaks)
{
    for (uint64_t row = 1; row < t->sum_capacity; row++) {
        const struct sum *s = &t->sums[row];
        if (s->blocks || s->bytes || (with_peaks && s->peak_bytes))
            diff_add(t->d, side, (int64_t)row,
                     &(struct diff_amount){s->bytes, s->blocks, with_peaks ? s->peak_bytes : 0});
    }
    return 0;
}

static int record(struct reading *t, const struct nm_trace_record *r)
{
    if (r->kind == NM_TRACE_NAME)
        return trace_names_add(&t->names, r) == -ENOMEM ? -ENOMEM : 0;
    if (t->is_grown && !t->began && r->time_ns > t->begin_ns) {
        t->began = true;
        side_take(t, DIFF_FROM, false);
    }
    switch (r->kind) {
    case NM_TRACE_BLOCK_MALLOC:
        return taken(t, r, false);
    case NM_TRACE_SEGMENT_ALLOC:
        return taken(t, r, true);
    case NM_TRACE_BLOCK_FREE:
    case NM_TRACE_BLOCK_DONE:
        given(t, r, false);
        return 0;
    case NM_TRACE_SEGMENT_FREE:
        given(t, r, true);
        return 0;
    default:
        return 0;
    }
}

static int read_trace(struct reading *t, struct trace_reader *trace)
{
    struct nm_trace_record r;
    int k = 0;

    map_init(&t->live, sizeof(struct live), 10, NULL);
    map_init(&t->by_ids, sizeof(struct cached_row), 6, NULL);
    trace_rewind(trace);
    while (k == 0 && trace_next(trace, &r) > 0) {
        t->told->records += r.kind != NM_TRACE_NAME;
        k = record(t, &r);
    }
    if (k == 0 && t->is_grown && !t->began)
        side_take(t, DIFF_FROM, false);
    if (k == 0)
        side_take(t, t->side, true);
    map_clear(&t->live);
    map_clear(&t->by_ids);
    trace_names_done(&t->names);
    free(t->sums);
    return k;
}

int diff_add_trace(struct diff *d, enum diff_side side, struct trace_reader *trace,
                   struct diff_trace *ret)
{
    struct reading t = {.d = d, .side = side, .told = ret};

    *ret = (struct diff_trace){0};
    return read_trace(&t, trace);
}

int diff_add_trace_grown(struct diff *d, struct trace_reader *trace, struct diff_trace *ret)
{
    struct reading t = {.d = d,
                        .side = DIFF_TO,
                        .told = ret,
                        .is_grown = true,
                        .begin_ns = trace->header.begin_boot_ns};

    *ret = (struct diff_trace){0};
    return read_trace(&t, trace);
}
