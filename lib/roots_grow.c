/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roots_grow.c - see roots_internal.h.
 *
 * Owns: nodes, strings and tensors of the result while it grows, what was visited and what waits,
 * each within its bound.
 */
#include "roots_internal.h"

#include <errno.h>
#include <string.h>

#define STRING_CHUNK 65536u

static int grow(void **data, size_t *capacity, size_t count, size_t item, size_t maximum)
{
    if (count < *capacity)
        return 0;
    size_t wanted = *capacity ? *capacity + *capacity / 2 : 1024;
    if (count >= maximum)
        return -ENOSPC;
    if (wanted > maximum)
        wanted = maximum;
    void *more = realloc(*data, wanted * item);
    if (!more)
        return -ENOMEM;
    *data = more;
    *capacity = wanted;
    return 0;
}

/* Keeps the first error; at a bound only notes it. */
static int note(struct walk *w, int r)
{
    if (r == -ENOSPC)
        w->is_full = true;
    else if (r < 0 && !w->error)
        w->error = r;
    return r;
}

static uint64_t text_hash(const char *text)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3ull;
    return h ? h : 1;
}

/* Offset of a string that is kept once. */
static int intern(struct walk *w, const char *name, uint32_t *ret)
{
    struct scan_result *res = w->result;
    size_t length = strlen(name) + 1;
    uint32_t number;
    uint64_t hash = text_hash(name);

    number = map_find(&w->names, hash, 0);
    if (number) {
        const struct walk_seen *seen = map_at(&w->names, number);
        if (strcmp(res->strings + seen->value, name) == 0) {
            *ret = seen->value;
            return 0;
        }
    }
    if (res->s.string_bytes + length > w->string_capacity) {
        if (w->string_capacity + STRING_CHUNK > SCAN_STRINGS_MAX)
            return -ENOSPC;
        void *more = realloc(res->strings, w->string_capacity + STRING_CHUNK);
        if (!more)
            return -ENOMEM;
        res->strings = more;
        w->string_capacity += STRING_CHUNK;
    }
    *ret = res->s.string_bytes;
    memcpy(res->strings + *ret, name, length);
    res->s.string_bytes += (uint32_t)length;
    if (!number) { /* of two names with one hash only the first is found again */
        if (map_add(&w->names, hash, 0, &number) < 0)
            return -ENOMEM;
        ((struct walk_seen *)map_at(&w->names, number))->value = *ret;
    }
    return 0;
}

/* The strings are shared by all instances of a class and live as long as it does: each is read
 * once. */
int walk_attribute_name(struct walk *w, uint64_t key, char *buffer, size_t size)
{
    uint32_t number = map_find(&w->names, key, 1), text;
    int r;

    if (number) {
        const struct walk_seen *seen = map_at(&w->names, number);
        return snprintf(buffer, size, "%s", w->result->strings + seen->value);
    }
    r = pyobj_str(&w->py, key, buffer, size);
    if (r > 0 && intern(w, buffer, &text) == 0 && map_add(&w->names, key, 1, &number) == 0)
        ((struct walk_seen *)map_at(&w->names, number))->value = text;
    return r;
}

uint32_t walk_node(struct walk *w, uint32_t parent, enum scan_node_kind kind, const char *name,
                   uint32_t index)
{
    struct scan_result *res = w->result;
    void *nodes = res->nodes;
    uint32_t text = index;
    int r = grow(&nodes, &w->node_capacity, res->s.node_count, sizeof(*res->nodes), SCAN_NODES_MAX);

    res->nodes = nodes;
    if (r == 0 && kind != SCAN_INDEX)
        r = intern(w, name, &text);
    if (note(w, r) < 0)
        return SCAN_NONE;
    res->nodes[res->s.node_count] =
        (struct scan_node){.parent = parent, .name = text, .kind = (uint8_t)kind};
    return res->s.node_count++;
}

uint16_t walk_owner(struct walk *w, const char *name)
{
    struct scan_result *res = w->result;

    for (uint32_t i = 0; i < res->s.owner_count; i++)
        if (strcmp(res->owners[i], name) == 0)
            return (uint16_t)i;
    if (res->s.owner_count == SCAN_OWNERS_MAX)
        return SCAN_OWNERS_MAX - 1;
    snprintf(res->owners[res->s.owner_count], SCAN_OWNER_BYTES, "%s", name);
    return (uint16_t)res->s.owner_count++;
}

bool walk_visited(struct walk *w, uint64_t object)
{
    return map_find(&w->visited, object, 0);
}

bool walk_visit(struct walk *w, uint64_t object)
{
    uint32_t number;
    uint64_t maximum = w->input->maximum_objects ? w->input->maximum_objects : SCAN_OBJECTS_MAX;

    if (map_find(&w->visited, object, 0))
        return false;
    if (w->visited.count >= maximum) {
        note(w, -ENOSPC);
        return false;
    }
    if (map_add(&w->visited, object, 0, &number) < 0) {
        note(w, -ENOMEM);
        return false;
    }
    w->result->s.objects++;
    return true;
}

void walk_queue_add(struct walk *w, struct walk_queue *q, const struct walk_item *item)
{
    void *items = q->items;

    if (q->at && q->count == q->capacity) { /* what was taken makes room */
        memmove(q->items, q->items + q->at, (q->count - q->at) * sizeof(*q->items));
        q->count -= q->at;
        q->at = 0;
    }
    int r = grow(&items, &q->capacity, q->count, sizeof(*q->items), SCAN_NODES_MAX);
    q->items = items;
    if (note(w, r) == 0)
        q->items[q->count++] = *item;
}

void walk_tensor(struct walk *w, const struct walk_item *from, uint64_t object, uint32_t node,
                 uint8_t role)
{
    struct scan_result *res = w->result;
    void *tensors = res->tensors;
    int r = grow(&tensors, &w->tensor_capacity, res->s.tensor_count, sizeof(*res->tensors),
                 SCAN_TENSORS_MAX);

    res->tensors = tensors;
    if (note(w, r) < 0)
        return;
    res->tensors[res->s.tensor_count++] = (struct scan_tensor){
        .object = object, .node = node, .owner = from->owner, .role = role, .base = SCAN_NONE};
}
