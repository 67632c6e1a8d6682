/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leak_gather.h - the samples of a window of time as the series that are judged.
 */
#ifndef NPUMEM_DAEMON_LEAK_GATHER_H
#define NPUMEM_DAEMON_LEAK_GATHER_H

#include "leaks.h"
#include "map.h"
#include "store_series.h"
#include "view.h"

struct leak_gather {
    const struct view_context *context; /* borrowed: the filters and both clocks */
    uint64_t interval_ns;               /* between samples */
    uint64_t until_ns;                  /* wall */
    struct map lives, series;
    bool is_full; /* some series are left out */
};

void leak_gather_init(struct leak_gather *g, const struct view_context *context,
                      uint64_t interval_ns, uint64_t until_wall_ns);
/* Takes one sample in, as store_series_next() gives it. Returns 0; -errno of the store; -ENOMEM.
 * Cost: about 0.15 us. */
int leak_gather_point(struct leak_gather *g, struct store_series *from,
                      const struct store_point *p);
/* Most series that there can be. */
size_t leak_gather_count(const struct leak_gather *g);
/* The series that are judged by themselves, carried up to the end of the window. What they point to
 * lives as long as the gather. Returns 0; -ENOMEM. */
int leak_gather_list(struct leak_gather *g, struct leak_series *list, size_t *ret_count);
void leak_gather_done(struct leak_gather *g);

#endif
