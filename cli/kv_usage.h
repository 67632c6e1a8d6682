/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_usage.h - how full the KV caches are, asked of the servers themselves.
 */
#ifndef NPUMEM_CLI_KV_USAGE_H
#define NPUMEM_CLI_KV_USAGE_H

#include <json-c/json.h>

#include "cli.h"
#include "out.h"

/* Adds kv_usage[] to a document of `budget`, one row per engine: asks /metrics of each of its
 * servers[] that is on this host's loopback, once or over --for. A server that does not answer has
 * a row with the reason. Never an error: the budget stands without. */
int kv_usage_add(const struct args *args, struct json_object *document, struct error *reterr);

/* The lines for people. */
void kv_usage_print(const struct args *args, const struct out *o, struct json_object *document);

#endif
