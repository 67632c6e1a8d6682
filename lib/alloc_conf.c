/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc_conf.c - see alloc_conf.h.
 *
 * Owns: one row per key. Must not: guess a meaning where torch_npu raises an error.
 */
#include "alloc_conf.h"

#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

#define MIB ((uint64_t)1 << 20)
#define MB_MAX (1u << 24) /* 16 TiB in MiB: nothing overflows below */

void alloc_conf_init(struct alloc_conf *ret)
{
    *ret = (struct alloc_conf){
        .max_split_bytes = ALLOC_CONF_NO_SPLIT_LIMIT,
        .max_non_split_rounding_bytes = 20 * MIB,
        .large_segment_bytes = 20 * MIB,
        .large_granule_bytes = 20 * MIB,
        .base_align_bytes = 16 << 10,
        .memory_fraction = 1,
    };
}

static int bad(struct error *reterr, const char *key, const char *value, const char *why)
{
    return error_set(reterr, EINVAL, "%s: %s: %s", key, value, why);
}

static int parse_u64(const char *key, const char *value, uint64_t low, uint64_t high, uint64_t *ret,
                     struct error *reterr)
{
    char *end;

    if (value[0] < '0' || value[0] > '9')
        return bad(reterr, key, value, "not a whole number");
    errno = 0;
    unsigned long long n = strtoull(value, &end, 10);
    if (errno || *end)
        return bad(reterr, key, value, "not a whole number");
    if (n < low || n > high)
        return error_set(reterr, EINVAL, "%s: %s: must be %llu to %llu", key, value,
                         (unsigned long long)low, (unsigned long long)high);
    *ret = n;
    return 0;
}

/* "0.8": digits and one point; strtod() would read it by the locale. */
static int parse_fraction(const char *key, const char *value, bool one_allowed, double *ret,
                          struct error *reterr)
{
    double n = 0, unit = 1;
    bool point = false, digit = false;

    for (const char *c = value; *c; c++) {
        if (*c == '.' && !point) {
            point = true;
            continue;
        }
        if (*c < '0' || *c > '9')
            return bad(reterr, key, value, "not a fraction");
        digit = true;
        n = n * 10 + (*c - '0');
        if (point)
            unit *= 10;
    }
    n /= unit;
    if (!digit || n <= 0 || n > 1 || (n == 1 && !one_allowed))
        return bad(reterr, key, value,
                   one_allowed ? "must be above 0, at most 1" : "must be between 0 and 1");
    *ret = n;
    return 0;
}

static int parse_bool(const char *key, const char *value, bool *ret, struct error *reterr)
{
    if (strcmp(value, "True") == 0)
        *ret = true;
    else if (strcmp(value, "False") == 0)
        *ret = false;
    else
        return bad(reterr, key, value, "must be True or False");
    return 0;
}

static unsigned power_index(uint64_t mb)
{
    unsigned i = 0;
    while (i + 1 < ALLOC_CONF_POWERS && (1ull << (i + 1)) <= mb)
        i++;
    return i;
}

static int parse_division(const char *value, uint8_t *ret, struct error *reterr)
{
    uint64_t n;
    int r = parse_u64("roundup_power2_divisions", value, 0, 64, &n, reterr);
    if (r == 0 && n & (n - 1))
        return bad(reterr, "roundup_power2_divisions", value, "must be a power of 2");
    if (r == 0)
        *ret = (uint8_t)n;
    return r;
}

