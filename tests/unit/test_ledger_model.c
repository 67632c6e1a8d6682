/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger against a naive model: plain arrays, searched linearly, that follow the rules of the
 * header one by one. 200,000 random events of a fixed seed; every sum is compared along the way.
 * Then events of random bytes, failing allocations, and the size of a million entries.
 */
#include "test_ledger.h"

#define MODEL_EVENTS 200000
#define MODEL_SLOTS 64 /* few addresses and handles, so that they are reused all the time */
#define MODEL_DEVICES 3

static uint64_t random_state;

static uint32_t random_next(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % below;
}

struct model_memory {
    bool live;
    uint64_t bytes;
    unsigned device;
    bool host;
    uint64_t time_ns;
};

struct model_handle {
    bool live;
    uint64_t bytes;
    unsigned device, references, maps;
    uint64_t time_ns;
};

struct model {
    struct model_memory memory[MODEL_SLOTS];
    struct model_handle *handle[MODEL_SLOTS]; /* current holder of a handle value */
    struct model_handle *mapped[MODEL_SLOTS]; /* memory behind an address */
    bool mapped_live[MODEL_SLOTS];
    uint64_t mapped_ns[MODEL_SLOTS];
    struct model_handle pool[MODEL_EVENTS];
    uint32_t pool_used;
    uint64_t block[MODEL_SLOTS];   /* bytes, 0 none */
    uint64_t pending[MODEL_SLOTS]; /* bytes, 0 none */
    uint32_t done;                 /* slot + 1 of a block that the newest event ended, 0 none */
    uint64_t unmatched, late, duplicates;
};

static void model_settle(struct model_handle *h)
{
    if (h && h->live && !h->references && !h->maps)
        h->live = false;
}

static void model_alloc(struct model *m, struct world *w)
{
    uint32_t slot = random_next(MODEL_SLOTS), device = random_next(MODEL_DEVICES);
    uint64_t bytes = 1 + random_next(1 << 30);
    bool host = random_next(8) == 0;
    struct nm_event e = event_alloc(w, 0x1000 + slot * 16, bytes, bytes, device);
    if (host)
        e.call.call_flags |= NM_CALL_HOST;
    assert_int_equal(send(w, &e), 0);
    if (m->memory[slot].live)
        m->duplicates++;
    m->memory[slot] = (struct model_memory){true, bytes, device, host, e.time_ns};
}

/* When a random free began: mostly just now, sometimes long ago. */
static void random_begin(struct nm_event *e)
{
    if (random_next(6) == 0)
        e->call.begin_ns = e->time_ns - random_next(3000);
}

static void model_free(struct model *m, struct world *w)
{
    uint32_t slot = random_next(MODEL_SLOTS);
    struct nm_event e = event_free(w, 0x1000 + slot * 16);
    random_begin(&e);
    send(w, &e);
    if (!m->memory[slot].live)
        m->unmatched++;
    else if (m->memory[slot].time_ns > e.call.begin_ns)
        m->late++;
    else
        m->memory[slot].live = false;
}

static void model_create(struct model *m, struct world *w)
{
    uint32_t slot = random_next(MODEL_SLOTS), device = random_next(MODEL_DEVICES);
    uint64_t bytes = (1 + random_next(20)) * 2 * MIB;
    struct nm_event e = world_event(w, NM_EVENT_CREATE);
    e.call.handle = 0x50 + slot;
    e.call.physical_bytes = bytes;
    e.call.flags = device | (uint64_t)MODULE_APP << 56;
    e.call.call_flags |= NM_CALL_PHYS_PROP;
    assert_int_equal(send(w, &e), 0);
    struct model_handle *old = m->handle[slot];
    if (old && old->live) {
        m->duplicates += old->references > 0;
        old->references = 0;
        model_settle(old);
    }
    m->handle[slot] = &m->pool[m->pool_used++];
    *m->handle[slot] = (struct model_handle){true, bytes, device, 1, 0, e.time_ns};
}

static void model_handle_free(struct model *m, struct world *w)
{
    uint32_t slot = random_next(MODEL_SLOTS);
    struct nm_event e = world_event(w, NM_EVENT_HANDLE_FREE);
    e.call.handle = 0x50 + slot;
    random_begin(&e);
    send(w, &e);
    struct model_handle *h = m->handle[slot];
    if (!h || !h->live)
        m->unmatched++;
    else if (h->time_ns > e.call.begin_ns)
        m->late++;
    else if (!h->references)
        m->unmatched++;
    else {
        h->references--;
        model_settle(h);
    }
}

static void model_unmap_slot(struct model *m, uint32_t at)
{
    struct model_handle *h = m->mapped[at];
    m->mapped_live[at] = false;
    m->mapped[at] = NULL;
    if (h) {
        h->maps--;
        model_settle(h);
    }
}

