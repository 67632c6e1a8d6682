/* SPDX-License-Identifier: Apache-2.0 */
/*
 * truth.c - the cells of truth.h and their JSON.
 *
 * Invariants: a cell's key is set once and never changed; counters may be read while threads write
 * (a checkpoint is exact only where the scenario's threads are at rest).
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "truth.h"

static const char *const kind_names[TRUTH_KINDS] = {
    "device", "handle", "host", "registered", "range", "pool", "imported", "tensor", "touched"};

const char *truth_kind_name(enum truth_kind kind)
{
    return kind_names[kind];
}

static uint32_t cell_find(struct truth *truth, uint64_t key)
{
    uint32_t index = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 52) % TRUTH_CELLS;
    for (uint32_t tries = 0; tries < TRUTH_CELLS; tries++) {
        uint64_t found = atomic_load_explicit(&truth->cells[index].key, memory_order_relaxed);
        if (found == key)
            return index;
        if (!found) {
            if (atomic_compare_exchange_strong(&truth->cells[index].key, &found, key) ||
                found == key)
                return index;
        }
        index = (index + 1) % TRUTH_CELLS;
    }
    fprintf(stderr, "npusim-run: more than %d kinds of memory at once\n", TRUTH_CELLS);
    abort();
}

uint32_t truth_add(struct truth *truth, enum truth_kind kind, unsigned module, unsigned device,
                   unsigned phase, int64_t requested_bytes, int64_t hal_bytes)
{
    uint64_t key = 1ull << 63 | (uint64_t)(phase & 0xffff) << 32 |
                   (uint64_t)(device & 0xffff) << 16 | (uint64_t)(module & 0xff) << 8 |
                   (uint64_t)kind;
    uint32_t index = cell_find(truth, key);
    struct truth_cell *cell = &truth->cells[index];

    atomic_fetch_add_explicit(&cell->count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&cell->requested_bytes, requested_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&cell->hal_bytes, hal_bytes, memory_order_relaxed);
    if (kind == TRUTH_DEVICE || kind == TRUTH_HANDLE) {
        int64_t now = atomic_fetch_add(&truth->device_bytes, hal_bytes) + hal_bytes;
        int64_t peak = atomic_load_explicit(&truth->device_peak_bytes, memory_order_relaxed);
        while (now > peak && !atomic_compare_exchange_weak(&truth->device_peak_bytes, &peak, now)) {
        }
    }
    return index;
}

void truth_remove(struct truth *truth, uint32_t index, int64_t requested_bytes, int64_t hal_bytes)
{
    struct truth_cell *cell = &truth->cells[index];
    unsigned kind = atomic_load_explicit(&cell->key, memory_order_relaxed) & 0xff;

    atomic_fetch_sub_explicit(&cell->count, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&cell->requested_bytes, requested_bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&cell->hal_bytes, hal_bytes, memory_order_relaxed);
    if (kind == TRUTH_DEVICE || kind == TRUTH_HANDLE)
        atomic_fetch_sub(&truth->device_bytes, hal_bytes);
}

void json_text(FILE *f, const char *text)
{
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fprintf(f, "\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            fprintf(f, "\\u%04x", (unsigned char)*text);
        else
            fputc(*text, f);
    }
    fputc('"', f);
}

void truth_write(const struct truth *truth, FILE *f, const char (*phases)[64])
{
    int64_t counts[TRUTH_KINDS] = {0}, requested[TRUTH_KINDS] = {0};
    const char *separator = "";

    fprintf(f, "\"cells\":[");
    for (uint32_t i = 0; i < TRUTH_CELLS; i++) {
        const struct truth_cell *cell = &truth->cells[i];
        uint64_t key = cell->key;
        if (!key || !cell->count)
            continue;
        unsigned kind = key & 0xff;
        counts[kind] += cell->count;
        requested[kind] += cell->requested_bytes;
        fprintf(f, "%s{\"kind\":\"%s\",\"module\":%u,\"device\":%u,\"phase\":", separator,
                kind_names[kind], (unsigned)(key >> 8 & 0xff), (unsigned)(key >> 16 & 0xffff));
        json_text(f, phases[key >> 32 & 0xffff]);
        fprintf(f, ",\"count\":%lld,\"requested_bytes\":%lld,\"hal_bytes\":%lld}",
                (long long)cell->count, (long long)cell->requested_bytes,
                (long long)cell->hal_bytes);
        separator = ",";
    }
    fprintf(f, "],\"kinds\":{");
    for (int kind = 0; kind < TRUTH_KINDS; kind++)
        fprintf(f, "%s\"%s\":{\"count\":%lld,\"requested_bytes\":%lld}", kind ? "," : "",
                kind_names[kind], (long long)counts[kind], (long long)requested[kind]);
    fprintf(f,
            "},\"device_bytes\":%lld,\"device_peak_bytes\":%lld,\"calls\":%llu,\"failures\":%llu",
            (long long)truth->device_bytes, (long long)truth->device_peak_bytes,
            (unsigned long long)truth->calls, (unsigned long long)truth->failures);
}
