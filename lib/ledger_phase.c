/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_phase.c - phases of events to owner numbers, and what was highest in each phase.
 *
 * An owner is made when an event or a sum first has its phase; views only look it up.
 * Invariants: at most PHASE_CLASSES_MAX + 1 rows per device of a process; an event costs a
 * comparison unless it is of another phase than the one before it.
 */
#include "ledger_internal.h"

#include <errno.h>
#include <string.h>

#include "ledger_restore.h"

/* The kind of memory that torch_npu asks about. Source: CANN acl_rt.h, aclrtMemAttr. */
#define ACL_HBM_MEM 1

uint32_t owner_of_phase(struct ledger *l, uint32_t phase)
{
    uint32_t class_id = NM_PHASE_CLASS(phase), detail = NM_PHASE_DETAIL(phase);
    char name[PHASE_OWNER_MAX];
    if (!class_id || !l->config.phases || class_id > PHASE_CLASSES_MAX ||
        detail > PHASE_DETAILS_MAX)
        return OWNER_UNKNOWN;
    uint16_t *known = &l->phase_owners[class_id][detail];
    if (!*known) {
        phase_owner(l->config.phases, phase, name);
        if (name[0])
            *known = (uint16_t)owner_intern(l, name, OWNER_UNKNOWN);
    }
    return *known;
}

void ledger_phase_name(const struct ledger *l, uint32_t phase, char ret[PHASE_OWNER_MAX])
{
    ret[0] = '\0';
    if (l->config.phases)
        phase_owner(l->config.phases, phase, ret);
}

uint32_t owner_of_phase_known(const struct ledger *l, uint32_t phase)
{
    uint32_t class_id = NM_PHASE_CLASS(phase), detail = NM_PHASE_DETAIL(phase);
    if (class_id > PHASE_CLASSES_MAX || detail > PHASE_DETAILS_MAX)
        return OWNER_UNKNOWN;
    return class_id ? l->phase_owners[class_id][detail] : OWNER_UNKNOWN;
}

bool ledger_phase_is(const struct ledger *l, uint32_t class_id, const char *word)
{
    return class_id && l->config.phases && phase_class_is(l->config.phases, class_id, word);
}

bool owner_is_phase(const struct ledger *l, uint32_t owner, const char *word)
{
    if (owner < OWNER_ID_COUNT)
        return false;
    for (uint32_t class_id = 1; class_id <= PHASE_CLASSES_MAX; class_id++) {
        if (word && !phase_class_is(l->config.phases, class_id, word))
            continue;
        for (uint32_t detail = 0; detail <= PHASE_DETAILS_MAX; detail++)
            if (l->phase_owners[class_id][detail] == owner)
                return true;
    }
    return false;
}

/* The row of a (phase, device), made if missing; NULL out of memory. */
static struct ledger_phase_use *phase_use_get(struct ledger *l, struct process *p,
                                              uint32_t class_id, uint16_t device)
{
    struct ledger_phase_use *u = p->phases;
    if (p->phase_count && u[p->phase_last].class_id == class_id &&
        u[p->phase_last].device == device)
        return &u[p->phase_last];
    for (uint32_t i = 0; i < p->phase_count; i++)
        if (u[i].class_id == class_id && u[i].device == device) {
            p->phase_last = i;
            return &u[i];
        }
    u = realloc(u, (p->phase_count + 1) * sizeof(*u));
    if (!u)
        return NULL;
    ledger_memory(l, sizeof(*u));
    p->phases = u;
    p->phase_last = p->phase_count++;
    u[p->phase_last] = (struct ledger_phase_use){.class_id = class_id,
                                                 .device = device,
                                                 .held_bytes = LEDGER_HELD_UNKNOWN,
                                                 .held_physical_bytes = LEDGER_HELD_UNKNOWN};
    return &u[p->phase_last];
}

static void phase_seen(struct ledger_phase_use *u, uint64_t time_ns)
{
    if (!u->first_ns)
        u->first_ns = time_ns;
    if (time_ns > u->last_ns)
        u->last_ns = time_ns;
    u->is_continued |= u->is_kept;
}

void phase_block(struct ledger *l, struct process *p, const struct nm_event *event)
{
    const struct nm_block *b = &event->block;
    uint32_t class_id = NM_PHASE_CLASS(b->phase);
    uint16_t device = process_logical_device(p, b->device);
    if (!class_id || class_id > PHASE_CLASSES_MAX || device >= DEVICE_LIMIT)
        return;
    struct ledger_phase_use *u = phase_use_get(l, p, class_id, device);
    const struct device_use *d = device_find(p, device);
    if (!u)
        return;
    phase_seen(u, event->time_ns);
    if (u->block_count++ == 0)
        u->start_allocated_bytes = b->total_allocated_bytes - b->size_bytes;
    if (b->total_allocated_bytes > u->peak_allocated_bytes)
        u->peak_allocated_bytes = b->total_allocated_bytes;
    if (b->total_reserved_bytes > u->peak_reserved_bytes)
        u->peak_reserved_bytes = b->total_reserved_bytes;
    if (d && d->use.physical_bytes > u->peak_physical_bytes)
        u->peak_physical_bytes = d->use.physical_bytes;
}

