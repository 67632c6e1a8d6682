/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_watch.c - see kv_watch.h.
 *
 * Owns: one record per process that may have a scheduler. Must not: walk objects here (the scan's
 * child does), or take a pool for the one that was found without kv_pool_read() saying so.
 */
#include "kv_watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "limits.h"
#include "log.h"
#include "manager.h"
#include "map.h"
#include "procfacts.h"
#include "process_memory.h"
#include "store_kv.h"

/* A server that starts has its scheduler only when all is loaded, minutes later; a process that has
 * none so far is no server most of the time. */
#define FIND_NS 5000000000ull
#define FIND_ENGINE_TRIES 60u /* of an engine, before the pause grows */
#define FIND_PAUSE_MAX_NS 600000000000ull
#define GOOD_READINGS 60u       /* then a pool that is lost is looked for at once */
#define TORN_MAX 10u            /* readings in a row that changed meanwhile */
#define WRITE_NS 60000000000ull /* a span that only grows longer */
/* A longer time without a reading is not known: intervals, and what a busy loop may be late. */
#define GAPS 3u
#define GAP_NS 2000000000ull

/* A pool that is read. */
struct followed {
    struct kv_pool pool;
    struct process_memory memory;
    struct kv_span span, written; /* at hand, and as the store has it */
    uint64_t written_ns;
    unsigned good, torn;
    bool is_lost; /* the pool is looked for again; the span goes on with it */
};

struct watched {
    struct map_key key; /* tgid */
    uint32_t tries;
    bool is_asked;
    uint8_t zero[3];
    uint64_t asked_ns;
    struct followed *followed; /* NULL: none was found so far */
    char reason[160];
};

struct kv_watch {
    struct manager *m;
    struct map processes; /* struct watched */
};

int kv_watch_new(struct manager *m, struct kv_watch **ret)
{
    struct kv_watch *w = calloc(1, sizeof(*w));

    if (!w)
        return -ENOMEM;
    w->m = m;
    map_init(&w->processes, sizeof(struct watched), 4, NULL);
    *ret = w;
    return 0;
}

static void span_write(struct kv_watch *w, const struct watched *p)
{
    struct followed *f = p->followed;

    if (!f || !f->span.readings || memcmp(&f->span, &f->written, sizeof(f->span)) == 0)
        return;
    if (store_kv_write(w->m->store, (uint32_t)p->key.a, &f->span) == 0)
        f->written = f->span;
    f->written_ns = manager_boot_ns();
}

void kv_watch_flush(struct kv_watch *w)
{
    for (uint32_t n = 0; w && (n = map_next(&w->processes, n));)
        span_write(w, map_at(&w->processes, n));
}

static void followed_free(struct followed *f)
{
    if (f)
        process_memory_done(&f->memory);
    free(f);
}

struct kv_watch *kv_watch_free(struct kv_watch *w)
{
    if (!w)
        return NULL;
    for (uint32_t n = 0; (n = map_next(&w->processes, n));)
        followed_free(((struct watched *)map_at(&w->processes, n))->followed);
    map_clear(&w->processes);
    free(w);
    return NULL;
}

static struct watched *watched_find(const struct kv_watch *w, uint32_t tgid)
{
    uint32_t n = w ? map_find(&w->processes, tgid, 0) : 0;

    return n ? map_at(&w->processes, n) : NULL;
}

void kv_watch_exit(struct kv_watch *w, uint32_t tgid)
{
    uint32_t n = w ? map_find(&w->processes, tgid, 0) : 0;

    if (!n)
        return;
    struct watched *p = map_at(&w->processes, n);
    span_write(w, p);
    followed_free(p->followed);
    map_remove(&w->processes, n);
}

static struct watched *watched_get(struct kv_watch *w, uint32_t tgid)
{
    uint32_t n = map_find(&w->processes, tgid, 0);

    if (!n && map_add(&w->processes, tgid, 0, &n) < 0)
        return NULL;
    return map_at(&w->processes, n);
}

/* Workers, API servers and coordinators have no scheduler; a process without a title may. */
static bool may_have_scheduler(const struct target *t)
{
    return !t->excluded && (t->facts.role == TITLE_ENGINE || t->facts.role == TITLE_OTHER);
}

static uint64_t find_pause(const struct target *t, const struct watched *p)
{
    unsigned doubled = p->tries;

    if (t->facts.role == TITLE_ENGINE)
        doubled = p->tries > FIND_ENGINE_TRIES ? p->tries - FIND_ENGINE_TRIES : 1;
    if (!doubled)
        return 0;
    uint64_t pause = doubled > 8 ? FIND_PAUSE_MAX_NS : FIND_NS << (doubled - 1);
    return pause < FIND_PAUSE_MAX_NS ? pause : FIND_PAUSE_MAX_NS;
}

