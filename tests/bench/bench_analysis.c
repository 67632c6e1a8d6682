/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_analysis.c - what the analyses of a live ledger cost: thread CPU time, in ms.
 *
 *   bench_analysis    prints one line of JSON
 *
 * 1,000,000 blocks of 64 to 1024 KiB in segments of 20 MiB, a third of them freed again: once in 16
 * ranks, once all in one process. `series` is the reading of six hours of samples, one in 10 s, of
 * 16 ranks with 20 owners each, from a store on the disk, by a client that is alone; `series_piece`
 * the longest turn of the event loop meanwhile; `judge` is what is made of them, in one turn;
 * `history` a moment in the middle of them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "frag.h"
#include "leak_blocks.h"
#include "leak_gather.h"
#include "probes.h"
#include "series_read.h"

#define BLOCKS 1000000u
#define SEGMENT_BYTES (20u << 20)
#define MOMENTS 2160u
#define OWNERS 20u
#define RANKS 16u

static uint64_t random_state = 7;

static uint32_t random_next(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % below);
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct world {
    struct ledger *ledger;
    uint64_t now_ns;
    int64_t allocated[RANKS], reserved[RANKS];
};

static void apply(struct world *w, struct nm_event *e, unsigned rank, uint8_t kind)
{
    e->time_ns = w->now_ns += 20;
    e->kind = kind;
    e->abi = NM_EVENT_ABI;
    e->tgid = e->tid = 1000 + rank;
    e->start_ticks = 5000 + rank;
    if (ledger_apply(w->ledger, e) != 0)
        abort();
}

static void segment(struct world *w, unsigned rank, uint64_t address)
{
    struct nm_event e = {.call = {.address = address,
                                  .call_flags = NM_CALL_API_SEEN | NM_CALL_HAL_SEEN,
                                  .requested = SEGMENT_BYTES,
                                  .physical_bytes = SEGMENT_BYTES,
                                  .flags = rank | 1u << 14 | (uint64_t)33 << 56,
                                  .api = PROBE_ACL_MALLOC_ALIGN32,
                                  .hal = PROBE_HAL_ALLOC}};
    w->reserved[rank] += SEGMENT_BYTES;
    apply(w, &e, rank, NM_EVENT_ALLOC);
}

static void block(struct world *w, unsigned rank, uint64_t address, int64_t bytes, uint8_t action)
{
    if (action != NM_BLOCK_BLOCK_FREE)
        w->allocated[rank] += bytes;
    struct nm_event e = {.block = {.address = address,
                                   .size_bytes = bytes,
                                   .total_allocated_bytes = w->allocated[rank],
                                   .total_active_bytes = w->allocated[rank],
                                   .total_reserved_bytes = w->reserved[rank],
                                   .stream = 0x7f0000005000u,
                                   .device = (uint8_t)rank,
                                   .action = action}};
    apply(w, &e, rank, NM_EVENT_BLOCK);
}

/* Fills segments until `count` blocks live. */
static void fill(struct world *w, unsigned rank, uint32_t count)
{
    uint64_t address = 0x120000000000u + rank * 0x10000000000u;

    for (uint32_t live = 0; live < count; address += SEGMENT_BYTES) {
        segment(w, rank, address);
        for (uint32_t at = 0; at < SEGMENT_BYTES && live < count;) {
            uint32_t bytes = (64 + random_next(960)) << 10;
            if (at + bytes > SEGMENT_BYTES)
                break;
            block(w, rank, address + at, bytes, NM_BLOCK_MALLOC);
            if (random_next(3) == 0) {
                block(w, rank, address + at, -(int64_t)bytes, NM_BLOCK_FREE);
                block(w, rank, address + at, -(int64_t)bytes, NM_BLOCK_BLOCK_FREE);
            } else {
                live++;
            }
            at += bytes;
        }
    }
}

static double frag_ms(const struct world *w, uint64_t request_bytes, bool *sound)
{
    struct view_context context = {.host = "bench", .complete = true};
    struct frag_query query = {.request_bytes = request_bytes};
    struct json j = {0};
    uint64_t start = cpu_ns();
    int r = view_frag(w->ledger, &context, &query, &j);

    if (r == 0)
        r = json_finish(&j);
    double ms = (double)(cpu_ns() - start) / 1e6;
    *sound &= r == 0 && strstr(j.data, "\"complete\":true") && !strstr(j.data, "\"unseen\"");
    json_done(&j);
    return ms;
}

