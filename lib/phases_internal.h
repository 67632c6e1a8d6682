/* SPDX-License-Identifier: Apache-2.0 */
/*
 * phases_internal.h - the table of phases.c, for phases_parse.c. Nobody else includes it.
 */
#ifndef NPUMEM_PHASES_INTERNAL_H
#define NPUMEM_PHASES_INTERNAL_H

#include "phases.h"

#define PHASE_WORD_MAX 24
#define PHASE_PATTERN_MAX 96
#define PHASE_FILE_MAX 64

struct phase_class {
    char word[PHASE_WORD_MAX];
    char owner[PHASE_OWNER_MAX - PHASE_WORD_MAX - 1]; /* with @detail it still fits */
};

struct phase_row {
    char pattern[PHASE_PATTERN_MAX];
    char file[PHASE_FILE_MAX];
    uint8_t class_id, detail, tier;
    bool is_user;
    bool needs_file; /* also where there is a qualified name */
};

struct phase_table {
    struct phase_class classes[PHASE_CLASSES_MAX + 1]; /* from 1 on */
    char details[PHASE_DETAILS_MAX + 1][PHASE_WORD_MAX];
    unsigned class_count, detail_count;
    struct phase_row *rows;
    size_t row_count, row_capacity;
};

/* Number of the new class or detail, or -ENOSPC. */
int phase_class_add(struct phase_table *t, const char *word, const char *owner);
int phase_detail_add(struct phase_table *t, const char *word);
/* Its number, 0 if there is none. */
int phase_class_find(const struct phase_table *t, const char *word);
int phase_detail_find(const struct phase_table *t, const char *word);
int phase_row_add(struct phase_table *t, const struct phase_row *row);

#endif
