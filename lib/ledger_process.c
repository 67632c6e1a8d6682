/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_process.c - which processes there are.
 *
 * Owns: the list of processes by first sight and the newest process of each tgid.
 * Invariants: at most one live process per tgid; a process that exited holds no entries, but its
 * rows, devices and pools stay as they were at exit until it is evicted; events of a process that
 * is gone are counted (events_after_exit) and never bring it back.
 */
#include "ledger_internal.h"

#include <errno.h>
#include <string.h>

#define ENTRY_CHUNK_SHIFT 8 /* 256 entries, 14 KiB */
#define ROW_CHUNK_SHIFT 4

struct process *process_find(const struct ledger *l, uint32_t tgid)
{
    if (l->last && l->last->pub.facts.tgid == tgid)
        return l->last;
    uint32_t number = map_find(&l->by_tgid, tgid, 0);
    if (!number)
        return NULL;
    return ((struct tgid_slot *)map_at(&l->by_tgid, number))->process;
}

struct process *process_free(struct ledger *l, struct process *p)
{
    if (!p)
        return NULL;
    map_clear(&p->entries);
    map_clear(&p->rows);
    for (uint32_t i = 0; i < p->device_count; i++) {
        ledger_memory(l, -(int64_t)(p->devices[i].module_count * sizeof(struct module_use)));
        free(p->devices[i].modules);
    }
    for (uint32_t i = 0; i < p->pool_count; i++)
        pool_free(l, p->pools[i]);
    named_free(l, p->named);
    seen_free(l, p->seen);
    ledger_memory(l, -(int64_t)(p->device_count * sizeof(*p->devices) +
                                p->pool_count * sizeof(*p->pools) + sizeof(*p)));
    ledger_memory(l, -(int64_t)(p->phase_count * sizeof(*p->phases)));
    free(p->devices);
    free(p->pools);
    free(p->phases);
    free(p);
    return NULL;
}

/* Forgets one process altogether. */
static void process_evict(struct ledger *l, uint32_t at)
{
    struct process *p = l->processes[at];
    uint32_t number = map_find(&l->by_tgid, p->pub.facts.tgid, 0);
    if (number && ((struct tgid_slot *)map_at(&l->by_tgid, number))->process == p)
        map_remove(&l->by_tgid, number);
    if (l->last == p)
        l->last = NULL;
    process_free(l, p);
    memmove(&l->processes[at], &l->processes[at + 1],
            (--l->process_count - at) * sizeof(*l->processes));
}

/* Makes room for one more process: the one that exited first goes. */
static int process_room(struct ledger *l)
{
    if (l->process_count >= l->config.max_processes) {
        uint32_t oldest = UINT32_MAX;
        for (uint32_t i = 0; i < l->process_count; i++)
            if (!l->processes[i]->pub.alive &&
                (oldest == UINT32_MAX ||
                 l->processes[i]->pub.exit_ns < l->processes[oldest]->pub.exit_ns))
                oldest = i;
        if (oldest == UINT32_MAX)
            return -ENOSPC;
        process_evict(l, oldest);
    }
    if (l->process_count == l->process_capacity) {
        uint32_t capacity = l->process_capacity ? l->process_capacity * 2 : 16;
        struct process **processes = realloc(l->processes, capacity * sizeof(*processes));
        if (!processes)
            return -ENOMEM;
        ledger_memory(l, (int64_t)((capacity - l->process_capacity) * sizeof(*processes)));
        l->processes = processes;
        l->process_capacity = capacity;
    }
    return 0;
}

static int process_add(struct ledger *l, uint32_t tgid, uint32_t start_ticks, struct process **ret)
{
    int r = process_room(l);
    if (r < 0)
        return r;
    struct process *p = calloc(1, sizeof(*p));
    uint32_t number = map_find(&l->by_tgid, tgid, 0);
    if (!p || (!number && map_add(&l->by_tgid, tgid, 0, &number) < 0)) {
        free(p);
        return -ENOMEM;
    }
    ledger_memory(l, sizeof(*p));
    process_facts_init(&p->pub.facts, tgid);
    p->pub.facts.start_ticks = start_ticks;
    p->pub.alive = true;
    p->comm_world = p->told.rank = p->told.world_size = -1;
    map_init(&p->entries, sizeof(struct entry), ENTRY_CHUNK_SHIFT, &l->stats.memory_bytes);
    map_init(&p->rows, sizeof(struct row), ROW_CHUNK_SHIFT, &l->stats.memory_bytes);
    ((struct tgid_slot *)map_at(&l->by_tgid, number))->process = p;
    l->processes[l->process_count++] = p;
    l->last = p;
    *ret = p;
    return 0;
}

