/* SPDX-License-Identifier: Apache-2.0 */
/* view_scan: a scan of a small mixture of experts, its sums worked out by hand. */
#include "test_view.h"

#include "scan_kind.h"
#include "view_scan.h"

/* Numbers of torch's element types (c10/core/ScalarType.h). */
enum { INT8 = 1, INT32 = 3, FLOAT32 = 6, BFLOAT16 = 15 };

/* Offsets of names in `strings` below. */
static char strings[] =
    "\0model\0layers\0000\0001\0experts\0w13_weight\0w13_weight_scale\0norm\0weight\0"
    "kv_caches\0head";

static uint32_t string_at(const char *wanted)
{
    for (uint32_t at = 0; at < sizeof(strings); at += (uint32_t)strlen(strings + at) + 1)
        if (strcmp(strings + at, wanted) == 0)
            return at;
    fail_msg("no string %s", wanted);
    return 0;
}

struct maker {
    struct scan_result r;
    struct scan_node nodes[64];
    struct scan_tensor tensors[32];
    struct npualloc_block blocks[4];
    uint32_t block_tensors[4];
};

static uint32_t node(struct maker *m, uint32_t parent, const char *name, bool is_module)
{
    uint32_t n = m->r.s.node_count++;
    m->nodes[n] = (struct scan_node){
        .parent = parent, .name = string_at(name), .kind = SCAN_ATTRIBUTE, .is_module = is_module};
    return n;
}

static struct scan_tensor *tensor(struct maker *m, uint32_t parent, const char *name, uint8_t dtype,
                                  uint64_t bytes, uint8_t role)
{
    struct scan_tensor *t = &m->tensors[m->r.s.tensor_count++];
    *t = (struct scan_tensor){.node = node(m, parent, name, false),
                              .base = SCAN_NONE,
                              .block = SCAN_NONE,
                              .dtype = dtype,
                              .role = role,
                              .storage_bytes = bytes,
                              .used_bytes = bytes,
                              .device_type = TORCH_DEVICE_NPU,
                              .place = SCAN_IN_LIVE};
    return t;
}

/* Two layers: experts of int8 (3000 bytes) with scales (40, float32), a norm (16, bfloat16). The
 * second layer's experts are not quantised (6000, bfloat16). */
static void make(struct maker *m)
{
    *m = (struct maker){0};
    m->r.nodes = m->nodes;
    m->r.tensors = m->tensors;
    m->r.blocks = m->blocks;
    m->r.block_tensors = m->block_tensors;
    m->r.strings = strings;
    m->r.s.string_bytes = sizeof(strings);
    m->r.s.owner_count = 2;
    snprintf(m->r.owners[0], SCAN_OWNER_BYTES, "PTA@vllm@weights");
    snprintf(m->r.owners[1], SCAN_OWNER_BYTES, "PTA@vllm@kv_cache");
    uint32_t root = node(m, SCAN_NONE, "", false);
    m->nodes[root].kind = SCAN_ROOT;
    uint32_t model = node(m, root, "model", true);
    m->nodes[model].is_module_root = 1;
    uint32_t layers = node(m, model, "layers", true);
    for (unsigned i = 0; i < 2; i++) {
        uint32_t layer = node(m, layers, i ? "1" : "0", true);
        uint32_t experts = node(m, layer, "experts", true), norm = node(m, layer, "norm", true);
        if (i == 0) {
            tensor(m, experts, "w13_weight", INT8, 3000, SCAN_PARAMETER);
            tensor(m, experts, "w13_weight_scale", FLOAT32, 40, SCAN_PARAMETER);
        } else {
            tensor(m, experts, "w13_weight", BFLOAT16, 6000, SCAN_PARAMETER);
        }
        tensor(m, norm, "weight", BFLOAT16, 16, SCAN_PARAMETER);
    }
    tensor(m, model, "head", BFLOAT16, 500, SCAN_PARAMETER);
    struct scan_tensor *kv = tensor(m, root, "kv_caches", BFLOAT16, 1 << 20, SCAN_OTHER);
    kv->owner = 1;
    struct scan_tensor *view = tensor(m, root, "weight", BFLOAT16, 1 << 20, SCAN_OTHER);
    view->base = (uint32_t)(kv - m->tensors);
    m->r.s.has_blocks = m->r.s.has_names = true;
}

static struct jsonc *scan(struct maker *m, struct view_scan_query q)
{
    struct view_context c = {.wall_ns = WALL_NS, .host = "node7", .complete = true};
    struct json j = {0};
    assert_int_equal(view_scan(&m->r, &c, &q, &j), 0);
    return parse(&j);
}

static struct jsonc *named(struct jsonc *d, const char *array, const char *name)
{
    return find(d, array, "name", name, NULL);
}

static void modules_have_bytes_and_types(void **state)
{
    static struct maker m;
    make(&m);
    struct jsonc *d = scan(&m, (struct view_scan_query){0});
    assert_int_equal(length(d, "modules"), 8);
    struct jsonc *model = named(d, "modules", "model");
    assert_int_equal(number(model, "bytes"), 3000 + 40 + 16 + 6000 + 16 + 500);
    assert_int_equal(number(model, "tensors"), 6);
    assert_int_equal(number(member(model, "dtype_bytes"), "int8"), 3000);
    assert_int_equal(number(member(model, "dtype_bytes"), "float32"), 40);
    assert_int_equal(number(member(model, "dtype_bytes"), "bfloat16"), 6532);
    struct jsonc *experts = named(d, "modules", "model.layers.0.experts");
    assert_int_equal(number(experts, "bytes"), 3040);
    assert_int_equal(number(experts, "depth"), 3);
    json_object_put(d);
}

