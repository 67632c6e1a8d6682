/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan.h - scans of processes, one at a time, each in a child of its own.
 *
 * What is read is hostile and walking it takes up to two seconds: the child (npumemd --scan) runs
 * at the lowest priority and sends its result over a pipe, which is checked (roots_result.h); it
 * may hang or die without harm. The newest result of each process is kept while the process lives,
 * within a bound of memory.
 */
#ifndef NPUMEM_DAEMON_SCAN_H
#define NPUMEM_DAEMON_SCAN_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "cleanup.h"
#include "err.h"
#include "kv_pool.h"
#include "roots_result.h"

#define SCANS_WAITING_MAX 256u
/* At 19 a scan of 0.1 s took over 6 s beside a server that keeps all processors busy, and was cut.
 */
#define SCAN_NICE 10
#define SCAN_CHILD_TIMEOUT_NS (24ull * 1000000000) /* from its start; its own budgets are less */
#define SCAN_WIRE_BYTES_MAX (128u << 20)
#define SCAN_KEPT_BYTES_MAX (64u << 20) /* all kept results; the oldest goes first */

struct scans;

struct scans_handler {
    /* A scan of the process begins now: what it frees from now on is not in the result's favour. */
    void (*began)(void *userdata, uint32_t tgid);
    /* ... ended. result is borrowed, NULL when there is none; then error says why. */
    void (*ended)(void *userdata, uint32_t tgid, const struct scan_result *result,
                  const struct error *error);
    /* A look for a pool of KV blocks ended. pool is borrowed, NULL: error says why. */
    void (*pool_ended)(void *userdata, uint32_t tgid, const struct kv_pool *pool,
                       const struct error *error);
};

/* roots_dir may be missing or NULL. Owns: the caller frees with scans_free(). */
int scans_new(sd_event *event, const char *roots_dir, const struct scans_handler *handler,
              void *userdata, struct scans **ret);
struct scans *scans_free(struct scans *s);
DEFINE_CLEANUP(struct scans *, scans_free)

/* Asks for a scan; one that waits or runs already is not asked for twice, but becomes thorough.
 * Returns 0; -ENOSPC too many wait; -ENOMEM. */
int scans_request(struct scans *s, uint32_t tgid, uint64_t start_ticks, bool is_thorough);

/* The same, but one that runs already has begun before what is asked about may have happened: there
 * will be another. */
int scans_request_anew(struct scans *s, uint32_t tgid, uint64_t start_ticks, bool is_thorough);
bool scans_is_running(const struct scans *s, uint32_t tgid);

/* Asks for a look for the pool of KV blocks of a server's scheduler (kv_pool.h), and for nothing
 * else: milliseconds. The handler's pool_ended() tells. Returns as scans_request(). */
int scans_request_pool(struct scans *s, uint32_t tgid, uint64_t start_ticks);

/* Lets a scan that waits be the next: somebody waits for it. */
void scans_prefer(struct scans *s, uint32_t tgid);

/* The newest result of a process, NULL none. ret_time_ns: CLOCK_BOOTTIME of its end. Borrowed until
 * the next turn of the loop. */
const struct scan_result *scans_result(const struct scans *s, uint32_t tgid, uint64_t *ret_time_ns);

/* How often the process was scanned so far. */
unsigned scans_count(const struct scans *s, uint32_t tgid);

/* The process is gone. */
void scans_forget(struct scans *s, uint32_t tgid);

/* What the child is asked for, its third argument. */
#define SCAN_USUAL '0'
#define SCAN_THOROUGH '1'
#define SCAN_POOL 'p'

/* main() of the child (scan_child.c): scans and writes the result to standard output. Returns an
 * exit code; the reason of a failure is one line on standard output. */
int scan_child(int argc, char **argv);

#endif
