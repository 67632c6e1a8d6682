/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The analyses of moments and of time on recorded traces: golden cases, whose figures are written
 * by hand.
 */
#include "recording.h"
#include "test_trace.h"

static int run(struct jsonc *input, struct json *j)
{
    static const struct {
        const char *name;
        recording_fn fn;
    } verbs[] = {{"frag", frag_recording_write},
                 {"leaks", leaks_recording_write},
                 {"timeline", timeline_recording_write}};
    uint32_t tgid = (uint32_t)get_u64(input, "pid", 0);
    struct recording_query q = {.host = "node7",
                                .tgids = &tgid,
                                .tgid_count = tgid != 0,
                                .at = get_text(input, "at", NULL),
                                .since = get_text(input, "since", NULL),
                                .until = get_text(input, "until", NULL),
                                .mark = get_text(input, "mark", NULL),
                                .request_bytes = get_u64(input, "request_bytes", 0),
                                .with_map = get(input, "map"),
                                .steps = (uint32_t)get_u64(input, "steps", 0)};
    struct trace_reader reader;
    struct error error = {0};
    struct made made;
    int k = -ENOSYS;

    trace_make(get(input, "trace"), &made);
    assert_int_equal(trace_open(made.w.data, made.w.bytes, &reader, NULL), 0);
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strcmp(verbs[i].name, get_text(input, "of", "")) == 0)
            k = verbs[i].fn(&reader, &q, j, &error);
    if (error.what[0])
        json_kstr(j, "what", error.what);
    trace_done(&made.w);
    return k;
}

static void golden(void **state)
{
    golden_run("recording", run, 18);
}

/* --- any bytes --- */

static uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* A trace of few addresses, so that they meet; now and then a field that is anything. */
static void random_trace(struct made *ret, uint64_t seed)
{
    uint64_t s = seed, odd = random_next(&s) % 3;
    struct nm_trace_header h = {.tgid = (uint32_t)(random_next(&s) % 3),
                                .flags = (uint32_t)(random_next(&s) % 16),
                                .device = (uint32_t)(random_next(&s) % 4),
                                .torch_device = (uint32_t)(random_next(&s) % 4)};
    if (odd == 2) {
        __u64 *times[] = {&h.begin_wall_ns, &h.begin_boot_ns, &h.end_boot_ns, &h.lost_events};
        for (size_t i = 0; i < 4; i++)
            *times[i] = random_next(&s) >> (random_next(&s) % 64);
        h.device = (uint32_t)random_next(&s);
        h.torch_device = (uint32_t)random_next(&s);
    }
    memset(ret, 0, sizeof(*ret));
    assert_int_equal(trace_begin(&ret->w, &h), 0);
    name_id(ret, "PTA@a");
    name_id(ret, "f;g;;h");
    uint64_t now = h.begin_boot_ns;
    for (size_t i = random_next(&s) % 400; i; i--) {
        struct nm_trace_record r = {.time_ns = now += random_next(&s) % 1000,
                                    .kind = (uint8_t)(1 + random_next(&s) % 11),
                                    .address = (1 + random_next(&s) % 12) << 20,
                                    .size_bytes = random_next(&s) % 4 << 20,
                                    .stream = random_next(&s) % 3 << 20,
                                    .component = (uint8_t)(random_next(&s) % 2),
                                    .device = (uint16_t)(random_next(&s) % 2),
                                    .owner = (uint32_t)(random_next(&s) % 3),
                                    .stack = (uint32_t)(random_next(&s) % 4)};
        if (r.kind == NM_TRACE_NAME)
            continue;
        if (odd && random_next(&s) % 16 == 0)
            ((unsigned char *)&r)[random_next(&s) % sizeof(r)] = (unsigned char)random_next(&s);
        assert_int_equal(trace_add(&ret->w, &r), 0);
    }
}

/* What a hostile trace makes is a document; of a pool that is called complete all bytes are told.
 */
static void any_bytes(void **state)
{
    static const recording_fn fns[] = {frag_recording_write, leaks_recording_write,
                                       timeline_recording_write};
    unsigned pools = 0, documents = 0;

    for (uint64_t seed = 1; seed <= 600; seed++) {
        struct recording_query q = {.at = seed % 2 ? "peak" : NULL, .with_map = seed % 5 == 0};
        struct error error = {0};
        struct trace_reader reader;
        struct made made;
        char *text = NULL;
        random_trace(&made, seed);
        assert_int_equal(trace_open(made.w.data, made.w.bytes, &reader, NULL), 0);
        assert_int_equal(recording_text(fns[seed % 3], &reader, &q, &text, &error), 0);
        struct jsonc *d = json_tokener_parse(text), *list = get(d, "pools");
        assert_non_null(d);
        documents += get(d, "recording") != NULL;
        for (size_t i = 0; list && i < json_object_array_length(list); i++) {
            struct jsonc *p = json_object_array_get_idx(list, i);
            if (!json_object_get_boolean(get(p, "complete")))
                continue;
            assert_int_equal(get_u64(p, "allocated_bytes", 0) + get_u64(p, "pending_bytes", 0) +
                                 get_u64(p, "free_bytes", 0),
                             get_u64(p, "reserved_bytes", 1));
            pools++;
        }
        json_object_put(d);
        free(text);
        trace_done(&made.w);
    }
    assert_int_equal(documents, 600);
    assert_true(pools > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden), cmocka_unit_test(any_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