static void find(struct kv_watch *w, const struct target *t, struct watched *p)
{
    uint64_t now = manager_boot_ns();

    if (p->is_asked || now - p->asked_ns < find_pause(t, p))
        return;
    p->asked_ns = now;
    p->tries++;
    p->is_asked = true; /* before the request: it may end at once */
    if (scans_request_pool(w->m->scans, t->tgid, t->facts.start_ticks) < 0)
        p->is_asked = false;
}

void kv_watch_found(struct kv_watch *w, uint32_t tgid, const struct kv_pool *pool,
                    const struct error *error)
{
    struct watched *p = watched_find(w, tgid);

    if (!p)
        return;
    p->is_asked = false;
    if (!pool) {
        snprintf(p->reason, sizeof(p->reason), "%.159s", error->what);
        log_debug("process %u: no pool of KV blocks: %s", tgid, error->what);
        return;
    }
    if (!p->followed) {
        p->followed = calloc(1, sizeof(*p->followed));
        if (!p->followed)
            return;
        p->followed->memory = process_memory_init(tgid);
    }
    p->followed->pool = *pool;
    p->followed->good = p->followed->torn = 0;
    p->followed->is_lost = false;
    log_info("process %u: its KV cache of %llu blocks is followed", tgid,
             (unsigned long long)pool->total_blocks);
}

static bool is_read(const struct watched *p)
{
    return p->followed && !p->followed->is_lost;
}

static void pool_lost(struct watched *p, const char *why)
{
    p->followed->is_lost = true;
    snprintf(p->reason, sizeof(p->reason), "%s", why);
    log_info("process %u: its KV cache is looked for again: %s", (uint32_t)p->key.a, why);
}

static void span_take(struct kv_watch *w, struct watched *p, const struct kv_pool_reading *r)
{
    const struct config *config = &w->m->config;
    struct followed *f = p->followed;
    struct kv_span_rule rule = {.shortest_ns = config->store_sample_interval,
                                .longest_ns = LIMIT_STORE_SAMPLE_FULL_NS,
                                .gap_ns = GAP_NS + GAPS * config->store_kv_interval};
    struct kv_span next;
    bool is_new = !kv_span_take(&f->span, r, manager_wall_ns(), &rule, &next);

    if (is_new) {
        span_write(w, p);
        f->span = next;
        f->span.block_tokens = f->pool.groups == 1 ? f->pool.block_tokens : 0;
        f->span.model_len = f->pool.model_len;
    }
    uint64_t lasted = manager_boot_ns() - f->written_ns;
    bool has_moved = f->span.most_blocks != f->written.most_blocks ||
                     f->span.least_blocks != f->written.least_blocks ||
                     f->span.begin_wall_ns != f->written.begin_wall_ns;
    if (lasted >= (has_moved ? config->store_sample_interval : WRITE_NS))
        span_write(w, p);
}

static void read_pool(struct kv_watch *w, const struct target *t, struct watched *p)
{
    struct followed *f = p->followed;
    struct memory_reader reader = {.read = process_memory_read, .userdata = &f->memory};
    struct kv_pool_reading reading;
    int r = kv_pool_read(&f->pool, &reader, &reading);

    if (!procfs_alive(t->pidfd))
        return; /* what was read may be another process's: exited() follows */
    if (r == 0) {
        span_take(w, p, &reading);
        f->torn = 0;
        if (++f->good >= GOOD_READINGS)
            p->tries = 0;
    } else if (r == -EAGAIN && ++f->torn < TORN_MAX) {
        return;
    } else {
        pool_lost(p, r == -EPERM || r == -EACCES ? "its memory may not be read"
                     : r == -ESTALE || r == -EAGAIN
                         ? "its scheduler's objects are not what they were"
                         : "its memory could not be read");
    }
}

void kv_watch_turn(struct kv_watch *w)
{
    for (struct target *t = w ? targets_first(w->m->targets) : NULL; t; t = t->next) {
        struct watched *p = may_have_scheduler(t) ? watched_get(w, t->tgid) : NULL;
        if (!p)
            continue;
        if (is_read(p))
            read_pool(w, t, p);
        else
            find(w, t, p);
    }
}

const char *kv_watch_reason(const struct kv_watch *w, uint32_t tgid)
{
    const struct watched *p = watched_find(w, tgid);

    if (!p)
        return "its scheduler is in none of the observed processes";
    return is_read(p) ? NULL : p->reason[0] ? p->reason : "its scheduler is looked for";
}
