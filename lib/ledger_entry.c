/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_entry.c - entries and every running total.
 *
 * Owns: struct entry, struct row, struct device_use and the interned owner names.
 * Must not: know event kinds; let anybody else touch a sum.
 * Invariants: a row's bytes and count, a device's and a module's known bytes and a process's
 * host bytes equal the sums over the entries that refer to them; no sum can overflow, since the sum
 * of everything (ledger.total_bytes) is kept below 2^62.
 */
#include "ledger_internal.h"

#include <errno.h>
#include <string.h>

/* Rows are numbered in 16 bits in an entry. */
#define ROW_LIMIT 65535u

static uint64_t row_key(uint32_t owner, uint16_t device)
{
    return (uint64_t)owner << 32 | device;
}

static struct row *row_at(const struct process *p, uint32_t number)
{
    return map_at(&p->rows, number);
}

enum ledger_level entry_level(const struct process *p, const struct entry *e)
{
    return (enum ledger_level)row_at(p, e->row)->key_b;
}

uint32_t entry_owner(const struct process *p, const struct entry *e)
{
    return (uint32_t)(row_at(p, e->row)->key >> 32);
}

uint16_t entry_device(const struct process *p, const struct entry *e)
{
    return (uint16_t)row_at(p, e->row)->key;
}

int row_get(struct process *p, uint32_t owner, uint16_t device, enum ledger_level level,
            uint32_t *ret)
{
    uint64_t key = row_key(owner, device);
    if (p->row_last) {
        const struct row *last = row_at(p, p->row_last);
        if (last->key == key && last->key_b == (uint32_t)level) {
            *ret = p->row_last;
            return 0;
        }
    }
    uint32_t number = map_find(&p->rows, key, level);
    if (!number) {
        if (p->rows.count >= ROW_LIMIT)
            return -ENOSPC;
        int r = map_add(&p->rows, key, level, &number);
        if (r < 0)
            return r;
    }
    p->row_last = *ret = number;
    return 0;
}

