/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procmaps.h - the text of /proc/PID/maps: its lines, which libraries it shows, and which library a
 * code address is in.
 *
 * The text is given; nothing is opened here. It is hostile (a process chooses its own paths): every
 * length is bounded, malformed lines are skipped and counted.
 * Source of the format: Linux Documentation/filesystems/proc.rst; show_map_vma() and
 * seq_file_path().
 */
#ifndef NPUMEM_PROCMAPS_H
#define NPUMEM_PROCMAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"

#define MAPS_PATH_MAX 4096 /* PATH_MAX, NUL included; longer paths make a line malformed */

struct maps_entry {
    uint64_t start, end; /* [start, end) in the process */
    uint64_t offset;     /* of start in the file */
    uint64_t inode;      /* 0: no file */
    uint32_t dev_major, dev_minor;
    bool readable, writable, executable, shared;
    bool deleted;     /* the path ended in " (deleted)", which is stripped */
    const char *path; /* "" anonymous, "[heap]" ..., or absolute; borrowed until the next call */
};

struct maps_reader {
    const char *text;
    size_t bytes, at;
    uint64_t malformed_count;
    char path[MAPS_PATH_MAX];
};

/* Begins to read `bytes` bytes of text, which must outlive the reader. A missing last newline is
 * fine. */
void maps_reader_init(struct maps_reader *r, const char *text, size_t bytes);

/*
 * The next well-formed line: 1 and *ret, or 0 at the end.
 * "\012" in a path becomes a newline (the only escape that the kernel makes here; it leaves
 * backslashes alone). Blanks are part of the path. A file whose own name ends in " (deleted)"
 * cannot be told from a deleted one: compare the inode before trusting the flag.
 */
int maps_next(struct maps_reader *r, struct maps_entry *ret);

/* Row of schema/libraries.def whose stem the file name of `path` is: stem + ".so" + optional
 * version (".1", ".6.0.30"). -1: none. "libascendcl_impl.so" is not "libascendcl". */
int library_match(const char *path);

/* Whether the file may hold NM_ACCESS rows of probes.def: any row of libraries.def. */
bool library_has_access(const char *path);

/* Rows of schema/libraries.def; name shown to people and stem of row id. id must be in range. */
int library_count(void);
const char *library_name(int id);
/* The first row with this name, -1 none. */
int library_by_name(const char *name);
const char *library_stem(int id);

/*
 * Name shown for a file: the libraries.def short name; else the file name without directory, "lib",
 * ".so..." (also ".cpython-311-...so", ".abi3.so"), and the hash that auditwheel puts in
 * ("libgomp-a34b3233.so.1" is "gomp"); "python" for any CPython, static or shared; "" for "[vdso]",
 * anonymous memory and the like. Cut to CALLER_NAME_MAX - 1 bytes.
 */
#define CALLER_NAME_MAX 64
void caller_name_from_path(const char *path, char ret_name[CALLER_NAME_MAX]);

/*
 * Which file a code address of one process is in: its executable, file-backed ranges.
 * Bounded: at most CALLER_RANGES_MAX ranges (those at the lowest addresses of the text are kept).
 */
#define CALLER_RANGES_MAX 4096
struct caller_map;

/* Reads maps text. Errors: -ENOMEM. Owns: the caller frees with caller_map_free().
 * Cost: linear in the text; about 24 bytes per range and the names. */
int caller_map_new(const char *maps_text, size_t bytes, struct caller_map **ret);
struct caller_map *caller_map_free(struct caller_map *m);
DEFINE_CLEANUP(struct caller_map *, caller_map_free)

/* Name of the file that `address` is in, "" unknown (also for NULL m). Borrowed from the map.
 * Cost: one binary search. */
const char *caller_map_name(const struct caller_map *m, uint64_t address);

/* Ranges kept, and whether some did not fit. */
size_t caller_map_count(const struct caller_map *m, bool *ret_truncated);

#endif
