/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager.c - start, stop and the wiring between modules; see manager.h.
 *
 * Order at start: programs, ledger, ring, store; then the records of new processes, and only then
 * the scan of /proc, so that no process falls between; the socket last. At the end the reverse.
 */
#include "manager.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <systemd/sd-daemon.h>

#include <unistd.h>

#include "clock.h"
#include "driver_usage.h"
#include "ledger_seen.h"
#include "log.h"
#include "methods.h"
#include "procfs.h"
#include "scan_feed.h"

#define MAINTAIN_NS 1000000000ull
/* A scan is repeated after so much time, and so much more with every time. */
#define SCAN_AGAIN_NS 5000000000ull
#define SCAN_PAUSE_MAX_NS 60000000000ull
#define SCAN_TRIES_MAX 4u

uint64_t manager_boot_ns(void)
{
    return clock_ns(CLOCK_BOOTTIME);
}

uint64_t manager_wall_ns(void)
{
    return clock_ns(CLOCK_REALTIME);
}

/* --- from the ledger --- */

static const char *on_caller(void *userdata, uint32_t tgid, uint64_t address)
{
    struct manager *m = userdata;
    struct target *t = m->targets ? targets_find(m->targets, tgid) : NULL;

    return t ? target_caller(t, address) : "";
}

static void on_notice(void *userdata, const struct ledger_notice *notice)
{
    struct manager *m = userdata;
    struct manager_notice *n;

    if (notice->kind == NOTICE_OOM && notice->event)
        oom_log_failure(m->oom, notice->event);
    if (m->notice_count == MANAGER_NOTICES_MAX) {
        m->notices_dropped++;
        return;
    }
    n = &m->notices[m->notice_count++];
    n->notice = *notice;
    n->has_event = notice->event;
    if (notice->event)
        n->event = *notice->event;
    n->notice.event = NULL;
}

static void notices_write(struct manager *m)
{
    static const enum store_event_kind kinds[] = {
        [NOTICE_PROCESS] = STORE_EVENT_PROCESS, [NOTICE_EXIT] = STORE_EVENT_EXIT,
        [NOTICE_OOM] = STORE_EVENT_FAILED_CALL, [NOTICE_COMM] = STORE_EVENT_COMMUNICATOR,
        [NOTICE_LOSS] = STORE_EVENT_LOSS,
    };

    for (size_t i = 0; i < m->notice_count; i++) {
        const struct manager_notice *n = &m->notices[i];
        struct store_event e = {
            .kind = kinds[n->notice.kind],
            .time_ns = n->notice.time_ns,
            .tgid = n->notice.tgid,
            .event = n->has_event ? &n->event : NULL,
        };
        if (n->notice.kind == NOTICE_OOM)
            log_notice("process %u: a device allocation of %llu bytes failed with %d", e.tgid,
                       (unsigned long long)n->event.call.requested, n->event.result);
        store_event(m->store, &e);
    }
    m->notice_count = 0;
}

static int on_post(sd_event_source *source, void *userdata)
{
    struct manager *m = userdata;

    notices_write(m);
    oom_log_turn(m->oom);
    streams_flush(m);
    return 0;
}

/* --- processes --- */

/* Reads what the driver says a process holds, to be fed when the ring is drained. A driver that
 * keeps such figures and has none of this process says that it holds nothing from before its probes
 * were live. */
static void read_usage(struct manager *m, struct target *t)
{
    int r = usage_list_read(m->usage, m->config.daemon_svm_dir, t->tgid, manager_boot_ns());

    if (r == 0 && t->late && usage_is_told(m->config.daemon_svm_dir))
        t->late = false;
}

