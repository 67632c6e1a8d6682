/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_read.h - the memory of another process, read through a callback, bounded.
 *
 * Every word of it is hostile: whoever reads must check what it read before following it. This file
 * bounds what following can cost: bytes read, time, pages kept. Once a bound is reached every read
 * fails with the same error (image_stopped()), so that a walk ends wherever it is.
 */
#ifndef NPUMEM_IMAGE_READ_H
#define NPUMEM_IMAGE_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"

#define IMAGE_PAGE_BYTES 4096u
#define IMAGE_CLUSTER_PAGES 4u /* read at once where pages are read in order */
#define IMAGE_ADDRESS_MIN ((uint64_t)4096)
#define IMAGE_ADDRESS_MAX ((uint64_t)1 << 52) /* aarch64 with 52-bit addresses; x86_64 has 47 */

/* Copies `bytes` bytes at `address` of the other process. Returns 0, all of them; negative errno,
 * any of them missing. */
struct memory_reader {
    int (*read)(void *userdata, uint64_t address, void *buffer, size_t bytes);
    void *userdata;
};

struct image_limits {
    uint64_t (*now_ns)(void *userdata); /* NULL: no deadline */
    void *now_userdata;
    uint64_t deadline_ns;
    uint64_t max_bytes; /* read from the process; 0: 1 GiB */
    uint32_t max_pages; /* kept at once; 0: 4096, that is 16 MiB. A power of two is made of it */
};

struct image_stats {
    uint64_t reads, read_bytes, failed_reads, hits;
};

struct image;

/* Errors: -ENOMEM. Owns: the caller frees with image_free(). The reader's userdata must outlive it.
 */
int image_new(const struct memory_reader *reader, const struct image_limits *limits,
              struct image **ret);
struct image *image_free(struct image *i);
DEFINE_CLEANUP(struct image *, image_free)

/* Copies bytes through the page cache. Returns 0; -EFAULT not mapped, or no user address; -ETIME
 * the deadline has passed; -EDQUOT max_bytes reached. Cost: a hash lookup per page, one call of the
 * reader per cluster that is not kept. */
int image_read(struct image *i, uint64_t address, void *buffer, size_t bytes);
int image_u64(struct image *i, uint64_t address, uint64_t *ret);
int image_u32(struct image *i, uint64_t address, uint32_t *ret);
int image_u16(struct image *i, uint64_t address, uint16_t *ret);
int image_u8(struct image *i, uint64_t address, uint8_t *ret);

/* A NUL-terminated string of printable characters, at most size - 1 long. Returns its length;
 * -EBADMSG not printable or no end; errors of image_read(). */
int image_text(struct image *i, uint64_t address, char *buffer, size_t size);

/* Forgets all pages: what is read next is of now. */
void image_forget(struct image *i);

/* Goes on for at least so much from now, also after the deadline; nothing else is forgiven. */
void image_extend(struct image *i, uint64_t ns);

/* 0, or the error that ended reading for good. Also looks at the clock. */
int image_stopped(struct image *i);

const struct image_stats *image_stats(const struct image *i);

/* Whether it could be the address of an object: in user space, not in the first page, aligned. */
static inline bool image_pointer(uint64_t address)
{
    return address >= IMAGE_ADDRESS_MIN && address < IMAGE_ADDRESS_MAX && address % 8 == 0;
}

/* Little-endian words of a buffer that was read. */
static inline uint64_t image_word(const void *buffer, size_t offset)
{
    uint64_t value;
    __builtin_memcpy(&value, (const char *)buffer + offset, sizeof(value));
    return value;
}

#endif
