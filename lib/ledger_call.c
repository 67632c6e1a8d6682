/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_call.c - memory calls by address: allocate, free, reserve, register.
 *
 * Must not: apply a call that failed, or a free to memory that was allocated after the free began.
 *
 * The race of free(A) with alloc(B) at the same address: the driver frees A, gives the address to B
 * on another thread, and B's event may arrive first. B then replaces A (duplicate_allocs), and A's
 * free, which began before B was allocated, is recognised and not applied (late_frees). Sums are
 * exact.
 */
#include "ledger_internal.h"

#include <errno.h>
#include <string.h>

/* halMemAlloc virt types (NM_HAL_VIRT). */
#define VIRT_HOST 2
#define VIRT_HOST_AGENT 4
#define VIRT_RESERVE 5
#define VIRT_HOST_UVA 6

static uint64_t call_bytes(const struct nm_call *c)
{
    if ((c->call_flags & NM_CALL_HAL_SEEN) && c->physical_bytes)
        return c->physical_bytes;
    return c->requested ? c->requested : c->physical_bytes;
}

static enum ledger_level alloc_level(const struct nm_call *c)
{
    if (c->call_flags & NM_CALL_POOL)
        return LEVEL_POOL_SUB;
    if (c->call_flags & (NM_CALL_HOST | NM_CALL_MBUF))
        return LEVEL_HOST;
    if (!(c->call_flags & NM_CALL_HAL_SEEN))
        return LEVEL_PHYSICAL;
    switch (NM_HAL_VIRT(c->flags)) {
    case VIRT_HOST:
    case VIRT_HOST_AGENT:
    case VIRT_HOST_UVA:
        return LEVEL_HOST;
    case VIRT_RESERVE:
        return LEVEL_RESERVED_VA;
    default:
        return LEVEL_PHYSICAL;
    }
}

static uint8_t segment_flags(enum owner_segment segment)
{
    if (segment == OWNER_SEGMENT_CACHING)
        return ENTRY_SEGMENT_CACHING;
    return segment == OWNER_SEGMENT_WORKSPACE ? ENTRY_SEGMENT_WORKSPACE : 0;
}

/* torch's own figure of a segment is what it asked for, not what the driver was asked. */
static int64_t segment_bytes(const struct entry *e)
{
    return (int64_t)(e->aux ? e->aux : e->bytes);
}

int call_alloc(struct ledger *l, struct process *p, const struct nm_event *event)
{
    const struct nm_call *c = &event->call;
    if (!c->address)
        return -EBADMSG;
    enum ledger_level level = alloc_level(c);
    bool hal = c->call_flags & NM_CALL_HAL_SEEN;
    struct owner_verdict v = owner_resolve(l, p, event, level == LEVEL_HOST, NULL);
    struct entry_spec spec = {
        .space = SPACE_MEMORY,
        .key = c->address,
        .level = level,
        .device = hal ? (uint16_t)NM_HAL_DEVICE(c->flags) : (uint16_t)p->current_device,
        .owner = v.id,
        .inferred = v.inferred,
        .is_counted = true,
        .bytes = call_bytes(c),
        .aux = level == LEVEL_POOL_SUB ? c->handle : c->requested,
        .time_ns = event->time_ns,
        .caller = c->caller,
        .api = c->api ? c->api : c->hal,
        .stack = c->stack,
        .module = owner_module(c),
        .flags = level == LEVEL_PHYSICAL ? segment_flags(v.segment) : 0,
    };
    if (spec.bytes >= SIZE_LIMIT || spec.aux >= SIZE_LIMIT) {
        if (level != LEVEL_POOL_SUB || spec.bytes >= SIZE_LIMIT)
            return -EBADMSG;
    }
    if (!hal && level == LEVEL_PHYSICAL)
        spec.module = v.id == OWNER_ID_HCCL ? OWNER_MODULE_HCCL : OWNER_MODULE_APP;
    uint32_t old = map_find(&p->entries, c->address, SPACE_MEMORY), number;
    if (old) {
        struct entry *e = entry_at(p, old);
        if (e->flags & (ENTRY_SEGMENT_CACHING | ENTRY_SEGMENT_WORKSPACE))
            pool_segment_change(p, e->flags, entry_device(p, e), event->time_ns, -segment_bytes(e));
        entry_drop(l, p, old, event->time_ns);
        l->stats.duplicate_allocs++;
    }
    int r = entry_add(l, p, &spec, &number);
    if (r == 0 && spec.flags)
        pool_segment_change(p, spec.flags, spec.device, event->time_ns,
                            segment_bytes(entry_at(p, number)));
    return r;
}

