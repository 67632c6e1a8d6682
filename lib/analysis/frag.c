/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frag.c - see frag.h.
 *
 * fragmentation_ratio is 1 - largest hole / free bytes: 0 when all that is free is one piece.
 * Invariant: what events did not show is never a hole. A segment that was seen from its beginning
 * has no blocks that were not, unless they are below the threshold or events were lost.
 */
#include "frag_internal.h"

#include <string.h>

#include "alloc_model.h"

/* Blocks of the pool of small requests are at most 1 MiB, those of the large one are more. */
#define SMALL_BLOCK_BYTES ((uint64_t)1 << 20)

static const char reason_no_blocks[] =
    "blocks of this allocator are not observed: npumem scan PID reads its table, then ask again";
static const char reason_small[] =
    "blocks below the threshold are summed in the kernel (probes.block_detail): npumem scan PID "
    "reads the allocator's table, then ask again";
static const char reason_lost[] =
    "events were lost, or contradict each other: npumem scan PID reads the allocator's table, then "
    "ask again";
static const char reason_unseen[] =
    "reserved before npumemd was attached: npumem scan PID reads the allocator's table, then ask "
    "again";

static const char reason_recording_small[] = "small blocks from before the recording are not in it";
static const char reason_recording_unseen[] =
    "in segments that were not known when the recording began";
static const char reason_recording_lost[] =
    "events are missing in the recording, or contradict each other";

static void read_conf(struct frag *f)
{
    const char *text = NULL, *source;
    size_t bytes = 0;

    alloc_conf_init(&f->conf);
    if (f->c->environment_fn)
        text = f->c->environment_fn(f->c->userdata, f->row->facts.tgid, &bytes, &source);
    const char *value = text ? alloc_conf_variable(text, bytes, ALLOC_CONF_NAME) : NULL;
    if (value)
        alloc_conf_parse(value, &f->conf, NULL); /* what it would refuse runs with the default */
    if (f->q->request_bytes)
        f->request_bytes = alloc_model_round(&f->conf, f->q->request_bytes);
}

/* Which pools the ledger knows to the last block. */
static void judge_ledger(struct frag *f)
{
    struct view_pool_sum sum = view_row_pools(f->row);
    uint64_t reserved = 0, below = f->q->summed_below_bytes;
    bool is_summed = sum.small_bytes || below;
    struct frag_side *e = &f->events;
    const char *all = NULL, *lost = f->q->is_recording ? reason_recording_lost : reason_lost;
    bool is_lossy = f->q->is_recording ? f->q->is_lossy : !f->c->complete || f->c->lost_events;

    for (enum frag_pool p = 0; p < FRAG_POOL_COUNT; p++)
        reserved += e->sums[p].bytes;
    if (!f->row->pool_count)
        all = reason_no_blocks;
    else if (is_lossy || e->layout.overlaps)
        all = lost;
    else if (sum.reserved_bytes > 0 && (uint64_t)sum.reserved_bytes > reserved)
        f->unseen_bytes = (uint64_t)sum.reserved_bytes - reserved;
    f->unseen_allocated_bytes =
        (uint64_t)sum.before_attach_bytes + (all ? 0 : e->layout.unplaced_bytes);
    if (!all && f->unseen_allocated_bytes > f->unseen_bytes && !f->q->is_late)
        all = lost; /* more blocks than fit where none was seen */
    for (enum frag_pool p = 0; p < FRAG_POOL_COUNT; p++) {
        e->reasons[p] = all;
        if (!all && is_summed && (frag_pool_is_small(p) || below > SMALL_BLOCK_BYTES + 512))
            e->reasons[p] = f->q->is_recording ? reason_recording_small : reason_small;
    }
}

static bool is_known(const struct frag *f)
{
    bool known = !f->unseen_bytes && f->row->pool_count;

    for (enum frag_pool p = 0; p < FRAG_POOL_COUNT; p++)
        known &= !f->events.sums[p].segments || !f->events.reasons[p];
    return known;
}

static int measure(const struct frag *f, struct frag_side *s)
{
    int r = layout_measure(&s->layout);
    if (r == 0)
        frag_add_up(&s->layout, &f->conf, f->request_bytes, s->sums);
    return r;
}

/* The ledger's layout; where that one is not all there is, the scan's as well. */
static int collect(struct frag *f)
{
    const struct process_facts *facts = &f->row->facts;
    const struct scan_result *scan = NULL;
    int r = layout_from_ledger(f->l, facts->tgid, (uint16_t)f->row->device, &f->events.layout);

    if (r == 0)
        r = measure(f, &f->events);
    if (r < 0)
        return r;
    judge_ledger(f);
    if (!is_known(f) && f->q->scan_fn)
        scan = f->q->scan_fn(f->q->userdata, facts->tgid, &f->scan_ns);
    if (!scan || !scan->s.has_blocks || !scan->s.is_blocks_complete)
        return 0;
    f->scanned.scan = scan;
    r = layout_from_scan(scan, facts, f->row->device, &f->scanned.layout);
    return r < 0 ? r : measure(f, &f->scanned);
}

/* --- writing --- */

static void write_head(struct frag *f, const char *pool, const char *reason)
{
    uint64_t scan_ns = f->at->scan ? view_wall_ns(f->c, f->scan_ns) : 0;

    json_object(f->j);
    json_ku64(f->j, "tgid", f->row->facts.tgid);
    json_kindex(f->j, "rank", f->row->facts.rank);
    json_ki64(f->j, "device", f->row->device);
    json_kstr(f->j, "pool", pool);
    json_kstr(f->j, "source", f->at->scan ? "scan" : "events");
    json_ki64_or_null(f->j, "source_time_ns", scan_ns != 0, (int64_t)scan_ns);
    json_kbool(f->j, "complete", !reason);
}

