/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as /proc/PID/maps. */
#include <stdlib.h>
#include <string.h>

#include "procmaps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct maps_reader r;
    struct maps_entry entry;
    struct caller_map *m;

    maps_reader_init(&r, (const char *)data, size);
    while (maps_next(&r, &entry)) {
        char name[CALLER_NAME_MAX];
        if (entry.start >= entry.end || strlen(entry.path) >= MAPS_PATH_MAX)
            abort();
        caller_name_from_path(entry.path, name);
        if (library_match(entry.path) >= library_count())
            abort();
    }
    if (caller_map_new((const char *)data, size, &m) < 0)
        return 0;
    maps_reader_init(&r, (const char *)data, size);
    while (maps_next(&r, &entry)) {
        caller_map_name(m, entry.start);
        caller_map_name(m, entry.end - 1);
    }
    caller_map_free(m);
    return 0;
}
