/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict of an out of memory: golden cases, messages in every wording, hostile texts. */
#include "test_analysis.h"

#include "oom.h"

#define MIB ((uint64_t)1 << 20)

/* "NAME=value" items of a JSON array, as the daemon hands them over. */
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

static void load_holders(struct jsonc *input, struct oom_snapshot *s)
{
    struct jsonc *list = get(input, "holders");

    s->holders_known = list != NULL;
    s->holder_count = list ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < s->holder_count; i++) {
        struct jsonc *h = json_object_array_get_idx(list, i);
        s->holders[i] = (struct oom_holder){.tgid = (uint32_t)get_u64(h, "tgid", 0),
                                            .rank = (int32_t)get_u64(h, "rank", 0),
                                            .bytes = get_u64(h, "bytes", 0),
                                            .is_victim = get_u64(h, "victim", 0),
                                            .is_orphan = get_u64(h, "orphan", 0)};
        snprintf(s->holders[i].comm, sizeof(s->holders[i].comm), "%s", get_text(h, "comm", ""));
    }
}

static int run(struct jsonc *input, struct json *j)
{
    static char environment[4096];
    const char *message = get_text(input, "message", NULL);
    struct jsonc *list = get(input, "environment");
    struct oom_snapshot s;
    struct oom_result result;

    oom_snapshot_init(&s);
    if (message) {
        int r = oom_message_parse(message, strlen(message), &s, NULL);
        if (r < 0)
            return r;
    } else {
        s.tgid = (uint32_t)get_u64(input, "tgid", 1);
        s.failures = (uint32_t)get_u64(input, "failures", 2);
        s.is_vllm = get_u64(input, "vllm", 0);
        s.is_recovered = get_u64(input, "recovered", 0);
        s.code = (int64_t)get_u64(input, "code", 207001);
        s.requested_bytes = get_u64(input, "requested_bytes", s.requested_bytes);
        s.total_bytes = get_u64(input, "total_bytes", s.total_bytes);
        s.free_bytes = get_u64(input, "free_bytes", s.free_bytes);
        s.baseline_bytes = get_u64(input, "baseline_bytes", s.baseline_bytes);
        s.allowed_bytes = get_u64(input, "allowed_bytes", s.allowed_bytes);
        s.physical_bytes = get_u64(input, "physical_bytes", s.physical_bytes);
        s.reserved_bytes = get_u64(input, "reserved_bytes", s.reserved_bytes);
        s.allocated_bytes = get_u64(input, "allocated_bytes", s.allocated_bytes);
        s.largest_hole_bytes = get_u64(input, "largest_hole_bytes", s.largest_hole_bytes);
        s.slack.pinned_free_bytes = get_u64(input, "pinned_free_bytes", s.slack.pinned_free_bytes);
        s.slack.unmap_bytes = get_u64(input, "unmap_bytes", s.slack.unmap_bytes);
        s.slack.empty_bytes = get_u64(
            input, "empty_bytes", s.slack.unmap_bytes == ANALYSIS_UNKNOWN ? ANALYSIS_UNKNOWN : 0);
        for (size_t i = 0; i < SLACK_SPLITS; i++) {
            char name[32];
            snprintf(name, sizeof(name), "split_%u_bytes", slack_split_mb[i]);
            s.slack.split_bytes[i] = get_u64(input, name, s.slack.split_bytes[i]);
        }
        snprintf(s.phase, sizeof(s.phase), "%s", get_text(input, "phase", ""));
        s.is_phase_inferred = get_u64(input, "phase_inferred", 0);
        load_holders(input, &s);
    }
    s.settings.title = get_text(input, "title", NULL);
    if (list) {
        s.settings.environment_bytes = join_environment(list, environment, sizeof(environment));
        s.settings.environment = environment;
    }
    oom_judge(&s, &result);
    oom_write(&s, &result, j);
    return 0;
}

static void golden(void **state)
{
    golden_run("oom", run, 24);
}

#define OLD                                                                                        \
    "RuntimeError: NPU out of memory. Tried to allocate 102.00 MiB (NPU 3; 1024.00 MiB total "     \
    "capacity; 927.19 MiB already allocated; 927.19 MiB current active; 5.25 MiB free; 940.00 "    \
    "MiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting "     \
    "max_split_size_mb to avoid fragmentation."
#define NEW                                                                                        \
    "torch.OutOfMemoryError: NPU out of memory. Tried to allocate 2.57 GiB (NPU 0; 60.96 GiB "     \
    "total capacity; 57.49 GiB already allocated; 57.49 GiB current active; 1.96 GiB free; "       \
    "58.00 GiB allowed; 57.62 GiB reserved in total by PyTorch).If reserved memory is >> "         \
    "allocated memory try setting max_split_size_mb to avoid fragmentation."

