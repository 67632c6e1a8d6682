/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan_record.h - keeps the pages that a scan reads, so that tests and the fuzzer can scan them
 * again (lib/image_record.h says the format).
 */
#ifndef NPUMEM_DAEMON_SCAN_RECORD_H
#define NPUMEM_DAEMON_SCAN_RECORD_H

#include "cleanup.h"
#include "err.h"
#include "image_read.h"
#include "roots_scan.h"

struct scan_record;

/* Reads through another reader, which it copies. Errors: -ENOMEM. Owns: the caller frees. */
int scan_record_new(const struct memory_reader *reader, struct scan_record **ret);
struct scan_record *scan_record_free(struct scan_record *r);
DEFINE_CLEANUP(struct scan_record *, scan_record_free)
struct memory_reader scan_record_reader(struct scan_record *r);

/* Writes the image; the numbers that a scan needs beside it go into a first line of the maps text,
 * which a reader of maps skips. */
int scan_record_write(const struct scan_record *r, const char *path, const struct scan_input *in,
                      const char *maps, size_t bytes, struct error *reterr);

#endif
