/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npualloc_table.c - finding the hash table of live blocks and the layout of a block's record.
 *
 * The table is a flat hash map of pointers: {entries, slots - 1, (shift u8, lookups u8), load
 * factor f32, number of elements}; an entry is {i8 distance, below 0 when empty, key, value}. It is
 * searched in the allocator object by its form, and accepted when the number of full entries is
 * what it says and every value is a record in which one offset holds the entry's key.
 */
#include "npualloc_internal.h"

#include <errno.h>
#include <string.h>

#define OBJECT_WORDS 256u /* of the allocator object that are searched */
#define ENTRY_BYTES 24u
#define ENTRIES_AT_ONCE 170u /* about a page */
#define SAMPLES_MAX 1024u    /* records that the search for the layout looks at */
#define RECORD_BYTES 160u    /* of a block's record that are searched */
#define BLOCK_ALIGN 512u     /* sizes are rounded to it; source: kMinBlockSize */

struct table_head {
    uint64_t entries, mask, count;
    uint8_t lookups;
};

/* Whether words at `bytes` look like the head of such a table. */
static bool head_read(const unsigned char *bytes, struct table_head *ret)
{
    float load;

    ret->entries = image_word(bytes, 0);
    ret->mask = image_word(bytes, 8);
    ret->lookups = bytes[17];
    ret->count = image_word(bytes, 24);
    memcpy(&load, bytes + 20, sizeof(load));
    return image_pointer(ret->entries) && ret->mask && (ret->mask & (ret->mask + 1)) == 0 &&
           ret->mask < NPUALLOC_SLOTS_MAX && ret->lookups >= 2 && ret->lookups <= 64 &&
           bytes[16] < 64 && load > 0.1f && load <= 1.0f && ret->count <= ret->mask + 1;
}

/* A table that nobody has put anything into. Source: the map's initial values (one slot, at most
 * three more are looked at, half full at most). */
static bool head_is_new(const unsigned char *bytes)
{
    return image_pointer(image_word(bytes, 0)) && !image_word(bytes, 8) &&
           image_word(bytes, 16) == 0x3f0000000000033f && !image_word(bytes, 24);
}

static int compare_records(const void *a, const void *b)
{
    const struct npualloc_entry *x = a, *y = b;
    return x->record < y->record ? -1 : x->record > y->record;
}

int npualloc_table_list(struct npualloc_walk *w, bool *ret_stable, struct error *reterr)
{
    uint64_t slots =
        w->slots_mask + w->lookups; /* the last is a mark for iterators, not an entry */
    unsigned char bytes[ENTRIES_AT_ONCE * ENTRY_BYTES];
    size_t count = 0;

    free(w->live);
    w->live_count = 0;
    w->live = calloc(w->table_count + 1, sizeof(*w->live));
    if (!w->live)
        return -ENOMEM;
    *ret_stable = false;
    for (uint64_t at = 0; at < slots; at += ENTRIES_AT_ONCE) {
        uint64_t part = slots - at < ENTRIES_AT_ONCE ? slots - at : ENTRIES_AT_ONCE;
        int r = image_read(w->image, w->entries + at * ENTRY_BYTES, bytes, part * ENTRY_BYTES);
        if (r < 0)
            return error_set(reterr, r, "the allocator's table of blocks ends at slot %llu of %llu",
                             (unsigned long long)at, (unsigned long long)slots);
        for (uint64_t i = 0; i < part; i++) {
            const unsigned char *entry = bytes + i * ENTRY_BYTES;
            if ((int8_t)entry[0] < 0)
                continue;
            if (count == w->table_count || !image_pointer(image_word(entry, 16)))
                return 0; /* more than it says, or half written */
            w->live[count++] = (struct npualloc_entry){.record = image_word(entry, 16),
                                                       .address = image_word(entry, 8)};
        }
    }
    qsort(w->live, count, sizeof(*w->live), compare_records);
    w->live_count = count;
    *ret_stable = count == w->table_count;
    return 0;
}

/* The samples are spread over all records. */
static size_t sample_count(const struct npualloc_walk *w)
{
    return w->live_count < SAMPLES_MAX ? w->live_count : SAMPLES_MAX;
}

static const struct npualloc_entry *sample(const struct npualloc_walk *w, size_t i)
{
    return &w->live[i * w->live_count / sample_count(w)];
}

/* Words of a record that equal the entry's key, as a bit mask. */
static int key_words(struct npualloc_walk *w, const struct npualloc_entry *e, uint32_t *ret)
{
    unsigned char bytes[RECORD_BYTES];
    int r = image_read(w->image, e->record, bytes, sizeof(bytes));

    *ret = 0;
    for (uint32_t word = 0; r == 0 && word < RECORD_BYTES / 8 && word < 32; word++)
        if (image_word(bytes, 8 * word) == e->address)
            *ret |= 1u << word;
    return r;
}

