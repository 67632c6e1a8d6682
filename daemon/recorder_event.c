/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder_event.c - from events and from the ledger to records of a trace.
 *
 * Must not: write to a file; wait. A record that the writer refuses is counted, and the next one
 * that it takes has a NM_TRACE_LOST before it.
 * Invariant: times in a trace never go back. Events of a thread that was delayed carry an earlier
 * time than those before them; the ledger's order is the one that holds.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "owner.h"
#include "array.h"
#include "recorder_internal.h"
#include "trace_io.h"

struct name_slot {
    struct map_key key;
    uint64_t id;
};

struct segment_slot {
    struct map_key key; /* address or handle, enum segment_space */
    uint64_t bytes;     /* of SPACE_MAPPED: the handle */
};

enum segment_space { SPACE_SEGMENT, SPACE_MAPPED };

void recording_maps_init(struct recording *rec)
{
    map_init(&rec->owners, sizeof(struct name_slot), 5, NULL);
    map_init(&rec->stacks, sizeof(struct name_slot), 8, NULL);
    map_init(&rec->segments, sizeof(struct segment_slot), 8, NULL);
}

void recording_maps_done(struct recording *rec)
{
    map_clear(&rec->owners);
    map_clear(&rec->stacks);
    map_clear(&rec->segments);
}

/* --- writing --- */

static void put(struct recording *rec, struct nm_trace_record *record)
{
    if (record->time_ns < rec->last_ns)
        record->time_ns = rec->last_ns;
    if (rec->waiting_lost) {
        struct nm_trace_record lost = {
            .kind = NM_TRACE_LOST, .time_ns = record->time_ns, .size_bytes = rec->waiting_lost};
        if (trace_writer_put(rec->writer, &lost))
            rec->waiting_lost = 0;
    }
    if (rec->waiting_lost || !trace_writer_put(rec->writer, record)) {
        if (trace_writer_is_over(rec->writer))
            return; /* it has ended here, and its header says why */
        rec->waiting_lost++;
        rec->lost_events++;
        return;
    }
    rec->last_ns = record->time_ns;
}

void recording_lost(struct recording *rec, uint64_t count, uint64_t time_ns)
{
    struct nm_trace_record lost = {
        .kind = NM_TRACE_LOST, .time_ns = time_ns, .size_bytes = count + rec->waiting_lost};

    rec->lost_events += count;
    if (lost.time_ns < rec->last_ns)
        lost.time_ns = rec->last_ns;
    rec->waiting_lost = trace_writer_put(rec->writer, &lost) ? 0 : rec->waiting_lost + count;
}

/* Id of a name that was not in the trace; 0: there was no room for it. */
static uint32_t name_write(struct recording *rec, const char *name)
{
    struct nm_trace_name part;
    uint32_t id = rec->name_count + 1;

    for (size_t at = 0; trace_name_part(id, name, &at, &part);)
        if (!trace_writer_put(rec->writer, &part))
            return 0;
    return rec->name_count = id;
}

static uint32_t name_of(struct recording *rec, struct map *map, uint32_t key, const char *name)
{
    uint32_t n = map_find(map, key, 0), id;

    if (n)
        return (uint32_t)((struct name_slot *)map_at(map, n))->id;
    id = name[0] ? name_write(rec, name) : 0;
    if (id && map_add(map, key, 0, &n) == 0)
        ((struct name_slot *)map_at(map, n))->id = id;
    return id;
}

static uint32_t owner_name(struct recording *rec, uint32_t owner)
{
    return name_of(rec, &rec->owners, owner, ledger_owner_name(rec->recorder->m->ledger, owner));
}

static uint32_t stack_name(struct recording *rec, uint32_t stack)
{
    const char *frames[RECORD_FRAMES_MAX];
    char text[NM_TRACE_NAME_BYTES_MAX] = "";
    size_t n, at = 0;

    if (!stack)
        return 0;
    if (!map_find(&rec->stacks, stack, 0)) {
        n = python_stack(rec->recorder->m->python, rec->tgid, stack, frames, RECORD_FRAMES_MAX);
        for (size_t i = 0; i < n && at < sizeof(text); i++)
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", i ? ";" : "", frames[i]);
    }
    return name_of(rec, &rec->stacks, stack, text);
}

