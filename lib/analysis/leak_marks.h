/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leak_marks.h - the marks that divide work in cycles: those of the name that was asked for, else
 * of the name that was set most often. First every mark's name, then the choice, then the times.
 */
#ifndef NPUMEM_ANALYSIS_LEAK_MARKS_H
#define NPUMEM_ANALYSIS_LEAK_MARKS_H

#include <stddef.h>
#include <stdint.h>

#define LEAK_MARKS_MAX 4096
#define LEAK_MARK_NAMES_MAX 64

/* Zero it before use, but for `wanted`. */
struct leak_marks {
    char names[LEAK_MARK_NAMES_MAX][64];
    size_t counts[LEAK_MARK_NAMES_MAX], name_count;
    const char *wanted; /* borrowed; NULL: the most frequent */
    uint64_t times[LEAK_MARKS_MAX];
    size_t time_count;
};

void leak_marks_name(struct leak_marks *m, const char *name);
/* The name whose marks count, NULL: there are none. Sets wanted. */
const char *leak_marks_choose(struct leak_marks *m);
/* Takes the time if the name is that one. Times that do not go up are left out. */
void leak_marks_time(struct leak_marks *m, const char *name, uint64_t time_ns);

#endif
