/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_ranges.h - which address of a process is in which mapped file: the check that a virtual
 * table or a function pointer lies in a library, and the way from a symbol to its address.
 */
#ifndef NPUMEM_IMAGE_RANGES_H
#define NPUMEM_IMAGE_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"
#include "elf_image.h"

#define IMAGE_RANGES_MAX 65536u /* lines of maps kept; vm.max_map_count's default is 65530 */

struct image_range {
    uint64_t start, end, offset;
    uint32_t file; /* 0: anonymous; else the number of a file, see image_ranges_path() */
    bool writable, executable;
};

struct image_ranges;

/* From the text of /proc/PID/maps. Errors: -ENOMEM. Owns: the caller frees. */
int image_ranges_new(const char *maps_text, size_t bytes, struct image_ranges **ret);
struct image_ranges *image_ranges_free(struct image_ranges *r);
DEFINE_CLEANUP(struct image_ranges *, image_ranges_free)

/* The range that an address is in, NULL none. Borrowed. Cost: a binary search. */
const struct image_range *image_ranges_find(const struct image_ranges *r, uint64_t address);

/* Whether the address lies in a mapping of a file (code, read-only or relocated data of it). A
 * process's ELF .bss is anonymous and does not count. */
bool image_ranges_in_file(const struct image_ranges *r, uint64_t address);
/* The same, and executable. */
bool image_ranges_in_code(const struct image_ranges *r, uint64_t address);

/* Files, numbered from 1 in the order of the maps; path NULL past the last one. Borrowed. */
const char *image_ranges_path(const struct image_ranges *r, uint32_t file);
/* Number of the first file whose name (without directory) begins with `stem` followed by '.', '-'
 * or the end; 0 none. */
uint32_t image_ranges_file(const struct image_ranges *r, const char *stem);

/* Its mapping at the lowest address, NULL none. Borrowed. */
const struct image_range *image_ranges_first(const struct image_ranges *r, uint32_t file);

/* What to add to a vaddr of this ELF file to get an address of the process. Errors: -ENOENT the
 * file is not mapped as its program headers say. */
int image_ranges_bias(const struct image_ranges *r, uint32_t file, const struct elf_image *elf,
                      uint64_t *ret_bias);

#endif
