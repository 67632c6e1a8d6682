/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rt_pool.c - stream-ordered memory pools. Owns one reserved address range per pool; physical
 * memory is added in granules (halMemCreate, halMemMap) and given back by trim and destroy, so an
 * allocation that fits makes no driver call. Streams here are always done, so a free takes effect
 * at once.
 * Invariant: the chunks of a pool, in address order, cover [0, grown_bytes) without holes.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "rt.h"
#include "table.h"

#define GRANULE (32ull << 20)
#define CHUNK_ALIGN 512ull
enum { POOL_ATTR_RESERVED = 5, POOL_ATTR_RESERVED_HIGH, POOL_ATTR_USED, POOL_ATTR_USED_HIGH };
enum { POOL_ATTRS = 16 };

struct chunk {
    uint64_t offset;
    uint64_t size_bytes;
    bool used;
    struct chunk *prev, *next;
};

struct granule {
    void *handle;
    uint64_t offset;
    struct granule *below;
};

struct rt_pool {
    char *base;
    void *driver_pool;
    int device;
    uint64_t range_bytes;
    uint64_t grown_bytes, grown_high;
    uint64_t used_bytes, used_high;
    uint64_t attrs[POOL_ATTRS];
    struct chunk *first, *last;
    struct granule *top;
    struct rt_pool *next;
};

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rt_pool *pools;
static struct sim_table pointers; /* allocated address -> aux: chunk, size: pool */

static struct rt_pool *pool_find(void *pool)
{
    for (struct rt_pool *at = pools; at; at = at->next)
        if (at == pool)
            return at;
    return NULL;
}

int rt_pool_create(void **ret, const struct sim_pool_props *props)
{
    int32_t device = rt_current_device();
    size_t free_bytes, total_bytes;
    struct rt_pool *pool;
    void *base = NULL;
    int r = 0;

    if (props && props->location.type == SIM_LOCATION_DEVICE)
        r = rt_user_to_logic((int32_t)props->location.id, &device);
    if (!r && device < 0)
        r = SIM_RT_CONTEXT_NULL;
    if (!r)
        r = rt_error(halMemGetInfo((uint32_t)device, &free_bytes, &total_bytes));
    pool = r ? NULL : calloc(1, sizeof(*pool));
    if (!pool)
        return r ? r : SIM_RT_DRV_INTERNAL;
    pool->device = device;
    pool->range_bytes = props && props->max_bytes ? props->max_bytes : total_bytes;
    r = halMemAddressReserve(&base, pool->range_bytes, 0, NULL, 1);
    if (!r)
        r = halMemPoolCreate(&pool->driver_pool, pool->range_bytes, (uint32_t)device, base);
    if (r) {
        if (base)
            halMemAddressFree(base);
        free(pool);
        return rt_error(r);
    }
    pool->base = base;
    pthread_mutex_lock(&pool_lock);
    pool->next = pools;
    pools = pool;
    pthread_mutex_unlock(&pool_lock);
    *ret = pool;
    return 0;
}

static struct chunk *chunk_new(struct rt_pool *pool, struct chunk *after, uint64_t offset,
                               uint64_t size_bytes)
{
    struct chunk *made = calloc(1, sizeof(*made));

    if (!made)
        return NULL;
    made->offset = offset;
    made->size_bytes = size_bytes;
    made->prev = after;
    made->next = after ? after->next : pool->first;
    if (made->next)
        made->next->prev = made;
    else
        pool->last = made;
    if (after)
        after->next = made;
    else
        pool->first = made;
    return made;
}

static void chunk_remove(struct rt_pool *pool, struct chunk *old)
{
    if (old->prev)
        old->prev->next = old->next;
    else
        pool->first = old->next;
    if (old->next)
        old->next->prev = old->prev;
    else
        pool->last = old->prev;
    free(old);
}

