/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: samples. Invariant: a sample that is missing says "as the one before"; a process's values
 * are written when any of them changed, and anyhow every LIMIT_STORE_SAMPLE_FULL_NS.
 */
#include "store_internal.h"

#include <string.h>

/* A smaller change is not written. */
#define HOST_CHANGE_BYTES (1u << 20)

struct sampling {
    struct store *store;
    const struct ledger *ledger;
    int64_t wall_ns, boot_ns, process_id;
    uint64_t hash, rows;
    int failed; /* first error of a row */
};

/* FNV-1a over 64-bit words: the values alone decide, not how they came about. */
static void hash_add(uint64_t *hash, uint64_t value)
{
    *hash = (*hash ^ value) * 1099511628211ull;
}

static int on_owner_hash(void *userdata, const struct ledger_owner_total *t)
{
    struct sampling *c = userdata;

    hash_add(&c->hash, t->owner);
    hash_add(&c->hash, (uint64_t)t->device << 8 | (uint64_t)t->level);
    hash_add(&c->hash, t->bytes);
    hash_add(&c->hash, t->count);
    hash_add(&c->hash, t->peak_bytes);
    return 0;
}

static int on_device_hash(void *userdata, const struct ledger_device_use *d)
{
    struct sampling *c = userdata;

    hash_add(&c->hash, d->device);
    hash_add(&c->hash, d->physical_bytes);
    hash_add(&c->hash, d->before_attach_bytes);
    hash_add(&c->hash, d->driver_bytes);
    hash_add(&c->hash, d->peak_bytes);
    return 0;
}

static int on_pool_hash(void *userdata, const struct ledger_pool *p)
{
    struct sampling *c = userdata;

    hash_add(&c->hash, (uint64_t)p->device << 8 | p->component);
    hash_add(&c->hash, (uint64_t)p->reserved_bytes);
    hash_add(&c->hash, (uint64_t)p->allocated_bytes);
    hash_add(&c->hash, (uint64_t)p->active_bytes);
    return 0;
}

static int row_done(struct sampling *c, enum store_statement statement)
{
    int r = store_run(c->store, statement, NULL);

    c->rows += r == 0;
    return r;
}

static int on_owner(void *userdata, const struct ledger_owner_total *t)
{
    struct sampling *c = userdata;
    int64_t owner_id;
    int r = store_owner_note(c->store, c->ledger, t->owner);

    if (r == 0)
        r = store_owner_row(c->store, t->owner, &owner_id);
    if (r < 0)
        return r;
    store_bind(c->store, STORE_SAMPLE_INSERT, 11,
               (const int64_t[]){c->wall_ns, c->boot_ns, c->process_id, t->device, 0, owner_id,
                                 (int64_t)t->bytes, (int64_t)t->count, (int64_t)t->peak_bytes,
                                 t->inferred, (int64_t)t->read_bytes});
    if (t->read_bytes == LEDGER_READ_UNKNOWN)
        sqlite3_bind_null(c->store->statements[STORE_SAMPLE_INSERT], 11);
    sqlite3_bind_text(c->store->statements[STORE_SAMPLE_INSERT], 5, level_name(t->level), -1,
                      SQLITE_STATIC);
    return row_done(c, STORE_SAMPLE_INSERT);
}

static int on_device(void *userdata, const struct ledger_device_use *d)
{
    struct sampling *c = userdata;

    store_bind(c->store, STORE_SAMPLE_DEVICE_INSERT, 8,
               (const int64_t[]){c->wall_ns, c->boot_ns, c->process_id, d->device,
                                 (int64_t)d->physical_bytes, (int64_t)d->before_attach_bytes,
                                 (int64_t)d->driver_bytes, (int64_t)d->peak_bytes});
    if (d->driver_bytes == UINT64_MAX)
        sqlite3_bind_null(c->store->statements[STORE_SAMPLE_DEVICE_INSERT], 7);
    return row_done(c, STORE_SAMPLE_DEVICE_INSERT);
}

