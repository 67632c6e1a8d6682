/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager_turn.c - what the manager does again and again: after every turn of the loop, at its
 * timers, before an answer, and at SIGHUP.
 */
#include <signal.h>
#include <string.h>

#include "log.h"
#include "manager_internal.h"

#define MAINTAIN_NS 1000000000ull

void manager_on_notice(void *userdata, const struct ledger_notice *notice)
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

void manager_notices_write(struct manager *m)
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

    manager_scans_ask(m);
    manager_notices_write(m);
    oom_log_turn(m->oom);
    streams_flush(m);
    return 0;
}

/* The driver's figures are read before the ring is drained, and fed after it. */
void manager_sync(struct manager *m)
{
    discovery_drain(m->discovery);
    manager_processes_refresh(m);
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
    manager_usage_refresh(m);
    manager_scans_refresh(m);
    return rearm(source, MAINTAIN_NS);
}

static int on_kv(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct manager *m = userdata;

    kv_watch_turn(m->kv);
    return rearm(source, m->config.store_kv_interval);
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

int manager_sources_add(struct manager *m)
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

int manager_kv_begin(struct manager *m)
{
    int r = kv_watch_new(m, &m->kv);

    if (r == 0)
        r = sd_event_add_time_relative(m->event, &m->kv_timer, CLOCK_MONOTONIC,
                                       m->config.store_kv_interval / 1000, 0, on_kv, m);
    return r < 0 ? r : 0;
}
