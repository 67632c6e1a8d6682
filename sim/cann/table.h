/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - hash table from a non-zero 64-bit key to a fixed entry. Not thread-safe: the owner
 * holds its lock. Pointers into it are valid until the next put or remove.
 */
#ifndef SIM_TABLE_H
#define SIM_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct sim_entry {
    uint64_t key;          /* address or object */
    uint64_t size_bytes;   /* as requested from this layer */
    uint64_t mapped_bytes; /* size rounded to pages; 0 where nothing is charged to a card */
    uint64_t aux;          /* meaning is the owner's */
    uint32_t bin;
    int16_t device;
    uint8_t kind;
    uint8_t row;
};

struct sim_table {
    struct sim_entry *entries;
    size_t capacity; /* 0 or a power of two */
    size_t count;
};

/* The entry of the key, or NULL. */
struct sim_entry *table_find(const struct sim_table *table, uint64_t key);
/* Adds an entry whose key is not in the table; 0, or -ENOMEM. */
int table_put(struct sim_table *table, const struct sim_entry *entry);
/* Removes a found entry. */
void table_remove(struct sim_table *table, struct sim_entry *entry);
/* The entry whose [key, key + size) holds the address, or NULL; walks the whole table. */
struct sim_entry *table_covering(const struct sim_table *table, uint64_t address);
/* Forgets all entries and gives the memory back. */
void table_clear(struct sim_table *table);

#endif