static int pool_grow(struct rt_pool *pool, uint64_t need)
{
    struct sim_drv_prop prop = {
        .side = 1, .devid = (uint32_t)pool->device, .module_id = SIM_MODULE_APP, .pg_type = 1};
    uint64_t size = (need + GRANULE - 1) / GRANULE * GRANULE;
    struct granule *granule;
    int r;

    if (size > pool->range_bytes - pool->grown_bytes)
        return SIM_DRV_OUT_OF_MEMORY;
    granule = calloc(1, sizeof(*granule));
    if (!granule)
        return SIM_DRV_OUT_OF_MEMORY;
    r = halMemCreate(&granule->handle, size, &prop, 0);
    if (!r) {
        r = halMemMap(pool->base + pool->grown_bytes, size, 0, granule->handle, 0);
        if (!r && !chunk_new(pool, pool->last, pool->grown_bytes, size))
            r = SIM_DRV_OUT_OF_MEMORY;
        if (r)
            halMemRelease(granule->handle);
    }
    if (r) {
        free(granule);
        return r;
    }
    granule->offset = pool->grown_bytes;
    granule->below = pool->top;
    pool->top = granule;
    pool->grown_bytes += size;
    if (pool->grown_bytes > pool->grown_high)
        pool->grown_high = pool->grown_bytes;
    return SIM_DRV_OK;
}

static void merge(struct rt_pool *pool, struct chunk *left)
{
    struct chunk *right = left ? left->next : NULL;

    if (!right || left->used || right->used)
        return;
    left->size_bytes += right->size_bytes;
    chunk_remove(pool, right);
}

static struct chunk *pool_fit(struct rt_pool *pool, uint64_t size)
{
    struct chunk *best = NULL;

    for (struct chunk *at = pool->first; at; at = at->next)
        if (!at->used && at->size_bytes >= size && (!best || at->size_bytes < best->size_bytes))
            best = at;
    return best;
}

static int pool_take(struct rt_pool *pool, uint64_t size, void **ret)
{
    struct chunk *found = pool_fit(pool, size);
    struct sim_entry entry = {.mapped_bytes = (uint64_t)(uintptr_t)pool};

    if (!found) {
        int r = pool_grow(pool, size);

        if (r)
            return r;
        merge(pool, pool->last->prev);
        found = pool_fit(pool, size);
    }
    if (found->size_bytes > size) {
        if (!chunk_new(pool, found, found->offset + size, found->size_bytes - size))
            return SIM_DRV_OUT_OF_MEMORY;
        found->size_bytes = size;
    }
    entry.key = (uint64_t)(uintptr_t)(pool->base + found->offset);
    entry.size_bytes = size;
    entry.aux = (uint64_t)(uintptr_t)found;
    if (table_put(&pointers, &entry) < 0)
        return SIM_DRV_OUT_OF_MEMORY;
    found->used = true;
    pool->used_bytes += size;
    if (pool->used_bytes > pool->used_high)
        pool->used_high = pool->used_bytes;
    *ret = (void *)(uintptr_t)entry.key;
    return SIM_DRV_OK;
}

int rt_pool_malloc(void **dev_ptr, size_t size, void *handle, void *stream)
{
    struct rt_pool *pool;
    int r = rt_stream_check(stream);

    if (r)
        return r;
    if (!size || size > UINT64_MAX - CHUNK_ALIGN)
        return SIM_RT_PARAM_INVALID;
    pthread_mutex_lock(&pool_lock);
    pool = pool_find(handle);
    r = pool ? rt_error(pool_take(pool, (size + CHUNK_ALIGN - 1) & ~(CHUNK_ALIGN - 1), dev_ptr))
             : SIM_RT_PARAM_INVALID;
    pthread_mutex_unlock(&pool_lock);
    return r;
}

int rt_pool_free(void *ptr)
{
    struct sim_entry *entry;
    int r = SIM_RT_PARAM_INVALID;

    if (!__atomic_load_n(&pools, __ATOMIC_RELAXED))
        return r;
    pthread_mutex_lock(&pool_lock);
    entry = table_find(&pointers, (uint64_t)(uintptr_t)ptr);
    if (entry) {
        struct chunk *found = (struct chunk *)(uintptr_t)entry->aux;
        struct rt_pool *pool = (struct rt_pool *)(uintptr_t)entry->mapped_bytes;

        pool->used_bytes -= found->size_bytes;
        found->used = false;
        merge(pool, found);
        merge(pool, found->prev);
        table_remove(&pointers, entry);
        r = 0;
    }
    pthread_mutex_unlock(&pool_lock);
    return r;
}

