/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_scope.c - devices, contexts, streams, pools and communicators of a process.
 *
 * Must not: hold an object per context or stream; they are counted.
 * The newest aclrtSetDevice of any thread names the device of calls that the HAL did not describe.
 */
#include "ledger_internal.h"

#include <errno.h>
#include <string.h>

/* A communicator beyond this many ranks is a misread argument. */
#define WORLD_LIMIT (1u << 20)

int scope_device_set(struct ledger *l, struct process *p, const struct nm_event *event)
{
    uint16_t device = process_logical_device(p, event->call.flags & UINT32_MAX);
    if (device >= DEVICE_LIMIT)
        return -EBADMSG;
    if (!device_get(l, p, device)) {
        l->stats.dropped_entries++;
        return NOT_APPLIED;
    }
    p->current_device = device;
    return 0;
}

static bool entry_on_device(const struct process *p, const struct entry *e, uint16_t logical,
                            uint16_t user)
{
    if (!e->row)
        return false;
    switch (entry_level(p, e)) {
    case LEVEL_PHYSICAL:
    case LEVEL_POOL_SUB:
        return SPACE_OF(e->key_b) == SPACE_MEMORY && entry_device(p, e) == logical;
    case LEVEL_BLOCK:
    case LEVEL_PENDING:
        return entry_device(p, e) == user;
    default:
        return false;
    }
}

/* Cost: linear in the entries of the process, for a call that itself takes milliseconds. */
int scope_device_reset(struct ledger *l, struct process *p, const struct nm_event *event)
{
    uint16_t device = process_logical_device(p, event->call.flags & UINT32_MAX);
    uint16_t user = (uint16_t)event->call.flags;
    if (device >= DEVICE_LIMIT)
        return -EBADMSG;
    struct device_use *d = device_find(p, device);
    if (!d)
        return 0;
    vmm_reset_device(l, p, device, event->time_ns);
    for (uint32_t n = 0; (n = map_next(&p->entries, n));) {
        const struct entry *e = entry_at(p, n);
        if (!entry_on_device(p, e, device, user))
            continue;
        if (entry_level(p, e) == LEVEL_BLOCK) {
            struct pool *pool = pool_find(p, user,
                                          SPACE_OF(e->key_b) == SPACE_WORKSPACE ? NM_BLOCK_WORKSPACE
                                                                                : NM_BLOCK_CACHING);
            if (pool)
                pool->pub.known_block_bytes -= (int64_t)e->bytes;
        }
        entry_drop(l, p, n, event->time_ns);
    }
    for (uint32_t i = 0; i < d->module_count; i++)
        d->modules[i].before_bytes = 0;
    d->use.before_attach_bytes = 0;
    device_refresh(p, d, event->time_ns);
    for (unsigned component = 0; component < POOL_COMPONENTS; component++) {
        struct pool *pool = pool_find(p, user, (uint8_t)component);
        if (!pool)
            continue;
        /* What torch still believes to hold is gone; its next event says how it sees that. */
        pool->pub.allocated_bytes = pool->pub.active_bytes = pool->total_reserved_bytes = 0;
        pool->change_count = 0;
        pool->base_bytes = pool->unknown_freed_bytes = 0;
        map_clear(&pool->small);
        pool->pub.small_bytes = 0;
        pool->phase_bytes = 0;
    }
    return 0;
}

int scope_create(struct ledger *l, struct process *p, const struct nm_event *event)
{
    p->object_count[event->kind]++;
    return 0;
}

int scope_process_group(struct ledger *l, struct process *p, const struct nm_event *event)
{
    uint32_t rank = (uint32_t)event->call.flags, world = (uint32_t)(event->call.flags >> 32);
    if (rank >= WORLD_LIMIT || world > WORLD_LIMIT || rank >= world)
        return -EBADMSG;
    process_comm_rank(p, (int32_t)rank, (int32_t)world, "process_group");
    return 0;
}

int scope_destroy(struct ledger *l, struct process *p, const struct nm_event *event)
{
    if (event->kind == NM_EVENT_COMM_DESTROY)
        named_comm_gone(p, event->call.handle);
    /* Every destroying kind follows its creating kind in enum nm_event_kind. */
    uint64_t *count = &p->object_count[event->kind - 1];
    if (*count)
        --*count; /* else it is from before attach */
    return 0;
}

int scope_comm_init(struct ledger *l, struct process *p, const struct nm_event *event)
{
    uint32_t rank = (uint32_t)event->call.flags, world = (uint32_t)(event->call.flags >> 32);
    if (rank >= WORLD_LIMIT || world > WORLD_LIMIT || (world && rank >= world))
        return -EBADMSG;
    p->object_count[event->kind]++;
    process_comm_rank(p, (int32_t)rank, (int32_t)world, "hccl");
    ledger_notify(l, NOTICE_COMM, p, event, event->time_ns);
    return 0;
}
