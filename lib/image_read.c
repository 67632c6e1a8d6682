/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_read.c - page cache over a memory reader, with budgets.
 *
 * Owns: the pages and the index. Must not: interpret what it reads.
 * Invariants: a page is kept whole or not at all; when the cache is full it is emptied, which keeps
 * the index free of deletions and cannot be made slow by any order of reads.
 */
#include "image_read.h"

#include <errno.h>
#include <string.h>

#define PAGES_DEFAULT 4096u
#define BYTES_DEFAULT ((uint64_t)1 << 30)
#define CLUSTER_BYTES (IMAGE_CLUSTER_PAGES * IMAGE_PAGE_BYTES)
/* Reads of kept pages between two looks at the clock. */
#define CLOCK_EVERY 4096u

struct image {
    struct memory_reader reader;
    struct image_limits limits;
    struct image_stats stats;
    unsigned char *pages;
    uint64_t *page_numbers; /* of each kept page */
    uint32_t *index;        /* page + 1 by hash; 0 empty */
    uint32_t max_pages, index_mask, used;
    uint32_t until_clock;
    int stopped;
    uint64_t last_number; /* the page of the last read */
    const unsigned char *last_page;
    unsigned char cluster[CLUSTER_BYTES];
};

int image_new(const struct memory_reader *reader, const struct image_limits *limits,
              struct image **ret)
{
    _cleanup_(image_freep) struct image *i = calloc(1, sizeof(*i));
    uint32_t slots = 2 * IMAGE_CLUSTER_PAGES;

    if (!i)
        return -ENOMEM;
    i->reader = *reader;
    i->limits = *limits;
    if (!i->limits.max_bytes)
        i->limits.max_bytes = BYTES_DEFAULT;
    while (slots / 2 < (limits->max_pages ? limits->max_pages : PAGES_DEFAULT))
        slots *= 2;
    i->max_pages = slots / 2;
    i->index_mask = slots - 1;
    /* pages are touched only when used */
    i->pages = malloc((size_t)i->max_pages * IMAGE_PAGE_BYTES);
    i->page_numbers = malloc(i->max_pages * sizeof(*i->page_numbers));
    i->index = calloc(slots, sizeof(*i->index));
    if (!i->pages || !i->page_numbers || !i->index)
        return -ENOMEM;
    i->until_clock = CLOCK_EVERY;
    *ret = TAKE_PTR(i);
    return 0;
}

struct image *image_free(struct image *i)
{
    if (!i)
        return NULL;
    free(i->pages);
    free(i->page_numbers);
    free(i->index);
    free(i);
    return NULL;
}

const struct image_stats *image_stats(const struct image *i)
{
    return &i->stats;
}

void image_forget(struct image *i)
{
    memset(i->index, 0, ((size_t)i->index_mask + 1) * sizeof(*i->index));
    i->used = 0;
    i->last_page = NULL;
}

int image_stopped(struct image *i)
{
    if (i->stopped)
        return i->stopped;
    i->until_clock = CLOCK_EVERY;
    if (i->limits.now_ns && i->limits.now_ns(i->limits.now_userdata) >= i->limits.deadline_ns)
        i->stopped = -ETIME;
    return i->stopped;
}

void image_extend(struct image *i, uint64_t ns)
{
    if (!i->limits.now_ns || (image_stopped(i) && i->stopped != -ETIME))
        return;
    uint64_t wanted = i->limits.now_ns(i->limits.now_userdata) + ns;
    if (wanted > i->limits.deadline_ns)
        i->limits.deadline_ns = wanted;
    i->stopped = 0;
}

static uint32_t slot_of(const struct image *i, uint64_t number)
{
    return (uint32_t)(number * 0x9e3779b97f4a7c15ull >> 32) & i->index_mask;
}

static const unsigned char *page_find(const struct image *i, uint64_t number)
{
    for (uint32_t s = slot_of(i, number); i->index[s]; s = (s + 1) & i->index_mask)
        if (i->page_numbers[i->index[s] - 1] == number)
            return i->pages + (size_t)(i->index[s] - 1) * IMAGE_PAGE_BYTES;
    return NULL;
}

