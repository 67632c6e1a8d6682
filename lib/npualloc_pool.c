/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npualloc_pool.c - blocks that nobody holds: neighbours, pools of free blocks, private pools; and
 * the allocator's own statistics.
 *
 * A pool is {set of free blocks, set of unmapped ones, is_small u8, private pool*}; a set is
 * libstdc++'s {comparison function, header {colour, root, first, last}, count} with nodes {colour,
 * parent, left, right, block}. It is recognised by exact conditions: the root's parent is the
 * header, an empty set's first and last are the header.
 */
#include "npualloc_internal.h"

#include <errno.h>
#include <string.h>

#define DEVICE_WORDS 1024u /* of a device's allocator that are searched */
#define PRIVATE_WORDS 96u  /* of a private pool */
#define SET_BYTES 48u
#define POOL_BYTES 112u
#define TREE_DEPTH_MAX 96u
#define STAT_BYTES 32u /* {current, peak, allocated, freed} */
#define STAT_KINDS 8u  /* allocation, segment, active, inactive split; the same four in bytes */
#define STAT_BYTES_ALL (STAT_KINDS * 3 * STAT_BYTES)
/* Behind the reserved bytes torch_npu 2.14 has a hash map of this size. */
#define STAT_GAP_KIND 6u
#define STAT_GAP_BYTES 32u
#define PRIVATE_ENTRY_BYTES 32u /* {distance, pool id (2 words), pointer} */
#define PRIVATE_SLOTS_MAX 65536u

static int block_append(struct npualloc_walk *w, const struct npualloc_block *block)
{
    struct npualloc *out = w->out;

    if (out->block_count == w->block_capacity) {
        size_t capacity = w->block_capacity ? 2 * w->block_capacity : 1024;
        void *blocks = realloc(out->blocks, capacity * sizeof(*out->blocks));
        if (!blocks)
            return -ENOMEM;
        out->blocks = blocks;
        w->block_capacity = capacity;
    }
    out->blocks[out->block_count++] = *block;
    return 0;
}

/* Reads one record; 1 and its neighbours when it is new, 0 when it was taken before. */
static int record_take(struct npualloc_walk *w, uint64_t record, bool is_live, uint64_t links[2])
{
    const struct npualloc_layout *l = &w->layout;
    unsigned char bytes[256 + 64];
    uint32_t number = map_find(&w->seen, record, 0);
    struct npualloc_seen *seen;
    int r;

    if (number)
        return 0;
    if (w->out->block_count >= NPUALLOC_BLOCKS_MAX)
        return -EBADMSG;
    r = image_read(w->image, record, bytes, l->next + 8u);
    if (r < 0)
        return r;
    int32_t device = (int32_t)(uint32_t)image_word(bytes, 0);
    struct npualloc_block b = {
        .address = image_word(bytes, l->address),
        .bytes = image_word(bytes, l->bytes),
        .requested_bytes = l->has_requested ? image_word(bytes, l->requested) : 0,
        .stream = image_word(bytes, 8),
        .pool = image_word(bytes, l->pool),
        .block = record,
        .device = (uint8_t)device,
        .state = bytes[l->live]       ? NPUALLOC_LIVE
                 : bytes[l->live + 1] ? NPUALLOC_PENDING
                                      : NPUALLOC_UNMAPPED,
    };
    if (device < 0 || device >= NPUALLOC_DEVICES_MAX || bytes[l->live] > 1 ||
        bytes[l->live + 1] > 1 || !b.bytes || b.bytes >= (uint64_t)1 << 47 || b.address % 256 ||
        is_live != (b.state == NPUALLOC_LIVE))
        return -EAGAIN;
    if (b.state != NPUALLOC_LIVE)
        b.requested_bytes = 0;
    links[0] = image_word(bytes, l->previous);
    links[1] = image_word(bytes, l->next);
    if (map_add(&w->seen, record, 0, &number) < 0)
        return -ENOMEM;
    seen = map_at(&w->seen, number);
    seen->index = (uint32_t)w->out->block_count;
    if (!map_find(&w->pools, b.pool, 0) && map_add(&w->pools, b.pool, 0, &number) < 0)
        return -ENOMEM;
    r = block_append(w, &b);
    return r < 0 ? r : 1;
}

int npualloc_take(struct npualloc_walk *w, const struct npualloc_entry *entry)
{
    uint64_t links[2];
    int r = record_take(w, entry->record, true, links);

    if (r < 0)
        return r;
    /* taken before: one record under two keys */
    return r == 1 && w->out->blocks[w->out->block_count - 1].address == entry->address ? 0
                                                                                       : -EAGAIN;
}

/* Neighbours to both sides, until one was taken before. Whether they are live the table has said.
 */
