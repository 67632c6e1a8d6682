/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_breakdown.c - owners, gaps and sum checks per rank, and the sum against each card.
 *
 * Owns: the names of the gaps between two levels, and what "balanced" means.
 * Must not: add levels; turn an unknown into a number.
 * Invariants: with a card figure, attributed + other processes + driver side + unattributed = used.
 */
#include "owner.h"
#include "view_rows.h"

/* Devices of one host: ids that visible_devices of the ledger can name. */
#define MAX_DEVICES 64

struct owners {
    const struct ledger *ledger;
    const struct view_row *row;
    struct json *json;
    struct ledger_owner_total held; /* not written yet: the next row may be of the same owner */
    bool holds, merged;
    uint64_t physical_bytes, block_bytes;
};

/* How what an owner holds is known. Both: "event+read". */
static const char *source_name(const struct ledger_owner_total *t)
{
    if (t->owner == OWNER_ID_BEFORE_ATTACH)
        return "total"; /* of its blocks only the sum */
    if (t->read_bytes == LEDGER_READ_UNKNOWN)
        return NULL;
    return !t->read_bytes ? "event" : t->read_bytes < t->bytes ? "event+read" : "read";
}

static void write_held(struct owners *o)
{
    const struct ledger_owner_total *t = &o->held;
    struct json *j = o->json;
    /* what was held before attach has a size, but nobody saw its blocks or its peak */
    bool seen = t->owner != OWNER_ID_BEFORE_ATTACH;

    if (!o->holds)
        return;
    json_object(j);
    json_kstr(j, "owner", ledger_owner_name(o->ledger, t->owner));
    json_kstr(j, "level", level_name(t->level));
    json_ku64(j, "bytes", t->bytes);
    json_ki64_or_null(j, "blocks", seen, (int64_t)t->count);
    /* two peaks at two times are not one */
    json_ki64_or_null(j, "peak_bytes", seen && !o->merged && t->owner != OWNER_ID_PTA_SMALL,
                      (int64_t)t->peak_bytes);
    json_kbool(j, "inferred", t->inferred);
    json_kstr(j, "source", source_name(t));
    json_ki64_or_null(j, "read_bytes", t->read_bytes != LEDGER_READ_UNKNOWN,
                      (int64_t)t->read_bytes);
    json_end(j);
    o->holds = o->merged = false;
}

/* The ledger's rows come ordered by device, level and owner. Two pools of one device (caching,
 * workspace) may each have a row of one owner; the document has one. */
static int on_owner(void *userdata, const struct ledger_owner_total *t)
{
    struct owners *o = userdata;

    /* a phase that came and went keeps its row: that it was there, and its peak */
    if (!view_row_has(o->row, t->level, t->device) ||
        (t->bytes == 0 && t->count == 0 && !t->is_phase))
        return 0;
    if (t->level == LEVEL_PHYSICAL)
        o->physical_bytes += t->bytes;
    if (t->level == LEVEL_BLOCK)
        o->block_bytes += t->bytes;
    if (o->holds && o->held.owner == t->owner && o->held.level == t->level) {
        o->held.bytes += t->bytes;
        o->held.count += t->count;
        o->held.inferred |= t->inferred;
        ledger_read_add(&o->held.read_bytes, t->read_bytes);
        o->merged = true;
        return 0;
    }
    write_held(o);
    o->held = *t;
    o->holds = true;
    return 0;
}

/* One named difference. reason NULL: the number is known. */
static void write_gap(struct json *j, const char *name, const char *level, int64_t bytes,
                      const char *reason)
{
    json_object(j);
    json_kstr(j, "name", name);
    json_kstr(j, "level", level);
    json_ki64_or_null(j, "bytes", reason == NULL, bytes);
    if (reason)
        json_kstr(j, "reason", reason);
    json_end(j);
}

static bool driver_known(const struct view_row *row)
{
    return row->has_use && row->use.driver_bytes != UINT64_MAX;
}

/* What the driver counts for the process beyond what its calls asked for. */
static uint64_t driver_side_bytes(const struct view_row *row)
{
    if (!driver_known(row) || row->use.driver_bytes <= row->use.physical_bytes)
        return 0;
    return row->use.driver_bytes - row->use.physical_bytes;
}

