/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_read.c - reading a trace from memory or through a window; see trace_io.h.
 *
 * Must not: trust a length in a file; keep what a reader does not know of.
 * Invariant: records at window_first and the window_count - 1 after it are at `records`.
 */
#include "trace_io.h"

#include <stdlib.h>
#include <string.h>

#define HEADER_MAX 65536u
#define RECORD_MAX 4096u
/* No allocation is as large as the user address space (47 bits); a negative size is larger. */
#define SIZE_LIMIT ((uint64_t)1 << 47)

static int header_check(const struct nm_trace_header *h, uint64_t bytes, struct error *reterr)
{
    if (h->magic != NM_TRACE_MAGIC)
        return error_set(reterr, EINVAL, "this is not a trace of npumem");
    if (h->version > NM_TRACE_VERSION)
        return error_set(reterr, ENOTSUP, "trace version %u, this npumem reads up to %u",
                         h->version, NM_TRACE_VERSION);
    if (h->header_bytes < sizeof(*h) || h->header_bytes > HEADER_MAX || h->header_bytes > bytes ||
        h->record_bytes < sizeof(struct nm_trace_record) || h->record_bytes > RECORD_MAX)
        return error_set(reterr, EINVAL, "the trace has a header of %u and records of %u bytes",
                         h->header_bytes, h->record_bytes);
    return 0;
}

static int reader_init(struct trace_reader *ret, struct nm_trace_header *h, uint64_t bytes,
                       struct error *reterr)
{
    int r = header_check(h, bytes, reterr);

    if (r < 0)
        return r;
    h->conf[sizeof(h->conf) - 1] = '\0';
    h->comm[sizeof(h->comm) - 1] = '\0';
    *ret = (struct trace_reader){
        .header = *h,
        .record_bytes = h->record_bytes,
        .count = (bytes - h->header_bytes) / h->record_bytes,
        .is_cut = (bytes - h->header_bytes) % h->record_bytes != 0,
    };
    return 0;
}

static int too_short(uint64_t bytes, struct error *reterr)
{
    return error_set(reterr, ENODATA, "the trace is shorter than its header (%llu bytes)",
                     (unsigned long long)bytes);
}

int trace_open(const void *data, size_t bytes, struct trace_reader *ret, struct error *reterr)
{
    struct nm_trace_header h;

    if (bytes < sizeof(h))
        return too_short(bytes, reterr);
    memcpy(&h, data, sizeof(h));
    int r = reader_init(ret, &h, bytes, reterr);
    if (r < 0)
        return r;
    ret->records = (const unsigned char *)data + h.header_bytes;
    ret->window_count = ret->count;
    return 0;
}

int trace_open_window(trace_read_fn read_fn, void *userdata, uint64_t bytes,
                      struct trace_reader *ret, struct error *reterr)
{
    struct nm_trace_header h;

    if (bytes < sizeof(h))
        return too_short(bytes, reterr);
    int64_t n = read_fn(userdata, 0, &h, sizeof(h));
    if (n < (int64_t)sizeof(h))
        return error_set(reterr, n < 0 ? (int)-n : EIO, "the trace cannot be read");
    int r = reader_init(ret, &h, bytes, reterr);
    if (r < 0)
        return r;
    ret->read_fn = read_fn;
    ret->userdata = userdata;
    ret->records = ret->window = malloc(TRACE_WINDOW_BYTES);
    return ret->window ? 0 : error_set(reterr, ENOMEM, "out of memory");
}

void trace_close(struct trace_reader *r)
{
    free(r->window);
    r->window = NULL;
    r->records = NULL;
    r->count = r->at = r->window_count = 0;
}

/* Makes the window hold the next record. Returns false when it cannot be had. */
static bool window_move(struct trace_reader *r)
{
    uint64_t count = TRACE_WINDOW_BYTES / r->record_bytes, left = r->count - r->at;

    if (!r->read_fn)
        return false;
    if (count > left)
        count = left;
    int64_t n = r->read_fn(r->userdata, r->header.header_bytes + r->at * r->record_bytes, r->window,
                           (size_t)(count * r->record_bytes));
    r->window_first = r->at;
    r->window_count = n > 0 ? (uint64_t)n / r->record_bytes : 0;
    if (r->window_count == 0) {
        r->error = n < 0 ? (int)n : -EIO;
        r->is_cut = true;
    }
    return r->window_count > 0;
}

int trace_next(struct trace_reader *r, struct nm_trace_record *ret)
{
    while (r->at < r->count) {
        if (r->at - r->window_first >= r->window_count && !window_move(r))
            return 0;
        memcpy(ret, r->records + (r->at++ - r->window_first) * r->record_bytes, sizeof(*ret));
        if (ret->kind < NM_TRACE_BLOCK_MALLOC || ret->kind >= NM_TRACE_KIND_COUNT) {
            r->unknown_kinds++;
            continue;
        }
        if (ret->kind < NM_TRACE_LOST &&
            (ret->size_bytes >= SIZE_LIMIT || ret->requested_bytes >= SIZE_LIMIT)) {
            r->implausible++;
            continue;
        }
        if (ret->kind == NM_TRACE_NAME)
            return 1;
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
    r->lost_events = r->out_of_order = r->unknown_kinds = r->implausible = r->last_ns = 0;
    if (r->read_fn)
        r->window_first = r->window_count = 0;
}

#define FLAGS_INCOMPLETE (NM_TRACE_LATE | NM_TRACE_NO_SMALL | NM_TRACE_OPEN | NM_TRACE_FULL)

bool trace_complete(const struct trace_reader *r)
{
    return !r->is_cut && !r->lost_events && !r->header.lost_events && !r->unknown_kinds &&
           !r->out_of_order && !r->implausible && !(r->header.flags & FLAGS_INCOMPLETE);
}

char *trace_missing(const struct trace_reader *r, char *text, size_t size)
{
    const struct {
        bool is;
        const char *what;
    } rows[] = {
        {r->header.flags & NM_TRACE_LATE, "it begins in the middle of the process's life"},
        {r->header.flags & NM_TRACE_NO_SMALL, "small blocks are missing"},
        {r->header.flags & NM_TRACE_FULL, "it reached its bound"},
        {r->header.flags & NM_TRACE_OPEN, "it has no end"},
        {r->is_cut, "its last record is cut off"},
        {r->lost_events || r->header.lost_events, "events were lost"},
        {r->out_of_order, "its times are out of order"},
        {r->implausible, "it has sizes that cannot be"},
        {r->unknown_kinds, "it has records that are not known"},
    };
    size_t at = 0;

    text[0] = '\0';
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].is && at < size)
            at += (size_t)snprintf(text + at, size - at, "%s%s", at ? ", " : "", rows[i].what);
    return text;
}
