/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_replay.c - see ledger_replay.h.
 *
 * Must not: trust a record more than an event. Invariants: a pool's allocated and active bytes are
 * the sums of its blocks, its reserved bytes those of the device's segments.
 */
#include "ledger_replay.h"

#include <errno.h>
#include <string.h>

#include "ledger_internal.h"

/* The devices as the process counts them: what is known is one of them; the others stay where they
 * are, but for the one whose number that is. */
static void devices_fill(struct process_facts *facts, const struct nm_trace_header *h)
{
    uint32_t torch = h->torch_device - 1;

    if (!h->torch_device || torch >= POOL_DEVICE_LIMIT || torch == h->device)
        return;
    facts->visible_count = POOL_DEVICE_LIMIT;
    for (uint16_t i = 0; i < POOL_DEVICE_LIMIT; i++)
        facts->visible_devices[i] = i == h->device ? (uint16_t)torch : i;
    facts->visible_devices[torch] = (uint16_t)h->device;
}

int ledger_replay_begin(struct ledger_replay *r, struct ledger *l, const struct nm_trace_header *h)
{
    struct process_facts facts;

    *r = (struct ledger_replay){.ledger = l, .tgid = h->tgid};
    process_facts_init(&facts, h->tgid);
    facts.rank = h->rank;
    snprintf(facts.comm, sizeof(facts.comm), "%s", h->comm);
    devices_fill(&facts, h);
    int k = ledger_process_update(l, &facts, h->begin_boot_ns);
    r->process = process_find(l, h->tgid);
    return k < 0 || r->process ? k : -ENOMEM;
}

uint32_t ledger_replay_owner(struct ledger_replay *r, const char *name)
{
    return name && name[0] ? owner_find(r->ledger, name) : (uint32_t)OWNER_ID_PTA_BLOCK;
}

/* --- sums --- */

static void change_note(struct ledger_replay *r, uint32_t owner, uint16_t device,
                        enum ledger_level level)
{
    uint32_t i = 0, row;

    while (i < r->change_count && (r->changes[i].owner != owner || r->changes[i].device != device ||
                                   r->changes[i].level != level))
        i++;
    if (i == LEDGER_REPLAY_CHANGES || row_get(r->process, owner, device, level, &row) < 0)
        return;
    const struct row *sum = map_at(&r->process->rows, row);
    r->changes[i] = (struct ledger_replay_change){level, device, owner, sum->bytes, sum->count};
    r->change_count += i == r->change_count;
}

static void pool_refresh(struct ledger_replay *r, struct pool *pool, uint64_t time_ns)
{
    uint16_t device = process_logical_device(r->process, pool->pub.device);
    const struct device_use *d = device_find(r->process, device);

    pool->total_reserved_bytes =
        d && pool->pub.component == NM_BLOCK_CACHING ? (int64_t)d->use.known_bytes : 0;
    pool->pub.time_ns = time_ns;
    pool->has_totals = true;
    pool_figures(pool, &r->pool);
    r->has_pool = true;
}

static void drop(struct ledger_replay *r, struct pool *pool, uint32_t number, uint64_t time_ns)
{
    const struct entry *e = entry_at(r->process, number);
    enum ledger_level level = entry_level(r->process, e);
    uint32_t owner = entry_owner(r->process, e);
    uint16_t device = entry_device(r->process, e);

    if (level == LEVEL_BLOCK) {
        pool->pub.allocated_bytes -= (int64_t)e->bytes;
        pool->pub.known_block_bytes -= (int64_t)e->bytes;
    }
    if (pool)
        pool->pub.active_bytes -= (int64_t)e->bytes;
    entry_drop(r->ledger, r->process, number, time_ns);
    change_note(r, owner, device, level);
}

static int add(struct ledger_replay *r, const struct entry_spec *spec, bool was_there,
               uint32_t *ret_number)
{
    uint32_t number;
    int k = entry_add(r->ledger, r->process, spec, &number);

    if (k)
        return NOT_APPLIED;
    if (was_there)
        entry_at(r->process, number)->time_ns = 0;
    if (ret_number)
        *ret_number = number;
    change_note(r, spec->owner, spec->device, spec->level);
    return 0;
}

/* --- blocks --- */

static int block_malloc(struct ledger_replay *r, struct pool *pool, uint32_t old,
                        const struct entry_spec *spec, bool was_there)
{
    if (old) {
        r->reused_addresses += spec->space == SPACE_BLOCK; /* a workspace tells each growth twice */
        drop(r, pool, old, spec->time_ns);
    }
    int k = add(r, spec, was_there, NULL);
    if (k == 0) {
        pool->pub.allocated_bytes += (int64_t)spec->bytes;
        pool->pub.known_block_bytes += (int64_t)spec->bytes;
        pool->pub.active_bytes += (int64_t)spec->bytes;
    }
    return k;
}

static int block_free(struct ledger_replay *r, struct pool *pool, uint32_t number, uint64_t time_ns)
{
    const struct entry *e = entry_at(r->process, number);
    uint32_t owner = entry_owner(r->process, e);
    uint16_t device = entry_device(r->process, e);
    int64_t bytes = (int64_t)e->bytes;

    if (entry_level(r->process, e) != LEVEL_BLOCK)
        return 0;
    pool->pub.allocated_bytes -= bytes;
    pool->pub.known_block_bytes -= bytes;
    int k = entry_move(r->ledger, r->process, number, LEVEL_PENDING, time_ns);
    if (k) /* there was no room for its new sum: it is gone */
        pool->pub.active_bytes -= bytes;
    change_note(r, owner, device, LEVEL_BLOCK);
    change_note(r, owner, device, LEVEL_PENDING);
    return k;
}

