/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_internal.h - what the ledger_*.c files share. Nobody else includes it.
 *
 *   ledger.c          life, event dispatch, decoding checks, counters
 *   ledger_process.c  processes: first sight, pid reuse, exit, eviction
 *   ledger_entry.c    entries and every running total; the only place that adds to a sum
 *   ledger_call.c     memory calls: allocate, free, register, reserve
 *   ledger_vmm.c      VMM handles and mappings
 *   ledger_scope.c    devices, contexts, streams, communicators
 *   ledger_block.c    torch_npu's pools and blocks
 *   ledger_phase.c    phases to owners, and what was highest in each
 *   ledger_driver.c   the driver's figures and memory from before attach
 *   ledger_seen.c     blocks from readings of the allocator
 *   ledger_label.c    the user's names for what comes from a moment on
 *   ledger_named.c    communicators, tags, graph capture: what a thread allocates for
 *   ledger_view.c     iterators
 *   ledger_restore.c  sums of an earlier moment, instead of events
 *   ledger_replay.c   records of a trace, instead of events
 */
#ifndef NPUMEM_LEDGER_INTERNAL_H
#define NPUMEM_LEDGER_INTERNAL_H

#include "ledger.h"
#include "map.h"
#include "owner.h"

/* One allocation is smaller than the user address space (47 bits), a sum of totals below 2^62. */
#define SIZE_LIMIT ((uint64_t)1 << 47)
#define TOTAL_LIMIT ((int64_t)1 << 62)
#define DEVICE_LIMIT 1024u    /* driver logical ids: 10 bits in the HAL flag word */
#define POOL_DEVICE_LIMIT 64u /* torch's index: as many as visible_devices holds */
#define POOL_COMPONENTS 2u
#define OWNER_LIMIT 512u /* interned names; further libraries become APP */
#define POOL_CHANGES 32u /* segment changes remembered per pool, see struct pool */
#define DEVICE_NONE UINT16_MAX

/* Key spaces of struct entry (low byte of key.b; block spaces carry the device above it). */
enum space {
    SPACE_MEMORY = 1, /* what a free by address names: device, host, pool sub-allocation */
    SPACE_REGISTERED, /* registered host memory, which may also be in SPACE_MEMORY */
    SPACE_RESERVED,   /* VMM address ranges */
    SPACE_HANDLE,     /* VMM physical memory by handle */
    SPACE_ORPHAN,     /* the same, its handle given anew while mappings still hold the memory */
    SPACE_MAP,        /* VMM mappings by address; no memory of their own */
    SPACE_BLOCK,      /* caching blocks by address */
    SPACE_WORKSPACE   /* the workspace block of a stream, by stream */
};
#define SPACE_KEY(space, device) ((uint32_t)(space) | (uint32_t)(device) << 8)
#define SPACE_OF(b) ((enum space)((b)&0xff))

/* struct entry.flags */
enum entry_flags {
    ENTRY_SEGMENT_CACHING = 1 << 0,
    ENTRY_SEGMENT_WORKSPACE = 1 << 1,
    ENTRY_IMPORTED = 1 << 2, /* another process's memory: no row, no sum */
    ENTRY_HOST = 1 << 3,
    ENTRY_READ = 1 << 4 /* found by reading the allocator, see ledger_seen.h */
};

/* One thing that a process holds, 64 bytes. */
struct entry {
    uint64_t key;   /* struct map_key.a: address, handle, serial or stream */
    uint32_t key_b; /* struct map_key.b */
    uint32_t link;  /* MAP: entry of its handle, 0 unknown. HANDLE, ORPHAN: live mappings */
    uint64_t bytes;
    uint64_t aux; /* requested bytes. HANDLE: first mapped address. MAP: handle. Pool
                     sub-allocation: pool. WORKSPACE: address */
    uint64_t time_ns;
    union {
        uint64_t caller;
        uint64_t stream; /* BLOCK, WORKSPACE */
    };
    uint16_t row; /* number in process.rows; 0: counted in no sum */
    uint16_t api;
    uint16_t references; /* HANDLE, saturating */
    uint8_t module;
    uint8_t flags;
    uint32_t stack; /* id of its Python frames, 0 none */
    uint32_t zero;
};
_Static_assert(sizeof(struct entry) == 64, "an entry must stay small");