static double blocks_ms(const struct world *w, unsigned ranks, bool *sound)
{
    uint64_t start = cpu_ns(), blocks = 0;

    for (unsigned rank = 0; rank < ranks; rank++) {
        struct leak_blocks_query q = {.tgid = 1000 + rank,
                                      .device = (uint16_t)rank,
                                      .level = LEVEL_BLOCK,
                                      .owner = "PTA@block"};
        struct leak_blocks found;
        uint32_t stack;
        if (leak_blocks_find(w->ledger, &q, &found, &stack) < 0)
            abort();
        blocks += found.blocks;
    }
    *sound &= blocks == BLOCKS;
    return (double)(cpu_ns() - start) / 1e6;
}

static uint64_t clock_now_ns = 1;

static void clock_fixed(void *userdata, uint64_t *ret_boot_ns, uint64_t *ret_wall_ns)
{
    *ret_boot_ns = clock_now_ns;
    *ret_wall_ns = clock_now_ns + 1700000000000000000u;
}

/* Owners of one process are its devices here: a row of `sample` each. */
static void ranks_fill(struct world *w, struct store *store)
{
    for (unsigned rank = 0; rank < RANKS; rank++) {
        struct process_facts facts;
        process_facts_init(&facts, 1000 + rank);
        facts.start_ticks = 5000 + rank;
        facts.rank = (int32_t)rank;
        store_process(store, &facts);
        for (unsigned owner = 0; owner < OWNERS; owner++) {
            struct nm_event e = {.call = {.address = (1 + owner + rank * 100ull) << 30,
                                          .call_flags = NM_CALL_API_SEEN | NM_CALL_HAL_SEEN,
                                          .requested = SEGMENT_BYTES,
                                          .physical_bytes = SEGMENT_BYTES,
                                          .flags = owner | 1u << 14 | (uint64_t)33 << 56,
                                          .api = PROBE_ACL_MALLOC_ALIGN32,
                                          .hal = PROBE_HAL_ALLOC}};
            apply(w, &e, rank, NM_EVENT_ALLOC);
        }
    }
}

static void samples_make(struct world *w, struct store *store)
{
    ranks_fill(w, store);
    for (unsigned i = 0; i < MOMENTS; i++) {
        clock_now_ns += 10000000000u;
        for (unsigned rank = 0; rank < RANKS; rank++) /* something changes */
            segment(w, rank, (1000 + i + rank * 10000ull) << 30);
        if (store_sample(store, w->ledger, clock_now_ns) < 0)
            abort();
    }
}

struct reading {
    struct leak_gather gather;
    uint64_t rows;
    bool is_over;
};

static int on_point(void *userdata, struct store_series *from, const struct store_point *p)
{
    struct reading *r = userdata;
    r->rows += p->kind == STORE_SERIES_OWNER;
    return leak_gather_point(&r->gather, from, p);
}

static void on_ended(void *userdata, int result)
{
    struct reading *r = userdata;
    if (result < 0)
        abort();
    r->is_over = true;
}

/* What a client of `leaks` waits for the samples, and what another one waits behind a piece. */
static void series_ms(struct store *store, double *ret_ms, double *ret_longest_ms, bool *sound)
{
    struct view_context context = {.host = "bench", .boot_ns = clock_now_ns};
    struct reading reading = {.rows = 0};
    struct series_query query = {
        .store = store, .point_fn = on_point, .ended_fn = on_ended, .userdata = &reading};
    struct series_reads *reads;
    struct series_read *read;
    sd_event *event;
    uint64_t start = cpu_ns(), longest = 0;

    context.wall_ns = context.boot_ns + 1700000000000000000u;
    leak_gather_init(&reading.gather, &context, 10000000000u, context.wall_ns);
    if (sd_event_new(&event) < 0 || series_reads_new(event, &reads) < 0 ||
        series_read_begin(reads, &query, &read) < 0)
        abort();
    while (!reading.is_over) {
        uint64_t begin = cpu_ns();
        if (sd_event_run(event, 0) < 0)
            abort();
        uint64_t ns = cpu_ns() - begin;
        longest = ns > longest ? ns : longest;
    }
    *ret_ms = (double)(cpu_ns() - start) / 1e6;
    *ret_longest_ms = (double)longest / 1e6;
    *sound &= reading.rows >= (uint64_t)MOMENTS * RANKS * OWNERS;
    *sound &= leak_gather_count(&reading.gather) > RANKS * OWNERS;
    leak_gather_done(&reading.gather);
    series_reads_free(reads);
    sd_event_unref(event);
}

