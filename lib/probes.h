/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probes.h - the rows of schema/probes.def as numbers and a table.
 *
 * A row's number is its place in the file, counted from 1 over rows of every form alike; 0 is "no
 * row". bpf/ expands the same file with the same rule, so that nm_call.api and .hal mean the same.
 */
#ifndef NPUMEM_PROBES_H
#define NPUMEM_PROBES_H

#include <stdbool.h>
#include <stdint.h>

enum probe_id {
    PROBE_NONE = 0,
#define NM_CALL(id, symbol, level, kind, address, size, flags, handle, call_flags) PROBE_##id,
#define NM_ENTRY(id, symbol, program) PROBE_##id,
#define NM_ACCESS(id, symbol, action, a, b, kind) PROBE_##id,
#include "probes.def"
#undef NM_CALL
#undef NM_ENTRY
    PROBE_COUNT
};

/* Rows below this are probed always, the others while a window of accesses is open. */
enum {
    PROBE_ALWAYS_COUNT = 1
#define NM_CALL(...) +1
#define NM_ENTRY(...) +1
#include "probes.def"
#undef NM_CALL
#undef NM_ENTRY
};

/* The column "level" of NM_CALL. */
enum probe_level {
    PROBE_LEVEL_ENTRY = 0, /* NM_ENTRY rows */
    PROBE_LEVEL_ACL,
    PROBE_LEVEL_HAL,
    PROBE_LEVEL_SCOPE,
    PROBE_LEVEL_COMM
};

struct probe_row {
    const char *symbol;
    enum probe_level level;
    uint8_t kind;       /* enum nm_event_kind; NM_EVENT_NONE for NM_ENTRY rows */
    bool is_entry_only; /* no return probe (C++ that may throw, or nothing to learn from one) */
    bool is_access;     /* NM_ACCESS rows; is_entry_only too */
};

/* The row of an id; the row of PROBE_NONE (empty symbol) for a number outside the table. */
const struct probe_row *probe_row(unsigned id);

/* Symbol of a row for people, "" for 0 or an unknown number. */
const char *probe_name(unsigned id);

/* Id of a row as probes.def spells it ("ACL_MALLOC"): names its kernel programs. "" for 0. */
const char *probe_id_name(unsigned id);

/* Id of a symbol, PROBE_NONE if no row has it. Cost: linear in rows; for start-up and the CLI. */
enum probe_id probe_find(const char *symbol);

/* "ACL", "HAL", "SCOPE", "COMM", "ENTRY". */
const char *probe_level_name(enum probe_level level);

#endif