/* Running total of one (owner, device, level); its record number is entry.row. */
struct row {
    uint64_t key;   /* owner << 32 | device */
    uint32_t key_b; /* level */
    uint32_t inferred;
    uint64_t bytes, count, peak_bytes;
    uint64_t read_bytes;                        /* of bytes: entries with ENTRY_READ */
    uint64_t then_bytes, then_count, then_read; /* at the device's peak `epoch`: peak_note() */
    uint32_t epoch, zero;
};

/* What the driver and the events say of one (device, module). */
struct module_use {
    uint64_t known_bytes;
    uint64_t driver_bytes;
    uint64_t before_bytes;
    uint64_t candidate_bytes; /* a lower figure that waits for a second one; UINT64_MAX none */
    uint64_t changed_ns;      /* newest event that changed known_bytes */
    uint64_t unmatched_seen;  /* process.unmatched_count at the newest figure */
    uint8_t module;
    bool has_driver;
};

struct device_use {
    struct ledger_device_use use;
    struct module_use *modules;
    uint32_t module_count;
    uint64_t explained_bytes; /* drops that block events have shown since the newest figure */
    uint32_t epoch;           /* number of the newest peak, 0 none */
    bool peak_pending;        /* its pools are to be noted once the event that made it is applied */
};

struct pool_change {
    uint64_t time_ns;
    int64_t bytes;
};

/*
 * One allocator of torch_npu. reserved = total at its newest block event + segment changes after
 * that event. The changes keep their times because the kernel's totals may be newer than the newest
 * event received (small blocks send none); when there are too many, the two oldest become one.
 */
struct pool {
    struct ledger_pool pub;
    struct map small; /* struct small by (stream, phase) */
    struct pool_change changes[POOL_CHANGES];
    uint32_t change_count;
    int64_t total_reserved_bytes;
    int64_t phase_bytes;         /* of pub.small_bytes what has a phase */
    int64_t base_bytes;          /* allocated just before the first event that anybody saw */
    int64_t unknown_freed_bytes; /* of it freed since, one by one */
    uint64_t done_address;       /* the newest event was the BLOCK_FREE of a known block; 0 not */
    int64_t small_base_bytes;    /* small blocks that a reading found, less the kernel's sum then */
    bool has_totals;
    bool is_restored;          /* of a sample, which said of pub.small_bytes: */
    uint64_t small_read_bytes; /* LEDGER_READ_UNKNOWN */
    struct ledger_pool then;   /* at the device's peak then_epoch */
    uint32_t then_epoch;
};

struct small {
    uint64_t stream;
    uint32_t phase;
    uint32_t zero;
    int64_t net_bytes;
    uint64_t net_count;
    int64_t then_bytes; /* at the device's peak `epoch`, as in struct row */
    uint32_t epoch, zero2;
};

/* A user's name for what is allocated from a moment on. */
struct label {
    uint32_t owner; /* OWNER_UNKNOWN: none */
    uint64_t begin_ns;
};

/* What the facts said of the rank, without communicators. */
struct told_rank {
    int32_t rank, world_size;
    char source[16];
    bool inferred;
};