/* An earlier moment, as `ls --at` and one side of `diff` ask for it. */
static double history_ms(struct store *store, bool *sound)
{
    uint64_t start = cpu_ns(), oldest, newest;
    struct ledger *l;
    uint64_t at = clock_now_ns / 2 + 1700000000000000000u;

    if (ledger_new(NULL, &l) < 0 || store_history(store, at, l, &oldest, &newest) < 0)
        abort();
    double ms = (double)(cpu_ns() - start) / 1e6;
    *sound &= newest <= at && at - newest <= 10000000000u;
    ledger_free(l);
    return ms;
}

struct stored {
    double series, longest, history;
};

static void stored_ms(struct stored *ret, bool *sound)
{
    struct store_options options = {.clock_fn = clock_fixed, .max_bytes = 4ull << 30};
    char dir[] = "/tmp/npumem-bench-XXXXXX", path[64], command[80];
    struct world w = {.ledger = NULL};
    struct store *store = NULL;
    struct error error = {0};

    if (!mkdtemp(dir) || ledger_new(NULL, &w.ledger) < 0)
        abort();
    snprintf(path, sizeof(path), "%s/store.db", dir);
    if (store_open(path, &options, &store, &error) < 0)
        abort();
    samples_make(&w, store);
    series_ms(store, &ret->series, &ret->longest, sound);
    ret->history = history_ms(store, sound);
    store_close(store);
    ledger_free(w.ledger);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    *sound &= system(command) == 0;
}

/* The judgement of 16 ranks: 25 series of 600 steps each, one of which grows. */
static double judge_ms(bool *sound)
{
    enum { SERIES = RANKS * 25, STEPS = 600 };
    struct series_sample *samples = calloc((size_t)SERIES * STEPS, sizeof(*samples));
    struct leak_series *series = calloc(SERIES, sizeof(*series));
    struct leak_input in = {.series = series, .count = SERIES};
    struct json j = {0};

    if (!samples || !series)
        abort();
    for (unsigned i = 0; i < SERIES; i++) {
        for (unsigned k = 0; k < STEPS; k++)
            samples[i * STEPS + k] = (struct series_sample){
                (k + 1) * 36000000000u,
                (8ull << 30) + random_next(64 << 20) + (i % 25 ? 0 : (uint64_t)k << 20), 100};
        series[i] = (struct leak_series){.tgid = 1000 + i / 25,
                                         .owner = "PTA@block",
                                         .level = "allocated",
                                         .samples = samples + i * STEPS,
                                         .count = STEPS};
    }
    uint64_t start = cpu_ns();
    json_object(&j);
    int r = leaks_write(&in, &j);
    json_end(&j);
    r = r == 0 ? json_finish(&j) : r;
    double ms = (double)(cpu_ns() - start) / 1e6;
    unsigned found = 0;
    for (const char *at = j.data; r == 0 && (at = strstr(at, "\"tgid\"")); at++)
        found++;
    *sound &= found == RANKS;
    json_done(&j);
    free(samples);
    free(series);
    return ms;
}

int main(void)
{
    struct world many = {.ledger = NULL}, one = {.ledger = NULL};
    bool sound = true;

    if (ledger_new(NULL, &many.ledger) < 0 || ledger_new(NULL, &one.ledger) < 0)
        abort();
    for (unsigned rank = 0; rank < RANKS; rank++)
        fill(&many, rank, BLOCKS / RANKS);
    fill(&one, 0, BLOCKS);
    double frag_16 = frag_ms(&many, 0, &sound), request_16 = frag_ms(&many, 72u << 20, &sound);
    double frag_1 = frag_ms(&one, 72u << 20, &sound);
    double blocks_16 = blocks_ms(&many, RANKS, &sound), blocks_1 = blocks_ms(&one, 1, &sound);
    double judge = judge_ms(&sound);
    struct stored stored;
    stored_ms(&stored, &sound);
    printf("{\"frag_ms\":%.1f,\"frag_request_ms\":%.1f,\"frag_one_process_ms\":%.1f,"
           "\"leak_blocks_ms\":%.1f,\"leak_blocks_one_process_ms\":%.1f,\"series_ms\":%.1f,"
           "\"series_piece_ms\":%.1f,\"judge_ms\":%.1f,\"history_ms\":%.1f,\"sound\":%s}\n",
           frag_16, request_16, frag_1, blocks_16, blocks_1, stored.series, stored.longest, judge,
           stored.history, sound ? "true" : "false");
    ledger_free(many.ledger);
    ledger_free(one.ledger);
    return sound ? 0 : 1;
}
