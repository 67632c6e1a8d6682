/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roots_path.c - from a frame or an object along a path of attributes, as rows of the table say it.
 */
#include <errno.h>
#include <string.h>

#include "roots_internal.h"

int roots_path_next(const char **path, char *name)
{
    size_t length = strcspn(*path, ".");

    if (!**path)
        return 0;
    if (!length || length >= PYOBJ_NAME_MAX)
        return -EINVAL;
    memcpy(name, *path, length);
    name[length] = '\0';
    *path += length + ((*path)[length] == '.');
    return 1;
}

int roots_follow(struct pyobj *p, uint64_t object, const char *path, uint64_t *ret)
{
    char name[PYOBJ_NAME_MAX];
    int r;

    while ((r = roots_path_next(&path, name)) > 0) {
        r = pyobj_attribute(p, object, name, &object);
        if (r < 0)
            return r;
    }
    if (r == 0)
        *ret = object;
    return r;
}

bool roots_function_is(const char *wanted, const char *found)
{
    const char *plain = strrchr(wanted, '.');
    /* before 3.11 frames have the plain name only; what hangs on the frame must fit anyway */
    return strcmp(wanted, found) == 0 ||
           (plain && !strchr(found, '.') && strcmp(plain + 1, found) == 0);
}

struct local_wanted {
    const char *name;
    uint64_t value;
};

static int on_local(void *userdata, const char *name, uint64_t value)
{
    struct local_wanted *wanted = userdata;

    if (strcmp(name, wanted->name) != 0)
        return 0;
    wanted->value = value;
    return 1;
}

int roots_frame_follow(struct pyobj *p, const struct pyobj_frame *frame, const char *path,
                       uint64_t *ret)
{
    char name[PYOBJ_NAME_MAX];
    struct local_wanted wanted = {.name = name};
    int r = roots_path_next(&path, name);

    if (r <= 0)
        return -ENOENT;
    r = pyobj_each_local(p, frame, on_local, &wanted);
    if (r <= 0)
        return r < 0 ? r : -ENOENT;
    return roots_follow(p, wanted.value, path, ret);
}

int roots_module(struct pyobj *p, uint64_t interpreter, const char *name, uint64_t *ret)
{
    uint64_t modules, module;
    int r = pyobj_modules(p, interpreter, &modules);

    if (r == 0)
        r = pyobj_dict_get(p, modules, name, &module);
    return r == 0 ? pyobj_cell(p, module, ret) : r;
}
