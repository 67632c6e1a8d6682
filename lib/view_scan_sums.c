/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_scan_sums.c - a scan in sums: owners, element types, kinds of parameters, modules, layers.
 *
 * Owns: what a layer is: a module whose name is a number, and which is not below another such one.
 * Invariants: a tensor counts in one row of owners[], dtypes[] and parameters[]; in modules[] it
 * counts in its own module and in every one above.
 */
#include <errno.h>
#include <string.h>

#include "scan_kind.h"
#include "view_scan.h"

#define MODULES_MAX 8192u
#define MODULE_DEPTH 12u
#define DTYPES_MAX 256u

struct sum {
    uint64_t bytes, count;
};

static void sum_add(struct sum *s, const struct scan_tensor *t)
{
    s->bytes += t->storage_bytes;
    s->count++;
}

static void sum_write(struct json *j, const struct sum *s)
{
    json_ku64(j, "bytes", s->bytes);
    json_ku64(j, "tensors", s->count);
}

static void owners_array(struct json *j, const struct scan_result *r)
{
    struct sum sums[SCAN_OWNERS_MAX] = {{0}};

    for (uint32_t i = 0; i < r->s.tensor_count; i++)
        if (scan_counts(&r->tensors[i]))
            sum_add(&sums[r->tensors[i].owner], &r->tensors[i]);
    json_karray(j, "owners");
    for (uint32_t i = 0; i < r->s.owner_count; i++) {
        if (!sums[i].count)
            continue;
        json_object(j);
        json_kstr(j, "owner", r->owners[i]);
        sum_write(j, &sums[i]);
        json_end(j);
    }
    json_end(j);
}

static void dtypes_array(struct json *j, const struct scan_result *r)
{
    static const char *const roles[] = {"tensor", "parameter", "buffer"};
    struct sum sums[DTYPES_MAX][3] = {{{0}}};

    for (uint32_t i = 0; i < r->s.tensor_count; i++)
        if (scan_counts(&r->tensors[i]))
            sum_add(&sums[r->tensors[i].dtype][r->tensors[i].role], &r->tensors[i]);
    json_karray(j, "dtypes");
    for (unsigned dtype = 0; dtype < DTYPES_MAX; dtype++)
        for (unsigned role = 0; role < 3; role++) {
            if (!sums[dtype][role].count)
                continue;
            json_object(j);
            json_kstr(j, "dtype", torch_dtype_name((uint8_t)dtype));
            json_kstr(j, "role", roles[role]);
            sum_write(j, &sums[dtype][role]);
            json_end(j);
        }
    json_end(j);
}

/* Parameters and buffers by what they are for. */
static void parameters_array(struct json *j, const struct scan_result *r)
{
    static const char *const kinds[] = {"plain", "quantised", "scale"};
    struct sum sums[3][2] = {{{0}}};

    for (uint32_t i = 0; i < r->s.tensor_count; i++) {
        const struct scan_tensor *t = &r->tensors[i];
        char path[SCAN_PATH_MAX];
        if (!scan_counts(t) || t->role == SCAN_OTHER)
            continue;
        scan_path(r, t->node, false, path, sizeof(path));
        struct scan_kind kind = scan_kind_of(t, path);
        sum_add(&sums[kind.is_scale ? 2 : kind.is_quantised][kind.is_expert], t);
    }
    json_karray(j, "parameters");
    for (unsigned kind = 0; kind < 3; kind++)
        for (unsigned expert = 0; expert < 2; expert++) {
            if (!sums[kind][expert].count)
                continue;
            json_object(j);
            json_kstr(j, "kind", kinds[kind]);
            json_kbool(j, "expert", expert);
            sum_write(j, &sums[kind][expert]);
            json_end(j);
        }
    json_end(j);
}

/* --- the tree --- */

/* Every node's sum; for modules also by element type, in rows of `dtype_count`. */
struct tree {
    const struct scan_result *r;
    struct sum *sums;                /* by node */
    uint32_t *child, *side, *module; /* by node: links; number of a module, SCAN_NONE none */
    uint64_t *bytes;                 /* by module and element type */
    uint8_t dtypes[DTYPES_MAX];
    uint8_t dtype_number[DTYPES_MAX];
    unsigned dtype_count;
    uint32_t root, module_count;
};

static void tree_done(struct tree *t)
{
    free(t->sums);
    free(t->child);
    free(t->bytes);
}

static void dtypes_number(struct tree *t)
{
    bool used[DTYPES_MAX] = {false};

    for (uint32_t i = 0; i < t->r->s.tensor_count; i++)
        used[t->r->tensors[i].dtype] = true;
    for (unsigned d = 0; d < DTYPES_MAX; d++)
        if (used[d]) {
            t->dtype_number[d] = (uint8_t)t->dtype_count;
            t->dtypes[t->dtype_count++] = (uint8_t)d;
        }
}

static void tree_link(struct tree *t)
{
    const struct scan_result *r = t->r;
    uint32_t count = r->s.node_count;

    memset(t->child, 0xff, 2 * (size_t)count * sizeof(*t->child)); /* SCAN_NONE */
    t->root = SCAN_NONE;
    for (uint32_t i = count; i-- > 0;) {
        uint32_t parent = r->nodes[i].parent;
        t->side[i] = parent == SCAN_NONE ? t->root : t->child[parent];
        *(parent == SCAN_NONE ? &t->root : &t->child[parent]) = i;
        t->module[i] = r->nodes[i].is_module ? t->module_count++ : SCAN_NONE;
    }
}

