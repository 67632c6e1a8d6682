/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_ledger.c - see layout_ledger.h.
 *
 * Invariant: only segments of the caching allocator; CaMem's and other owners' memory has no blocks
 * and would look like one large hole.
 */
#include "layout_ledger.h"

#include <string.h>

#include "owner.h"

struct collect {
    const struct process_facts *facts;
    uint16_t device;
    struct layout *layout;
};

/* The driver's number of a device as torch counts it. */
static uint16_t driver_device(const struct process_facts *facts, uint16_t device)
{
    return device < facts->visible_count ? facts->visible_devices[device] : device;
}

static int on_entry(void *userdata, const struct ledger_entry *e)
{
    struct collect *c = userdata;

    if (e->level == LEVEL_PHYSICAL) {
        if (e->device != c->device || !e->address || e->owner != OWNER_ID_PTA_POOL)
            return 0;
        uint64_t bytes = e->handle ? e->size_bytes : e->requested_bytes;
        struct layout_segment s = {
            .address = e->address,
            .bytes = bytes ? bytes : e->size_bytes,
            .allocated_ns = e->allocated_ns,
            .owner = e->owner,
            .is_granule = e->handle != 0,
            .is_small = bytes == LAYOUT_SMALL_SEGMENT_BYTES,
        };
        return layout_add_segment(c->layout, &s);
    }
    if (e->level != LEVEL_BLOCK && e->level != LEVEL_PENDING)
        return 0;
    if (driver_device(c->facts, e->device) != c->device || e->owner == OWNER_ID_PTA_WORKSPACE)
        return 0;
    struct layout_block b = {
        .address = e->address,
        .bytes = e->size_bytes,
        .stream = e->stream,
        .allocated_ns = e->allocated_ns,
        .owner = e->owner,
        .detail = e->stack,
        .is_pending = e->level == LEVEL_PENDING,
    };
    return layout_add_block(c->layout, &b);
}

int layout_from_ledger(const struct ledger *l, uint32_t tgid, uint16_t device, struct layout *ret)
{
    const struct ledger_process *p = ledger_find_process(l, tgid);
    struct collect c = {.device = device, .layout = ret};

    memset(ret, 0, sizeof(*ret));
    if (!p)
        return 0;
    c.facts = &p->facts;
    int r = ledger_each_entry(l, tgid, on_entry, &c);
    if (r < 0)
        layout_done(ret);
    return r;
}
