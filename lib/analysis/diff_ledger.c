/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_ledger.c - a moment of the ledger as one side of a comparison.
 *
 * Processes that are the same on both sides are joined before those that only have the same rank: a
 * restarted server has new processes, and another server beside it may have the same ranks.
 */
#include "diff_internal.h"
#include "view_rows.h"

#include <errno.h>
#include <string.h>

struct adding {
    struct diff *d;
    enum diff_side side;
    const struct ledger *l;
    const struct view_context *c;
    const struct process_facts *facts;
    uint32_t process;
    uint64_t since_ns;
    bool by_rank; /* which processes this round is for */
    int count;
};

static int32_t device_of(const struct adding *a, enum ledger_level level, uint16_t device)
{
    return view_level_is_torch(level) ? view_device_of(a->facts, device) : device;
}

static int on_owner(void *userdata, const struct ledger_owner_total *t)
{
    struct adding *a = userdata;
    int32_t device = device_of(a, t->level, t->device);
    int64_t owner, row;

    if (!view_filter_device(a->c, device) || t->level == LEVEL_RESERVED_VA ||
        t->level == LEVEL_POOL_SUB)
        return 0;
    owner = diff_name(a->d, ledger_owner_name(a->l, t->owner));
    if (owner < 0)
        return (int)owner;
    struct diff_place place = {.process = a->process,
                               .device = a->d->is_pair ? -1 : device,
                               .level = t->level,
                               .owner = (uint32_t)owner};
    row = diff_row(a->d, &place);
    if (row < 0)
        return (int)row;
    diff_add(a->d, a->side, row, &(struct diff_amount){t->bytes, t->count, 0});
    return 0;
}

static int on_process(void *userdata, const struct ledger_process *p)
{
    struct adding *a = userdata;
    int64_t process;

    if (!p->alive || !view_filter_process(a->c, &p->facts))
        return 0;
    if (a->side == DIFF_TO && !a->d->is_pair &&
        a->by_rank == (diff_process_find(a->d, &p->facts, false) != NULL))
        return 0; /* of the other round */
    process = diff_process(a->d, a->side, &p->facts);
    if (process < 0)
        return (int)process;
    a->process = (uint32_t)process;
    a->facts = &p->facts;
    a->count++;
    return ledger_each_owner_when(a->l, p->facts.tgid, a->c->moment.when, on_owner, a);
}

int diff_add_ledger(struct diff *d, enum diff_side side, const struct ledger *l,
                    const struct view_context *c)
{
    struct adding a = {.d = d, .side = side, .l = l, .c = c};
    int r = ledger_each_process(l, on_process, &a);

    if (r == 0 && side == DIFF_TO && !d->is_pair) {
        a.by_rank = true;
        r = ledger_each_process(l, on_process, &a);
    }
    return r < 0 ? r : a.count;
}

/* --- what came since --- */

/* Frames as one text, ';' between them. */
static int64_t frames_name(struct adding *a, uint32_t stack)
{
    const char *frames[VIEW_FRAMES_MAX];
    char text[NM_TRACE_NAME_BYTES_MAX] = "";
    size_t n, at = 0;

    if (!stack || !a->c->frames_fn)
        return 0;
    n = a->c->frames_fn(a->c->userdata, a->facts->tgid, stack, frames, VIEW_FRAMES_MAX);
    for (size_t i = 0; i < n && at < sizeof(text); i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", i ? ";" : "", frames[i]);
    return diff_name(a->d, text);
}

static int on_entry(void *userdata, const struct ledger_entry *e)
{
    struct adding *a = userdata;
    int32_t device = device_of(a, e->level, e->device);
    int64_t owner, frames, row;

    if (e->level != LEVEL_BLOCK || e->allocated_ns <= a->since_ns ||
        !view_filter_device(a->c, device))
        return 0;
    owner = diff_name(a->d, ledger_owner_name(a->l, e->owner));
    frames = frames_name(a, e->stack);
    if (owner < 0 || frames < 0)
        return -ENOMEM;
    struct diff_place place = {.process = a->process,
                               .device = device,
                               .level = e->level,
                               .owner = (uint32_t)owner,
                               .frames = (uint32_t)frames};
    row = diff_row(a->d, &place);
    if (row < 0)
        return (int)row;
    diff_add(a->d, DIFF_TO, row, &(struct diff_amount){e->size_bytes, 1, 0});
    return 0;
}

static int on_process_since(void *userdata, const struct ledger_process *p)
{
    struct adding *a = userdata;
    int64_t process;

    if (!p->alive || !view_filter_process(a->c, &p->facts))
        return 0;
    process = diff_process(a->d, DIFF_TO, &p->facts);
    if (process < 0)
        return (int)process;
    a->process = (uint32_t)process;
    a->facts = &p->facts;
    return ledger_each_entry(a->l, p->facts.tgid, on_entry, a);
}

int diff_add_since(struct diff *d, const struct ledger *l, const struct view_context *c,
                   uint64_t since_ns)
{
    struct adding a = {.d = d, .side = DIFF_TO, .l = l, .c = c, .since_ns = since_ns};
    return ledger_each_process(l, on_process_since, &a);
}
