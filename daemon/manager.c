/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager.c - start, stop and the wiring between modules; see manager.h. What it does meanwhile:
 * manager_process.c, manager_turn.c.
 *
 * Order at start: programs, ledger, ring, store; then the records of new processes, and only then
 * the scan of /proc, so that no process falls between; the socket last. At the end the reverse.
 */
#include "manager_internal.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <systemd/sd-daemon.h>

#include <unistd.h>

#include "clock.h"
#include "log.h"
#include "procfs.h"

uint64_t manager_boot_ns(void)
{
    return clock_ns(CLOCK_BOOTTIME);
}

uint64_t manager_wall_ns(void)
{
    return clock_ns(CLOCK_REALTIME);
}

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
        .allow_seccomp_risk = m->config.probes_allow_seccomp_risk,
        .mode = m->link_mode,
    };
    struct ledger_config ledger = {
        .caller_fn = manager_on_caller,
        .notice_fn = manager_on_notice,
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
        r = attach_new(m->event, m->probes, m->config.probes_keep_unused, &m->attach);
    if (r == 0)
        r = targets_new(m->event, m->attach, &manager_targets_handler, m, &m->targets);
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
    return scans_new(m->event, path, &manager_scans_handler, m, &m->scans);
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
        r = manager_sources_add(m);
    if (r < 0)
        return error_set(reterr, r, "cannot set up the event loop: %s", strerror(-r));
    /* the socket is bound first: a second daemon must not touch the store or load programs */
    r = open_api(m, reterr);
    if (r == 0)
        r = open_store(m, reterr);
    if (r == 0)
        r = series_reads_new(m->event, &m->reads);
    if (r == 0)
        r = oom_log_new(m, &m->oom);
    if (r == 0)
        r = servers_new(&m->servers);
    if (r == 0)
        r = open_kernel_side(m, reterr);
    if (r == 0)
        r = open_scans(m);
    if (r == 0 && m->store && m->config.store_kv_history)
        r = manager_kv_begin(m);
    if (r == 0)
        r = recorder_new(m, &m->recorder);
    if (r == 0)
        ring_set_recorder(m->ring, m->recorder);
    if (r == 0)
        r = accesses_new(m, &m->accesses);
    if (r == 0)
        ring_set_accesses(m->ring, m->accesses);
    if (r == 0 && m->config.daemon_discovery)
        r = discovery_new(m->event, &manager_discovery_handler, m, &m->discovery, reterr);
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
    m->reads = series_reads_free(m->reads); /* before the store: the last one to close it tidies */
    if (m->ring)
        ring_set_accesses(m->ring, NULL);
    m->accesses = accesses_free(m->accesses);
    m->scans = scans_free(m->scans);
    m->discovery = discovery_free(m->discovery);
    if (m->ring && m->ledger) {
        ring_sync(m->ring);
        manager_notices_write(m);
        m->oom = oom_log_free(m->oom);
        ring_set_recorder(m->ring, NULL);
        m->recorder = recorder_free(m->recorder);
        store_sample(m->store, m->ledger, manager_boot_ns());
        kv_watch_flush(m->kv);
        store_checkpoint_all(m->store, m->ledger);
    }
    m->oom = oom_log_free(m->oom);
    m->recorder = recorder_free(m->recorder);
    m->kv = kv_watch_free(m->kv);
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
    sd_event_source_disable_unref(m->kv_timer);
    for (size_t i = 0; i < m->source_count; i++)
        sd_event_source_disable_unref(m->sources[i]);
    sd_event_unref(m->event);
    free(m->notices);
    free(m);
    return NULL;
}
