/* SPDX-License-Identifier: Apache-2.0 */
/* Which functions mean which phase; precedence over whole stacks; a user's table and its errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "phases.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static int make(void **state)
{
    struct phase_table *t = NULL;
    int r = phase_table_new(&t);
    *state = t;
    return r;
}

static int unmake(void **state)
{
    phase_table_free(*state);
    return 0;
}

static const char *owner_of(const struct phase_table *t, const char *qualified)
{
    static char owner[PHASE_OWNER_MAX];
    struct phase_code code = {.qualified = qualified};
    phase_owner(t, phase_verdict(t, &code), owner);
    return owner;
}

/* Owner of a chain of qualified names, the root first as people write it; "?" has no name yet. */
static uint32_t phase_of(const struct phase_table *t, const char *const *chain, size_t n,
                         bool is_cut)
{
    struct phase_walk w = {};
    for (size_t i = n; i-- > 0;) {
        struct phase_code code = {.qualified = chain[i]};
        phase_walk_frame(&w, strcmp(chain[i], "?") == 0 ? 0 : phase_verdict(t, &code));
    }
    return phase_walk_end(&w, is_cut);
}

#define assert_chain(t, expected, ...)                                                             \
    do {                                                                                           \
        const char *chain_[] = {__VA_ARGS__};                                                      \
        char owner_[PHASE_OWNER_MAX];                                                              \
        uint32_t phase_ = phase_of(t, chain_, COUNT(chain_), false);                               \
        phase_owner(t, phase_, owner_);                                                            \
        assert_string_equal(owner_, expected);                                                     \
        assert_int_equal(phase_ &(NM_PHASE_INFERRED | NM_PHASE_UNNAMED), 0);                       \
    } while (0)

/* The chains are those that a running vLLM 0.23 server showed. */
static void chains_of_a_running_server(void **state)
{
    const struct phase_table *t = *state;

    assert_chain(t, "PTA@vllm@init", "<module>", "WorkerProc.__init__", "NPUWorker.init_device",
                 "NPUModelRunner.__init__", "CpuGpuBuffer.__init__");
    assert_chain(t, "PTA@vllm@weights", "WorkerProc.__init__", "NPUWorker.load_model",
                 "NPUModelRunner.load_model", "DeviceContext.__torch_function__");
    assert_chain(t, "PTA@vllm@profile", "WorkerProc.worker_busy_loop",
                 "NPUWorker.determine_available_memory", "NPUModelRunner.profile_run",
                 "GPUModelRunner.profile_run", "NPUModelRunner._dummy_run",
                 "NPUModelRunner._model_forward", "unquantized_gemm");
    assert_chain(t, "PTA@vllm@kv_cache", "NPUWorker.initialize_from_config",
                 "NPUModelRunner.initialize_kv_cache", "NPUModelRunner.initialize_kv_cache_tensors",
                 "NPUModelRunner._allocate_kv_cache_tensors",
                 "NPUModelRunner._allocate_int8_cache_tensor");
    assert_chain(t, "PTA@vllm@warmup", "NPUWorker.compile_or_warm_up_model",
                 "NPUWorker._warm_up_atb");
    assert_chain(t, "PTA@vllm@graph", "NPUWorker.compile_or_warm_up_model",
                 "NPUModelRunner.capture_model", "GPUModelRunner.capture_model",
                 "GPUModelRunner._capture_cudagraphs", "NPUModelRunner._dummy_run",
                 "NPUModelRunner._model_forward", "ACLGraphWrapper.__call__");
    assert_chain(t, "PTA@vllm@serve", "WorkerProc.worker_busy_loop", "NPUWorker.execute_model",
                 "NPUModelRunner.execute_model", "NPUModelRunner._model_forward",
                 "ACLGraphWrapper.__call__");
    assert_chain(t, "PTA@vllm@serve@sampler", "NPUModelRunner.sample_tokens",
                 "NPUModelRunner._sample", "AscendSampler.greedy_sample");
    assert_chain(t, "PTA@vllm@sleep", "NPUWorker.sleep", "CaMemAllocator.sleep",
                 "unmap_and_release");
    assert_chain(t, "PTA@vllm@wake_up", "NPUWorker.wake_up", "CaMemAllocator.wake_up",
                 "create_and_map");
}

