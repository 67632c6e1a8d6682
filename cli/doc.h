/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doc.h - reading a document of the daemon, which may hold anything.
 *
 * Every getter takes NULL and values of the wrong type, and answers with "absent" then: a reply
 * that is not what the schema says makes a strange table, never a crash.
 */
#ifndef NPUMEM_CLI_DOC_H
#define NPUMEM_CLI_DOC_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

/* The member of an object; NULL if absent, null, or not in an object. Borrowed. */
struct json_object *doc_get(struct json_object *object, const char *key);
/* An integer; false if absent or not an integer. */
bool doc_int(struct json_object *object, const char *key, int64_t *ret);
/* A text; fallback if absent or not a string. Borrowed. */
const char *doc_text(struct json_object *object, const char *key, const char *fallback);
bool doc_bool(struct json_object *object, const char *key, bool fallback);
/* Length of an array member, 0 if it is not one; its item i, NULL outside. Borrowed. */
size_t doc_count(struct json_object *object, const char *key);
struct json_object *doc_item(struct json_object *object, const char *key, size_t i);

/* True if events were lost or coverage is partial, or the document does not say. */
bool doc_incomplete(struct json_object *document);

#endif