/* Gives back granules from the top while they are free and more than keep_bytes stay. */
static void pool_trim(struct rt_pool *pool, uint64_t keep_bytes)
{
    while (pool->top && pool->grown_bytes > keep_bytes) {
        struct granule *top = pool->top;
        struct chunk *last = pool->last;

        if (top->offset < keep_bytes || last->used || last->offset > top->offset)
            return;
        last->size_bytes = top->offset - last->offset;
        if (!last->size_bytes)
            chunk_remove(pool, last);
        halMemUnmap(pool->base + top->offset);
        halMemRelease(top->handle);
        pool->grown_bytes = top->offset;
        pool->top = top->below;
        free(top);
    }
}

int rt_pool_trim(void *handle, size_t keep_bytes)
{
    struct rt_pool *pool;

    pthread_mutex_lock(&pool_lock);
    pool = pool_find(handle);
    if (pool)
        pool_trim(pool, keep_bytes);
    pthread_mutex_unlock(&pool_lock);
    return pool ? 0 : SIM_RT_PARAM_INVALID;
}

void rt_pool_trim_all(void)
{
    pthread_mutex_lock(&pool_lock);
    for (struct rt_pool *at = pools; at; at = at->next)
        pool_trim(at, 0);
    pthread_mutex_unlock(&pool_lock);
}

/* Drops a pool's own objects; its driver memory is the caller's business. */
static void pool_forget(struct rt_pool **at)
{
    struct rt_pool *pool = *at;
    size_t i = 0;

    *at = pool->next;
    while (i < pointers.capacity) {
        struct sim_entry *entry = &pointers.entries[i];

        if (entry->key && entry->mapped_bytes == (uint64_t)(uintptr_t)pool)
            table_remove(&pointers, entry);
        else
            i++;
    }
    while (pool->first)
        chunk_remove(pool, pool->first);
    while (pool->top) {
        struct granule *top = pool->top;

        pool->top = top->below;
        free(top);
    }
    free(pool);
}

static int pool_destroy(struct rt_pool **at)
{
    struct rt_pool *pool = *at;
    void *base = pool->base;
    int r;

    for (struct granule *top = pool->top; top; top = top->below) {
        halMemUnmap(pool->base + top->offset);
        halMemRelease(top->handle);
    }
    r = rt_error(halMemPoolDestroy(pool->driver_pool));
    halMemAddressFree(base);
    pool_forget(at);
    return r;
}

int rt_pool_destroy(void *handle)
{
    int r = SIM_RT_PARAM_INVALID;

    pthread_mutex_lock(&pool_lock);
    for (struct rt_pool **at = &pools; *at; at = &(*at)->next)
        if (*at == handle) {
            r = pool_destroy(at);
            break;
        }
    pthread_mutex_unlock(&pool_lock);
    return r;
}

void rt_pool_drop(int device)
{
    struct rt_pool **at = &pools;

    pthread_mutex_lock(&pool_lock);
    while (*at)
        if ((*at)->device == device)
            pool_destroy(at);
        else
            at = &(*at)->next;
    pthread_mutex_unlock(&pool_lock);
}

int rt_pool_attr(void *handle, int attr, void *value, int set)
{
    struct rt_pool *pool;
    int r = 0;

    pthread_mutex_lock(&pool_lock);
    pool = pool_find(handle);
    if (!pool || attr < 0 || attr >= POOL_ATTRS) {
        r = SIM_RT_PARAM_INVALID;
    } else if (set) {
        memcpy(&pool->attrs[attr], value, sizeof(uint64_t));
    } else {
        uint64_t number = attr == POOL_ATTR_RESERVED        ? pool->grown_bytes
                          : attr == POOL_ATTR_RESERVED_HIGH ? pool->grown_high
                          : attr == POOL_ATTR_USED          ? pool->used_bytes
                          : attr == POOL_ATTR_USED_HIGH     ? pool->used_high
                                                            : pool->attrs[attr];

        memcpy(value, &number, sizeof(number));
    }
    pthread_mutex_unlock(&pool_lock);
    return r;
}

void rt_pool_after_fork(void)
{
    pthread_mutex_init(&pool_lock, NULL);
    pools = NULL;
    table_clear(&pointers);
}
