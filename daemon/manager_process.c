/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager_process.c - what a process that is found, maps, forks, sets its name, calls exec, is
 * scanned or ends means for every module.
 */
#include "ledger_seen.h"
#include "log.h"
#include "manager_internal.h"
#include "methods.h"
#include "scan_feed.h"

/* A scan is repeated after so much time, and so much more with every time. */
#define SCAN_AGAIN_NS 5000000000ull
#define SCAN_PAUSE_MAX_NS 60000000000ull
#define SCAN_TRIES_MAX 4u

const char *manager_on_caller(void *userdata, uint32_t tgid, uint64_t address)
{
    struct manager *m = userdata;
    struct target *t = m->targets ? targets_find(m->targets, tgid) : NULL;

    return t ? target_caller(t, address) : "";
}

/* Reads what the driver says a process holds, to be fed when the ring is drained. A driver that
 * keeps such figures and has none of this process says that it holds nothing from before its probes
 * were live. */
static void read_usage(struct manager *m, struct target *t)
{
    int r = usage_list_read(m->usage, m->config.daemon_svm_dir, t->tgid, manager_boot_ns());

    if (r == 0 && t->late && usage_is_told(m->config.daemon_svm_dir))
        t->late = false;
}

/* Feeds what was read, of one process or of several, once the ring is drained. */
static void feed_usage(struct manager *m)
{
    ring_drain(m->ring);
    usage_list_feed(m->usage, m->ledger);
}

static void settle_late(struct manager *m, struct target *t)
{
    read_usage(m, t);
    feed_usage(m);
}

void manager_usage_refresh(struct manager *m)
{
    bool is_any = false;

    for (struct target *t = targets_first(m->targets); t; t = t->next)
        if (ledger_wants_driver_usage(m->ledger, t->tgid)) {
            read_usage(m, t);
            is_any = true;
        }
    if (is_any)
        feed_usage(m);
}

/* Tells the ledger and the store who everybody is, after any of them changed. */
static void settle_facts(struct manager *m)
{
    uint64_t now = manager_boot_ns();

    targets_settle(m->targets);
    for (struct target *t = targets_first(m->targets); t; t = t->next) {
        if (!t->facts_changed)
            continue;
        t->facts_changed = false;
        servers_note(m->servers, &t->facts);
        ledger_process_update(m->ledger, &t->facts, now);
        store_process(m->store, &t->facts);
    }
}

/* --- scans: what processes held before they were observed --- */

static void scan_ask(struct manager *m, struct target *t)
{
    t->wants_scan = false;
    if (!t->has_workers && scans_request(m->scans, t->tgid, t->facts.start_ticks, false) < 0)
        log_warning("process %u: too many scans wait, what it holds has no names", t->tgid);
}

void manager_scans_ask(struct manager *m)
{
    struct target *t;

    if (!m->has_new_targets || !m->scans)
        return;
    m->has_new_targets = false;
    for (t = targets_first(m->targets); t; t = t->next)
        if (t->wants_scan && t->facts.rank >= 0)
            scan_ask(m, t);
    for (t = targets_first(m->targets); t; t = t->next)
        if (t->wants_scan)
            scan_ask(m, t);
}

static void on_scan_began(void *userdata, uint32_t tgid)
{
    struct manager *m = userdata;

    ring_sync(m->ring);
    ledger_seen_begin(m->ledger, tgid, manager_boot_ns());
    accesses_scan_began(m->accesses, tgid);
}

static void on_scan_ended(void *userdata, uint32_t tgid, const struct scan_result *result,
                          const struct error *error)
{
    struct manager *m = userdata;
    const struct target *t = targets_find(m->targets, tgid);
    bool all = m->config.probes_block_detail == CONFIG_BLOCK_DETAIL_ALL;
    struct scan_feed feed = {
        .tgid = tgid,
        .start_ticks = t ? t->facts.start_ticks : 0,
        .threshold_bytes = all ? 0 : m->config.probes_block_threshold,
        .python = m->python,
    };

    if (result) {
        ring_sync(m->ring);
        int64_t count = scan_feed(m->ledger, &feed, result, manager_boot_ns());
        log_info("process %u: read %lld blocks and %u tensors in %llu ms%s%s", tgid,
                 (long long)count, result->s.tensor_count,
                 (unsigned long long)(result->s.duration_ns / 1000000),
                 result->s.blocks_reason[0] || result->s.names_reason[0] ? ": " : "",
                 result->s.blocks_reason[0] ? result->s.blocks_reason : result->s.names_reason);
    } else {
        log_notice("%s", error->what);
    }
    scan_waiters_answer(m, tgid, result, error);
    accesses_scanned(m->accesses, tgid, result);
}

static void on_pool_ended(void *userdata, uint32_t tgid, const struct kv_pool *pool,
                          const struct error *error)
{
    struct manager *m = userdata;

    kv_watch_found(m->kv, tgid, pool, error);
}

const struct scans_handler manager_scans_handler = {
    .began = on_scan_began, .ended = on_scan_ended, .pool_ended = on_pool_ended};

