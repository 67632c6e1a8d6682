/* SPDX-License-Identifier: Apache-2.0 */
/* roots: whole scans of a process made of bytes; rows of the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>

#include "roots_scan.h"
#include "scan_image.h"

static struct fake fake;

static struct scan_result *scan_with(struct fake *f, struct roots_table *table, unsigned minor)
{
    struct image *image;
    struct image_ranges *ranges;
    struct scan_result *result;
    struct memory_reader reader = fake_reader(f);
    struct image_limits limits = {0};

    assert_int_equal(image_ranges_new(FAKE_MAPS, sizeof(FAKE_MAPS) - 1, &ranges), 0);
    assert_int_equal(image_new(&reader, &limits, &image), 0);
    struct scan_input input = {.image = image,
                               .ranges = ranges,
                               .table = table,
                               .python_minor = minor,
                               .runtime = f->runtime,
                               .allocator = f->allocator};
    assert_int_equal(scan_process(&input, &result), 0);
    image_free(image);
    image_ranges_free(ranges);
    return result;
}

static struct scan_result *scan(struct fake *f)
{
    struct roots_table *table;
    assert_int_equal(roots_table_new(&table), 0);
    struct scan_result *result = scan_with(f, table, 11);
    roots_table_free(table);
    return result;
}

static const struct scan_tensor *named(const struct scan_result *r, const char *name)
{
    char path[SCAN_PATH_MAX];
    for (uint32_t i = 0; i < r->s.tensor_count; i++) {
        scan_path(r, r->tensors[i].node, false, path, sizeof(path));
        if (strcmp(path, name) == 0)
            return &r->tensors[i];
    }
    fail_msg("no tensor %s among %u", name, r->s.tensor_count);
    return NULL;
}

static void test_a_worker_by_names_and_owners(void **state)
{
    fake_worker(&fake);
    struct scan_result *r = scan(&fake);
    char path[SCAN_PATH_MAX];

    assert_string_equal(r->s.blocks_reason, "");
    assert_string_equal(r->s.names_reason, "");
    assert_true(r->s.is_blocks_complete);
    assert_string_equal(r->s.framework, "vllm");
    assert_string_equal(r->s.root, "WorkerProc.worker_busy_loop: self.worker.model_runner");
    assert_string_equal(r->s.torch, "2.5-2.9");
    assert_int_equal(r->s.tensor_count, 6);
    assert_int_equal(r->s.host_tensors, 1);
    const struct scan_tensor *kv = named(r, "kv_caches[1]");
    assert_string_equal(r->owners[kv->owner], "PTA@vllm@kv_cache");
    assert_int_equal(kv->storage_bytes, (4 << 20) - 512);
    assert_int_equal(kv->data, FAKE_DEVICE_MEMORY + (4 << 20));
    assert_int_equal(kv->place, SCAN_IN_LIVE);
    const struct scan_tensor *weight = named(r, "model.layer.weight");
    assert_string_equal(r->owners[weight->owner], "PTA@vllm@weights");
    assert_int_equal(weight->role, SCAN_PARAMETER);
    scan_path(r, weight->node, true, path, sizeof(path));
    assert_string_equal(path, "layer.weight");
    assert_int_equal(named(r, "model.layer.scale")->role, SCAN_BUFFER);
    scan_result_free(r);
}

static void test_views_and_outputs_of_graphs_do_not_count_twice(void **state)
{
    fake_worker(&fake);
    struct scan_result *r = scan(&fake);
    const struct scan_tensor *view = named(r, "view"), *output = named(r, "outputs[0]");

    assert_ptr_equal(&r->tensors[view->base], named(r, "kv_caches[0]"));
    assert_int_equal(output->place, SCAN_IN_FREE);
    assert_false(output->is_owner);
    scan_result_free(r);
}

static void test_one_live_block_has_no_name(void **state)
{
    fake_worker(&fake);
    struct scan_result *r = scan(&fake);
    unsigned unnamed = 0, live = 0;

    assert_int_equal(r->s.block_count, 9);
    for (uint32_t i = 0; i < r->s.block_count; i++)
        if (r->blocks[i].state == NPUALLOC_LIVE) {
            live++;
            unnamed += r->block_tensors[i] == SCAN_NONE;
        }
    assert_int_equal(live, 6);
    assert_int_equal(unnamed, 2); /* 1024 and 2048 bytes of the small pool */
    scan_result_free(r);
}

