/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.c - see settings.h.
 */
#include "settings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "units.h"

#define GIB ((uint64_t)1 << 30)
#define MIB ((uint64_t)1 << 20)
/* HCCL's default of HCCL_BUFFSIZE, in MB. Source: HCCL's documentation; docs/ABI.md. */
#define HCCL_BUFFSIZE_DEFAULT 200
#define HCCL_BUFFSIZE_MAX (1u << 20)
/* What vllm-ascend asks for in most of its groups, whatever the variable says. Source: its utils,
 * 0.23. */
#define VLLM_BUFFER_MB 200

const char *settings_variable(const struct analysis_settings *in, const char *name)
{
    return in->environment ? alloc_conf_variable(in->environment, in->environment_bytes, name)
                           : NULL;
}

static void complain(struct settings *s, const char *name, const char *value, const char *why)
{
    if (!s->complaint[0])
        snprintf(s->complaint, sizeof(s->complaint), "%s=%.60s: %.120s", name, value, why);
}

static void read_utilization(const char *title, struct settings *s)
{
    static const char *const names[] = {"--gpu-memory-utilization", "--gpu_memory_utilization",
                                        "--mem-fraction-static"};
    char value[32], *end;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!analysis_option(title, names[i], value, sizeof(value)))
            continue;
        double number = strtod(value, &end);
        if (end != value && !*end && isfinite(number) && number > 0 && number <= 1) {
            s->utilization = number;
            s->is_utilization_given = true;
            s->is_static_fraction = strcmp(names[i], "--mem-fraction-static") == 0;
        } else {
            complain(s, names[i], value, "not a number above 0 and at most 1");
        }
        return;
    }
}

static void read_cache_size(const char *title, struct settings *s)
{
    static const char *const names[] = {"--kv-cache-memory-bytes", "--kv-cache-memory"};
    char value[32];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        uint64_t bytes;
        if (!analysis_option(title, names[i], value, sizeof(value)))
            continue;
        if (units_parse_bytes(value, &bytes) == 0 && bytes > 0)
            s->kv_cache_bytes = bytes;
        else
            complain(s, names[i], value, "not a size");
        return;
    }
}

static uint64_t read_hccl(const struct analysis_settings *in)
{
    const char *text = settings_variable(in, "HCCL_BUFFSIZE");
    char *end;

    if (!text)
        return HCCL_BUFFSIZE_DEFAULT;
    unsigned long mb = strtoul(text, &end, 10);
    return end == text || *end || mb > HCCL_BUFFSIZE_MAX ? 0 : mb;
}

/* torch_npu writes what the variable says into the configuration of each communicator that has no
 * size of its own: seen on 2.7.1, docs/REAL_WHEELS.md. */
bool settings_decides_buffer(const struct settings *s, uint64_t buffer_bytes)
{
    uint64_t mb = buffer_bytes / MIB;

    return !buffer_bytes || (mb == s->hccl_mb && !(s->is_vllm && mb == VLLM_BUFFER_MB));
}

void settings_read(const struct analysis_settings *in, struct settings *ret)
{
    const char *title = in->title ? in->title : "";
    struct error error = {0};

    *ret = (struct settings){
        .utilization = SETTINGS_UTILIZATION,
        .kv_cache_bytes = ANALYSIS_UNKNOWN,
        .hccl_mb = read_hccl(in),
        .environment_known = in->environment != NULL,
        .conf_known = in->environment != NULL,
        .conf_text = settings_variable(in, ALLOC_CONF_NAME),
        .is_title_known = *title != 0,
        .sleep_mode = strstr(title, "--enable-sleep-mode") != NULL,
        .is_vllm = strstr(title, "VLLM") || strstr(title, "vllm"),
        .is_eager = strstr(title, "--enforce-eager") != NULL,
    };
    const char *shared = ret->conf_text ? NULL : settings_variable(in, SETTINGS_CONF_SHARED);
    if (shared) {
        ret->is_conf_shared = true;
        ret->conf_known = false;
        complain(ret, SETTINGS_CONF_SHARED, shared,
                 "in force in torch_npu 2.14, not in earlier ones; which this is is not known");
    }
    alloc_conf_init(&ret->conf);
    if (ret->conf_text && alloc_conf_parse(ret->conf_text, &ret->conf, &error) < 0) {
        ret->conf_known = false;
        complain(ret, ALLOC_CONF_NAME, ret->conf_text, error.what);
    }
    read_utilization(title, ret);
    ret->is_utilization_assumed = !ret->is_utilization_given;
    read_cache_size(title, ret);
}

bool settings_is_conf_refused(const struct settings *s)
{
    return (s->conf_text || s->is_conf_shared) && !s->conf_known;
}

const char *settings_excludes_expandable(const struct settings *s)
{
    if (s->sleep_mode)
        return "sleep mode";
    if (s->conf.keys & ALLOC_CONF_GC)
        return "garbage_collection_threshold";
    if (s->conf.keys & ALLOC_CONF_MAX_SPLIT)
        return "max_split_size_mb";
    return s->conf.keys & ALLOC_CONF_EXPANDABLE ? "its own setting" : NULL;
}

const char *settings_conf_with(const struct settings *s, const char *item, char *ret, size_t size)
{
    const char *now = s->conf_text ? s->conf_text : "";

    if (!*now)
        snprintf(ret, size, "%s", item);
    else if (strlen(now) + 1 + strlen(item) < size)
        snprintf(ret, size, "%s,%s", now, item);
    else
        snprintf(ret, size, "%s added", item);
    return ret;
}

void settings_advise_lower(const struct settings *s, uint64_t total_bytes, uint64_t bytes,
                           bool is_minimum, const char *confidence, struct advice_list *list)
{
    char from[48] = "", to[48], text[UNITS_TEXT_BYTES];

    if (bytes == ANALYSIS_UNKNOWN || !bytes || total_bytes == ANALYSIS_UNKNOWN ||
        s->kv_cache_bytes != ANALYSIS_UNKNOWN)
        return;
    uint64_t step = (uint64_t)((double)total_bytes * SETTINGS_UTILIZATION_STEP);
    uint64_t steps = step ? (bytes + step - 1) / step : 0;
    double cut = (double)steps * SETTINGS_UTILIZATION_STEP, lower = s->utilization - cut;
    if (!steps || lower <= 0)
        return;
    if (s->is_utilization_assumed) {
        snprintf(to, sizeof(to), "lower by %.2f", cut); /* than what, the default or another */
    } else {
        snprintf(from, sizeof(from), "%.2f%s", s->utilization,
                 s->is_utilization_given ? "" : " (not on the command line)");
        snprintf(to, sizeof(to), "%.2f", lower);
    }
    advice_add(list, s->is_static_fraction ? "mem_fraction_static" : "gpu_memory_utilization", from,
               to, s->is_static_fraction ? ANALYSIS_UNKNOWN : steps * step, confidence,
               "short by %s%s of %.2f GiB: %llu step%s of 0.01", is_minimum ? "at least " : "",
               units_format_bytes(text, bytes, UNITS_AUTO), (double)total_bytes / (double)GIB,
               (unsigned long long)steps, steps == 1 ? "" : "s");
    list->items[list->count - 1].verb = "budget";
}