static void page_add(struct image *i, uint64_t number, const unsigned char *bytes)
{
    uint32_t s = slot_of(i, number);

    while (i->index[s])
        s = (s + 1) & i->index_mask;
    i->page_numbers[i->used] = number;
    memcpy(i->pages + (size_t)i->used * IMAGE_PAGE_BYTES, bytes, IMAGE_PAGE_BYTES);
    i->index[s] = ++i->used;
}

static int fetch(struct image *i, uint64_t address, size_t bytes)
{
    int r;

    if (i->stats.read_bytes + bytes > i->limits.max_bytes) {
        i->stopped = -EDQUOT;
        return i->stopped;
    }
    i->stats.reads++;
    i->stats.read_bytes += bytes;
    r = i->reader.read(i->reader.userdata, address, i->cluster, bytes);
    if (r < 0) {
        i->stats.failed_reads++;
        return -EFAULT;
    }
    return 0;
}

/* Reads a page, and the following ones where the reading goes upwards: the page before is kept. */
static int page_load(struct image *i, uint64_t number, const unsigned char **ret)
{
    uint64_t first = number;
    uint32_t count = page_find(i, number - 1) ? IMAGE_CLUSTER_PAGES : 1;
    int r = image_stopped(i);

    if (r < 0)
        return r;
    r = fetch(i, first * IMAGE_PAGE_BYTES, (size_t)count * IMAGE_PAGE_BYTES);
    if (r == -EFAULT && count > 1) {
        count = 1;
        r = fetch(i, first * IMAGE_PAGE_BYTES, IMAGE_PAGE_BYTES);
    }
    if (r < 0)
        return r;
    if (i->used + count > i->max_pages)
        image_forget(i);
    for (uint32_t p = 0; p < count; p++)
        if (!page_find(i, first + p))
            page_add(i, first + p, i->cluster + (size_t)p * IMAGE_PAGE_BYTES);
    *ret = page_find(i, number);
    return 0;
}

static int page_get(struct image *i, uint64_t number, const unsigned char **ret)
{
    if (i->stopped)
        return i->stopped;
    if (--i->until_clock == 0 && image_stopped(i))
        return i->stopped;
    if (i->last_page && i->last_number == number) {
        *ret = i->last_page;
        i->stats.hits++;
        return 0;
    }
    *ret = page_find(i, number);
    if (*ret) {
        i->stats.hits++;
    } else {
        int r = page_load(i, number, ret);
        if (r < 0)
            return r;
    }
    i->last_page = *ret;
    i->last_number = number;
    return 0;
}

int image_read(struct image *i, uint64_t address, void *buffer, size_t bytes)
{
    unsigned char *to = buffer;

    if (address < IMAGE_ADDRESS_MIN || address >= IMAGE_ADDRESS_MAX ||
        bytes > IMAGE_ADDRESS_MAX - address)
        return -EFAULT;
    while (bytes) {
        size_t at = address % IMAGE_PAGE_BYTES;
        size_t part = IMAGE_PAGE_BYTES - at < bytes ? IMAGE_PAGE_BYTES - at : bytes;
        const unsigned char *page;
        int r = page_get(i, address / IMAGE_PAGE_BYTES, &page);
        if (r < 0)
            return r;
        memcpy(to, page + at, part);
        to += part;
        address += part;
        bytes -= part;
    }
    return 0;
}

int image_u64(struct image *i, uint64_t address, uint64_t *ret)
{
    return image_read(i, address, ret, sizeof(*ret));
}

int image_u32(struct image *i, uint64_t address, uint32_t *ret)
{
    return image_read(i, address, ret, sizeof(*ret));
}

int image_u16(struct image *i, uint64_t address, uint16_t *ret)
{
    return image_read(i, address, ret, sizeof(*ret));
}

int image_u8(struct image *i, uint64_t address, uint8_t *ret)
{
    return image_read(i, address, ret, sizeof(*ret));
}

int image_text(struct image *i, uint64_t address, char *buffer, size_t size)
{
    for (size_t n = 0; n < size; n++) {
        uint8_t c;
        int r = image_u8(i, address + n, &c);
        if (r < 0)
            return r;
        buffer[n] = (char)c;
        if (!c)
            return (int)n;
        if (c < 0x20 || c == 0x7f)
            break;
    }
    if (size)
        buffer[0] = '\0';
    return -EBADMSG;
}
