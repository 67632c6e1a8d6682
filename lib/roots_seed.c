/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roots_seed.c - where the walk begins.
 *
 * Order matters: an object keeps the first name it gets, so the table's roots come before frames
 * and globals, and what the collector tracks comes last.
 */
#include "roots_internal.h"

#include <errno.h>
#include <string.h>

#define DEPTH_ROOT 40u
#define DEPTH_LOOSE 8u /* below frames and globals */
#define OWNER_LOOSE "PTA@tensor"

/* A root of a framework was found: its parts by the table's rows, then the rest of it. */
static void root_take(struct walk *w, const char *framework, const char *from, const char *path,
                      uint64_t object)
{
    struct scan_summary *s = &w->result->s;
    uint32_t root = walk_node(w, SCAN_NONE, SCAN_ROOT, "", 0);

    if (root == SCAN_NONE || walk_visited(w, object))
        return;
    if (!s->framework[0]) {
        snprintf(s->framework, sizeof(s->framework), "%s", framework);
        snprintf(s->root, sizeof(s->root), "%s%s%s", from, path[0] ? ": " : "", path);
    }
    for (size_t i = 0; i < roots_count(w->input->table) && !w->error; i++) {
        const struct roots_row *row = roots_row(w->input->table, i);
        uint64_t part;
        int r;
        if (row->kind != ROOTS_PATH || strcmp(row->framework, framework) != 0)
            continue;
        if (strcmp(row->subject, "*") == 0)
            walk_from(w, object, root, walk_owner(w, row->object), DEPTH_ROOT);
        else if ((r = roots_follow(&w->py, object, row->subject, &part)) == 0)
            walk_from(w, part, walk_node(w, root, SCAN_ATTRIBUTE, row->subject, 0),
                      walk_owner(w, row->object), DEPTH_ROOT);
        else
            w->torn += r != -ENOENT;
    }
}

struct local_typed {
    struct walk *walk;
    const struct pyobj_frame *frame;
};

static void types_try(struct walk *w, const char *from, uint64_t value)
{
    const struct pyobj_type *type;

    if (pyobj_type(&w->py, value, &type) < 0 || type->kind != PYOBJ_OTHER)
        return;
    for (size_t i = 0; i < roots_count(w->input->table); i++) {
        const struct roots_row *row = roots_row(w->input->table, i);
        uint64_t object;
        if (row->kind == ROOTS_TYPE && strcmp(row->subject, type->name) == 0 &&
            roots_follow(&w->py, value, row->object, &object) == 0)
            root_take(w, row->framework, from, row->object, object);
    }
}

static int on_local(void *userdata, const char *name, uint64_t value)
{
    struct local_typed *l = userdata;

    types_try(l->walk, l->frame->function, value);
    return l->walk->error;
}

static int on_root_frame(void *userdata, const struct pyobj_frame *frame)
{
    struct walk *w = userdata;

    for (size_t i = 0; i < roots_count(w->input->table) && !w->error; i++) {
        const struct roots_row *row = roots_row(w->input->table, i);
        uint64_t object;
        if (row->kind == ROOTS_FRAME && roots_function_is(row->subject, frame->function) &&
            roots_frame_follow(&w->py, frame, row->object, &object) == 0)
            root_take(w, row->framework, frame->function, row->object, object);
    }
    return w->error;
}

static int on_type_frame(void *userdata, const struct pyobj_frame *frame)
{
    struct walk *w = userdata;
    struct local_typed l = {.walk = w, .frame = frame};

    pyobj_each_local(&w->py, frame, on_local, &l);
    return w->error;
}

static void main_types(struct walk *w)
{
    struct pyobj_pairs pairs;
    uint64_t dict, key, value;

    if (roots_module(&w->py, w->interpreter, "__main__", &dict) < 0 ||
        pyobj_dict_pairs(&w->py, dict, &pairs) < 0)
        return;
    while (!w->error && pyobj_next(&w->py, &pairs, &key, &value) > 0)
        types_try(w, "__main__", value);
}

