/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scan of a process whose memory somebody has changed: no read outside, no endless walk, and no
 * name for what does not verify.
 *
 * The input is a list of changes {address offset u24, length u8, bytes} to the process of
 * tests/unit/scan_image.h, or, with NPUMEM_FUZZ_IMAGE=FILE, to an image that scan_one --record
 * made.
 */
#include <stdlib.h>
#include <string.h>

#include "image_record.h"
#include "json_write.h"
#include "roots_scan.h"
#include "view_scan.h"

#include "../unit/scan_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Walks that take longer than this many looks at the clock are endless. */
#define CLOCK_TICKS 4000u

struct base {
    unsigned char *bytes;
    size_t size;
    unsigned minor;
    unsigned long long runtime, allocator;
};

static uint64_t ticks;

static uint64_t on_clock(void *userdata)
{
    return ticks++;
}

static struct base base_load(void)
{
    const char *path = getenv("NPUMEM_FUZZ_IMAGE");
    struct base b = {0};
    FILE *f = path ? fopen(path, "rb") : NULL;

    if (!f)
        return b;
    fseek(f, 0, SEEK_END);
    b.size = (size_t)ftell(f);
    rewind(f);
    b.bytes = malloc(b.size + 1);
    if (!b.bytes || fread(b.bytes, 1, b.size, f) != b.size)
        abort();
    b.bytes[b.size] = '\0';
    fclose(f);
    struct image_record record;
    if (image_record_init(&record, b.bytes, b.size) < 0 ||
        sscanf(record.maps_text, "# python %u runtime %llx allocator %llx", &b.minor, &b.runtime,
               &b.allocator) != 3)
        abort();
    return b;
}

/* What was changed, so that it can be changed back. */
struct change {
    size_t at;
    uint8_t length, old[255];
};

static size_t changes_apply(unsigned char *bytes, size_t bytes_size, const uint8_t *data,
                            size_t size, struct change *changes, size_t maximum)
{
    size_t count = 0;

    while (size > 4 && count < maximum) {
        size_t at = (size_t)(data[0] | data[1] << 8 | data[2] << 16);
        size_t length = data[3] % 16 + 1;
        data += 4;
        size -= 4;
        if (length > size)
            length = size;
        at = bytes_size > (1u << 24) ? at * (bytes_size >> 24) % bytes_size : at % bytes_size;
        if (length > bytes_size - at)
            length = bytes_size - at;
        changes[count] = (struct change){.at = at, .length = (uint8_t)length};
        memcpy(changes[count].old, bytes + at, length);
        memcpy(bytes + at, data, length);
        count++;
        data += length;
        size -= length;
    }
    return count;
}

static void check(const struct scan_result *r, struct roots_table *table)
{
    struct view_context c = {.host = "fuzz"};
    struct view_scan_query q = {.with_blocks = true};
    struct scan_result *back;
    struct json j = {0};
    void *wire;
    size_t bytes;

    for (uint32_t i = 0; i < r->s.tensor_count; i++) {
        const struct scan_tensor *t = &r->tensors[i];
        /* what a name stands for has a type, a device, and fits into its storage */
        if (!torch_dtype_bits(t->dtype) || t->storage_bytes > TORCH_STORAGE_MAX ||
            t->device_type != TORCH_DEVICE_NPU || t->node >= r->s.node_count)
            abort();
    }
    for (uint32_t i = 1; i < r->s.block_count; i++)
        if (r->blocks[i].device == r->blocks[i - 1].device &&
            r->blocks[i - 1].address + r->blocks[i - 1].bytes > r->blocks[i].address)
            abort();
    if (scan_result_encode(r, &wire, &bytes) < 0)
        return;
    if (scan_result_decode(wire, bytes, &back) < 0)
        abort(); /* what the child says, the daemon understands */
    free(wire);
    if (view_scan(back, &c, &q, &j) < 0 || json_finish(&j) < 0)
        abort();
    json_done(&j);
    scan_result_free(back);
}

static void scan_run(const struct memory_reader *reader, const char *maps, size_t maps_bytes,
                     unsigned minor, uint64_t runtime, uint64_t allocator)
{
    struct image_limits limits = {.now_ns = on_clock, .deadline_ns = CLOCK_TICKS, .max_pages = 256};
    struct image_ranges *ranges = NULL;
    struct roots_table *table = NULL;
    struct image *image = NULL;
    struct scan_result *result;

    ticks = 0;
    if (image_ranges_new(maps, maps_bytes, &ranges) == 0 && roots_table_new(&table) == 0 &&
        image_new(reader, &limits, &image) == 0) {
        struct scan_input in = {.image = image,
                                .ranges = ranges,
                                .table = table,
                                .python_minor = minor,
                                .runtime = runtime,
                                .allocator = allocator,
                                .maximum_objects = 20000};
        if (scan_process(&in, &result) == 0) {
            check(result, table);
            scan_result_free(result);
        }
    }
    image_free(image);
    roots_table_free(table);
    image_ranges_free(ranges);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fake pristine, fake;
    static struct base base;
    static struct change changes[64];
    static bool is_ready;

    if (!is_ready) {
        base = base_load();
        fake_worker(&pristine);
        is_ready = true;
    }
    if (base.bytes) {
        struct image_record record;
        size_t n = changes_apply(base.bytes, base.size, data, size, changes, 64);
        if (image_record_init(&record, base.bytes, base.size) == 0) {
            struct memory_reader reader = image_record_reader(&record);
            scan_run(&reader, record.maps_text, record.maps_bytes, base.minor, base.runtime,
                     base.allocator);
        }
        while (n--)
            memcpy(base.bytes + changes[n].at, changes[n].old, changes[n].length);
        return 0;
    }
    fake = pristine;
    changes_apply(fake.bytes, (size_t)fake.used, data, size, changes, 64);
    struct memory_reader reader = fake_reader(&fake);
    scan_run(&reader, FAKE_MAPS, sizeof(FAKE_MAPS) - 1, size % 8 ? 11 : 9 + (unsigned)size / 8 % 5,
             fake.runtime, fake.allocator);
    return 0;
}