static void write_gaps(const struct view_context *c, const struct view_row *row, struct json *j)
{
    struct view_pool_sum p = view_row_pools(row);
    const char *no_pool = row->pool_count ? NULL : view_reason_no_pool;
    const char *no_physical = row->physical_known ? NULL : view_reason_late;
    const char *no_driver = driver_known(row)                  ? NULL
                            : c->moment.when == LEDGER_AT_PEAK ? view_reason_peak
                                                               : view_reason_no_driver;
    int64_t outside = (int64_t)row->use.physical_bytes - p.reserved_bytes;
    uint64_t held = row->use.physical_bytes, driver = row->use.driver_bytes;

    json_karray(j, "gaps");
    write_gap(j, "pool_slack", "reserved", p.reserved_bytes - p.active_bytes, no_pool);
    write_gap(j, "stream_delayed", "active", p.active_bytes - p.allocated_bytes, no_pool);
    write_gap(j, "before_attach_blocks", "allocated", p.before_attach_bytes, no_pool);
    write_gap(j, "before_attach", "physical", (int64_t)row->use.before_attach_bytes, no_physical);
    write_gap(j, "outside_pools", "physical", outside,
              no_pool       ? no_pool
              : no_physical ? no_physical
              : outside < 0 ? "the pools have addresses without memory (sleep mode)"
                            : NULL);
    write_gap(j, "unmapped", "reserved", outside < 0 ? -outside : 0,
              no_pool ? no_pool : no_physical);
    write_gap(j, "driver_side", "driver", (int64_t)driver_side_bytes(row), no_driver);
    /* Frees that were lost leave memory in the ledger that the driver no longer counts. Without a
     * lost event there is none, however old the driver's figure is. */
    write_gap(j, "lost", "physical",
              !c->lost_events || no_driver || held <= driver ? 0 : (int64_t)(held - driver),
              no_driver && c->lost_events ? "events were lost and the driver gives no figure to "
                                            "compare with"
                                          : NULL);
    json_end(j);
}

static void write_pools(const struct view_row *row, struct json *j)
{
    json_karray(j, "pools");
    for (size_t i = 0; i < row->pool_count; i++) {
        const struct view_pool *p = &row->pools[i];
        json_object(j);
        json_kstr(j, "component",
                  p->component == NM_BLOCK_CACHING     ? "caching"
                  : p->component == NM_BLOCK_WORKSPACE ? "workspace"
                                                       : "other");
        json_ku64(j, "visible_device", p->torch_device);
        json_ki64(j, "reserved_bytes", p->reserved_bytes);
        json_ki64(j, "allocated_bytes", p->allocated_bytes);
        json_ki64(j, "active_bytes", p->active_bytes);
        json_ki64(j, "small_bytes", p->small_bytes);
        json_ki64(j, "before_attach_bytes", p->before_attach_bytes);
        json_end(j);
    }
    json_end(j);
}

static void write_check(struct json *j, const char *level, uint64_t sum, int64_t total,
                        const char *reason)
{
    int64_t difference = total - (int64_t)sum;

    json_object(j);
    json_kstr(j, "level", level);
    json_ku64(j, "owners_bytes", sum);
    json_ki64_or_null(j, "total_bytes", reason == NULL, total);
    json_ki64_or_null(j, "difference_bytes", reason == NULL, difference);
    json_key(j, "balanced");
    if (reason)
        json_null(j);
    else
        json_bool(j, difference == 0);
    if (reason)
        json_kstr(j, "reason", reason);
    json_end(j);
}

static int write_atb_one(void *userdata, const struct view_atb *a)
{
    struct json *j = userdata;

    json_object(j);
    json_kstr(j, "operation", a->operation[0] ? a->operation : NULL);
    json_ku64(j, "objects", a->objects);
    json_ku64(j, "setup_count", a->setup_count);
    json_ku64(j, "execute_count", a->execute_count);
    json_ku64(j, "workspace_max_bytes", a->workspace_max_bytes);
    json_end(j);
    return 0;
}

/* Labels, not owners: the workspace is in PTA_WORKSPACE, or wherever the caller took it from. */
static int write_atb(const struct view_context *c, const struct view_row *row, struct json *j)
{
    int r = 0;

    json_karray(j, "atb_operations");
    if (row->main && row->alive && c->atb_fn)
        r = c->atb_fn(c->userdata, row->facts.tgid, write_atb_one, j);
    json_end(j);
    return r;
}

static int write_rank(const struct ledger *l, const struct view_context *c,
                      const struct view_row *row, struct json *j)
{
    struct owners o = {.ledger = l, .row = row, .json = j};
    int r = 0;

    json_object(j);
    view_row_write(c, row, j);
    r = view_comms_write(l, c, row, j);
    json_karray(j, "owners");
    if (row->alive && r == 0)
        r = ledger_each_owner_when(l, row->facts.tgid, c->moment.when, on_owner, &o);
    write_held(&o);
    json_end(j);
    write_gaps(c, row, j);
    write_pools(row, j);
    if (r == 0)
        r = write_atb(c, row, j);
    json_karray(j, "checks");
    write_check(j, level_name(LEVEL_PHYSICAL), o.physical_bytes, (int64_t)row->use.physical_bytes,
                row->physical_known ? NULL : view_reason_late);
    write_check(j, level_name(LEVEL_BLOCK), o.block_bytes, view_row_pools(row).allocated_bytes,
                row->pool_count ? NULL : view_reason_no_pool);
    json_end(j);
    json_end(j);
    return r;
}