/* --- what the process holds at the start --- */

struct snapshot {
    struct recording *rec;
    struct nm_trace_record *records;
    size_t count, capacity;
    int error;
};

static struct nm_trace_record *snapshot_add(struct snapshot *s)
{
    if (ARRAY_ROOM(s->records, s->capacity, s->count) < 0)
        return NULL;
    s->records[s->count] = (struct nm_trace_record){0};
    return &s->records[s->count++];
}

static int segment_remember(struct recording *rec, enum segment_space space, uint64_t address,
                            uint64_t bytes)
{
    uint32_t n = map_find(&rec->segments, address, space);
    int r = n ? 0 : map_add(&rec->segments, address, space, &n);

    if (r == 0)
        ((struct segment_slot *)map_at(&rec->segments, n))->bytes = bytes;
    return r;
}

/* Where the memory of a handle lies. */
static int snapshot_mapping(struct snapshot *s, const struct ledger_entry *e)
{
    struct nm_trace_record *r = snapshot_add(s);

    if (!r)
        return -ENOMEM;
    *r = (struct nm_trace_record){.time_ns = e->allocated_ns,
                                  .kind = NM_TRACE_SEGMENT_MAP,
                                  .address = e->handle,
                                  .stream = e->address};
    return segment_remember(s->rec, SPACE_MAPPED, e->address, e->handle);
}

static int on_entry(void *userdata, const struct ledger_entry *e)
{
    struct snapshot *s = userdata;
    bool is_block = e->level == LEVEL_BLOCK || e->level == LEVEL_PENDING;
    bool is_segment = e->level == LEVEL_PHYSICAL && e->owner == OWNER_ID_PTA_POOL;
    struct nm_trace_record *r;

    if (!is_block && !is_segment)
        return 0;
    r = snapshot_add(s);
    if (!r)
        return s->error = -ENOMEM;
    r->time_ns = e->allocated_ns; /* for the order; then the time of the start */
    r->kind = is_block ? NM_TRACE_BLOCK_MALLOC : NM_TRACE_SEGMENT_ALLOC;
    r->address = is_segment && e->handle ? e->handle : e->address;
    r->size_bytes = is_segment && e->requested_bytes ? e->requested_bytes : e->size_bytes;
    r->requested_bytes = is_block ? e->requested_bytes : 0;
    r->stream = e->stream;
    r->device = e->device;
    r->owner = owner_name(s->rec, e->owner);
    r->stack = stack_name(s->rec, e->stack);
    if (is_segment) {
        r->component = e->handle ? NM_TRACE_SEGMENT_HANDLE : NM_TRACE_SEGMENT_ADDRESS;
        s->error = segment_remember(s->rec, SPACE_SEGMENT, r->address, r->size_bytes);
        if (s->error == 0 && e->handle && e->address)
            s->error = snapshot_mapping(s, e);
        return s->error;
    }
    if (e->owner == OWNER_ID_PTA_WORKSPACE)
        r->component = NM_BLOCK_WORKSPACE;
    if (e->level != LEVEL_PENDING)
        return 0;
    struct nm_trace_record *let_go = snapshot_add(s);
    if (!let_go)
        return s->error = -ENOMEM;
    *let_go = s->records[s->count - 2];
    let_go->kind = NM_TRACE_BLOCK_FREE;
    let_go->owner = let_go->stack = 0;
    return 0;
}

/* By age; segments before the blocks in them; the end of a block after it. */
static int record_compare(const void *one, const void *other)
{
    const struct nm_trace_record *a = one, *b = other;

    if (a->time_ns != b->time_ns)
        return a->time_ns < b->time_ns ? -1 : 1;
    if ((a->kind == NM_TRACE_SEGMENT_ALLOC) != (b->kind == NM_TRACE_SEGMENT_ALLOC))
        return a->kind == NM_TRACE_SEGMENT_ALLOC ? -1 : 1;
    if (a->address != b->address)
        return a->address < b->address ? -1 : 1;
    return (int)a->kind - (int)b->kind;
}

