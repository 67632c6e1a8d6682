/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atb_ops.c - see atb_ops.h.
 *
 * Bounds: CLASSES_MAX classes per answer (the rest is in the last, unnamed), NAMES_MAX names kept.
 */
#include "atb_ops.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "elf_image.h"
#include "event.h"
#include "mapped_file.h"
#include "procfs.h"
#include "procmaps.h"

#define CLASSES_MAX 256u
#define NAMES_MAX 1024u
#define MAPS_BYTES_MAX (64u << 20)
/* An object points behind two words of its class's table. Source: Itanium C++ ABI 2.5.2. */
#define TABLE_HEAD_BYTES 16u

struct atb_names {
    struct {
        uint32_t tgid;
        uint64_t table;
        char name[64];
    } items[NAMES_MAX];
    uint32_t count, next;
};

struct atb_names *atb_names_free(struct atb_names *n)
{
    free(n);
    return NULL;
}

/* "_ZTVN3atb13RopeOperationE" as "RopeOperation": the last part of a nested name. */
static void class_of(const char *symbol, char *ret, size_t ret_bytes)
{
    const char *p = symbol + 4;

    ret[0] = '\0';
    if (strncmp(symbol, "_ZTV", 4) != 0)
        return;
    if (*p == 'N')
        p++;
    while (*p >= '1' && *p <= '9') {
        char *end;
        unsigned long bytes = strtoul(p, &end, 10);
        if (bytes > strnlen(end, 256))
            return;
        snprintf(ret, ret_bytes, "%.*s", (int)bytes, end);
        p = end + bytes;
    }
}

static void name_from_file(uint32_t tgid, const struct maps_entry *entry, uint64_t address,
                           char *ret, size_t ret_bytes)
{
    _cleanup_mapped_file_ struct mapped_file file = MAPPED_FILE_NONE;
    struct elf_image *e = calloc(1, sizeof(*e));
    _cleanup_free_ struct elf_image *owned = e;

    if (!e || mapped_file_get(tgid, entry, UINT64_MAX, &file) < 0)
        return;
    if (elf_image_init(e, file.data, file.bytes, NULL) == 0) {
        const char *symbol = NULL;
        uint64_t vaddr;
        if (elf_offset_to_vaddr(e, entry->offset + (address - entry->start), &vaddr) == 0)
            symbol = elf_image_dynamic_at(e, vaddr);
        if (symbol)
            class_of(symbol, ret, ret_bytes);
    }
    if (file.is_torn)
        ret[0] = '\0';
}

static void name_find(uint32_t tgid, uint64_t table, char *ret, size_t ret_bytes)
{
    struct maps_reader *reader = malloc(sizeof(*reader));
    _cleanup_free_ struct maps_reader *owned = reader;
    _cleanup_free_ char *text = NULL;
    uint64_t address = table - TABLE_HEAD_BYTES;
    struct maps_entry entry;
    ssize_t n = procfs_read(tgid, "maps", MAPS_BYTES_MAX, &text);

    ret[0] = '\0';
    if (n < 0 || !reader)
        return;
    maps_reader_init(reader, text, n);
    while (maps_next(reader, &entry) > 0)
        if (entry.inode && entry.start <= address && address < entry.end) {
            name_from_file(tgid, &entry, address, ret, ret_bytes);
            return;
        }
}

static const char *name_of(struct atb_names *n, uint32_t tgid, uint64_t table)
{
    for (uint32_t i = 0; i < n->count; i++)
        if (n->items[i].tgid == tgid && n->items[i].table == table)
            return n->items[i].name;
    uint32_t at = n->next++ % NAMES_MAX;
    if (n->count < NAMES_MAX)
        n->count++;
    n->items[at].tgid = tgid;
    n->items[at].table = table;
    name_find(tgid, table, n->items[at].name, sizeof(n->items[at].name));
    return n->items[at].name;
}

static void class_add(struct view_atb *classes, uint32_t *count, const char *name,
                      const struct nm_atb_totals *t)
{
    uint32_t i = 0;

    while (i < *count && strcmp(classes[i].operation, name) != 0)
        i++;
    if (i == CLASSES_MAX)
        i = CLASSES_MAX - 1;
    if (i == *count) {
        (*count)++;
        snprintf(classes[i].operation, sizeof(classes[i].operation), "%s",
                 i == CLASSES_MAX - 1 ? "" : name);
    }
    classes[i].objects++;
    classes[i].setup_count += t->setup_count;
    classes[i].execute_count += t->execute_count;
    if (t->workspace_max_bytes > classes[i].workspace_max_bytes)
        classes[i].workspace_max_bytes = t->workspace_max_bytes;
}

int atb_ops_each(int map_fd, struct atb_names **names, uint32_t tgid,
                 int (*fn)(void *, const struct view_atb *), void *userdata)
{
    struct view_atb *classes = calloc(CLASSES_MAX, sizeof(*classes));
    _cleanup_free_ struct view_atb *owned = classes;
    struct nm_atb_key key, next;
    struct nm_atb_totals totals;
    uint32_t count = 0;
    int r = 0;

    if (!*names)
        *names = calloc(1, sizeof(**names));
    if (!classes || !*names)
        return -ENOMEM;
    /* the map forgets its oldest: a walk that begins anew is bounded by its size */
    int more = bpf_map_get_next_key(map_fd, NULL, &next);
    for (uint32_t steps = 0; more == 0 && steps < 16384; steps++) {
        key = next;
        if (key.tgid == tgid && bpf_map_lookup_elem(map_fd, &key, &totals) == 0)
            class_add(classes, &count, totals.table ? name_of(*names, tgid, totals.table) : "",
                      &totals);
        more = bpf_map_get_next_key(map_fd, &key, &next);
    }
    for (uint32_t i = 0; i < count && r == 0; i++)
        r = fn(userdata, &classes[i]);
    return r;
}
