/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: turning the bytes of one message into a call. Must not: look at the method's parameters.
 * Invariant: what gets through is one object with a string method, and depth, UTF-8 and flags are
 * checked; nothing of it is trusted further.
 */
#include "api_internal.h"

#include <json-c/json.h>
#include <string.h>

struct api_call *api_call_free(struct api_call *call)
{
    if (!call)
        return NULL;
    json_object_put(call->root);
    free(call);
    return NULL;
}

struct json_tokener *api_tokener_new(void)
{
    struct json_tokener *t = json_tokener_new_ex(LIMIT_JSON_DEPTH);

    if (t)
        json_tokener_set_flags(t, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    return t;
}

void api_tokener_free(struct json_tokener *tokener)
{
    if (tokener)
        json_tokener_free(tokener);
}

static int parse_flag(struct json_object *root, const char *name, bool *ret, struct error *reterr)
{
    struct json_object *value;

    if (!json_object_object_get_ex(root, name, &value))
        return 0;
    if (!json_object_is_type(value, json_type_boolean))
        return error_set(reterr, EINVAL, "\"%s\" must be true or false", name);
    *ret = json_object_get_boolean(value);
    return 0;
}

static int call_fill(struct api_call *call, const char **ret_method, struct error *reterr)
{
    struct json_object *method;
    bool upgrade = false;
    int r;

    if (!json_object_is_type(call->root, json_type_object))
        return error_set(reterr, EINVAL, "request is not a JSON object");
    if (!json_object_object_get_ex(call->root, "method", &method) ||
        !json_object_is_type(method, json_type_string))
        return error_set(reterr, EINVAL, "request has no string \"method\"");
    if (strlen(json_object_get_string(method)) != (size_t)json_object_get_string_len(method))
        return error_set(reterr, EINVAL, "\"method\" holds a NUL character");
    if (json_object_object_get_ex(call->root, "parameters", &call->parameters) &&
        call->parameters && !json_object_is_type(call->parameters, json_type_object))
        return error_set(reterr, EINVAL, "\"parameters\" is not an object");
    if ((r = parse_flag(call->root, "more", &call->more, reterr)) < 0 ||
        (r = parse_flag(call->root, "oneway", &call->oneway, reterr)) < 0 ||
        (r = parse_flag(call->root, "upgrade", &upgrade, reterr)) < 0)
        return r;
    if (upgrade)
        return error_set(reterr, EINVAL, "\"upgrade\" is not supported");
    if (call->more && call->oneway)
        return error_set(reterr, EINVAL, "\"more\" and \"oneway\" exclude each other");
    *ret_method = json_object_get_string(method);
    return 0;
}

int api_call_parse(struct json_tokener *tokener, const char *text, size_t length,
                   struct api_call **ret, const char **ret_method, struct error *reterr)
{
    _cleanup_(api_call_freep) struct api_call *call = calloc(1, sizeof(*call));
    enum json_tokener_error e;
    int r;

    if (!call)
        return error_set(reterr, ENOMEM, "out of memory");
    if (length > INT32_MAX)
        return error_set(reterr, EINVAL, "request is too large");
    json_tokener_reset(tokener);
    call->root = json_tokener_parse_ex(tokener, text, (int)length);
    e = json_tokener_get_error(tokener);
    if (e == json_tokener_continue)
        return error_set(reterr, EINVAL, "malformed request: JSON ends too early");
    if (e != json_tokener_success)
        return error_set(reterr, EINVAL, "malformed request: %s at byte %zu",
                         json_tokener_error_desc(e), json_tokener_get_parse_end(tokener));
    for (size_t i = json_tokener_get_parse_end(tokener); i < length; i++)
        if (!strchr(" \t\r\n", text[i]))
            return error_set(reterr, EINVAL, "malformed request: text after the JSON at byte %zu",
                             i);
    r = call_fill(call, ret_method, reterr);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(call);
    return 0;
}
