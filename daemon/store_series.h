/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_series.h - the samples of a stretch of time, in the order in which they were written.
 */
#ifndef NPUMEM_DAEMON_STORE_SERIES_H
#define NPUMEM_DAEMON_STORE_SERIES_H

#include "kv_history.h"
#include "store.h"

/* What a sample is of. */
enum store_series_kind {
    STORE_SERIES_OWNER,    /* of (level, owner): bytes, blocks */
    STORE_SERIES_DEVICE,   /* physical bytes of the process on the device */
    STORE_SERIES_POOL,     /* the caching pool: allocated, reserved and active bytes */
    STORE_SERIES_RESIDENT, /* host memory: resident bytes, and what of them is shared */
    STORE_SERIES_KV,       /* how full the KV cache was: a span */
};

struct store_point {
    enum store_series_kind kind;
    int64_t process_id;                    /* row of process: tells lives of one pid apart */
    int64_t owner_id;                      /* row of owner */
    uint16_t device;                       /* the level's own numbering */
    enum ledger_level level;               /* of STORE_SERIES_OWNER */
    uint64_t wall_ns, boot_ns;             /* boot_ns: of the boot of the process */
    uint64_t bytes, blocks;                /* POOL: allocated bytes; DEVICE: physical */
    uint64_t reserved_bytes, active_bytes; /* of STORE_SERIES_POOL */
    uint64_t shared_bytes;                 /* of STORE_SERIES_RESIDENT */
    /* Of STORE_SERIES_KV, borrowed; wall_ns is its begin, and boot_ns and device are 0. */
    const struct kv_span *span;
};

/* The samples with a wall time from since on (and spans that touch it), through a connection of its
 * own: they are those of one moment, whatever is written, retired or moved aside while they are
 * read. */
struct store_series;

/* Errors: -ENOENT no store, or none that can be opened just now; other errno. */
int store_series_open(const struct store *store, uint64_t since_wall_ns, struct store_series **ret);
struct store_series *store_series_close(struct store_series *series);
DEFINE_CLEANUP(struct store_series *, store_series_close)

/* Calls fn for the next samples, at most `rows`: kind after kind, each in the order of writing, in
 * which the rows of one process and moment stand together; spans in the order of their begins. fn
 * returns 0, or -errno, which ends it. Returns 1: there may be more; 0: those were all; -errno of
 * fn or the store: it has ended. Cost: about 0.35 us per row. */
int store_series_next(struct store_series *series, size_t rows,
                      int (*fn)(void *userdata, struct store_series *series,
                                const struct store_point *point),
                      void *userdata);

/* For fn: who a row of process is; ret_exit_wall_ns 0: it lives as far as the store knows. Errors:
 * -ENOENT; other errno. Cost: microseconds. */
int store_series_process(struct store_series *series, int64_t process_id, struct process_facts *ret,
                         uint64_t *ret_exit_wall_ns);
/* For fn: the name of a row of owner, cut to size. Errors and cost: as above. */
int store_series_owner(struct store_series *series, int64_t owner_id, char *ret, size_t size);

/* The same as store_series_process(), of the store as it is now. */
int store_process_of(struct store *store, int64_t process_id, struct process_facts *ret,
                     uint64_t *ret_exit_wall_ns);

/* Marks with a wall time from since on, in order of time, until fn returns non-zero. */
int store_marks_each(struct store *store, uint64_t since_wall_ns,
                     int (*fn)(void *userdata, const char *name, uint64_t wall_ns,
                               uint64_t boot_ns),
                     void *userdata);

#endif
