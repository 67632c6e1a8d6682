/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npualloc.c - one reading of the allocator, its checks, and its repetitions.
 *
 * Invariants of what is returned: as many live blocks as the table says; every record holds its
 * key; neighbours point at each other; no two blocks of a device overlap. is_complete adds that the
 * sums are the allocator's own statistics.
 */
#include "npualloc_internal.h"

#include <errno.h>
#include <string.h>

#define SEEN_CHUNK_SHIFT 8
#define ATTEMPTS_MAX 64u
#define READS_MAX 8192u /* about 10 ms */

static int compare_blocks(const void *a, const void *b)
{
    const struct npualloc_block *x = a, *y = b;

    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    return x->address < y->address ? -1 : x->address > y->address;
}

static void walk_done(struct npualloc_walk *w)
{
    free(w->live);
    map_clear(&w->seen);
    map_clear(&w->pools);
}

void npualloc_done(struct npualloc *a)
{
    free(a->blocks);
    *a = (struct npualloc){0};
}

struct npualloc_device *npualloc_device_get(struct npualloc *a, uint8_t device)
{
    for (unsigned i = 0; i < a->device_count; i++)
        if (a->devices[i].device == device)
            return &a->devices[i];
    if (a->device_count == NPUALLOC_DEVICES_MAX)
        return NULL;
    a->devices[a->device_count] = (struct npualloc_device){.device = device};
    return &a->devices[a->device_count++];
}

/* Sums per device; a block that overlaps its neighbour means that the reading is torn. */
static int sums_make(struct npualloc_walk *w)
{
    struct npualloc *a = w->out;

    qsort(a->blocks, a->block_count, sizeof(*a->blocks), compare_blocks);
    for (size_t i = 0; i < a->block_count; i++) {
        struct npualloc_block *b = &a->blocks[i];
        struct npualloc_device *d = npualloc_device_get(a, b->device);
        uint32_t number = map_find(&w->pools, b->pool, 0);
        if (number) {
            const struct npualloc_seen *pool = map_at(&w->pools, number);
            b->is_small = pool->index >> 1 & 1;
            b->is_private = pool->index >> 2 & 1;
        }
        if (i && b[-1].device == b->device && b[-1].address + b[-1].bytes > b->address)
            return -EAGAIN;
        if (!d)
            return -EBADMSG;
        if (b->state == NPUALLOC_LIVE) {
            d->live_blocks++;
            d->live_bytes += b->bytes;
        } else if (b->state == NPUALLOC_FREE) {
            d->free_blocks++;
            d->free_bytes += b->bytes;
            if (b->bytes > d->largest_free_bytes)
                d->largest_free_bytes = b->bytes;
        } else if (b->state == NPUALLOC_PENDING) {
            d->pending_blocks++;
            d->pending_bytes += b->bytes;
        }
    }
    return 0;
}

/* Devices that the process never used are not shown. */
static void devices_tidy(struct npualloc *a)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < a->device_count; i++)
        if (a->devices[i].has_stats || a->devices[i].live_blocks || a->devices[i].free_blocks ||
            a->devices[i].pending_blocks)
            a->devices[kept++] = a->devices[i];
    a->device_count = kept;
}

static bool sums_agree(const struct npualloc *a)
{
    bool has_any = false;

    for (unsigned i = 0; i < a->device_count; i++) {
        const struct npualloc_device *d = &a->devices[i];
        has_any = true;
        if (!d->has_stats || d->live_bytes != d->allocated_bytes ||
            d->live_bytes + d->pending_bytes != d->active_bytes ||
            d->live_bytes + d->free_bytes + d->pending_bytes != d->reserved_bytes)
            return false;
    }
    return has_any;
}

static int read_once(struct npualloc_walk *w, struct error *reterr)
{
    bool is_stable;
    int r = npualloc_table_find(w, reterr);

    if (r == 0)
        r = npualloc_table_list(w, &is_stable, reterr);
    if (r < 0)
        return r;
    if (!is_stable)
        return error_set(reterr, EAGAIN, "the allocator's table changes while it is read");
    w->out->table_count = w->table_count;
    for (size_t i = 0; r >= 0 && i < w->live_count; i++)
        r = npualloc_take(w, &w->live[i]);
    for (size_t i = 0; r >= 0 && i < w->live_count; i++)
        r = npualloc_take_chain(w, w->live[i].record);
    if (r >= 0)
        r = npualloc_take_pools(w);
    if (r >= 0)
        r = sums_make(w);
    if (r < 0)
        return error_set(reterr, r == -EFAULT ? -EAGAIN : r,
                         "the allocator's blocks change while they are read");
    devices_tidy(w->out);
    w->out->is_complete = sums_agree(w->out);
    return 0;
}

/* A server that allocates thousands of blocks a second changes a table of a hundred of them as
 * often: as long as there is nothing to show, a table that is cheap to read is read again. */
static bool is_worth_it(const struct image *image, unsigned attempt, unsigned attempts_max,
                        bool has_best, uint64_t reads_before)
{
    if (attempt <= attempts_max)
        return true;
    return !has_best && attempt <= ATTEMPTS_MAX &&
           image_stats(image)->reads - reads_before < READS_MAX;
}

int npualloc_read(struct image *image, const struct image_ranges *ranges, uint64_t allocator,
                  unsigned attempts_max, struct npualloc *ret, struct error *reterr)
{
    struct npualloc best = {0};
    bool has_best = false;
    uint64_t reads = image_stats(image)->reads;
    int r = -EAGAIN;

    for (unsigned attempt = 1; is_worth_it(image, attempt, attempts_max, has_best, reads);
         attempt++) {
        struct npualloc out = {.attempts = attempt};
        struct npualloc_walk w = {
            .image = image, .ranges = ranges, .allocator = allocator, .out = &out};
        map_init(&w.seen, sizeof(struct npualloc_seen), SEEN_CHUNK_SHIFT, NULL);
        map_init(&w.pools, sizeof(struct npualloc_seen), SEEN_CHUNK_SHIFT, NULL);
        if (attempt > 1)
            image_forget(image);
        r = read_once(&w, reterr);
        walk_done(&w);
        if (r == 0) { /* consistent; look again as long as the sums do not agree */
            npualloc_done(&best);
            best = out;
            has_best = true;
            if (out.is_complete)
                break;
        } else {
            npualloc_done(&out);
        }
        if (r < 0 && r != -EAGAIN)
            break;
    }
    if (!has_best)
        return r;
    *ret = best;
    return 0;
}

const struct npualloc_block *npualloc_find(const struct npualloc *a, int device, uint64_t address)
{
    size_t low = 0, high = a->block_count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct npualloc_block *b = &a->blocks[middle];
        if (b->device == device && address >= b->address && address - b->address < b->bytes)
            return b;
        if (b->device < device || (b->device == device && b->address < address))
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}
