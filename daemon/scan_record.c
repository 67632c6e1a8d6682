/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan_record.c - pages by number, each as it was when it was read last.
 */
#include "scan_record.h"

#include <stdlib.h>
#include <string.h>

#include "map.h"

#define CHUNK_SHIFT 6
#define PAGES_MAX 65536u

struct record_page {
    uint64_t number;
    uint32_t key_b, zero;
    unsigned char bytes[IMAGE_PAGE_BYTES];
};

struct scan_record {
    struct memory_reader reader;
    struct map pages;
};

int scan_record_new(const struct memory_reader *reader, struct scan_record **ret)
{
    struct scan_record *r = calloc(1, sizeof(*r));

    if (!r)
        return -ENOMEM;
    r->reader = *reader;
    map_init(&r->pages, sizeof(struct record_page), CHUNK_SHIFT, NULL);
    *ret = r;
    return 0;
}

struct scan_record *scan_record_free(struct scan_record *r)
{
    if (!r)
        return NULL;
    map_clear(&r->pages);
    free(r);
    return NULL;
}

static int on_read(void *userdata, uint64_t address, void *buffer, size_t bytes)
{
    struct scan_record *r = userdata;
    int n = r->reader.read(r->reader.userdata, address, buffer, bytes);

    /* the image reads whole pages */
    for (size_t at = 0; n == 0 && at + IMAGE_PAGE_BYTES <= bytes; at += IMAGE_PAGE_BYTES) {
        uint64_t number = (address + at) / IMAGE_PAGE_BYTES;
        uint32_t found = map_find(&r->pages, number, 0);
        if (!found && (r->pages.count >= PAGES_MAX || map_add(&r->pages, number, 0, &found) < 0))
            return -ENOMEM;
        struct record_page *page = map_at(&r->pages, found);
        memcpy(page->bytes, (char *)buffer + at, IMAGE_PAGE_BYTES);
    }
    return n;
}

struct memory_reader scan_record_reader(struct scan_record *r)
{
    return (struct memory_reader){.read = on_read, .userdata = r};
}

static int compare(const void *a, const void *b)
{
    const struct record_page *x = *(struct record_page *const *)a,
                             *y = *(struct record_page *const *)b;
    return x->number < y->number ? -1 : x->number > y->number;
}

int scan_record_write(const struct scan_record *r, const char *path, const struct scan_input *in,
                      const char *maps, size_t bytes, struct error *reterr)
{
    _cleanup_free_ struct record_page **pages = malloc((r->pages.count + 1) * sizeof(*pages));
    _cleanup_fclose_ FILE *f = fopen(path, "we");
    uint64_t count = 0;

    if (!pages)
        return -ENOMEM;
    if (!f)
        return error_set(reterr, -errno, "%s: %s", path, strerror(errno));
    for (uint32_t n = map_next(&r->pages, 0); n; n = map_next(&r->pages, n))
        pages[count++] = map_at(&r->pages, n);
    qsort(pages, count, sizeof(*pages), compare);
    fwrite("NMIMAGE1", 8, 1, f);
    fwrite(&count, sizeof(count), 1, f);
    for (uint64_t i = 0; i < count; i++) {
        fwrite(&pages[i]->number, sizeof(pages[i]->number), 1, f);
        fwrite(pages[i]->bytes, IMAGE_PAGE_BYTES, 1, f);
    }
    fprintf(f, "# python %u runtime %llx allocator %llx\n", in->python_minor,
            (unsigned long long)in->runtime, (unsigned long long)in->allocator);
    fwrite(maps, 1, bytes, f);
    return ferror(f) || fflush(f) ? error_set(reterr, EIO, "%s: write error", path) : 0;
}
