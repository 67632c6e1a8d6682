/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * embedded.h - texts of schema/ that the daemon carries in itself; made by cmake/EmbedText.cmake.
 */
#ifndef NPUMEM_SCHEMA_EMBEDDED_H
#define NPUMEM_SCHEMA_EMBEDDED_H

struct embedded_migration {
    int number; /* PRAGMA user_version after it: 1, 2, 3 ... */
    const char *name;
    const char *sql;
};
extern const struct embedded_migration embedded_migrations[];
extern const unsigned embedded_migration_count;

extern const char embedded_control_interface[]; /* npumem.varlink */

#endif
