/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.h - open-addressing map of fixed-size records in slabs.
 *
 * A record begins with its key (struct map_key) and never moves, so its number is a stable name.
 * Numbers begin at 1; 0 is "none". Freed records are reused, the last one first.
 *
 * Cost: lookup, add and remove O(1); no malloc but one per chunk of records and one per doubling of
 * the index. Memory: record_bytes, plus 8 bytes per index slot at a load of 0.375 to 0.75, that is
 * 10.7 to 21.4 bytes per record; a doubling holds the old index (half of the new) a moment longer.
 * The hash is seeded by an address, so that a hostile process cannot choose colliding keys.
 */
#ifndef NPUMEM_MAP_H
#define NPUMEM_MAP_H

#include <stdint.h>

struct map_key {
    uint64_t a;
    uint32_t b; /* UINT32_MAX is reserved: it marks a free record */
};

struct map {
    unsigned char **chunks;
    uint64_t *index; /* hash << 32 | number; 0 is an empty slot */
    uint64_t *memory_bytes;
    uint64_t seed;
    uint32_t index_slots; /* power of two, or 0 before the first add */
    uint32_t chunk_count, chunk_capacity;
    uint32_t count;     /* live records */
    uint32_t high;      /* highest number ever given since the map was last empty */
    uint32_t free_head; /* chain through key.a */
    uint32_t record_bytes;
    uint32_t chunk_shift;
};

/* Prepares an empty map; allocates nothing. record_bytes: multiple of 8, the key included.
 * memory_bytes (may be NULL) is kept increased by what the map has allocated. */
void map_init(struct map *m, uint32_t record_bytes, uint32_t chunk_shift, uint64_t *memory_bytes);

/* Frees everything; the map is empty and usable again. */
void map_clear(struct map *m);

/* Number of the record with this key, 0 if there is none. */
uint32_t map_find(const struct map *m, uint64_t a, uint32_t b);

/* Adds a record with this key, otherwise zero; the key must not be there. Returns 0 and its number;
 * -ENOMEM with the map unchanged. */
int map_add(struct map *m, uint64_t a, uint32_t b, uint32_t *ret_number);

/* Removes a live record. An emptied map gives its memory back but for one chunk and a small index.
 */
void map_remove(struct map *m, uint32_t number);

/* Gives a live record another key, which must not be there. Never fails. */
void map_rekey(struct map *m, uint32_t number, uint64_t a, uint32_t b);

/* The first live record with a number above `after`, 0 at the end. Cost: amortised O(1) per slot.
 */
uint32_t map_next(const struct map *m, uint32_t after);

/* The record of a number that the map gave out. */
static inline void *map_at(const struct map *m, uint32_t number)
{
    uint32_t i = number - 1;
    return m->chunks[i >> m->chunk_shift] +
           (uint64_t)(i & ((1u << m->chunk_shift) - 1)) * m->record_bytes;
}

#endif
