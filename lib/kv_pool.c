/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_pool.c - finds a server's pool of KV blocks; see kv_pool.h. Reading it: kv_pool_read.c.
 *
 * Invariant: each step from the scheduler to a number is in words[], so that the same step is known
 * to lead to the same place as long as they stay.
 */
#include "kv_pool.h"

#include <string.h>

#include "pyobj_frame.h"
#include "roots_internal.h"

#define INTERPRETER_ATTEMPTS 3u

struct finding {
    const struct scan_input *input;
    struct pyobj py;
    uint64_t interpreter;
    struct kv_pool pool;
    bool is_seen; /* a scheduler was there; what is missing is named */
    const char *missing;
    bool is_found;
};

static int word_add(struct kv_pool *pool, uint64_t address, uint64_t value)
{
    uint32_t at = pool->word_count;

    while (at > 0 && pool->words[at - 1].address > address)
        at--;
    if (at > 0 && pool->words[at - 1].address == address)
        return pool->words[at - 1].value == value ? 0 : -EAGAIN;
    if (pool->word_count == KV_POOL_WORDS_MAX)
        return -E2BIG;
    memmove(&pool->words[at + 1], &pool->words[at],
            (pool->word_count - at) * sizeof(pool->words[0]));
    pool->words[at] = (struct pyobj_word){address, value};
    pool->word_count++;
    return 0;
}

/* Follows a path and keeps what led along it; the last attribute's place is *ret, its own value may
 * change. */
static int place_follow(struct finding *f, uint64_t object, const char *path,
                        struct pyobj_place *ret)
{
    char name[PYOBJ_NAME_MAX];
    int r, count = 0;

    while ((r = roots_path_next(&path, name)) > 0) {
        if (count++)
            r = word_add(&f->pool, ret->slot, ret->value);
        if (r >= 0)
            r = pyobj_attribute_place(&f->py, object, name, ret);
        for (uint32_t i = 0; r == 0 && i < ret->word_count; i++)
            r = word_add(&f->pool, ret->words[i].address, ret->words[i].value);
        if (r < 0)
            return r;
        object = ret->value;
    }
    return r < 0 ? r : count ? 0 : -EINVAL;
}

/* A number that does not change; 0 when there is none. */
static uint64_t fixed_number(struct finding *f, uint64_t scheduler, const char *path, bool is_size)
{
    const struct pyobj_type *type;
    uint64_t object, items, count;
    int64_t value = 0;

    if (roots_follow(&f->py, scheduler, path, &object) < 0 || pyobj_type(&f->py, object, &type) < 0)
        return 0;
    if (is_size)
        return (type->kind == PYOBJ_LIST || type->kind == PYOBJ_TUPLE) &&
                       pyobj_items(&f->py, object, type, &items, &count) == 0
                   ? count
                   : 0;
    return type->kind == PYOBJ_INT && pyobj_int(&f->py, object, &value) == 0 && value > 0 &&
                   (uint64_t)value <= KV_POOL_BLOCKS_MAX
               ? (uint64_t)value
               : 0;
}

/* The number of blocks, which must stay what it is. */
static int total_take(struct finding *f, uint64_t scheduler, const char *path)
{
    struct pyobj_place place;
    uint64_t total = fixed_number(f, scheduler, path, false);
    int r = total ? place_follow(f, scheduler, path, &place) : -ENOENT;

    if (r == 0)
        r = word_add(&f->pool, place.slot, place.value);
    if (r == 0)
        f->pool.total_blocks = total;
    return image_stopped(f->input->image);
}

/* A number that changes: an int, or something that has a length. 1 taken; 0 not such a thing. */
static int count_take(struct finding *f, uint64_t scheduler, const char *path,
                      enum kv_pool_what what)
{
    struct kv_pool *pool = &f->pool;
    const struct pyobj_type *type;
    struct pyobj_place place;
    uint32_t words = pool->word_count;
    struct pyobj_word kept[KV_POOL_WORDS_MAX];
    int r;

    memcpy(kept, pool->words, sizeof(kept));
    r = place_follow(f, scheduler, path, &place);
    if (r == 0)
        r = pyobj_type(&f->py, place.value, &type);
    bool is_int = what == KV_POOL_FREE;
    if (r == 0 && pool->count_count < KV_POOL_COUNTS_MAX &&
        (is_int ? type->kind == PYOBJ_INT : type->kind == PYOBJ_LIST || type->is_deque)) {
        pool->counts[pool->count_count++] = (struct kv_pool_count){
            .slot = place.slot, .type = type->address, .what = (uint8_t)what, .is_int = is_int};
        return 1;
    }
    memcpy(pool->words, kept, sizeof(kept));
    pool->word_count = words;
    return image_stopped(f->input->image);
}

static bool has_count(const struct kv_pool *pool, enum kv_pool_what what)
{
    for (uint32_t i = 0; i < pool->count_count; i++)
        if (pool->counts[i].what == what)
            return true;
    return false;
}

/* One row of a number. Returns negative when reading has ended. */
static int row_take(struct finding *f, uint64_t scheduler, const struct roots_row *row)
{
    static const char *const counts[] = {
        [KV_POOL_FREE] = "free", [KV_POOL_RUNNING] = "running", [KV_POOL_WAITING] = "waiting"};
    struct kv_pool *pool = &f->pool;
    const struct {
        const char *what;
        uint64_t *number;
    } fixed[] = {
        {"block_tokens", &pool->block_tokens},
        {"model_len", &pool->model_len},
    };

    if (strcmp(row->subject, "total") == 0 && !pool->total_blocks)
        return total_take(f, scheduler, row->object);

    for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
        if (strcmp(row->subject, fixed[i].what) == 0 && !*fixed[i].number)
            *fixed[i].number = fixed_number(f, scheduler, row->object, false);
    if (strcmp(row->subject, "groups") == 0 && !pool->groups)
        pool->groups = (uint32_t)fixed_number(f, scheduler, row->object, true);
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++)
        if (strcmp(row->subject, counts[i]) == 0 &&
            (i == KV_POOL_WAITING || !has_count(pool, (enum kv_pool_what)i)))
            return count_take(f, scheduler, row->object, (enum kv_pool_what)i);
    return 0;
}