/* Size before the address: {size, requested, pool, address} or, in old versions, {size, pool,
 * address}. */
static bool sizes_fit(struct npualloc_walk *w, unsigned address, bool has_requested)
{
    size_t good = 0;

    for (size_t i = 0; i < sample_count(w); i++) {
        uint64_t words[4]; /* before the address */
        if (image_read(w->image, sample(w, i)->record + address - 24, words, sizeof(words)) < 0)
            return false;
        uint64_t bytes = has_requested ? words[0] : words[1];
        uint64_t requested = has_requested ? words[1] : 0;
        if (!bytes || bytes % BLOCK_ALIGN || bytes >= (uint64_t)1 << 47 || requested > bytes ||
            !image_pointer(words[2]))
            continue;
        good++;
    }
    return good == sample_count(w);
}

/* {address, live u8, mapped u8 (newer), previous, next}: neighbours point back at each other. */
static bool links_fit(struct npualloc_walk *w, unsigned address)
{
    for (size_t i = 0; i < sample_count(w); i++) {
        uint64_t record = sample(w, i)->record, links[2], back;
        uint8_t is_live;
        if (image_u8(w->image, record + address + 8, &is_live) < 0 || is_live != 1 ||
            image_read(w->image, record + address + 16, links, sizeof(links)) < 0)
            return false;
        for (int side = 0; side < 2; side++)
            if (links[side] &&
                (!image_pointer(links[side]) ||
                 image_u64(w->image, links[side] + address + (side ? 16 : 24), &back) < 0 ||
                 back != record))
                return false;
    }
    return true;
}

int npualloc_layout_find(struct npualloc_walk *w, struct error *reterr)
{
    uint32_t common = UINT32_MAX, words;

    for (size_t i = 0; i < sample_count(w); i++) {
        int r = key_words(w, sample(w, i), &words);
        if (r < 0)
            return r == -EFAULT ? -EAGAIN : r;
        common &= words;
    }
    if (!w->live_count || !common)
        return error_set(reterr, EBADMSG,
                         "the allocator's records do not hold the addresses of their blocks");
    for (unsigned word = 3; word < 32; word++) {
        unsigned address = 8 * word;
        if (!(common & 1u << word) || !links_fit(w, address))
            continue;
        bool has_requested = sizes_fit(w, address, true);
        if (!has_requested && !sizes_fit(w, address, false))
            continue;
        w->layout = (struct npualloc_layout){
            .address = (uint16_t)address,
            .bytes = (uint16_t)(address - (has_requested ? 24 : 16)),
            .requested = (uint16_t)(address - 16),
            .pool = (uint16_t)(address - 8),
            .live = (uint16_t)(address + 8),
            .previous = (uint16_t)(address + 16),
            .next = (uint16_t)(address + 24),
            .has_requested = has_requested,
        };
        return 0;
    }
    return error_set(reterr, EAGAIN, "sizes and neighbours of the allocator's records do not fit");
}

/* A table is the right one when its values are records that hold their keys. */
static bool table_try(struct npualloc_walk *w, const struct table_head *head)
{
    bool is_stable;

    w->entries = head->entries;
    w->slots_mask = head->mask;
    w->lookups = head->lookups;
    w->table_count = head->count;
    return npualloc_table_list(w, &is_stable, NULL) == 0 && w->live_count &&
           npualloc_layout_find(w, NULL) == 0;
}

int npualloc_table_find(struct npualloc_walk *w, struct error *reterr)
{
    unsigned char bytes[8 * OBJECT_WORDS];
    struct table_head head;
    bool is_empty = false, is_used = false;
    int r = image_read(w->image, w->allocator, bytes, sizeof(bytes));

    if (r < 0)
        return error_set(reterr, r == -EFAULT ? -ENODATA : r, "the allocator object is not mapped");
    if (!image_ranges_in_file(w->ranges, image_word(bytes, 0)))
        return error_set(reterr, ENODATA, "there is no allocator object where its symbol points");
    for (unsigned word = 1; word + 4 <= OBJECT_WORDS; word++) {
        is_empty |= head_is_new(bytes + 8 * word);
        if (!head_read(bytes + 8 * word, &head))
            continue;
        if (head.count && table_try(w, &head))
            return 0;
        is_empty |= !head.count;
        is_used |= head.count;
    }
    r = image_stopped(w->image);
    if (r < 0)
        return error_set(reterr, r, "the allocator was not read in time");
    if (is_empty && !is_used)
        return error_set(reterr, ENODATA, "the allocator has no block yet");
    return error_set(reterr, EAGAIN, "no table of blocks was recognised in the allocator object");
}