static void the_outermost_of_the_strongest_tier_decides(void **state)
{
    const struct phase_table *t = *state;

    assert_chain(t, "PTA@vllm@profile", "NPUModelRunner.profile_run",
                 "NPUModelRunner.execute_model");
    /* a stronger one inside a weaker one */
    assert_chain(t, "PTA@vllm@graph", "NPUModelRunner.execute_model",
                 "NPUModelRunner.capture_model");
    /* of two of one tier the outer one */
    assert_chain(t, "PTA@vllm@profile", "NPUWorker.determine_available_memory",
                 "NPUModelRunner.capture_model");
    assert_chain(t, "PTA@vllm@wake_up", "NPUWorker.wake_up", "NPUModelRunner.load_model");
    assert_chain(t, "", "<module>", "main", "Thread.run");
}

static void the_innermost_detail_inside_the_class_is_added(void **state)
{
    const struct phase_table *t = *state;

    assert_chain(t, "PTA@vllm@weights@draft", "NPUModelRunner.load_model",
                 "AscendSpecDecodeBaseProposer.load_model");
    assert_chain(t, "PTA@vllm@serve@draft", "NPUModelRunner.sample_tokens",
                 "NPUModelRunner.propose_draft_token_ids", "EagleProposer.propose");
    assert_chain(t, "PTA@vllm@serve@encoder", "NPUModelRunner.execute_model",
                 "GPUModelRunner._execute_mm_encoder");
    assert_chain(t, "PTA@vllm@profile@sampler", "NPUModelRunner.profile_run",
                 "GPUModelRunner._dummy_sampler_run");
    /* a detail outside the class says nothing about it */
    assert_chain(t, "PTA@vllm@weights", "GPUModelRunner._execute_mm_encoder",
                 "NPUModelRunner.load_model");
    /* the detail that the class is already */
    assert_chain(t, "PTA@vllm@lora", "NPUWorker.add_lora", "NPUModelRunner.load_lora_model");
}

/* Its buffers are no part of the phase that they are taken in. */
static void kv_transfer_is_its_own_owner(void **state)
{
    const struct phase_table *t = *state;

    assert_chain(t, "PTA@vllm@kv_transfer", "NPUWorker.initialize_from_config",
                 "ensure_kv_transfer_initialized", "MooncakeConnectorWorker.__init__");
    assert_chain(t, "PTA@vllm@kv_transfer", "NPUWorker.load_model", "NPUModelRunner.load_model",
                 "MooncakeConnectorWorker.register_kv_caches");
    assert_chain(t, "PTA@vllm@kv_transfer", "MooncakeConnectorWorker.register_kv_caches");
}

static void frames_without_a_name_are_never_guessed_over(void **state)
{
    const struct phase_table *t = *state;
    const char *outside[] = {"?", "NPUModelRunner.execute_model"};
    const char *inside[] = {"NPUModelRunner.load_model", "?"};
    const char *alone[] = {"main", "?"};
    const char *cut[] = {"NPUModelRunner.load_model"};
    uint32_t weights = phase_of(t, cut, 1, false);

    assert_int_equal(phase_of(t, outside, 2, false) & NM_PHASE_INFERRED, NM_PHASE_INFERRED);
    assert_int_equal(phase_of(t, outside, 2, false) & NM_PHASE_UNNAMED, NM_PHASE_UNNAMED);
    assert_int_equal(phase_of(t, inside, 2, false), weights | NM_PHASE_UNNAMED);
    assert_int_equal(phase_of(t, alone, 2, false), NM_PHASE_UNNAMED);
    assert_int_equal(phase_of(t, cut, 1, true), weights | NM_PHASE_INFERRED);
}

