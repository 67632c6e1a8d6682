/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frag.c - see frag.h.
 *
 * fragmentation_ratio is 1 - largest hole / free bytes: 0 when all that is free is one piece.
 */
#include "frag.h"

#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"
#include "layout_ledger.h"
#include "sort.h"
#include "view_rows.h"

#define COMPLETE_PERCENT 1

static const char *const pool_names[] = {
    [FRAG_LARGE] = "large", [FRAG_SMALL] = "small", [FRAG_EXPANDABLE] = "expandable"};

static enum frag_pool pool_of(const struct layout_segment *s)
{
    if (s->is_granule)
        return FRAG_EXPANDABLE;
    return s->is_small ? FRAG_SMALL : FRAG_LARGE;
}

static uint64_t free_bytes(const struct layout_segment *s)
{
    uint64_t used = s->used_bytes + s->pending_bytes;
    return s->bytes > used ? s->bytes - used : 0;
}

static void write_pin(const struct layout *l, const struct frag_process *p,
                      const struct layout_segment *s, struct json *j)
{
    const struct layout_block *b = &l->blocks[s->pin];

    json_kobject(j, "pin");
    json_khex(j, "address", b->address);
    json_ku64(j, "size_bytes", b->bytes);
    json_kstr(j, "owner", p->owner_fn ? p->owner_fn(p->userdata, b->owner) : NULL);
    json_khex(j, "stream", b->stream);
    json_ku64(j, "age_ns", p->now_ns > b->allocated_ns ? p->now_ns - b->allocated_ns : 0);
    json_end(j);
}

static void write_segment(const struct layout *l, const struct frag_process *p,
                          const struct layout_segment *s, struct json *j)
{
    json_object(j);
    json_khex(j, "address", s->address);
    json_ku64(j, "size_bytes", s->bytes);
    json_ku64(j, "used_bytes", s->used_bytes);
    json_ku64(j, "pending_bytes", s->pending_bytes);
    json_ku64(j, "free_bytes", free_bytes(s));
    json_ku64(j, "holes", s->holes);
    json_ku64(j, "largest_hole_bytes", s->largest_hole_bytes);
    json_ku64(j, "blocks", s->blocks);
    if (s->pin != LAYOUT_NONE && s->used_bytes < s->bytes / 100 * FRAG_NEARLY_EMPTY_PERCENT)
        write_pin(l, p, s, j);
    json_end(j);
}

struct sums {
    uint64_t bytes, used, pending, free, holes, largest, segments, empty, pinned_free;
};

static struct sums add_up(const struct layout *l, enum frag_pool pool)
{
    struct sums t = {0};

    for (size_t i = 0; i < l->segment_count; i++) {
        const struct layout_segment *s = &l->segments[i];
        if (pool_of(s) != pool)
            continue;
        t.segments++;
        t.bytes += s->bytes;
        t.used += s->used_bytes;
        t.pending += s->pending_bytes;
        t.free += free_bytes(s);
        t.holes += s->holes;
        t.empty += s->pin == LAYOUT_NONE;
        if (s->largest_hole_bytes > t.largest)
            t.largest = s->largest_hole_bytes;
        if (s->pin != LAYOUT_NONE && s->used_bytes < s->bytes / 100 * FRAG_NEARLY_EMPTY_PERCENT)
            t.pinned_free += free_bytes(s);
    }
    return t;
}

static int write_segments(const struct layout *l, const struct frag_process *p, enum frag_pool pool,
                          struct json *j)
{
    _cleanup_free_ struct sort_key *keys = malloc((l->segment_count + 1) * sizeof(*keys));
    size_t n = 0;

    if (!keys)
        return -ENOMEM;
    for (size_t i = 0; i < l->segment_count; i++)
        if (pool_of(&l->segments[i]) == pool)
            keys[n++] = (struct sort_key){~free_bytes(&l->segments[i]), (uint32_t)i};
    int r = sort_keys(keys, n);
    if (r < 0)
        return r;
    json_karray(j, "segments");
    for (size_t i = 0; i < n && i < FRAG_SEGMENTS_MAX; i++)
        write_segment(l, p, &l->segments[keys[i].index], j);
    json_end(j);
    return 0;
}