int npualloc_take_chain(struct npualloc_walk *w, uint64_t record)
{
    for (int side = 0; side < 2; side++) {
        uint64_t at, links[2];
        int r = image_u64(w->image, record + (side ? w->layout.next : w->layout.previous), &at);
        while (r >= 0 && at) {
            if (!image_pointer(at))
                return -EAGAIN;
            r = record_take(w, at, false, links);
            if (r == 0)
                break;
            at = links[side];
        }
        if (r < 0)
            return r;
    }
    return 0;
}

static bool set_fits(struct npualloc_walk *w, const unsigned char *bytes, uint64_t address)
{
    uint64_t root = image_word(bytes, 16), count = image_word(bytes, 40), parent;

    if (!image_ranges_in_code(w->ranges, image_word(bytes, 0)))
        return false;
    if (!count)
        return !root && image_word(bytes, 24) == address + 8 &&
               image_word(bytes, 32) == address + 8;
    return count <= NPUALLOC_BLOCKS_MAX && image_pointer(root) &&
           image_u64(w->image, root + 8, &parent) == 0 && parent == address + 8;
}

/* A block in the set of free ones. */
static int free_take(struct npualloc_walk *w, uint64_t record)
{
    uint64_t links[2];
    int r;

    if (!image_pointer(record))
        return -EAGAIN;
    r = record_take(w, record, false, links);
    if (r < 0)
        return r;
    struct npualloc_seen *seen = map_at(&w->seen, map_find(&w->seen, record, 0));
    struct npualloc_block *b = &w->out->blocks[seen->index];
    if (b->state == NPUALLOC_LIVE)
        return -EAGAIN;
    b->state = NPUALLOC_FREE;
    return npualloc_take_chain(w, record);
}

static int set_walk(struct npualloc_walk *w, const unsigned char *bytes)
{
    uint64_t stack[TREE_DEPTH_MAX], count = image_word(bytes, 40), taken = 0;
    unsigned depth = 0;

    if (count)
        stack[depth++] = image_word(bytes, 16);
    while (depth) {
        unsigned char node[40];
        int r = image_read(w->image, stack[--depth], node, sizeof(node));
        if (r == 0)
            r = free_take(w, image_word(node, 32));
        if (r < 0)
            return r;
        if (++taken > count)
            return -EAGAIN;
        for (unsigned at = 16; at <= 24; at += 8)
            if (image_word(node, at)) {
                if (depth == TREE_DEPTH_MAX || !image_pointer(image_word(node, at)))
                    return -EAGAIN;
                stack[depth++] = image_word(node, at);
            }
    }
    return taken == count ? 0 : -EAGAIN;
}

/* Finds every pool in an object of the allocator and takes its free blocks. Returns how many. */
static int pools_in(struct npualloc_walk *w, uint64_t object, unsigned words)
{
    unsigned char bytes[8 * DEVICE_WORDS];
    int found = 0;

    /* what follows the object may be unmapped: read what there is */
    while (words >= POOL_BYTES / 8 && image_read(w->image, object, bytes, 8 * words) < 0)
        words /= 2;
    for (unsigned word = 0; word + POOL_BYTES / 8 <= words; word++) {
        const unsigned char *at = bytes + 8 * word;
        uint64_t address = object + 8 * word;
        uint32_t number;
        if (!set_fits(w, at, address) || !set_fits(w, at + SET_BYTES, address + SET_BYTES) ||
            at[96] > 1)
            continue;
        number = map_find(&w->pools, address, 0);
        if (!number && map_add(&w->pools, address, 0, &number) < 0)
            return -ENOMEM;
        struct npualloc_seen *pool = map_at(&w->pools, number);
        if (pool->index)
            continue;
        pool->index = 1u | (at[96] ? 2u : 0) | (image_word(at, 104) ? 4u : 0);
        found++;
        int r = set_walk(w, at);
        if (r < 0)
            return r;
    }
    return found;
}

/* Private pools hang in hash maps from pool id to pointer. */
static int private_pools(struct npualloc_walk *w, const unsigned char *head)
{
    uint64_t entries = image_word(head, 0), mask = image_word(head, 8);
    uint8_t lookups = head[17];
    float load;
    int found = 0;

    memcpy(&load, head + 20, sizeof(load));
    if (!image_pointer(entries) || (mask & (mask + 1)) || mask >= PRIVATE_SLOTS_MAX ||
        lookups < 2 || lookups > 64 || !(load > 0.1f && load <= 1.0f) || !image_word(head, 24) ||
        image_word(head, 24) > mask + 1)
        return 0;
    for (uint64_t i = 0; i < mask + lookups; i++) {
        unsigned char entry[PRIVATE_ENTRY_BYTES];
        if (image_read(w->image, entries + i * sizeof(entry), entry, sizeof(entry)) < 0)
            return found;
        if ((int8_t)entry[0] < 0 || !image_pointer(image_word(entry, 24)))
            continue;
        int r = pools_in(w, image_word(entry, 24), PRIVATE_WORDS);
        if (r < 0)
            return r;
        found += r;
    }
    return found;
}

