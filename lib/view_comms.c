/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_comms.c - communicators of a process, for ps and breakdown.
 *
 * bytes are those of the owner that the communicator has: two of one name share it, and its row.
 */
#include "view_rows.h"

struct comms {
    const struct ledger *ledger;
    const struct view_context *context;
    const struct view_row *row;
    struct json *json;
    const struct ledger_comm *comm;
    uint64_t bytes;
};

static int on_owner(void *userdata, const struct ledger_owner_total *t)
{
    struct comms *s = userdata;
    if (t->owner == s->comm->owner && t->level == LEVEL_PHYSICAL)
        s->bytes += t->bytes;
    return 0;
}

static int on_comm(void *userdata, const struct ledger_comm *comm)
{
    struct comms *s = userdata;
    struct json *j = s->json;
    uint64_t wall_ns = view_wall_ns(s->context, comm->time_ns);

    s->comm = comm;
    s->bytes = 0;
    int r =
        ledger_each_owner_when(s->ledger, s->row->facts.tgid, s->context->moment.when, on_owner, s);
    if (r)
        return r;
    json_object(j);
    json_ku64(j, "index", comm->index);
    json_kstr(j, "name", comm->name[0] ? comm->name : NULL);
    json_kstr(j, "owner", ledger_owner_name(s->ledger, comm->owner));
    json_khex(j, "handle", comm->handle);
    json_kindex(j, "rank", comm->rank);
    json_kindex(j, "world_size", comm->world_size);
    json_ki64_or_null(j, "buffer_bytes", comm->buffer_bytes != 0, (int64_t)comm->buffer_bytes);
    json_ku64(j, "bytes", s->bytes);
    json_ki64_or_null(j, "created_ns", wall_ns != 0, (int64_t)wall_ns);
    json_end(j);
    return 0;
}

int view_comms_write(const struct ledger *l, const struct view_context *c,
                     const struct view_row *row, struct json *j)
{
    struct comms s = {.ledger = l, .context = c, .row = row, .json = j};
    int r = 0;

    json_karray(j, "communicators");
    if (row->main && row->alive)
        r = ledger_each_comm(l, row->facts.tgid, on_comm, &s);
    json_end(j);
    return r;
}
