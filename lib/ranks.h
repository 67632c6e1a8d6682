/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.h - ranks that one title does not decide, from the titles of all workers of a server.
 *
 * A title names a worker's index in each group of more than one rank, and not the groups' sizes.
 * The titles of its siblings give them. Two worlds are told apart:
 *   - world: the ranks that one HCCL world spans. A dense data-parallel replica is a world of its
 *     own: its workers' titles have no DP index, which stands in their engine's title only.
 *   - server: all workers of one server; equal to the world without dense replicas.
 * Source: titles and ranks as measured on vLLM 0.23 (DP=2 x TP=2), and vLLM's order of ranks (DP,
 * PP, PCP, TP, from the outermost in).
 */
#ifndef NPUMEM_RANKS_H
#define NPUMEM_RANKS_H

#include <stddef.h>
#include <stdint.h>

#include "procfacts.h"

struct rank_member {
    /* in */
    struct title_facts title;
    int32_t replica;      /* title_replica(): the DP index wherever it stands, -1 none */
    uint32_t engine_tgid; /* the engine that it is a child of; its parent where no title says */
    uint32_t server_tgid; /* what all engines of the server are children of */
    /* out; -1 where the titles do not decide it */
    int32_t rank, world_size;
    int32_t server_rank, server_size;
    bool ambiguous; /* another worker of the same world has the same title */
};

/*
 * Fills the out fields. Only TITLE_WORKER members count; others get -1. A size is known only if
 * every index below it was seen as often as it must be, so that a missing worker makes ranks
 * unknown and not wrong; workers on other hosts are not seen, so that what is found here is an
 * inference. Cost: quadratic in members of one server, n times the number of servers.
 */
void ranks_decide(struct rank_member *members, size_t n);

#endif
