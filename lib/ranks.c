/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.c - see ranks.h. Owns nothing; allocates nothing.
 *
 * Invariant: a rank is given only where the group sizes inside the outermost group are proven by
 * siblings: all index tuples below them were seen exactly once.
 */
#include "ranks.h"

static const enum title_group nesting[] = {GROUP_DP, GROUP_PP, GROUP_PCP, GROUP_TP};
#define NESTING 4

static bool counts(const struct rank_member *m)
{
    return m->title.kind == TITLE_WORKER && !m->title.unread && m->title.rank < 0;
}

/* Index in a group; dp: the replica counts as the DP index. */
static int32_t index_of(const struct rank_member *m, enum title_group group, bool dp)
{
    return group == GROUP_DP && dp ? m->replica : m->title.group[group];
}

static bool same_place(const struct rank_member *a, const struct rank_member *b, bool dp)
{
    for (int i = 0; i < NESTING; i++)
        if (index_of(a, nesting[i], dp) != index_of(b, nesting[i], dp))
            return false;
    return true;
}

/* Whether two members are of one world (or server). */
static bool together(const struct rank_member *a, const struct rank_member *b, bool server)
{
    if (!counts(b) || a->server_tgid != b->server_tgid)
        return false;
    /* a DP index in the title itself: one world spans the replicas */
    return server || a->title.group[GROUP_DP] >= 0 || a->engine_tgid == b->engine_tgid;
}

struct place {
    int32_t rank, size;
    bool ambiguous;
};

/* Rank of a member among those that are together with it. */
static struct place place_of(const struct rank_member *members, size_t n,
                             const struct rank_member *m, bool server)
{
    struct place p = {-1, -1, false};
    int32_t size[NESTING] = {1, 1, 1, 1}, outermost = -1;
    int64_t rank = 0, inner = 1, all = 1;
    size_t seen = 0, seen_inside = 0;

    for (size_t i = 0; i < n; i++) {
        const struct rank_member *o = &members[i];
        if (!together(m, o, server))
            continue;
        if (o != m && same_place(o, m, server))
            p.ambiguous = true;
        for (int g = 0; g < NESTING; g++) {
            int32_t index = index_of(o, nesting[g], server);
            if (index >= 0 && size[g] < 2)
                size[g] = 2; /* a group of one has no place in a title */
            if (index >= size[g])
                size[g] = index + 1;
        }
        seen++;
    }
    if (p.ambiguous)
        return p;
    for (int g = 0; g < NESTING; g++) {
        int32_t index = index_of(m, nesting[g], server);
        if (index >= 0 && outermost < 0)
            outermost = g;
        else if (outermost >= 0)
            inner *= size[g];
        all *= size[g];
        rank = rank * size[g] + (index > 0 ? index : 0);
        if (rank > INT32_MAX)
            return p;
        if (all > (int64_t)n) /* more ranks than workers: some are not seen */
            all = (int64_t)n + 1;
    }
    if (outermost < 0) { /* no group at all: the only worker, if it is */
        p.rank = seen == 1 ? 0 : -1;
        p.size = seen == 1 ? 1 : -1;
        return p;
    }
    for (size_t i = 0; i < n; i++)
        if (together(m, &members[i], server) && index_of(&members[i], nesting[outermost], server) ==
                                                    index_of(m, nesting[outermost], server))
            seen_inside++;
    if ((int64_t)seen_inside == inner)
        p.rank = (int32_t)rank;
    if (all == (int64_t)seen)
        p.size = (int32_t)all;
    return p;
}

void ranks_decide(struct rank_member *members, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct rank_member *m = &members[i];
        m->rank = m->world_size = m->server_rank = m->server_size = -1;
        m->ambiguous = false;
        if (!counts(m))
            continue;
        struct place world = place_of(members, n, m, false), server = place_of(members, n, m, true);
        m->rank = world.rank;
        m->world_size = world.size;
        m->server_rank = server.rank;
        m->server_size = server.size;
        m->ambiguous = world.ambiguous;
    }
}
