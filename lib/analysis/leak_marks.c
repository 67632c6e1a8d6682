/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leak_marks.c - see leak_marks.h.
 */
#include "leak_marks.h"

#include <stdio.h>
#include <string.h>

void leak_marks_name(struct leak_marks *m, const char *name)
{
    size_t i = 0;

    while (i < m->name_count && strcmp(m->names[i], name) != 0)
        i++;
    if (i == LEAK_MARK_NAMES_MAX)
        return;
    if (i == m->name_count)
        snprintf(m->names[m->name_count++], sizeof(m->names[0]), "%s", name);
    m->counts[i]++;
}

const char *leak_marks_choose(struct leak_marks *m)
{
    size_t best = 0;

    for (size_t i = 1; i < m->name_count; i++)
        best = m->counts[i] > m->counts[best] ? i : best;
    if (!m->wanted && m->name_count)
        m->wanted = m->names[best];
    return m->wanted;
}

void leak_marks_time(struct leak_marks *m, const char *name, uint64_t time_ns)
{
    if (!m->wanted || strcmp(name, m->wanted) != 0 || m->time_count == LEAK_MARKS_MAX)
        return;
    if (!m->time_count || time_ns > m->times[m->time_count - 1])
        m->times[m->time_count++] = time_ns;
}
