/* SPDX-License-Identifier: Apache-2.0 */
/*
 * advice_rows.h - the settings that help, as every verb with advice shows them.
 */
#ifndef NPUMEM_CLI_ADVICE_ROWS_H
#define NPUMEM_CLI_ADVICE_ROWS_H

#include "rows.h"

extern const struct column advice_columns[];
extern const size_t advice_column_count;

/* "advice" of the object under a headline; nothing where there is none. */
void advice_print(const struct args *args, const struct out *o, struct json_object *object,
                  const char *title);

#endif
