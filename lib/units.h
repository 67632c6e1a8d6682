/* SPDX-License-Identifier: Apache-2.0 */
/*
 * units.h - bytes and durations as people write and read them.
 *
 * Binary units only (KiB = 1024 bytes): device memory is sold, mapped and reported in them.
 * Nothing here depends on the locale, allocates, or rounds silently when parsing.
 */
#ifndef NPUMEM_UNITS_H
#define NPUMEM_UNITS_H

#include <stddef.h>
#include <stdint.h>

/* How units_format_bytes() chooses its unit. */
enum units_scale { UNITS_AUTO = 0, UNITS_B, UNITS_KIB, UNITS_MIB, UNITS_GIB };

/* Longest text either formatter writes, with its NUL. */
#define UNITS_TEXT_BYTES 32

/* Writes "512 B", "1.50 KiB", "20.00 MiB", "1.25 GiB" (two decimals, rounded half up; B without)
 * and returns text. AUTO takes the largest unit of at most the value. text holds UNITS_TEXT_BYTES.
 */
char *units_format_bytes(char *text, uint64_t bytes, enum units_scale scale);

/* The same for a signed amount (differences): a sign only when negative. */
char *units_format_signed_bytes(char *text, int64_t bytes, enum units_scale scale);

/* Parses "auto", "B", "KiB", "MiB", "GiB" (any case; K, M, G alike). Returns 0; -EINVAL. */
int units_parse_scale(const char *text, enum units_scale *ret);

/* Parses "4096", "4096 B", "2MiB", "1.5 GiB", "2M", "1TiB" (any case). Decimals must come out as
 * whole bytes (0.5 KiB is 512 B, 0.3 B is an error). Returns 0; -EINVAL not a size; -ERANGE does
 * not fit in 64 bits. ret is written on success only. */
int units_parse_bytes(const char *text, uint64_t *ret);

/* Writes the two largest units: "850 ns", "12 ms", "5.2 s", "3 min 20 s", "2 h 5 min", "4 d 3 h".
 * text holds UNITS_TEXT_BYTES. */
char *units_format_duration(char *text, uint64_t ns);

/* Parses a number with ns, us, ms, s, min, h, d or w, or several in a row ("1h 30min"); a bare
 * number is seconds. Decimals are allowed and cut to whole ns. Returns 0; -EINVAL; -ERANGE. */
int units_parse_duration(const char *text, uint64_t *ret_ns);

#endif