struct process {
    struct ledger_process pub;
    struct map entries;         /* struct entry */
    struct map rows;            /* struct row */
    struct device_use *devices; /* by device id */
    struct pool **pools;        /* by first sight */
    uint32_t device_count, device_last, pool_count;
    uint8_t pool_number[POOL_DEVICE_LIMIT][POOL_COMPONENTS]; /* index in pools + 1 */
    uint32_t row_last;
    uint32_t current_device; /* driver logical id of the newest aclrtSetDevice of any thread */
    uint64_t orphan_serial;
    uint64_t unmatched_count;    /* frees of unknown device memory */
    uint64_t unmatched_torch_ns; /* the newest one that torch_npu made */
    struct seen *seen;           /* of readings of its allocator; NULL: none so far */
    struct named *named;         /* ledger_named.c; NULL nothing is */
    struct label label;
    int32_t comm_world; /* largest communicator that named a rank, 0 size unknown, -1 none */
    int32_t comm_rank;
    const char *comm_source; /* "hccl", "process_group" */
    struct told_rank told;
    struct ledger_phase_use *phases; /* by first sight; see phase_use_get() */
    uint32_t phase_count, phase_last;
    struct ledger_collected collected;
    uint64_t collection_ns,
        collection_bytes; /* newest free of the newest full collection, its sum */
    uint64_t object_count[NM_EVENT_KIND_COUNT]; /* live contexts, streams ... by creating kind */
};

struct ledger {
    struct ledger_config config;
    struct ledger_stats stats;
    struct process **processes; /* by first sight */
    uint32_t process_count, process_capacity;
    struct process *last;
    struct map by_tgid; /* struct tgid_slot */
    uint32_t *cpu_next; /* expected sequence number + 1 by CPU, 0 none */
    uint32_t cpu_count;
    uint16_t phase_owners[PHASE_CLASSES_MAX + 1][PHASE_DETAILS_MAX + 1]; /* owner id, 0 not yet */
    char **owner_names; /* interned, from OWNER_ID_COUNT on */
    uint32_t owner_count;
    uint64_t total_bytes;  /* sum of all entries: guards every sum against overflow */
    uint64_t record_count; /* entries of every kind, for max_entries */
    struct {
        uint64_t total_bytes, used_bytes;
        bool known;
    } * cards;
    uint32_t card_count;
    struct label label; /* of every process that has none of its own */
};

struct tgid_slot {
    uint64_t key;
    uint32_t key_b, zero;
    struct process *process;
};

/* Results of the handlers beside 0: what ledger_apply() returns. */
#define NOT_APPLIED 1

/* ledger.c */
void ledger_notify(struct ledger *l, enum ledger_notice_kind kind, const struct process *p,
                   const struct nm_event *event, uint64_t time_ns);
void ledger_memory(struct ledger *l, int64_t bytes);

/* ledger_process.c */
int process_for_event(struct ledger *l, const struct nm_event *event, struct process **ret);
struct process *process_find(const struct ledger *l, uint32_t tgid);
/* The live process of a key that the kernel's maps carry; made if unknown. 1: not a live one. */
int process_for_key(struct ledger *l, uint32_t tgid, uint32_t start_ticks, uint64_t now_ns,
                    struct process **ret);
struct process *process_free(struct ledger *l, struct process *p);
/* A communicator of that many ranks (0 unknown) has this process at that rank. */
void process_comm_rank(struct process *p, int32_t rank, int32_t world, const char *source);
/* Driver logical id of a device as the process counts it, DEVICE_NONE if it cannot see it. */
uint16_t process_logical_device(const struct process *p, uint64_t user_device);
/* The way back; DEVICE_NONE if the process does not see that device. */
uint16_t process_user_device(const struct process *p, uint16_t logical);

/* ledger_entry.c */
struct entry_spec {
    enum space space;
    uint64_t key;
    uint16_t space_device; /* for block spaces */
    enum ledger_level level;
    uint16_t device;
    uint32_t owner;
    bool inferred;
    bool is_counted;
    uint64_t bytes, aux, time_ns, caller;
    uint16_t api;
    uint8_t module, flags;
    uint32_t stack;
};
/* Adds an entry and its sums. Returns 0; NOT_APPLIED at a bound; -EBADMSG if a sum would overflow.
 */
