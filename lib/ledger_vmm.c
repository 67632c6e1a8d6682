/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_vmm.c - VMM: physical memory by handle, joined to addresses by mappings.
 *
 * The driver's rule: memory lives while the handle has a reference (create and retain add one,
 * release takes one) or a mapping. An unmap alone is not a free: a caching allocator may keep the
 * handle and map it elsewhere. Imported memory is another process's: its handle and mappings are
 * tracked so that their ends match, and are in no sum.
 *
 * torch's reserved bytes follow mappings, not handles, and so does the correction of its pool.
 */
#include "ledger_internal.h"

#include <errno.h>
#include <string.h>

/* Drops a handle that nothing holds any more. */
static void handle_settle(struct ledger *l, struct process *p, uint32_t number, uint64_t time_ns)
{
    const struct entry *e = entry_at(p, number);
    if (e->references == 0 && e->link == 0)
        entry_drop(l, p, number, time_ns);
}

/* The handle value was given anew. What mappings still hold lives on without a handle. */
static void handle_supersede(struct ledger *l, struct process *p, uint32_t number, uint64_t time_ns)
{
    struct entry *e = entry_at(p, number);
    if (e->references)
        l->stats.duplicate_allocs++;
    e->references = 0;
    if (e->link)
        map_rekey(&p->entries, number, ++p->orphan_serial, SPACE_ORPHAN);
    else
        entry_drop(l, p, number, time_ns);
}

static int handle_add(struct ledger *l, struct process *p, const struct entry_spec *spec)
{
    uint32_t number, old = map_find(&p->entries, spec->key, SPACE_HANDLE);
    if (old)
        handle_supersede(l, p, old, spec->time_ns);
    int r = entry_add(l, p, spec, &number);
    if (r == 0)
        entry_at(p, number)->references = 1;
    return r;
}

int vmm_create(struct ledger *l, struct process *p, const struct nm_event *event)
{
    const struct nm_call *c = &event->call;
    bool prop = c->call_flags & NM_CALL_PHYS_PROP;
    bool is_host = (c->call_flags & NM_CALL_HOST) || (prop && NM_PROP_HOST(c->flags));
    if (!c->handle)
        return -EBADMSG;
    struct owner_verdict v = owner_resolve(l, p, event, is_host, NULL);
    struct entry_spec spec = {
        .space = SPACE_HANDLE,
        .key = c->handle,
        .level = is_host ? LEVEL_HOST : LEVEL_PHYSICAL,
        .device =
            prop && !is_host ? (uint16_t)NM_PROP_DEVICE(c->flags) : (uint16_t)p->current_device,
        .owner = v.id,
        .inferred = v.inferred,
        .is_counted = true,
        .bytes = c->physical_bytes ? c->physical_bytes : c->requested,
        .time_ns = event->time_ns,
        .caller = c->caller,
        .stack = c->stack,
        .api = c->api ? c->api : c->hal,
        .module = owner_module(c) ? owner_module(c) : OWNER_MODULE_APP,
        .flags = is_host                              ? ENTRY_HOST
                 : v.segment == OWNER_SEGMENT_CACHING ? ENTRY_SEGMENT_CACHING
                                                      : 0,
    };
    return handle_add(l, p, &spec);
}

int vmm_import(struct ledger *l, struct process *p, const struct nm_event *event)
{
    const struct nm_call *c = &event->call;
    if (!c->handle)
        return -EBADMSG;
    struct entry_spec spec = {
        .space = SPACE_HANDLE,
        .key = c->handle,
        .time_ns = event->time_ns,
        .caller = c->caller,
        .api = c->api ? c->api : c->hal,
        .flags = ENTRY_IMPORTED,
    };
    return handle_add(l, p, &spec);
}

int vmm_retain(struct ledger *l, struct process *p, const struct nm_event *event)
{
    const struct nm_call *c = &event->call;
    uint32_t number = map_find(&p->entries, c->handle, SPACE_HANDLE);
    if (!number)
        return vmm_import(l, p, event); /* from before attach: only its release must match */
    struct entry *e = entry_at(p, number);
    if (e->references < UINT16_MAX)
        e->references++;
    return 0;
}

int vmm_handle_free(struct ledger *l, struct process *p, const struct nm_event *event)
{
    uint32_t number = map_find(&p->entries, event->call.handle, SPACE_HANDLE);
    if (!number)
        return free_unmatched(l, p, event);
    struct entry *e = entry_at(p, number);
    if (e->time_ns > free_begin_ns(event)) {
        l->stats.late_frees++;
        return NOT_APPLIED;
    }
    if (e->references == 0) /* its references are gone; only mappings hold it */
        return free_unmatched(l, p, event);
    e->references--;
    handle_settle(l, p, number, event->time_ns);
    return 0;
}

