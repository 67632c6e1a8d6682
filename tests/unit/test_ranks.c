/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: what the titles of all workers of a server decide. The trees are those that vLLM makes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "ranks.h"

static void add(struct rank_member *members, size_t *n, const char *title, const char *engine,
                uint32_t engine_tgid, uint32_t server_tgid)
{
    struct rank_member *m = &members[(*n)++];
    struct title_facts parent;
    memset(m, 0, sizeof(*m));
    title_parse(title, &m->title);
    title_parse(engine, &parent);
    m->replica = title_replica(&m->title, &parent);
    m->engine_tgid = engine_tgid;
    m->server_tgid = server_tgid;
}

static void test_dense_replicas_are_worlds_of_their_own(void **state)
{
    struct rank_member m[4];
    size_t n = 0;
    add(m, &n, "VLLM::Worker_TP0", "VLLM::EngineCore_DP0", 20, 10);
    add(m, &n, "VLLM::Worker_TP1", "VLLM::EngineCore_DP0", 20, 10);
    add(m, &n, "VLLM::Worker_TP0", "VLLM::EngineCore_DP1", 21, 10);
    add(m, &n, "VLLM::Worker_TP1", "VLLM::EngineCore_DP1", 21, 10);
    ranks_decide(m, n);
    static const int32_t rank[] = {0, 1, 0, 1};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(m[i].rank, rank[i]);
        assert_int_equal(m[i].world_size, 2);
        assert_int_equal(m[i].server_rank, i);
        assert_int_equal(m[i].server_size, 4);
        assert_false(m[i].ambiguous);
    }
}

static void test_single_worker_replicas(void **state)
{
    struct rank_member m[2];
    size_t n = 0;
    add(m, &n, "VLLM::Worker", "VLLM::EngineCore_DP0", 20, 10);
    add(m, &n, "VLLM::Worker", "VLLM::EngineCore_DP1", 21, 10);
    ranks_decide(m, n);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(m[i].rank, 0);
        assert_int_equal(m[i].world_size, 1);
        assert_int_equal(m[i].server_rank, i);
        assert_int_equal(m[i].server_size, 2);
    }
}

static void test_experts_span_replicas(void **state)
{
    struct rank_member m[4];
    size_t n = 0;
    char title[64];
    for (int i = 0; i < 4; i++) {
        snprintf(title, sizeof(title), "VLLM::Worker_DP%d_TP%d_EP%d", i / 2, i % 2, i);
        add(m, &n, title, i < 2 ? "VLLM::EngineCore_DP0" : "VLLM::EngineCore_DP1", 20 + i / 2, 10);
    }
    ranks_decide(m, n);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(m[i].rank, i);
        assert_int_equal(m[i].world_size, 4);
        assert_int_equal(m[i].server_rank, i);
    }
}

static void test_pipeline_by_tensor_parallel_in_any_order(void **state)
{
    struct rank_member m[8];
    static const int order[] = {5, 0, 7, 2, 6, 1, 3, 4};
    size_t n = 0;
    char title[64];
    for (int i = 0; i < 8; i++) {
        snprintf(title, sizeof(title), "VLLM::Worker_PP%d_TP%d", order[i] / 4, order[i] % 4);
        add(m, &n, title, "VLLM::EngineCore", 20, 10);
    }
    ranks_decide(m, n);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(m[i].rank, order[i]);
        assert_int_equal(m[i].world_size, 8);
    }
}

static void test_a_missing_worker_makes_ranks_unknown_not_wrong(void **state)
{
    struct rank_member m[5];
    size_t n = 0;
    /* PP=2 x TP=4, of which only these are there */
    add(m, &n, "VLLM::Worker_PP0_TP0", "VLLM::EngineCore", 20, 10);
    add(m, &n, "VLLM::Worker_PP0_TP3", "VLLM::EngineCore", 20, 10);
    add(m, &n, "VLLM::Worker_PP1_TP0", "VLLM::EngineCore", 20, 10);
    add(m, &n, "VLLM::Worker_PP1_TP1", "VLLM::EngineCore", 20, 10);
    ranks_decide(m, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(m[i].rank, -1);
        assert_int_equal(m[i].world_size, -1);
    }
    n = 0; /* one of a group: the index alone tells, the size does not */
    add(m, &n, "VLLM::Worker_TP0", "VLLM::EngineCore", 20, 10);
    ranks_decide(m, n);
    assert_int_equal(m[0].rank, 0);
    assert_int_equal(m[0].world_size, -1);
}

static void test_two_servers_and_liars(void **state)
{
    struct rank_member m[6];
    size_t n = 0;
    add(m, &n, "VLLM::Worker_TP0", "VLLM::EngineCore", 20, 10);
    add(m, &n, "VLLM::Worker_TP1", "VLLM::EngineCore", 20, 10);
    add(m, &n, "VLLM::Worker_TP0", "VLLM::EngineCore", 30, 11);
    add(m, &n, "VLLM::Worker_TP0", "VLLM::EngineCore", 30, 11);
    add(m, &n, "VLLM::Worker_TP999999", "VLLM::EngineCore", 40, 12);
    add(m, &n, "python worker.py", "bash", 50, 13);
    ranks_decide(m, n);
    assert_int_equal(m[1].rank, 1);
    assert_int_equal(m[1].world_size, 2);
    assert_true(m[2].ambiguous && m[3].ambiguous);
    assert_int_equal(m[2].rank, -1);
    assert_int_equal(m[4].rank, 999999); /* what it says, in a world of unknown size */
    assert_int_equal(m[4].world_size, -1);
    assert_int_equal(m[5].rank, -1);
}

static void test_sizes_that_would_overflow(void **state)
{
    struct rank_member m[2];
    size_t n = 0;
    add(m, &n, "VLLM::Worker_DP999999_PP999999_PCP999999_TP999999", "VLLM::EngineCore", 20, 10);
    add(m, &n, "VLLM::Worker_DP0_PP0_PCP0_TP0", "VLLM::EngineCore", 20, 10);
    ranks_decide(m, n);
    assert_int_equal(m[0].rank, -1);
    assert_int_equal(m[1].rank, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense_replicas_are_worlds_of_their_own),
        cmocka_unit_test(test_single_worker_replicas),
        cmocka_unit_test(test_experts_span_replicas),
        cmocka_unit_test(test_pipeline_by_tensor_parallel_in_any_order),
        cmocka_unit_test(test_a_missing_worker_makes_ranks_unknown_not_wrong),
        cmocka_unit_test(test_two_servers_and_liars),
        cmocka_unit_test(test_sizes_that_would_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