static void on_added(void *userdata, struct target *t)
{
    struct manager *m = userdata;

    servers_note(m->servers, &t->facts);
    ledger_process_update(m->ledger, &t->facts, t->first_seen_ns);
    settle_late(m, t);
    store_process(m->store, &t->facts);
    store_phases_restore(m->store, m->ledger, &t->facts);
    settle_facts(m);
    t->wants_scan = t->late;
    m->has_new_targets = true;
    log_info("process %u (%s)%s%s: observed%s", t->tgid, t->facts.comm,
             t->facts.title[0] ? " " : "", t->facts.title, t->late ? ", attached late" : "");
}

static void on_exited(void *userdata, struct target *t)
{
    struct manager *m = userdata;
    uint64_t now = manager_boot_ns();

    /* what it did until the end is in the ring already */
    ring_sync(m->ring);
    oom_log_exit(m->oom, t->tgid);
    recorder_exit(m->recorder, t->tgid);
    method_label_forget(m, t->tgid);
    accesses_exit(m->accesses, t->tgid);
    kv_watch_exit(m->kv, t->tgid);
    store_process_final(m->store, m->ledger, t->tgid, now, true);
    ledger_process_exit(m->ledger, t->tgid, t->facts.start_ticks, now);
    ring_forget(m->ring, t->tgid);
    if (m->scans)
        scans_forget(m->scans, t->tgid);
    python_forget(m->python, t->tgid);
    if (t->excluded)
        probe_set_exclude(m->probes, t->tgid, false);
    log_info("process %u (%s): exited", t->tgid, t->facts.comm);
}

static void on_maps(void *userdata, uint32_t tgid, const char *maps, size_t bytes)
{
    struct manager *m = userdata;

    python_look(m->python, tgid, maps, bytes);
}

const struct targets_handler manager_targets_handler = {
    .exited = on_exited, .added = on_added, .mapped = on_maps};

static void on_mapped(void *userdata, uint32_t tgid)
{
    struct manager *m = userdata;
    struct error error;
    int r = targets_scan(m->targets, tgid, SCAN_RECORD, &error);

    if (r < 0 && r != -ESRCH)
        log_warning("%s", error.what);
    if (r > 0)
        settle_late(m, targets_find(m->targets, tgid));
}

static void on_forked(void *userdata, uint32_t tgid, uint32_t parent)
{
    struct manager *m = userdata;

    if (targets_find(m->targets, parent))
        on_mapped(m, tgid);
}

static void on_renamed(void *userdata, uint32_t tgid)
{
    struct manager *m = userdata;
    struct target *t = targets_find(m->targets, tgid);

    if (t && target_refresh(t) > 0)
        settle_facts(m);
}

/* What it did before exec is in the ring already; the driver takes back what it held. */
static void on_executed(void *userdata, uint32_t tgid, uint64_t time_ns)
{
    struct manager *m = userdata;
    struct target *t = targets_find(m->targets, tgid);

    if (!t || t->first_seen_ns > time_ns)
        return; /* found by a scan, after its fork or of /proc: it is the new program's already */
    ring_sync(m->ring);
    recorder_exit(m->recorder, tgid);
    method_label_forget(m, tgid);
    accesses_exit(m->accesses, tgid);
    kv_watch_exit(m->kv, tgid);
    ledger_process_exec(m->ledger, tgid, time_ns);
    ring_forget(m->ring, tgid);
    python_forget(m->python, tgid);
    target_forget_mappings(m->targets, t);
    on_mapped(m, tgid);
    log_info("process %u (%s): runs another program now", tgid, t->facts.comm);
}

static void on_records_lost(void *userdata)
{
    struct manager *m = userdata;

    log_notice("records of new processes were lost, looking at all processes again");
    targets_scan_all(m->targets);
}

const struct discovery_handler manager_discovery_handler = {
    .mapped = on_mapped,
    .forked = on_forked,
    .renamed = on_renamed,
    .executed = on_executed,
    .lost = on_records_lost,
};

void manager_processes_refresh(struct manager *m)
{
    if (targets_refresh(m->targets))
        settle_facts(m);
    for (struct target *t = targets_first(m->targets); t; t = t->next)
        read_usage(m, t);
}

/* Read blocks that went without an event of their own make the sums disagree; a scan that was cut,
 * as on a busy host, or whose blocks changed meanwhile may get further next time. */
void manager_scans_refresh(struct manager *m)
{
    uint64_t now = manager_boot_ns(), then;

    for (struct target *t = targets_first(m->targets); m->scans && t; t = t->next) {
        const struct scan_result *r = scans_result(m->scans, t->tgid, &then);
        unsigned count = scans_count(m->scans, t->tgid);
        uint64_t pause = SCAN_AGAIN_NS * count;
        if (!r || now - then < (pause < SCAN_PAUSE_MAX_NS ? pause : SCAN_PAUSE_MAX_NS))
            continue;
        bool is_incomplete = (r->s.is_cut || r->s.is_torn) && count < SCAN_TRIES_MAX;
        uint64_t stale = r->s.has_blocks ? scan_stale_bytes(m->ledger, t->tgid) : 0;
        t->stale_looks = stale ? t->stale_looks + 1 : 0;
        if (is_incomplete || stale >= SCAN_STALE_BYTES || t->stale_looks >= SCAN_STALE_LOOKS)
            scans_request(m->scans, t->tgid, t->facts.start_ticks, false);
    }
}
