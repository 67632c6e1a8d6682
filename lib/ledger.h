/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.h - who holds which device memory, from events alone.
 *
 * Owns: the set of observed processes and their live memory at the levels physical (HAL
 * allocations, VMM handles), host (pinned), reserved/allocated/active (torch_npu's allocator) and
 * blocks; running totals per (process, device, owner); peaks; counters of what did not fit.
 * Must not: read clocks, files, the kernel; log; format.
 * Invariants:
 *   - sums are kept at every change and equal the sum over live entries;
 *   - no total is ever negative; what would be is counted in ledger_stats instead;
 *   - an event costs O(1) amortised, and no malloc beyond amortised growth of the tables;
 *   - an entry costs at most 96 bytes of memory at 1,000,000 entries, index and growth included.
 *
 * Time is CLOCK_BOOTTIME ns, sizes are bytes.
 */
#ifndef NPUMEM_LEDGER_H
#define NPUMEM_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "cleanup.h"
#include "event.h"
#include "phases.h"

struct ledger;

#define PROCESS_GROUPS 6 /* GROUP_COUNT of procfacts.h */

/* What a process is; strings are copied. Filled by the daemon from /proc, by tests by hand. */
struct process_facts {
    uint32_t tgid;
    uint32_t start_ticks;
    uint64_t start_time_ns; /* wall clock */
    char comm[16];
    char title[256];               /* cmdline, blanks for NULs */
    char container[72];            /* id from cgroup, empty on the host */
    int32_t rank;                  /* in its world, -1 unknown */
    int32_t world_size;            /* -1 unknown */
    char rank_source[16];          /* hccl, process_group, title, environ, cmdline; empty unknown */
    bool rank_inferred;            /* it follows from a usual meaning or from siblings' titles */
    bool rank_conflict;            /* the title says another rank than the communicators */
    int32_t replica;               /* dense data-parallel replica (a world of its own), -1 none */
    int32_t server_rank;           /* among all workers of the server, -1 undecided */
    int32_t server_size;           /* -1 undecided */
    int32_t local_rank;            /* -1 unknown */
    int32_t group[PROCESS_GROUPS]; /* index in DP, PP, PCP, TP, DCP, EP; -1 not in the title */
    uint8_t role;                  /* enum title_kind */
    char state;                    /* of /proc/PID/stat; 'Z' zombie; 0 unknown */
    bool orphan;                   /* its parent is gone and it lives on */
    uint32_t parent_tgid;          /* 0 unknown */
    uint32_t engine_tgid;          /* the engine whose child it is (or was), 0 none */
    uint32_t server_tgid;          /* what the engines of its server are children of, 0 none */
    uint32_t ns_tgid;              /* in its own pid namespace, 0 unknown */
    uint32_t uid;                  /* UINT32_MAX unknown */
    char user[33];                 /* name of uid on the host, empty none */
    char runtime[12];              /* docker, containerd, cri-o, podman; empty not told */
    char pod_uid[37];              /* empty no pod */
    uint16_t visible_devices[64];  /* user device i -> driver logical device */
    uint16_t visible_count;        /* 0: identity */
};

/* Levels of entries and totals; "never add across levels". */
enum ledger_level {
    LEVEL_PHYSICAL = 0, /* device memory the driver gave: HAL allocation or VMM handle */
    LEVEL_HOST = 1,     /* pinned or registered host memory */
    LEVEL_BLOCK = 2,    /* allocator block, allocated (a tensor holds it) */
    LEVEL_PENDING = 3, /* allocator block freed by its owner, still waiting for a stream (active) */
    LEVEL_RESERVED_VA = 4, /* VMM address range; consumes nothing */
    LEVEL_POOL_SUB = 5, /* sub-allocation of a stream-ordered pool; consumes nothing of its own */
    LEVEL_COUNT
};
const char *level_name(enum ledger_level level);

/* Owner of an entry: a row of schema/owners.def, or a name that a rule interned. */
#define OWNER_UNKNOWN 0u

/* One live entry as iterators show it. Borrowed; dies at the next change of the ledger. */
struct ledger_entry {
    uint64_t address; /* VMM handle for an unmapped CREATE, see handle */
    uint64_t handle;
    uint64_t size_bytes;      /* at its level: driver bytes, or rounded block bytes */
    uint64_t requested_bytes; /* 0 unknown */
    uint64_t allocated_ns;
    uint64_t stream;
    uint64_t caller;
    uint32_t owner;
    uint32_t stack; /* id of its Python frames, 0 none */
    uint32_t tgid;
    uint16_t device; /* driver logical id for physical entries, torch's index for blocks */
    uint16_t api;    /* probes.def row */
    enum ledger_level level;
    bool is_read; /* found by reading the allocator: allocated at some time before allocated_ns */
};

/* Totals of one (process, device, level, owner). before_attach and PTA@small (blocks summed in the
 * kernel) are rows, too, so that the rows of a level add up to its total. */
struct ledger_owner_total {
    uint32_t owner;
    uint16_t device;
    enum ledger_level level;
    uint64_t bytes, count, peak_bytes;
    uint64_t read_bytes; /* of bytes: found by reading (ledger_seen.h); LEDGER_READ_UNKNOWN */
    bool is_phase;       /* made by frames; told only of rows without bytes */
    bool inferred;
};
#define LEDGER_READ_UNKNOWN UINT64_MAX /* a sample of before this was kept */

/* Adds one owner's read bytes to another's: a sum with something unknown is unknown. */
static inline void ledger_read_add(uint64_t *sum, uint64_t bytes)
{
    bool known = *sum != LEDGER_READ_UNKNOWN && bytes != LEDGER_READ_UNKNOWN;
    *sum = known ? *sum + bytes : LEDGER_READ_UNKNOWN;
}

/* torch_npu's allocator of one (process, device, component), newest totals known. */
struct ledger_pool {
    uint16_t device; /* torch's index */
    uint8_t component;
    uint64_t time_ns;                                      /* of the newest totals */
    int64_t allocated_bytes, reserved_bytes, active_bytes; /* reserved corrected for later frees */
    int64_t known_block_bytes; /* live LEVEL_BLOCK entries of this pool */
    int64_t small_bytes;       /* net of blocks summed in the kernel; may be negative: then they
                                  were allocated before attach */
    int64_t
        before_attach_bytes; /* allocated - known - small, within 0 and what was allocated before
                                the first event, less the frees of unknown blocks since */
    uint64_t event_count;
};

/* One process and one device it holds memory on (or has set). */
struct ledger_device_use {
    uint16_t device;         /* driver logical id */
    uint64_t physical_bytes; /* live known + physical before attach */
    uint64_t known_bytes;    /* live entries seen by events */
    uint64_t before_attach_bytes;
    uint64_t
        driver_bytes; /* newest figure of the driver for (process, device); UINT64_MAX unknown */
    uint64_t driver_side_bytes; /* what it had more than physical_bytes when it was read */
    uint64_t peak_bytes;
    uint64_t peak_ns;
    uint64_t peak_before_attach_bytes; /* of peak_bytes */
};

/* Which moment: for AT_PEAK, that at which a device's physical bytes of the process were highest.
 */
enum ledger_when { LEDGER_NOW, LEDGER_AT_PEAK };

struct ledger_process {
    struct process_facts facts;
    bool alive;
    uint64_t exit_ns;
    uint64_t event_count, first_event_ns, last_event_ns;
    uint64_t host_bytes;
    uint32_t failed_calls; /* outermost calls that returned an error (out of memory among them) */
};

/* What went wrong or could not be told; all monotonic counters. */
struct ledger_stats {
    uint64_t events, decode_errors, unmatched_frees, failed_frees, late_frees /* reused address */,
        duplicate_allocs /* address was live: the old entry was dropped */, lost_events,
        sequence_gaps;
    uint64_t live_entries, memory_bytes;
    uint64_t dropped_entries /* max_entries or out of memory */,
        dropped_processes /* max_processes, all alive */,
        events_after_exit /* of a process known to be gone */;
};

/* Names the library that a return address of a process is in ("torch_npu", "hccl", "" unknown). */
typedef const char *(*ledger_caller_fn)(void *userdata, uint32_t tgid, uint64_t address);

/* Something worth keeping durably happened (process start/exit, failed allocation, communicator).
 */
enum ledger_notice_kind { NOTICE_PROCESS, NOTICE_EXIT, NOTICE_OOM, NOTICE_COMM, NOTICE_LOSS };
struct ledger_notice {
    enum ledger_notice_kind kind;
    uint64_t time_ns;
    uint32_t tgid;
    const struct nm_event *event; /* may be NULL */
};
typedef void (*ledger_notice_fn)(void *userdata, const struct ledger_notice *notice);

struct ledger_config {
    ledger_caller_fn caller_fn; /* may be NULL */
    ledger_notice_fn notice_fn; /* may be NULL */
    void *userdata;
    const struct phase_table *phases; /* borrowed; NULL: phases of events mean nothing */
    uint32_t max_processes;           /* 0: 4096; at the bound the oldest exited one goes */
    uint64_t max_entries;             /* 0: 16 Mi; at the bound new entries are counted, not kept */
};

/* Makes an empty ledger. Errors: -ENOMEM. Owns: the caller frees it with ledger_free(). */
int ledger_new(const struct ledger_config *config, struct ledger **ret);
struct ledger *ledger_free(struct ledger *l);
DEFINE_CLEANUP(struct ledger *, ledger_free)

/* Facts of a process of which nothing is known: every number that may be unknown says so. */
void process_facts_init(struct process_facts *ret, uint32_t tgid);

/* Adds or refreshes a process. A later start_ticks under the same tgid ends the old process first
 * (pid reuse), an earlier one is ignored. start_ticks 0 on either side matches anything. A rank
 * that a communicator named is kept, unless the facts know of a larger world than it has: then it
 * numbers a group and not the world. Returns 0; -ENOMEM; -ENOSPC: max_processes, all alive. */
int ledger_process_update(struct ledger *l, const struct process_facts *facts, uint64_t now_ns);

/* The process is gone: everything it held is free, its entry stays as "exited" with its last state
 * (owners, devices, pools; no entries) available to iterators until it is evicted. Drain the ring
 * first: later events of it are counted in events_after_exit and not applied. Unknown tgid: 0. */
int ledger_process_exit(struct ledger *l, uint32_t tgid, uint32_t start_ticks, uint64_t now_ns);

/* The process has called exec(): what it held is gone, but tgid and start are the same. Its life
 * until now stays as an exited process, a new one begins with the same facts. Drain the ring first.
 * Unknown tgid: 0. Returns 0; -ENOMEM; -ENOSPC. */
int ledger_process_exec(struct ledger *l, uint32_t tgid, uint64_t now_ns);

/* Applies one event. An event of an unknown process creates it with what the event says.
 * Returns 0 applied, 1 not applied but counted, -EBADMSG malformed (counted in decode_errors). */
int ledger_apply(struct ledger *l, const struct nm_event *event);

/* Feeds the kernel's newest allocator totals (from the pools map). Older time_ns than known:
 * ignored. Returns 0; 1 process gone; -EAGAIN: seq is odd, read again; -EBADMSG; -ENOMEM. */
int ledger_pool_totals(struct ledger *l, const struct nm_pool_key *key,
                       const struct nm_pool_totals *totals);
/* Feeds the kernel's sums of small blocks (absolute since attach). */
int ledger_small_totals(struct ledger *l, const struct nm_small_key *key,
                        const struct nm_small_totals *totals);
/* Feeds the driver's figure for one process, device and module (from /proc/svm): absolute bytes.
 * Sets and shrinks before-attach memory; module as in the HAL flag. now_ns is from before the
 * figure was read; drain the ring between reading and feeding (rules: ledger_driver.c). Returns 0;
 * 1 unknown or exited process; -EBADMSG; -ENOMEM. */
int ledger_driver_usage(struct ledger *l, uint32_t tgid, uint16_t device, uint8_t module,
                        uint64_t bytes, uint64_t now_ns);
/* Whether the process has freed memory from before attach since the driver's newest figure: until
 * the next one it is counted as held. Unknown tgid: false. */
bool ledger_wants_driver_usage(const struct ledger *l, uint32_t tgid);
/* Card figures: total and used bytes of a device, as the driver says. */
void ledger_card_usage(struct ledger *l, uint16_t device, uint64_t total_bytes,
                       uint64_t used_bytes);
bool ledger_card(const struct ledger *l, uint16_t device, uint64_t *ret_total, uint64_t *ret_used);
/* Events known to be lost in the kernel (absolute). */
void ledger_set_lost(struct ledger *l, uint64_t lost_events);

const struct ledger_stats *ledger_stats(const struct ledger *l);

/* Live objects of a process by the kind of event that makes them: NM_EVENT_CONTEXT_CREATE,
 * NM_EVENT_STREAM_CREATE, NM_EVENT_COMM_INIT, NM_EVENT_POOL_CREATE, NM_EVENT_ATB_CONTEXT_CREATE. */
uint64_t ledger_object_count(const struct ledger *l, uint32_t tgid, unsigned kind);

/* A communicator of a process, made while it was watched. What it allocated while it was made has
 * an owner of its own: CANN@HCCL@NAME, without a name CANN@HCCL@INDEX. */
struct ledger_comm {
    uint64_t handle;       /* 0: being made */
    uint64_t buffer_bytes; /* as its configuration says, one direction; 0 the default */
    uint64_t time_ns;
    int32_t rank, world_size; /* -1 unknown */
    uint32_t index;           /* in the order of creation */
    uint32_t owner;
    char name[48]; /* "" none given */
};
int ledger_each_comm(const struct ledger *l, uint32_t tgid,
                     int (*fn)(void *, const struct ledger_comm *), void *userdata);

/* One answer of the driver to the process's own question (aclrtGetMemInfo), and what it held then.
 */
struct ledger_mem_info {
    uint64_t time_ns; /* 0: never asked */
    uint64_t free_bytes, total_bytes;
    uint64_t physical_bytes;                 /* of the process on that device */
    int64_t reserved_bytes, allocated_bytes; /* of its caching allocator there; 0 none yet */
};

/* What was highest on a device while the process was in a phase, as its frames said. Blocks below
 * the threshold send no event of their own: a peak made by them alone is seen at the next larger
 * one. */
struct ledger_phase_use {
    uint32_t class_id; /* of the phase table, 0: in no phase (questions only) */
    uint16_t device;   /* driver logical id */
    uint64_t first_ns, last_ns;
    uint64_t block_count;          /* blocks allocated in it, one by one */
    int64_t start_allocated_bytes; /* just before its first block */
    int64_t peak_allocated_bytes, peak_reserved_bytes;
    uint64_t peak_physical_bytes;
    struct ledger_mem_info first, last; /* questions asked in it */
    /* The most that its owner held at the levels of blocks and of physical memory, as it was kept
     * before this ledger began; LEDGER_HELD_UNKNOWN nothing was. */
    uint64_t held_bytes, held_physical_bytes;
    bool is_kept;      /* this is of before this ledger began */
    bool is_continued; /* and went on: what came in between was not seen */
};
#define LEDGER_HELD_UNKNOWN UINT64_MAX
/* Owner of a phase, "" none. */
void ledger_phase_name(const struct ledger *l, uint32_t phase, char ret[PHASE_OWNER_MAX]);
/* Whether a class is the one with this word of the ledger's phase table ("kv_cache"). */
bool ledger_phase_is(const struct ledger *l, uint32_t class_id, const char *word);
/* Blocks freed while Python's garbage collector ran, by its generation: a reference cycle had held
 * them. Blocks below the threshold are not in it. */
struct ledger_collected {
    uint64_t freed_bytes[3], freed_blocks[3];
    uint64_t largest_bytes; /* freed by one collection of the oldest generation */
};
/* Zeroed for an unknown process. */
void ledger_collected(const struct ledger *l, uint32_t tgid, struct ledger_collected *ret);
int ledger_each_phase(const struct ledger *l, uint32_t tgid,
                      int (*fn)(void *, const struct ledger_phase_use *), void *userdata);

/*
 * What a process (tgid 0: every one, also those to come) allocates from time_ns on has that owner,
 * whatever else is known, but for the segments of torch_npu's pools and blocks that the kernel
 * sums. A process has one label, the newest; a thread's own tag outranks it. Errors: -ESRCH no such
 * process, -ENOSPC too many owners, -ENOMEM.
 */
int ledger_label_begin(struct ledger *l, uint32_t tgid, const char *owner, uint64_t time_ns);
/* Ends the label of that owner, of one process or (0) that of every one. Returns whether there was.
 */
bool ledger_label_end(struct ledger *l, uint32_t tgid, const char *owner);
/* Owner of a process's own label, NULL none. Borrowed. */
const char *ledger_label_of(const struct ledger *l, uint32_t tgid);
/* Labels that hold, tgid 0 for every process. */
int ledger_each_label(const struct ledger *l,
                      int (*fn)(void *, uint32_t tgid, uint32_t owner, uint64_t begin_ns),
                      void *userdata);

/* Iterators call fn until it returns non-zero, and return that. Order is stable: processes by first
 * sight, devices, levels and owners by id, entries by table order. fn must not change the ledger.
 * A tgid means the newest process of that number. each_owner may return -ENOMEM. */
int ledger_each_process(const struct ledger *l, int (*fn)(void *, const struct ledger_process *),
                        void *userdata);
const struct ledger_process *ledger_find_process(const struct ledger *l, uint32_t tgid);
bool ledger_holds_memory(const struct ledger *l, uint32_t tgid); /* physical, on any device */
int ledger_each_device(const struct ledger *l, uint32_t tgid,
                       int (*fn)(void *, const struct ledger_device_use *), void *userdata);
int ledger_each_owner(const struct ledger *l, uint32_t tgid,
                      int (*fn)(void *, const struct ledger_owner_total *), void *userdata);
int ledger_each_pool(const struct ledger *l, uint32_t tgid,
                     int (*fn)(void *, const struct ledger_pool *), void *userdata);
/* The same at another moment: each device at its own. The composition of the peak is exact at the
 * levels that events name; the sum of small blocks is that of its newest reading before. */
int ledger_each_owner_when(const struct ledger *l, uint32_t tgid, enum ledger_when when,
                           int (*fn)(void *, const struct ledger_owner_total *), void *userdata);
int ledger_each_pool_when(const struct ledger *l, uint32_t tgid, enum ledger_when when,
                          int (*fn)(void *, const struct ledger_pool *), void *userdata);
/* The live allocator block at an address. device: as torch counts it. Returns 0; -ENOENT. Cost:
 * O(1). */
int ledger_block(const struct ledger *l, uint32_t tgid, uint16_t device, uint64_t address,
                 struct ledger_entry *ret);
/* tgid 0: all processes. Cost: linear in live entries. Mappings and imported memory are not shown.
 */
int ledger_each_entry(const struct ledger *l, uint32_t tgid,
                      int (*fn)(void *, const struct ledger_entry *), void *userdata);
/* What an event that was just applied has made: a block, memory or a handle. Returns false: there
 * is none. Cost: O(1). */
bool ledger_entry_of(const struct ledger *l, const struct nm_event *event,
                     struct ledger_entry *ret);

/* Name of an owner id ("CANN@HCCL", "PTA@pool" ...). Borrowed for the ledger's life. */
const char *ledger_owner_name(const struct ledger *l, uint32_t owner);

#endif
