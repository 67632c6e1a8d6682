/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atb_ops.h - the kernel's sums of ATB operations, by the class of the operation.
 *
 * The class comes from the object's table of virtual functions, whose symbol libatb exports: that
 * holds for every version, unlike the place of a name inside the object. One that cannot be named
 * is "".
 */
#ifndef NPUMEM_DAEMON_ATB_OPS_H
#define NPUMEM_DAEMON_ATB_OPS_H

#include <stdint.h>

#include "view.h"

struct atb_names; /* what has been named */
struct atb_names *atb_names_free(struct atb_names *n);

/* Calls fn for each class of a process until it returns non-zero, and returns that. names: NULL at
 * first, kept between calls. Errors: -ENOMEM. Cost: linear in the kernel's map; a name costs some
 * ms once. */
int atb_ops_each(int map_fd, struct atb_names **names, uint32_t tgid,
                 int (*fn)(void *, const struct view_atb *), void *userdata);

#endif