/* Whether events named nearly all of what the allocator says it has. */
static bool is_complete(const struct layout *l, const struct frag_process *p)
{
    uint64_t bytes = 0, used = 0;

    for (size_t i = 0; i < l->segment_count; i++) {
        bytes += l->segments[i].bytes;
        used += l->segments[i].used_bytes;
    }
    if (p->reserved_bytes == ANALYSIS_UNKNOWN || l->unplaced_blocks || l->overlaps)
        return false;
    uint64_t off = p->reserved_bytes / 100 * COMPLETE_PERCENT;
    return bytes + off >= p->reserved_bytes && used + off >= p->allocated_bytes;
}

int frag_write_pools(const struct layout *l, const struct frag_process *p, struct json *j)
{
    bool complete = is_complete(l, p);
    int r = 0;

    for (enum frag_pool pool = 0; pool < FRAG_POOL_COUNT && r == 0; pool++) {
        struct sums t = add_up(l, pool);
        if (!t.segments)
            continue;
        json_object(j);
        json_ku64(j, "tgid", p->tgid);
        view_int_or_null(j, "rank", p->rank >= 0, p->rank);
        view_int_or_null(j, "device", p->device >= 0, p->device);
        json_kstr(j, "pool", pool_names[pool]);
        json_kbool(j, "complete", complete);
        json_ku64(j, "reserved_bytes", t.bytes);
        json_ku64(j, "allocated_bytes", t.used);
        json_ku64(j, "pending_bytes", t.pending);
        json_ku64(j, "free_bytes", t.free);
        json_ku64(j, "holes", t.holes);
        json_ku64(j, "largest_hole_bytes", t.largest);
        json_kdouble(j, "fragmentation_ratio", t.free ? 1 - (double)t.largest / (double)t.free : 0);
        json_ku64(j, "segment_count", t.segments);
        json_ku64(j, "empty_segments", t.empty);
        json_ku64(j, "pinned_free_bytes", t.pinned_free);
        json_ku64(j, "unplaced_blocks", l->unplaced_blocks);
        r = write_segments(l, p, pool, j);
        json_end(j);
    }
    return r;
}

struct walk {
    const struct ledger *l;
};

static const char *owner_name(void *userdata, uint32_t owner)
{
    const struct walk *w = userdata;
    return ledger_owner_name(w->l, owner);
}

static int write_row(const struct ledger *l, const struct view_context *c,
                     const struct view_row *row, struct json *j)
{
    struct walk w = {l};
    struct view_pool_sum sum = view_row_pools(row);
    struct frag_process p = {
        .tgid = row->facts.tgid,
        .rank = row->facts.rank,
        .device = row->device,
        .reserved_bytes = row->pool_count ? (uint64_t)sum.reserved_bytes : ANALYSIS_UNKNOWN,
        .allocated_bytes = row->pool_count ? (uint64_t)sum.allocated_bytes : ANALYSIS_UNKNOWN,
        .now_ns = c->boot_ns,
        .owner_fn = owner_name,
        .userdata = &w,
    };
    struct layout layout;
    int r = layout_from_ledger(l, p.tgid, (uint16_t)p.device, &layout);

    if (r == 0)
        r = layout_measure(&layout, NULL, NULL);
    if (r == 0)
        r = frag_write_pools(&layout, &p, j);
    layout_done(&layout);
    return r;
}

int view_frag(const struct ledger *l, const struct view_context *c, const struct frag_query *q,
              struct json *j)
{
    struct view_rows rows;
    int r = view_rows_collect(l, c, &rows);

    if (r < 0)
        return r;
    json_object(j);
    view_header(c, j);
    json_ku64(j, "request_bytes", q->request_bytes);
    json_karray(j, "pools");
    for (size_t i = 0; i < rows.count && r == 0; i++)
        if (rows.items[i].selected && rows.items[i].alive && rows.items[i].device >= 0)
            r = write_row(l, c, &rows.items[i], j);
    json_end(j);
    json_end(j);
    view_rows_done(&rows);
    return r ? r : j->error;
}