/* Whether the object is a scheduler that has a pool; fills f->pool. */
static int scheduler_try(struct finding *f, const char *framework, uint64_t scheduler)
{
    const struct roots_table *table = f->input->table;

    f->pool = (struct kv_pool){.python_minor = f->input->python_minor};
    f->is_seen = true;
    for (size_t i = 0; i < roots_count(table); i++) {
        const struct roots_row *row = roots_row(table, i);
        int r = row->kind == ROOTS_POOL && strcmp(row->framework, framework) == 0
                    ? row_take(f, scheduler, row)
                    : 0;
        if (r < 0)
            return r;
    }
    /* also where it cannot be read twice the same: the first reading must verify */
    f->missing = !f->pool.total_blocks                ? "total"
                 : !has_count(&f->pool, KV_POOL_FREE) ? "free"
                                                      : NULL;
    f->is_found = !f->missing && kv_pool_check(&f->pool);
    return f->is_found;
}

static int on_local(void *userdata, const char *name, uint64_t value)
{
    struct finding *f = userdata;
    const struct roots_table *table = f->input->table;
    const struct pyobj_type *type;

    if (pyobj_type(&f->py, value, &type) < 0 || type->kind != PYOBJ_OTHER)
        return image_stopped(f->input->image);
    for (size_t i = 0; i < roots_count(table); i++) {
        const struct roots_row *row = roots_row(table, i);
        uint64_t object;
        int r = row->kind == ROOTS_POOL_TYPE && strcmp(row->subject, type->name) == 0 &&
                        roots_follow(&f->py, value, row->object, &object) == 0
                    ? scheduler_try(f, row->framework, object)
                    : 0;
        if (r)
            return r;
    }
    return 0;
}

static int on_frame(void *userdata, const struct pyobj_frame *frame)
{
    struct finding *f = userdata;
    const struct roots_table *table = f->input->table;

    for (size_t i = 0; i < roots_count(table); i++) {
        const struct roots_row *row = roots_row(table, i);
        uint64_t object;
        int r = row->kind == ROOTS_POOL_FRAME && roots_function_is(row->subject, frame->function) &&
                        roots_frame_follow(&f->py, frame, row->object, &object) == 0
                    ? scheduler_try(f, row->framework, object)
                    : 0;
        if (r)
            return r;
    }
    return image_stopped(f->input->image);
}

static int on_typed_frame(void *userdata, const struct pyobj_frame *frame)
{
    struct finding *f = userdata;
    int r = pyobj_each_local(&f->py, frame, on_local, f);

    return f->is_found ? 1 : r < 0 ? image_stopped(f->input->image) : 0;
}

static void main_try(struct finding *f)
{
    struct pyobj_pairs pairs;
    uint64_t dict, key, value;

    if (roots_module(&f->py, f->interpreter, "__main__", &dict) < 0 ||
        pyobj_dict_pairs(&f->py, dict, &pairs) < 0)
        return;
    while (!f->is_found && pyobj_next(&f->py, &pairs, &key, &value) > 0)
        on_local(f, NULL, value);
}

static int interpreter_find(struct finding *f)
{
    for (unsigned i = 0; f->input->runtime && i < INTERPRETER_ATTEMPTS; i++) {
        if (pyobj_interpreter(&f->py, f->input->runtime, &f->interpreter) == 0)
            return 0;
        image_forget(f->input->image);
    }
    return -ENODATA;
}

static int answer(struct finding *f, struct kv_pool *ret, struct error *reterr)
{
    int r = image_stopped(f->input->image);

    if (f->is_found) {
        *ret = f->pool;
        return 0;
    }
    if (r < 0)
        return error_set(reterr, r, "the time or bytes for looking were over");
    if (f->is_seen && f->missing)
        return error_set(reterr, ENODATA,
                         "its scheduler has no number `%s` where it is known to be", f->missing);
    return error_set(reterr, ENODATA,
                     "no scheduler with a pool of KV blocks hangs on its frames (it may not be up "
                     "yet)");
}

int kv_pool_find(const struct scan_input *input, struct kv_pool *ret, struct error *reterr)
{
    const struct pyobj_layout *layout =
        input->python_minor ? pyobj_layout_find(input->python_minor) : NULL;
    struct finding f = {.input = input};
    int r;

    if (!layout)
        return error_set(reterr, ENODATA, "%s",
                         input->python_why ? input->python_why : "no CPython that is known");
    pyobj_init(&f.py, input->image, layout);
    if (interpreter_find(&f) < 0) {
        r = error_set(reterr, ENODATA,
                      "the interpreter's threads were not found where this version has them");
    } else {
        pyobj_each_frame(&f.py, f.interpreter, on_frame, &f);
        if (!f.is_found)
            pyobj_each_frame(&f.py, f.interpreter, on_typed_frame, &f);
        if (!f.is_found)
            main_try(&f);
        r = answer(&f, ret, reterr);
    }
    pyobj_done(&f.py);
    return r;
}
