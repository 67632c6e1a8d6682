/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_trace.h - a recorded trace from a golden case.
 */
#ifndef TEST_TRACE_H
#define TEST_TRACE_H

#include "test_analysis.h"
#include "trace_io.h"

#define NAMES_MAX 32

struct made {
    struct trace_writer w;
    const char *names[NAMES_MAX];
    uint32_t name_count;
};

static inline uint32_t name_id(struct made *m, const char *name)
{
    if (!name[0])
        return 0;
    for (uint32_t i = 0; i < m->name_count; i++)
        if (strcmp(m->names[i], name) == 0)
            return i + 1;
    assert_true(m->name_count < NAMES_MAX);
    m->names[m->name_count++] = name;
    assert_int_equal(trace_add_name(&m->w, m->name_count, name), 0);
    return m->name_count;
}

static inline uint8_t kind_of(const char *word)
{
    static const char *const words[] = {
        [NM_TRACE_BLOCK_MALLOC] = "malloc", [NM_TRACE_BLOCK_FREE] = "free",
        [NM_TRACE_BLOCK_DONE] = "done",     [NM_TRACE_SEGMENT_ALLOC] = "segment",
        [NM_TRACE_SEGMENT_FREE] = "return", [NM_TRACE_LOST] = "lost",
        [NM_TRACE_SEGMENT_MAP] = "map",     [NM_TRACE_MARK] = "mark",
    };
    for (uint8_t i = 1; i < sizeof(words) / sizeof(words[0]); i++)
        if (words[i] && strcmp(words[i], word) == 0)
            return i;
    fail_msg("no kind %s", word);
    return 0;
}

struct making {
    struct made *made;
    uint64_t now, turn;
};

/* {"kind", "time", "address", "bytes", "owner", "frames", "stream", "component", "device"}; a time
 * that is left out is one later, or "after" so much; in each turn of a repetition an address is
 * "stride" further on. {"times", "records"} repeats. */
static inline void records_add(struct jsonc *list, struct making *m)
{
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct jsonc *one = json_object_array_get_idx(list, i);
        if (get(one, "records")) {
            for (m->turn = 0; m->turn < get_u64(one, "times", 1); m->turn++)
                records_add(get(one, "records"), m);
            m->turn = 0;
            continue;
        }
        m->now = get_u64(one, "time", m->now + get_u64(one, "after", 1));
        struct nm_trace_record r = {
            .kind = kind_of(get_text(one, "kind", "")),
            .time_ns = m->now,
            .address = get_u64(one, "address", 0) + m->turn * get_u64(one, "stride", 0),
            .size_bytes = (uint64_t)json_object_get_int64(get(one, "bytes")),
            .stream = get_u64(one, "stream", 0),
            .component = (uint8_t)get_u64(one, "component", 0),
            .device = (uint16_t)get_u64(one, "device", 0)};
        r.owner = name_id(m->made, get_text(one, "owner", ""));
        r.stack = name_id(m->made, get_text(one, "frames", ""));
        assert_int_equal(trace_add(&m->made->w, &r), 0);
    }
}

static inline void trace_make(struct jsonc *spec, struct made *ret)
{
    struct nm_trace_header h = {.flags = (uint32_t)get_u64(spec, "flags", 0),
                                .begin_boot_ns = get_u64(spec, "begin", 0),
                                .begin_wall_ns = get_u64(spec, "begin_wall", 0),
                                .end_boot_ns = get_u64(spec, "end", 0),
                                .card_bytes = get_u64(spec, "card_bytes", 0),
                                .available_bytes = get_u64(spec, "card_bytes", 0),
                                .tgid = (uint32_t)get_u64(spec, "tgid", 7),
                                .rank = -1,
                                .device = (uint32_t)get_u64(spec, "device", 0),
                                .torch_device = (uint32_t)get_u64(spec, "torch_device", 0)};
    struct making m = {ret, h.begin_boot_ns, 0};

    snprintf(h.conf, sizeof(h.conf), "%s", get_text(spec, "conf", ""));
    memset(ret, 0, sizeof(*ret));
    assert_int_equal(trace_begin(&ret->w, &h), 0);
    records_add(get(spec, "records"), &m);
    if (get_u64(spec, "cut_bytes", 0))
        ret->w.bytes -= get_u64(spec, "cut_bytes", 0);
}

#endif
