/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom_message.c - torch_npu's out-of-memory message, read out of whatever text it stands in.
 *
 * Wordings: "NPU out of memory. Tried to allocate X (NPU i; T total capacity; A already allocated;
 * C current active; F free; [L allowed; ]R reserved in total by PyTorch)", with or without what
 * follows it; "... Allocation was preemptively rejected because it would exceed
 * per_process_memory_fraction limit. Requested size: X"; and runtime codes (207001, 207005) without
 * a message. Source: torch_npu 2.1 to 2.15.
 * Numbers have two decimals, so a size is exact to half of its last digit.
 * Must not: read past the given bytes, trust an order of the numbers.
 */
#include <string.h>

#include "cleanup.h"
#include "oom.h"

#define MESSAGE_BYTES 1024 /* of one message; the text around it may be longer */

static const char *find(const char *at, const char *end, const char *what)
{
    return at && at < end ? memmem(at, (size_t)(end - at), what, strlen(what)) : NULL;
}

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r'))
        at++;
    return at;
}

static uint64_t unit_bytes(const char *at, size_t left, size_t *ret_length)
{
    static const struct {
        const char *name;
        unsigned shift;
    } units[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30},  {"TiB", 40}, {"KB", 10},
                 {"MB", 20},  {"GB", 30},  {"bytes", 0}, {"byte", 0}, {"B", 0}};

    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        size_t n = strlen(units[i].name);
        if (n <= left && memcmp(at, units[i].name, n) == 0) {
            *ret_length = n;
            return 1ull << units[i].shift;
        }
    }
    return 0;
}

/* "60.96 GiB"; NULL and no value if there is none. Returns what follows it. */
static const char *read_size(const char *at, const char *end, uint64_t *ret)
{
    uint64_t whole = 0, part = 0, scale = 1, unit;
    const char *start;
    size_t n = 0;

    at = skip_blanks(at, end);
    for (start = at; at < end && *at >= '0' && *at <= '9'; at++) {
        if (whole > UINT64_MAX / 100)
            return NULL;
        whole = whole * 10 + (uint64_t)(*at - '0');
    }
    if (at == start)
        return NULL;
    if (at < end && *at == '.')
        for (at++; at < end && *at >= '0' && *at <= '9'; at++)
            if (scale < 1000000) {
                part = part * 10 + (uint64_t)(*at - '0');
                scale *= 10;
            }
    at = skip_blanks(at, end);
    unit = unit_bytes(at, (size_t)(end - at), &n);
    if (!unit)
        return NULL;
    unsigned __int128 bytes =
        (unsigned __int128)whole * unit + (unsigned __int128)part * unit / scale;
    if (bytes >= (unsigned __int128)1 << 60)
        return NULL;
    *ret = (uint64_t)bytes;
    return at + n;
}

/* The size that stands before `label`: sizes and labels alternate, divided by ';' or ','. */
static void size_before(const char *at, const char *end, const char *label, uint64_t *ret)
{
    const char *mark = find(at, end, label), *start;
    uint64_t value;

    if (!mark)
        return;
    for (start = mark; start > at && start[-1] != ';' && start[-1] != '(' && start[-1] != ',';
         start--)
        ;
    if (read_size(start, mark, &value))
        *ret = value;
}

static void read_device(const char *at, const char *end, struct oom_snapshot *s)
{
    const char *open = find(at, end, "(NPU ");
    int32_t device = 0;

    if (!open)
        return;
    const char *digit = open + 5;
    if (digit >= end || *digit < '0' || *digit > '9')
        return;
    for (; digit < end && *digit >= '0' && *digit <= '9' && device < 10000; digit++)
        device = device * 10 + (*digit - '0');
    s->device = device;
}

/* A code of the runtime, standing alone. */
static bool has_code(const char *text, size_t bytes, const char *code)
{
    const char *end = text + bytes;
    size_t n = strlen(code);

    for (const char *at = find(text, end, code); at; at = find(at + n, end, code)) {
        bool before = at > text && at[-1] >= '0' && at[-1] <= '9';
        bool after = at + n < end && at[n] >= '0' && at[n] <= '9';
        if (!before && !after)
            return true;
    }
    return false;
}

static void read_phase(const char *text, const char *end, struct oom_snapshot *s)
{
    static const struct {
        const char *frame, *phase;
    } frames[] = {
        {"allocate_kv_cache", "kv_cache"},
        {"initialize_kv_cache", "kv_cache"},
        {"initialize_from_config", "kv_cache"},
        {"capture_model", "graph"},
        {"load_model", "weights"},
        {"profile_run", "profile"},
        {"determine_available_memory", "profile"},
        {"wake_up", "wake"},
        {"execute_model", "activation"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(frames); i++)
        if (find(text, end, frames[i].frame)) {
            snprintf(s->phase, sizeof(s->phase), "%s", frames[i].phase);
            s->is_phase_inferred = true; /* from a traceback */
            return;
        }
}

static int parse_message(const char *at, const char *end, struct oom_snapshot *s,
                         struct error *reterr)
{
    static const char tried[] = "Tried to allocate", requested[] = "Requested size:";
    const char *size = find(at, end, tried), *value;
    const char *rejected = find(at, end, "preemptively rejected");

    value = size       ? read_size(size + sizeof(tried) - 1, end, &s->requested_bytes)
            : rejected ? find(at, end, requested)
                       : NULL;
    if (rejected && value && !size)
        value = read_size(value + sizeof(requested) - 1, end, &s->requested_bytes);
    if (!value) {
        if (find(at, end, "more than 1EB")) {
            s->requested_bytes = (1ull << 60) + 1;
            return 0;
        }
        return error_set(reterr, ENODATA, "the message names no size that was asked for");
    }
    if (rejected)
        s->allowed_bytes = 0; /* a limit of its own, which the message does not name */
    read_device(value, end, s);
    size_before(value, end, "total capacity", &s->total_bytes);
    size_before(value, end, "already allocated", &s->allocated_bytes);
    size_before(value, end, "current active", &s->active_bytes);
    size_before(value, end, "free;", &s->free_bytes);
    size_before(value, end, "allowed;", &s->allowed_bytes);
    size_before(value, end, "reserved in total", &s->reserved_bytes);
    s->code = 207001;
    return 0;
}

int oom_message_parse(const char *text, size_t bytes, struct oom_snapshot *ret,
                      struct error *reterr)
{
    struct oom_snapshot s;
    const char *end = text + bytes;
    const char *at = find(text, end, "NPU out of memory");

    if (!at)
        at = find(text, end, "out of memory");
    oom_snapshot_init(&s);
    s.failures = 1;
    read_phase(text, end, &s);
    if (at) {
        const char *stop = at + MESSAGE_BYTES < end ? at + MESSAGE_BYTES : end;
        int r = parse_message(at, stop, &s, reterr);
        if (r < 0)
            return r;
    } else if (has_code(text, bytes, "207005") || find(text, end, "Alloc sq cq fail")) {
        s.code = 207005;
        s.phase[0] = '\0';
        s.is_phase_inferred = false;
    } else if (has_code(text, bytes, "207006")) {
        s.code = 207006;
    } else if (has_code(text, bytes, "207001")) {
        s.code = 207001;
    } else {
        error_set(reterr, ENODATA, "the text has no out-of-memory message");
        return error_fix(
            reterr, -ENODATA,
            "paste the line that begins with \"NPU out of memory. Tried to allocate\"");
    }
    *ret = s;
    return 0;
}
