/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roots_result.c - the result of a scan: join, names, bytes and back.
 *
 * Invariants of a decoded result: every index is inside its list; a node's parent comes before it;
 * every name ends inside the strings.
 */
#include "roots_result.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAGIC 0x31304e414353554eull

struct wire_head {
    uint64_t magic;
    struct scan_summary summary;
};

struct scan_result *scan_result_free(struct scan_result *r)
{
    if (!r)
        return NULL;
    free(r->blocks);
    free(r->block_tensors);
    free(r->tensors);
    free(r->nodes);
    free(r->strings);
    free(r);
    return NULL;
}

/* The lists of a result, in their order on the wire. */
struct list {
    void **data;
    size_t bytes;
};
#define LIST_COUNT 5

static void lists_of(struct scan_result *r, struct list ret[LIST_COUNT])
{
    ret[0] = (struct list){(void **)&r->blocks, r->s.block_count * sizeof(*r->blocks)};
    ret[1] =
        (struct list){(void **)&r->block_tensors, r->s.block_count * sizeof(*r->block_tensors)};
    ret[2] = (struct list){(void **)&r->tensors, r->s.tensor_count * sizeof(*r->tensors)};
    ret[3] = (struct list){(void **)&r->nodes, r->s.node_count * sizeof(*r->nodes)};
    ret[4] = (struct list){(void **)&r->strings, r->s.string_bytes};
}

int scan_result_encode(const struct scan_result *r, void **ret_data, size_t *ret_bytes)
{
    struct scan_result copy = *r;
    struct wire_head head = {.magic = MAGIC, .summary = r->s};
    struct list lists[LIST_COUNT];
    size_t bytes = sizeof(head) + sizeof(r->devices) + sizeof(r->owners);
    char *data, *at;

    lists_of(&copy, lists);
    for (size_t i = 0; i < LIST_COUNT; i++)
        bytes += lists[i].bytes;
    data = at = malloc(bytes);
    if (!data)
        return -ENOMEM;
    at = mempcpy(at, &head, sizeof(head));
    at = mempcpy(at, r->devices, sizeof(r->devices));
    at = mempcpy(at, r->owners, sizeof(r->owners));
    for (size_t i = 0; i < LIST_COUNT; i++)
        if (lists[i].bytes)
            at = mempcpy(at, *lists[i].data, lists[i].bytes);
    *ret_data = data;
    *ret_bytes = bytes;
    return 0;
}