/* Globals of every module whose name a row of the framework matches. */
static void module_globals(struct walk *w)
{
    struct pyobj_pairs pairs;
    uint64_t modules, key, module, dict;

    if (pyobj_modules(&w->py, w->interpreter, &modules) < 0 ||
        pyobj_dict_pairs(&w->py, modules, &pairs) < 0)
        return;
    while (!w->error && pyobj_next(&w->py, &pairs, &key, &module) > 0) {
        char name[PYOBJ_NAME_MAX];
        if (pyobj_str(&w->py, key, name, sizeof(name)) <= 0)
            continue;
        for (size_t i = 0; i < roots_count(w->input->table); i++) {
            const struct roots_row *row = roots_row(w->input->table, i);
            if (row->kind != ROOTS_GLOBALS || strcmp(row->framework, w->result->s.framework) != 0 ||
                !roots_match(row->subject, name) || pyobj_cell(&w->py, module, &dict) < 0)
                continue;
            walk_from(w, dict, walk_node(w, SCAN_NONE, SCAN_ROOT, name, 0),
                      walk_owner(w, row->object), DEPTH_LOOSE);
            break;
        }
    }
}

static bool is_of_framework(const struct walk *w, const char *module)
{
    for (size_t i = 0; i < roots_count(w->input->table); i++) {
        const struct roots_row *row = roots_row(w->input->table, i);
        if (row->kind == ROOTS_GLOBALS && roots_match(row->subject, module))
            return true;
    }
    return false;
}

bool seed_expects_root(struct walk *w)
{
    struct pyobj_pairs pairs;
    uint64_t modules, key, module;
    char name[PYOBJ_NAME_MAX];

    if (pyobj_modules(&w->py, w->interpreter, &modules) < 0 ||
        pyobj_dict_pairs(&w->py, modules, &pairs) < 0)
        return false;
    while (!w->error && pyobj_next(&w->py, &pairs, &key, &module) > 0)
        if (pyobj_str(&w->py, key, name, sizeof(name)) > 0 && is_of_framework(w, name))
            return true;
    return false;
}

void seed_roots(struct walk *w)
{
    pyobj_each_frame(&w->py, w->interpreter, on_root_frame, w);
    if (!w->error && !w->result->s.framework[0])
        pyobj_each_frame(&w->py, w->interpreter, on_type_frame, w);
    if (!w->error && !w->result->s.framework[0])
        main_types(w);
    if (!w->error && w->result->s.framework[0])
        module_globals(w);
}

struct loose {
    struct walk *walk;
    uint32_t node;
};

static int on_loose_local(void *userdata, const char *name, uint64_t value)
{
    struct loose *l = userdata;
    struct walk *w = l->walk;
    const struct pyobj_type *type;

    /* a frame's globals() or a module's dict would be walked under a wrong name */
    if (walk_pruned(w, name) || walk_visited(w, value) || pyobj_type(&w->py, value, &type) < 0)
        return w->error;
    if (type->kind == PYOBJ_OTHER || type->kind == PYOBJ_LIST || type->kind == PYOBJ_TUPLE ||
        type->kind == PYOBJ_DICT)
        walk_from(w, value, walk_node(w, l->node, SCAN_ATTRIBUTE, name, 0),
                  walk_owner(w, OWNER_LOOSE), DEPTH_LOOSE);
    return w->error;
}

static int on_loose_frame(void *userdata, const struct pyobj_frame *frame)
{
    struct walk *w = userdata;
    char name[PYOBJ_NAME_MAX + 4];

    if (strcmp(frame->function, "<module>") == 0)
        return 0; /* its locals are the module's globals */
    snprintf(name, sizeof(name), "%s()", frame->function);
    struct loose l = {w, walk_node(w, SCAN_NONE, SCAN_ROOT, name, 0)};
    if (l.node != SCAN_NONE)
        pyobj_each_local(&w->py, frame, on_loose_local, &l);
    return w->error;
}

void seed_frames(struct walk *w)
{
    struct loose l = {w, walk_node(w, SCAN_NONE, SCAN_ROOT, "", 0)};
    struct pyobj_pairs pairs;
    uint64_t dict, key, value;

    if (l.node != SCAN_NONE && roots_module(&w->py, w->interpreter, "__main__", &dict) == 0 &&
        pyobj_dict_pairs(&w->py, dict, &pairs) == 0)
        while (!w->error && pyobj_next(&w->py, &pairs, &key, &value) > 0) {
            char name[PYOBJ_NAME_MAX];
            if (pyobj_str(&w->py, key, name, sizeof(name)) > 0)
                on_loose_local(&l, name, value);
        }
    if (!w->error)
        pyobj_each_frame(&w->py, w->interpreter, on_loose_frame, w);
}

