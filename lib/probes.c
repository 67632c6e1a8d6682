/* SPDX-License-Identifier: Apache-2.0 */
/* probes.c - the table behind probes.h; nothing but the expansion of schema/probes.def. */
#include "probes.h"

#include <string.h>

#include "event.h"

static const struct probe_row rows[PROBE_COUNT] = {
    [PROBE_NONE] = {"", PROBE_LEVEL_ENTRY, NM_EVENT_NONE, false, false},
#define NM_CALL(id, symbol, level, kind, address, size, flags, handle, call_flags)                 \
    [PROBE_##id] = {symbol, PROBE_LEVEL_##level, NM_EVENT_##kind, false, false},
#define NM_ENTRY(id, symbol, program)                                                              \
    [PROBE_##id] = {symbol, PROBE_LEVEL_ENTRY, NM_EVENT_NONE, true, false},
#define NM_ACCESS(id, symbol, action, a, b, kind)                                                  \
    [PROBE_##id] = {symbol, PROBE_LEVEL_ENTRY, NM_EVENT_NONE, true, true},
#include "probes.def"
#undef NM_CALL
#undef NM_ENTRY
};

/* the rows of windows are the last ones */
_Static_assert((int)PROBE_ALWAYS_COUNT == (int)PROBE_CREATE_TENSOR, "order of probes.def");

const struct probe_row *probe_row(unsigned id)
{
    return &rows[id < PROBE_COUNT ? id : PROBE_NONE];
}

const char *probe_name(unsigned id)
{
    return probe_row(id)->symbol;
}

enum probe_id probe_find(const char *symbol)
{
    for (unsigned id = 1; id < PROBE_COUNT; id++)
        if (strcmp(rows[id].symbol, symbol) == 0)
            return (enum probe_id)id;
    return PROBE_NONE;
}

const char *probe_level_name(enum probe_level level)
{
    static const char *const names[] = {"ENTRY", "ACL", "HAL", "SCOPE", "COMM"};
    return (unsigned)level < sizeof(names) / sizeof(names[0]) ? names[level] : "";
}

const char *probe_id_name(unsigned id)
{
    static const char *const names[PROBE_COUNT] = {
        [PROBE_NONE] = "",
#define NM_CALL(id_, ...) [PROBE_##id_] = #id_,
#define NM_ENTRY(id_, ...) [PROBE_##id_] = #id_,
#define NM_ACCESS(id_, ...) [PROBE_##id_] = #id_,
#include "probes.def"
#undef NM_CALL
#undef NM_ENTRY
    };
    return names[id < PROBE_COUNT ? id : PROBE_NONE];
}
