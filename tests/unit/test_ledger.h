/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ledger.h - events by hand, and sums read back through the public iterators.
 *
 * Time is a counter: every event is 10 ns after the one before it, and a call lasts 5 ns.
 */
#ifndef TEST_LEDGER_H
#define TEST_LEDGER_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ledger.h"
#include "probes.h"

#define TGID 100u
#define MIB ((uint64_t)1 << 20)
#define CALLER_TORCH 0x7001u
#define CALLER_HCCL 0x7002u
#define CALLER_CAMEM 0x7003u
#define MODULE_APP 33u

struct world {
    struct ledger *ledger;
    uint64_t now_ns;
    uint32_t seq;
    unsigned notices[8];
    uint64_t last_notice_ns;
};

static inline const char *world_caller(void *userdata, uint32_t tgid, uint64_t address)
{
    switch (address) {
    case CALLER_TORCH:
        return "torch_npu";
    case CALLER_HCCL:
        return "hccl";
    case CALLER_CAMEM:
        return "vllm_ascend_C";
    default:
        return "";
    }
}

static inline void world_notice(void *userdata, const struct ledger_notice *notice)
{
    struct world *w = userdata;
    w->notices[notice->kind]++;
    w->last_notice_ns = notice->time_ns;
}

static inline int world_setup_with(void **state, struct ledger_config config)
{
    struct world *w = calloc(1, sizeof(*w));
    config.caller_fn = world_caller;
    config.notice_fn = world_notice;
    config.userdata = w;
    assert_int_equal(ledger_new(&config, &w->ledger), 0);
    w->now_ns = 1000;
    *state = w;
    return 0;
}

static inline int world_setup(void **state)
{
    return world_setup_with(state, (struct ledger_config){0});
}

static inline int world_teardown(void **state)
{
    struct world *w = *state;
    ledger_free(w->ledger);
    free(w);
    return 0;
}

/* The next event of a kind; the caller fills the payload and sends it. */
static inline struct nm_event world_event(struct world *w, uint8_t kind)
{
    w->now_ns += 10;
    struct nm_event e = {
        .time_ns = w->now_ns,
        .seq = w->seq++,
        .kind = kind,
        .abi = NM_EVENT_ABI,
        .tgid = TGID,
        .tid = TGID,
    };
    if (kind != NM_EVENT_BLOCK) {
        if (NM_KIND_IS_FREE(kind))
            e.call.begin_ns = w->now_ns - 5;
        e.call.policy = 0xff;
        e.call.call_flags = NM_CALL_API_SEEN;
    }
    return e;
}

static inline int send(struct world *w, const struct nm_event *e)
{
    return ledger_apply(w->ledger, e);
}

/* The HAL flag word: device in bits 0-9, HBM in 14, module in 56-63 (CANN's ascend_hal_define.h).
 */
static inline uint64_t hal_flags(unsigned device, unsigned module)
{
    return device | 1u << 14 | (uint64_t)module << 56;
}

static inline struct nm_event event_alloc(struct world *w, uint64_t address, uint64_t requested,
                                          uint64_t physical, unsigned device)
{
    struct nm_event e = world_event(w, NM_EVENT_ALLOC);
    e.call.address = address;
    e.call.requested = requested;
    e.call.physical_bytes = physical;
    e.call.flags = hal_flags(device, MODULE_APP);
    e.call.call_flags |= NM_CALL_HAL_SEEN;
    e.call.api = PROBE_ACL_MALLOC;
    return e;
}

static inline int do_alloc(struct world *w, uint64_t address, uint64_t bytes, unsigned device)
{
    struct nm_event e = event_alloc(w, address, bytes, bytes, device);
    return send(w, &e);
}

static inline struct nm_event event_free(struct world *w, uint64_t address)
{
    struct nm_event e = world_event(w, NM_EVENT_FREE);
    e.call.address = address;
    e.call.api = PROBE_ACL_FREE;
    return e;
}

static inline int do_free(struct world *w, uint64_t address)
{
    struct nm_event e = event_free(w, address);
    return send(w, &e);
}

