/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target_facts.c - who the observed processes are: read again, and settled among each other.
 *
 * Owns: how old what is known of them may be. What /proc says of one process is procfs.h's, which
 * rank follows from siblings is ranks.h's.
 */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "procfacts.h"
#include "procfs.h"
#include "ranks.h"
#include "target_internal.h"

/* How long it is known who they are: per target, and of all. */
#define FACTS_AGE_NS 1000000ull
#define FACTS_AGE_MAX_NS 1000000000ull

/* A process that was adopted keeps the family that it came from: its place has not changed. */
static void family_keep(const struct target *t, struct process_facts *facts)
{
    if (facts->parent_tgid == t->told.parent_tgid && !t->told.orphan)
        return;
    facts->orphan = true;
    if (facts->role != t->told.role || facts->role != TITLE_WORKER)
        return;
    facts->engine_tgid = t->told.engine_tgid;
    facts->server_tgid = t->told.server_tgid;
    facts->replica = t->told.replica;
}

int target_refresh(struct target *t)
{
    struct process_facts facts;
    int r = procfs_facts(t->tgid, t->memory, &t->told, &facts);

    if (r < 0)
        return r;
    if (!procfs_alive(t->pidfd))
        return -ESRCH;
    family_keep(t, &facts);
    if (memcmp(&facts, &t->told, sizeof(facts)) == 0)
        return 0;
    t->told = facts;
    return 1;
}

bool targets_refresh(struct targets *ts)
{
    uint64_t now_ns = clock_ns(CLOCK_BOOTTIME), age_ns = targets_count(ts) * FACTS_AGE_NS;
    bool changed = false;

    if (now_ns - ts->refreshed_ns < (age_ns < FACTS_AGE_MAX_NS ? age_ns : FACTS_AGE_MAX_NS))
        return false;
    for (struct target *t = ts->first; t; t = t->next)
        changed |= target_refresh(t) > 0;
    ts->refreshed_ns = clock_ns(CLOCK_BOOTTIME);
    return changed;
}

static void member_fill(const struct target *t, struct rank_member *m)
{
    title_parse(t->told.title, &m->title);
    m->replica = t->told.replica;
    m->engine_tgid = t->told.engine_tgid;
    m->server_tgid = t->told.server_tgid;
}

/* What a process tells, and what its siblings add. A place in the server that was decided once
 * stays decided when siblings end, as long as the title is the same. */
static struct process_facts facts_settled(const struct target *t, const struct rank_member *m)
{
    struct process_facts f = t->told;
    bool same_title = strcmp(t->facts.title, f.title) == 0;
    bool by_title = strcmp(f.rank_source, "title") == 0;

    if (f.role == TITLE_ENGINE && t->has_workers && by_title) {
        f.rank = -1; /* the ranks are its workers */
        f.rank_inferred = false;
        f.rank_source[0] = '\0';
    }
    if (f.role != TITLE_WORKER)
        return f;
    if (m->rank >= 0 && (f.rank < 0 || (by_title && f.rank_inferred))) {
        f.rank = m->rank;
        f.rank_inferred = true;
        snprintf(f.rank_source, sizeof(f.rank_source), "title");
    }
    if (m->ambiguous && by_title)
        f.rank_inferred = true;
    if (f.world_size < 0)
        f.world_size = m->world_size;
    f.server_rank = m->server_rank;
    f.server_size = m->server_size;
    if (!same_title)
        return f;
    if (f.rank < 0) {
        f.rank = t->facts.rank;
        f.rank_inferred = t->facts.rank_inferred;
        memcpy(f.rank_source, t->facts.rank_source, sizeof(f.rank_source));
    }
    if (f.world_size < t->facts.world_size)
        f.world_size = t->facts.world_size;
    if (f.server_size < t->facts.server_size) {
        f.server_rank = t->facts.server_rank;
        f.server_size = t->facts.server_size;
    }
    return f;
}

void targets_settle(struct targets *ts)
{
    struct rank_member *members = calloc(targets_count(ts) + 1, sizeof(*members));
    _cleanup_free_ struct rank_member *owned = members;
    size_t n = 0;

    if (!members)
        return;
    for (struct target *t = ts->first; t; t = t->next) {
        struct target *parent = targets_find(ts, t->told.parent_tgid);
        if (parent && t->told.role == TITLE_WORKER)
            parent->has_workers = true;
        member_fill(t, &members[n++]);
    }
    ranks_decide(members, n);
    n = 0;
    for (struct target *t = ts->first; t; t = t->next) {
        struct process_facts settled = facts_settled(t, &members[n++]);
        if (memcmp(&settled, &t->facts, sizeof(settled)) == 0)
            continue;
        t->facts = settled;
        t->facts_changed = true;
    }
}