static void test_a_wrong_pointer_back_means_no_name(void **state)
{
    fake_worker(&fake);
    struct scan_result *before = scan(&fake);
    uint64_t object = named(before, "kv_caches[1]")->object;

    fake_u64(&fake, fake_get(&fake, object + 24) + 56, object + 16);
    struct scan_result *r = scan(&fake);
    assert_int_equal(r->s.tensor_count, 5);
    assert_int_equal(r->s.rejected, 1);
    scan_result_free(before);
    scan_result_free(r);
}

static void test_other_versions_have_reasons(void **state)
{
    struct roots_table *table;
    fake_worker(&fake);
    assert_int_equal(roots_table_new(&table), 0);
    struct scan_result *r = scan_with(&fake, table, 14);
    assert_int_equal(r->s.tensor_count, 0);
    assert_string_equal(r->s.names_reason, "this version of CPython is not known");
    assert_true(r->s.is_blocks_complete);
    scan_result_free(r);
    r = scan_with(&fake, table, 12); /* another layout than the bytes have: nothing, no crash */
    assert_int_equal(r->s.tensor_count, 0);
    assert_true(r->s.names_reason[0]);
    scan_result_free(r);
    roots_table_free(table);
}

static void test_cycles_end(void **state)
{
    fake_worker(&fake);
    /* a list that holds itself, and a dict that is its own value */
    uint64_t list = fake_sequence(&fake, true, 1, (uint64_t[]){0});
    fake_u64(&fake, fake_get(&fake, list + 24), list);
    const char *const names[] = {"again"};
    uint64_t dict = fake_dict(&fake, 1, names, &list);
    fake_u64(&fake, fake_get(&fake, dict + 32) + 48, dict);
    fake_interpreter(&fake, "loop", "value", dict);
    struct scan_result *r = scan(&fake);
    assert_int_equal(r->s.tensor_count, 0);
    assert_string_equal(r->s.names_reason, "no tensor was found among the objects");
    scan_result_free(r);
}

static void test_the_wire(void **state)
{
    struct scan_result *back;
    unsigned char *data;
    size_t bytes;

    fake_worker(&fake);
    struct scan_result *r = scan(&fake);
    assert_int_equal(scan_result_encode(r, (void **)&data, &bytes), 0);
    assert_int_equal(scan_result_decode(data, bytes, &back), 0);
    assert_int_equal(back->s.tensor_count, r->s.tensor_count);
    assert_memory_equal(back->tensors, r->tensors, r->s.tensor_count * sizeof(*r->tensors));
    assert_non_null(named(back, "model.layer.weight"));
    scan_result_free(back);
    for (size_t cut = 0; cut < bytes; cut += 97)
        assert_int_equal(scan_result_decode(data, cut, &back), -EBADMSG);
    /* every byte set to 0xff: refused, or still within its bounds */
    for (size_t i = 0; i < bytes; i += 3) {
        unsigned char old = data[i];
        char path[64];
        data[i] = 0xff;
        if (scan_result_decode(data, bytes, &back) == 0) {
            for (uint32_t t = 0; t < back->s.tensor_count; t++)
                scan_path(back, back->tensors[t].node, false, path, sizeof(path));
            scan_result_free(back);
        }
        data[i] = old;
    }
    free(data);
    scan_result_free(r);
}

/* The server's modules are loaded, and no frame leads to its runner just now: what is found without
 * it is not all. */