/* The statistics: every figure is what came less what went, and the sum over both kinds of pool. */
static bool stats_fit(const unsigned char *bytes, unsigned gap_bytes, struct npualloc_device *ret)
{
    uint64_t current[STAT_KINDS][3];

    for (unsigned kind = 0; kind < STAT_KINDS; kind++)
        for (unsigned pool = 0; pool < 3; pool++) {
            const unsigned char *stat =
                bytes + (kind * 3 + pool) * STAT_BYTES + (kind >= STAT_GAP_KIND ? gap_bytes : 0);
            uint64_t now = image_word(stat, 0), peak = image_word(stat, 8);
            if (now > peak || peak >= (uint64_t)1 << 47 ||
                now != image_word(stat, 16) - image_word(stat, 24))
                return false;
            current[kind][pool] = now;
        }
    for (unsigned kind = 0; kind < STAT_KINDS; kind++)
        if (current[kind][0] != current[kind][1] + current[kind][2])
            return false;
    /* expandable segments are in the bytes, not in the number of segments */
    if (!current[5][0] || current[5][0] < current[6][0] || current[6][0] < current[4][0] ||
        current[0][0] > current[4][0] || !current[0][0] != !current[4][0])
        return false;
    ret->allocated_bytes = current[4][0];
    ret->reserved_bytes = current[5][0];
    ret->active_bytes = current[6][0];
    ret->has_stats = true;
    return true;
}

static int device_take(struct npualloc_walk *w, uint64_t object, unsigned words,
                       struct npualloc_device *device)
{
    unsigned char bytes[8 * DEVICE_WORDS];
    int pools = pools_in(w, object, words);

    if (pools <= 0)
        return pools;
    while (image_read(w->image, object, bytes, 8 * words) < 0 && words > 16)
        words /= 2;
    for (unsigned word = 0; word + 4 <= words; word++) {
        for (unsigned gap = 0; gap <= STAT_GAP_BYTES && !device->has_stats; gap += STAT_GAP_BYTES)
            if (8 * word + STAT_BYTES_ALL + gap <= 8 * words)
                stats_fit(bytes + 8 * word, gap, device);
        int r = private_pools(w, bytes + 8 * word);
        if (r < 0)
            return r;
        pools += r;
    }
    return pools;
}

/* Whether {begin, end, capacity} is the vector of the devices' allocators: one of them has the pool
 * of a live block inside itself. */
static bool vector_fits(struct npualloc_walk *w, const unsigned char *words, unsigned *ret_count)
{
    uint64_t begin = image_word(words, 0), end = image_word(words, 8), last = image_word(words, 16);

    if (!image_pointer(begin) || end <= begin || last < end || (end - begin) % 8 ||
        (end - begin) / 8 > NPUALLOC_DEVICES_MAX)
        return false;
    *ret_count = (unsigned)((end - begin) / 8);
    for (unsigned i = 0; i < *ret_count; i++) {
        uint64_t object;
        if (image_u64(w->image, begin + 8 * i, &object) < 0)
            return false;
        if (!image_pointer(object))
            continue;
        for (uint32_t n = map_next(&w->pools, 0); n; n = map_next(&w->pools, n)) {
            const struct npualloc_seen *pool = map_at(&w->pools, n);
            if (pool->key > object && pool->key - object < 8 * DEVICE_WORDS)
                return true;
        }
    }
    return false;
}

/* Words of one device's allocator: at most up to the next one, since they may lie side by side. */
static unsigned words_of(const uint64_t *objects, unsigned count, unsigned i)
{
    uint64_t words = DEVICE_WORDS;

    for (unsigned other = 0; other < count; other++)
        if (objects[other] > objects[i] && (objects[other] - objects[i]) / 8 < words)
            words = (objects[other] - objects[i]) / 8;
    return (unsigned)words;
}

static int devices_take(struct npualloc_walk *w, uint64_t vector, unsigned count)
{
    uint64_t objects[NPUALLOC_DEVICES_MAX];
    int found = 0, r = image_read(w->image, vector, objects, count * sizeof(objects[0]));

    for (unsigned i = 0; r >= 0 && i < count; i++) {
        struct npualloc_device *device = npualloc_device_get(w->out, (uint8_t)i);
        if (!device || !image_pointer(objects[i]))
            continue;
        r = device_take(w, objects[i], words_of(objects, count, i), device);
        found += r;
    }
    return r < 0 ? r : found;
}

int npualloc_take_pools(struct npualloc_walk *w)
{
    unsigned char bytes[8 * 64];
    unsigned count;
    int r = image_read(w->image, w->allocator, bytes, sizeof(bytes));

    for (unsigned word = 1; r == 0 && word + 3 <= sizeof(bytes) / 8; word++)
        if (vector_fits(w, bytes + 8 * word, &count))
            return devices_take(w, image_word(bytes, 8 * word), count);
    return r;
}
