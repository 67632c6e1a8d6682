/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rt_device.c - devices and contexts. Owns the visible-device list, the primary contexts and the
 * thread's current context. A reset frees all that the process holds on the device, at once.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "book.h"
#include "rt.h"

enum { RUNTIME_BLOCKS_MAX = 16 };

struct rt_context {
    int user;
    int device;
    unsigned generation; /* of the device when the context was made: a reset outdates it */
};

struct rt_device {
    struct rt_context primary;
    unsigned generation; /* odd while the device is open */
    void *blocks[RUNTIME_BLOCKS_MAX];
    int block_count;
};

static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rt_device devices[BOOK_DEVICES_MAX];
static int visible[BOOK_DEVICES_MAX];
static int visible_count = -1;
static __thread struct rt_context *current;

int rt_error(int drv)
{
    switch (drv) {
    case SIM_DRV_OK:
        return SIM_ACL_OK;
    case SIM_DRV_OUT_OF_MEMORY:
        return SIM_RT_MEMORY_ALLOCATION;
    case SIM_DRV_INVALID_VALUE:
    case SIM_DRV_INVALID_HANDLE:
    case SIM_DRV_PARA_ERROR:
        return SIM_RT_PARAM_INVALID;
    case SIM_DRV_INVALID_DEVICE:
        return SIM_RT_INVALID_DEVICE;
    default:
        return SIM_RT_DRV_INTERNAL;
    }
}

/* An ascending list without repeats; the first entry that is not ends it. */
static void visible_parse(const char *text, uint32_t count)
{
    visible_count = 0;
    if (!text) {
        for (uint32_t i = 0; i < count; i++)
            visible[visible_count++] = (int)i;
        return;
    }
    while (*text) {
        char *end;
        long id = strtol(text, &end, 10);

        if (end == text || id < 0 || id >= (long)count ||
            (visible_count && id <= visible[visible_count - 1]))
            return;
        visible[visible_count++] = (int)id;
        if (*end != ',')
            return;
        text = end + 1;
    }
}

static int visible_load(void)
{
    uint32_t count = 0;
    int r = 0;

    pthread_mutex_lock(&device_lock);
    if (visible_count < 0) {
        r = rt_error(halGetDeviceCount(&count));
        if (!r)
            visible_parse(getenv("ASCEND_RT_VISIBLE_DEVICES"), count);
    }
    pthread_mutex_unlock(&device_lock);
    return r;
}

int rt_user_to_logic(int32_t user, int32_t *logic)
{
    int r = visible_load();

    if (r)
        return r;
    if (user < 0 || user >= visible_count)
        return SIM_RT_INVALID_DEVICE;
    *logic = visible[user];
    return 0;
}

int rt_logic_to_user(int32_t logic, int32_t *user)
{
    int r = visible_load();

    if (r)
        return r;
    for (int i = 0; i < visible_count; i++)
        if (visible[i] == logic) {
            *user = i;
            return 0;
        }
    return SIM_RT_INVALID_DEVICE;
}

int rt_check_device(int32_t device)
{
    int32_t logic;

    return rt_user_to_logic(device, &logic);
}

int rt_device_count(int32_t *count)
{
    int r = visible_load();

    if (!r)
        *count = visible_count;
    return r;
}

static int runtime_blocks(struct rt_device *dev, int logic)
{
    const char *text = getenv("NPUSIM_RUNTIME");
    unsigned long long flag = (unsigned)logic | SIM_VIRT_DEV << SIM_FLAG_VIRT_SHIFT |
                              1u << SIM_FLAG_PHYS_SHIFT | SIM_FLAG_HUGE |
                              (unsigned long long)SIM_MODULE_RUNTIME << SIM_FLAG_MODULE_SHIFT;

    if (!text)
        text = "2M,4M";
    while (*text && dev->block_count < RUNTIME_BLOCKS_MAX) {
        uint64_t size = book_parse_bytes(text, 0);
        int r = size ? halMemAlloc(&dev->blocks[dev->block_count], size, flag) : 0;

        if (r)
            return rt_error(r);
        dev->block_count += size != 0;
        text += strcspn(text, ",");
        text += *text == ',';
    }
    return 0;
}

static void runtime_blocks_free(struct rt_device *dev)
{
    while (dev->block_count)
        halMemFree(dev->blocks[--dev->block_count]);
}

static int device_open(int32_t user, int logic)
{
    struct rt_device *dev = &devices[logic];
    int r = 0;

    pthread_mutex_lock(&device_lock);
    if (!(dev->generation & 1)) {
        r = rt_error(halDeviceOpen((uint32_t)logic, NULL, NULL));
        if (!r)
            r = runtime_blocks(dev, logic);
        if (r)
            runtime_blocks_free(dev);
        else
            dev->generation++;
        dev->primary = (struct rt_context){user, logic, dev->generation};
    }
    pthread_mutex_unlock(&device_lock);
    return r;
}

int rt_set_device(int32_t device)
{
    int32_t logic;
    int r = rt_user_to_logic(device, &logic);

    if (!r)
        r = device_open(device, logic);
    if (!r)
        current = &devices[logic].primary;
    return r;
}

int rt_device_reset(int32_t device)
{
    int32_t logic;
    int r = rt_user_to_logic(device, &logic);

    if (r)
        return r;
    pthread_mutex_lock(&device_lock);
    if (devices[logic].generation & 1) {
        runtime_blocks_free(&devices[logic]);
        rt_pool_drop(logic);
        r = rt_error(halDeviceClose((uint32_t)logic, NULL));
        devices[logic].generation++;
    }
    pthread_mutex_unlock(&device_lock);
    return r;
}

static bool context_live(const struct rt_context *context)
{
    return context && context->generation == devices[context->device].generation;
}

int rt_need_context(void)
{
    return context_live(current) ? 0 : SIM_RT_CONTEXT_NULL;
}

int rt_current_device(void)
{
    return context_live(current) ? current->device : -1;
}

int rt_get_device(int32_t *device)
{
    if (!context_live(current))
        return SIM_RT_CONTEXT_NULL;
    *device = current->user;
    return 0;
}

int rt_context_create(void **context, int32_t device)
{
    struct rt_context *made;
    int32_t logic;
    int r = rt_user_to_logic(device, &logic);

    if (!r)
        r = device_open(device, logic);
    if (r)
        return r;
    made = malloc(sizeof(*made));
    if (!made)
        return SIM_RT_DRV_INTERNAL;
    *made = (struct rt_context){device, logic, devices[logic].generation};
    current = made;
    *context = made;
    return 0;
}

int rt_context_destroy(void *context)
{
    struct rt_context *old = context;

    if (old == &devices[old->device].primary)
        return SIM_RT_PARAM_INVALID;
    if (current == old)
        current = NULL;
    free(old);
    return 0;
}

int rt_context_set(void *context)
{
    if (!context_live(context))
        return SIM_RT_CONTEXT_NULL;
    current = context;
    return 0;
}

int rt_context_get(void **context)
{
    if (!context_live(current))
        return SIM_RT_CONTEXT_NULL;
    *context = current;
    return 0;
}

/* The child of a fork has no device, whatever its parent had set. */
static void fork_child(void)
{
    pthread_mutex_init(&device_lock, NULL);
    current = NULL;
    for (int i = 0; i < BOOK_DEVICES_MAX; i++) {
        if (devices[i].generation & 1)
            devices[i].generation++;
        devices[i].block_count = 0;
    }
    rt_pool_after_fork();
    rt_stream_after_fork();
}

__attribute__((constructor)) static void rt_setup(void)
{
    pthread_atfork(NULL, NULL, fork_child);
}
