/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_status.c - the document of `status`: the manager's own figures beside the ledger's counters.
 *
 * Must not: measure anything; every figure comes in.
 */
#include "view_rows.h"

static void known_or_null(struct json *j, const char *key, uint64_t value)
{
    json_ku64_or_null(j, key, value != UINT64_MAX, value);
}

static void write_targets(const struct ledger *l, const struct view_context *c,
                          const struct view_status_input *in, struct json *j)
{
    json_karray(j, "targets");
    for (size_t i = 0; i < in->target_count; i++) {
        const struct view_target *t = &in->targets[i];
        const struct ledger_process *p = ledger_find_process(l, t->tgid);
        struct process_facts only_tgid = {.tgid = t->tgid, .rank = -1};

        if (!view_filter_process(c, p ? &p->facts : &only_tgid))
            continue;
        json_object(j);
        json_ku64(j, "tgid", t->tgid);
        json_ki64_or_null(j, "rank", p && p->facts.rank >= 0, p ? p->facts.rank : 0);
        json_kstr(j, "state", t->state);
        json_kstr(j, "level", t->level);
        json_kstr(j, "coverage", t->coverage);
        json_kstr(j, "reason", t->reason);
        json_kdouble_or_null(j, "overhead_ratio", t->overhead_ratio >= 0, t->overhead_ratio);
        json_kstr(j, "blocks_read", t->blocks_read);
        json_kstr(j, "blocks_reason", t->blocks_reason);
        json_kstr(j, "names_read", t->names_read);
        json_kstr(j, "names_reason", t->names_reason);
        json_end(j);
    }
    json_end(j);
}

struct drift {
    const struct process_facts *facts;
    struct json *json;
};

static int write_drift_device(void *userdata, const struct ledger_device_use *use)
{
    struct drift *d = userdata;
    struct json *j = d->json;

    if (use->driver_bytes == UINT64_MAX)
        return 0;
    json_object(j);
    json_ku64(j, "tgid", d->facts->tgid);
    json_kindex(j, "rank", d->facts->rank);
    json_ku64(j, "device", use->device);
    json_ku64(j, "driver_bytes", use->driver_bytes);
    json_ku64(j, "ledger_bytes", use->physical_bytes);
    json_ki64(j, "drift_bytes", (int64_t)(use->driver_bytes - use->physical_bytes));
    json_end(j);
    return 0;
}

/* The ledger against the driver's newest figures, per process and device. */
static void write_drift(const struct ledger *l, const struct view_context *c,
                        const struct view_status_input *in, struct json *j)
{
    json_karray(j, "reconciliation");
    for (size_t i = 0; i < in->target_count; i++) {
        const struct ledger_process *p = ledger_find_process(l, in->targets[i].tgid);
        struct drift d = {.facts = p ? &p->facts : NULL, .json = j};
        if (p && p->alive && view_filter_process(c, &p->facts))
            ledger_each_device(l, p->facts.tgid, write_drift_device, &d);
    }
    json_end(j);
}

/* attempted = received + lost once the ring is drained; the others are why a fact may be missing.
 */
static void write_kernel_counters(const struct nm_cpu_counters *k, struct json *j)
{
    json_ku64(j, "attempted", k->attempted);
    json_ku64(j, "read_failed", k->read_failed);
    json_ku64(j, "stale_calls", k->stale_calls);
    json_ku64(j, "map_full", k->map_full);
}

static void write_events(const struct ledger *l, const struct view_context *c,
                         const struct view_status_input *in, struct json *j)
{
    const struct ledger_stats *s = ledger_stats(l);

    json_kobject(j, "events");
    json_ku64(j, "received", s->events);
    json_ku64(j, "lost", c->lost_events);
    json_ku64(j, "decode_errors", s->decode_errors);
    json_ku64(j, "unmatched_frees", s->unmatched_frees);
    json_ku64(j, "failed_frees", s->failed_frees);
    json_ku64(j, "late_frees", s->late_frees);
    json_ku64(j, "duplicate_allocs", s->duplicate_allocs);
    json_ku64(j, "sequence_gaps", s->sequence_gaps);
    if (in->counters)
        write_kernel_counters(in->counters, j);
    json_end(j);
    json_kobject(j, "ledger");
    json_ku64(j, "live_entries", s->live_entries);
    json_ku64(j, "memory_bytes", s->memory_bytes);
    json_end(j);
}

struct labels {
    const struct ledger *ledger;
    const struct view_context *context;
    struct json *json;
};

static int write_label(void *userdata, uint32_t tgid, uint32_t owner, uint64_t begin_ns)
{
    struct labels *s = userdata;
    struct json *j = s->json;

    json_object(j);
    json_kstr(j, "owner", ledger_owner_name(s->ledger, owner));
    json_ki64_or_null(j, "tgid", tgid != 0, tgid);
    json_ku64(j, "begin_ns", view_wall_ns(s->context, begin_ns));
    json_end(j);
    return 0;
}

/* What the user calls what is allocated now (mark --begin); tgid null: of every process. */
static void write_labels(const struct ledger *l, const struct view_context *c, struct json *j)
{
    struct labels s = {.ledger = l, .context = c, .json = j};

    json_karray(j, "labels");
    ledger_each_label(l, write_label, &s);
    json_end(j);
}

int view_status(const struct ledger *l, const struct view_context *c,
                const struct view_status_input *in, struct json *j)
{
    json_object(j);
    view_header(c, j);
    json_kobject(j, "daemon");
    json_kstr(j, "version", in->version);
    json_ku64(j, "uptime_ns", in->uptime_ns);
    known_or_null(j, "rss_bytes", in->rss_bytes);
    json_ku64(j, "cpu_ns", in->cpu_ns);
    json_end(j);
    json_kstr(j, "kernel", in->kernel);
    json_karray(j, "probes");
    for (size_t i = 0; i < in->probe_count; i++) {
        const struct view_probe *p = &in->probes[i];
        json_object(j);
        json_kstr(j, "library", p->library);
        json_kstr(j, "symbol", p->symbol);
        json_kstr(j, "kind", p->kind);
        json_kstr(j, "state", p->state);
        known_or_null(j, "hits", p->hits);
        known_or_null(j, "cost_ns", p->cost_ns);
        json_end(j);
    }
    json_end(j);
    write_targets(l, c, in, j);
    write_drift(l, c, in, j);
    write_labels(l, c, j);
    write_events(l, c, in, j);
    json_kobject(j, "store");
    known_or_null(j, "bytes", in->store_bytes);
    known_or_null(j, "oldest_ns", in->store_oldest_ns);
    json_end(j);
    json_end(j);
    return j->error;
}