/* "[256:1,512:2,>:4]": a size in MiB holds from there to the next one; the first one from 0. */
static int parse_division_list(char *list, struct alloc_conf *conf, struct error *reterr)
{
    unsigned from = 0, count = 0;
    uint8_t last = 0;
    char *save = NULL;

    for (char *item = strtok_r(list, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
        char *value = strchr(item, ':');
        uint64_t mb = 0;
        int r = 0;
        if (!value)
            return bad(reterr, "roundup_power2_divisions", item, "must be SIZE:DIVISIONS");
        *value++ = '\0';
        bool is_rest = strcmp(item, ">") == 0;
        if (!is_rest)
            r = parse_u64("roundup_power2_divisions", item, 1, MB_MAX, &mb, reterr);
        if (r == 0 && mb & (mb - 1))
            r = bad(reterr, "roundup_power2_divisions", item, "must be a power of 2");
        if (r == 0)
            r = parse_division(value, &last, reterr);
        if (r < 0)
            return r;
        /* the first size holds from 0, ">" from the last one on; sizes between have none */
        unsigned index = is_rest ? from : power_index(mb);
        unsigned first = count == 0 && !is_rest ? 0 : index;
        unsigned last_index = is_rest ? ALLOC_CONF_POWERS - 1 : index;
        for (unsigned i = first; i <= last_index && i < ALLOC_CONF_POWERS; i++)
            conf->divisions[i] = last;
        from = index + 1;
        count++;
    }
    return 0;
}

static int parse_roundup(char *value, struct alloc_conf *conf, struct error *reterr)
{
    size_t n = strlen(value);
    uint8_t all;

    if (value[0] == '[') {
        if (value[n - 1] != ']')
            return bad(reterr, "roundup_power2_divisions", value, "the list has no end");
        value[n - 1] = '\0';
        return parse_division_list(value + 1, conf, reterr);
    }
    int r = parse_division(value, &all, reterr);
    for (unsigned i = 0; r == 0 && i < ALLOC_CONF_POWERS; i++)
        conf->divisions[i] = all;
    return r;
}

static const struct key {
    const char *name;
    unsigned bit;
    uint64_t low, high; /* of whole numbers */
} keys[] = {
    /* a block above the segment of small requests at least: torch refuses 20 and less */
    {"max_split_size_mb", ALLOC_CONF_MAX_SPLIT, 21, MB_MAX},
    {"garbage_collection_threshold", ALLOC_CONF_GC, 0, 0},
    {"expandable_segments", ALLOC_CONF_EXPANDABLE, 0, 0},
    {"roundup_power2_divisions", ALLOC_CONF_ROUNDUP, 0, 0},
    {"max_non_split_rounding_mb", ALLOC_CONF_NON_SPLIT_ROUNDING, 21, MB_MAX},
    {"large_segment_size_mb", ALLOC_CONF_LARGE_SEGMENT, 20, 512},
    {"segment_size_mb", ALLOC_CONF_SEGMENT, 20, 512},
    {"base_addr_aligned_kb", ALLOC_CONF_ALIGN, 0, 16},
    {"page_size", ALLOC_CONF_PAGE, 0, 0},
    {"multi_stream_lazy_reclaim", ALLOC_CONF_LAZY, 0, 0},
    {"per_process_memory_fraction", ALLOC_CONF_FRACTION, 0, 0},
    {"throw_on_npumalloc_oom", ALLOC_CONF_THROW, 0, 0},
    {"release_lock_on_npumalloc", ALLOC_CONF_LOCK, 0, 0},
    {"pin_memory_expandable_segments", ALLOC_CONF_HOST, 0, 0},
    {"pinned_mem_register", ALLOC_CONF_HOST, 0, 0},
    {"pinned_use_background_threads", ALLOC_CONF_HOST, 0, 0},
    {"pinned_reserve_segment_size_mb", ALLOC_CONF_HOST, 0, 0},
    {"pinned_max_round_threshold_mb", ALLOC_CONF_HOST, 0, 0},
    {"pinned_max_cached_size_mb", ALLOC_CONF_HOST, 0, 0},
};

static int key_apply(const struct key *k, char *value, struct alloc_conf *c, struct error *reterr)
{
    bool ignored;
    uint64_t n = 0;
    int r = 0;

    if (k->high)
        r = parse_u64(k->name, value, k->low, k->high, &n, reterr);
    if (r < 0)
        return r;
    switch (k->bit) {
    case ALLOC_CONF_MAX_SPLIT:
        c->max_split_bytes = n * MIB;
        return 0;
    case ALLOC_CONF_NON_SPLIT_ROUNDING:
        c->max_non_split_rounding_bytes = n * MIB;
        return 0;
    case ALLOC_CONF_LARGE_SEGMENT:
        c->large_segment_bytes = c->large_granule_bytes = n * MIB;
        return 0;
    case ALLOC_CONF_SEGMENT:
        c->large_granule_bytes = n * MIB;
        return 0;
    case ALLOC_CONF_ALIGN:
        c->base_align_bytes = n << 10;
        return 0;
    case ALLOC_CONF_GC:
        return parse_fraction(k->name, value, false, &c->gc_threshold, reterr);
    case ALLOC_CONF_FRACTION:
        return parse_fraction(k->name, value, true, &c->memory_fraction, reterr);
    case ALLOC_CONF_EXPANDABLE:
        return parse_bool(k->name, value, &c->is_expandable, reterr);
    case ALLOC_CONF_LAZY:
        return parse_bool(k->name, value, &c->is_lazy_reclaim, reterr);
    case ALLOC_CONF_ROUNDUP:
        return parse_roundup(value, c, reterr);
    case ALLOC_CONF_PAGE:
        c->is_page_1g = strcmp(value, "1g") == 0;
        return c->is_page_1g ? 0 : bad(reterr, k->name, value, "must be 1g");
    case ALLOC_CONF_THROW:
    case ALLOC_CONF_LOCK:
        return parse_bool(k->name, value, &ignored, reterr);
    default:
        return 0;
    }
}

/* Ends one "key:value" (commas within brackets are part of it) and returns what follows it. */
static char *item_end(char *item)
{
    for (int depth = 0; *item; item++) {
        depth += (*item == '[') - (*item == ']');
        if (*item == ',' && depth <= 0) {
            *item = '\0';
            return item + 1;
        }
    }
    return item;
}

static int check_exclusive(const struct alloc_conf *c, struct error *reterr)
{
    const char *other = c->keys & ALLOC_CONF_MAX_SPLIT ? "max_split_size_mb"
                        : c->keys & ALLOC_CONF_GC      ? "garbage_collection_threshold"
                                                       : NULL;
    if (c->is_expandable && other)
        return error_set(reterr, EINVAL, "expandable_segments cannot be enabled with %s", other);
    return 0;
}

int alloc_conf_parse(const char *text, struct alloc_conf *ret, struct error *reterr)
{
    char copy[ALLOC_CONF_TEXT_MAX];
    struct alloc_conf c;
    size_t n = 0;

    if (strlen(text) >= sizeof(copy))
        return error_set(reterr, E2BIG, ALLOC_CONF_NAME ": longer than %d bytes",
                         ALLOC_CONF_TEXT_MAX);
    for (; *text; text++) /* torch drops blanks */
        if (*text != ' ' && *text != '\t')
            copy[n++] = *text;
    copy[n] = '\0';
    alloc_conf_init(&c);
    for (char *item = copy, *next; *item; item = next) {
        next = item_end(item);
        char *value = strchr(item, ':');
        size_t i = 0;
        if (!*item)
            continue;
        if (!value || !value[1])
            return error_set(reterr, EINVAL, "%s: must be KEY:VALUE", item);
        *value++ = '\0';
        while (i < ARRAY_SIZE(keys) && strcmp(keys[i].name, item) != 0)
            i++;
        if (i == ARRAY_SIZE(keys))
            return error_set(reterr, EINVAL, "%s: unknown key", item);
        int r = key_apply(&keys[i], value, &c, reterr);
        if (r < 0)
            return r;
        c.keys |= keys[i].bit;
    }
    int r = check_exclusive(&c, reterr);
    if (r == 0)
        *ret = c;
    return r;
}

const char *alloc_conf_variable(const char *environment, size_t bytes, const char *name)
{
    size_t length = strlen(name);

    while (environment && bytes) {
        size_t n = strnlen(environment, bytes);
        if (n == bytes)
            return NULL; /* not ended: not to be handed out */
        if (n > length && memcmp(environment, name, length) == 0 && environment[length] == '=')
            return environment + length + 1;
        environment += n + 1;
        bytes -= n + 1;
    }
    return NULL;
}