struct device_sum {
    bool present, has_selected, has_driver, partly_seen;
    uint64_t attributed_bytes, driver_side_bytes, other_bytes;
};

static void add_device_row(struct device_sum *d, const struct view_row *row)
{
    d->present = true;
    if (row->selected) {
        d->has_selected = true;
        d->attributed_bytes += row->use.physical_bytes;
        d->driver_side_bytes += driver_side_bytes(row);
        d->has_driver |= driver_known(row);
        d->partly_seen |= !row->physical_known;
    } else {
        d->other_bytes += row->use.physical_bytes + driver_side_bytes(row);
    }
}

static void write_device(const struct ledger *l, const struct view_context *c, int device,
                         const struct device_sum *d, struct json *j)
{
    uint64_t total = 0, used = 0, other = 0;
    bool card = ledger_card(l, (uint16_t)device, &total, &used);
    bool other_known =
        !c->other_bytes_fn || c->other_bytes_fn(c->userdata, (uint16_t)device, &other);
    if (!other_known)
        other = 0;
    other += d->other_bytes;
    int64_t rest = (int64_t)(used - d->attributed_bytes - d->driver_side_bytes - other);

    json_object(j);
    json_ku64(j, "device", (uint64_t)device);
    json_ki64_or_null(j, "total_bytes", card, (int64_t)total);
    json_ki64_or_null(j, "used_bytes", card, (int64_t)used);
    json_ku64(j, "attributed_bytes", d->attributed_bytes);
    json_ki64_or_null(j, "other_processes_bytes", other_known, (int64_t)other);
    json_ki64_or_null(j, "driver_side_bytes", d->has_driver, (int64_t)d->driver_side_bytes);
    json_ki64_or_null(j, "unattributed_bytes", card, rest);
    json_key(j, "balanced");
    if (card)
        json_bool(j, rest >= 0);
    else
        json_null(j);
    json_kobject(j, "unknown");
    if (!card)
        json_kstr(j, "used_bytes",
                  c->moment.at_ns ? "the card's own figure is not kept with the samples"
                                  : "the driver gives no figure of this card");
    if (!other_known)
        json_kstr(j, "other_processes_bytes",
                  "the driver does not say what other processes hold: it is in unattributed_bytes");
    if (!d->has_driver)
        json_kstr(j, "driver_side_bytes", view_reason_no_driver);
    if (d->partly_seen)
        json_kstr(j, "attributed_bytes",
                  "a process was attached late: what it held before is in unattributed_bytes");
    json_end(j);
    json_end(j);
}

static void write_devices(const struct ledger *l, const struct view_context *c,
                          const struct view_rows *rows, struct json *j)
{
    struct device_sum devices[MAX_DEVICES] = {0};
    bool filtered = c->tgid_count || c->rank_count || c->container_count;

    for (size_t i = 0; i < rows->count; i++) {
        const struct view_row *row = &rows->items[i];
        if (row->alive && row->device >= 0 && row->device < MAX_DEVICES)
            add_device_row(&devices[row->device], row);
    }
    json_karray(j, "devices");
    /* the peaks of several processes are at several times: no sum of a card contains them */
    for (int device = c->moment.when == LEDGER_AT_PEAK ? MAX_DEVICES : 0; device < MAX_DEVICES;
         device++) {
        const struct device_sum *d = &devices[device];
        uint64_t total, used;

        if (!view_filter_device(c, device) || (filtered && !d->has_selected))
            continue;
        if (d->present || ledger_card(l, (uint16_t)device, &total, &used))
            write_device(l, c, device, d, j);
    }
    json_end(j);
}

int view_breakdown(const struct ledger *l, const struct view_context *c, struct json *j)
{
    struct view_rows rows;
    int r = view_rows_collect(l, c, &rows);

    if (r < 0)
        return r;
    json_object(j);
    view_header(c, j);
    view_moment_write(c, j);
    json_karray(j, "ranks");
    for (size_t i = 0; i < rows.count && r == 0; i++) {
        if (rows.items[i].selected)
            r = write_rank(l, c, &rows.items[i], j);
    }
    json_end(j);
    write_devices(l, c, &rows, j);
    json_end(j);
    view_rows_done(&rows);
    return r ? r : j->error;
}