static void model_map(struct model *m, struct world *w)
{
    uint32_t slot = random_next(MODEL_SLOTS), at = random_next(MODEL_SLOTS);
    struct nm_event e = world_event(w, NM_EVENT_MAP);
    e.call.handle = 0x50 + slot;
    e.call.address = 0x100000 + at * 16;
    e.call.requested = 2 * MIB;
    assert_int_equal(send(w, &e), 0);
    struct model_handle *h = m->handle[slot] && m->handle[slot]->live ? m->handle[slot] : NULL;
    if (h)
        h->maps++;
    if (m->mapped_live[at]) {
        model_unmap_slot(m, at);
        m->duplicates++;
    }
    m->mapped_live[at] = true;
    m->mapped[at] = h;
    m->mapped_ns[at] = e.time_ns;
}

static void model_unmap(struct model *m, struct world *w)
{
    uint32_t at = random_next(MODEL_SLOTS);
    struct nm_event e = world_event(w, NM_EVENT_UNMAP);
    e.call.address = 0x100000 + at * 16;
    random_begin(&e);
    send(w, &e);
    if (!m->mapped_live[at])
        m->unmatched++;
    else if (m->mapped_ns[at] > e.call.begin_ns)
        m->late++;
    else
        model_unmap_slot(m, at);
}

static void model_block(struct model *m, struct world *w)
{
    uint32_t slot = random_next(MODEL_SLOTS);
    uint8_t action = (uint8_t)random_next(3);
    uint32_t done = m->done;
    uint64_t bytes = 512 + random_next(1 << 20);
    m->done = 0;
    if (action == NM_BLOCK_MALLOC) {
        m->duplicates += m->block[slot] || m->pending[slot];
        m->block[slot] = bytes;
        m->pending[slot] = 0;
    } else if (action == NM_BLOCK_BLOCK_FREE) {
        m->done = m->block[slot] || m->pending[slot] ? slot + 1 : 0;
        m->block[slot] = m->pending[slot] = 0;
    } else if (m->block[slot]) {
        m->pending[slot] = m->block[slot];
        m->block[slot] = 0;
    } else if (!m->pending[slot] && done != slot + 1) {
        m->unmatched++;
    }
    /* active above allocated: a freed block waits */
    do_block(w, action, 0x900000 + slot * 16, (int64_t)bytes, (struct totals){0, 0, 1});
}

static void model_compare(const struct model *m, const struct world *w)
{
    uint64_t physical[MODEL_DEVICES] = {0}, host = 0, block = 0, pending = 0, all = 0;
    for (unsigned i = 0; i < MODEL_SLOTS; i++) {
        if (m->memory[i].live && m->memory[i].host)
            host += m->memory[i].bytes;
        else if (m->memory[i].live)
            physical[m->memory[i].device] += m->memory[i].bytes;
        block += m->block[i];
        pending += m->pending[i];
    }
    for (uint32_t i = 0; i < m->pool_used; i++)
        if (m->pool[i].live)
            physical[m->pool[i].device] += m->pool[i].bytes;
    for (uint16_t device = 0; device < MODEL_DEVICES; device++) {
        assert_int_equal(device_of(w, device).known_bytes, physical[device]);
        all += physical[device];
    }
    assert_int_equal(owner_sum(w, LEVEL_PHYSICAL, NULL).bytes, all);
    assert_int_equal(entries_bytes(w, LEVEL_PHYSICAL), all);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, NULL).bytes, block);
    assert_int_equal(entries_bytes(w, LEVEL_BLOCK), block);
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).known_block_bytes, block);
    assert_int_equal(entries_bytes(w, LEVEL_PENDING), pending);
    assert_int_equal(owner_sum(w, LEVEL_PENDING, NULL).bytes, pending);
    const struct ledger_process *p = ledger_find_process(w->ledger, TGID);
    assert_int_equal(p->host_bytes, host);
    assert_int_equal(ledger_stats(w->ledger)->unmatched_frees, m->unmatched);
    assert_int_equal(ledger_stats(w->ledger)->late_frees, m->late);
    assert_int_equal(ledger_stats(w->ledger)->duplicate_allocs, m->duplicates);
    assert_int_equal(ledger_stats(w->ledger)->decode_errors, 0);
}

static void random_events_give_the_sums_of_a_naive_model(void **state)
{
    static void (*const steps[])(struct model *, struct world *) = {
        model_alloc, model_free, model_create, model_handle_free, model_map,
        model_unmap, model_free, model_block,  model_block,
    };
    struct world *w = *state;
    struct model *m = calloc(1, sizeof(*m));
    random_state = 20260822;
    for (uint32_t i = 0; i < MODEL_EVENTS; i++) {
        steps[random_next(sizeof(steps) / sizeof(steps[0]))](m, w);
        if (i % 1000 == 999)
            model_compare(m, w);
    }
    assert_true(m->unmatched > 1000 && m->late > 1000 && m->duplicates > 1000);
    free(m);
}

