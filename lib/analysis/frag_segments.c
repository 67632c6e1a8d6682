/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frag_segments.c - see frag_internal.h.
 */
#include "frag_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"
#include "sort.h"

static const char *owner_of(const struct frag *f, const struct layout_block *b)
{
    if (!f->at->scan)
        return ledger_owner_name(f->l, b->owner);
    return b->owner == SCAN_NONE ? "PTA@block" : f->at->scan->owners[b->owner];
}

static void write_frames(const struct frag *f, const struct layout_block *b)
{
    const char *frames[VIEW_FRAMES_MAX];
    size_t n = !f->at->scan && f->c->frames_fn && b->detail
                   ? f->c->frames_fn(f->c->userdata, f->row->facts.tgid, b->detail, frames,
                                     VIEW_FRAMES_MAX)
                   : 0;

    json_karray(f->j, "frames");
    for (size_t i = 0; i < n; i++)
        json_str(f->j, frames[i]);
    json_end(f->j);
}

static void write_name(const struct frag *f, const struct layout_block *b)
{
    char path[SCAN_PATH_MAX];

    if (!f->at->scan || b->detail == SCAN_NONE)
        return;
    scan_path(f->at->scan, f->at->scan->tensors[b->detail].node, true, path, sizeof(path));
    json_kstr(f->j, "name", path);
}

static void write_pin(const struct frag *f, const struct layout_block *b)
{
    json_object(f->j);
    json_khex(f->j, "address", b->address);
    json_ku64(f->j, "size_bytes", b->bytes);
    json_kstr(f->j, "owner", owner_of(f, b));
    write_name(f, b);
    json_khex(f->j, "stream", b->stream);
    json_kbool(f->j, "pending", b->is_pending);
    bool has_age = b->allocated_ns && f->c->boot_ns >= b->allocated_ns;
    json_ki64_or_null(f->j, "age_ns", has_age, (int64_t)(f->c->boot_ns - b->allocated_ns));
    write_frames(f, b);
    json_end(f->j);
}

/* The largest blocks of a nearly empty segment. */
static void write_pins(const struct frag *f, const struct layout_segment *s)
{
    const struct layout_block *best[FRAG_PINS_MAX] = {NULL},
                              *blocks = &f->at->layout.blocks[s->first];

    for (uint32_t i = 0; i < s->blocks; i++) {
        const struct layout_block *b = &blocks[i], *other;
        for (size_t k = 0; b && k < FRAG_PINS_MAX; k++)
            if (!best[k] || b->bytes > best[k]->bytes) {
                other = best[k];
                best[k] = b;
                b = other;
            }
    }
    json_karray(f->j, "pins");
    for (size_t k = 0; k < FRAG_PINS_MAX && best[k]; k++)
        write_pin(f, best[k]);
    json_end(f->j);
}

static int write_piece(void *userdata, const struct layout_piece *p)
{
    struct frag *f = userdata;

    if (f->pieces++ >= FRAG_MAP_MAX)
        return 1;
    json_object(f->j);
    json_khex(f->j, "address", p->address);
    json_ku64(f->j, "size_bytes", p->bytes);
    json_kstr(f->j, "state",
              p->is_hole                         ? "hole"
              : p->block && p->block->is_pending ? "pending"
                                                 : "live");
    if (p->block) {
        json_kstr(f->j, "owner", owner_of(f, p->block));
        write_name(f, p->block);
    }
    json_end(f->j);
    return 0;
}

static void write_segment(struct frag *f, const struct layout_segment *s)
{
    const char *reason = f->at->reasons[frag_pool_of(s)];
    bool known = !reason;

    json_object(f->j);
    json_khex(f->j, "address", s->address);
    json_ku64(f->j, "size_bytes", s->bytes);
    json_ki64_or_null(f->j, "used_bytes", known, (int64_t)s->used_bytes);
    json_ki64_or_null(f->j, "pending_bytes", known, (int64_t)s->pending_bytes);
    json_ki64_or_null(f->j, "free_bytes", known, (int64_t)frag_free_bytes(s));
    json_ki64_or_null(f->j, "holes", known, s->holes);
    json_ki64_or_null(f->j, "largest_hole_bytes", known, (int64_t)s->largest_hole_bytes);
    json_ku64(f->j, "blocks", s->blocks);
    if (s->stream == LAYOUT_STREAMS_MIXED)
        json_kstr(f->j, "stream", NULL);
    else
        json_khex(f->j, "stream", s->stream);
    if (known && frag_is_nearly_empty(s))
        write_pins(f, s);
    if (known && f->q->with_map) {
        json_karray(f->j, "map");
        layout_each_piece(&f->at->layout, s, write_piece, f);
        json_end(f->j);
    }
    json_end(f->j);
}

int frag_segments_write(struct frag *f, enum frag_pool pool)
{
    _cleanup_free_ struct sort_key *keys =
        malloc((f->at->layout.segment_count + 1) * sizeof(*keys));
    size_t n = 0;

    if (!keys)
        return -ENOMEM;
    for (size_t i = 0; i < f->at->layout.segment_count; i++)
        if (frag_pool_of(&f->at->layout.segments[i]) == pool)
            keys[n++] =
                (struct sort_key){~frag_free_bytes(&f->at->layout.segments[i]), (uint32_t)i};
    int r = sort_keys(keys, n);
    if (r < 0)
        return r;
    json_karray(f->j, "segments");
    for (size_t i = 0; i < n && (i < FRAG_SEGMENTS_MAX || f->q->with_map); i++)
        write_segment(f, &f->at->layout.segments[keys[i].index]);
    json_end(f->j);
    return 0;
}
