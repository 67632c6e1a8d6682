/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_io.c - writing a trace, and the record of an event; see trace_io.h. Reading: trace_read.c,
 * trace_names.c.
 */
#include "trace_io.h"

#include <stdlib.h>
#include <string.h>

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

void trace_header_init(struct nm_trace_header *h)
{
    h->magic = NM_TRACE_MAGIC;
    h->version = NM_TRACE_VERSION;
    h->header_bytes = sizeof(struct nm_trace_header);
    h->record_bytes = sizeof(struct nm_trace_record);
    h->conf[sizeof(h->conf) - 1] = '\0';
    h->comm[sizeof(h->comm) - 1] = '\0';
}

int trace_begin(struct trace_writer *w, const struct nm_trace_header *header)
{
    struct nm_trace_header h = *header;

    trace_header_init(&h);
    w->bytes = 0;
    return append(w, &h, sizeof(h));
}

int trace_add(struct trace_writer *w, const struct nm_trace_record *record)
{
    return append(w, record, sizeof(*record));
}

bool trace_name_part(uint32_t id, const char *name, size_t *at, struct nm_trace_name *ret)
{
    size_t length = strlen(name), left;

    if (length > NM_TRACE_NAME_BYTES_MAX)
        length = NM_TRACE_NAME_BYTES_MAX;
    if (*at >= length)
        return false;
    left = length - *at;
    *ret = (struct nm_trace_name){.id = id, .bytes = (uint16_t)left, .kind = NM_TRACE_NAME};
    if (left > sizeof(ret->text))
        left = sizeof(ret->text);
    memcpy(ret->text, name + *at, left);
    *at += left;
    return true;
}

int trace_add_name(struct trace_writer *w, uint32_t id, const char *name)
{
    struct nm_trace_name part;
    int r = 0;

    for (size_t at = 0; r == 0 && trace_name_part(id, name, &at, &part);)
        r = append(w, &part, sizeof(part));
    return r;
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
    ret->device = e->block.device;
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
    if (e->kind == NM_EVENT_CREATE || e->kind == NM_EVENT_HANDLE_FREE)
        ret->component = NM_TRACE_SEGMENT_HANDLE;
    ret->kind = is_gone          ? NM_TRACE_SEGMENT_FREE
                : e->result != 0 ? NM_TRACE_FAILED
                                 : NM_TRACE_SEGMENT_ALLOC;
    return true;
}