static void names_are_compared_whole(void **state)
{
    const struct phase_table *t = *state;

    assert_string_equal(owner_of(t, "NPUWorker.load_model"), "PTA@vllm@weights");
    assert_string_equal(owner_of(t, "test.<locals>.NPUWorker.load_model"), "PTA@vllm@weights");
    assert_string_equal(owner_of(t, "NPUModelRunner.initialize_kv_cache_tensors"),
                        "PTA@vllm@kv_cache");
    assert_string_equal(owner_of(t, "NPUWorker.load_model2"), "");
    assert_string_equal(owner_of(t, "MyNPUWorker.load_model"), "");
    assert_string_equal(owner_of(t, "load_model"), "");
    assert_string_equal(owner_of(t, "NPUWorker.load_model.<locals>.inner"), "");
    assert_string_equal(owner_of(t, ""), "");
}

static void without_qualified_names_the_file_tells_the_class(void **state)
{
    const struct phase_table *t = *state;
    char owner[PHASE_OWNER_MAX];
    static const struct {
        const char *name, *file, *owner;
    } cases[] = {
        {"load_model", "/usr/lib/vllm_ascend/worker/worker_v1.py", "PTA@vllm@weights"},
        {"load_model", "/usr/lib/vllm_ascend/worker/model_runner_v1.py", "PTA@vllm@weights"},
        {"load_model", "/home/me/train.py", ""},
        {"execute_model", "/x/vllm_ascend/worker/model_runner_v1.py", "PTA@vllm@serve"},
        {"sleep", "/x/vllm_ascend/device_allocator/camem.py", "PTA@vllm@sleep"},
        {"sleep", "/x/asyncio/tasks.py", ""},
        {"forward", "/x/vllm_ascend/worker/model_runner_v1.py", ""},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct phase_code code = {.name = cases[i].name, .file = cases[i].file};
        phase_owner(t, phase_verdict(t, &code), owner);
        assert_string_equal(owner, cases[i].owner);
    }
    struct phase_code nothing = {};
    assert_int_equal(phase_verdict(t, &nothing), NM_PY_VERDICT_KNOWN);
}

static const char training[] = "# training\n"
                               "class gradients PTA@train@gradients\n"
                               "class optimizer PTA@train@optimizer_states  # AdamW's moments\n"
                               "class activation PTA@train@activation\n"
                               "detail loss\n"
                               "\n"
                               "code optimizer 1 AdamW.step\n"
                               "code gradients 2 Tensor.backward torch/_tensor.py\n"
                               "code activation 9 Module._call_impl\n"
                               "code @loss 0 *Loss.forward\n"
                               "code weights 1 MyLoader.*\n";

static void a_users_table_extends_and_wins(void **state)
{
    struct phase_table *t = *state;
    struct error e = {};
    struct phase_code backward = {.qualified = "Tensor.backward", .file = "/x/torch/_tensor.py"};
    char owner[PHASE_OWNER_MAX];

    assert_int_equal(phase_table_parse(t, training, strlen(training), "a.conf", &e), 0);
    assert_chain(t, "PTA@train@optimizer_states", "main", "AdamW.step", "AdamW._init_group");
    assert_chain(t, "PTA@train@activation@loss", "main", "Module._call_impl",
                 "CrossEntropyLoss.forward");
    assert_chain(t, "PTA@vllm@weights", "MyLoader.read", "Module._call_impl");
    phase_owner(t, phase_verdict(t, &backward), owner);
    assert_string_equal(owner, "PTA@train@gradients");
    backward.file = "/elsewhere.py"; /* the file that was asked for is needed */
    assert_int_equal(phase_verdict(t, &backward), NM_PY_VERDICT_KNOWN);

    static const char other[] = "class serve PTA@mine@serving\n"
                                "code profile 1 NPUWorker.load_model";
    assert_int_equal(phase_table_parse(t, other, strlen(other), "b.conf", &e), 0);
    assert_chain(t, "PTA@mine@serving", "NPUModelRunner.execute_model");
    assert_chain(t, "PTA@vllm@profile", "NPUWorker.load_model");
}

