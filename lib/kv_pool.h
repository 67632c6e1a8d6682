/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_pool.h - how full the pool of KV blocks of a running server is, read from its scheduler's
 * Python objects.
 *
 * It is found once, which walks frames and dicts (do that where it hurts nobody), and then read
 * again and again by a few words: every word that led to it is compared with what it was, so that a
 * pool that is gone, moved or another one is never taken for it. Where the objects are: the POOL
 * rows of schema/roots.def.
 *
 * What a server calls its use: 1 - free / (total - 1). One block of total is the null block, which
 * is never given out; blocks that only the prefix cache keeps are free.
 */
#ifndef NPUMEM_KV_POOL_H
#define NPUMEM_KV_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "image_read.h"
#include "pyobj.h"
#include "roots_scan.h"

#define KV_POOL_WORDS_MAX 64u
#define KV_POOL_COUNTS_MAX 8u
#define KV_POOL_BLOCKS_MAX ((uint64_t)1 << 31)

/* A number that changes: the object that `slot` points at, of exactly this type. */
enum kv_pool_what { KV_POOL_FREE, KV_POOL_RUNNING, KV_POOL_WAITING };
struct kv_pool_count {
    uint64_t slot, type;
    uint8_t what;   /* enum kv_pool_what */
    uint8_t is_int; /* an int; else its length is at OBJECT_SIZE */
    uint8_t zero[6];
};

/* A pool that was found. Plain data: it may go through a pipe as it is. */
struct kv_pool {
    uint32_t python_minor, word_count, count_count;
    uint32_t groups;                            /* of layers that share the pool; 0 not told */
    uint64_t total_blocks;                      /* the null block is one of them */
    uint64_t block_tokens;                      /* 0 not told */
    uint64_t model_len;                         /* max_model_len; 0 not told */
    struct pyobj_word words[KV_POOL_WORDS_MAX]; /* by address */
    struct kv_pool_count counts[KV_POOL_COUNTS_MAX];
};

struct kv_pool_reading {
    uint64_t used_blocks, usable_blocks; /* usable: all but the null block */
    uint64_t running, waiting;           /* requests; KV_POOL_UNKNOWN */
};
#define KV_POOL_UNKNOWN UINT64_MAX

/*
 * Looks for a pool in a process that was made ready to be scanned. Errors, with words: -ENODATA no
 * framework of the table is loaded, no CPython that is known, nothing there (yet); -ETIME, -EDQUOT
 * what the image's limits end; -ENOMEM. Cost: frames of all threads, milliseconds.
 */
int kv_pool_find(const struct scan_input *input, struct kv_pool *ret, struct error *reterr);

/* Whether bytes from elsewhere are a pool that may be read. */
bool kv_pool_check(const struct kv_pool *pool);

/*
 * Reads it. Errors: -ESTALE it is not what was found: find it again; -EAGAIN it changed while it
 * was read, each time; those of the reader. Cost: about 25 reads of up to 256 bytes; allocates
 * nothing.
 */
int kv_pool_read(const struct kv_pool *pool, const struct memory_reader *reader,
                 struct kv_pool_reading *ret);

#endif
