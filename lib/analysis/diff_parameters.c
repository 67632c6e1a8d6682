/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_parameters.c - see diff_parameters.h.
 */
#include "diff_parameters.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "diff_internal.h"
#include "scan_kind.h"
#include "sort.h"
#include "units.h"

/* A name and who has it; index + 1 in the tensors of each side, 0 not there. */
struct pair {
    uint32_t tensor[2];
};

struct pairs {
    const struct scan_result *side[2];
    struct diff *names; /* only its table of texts */
    struct pair *items; /* by number of the name - 1 */
    size_t count, capacity;
    uint64_t total[2]; /* storages of parameters and buffers */
    uint64_t compared, equal;
};

static int pair_at(struct pairs *p, int64_t number, struct pair **ret)
{
    if ((size_t)number > p->capacity) {
        size_t capacity = 2 * (size_t)number + 64;
        struct pair *items = reallocarray(p->items, capacity, sizeof(*items));
        if (!items)
            return -ENOMEM;
        memset(items + p->capacity, 0, (capacity - p->capacity) * sizeof(*items));
        p->items = items;
        p->capacity = capacity;
    }
    if ((size_t)number > p->count)
        p->count = (size_t)number;
    *ret = &p->items[number - 1];
    return 0;
}

/* Two models of one process (a drafter) may have the same names: the second gets a number. */
static int tensor_add(struct pairs *p, int side, uint32_t index)
{
    const struct scan_result *r = p->side[side];
    const struct scan_tensor *t = &r->tensors[index];
    char name[SCAN_PATH_MAX];
    size_t length = scan_path(r, t->node, t->role != SCAN_OTHER, name, sizeof(name) - 16);
    struct pair *pair;
    int k;

    for (unsigned i = 1; i < 1000; i++) {
        int64_t number = diff_name(p->names, name);
        if (number <= 0)
            return (int)number;
        k = pair_at(p, number, &pair);
        if (k < 0)
            return k;
        if (!pair->tensor[side]) {
            pair->tensor[side] = index + 1;
            return 0;
        }
        snprintf(name + length, sizeof(name) - length, "#%u", i + 1);
    }
    return 0;
}

static const struct scan_tensor *tensor_of(const struct pairs *p, const struct pair *pair, int side)
{
    return pair->tensor[side] ? &p->side[side]->tensors[pair->tensor[side] - 1] : NULL;
}

static uint64_t bytes_of(const struct scan_tensor *t)
{
    return t ? t->storage_bytes : 0;
}

static const char *name_of(const struct pairs *p, const struct pair *pair)
{
    return diff_text_of(p->names, (uint32_t)(pair - p->items) + 1);
}

static int64_t delta_of(const struct pairs *p, const struct pair *pair)
{
    return (int64_t)bytes_of(tensor_of(p, pair, DIFF_TO)) -
           (int64_t)bytes_of(tensor_of(p, pair, DIFF_FROM));
}

static bool is_parameter(const struct scan_tensor *t)
{
    return t && t->role != SCAN_OTHER;
}

/* What is worth a row; counts what was compared. */
static bool is_different(struct pairs *p, const struct pair *pair)
{
    const struct scan_tensor *a = tensor_of(p, pair, DIFF_FROM), *b = tensor_of(p, pair, DIFF_TO);

    if (is_parameter(a) || is_parameter(b)) {
        p->total[DIFF_FROM] += is_parameter(a) ? a->storage_bytes : 0;
        p->total[DIFF_TO] += is_parameter(b) ? b->storage_bytes : 0;
        if (a && b)
            p->compared++;
        if (a && b && a->storage_bytes == b->storage_bytes && a->dtype == b->dtype)
            p->equal++;
        else
            return true;
        return false;
    }
    uint64_t bytes = bytes_of(a) > bytes_of(b) ? bytes_of(a) : bytes_of(b);
    return bytes_of(a) != bytes_of(b) && bytes >= DIFF_OTHER_MIN_BYTES;
}

static const char *kind_of(const struct scan_tensor *a, const struct scan_tensor *b)
{
    if (!a)
        return "only_to";
    if (!b)
        return "only_from";
    return a->storage_bytes == b->storage_bytes  ? "dtype"
           : a->storage_bytes < b->storage_bytes ? "larger"
                                                 : "smaller";
}

static void write_side(const struct scan_tensor *t, const char *side, struct json *j)
{
    char key[32];

    if (!t)
        return;
    snprintf(key, sizeof(key), "%s_dtype", side);
    json_kstr(j, key, torch_dtype_name(t->dtype));
    snprintf(key, sizeof(key), "%s_shape", side);
    json_karray(j, key);
    for (unsigned i = 0; i < t->dim_count && i < TORCH_DIMS_KEPT; i++)
        json_i64(j, t->dims[i]);
    json_end(j);
}

