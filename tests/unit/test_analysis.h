/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_analysis.h - golden cases: tests/golden/CASE/{input,expected}.json, read by json-c.
 *
 * Numbers of expected.json are compared within 1 % when their names end in _bytes or _per_hour,
 * else exactly; null means null. {"~contains": "x"} wants a text that contains x. An array wants
 * its items in order; {"~has": [...]} each of the items somewhere, {"~lacks": [...]} none of them.
 */
#ifndef TEST_ANALYSIS_H
#define TEST_ANALYSIS_H

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis.h"

#define json_object jsonc
#define json_bool jsonc_bool
#include <json-c/json.h>
#undef json_object
#undef json_bool

#define GOLDEN "../golden"
#define TOLERANCE 0.01

static inline struct jsonc *golden_load(const char *name, const char *file)
{
    char path[512];
    snprintf(path, sizeof(path), GOLDEN "/%s/%s.json", name, file);
    struct jsonc *o = json_object_from_file(path);
    if (!o)
        fail_msg("%s: %s", path, json_util_get_last_err());
    return o;
}

static inline struct jsonc *get(struct jsonc *o, const char *key)
{
    struct jsonc *value = NULL;
    if (o && json_object_is_type(o, json_type_object))
        json_object_object_get_ex(o, key, &value);
    return value;
}

static inline uint64_t get_u64(struct jsonc *o, const char *key, uint64_t fallback)
{
    struct jsonc *v = get(o, key);
    return v ? json_object_get_uint64(v) : fallback;
}

static inline const char *get_text(struct jsonc *o, const char *key, const char *fallback)
{
    struct jsonc *v = get(o, key);
    return v ? json_object_get_string(v) : fallback;
}

static inline bool is_measured(const char *key)
{
    size_t n = strlen(key);
    return (n > 6 && strcmp(key + n - 6, "_bytes") == 0) || strcmp(key, "bytes") == 0 ||
           (n > 9 && strcmp(key + n - 9, "_per_hour") == 0) ||
           (n > 10 && strcmp(key + n - 10, "_per_cycle") == 0);
}

static inline bool golden_matches(struct jsonc *want, struct jsonc *got, const char *key,
                                  char *where, size_t size);

static inline bool golden_any(struct jsonc *want, struct jsonc *got, const char *key)
{
    char ignored[256];
    for (size_t i = 0; got && i < json_object_array_length(got); i++)
        if (golden_matches(want, json_object_array_get_idx(got, i), key, ignored, sizeof(ignored)))
            return true;
    return false;
}

static inline bool golden_number(struct jsonc *want, struct jsonc *got, const char *key)
{
    double w = json_object_get_double(want), g = json_object_get_double(got);
    double off = g > w ? g - w : w - g, size = w < 0 ? -w : w;
    if (!got || json_object_is_type(got, json_type_string))
        return false;
    return is_measured(key) ? off <= TOLERANCE * size : off <= 1e-9 * size;
}

static inline bool golden_object(struct jsonc *want, struct jsonc *got, const char *key,
                                 char *where, size_t size)
{
    struct jsonc *list;
    /* json-c's own loop names the type that is renamed above */
    for (struct lh_entry *e = json_object_get_object(want)->head; e; e = e->next) {
        const char *k = e->k;
        struct jsonc *v = (struct jsonc *)(uintptr_t)e->v;
        if (strcmp(k, "~contains") == 0) {
            const char *text = got ? json_object_get_string(got) : "";
            if (!strstr(text, json_object_get_string(v)))
                goto differs;
        } else if (strcmp(k, "~has") == 0 || strcmp(k, "~lacks") == 0) {
            list = v;
            if (!json_object_is_type(got, json_type_array))
                goto differs;
            for (size_t i = 0; i < json_object_array_length(list); i++)
                if (golden_any(json_object_array_get_idx(list, i), got, key) != (k[1] == 'h'))
                    goto differs;
        } else if (!golden_matches(v, get(got, k), k, where, size)) {
            return false;
        }
    }
    return true;
differs:
    snprintf(where, size, "%s: wanted %s, got %s", key, json_object_get_string(want),
             got ? json_object_get_string(got) : "nothing");
    return false;
}

static inline bool golden_matches(struct jsonc *want, struct jsonc *got, const char *key,
                                  char *where, size_t size)
{
    bool same = false;
    if (!want) {
        same = !got;
    } else if (json_object_is_type(want, json_type_object)) {
        return golden_object(want, got, key, where, size);
    } else if (json_object_is_type(want, json_type_array)) {
        same = json_object_is_type(got, json_type_array) &&
               json_object_array_length(got) == json_object_array_length(want);
        for (size_t i = 0; same && i < json_object_array_length(want); i++)
            if (!golden_matches(json_object_array_get_idx(want, i),
                                json_object_array_get_idx(got, i), key, where, size))
                return false;
    } else if (json_object_is_type(want, json_type_int) ||
               json_object_is_type(want, json_type_double)) {
        same = golden_number(want, got, key);
    } else {
        same = got && strcmp(json_object_get_string(want), json_object_get_string(got)) == 0;
    }
    if (!same)
        snprintf(where, size, "%s: wanted %s, got %s", key,
                 want ? json_object_get_string(want) : "null",
                 got ? json_object_get_string(got) : "null");
    return same;
}

/* What a kind of analysis makes of an input, as an open object's members. */
typedef int (*golden_fn)(struct jsonc *input, struct json *j);

static inline bool golden_case(const char *name, const char *kind, golden_fn fn, unsigned *failed)
{
    struct jsonc *input = golden_load(name, "input"), *expected, *got;
    struct json j = {0};
    char where[1024] = "";

    if (strcmp(get_text(input, "analysis", ""), kind) != 0) {
        json_object_put(input);
        return false;
    }
    expected = golden_load(name, "expected");
    json_object(&j);
    int r = fn(input, &j);
    if (r < 0)
        json_kstr(&j, "error", strerror(-r));
    json_end(&j);
    assert_int_equal(json_finish(&j), 0);
    got = json_tokener_parse(j.data);
    assert_non_null(got);
    if (!golden_matches(expected, got, name, where, sizeof(where))) {
        print_error("%s: %s\n", name, where);
        ++*failed;
    }
    json_done(&j);
    json_object_put(got);
    json_object_put(expected);
    json_object_put(input);
    return true;
}

/* Runs every case of a kind; fails if there are fewer than `least`. */
static inline void golden_run(const char *kind, golden_fn fn, unsigned least)
{
    struct dirent **names;
    unsigned failed = 0, count = 0;
    int n = scandir(GOLDEN, &names, NULL, alphasort);

    assert_true(n >= 0);
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.')
            count += golden_case(names[i]->d_name, kind, fn, &failed);
        free(names[i]);
    }
    free(names);
    print_message("%s: %u golden cases, %u failed\n", kind, count, failed);
    assert_int_equal(failed, 0);
    assert_true(count >= least);
}

#endif
