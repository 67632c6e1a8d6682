/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_io.c - see trace_io.h.
 *
 * Must not: trust a length in a file; keep what a reader does not know of.
 */
#include "trace_io.h"

#include <stdlib.h>
#include <string.h>

#define HEADER_MAX 65536u
#define RECORD_MAX 4096u

static int reserve(struct trace_writer *w, size_t bytes)
{
    if (w->bytes + bytes <= w->capacity)
        return 0;
    size_t wanted = w->capacity ? w->capacity * 2 : 65536;
    while (wanted < w->bytes + bytes)
        wanted *= 2;
    unsigned char *data = realloc(w->data, wanted);
    if (!data)
        return -ENOMEM;
    w->data = data;
    w->capacity = wanted;
    return 0;
}

static int append(struct trace_writer *w, const void *data, size_t bytes)
{
    int r = reserve(w, bytes);

    if (r == 0) {
        memcpy(w->data + w->bytes, data, bytes);
        w->bytes += bytes;
    }
    return r;
}

int trace_begin(struct trace_writer *w, const struct nm_trace_header *header)
{
    struct nm_trace_header h = *header;

    h.magic = NM_TRACE_MAGIC;
    h.version = NM_TRACE_VERSION;
    h.header_bytes = sizeof(struct nm_trace_header);
    h.record_bytes = sizeof(struct nm_trace_record);
    h.conf[sizeof(h.conf) - 1] = '\0';
    w->bytes = 0;
    return append(w, &h, sizeof(h));
}

int trace_add(struct trace_writer *w, const struct nm_trace_record *record)
{
    return append(w, record, sizeof(*record));
}

void trace_done(struct trace_writer *w)
{
    free(w->data);
    memset(w, 0, sizeof(*w));
}

static bool from_block(const struct nm_event *e, struct nm_trace_record *ret)
{
    static const uint8_t kinds[] = {[NM_BLOCK_MALLOC] = NM_TRACE_BLOCK_MALLOC,
                                    [NM_BLOCK_FREE] = NM_TRACE_BLOCK_FREE,
                                    [NM_BLOCK_BLOCK_FREE] = NM_TRACE_BLOCK_DONE};
    int64_t size = e->block.size_bytes;

    if (e->block.action > NM_BLOCK_BLOCK_FREE || size == INT64_MIN)
        return false;
    ret->kind = kinds[e->block.action];
    ret->component = e->block.component;
    ret->address = e->block.address;
    ret->size_bytes = (uint64_t)(size < 0 ? -size : size);
    ret->stream = e->block.stream;
    return true;
}

bool trace_from_event(const struct nm_event *e, bool is_segment, struct nm_trace_record *ret)
{
    *ret = (struct nm_trace_record){.time_ns = e->time_ns, .tid = e->tid};
    if (e->kind == NM_EVENT_BLOCK)
        return from_block(e, ret);
    bool is_new = e->kind == NM_EVENT_ALLOC || e->kind == NM_EVENT_CREATE;
    bool is_gone = e->kind == NM_EVENT_FREE || e->kind == NM_EVENT_HANDLE_FREE;
    if (!is_segment || (!is_new && !is_gone) || (is_gone && e->result != 0))
        return false;
    ret->address = e->call.address ? e->call.address : e->call.handle;
    ret->size_bytes = e->call.requested ? e->call.requested : e->call.physical_bytes;
    ret->kind = is_gone          ? NM_TRACE_SEGMENT_FREE
                : e->result != 0 ? NM_TRACE_FAILED
                                 : NM_TRACE_SEGMENT_ALLOC;
    return true;
}

int trace_open(const void *data, size_t bytes, struct trace_reader *ret, struct error *reterr)
{
    struct nm_trace_header h;

    if (bytes < sizeof(h))
        return error_set(reterr, ENODATA, "the trace is shorter than its header (%zu bytes)",
                         bytes);
    memcpy(&h, data, sizeof(h));
    if (h.magic != NM_TRACE_MAGIC)
        return error_set(reterr, EINVAL, "this is not a trace of npumem");
    if (h.version > NM_TRACE_VERSION)
        return error_set(reterr, ENOTSUP, "trace version %u, this npumem reads up to %u", h.version,
                         NM_TRACE_VERSION);
    if (h.header_bytes < sizeof(h) || h.header_bytes > HEADER_MAX || h.header_bytes > bytes ||
        h.record_bytes < sizeof(struct nm_trace_record) || h.record_bytes > RECORD_MAX)
        return error_set(reterr, EINVAL, "the trace has a header of %u and records of %u bytes",
                         h.header_bytes, h.record_bytes);
    h.conf[sizeof(h.conf) - 1] = '\0';
    *ret = (struct trace_reader){
        .header = h,
        .records = (const unsigned char *)data + h.header_bytes,
        .record_bytes = h.record_bytes,
        .count = (bytes - h.header_bytes) / h.record_bytes,
        .is_cut = (bytes - h.header_bytes) % h.record_bytes != 0,
    };
    return 0;
}

int trace_next(struct trace_reader *r, struct nm_trace_record *ret)
{
    while (r->at < r->count) {
        memcpy(ret, r->records + r->at++ * r->record_bytes, sizeof(*ret));
        if (ret->kind < NM_TRACE_BLOCK_MALLOC || ret->kind > NM_TRACE_LOST) {
            r->unknown_kinds++;
            continue;
        }
        if (ret->time_ns < r->last_ns)
            r->out_of_order++;
        else
            r->last_ns = ret->time_ns;
        if (ret->kind == NM_TRACE_LOST)
            r->lost_events += ret->size_bytes ? ret->size_bytes : 1;
        return 1;
    }
    return 0;
}

void trace_rewind(struct trace_reader *r)
{
    r->at = 0;
    r->lost_events = r->out_of_order = r->unknown_kinds = r->last_ns = 0;
}

bool trace_complete(const struct trace_reader *r)
{
    return !r->is_cut && !r->lost_events && !r->unknown_kinds &&
           !(r->header.flags & (NM_TRACE_LATE | NM_TRACE_NO_SMALL));
}