int entry_add(struct ledger *l, struct process *p, const struct entry_spec *spec,
              uint32_t *ret_number);
/* Takes an entry out of its sums and away. */
void entry_drop(struct ledger *l, struct process *p, uint32_t number, uint64_t time_ns);
/* Moves an entry's sums to another level (same owner and device). */
int entry_move(struct ledger *l, struct process *p, uint32_t number, enum ledger_level level,
               uint64_t time_ns);
enum ledger_level entry_level(const struct process *p, const struct entry *e);
uint16_t entry_device(const struct process *p, const struct entry *e);
static inline struct entry *entry_at(const struct process *p, uint32_t number)
{
    return map_at(&p->entries, number);
}
struct device_use *device_get(struct ledger *l, struct process *p, uint16_t device);
struct device_use *device_find(const struct process *p, uint16_t device);
struct module_use *module_get(struct ledger *l, struct device_use *d, uint8_t module);
/* Sums of a device anew, and whether they are its peak. */
void device_refresh(const struct process *p, struct device_use *d, uint64_t time_ns);
/* To be called before anything of a process changes: notes its pools as they were at a new peak. */
void peak_settle(struct process *p);
/* Number of an owner that no table has; `otherwise` when there are too many. */
uint32_t owner_intern(struct ledger *l, const char *name, uint32_t otherwise);
/* The same for any owner's name. */
uint32_t owner_find(struct ledger *l, const char *name);
/* Number of a running total, made if missing. Returns 0; -ENOSPC; -ENOMEM. */
int row_get(struct process *p, uint32_t owner, uint16_t device, enum ledger_level level,
            uint32_t *ret);
/* Gives an entry another owner. */
int entry_reown(struct ledger *l, struct process *p, uint32_t number, uint32_t owner, bool inferred,
                uint64_t time_ns);
/* ledger_phase.c: owner of a phase, OWNER_UNKNOWN if it has none. */
uint32_t owner_of_phase(struct ledger *l, uint32_t phase);
/* The same without making it: OWNER_UNKNOWN if no event or sum has had the phase. */
uint32_t owner_of_phase_known(const struct ledger *l, uint32_t phase);
/* Whether an owner was made by owner_of_phase(), of the class with this word (NULL: any). */
bool owner_is_phase(const struct ledger *l, uint32_t owner, const char *word);
/* A block was allocated in a phase, after the pool has its totals: whether it is the phase's peak.
 */
void phase_block(struct ledger *l, struct process *p, const struct nm_event *event);
/* Memory was given in a phase: when it was last seen. */
void phase_call(struct ledger *l, struct process *p, const struct nm_event *event);
int phase_mem_info(struct ledger *l, struct process *p, const struct nm_event *event);
uint32_t entry_owner(const struct process *p, const struct entry *e);
/* Owner of a call, and the library of its caller ("" unknown; borrowed from the caller_fn). */
struct owner_verdict owner_resolve(struct ledger *l, const struct process *p,
                                   const struct nm_event *event, bool is_host,
                                   const char **ret_library);
const char *caller_library(const struct ledger *l, const struct nm_event *event);

