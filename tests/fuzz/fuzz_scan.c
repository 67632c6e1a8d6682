/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scan of a process whose memory somebody has changed: no read outside, no endless walk, and no
 * name for what does not verify.
 *
 * The input is {base u8, then changes {place u24, form u8, bytes}}. Base 0 is the process of
 * tests/unit/scan_image.h; the others are the files in $NPUMEM_FUZZ_IMAGES, recorded from real
 * processes by record.sh (run.sh unpacks seeds/scan there). A change is of a byte that a scan looks
 * at: other bytes, a flipped bit, a length that is huge, or a pointer to something else (cycles).
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "json_write.h"
#include "touched.h"
#include "view_scan.h"

#include "../unit/scan_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Walks that take longer than this many looks at the clock are endless. */
#define CLOCK_TICKS 4000u
#define BASES_MAX 16
#define CHANGES_MAX 64u

static struct base bases[BASES_MAX];
static unsigned base_count;
static uint64_t ticks;

static uint64_t on_clock(void *userdata)
{
    return ticks++;
}

static void bases_load(void)
{
    const char *directory = getenv("NPUMEM_FUZZ_IMAGES");
    struct dirent **entries;
    int count = directory ? scandir(directory, &entries, NULL, alphasort) : 0;

    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s", directory, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && base_count < BASES_MAX) {
            if (base_load(path, &bases[base_count]) < 0) {
                fprintf(stderr, "%s: no recorded image\n", path);
                abort();
            }
            base_count++;
        }
        free(entries[i]);
    }
    if (count > 0)
        free(entries);
}

/* What was changed, so that it can be changed back. */
struct change {
    size_t at;
    size_t length;
    uint8_t old[16];
};

enum form { FORM_BYTES = 0, FORM_BIT = 4, FORM_HUGE = 5, FORM_POINTER = 6, FORM_ANYWHERE = 7 };

/* The bytes of a change; up to 16 of them. */
static size_t change_bytes(const unsigned char *bytes, const uint32_t *places, size_t place_count,
                           size_t at, uint8_t form, const uint8_t **data, size_t *size, uint8_t *to)
{
    static const uint64_t huge[] = {UINT64_MAX, INT64_MAX,  1ull << 62, 1ull << 46,
                                    1ull << 32, UINT32_MAX, 1ull << 20, (1ull << 20) + 1};
    size_t length = form % 16 + 1, place;

    switch (form >> 4 & 7) {
    case FORM_BIT:
        to[0] = bytes[at] ^ (uint8_t)(1u << (form & 7));
        return 1;
    case FORM_HUGE:
        memcpy(to, &huge[form % 8], 8);
        return 8;
    case FORM_POINTER: /* what another place holds */
        if (*size < 3)
            return 0;
        place = (size_t)((*data)[0] | (*data)[1] << 8 | (*data)[2] << 16) % place_count;
        *data += 3;
        *size -= 3;
        memcpy(to, bytes + places[place] / 8 * 8, 8);
        return 8;
    default:
        length = length < *size ? length : *size;
        memcpy(to, *data, length);
        *data += length;
        *size -= length;
        return length;
    }
}

static size_t changes_apply(unsigned char *bytes, size_t bytes_size, const uint32_t *places,
                            size_t place_count, const uint8_t *data, size_t size,
                            struct change *changes)
{
    size_t count = 0;

    while (size > 4 && count < CHANGES_MAX) {
        size_t at = (size_t)(data[0] | data[1] << 8 | data[2] << 16);
        uint8_t form = data[3], with[16];
        data += 4;
        size -= 4;
        at = (form >> 4 & 7) == FORM_ANYWHERE ? at % bytes_size : places[at % place_count];
        size_t length = change_bytes(bytes, places, place_count, at, form, &data, &size, with);
        if (length > bytes_size - at)
            length = bytes_size - at;
        changes[count] = (struct change){.at = at, .length = length};
        memcpy(changes[count].old, bytes + at, length);
        memcpy(bytes + at, with, length);
        count++;
    }
    return count;
}

static void check(const struct scan_result *r)
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

static void scan_done(int r, struct scan_result *result)
{
    if (r < 0)
        return;
    check(result);
    scan_result_free(result);
}

static void scan_base(struct base *b, const uint8_t *data, size_t size)
{
    struct image_limits limits = {.now_ns = on_clock, .deadline_ns = CLOCK_TICKS, .max_pages = 256};
    struct change changes[CHANGES_MAX];
    struct scan_result *result = NULL;
    size_t n = changes_apply(b->bytes, b->size, b->places, b->place_count, data, size, changes);

    scan_done(base_scan(b, &limits, &result), result);
    while (n--)
        memcpy(b->bytes + changes[n].at, changes[n].old, changes[n].length);
}

static void scan_fake(const uint8_t *data, size_t size)
{
    static struct fake pristine, fake;
    static uint32_t places[FAKE_HEAP_BYTES];
    struct image_limits limits = {.now_ns = on_clock, .deadline_ns = CLOCK_TICKS, .max_pages = 256};
    struct change changes[CHANGES_MAX];
    struct image_ranges *ranges = NULL;
    struct roots_table *table = NULL;
    struct image *image = NULL;
    struct scan_result *result = NULL;

    if (!pristine.used) {
        fake_worker(&pristine);
        for (uint32_t i = 0; i < FAKE_HEAP_BYTES; i++)
            places[i] = i;
    }
    fake = pristine;
    changes_apply(fake.bytes, FAKE_HEAP_BYTES, places, (size_t)fake.used, data, size, changes);
    struct memory_reader reader = fake_reader(&fake);
    if (image_ranges_new(FAKE_MAPS, sizeof(FAKE_MAPS) - 1, &ranges) == 0 &&
        roots_table_new(&table) == 0 && image_new(&reader, &limits, &image) == 0) {
        struct scan_input in = {.image = image,
                                .ranges = ranges,
                                .table = table,
                                .python_minor = size % 8 ? 11 : 9 + (unsigned)size / 8 % 5,
                                .runtime = fake.runtime,
                                .allocator = fake.allocator,
                                .maximum_objects = 20000};
        scan_done(scan_process(&in, &result), result);
    }
    image_free(image);
    roots_table_free(table);
    image_ranges_free(ranges);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool is_ready;

    if (!is_ready) {
        bases_load();
        is_ready = true;
    }
    if (!size)
        return 0;
    ticks = 0;
    unsigned base = data[0] % (base_count + 1);
    if (base)
        scan_base(&bases[base - 1], data + 1, size - 1);
    else
        scan_fake(data + 1, size - 1);
    return 0;
}