static bool text_ends(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

static bool summary_fits(const struct scan_summary *s)
{
    return s->block_count <= NPUALLOC_BLOCKS_MAX && s->tensor_count <= SCAN_TENSORS_MAX &&
           s->node_count <= SCAN_NODES_MAX && s->string_bytes <= SCAN_STRINGS_MAX &&
           s->device_count <= NPUALLOC_DEVICES_MAX && s->owner_count <= SCAN_OWNERS_MAX &&
           text_ends(s->torch, sizeof(s->torch)) && text_ends(s->framework, sizeof(s->framework)) &&
           text_ends(s->root, sizeof(s->root)) &&
           text_ends(s->blocks_reason, sizeof(s->blocks_reason)) &&
           text_ends(s->names_reason, sizeof(s->names_reason));
}

static bool nodes_fit(const struct scan_result *r)
{
    if (r->s.string_bytes && r->strings[r->s.string_bytes - 1])
        return false;
    for (uint32_t i = 0; i < r->s.node_count; i++) {
        const struct scan_node *n = &r->nodes[i];
        if ((n->parent != SCAN_NONE && n->parent >= i) || n->kind > SCAN_INDEX ||
            (n->kind != SCAN_INDEX && n->name >= r->s.string_bytes))
            return false;
    }
    return true;
}

static bool tensors_fit(const struct scan_result *r)
{
    for (uint32_t i = 0; i < r->s.tensor_count; i++) {
        const struct scan_tensor *t = &r->tensors[i];
        if (t->node >= r->s.node_count || t->owner >= r->s.owner_count ||
            (t->base != SCAN_NONE && (t->base >= r->s.tensor_count || t->base == i)) ||
            (t->block != SCAN_NONE && t->block >= r->s.block_count) || t->role > SCAN_BUFFER ||
            t->place > SCAN_PLACE_UNKNOWN || t->storage_bytes > TORCH_STORAGE_MAX)
            return false;
    }
    for (uint32_t i = 0; i < r->s.owner_count; i++)
        if (!text_ends(r->owners[i], SCAN_OWNER_BYTES))
            return false;
    for (uint32_t i = 0; i < r->s.block_count; i++) {
        const struct npualloc_block *b = &r->blocks[i];
        if ((r->block_tensors[i] != SCAN_NONE && r->block_tensors[i] >= r->s.tensor_count) ||
            b->state > NPUALLOC_UNMAPPED || b->device >= NPUALLOC_DEVICES_MAX ||
            b->bytes >= (uint64_t)1 << 47)
            return false;
    }
    return true;
}

int scan_result_decode(const void *data, size_t bytes, struct scan_result **ret)
{
    _cleanup_(scan_result_freep) struct scan_result *r = calloc(1, sizeof(*r));
    const char *at = data, *end = at + bytes;
    struct wire_head head;
    struct list lists[LIST_COUNT];
    size_t wanted = sizeof(head) + sizeof(r->devices) + sizeof(r->owners);

    if (!r)
        return -ENOMEM;
    if (bytes < wanted)
        return -EBADMSG;
    memcpy(&head, at, sizeof(head));
    if (head.magic != MAGIC || !summary_fits(&head.summary))
        return -EBADMSG;
    r->s = head.summary;
    at += sizeof(head);
    memcpy(r->devices, at, sizeof(r->devices));
    at += sizeof(r->devices);
    memcpy(r->owners, at, sizeof(r->owners));
    at += sizeof(r->owners);
    lists_of(r, lists);
    for (size_t i = 0; i < LIST_COUNT; i++) {
        if ((size_t)(end - at) < lists[i].bytes)
            return -EBADMSG;
        *lists[i].data = malloc(lists[i].bytes ? lists[i].bytes : 1);
        if (!*lists[i].data)
            return -ENOMEM;
        memcpy(*lists[i].data, at, lists[i].bytes);
        at += lists[i].bytes;
    }
    if (at != end || !nodes_fit(r) || !tensors_fit(r))
        return -EBADMSG;
    *ret = TAKE_PTR(r);
    return 0;
}

/* Puts text before what is already at the end of the buffer. */
static void prepend(char *buffer, size_t *at, const char *text, size_t length)
{
    if (length > *at) {
        text += length - *at;
        length = *at;
    }
    *at -= length;
    memcpy(buffer + *at, text, length);
}

size_t scan_path(const struct scan_result *r, uint32_t node, bool is_state, char *buffer,
                 size_t size)
{
    char path[SCAN_PATH_MAX], piece[32];
    size_t at = sizeof(path);
    bool is_first = true;

    for (; node != SCAN_NONE; node = r->nodes[node].parent) {
        const struct scan_node *n = &r->nodes[node];
        if (is_state && n->is_module_root)
            break;
        if (n->kind == SCAN_ROOT && !r->strings[n->name])
            continue; /* a root that is not part of its tensors' names */
        if (!is_first && at < sizeof(path) && path[at] != '[')
            prepend(path, &at, ".", 1);
        is_first = false;
        if (n->kind == SCAN_INDEX) {
            int length = snprintf(piece, sizeof(piece), "[%u]", n->name);
            prepend(path, &at, piece, (size_t)length);
            continue;
        }
        const char *name = r->strings + n->name;
        if (n->kind == SCAN_KEY)
            prepend(path, &at, "]", 1);
        prepend(path, &at, name, strlen(name));
        if (n->kind == SCAN_KEY)
            prepend(path, &at, "[", 1);
        if (!at)
            break;
    }
    size_t length = sizeof(path) - at;
    if (!size)
        return 0;
    if (length > size - 1)
        length = size - 1;
    memcpy(buffer, path + at, length);
    buffer[length] = '\0';
    return length;
}

void scan_coverage(const struct scan_result *r, const char **ret_blocks,
                   const char **ret_blocks_why, const char **ret_names, const char **ret_names_why)
{
    *ret_blocks = r->s.is_blocks_complete ? "full" : r->s.has_blocks ? "partial" : "none";
    *ret_blocks_why = r->s.blocks_reason[0] ? r->s.blocks_reason : NULL;
    *ret_names = !r->s.has_names ? "none" : r->s.is_cut ? "partial" : "full";
    *ret_names_why = r->s.names_reason[0] ? r->s.names_reason : NULL;
}

static uint32_t block_of(const struct scan_result *r, int device, uint64_t address)
{
    struct npualloc a = {.blocks = r->blocks, .block_count = r->s.block_count};
    const struct npualloc_block *b = npualloc_find(&a, device, address);
    return b ? (uint32_t)(b - r->blocks) : SCAN_NONE;
}

bool scan_block_name(const struct scan_result *r, int device, uint64_t address, char *buffer,
                     size_t size)
{
    uint32_t b = r->s.has_blocks ? block_of(r, device, address) : SCAN_NONE;

    if (b == SCAN_NONE || r->blocks[b].address != address || r->blocks[b].state != NPUALLOC_LIVE ||
        r->block_tensors[b] == SCAN_NONE)
        return false;
    scan_path(r, r->tensors[r->block_tensors[b]].node, true, buffer, size);
    return true;
}

int scan_join(struct scan_result *r)
{
    free(r->block_tensors);
    r->block_tensors = malloc((r->s.block_count + 1) * sizeof(*r->block_tensors));
    if (!r->block_tensors)
        return -ENOMEM;
    for (uint32_t i = 0; i < r->s.block_count; i++)
        r->block_tensors[i] = SCAN_NONE;
    for (uint32_t i = 0; i < r->s.tensor_count; i++) {
        struct scan_tensor *t = &r->tensors[i];
        t->block = SCAN_NONE;
        t->place = r->s.has_blocks ? SCAN_IN_NO_BLOCK : SCAN_PLACE_UNKNOWN;
        if (!r->s.has_blocks || t->device_type != TORCH_DEVICE_NPU || !t->data)
            continue;
        uint32_t b = block_of(r, t->device, t->data);
        if (b == SCAN_NONE)
            continue;
        switch (r->blocks[b].state) {
        case NPUALLOC_LIVE:
            t->place = SCAN_IN_LIVE;
            t->block = b;
            if (r->block_tensors[b] == SCAN_NONE)
                r->block_tensors[b] = t->base == SCAN_NONE ? i : t->base;
            break;
        case NPUALLOC_PENDING:
            t->place = SCAN_IN_PENDING;
            break;
        default:
            t->place = SCAN_IN_FREE;
        }
    }
    return 0;
}
