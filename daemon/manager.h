/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager.h - the daemon's one object: owns every module, and is the only place where they meet.
 */
#ifndef NPUMEM_DAEMON_MANAGER_H
#define NPUMEM_DAEMON_MANAGER_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "access_window.h"
#include "api.h"
#include "atb_ops.h"
#include "attach.h"
#include "card_usage.h"
#include "cleanup.h"
#include "config.h"
#include "discovery.h"
#include "driver_usage.h"
#include "kv_watch.h"
#include "ledger.h"
#include "oom_log.h"
#include "python.h"
#include "recorder.h"
#include "ring.h"
#include "scan.h"
#include "series_read.h"
#include "servers.h"
#include "store.h"
#include "target.h"

#define MANAGER_NOTICES_MAX 1024

struct manager_paths {
    const char *runtime_dir, *state_dir, *config_dir;
};

/* A ledger notice, copied in the ring callback and handled after it. */
struct manager_notice {
    struct ledger_notice notice;
    struct nm_event event;
    bool has_event;
};

struct manager {
    sd_event *event;
    struct config config;
    struct manager_paths paths;
    enum probe_link_mode link_mode;

    struct probe_set *probes;
    struct attach *attach;
    struct targets *targets;
    struct discovery *discovery;
    struct ledger *ledger;
    struct phase_table *phases;
    struct python *python; /* NULL: Python frames are not looked at */
    struct ring *ring;
    struct store *store;
    struct series_reads *reads; /* of the store, for clients that wait */
    struct api *api;
    struct usage_list *usage;
    struct card_usage *cards;
    struct atb_names *atb_names;
    struct oom_log *oom;
    struct recorder *recorder;
    struct servers *servers;
    struct accesses *accesses;
    struct scans *scans;
    struct kv_watch *kv; /* NULL: KV caches are not followed */
    bool has_new_targets;
    struct scan_wait *scan_waits; /* clients that wait for a scan (scan_feed.c) */

    sd_event_source *sources[8];
    size_t source_count;
    sd_event_source *checkpoint_timer, *sample_timer, *maintain_timer, *kv_timer;
    uint64_t start_ns;
    char host[64], kernel[160];
    struct manager_notice *notices;
    size_t notice_count;
    uint64_t notices_dropped;
    struct stream *streams; /* clients of the event stream (methods_stream.c) */
};

/* Brings everything up: programs, store, scan of /proc, control socket. paths are borrowed. On
 * failure reterr says what and why. Owns: caller frees. */
int manager_new(const struct config *config, const struct manager_paths *paths,
                enum probe_link_mode link_mode, struct manager **ret, struct error *reterr);
/* Detaches and closes everything; within a second on kernels with uprobe_multi. */
struct manager *manager_free(struct manager *m);
DEFINE_CLEANUP(struct manager *, manager_free)

/* Runs until SIGTERM or SIGINT. */
int manager_run(struct manager *m);

/* Brings the ledger up to this moment: records, ring, sums, driver figures. Called before an
 * answer. */
void manager_sync(struct manager *m);
/* manager_sync(), and the figures of the cards. */
void manager_sync_cards(struct manager *m);

/* methods.c */
extern const struct api_method manager_methods[];
extern const size_t manager_method_count;
/* methods_stream.c: sends queued events to the streams; called after every turn of the loop. */
void streams_flush(struct manager *m);

uint64_t manager_boot_ns(void);
uint64_t manager_wall_ns(void);

#endif