/* Everything the process held is free; the totals stay as they were. */
static void process_end(struct ledger *l, struct process *p, uint64_t now_ns)
{
    for (uint32_t n = 0; (n = map_next(&p->entries, n));) {
        const struct entry *e = entry_at(p, n);
        if (e->row) {
            l->stats.live_entries--;
            l->total_bytes -= e->bytes;
        }
        l->record_count--;
    }
    map_clear(&p->entries);
    named_forget_scopes(p);
    p->pub.alive = false;
    p->pub.exit_ns = now_ns;
    ledger_notify(l, NOTICE_EXIT, p, NULL, now_ns);
}

static bool ticks_match(uint32_t one, uint32_t other)
{
    return !one || !other || one == other;
}

/* Start ticks count modulo 2^32; the later of two starts is the one ahead by less than half. */
static bool ticks_before(uint32_t one, uint32_t other)
{
    return one && other && (int32_t)(one - other) < 0;
}

/*
 * Finds the live process of (tgid, start_ticks) at a moment, or makes it. Returns 0; NOT_APPLIED
 * for a process that is gone or that does not fit (both counted).
 */
static int process_identify(struct ledger *l, uint32_t tgid, uint32_t start_ticks, uint64_t time_ns,
                            const struct nm_event *event, struct process **ret)
{
    struct process *p = process_find(l, tgid);
    if (p) {
        bool same = ticks_match(p->pub.facts.start_ticks, start_ticks);
        bool both = p->pub.facts.start_ticks && start_ticks;
        if (p->pub.alive && same) {
            if (!p->pub.facts.start_ticks)
                p->pub.facts.start_ticks = start_ticks;
            l->last = p;
            *ret = p;
            peak_settle(p);
            return 0;
        }
        if (ticks_before(start_ticks, p->pub.facts.start_ticks) ||
            (!p->pub.alive && same && (both || time_ns <= p->pub.exit_ns))) {
            l->stats.events_after_exit++;
            return NOT_APPLIED;
        }
        if (p->pub.alive)
            process_end(l, p, time_ns);
    }
    if (process_add(l, tgid, start_ticks, &p) < 0) {
        l->stats.dropped_processes++;
        return NOT_APPLIED;
    }
    ledger_notify(l, NOTICE_PROCESS, p, event, time_ns);
    *ret = p;
    return 0;
}

int process_for_event(struct ledger *l, const struct nm_event *event, struct process **ret)
{
    return process_identify(l, event->tgid, event->start_ticks, event->time_ns, event, ret);
}

int process_for_key(struct ledger *l, uint32_t tgid, uint32_t start_ticks, uint64_t now_ns,
                    struct process **ret)
{
    if (!tgid)
        return NOT_APPLIED;
    return process_identify(l, tgid, start_ticks, now_ns, NULL, ret);
}

void process_facts_init(struct process_facts *ret, uint32_t tgid)
{
    *ret = (struct process_facts){
        .tgid = tgid,
        .rank = -1,
        .world_size = -1,
        .replica = -1,
        .server_rank = -1,
        .server_size = -1,
        .local_rank = -1,
        .group = {-1, -1, -1, -1, -1, -1},
        .uid = UINT32_MAX,
    };
}

/*
 * Whose word about the rank counts. A communicator is the process's own act and wins over titles
 * and environment, unless it is smaller than the world that those know: then it numbers a group.
 */
static void rank_settle(struct process *p)
{
    struct process_facts *f = &p->pub.facts;
    bool comm = p->comm_world >= 0 &&
                (p->told.rank < 0 || p->told.world_size <= p->comm_world || p->comm_world == 0);
    f->rank = comm ? p->comm_rank : p->told.rank;
    f->world_size = p->told.world_size;
    if (comm && p->comm_world > 0)
        f->world_size = p->comm_world;
    f->rank_inferred = !comm && p->told.inferred;
    f->rank_conflict = comm && p->told.rank >= 0 && p->told.rank != p->comm_rank;
    snprintf(f->rank_source, sizeof(f->rank_source), "%s", comm ? p->comm_source : p->told.source);
}