/* Takes a mapping away, and the memory behind it if nothing else holds it. */
static void mapping_drop(struct ledger *l, struct process *p, uint32_t number, uint64_t time_ns)
{
    const struct entry *e = entry_at(p, number);
    uint32_t handle = e->link;
    if (e->flags & ENTRY_SEGMENT_CACHING)
        pool_segment_change(p, e->flags, e->references /* device, see vmm_map() */, time_ns,
                            -(int64_t)e->bytes);
    entry_drop(l, p, number, time_ns);
    if (!handle)
        return;
    entry_at(p, handle)->link--;
    handle_settle(l, p, handle, time_ns);
}

/*
 * Sleep mode gives the memory of an address range back and takes new memory for it when it wakes
 * up: what is mapped there again is whose it was, which the range still says.
 */
static void handle_inherit(struct ledger *l, struct process *p, uint32_t handle, uint64_t address,
                           uint64_t time_ns)
{
    const struct entry *e = entry_at(p, handle);
    uint32_t range = map_find(&p->entries, address, SPACE_RESERVED), owner;
    if (!range || !e->row || !entry_at(p, range)->row ||
        !owner_is_phase(l, entry_owner(p, e), "wake_up"))
        return;
    owner = entry_owner(p, entry_at(p, range));
    if (owner_is_phase(l, owner, NULL))
        entry_reown(l, p, handle, owner, false, time_ns);
}

int vmm_map(struct ledger *l, struct process *p, const struct nm_event *event)
{
    const struct nm_call *c = &event->call;
    if (!c->address || c->requested >= SIZE_LIMIT)
        return -EBADMSG;
    uint32_t number, handle = map_find(&p->entries, c->handle, SPACE_HANDLE);
    struct entry_spec spec = {
        .space = SPACE_MAP,
        .key = c->address,
        .bytes = c->requested,
        .aux = c->handle,
        .time_ns = event->time_ns,
        .caller = c->caller,
        .api = c->api ? c->api : c->hal,
    };
    uint16_t device = (uint16_t)p->current_device;
    if (handle) {
        const struct entry *e = entry_at(p, handle);
        spec.flags = e->flags & (ENTRY_SEGMENT_CACHING | ENTRY_IMPORTED | ENTRY_HOST);
        if (e->row)
            device = entry_device(p, e);
    } else if (strcmp(caller_library(l, event), "torch_npu") == 0) {
        spec.flags = ENTRY_SEGMENT_CACHING; /* a handle from before attach that the pool kept */
    }
    uint32_t old = map_find(&p->entries, c->address, SPACE_MAP);
    if (old) {
        /* The unmap was lost. Hold the new handle meanwhile: it may be the same one. */
        if (handle)
            entry_at(p, handle)->link++;
        mapping_drop(l, p, old, event->time_ns);
        if (handle)
            entry_at(p, handle)->link--;
        l->stats.duplicate_allocs++;
    }
    int r = entry_add(l, p, &spec, &number);
    if (r) {
        if (handle)
            handle_settle(l, p, handle, event->time_ns);
        return r;
    }
    struct entry *map = entry_at(p, number);
    map->references = device; /* a mapping counts no references and has no row */
    if (handle) {
        struct entry *e = entry_at(p, handle);
        map->link = handle;
        if (e->link++ == 0)
            e->aux = c->address;
        handle_inherit(l, p, handle, c->address, event->time_ns);
    }
    if (map->flags & ENTRY_SEGMENT_CACHING)
        pool_segment_change(p, map->flags, device, event->time_ns, (int64_t)map->bytes);
    return 0;
}

int vmm_unmap(struct ledger *l, struct process *p, const struct nm_event *event)
{
    uint32_t number = map_find(&p->entries, event->call.address, SPACE_MAP);
    if (!number)
        return free_unmatched(l, p, event);
    if (entry_at(p, number)->time_ns > free_begin_ns(event)) {
        l->stats.late_frees++;
        return NOT_APPLIED;
    }
    mapping_drop(l, p, number, event->time_ns);
    return 0;
}

void vmm_reset_device(struct ledger *l, struct process *p, uint16_t device, uint64_t time_ns)
{
    for (uint32_t n = 0; (n = map_next(&p->entries, n));) {
        struct entry *e = entry_at(p, n);
        enum space space = SPACE_OF(e->key_b);
        if ((space == SPACE_HANDLE || space == SPACE_ORPHAN) && e->row &&
            entry_device(p, e) == device && !(e->flags & ENTRY_HOST)) {
            e->references = 0;
            handle_settle(l, p, n, time_ns);
        }
    }
    for (uint32_t n = 0; (n = map_next(&p->entries, n));) {
        const struct entry *e = entry_at(p, n);
        if (SPACE_OF(e->key_b) != SPACE_MAP || !e->link)
            continue;
        const struct entry *handle = entry_at(p, e->link);
        if (handle->references == 0 && handle->row && entry_device(p, handle) == device)
            mapping_drop(l, p, n, time_ns);
    }
}
