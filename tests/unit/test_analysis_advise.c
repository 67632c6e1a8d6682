/* SPDX-License-Identifier: Apache-2.0 */
/* Advice: golden cases; never without evidence, never what is set or excluded. */
#include "test_analysis.h"

#include "advise.h"

#define GIB ((uint64_t)1 << 30)

static size_t join_environment(struct jsonc *list, char *ret, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; list && i < json_object_array_length(list); i++) {
        const char *text = json_object_get_string(json_object_array_get_idx(list, i));
        assert_true(used + strlen(text) + 1 <= size);
        memcpy(ret + used, text, strlen(text) + 1);
        used += strlen(text) + 1;
    }
    return used;
}

static void load_gc(struct jsonc *o, struct advise_gc *gc)
{
    if (!o)
        return;
    gc->is_known = true;
    gc->is_enabled = get_u64(o, "enabled", 1);
    gc->is_frozen = get_u64(o, "frozen", 0);
    gc->threshold = (uint32_t)get_u64(o, "threshold", 10);
    gc->collections[1] = get_u64(o, "middle_collections", 11 * get_u64(o, "collections", 0));
    gc->collections[2] = get_u64(o, "collections", 0);
    gc->uncollectable[2] = get_u64(o, "uncollectable", 0);
    gc->since_ns = get_u64(o, "since_ns", 0);
    gc->freed_bytes[2] = get_u64(o, "freed_bytes", 0);
    gc->freed_blocks[2] = get_u64(o, "freed_blocks", 0);
    gc->largest_bytes = get_u64(o, "largest_bytes", 0);
}

static int run(struct jsonc *input, struct json *j)
{
    static char environment[4096];
    struct jsonc *list = get(input, "environment");
    struct advise_result result;
    struct advise_input in;

    advise_input_init(&in);
    in.tgid = 1;
    in.rank = (int32_t)get_u64(input, "rank", 0);
    in.reserved_bytes = get_u64(input, "reserved_bytes", in.reserved_bytes);
    in.allocated_bytes = get_u64(input, "allocated_bytes", in.allocated_bytes);
    in.active_bytes = get_u64(input, "active_bytes", in.allocated_bytes);
    in.slack.pinned_free_bytes = get_u64(input, "pinned_free_bytes", in.slack.pinned_free_bytes);
    in.slack.unmap_bytes = get_u64(input, "unmap_bytes", in.slack.unmap_bytes);
    for (size_t i = 0; i < SLACK_SPLITS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "split_%u_bytes", slack_split_mb[i]);
        in.slack.split_bytes[i] = get_u64(input, name, in.slack.split_bytes[i]);
    }
    in.slack.empty_bytes = get_u64(input, "empty_bytes", in.slack.empty_bytes);
    in.total_bytes = get_u64(input, "total_bytes", in.total_bytes);
    in.others_bytes = get_u64(input, "others_bytes", in.others_bytes);
    in.outside_bytes = get_u64(input, "outside_bytes", in.outside_bytes);
    in.retry_bytes = get_u64(input, "retry_bytes", in.retry_bytes);
    in.recovered_retries = get_u64(input, "recovered_retries", 0);
    in.is_asleep = get_u64(input, "asleep", 0);
    in.workspace_bytes = get_u64(input, "workspace_bytes", in.workspace_bytes);
    in.communicators = (uint32_t)get_u64(input, "communicators", 0);
    in.hccl_default_bytes = get_u64(input, "hccl_default_bytes", 0);
    in.hccl_default_count = (uint32_t)get_u64(input, "hccl_default_count", 0);
    in.is_atb_known = get(input, "atb_executions") != NULL;
    in.atb_executions = get_u64(input, "atb_executions", 0);
    in.atb_workspace_max_bytes = get_u64(input, "atb_workspace_max_bytes", 0);
    load_gc(get(input, "gc"), &in.gc);
    in.settings.title = get_text(input, "title", NULL);
    if (list) {
        in.settings.environment_bytes = join_environment(list, environment, sizeof(environment));
        in.settings.environment = environment;
    }
    settings_read(&in.settings, &in.read);
    advise_compute(&in, &result);
    json_karray(j, "advice");
    advise_write(&in, &result, j);
    json_end(j);
    json_kstr(j, "complaint", result.complaint[0] ? result.complaint : NULL);
    return 0;
}

static void golden(void **state)
{
    golden_run("advise", run, 30);
}

static void of_nothing_no_advice(void **state)
{
    struct advise_input in;
    struct advise_result r;

    advise_input_init(&in);
    advise_compute(&in, &r);
    assert_int_equal(r.advice.count, 0);
}

/* What a plan advises is taken over, in its place, and not doubled. */
static void the_plan_joins_in(void **state)
{
    struct advise_input in;
    struct advise_result r;
    struct budget_result budget = {0};

    advice_add(&budget.advice, "HCCL_BUFFSIZE", NULL, "lower", GIB, "medium", "by the plan");
    advice_add(&budget.advice, "gpu_memory_utilization", "0.97", "0.95", GIB, "high",
               "by the plan");
    advise_input_init(&in);
    in.hccl_default_bytes = 4 * GIB;
    in.hccl_default_count = 4;
    in.budget = &budget;
    in.settings.environment = "";
    settings_read(&in.settings, &in.read);
    advise_compute(&in, &r);
    assert_int_equal(r.advice.count, 2);
    assert_string_equal(r.advice.items[0].setting, "gpu_memory_utilization");
    assert_string_equal(r.advice.items[1].setting, "HCCL_BUFFSIZE");
    assert_string_equal(r.advice.items[1].to, "100");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(of_nothing_no_advice),
        cmocka_unit_test(the_plan_joins_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