/* ledger_call.c, ledger_vmm.c, ledger_scope.c, ledger_block.c: handlers by event kind */
int call_alloc(struct ledger *l, struct process *p, const struct nm_event *event);
int call_free(struct ledger *l, struct process *p, const struct nm_event *event);
int call_reserve(struct ledger *l, struct process *p, const struct nm_event *event);
int call_release(struct ledger *l, struct process *p, const struct nm_event *event);
int call_host_register(struct ledger *l, struct process *p, const struct nm_event *event);
int call_host_unregister(struct ledger *l, struct process *p, const struct nm_event *event);
int vmm_create(struct ledger *l, struct process *p, const struct nm_event *event);
int vmm_import(struct ledger *l, struct process *p, const struct nm_event *event);
int vmm_retain(struct ledger *l, struct process *p, const struct nm_event *event);
int vmm_handle_free(struct ledger *l, struct process *p, const struct nm_event *event);
int vmm_map(struct ledger *l, struct process *p, const struct nm_event *event);
int vmm_unmap(struct ledger *l, struct process *p, const struct nm_event *event);
/* Drops every mapping of a handle that has no reference left, and so the handle. */
void vmm_reset_device(struct ledger *l, struct process *p, uint16_t device, uint64_t time_ns);
int scope_device_set(struct ledger *l, struct process *p, const struct nm_event *event);
int scope_device_reset(struct ledger *l, struct process *p, const struct nm_event *event);
int scope_create(struct ledger *l, struct process *p, const struct nm_event *event);
int scope_destroy(struct ledger *l, struct process *p, const struct nm_event *event);
int scope_comm_init(struct ledger *l, struct process *p, const struct nm_event *event);
int scope_process_group(struct ledger *l, struct process *p, const struct nm_event *event);
int block_apply(struct ledger *l, struct process *p, const struct nm_event *event);

/* ledger_named.c */
struct named *named_free(struct ledger *l, struct named *n);
int named_begin(struct ledger *l, struct process *p, const struct nm_event *event);
int named_end(struct ledger *l, struct process *p, const struct nm_event *event);
int named_memory(struct ledger *l, struct process *p, const struct nm_event *event);
/* What the scopes of a thread say about a call: changes the verdict or leaves it. */
void named_call(const struct ledger *l, const struct process *p, const struct nm_event *event,
                struct owner_verdict *v);
/* The same for a block; by_phase: what frames say, OWNER_UNKNOWN none. OWNER_UNKNOWN: nothing. */
uint32_t named_block(const struct ledger *l, const struct process *p, const struct nm_event *event,
                     uint32_t by_phase);
/* A communicator is made, or could not be; is destroyed. */
void named_comm_made(struct ledger *l, struct process *p, const struct nm_event *event);
void named_comm_gone(struct process *p, uint64_t handle);
/* Events were lost: no scope may stay open for ever. */
void named_forget_scopes(struct process *p);

/* When a free began: its begin_ns, or its time where the entry was not seen. */
static inline uint64_t free_begin_ns(const struct nm_event *event)
{
    return event->call.begin_ns ? event->call.begin_ns : event->time_ns;
}
/* Counts a free of something unknown; remembers it for the driver's next figure. */
int free_unmatched(struct ledger *l, struct process *p, const struct nm_event *event);

/* ledger_block.c: a segment of a pool came (bytes > 0) or went. device is the driver's id. */
void pool_segment_change(struct process *p, uint8_t flags, uint16_t device, uint64_t time_ns,
                         int64_t bytes);
/* Drops a caching block, at whichever level it is. */
void caching_drop(struct ledger *l, struct process *p, struct pool *pool, uint32_t number,
                  uint64_t time_ns);
struct pool *pool_find(const struct process *p, uint16_t user_device, uint8_t component);
/* The same, made if missing; NULL out of memory or out of range. */
struct pool *pool_get(struct ledger *l, struct process *p, uint8_t device, uint8_t component);
/* The header's figures of a pool: reserved corrected, small and before-attach computed. */
void pool_figures(const struct pool *pool, struct ledger_pool *ret);
struct pool *pool_free(struct ledger *l, struct pool *pool);
/* Takes totals that are at least as new as the known ones. */
void pool_totals_take(struct process *p, struct pool *pool, uint64_t time_ns, int64_t allocated,
                      int64_t reserved, int64_t active);
/* ledger_seen.c */
struct seen *seen_free(struct ledger *l, struct seen *seen);
/* A block that nobody knows was freed. */
void seen_note_free(struct seen *seen, uint64_t address, uint16_t device);
/* Remembers a change of reserved memory that is newer than the pool's totals. */
void pool_change_add(struct pool *pool, uint64_t time_ns, int64_t bytes);

#endif
