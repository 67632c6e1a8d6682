/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.h - bounds of the daemon that are not settings, each with its reason.
 *
 * What a person may want to change is in schema/config.def instead.
 */
#ifndef NPUMEM_DAEMON_LIMITS_H
#define NPUMEM_DAEMON_LIMITS_H

/* Control socket. */
#define LIMIT_JSON_DEPTH 32                           /* our deepest request nests 3 */
#define LIMIT_OUTPUT_BYTES (64u << 20)                /* unsent replies of one connection */
#define LIMIT_REPLY_PAUSE_BYTES (1u << 20)            /* unsent: no further request is begun */
#define LIMIT_REQUEST_TIMEOUT_NS (10ull * 1000000000) /* first byte of a request to its NUL */
#define LIMIT_STALL_TIMEOUT_NS                                                                     \
    (30ull * 1000000000)    /* unsent bytes and a reader that takes none                           \
                             */
#define LIMIT_PARAMETERS 16 /* different parameters of one method */
#define LIMIT_BACKLOG 64    /* listen(2) */

/* Store. */
#define LIMIT_STORE_CHECKPOINT_ROWS 20000u /* live rows written per call: about 20 ms */
#define LIMIT_STORE_PENDING_EVENTS 4096u   /* kept in memory while the disk refuses them */
#define LIMIT_STORE_PENDING_ROWS 262144u   /* the same for blocks of processes that died */
#define LIMIT_STORE_RETENTION_ROWS 5000u   /* rows deleted per table and call */
#define LIMIT_STORE_BUSY_MS 200 /* wait for another writer; the event loop stands still */
#define LIMIT_STORE_RETRY_NS (5ull * 1000000000)
#define LIMIT_STORE_RETRY_MAX_NS (60ull * 1000000000)
#define LIMIT_STORE_SAMPLE_FULL_NS                                                                 \
    (600ull * 1000000000)                   /* unchanged samples are repeated so often */
#define LIMIT_STORE_CHECK_BYTES (64u << 20) /* quick_check at start below this file size: < 1 s */
#define LIMIT_STORE_EVENTS_PER_SECOND 100u  /* committed one by one; more are batched per second */

#endif
