/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frag_pool.c - see frag_pool.h.
 *
 * Invariant: usable + unusable = free. The rules by which a hole serves a request are those of
 * alloc_model.h: its own pool, large enough, and with max_split_size neither split when it is
 * larger nor wasted on a request that is much smaller.
 */
#include "frag_pool.h"

#include <string.h>

#include "frag.h"

/* Largest request that the pool of small ones serves. Source: torch_npu's kSmallSize. */
#define SMALL_REQUEST_BYTES ((uint64_t)1 << 20)

const char *frag_pool_name(enum frag_pool pool)
{
    static const char *const names[] = {
        [FRAG_LARGE] = "large",
        [FRAG_SMALL] = "small",
        [FRAG_LARGE_EXPANDABLE] = "large_expandable",
        [FRAG_SMALL_EXPANDABLE] = "small_expandable",
        [FRAG_PRIVATE] = "private",
    };
    return names[pool];
}

enum frag_pool frag_pool_of(const struct layout_segment *s)
{
    if (s->is_private)
        return FRAG_PRIVATE;
    if (s->is_granule)
        return s->is_small ? FRAG_SMALL_EXPANDABLE : FRAG_LARGE_EXPANDABLE;
    return s->is_small ? FRAG_SMALL : FRAG_LARGE;
}

bool frag_pool_is_small(enum frag_pool pool)
{
    return pool == FRAG_SMALL || pool == FRAG_SMALL_EXPANDABLE;
}

uint64_t frag_free_bytes(const struct layout_segment *s)
{
    uint64_t used = s->used_bytes + s->pending_bytes;
    return s->bytes > used ? s->bytes - used : 0;
}

bool frag_is_nearly_empty(const struct layout_segment *s)
{
    uint64_t used = s->used_bytes + s->pending_bytes;
    return used && used < s->bytes / 100 * FRAG_NEARLY_EMPTY_PERCENT;
}

struct request {
    const struct alloc_conf *conf;
    uint64_t bytes;
    bool is_expandable;
    struct frag_sums *sums;
};

static int on_piece(void *userdata, const struct layout_piece *p)
{
    struct request *r = userdata;
    uint64_t limit = r->conf->max_split_bytes;

    if (!p->is_hole)
        return 0;
    if (p->bytes < r->bytes) { /* the last hole of an expandable segment grows to what is needed */
        if (r->is_expandable && p->is_last)
            r->sums->usable_bytes += p->bytes;
        return 0;
    }
    if (r->bytes < limit && p->bytes >= limit)
        return 0;
    if (r->bytes >= limit && p->bytes >= r->bytes + r->conf->max_non_split_rounding_bytes)
        return 0;
    r->sums->usable_bytes += p->bytes;
    r->sums->fitting_requests += r->bytes >= limit ? 1 : p->bytes / r->bytes;
    return 0;
}

void frag_add_up(const struct layout *l, const struct alloc_conf *conf, uint64_t request_bytes,
                 struct frag_sums ret[FRAG_POOL_COUNT])
{
    memset(ret, 0, FRAG_POOL_COUNT * sizeof(*ret));
    for (size_t i = 0; i < l->segment_count; i++) {
        const struct layout_segment *s = &l->segments[i];
        enum frag_pool pool = frag_pool_of(s);
        struct frag_sums *t = &ret[pool];
        t->segments++;
        t->bytes += s->bytes;
        t->used_bytes += s->used_bytes;
        t->pending_bytes += s->pending_bytes;
        t->free_bytes += frag_free_bytes(s);
        t->holes += s->holes;
        t->empty_segments += s->used_bytes + s->pending_bytes == 0;
        if (s->largest_hole_bytes > t->largest_hole_bytes)
            t->largest_hole_bytes = s->largest_hole_bytes;
        if (frag_is_nearly_empty(s)) {
            t->nearly_empty_segments++;
            t->pinned_free_bytes += frag_free_bytes(s);
        }
        if (request_bytes && pool != FRAG_PRIVATE &&
            frag_pool_is_small(pool) == (request_bytes <= SMALL_REQUEST_BYTES))
            layout_each_piece(l, s, on_piece,
                              &(struct request){conf, request_bytes, s->is_granule, t});
    }
}
