/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan_read.h - scans a process from the outside: its memory by process_vm_readv() or
 * /proc/PID/mem, its libraries by their mapped files.
 *
 * Nothing is stopped, traced or written. The process is pinned by a pidfd and its start time is
 * compared before and after. Runs as long as the limits say: call it where that hurts nobody
 * (daemon/scan.c does so in a child).
 */
#ifndef NPUMEM_DAEMON_SCAN_READ_H
#define NPUMEM_DAEMON_SCAN_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "kv_pool.h"
#include "roots_scan.h"

#define SCAN_TIME_NS 2000000000ull /* of a processor */
#define SCAN_WALL_FACTOR 8u        /* as much longer by the clock on the wall */
#define SCAN_READ_BYTES_MAX (2ull << 30)
#define SCAN_PAGES_KEPT 8192u /* 32 MiB */

struct scan_options {
    uint64_t time_ns;        /* of a processor; 0: SCAN_TIME_NS */
    uint64_t start_ticks;    /* of the process that is meant; 0: whoever has the number now */
    const char *roots_dir;   /* directory of further rows (NAME.conf); NULL none */
    const char *record_path; /* NULL; else the pages that were read are written there, for tests */
    bool is_thorough, include_host;
};

/* A process made ready to be read: its mappings, the image and where to begin. */
struct scan_handle;
/* Errors: as of scan_read_process(). Owns: scan_close(). */
int scan_open(uint32_t tgid, const struct scan_options *options, struct scan_handle **ret,
              struct error *reterr);
struct scan_handle *scan_close(struct scan_handle *h);
DEFINE_CLEANUP(struct scan_handle *, scan_close)
const struct scan_input *scan_handle_input(const struct scan_handle *h);

/* Opens, scans, and makes sure that it was the same process all the time. Errors: -ESRCH no such
 * process, or another one by now; -EPERM, -EACCES it may not be read; -ENOMEM. Owns: the caller
 * frees *ret. */
int scan_read_process(uint32_t tgid, const struct scan_options *options, struct scan_result **ret,
                      struct error *reterr);

/* The same, for the pool of KV blocks alone (kv_pool.h). Errors also: -ENODATA there is none. */
int scan_read_pool(uint32_t tgid, const struct scan_options *options, struct kv_pool *ret,
                   struct error *reterr);

#endif