static void write_row(const struct pairs *p, const struct pair *pair, struct json *j)
{
    const struct scan_tensor *a = tensor_of(p, pair, DIFF_FROM), *b = tensor_of(p, pair, DIFF_TO);
    const struct scan_result *r = p->side[b ? DIFF_TO : DIFF_FROM];

    json_object(j);
    json_kstr(j, "name", name_of(p, pair));
    json_kstr(j, "kind", kind_of(a, b));
    json_kstr(j, "role",
              !is_parameter(b ? b : a)              ? "other"
              : (b ? b : a)->role == SCAN_PARAMETER ? "parameter"
                                                    : "buffer");
    json_kstr(j, "owner", r->owners[(b ? b : a)->owner]);
    json_ku64(j, "from_bytes", bytes_of(a));
    json_ku64(j, "to_bytes", bytes_of(b));
    json_ki64(j, "delta_bytes", delta_of(p, pair));
    json_key(j, "ratio");
    if (a && b && a->storage_bytes)
        json_double(j, (double)b->storage_bytes / (double)a->storage_bytes);
    else
        json_null(j);
    write_side(a, "from", j);
    write_side(b, "to", j);
    json_end(j);
}

static void verdict_text(const struct pairs *p, const struct sort_key *order, size_t count,
                         char *text, size_t size)
{
    char from[UNITS_TEXT_BYTES], to[UNITS_TEXT_BYTES];
    const struct pair *most = count ? &p->items[order[0].index] : NULL;

    if (!most) {
        snprintf(text, size, "all %llu parameters have the same sizes on both sides",
                 (unsigned long long)p->compared);
        return;
    }
    const struct scan_tensor *a = tensor_of(p, most, DIFF_FROM), *b = tensor_of(p, most, DIFF_TO);
    units_format_bytes(from, bytes_of(a), UNITS_AUTO);
    units_format_bytes(to, bytes_of(b), UNITS_AUTO);
    if (!p->compared && p->total[DIFF_FROM] && p->total[DIFF_TO])
        snprintf(text, size,
                 "the two sides have no parameter in common: other layers, or another model");
    else if (a && b)
        snprintf(text, size, "%zu different, %llu equal; most: %.100s, %s -> %s", count,
                 (unsigned long long)p->equal, name_of(p, most), from, to);
    else
        snprintf(text, size, "%zu different, %llu equal; most: %.100s, %s on the %s side only",
                 count, (unsigned long long)p->equal, name_of(p, most), b ? to : from,
                 b ? "to" : "from");
}

static int write_all(struct pairs *p, uint32_t limit, struct json *j)
{
    _cleanup_free_ struct sort_key *order = calloc(p->count + 1, sizeof(*order));
    char text[ANALYSIS_TEXT_BYTES];
    size_t count = 0;

    if (!order)
        return -ENOMEM;
    for (size_t i = 0; i < p->count; i++)
        if (is_different(p, &p->items[i]))
            order[count++] = (struct sort_key){
                UINT64_MAX - (uint64_t)llabs(delta_of(p, &p->items[i])), (uint32_t)i};
    if (sort_keys(order, count) < 0)
        return -ENOMEM;
    verdict_text(p, order, count, text, sizeof(text));
    json_kobject(j, "parameters");
    json_kstr(j, "verdict", text);
    json_ku64(j, "compared", p->compared);
    json_ku64(j, "equal", p->equal);
    json_ku64(j, "different", count);
    json_ku64(j, "from_bytes", p->total[DIFF_FROM]);
    json_ku64(j, "to_bytes", p->total[DIFF_TO]);
    json_ki64(j, "delta_bytes", (int64_t)p->total[DIFF_TO] - (int64_t)p->total[DIFF_FROM]);
    json_kbool(j, "partial", p->side[0]->s.is_cut || p->side[1]->s.is_cut);
    json_karray(j, "tensors");
    for (size_t i = 0; i < count && (!limit || i < limit); i++)
        write_row(p, &p->items[order[i].index], j);
    json_end(j);
    json_end(j);
    return 0;
}

int diff_parameters_write(const struct scan_result *from, const struct scan_result *to,
                          uint32_t limit, struct json *j)
{
    struct pairs p = {.side = {from, to}};
    int r = diff_new(&p.names);

    for (int side = 0; r == 0 && side < 2; side++)
        for (uint32_t i = 0; r == 0 && i < p.side[side]->s.tensor_count; i++)
            if (scan_counts(&p.side[side]->tensors[i]))
                r = tensor_add(&p, side, i);
    if (r == 0)
        r = write_all(&p, limit, j);
    free(p.items);
    diff_free(p.names);
    return r;
}
