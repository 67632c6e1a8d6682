/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - the daemon's settings: schema/config.def as a struct, read from files and options.
 *
 * Order, later wins: defaults, DIR/npumemd.conf, DIR/npumemd.conf.d/NAME.conf sorted by name,
 * options. File format: [section], key = value, whole-line comments with # or ;. A bad line is an
 * error with file and line, never a guess; the settings are then unchanged.
 */
#ifndef NPUMEM_DAEMON_CONFIG_H
#define NPUMEM_DAEMON_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "err.h"

enum config_type {
    CONFIG_TYPE_BYTES,
    CONFIG_TYPE_DURATION,
    CONFIG_TYPE_BOOL,
    CONFIG_TYPE_INT,
    CONFIG_TYPE_STRING,
    CONFIG_TYPE_PATH,
    CONFIG_TYPE_ENUM,
};

#define CONFIG_TEXT_BYTES 256 /* longest string or path, with its NUL */

#define CONFIG_FIELD_BYTES(name) uint64_t name
#define CONFIG_FIELD_DURATION(name) uint64_t name
#define CONFIG_FIELD_BOOL(name) bool name
#define CONFIG_FIELD_INT(name) int64_t name
#define CONFIG_FIELD_STRING(name) char name[CONFIG_TEXT_BYTES]
#define CONFIG_FIELD_PATH(name) char name[CONFIG_TEXT_BYTES]
#define CONFIG_FIELD_ENUM(name) int name

/* One field section_key per row of schema/config.def; durations in ns, sizes in bytes. */
struct config {
#define CONFIG(type, section, key, minimum, maximum, fallback, values, help)                       \
    CONFIG_FIELD_##type(section##_##key);
#include "config.def"
#undef CONFIG
};

/* Values of the ENUM rows, in the order of their words. */
enum config_block_detail {
    CONFIG_BLOCK_DETAIL_OFF = 0,
    CONFIG_BLOCK_DETAIL_LARGE = 1,
    CONFIG_BLOCK_DETAIL_ALL = 2,
};

/* Fills in the defaults. */
void config_init(struct config *config);

/* The word of daemon.log_level as a syslog level. */
int config_log_level(const struct config *config);

/* Sets one value, given as "section.key" and text; origin ("--set", "file:12") begins the message.
 * Returns 0; -ENOENT no such setting; -EINVAL bad value, -ERANGE out of its range. */
int config_set(struct config *config, const char *name, const char *value, const char *origin,
               struct error *reterr);

/* "section.key=value" in one, as --set takes it. Returns as config_set(). */
int config_set_assignment(struct config *config, const char *assignment, const char *origin,
                          struct error *reterr);

/* Reads one file. Returns 0; -ENOENT when it does not exist; -EINVAL, -ERANGE with file and line.
 */
int config_read_file(struct config *config, const char *path, struct error *reterr);

/* Reads DIR/npumemd.conf and DIR/npumemd.conf.d/NAME.conf; that none exists is no error. */
int config_read_dir(struct config *config, const char *dir, struct error *reterr);

/* Writes every setting with type, range, default and help, for --help. */
void config_print_help(FILE *f);

/* Writes a file with every setting commented out at its default. */
void config_print_sample(FILE *f);

#endif
