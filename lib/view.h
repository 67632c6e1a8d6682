/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h - what the ledger says, as the JSON documents that other programs rely on.
 *
 * A view is a pure function of a ledger and a context: who asked, the time and what cannot be seen
 * from events come in through the context. Each writes one JSON object as a value at the writer's
 * current position, so that it can stand alone or inside a reply. Every document carries
 * schema_version, complete, lost_events, time_ns (wall clock) and host.
 *
 * Two rules hold in every document:
 *   - levels are never added to each other; differences between levels have names (gaps);
 *   - a number that cannot be known is null, and the row's "unknown" object says why.
 *
 * Returns of all view_* functions: 0; -ENOMEM; what the JSON writer or a callback returned.
 */
#ifndef NPUMEM_VIEW_H
#define NPUMEM_VIEW_H

#include "json_write.h"
#include "ledger.h"

#define VIEW_SCHEMA_VERSION 1

/* How well a process is seen. Zeroed before the callback fills it. */

#define VIEW_FRAMES_MAX 128 /* more than the kernel sends of one stack */

struct view_coverage {
    const char *text;   /* "blocks", "physical", ...; NULL: nothing is known about the attachment */
    const char *reason; /* why it is less than it could be; NULL: it is not */
    bool late;          /* it may have held device memory before its probes were live */
};

/* The moment that a document is about. */
struct view_moment {
    enum ledger_when when; /* of the ledger that is shown: AT_PEAK each row at its own peak */
    uint64_t at_ns; /* wall time, when the ledger was restored of an earlier moment; else 0 */
    uint64_t oldest_sample_ns, newest_sample_ns; /* of such a ledger */
    const char *mark;                            /* its name, NULL none */
};

struct view_atb {
    char operation[64]; /* class, "" not known */
    uint64_t objects, setup_count, execute_count;
    uint64_t workspace_max_bytes; /* largest that one Execute was given */
};

struct view_context {
    struct view_moment moment; /* zeroed: now */
    uint64_t wall_ns;          /* now, wall clock: time_ns of the document */
    uint64_t boot_ns;          /* now, the ledger's clock */
    const char *host;
    bool complete; /* as the caller knows; lost_events > 0 makes it false as well */
    uint64_t lost_events;

    /* Filters: an empty list takes everything, lists are combined with and. */
    const uint32_t *tgids;
    size_t tgid_count;
    const int32_t *ranks;
    size_t rank_count;
    const uint16_t *devices; /* driver logical ids */
    size_t device_count;
    const char *const *containers; /* a prefix of the container id is enough */
    size_t container_count;
    bool include_exited; /* also processes that are gone */
    bool
        exited_in_full; /* ... with what they held when they ended, where their pid is not reused */

    /* May be NULL: coverage is null then and nothing counts as late. */
    void (*coverage_fn)(void *userdata, uint32_t tgid, struct view_coverage *ret);
    /* Physical number of a process's logical device, negative unknown. May be NULL: the same number
     * on the host; unknown in a container, whose driver view renumbers devices. */
    int (*physical_device_fn)(void *userdata, const struct process_facts *facts, uint16_t device);
    /* Device memory of processes that the ledger does not have, as the driver counts it; false
     * unknown. May be NULL: there is no such process. */
    bool (*other_bytes_fn)(void *userdata, uint16_t device, uint64_t *ret_bytes);
    /* Names of the Python frames of a stack, the innermost first, at most max; returns their
     * number. May be NULL: no frames. */
    size_t (*frames_fn)(void *userdata, uint32_t tgid, uint32_t stack, const char **ret,
                        size_t max);
    /* The variables of schema/tunings.def that a process has set, as NUL-ended NAME=value; NULL not
     * known. *ret_source: "live" or "exec". May be NULL: not known. */
    const char *(*environment_fn)(void *userdata, uint32_t tgid, size_t *ret_bytes,
                                  const char **ret_source);
    /* ATB operations of a process, by class: calls fn for each until it returns non-zero. May be
     * NULL: not known. They label workspace that the process's own allocators hold; they take none.
     */
    int (*atb_fn)(void *userdata, uint32_t tgid, int (*fn)(void *, const struct view_atb *),
                  void *fn_userdata);
    void *userdata;
};

/* ranks[]: one row per process and device it holds memory on. */
int view_ps(const struct ledger *l, const struct view_context *c, struct json *j);

/* As view_ps, and owners[], gaps[], pools[] and checks[] per row, and devices[] that close the sum
 * against the card. Cost: linear in processes, devices and owners, not in live entries. */
int view_breakdown(const struct ledger *l, const struct view_context *c, struct json *j);

struct view_ls_query {
    uint64_t min_size_bytes; /* 0: any */
    uint32_t limit;          /* 0: no limit */
    /* Empty lists take everything. An owner is an exact name, or a prefix that ends in '*'. */
    const char *const *owners;
    size_t owner_count;
    const enum ledger_level *levels;
    size_t level_count;
    const uint64_t *streams; /* blocks of these streams; entries without a stream never match */
    size_t stream_count;
    /* Allocated within [since, until) of the ledger's clock; until 0: open. */
    uint64_t since_ns, until_ns;
};

/* blocks[]: live entries, largest first (ties by process and address); totals[] per level of all
 * that matched, whatever the limit. Cost: linear in live entries; memory for `limit` of them (all
 * without a limit). */
int view_ls(const struct ledger *l, const struct view_context *c, const struct view_ls_query *q,
            struct json *j);

/* What the manager knows about itself and its probes, for view_status(). */
struct view_probe {
    const char *library, *symbol, *kind /* entry, return */, *state /* attached, missing, failed */;
    uint64_t hits, cost_ns; /* UINT64_MAX unknown */
};
struct view_target {
    uint32_t tgid;
    const char *state, *level, *coverage, *reason; /* reason may be NULL */
    double overhead_ratio;                         /* of one core; negative unknown */
    /* What reading it found: "full", "partial", "none"; NULL: it was not read. Reasons may be
     * NULL. */
    const char *blocks_read, *names_read, *blocks_reason, *names_reason;
};
struct view_status_input {
    const char *version, *kernel;
    uint64_t uptime_ns, rss_bytes /* UINT64_MAX unknown */, cpu_ns;
    const struct view_probe *probes;
    size_t probe_count;
    const struct view_target *targets;
    size_t target_count;
    const struct nm_cpu_counters *counters; /* summed over CPUs; NULL: not known */
    uint64_t store_bytes, store_oldest_ns;  /* UINT64_MAX: no store, or empty */
};

/* status: daemon, kernel, probes[], targets[], events, store. Filters apply to targets. */
int view_status(const struct ledger *l, const struct view_context *c,
                const struct view_status_input *in, struct json *j);

/* One event as an object; boot and wall clock of the context convert its times. Fields that an
 * event of this kind does not have are absent. */
int view_event(const struct view_context *c, const struct nm_event *event, struct json *j);
/* "alloc", "free", ...; "unknown" for a kind that this build does not have. */
const char *view_event_kind(unsigned kind);

/* The five fields of every document into the object that is open. */
void view_header(const struct view_context *c, struct json *j);
/* "moment": {kind: now, peak or at; time_ns, ...} into the object that is open. */
void view_moment_write(const struct view_context *c, struct json *j);

#endif