static int on_pool(void *userdata, const struct ledger_pool *p)
{
    struct sampling *c = userdata;

    store_bind(c->store, STORE_SAMPLE_POOL_INSERT, 9,
               (const int64_t[]){c->wall_ns, c->boot_ns, c->process_id, p->device, 0,
                                 p->reserved_bytes, p->allocated_bytes, p->active_bytes,
                                 p->before_attach_bytes});
    sqlite3_bind_text(c->store->statements[STORE_SAMPLE_POOL_INSERT], 5,
                      p->component == NM_BLOCK_WORKSPACE ? "workspace" : "caching", -1,
                      SQLITE_STATIC);
    return row_done(c, STORE_SAMPLE_POOL_INSERT);
}

/* Host memory changes all the time: it has rows of its own, so that they do not make one of every
 * owner. */
static int sample_host(struct sampling *c, struct store_process *p)
{
    uint64_t resident, shared, now_ns = (uint64_t)c->boot_ns;

    if (!c->store->options.host_fn ||
        !c->store->options.host_fn(p->facts.tgid, &resident, &shared) || resident > INT64_MAX)
        return 0;
    uint64_t change =
        resident > p->host_bytes ? resident - p->host_bytes : p->host_bytes - resident;
    if (p->host_ns && change < HOST_CHANGE_BYTES &&
        now_ns - p->host_ns < LIMIT_STORE_SAMPLE_FULL_NS)
        return 0;
    int r = store_process_row(c->store, p);
    if (r < 0)
        return r;
    store_bind(c->store, STORE_SAMPLE_HOST_INSERT, 5,
               (const int64_t[]){c->wall_ns, c->boot_ns, p->id, (int64_t)resident,
                                 (int64_t)(shared < resident ? shared : resident)});
    p->host_bytes = resident;
    p->host_ns = now_ns;
    return row_done(c, STORE_SAMPLE_HOST_INSERT);
}

/* Inside the transaction. The sample's hash becomes the process's only when it is committed. */
static int on_process(void *userdata, const struct ledger_process *lp)
{
    struct sampling *c = userdata;
    struct store_process *p = store_find(c->store, lp->facts.tgid);
    uint32_t tgid = lp->facts.tgid;
    int r;

    if (!lp->alive || !p)
        return 0;
    r = sample_host(c, p);
    if (r == 0)
        r = store_phases_write(c->store, c->ledger, p, &c->rows);
    if (r < 0)
        return r;
    c->hash = 14695981039346656037ull;
    ledger_each_owner(c->ledger, tgid, on_owner_hash, c);
    ledger_each_device(c->ledger, tgid, on_device_hash, c);
    ledger_each_pool(c->ledger, tgid, on_pool_hash, c);
    if (p->sample_ns && c->hash == p->sample_hash &&
        (uint64_t)c->boot_ns - p->sample_ns < LIMIT_STORE_SAMPLE_FULL_NS)
        return 0;
    r = store_process_row(c->store, p);
    c->process_id = p->id;
    if (r == 0)
        r = ledger_each_owner(c->ledger, tgid, on_owner, c);
    if (r == 0)
        r = ledger_each_device(c->ledger, tgid, on_device, c);
    if (r == 0)
        r = ledger_each_pool(c->ledger, tgid, on_pool, c);
    p->sample_hash = c->hash;
    p->sample_ns = (uint64_t)c->boot_ns;
    return r;
}

int store_sample(struct store *s, const struct ledger *ledger, uint64_t now_ns)
{
    struct sampling c = {.store = s, .ledger = ledger};
    int r;

    if (!s)
        return 0;
    c.boot_ns = (int64_t)now_ns;
    c.wall_ns = (int64_t)store_wall_ns(s, now_ns);
    r = store_begin(s);
    if (r == 0) {
        r = ledger_each_process(ledger, on_process, &c);
        r = store_end(s, r);
    }
    if (r == 0) {
        s->stats.rows_written += c.rows;
        return 0;
    }
    /* Not written: the next one must not take it for known. */
    for (size_t i = 0; i < s->process_count; i++)
        s->processes[i].sample_ns = s->processes[i].host_ns = s->processes[i].phase_hash = 0;
    s->stats.dropped_samples++;
    return r;
}
