/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_pool_read.c - reads a pool that was found; see kv_pool.h.
 *
 * The interpreter runs meanwhile: an int that is replaced may be freed and its memory be another
 * object between two reads. So what points at a number is read before and after it, and the number
 * twice; only what agrees counts.
 */
#include <errno.h>
#include <string.h>

#include "kv_pool.h"
#include "pyobj.h"
#include "pyobj_internal.h"

#define ATTEMPTS 4u
#define SPAN_BYTES 256u /* words this near are read at once */

bool kv_pool_check(const struct kv_pool *pool)
{
    if (!pyobj_layout_find(pool->python_minor) || pool->word_count > KV_POOL_WORDS_MAX ||
        !pool->word_count || pool->count_count > KV_POOL_COUNTS_MAX || pool->total_blocks < 2 ||
        pool->total_blocks > KV_POOL_BLOCKS_MAX || pool->block_tokens > KV_POOL_BLOCKS_MAX ||
        pool->model_len > KV_POOL_BLOCKS_MAX)
        return false;
    for (uint32_t i = 0; i < pool->word_count; i++)
        if (!image_pointer(pool->words[i].address) ||
            (i && pool->words[i].address <= pool->words[i - 1].address))
            return false;
    unsigned free_counts = 0;
    for (uint32_t i = 0; i < pool->count_count; i++) {
        const struct kv_pool_count *c = &pool->counts[i];
        if (!image_pointer(c->slot) || !image_pointer(c->type) || c->what > KV_POOL_WAITING ||
            c->is_int != (c->what == KV_POOL_FREE))
            return false;
        free_counts += c->what == KV_POOL_FREE;
    }
    return free_counts == 1;
}

static int words_same(const struct kv_pool *pool, const struct memory_reader *reader)
{
    unsigned char bytes[SPAN_BYTES];

    for (uint32_t first = 0, last; first < pool->word_count; first = last + 1) {
        uint64_t from = pool->words[first].address;
        last = first;
        while (last + 1 < pool->word_count &&
               pool->words[last + 1].address + 8 - from <= SPAN_BYTES)
            last++;
        int r = reader->read(reader->userdata, from, bytes, pool->words[last].address + 8 - from);
        if (r < 0)
            return r == -EFAULT ? -ESTALE : r;
        for (uint32_t i = first; i <= last; i++)
            if (image_word(bytes, pool->words[i].address - from) != pool->words[i].value)
                return -ESTALE;
    }
    return 0;
}

/* The number of what the slot points at. *ret_object: for whoever wants to know if it still does.
 */
static int count_once(const struct kv_pool *pool, const struct kv_pool_count *c,
                      const struct memory_reader *reader, uint64_t *ret_object, int64_t *ret)
{
    unsigned char head[OBJECT_TYPE + 8 + PYOBJ_INT_BYTES];
    int r = reader->read(reader->userdata, c->slot, ret_object, sizeof(*ret_object));

    if (r < 0)
        return r;
    if (!image_pointer(*ret_object))
        return -ESTALE;
    r = reader->read(reader->userdata, *ret_object, head, sizeof(head));
    if (r < 0)
        return r == -EFAULT ? -EAGAIN : r;
    if (image_word(head, OBJECT_TYPE) != c->type)
        return -EAGAIN; /* freed, or another type for good: then it stays so */
    if (c->is_int)
        return pyobj_int_decode(pyobj_layout_find(pool->python_minor), head + PYOBJ_INT_AT, ret);
    *ret = (int64_t)image_word(head, OBJECT_SIZE);
    return 0;
}

static int count_read(const struct kv_pool *pool, const struct kv_pool_count *c,
                      const struct memory_reader *reader, uint64_t *ret)
{
    int r = -EAGAIN;

    for (unsigned i = 0; i < ATTEMPTS; i++) {
        uint64_t before, after;
        int64_t first, second;
        r = count_once(pool, c, reader, &before, &first);
        if (r == 0)
            r = count_once(pool, c, reader, &after, &second);
        if (r < 0 && r != -EAGAIN && r != -EBADMSG)
            return r == -EFAULT ? -ESTALE : r;
        /* a length may go up and down meanwhile; an int object never changes */
        if (r < 0 || before != after || (c->is_int && first != second))
            continue;
        if (second < 0 || (uint64_t)second > KV_POOL_BLOCKS_MAX)
            return -ESTALE;
        *ret = (uint64_t)second;
        return 0;
    }
    return -EAGAIN;
}

int kv_pool_read(const struct kv_pool *pool, const struct memory_reader *reader,
                 struct kv_pool_reading *ret)
{
    struct kv_pool_reading reading = {.usable_blocks = pool->total_blocks - 1,
                                      .running = KV_POOL_UNKNOWN,
                                      .waiting = KV_POOL_UNKNOWN};
    uint64_t number;
    int r = words_same(pool, reader);

    for (uint32_t i = 0; r == 0 && i < pool->count_count; i++) {
        const struct kv_pool_count *c = &pool->counts[i];
        r = count_read(pool, c, reader, &number);
        if (r < 0)
            return r;
        if (c->what == KV_POOL_FREE) {
            if (number > reading.usable_blocks)
                return -ESTALE;
            reading.used_blocks = reading.usable_blocks - number;
        } else {
            uint64_t *sum = c->what == KV_POOL_RUNNING ? &reading.running : &reading.waiting;
            *sum = (*sum == KV_POOL_UNKNOWN ? 0 : *sum) + number;
        }
    }
    if (r == 0)
        r = words_same(pool, reader); /* the way there was the same all the time */
    if (r == 0)
        *ret = reading;
    return r;
}