int free_unmatched(struct ledger *l, struct process *p, const struct nm_event *event)
{
    l->stats.unmatched_frees++;
    if (event->kind == NM_EVENT_BLOCK || (event->call.call_flags & (NM_CALL_HOST | NM_CALL_POOL)))
        return NOT_APPLIED;
    p->unmatched_count++;
    const char *library = caller_library(l, event);
    if ((!*library || strcmp(library, "torch_npu") == 0) && event->time_ns > p->unmatched_torch_ns)
        p->unmatched_torch_ns = event->time_ns;
    return NOT_APPLIED;
}

/* Takes away the entry that a free by address names, if it is older than the free. */
static int free_by_address(struct ledger *l, struct process *p, const struct nm_event *event,
                           enum space space)
{
    uint32_t number = map_find(&p->entries, event->call.address, space);
    if (!number)
        return free_unmatched(l, p, event);
    const struct entry *e = entry_at(p, number);
    if (e->time_ns > free_begin_ns(event)) {
        l->stats.late_frees++;
        return NOT_APPLIED;
    }
    if (e->flags & (ENTRY_SEGMENT_CACHING | ENTRY_SEGMENT_WORKSPACE))
        pool_segment_change(p, e->flags, entry_device(p, e), event->time_ns, -segment_bytes(e));
    entry_drop(l, p, number, event->time_ns);
    return 0;
}

int call_free(struct ledger *l, struct process *p, const struct nm_event *event)
{
    return free_by_address(l, p, event, SPACE_MEMORY);
}

int call_reserve(struct ledger *l, struct process *p, const struct nm_event *event)
{
    const struct nm_call *c = &event->call;
    if (!c->address || c->requested >= SIZE_LIMIT)
        return -EBADMSG;
    struct owner_verdict v = owner_resolve(l, p, event, false, NULL);
    uint32_t old = map_find(&p->entries, c->address, SPACE_RESERVED);
    if (old) {
        entry_drop(l, p, old, event->time_ns);
        l->stats.duplicate_allocs++;
    }
    struct entry_spec spec = {
        .space = SPACE_RESERVED,
        .key = c->address,
        .level = LEVEL_RESERVED_VA,
        .device = (uint16_t)p->current_device,
        .owner = v.id,
        .inferred = v.inferred,
        .is_counted = true,
        .bytes = call_bytes(c),
        .aux = c->requested,
        .time_ns = event->time_ns,
        .caller = c->caller,
        .stack = c->stack,
        .api = c->api ? c->api : c->hal,
    };
    return entry_add(l, p, &spec, NULL);
}

int call_release(struct ledger *l, struct process *p, const struct nm_event *event)
{
    uint32_t number = map_find(&p->entries, event->call.address, SPACE_RESERVED);
    if (number)
        return free_by_address(l, p, event, SPACE_RESERVED);
    l->stats.unmatched_frees++; /* no memory: nothing to remember for the driver's figure */
    return NOT_APPLIED;
}

int call_host_register(struct ledger *l, struct process *p, const struct nm_event *event)
{
    const struct nm_call *c = &event->call;
    if (!c->address || c->requested >= SIZE_LIMIT)
        return -EBADMSG;
    struct owner_verdict v = owner_resolve(l, p, event, true, NULL);
    struct entry_spec spec = {
        .space = SPACE_REGISTERED,
        .key = c->address,
        .level = LEVEL_HOST,
        .device = (uint16_t)p->current_device,
        .owner = v.id,
        .inferred = v.inferred,
        .is_counted = true,
        .bytes = c->requested,
        .aux = c->requested,
        .time_ns = event->time_ns,
        .caller = c->caller,
        .api = c->api ? c->api : c->hal,
        .flags = ENTRY_HOST,
    };
    /* Memory that aclrtMallocHost pinned costs nothing more when it is registered too. */
    uint32_t pinned = map_find(&p->entries, c->address, SPACE_MEMORY);
    if (pinned) {
        const struct entry *e = entry_at(p, pinned);
        if (entry_level(p, e) == LEVEL_HOST && e->bytes >= spec.bytes)
            spec.bytes = 0;
    }
    uint32_t old = map_find(&p->entries, c->address, SPACE_REGISTERED);
    if (old) {
        entry_drop(l, p, old, event->time_ns);
        l->stats.duplicate_allocs++;
    }
    return entry_add(l, p, &spec, NULL);
}

int call_host_unregister(struct ledger *l, struct process *p, const struct nm_event *event)
{
    return free_by_address(l, p, event, SPACE_REGISTERED);
}
