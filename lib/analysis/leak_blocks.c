/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leak_blocks.c - see leak_blocks.h.
 */
#include "leak_blocks.h"

#include <errno.h>
#include <string.h>

#include "ledger_restore.h"
#include "map.h"

enum what { STACK, STREAM };

struct tally {
    struct map_key key; /* stack or stream; what */
    uint64_t bytes;
};

struct find {
    const struct ledger *l;
    const struct leak_blocks_query *q;
    struct leak_blocks *ret;
    struct map tallies;
    uint32_t owner;
    bool has_owner;
};

static int add(struct find *f, enum what what, uint64_t key, uint64_t bytes)
{
    uint32_t n = map_find(&f->tallies, key, what);
    int r = n ? 0 : map_add(&f->tallies, key, what, &n);

    if (r == 0)
        ((struct tally *)map_at(&f->tallies, n))->bytes += bytes;
    return r;
}

static int on_entry(void *userdata, const struct ledger_entry *e)
{
    struct find *f = userdata;

    if (e->level != f->q->level || e->device != f->q->device || e->allocated_ns < f->q->since_ns)
        return 0;
    if (!f->has_owner || e->owner != f->owner) { /* names are compared once per owner in a row */
        if (strcmp(ledger_owner_name(f->l, e->owner), f->q->owner) != 0)
            return 0;
        f->owner = e->owner;
        f->has_owner = true;
    }
    f->ret->blocks++;
    f->ret->bytes += e->size_bytes;
    int r = e->stack ? add(f, STACK, e->stack, e->size_bytes) : 0;
    return r < 0 ? r : add(f, STREAM, e->stream, e->size_bytes);
}

int leak_blocks_find(const struct ledger *l, const struct leak_blocks_query *q,
                     struct leak_blocks *ret, uint32_t *ret_stack)
{
    struct find f = {.l = l, .q = q, .ret = ret};
    uint64_t bytes[LEAK_STREAMS_MAX] = {0};

    *ret = (struct leak_blocks){.blocks = 0};
    *ret_stack = 0;
    map_init(&f.tallies, sizeof(struct tally), 8, NULL);
    int r = ledger_each_entry(l, q->tgid, on_entry, &f);
    for (uint32_t n = 0; r == 0 && (n = map_next(&f.tallies, n));) {
        struct tally t = *(const struct tally *)map_at(&f.tallies, n);
        if (t.key.b == STACK) {
            if (t.bytes > ret->frames_bytes) {
                ret->frames_bytes = t.bytes;
                *ret_stack = (uint32_t)t.key.a;
            }
            continue;
        }
        for (size_t i = 0; i < LEAK_STREAMS_MAX; i++) {
            uint64_t stream = ret->streams[i], other = bytes[i];
            if (t.bytes <= other)
                continue;
            ret->streams[i] = t.key.a;
            bytes[i] = t.bytes;
            ret->stream_count += other == 0;
            t.key.a = stream;
            t.bytes = other;
        }
    }
    map_clear(&f.tallies);
    return r;
}

bool leak_blocks_of_series(const struct ledger *l, const struct view_context *c,
                           const struct leak_series *s, uint64_t since_ns, struct leak_blocks *ret)
{
    struct leak_blocks_query query = {.tgid = s->tgid,
                                      .device = (uint16_t)s->native_device,
                                      .owner = s->owner,
                                      .since_ns = since_ns};
    uint32_t stack;

    if (s->source != LEAK_OWNER || !s->level)
        return false;
    query.level = level_parse(s->level);
    if (leak_blocks_find(l, &query, ret, &stack) < 0)
        return false;
    if (stack)
        ret->frame_count = c->frames_fn(c->userdata, s->tgid, stack, ret->frames, LEAK_FRAMES_MAX);
    return true;
}