static int block_apply_record(struct ledger_replay *r, const struct nm_trace_record *e,
                              uint64_t time_ns, uint32_t owner, bool was_there)
{
    bool is_workspace = e->component == NM_BLOCK_WORKSPACE;
    uint64_t key = is_workspace ? e->stream : e->address, done_address = r->done_address;
    struct entry_spec spec = {
        .space = is_workspace ? SPACE_WORKSPACE : SPACE_BLOCK,
        .key = key,
        .space_device = e->device,
        .level = LEVEL_BLOCK,
        .device = e->device,
        .owner = is_workspace ? (uint32_t)OWNER_ID_PTA_WORKSPACE : owner,
        .is_counted = true,
        .bytes = e->size_bytes,
        .aux = is_workspace ? e->address : 0,
        .time_ns = time_ns,
        .caller = e->stream,
        .stack = e->stack,
    };
    struct pool *pool = e->device < POOL_DEVICE_LIMIT
                            ? pool_get(r->ledger, r->process, (uint8_t)e->device, e->component)
                            : NULL;
    uint32_t number;
    int k = 0;

    r->done_address = 0;
    if (!pool)
        return e->device < POOL_DEVICE_LIMIT && e->component < POOL_COMPONENTS ? -ENOMEM
                                                                               : NOT_APPLIED;
    number = map_find(&r->process->entries, key, SPACE_KEY(spec.space, e->device));
    if (e->kind == NM_TRACE_BLOCK_MALLOC) {
        k = block_malloc(r, pool, number, &spec, was_there);
    } else if (!number) { /* an ordinary free is told as DONE and then FREE */
        r->unknown_frees += e->kind == NM_TRACE_BLOCK_FREE && done_address != e->address;
        return NOT_APPLIED;
    } else if (e->kind == NM_TRACE_BLOCK_DONE || is_workspace) {
        drop(r, pool, number, time_ns);
        r->done_address = e->address;
    } else {
        k = block_free(r, pool, number, time_ns);
    }
    pool_refresh(r, pool, time_ns);
    return k;
}

/* --- segments --- */

static int segment_alloc(struct ledger_replay *r, const struct nm_trace_record *e, uint64_t time_ns,
                         bool was_there)
{
    bool is_handle = e->component == NM_TRACE_SEGMENT_HANDLE;
    struct entry_spec spec = {
        .space = is_handle ? SPACE_HANDLE : SPACE_MEMORY,
        .key = e->address,
        .level = LEVEL_PHYSICAL,
        .device = e->device,
        .owner = OWNER_ID_PTA_POOL,
        .is_counted = true,
        .bytes = e->size_bytes,
        .aux = is_handle ? 0 : e->size_bytes,
        .time_ns = time_ns,
        .stack = e->stack,
        .module = OWNER_MODULE_APP,
        .flags = ENTRY_SEGMENT_CACHING,
    };
    return e->device < DEVICE_LIMIT ? add(r, &spec, was_there, NULL) : NOT_APPLIED;
}

static int segment_apply(struct ledger_replay *r, const struct nm_trace_record *e, uint64_t time_ns,
                         bool was_there)
{
    bool is_handle = e->component == NM_TRACE_SEGMENT_HANDLE || e->kind == NM_TRACE_SEGMENT_MAP;
    uint32_t number =
        map_find(&r->process->entries, e->address, is_handle ? SPACE_HANDLE : SPACE_MEMORY);
    uint16_t device = number ? entry_device(r->process, entry_at(r->process, number)) : e->device;
    int k = 0;

    if (e->kind == NM_TRACE_SEGMENT_MAP) {
        if (!number)
            return NOT_APPLIED;
        struct entry *handle = entry_at(r->process, number);
        handle->link = e->stream != 0;
        handle->aux = e->stream;
        return 0;
    }
    if (number) {
        r->reused_addresses += e->kind == NM_TRACE_SEGMENT_ALLOC;
        drop(r, NULL, number, time_ns);
    }
    if (e->kind == NM_TRACE_SEGMENT_ALLOC) {
        k = segment_alloc(r, e, time_ns, was_there);
        device = e->device;
    } else if (!number) {
        r->unknown_frees++;
        return NOT_APPLIED;
    }
    uint16_t torch = process_user_device(r->process, device);
    struct pool *pool = torch < POOL_DEVICE_LIMIT
                            ? pool_get(r->ledger, r->process, (uint8_t)torch, NM_BLOCK_CACHING)
                            : NULL;
    if (pool)
        pool_refresh(r, pool, time_ns);
    r->is_segment = true;
    return k;
}

int ledger_replay_apply(struct ledger_replay *r, const struct nm_trace_record *e, uint64_t time_ns,
                        uint32_t owner, bool was_there)
{
    r->change_count = 0;
    r->has_pool = r->is_segment = false;
    peak_settle(r->process);
    switch (e->kind) {
    case NM_TRACE_BLOCK_MALLOC:
    case NM_TRACE_BLOCK_FREE:
    case NM_TRACE_BLOCK_DONE:
        return block_apply_record(r, e, time_ns, owner, was_there);
    case NM_TRACE_SEGMENT_ALLOC:
    case NM_TRACE_SEGMENT_FREE:
    case NM_TRACE_SEGMENT_MAP:
        return segment_apply(r, e, time_ns, was_there);
    default:
        return 0;
    }
}
