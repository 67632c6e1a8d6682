/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_ledger.c - what the ledger costs: thread CPU time per event, resident bytes per live block.
 *
 *   bench_ledger [--json] [rounds]    default 7 rounds; --json is what it prints anyway
 *
 * Mix, per rank, as measured on a serving model: of 1000 events about 996 are blocks (MALLOC,
 * then FREE and BLOCK_FREE of a random live one), the rest segments, VMM granules and host memory.
 * It runs at 62,500 live blocks in each of 16 ranks (1,000,000 together), the state in which
 * nothing fits a cache. "small" is the same at 1,000 live blocks per rank. Prints one line of JSON.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ledger.h"
#include "probes.h"
#include "view.h"

#define RANKS 16u
#define EVENTS 2000000u
#define BLOCK_BYTES 2097152u

struct rank {
    uint64_t *live; /* addresses */
    uint32_t count;
    int64_t allocated, active;
    uint64_t next_address;
};

struct bench {
    struct ledger *ledger;
    struct rank ranks[RANKS];
    uint64_t now_ns, random, segment;
    uint32_t seq;
};

static uint32_t random_next(struct bench *b, uint32_t below)
{
    b->random = b->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((b->random >> 33) % below);
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t rss_bytes(void)
{
    unsigned long long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%llu %llu", &size, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return resident * 4096;
}

static void header(struct bench *b, struct nm_event *e, unsigned rank, uint8_t kind)
{
    memset(e, 0, sizeof(*e));
    e->time_ns = b->now_ns += 20;
    e->seq = b->seq++;
    e->kind = kind;
    e->abi = NM_EVENT_ABI;
    e->tgid = 1000 + rank;
    e->tid = 1000 + rank;
    e->start_ticks = 5000 + rank;
}

static void block(struct bench *b, struct nm_event *e, unsigned rank, uint8_t action,
                  uint64_t address)
{
    struct rank *r = &b->ranks[rank];
    header(b, e, rank, NM_EVENT_BLOCK);
    if (action == NM_BLOCK_MALLOC) {
        r->allocated += BLOCK_BYTES;
        r->active += BLOCK_BYTES;
    } else if (action == NM_BLOCK_FREE) {
        r->allocated -= BLOCK_BYTES;
    } else {
        r->active -= BLOCK_BYTES;
    }
    e->block.address = address;
    e->block.size_bytes = action == NM_BLOCK_MALLOC ? BLOCK_BYTES : -(int64_t)BLOCK_BYTES;
    e->block.total_allocated_bytes = r->allocated;
    e->block.total_reserved_bytes = (int64_t)1 << 40;
    e->block.total_active_bytes = r->active;
    e->block.stream = 0x7f0000005000u;
    e->block.device = (uint8_t)(rank % 8);
    e->block.action = action;
}

static void segment(struct bench *b, struct nm_event *e, unsigned rank, bool is_free)
{
    header(b, e, rank, is_free ? NM_EVENT_FREE : NM_EVENT_ALLOC);
    e->call.address = 0x120000000000u + rank * 0x1000000u;
    if (is_free)
        e->call.begin_ns = e->time_ns - 5;
    e->call.call_flags = NM_CALL_API_SEEN | NM_CALL_HAL_SEEN;
    e->call.requested = e->call.physical_bytes = 20u << 20;
    e->call.flags = (rank % 8) | 1u << 14 | (uint64_t)33 << 56;
    e->call.api = is_free ? PROBE_ACL_FREE : PROBE_ACL_MALLOC_ALIGN32;
}

/* The next events of the mix; returns how many were written (at most 3). */
static unsigned mix(struct bench *b, struct nm_event *e)
{
    unsigned rank = random_next(b, RANKS);
    struct rank *r = &b->ranks[rank];
    if (random_next(b, 500) == 0) {
        segment(b, &e[0], rank, false);
        segment(b, &e[1], rank, true);
        return 2;
    }
    uint32_t at = random_next(b, r->count);
    uint64_t address = r->live[at];
    block(b, &e[0], rank, NM_BLOCK_FREE, address);
    block(b, &e[1], rank, NM_BLOCK_BLOCK_FREE, address);
    r->live[at] = r->next_address;
    block(b, &e[2], rank, NM_BLOCK_MALLOC, r->next_address);
    r->next_address += 512;
    return 3;
}

static void fill(struct bench *b, uint32_t per_rank)
{
    for (uint32_t i = 0; i < per_rank; i++) {
        for (unsigned rank = 0; rank < RANKS; rank++) {
            struct rank *r = &b->ranks[rank];
            struct nm_event e;
            r->live[r->count++] = r->next_address;
            block(b, &e, rank, NM_BLOCK_MALLOC, r->next_address);
            r->next_address += 512;
            if (ledger_apply(b->ledger, &e) != 0)
                abort();
        }
    }
}

static int compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return a < b ? -1 : a > b;
}