/* Parents come before their children, so that one pass from the end adds everything up. */
static void tree_add_up(struct tree *t)
{
    const struct scan_result *r = t->r;

    for (uint32_t i = 0; i < r->s.tensor_count; i++) {
        const struct scan_tensor *tensor = &r->tensors[i];
        uint32_t n = tensor->node;
        if (!scan_counts(tensor))
            continue;
        sum_add(&t->sums[n], tensor);
        while (n != SCAN_NONE && t->module[n] == SCAN_NONE)
            n = r->nodes[n].parent;
        if (n != SCAN_NONE)
            t->bytes[(size_t)t->module[n] * t->dtype_count + t->dtype_number[tensor->dtype]] +=
                tensor->storage_bytes;
    }
    for (uint32_t i = r->s.node_count; i-- > 0;) {
        uint32_t above = r->nodes[i].parent;
        if (above == SCAN_NONE)
            continue;
        t->sums[above].bytes += t->sums[i].bytes;
        t->sums[above].count += t->sums[i].count;
        while (above != SCAN_NONE && t->module[above] == SCAN_NONE)
            above = r->nodes[above].parent;
        if (above == SCAN_NONE || t->module[i] == SCAN_NONE)
            continue;
        for (unsigned d = 0; d < t->dtype_count; d++)
            t->bytes[(size_t)t->module[above] * t->dtype_count + d] +=
                t->bytes[(size_t)t->module[i] * t->dtype_count + d];
    }
}

static int tree_make(struct tree *t, const struct scan_result *r)
{
    size_t count = r->s.node_count;

    *t = (struct tree){.r = r};
    t->sums = calloc(count + 1, sizeof(*t->sums));
    t->child = malloc((3 * count + 1) * sizeof(*t->child));
    if (!t->sums || !t->child)
        return -ENOMEM;
    t->side = t->child + count;
    t->module = t->side + count;
    dtypes_number(t);
    tree_link(t);
    t->bytes = calloc((size_t)t->module_count * t->dtype_count + 1, sizeof(*t->bytes));
    if (!t->bytes)
        return -ENOMEM;
    tree_add_up(t);
    return 0;
}

/* The next node in the order of the tree: down, else to the side, else up and to the side. */
static uint32_t tree_next(const struct tree *t, uint32_t node)
{
    if (t->child[node] != SCAN_NONE)
        return t->child[node];
    while (node != SCAN_NONE && t->side[node] == SCAN_NONE)
        node = t->r->nodes[node].parent;
    return node == SCAN_NONE ? SCAN_NONE : t->side[node];
}

static void dtypes_write(struct json *j, const struct tree *t, uint32_t node)
{
    const uint64_t *bytes = t->bytes + (size_t)t->module[node] * t->dtype_count;
    char names[256] = "";
    size_t length = 0;

    for (unsigned d = 0; d < t->dtype_count; d++)
        if (bytes[d] && length + 32 < sizeof(names))
            length += (size_t)snprintf(names + length, sizeof(names) - length, "%s%s",
                                       length ? "," : "", torch_dtype_name(t->dtypes[d]));
    json_kstr(j, "dtypes", names);
    json_kobject(j, "dtype_bytes");
    for (unsigned d = 0; d < t->dtype_count; d++)
        if (bytes[d])
            json_ku64(j, torch_dtype_name(t->dtypes[d]), bytes[d]);
    json_end(j);
}

static void module_object(struct json *j, const struct tree *t, uint32_t node, unsigned depth)
{
    char path[SCAN_PATH_MAX];

    scan_path(t->r, node, false, path, sizeof(path));
    json_object(j);
    json_kstr(j, "name", path);
    json_ku64(j, "depth", depth);
    sum_write(j, &t->sums[node]);
    dtypes_write(j, t, node);
    json_end(j);
}

/* Steps from the outermost module. */
static unsigned module_depth(const struct scan_result *r, uint32_t node)
{
    unsigned depth = 0;

    for (; node != SCAN_NONE && !r->nodes[node].is_module_root; node = r->nodes[node].parent)
        depth++;
    return depth;
}

static bool is_numbered(const struct scan_result *r, uint32_t node)
{
    const struct scan_node *n = &r->nodes[node];

    if (!n->is_module || n->kind == SCAN_INDEX || n->kind == SCAN_ROOT)
        return false;
    const char *name = r->strings + n->name;
    return name[0] && strspn(name, "0123456789") == strlen(name);
}

static bool is_layer(const struct scan_result *r, uint32_t node)
{
    if (!is_numbered(r, node))
        return false;
    for (uint32_t n = r->nodes[node].parent; n != SCAN_NONE; n = r->nodes[n].parent)
        if (is_numbered(r, n))
            return false;
    return true;
}

static void modules_write(struct json *j, const struct tree *t, bool layers_only)
{
    const struct scan_result *r = t->r;
    uint32_t shown = 0;

    json_karray(j, layers_only ? "layers" : "modules");
    for (uint32_t i = t->root; i != SCAN_NONE && shown < MODULES_MAX; i = tree_next(t, i)) {
        unsigned depth;
        if (!r->nodes[i].is_module || !t->sums[i].count || (layers_only && !is_layer(r, i)))
            continue;
        depth = module_depth(r, i);
        if (depth > MODULE_DEPTH)
            continue;
        module_object(j, t, i, depth);
        shown++;
    }
    json_end(j);
}

int view_scan_sums(const struct scan_result *r, struct json *j)
{
    struct tree t;
    int n = tree_make(&t, r);

    if (n == 0) {
        owners_array(j, r);
        dtypes_array(j, r);
        parameters_array(j, r);
        modules_write(j, &t, false);
        modules_write(j, &t, true);
    }
    tree_done(&t);
    return n;
}
