/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_ps.c - the header of every document, and the document of `ps`.
 *
 * Owns: the five header fields. Must not: know a row's fields (view_row_write.c does).
 */
#include "view_rows.h"

void view_header(const struct view_context *c, struct json *j)
{
    json_ku64(j, "schema_version", VIEW_SCHEMA_VERSION);
    json_kbool(j, "complete", c->complete && c->lost_events == 0);
    json_ku64(j, "lost_events", c->lost_events);
    json_ku64(j, "time_ns", c->wall_ns);
    json_kstr(j, "host", c->host);
}

void view_moment_write(const struct view_context *c, struct json *j)
{
    const struct view_moment *m = &c->moment;
    bool at = m->at_ns != 0, peak = m->when == LEDGER_AT_PEAK;

    json_kobject(j, "moment");
    json_kstr(j, "kind", peak ? "peak" : at ? "at" : "now");
    /* a peak has a time per row */
    json_ki64_or_null(j, "time_ns", !peak, (int64_t)(at ? m->at_ns : c->wall_ns));
    if (at) {
        json_ki64_or_null(j, "oldest_sample_ns", m->oldest_sample_ns != 0,
                          (int64_t)m->oldest_sample_ns);
        json_ki64_or_null(j, "newest_sample_ns", m->newest_sample_ns != 0,
                          (int64_t)m->newest_sample_ns);
        json_kstr(j, "mark", m->mark);
    }
    json_end(j);
}

int view_ps(const struct ledger *l, const struct view_context *c, struct json *j)
{
    struct view_rows rows;
    int r = view_rows_collect(l, c, &rows);

    if (r < 0)
        return r;
    json_object(j);
    view_header(c, j);
    view_moment_write(c, j);
    json_karray(j, "ranks");
    for (size_t i = 0; i < rows.count && r == 0; i++) {
        if (!rows.items[i].selected)
            continue;
        json_object(j);
        view_row_write(c, &rows.items[i], j);
        r = view_comms_write(l, c, &rows.items[i], j);
        json_end(j);
    }
    json_end(j);
    json_end(j);
    view_rows_done(&rows);
    return r ? r : j->error;
}