/* A VMM call on a handle, an address, or both. */
static inline int do_vmm(struct world *w, uint8_t kind, uint64_t handle, uint64_t address,
                         uint64_t bytes, uint64_t caller)
{
    struct nm_event e = world_event(w, kind);
    e.call.handle = handle;
    e.call.address = address;
    e.call.requested = bytes;
    e.call.caller = caller;
    if (kind == NM_EVENT_CREATE) {
        /* device 0, page 2 MiB, HBM, module APP */
        e.call.flags = 1u << 12 | (uint64_t)MODULE_APP << 56;
        e.call.call_flags |= NM_CALL_PHYS_PROP | NM_CALL_HAL_SEEN;
        e.call.physical_bytes = bytes;
        e.call.api = PROBE_ACL_CREATE;
    }
    return send(w, &e);
}

struct totals {
    int64_t allocated, reserved, active;
};

static inline int do_block(struct world *w, uint8_t action, uint64_t address, int64_t bytes,
                           struct totals after)
{
    struct nm_event e = world_event(w, NM_EVENT_BLOCK);
    e.block.address = address;
    e.block.size_bytes = action == NM_BLOCK_MALLOC ? bytes : -bytes;
    e.block.action = action;
    e.block.total_allocated_bytes = after.allocated;
    e.block.total_reserved_bytes = after.reserved;
    e.block.total_active_bytes = after.active;
    e.block.stream = 0x5000;
    return send(w, &e);
}

struct level_sum {
    enum ledger_level level;
    uint64_t bytes, count, read_bytes;
    const char *owner;
    const struct ledger *ledger;
    bool inferred;
};

static inline int level_sum_entry(void *userdata, const struct ledger_entry *e)
{
    struct level_sum *s = userdata;
    if (e->level == s->level) {
        s->bytes += e->size_bytes;
        s->count++;
    }
    return 0;
}

/* Bytes of the live entries of a level. */
static inline uint64_t entries_bytes(const struct world *w, enum ledger_level level)
{
    struct level_sum s = {.level = level};
    ledger_each_entry(w->ledger, TGID, level_sum_entry, &s);
    return s.bytes;
}

static inline int level_sum_owner(void *userdata, const struct ledger_owner_total *t)
{
    struct level_sum *s = userdata;
    if (t->level == s->level &&
        (!s->owner || strcmp(s->owner, ledger_owner_name(s->ledger, t->owner)) == 0)) {
        s->bytes += t->bytes;
        s->count += t->count;
        s->read_bytes += t->read_bytes;
        s->inferred |= t->inferred;
    }
    return 0;
}

/* Bytes of a level by the running totals; owner NULL: all. */
static inline struct level_sum owner_sum(const struct world *w, enum ledger_level level,
                                         const char *owner)
{
    struct level_sum s = {.level = level, .owner = owner, .ledger = w->ledger};
    assert_int_equal(ledger_each_owner(w->ledger, TGID, level_sum_owner, &s), 0);
    return s;
}

struct device_pick {
    uint16_t device;
    struct ledger_device_use use;
    bool found;
};

static inline int device_pick_one(void *userdata, const struct ledger_device_use *use)
{
    struct device_pick *pick = userdata;
    if (use->device == pick->device) {
        pick->use = *use;
        pick->found = true;
    }
    return 0;
}

static inline struct ledger_device_use device_of(const struct world *w, uint16_t device)
{
    struct device_pick pick = {.device = device};
    ledger_each_device(w->ledger, TGID, device_pick_one, &pick);
    return pick.use;
}

struct pool_pick {
    uint8_t component;
    struct ledger_pool pool;
};

static inline int pool_pick_one(void *userdata, const struct ledger_pool *pool)
{
    struct pool_pick *pick = userdata;
    if (pool->component == pick->component)
        pick->pool = *pool;
    return 0;
}

static inline struct ledger_pool pool_of(const struct world *w, uint8_t component)
{
    struct pool_pick pick = {.component = component};
    ledger_each_pool(w->ledger, TGID, pool_pick_one, &pick);
    return pick.pool;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

#endif
