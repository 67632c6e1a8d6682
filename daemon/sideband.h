/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sideband.h - perf side-band records as facts, in the order in which they happened.
 *
 * Each CPU has a buffer of its own, and they are read one after another: of a process that moves
 * between CPUs a later record may be read before an earlier one. Records are therefore gathered
 * with the time that they carry and handed on up to a moment before the reading began: what
 * happened before a record that is due was in its buffer when that was read.
 */
#ifndef NPUMEM_DAEMON_SIDEBAND_H
#define NPUMEM_DAEMON_SIDEBAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sideband_kind {
    SIDEBAND_MAPPED,   /* a file that libraries.def names */
    SIDEBAND_FORKED,   /* a process, no thread */
    SIDEBAND_RENAMED,  /* comm was set */
    SIDEBAND_EXECUTED, /* exec(), which sets comm as well */
    SIDEBAND_LOST,     /* there were records that found no room */
};

struct sideband {
    uint64_t time_ns; /* of the event's clock */
    uint64_t order;   /* of gathering, for equal times */
    enum sideband_kind kind;
    uint32_t tgid;
    uint32_t parent_tgid; /* FORKED */
};

struct sideband_list {
    struct sideband *records;
    size_t count, capacity;
    uint64_t order_next;
};

/* What one record says; the event must have sample_id_all with PERF_SAMPLE_TIME alone. Returns
 * false if it is of no interest, or malformed. */
bool sideband_decode(const void *record, size_t bytes, struct sideband *ret);

/* Zeroed: empty. Returns 0 or -ENOMEM, the list unchanged. */
int sideband_add(struct sideband_list *list, const struct sideband *record);
/* Puts the records in order; returns how many, from the first on, are not after until_ns. */
size_t sideband_sort(struct sideband_list *list, uint64_t until_ns);
/* Takes away the first n records. */
void sideband_drop(struct sideband_list *list, size_t n);
void sideband_clear(struct sideband_list *list);

#endif