static int inside_bounds(void *userdata, const struct ledger_device_use *use)
{
    assert_true(use->known_bytes < (uint64_t)1 << 62);
    return 0;
}

static int entry_sums(void *userdata, const struct ledger_entry *e)
{
    ((uint64_t *)userdata)[e->level] += e->size_bytes;
    return 0;
}

static int row_sums(void *userdata, const struct ledger_owner_total *t)
{
    if (t->owner != OWNER_UNKNOWN + 1) /* before_attach is made up of no entries */
        ((uint64_t *)userdata)[t->level] += t->bytes;
    return 0;
}

static void events_of_random_bytes_do_no_harm(void **state)
{
    struct world *w = *state;
    uint64_t entries[LEVEL_COUNT] = {0}, rows[LEVEL_COUNT] = {0};
    random_state = 4711;
    for (uint32_t i = 0; i < 300000; i++) {
        struct nm_event e;
        unsigned char *bytes = (unsigned char *)&e;
        for (size_t b = 0; b < sizeof(e); b++)
            bytes[b] = random_next(3) ? 0 : (unsigned char)random_next(256);
        e.abi = NM_EVENT_ABI;
        e.kind = (uint8_t)random_next(NM_EVENT_KIND_COUNT + 1);
        e.tgid = TGID + random_next(4);
        e.start_ticks = 0;
        if (random_next(2))
            e.result = 0;
        if (e.kind == NM_EVENT_BLOCK && random_next(2)) {
            e.block.size_bytes = (int64_t)random_next(1 << 20) * (e.block.action ? -1 : 1);
            e.block.total_allocated_bytes &= INT64_MAX >> 3;
            e.block.total_reserved_bytes &= INT64_MAX >> 3;
            e.block.total_active_bytes &= INT64_MAX >> 3;
            e.block.component &= 1;
            e.block.device &= 7;
        }
        ledger_apply(w->ledger, &e);
    }
    for (uint32_t tgid = TGID; tgid < TGID + 4; tgid++) {
        ledger_each_device(w->ledger, tgid, inside_bounds, NULL);
        ledger_each_entry(w->ledger, tgid, entry_sums, entries);
        ledger_each_owner(w->ledger, tgid, row_sums, rows);
    }
    for (unsigned level = 0; level < LEVEL_COUNT; level++)
        assert_int_equal(entries[level], rows[level]);
    assert_true(entries[LEVEL_PHYSICAL] > 0 && entries[LEVEL_BLOCK] > 0);
    assert_true(ledger_stats(w->ledger)->decode_errors > 1000);
    for (uint32_t tgid = TGID; tgid < TGID + 4; tgid++)
        ledger_process_exit(w->ledger, tgid, 0, UINT64_MAX);
    assert_int_equal(ledger_stats(w->ledger)->live_entries, 0);
}

static void a_million_blocks_cost_at_most_96_bytes_each(void **state)
{
    struct world *w = *state;
    uint64_t before = ledger_stats(w->ledger)->memory_bytes;
    for (uint32_t i = 0; i < 1000000; i++) {
        struct nm_event e = world_event(w, NM_EVENT_BLOCK);
        e.block.address = 0x100000000 + (uint64_t)i * 512;
        e.block.size_bytes = 512;
        assert_int_equal(send(w, &e), 0);
    }
    assert_int_equal(ledger_stats(w->ledger)->live_entries, 1000000);
    assert_true(ledger_stats(w->ledger)->memory_bytes - before <= (uint64_t)96 * 1000000);
    ledger_process_exit(w->ledger, TGID, 0, w->now_ns);
    assert_true(ledger_stats(w->ledger)->memory_bytes < 100000);
}

static void freed_slots_are_used_again(void **state)
{
    struct world *w = *state;
    for (uint64_t i = 1; i <= 1000; i++)
        do_alloc(w, i * 16, 1, 0);
    uint64_t memory = ledger_stats(w->ledger)->memory_bytes;
    for (uint64_t i = 1; i <= 50000; i++) {
        do_free(w, i * 16);
        do_alloc(w, (i + 1000) * 16, 1, 0);
    }
    assert_int_equal(ledger_stats(w->ledger)->live_entries, 1000);
    assert_int_equal(ledger_stats(w->ledger)->memory_bytes, memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(random_events_give_the_sums_of_a_naive_model),
        TEST(events_of_random_bytes_do_no_harm),
        TEST(a_million_blocks_cost_at_most_96_bytes_each),
        TEST(freed_slots_are_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
