/* SPDX-License-Identifier: Apache-2.0 */
/*
 * analysis.h - from what was seen to a verdict, its evidence and the setting that helps.
 *
 * An analysis is a pure function of one input: a moment, series of samples, two tables, or a
 * recorded trace. It does not know whether that came from the live ledger, the store or a file.
 * Each is one file and one row of registry.def, and writes its members into the JSON object that is
 * open, so that the same text stands in a reply, a report and a golden test.
 */
#ifndef NPUMEM_ANALYSIS_H
#define NPUMEM_ANALYSIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "json_write.h"

/* A number that nobody could tell. */
#define ANALYSIS_UNKNOWN UINT64_MAX

static inline bool analysis_known(uint64_t value)
{
    return value != ANALYSIS_UNKNOWN;
}

#define ANALYSIS_NAME_BYTES 96
#define ANALYSIS_TEXT_BYTES 256
#define ADVICE_MAX 12

/* What a setting would change, and why it is believed to. */
struct advice {
    char setting[ANALYSIS_NAME_BYTES]; /* PYTORCH_NPU_ALLOC_CONF, gpu_memory_utilization, ... */
    char from[ANALYSIS_NAME_BYTES];    /* empty: not set */
    char to[2 * ANALYSIS_NAME_BYTES];
    uint64_t saves_bytes;   /* ANALYSIS_UNKNOWN: it cannot be told */
    const char *confidence; /* high, medium, low */
    const char *verb;       /* what shows more */
    char evidence[ANALYSIS_TEXT_BYTES];
};

struct advice_list {
    struct advice items[ADVICE_MAX];
    size_t count;
};

/* Adds a row, at most ADVICE_MAX; the rest is left out (they come in order of weight). */
__attribute__((format(printf, 7, 8))) void advice_add(struct advice_list *list, const char *setting,
                                                      const char *from, const char *to,
                                                      uint64_t saves_bytes, const char *confidence,
                                                      const char *evidence, ...);
/* Where it is set: "environment" of the process, "program" (its own code), "server" (an option of
 * its command line), "card" (what else runs there). Static. */
const char *advice_where(const struct advice *a);
/* The fields of one row into the object that is open. */
void advice_write_members(const struct advice *a, struct json *j);
/* "advice": [...] into the object that is open. */
void advice_write(const struct advice_list *list, struct json *j);

/* What a process runs with. */
struct analysis_settings {
    const char *environment; /* NUL-ended NAME=value (schema/tunings.def); NULL: not known */
    size_t environment_bytes;
    const char *title; /* command line, NULL not known */
};

/* Value of an option of a command line ("--gpu-memory-utilization 0.9" or "=0.9") into ret. */
bool analysis_option(const char *title, const char *option, char *ret, size_t size);
/* Whether a command line runs a program or a module of Python of that name: "vllm" in
 * "/opt/bin/vllm serve m" and "python -m vllm.entrypoints.x", not in "/opt/venv-vllm/bin/python".
 */
bool analysis_runs(const char *line, const char *name);

/* key: value, null for ANALYSIS_UNKNOWN. */
void analysis_u64(struct json *j, const char *key, uint64_t value);

/* a * b / c without overflow; 0 for c = 0. */
uint64_t analysis_scale(uint64_t a, uint64_t b, uint64_t c);

#endif
