/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What differs: golden cases of recordings, of moments and of the tensors of two ranks. The amounts
 * in the cases are written by hand.
 */
#include "test_analysis.h"

#include "diff.h"
#include "diff_parameters.h"
#include "diff_text.h"
#include "ledger_restore.h"
#include "scan_kind.h"
#include "test_trace.h"

/* --- recordings: {"from": {...}, "to": {...}} --- */

static int run_recordings(struct jsonc *input, struct json *j)
{
    struct made made[2];
    struct trace_reader readers[2];
    bool has_to = get(input, "to"), complete = false;

    for (int i = 0; i < 1 + has_to; i++) {
        trace_make(get(input, i ? "to" : "from"), &made[i]);
        assert_int_equal(trace_open(made[i].w.data, made[i].w.bytes, &readers[i], NULL), 0);
    }
    int r = diff_recordings_write(&readers[0], has_to ? &readers[1] : NULL,
                                  (uint32_t)get_u64(input, "limit", 0), get(input, "equal"),
                                  &complete, j);
    json_kbool(j, "complete", complete);
    for (int i = 0; i < 1 + has_to; i++)
        trace_done(&made[i].w);
    return r;
}

/* --- moments: {"from": [processes], "to": [processes], "pair": true} --- */

static struct ledger *ledger_make(struct jsonc *processes)
{
    struct ledger *l;

    assert_int_equal(ledger_new(NULL, &l), 0);
    for (size_t i = 0; i < json_object_array_length(processes); i++) {
        struct jsonc *p = json_object_array_get_idx(processes, i), *rows = get(p, "rows");
        struct process_facts facts;
        process_facts_init(&facts, (uint32_t)get_u64(p, "tgid", 0));
        facts.start_ticks = (uint32_t)get_u64(p, "start", 0);
        facts.rank = get(p, "rank") ? json_object_get_int(get(p, "rank")) : -1;
        facts.world_size = facts.rank < 0 ? -1 : 2;
        snprintf(facts.comm, sizeof(facts.comm), "%s", get_text(p, "comm", "python3"));
        facts.visible_count = 1;
        facts.visible_devices[0] = (uint16_t)get_u64(p, "device", 0);
        assert_int_equal(ledger_process_update(l, &facts, 0), 0);
        for (size_t k = 0; k < json_object_array_length(rows); k++) {
            struct jsonc *row = json_object_array_get_idx(rows, k);
            struct ledger_owner_total t = {.level =
                                               level_parse(get_text(row, "level", "allocated")),
                                           .bytes = get_u64(row, "bytes", 0),
                                           .count = get_u64(row, "blocks", 1)};
            t.device = t.level == LEVEL_BLOCK ? 0 : facts.visible_devices[0];
            assert_int_equal(ledger_restore_owner(l, facts.tgid, get_text(row, "owner", ""), &t),
                             0);
        }
    }
    return l;
}

static int run_moments(struct jsonc *input, struct json *j)
{
    struct ledger *sides[2] = {ledger_make(get(input, "from")), ledger_make(get(input, "to"))};
    struct diff_query q = {.with_equal = get(input, "equal"),
                           .limit = (uint32_t)get_u64(input, "limit", 0)};
    struct view_context c = {.complete = true};
    struct diff *d;
    int r = 0;

    assert_int_equal(diff_new(&d), 0);
    if (get(input, "pair"))
        diff_pair(d);
    for (int i = 0; r >= 0 && i < 2; i++)
        r = diff_add_ledger(d, (enum diff_side)i, sides[i], &c);
    assert_true(r >= 0);
    r = diff_write(d, &q, j);
    diff_free(d);
    ledger_free(sides[0]);
    ledger_free(sides[1]);
    return r;
}

/* --- tensors: {"from": [tensors], "to": [tensors]} --- */

#define TENSORS_MAX 16

struct tensors {
    struct scan_result r;
    struct scan_node nodes[2 * TENSORS_MAX + 2];
    struct scan_tensor tensors[TENSORS_MAX];
    char strings[4096];
};

static uint32_t string_add(struct tensors *t, const char *text)
{
    uint32_t at = t->r.s.string_bytes;
    t->r.s.string_bytes += (uint32_t)strlen(text) + 1;
    assert_true(t->r.s.string_bytes <= sizeof(t->strings));
    memcpy(t->strings + at, text, strlen(text) + 1);
    return at;
}

static uint32_t node_add(struct tensors *t, uint32_t parent, const char *name, uint8_t kind)
{
    uint32_t n = t->r.s.node_count++;
    t->nodes[n] = (struct scan_node){.parent = parent, .name = string_add(t, name), .kind = kind};
    return n;
}

/* {"name", "bytes", "storage", "dtype", "role", "of"}: of is the index of the tensor whose storage
 * it looks into. */
static void tensors_make(struct jsonc *list, struct tensors *t)
{
    memset(t, 0, sizeof(*t));
    t->r.nodes = t->nodes;
    t->r.tensors = t->tensors;
    t->r.strings = t->strings;
    t->r.s.owner_count = 1;
    snprintf(t->r.owners[0], SCAN_OWNER_BYTES, "PTA@vllm@weights");
    uint32_t root = node_add(t, SCAN_NONE, "worker", SCAN_ROOT);
    uint32_t model = node_add(t, root, "model", SCAN_ATTRIBUTE);
    t->nodes[model].is_module = t->nodes[model].is_module_root = 1;
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct jsonc *one = json_object_array_get_idx(list, i);
        const char *role = get_text(one, "role", "parameter");
        bool is_other = strcmp(role, "other") == 0;
        struct scan_tensor *x = &t->tensors[t->r.s.tensor_count++];
        *x = (struct scan_tensor){
            .node = node_add(t, is_other ? root : model, get_text(one, "name", ""), SCAN_ATTRIBUTE),
            .base = (uint32_t)get_u64(one, "of", SCAN_NONE),
            .block = SCAN_NONE,
            .dtype = (uint8_t)get_u64(one, "dtype", 15),
            .role = is_other ? SCAN_OTHER : SCAN_PARAMETER,
            .used_bytes = get_u64(one, "bytes", 0),
            .storage_bytes = get_u64(one, "storage", get_u64(one, "bytes", 0)),
            .device_type = TORCH_DEVICE_NPU,
            .place = SCAN_IN_LIVE,
            .dim_count = 1,
            .dims = {(int64_t)get_u64(one, "bytes", 0) / 2}};
    }
}

static int run_tensors(struct jsonc *input, struct json *j)
{
    static struct tensors sides[2];

    tensors_make(get(input, "from"), &sides[0]);
    tensors_make(get(input, "to"), &sides[1]);
    return diff_parameters_write(&sides[0].r, &sides[1].r, (uint32_t)get_u64(input, "limit", 0), j);
}

static int run(struct jsonc *input, struct json *j)
{
    const char *of = get_text(input, "of", "");
    return strcmp(of, "recordings") == 0 ? run_recordings(input, j)
           : strcmp(of, "moments") == 0  ? run_moments(input, j)
                                         : run_tensors(input, j);
}

static void golden(void **state)
{
    golden_run("diff", run, 18);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
