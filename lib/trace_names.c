/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_names.c - the names of a trace: owners and frames; see trace_io.h.
 *
 * Invariant: a name that is not whole ends where its parts end.
 */
#include "trace_io.h"

#include <stdlib.h>
#include <string.h>

/* Of all names: a hostile trace has one of 4 KiB in each record. */
#define NAMES_BYTES_MAX (64u << 20)

struct name {
    struct map_key key;
    char *text;
    uint16_t bytes, left;
};

int trace_names_add(struct trace_names *names, const struct nm_trace_record *record)
{
    struct nm_trace_name part;
    uint32_t n;

    memcpy(&part, record, sizeof(part));
    if (!names->is_open) {
        map_init(&names->by_id, sizeof(struct name), 6, NULL);
        names->is_open = true;
    }
    size_t here = part.bytes < sizeof(part.text) ? part.bytes : sizeof(part.text);
    if (!part.id || !here || part.bytes > NM_TRACE_NAME_BYTES_MAX)
        return 1;
    n = map_find(&names->by_id, part.id, 0);
    if (!n) {
        if (names->bytes + part.bytes > NAMES_BYTES_MAX)
            return 1;
        char *text = calloc(1, (size_t)part.bytes + 1);
        if (!text || map_add(&names->by_id, part.id, 0, &n) < 0) {
            free(text);
            return -ENOMEM;
        }
        *(struct name *)map_at(&names->by_id, n) = (struct name){
            .key = {part.id, 0}, .text = text, .bytes = part.bytes, .left = part.bytes};
        names->bytes += part.bytes;
    }
    struct name *name = map_at(&names->by_id, n);
    if (part.bytes != name->left)
        return 1;
    memcpy(name->text + (name->bytes - name->left), part.text, here);
    name->left = (uint16_t)(name->left - here);
    return 0;
}

const char *trace_name(const struct trace_names *names, uint32_t id)
{
    uint32_t n = names->is_open && id ? map_find(&names->by_id, id, 0) : 0;
    return n ? ((const struct name *)map_at(&names->by_id, n))->text : NULL;
}

void trace_names_done(struct trace_names *names)
{
    if (!names->is_open)
        return;
    for (uint32_t n = 0; (n = map_next(&names->by_id, n));)
        free(((struct name *)map_at(&names->by_id, n))->text);
    map_clear(&names->by_id);
    names->is_open = false;
}