/* --- what the collector tracks --- */

struct tracked {
    struct walk *walk;
    struct map wanted; /* struct walk_seen: tensors that nothing named so far */
    bool is_instances; /* this time look at instances, next at containers */
};

static int on_tracked_tensor(void *userdata, uint64_t object)
{
    struct tracked *t = userdata;
    const struct pyobj_type *type;
    uint32_t number;

    if (pyobj_type(&t->walk->py, object, &type) < 0 || !type->is_tensor ||
        walk_visited(t->walk, object) || map_find(&t->wanted, object, 0) ||
        t->wanted.count >= SCAN_TENSORS_MAX)
        return t->walk->error;
    if (map_add(&t->wanted, object, 0, &number) < 0)
        t->walk->error = -ENOMEM;
    return t->walk->error;
}

static void tracked_take(struct tracked *t, uint64_t value, const char *holder,
                         enum scan_node_kind kind, const char *name, uint32_t index)
{
    struct walk *w = t->walk;
    uint32_t number = map_find(&t->wanted, value, 0), node;

    if (!number)
        return;
    map_remove(&t->wanted, number);
    node = walk_node(w, SCAN_NONE, SCAN_ROOT, holder, 0);
    if (node != SCAN_NONE && kind != SCAN_ROOT)
        node = walk_node(w, node, kind, name, index);
    walk_from(w, value, node, walk_owner(w, OWNER_LOOSE), DEPTH_LOOSE);
}

static int on_tracked_holder(void *userdata, uint64_t object)
{
    struct tracked *t = userdata;
    struct pyobj *p = &t->walk->py;
    const struct pyobj_type *type;
    struct pyobj_pairs pairs;
    uint64_t items, count, key, value;
    char name[PYOBJ_NAME_MAX];

    if (!t->wanted.count)
        return 1;
    if (pyobj_type(p, object, &type) < 0)
        return t->walk->error;
    if (t->is_instances != (type->kind == PYOBJ_OTHER) ||
        (type->kind == PYOBJ_OTHER && !type->is_heap))
        return t->walk->error;
    if (type->kind == PYOBJ_LIST || type->kind == PYOBJ_TUPLE) {
        if (pyobj_items(p, object, type, &items, &count) < 0)
            return t->walk->error;
        for (uint64_t i = 0; i < count && image_u64(p->image, items + 8 * i, &value) == 0; i++)
            tracked_take(t, value, type->name, SCAN_INDEX, NULL, (uint32_t)i);
        return t->walk->error;
    }
    if ((type->kind == PYOBJ_DICT ? pyobj_dict_pairs(p, object, &pairs)
                                  : pyobj_attribute_pairs(p, object, type, &pairs)) < 0)
        return t->walk->error;
    while (!t->walk->error && pyobj_next(p, &pairs, &key, &value) > 0)
        if (map_find(&t->wanted, value, 0) && pyobj_key_text(p, key, name, sizeof(name)) > 0)
            tracked_take(t, value, type->name, type->kind == PYOBJ_DICT ? SCAN_KEY : SCAN_ATTRIBUTE,
                         name, 0);
    return t->walk->error;
}

void seed_tracked(struct walk *w)
{
    struct tracked t = {.walk = w, .is_instances = true};
    const uint64_t maximum = 4ull * SCAN_OBJECTS_MAX;

    map_init(&t.wanted, sizeof(struct walk_seen), 8, NULL);
    pyobj_each_tracked(&w->py, w->interpreter, maximum, on_tracked_tensor, &t);
    for (int pass = 0; pass < 2 && t.wanted.count && !w->error; pass++) {
        pyobj_each_tracked(&w->py, w->interpreter, maximum, on_tracked_holder, &t);
        t.is_instances = false;
    }
    /* held by something that is not tracked, or by native code alone */
    for (uint32_t n = map_next(&t.wanted, 0); n && !w->error; n = map_next(&t.wanted, 0)) {
        const struct walk_seen *seen = map_at(&t.wanted, n);
        tracked_take(&t, seen->key, "(no referrer)", SCAN_ROOT, NULL, 0);
    }
    map_clear(&t.wanted);
}