void phase_call(struct ledger *l, struct process *p, const struct nm_event *event)
{
    uint32_t class_id = NM_PHASE_CLASS(event->call.phase);
    uint16_t device = (uint16_t)p->current_device;
    if (!class_id || class_id > PHASE_CLASSES_MAX || device >= DEVICE_LIMIT)
        return;
    struct ledger_phase_use *u = phase_use_get(l, p, class_id, device);
    if (u)
        phase_seen(u, event->time_ns);
}

int phase_mem_info(struct ledger *l, struct process *p, const struct nm_event *event)
{
    uint64_t free_bytes = event->call.address, total_bytes = event->call.handle;
    uint16_t device = (uint16_t)p->current_device;
    uint32_t class_id = NM_PHASE_CLASS(event->call.phase);
    if (event->call.flags != ACL_HBM_MEM)
        return 0;
    if (total_bytes >= SIZE_LIMIT || free_bytes > total_bytes || class_id > PHASE_CLASSES_MAX ||
        device >= DEVICE_LIMIT)
        return -EBADMSG;
    if (!total_bytes)
        return 0; /* a card without such memory */
    struct ledger_phase_use *u = phase_use_get(l, p, class_id, device);
    if (!u)
        return -ENOMEM;
    struct ledger_mem_info info = {
        .time_ns = event->time_ns, .free_bytes = free_bytes, .total_bytes = total_bytes};
    const struct device_use *d = device_find(p, device);
    const struct pool *pool = pool_find(p, process_user_device(p, device), NM_BLOCK_CACHING);
    if (d)
        info.physical_bytes = d->use.physical_bytes;
    if (pool && pool->has_totals) {
        struct ledger_pool figures;
        pool_figures(pool, &figures);
        info.reserved_bytes = figures.reserved_bytes;
        info.allocated_bytes = figures.allocated_bytes;
    }
    phase_seen(u, event->time_ns);
    if (!u->first.time_ns)
        u->first = info;
    u->last = info;
    return 0;
}

/* --- what an earlier daemon kept --- */

static bool mem_info_plausible(const struct ledger_mem_info *m)
{
    return m->total_bytes < SIZE_LIMIT && m->free_bytes <= m->total_bytes &&
           m->physical_bytes < SIZE_LIMIT && m->reserved_bytes >= 0 && m->allocated_bytes >= 0 &&
           m->reserved_bytes < TOTAL_LIMIT && m->allocated_bytes < TOTAL_LIMIT;
}

static bool held_plausible(uint64_t bytes)
{
    return bytes < (uint64_t)TOTAL_LIMIT || bytes == LEDGER_HELD_UNKNOWN;
}

static bool phase_use_plausible(const struct ledger_phase_use *u)
{
    return u->device < DEVICE_LIMIT && u->start_allocated_bytes > -TOTAL_LIMIT &&
           u->start_allocated_bytes < TOTAL_LIMIT && u->peak_allocated_bytes >= 0 &&
           u->peak_allocated_bytes < TOTAL_LIMIT && u->peak_reserved_bytes >= 0 &&
           u->peak_reserved_bytes < TOTAL_LIMIT && u->peak_physical_bytes < (uint64_t)TOTAL_LIMIT &&
           held_plausible(u->held_bytes) && held_plausible(u->held_physical_bytes) &&
           mem_info_plausible(&u->first) && mem_info_plausible(&u->last);
}

static uint32_t class_of(const struct ledger *l, const char *name)
{
    char owner[PHASE_OWNER_MAX];

    for (uint32_t class_id = 1; class_id <= PHASE_CLASSES_MAX; class_id++) {
        ledger_phase_name(l, class_id, owner);
        if (owner[0] && strcmp(owner, name) == 0)
            return class_id;
    }
    return 0;
}

/* What is newer is of events that came before it was known who the process is. */
static void phase_use_join(struct ledger_phase_use *into, const struct ledger_phase_use *newer)
{
    if (!into->block_count)
        into->start_allocated_bytes = newer->start_allocated_bytes;
    if (!into->first_ns)
        into->first_ns = newer->first_ns;
    if (newer->last_ns > into->last_ns)
        into->last_ns = newer->last_ns;
    into->block_count += newer->block_count;
    if (newer->peak_allocated_bytes > into->peak_allocated_bytes)
        into->peak_allocated_bytes = newer->peak_allocated_bytes;
    if (newer->peak_reserved_bytes > into->peak_reserved_bytes)
        into->peak_reserved_bytes = newer->peak_reserved_bytes;
    if (newer->peak_physical_bytes > into->peak_physical_bytes)
        into->peak_physical_bytes = newer->peak_physical_bytes;
    if (!into->first.time_ns)
        into->first = newer->first;
    if (newer->last.time_ns)
        into->last = newer->last;
}

int ledger_restore_phase(struct ledger *l, uint32_t tgid, const char *name,
                         const struct ledger_phase_use *kept)
{
    struct process *p = process_find(l, tgid);
    uint32_t class_id = name[0] ? class_of(l, name) : 0;
    struct ledger_phase_use *u, newer;

    if (!p || (name[0] && !class_id))
        return -ENOENT;
    if (!phase_use_plausible(kept))
        return -EBADMSG;
    u = phase_use_get(l, p, class_id, kept->device);
    if (!u)
        return -ENOMEM;
    newer = *u;
    *u = *kept;
    u->class_id = class_id;
    u->is_kept = true;
    u->is_continued = newer.first_ns != 0;
    phase_use_join(u, &newer);
    return 0;
}
