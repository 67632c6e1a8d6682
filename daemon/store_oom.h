/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_oom.h - reports of out of memory on disk.
 */
#ifndef NPUMEM_DAEMON_STORE_OOM_H
#define NPUMEM_DAEMON_STORE_OOM_H

#include "store.h"

#define STORE_OOM_ROWS_MAX 1000 /* the oldest go */

struct store_oom {
    int64_t id; /* given by the caller, from 1 */
    uint64_t wall_ns, requested_bytes /* UINT64_MAX not known */;
    uint32_t tgid, failures;
    int32_t rank, device; /* -1 not known */
    bool is_recovered;
    char comm[16], verdict[16], reason[256];
    const char *document; /* members of a JSON object, without its braces; NULL in lists */
};

/* Highest id on disk, 0 none or no store. */
int64_t store_oom_last(struct store *store);
/* Writes or replaces a report. Returns 0; -ENOENT no store; -errno, -EAGAIN: the disk refuses it.
 */
int store_oom_put(struct store *store, const struct store_oom *report);
/* Newest first, without documents, until fn returns non-zero. fn must not call the store. Returns
 * what fn did, 0, or -errno. */
int store_oom_each(struct store *store, int (*fn)(void *userdata, const struct store_oom *report),
                   void *userdata);
/* The document of one. Returns 0; -ENOENT; -ENOMEM; -errno. The caller frees *ret. */
int store_oom_document(struct store *store, int64_t id, char **ret);

#endif