void process_comm_rank(struct process *p, int32_t rank, int32_t world, const char *source)
{
    /* Sub-communicators number their own ranks: the largest world seen is the process's. */
    if (world <= p->comm_world)
        return;
    p->comm_world = world;
    p->comm_rank = rank;
    p->comm_source = source;
    rank_settle(p);
}

static void facts_copy(struct process *p, const struct process_facts *facts)
{
    struct process_facts *now = &p->pub.facts;
    uint32_t start_ticks = now->start_ticks;
    *now = *facts;
    if (!now->start_ticks)
        now->start_ticks = start_ticks;
    now->comm[sizeof(now->comm) - 1] = '\0';
    now->title[sizeof(now->title) - 1] = '\0';
    now->container[sizeof(now->container) - 1] = '\0';
    now->rank_source[sizeof(now->rank_source) - 1] = '\0';
    now->user[sizeof(now->user) - 1] = '\0';
    now->runtime[sizeof(now->runtime) - 1] = '\0';
    now->pod_uid[sizeof(now->pod_uid) - 1] = '\0';
    if (now->visible_count > sizeof(now->visible_devices) / sizeof(now->visible_devices[0]))
        now->visible_count = sizeof(now->visible_devices) / sizeof(now->visible_devices[0]);
    p->told.rank = now->rank;
    p->told.world_size = now->world_size;
    p->told.inferred = now->rank_inferred;
    memcpy(p->told.source, now->rank_source, sizeof(p->told.source));
    rank_settle(p);
}

int ledger_process_update(struct ledger *l, const struct process_facts *facts, uint64_t now_ns)
{
    struct process *p = process_find(l, facts->tgid);
    bool is_new = true;
    if (p && ticks_match(p->pub.facts.start_ticks, facts->start_ticks)) {
        bool both = p->pub.facts.start_ticks && facts->start_ticks;
        if (p->pub.alive || both)
            is_new = false; /* facts of a process that just exited are welcome, too */
    } else if (p && ticks_before(facts->start_ticks, p->pub.facts.start_ticks)) {
        return 0; /* an older process of that number */
    } else if (p && p->pub.alive) {
        process_end(l, p, now_ns);
    }
    if (is_new) {
        int r = process_add(l, facts->tgid, facts->start_ticks, &p);
        if (r < 0) {
            l->stats.dropped_processes++;
            return r;
        }
    }
    facts_copy(p, facts);
    if (!p->device_count)
        p->current_device = process_logical_device(p, 0);
    if (p->current_device == DEVICE_NONE)
        p->current_device = 0;
    if (is_new)
        ledger_notify(l, NOTICE_PROCESS, p, NULL, now_ns);
    return 0;
}

int ledger_process_exit(struct ledger *l, uint32_t tgid, uint32_t start_ticks, uint64_t now_ns)
{
    struct process *p = process_find(l, tgid);
    if (p && p->pub.alive && ticks_match(p->pub.facts.start_ticks, start_ticks))
        process_end(l, p, now_ns);
    return 0;
}

int ledger_process_exec(struct ledger *l, uint32_t tgid, uint64_t now_ns)
{
    struct process *p = process_find(l, tgid);
    if (!p || !p->pub.alive)
        return 0;
    struct process_facts facts = p->pub.facts;
    struct told_rank told = p->told;
    process_end(l, p, now_ns);
    int r = process_add(l, tgid, facts.start_ticks, &p);
    if (r < 0) {
        l->stats.dropped_processes++;
        return r;
    }
    p->pub.facts = facts;
    p->told = told;
    rank_settle(p); /* no communicator yet: a rank that one had named is what was told again */
    p->current_device = process_logical_device(p, 0);
    if (p->current_device == DEVICE_NONE)
        p->current_device = 0;
    ledger_notify(l, NOTICE_PROCESS, p, NULL, now_ns);
    return 0;
}

uint16_t process_logical_device(const struct process *p, uint64_t user_device)
{
    if (!p->pub.facts.visible_count)
        return user_device < DEVICE_LIMIT ? (uint16_t)user_device : DEVICE_NONE;
    return user_device < p->pub.facts.visible_count ? p->pub.facts.visible_devices[user_device]
                                                    : DEVICE_NONE;
}

uint16_t process_user_device(const struct process *p, uint16_t logical)
{
    if (!p->pub.facts.visible_count)
        return logical;
    for (uint16_t i = 0; i < p->pub.facts.visible_count; i++)
        if (p->pub.facts.visible_devices[i] == logical)
            return i;
    return DEVICE_NONE;
}
