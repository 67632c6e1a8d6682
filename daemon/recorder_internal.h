/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder_internal.h - shared by recorder.c (life of recordings), recorder_event.c (events to
 * records) and recorder_list.c (what there is).
 */
#ifndef NPUMEM_DAEMON_RECORDER_INTERNAL_H
#define NPUMEM_DAEMON_RECORDER_INTERNAL_H

#include "manager.h"
#include "map.h"
#include "recorder.h"
#include "trace_writer.h"

struct recording {
    struct recorder *recorder;
    uint32_t tgid;
    struct nm_trace_header header;
    char path[800];
    struct trace_writer_file *writer;
    sd_event_source *timer;
    uint64_t last_ns;      /* newest record */
    uint64_t lost_events;  /* marked in the trace */
    uint64_t waiting_lost; /* not marked yet: there was no room */
    uint64_t kernel_lost;  /* of everybody, at the start */
    struct map owners;     /* ledger's id -> id in the trace */
    struct map stacks;     /* stack id -> id in the trace */
    struct map segments;   /* address or handle -> bytes; mapped address -> handle */
    uint32_t name_count;
    bool is_ending, is_written;
    void (*ended)(void *userdata, struct recording *recording);
    void *ended_userdata;
    struct recording *next;
};

struct recorder {
    struct manager *m;
    struct recording *first;
    unsigned count; /* that take events */
    char directory[512];
};

/* recorder_event.c */
void recording_maps_init(struct recording *rec);
void recording_maps_done(struct recording *rec);
/* Writes what the process holds now. Returns 0; -ENOMEM. */
int recording_snapshot(struct recording *rec);
void recording_event(struct recording *rec, const struct nm_event *event);
void recording_lost(struct recording *rec, uint64_t count, uint64_t time_ns);
void recording_mark(struct recording *rec, const char *name, uint64_t time_ns);

/* recorder_list.c: bytes of all files in the directory. */
uint64_t recorder_directory_bytes(const struct recorder *r);

#endif