static void test_a_hidden_root_is_not_all_there_is(void **state)
{
    fake_worker(&fake);
    const char *const names[] = {"builtins", "__main__", "vllm_ascend.worker"};
    uint64_t interpreter = fake_get(&fake, fake.runtime + 40), modules[3];
    for (unsigned i = 0; i < 3; i++) {
        modules[i] = fake_object(&fake, fake.module, 32);
        fake_u64(&fake, modules[i] + 16, fake_dict(&fake, 0, NULL, NULL));
    }
    fake_u64(&fake, interpreter + 888, fake_dict(&fake, 3, names, modules));
    struct scan_result *r = scan(&fake);
    assert_false(r->s.is_cut);
    scan_result_free(r);
    uint64_t thread = fake_get(&fake, interpreter + 16), cframe = fake_get(&fake, thread + 56);
    fake_u64(&fake, cframe + 8, 0);
    r = scan(&fake);
    assert_string_equal(r->s.framework, "");
    assert_true(r->s.is_cut);
    assert_non_null(strstr(r->s.names_reason, "model runner was not found"));
    scan_result_free(r);
}

static void test_rows_added_by_hand(void **state)
{
    static const char rows[] = "# ours\n\nframe mine Worker.loop self.runner\r\n"
                               "path mine cache PTA@mine@cache\n  prune secrets";
    struct roots_table *table;
    struct error error;

    assert_int_equal(roots_table_new(&table), 0);
    size_t builtin = roots_count(table);
    assert_int_equal(roots_table_add(table, "a.conf", rows, sizeof(rows) - 1, &error), 0);
    assert_int_equal(roots_count(table), builtin + 3);
    assert_int_equal(roots_row(table, 0)->kind, ROOTS_FRAME);
    assert_string_equal(roots_row(table, 0)->subject, "Worker.loop");
    assert_string_equal(roots_row(table, 1)->object, "PTA@mine@cache");
    assert_int_equal(roots_row(table, 2)->kind, ROOTS_PRUNE);
    assert_string_equal(roots_row(table, 2)->subject, "secrets");
    static const char bad[] = "prune x\nframe mine only\n";
    assert_int_equal(roots_table_add(table, "b.conf", bad, sizeof(bad) - 1, &error), -EINVAL);
    assert_string_equal(error.what, "b.conf:2: `frame` takes 3 words, not 2");
    static const char unknown[] = "root x y z\n";
    assert_int_equal(roots_table_add(table, "c.conf", unknown, sizeof(unknown) - 1, &error),
                     -EINVAL);
    static const char odd[] = "path mine a;b c\n";
    assert_int_equal(roots_table_add(table, "d.conf", odd, sizeof(odd) - 1, &error), -EINVAL);
    roots_table_free(table);
    assert_true(roots_match("vllm*", "vllm_ascend.ops"));
    assert_false(roots_match("vllm", "vllm_ascend"));
}

static void test_a_row_added_by_hand_finds_its_root(void **state)
{
    static const char rows[] = "frame mine WorkerProc.worker_busy_loop self.worker.model_runner\n"
                               "path mine kv_caches PTA@mine@cache\npath mine * PTA@mine@rest\n";
    struct roots_table *table;

    fake_worker(&fake);
    assert_int_equal(roots_table_new(&table), 0);
    assert_int_equal(roots_table_add(table, "a.conf", rows, sizeof(rows) - 1, NULL), 0);
    struct scan_result *r = scan_with(&fake, table, 11);
    assert_string_equal(r->s.framework, "mine");
    assert_string_equal(r->owners[named(r, "kv_caches[0]")->owner], "PTA@mine@cache");
    assert_string_equal(r->owners[named(r, "model.layer.weight")->owner], "PTA@mine@rest");
    scan_result_free(r);
    roots_table_free(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_worker_by_names_and_owners),
        cmocka_unit_test(test_views_and_outputs_of_graphs_do_not_count_twice),
        cmocka_unit_test(test_one_live_block_has_no_name),
        cmocka_unit_test(test_a_wrong_pointer_back_means_no_name),
        cmocka_unit_test(test_other_versions_have_reasons),
        cmocka_unit_test(test_cycles_end),
        cmocka_unit_test(test_the_wire),
        cmocka_unit_test(test_a_hidden_root_is_not_all_there_is),
        cmocka_unit_test(test_rows_added_by_hand),
        cmocka_unit_test(test_a_row_added_by_hand_finds_its_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
