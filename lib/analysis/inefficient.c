/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inefficient.c - from lives to findings; see inefficient.h. The document is inefficient_write.c.
 *
 * Invariant: a block is in at most one finding of each kind, and in none that its own numbers do
 * not bear out: operations and time are compared as they were counted, never estimated.
 */
#include "inefficient_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"

#define US 1000ull

int inefficient_new(const struct inefficient_bounds *bounds, struct inefficient **ret)
{
    struct inefficient *i = calloc(1, sizeof(*i));

    if (!i)
        return -ENOMEM;
    i->bounds = *bounds;
    *ret = i;
    return 0;
}

struct inefficient *inefficient_free(struct inefficient *i)
{
    if (!i)
        return NULL;
    free(i->findings);
    free(i);
    return NULL;
}

/* bytes held for so long, in byte-seconds. */
static uint64_t cost_of(uint64_t bytes, uint64_t us)
{
    return analysis_scale(bytes, us, 1000000);
}

int inefficient_compare(const void *a, const void *b)
{
    const struct inefficient_finding *x = a, *y = b;

    if (x->byte_seconds != y->byte_seconds)
        return x->byte_seconds < y->byte_seconds ? 1 : -1;
    if (x->block.life.address != y->block.life.address)
        return x->block.life.address < y->block.life.address ? -1 : 1;
    if (x->block.life.alloc_op != y->block.life.alloc_op)
        return x->block.life.alloc_op < y->block.life.alloc_op ? -1 : 1;
    return (int)x->kind - (int)y->kind;
}

/* Room for one more; when there are too many, the cheaper half goes. */
static int room(struct inefficient *i)
{
    if (i->count < i->capacity)
        return 0;
    if (i->count == INEFFICIENT_FINDINGS_MAX) {
        qsort(i->findings, i->count, sizeof(*i->findings), inefficient_compare);
        i->count /= 2;
        return 0;
    }
    return ARRAY_ROOM(i->findings, i->capacity, i->count);
}

/* One idle stretch of a block, and by which senses it is too long. */
struct stretch {
    enum inefficient_kind kind;
    uint32_t us, op;
    bool by_rule; /* the rule of operations holds, whatever its length */
};

static int judge(struct inefficient *i, const struct inefficient_block *b, const struct stretch *s)
{
    uint32_t held_us = b->life.end_us - b->life.alloc_us;
    bool by_time = s->us * US >= i->bounds.idle_ns;
    struct inefficient_finding f = {
        .kind = s->kind,
        .by_operations = s->by_rule,
        .by_time = by_time,
        .idle_us = s->us,
        .idle_op = s->op,
        .idle_ratio = held_us ? (double)s->us / held_us : 0,
        .byte_seconds = cost_of(b->size_bytes, s->us),
        .block = *b,
    };
    int r;

    if ((!by_time && !s->by_rule) || b->size_bytes < i->bounds.min_size_bytes)
        return 0;
    i->totals[s->kind].blocks++;
    i->totals[s->kind].bytes += b->size_bytes;
    i->totals[s->kind].byte_seconds += f.byte_seconds;
    r = room(i);
    if (r == 0)
        i->findings[i->count++] = f;
    return r;
}

static int judge_unused(struct inefficient *i, const struct inefficient_block *b)
{
    const struct nm_access *a = &b->life;
    bool is_held = a->flags & NM_ACCESS_HELD, is_freed = a->flags & NM_ACCESS_FREED;
    struct stretch s = {
        .kind = !is_held   ? INEFFICIENT_EARLY
                : is_freed ? INEFFICIENT_LATE
                           : INEFFICIENT_IDLE,
        .us = a->end_us - a->alloc_us,
        .op = a->end_op - a->alloc_op,
    };

    s.by_rule = s.op > i->bounds.operations;
    return judge(i, b, &s);
}

static int judge_early(struct inefficient *i, const struct inefficient_block *b)
{
    const struct nm_access *a = &b->life;
    struct stretch s = {
        .kind = INEFFICIENT_EARLY,
        .us = a->first_us - a->alloc_us,
        .op = a->first_op > a->alloc_op ? a->first_op - a->alloc_op : 0,
        .by_rule = a->flags & NM_ACCESS_EARLY,
    };

    return a->flags & NM_ACCESS_HELD ? 0 : judge(i, b, &s);
}

/* The longest time between two uses; before the first one of a block from before the window, it was
 * idle for at least as long as the window shows. */
static void find_gap(const struct nm_access *a, uint32_t *ret_us, uint32_t *ret_op)
{
    *ret_us = a->gap_us;
    *ret_op = a->gap_op;
    if ((a->flags & NM_ACCESS_HELD) && a->first_us > *ret_us)
        *ret_us = a->first_us;
    if ((a->flags & NM_ACCESS_HELD) && a->first_op > *ret_op)
        *ret_op = a->first_op;
}

static int judge_late(struct inefficient *i, const struct inefficient_block *b)
{
    const struct nm_access *a = &b->life;
    struct stretch s = {
        .kind = INEFFICIENT_LATE,
        .us = a->end_us - a->last_us,
        .op = a->end_op > a->last_op ? a->end_op - a->last_op : 0,
        .by_rule = a->flags & NM_ACCESS_LATE,
    };
    uint32_t gap_us, gap_op;

    if (a->flags & NM_ACCESS_FREED)
        return judge(i, b, &s);
    find_gap(a, &gap_us, &gap_op);
    s.by_rule = s.op > i->bounds.operations && s.op / 2 >= gap_op;
    if (!s.by_rule && s.us / 2 < gap_us)
        return 0;
    return judge(i, b, &s);
}

static int judge_idle(struct inefficient *i, const struct inefficient_block *b)
{
    struct stretch s = {.kind = INEFFICIENT_IDLE};

    find_gap(&b->life, &s.us, &s.op);
    s.by_rule = s.op > i->bounds.operations;
    return judge(i, b, &s);
}

int inefficient_add(struct inefficient *i, const struct inefficient_block *block)
{
    const struct nm_access *a = &block->life;
    int r;

    /* hostile or torn: times that run backwards say nothing */
    if (a->end_us < a->alloc_us || a->end_op < a->alloc_op ||
        (a->count &&
         (a->first_us < a->alloc_us || a->last_us < a->first_us || a->end_us < a->last_us))) {
        i->bad_count++;
        return 0;
    }
    i->block_count++;
    i->used_count += a->count != 0;
    i->held_byte_seconds += cost_of(block->size_bytes, a->end_us - a->alloc_us);
    if (!a->count)
        return judge_unused(i, block);
    r = judge_early(i, block);
    if (r == 0)
        r = judge_idle(i, block);
    return r < 0 ? r : judge_late(i, block);
}
