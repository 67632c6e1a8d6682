/* SPDX-License-Identifier: Apache-2.0 */
/*
 * args_value.h - the values of options, as people write them, into struct args.
 */
#ifndef NPUMEM_CLI_ARGS_VALUE_H
#define NPUMEM_CLI_ARGS_VALUE_H

#include "cli.h"

/* Takes an option that has an argument. value may be cut at its commas; args borrow it. Returns 0;
 * -EINVAL with what is wrong and how to write it. */
int args_set_value(struct args *a, enum option_id id, char *value, struct error *reterr);
/* Takes one that has none. */
void args_set_switch(struct args *a, enum option_id id);

/* "--NAME VALUE: why", with the nearest value, all values or an example as the fix. Returns
 * -EINVAL. */
int args_bad_value(enum option_id id, const char *value, const char *why, struct error *reterr);

#endif
