/* SPDX-License-Identifier: Apache-2.0 */
/*
 * series_call.h - a call that is answered when the samples of a stretch of time have been read
 * (series_read.h); nothing is left of it where its client goes away before.
 */
#ifndef NPUMEM_DAEMON_SERIES_CALL_H
#define NPUMEM_DAEMON_SERIES_CALL_H

#include "api.h"
#include "series_read.h"

/* Defers the call and begins the read. query->ended_fn answers the call; it is not called where the
 * client went away. After either, free_fn frees query->userdata. Returns 0; -errno: nothing is
 * deferred, and userdata is still the caller's. */
int series_call_begin(struct series_reads *reads, struct api_call *call,
                      const struct series_query *query, void (*free_fn)(void *userdata));

#endif
