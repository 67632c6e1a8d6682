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

struct watched {
    struct watched *next;
    uint32_t tgid, start_ticks;
    bool is_asked, has_pool;
    unsigned tries, good, torn;
    uint64_t asked_ns, written_ns;
    struct kv_pool pool;
    struct process_memory memory;
    struct kv_span span, written; /* at hand, and as the store has it */
    char reason[160];
};

struct kv_watch {
    struct manager *m;
    struct watched *first;
};

int kv_watch_new(struct manager *m, struct kv_watch **ret)
{
    struct kv_watch *w = calloc(1, sizeof(*w));

    if (!w)
        return -ENOMEM;
    w->m = m;
    *ret = w;
    return 0;
}

static void span_write(struct kv_watch *w, struct watched *p)
{
    if (!p->span.readings || memcmp(&p->span, &p->written, sizeof(p->span)) == 0)
        return;
    if (store_kv_write(w->m->store, p->tgid, &p->span) == 0)
        p->written = p->span;
    p->written_ns = manager_boot_ns();
}

void kv_watch_flush(struct kv_watch *w)
{
    for (struct watched *p = w ? w->first : NULL; p; p = p->next)
        span_write(w, p);
}

struct kv_watch *kv_watch_free(struct kv_watch *w)
{
    if (!w)
        return NULL;
    while (w->first) {
        struct watched *p = w->first;
        w->first = p->next;
        process_memory_done(&p->memory);
        free(p);
    }
    free(w);
    return NULL;
}

static struct watched *watched_find(const struct kv_watch *w, uint32_t tgid)
{
    for (struct watched *p = w ? w->first : NULL; p; p = p->next)
        if (p->tgid == tgid)
            return p;
    return NULL;
}

void kv_watch_exit(struct kv_watch *w, uint32_t tgid)
{
    for (struct watched **at = w ? &w->first : NULL; at && *at; at = &(*at)->next) {
        struct watched *p = *at;
        if (p->tgid != tgid)
            continue;
        span_write(w, p);
        *at = p->next;
        process_memory_done(&p->memory);
        free(p);
        return;
    }
}

static struct watched *watched_get(struct kv_watch *w, const struct target *t)
{
    struct watched *p = watched_find(w, t->tgid);

    if (p)
        return p;
    p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    *p = (struct watched){.tgid = t->tgid,
                          .start_ticks = t->facts.start_ticks,
                          .memory = process_memory_init(t->tgid),
                          .next = w->first};
    w->first = p;
    return p;
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
    p->pool = *pool;
    p->has_pool = true;
    p->good = p->torn = 0;
    p->reason[0] = '\0';
    log_info("process %u: its KV cache of %llu blocks is followed", tgid,
             (unsigned long long)pool->total_blocks);
}

static void pool_lost(struct watched *p, const char *why)
{
    p->has_pool = false;
    snprintf(p->reason, sizeof(p->reason), "%s", why);
    log_info("process %u: its KV cache is looked for again: %s", p->tgid, why);
}

static void span_take(struct kv_watch *w, struct watched *p, const struct kv_pool_reading *r)
{
    const struct config *config = &w->m->config;
    struct kv_span_rule rule = {.shortest_ns = config->store_sample_interval,
                                .longest_ns = LIMIT_STORE_SAMPLE_FULL_NS,
                                .gap_ns = GAP_NS + GAPS * config->store_kv_interval};
    struct kv_span next;
    bool is_new = !kv_span_take(&p->span, r, manager_wall_ns(), &rule, &next);

    if (is_new) {
        span_write(w, p);
        p->span = next;
        p->span.block_tokens = p->pool.groups == 1 ? p->pool.block_tokens : 0;
        p->span.model_len = p->pool.model_len;
    }
    uint64_t lasted = manager_boot_ns() - p->written_ns;
    bool has_moved = p->span.most_blocks != p->written.most_blocks ||
                     p->span.least_blocks != p->written.least_blocks ||
                     p->span.begin_wall_ns != p->written.begin_wall_ns;
    if (lasted >= (has_moved ? config->store_sample_interval : WRITE_NS))
        span_write(w, p);
}

static void read_pool(struct kv_watch *w, const struct target *t, struct watched *p)
{
    struct memory_reader reader = {.read = process_memory_read, .userdata = &p->memory};
    struct kv_pool_reading reading;
    int r = kv_pool_read(&p->pool, &reader, &reading);

    if (!procfs_alive(t->pidfd))
        return; /* what was read may be another process's: exited() follows */
    if (r == 0) {
        span_take(w, p, &reading);
        p->torn = 0;
        if (++p->good >= GOOD_READINGS)
            p->tries = 0;
    } else if (r == -EAGAIN && ++p->torn < TORN_MAX) {
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
        struct watched *p = may_have_scheduler(t) ? watched_get(w, t) : NULL;
        if (!p)
            continue;
        if (p->has_pool)
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
    return p->has_pool ? NULL : p->reason[0] ? p->reason : "its scheduler is looked for";
}
