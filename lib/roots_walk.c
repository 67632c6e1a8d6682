/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roots_walk.c - breadth first from one object to the tensors below it.
 *
 * Must not: visit an object twice; read a tensor (that comes when the layout is known).
 * A module tree is followed by _parameters, _buffers and _modules before anything else is, so that
 * its tensors get the names that state_dict() gives them.
 */
#include "roots_internal.h"

#include <errno.h>
#include <string.h>

#define LOOK_ITEMS 32u /* a container whose first items are all plain values is left */

/* nn.Module's own attributes hold no tensors beside the three tables. */
static const char *const module_attributes[] = {"_parameters", "_buffers", "_modules"};
static const char *const module_plain[] = {"training",
                                           "_non_persistent_buffers_set",
                                           "_is_full_backward_hook",
                                           "_load_state_dict_pre_hooks",
                                           "_load_state_dict_post_hooks",
                                           "_state_dict_hooks",
                                           "_state_dict_pre_hooks"};

bool walk_pruned(const struct walk *w, const char *name)
{
    for (size_t i = 0; i < roots_count(w->input->table); i++) {
        const struct roots_row *row = roots_row(w->input->table, i);
        if (row->kind == ROOTS_PRUNE && roots_match(row->subject, name))
            return true;
    }
    return false;
}

/* Whether an object of this type can lead to tensors. */
static bool is_followed(const struct pyobj_type *t)
{
    switch (t->kind) {
    case PYOBJ_LIST:
    case PYOBJ_TUPLE:
    case PYOBJ_DICT:
        return true;
    case PYOBJ_OTHER:
        return t->is_tensor ||
               (t->is_heap && (t->has_managed_dict || t->dict_offset || t->has_slots));
    default:
        return false;
    }
}

/* Takes one value under a name: a tensor is noted, what leads on is queued. Returns whether it is
 * anything of the two. */
static bool value_take(struct walk *w, const struct walk_item *from, struct walk_queue *q,
                       uint64_t value, enum scan_node_kind kind, const char *name, uint32_t index,
                       uint8_t role)
{
    const struct pyobj_type *type;
    uint32_t node;

    if (pyobj_type(&w->py, value, &type) < 0) {
        w->result->s.skipped++;
        w->torn += role != SCAN_OTHER;
        return false;
    }
    if (!is_followed(type))
        return false;
    if (from->depth >= w->depth_max || !walk_visit(w, value))
        return true;
    node = walk_node(w, from->node, kind, name, index);
    if (node == SCAN_NONE)
        return true;
    if (type->is_tensor) {
        walk_tensor(w, from, value, node, role);
        return true;
    }
    if (type->is_nn_module) {
        w->result->nodes[node].is_module = 1;
        w->result->nodes[node].is_module_root = !w->result->nodes[from->node].is_module;
    }
    walk_queue_add(w, q,
                   &(struct walk_item){.object = value,
                                       .node = node,
                                       .depth = (uint8_t)(from->depth + 1),
                                       .role = role,
                                       .owner = from->owner});
    return true;
}

static void expand_sequence(struct walk *w, const struct walk_item *item,
                            const struct pyobj_type *type, struct walk_queue *q)
{
    uint64_t items, count, value, useful = 0;

    if (pyobj_items(&w->py, item->object, type, &items, &count) < 0) {
        w->result->s.skipped++;
        return;
    }
    for (uint64_t i = 0; i < count && !w->error; i++) {
        if (i == LOOK_ITEMS && !useful)
            return;
        if (image_u64(w->input->image, items + 8 * i, &value) < 0)
            return;
        useful += value_take(w, item, q, value, SCAN_INDEX, NULL, (uint32_t)i, item->role);
    }
}

static void expand_dict(struct walk *w, const struct walk_item *item, uint64_t dict,
                        enum scan_node_kind kind, struct walk_queue *q, uint8_t role)
{
    struct pyobj_pairs pairs;
    uint64_t key, value, seen = 0, useful = 0;

    /* a part of a module tree */
    bool is_tree = kind == SCAN_ATTRIBUTE && w->result->nodes[item->node].is_module;
    if (pyobj_dict_pairs(&w->py, dict, &pairs) < 0) {
        w->result->s.skipped++;
        w->torn += is_tree;
        return;
    }
    int r;
    while ((r = w->error ? 0 : pyobj_next(&w->py, &pairs, &key, &value)) > 0) {
        const struct pyobj_type *type;
        char name[PYOBJ_NAME_MAX];
        if (seen++ == LOOK_ITEMS && !useful)
            return;
        if (pyobj_type(&w->py, value, &type) < 0) {
            w->torn += is_tree;
            continue;
        }
        if (!is_followed(type))
            continue;
        useful++;
        if (map_find(&w->visited, value, 0))
            continue;
        if (pyobj_key_text(&w->py, key, name, sizeof(name)) < 0) {
            w->torn += is_tree;
            continue;
        }
        value_take(w, item, q, value, kind, name, 0, role);
    }
    w->torn += r < 0 && is_tree;
}

