/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_make - writes a recorded trace of any length, as a server would make it: weights that stay,
 * then steps with activations of varying size, every 97th of which leaves a block behind for long.
 *
 * usage: trace_make FILE EVENTS [SEED]
 *
 * Prints, as JSON, what a reader must find in it: bytes live at the end, by owner, the peak and the
 * number of allocations.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace_io.h"

#define KEPT_MAX 200000u
#define STEP_BLOCKS 64u
#define SEGMENT_BYTES ((uint64_t)64 << 20)
#define OWNERS 3u /* 1 weights, 2 activations, 3 kept */

static uint64_t state;

static uint64_t random_next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

struct block {
    uint64_t address, bytes;
    uint32_t owner;
};

struct make {
    FILE *file;
    uint64_t left, time_ns, next_address, requests, segments;
    uint64_t live[OWNERS + 1], total, peak;
    uint64_t *free_addresses;
    size_t free_count;
};

static void emit(struct make *m, const struct nm_trace_record *r)
{
    if (fwrite(r, sizeof(*r), 1, m->file) != 1) {
        perror("trace_make");
        exit(1);
    }
    m->left -= m->left > 0;
}

/* A segment of its own for each address: every block fits in. */
static uint64_t segment_new(struct make *m)
{
    m->next_address += 1 << 28;
    emit(m, &(struct nm_trace_record){.time_ns = m->time_ns += 1000,
                                      .kind = NM_TRACE_SEGMENT_ALLOC,
                                      .address = m->next_address,
                                      .size_bytes = SEGMENT_BYTES,
                                      .tid = 7});
    m->segments++;
    return m->next_address;
}

/* Addresses come back, as an allocator's do. */
static struct block block_new(struct make *m, uint64_t bytes, uint32_t owner)
{
    struct block b = {.bytes = (bytes + 511) / 512 * 512, .owner = owner};

    b.address = m->free_count ? m->free_addresses[--m->free_count] : segment_new(m);
    emit(m, &(struct nm_trace_record){.time_ns = m->time_ns += 1000,
                                      .kind = NM_TRACE_BLOCK_MALLOC,
                                      .address = b.address,
                                      .size_bytes = b.bytes,
                                      .stream = 1 + random_next() % 2,
                                      .tid = 7,
                                      .owner = owner,
                                      .stack = owner + OWNERS});
    m->requests++;
    m->live[owner] += b.bytes;
    m->total += b.bytes;
    m->peak = m->total > m->peak ? m->total : m->peak;
    return b;
}

static void block_end(struct make *m, const struct block *b)
{
    struct nm_trace_record r = {.time_ns = m->time_ns += 1000,
                                .kind = NM_TRACE_BLOCK_FREE,
                                .address = b->address,
                                .size_bytes = b->bytes,
                                .tid = 7};
    emit(m, &r);
    r.kind = NM_TRACE_BLOCK_DONE;
    emit(m, &r);
    m->live[b->owner] -= b->bytes;
    m->total -= b->bytes;
    m->free_addresses[m->free_count++] = b->address;
}

static void names_write(struct make *m)
{
    static const char *const names[] = {"PTA@weights",   "PTA@activation", "PTA@kept",
                                        "load:model.py", "step:model.py",  "cache:model.py"};
    struct nm_trace_name part;

    for (uint32_t id = 1; id <= 2 * OWNERS; id++)
        for (size_t at = 0; trace_name_part(id, names[id - 1], &at, &part);)
            if (fwrite(&part, sizeof(part), 1, m->file) != 1)
                exit(1);
}

static void make_run(struct make *m)
{
    static struct block kept[KEPT_MAX], step[STEP_BLOCKS];
    size_t kept_count = 0;

    for (unsigned i = 0; i < 400 && m->left > 8; i++)
        block_new(m, (2 + i % 48) << 20, 1);
    while (m->left > STEP_BLOCKS * 4) {
        unsigned count = 8 + random_next() % (STEP_BLOCKS - 8);
        for (unsigned i = 0; i < count; i++) {
            uint64_t bytes = (random_next() % 4) ? 512 + random_next() % (256 << 10)
                                                 : (1 << 20) + random_next() % (16 << 20);
            bool stays = random_next() % 97 == 0;
            step[i] = block_new(m, bytes, stays ? 3 : 2);
            if (!stays)
                continue;
            size_t at = kept_count < KEPT_MAX / 64 ? kept_count++ : random_next() % kept_count;
            if (kept[at].bytes)
                block_end(m, &kept[at]);
            kept[at] = step[i];
            step[i].bytes = 0;
        }
        while (count)
            if (step[--count].bytes)
                block_end(m, &step[count]);
    }
}

int main(int argc, char **argv)
{
    struct make m = {.next_address = 0x120000000000ull};
    struct nm_trace_header h = {.begin_wall_ns = 1796024700000000000ull,
                                .card_bytes = 64ull << 30,
                                .tgid = 4242,
                                .rank = 0,
                                .comm = "trace_make"};

    if (argc < 3 || !(m.file = fopen(argv[1], "w"))) {
        fprintf(stderr, "usage: trace_make FILE EVENTS [SEED]\n");
        return 2;
    }
    m.left = strtoull(argv[2], NULL, 10);
    state = argc > 3 ? strtoull(argv[3], NULL, 10) : 88172645463325252ull;
    m.free_addresses = calloc(KEPT_MAX + STEP_BLOCKS + 1, sizeof(*m.free_addresses));
    trace_header_init(&h);
    if (!m.free_addresses || fwrite(&h, sizeof(h), 1, m.file) != 1)
        return 1;
    names_write(&m);
    make_run(&m);
    printf("{\"PTA@weights\": %" PRIu64 ", \"PTA@activation\": %" PRIu64 ", \"PTA@kept\": %" PRIu64
           ", \"peak\": %" PRIu64 ", \"requests\": %" PRIu64 ", \"reserved\": %" PRIu64 "}\n",
           m.live[1], m.live[2], m.live[3], m.peak, m.requests, m.segments * SEGMENT_BYTES);
    free(m.free_addresses);
    return fclose(m.file) == 0 ? 0 : 1;
}
