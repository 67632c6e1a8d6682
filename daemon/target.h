/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.h - the observed processes: who they are, what they map, when they end.
 *
 * Owns: one struct target per process (tgid and start time), pinned by a pidfd that tells its end
 * exactly, whatever becomes of the pid. The library files that it maps are users of attach records.
 * Must not: keep memory of the device; that is the ledger's.
 */
#ifndef NPUMEM_DAEMON_TARGET_H
#define NPUMEM_DAEMON_TARGET_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "attach.h"
#include "cleanup.h"
#include "ledger.h"
#include "procfs.h"
#include "procmaps.h"

#define TARGET_FILES_MAX 32

struct target {
    uint32_t tgid;
    struct process_facts facts; /* what the process tells, and what its siblings tell about it */
    struct process_facts told;  /* what it tells by itself */
    bool facts_changed;         /* since somebody cleared this */
    bool has_workers;           /* an engine: its device memory is in its children */
    struct procfs_memory *memory;
    int pidfd;
    sd_event_source *exit_source;
    struct caller_map *callers;
    uint64_t first_seen_ns;
    unsigned stale_looks; /* how often in a row its read blocks were too many (scan_feed.h) */
    bool wants_scan;      /* what it holds is to be read (manager_scans_ask()) */
    bool late;            /* it mapped its libraries before their probes were live */
    bool excluded;        /* detached by hand */
    bool stale_callers;
    struct attach_file *files[TARGET_FILES_MAX];
    size_t file_count;
    char error[240]; /* the last library that could not be opened */
    struct target *next;
};

struct targets;

struct targets_handler {
    /* The process has ended; still in the table during the call. */
    void (*exited)(void *userdata, struct target *t);
    void (*added)(void *userdata, struct target *t);
    /* A process maps a library to probe; its probes may not be live yet. maps: the text of its
     * mappings. */
    void (*mapped)(void *userdata, uint32_t tgid, const char *maps, size_t bytes);
};

int targets_new(sd_event *event, struct attach *attach, const struct targets_handler *handler,
                void *userdata, struct targets **ret);
struct targets *targets_free(struct targets *ts);
DEFINE_CLEANUP(struct targets *, targets_free)

/* Why a process is looked at: its mappings may be old, or are of this moment. */
enum scan_reason {
    SCAN_FOUND,  /* while looking through /proc */
    SCAN_RECORD, /* a record says that it has just mapped a library, or was forked */
    SCAN_BY_HAND /* make it a target even if it maps none */
};

/*
 * Looks at a process's mappings: probes new library files and makes it a target when it maps one.
 * Returns 1 it is a target, 0 not; -ESRCH, -EACCES; reterr says which.
 */
int targets_scan(struct targets *ts, uint32_t tgid, enum scan_reason reason, struct error *reterr);
/* The same for every process of the host. Returns the number of targets. */
int targets_scan_all(struct targets *ts);

struct target *targets_find(struct targets *ts, uint32_t tgid); /* O(1) */
struct target *targets_first(struct targets *ts);               /* then ->next */
size_t targets_count(const struct targets *ts);

/* After exec(): it maps nothing of what it mapped. targets_scan() finds what it maps now. */
void target_forget_mappings(struct targets *ts, struct target *t);

/* Reads who it is again (title, environment and parent change). Returns 1 changed, 0 not, negative
 * errno. targets_settle() has to follow. Cost: 0.1 ms. */
int target_refresh(struct target *t);
/* The same for all, unless that was less than 1 ms ago per target, 1 s at most: changes that no
 * record tells (setproctitle writes over argv) are seen that late, and asking often takes no more
 * than a tenth of a CPU. Returns whether any changed. Cost: 0.1 ms a target, else nothing. */
bool targets_refresh(struct targets *ts);
/* Brings the facts of all targets up to date with each other: ranks that titles of siblings decide,
 * engines whose workers hold the memory. Sets facts_changed. Cost: see ranks_decide(). */
void targets_settle(struct targets *ts);
/* Name of the library that a return address is in; reads the mappings again when they changed. */
const char *target_caller(struct target *t, uint64_t address);
/* "blocks", "physical" or "none", and why not more (NULL: it is all). */
const char *target_level(const struct target *t, const char **ret_reason);

#endif