static int count_entry(void *userdata, const struct ledger_entry *e)
{
    *(uint64_t *)userdata += e->size_bytes;
    return 0;
}

/* Events are made in batches outside the measured time, as the ring holds them. */
static double round_ns(struct bench *b, struct nm_event *events)
{
    enum { BATCH = 4096 };
    uint64_t spent = 0, applied = 0;
    while (applied < EVENTS) {
        unsigned n = 0;
        while (n + 3 <= BATCH)
            n += mix(b, &events[n]);
        uint64_t start = cpu_ns();
        for (unsigned i = 0; i < n; i++)
            ledger_apply(b->ledger, &events[i]);
        spent += cpu_ns() - start;
        applied += n;
    }
    return (double)spent / (double)applied;
}

static double median_ns(struct bench *b, unsigned rounds)
{
    double ns[64];
    struct nm_event *events = calloc(4096, sizeof(*events));
    if (!events)
        abort();
    for (unsigned i = 0; i < rounds; i++)
        ns[i] = round_ns(b, events);
    free(events);
    qsort(ns, rounds, sizeof(ns[0]), compare);
    return ns[rounds / 2];
}

/* The breakdown of all ranks, as the daemon answers it. Returns its length, 0 on error. */
static size_t breakdown(const struct ledger *l, double *ret_ms)
{
    struct view_context context = {.host = "bench", .complete = true};
    struct json j = {0};
    uint64_t start = cpu_ns();
    int r = view_breakdown(l, &context, &j);
    if (r == 0)
        r = json_finish(&j);
    *ret_ms = (double)(cpu_ns() - start) / 1e6;
    size_t length = r < 0 ? 0 : j.length;
    json_done(&j);
    return length;
}

static void bench_new(struct bench *b, uint32_t per_rank)
{
    memset(b, 0, sizeof(*b));
    b->random = 7;
    b->now_ns = 1000;
    for (unsigned rank = 0; rank < RANKS; rank++) {
        b->ranks[rank].live = malloc(per_rank * sizeof(uint64_t));
        if (!b->ranks[rank].live)
            abort();
        memset(b->ranks[rank].live, 1, per_rank * sizeof(uint64_t)); /* resident before measuring */
        b->ranks[rank].next_address = 0x100000000000u + rank * 0x10000000000u;
    }
    if (ledger_new(NULL, &b->ledger) < 0)
        abort();
}

static void bench_done(struct bench *b)
{
    ledger_free(b->ledger);
    for (unsigned rank = 0; rank < RANKS; rank++)
        free(b->ranks[rank].live);
}

int main(int argc, char **argv)
{
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    unsigned rounds = argc > 1 + json ? (unsigned)strtoul(argv[1 + json], NULL, 10) : 7;
    struct bench b;
    if (rounds < 1 || rounds > 64) {
        fprintf(stderr, "bench_ledger: rounds: 1 to 64\n");
        return 2;
    }
    bench_new(&b, 1000);
    fill(&b, 1000);
    double small_ns = median_ns(&b, rounds);
    bench_done(&b);

    bench_new(&b, 62500);
    uint64_t before = rss_bytes();
    fill(&b, 62500);
    double bytes = (double)(rss_bytes() - before) / 1000000.0;
    double counted = (double)ledger_stats(b.ledger)->memory_bytes / 1000000.0;
    double large_ns = median_ns(&b, rounds);
    uint64_t sum = 0, start = cpu_ns();
    ledger_each_entry(b.ledger, 0, count_entry, &sum);
    double walk_ms = (double)(cpu_ns() - start) / 1e6;
    double breakdown_ms;
    size_t text = breakdown(b.ledger, &breakdown_ms);
    const struct ledger_stats *stats = ledger_stats(b.ledger);
    bool sound = text > 0 && stats->live_entries == 1000000 && stats->decode_errors == 0 &&
                 stats->unmatched_frees == 0 && sum == (uint64_t)1000000 * BLOCK_BYTES;
    printf("{\"ns_per_event_small\":%.1f,\"ns_per_event\":%.1f,\"bytes_per_entry\":%.1f,"
           "\"counted_bytes_per_entry\":%.1f,\"walk_ms\":%.1f,\"breakdown_ms\":%.3f,\"rounds\":%u,"
           "\"sound\":%s}\n",
           small_ns, large_ns, bytes, counted, walk_ms, breakdown_ms, rounds,
           sound ? "true" : "false");
    bench_done(&b);
    return sound ? 0 : 1;
}
