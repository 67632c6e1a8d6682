/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.c - slabs of records and a linear-probing index over them.
 *
 * Owns: chunks, their pointer array, and the index.
 * Must not: move a record, shrink while records live, know what a record means.
 * Invariants: the load of the index is at most 3/4, so that a probe always ends; a slot keeps 32
 * bits of hash, so that growth and deletion never touch the records; deletion shifts back, there
 * are no tombstones.
 */
#include "map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FREE_MARK UINT32_MAX
#define FIRST_SLOTS 16u
/* An emptied map keeps an index of at most this many slots, and room for as many chunks. */
#define KEPT_SLOTS 1024u

static uint32_t key_hash(const struct map *m, uint64_t a, uint32_t b)
{
    /* Multiply-xorshift rounds with the odd constants of splitmix64 (Steele et al. 2014). */
    uint64_t x = a ^ m->seed ^ (uint64_t)b * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(x >> 32 ^ x);
}

static void memory_change(struct map *m, int64_t bytes)
{
    if (m->memory_bytes)
        *m->memory_bytes += (uint64_t)bytes;
}

static uint64_t chunk_bytes(const struct map *m)
{
    return (uint64_t)m->record_bytes << m->chunk_shift;
}

void map_init(struct map *m, uint32_t record_bytes, uint32_t chunk_shift, uint64_t *memory_bytes)
{
    *m = (struct map){
        .record_bytes = record_bytes,
        .chunk_shift = chunk_shift,
        .memory_bytes = memory_bytes,
    };
}

static void chunks_free(struct map *m, uint32_t keep)
{
    while (m->chunk_count > keep) {
        free(m->chunks[--m->chunk_count]);
        memory_change(m, -(int64_t)chunk_bytes(m));
    }
}

static void index_free(struct map *m)
{
    free(m->index);
    memory_change(m, -(int64_t)m->index_slots * (int64_t)sizeof(*m->index));
    m->index = NULL;
    m->index_slots = 0;
}

void map_clear(struct map *m)
{
    chunks_free(m, 0);
    memory_change(m, -(int64_t)m->chunk_capacity * (int64_t)sizeof(*m->chunks));
    free(m->chunks);
    index_free(m);
    map_init(m, m->record_bytes, m->chunk_shift, m->memory_bytes);
}

static void index_put(uint64_t *index, uint32_t slots, uint64_t slot)
{
    uint32_t at = (uint32_t)(slot >> 32) & (slots - 1);
    while (index[at])
        at = (at + 1) & (slots - 1);
    index[at] = slot;
}

/* Makes room for one more record in the index. */
static int index_reserve(struct map *m)
{
    if ((uint64_t)(m->count + 1) * 4 <= (uint64_t)m->index_slots * 3)
        return 0;
    uint32_t slots = m->index_slots ? m->index_slots * 2 : FIRST_SLOTS;
    if (slots <= m->index_slots)
        return -ENOMEM;
    uint64_t *index = calloc(slots, sizeof(*index));
    if (!index)
        return -ENOMEM;
    for (uint32_t i = 0; i < m->index_slots; i++)
        if (m->index[i])
            index_put(index, slots, m->index[i]);
    index_free(m);
    m->index = index;
    m->index_slots = slots;
    memory_change(m, (int64_t)slots * (int64_t)sizeof(*index));
    return 0;
}

static int chunk_add(struct map *m)
{
    if (m->chunk_count == m->chunk_capacity) {
        uint32_t capacity = m->chunk_capacity ? m->chunk_capacity * 2 : 4;
        if ((uint64_t)capacity << m->chunk_shift > UINT32_MAX)
            return -ENOMEM;
        unsigned char **chunks = realloc(m->chunks, capacity * sizeof(*chunks));
        if (!chunks)
            return -ENOMEM;
        memory_change(m, (int64_t)(capacity - m->chunk_capacity) * (int64_t)sizeof(*chunks));
        m->chunks = chunks;
        m->chunk_capacity = capacity;
    }
    unsigned char *chunk = malloc(chunk_bytes(m));
    if (!chunk)
        return -ENOMEM;
    if (!m->seed)
        m->seed = ((uint64_t)(uintptr_t)chunk >> 4) * 0x9e3779b97f4a7c15u | 1;
    m->chunks[m->chunk_count++] = chunk;
    memory_change(m, (int64_t)chunk_bytes(m));
    return 0;
}

