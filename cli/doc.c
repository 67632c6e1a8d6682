/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doc.c - getters over json-c that forgive any shape.
 */
#include "doc.h"

struct json_object *doc_get(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;
    if (!object || !json_object_is_type(object, json_type_object))
        return NULL;
    return json_object_object_get_ex(object, key, &value) ? value : NULL;
}

bool doc_int(struct json_object *object, const char *key, int64_t *ret)
{
    struct json_object *value = doc_get(object, key);
    if (!value || !json_object_is_type(value, json_type_int))
        return false;
    *ret = json_object_get_int64(value);
    return true;
}

const char *doc_text(struct json_object *object, const char *key, const char *fallback)
{
    struct json_object *value = doc_get(object, key);
    return value && json_object_is_type(value, json_type_string) ? json_object_get_string(value)
                                                                 : fallback;
}

bool doc_bool(struct json_object *object, const char *key, bool fallback)
{
    struct json_object *value = doc_get(object, key);
    return value && json_object_is_type(value, json_type_boolean) ? json_object_get_boolean(value)
                                                                  : fallback;
}

size_t doc_count(struct json_object *object, const char *key)
{
    struct json_object *value = doc_get(object, key);
    return value && json_object_is_type(value, json_type_array) ? json_object_array_length(value)
                                                                : 0;
}

struct json_object *doc_item(struct json_object *object, const char *key, size_t i)
{
    return i < doc_count(object, key) ? json_object_array_get_idx(doc_get(object, key), i) : NULL;
}

bool doc_incomplete(struct json_object *document)
{
    return !doc_bool(document, "complete", false);
}
