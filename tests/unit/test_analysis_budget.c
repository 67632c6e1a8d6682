/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a KV cache: golden cases, and what cannot be known. */
#include "test_analysis.h"

#include "budget.h"

#define GIB ((int64_t)1 << 30)

static int64_t get_i64(struct jsonc *o, const char *key)
{
    struct jsonc *v = get(o, key);
    return v ? json_object_get_int64(v) : BUDGET_UNKNOWN;
}

static struct budget_moment moment(struct jsonc *input, const char *key)
{
    struct jsonc *o = get(input, key);
    if (!o)
        return (struct budget_moment){0};
    return (struct budget_moment){
        .is_known = true,
        .free_bytes = get_i64(o, "free_bytes"),
        .total_bytes = get_i64(o, "total_bytes"),
        .physical_bytes = (int64_t)get_u64(o, "physical_bytes", 0),
        .reserved_bytes = (int64_t)get_u64(o, "reserved_bytes", 0),
        .allocated_bytes = (int64_t)get_u64(o, "allocated_bytes", 0),
    };
}

static void load(struct jsonc *input, struct budget_input *in)
{
    struct jsonc *failure = get(input, "failure");

    budget_input_init(in);
    in->tgid = 1;
    in->rank = (int32_t)get_u64(input, "rank", 0);
    in->device = (int32_t)get_u64(input, "device", 0);
    in->is_late = get_u64(input, "late", 0);
    in->has_blocks = get_u64(input, "blocks", 1);
    in->has_phases = get_u64(input, "phases", 1);
    in->total_bytes = get_i64(input, "total_bytes");
    in->start = moment(input, "start");
    in->before = moment(input, "before");
    in->after = moment(input, "after");
    in->capturing = moment(input, "capturing");
    in->captured = moment(input, "captured");
    in->peak_allocated_bytes = get_i64(input, "peak_allocated_bytes");
    in->profile_start_bytes = get_i64(input, "profile_start_bytes");
    in->load_start_bytes = get_i64(input, "load_start_bytes");
    in->weights_bytes = get_i64(input, "weights_bytes");
    in->kv_bytes = get_i64(input, "kv_bytes");
    in->graph_bytes = get_i64(input, "graph_bytes");
    in->physical_bytes = get_i64(input, "physical_bytes");
    in->reserved_bytes = get_i64(input, "reserved_bytes");
    in->allocated_bytes = get_i64(input, "allocated_bytes");
    in->hccl_bytes = get_i64(input, "hccl_bytes");
    in->communicators = (uint32_t)get_u64(input, "communicators", 0);
    in->sized_otherwise = (uint32_t)get_u64(input, "sized_otherwise", 0);
    in->has_failure = failure != NULL;
    in->failure_requested_bytes = get_u64(failure, "requested_bytes", ANALYSIS_UNKNOWN);
    in->failure_short_bytes = get_u64(failure, "short_bytes", ANALYSIS_UNKNOWN);
    in->failure_physical_bytes = get_u64(failure, "physical_bytes", ANALYSIS_UNKNOWN);
    snprintf(in->failure_phase, sizeof(in->failure_phase), "%s", get_text(failure, "phase", ""));
    in->settings.title = get_text(input, "title", NULL);
    settings_read(&in->settings, &in->read);
}

static int run(struct jsonc *input, struct json *j)
{
    struct budget_result result;
    struct budget_input in;

    load(input, &in);
    budget_compute(&in, &result);
    json_karray(j, "ranks");
    budget_write(&in, &result, j);
    json_end(j);
    return 0;
}

static void golden(void **state)
{
    golden_run("budget", run, 16);
}

static void of_nothing_nothing_is_known(void **state)
{
    struct budget_input in;
    struct budget_result r;

    budget_input_init(&in);
    in.is_late = true;
    budget_compute(&in, &r);
    assert_int_equal(r.verdict, BUDGET_INCOMPLETE);
    for (size_t i = 0; i < BUDGET_TERM_COUNT; i++) {
        assert_true(r.terms[i].bytes == BUDGET_UNKNOWN);
        assert_non_null(r.terms[i].reason);
    }
    assert_string_equal(r.terms[BUDGET_WEIGHTS].reason, "attached late");
    assert_string_equal(r.terms[BUDGET_PEAK].reason, "attached late");
    assert_int_equal(r.advice.count, 0);
}

/* Figures of a driver or an allocator that cannot be must not end in an overflow or a crash. */
static void figures_that_cannot_be(void **state)
{
    static const int64_t values[] = {0, 1, -1, INT64_MAX / 8, -(INT64_MAX / 8)};
    struct budget_input in;
    struct budget_result r;

    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < 5; k++) {
            budget_input_init(&in);
            in.has_blocks = in.has_phases = true;
            in.start = (struct budget_moment){true, values[k], values[i], values[k], 0, 0};
            in.before = (struct budget_moment){true, values[i], values[k], 0, values[i], 0};
            in.after = (struct budget_moment){true, 0, values[k], values[k], values[i], values[k]};
            in.capturing = in.before;
            in.captured = in.after;
            in.weights_bytes = values[k];
            in.peak_allocated_bytes = values[i];
            in.load_start_bytes = values[k];
            in.kv_bytes = i == 2 ? values[k] : BUDGET_UNKNOWN;
            in.has_failure = k == 3;
            in.failure_short_bytes = (uint64_t)values[i];
            in.settings.title = "vllm serve --gpu-memory-utilization 0.5";
            settings_read(&in.settings, &in.read);
            budget_compute(&in, &r);
            assert_true(r.verdict <= BUDGET_INCOMPLETE);
            assert_true(strlen(r.reason) < sizeof(r.reason));
        }
}

static void a_program_is_not_its_directory(void **state)
{
    assert_true(analysis_runs("vllm serve model", "vllm"));
    assert_true(analysis_runs("/opt/venv/bin/python3 /opt/venv/bin/vllm serve m", "vllm"));
    assert_true(analysis_runs("python3 -m vllm.entrypoints.openai.api_server", "vllm"));
    assert_true(analysis_runs("python -m sglang.launch_server", "sglang"));
    assert_false(analysis_runs("/opt/venv-vllm-0.23/bin/python -c from multiprocessing", "vllm"));
    assert_false(analysis_runs("/opt/vllm/bin/python train.py", "vllm"));
    assert_false(analysis_runs("/opt/vllm.d/bin/python train.py", "vllm"));
    assert_false(analysis_runs("myvllm serve", "vllm"));
    assert_false(analysis_runs("", "vllm"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(of_nothing_nothing_is_known),
        cmocka_unit_test(figures_that_cannot_be),
        cmocka_unit_test(a_program_is_not_its_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