static void message_old(void **state)
{
    struct oom_snapshot s;
    assert_int_equal(oom_message_parse(OLD, strlen(OLD), &s, NULL), 0);
    assert_int_equal(s.device, 3);
    assert_int_equal(s.requested_bytes, 102 * MIB);
    assert_int_equal(s.total_bytes, 1024 * MIB);
    assert_int_equal(s.allocated_bytes, 972229181); /* 927.19 MiB */
    assert_int_equal(s.free_bytes, 5505024);        /* 5.25 MiB */
    assert_int_equal(s.reserved_bytes, 940 * MIB);
    assert_int_equal(s.allowed_bytes, ANALYSIS_UNKNOWN);
}

static void message_new(void **state)
{
    struct oom_snapshot s;
    assert_int_equal(oom_message_parse(NEW, strlen(NEW), &s, NULL), 0);
    assert_int_equal(s.device, 0);
    assert_int_equal(s.requested_bytes, 2759516487); /* 2.57 GiB */
    assert_int_equal(s.allowed_bytes, 58 * 1024 * MIB);
    assert_int_equal(s.reserved_bytes, 61869003898); /* 57.62 GiB */
}

static void message_in_a_traceback(void **state)
{
    static const char text[] =
        "(Worker_TP0 pid=11)   File \"model_runner_v1.py\", line 1, in _allocate_kv_cache_tensors\n"
        "(Worker_TP0 pid=11) " NEW "\nmore lines 207001\n";
    struct oom_snapshot s;
    assert_int_equal(oom_message_parse(text, strlen(text), &s, NULL), 0);
    assert_string_equal(s.phase, "kv_cache");
    assert_int_equal(s.requested_bytes, 2759516487);
}

static void message_codes(void **state)
{
    static const char streams[] = "call aclmdlRICaptureBegin failed, error code is 207005";
    static const char plain[] = "rtMalloc execute failed, reason=[driver error:out] EL0004 207001.";
    struct oom_snapshot s;
    assert_int_equal(oom_message_parse(streams, strlen(streams), &s, NULL), 0);
    assert_int_equal(s.code, 207005);
    assert_int_equal(oom_message_parse(plain, strlen(plain), &s, NULL), 0);
    assert_int_equal(s.code, 207001);
    assert_int_equal(s.requested_bytes, ANALYSIS_UNKNOWN);
}

static void message_none(void **state)
{
    static const char *const texts[] = {
        "",
        "all is well",
        "1207001 2070015",
        "NPU out of memory. Tried to allocate",
        "NPU out of memory. Tried to allocate -3 GiB",
        "NPU out of memory. Tried to allocate 5 XiB",
        "NPU out of memory. Tried to allocate 99999999999999999999 GiB"};
    struct error error = {0};
    struct oom_snapshot s;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(oom_message_parse(texts[i], strlen(texts[i]), &s, &error), -ENODATA);
        assert_true(error.what[0]);
    }
}

/* Every prefix, and every byte replaced: an answer or an error, never a read outside. */
static void message_hostile(void **state)
{
    size_t n = strlen(NEW);
    struct oom_snapshot s;
    for (size_t i = 0; i <= n; i++) {
        char *copy = malloc(i ? i : 1); /* exact size: the sanitizer sees a byte too far */
        memcpy(copy, NEW, i);
        int r = oom_message_parse(copy, i, &s, NULL);
        assert_true(r == 0 || r == -ENODATA);
        free(copy);
    }
    for (size_t i = 0; i < n; i++) {
        char *copy = malloc(n);
        memcpy(copy, NEW, n);
        copy[i] = (char)(i * 37);
        struct oom_result result;
        if (oom_message_parse(copy, n, &s, NULL) == 0)
            oom_judge(&s, &result);
        free(copy);
    }
}

/* With nothing known there is a verdict, and it claims nothing. */
static void nothing_known(void **state)
{
    struct oom_snapshot s;
    struct oom_result r;
    oom_snapshot_init(&s);
    oom_judge(&s, &r);
    assert_int_equal(r.verdict, OOM_CAPACITY);
    assert_int_equal(r.short_bytes, ANALYSIS_UNKNOWN);
    assert_int_equal(r.foreign_bytes, ANALYSIS_UNKNOWN);
    assert_int_equal(r.advice.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),          cmocka_unit_test(message_old),
        cmocka_unit_test(message_new),     cmocka_unit_test(message_in_a_traceback),
        cmocka_unit_test(message_codes),   cmocka_unit_test(message_none),
        cmocka_unit_test(message_hostile), cmocka_unit_test(nothing_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