static void layers_are_the_outermost_numbers(void **state)
{
    static struct maker m;
    make(&m);
    struct jsonc *d = scan(&m, (struct view_scan_query){0});
    assert_int_equal(length(d, "layers"), 2);
    assert_int_equal(number(named(d, "layers", "model.layers.0"), "bytes"), 3056);
    assert_int_equal(number(named(d, "layers", "model.layers.1"), "bytes"), 6016);
    json_object_put(d);
}

static struct jsonc *kind(struct jsonc *d, const char *name, bool is_expert)
{
    for (size_t i = 0; i < length(d, "parameters"); i++) {
        struct jsonc *row = item(d, "parameters", i);
        if (strcmp(json_object_get_string(member(row, "kind")), name) == 0 &&
            truth(row, "expert") == is_expert)
            return row;
    }
    return NULL;
}

static void experts_quantised_ones_and_scales_stand_apart(void **state)
{
    static struct maker m;
    make(&m);
    struct jsonc *d = scan(&m, (struct view_scan_query){0});
    assert_int_equal(number(kind(d, "quantised", true), "bytes"), 3000);
    assert_int_equal(number(kind(d, "scale", true), "bytes"), 40);
    assert_int_equal(number(kind(d, "plain", true), "bytes"), 6000);
    assert_int_equal(number(kind(d, "plain", false), "bytes"), 16 + 16 + 500);
    assert_null(kind(d, "quantised", false));
    json_object_put(d);
}

static struct scan_kind kind_of(const char *path, uint8_t dtype, uint8_t role)
{
    struct scan_tensor t = {.dtype = dtype, .role = role};
    return scan_kind_of(&t, path);
}

static void kinds_by_name_and_type(void **state)
{
    assert_true(kind_of("layers.0.q_proj.weight", INT8, SCAN_PARAMETER).is_quantised);
    assert_true(kind_of("layers.0.q_proj.qweight", INT32, SCAN_PARAMETER).is_quantised);
    assert_true(kind_of("layers.0.experts.w2_weight", INT32, SCAN_PARAMETER).is_quantised);
    assert_false(kind_of("layers.0.q_proj.weight", BFLOAT16, SCAN_PARAMETER).is_quantised);
    assert_false(kind_of("layers.0.q_proj.quant_bias", INT32, SCAN_PARAMETER).is_quantised);
    assert_true(kind_of("layers.0.q_proj.quant_bias", INT32, SCAN_PARAMETER).is_scale);
    assert_true(kind_of("layers.0.q_proj.deq_scale", FLOAT32, SCAN_PARAMETER).is_scale);
    assert_true(kind_of("layers.0.q_proj.qzeros", INT32, SCAN_PARAMETER).is_scale);
    assert_true(kind_of("layers.0.mlp.experts.7.up.weight", BFLOAT16, SCAN_PARAMETER).is_expert);
    assert_false(kind_of("layers.0.mlp.gate.weight", BFLOAT16, SCAN_PARAMETER).is_expert);
    /* what is no parameter is nothing of this */
    assert_false(kind_of("input_batch.token_ids", INT8, SCAN_OTHER).is_quantised);
}

static void a_storage_counts_once(void **state)
{
    static struct maker m;
    make(&m);
    struct jsonc *d = scan(&m, (struct view_scan_query){0});
    struct jsonc *kv = find(d, "owners", "owner", "PTA@vllm@kv_cache", NULL);
    assert_int_equal(number(kv, "bytes"), 1 << 20);
    assert_int_equal(number(kv, "tensors"), 1);
    assert_int_equal(length(d, "tensors"), 8);
    json_object_put(d);
}

/* Sleep mode: 20 MiB are reserved by the allocator's books, and the driver gives the process 3. */
static void addresses_without_memory_are_told(void **state)
{
    struct world *w = *state;
    static struct maker m;
    make(&m);
    add_process(w, (struct process_facts){.tgid = 100, .rank = 0});
    alloc_for(w, 100, 0x1000, 3 * MIB, 0, MODULE_APP, 0);
    m.r.s.device_count = 1;
    m.r.devices[0] = (struct npualloc_device){.has_stats = true, .reserved_bytes = 20 * MIB};
    struct jsonc *d = scan(&m, (struct view_scan_query){.tgid = 100, .ledger = w->ledger});
    struct jsonc *a = item(d, "allocators", 0);
    assert_int_equal(number(a, "physical_bytes"), 3 * MIB);
    assert_int_equal(number(a, "unmapped_bytes"), 17 * MIB);
    json_object_put(d);
    /* attached late, and no figure of the driver: nobody knows */
    d = scan(&m, (struct view_scan_query){.tgid = 100, .ledger = w->ledger, .is_late = true});
    assert_null(member(item(d, "allocators", 0), "unmapped_bytes"));
    json_object_put(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(modules_have_bytes_and_types),
        TEST(layers_are_the_outermost_numbers),
        TEST(experts_quantised_ones_and_scales_stand_apart),
        TEST(kinds_by_name_and_type),
        TEST(a_storage_counts_once),
        TEST(addresses_without_memory_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