static void settle_late(struct manager *m, struct target *t)
{
    read_usage(m, t);
    ring_drain(m->ring);
    usage_list_feed(m->usage, m->ledger);
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

static void scan_ask(struct manager *m, const struct target *t)
{
    if (m->scans && t->late && !t->has_workers &&
        scans_request(m->scans, t->tgid, t->facts.start_ticks, false) < 0)
        log_warning("process %u: too many scans wait, what it holds has no names", t->tgid);
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

static const struct scans_handler scans_handler = {.began = on_scan_began, .ended = on_scan_ended};

/* Read blocks that went without an event of their own make the sums disagree; a scan that was cut,
 * as on a busy host, may get further next time. */
static void scans_refresh(struct manager *m)
{
    uint64_t now = manager_boot_ns(), then;

    for (struct target *t = targets_first(m->targets); m->scans && t; t = t->next) {
        const struct scan_result *r = scans_result(m->scans, t->tgid, &then);
        unsigned count = scans_count(m->scans, t->tgid);
        uint64_t pause = SCAN_AGAIN_NS * count;
        if (!r || now - then < (pause < SCAN_PAUSE_MAX_NS ? pause : SCAN_PAUSE_MAX_NS))
            continue;
        bool is_incomplete = (r->s.is_cut || !r->s.has_blocks) && count < SCAN_TRIES_MAX;
        uint64_t stale = r->s.has_blocks ? scan_stale_bytes(m->ledger, t->tgid) : 0;
        t->stale_looks = stale ? t->stale_looks + 1 : 0;
        if (is_incomplete || stale >= SCAN_STALE_BYTES || t->stale_looks >= SCAN_STALE_LOOKS)
            scans_request(m->scans, t->tgid, t->facts.start_ticks, false);
    }
}

static void on_added(void *userdata, struct target *t)
{
    struct manager *m = userdata;

    servers_note(m->servers, &t->facts);
    ledger_process_update(m->ledger, &t->facts, t->first_seen_ns);
    settle_late(m, t);
    store_process(m->store, &t->facts);
    settle_facts(m);
    scan_ask(m, t);
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

static const struct targets_handler targets_handler = {
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

static const struct discovery_handler discovery_handler = {
    .mapped = on_mapped,
    .forked = on_forked,
    .renamed = on_renamed,
    .executed = on_executed,
    .lost = on_records_lost,
};

/* --- keeping up --- */

static void refresh_targets(struct manager *m)
{
    if (targets_refresh(m->targets))
        settle_facts(m);
    for (struct target *t = targets_first(m->targets); t; t = t->next)
        read_usage(m, t);
}

/* The driver's figures are read before the ring is drained, and fed after it. */
void manager_sync(struct manager *m)
{
    discovery_drain(m->discovery);
    refresh_targets(m);
    ring_sync(m->ring);
    usage_list_feed(m->usage, m->ledger);
}

void manager_sync_cards(struct manager *m)
{
    card_usage_update(m->cards, m->ledger, manager_boot_ns());
    manager_sync(m);
}

static int rearm(sd_event_source *source, uint64_t ns)
{
    sd_event_source_set_time_relative(source, ns / 1000);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static int on_checkpoint(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct manager *m = userdata;

    ring_sync(m->ring);
    store_checkpoint(m->store, m->ledger);
    return rearm(source, m->config.store_checkpoint_interval);
}

static int on_sample(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct manager *m = userdata;

    manager_sync(m);
    store_sample(m->store, m->ledger, manager_boot_ns());
    return rearm(source, m->config.store_sample_interval);
}

static int on_maintain(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct manager *m = userdata;

    python_maintain(m->python);
    store_maintain(m->store);
    recorder_maintain(m->recorder);
    scans_refresh(m);
    return rearm(source, MAINTAIN_NS);
}

static int on_sighup(sd_event_source *source, const struct signalfd_siginfo *si, void *userdata)
{
    struct manager *m = userdata;
    struct config config;
    struct error error;

    config_init(&config);
    if (config_read_dir(&config, m->paths.config_dir, &error) < 0) {
        log_error_detail(LOG_ERR, EINVAL, &error);
        return 0;
    }
    m->config.probes_block_detail = config.probes_block_detail;
    m->config.probes_block_threshold = config.probes_block_threshold;
    m->config.daemon_log_level = config.daemon_log_level;
    log_set_level(config_log_level(&config));
    probe_set_block_detail(
        m->probes, config.probes_block_detail != CONFIG_BLOCK_DETAIL_OFF,
        config.probes_block_detail == CONFIG_BLOCK_DETAIL_ALL ? 0 : config.probes_block_threshold);
    log_info("log level and block detail read again; the rest takes a restart");
    return 0;
}

/* --- start and stop --- */

static int open_kernel_side(struct manager *m, struct error *reterr)
{
    struct probe_set_config probes = {
        .ring_bytes = m->config.probes_ring_bytes,
        .block_enabled = m->config.probes_block_detail != CONFIG_BLOCK_DETAIL_OFF,
        .block_threshold_bytes = m->config.probes_block_detail == CONFIG_BLOCK_DETAIL_ALL
                                     ? 0
                                     : m->config.probes_block_threshold,
        .stack_threshold_bytes = m->config.probes_stack_threshold,
        .python_enabled = m->config.probes_python_frames,
        .mode = m->link_mode,
    };
    struct ledger_config ledger = {
        .caller_fn = on_caller,
        .notice_fn = on_notice,
        .userdata = m,
        .max_processes = m->config.probes_max_processes,
    };
    int r;

    r = probe_set_new(&probes, &m->probes, reterr);
    if (r == 0)
        r = phase_table_new(&m->phases);
    if (r == 0) {
        python_phases_read(m->phases, m->paths.config_dir);
        ledger.phases = m->phases;
        r = python_new(m->probes, m->phases, &m->python);
    }
    if (r == 0)
        r = ledger_new(&ledger, &m->ledger);
    if (r == 0)
        r = usage_list_new(&m->usage);
    if (r == 0)
        r = card_usage_new(m->config.daemon_dcmi_library, &m->cards);
    if (r == 0)
        r = attach_new(m->probes, &m->attach);
    if (r == 0)
        r = targets_new(m->event, m->attach, &targets_handler, m, &m->targets);
    if (r == 0)
        r = ring_new(m->event, m->probes, m->ledger, m->config.probes_poll_interval, &m->ring,
                     reterr);
    if (r == 0)
        ring_set_python(m->ring, m->python);
    return r;
}

static int check_open_process(void *userdata, uint32_t tgid, uint32_t start_ticks,
                              uint64_t last_wall_ns)
{
    struct process_facts *list = userdata;
    struct process_facts facts;

    /* list[0].tgid counts the entries that follow */
    if (list[0].tgid == 4096)
        return 1;
    if (procfs_facts(tgid, NULL, NULL, &facts) == 0 && facts.start_ticks == start_ticks)
        return 0;
    list[++list[0].tgid].tgid = tgid;
    list[list[0].tgid].start_ticks = start_ticks;
    return 0;
}

/* Processes that ended while no daemon looked are closed in the store. */
static void close_vanished(struct manager *m)
{
    struct process_facts *gone = calloc(4097, sizeof(*gone));

    if (!gone)
        return;
    store_each_open_process(m->store, check_open_process, gone);
    for (uint32_t i = 1; i <= gone[0].tgid; i++)
        store_process_vanished(m->store, gone[i].tgid, gone[i].start_ticks);
    free(gone);
}

static bool host_bytes(uint32_t tgid, uint64_t *ret_resident_bytes, uint64_t *ret_shared_bytes)
{
    return procfs_resident(tgid, ret_resident_bytes, ret_shared_bytes) == 0;
}

static int open_store(struct manager *m, struct error *reterr)
{
    struct store_options options = {
        .max_bytes = m->config.store_max_bytes,
        .max_age_ns = m->config.store_max_age,
        .host_fn = host_bytes,
    };
    char path[512];
    int r;

    if (!m->config.store_enabled)
        return 0;
    snprintf(path, sizeof(path), "%s/store.db", m->paths.state_dir);
    r = store_open(path, &options, &m->store, reterr);
    if (r == 0)
        close_vanished(m);
    return r;
}

static int open_api(struct manager *m, struct error *reterr)
{
    struct api_options options = {
        .methods = manager_methods,
        .method_count = manager_method_count,
        .userdata = m,
        .group = m->config.control_socket_group,
        .max_connections = m->config.control_max_connections,
        .max_request_bytes = m->config.control_max_request_bytes,
        .max_output_bytes = 256u << 20,
    };
    char path[512];

    snprintf(path, sizeof(path), "%s/control.sock", m->paths.runtime_dir);
    return api_new(m->event, path, &options, &m->api, reterr);
}

static int open_scans(struct manager *m)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/roots.d", m->paths.config_dir);
    return scans_new(m->event, path, &scans_handler, m, &m->scans);
}

static int add_sources(struct manager *m)
{
    struct {
        sd_event_source **source;
        uint64_t ns;
        sd_event_time_handler_t fn;
    } timers[] = {
        {&m->checkpoint_timer, m->config.store_checkpoint_interval, on_checkpoint},
        {&m->sample_timer, m->config.store_sample_interval, on_sample},
        {&m->maintain_timer, MAINTAIN_NS, on_maintain},
    };
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(timers) && r >= 0; i++)
        r = sd_event_add_time_relative(m->event, timers[i].source, CLOCK_MONOTONIC,
                                       timers[i].ns / 1000, 0, timers[i].fn, m);
    if (r >= 0)
        r = sd_event_add_post(m->event, &m->sources[m->source_count++], on_post, m);
    if (r >= 0)
        r = sd_event_add_signal(m->event, &m->sources[m->source_count++], SIGTERM, NULL, NULL);
    if (r >= 0)
        r = sd_event_add_signal(m->event, &m->sources[m->source_count++], SIGINT, NULL, NULL);
    if (r >= 0)
        r = sd_event_add_signal(m->event, &m->sources[m->source_count++], SIGHUP, on_sighup, m);
    return r < 0 ? r : 0;
}

static int manager_open(struct manager *m, struct error *reterr)
{
    struct utsname u;
    sigset_t signals;
    int r;

    m->start_ns = manager_boot_ns();
    gethostname(m->host, sizeof(m->host) - 1);
    if (uname(&u) == 0)
        snprintf(m->kernel, sizeof(m->kernel), "%s %s", u.release, u.machine);
    m->notices = calloc(MANAGER_NOTICES_MAX, sizeof(*m->notices));
    if (!m->notices)
        return -ENOMEM;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    r = sd_event_default(&m->event);
    if (r >= 0)
        r = add_sources(m);
    if (r < 0)
        return error_set(reterr, r, "cannot set up the event loop: %s", strerror(-r));
    /* the socket is bound first: a second daemon must not touch the store or load programs */
    r = open_api(m, reterr);
    if (r == 0)
        r = open_store(m, reterr);
    if (r == 0)
        r = oom_log_new(m, &m->oom);
    if (r == 0)
        r = servers_new(&m->servers);
    if (r == 0)
        r = open_kernel_side(m, reterr);
    if (r == 0)
        r = open_scans(m);
    if (r == 0)
        r = recorder_new(m, &m->recorder);
    if (r == 0)
        ring_set_recorder(m->ring, m->recorder);
    if (r == 0)
        r = accesses_new(m, &m->accesses);
    if (r == 0)
        ring_set_accesses(m->ring, m->accesses);
    if (r == 0 && m->config.daemon_discovery)
        r = discovery_new(m->event, &discovery_handler, m, &m->discovery, reterr);
    if (r < 0)
        return r;
    if (m->config.daemon_discovery) {
        r = targets_scan_all(m->targets);
        if (r < 0)
            return error_set(reterr, r, "cannot read /proc: %s", strerror(-r));
    }
    return 0;
}

int manager_new(const struct config *config, const struct manager_paths *paths,
                enum probe_link_mode link_mode, struct manager **ret, struct error *reterr)
{
    _cleanup_(manager_freep) struct manager *m = calloc(1, sizeof(*m));
    int r;

    if (!m)
        return error_set(reterr, ENOMEM, "out of memory");
    m->config = *config;
    m->paths = *paths;
    m->link_mode = link_mode;
    r = manager_open(m, reterr);
    if (r < 0) {
        if (reterr && !reterr->what[0])
            error_set(reterr, r, "cannot start: %s", strerror(-r));
        return r;
    }
    log_info("npumemd " NPUMEM_VERSION ": %s links, %zu processes observed",
             probe_link_mode_name(probe_set_mode(m->probes)), targets_count(m->targets));
    *ret = TAKE_PTR(m);
    return 0;
}

int manager_run(struct manager *m)
{
    int r;

    sd_event_set_watchdog(m->event, true);
    sd_notifyf(false, "READY=1\nSTATUS=%zu processes observed", targets_count(m->targets));
    r = sd_event_loop(m->event);
    sd_notify(false, "STOPPING=1");
    return r;
}

struct manager *manager_free(struct manager *m)
{
    if (!m)
        return NULL;
    m->api = api_free(m->api);
    if (m->ring)
        ring_set_accesses(m->ring, NULL);
    m->accesses = accesses_free(m->accesses);
    m->scans = scans_free(m->scans);
    m->discovery = discovery_free(m->discovery);
    if (m->ring && m->ledger) {
        ring_sync(m->ring);
        notices_write(m);
        m->oom = oom_log_free(m->oom);
        ring_set_recorder(m->ring, NULL);
        m->recorder = recorder_free(m->recorder);
        store_checkpoint_all(m->store, m->ledger);
    }
    m->oom = oom_log_free(m->oom);
    m->recorder = recorder_free(m->recorder);
    m->store = store_close(m->store);
    m->ring = ring_free(m->ring);
    m->targets = targets_free(m->targets);
    m->servers = servers_free(m->servers);
    m->attach = attach_free(m->attach);
    m->probes = probe_set_free(m->probes);
    m->python = python_free(m->python);
    m->ledger = ledger_free(m->ledger);
    m->phases = phase_table_free(m->phases);
    m->usage = usage_list_free(m->usage);
    m->cards = card_usage_free(m->cards);
    m->atb_names = atb_names_free(m->atb_names);
    sd_event_source_disable_unref(m->checkpoint_timer);
    sd_event_source_disable_unref(m->sample_timer);
    sd_event_source_disable_unref(m->maintain_timer);
    for (size_t i = 0; i < m->source_count; i++)
        sd_event_source_disable_unref(m->sources[i]);
    sd_event_unref(m->event);
    free(m->notices);
    free(m);
    return NULL;
}
