/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_view.h - a world of processes, and its documents parsed by json-c (a reader that is not
 * ours).
 */
#ifndef TEST_VIEW_H
#define TEST_VIEW_H

#include "test_ledger.h"
#include "view.h"

/* json-c and lib/json_write.h both want the names json_object and json_bool. */
#define json_object jsonc
#define json_bool jsonc_bool
#include <json-c/json.h>
#undef json_object
#undef json_bool

#define GIB (MIB << 10)
#define WALL_NS 1800000000000000000u

typedef int (*view_fn)(const struct ledger *, const struct view_context *, struct json *);

static inline struct view_context context_of(const struct world *w)
{
    return (struct view_context){
        .wall_ns = WALL_NS, .boot_ns = w->now_ns, .host = "node7", .complete = true};
}

static inline struct jsonc *parse(struct json *j)
{
    assert_int_equal(json_finish(j), 0);
    enum json_tokener_error error;
    struct jsonc *o = json_tokener_parse_verbose(j->data, &error);
    assert_int_equal(error, json_tokener_success);
    json_done(j);
    assert_non_null(o);
    return o;
}

static inline struct jsonc *document(view_fn fn, const struct world *w,
                                     const struct view_context *c)
{
    struct json j = {0};
    assert_int_equal(fn(w->ledger, c, &j), 0);
    return parse(&j);
}

static inline struct jsonc *member(struct jsonc *o, const char *key)
{
    struct jsonc *value = NULL;
    assert_true(json_object_object_get_ex(o, key, &value));
    return value;
}

static inline int64_t number(struct jsonc *o, const char *key)
{
    struct jsonc *value = member(o, key);
    assert_true(json_object_is_type(value, json_type_int));
    return json_object_get_int64(value);
}

static inline const char *text(struct jsonc *o, const char *key)
{
    struct jsonc *value = member(o, key);
    assert_true(json_object_is_type(value, json_type_string));
    return json_object_get_string(value);
}

static inline bool truth(struct jsonc *o, const char *key)
{
    struct jsonc *value = member(o, key);
    assert_true(json_object_is_type(value, json_type_boolean));
    return json_object_get_boolean(value);
}

/* null, with a reason in the row's "unknown". */
static inline void assert_unknown(struct jsonc *row, const char *key)
{
    assert_null(member(row, key));
    assert_true(strlen(text(member(row, "unknown"), key)) > 10);
}

static inline size_t length(struct jsonc *o, const char *key)
{
    return json_object_array_length(member(o, key));
}

static inline struct jsonc *item(struct jsonc *o, const char *key, size_t i)
{
    assert_true(i < length(o, key));
    return json_object_array_get_idx(member(o, key), i);
}

/* The item of an array whose `key` is `value`; fails if there is none or two. level may be NULL. */
static inline struct jsonc *find(struct jsonc *o, const char *array, const char *key,
                                 const char *value, const char *level)
{
    struct jsonc *found = NULL;
    for (size_t i = 0; i < length(o, array); i++) {
        struct jsonc *candidate = item(o, array, i);
        if (strcmp(text(candidate, key), value) != 0 ||
            (level && strcmp(text(candidate, "level"), level) != 0))
            continue;
        assert_null(found);
        found = candidate;
    }
    assert_non_null(found);
    return found;
}

static inline int64_t gap(struct jsonc *rank, const char *name)
{
    return number(find(rank, "gaps", "name", name, NULL), "bytes");
}

static inline int64_t owner(struct jsonc *rank, const char *name, const char *level)
{
    return number(find(rank, "owners", "owner", name, level), "bytes");
}

/* Sum of the owners at one level. */
static inline int64_t owners_at(struct jsonc *rank, const char *level)
{
    int64_t sum = 0;
    for (size_t i = 0; i < length(rank, "owners"); i++) {
        struct jsonc *o = item(rank, "owners", i);
        if (strcmp(text(o, "level"), level) == 0)
            sum += number(o, "bytes");
    }
    return sum;
}

static inline void add_process(struct world *w, struct process_facts facts)
{
    assert_int_equal(ledger_process_update(w->ledger, &facts, w->now_ns), 0);
}

static inline void alloc_for(struct world *w, uint32_t tgid, uint64_t address, uint64_t bytes,
                             unsigned device, unsigned module, uint64_t caller)
{
    struct nm_event e = event_alloc(w, address, bytes, bytes, device);
    e.tgid = e.tid = tgid;
    e.call.flags = hal_flags(device, module);
    e.call.caller = caller;
    if (caller == CALLER_TORCH) {
        e.call.api = PROBE_ACL_MALLOC_ALIGN32;
        e.call.policy = 0;
    }
    assert_int_equal(send(w, &e), 0);
}

static inline void block_for(struct world *w, uint32_t tgid, unsigned device, uint8_t action,
                             uint64_t address, int64_t bytes, struct totals after)
{
    struct nm_event e = world_event(w, NM_EVENT_BLOCK);
    e.tgid = e.tid = tgid;
    e.block.device = (uint8_t)device;
    e.block.address = address;
    e.block.size_bytes = action == NM_BLOCK_MALLOC ? bytes : -bytes;
    e.block.action = action;
    e.block.total_allocated_bytes = after.allocated;
    e.block.total_reserved_bytes = after.reserved;
    e.block.total_active_bytes = after.active;
    e.block.stream = 0x5000;
    assert_int_equal(send(w, &e), 0);
}

#endif
