/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_restore.c - see ledger_restore.h.
 *
 * Must not: be used on a ledger that takes events. What comes in is a file's content: checked as
 * events are.
 */
#include "ledger_restore.h"

#include <errno.h>
#include <string.h>

#include "ledger_internal.h"

static bool plausible(uint64_t bytes)
{
    return bytes < (uint64_t)TOTAL_LIMIT;
}

int ledger_restore_owner(struct ledger *l, uint32_t tgid, const char *name,
                         const struct ledger_owner_total *t)
{
    struct process *p = process_find(l, tgid);
    uint32_t owner = owner_find(l, name);
    if (!p)
        return -ENOENT;
    if ((unsigned)t->level >= LEVEL_COUNT || t->device >= DEVICE_LIMIT || !plausible(t->bytes) ||
        !plausible(t->count) || !plausible(t->peak_bytes) ||
        (t->read_bytes > t->bytes && t->read_bytes != LEDGER_READ_UNKNOWN))
        return -EBADMSG;
    if (owner == OWNER_ID_BEFORE_ATTACH) /* the device's and the pool's own figures say it */
        return 0;
    if (owner == OWNER_ID_PTA_SMALL && t->level == LEVEL_BLOCK) {
        struct pool *pool = pool_get(l, p, (uint8_t)t->device, NM_BLOCK_CACHING);
        if (!pool)
            return t->device < POOL_DEVICE_LIMIT ? -ENOMEM : -EBADMSG;
        pool->is_restored = true;
        pool->small_read_bytes = t->read_bytes;
        pool->pub.small_bytes = (int64_t)t->bytes;
        return 0;
    }
    uint32_t number;
    int r = row_get(p, owner, t->device, t->level, &number);
    if (r < 0)
        return r;
    struct row *row = map_at(&p->rows, number);
    row->bytes = t->bytes;
    row->count = t->count;
    row->peak_bytes = t->peak_bytes;
    row->read_bytes = t->read_bytes;
    row->inferred = t->inferred;
    if (t->level == LEVEL_HOST)
        p->pub.host_bytes += t->bytes;
    return 0;
}

int ledger_restore_device(struct ledger *l, uint32_t tgid, const struct ledger_device_use *use)
{
    struct process *p = process_find(l, tgid);
    if (!p)
        return -ENOENT;
    if (use->device >= DEVICE_LIMIT || !plausible(use->physical_bytes) ||
        use->before_attach_bytes > use->physical_bytes || !plausible(use->peak_bytes))
        return -EBADMSG;
    struct device_use *d = device_get(l, p, use->device);
    if (!d)
        return -ENOMEM;
    d->use = *use;
    d->use.known_bytes = use->physical_bytes - use->before_attach_bytes;
    return 0;
}

int ledger_restore_pool(struct ledger *l, uint32_t tgid, const struct ledger_pool *from)
{
    struct process *p = process_find(l, tgid);
    if (!p)
        return -ENOENT;
    if (from->device >= POOL_DEVICE_LIMIT || from->component >= POOL_COMPONENTS ||
        from->allocated_bytes < 0 || from->reserved_bytes < 0 || from->active_bytes < 0 ||
        from->before_attach_bytes < 0 || !plausible((uint64_t)from->allocated_bytes) ||
        !plausible((uint64_t)from->reserved_bytes) || !plausible((uint64_t)from->active_bytes) ||
        from->before_attach_bytes > from->allocated_bytes)
        return -EBADMSG;
    struct pool *pool = pool_get(l, p, (uint8_t)from->device, from->component);
    if (!pool)
        return -ENOMEM;
    int64_t small = pool->pub.small_bytes;
    if (small > from->allocated_bytes - from->before_attach_bytes)
        small = from->allocated_bytes - from->before_attach_bytes;
    pool->pub.time_ns = from->time_ns;
    pool->pub.allocated_bytes = from->allocated_bytes;
    pool->pub.active_bytes = from->active_bytes;
    pool->pub.small_bytes = small;
    pool->total_reserved_bytes = from->reserved_bytes;
    /* so that pool_figures() finds what it found then */
    pool->base_bytes = from->before_attach_bytes;
    pool->pub.known_block_bytes = from->allocated_bytes - from->before_attach_bytes - small;
    pool->has_totals = true;
    return 0;
}

enum ledger_level level_parse(const char *name)
{
    int level = 0;
    while (level < LEVEL_COUNT && strcmp(level_name((enum ledger_level)level), name) != 0)
        level++;
    return (enum ledger_level)level;
}
