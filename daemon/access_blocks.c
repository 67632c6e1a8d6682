/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access_blocks.c - the blocks of a window: into the kernel's tables, and their lives out of them.
 *
 * Invariants: from access_blocks_open() on the kernel programs follow every block of the process,
 * and only they change what they have entered; the daemon adds what was there before, never over an
 * entry or the mark of a block that has gone meanwhile. A block's life is judged once.
 */
#include "access_internal.h"

#include <bpf/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HELD_CHUNK_SHIFT 8

static int map_fd(const struct access_window *w, const char *name)
{
    return probe_set_map_fd(w->owner->m->probes, name);
}

static int table_make(struct access_window *w, const char *outer, const char *name, uint32_t value,
                      uint32_t entries, int *ret)
{
    *ret = bpf_map_create(BPF_MAP_TYPE_HASH, name, sizeof(uint64_t), value, entries, NULL);
    if (*ret < 0)
        return -errno;
    if (bpf_map_update_elem(map_fd(w, outer), &w->request.tgid, ret, BPF_ANY) < 0)
        return -errno;
    return 0;
}

static int window_write(struct access_window *w, const struct nm_access_window *value)
{
    return bpf_map_update_elem(map_fd(w, "access_windows"), &w->request.tgid, value, BPF_ANY) < 0
               ? -errno
               : 0;
}

int access_blocks_open(struct access_window *w)
{
    struct nm_access_window value = {.begin_ns = manager_boot_ns(), .serial = w->serial};
    int r;

    map_init(&w->held, sizeof(struct access_held), HELD_CHUNK_SHIFT, NULL);
    r = table_make(w, "access_blocks", "nm_access_block", sizeof(struct nm_access_block),
                   NM_ACCESS_BLOCKS_MAX, &w->blocks_fd);
    if (r == 0)
        r = table_make(w, "access_pages", "nm_access_page", sizeof(uint64_t), NM_ACCESS_PAGES_MAX,
                       &w->pages_fd);
    if (r == 0)
        r = window_write(w, &value);
    if (r == 0)
        r = probe_set_detail(w->owner->m->probes, w->request.tgid, true);
    if (r == 0)
        probe_set_access_windows(w->owner->m->probes, w->owner->count);
    return r;
}

void access_blocks_close(struct access_window *w)
{
    static const char *const names[] = {"access_windows", "access_blocks", "access_pages"};

    probe_set_detail(w->owner->m->probes, w->request.tgid, false);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        bpf_map_delete_elem(map_fd(w, names[i]), &w->request.tgid);
    if (w->blocks_fd >= 0)
        close(w->blocks_fd);
    if (w->pages_fd >= 0)
        close(w->pages_fd);
    w->blocks_fd = w->pages_fd = -1;
    map_clear(&w->held);
    probe_set_access_windows(w->owner->m->probes, w->owner->count);
}

/* --- what was there before --- */

/* Enters one block; 1: it has gone or was entered already. */
static int kernel_enter(struct access_window *w, uint64_t address, uint64_t bytes, uint64_t stream,
                        uint32_t device)
{
    int level = nm_access_level(bytes);
    struct nm_access_block block = {
        .life = {.address = address,
                 .stream = stream,
                 .flags = NM_ACCESS_HELD | device << NM_ACCESS_DEVICE_SHIFT},
        .bytes = bytes,
        .device = device,
    };

    if (bpf_map_update_elem(w->blocks_fd, &address, &block, BPF_NOEXIST) < 0)
        return errno == EEXIST ? 1 : -errno;
    for (uint32_t i = 0; i < NM_ACCESS_PAGES_PER_BLOCK; i++) {
        uint64_t key = nm_access_page_key(address, bytes, level, i);
        if (!key)
            break;
        if (bpf_map_update_elem(w->pages_fd, &key, &address, BPF_ANY) < 0)
            return -errno;
    }
    return 0;
}

static int hold(struct access_window *w, const struct access_held *block, uint64_t stream)
{
    uint32_t number;
    int r;

    if (map_find(&w->held, block->key, block->key_b))
        return 0;
    r = kernel_enter(w, block->key, block->size_bytes, stream, block->key_b);
    if (r == 1)
        return 0;
    if (r < 0) {
        w->hidden_bytes += block->size_bytes;
        return 0;
    }
    r = map_add(&w->held, block->key, block->key_b, &number);
    if (r == 0)
        *(struct access_held *)map_at(&w->held, number) = *block;
    return r;
}

static int on_entry(void *userdata, const struct ledger_entry *e)
{
    struct access_window *w = userdata;
    struct access_held block = {
        .key = e->address,
        .key_b = e->device,
        .owner = e->owner,
        .size_bytes = e->size_bytes,
        .allocated_ns = e->allocated_ns,
        .stack = e->stack,
    };

    /* a workspace is one entry per stream, not the allocator's block */
    if (e->level != LEVEL_BLOCK ||
        strcmp(ledger_owner_name(w->owner->m->ledger, e->owner), "PTA_WORKSPACE") == 0)
        return 0;
    return hold(w, &block, e->stream);
}

