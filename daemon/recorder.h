/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder.h - recordings of processes into trace files (schema/trace.h), below the state
 * directory.
 *
 * While it is recorded, every block of a process is an event, whatever its size. A recording ends
 * by itself when its time is over, it reaches its bound, the disk refuses or the process ends.
 */
#ifndef NPUMEM_DAEMON_RECORDER_H
#define NPUMEM_DAEMON_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "cleanup.h"
#include "err.h"
#include "event.h"

struct manager;
struct recorder;
struct recording;

#define RECORDINGS_MAX 16u    /* at once */
#define RECORD_FRAMES_MAX 32u /* of a stack; the innermost */

/* manager is borrowed, and used whenever a function below is called. Owns: recorder_free(). */
int recorder_new(struct manager *manager, struct recorder **ret);
/* Ends what runs and waits until it is written. */
struct recorder *recorder_free(struct recorder *r);
DEFINE_CLEANUP(struct recorder *, recorder_free)

/* Begins a recording with what the process holds now; call manager_sync() before. for_ns 0: until
 * it is stopped. Errors: -ESRCH not observed; -EALREADY; -ENODATA its blocks are not seen; -ENOSPC
 * no room; of the file. reterr is set. Cost: linear in what the process holds. */
int recorder_start(struct recorder *r, uint32_t tgid, uint64_t for_ns, struct recording **ret,
                   struct error *reterr);
/* Ends it; ended() of whoever asked is called once everything is on disk. Sync before. */
void recorder_stop(struct recorder *r, struct recording *recording);
/* The process is gone (and still in the ledger). */
void recorder_exit(struct recorder *r, uint32_t tgid);
/* Once a second. */
void recorder_maintain(struct recorder *r);

/* From the ring, after an event was applied; costs a comparison while nothing is recorded. */
void recorder_event(struct recorder *r, const struct nm_event *event);
/* From the ring: that many events are missing here. */
void recorder_lost(struct recorder *r, uint64_t count);

/* A user's mark (boot time), into every recording. */
void recorder_mark(struct recorder *r, const char *name, uint64_t time_ns);

/* What runs; NULL at the end. */
struct recording *recorder_first(const struct recorder *r);
struct recording *recorder_next(const struct recording *recording);
uint32_t recording_tgid(const struct recording *recording);
/* Lets fn know when it has ended. Returns false: somebody else is to be told. */
bool recording_on_end(struct recording *recording,
                      void (*fn)(void *userdata, struct recording *recording), void *userdata);

struct json;
/* One recording as an object of recordings[]. */
void recording_write(struct recording *recording, struct json *j);
/* The finished ones in the directory, newest first. Returns their number; negative errno. */
int recorder_write_finished(const struct recorder *r, struct json *j);

#endif