uint32_t map_find(const struct map *m, uint64_t a, uint32_t b)
{
    if (!m->count)
        return 0;
    uint32_t hash = key_hash(m, a, b), mask = m->index_slots - 1;
    for (uint32_t at = hash & mask; m->index[at]; at = (at + 1) & mask) {
        if ((uint32_t)(m->index[at] >> 32) != hash)
            continue;
        uint32_t number = (uint32_t)m->index[at];
        const struct map_key *key = map_at(m, number);
        if (key->a == a && key->b == b)
            return number;
    }
    return 0;
}

int map_add(struct map *m, uint64_t a, uint32_t b, uint32_t *ret_number)
{
    if (b == FREE_MARK)
        return -EINVAL;
    if (!m->free_head && m->high >> m->chunk_shift == m->chunk_count && chunk_add(m) < 0)
        return -ENOMEM;
    if (index_reserve(m) < 0)
        return -ENOMEM;
    uint32_t number = m->free_head;
    if (number)
        m->free_head = (uint32_t)((struct map_key *)map_at(m, number))->a;
    else
        number = ++m->high;
    void *record = map_at(m, number);
    memset(record, 0, m->record_bytes);
    ((struct map_key *)record)->a = a;
    ((struct map_key *)record)->b = b;
    index_put(m->index, m->index_slots, (uint64_t)key_hash(m, a, b) << 32 | number);
    m->count++;
    *ret_number = number;
    return 0;
}

static void index_remove(struct map *m, uint32_t number)
{
    const struct map_key *key = map_at(m, number);
    uint32_t hash = key_hash(m, key->a, key->b), mask = m->index_slots - 1;
    uint64_t slot = (uint64_t)hash << 32 | number;
    uint32_t hole = hash & mask;
    while (m->index[hole] != slot)
        hole = (hole + 1) & mask;
    /* Shift back every follower whose home is not between the hole and itself. */
    for (uint32_t at = (hole + 1) & mask; m->index[at]; at = (at + 1) & mask) {
        uint32_t home = (uint32_t)(m->index[at] >> 32) & mask;
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            m->index[hole] = m->index[at];
            hole = at;
        }
    }
    m->index[hole] = 0;
}

void map_remove(struct map *m, uint32_t number)
{
    index_remove(m, number);
    struct map_key *key = map_at(m, number);
    key->a = m->free_head;
    key->b = FREE_MARK;
    m->free_head = number;
    if (--m->count)
        return;
    m->high = m->free_head = 0;
    chunks_free(m, 1);
    if (m->index_slots > KEPT_SLOTS)
        index_free(m);
    if (m->chunk_capacity > KEPT_SLOTS) {
        unsigned char **chunks = realloc(m->chunks, KEPT_SLOTS * sizeof(*chunks));
        if (chunks) {
            memory_change(m, -(int64_t)(m->chunk_capacity - KEPT_SLOTS) * (int64_t)sizeof(*chunks));
            m->chunks = chunks;
            m->chunk_capacity = KEPT_SLOTS;
        }
    }
}

void map_rekey(struct map *m, uint32_t number, uint64_t a, uint32_t b)
{
    index_remove(m, number);
    struct map_key *key = map_at(m, number);
    key->a = a;
    key->b = b;
    index_put(m->index, m->index_slots, (uint64_t)key_hash(m, a, b) << 32 | number);
}

uint32_t map_next(const struct map *m, uint32_t after)
{
    for (uint32_t number = after + 1; number <= m->high; number++)
        if (((const struct map_key *)map_at(m, number))->b != FREE_MARK)
            return number;
    return 0;
}
