/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - open addressing with linear probing, at most 2/3 full; removal shifts back, so that
 * there are no tombstones and a million alloc-free pairs don't slow it down.
 */
#include <errno.h>
#include <stdlib.h>

#include "table.h"

static size_t slot_of(const struct sim_table *table, uint64_t key)
{
    return (size_t)((key * 0x9e3779b97f4a7c15ull) >> 20) & (table->capacity - 1);
}

struct sim_entry *table_find(const struct sim_table *table, uint64_t key)
{
    if (!table->capacity || !key)
        return NULL;
    for (size_t i = slot_of(table, key);; i = (i + 1) & (table->capacity - 1)) {
        if (table->entries[i].key == key)
            return &table->entries[i];
        if (!table->entries[i].key)
            return NULL;
    }
}

static void insert(struct sim_table *table, const struct sim_entry *entry)
{
    size_t i = slot_of(table, entry->key);

    while (table->entries[i].key)
        i = (i + 1) & (table->capacity - 1);
    table->entries[i] = *entry;
    table->count++;
}

static int grow(struct sim_table *table)
{
    struct sim_table next = {.capacity = table->capacity ? table->capacity * 2 : 16};

    next.entries = calloc(next.capacity, sizeof(*next.entries));
    if (!next.entries)
        return -ENOMEM;
    for (size_t i = 0; i < table->capacity; i++)
        if (table->entries[i].key)
            insert(&next, &table->entries[i]);
    free(table->entries);
    *table = next;
    return 0;
}

int table_put(struct sim_table *table, const struct sim_entry *entry)
{
    if ((table->count + 1) * 3 > table->capacity * 2) {
        int r = grow(table);

        if (r < 0)
            return r;
    }
    insert(table, entry);
    return 0;
}

void table_remove(struct sim_table *table, struct sim_entry *entry)
{
    size_t mask = table->capacity - 1;
    size_t hole = (size_t)(entry - table->entries);

    for (size_t i = (hole + 1) & mask; table->entries[i].key; i = (i + 1) & mask) {
        size_t home = slot_of(table, table->entries[i].key);

        /* An entry may move back only if its home is not between the hole and itself. */
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            table->entries[hole] = table->entries[i];
            hole = i;
        }
    }
    table->entries[hole].key = 0;
    table->count--;
}

struct sim_entry *table_covering(const struct sim_table *table, uint64_t address)
{
    for (size_t i = 0; i < table->capacity; i++) {
        const struct sim_entry *entry = &table->entries[i];

        if (entry->key && address >= entry->key && address - entry->key < entry->size_bytes)
            return &table->entries[i];
    }
    return NULL;
}

void table_clear(struct sim_table *table)
{
    free(table->entries);
    *table = (struct sim_table){0};
}
