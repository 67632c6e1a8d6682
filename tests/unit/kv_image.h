/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_image.h - a scheduler with a pool of KV blocks made of bytes (CPython 3.11), for tests and the
 * fuzzer of kv_pool.
 */
#ifndef NPUMEM_TESTS_KV_IMAGE_H
#define NPUMEM_TESTS_KV_IMAGE_H

#include "scan_image.h"

#define FAKE_INT (1ull << 24)

/* The world, and objects of it, for changes. */
static struct kv_world {
    struct fake fake;
    uint64_t number, plain, deque, scheduler, pool, queue, running, waiting, free_value;
} kv;

static inline uint64_t kv_int(int64_t value)
{
    uint64_t o = fake_object(&kv.fake, kv.number, 32),
             rest = (uint64_t)(value < 0 ? -value : value);
    int64_t digits = rest >> 30 ? 2 : rest ? 1 : 0;

    fake_u64(&kv.fake, o + 16, (uint64_t)(value < 0 ? -digits : digits));
    fake_u32(&kv.fake, o + 24, rest & 0x3fffffff);
    fake_u32(&kv.fake, o + 28, (uint32_t)(rest >> 30));
    return o;
}

static inline uint64_t kv_object(unsigned count, const char *const *names, const uint64_t *values)
{
    return fake_instance(&kv.fake, kv.plain, fake_dict(&kv.fake, count, names, values));
}

/* Where the value of key i of an instance's dict is. */
static inline uint64_t kv_slot(uint64_t object, unsigned i)
{
    uint64_t keys = fake_get(&kv.fake, fake_get(&kv.fake, object - 24) + 32);
    return keys + 48 + 16 * i;
}

static inline void kv_world(int64_t total, int64_t free_blocks, const char *function)
{
    fake_init(&kv.fake);
    kv.number = fake_type(&kv.fake, "int", FAKE_INT, 0);
    kv.plain = fake_type(&kv.fake, "Plain", FAKE_HEAPTYPE | FAKE_MANAGED_DICT, 0);
    kv.deque = fake_type(&kv.fake, "FCFSRequestQueue", FAKE_HEAPTYPE,
                         fake_type(&kv.fake, "collections.deque", 0, 0));
    kv.free_value = kv_int(free_blocks);
    const uint64_t queue[] = {kv_int(7), kv.free_value};
    kv.queue = kv_object(2, (const char *const[]){"other", "num_free_blocks"}, queue);
    const uint64_t pool[] = {kv_int(total), kv.queue};
    kv.pool = kv_object(2, (const char *const[]){"num_gpu_blocks", "free_block_queue"}, pool);
    const uint64_t manager[] = {kv.pool};
    const uint64_t groups[] = {fake_sequence(&kv.fake, true, 1, &kv.pool)};
    kv.running = fake_sequence(&kv.fake, true, 1, &kv.pool);
    kv.waiting = fake_object(&kv.fake, kv.deque, 64);
    fake_u64(&kv.fake, kv.waiting + 16, 4);
    const uint64_t scheduler[] = {
        kv_int(128), kv_int(4096), kv_object(1, (const char *const[]){"kv_cache_groups"}, groups),
        kv.running,  kv.waiting,   kv_object(1, (const char *const[]){"block_pool"}, manager),
    };
    kv.scheduler = kv_object(6,
                             (const char *const[]){"block_size", "max_model_len", "kv_cache_config",
                                                   "running", "waiting", "kv_cache_manager"},
                             scheduler);
    const uint64_t core[] = {kv.scheduler};
    fake_interpreter(&kv.fake, function, "self",
                     kv_object(1, (const char *const[]){"scheduler"}, core));
}

#endif
