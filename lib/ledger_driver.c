/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_driver.c - the driver's figures, and what they say about memory from before attach.
 *
 * before_attach(device, module) = driver's figure - live entries that events named.
 *   - The first figure sets it. Later ones only shrink it: memory that comes later has an event.
 *   - A lower figure counts at once when frees of unknown addresses were seen since the last
 * figure. Without such a free it must be seen twice, since the driver may be ahead of events that
 *     are still on their way; the larger of the two counts.
 *   - A figure that is older than the newest change of the same sum says nothing and is only shown.
 * The daemon takes the time, reads the figures, drains the ring, and then feeds them.
 *
 * reserved of the caching pool: a segment from before attach has no entry, so its free after the
 * newest block event cannot be subtracted by size. The driver's drop tells: what before_attach of
 * module APP lost, less what block events since the last figure showed themselves as unexplained
 * drops of reserved (struct device_use.explained_bytes), was freed after the newest block event. It
 * is subtracted, never below active, when torch_npu freed something unknown after that event.
 */
#include "ledger_internal.h"

#include <errno.h>
#include <string.h>

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Shrinks reserved of the device's caching pool by the part of a drop that its totals do not show.
 */
static void pool_shrink(struct process *p, struct device_use *d, uint64_t drop_bytes)
{
    uint64_t rest = minus(drop_bytes, d->explained_bytes);
    d->explained_bytes = minus(d->explained_bytes, drop_bytes);
    struct pool *pool = pool_find(p, process_user_device(p, d->use.device), NM_BLOCK_CACHING);
    if (!rest || !pool || !pool->has_totals || p->unmatched_torch_ns <= pool->pub.time_ns)
        return;
    struct ledger_pool figures;
    pool_figures(pool, &figures);
    int64_t slack = figures.reserved_bytes - figures.active_bytes;
    if (slack <= 0)
        return;
    pool_change_add(pool, p->unmatched_torch_ns, -(rest < (uint64_t)slack ? (int64_t)rest : slack));
}

/* The before-attach bytes that a later figure leaves. */
static uint64_t before_shrunk(const struct process *p, struct module_use *m)
{
    uint64_t rest = minus(m->driver_bytes, m->known_bytes);
    if (rest >= m->before_bytes) {
        m->candidate_bytes = UINT64_MAX;
        return m->before_bytes;
    }
    if (p->unmatched_count != m->unmatched_seen) {
        m->candidate_bytes = UINT64_MAX;
        return rest;
    }
    if (m->candidate_bytes == UINT64_MAX) {
        m->candidate_bytes = rest;
        return m->before_bytes;
    }
    uint64_t larger = rest > m->candidate_bytes ? rest : m->candidate_bytes;
    m->candidate_bytes = rest < larger ? rest : UINT64_MAX;
    return larger;
}

static void device_sum(const struct process *p, struct device_use *d, uint64_t now_ns)
{
    d->use.before_attach_bytes = 0;
    d->use.driver_bytes = UINT64_MAX;
    for (uint32_t i = 0; i < d->module_count; i++) {
        const struct module_use *m = &d->modules[i];
        d->use.before_attach_bytes += m->before_bytes;
        if (m->has_driver)
            d->use.driver_bytes =
                (d->use.driver_bytes == UINT64_MAX ? 0 : d->use.driver_bytes) + m->driver_bytes;
    }
    device_refresh(p, d, now_ns);
    d->use.driver_side_bytes =
        d->use.driver_bytes == UINT64_MAX ? 0 : minus(d->use.driver_bytes, d->use.physical_bytes);
}

int ledger_driver_usage(struct ledger *l, uint32_t tgid, uint16_t device, uint8_t module,
                        uint64_t bytes, uint64_t now_ns)
{
    if (device >= DEVICE_LIMIT || bytes >= SIZE_LIMIT) {
        l->stats.decode_errors++;
        return -EBADMSG;
    }
    struct process *p = process_find(l, tgid);
    if (!p || !p->pub.alive)
        return NOT_APPLIED;
    peak_settle(p);
    struct device_use *d = device_get(l, p, device);
    struct module_use *m = d ? module_get(l, d, module) : NULL;
    if (!m)
        return -ENOMEM;
    m->driver_bytes = bytes;
    if (m->changed_ns <= now_ns) {
        if (!m->has_driver) {
            m->before_bytes = minus(bytes, m->known_bytes);
        } else {
            uint64_t before = before_shrunk(p, m);
            uint64_t drop = m->before_bytes - before;
            m->before_bytes = before;
            if (module == OWNER_MODULE_APP && drop)
                pool_shrink(p, d, drop);
        }
        m->unmatched_seen = p->unmatched_count;
        m->has_driver = true;
    }
    device_sum(p, d, now_ns);
    return 0;
}

void ledger_card_usage(struct ledger *l, uint16_t device, uint64_t total_bytes, uint64_t used_bytes)
{
    if (device >= DEVICE_LIMIT)
        return;
    if (device >= l->card_count) {
        void *cards = realloc(l->cards, (device + 1u) * sizeof(*l->cards));
        if (!cards)
            return;
        ledger_memory(l, (int64_t)((device + 1u - l->card_count) * sizeof(*l->cards)));
        l->cards = cards;
        memset(&l->cards[l->card_count], 0, (device + 1u - l->card_count) * sizeof(*l->cards));
        l->card_count = device + 1u;
    }
    l->cards[device].total_bytes = total_bytes;
    l->cards[device].used_bytes = used_bytes;
    l->cards[device].known = true;
}

bool ledger_card(const struct ledger *l, uint16_t device, uint64_t *ret_total, uint64_t *ret_used)
{
    if (device >= l->card_count || !l->cards[device].known)
        return false;
    *ret_total = l->cards[device].total_bytes;
    *ret_used = l->cards[device].used_bytes;
    return true;
}
