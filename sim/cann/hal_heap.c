/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hal_heap.c - address ranges for blocks of device memory. Owns one NORESERVE mapping per process;
 * never touches the memory in it. Sizes are rounded up to 1/8 of their power of two, one free list
 * per rounded size, so that addresses are reused and the lists never need to merge.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "hal.h"

#define SMALL_UNIT 4096ull
#define HUGE_UNIT (2ull << 20)
#define HEAP_BYTES (16ull << 40)
#define HEAP_BYTES_MIN (1ull << 34)
enum { CLASSES = 512, HUGE_CLASS = 256 };

struct free_list {
    uint64_t *addresses;
    size_t count;
    size_t capacity;
};

static struct free_list lists[CLASSES];
static uint64_t small_next, small_end, huge_next, huge_end;

static bool heap_map(void)
{
    for (uint64_t size = HEAP_BYTES; size >= HEAP_BYTES_MIN; size /= 2) {
        char *base = mmap(NULL, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (base == MAP_FAILED)
            continue;
        madvise(base, size, MADV_NOHUGEPAGE);
        madvise(base, size, MADV_DONTDUMP);
        small_next = (uint64_t)(uintptr_t)base;
        small_end = small_next + size / 8;
        huge_next = (small_end + HUGE_UNIT - 1) & ~(HUGE_UNIT - 1);
        huge_end = small_next + size;
        return true;
    }
    return false;
}

/* Class of a count of units, and the units that the class holds: 8 classes per power of two. */
static uint32_t class_of(uint64_t units, uint64_t *rounded)
{
    uint32_t top, shift;

    if (units <= 8) {
        *rounded = units;
        return (uint32_t)units;
    }
    top = 63 - (uint32_t)__builtin_clzll(units - 1);
    shift = top - 3;
    *rounded = ((units - 1) >> shift) + 1;
    *rounded <<= shift;
    return top * 8 + (uint32_t)(((units - 1) >> shift) & 7);
}

uint64_t heap_take(uint64_t size_bytes, bool huge, uint32_t *bin)
{
    uint64_t unit = huge ? HUGE_UNIT : SMALL_UNIT;
    uint64_t *next = huge ? &huge_next : &small_next;
    uint64_t end, units, address;
    struct free_list *list;

    if (!size_bytes || size_bytes > HEAP_BYTES || (!small_end && !heap_map()))
        return 0;
    *bin = class_of((size_bytes + unit - 1) / unit, &units);
    if (*bin >= HUGE_CLASS)
        return 0;
    if (huge)
        *bin += HUGE_CLASS;
    list = &lists[*bin];
    if (list->count)
        return list->addresses[--list->count];
    end = huge ? huge_end : small_end;
    if (units * unit > end - *next)
        return 0;
    address = *next;
    *next += units * unit;
    return address;
}

static uint64_t class_bytes(uint32_t bin)
{
    uint64_t unit = bin >= HUGE_CLASS ? HUGE_UNIT : SMALL_UNIT;
    uint32_t index = bin % HUGE_CLASS;
    uint32_t top = index / 8;

    if (index <= 8)
        return index * unit;
    return ((8ull + index % 8 + 1) << (top - 3)) * unit;
}

void heap_give(uint64_t address, uint32_t bin)
{
    struct free_list *list = &lists[bin];

    madvise((void *)(uintptr_t)address, class_bytes(bin), MADV_DONTNEED);
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 64;
        uint64_t *grown = realloc(list->addresses, capacity * sizeof(*grown));

        if (!grown)
            return; /* the range is lost, not the memory */
        list->addresses = grown;
        list->capacity = capacity;
    }
    list->addresses[list->count++] = address;
}

void heap_after_fork(void)
{
    for (int i = 0; i < CLASSES; i++)
        lists[i].count = 0;
}