static size_t name_in(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return count;
}

/* The three tables of a module; the rest waits until its tree is done. */
static void module_attribute(struct walk *w, const struct walk_item *item, const char *name,
                             uint64_t value)
{
    static const uint8_t roles[] = {SCAN_PARAMETER, SCAN_BUFFER, SCAN_OTHER};
    size_t n = ARRAY_SIZE(module_attributes);
    size_t i = name_in(name, module_attributes, n);

    if (i < n)
        expand_dict(w, item, value, SCAN_ATTRIBUTE, &w->now, roles[i]);
    else if (name_in(name, module_plain, ARRAY_SIZE(module_plain)) == ARRAY_SIZE(module_plain) &&
             !strstr(name, "_hooks") && !walk_pruned(w, name))
        value_take(w, item, &w->later, value, SCAN_ATTRIBUTE, name, 0, SCAN_OTHER);
}

struct slot_context {
    struct walk *walk;
    const struct walk_item *item;
    struct walk_queue *queue;
};

static int on_slot(void *userdata, const char *name, uint64_t value)
{
    struct slot_context *c = userdata;
    if (!walk_pruned(c->walk, name))
        value_take(c->walk, c->item, c->queue, value, SCAN_ATTRIBUTE, name, 0, c->item->role);
    return c->walk->error;
}

static void expand_instance(struct walk *w, const struct walk_item *item,
                            const struct pyobj_type *type, struct walk_queue *q)
{
    struct pyobj_pairs pairs;
    uint64_t key, value;
    int r = pyobj_attribute_pairs(&w->py, item->object, type, &pairs);

    if (r == 0)
        while ((r = w->error ? 0 : pyobj_next(&w->py, &pairs, &key, &value)) > 0) {
            const struct pyobj_type *t;
            char name[PYOBJ_NAME_MAX];
            if (pyobj_type(&w->py, value, &t) < 0 || !is_followed(t) ||
                walk_attribute_name(w, key, name, sizeof(name)) <= 0)
                continue;
            if (type->is_nn_module)
                module_attribute(w, item, name, value);
            else if (!walk_pruned(w, name))
                value_take(w, item, q, value, SCAN_ATTRIBUTE, name, 0, item->role);
        }
    if (r < 0 && r != -ENODATA) {
        w->result->s.skipped++;
        w->torn += type->is_nn_module || w->result->nodes[item->node].kind == SCAN_ROOT;
    }
    if (type->has_slots) {
        struct slot_context c = {w, item, q};
        pyobj_slots(&w->py, item->object, type, on_slot, &c);
    }
}

static void expand(struct walk *w, const struct walk_item *item, struct walk_queue *q)
{
    const struct pyobj_type *type;

    if (pyobj_type(&w->py, item->object, &type) < 0) {
        w->result->s.skipped++;
        return;
    }
    switch (type->kind) {
    case PYOBJ_LIST:
    case PYOBJ_TUPLE:
        expand_sequence(w, item, type, q);
        break;
    case PYOBJ_DICT: /* also a class derived from it, whose attributes are left */
        /* a root that is a dict is a module's globals */
        expand_dict(w, item, item->object,
                    w->result->nodes[item->node].kind == SCAN_ROOT ? SCAN_ATTRIBUTE : SCAN_KEY, q,
                    item->role);
        break;
    default:
        expand_instance(w, item, type, q);
    }
}

void walk_from(struct walk *w, uint64_t object, uint32_t node, uint16_t owner, unsigned depth_max)
{
    struct walk_item first = {.object = object, .node = node, .owner = owner};
    const struct pyobj_type *type;

    if (node == SCAN_NONE)
        return;
    if (pyobj_type(&w->py, object, &type) < 0) {
        w->torn++;
        return;
    }
    if (!is_followed(type) || !walk_visit(w, object))
        return;
    if (type->is_tensor) {
        walk_tensor(w, &first, object, node, SCAN_OTHER);
        return;
    }
    if (type->is_nn_module) {
        w->result->nodes[node].is_module = 1;
        w->result->nodes[node].is_module_root = 1;
    }
    w->depth_max = (uint8_t)depth_max;
    w->now.at = w->now.count = w->later.at = w->later.count = 0;
    walk_queue_add(w, &w->now, &first);
    while (!w->error) {
        struct walk_item item;
        bool is_later = w->now.at == w->now.count;
        struct walk_queue *q = is_later ? &w->later : &w->now;
        if (q->at == q->count)
            break;
        item = q->items[q->at++];
        /* what hangs on an attribute of a module stays behind every module tree, too */
        expand(w, &item, is_later ? &w->later : &w->now);
        w->error = w->error ? w->error : image_stopped(w->input->image);
    }
}