int recording_snapshot(struct recording *rec)
{
    struct snapshot s = {.rec = rec};

    ledger_each_entry(rec->recorder->m->ledger, rec->tgid, on_entry, &s);
    if (s.error == 0 && s.count) {
        qsort(s.records, s.count, sizeof(*s.records), record_compare);
        for (size_t i = 0; i < s.count; i++)
            s.records[i].time_ns = rec->header.begin_boot_ns;
        if (!trace_writer_put_all(rec->writer, s.records, s.count))
            recording_lost(rec, s.count, rec->header.begin_boot_ns);
    }
    free(s.records);
    rec->last_ns = rec->header.begin_boot_ns;
    return s.error;
}

/* --- afterwards --- */

/* A refusal made no entry; that torch_npu asked for it tells that a segment was to be made. */
static bool is_refusal(struct recording *rec, const struct nm_event *e)
{
    struct target *t;

    if (e->result == 0 || (e->kind != NM_EVENT_ALLOC && e->kind != NM_EVENT_CREATE) ||
        (e->call.call_flags & (NM_CALL_HOST | NM_CALL_POOL)))
        return false;
    t = targets_find(rec->recorder->m->targets, rec->tgid);
    return t && strcmp(target_caller(t, e->call.caller), "torch_npu") == 0;
}

static bool is_segment(struct recording *rec, const struct nm_event *e, struct ledger_entry *entry,
                       bool has_entry)
{
    uint64_t address = e->call.address ? e->call.address : e->call.handle;
    uint32_t n;

    if (e->kind == NM_EVENT_FREE || e->kind == NM_EVENT_HANDLE_FREE) {
        n = map_find(&rec->segments, address, SPACE_SEGMENT);
        if (n && e->result == 0)
            map_remove(&rec->segments, n);
        return n;
    }
    if (e->result != 0)
        return is_refusal(rec, e);
    return has_entry && entry->owner == OWNER_ID_PTA_POOL &&
           segment_remember(rec, SPACE_SEGMENT, address, entry->size_bytes) == 0;
}

/* A segment by handle is mapped, or not any more. Returns false for all other events. */
static bool is_mapping(struct recording *rec, const struct nm_event *e, struct nm_trace_record *ret)
{
    bool is_new = e->kind == NM_EVENT_MAP;
    uint32_t n;

    if ((!is_new && e->kind != NM_EVENT_UNMAP) || e->result != 0)
        return false;
    *ret = (struct nm_trace_record){
        .time_ns = e->time_ns, .tid = e->tid, .kind = NM_TRACE_SEGMENT_MAP};
    if (is_new) {
        ret->address = e->call.handle;
        ret->stream = e->call.address;
        return map_find(&rec->segments, e->call.handle, SPACE_SEGMENT) &&
               segment_remember(rec, SPACE_MAPPED, e->call.address, e->call.handle) == 0;
    }
    n = map_find(&rec->segments, e->call.address, SPACE_MAPPED);
    if (!n)
        return false;
    ret->address = ((struct segment_slot *)map_at(&rec->segments, n))->bytes;
    map_remove(&rec->segments, n);
    return true;
}

void recording_mark(struct recording *rec, const char *name, uint64_t time_ns)
{
    struct nm_trace_record record = {.time_ns = time_ns, .kind = NM_TRACE_MARK};

    record.owner = name_write(rec, name);
    put(rec, &record);
}

void recording_event(struct recording *rec, const struct nm_event *e)
{
    struct ledger_entry entry;
    struct nm_trace_record record;
    bool is_new = e->kind == NM_EVENT_BLOCK ? e->block.action == NM_BLOCK_MALLOC : e->result == 0;
    bool has_entry;

    if (e->kind == NM_EVENT_STACK) { /* an id that was another stack's before */
        uint32_t n = map_find(&rec->stacks, e->stack.stack, 0);
        if (n)
            map_remove(&rec->stacks, n);
        return;
    }
    if (is_mapping(rec, e, &record)) {
        put(rec, &record);
        return;
    }
    has_entry = is_new && ledger_entry_of(rec->recorder->m->ledger, e, &entry);

    if (!trace_from_event(e, e->kind != NM_EVENT_BLOCK && is_segment(rec, e, &entry, has_entry),
                          &record))
        return;
    if (has_entry) {
        record.device = entry.device;
        record.owner = owner_name(rec, entry.owner);
        record.stack = stack_name(rec, entry.stack);
    }
    put(rec, &record);
}