static void a_bad_line_is_named_and_nothing_of_its_file_is_used(void **state)
{
    struct phase_table *t = *state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"class one PTA@one\nclass Two PTA@two\n",
         "x.conf:2: not a word of a-z, 0-9 and _: \"Two\""},
        {"class one PTA@@one\n", "x.conf:1: not an owner: \"PTA@@one\""},
        {"class one\n", "x.conf:1: wanted: class WORD OWNER, got \"class\""},
        {"code nothing 1 A.b\n", "x.conf:1: no class \"nothing\""},
        {"code weights@nothing 1 A.b\n", "x.conf:1: no detail \"nothing\""},
        {"code weights 0 A.b\n",
         "x.conf:1: tier must be 1 to 15, or 0 for a detail alone, not \"0\""},
        {"code weights 16 A.b\n",
         "x.conf:1: tier must be 1 to 15, or 0 for a detail alone, not \"16\""},
        {"code weights -1 A.b\n",
         "x.conf:1: tier must be 1 to 15, or 0 for a detail alone, not \"-1\""},
        {"code weights 1 *\n",
         "x.conf:1: pattern must be a name with at most one * at one end, not \"*\""},
        {"code weights 1 A*b\n",
         "x.conf:1: pattern must be a name with at most one * at one end, not \"A*b\""},
        {"code weights 1 *A*\n",
         "x.conf:1: pattern must be a name with at most one * at one end, not \"*A*\""},
        {"phase weights\n", "x.conf:1: a line begins with class, detail or code, not \"phase\""},
        {"detail a b\n", "x.conf:1: wanted: detail WORD, got \"a\""},
        {"a b c d e f g\n", "x.conf:1: too many words from \"g\""},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct error e = {};
        assert_int_equal(phase_table_parse(t, cases[i].text, strlen(cases[i].text), "x.conf", &e),
                         -EINVAL);
        assert_string_equal(e.what, cases[i].message);
    }
    struct error e = {};
    static const char again[] = "class one PTA@one\ncode one 1 A.b\nnonsense\n";
    assert_int_equal(phase_table_parse(t, again, strlen(again), "x.conf", &e), -EINVAL);
    assert_string_equal(owner_of(t, "A.b"), "");
    assert_string_equal(owner_of(t, "NPUWorker.load_model"), "PTA@vllm@weights");
    assert_int_equal(phase_table_parse(t, "a\0b", 3, "x.conf", &e), -EINVAL);
}

static void the_table_is_bounded(void **state)
{
    struct phase_table *t = *state;
    struct error e = {};
    char line[64];
    int r = 0;

    for (int i = 0; i < 100 && r == 0; i++) {
        int n = snprintf(line, sizeof(line), "class c%d PTA@c%d\n", i, i);
        r = phase_table_parse(t, line, (size_t)n, "x", &e);
    }
    assert_int_equal(r, -ENOSPC);
    assert_string_equal(e.what, "x:1: too many phases");
    r = 0;
    for (int i = 0; i < 2000 && r == 0; i++) {
        int n = snprintf(line, sizeof(line), "code weights 1 A.b%d\n", i);
        r = phase_table_parse(t, line, (size_t)n, "x", &e);
    }
    assert_int_equal(r, -ENOSPC);
    assert_string_equal(owner_of(t, "A.b7"), "PTA@vllm@weights");
}

static void numbers_outside_the_table_have_no_owner(void **state)
{
    char owner[PHASE_OWNER_MAX];
    phase_owner(*state, 200, owner);
    assert_string_equal(owner, "");
    phase_owner(*state, 1 | 200 << 8, owner); /* an unknown detail is left out */
    assert_string_equal(owner, "PTA@vllm@init");
    assert_true(phase_class_is(*state, 1 | 5 << 8, "init"));
    assert_false(phase_class_is(*state, 0, "init"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make, unmake)
    const struct CMUnitTest tests[] = {
        TEST(chains_of_a_running_server),
        TEST(the_outermost_of_the_strongest_tier_decides),
        TEST(the_innermost_detail_inside_the_class_is_added),
        TEST(kv_transfer_is_its_own_owner),
        TEST(frames_without_a_name_are_never_guessed_over),
        TEST(names_are_compared_whole),
        TEST(without_qualified_names_the_file_tells_the_class),
        TEST(a_users_table_extends_and_wins),
        TEST(a_bad_line_is_named_and_nothing_of_its_file_is_used),
        TEST(the_table_is_bounded),
        TEST(numbers_outside_the_table_have_no_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
