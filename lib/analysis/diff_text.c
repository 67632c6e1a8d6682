/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_text.c - see diff_text.h.
 */
#include "diff_text.h"

#include <errno.h>

#include "diff.h"
#include "document.h"
#include "units.h"
#include "view_rows.h"

static void write_side(const char *key, const struct trace_reader *r, const struct diff_trace *t,
                       struct json *j)
{
    char missing[ANALYSIS_TEXT_BYTES];

    json_kobject(j, key);
    json_ku64(j, "tgid", r->header.tgid);
    json_kstr(j, "comm", r->header.comm);
    json_kindex(j, "rank", r->header.rank);
    json_ku64(j, "begin_ns", r->header.begin_wall_ns);
    json_kstr(j, "setting", r->header.conf);
    json_ku64(j, "records", t->records);
    json_ku64(j, "peak_allocated_bytes", t->peak_allocated_bytes);
    json_ku64(j, "peak_reserved_bytes", t->peak_reserved_bytes);
    json_ku64(j, "unknown_frees", t->unknown_frees);
    json_ku64(j, "reused_addresses", t->reused_addresses);
    json_ku64(j, "lost_events", r->lost_events);
    trace_missing(r, missing, sizeof(missing));
    json_kstr(j, "missing", missing[0] ? missing : NULL);
    json_end(j);
}

static bool is_complete(const struct trace_reader *r, const struct diff_trace *t)
{
    return trace_complete(r) && !t->unknown_frees && !t->reused_addresses;
}

static int add_both(struct diff *d, struct trace_reader *from, struct trace_reader *to,
                    struct diff_trace *told)
{
    int r = diff_add_trace(d, DIFF_FROM, from, &told[0]);
    return r < 0 ? r : diff_add_trace(d, DIFF_TO, to, &told[1]);
}

int diff_recordings_write(struct trace_reader *from, struct trace_reader *to, uint32_t limit,
                          bool with_equal, bool *ret_complete, struct json *j)
{
    _cleanup_(diff_freep) struct diff *d = NULL;
    struct diff_trace told[2] = {0};
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], note[128];
    struct diff_query q = {
        .limit = limit, .with_equal = with_equal, .with_frames = true, .has_peaks = to != NULL};
    int r = diff_new(&d);

    if (r == 0)
        r = to ? add_both(d, from, to, told) : diff_add_trace_grown(d, from, &told[0]);
    if (r < 0)
        return r;
    if (to) {
        snprintf(note, sizeof(note), "peak %s -> %s",
                 units_format_bytes(a, told[0].peak_allocated_bytes, UNITS_AUTO),
                 units_format_bytes(b, told[1].peak_allocated_bytes, UNITS_AUTO));
        q.note = note;
    }
    *ret_complete = is_complete(from, &told[0]) && (!to || is_complete(to, &told[1]));
    json_kstr(j, "compared", to ? "recordings" : "recording");
    write_side("from", from, &told[0], j);
    if (to)
        write_side("to", to, &told[1], j);
    return diff_write(d, &q, j);
}

char *diff_text(struct trace_reader *from, struct trace_reader *to, uint32_t limit, bool with_equal,
                const char *host, uint64_t wall_ns, struct error *reterr)
{
    struct view_context c = {.wall_ns = wall_ns, .host = host};
    struct json members = {0};
    char *text = NULL;

    json_object(&members);
    int r = diff_recordings_write(from, to, limit, with_equal, &c.complete, &members);
    json_end(&members);
    if (r == 0 && json_finish(&members) == 0) {
        c.lost_events = from->lost_events + (to ? to->lost_events : 0);
        text = document_text(&c, &members);
    }
    json_done(&members);
    if (!text)
        error_set(reterr, ENOMEM, "out of memory");
    return text;
}
