/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_value.h - values of settings: words to values, and numbers back as a
 * person would write them into the file.
 */
#ifndef NPUMEM_DAEMON_CONFIG_VALUE_H
#define NPUMEM_DAEMON_CONFIG_VALUE_H

#include "config.h"

/* yes/no, true/false, on/off, 1/0. */
int config_parse_bool(const char *text, bool *ret);

int config_parse_int(const char *text, int64_t *ret);

/* Index of text among "a|b|c"; -EINVAL. */
int config_parse_enum(const char *text, const char *values);

/* Largest unit that divides the value: "16MiB", "50ms". size of 32 is enough. */
void config_format_bytes(uint64_t bytes, char *ret, size_t size);
void config_format_duration(uint64_t ns, char *ret, size_t size);

#endif
