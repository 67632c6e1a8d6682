/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_history_rows.h - kv_history[] of the document of `budget` for people.
 */
#ifndef NPUMEM_CLI_KV_HISTORY_ROWS_H
#define NPUMEM_CLI_KV_HISTORY_ROWS_H

#include <json-c/json.h>

#include "cli.h"
#include "out.h"

/* A block of a few lines per engine; of those of which nothing is known the reason, unless --quiet.
 */
void kv_history_print(const struct args *args, const struct out *o, struct json_object *document);

/* The line of what would have been enough: of a row of kv_history[] or kv_usage[]. Nothing where
 * that is not known. */
void kv_fit_print(const struct args *args, struct json_object *row);

#endif
