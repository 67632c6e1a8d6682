/* SPDX-License-Identifier: Apache-2.0 */
/*
 * touched.h - which bytes of a recorded image a scan looks at: those that a change can matter in.
 *
 * Needs -Wl,--wrap for image_read and the readers of single words (TOUCHED_LINK in CMakeLists.txt).
 */
#ifndef NPUMEM_TESTS_TOUCHED_H
#define NPUMEM_TESTS_TOUCHED_H

#include <stdlib.h>
#include <string.h>

#include "image_record.h"
#include "roots_scan.h"

#define RECORD_HEAD 16u
#define RECORD_PAGE (8u + IMAGE_PAGE_BYTES)

/* A recorded image in memory, and what its first line of the maps says. */
struct base {
    unsigned char *bytes;
    size_t size;
    unsigned minor;
    unsigned long long runtime, allocator;
    unsigned char *touched; /* a flag per byte; NULL: not noted (now) */
    uint32_t *places;       /* offsets of touched bytes, ascending */
    size_t place_count;
};

/* What the roots of tests/fuzz/record.sh are. */
#define RECORD_ROOTS                                                                               \
    "type small Runner\npath small model PTA@small@model\npath small * PTA@small@rest\n"

static struct base *touched_base;

/* Offset of the byte at an address of the recorded process; 0: it is not in the image. */
static inline size_t touched_offset(const struct base *b, uint64_t address)
{
    uint64_t low = 0, high, number = address / IMAGE_PAGE_BYTES;

    memcpy(&high, b->bytes + 8, sizeof(high));
    while (low < high) {
        uint64_t middle = (low + high) / 2, at;
        memcpy(&at, b->bytes + RECORD_HEAD + middle * RECORD_PAGE, sizeof(at));
        if (at == number)
            return RECORD_HEAD + middle * RECORD_PAGE + 8 + address % IMAGE_PAGE_BYTES;
        if (at < number)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

static inline void touched_note(uint64_t address, size_t bytes)
{
    for (size_t i = 0; touched_base && i < bytes; i++) {
        size_t at = touched_offset(touched_base, address + i);
        if (at)
            touched_base->touched[at] = 1;
    }
}

#define TOUCHED_WRAP(name, type, size)                                                             \
    int __real_##name(struct image *i, uint64_t address, type *ret);                               \
    int __wrap_##name(struct image *i, uint64_t address, type *ret);                               \
    int __wrap_##name(struct image *i, uint64_t address, type *ret)                                \
    {                                                                                              \
        touched_note(address, size);                                                               \
        return __real_##name(i, address, ret);                                                     \
    }
TOUCHED_WRAP(image_u64, uint64_t, 8)
TOUCHED_WRAP(image_u32, uint32_t, 4)
TOUCHED_WRAP(image_u16, uint16_t, 2)
TOUCHED_WRAP(image_u8, uint8_t, 1)

int __real_image_read(struct image *i, uint64_t address, void *buffer, size_t bytes);
int __wrap_image_read(struct image *i, uint64_t address, void *buffer, size_t bytes);
int __wrap_image_read(struct image *i, uint64_t address, void *buffer, size_t bytes)
{
    touched_note(address, bytes);
    return __real_image_read(i, address, buffer, bytes);
}

int __real_image_text(struct image *i, uint64_t address, char *buffer, size_t size);
int __wrap_image_text(struct image *i, uint64_t address, char *buffer, size_t size);
int __wrap_image_text(struct image *i, uint64_t address, char *buffer, size_t size)
{
    int length = __real_image_text(i, address, buffer, size);
    touched_note(address, length > 0 ? (size_t)length + 1 : 1);
    return length;
}

/* One scan of an image. limits: of the reading. Returns as scan_process(). */
static inline int base_scan(const struct base *b, const struct image_limits *limits,
                            struct scan_result **ret)
{
    struct image_record record;
    struct image_ranges *ranges = NULL;
    struct roots_table *table = NULL;
    struct image *image = NULL;
    int r = image_record_init(&record, b->bytes, b->size);
    struct memory_reader reader = image_record_reader(&record);

    if (r == 0)
        r = image_ranges_new(record.maps_text, record.maps_bytes, &ranges);
    if (r == 0)
        r = roots_table_new(&table);
    if (r == 0)
        r = roots_table_add(table, "record", RECORD_ROOTS, sizeof(RECORD_ROOTS) - 1, NULL);
    if (r == 0)
        r = image_new(&reader, limits, &image);
    if (r == 0) {
        struct scan_input in = {.image = image,
                                .ranges = ranges,
                                .table = table,
                                .python_minor = b->minor,
                                .runtime = b->runtime,
                                .allocator = b->allocator,
                                .maximum_objects = 20000};
        r = scan_process(&in, ret);
    }
    image_free(image);
    roots_table_free(table);
    image_ranges_free(ranges);
    return r;
}

/* Reads an image and notes what a scan of it touches. Returns 0; -1 it is none. */
static inline int base_load(const char *path, struct base *ret)
{
    struct image_limits limits = {0};
    struct image_record record;
    struct scan_result *result;
    struct base b = {0};
    FILE *f = fopen(path, "rb");

    if (!f)
        return -1;
    fseek(f, 0, SEEK_END);
    b.size = (size_t)ftell(f);
    rewind(f);
    b.bytes = malloc(b.size + 1);
    b.touched = calloc(1, b.size + 1);
    size_t got = b.bytes ? fread(b.bytes, 1, b.size, f) : 0;
    fclose(f);
    if (got != b.size || !b.touched)
        return -1;
    b.bytes[b.size] = '\0';
    if (image_record_init(&record, b.bytes, b.size) < 0 ||
        sscanf(record.maps_text, "# python %u runtime %llx allocator %llx", &b.minor, &b.runtime,
               &b.allocator) != 3)
        return -1;
    touched_base = &b;
    int r = base_scan(&b, &limits, &result);
    touched_base = NULL;
    if (r < 0)
        return -1;
    scan_result_free(result);
    b.places = malloc((b.size + 1) * sizeof(*b.places));
    for (size_t at = 0; b.places && at < b.size; at++)
        if (b.touched[at])
            b.places[b.place_count++] = (uint32_t)at;
    *ret = b;
    return b.place_count ? 0 : -1;
}

#endif
