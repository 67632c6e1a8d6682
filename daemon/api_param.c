/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: typed reading of parameters. Invariant: what a handler gets has the type and range it asked
 * for; everything else became a BadParameter reply that names the parameter.
 */
#include "api_internal.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static int bad(struct api_call *call, const char *format, ...)
{
    char message[200];
    va_list ap;

    va_start(ap, format);
    vsnprintf(message, sizeof(message), format, ap);
    va_end(ap);
    api_error(call, "BadParameter", message, "");
    return -EINVAL;
}

/* The value, NULL when absent or null. */
static struct json_object *param_get(struct api_call *call, const char *name)
{
    struct json_object *value = NULL;

    if (call->asked_count < LIMIT_PARAMETERS)
        call->asked[call->asked_count++] = name;
    if (!call->parameters || !json_object_object_get_ex(call->parameters, name, &value))
        return NULL;
    return value;
}

static int value_u64(struct api_call *call, const char *name, struct json_object *value,
                     uint64_t maximum, uint64_t *ret)
{
    uint64_t number;

    if (!json_object_is_type(value, json_type_int))
        return bad(call, "parameter %s: expected a number, got %s", name,
                   json_type_to_name(json_object_get_type(value)));
    number = json_object_get_uint64(value); /* 0 for a negative number */
    if ((number <= INT64_MAX && json_object_get_int64(value) < 0) || number > maximum)
        return bad(call, "parameter %s: %s is not in 0 to %" PRIu64, name,
                   json_object_to_json_string(value), maximum);
    *ret = number;
    return 1;
}

static int value_str(struct api_call *call, const char *name, struct json_object *value,
                     const char **ret)
{
    if (!json_object_is_type(value, json_type_string))
        return bad(call, "parameter %s: expected a string, got %s", name,
                   json_type_to_name(json_object_get_type(value)));
    *ret = json_object_get_string(value);
    if (strlen(*ret) != (size_t)json_object_get_string_len(value))
        return bad(call, "parameter %s: holds a NUL character", name);
    return 1;
}

static int value_list(struct api_call *call, const char *name, struct json_object *value,
                      size_t size)
{
    if (!json_object_is_type(value, json_type_array))
        return bad(call, "parameter %s: expected a list, got %s", name,
                   json_type_to_name(json_object_get_type(value)));
    if (json_object_array_length(value) > size)
        return bad(call, "parameter %s: more than %zu items", name, size);
    return 1;
}

int api_param_str(struct api_call *call, const char *name, const char **ret)
{
    struct json_object *value = param_get(call, name);

    return value ? value_str(call, name, value, ret) : 0;
}

int api_param_u64(struct api_call *call, const char *name, uint64_t maximum, uint64_t *ret)
{
    struct json_object *value = param_get(call, name);

    return value ? value_u64(call, name, value, maximum, ret) : 0;
}

int api_param_bool(struct api_call *call, const char *name, bool *ret)
{
    struct json_object *value = param_get(call, name);

    if (!value)
        return 0;
    if (!json_object_is_type(value, json_type_boolean))
        return bad(call, "parameter %s: expected true or false, got %s", name,
                   json_type_to_name(json_object_get_type(value)));
    *ret = json_object_get_boolean(value);
    return 1;
}

int api_param_u64s(struct api_call *call, const char *name, uint64_t maximum, uint64_t *ret,
                   size_t size, size_t *ret_count)
{
    struct json_object *value = param_get(call, name);
    int r;

    *ret_count = 0;
    if (!value)
        return 0;
    r = value_list(call, name, value, size);
    for (size_t i = 0; r > 0 && i < json_object_array_length(value); i++) {
        r = value_u64(call, name, json_object_array_get_idx(value, i), maximum, &ret[i]);
        *ret_count += r > 0;
    }
    return r;
}

int api_param_strs(struct api_call *call, const char *name, const char **ret, size_t size,
                   size_t *ret_count)
{
    struct json_object *value = param_get(call, name);
    int r;

    *ret_count = 0;
    if (!value)
        return 0;
    r = value_list(call, name, value, size);
    for (size_t i = 0; r > 0 && i < json_object_array_length(value); i++) {
        r = value_str(call, name, json_object_array_get_idx(value, i), &ret[i]);
        *ret_count += r > 0;
    }
    return r;
}

int api_params_done(struct api_call *call)
{
    if (!call->parameters)
        return 0;
    json_object_object_foreach(call->parameters, key, value)
    {
        bool known = false;

        (void)value;
        for (unsigned i = 0; i < call->asked_count; i++)
            known |= strcmp(call->asked[i], key) == 0;
        if (!known)
            return bad(call, "unknown parameter \"%.64s\"", key);
    }
    return 0;
}
