/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dump_objects.c - what lib/pyobj reads of one local variable of a process, as JSON, for tests:
 * dump_objects PID FUNCTION LOCAL. The test compares it with what the process itself says.
 *
 * str and int as such; list and tuple as {"list": [...]}, dict as {"dict": [[key, value]...]}, an
 * instance as
 * {"type": name, "attributes": [[name, value]...], "slots": ...}; anything else as {"other": type
 * name}.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_write.h"
#include "pyobj_frame.h"
#include "scan_read.h"

#define DEPTH_MAX 12

struct dump {
    struct pyobj *py;
    struct json *json;
    const char *function, *local;
    uint64_t value;
};

static void object(struct dump *d, uint64_t address, int depth);

static void pairs(struct dump *d, struct pyobj_pairs *p, int depth)
{
    uint64_t key, value;

    json_array(d->json);
    while (pyobj_next(d->py, p, &key, &value) > 0) {
        json_array(d->json);
        object(d, key, depth);
        object(d, value, depth);
        json_end(d->json);
    }
    json_end(d->json);
}

struct slot_dump {
    struct dump *dump;
    int depth;
};

static int on_slot(void *userdata, const char *name, uint64_t value)
{
    struct slot_dump *s = userdata;
    json_array(s->dump->json);
    json_str(s->dump->json, name);
    object(s->dump, value, s->depth);
    json_end(s->dump->json);
    return 0;
}

static void instance(struct dump *d, uint64_t address, const struct pyobj_type *type, int depth)
{
    struct pyobj_pairs p;

    json_kstr(d->json, "type", type->name);
    if (pyobj_attribute_pairs(d->py, address, type, &p) == 0) {
        json_key(d->json, "attributes");
        pairs(d, &p, depth);
    }
    if (type->has_slots) {
        struct slot_dump s = {d, depth};
        json_karray(d->json, "slots");
        pyobj_slots(d->py, address, type, on_slot, &s);
        json_end(d->json);
    }
}

static void object(struct dump *d, uint64_t address, int depth)
{
    const struct pyobj_type *type;
    char text[4 * PYOBJ_NAME_MAX];
    uint64_t items, count, item;
    struct pyobj_pairs p;
    int64_t number;

    if (depth > DEPTH_MAX || pyobj_type(d->py, address, &type) < 0) {
        json_null(d->json);
        return;
    }
    if (type->kind == PYOBJ_STR && pyobj_str(d->py, address, text, sizeof(text)) >= 0) {
        json_str(d->json, text);
        return;
    }
    if (type->kind == PYOBJ_INT && pyobj_int(d->py, address, &number) == 0) {
        json_i64(d->json, number);
        return;
    }
    json_object(d->json);
    if (type->kind == PYOBJ_LIST || type->kind == PYOBJ_TUPLE) {
        json_karray(d->json, "list");
        if (pyobj_items(d->py, address, type, &items, &count) == 0)
            for (uint64_t i = 0; i < count; i++)
                if (image_u64(d->py->image, items + 8 * i, &item) == 0)
                    object(d, item, depth + 1);
        json_end(d->json);
    } else if (type->kind == PYOBJ_DICT && pyobj_dict_pairs(d->py, address, &p) == 0) {
        json_key(d->json, "dict");
        pairs(d, &p, depth + 1);
    } else if (type->kind == PYOBJ_OTHER && type->is_heap) {
        instance(d, address, type, depth + 1);
    } else {
        json_kstr(d->json, "other", type->name);
    }
    json_end(d->json);
}

static int on_local(void *userdata, const char *name, uint64_t value)
{
    struct dump *d = userdata;
    if (strcmp(name, d->local) != 0)
        return 0;
    d->value = value;
    return 1;
}

static int on_frame(void *userdata, const struct pyobj_frame *frame)
{
    struct dump *d = userdata;
    if (strcmp(frame->function, d->function) != 0)
        return 0;
    return pyobj_each_local(d->py, frame, on_local, d);
}

static int on_tracked(void *userdata, uint64_t address)
{
    uint64_t *count = userdata;
    (*count)++;
    return 0;
}

int main(int argc, char **argv)
{
    struct scan_handle *handle;
    struct error error = {0};
    struct json j = {0};
    struct pyobj py;
    uint64_t interpreter, modules, tracked = 0;

    if (argc != 4)
        return 2;
    if (scan_open((uint32_t)strtoul(argv[1], NULL, 10), &(struct scan_options){0}, &handle,
                  &error) < 0) {
        fprintf(stderr, "%s\n", error.what);
        return 1;
    }
    const struct scan_input *in = scan_handle_input(handle);
    const struct pyobj_layout *layout = pyobj_layout_find(in->python_minor);
    if (!layout) {
        fprintf(stderr, "no layout for 3.%u\n", in->python_minor);
        return 1;
    }
    pyobj_init(&py, in->image, layout);
    struct dump d = {.py = &py, .json = &j, .function = argv[2], .local = argv[3]};
    if (pyobj_interpreter(&py, in->runtime, &interpreter) < 0 ||
        pyobj_each_frame(&py, interpreter, on_frame, &d) <= 0) {
        fprintf(stderr, "no such frame or local\n");
        return 1;
    }
    json_object(&j);
    json_ku64(&j, "minor", in->python_minor);
    json_kbool(&j, "modules", pyobj_modules(&py, interpreter, &modules) == 0);
    pyobj_each_tracked(&py, interpreter, 1 << 22, on_tracked, &tracked);
    json_ku64(&j, "tracked", tracked);
    json_key(&j, "value");
    object(&d, d.value, 0);
    json_end(&j);
    if (json_finish(&j) < 0)
        return 1;
    puts(j.data);
    json_done(&j);
    pyobj_done(&py);
    scan_close(handle);
    return 0;
}
