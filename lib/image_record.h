/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_record.h - the pages of a process that a scan read, kept as bytes: what tests and the
 * fuzzer read instead of a process.
 *
 * Format, little-endian: "NMIMAGE1", u64 count, then count records of {u64 page number, 4096 bytes}
 * in ascending order of page numbers, then the text of /proc/PID/maps to the end.
 */
#ifndef NPUMEM_IMAGE_RECORD_H
#define NPUMEM_IMAGE_RECORD_H

#include "image_read.h"

/* A recorded image; borrows the bytes. */
struct image_record {
    const unsigned char *records;
    uint64_t count;
    const char *maps_text;
    size_t maps_bytes;
};

/* Errors: -EBADMSG not a recorded image. */
int image_record_init(struct image_record *r, const void *data, size_t bytes);
/* Reads from it; pages that are not in it are not mapped. */
struct memory_reader image_record_reader(const struct image_record *r);

#endif
