/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_one.c - finds the pool of KV blocks of one process without a daemon and reads it, for tests:
 * kv_one PID. Prints what it found, then for each line of its input one reading, as JSON; a line
 * that is a number N is N readings, of which the time and what was seen are told.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "process_memory.h"
#include "scan_read.h"

static int read_one(const struct kv_pool *pool, struct process_memory *memory,
                    struct kv_pool_reading *ret)
{
    struct memory_reader reader = {.read = process_memory_read, .userdata = memory};

    return kv_pool_read(pool, &reader, ret);
}

static void answer_one(const struct kv_pool *pool, struct process_memory *memory)
{
    struct kv_pool_reading r;
    int error = read_one(pool, memory, &r);

    if (error < 0)
        printf("{\"error\": \"%s\"}\n", strerror(-error));
    else
        printf("{\"usable\": %" PRIu64 ", \"used\": %" PRIu64 ", \"running\": %" PRIu64
               ", \"waiting\": %" PRIu64 ", \"block_tokens\": %" PRIu64 ", \"model_len\": %" PRIu64
               ", \"groups\": %u}\n",
               r.usable_blocks, r.used_blocks, r.running, r.waiting, pool->block_tokens,
               pool->model_len, pool->groups);
}

/* odd: what the program never had. us: of a processor, per reading. */
static void answer_many(const struct kv_pool *pool, struct process_memory *memory, unsigned count)
{
    uint64_t begin = clock_ns(CLOCK_PROCESS_CPUTIME_ID), odd = 0, different = 0, last = UINT64_MAX;
    unsigned good = 0, torn = 0, failed = 0;

    for (unsigned i = 0; i < count; i++) {
        struct kv_pool_reading r;
        int error = read_one(pool, memory, &r);
        good += error == 0;
        torn += error == -EAGAIN;
        failed += error < 0 && error != -EAGAIN;
        if (error == 0) {
            odd += r.used_blocks % 1000 != 0 || r.used_blocks > 70000 || r.running > 70;
            different += r.used_blocks != last;
            last = r.used_blocks;
        }
    }
    printf("{\"good\": %u, \"torn\": %u, \"failed\": %u, \"odd\": %" PRIu64
           ", \"different\": %" PRIu64 ", \"us\": %.1f}\n",
           good, torn, failed, odd, different,
           (double)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - begin) / 1e3 / (count ? count : 1));
}

int main(int argc, char **argv)
{
    struct scan_options options = {0};
    struct error error = {0};
    struct kv_pool pool;
    char line[64];

    if (argc != 2)
        return 2;
    uint32_t tgid = (uint32_t)strtoul(argv[1], NULL, 10);
    struct process_memory memory = process_memory_init(tgid);
    uint64_t begin = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    if (scan_read_pool(tgid, &options, &pool, &error) < 0) {
        fprintf(stderr, "%s\n", error.what);
        return 1;
    }
    printf("{\"words\": %u, \"counts\": %u, \"cpu_ms\": %.1f}\n", pool.word_count, pool.count_count,
           (double)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - begin) / 1e6);
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        unsigned count = (unsigned)strtoul(line, NULL, 10);
        if (count)
            answer_many(&pool, &memory, count);
        else
            answer_one(&pool, &memory);
        fflush(stdout);
    }
    process_memory_done(&memory);
    return 0;
}