/* The figures that need every block, null with a reason where some are not known. */
static void write_figures(struct frag *f, const struct frag_sums *t, const char *reason)
{
    static const char *const keys[] = {
        "pending_bytes",         "free_bytes",          "holes",
        "largest_hole_bytes",    "fragmentation_ratio", "empty_segments",
        "nearly_empty_segments", "pinned_free_bytes"};
    const uint64_t values[] = {t->pending_bytes,
                               t->free_bytes,
                               t->holes,
                               t->largest_hole_bytes,
                               0,
                               t->empty_segments,
                               t->nearly_empty_segments,
                               t->pinned_free_bytes};

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        json_key(f->j, keys[i]);
        if (reason)
            json_null(f->j);
        else if (strcmp(keys[i], "fragmentation_ratio") != 0)
            json_u64(f->j, values[i]);
        else
            json_double(f->j, t->free_bytes
                                  ? 1 - (double)t->largest_hole_bytes / (double)t->free_bytes
                                  : 0);
    }
    if (f->request_bytes) {
        json_ki64_or_null(f->j, "usable_bytes", !reason, (int64_t)t->usable_bytes);
        json_ki64_or_null(f->j, "unusable_bytes", !reason,
                          (int64_t)(t->free_bytes - t->usable_bytes));
        json_ki64_or_null(f->j, "fitting_requests", !reason, (int64_t)t->fitting_requests);
    }
    json_kobject(f->j, "unknown");
    for (size_t i = 0; reason && i < ARRAY_SIZE(keys); i++)
        json_kstr(f->j, keys[i], reason);
    json_end(f->j);
}

/* Blocks summed in the kernel are of the small pool, or of what was not seen. */
static uint64_t summed_bytes(const struct frag *f)
{
    struct view_pool_sum sum = view_row_pools(f->row);
    return sum.small_bytes > 0 ? (uint64_t)sum.small_bytes : 0;
}

static bool has_small(const struct frag *f)
{
    return f->events.sums[FRAG_SMALL].segments || f->events.sums[FRAG_SMALL_EXPANDABLE].segments;
}

static int write_pool(struct frag *f, enum frag_pool pool)
{
    const struct frag_sums *t = &f->at->sums[pool];
    const char *reason = f->at->reasons[pool];
    uint64_t summed = reason == reason_small && frag_pool_is_small(pool) ? summed_bytes(f) : 0;
    bool known = !reason || (reason == reason_small && !(summed && f->unseen_bytes));

    write_head(f, frag_pool_name(pool), reason);
    json_ku64(f->j, "reserved_bytes", t->bytes);
    json_ki64_or_null(f->j, "allocated_bytes", known, (int64_t)(t->used_bytes + summed));
    json_ku64(f->j, "segment_count", t->segments);
    write_figures(f, t, reason);
    int r = frag_segments_write(f, pool);
    json_end(f->j);
    return r;
}

static void write_unseen(struct frag *f)
{
    uint64_t summed = summed_bytes(f);

    const char *reason = f->q->is_recording ? reason_recording_unseen : reason_unseen;

    write_head(f, "unseen", reason);
    json_ki64_or_null(f->j, "reserved_bytes", !f->q->is_recording, (int64_t)f->unseen_bytes);
    json_ki64_or_null(f->j, "allocated_bytes", !summed || !has_small(f),
                      (int64_t)(f->unseen_allocated_bytes + summed));
    json_kstr(f->j, "segment_count", NULL);
    write_figures(f, &(struct frag_sums){.bytes = 0}, reason);
    json_karray(f->j, "segments");
    json_end(f->j);
    json_end(f->j);
}

/* A pool stands there once: the ledger's is of now, the scan's of a while ago. */
static int write_row(struct frag *f)
{
    bool has_scan = f->scanned.scan, all = has_scan && f->unseen_bytes;
    bool large = all || (has_scan && f->events.reasons[FRAG_LARGE]);
    int r = 0;

    for (enum frag_pool pool = 0; pool < FRAG_POOL_COUNT && r == 0; pool++) {
        bool by_scan = pool == FRAG_PRIVATE ? large : all || (has_scan && f->events.reasons[pool]);
        f->at = by_scan ? &f->scanned : &f->events;
        if (f->at->sums[pool].segments)
            r = write_pool(f, pool);
    }
    f->at = &f->events;
    if ((f->unseen_bytes && !all) || (f->q->is_late && f->unseen_allocated_bytes))
        write_unseen(f);
    return r;
}

int frag_write(const struct ledger *l, const struct view_context *c, const struct frag_query *q,
               struct json *j)
{
    struct view_rows rows;
    int r = view_rows_collect(l, c, &rows);

    if (r < 0)
        return r;
    json_ku64(j, "request_bytes", q->request_bytes);
    json_karray(j, "pools");
    for (size_t i = 0; i < rows.count && r == 0; i++) {
        struct frag f = {.l = l, .c = c, .q = q, .row = &rows.items[i], .j = j};
        if (!f.row->selected || !f.row->alive || f.row->device < 0)
            continue;
        read_conf(&f);
        r = collect(&f);
        if (r == 0)
            r = write_row(&f);
        layout_done(&f.events.layout);
        layout_done(&f.scanned.layout);
    }
    json_end(j);
    view_rows_done(&rows);
    return r ? r : j->error;
}

int view_frag(const struct ledger *l, const struct view_context *c, const struct frag_query *q,
              struct json *j)
{
    json_object(j);
    view_header(c, j);
    int r = frag_write(l, c, q, j);
    json_end(j);
    return r ? r : j->error;
}
