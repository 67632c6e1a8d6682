/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_record.c - reading a recorded image. Hostile: the fuzzer makes them.
 */
#include "image_record.h"

#include <errno.h>
#include <string.h>

#define MAGIC "NMIMAGE1"
#define HEADER_BYTES 16u
#define RECORD_BYTES (8u + IMAGE_PAGE_BYTES)

int image_record_init(struct image_record *r, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    if (bytes < HEADER_BYTES || memcmp(at, MAGIC, 8) != 0)
        return -EBADMSG;
    r->count = image_word(at, 8);
    if (r->count > (bytes - HEADER_BYTES) / RECORD_BYTES)
        return -EBADMSG;
    r->records = at + HEADER_BYTES;
    r->maps_text = (const char *)r->records + r->count * RECORD_BYTES;
    r->maps_bytes = bytes - HEADER_BYTES - r->count * RECORD_BYTES;
    return 0;
}

static const unsigned char *page_find(const struct image_record *r, uint64_t number)
{
    uint64_t low = 0, high = r->count;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const unsigned char *record = r->records + middle * RECORD_BYTES;
        uint64_t found = image_word(record, 0);
        if (found == number)
            return record + 8;
        if (found < number)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static int on_read(void *userdata, uint64_t address, void *buffer, size_t bytes)
{
    unsigned char *to = buffer;

    while (bytes) {
        size_t at = address % IMAGE_PAGE_BYTES;
        size_t part = IMAGE_PAGE_BYTES - at < bytes ? IMAGE_PAGE_BYTES - at : bytes;
        const unsigned char *page = page_find(userdata, address / IMAGE_PAGE_BYTES);
        if (!page)
            return -EFAULT;
        memcpy(to, page + at, part);
        to += part;
        address += part;
        bytes -= part;
    }
    return 0;
}

struct memory_reader image_record_reader(const struct image_record *r)
{
    return (struct memory_reader){.read = on_read, .userdata = (void *)(uintptr_t)r};
}
