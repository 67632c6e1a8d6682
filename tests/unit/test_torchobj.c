/* SPDX-License-Identifier: Apache-2.0 */
/* torchobj: tensors made of bytes; every check alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>

#include "scan_image.h"
#include "torchobj.h"

static struct fake fake;
static const struct torchobj_layout layout = {"2.5-2.9", 24, 16, 56, 64};

static const struct fake_tensor_spec good = {FAKE_DEVICE_MEMORY, 4096, 16, 64, 6, 20, 3, false, 0};

static uint64_t make(const struct fake_tensor_spec *spec)
{
    fake_init(&fake);
    return fake_tensor(&fake, fake.tensor, spec);
}

static int read_with(const struct torchobj_layout *l, uint64_t object, struct torchobj *ret)
{
    struct memory_reader reader = fake_reader(&fake);
    struct image_limits limits = {0};
    struct image_ranges *ranges;
    struct image *image;

    assert_int_equal(image_ranges_new(FAKE_MAPS, sizeof(FAKE_MAPS) - 1, &ranges), 0);
    assert_int_equal(image_new(&reader, &limits, &image), 0);
    int r = torchobj_read(image, ranges, l, object, ret);
    image_free(image);
    image_ranges_free(ranges);
    return r;
}

static void test_a_tensor(void **state)
{
    struct torchobj t;
    uint64_t object = make(&good);

    assert_int_equal(read_with(&layout, object, &t), 0);
    assert_int_equal(t.data, FAKE_DEVICE_MEMORY);
    assert_int_equal(t.storage_bytes, 4096);
    assert_int_equal(t.used_bytes, 4096);
    assert_int_equal(t.dim_count, 2);
    assert_int_equal(t.dims[0], 16);
    assert_int_equal(t.dims[1], 64);
    assert_string_equal(torch_dtype_name(t.dtype), "float32");
    assert_int_equal(t.device_type, TORCH_DEVICE_NPU);
    assert_int_equal(t.device_index, 3);
    assert_true(t.is_owner);
    struct fake_tensor_spec weak = good;
    weak.is_weak = true;
    object = make(&weak);
    assert_int_equal(read_with(&layout, object, &t), 0);
    assert_false(t.is_owner);
}

/* Address of the TensorImpl and the StorageImpl of a tensor. */
static uint64_t tensor_of(uint64_t object)
{
    return fake_get(&fake, object + 24);
}

static void test_every_check_refuses(void **state)
{
    const struct {
        bool in_storage;
        unsigned at;
        uint64_t value;
    } wrong[] = {
        {false, 0, FAKE_HEAP + 64}, /* no virtual table in a library */
        {true, 0, FAKE_HEAP + 64},
        {false, 56, FAKE_HEAP + 4096}, /* not this Python object */
        {false, 64, 65},               /* dimensions */
        {false, 72, (uint64_t)-1},     /* a size below 0 */
        {false, 72, 17},               /* sizes that are not the number of elements */
        {false, 112, 65},              /* strides that lead out of the storage */
        {false, 152, 1},               /* an offset that does */
        {false, 160, 1023},
        {false, 168, 200 | 20 << 16 | 3 << 24}, /* type */
        {false, 168, 6 | 20 << 16 | 2 << 24},   /* another device than the storage's */
        {true, 40, 0},
        {true, 48, 4095}, /* bytes */
        {true, 48, (uint64_t)1 << 47},
        {true, 24, FAKE_HEAP + 64}, /* a deleter in no code */
        {false, 16, 12345},         /* no pointer to a storage */
    };

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct torchobj t;
        uint64_t object = make(&good), at = tensor_of(object);
        if (wrong[i].in_storage)
            at = fake_get(&fake, at + 16);
        fake_u64(&fake, at + wrong[i].at, wrong[i].value);
        if (read_with(&layout, object, &t) != -EBADMSG)
            fail_msg("wrong[%zu] was taken", i);
    }
}

static void test_a_tensor_without_storage(void **state)
{
    struct torchobj t;
    uint64_t object = make(&good);

    fake_u64(&fake, tensor_of(object) + 16, 0);
    assert_int_equal(read_with(&layout, object, &t), -ENODATA);
}

static int calibrate(const uint64_t *objects, size_t count, struct torchobj_layout *ret,
                     size_t *verified)
{
    struct memory_reader reader = fake_reader(&fake);
    struct image_limits limits = {0};
    struct image_ranges *ranges;
    struct image *image;

    assert_int_equal(image_ranges_new(FAKE_MAPS, sizeof(FAKE_MAPS) - 1, &ranges), 0);
    assert_int_equal(image_new(&reader, &limits, &image), 0);
    int r = torchobj_calibrate(image, ranges, objects, count, ret, verified);
    image_free(image);
    image_ranges_free(ranges);
    return r;
}

static void test_calibration(void **state)
{
    struct torchobj_layout found;
    uint64_t objects[8];
    size_t verified;

    fake_init(&fake);
    for (unsigned i = 0; i < 8; i++)
        objects[i] = fake_tensor(&fake, fake.tensor, &good);
    assert_int_equal(calibrate(objects, 8, &found, &verified), 0);
    assert_string_equal(found.versions, "2.5-2.9");
    assert_int_equal(verified, 8);
    /* the TensorImpl at 16 in the Python object: another version */
    for (unsigned i = 0; i < 8; i++) {
        fake_u64(&fake, objects[i] + 16, tensor_of(objects[i]));
        fake_u64(&fake, objects[i] + 24, 0);
    }
    assert_int_equal(calibrate(objects, 8, &found, &verified), 0);
    assert_string_equal(found.versions, "2.10-2.13");
    /* five of eight are none: no layout has enough */
    for (unsigned i = 0; i < 5; i++)
        fake_u64(&fake, objects[i] + 16, FAKE_HEAP + 64);
    assert_int_equal(calibrate(objects, 8, &found, &verified), -ENODATA);
    assert_int_equal(calibrate(objects, 0, &found, &verified), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_tensor),
        cmocka_unit_test(test_every_check_refuses),
        cmocka_unit_test(test_a_tensor_without_storage),
        cmocka_unit_test(test_calibration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
