/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.h - what a process runs with, as far as it decides about memory: its environment and the
 * command line of its server.
 *
 * Both are hostile texts. A value that torch_npu or vLLM would refuse is not used, and `complaint`
 * says so.
 */
#ifndef NPUMEM_ANALYSIS_SETTINGS_H
#define NPUMEM_ANALYSIS_SETTINGS_H

#include "alloc_conf.h"
#include "analysis.h"

/* vLLM's default of gpu_memory_utilization. Source: vLLM CacheConfig: 0.92 in 0.23, 0.9 for years
 * before; at which version between it changed is not known here. */
#define SETTINGS_UTILIZATION 0.9
#define SETTINGS_UTILIZATION_NEW 0.92
/* torch's own name, which torch_npu 2.14 reads where the other is not set; 2.7 and 2.10 do not.
 * Source: strings of their libraries. */
#define SETTINGS_CONF_SHARED "PYTORCH_ALLOC_CONF"
/* Finest step in which people set it. */
#define SETTINGS_UTILIZATION_STEP 0.01

struct settings {
    bool environment_known; /* the environment was read */
    bool conf_known;        /* ... and PYTORCH_NPU_ALLOC_CONF is one that torch_npu takes */
    const char *conf_text;  /* NULL not set. Borrowed */
    bool is_conf_shared; /* set by SETTINGS_CONF_SHARED only: whether it is in force is not known */
    struct alloc_conf conf;
    bool sleep_mode; /* CaMem refuses expandable segments */
    bool is_title_known, is_vllm, is_eager;
    double utilization; /* the default where none is given */
    bool is_utilization_given;
    bool is_static_fraction;     /* it is sglang's, of what was free and not of the card */
    bool is_utilization_assumed; /* nothing but a default says it, of which there are two */
    uint64_t kv_cache_bytes;     /* fixed by the command line; ANALYSIS_UNKNOWN: planned by vLLM */
    uint64_t hccl_mb; /* one buffer of a communicator by HCCL_BUFFSIZE; 0: it is no number */
    char complaint[ANALYSIS_TEXT_BYTES]; /* about the first setting that cannot be used; "" none */
};

/* Reads them; ret borrows from in. */
void settings_read(const struct analysis_settings *in, struct settings *ret);

/* Value of an environment variable, NULL not set or not known. Borrowed. */
const char *settings_variable(const struct analysis_settings *in, const char *name);

/* Whether HCCL_BUFFSIZE decides the size of a communicator that was made with this one (of one
 * buffer; 0 none given). */
bool settings_decides_buffer(const struct settings *s, uint64_t buffer_bytes);

/* The allocator's text, or what may be in force in its place, cannot be used: nothing is added to
 * it. */
bool settings_is_conf_refused(const struct settings *s);

/* What keeps expandable segments from being switched on, for a sentence; NULL nothing. */
const char *settings_excludes_expandable(const struct settings *s);

/* PYTORCH_NPU_ALLOC_CONF as it would be with one more "key:value": the whole text, since a new
 * value replaces the old one. The item alone and "added" where that is too long for ret. Returns
 * ret. */
const char *settings_conf_with(const struct settings *s, const char *item, char *ret, size_t size);

/* gpu_memory_utilization of a vLLM server in the smallest cut of 0.01 that leaves `bytes` more of
 * the card; nothing where that cannot be told or does not decide. is_minimum: more than these may
 * be lacking. */
void settings_advise_lower(const struct settings *s, uint64_t total_bytes, uint64_t bytes,
                           bool is_minimum, const char *confidence, struct advice_list *list);

#endif