struct device_use *device_find(const struct process *p, uint16_t device)
{
    uint32_t low = 0, high = p->device_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (p->devices[middle].use.device == device)
            return &p->devices[middle];
        if (p->devices[middle].use.device < device)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

struct device_use *device_get(struct ledger *l, struct process *p, uint16_t device)
{
    struct device_use *d = device_find(p, device);
    if (d)
        return d;
    struct device_use *devices = realloc(p->devices, (p->device_count + 1) * sizeof(*devices));
    if (!devices)
        return NULL;
    ledger_memory(l, sizeof(*devices));
    p->devices = devices;
    uint32_t at = p->device_count++;
    for (; at && devices[at - 1].use.device > device; at--)
        devices[at] = devices[at - 1];
    devices[at] = (struct device_use){.use = {.device = device, .driver_bytes = UINT64_MAX}};
    return &devices[at];
}

struct module_use *module_get(struct ledger *l, struct device_use *d, uint8_t module)
{
    for (uint32_t i = 0; i < d->module_count; i++)
        if (d->modules[i].module == module)
            return &d->modules[i];
    struct module_use *modules = realloc(d->modules, (d->module_count + 1) * sizeof(*modules));
    if (!modules)
        return NULL;
    ledger_memory(l, sizeof(*modules));
    d->modules = modules;
    modules[d->module_count] = (struct module_use){.module = module, .candidate_bytes = UINT64_MAX};
    return &modules[d->module_count++];
}

static bool before_is_stale(const struct process *p, const struct device_use *d)
{
    for (uint32_t i = 0; i < d->module_count && d->use.before_attach_bytes; i++)
        if (d->modules[i].before_bytes && d->modules[i].unmatched_seen != p->unmatched_count)
            return true;
    return false;
}

bool ledger_wants_driver_usage(const struct ledger *l, uint32_t tgid)
{
    const struct process *p = process_find(l, tgid);

    for (uint32_t i = 0; p && p->pub.alive && i < p->device_count; i++)
        if (before_is_stale(p, &p->devices[i]))
            return true;
    return false;
}

void device_refresh(const struct process *p, struct device_use *d, uint64_t time_ns)
{
    d->use.physical_bytes = d->use.known_bytes + d->use.before_attach_bytes;
    /* Memory from before attach that was freed since the driver's last figure is still counted: a
     * sum with it is no peak. */
    if (d->use.physical_bytes > d->use.peak_bytes && !before_is_stale(p, d)) {
        d->use.peak_bytes = d->use.physical_bytes;
        d->use.peak_ns = time_ns;
        d->use.peak_before_attach_bytes = d->use.before_attach_bytes;
        d->epoch++;
        d->peak_pending = true;
    }
}

/*
 * The composition of a peak, without a copy of all rows at each new one: a row that has not changed
 * since the newest peak is as it was then, and one that is about to change for the first time since
 * notes what it was. Exact, and O(1) per change.
 */
static void peak_note(const struct process *p, struct row *row)
{
    uint16_t device = (uint16_t)row->key;
    if (row->key_b == LEVEL_BLOCK || row->key_b == LEVEL_PENDING)
        device = process_logical_device(p, device);
    const struct device_use *d = device_find(p, device);
    if (!d || row->epoch == d->epoch)
        return;
    row->then_bytes = row->bytes;
    row->then_count = row->count;
    row->then_read = row->read_bytes;
    row->epoch = d->epoch;
}

void peak_settle(struct process *p)
{
    for (uint32_t i = 0; i < p->device_count; i++) {
        struct device_use *d = &p->devices[i];
        if (!d->peak_pending)
            continue;
        d->peak_pending = false;
        for (uint32_t k = 0; k < p->pool_count; k++) {
            struct pool *pool = p->pools[k];
            if (process_logical_device(p, pool->pub.device) != d->use.device)
                continue;
            pool_figures(pool, &pool->then);
            pool->then_epoch = d->epoch;
        }
    }
}

/* Physical sums of a device and its module; both exist once an entry was added to them. */
static void physical_change(struct process *p, const struct entry *e, uint16_t device, int sign,
                            uint64_t time_ns)
{
    struct device_use *d = device_find(p, device);
    struct module_use *m = d->modules;
    while (m->module != e->module)
        m++;
    uint64_t change = sign > 0 ? e->bytes : -e->bytes;
    d->use.known_bytes += change;
    m->known_bytes += change;
    if (time_ns > m->changed_ns)
        m->changed_ns = time_ns;
    device_refresh(p, d, time_ns);
}

static void sums_change(struct process *p, const struct entry *e, int sign, uint64_t time_ns)
{
    struct row *row = row_at(p, e->row);
    peak_note(p, row);
    if (e->flags & ENTRY_READ)
        row->read_bytes += sign > 0 ? e->bytes : -e->bytes;
    if (sign > 0) {
        row->bytes += e->bytes;
        row->count++;
        if (row->bytes > row->peak_bytes)
            row->peak_bytes = row->bytes;
    } else {
        row->bytes -= e->bytes;
        row->count--;
    }
    if (row->key_b == LEVEL_PHYSICAL)
        physical_change(p, e, (uint16_t)row->key, sign, time_ns);
    else if (row->key_b == LEVEL_HOST)
        p->pub.host_bytes += sign > 0 ? e->bytes : -e->bytes;
}

/* Makes what the sums of a new entry need, so that nothing can fail half way. */
static int sums_prepare(struct ledger *l, struct process *p, const struct entry_spec *s,
                        uint32_t *ret_row)
{
    int r = row_get(p, s->owner, s->device, s->level, ret_row);
    if (r < 0)
        return r;
    if (s->level == LEVEL_PHYSICAL) {
        struct device_use *d = device_get(l, p, s->device);
        if (!d || !module_get(l, d, s->module))
            return -ENOMEM;
    }
    if (s->inferred)
        row_at(p, *ret_row)->inferred = 1;
    return 0;
}

int entry_add(struct ledger *l, struct process *p, const struct entry_spec *s, uint32_t *ret_number)
{
    uint32_t number, row = 0;
    if (s->bytes >= SIZE_LIMIT ||
        (s->is_counted && s->bytes > (uint64_t)TOTAL_LIMIT - l->total_bytes))
        return -EBADMSG;
    if (l->record_count >= l->config.max_entries ||
        (s->is_counted && sums_prepare(l, p, s, &row) < 0) ||
        map_add(&p->entries, s->key, SPACE_KEY(s->space, s->space_device), &number) < 0) {
        l->stats.dropped_entries++;
        return NOT_APPLIED;
    }
    struct entry *e = entry_at(p, number);
    e->bytes = s->bytes;
    e->aux = s->aux;
    e->time_ns = s->time_ns;
    e->caller = s->caller;
    e->row = (uint16_t)row;
    e->api = s->api;
    e->module = s->module;
    e->flags = s->flags;
    e->stack = s->stack;
    l->record_count++;
    if (row) {
        l->stats.live_entries++;
        l->total_bytes += e->bytes;
        sums_change(p, e, 1, s->time_ns);
    }
    if (ret_number)
        *ret_number = number;
    return 0;
}

void entry_drop(struct ledger *l, struct process *p, uint32_t number, uint64_t time_ns)
{
    struct entry *e = entry_at(p, number);
    if (e->row) {
        sums_change(p, e, -1, time_ns);
        l->total_bytes -= e->bytes;
        l->stats.live_entries--;
    }
    l->record_count--;
    map_remove(&p->entries, number);
}

static void row_change(struct process *p, struct entry *e, uint32_t row, uint32_t inferred,
                       uint64_t time_ns)
{
    sums_change(p, e, -1, time_ns);
    e->row = (uint16_t)row;
    row_at(p, row)->inferred |= inferred;
    sums_change(p, e, 1, time_ns);
}

int entry_move(struct ledger *l, struct process *p, uint32_t number, enum ledger_level level,
               uint64_t time_ns)
{
    struct entry *e = entry_at(p, number);
    const struct row *old = row_at(p, e->row);
    uint32_t row, inferred = old->inferred;
    if (row_get(p, (uint32_t)(old->key >> 32), (uint16_t)old->key, level, &row) < 0) {
        entry_drop(l, p, number, time_ns);
        l->stats.dropped_entries++;
        return NOT_APPLIED;
    }
    row_change(p, e, row, inferred, time_ns);
    return 0;
}

int entry_reown(struct ledger *l, struct process *p, uint32_t number, uint32_t owner, bool inferred,
                uint64_t time_ns)
{
    struct entry *e = entry_at(p, number);
    const struct row *old = row_at(p, e->row);
    uint32_t row;
    if (row_get(p, owner, (uint16_t)old->key, (enum ledger_level)old->key_b, &row) < 0)
        return NOT_APPLIED;
    row_change(p, e, row, inferred, time_ns);
    return 0;
}

uint32_t owner_intern(struct ledger *l, const char *name, uint32_t otherwise)
{
    for (uint32_t i = 0; i < l->owner_count; i++)
        if (strcmp(l->owner_names[i], name) == 0)
            return OWNER_ID_COUNT + i;
    if (l->owner_count == OWNER_LIMIT)
        return otherwise;
    if (l->owner_count % 16 == 0) {
        char **names = realloc(l->owner_names, (l->owner_count + 16) * sizeof(*names));
        if (!names)
            return otherwise;
        l->owner_names = names;
        ledger_memory(l, 16 * sizeof(*names));
    }
    char *copy = strdup(name);
    if (!copy)
        return otherwise;
    ledger_memory(l, (int64_t)strlen(copy) + 1);
    l->owner_names[l->owner_count] = copy;
    return OWNER_ID_COUNT + l->owner_count++;
}

uint32_t owner_find(struct ledger *l, const char *name)
{
    for (uint32_t id = 0; id < OWNER_ID_COUNT; id++)
        if (strcmp(owner_fixed_name(id), name) == 0)
            return id;
    return owner_intern(l, name, OWNER_ID_UNKNOWN);
}

const char *ledger_owner_name(const struct ledger *l, uint32_t owner)
{
    if (owner < OWNER_ID_COUNT)
        return owner_fixed_name(owner);
    owner -= OWNER_ID_COUNT;
    return owner < l->owner_count ? l->owner_names[owner] : owner_fixed_name(OWNER_ID_UNKNOWN);
}

const char *caller_library(const struct ledger *l, const struct nm_event *event)
{
    if (!l->config.caller_fn || !event->call.caller)
        return "";
    const char *library = l->config.caller_fn(l->config.userdata, event->tgid, event->call.caller);
    return library ? library : "";
}

struct owner_verdict owner_resolve(struct ledger *l, const struct process *p,
                                   const struct nm_event *event, bool is_host,
                                   const char **ret_library)
{
    const char *library = caller_library(l, event);
    struct owner_verdict v = owner_of_call(event, library, is_host);
    /* Frames outrank the library, not the driver's module or torch_npu's own pools. */
    uint32_t phase = NM_KIND_HAS_PHASE(event->kind) ? event->call.phase : 0;
    uint32_t owner =
        is_host || !owner_is_application(v.id) ? OWNER_UNKNOWN : owner_of_phase(l, phase);
    if (owner != OWNER_UNKNOWN)
        v = (struct owner_verdict){.id = owner, .inferred = phase & NM_PHASE_INFERRED};
    else if (v.by_library) {
        char name[64];
        snprintf(name, sizeof(name), "APP@%.50s", library);
        v.id = owner_intern(l, name, OWNER_ID_APP);
    }
    if (p->named || p->label.owner || l->label.owner)
        named_call(l, p, event, &v);
    if (ret_library)
        *ret_library = library;
    return v;
}