static int on_pool(void *userdata, const struct ledger_pool *pool)
{
    struct access_window *w = userdata;

    if (pool->component != NM_BLOCK_CACHING)
        return 0;
    w->hidden_bytes += pool->small_bytes > 0 ? (uint64_t)pool->small_bytes : 0;
    w->hidden_bytes += pool->before_attach_bytes > 0 ? (uint64_t)pool->before_attach_bytes : 0;
    return 0;
}

int access_blocks_hold(struct access_window *w, const struct scan_result *scan)
{
    struct ledger *l = w->owner->m->ledger;
    int r = ledger_each_entry(l, w->request.tgid, on_entry, w);

    if (!scan || !scan->s.has_blocks) {
        ledger_each_pool(l, w->request.tgid, on_pool, w);
        return r;
    }
    for (uint32_t i = 0; r == 0 && i < scan->s.block_count; i++) {
        const struct npualloc_block *b = &scan->blocks[i];
        struct access_held block = {
            .key = b->address,
            .key_b = b->device,
            .owner = OWNER_UNKNOWN,
            .size_bytes = b->bytes,
        };
        if (b->state == NPUALLOC_LIVE)
            r = hold(w, &block, b->stream);
    }
    return r;
}

/* Keys of the window's blocks, so that they can be deleted while walking. */
static int keys_collect(int fd, uint64_t **ret, size_t *ret_count)
{
    uint64_t *keys = calloc(NM_ACCESS_BLOCKS_MAX, sizeof(*keys)), key;
    size_t count = 0;
    int r;

    if (!keys)
        return -ENOMEM;
    for (r = bpf_map_get_next_key(fd, NULL, &key); r == 0 && count < NM_ACCESS_BLOCKS_MAX;
         r = bpf_map_get_next_key(fd, &keys[count - 1], &key))
        keys[count++] = key;
    *ret = keys;
    *ret_count = count;
    return 0;
}

int access_blocks_begin(struct access_window *w)
{
    _cleanup_free_ uint64_t *keys = NULL;
    struct nm_access_block block;
    size_t count = 0;
    int r = keys_collect(w->blocks_fd, &keys, &count);

    if (r < 0)
        return r;
    for (size_t i = 0; i < count; i++)
        if (bpf_map_lookup_elem(w->blocks_fd, &keys[i], &block) == 0 &&
            (block.life.flags & NM_ACCESS_GONE))
            bpf_map_delete_elem(w->blocks_fd, &keys[i]);
    w->begin_ns = manager_boot_ns();
    w->end_ns = w->begin_ns + w->request.for_ns;
    struct nm_access_window value = {
        .begin_ns = w->begin_ns,
        .end_ns = w->end_ns,
        .serial = ++w->owner->serial,
    };
    w->serial = value.serial;
    return window_write(w, &value);
}

/* --- lives --- */

static void life_add(struct access_window *w, const struct nm_access *life, uint64_t bytes)
{
    uint32_t device = NM_ACCESS_DEVICE(life->flags), number;
    struct inefficient_block b = {.life = *life, .size_bytes = bytes, .device = (int32_t)device};
    struct ledger_entry entry;

    number = life->flags & NM_ACCESS_HELD ? map_find(&w->held, life->address, device) : 0;
    if (number) {
        const struct access_held *held = map_at(&w->held, number);
        b.size_bytes = held->size_bytes;
        b.allocated_ns = held->allocated_ns;
        b.owner = held->owner;
        b.stack = held->stack;
    } else if (ledger_block(w->owner->m->ledger, w->request.tgid, (uint16_t)device, life->address,
                            &entry) == 0) {
        b.size_bytes = entry.size_bytes;
        b.allocated_ns = entry.allocated_ns;
        b.owner = entry.owner;
        b.stack = entry.stack;
    }
    if (inefficient_add(w->found, &b) < 0)
        w->hidden_bytes += b.size_bytes;
}

void access_blocks_life(struct access_window *w, const struct nm_access *life)
{
    life_add(w, life, 0);
}

void access_blocks_end(struct access_window *w, struct nm_access_window *ret)
{
    _cleanup_free_ uint64_t *keys = NULL;
    struct nm_access_block block;
    size_t count = 0;

    ring_sync(w->owner->m->ring);
    if (bpf_map_lookup_elem(map_fd(w, "access_windows"), &w->request.tgid, ret) < 0)
        *ret = (struct nm_access_window){.begin_ns = w->begin_ns};
    if (keys_collect(w->blocks_fd, &keys, &count) < 0)
        return;
    for (size_t i = 0; i < count; i++) {
        if (bpf_map_lookup_elem(w->blocks_fd, &keys[i], &block) < 0 ||
            (block.life.flags & (NM_ACCESS_GONE | NM_ACCESS_FREED)))
            continue;
        nm_access_finish(&block.life, 0, NULL, (uint32_t)ret->operation + 1,
                         nm_access_us(ret->clock), 0);
        life_add(w, &block.life, block.bytes);
    }
}
