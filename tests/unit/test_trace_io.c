/* SPDX-License-Identifier: Apache-2.0 */
/* trace_io: what was written is read back; what is broken is counted, refused in words, never read.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "trace_io.h"

#define HEADER 360u
#define RECORD 56u

static void add(struct trace_writer *w, uint8_t kind, uint64_t time_ns, uint64_t address,
                uint64_t bytes)
{
    struct nm_trace_record r = {
        .kind = kind, .time_ns = time_ns, .address = address, .size_bytes = bytes, .owner = 3};
    assert_int_equal(trace_add(w, &r), 0);
}

static struct trace_writer three_records(uint32_t flags)
{
    struct nm_trace_header h = {.tgid = 77, .rank = 2, .flags = flags, .conf = "a:b"};
    struct trace_writer w = {0};

    assert_int_equal(trace_begin(&w, &h), 0);
    add(&w, NM_TRACE_BLOCK_MALLOC, 10, 0x1000, 512);
    add(&w, NM_TRACE_BLOCK_FREE, 20, 0x1000, 512);
    add(&w, NM_TRACE_BLOCK_DONE, 20, 0x1000, 512);
    assert_int_equal(w.bytes, HEADER + 3 * RECORD);
    return w;
}

static unsigned read_all(struct trace_reader *r)
{
    struct nm_trace_record record;
    unsigned n = 0;

    while (trace_next(r, &record) > 0)
        n++;
    return n;
}

static void test_written_is_read(void **state)
{
    struct trace_writer w = three_records(0);
    struct nm_trace_record record;
    struct trace_reader r;
    char text[200];

    assert_int_equal(trace_open(w.data, w.bytes, &r, NULL), 0);
    assert_int_equal(r.count, 3);
    assert_int_equal(r.header.tgid, 77);
    assert_int_equal(r.header.rank, 2);
    assert_string_equal(r.header.conf, "a:b");
    assert_int_equal(trace_next(&r, &record), 1);
    assert_int_equal(record.kind, NM_TRACE_BLOCK_MALLOC);
    assert_int_equal(record.time_ns, 10);
    assert_int_equal(record.address, 0x1000);
    assert_int_equal(record.size_bytes, 512);
    assert_int_equal(record.owner, 3);
    assert_int_equal(read_all(&r), 2);
    assert_true(trace_complete(&r));
    assert_string_equal(trace_missing(&r, text, sizeof(text)), "");
    trace_rewind(&r);
    assert_int_equal(read_all(&r), 3);
    trace_done(&w);
}

/* The same bytes through a window, which a file of any size goes through. */
struct bytes {
    const unsigned char *data;
    size_t bytes;
    uint64_t fails_at; /* from this offset on reading fails; 0 never */
};

static int64_t read_bytes(void *userdata, uint64_t offset, void *data, size_t bytes)
{
    const struct bytes *b = userdata;

    if (b->fails_at && offset >= b->fails_at)
        return -EIO;
    if (offset >= b->bytes)
        return 0;
    if (bytes > b->bytes - offset)
        bytes = b->bytes - offset;
    memcpy(data, b->data + offset, bytes);
    return (int64_t)bytes;
}

static void test_window(void **state)
{
    struct nm_trace_header h = {.tgid = 1};
    struct trace_writer w = {0};
    struct trace_reader r;
    struct nm_trace_record record;
    const unsigned count = 2 * TRACE_WINDOW_BYTES / RECORD + 17;
    uint64_t sum = 0;

    assert_int_equal(trace_begin(&w, &h), 0);
    for (unsigned i = 0; i < count; i++)
        add(&w, NM_TRACE_BLOCK_MALLOC, i, i + 1, 512);
    struct bytes b = {w.data, w.bytes, 0};
    assert_int_equal(trace_open_window(read_bytes, &b, w.bytes, &r, NULL), 0);
    for (unsigned pass = 0; pass < 2; pass++) {
        sum = 0;
        while (trace_next(&r, &record) > 0)
            sum += record.address;
        assert_int_equal(sum, (uint64_t)count * (count + 1) / 2);
        assert_int_equal(r.at, count);
        trace_rewind(&r);
    }
    assert_true(trace_complete(&r));
    trace_close(&r);
    /* the second window cannot be read: an end, and not complete */
    b.fails_at = TRACE_WINDOW_BYTES;
    assert_int_equal(trace_open_window(read_bytes, &b, w.bytes, &r, NULL), 0);
    assert_int_equal(read_all(&r), TRACE_WINDOW_BYTES / RECORD);
    assert_int_equal(r.error, -EIO);
    assert_false(trace_complete(&r));
    trace_close(&r);
    trace_done(&w);
}

static void test_cut_at_every_byte(void **state)
{
    struct trace_writer w = three_records(0);

    for (size_t bytes = 0; bytes < w.bytes; bytes++) {
        struct error error = {0};
        struct trace_reader r;
        unsigned char *copy = malloc(bytes ? bytes : 1); /* so that ASan sees a read beyond it */
        memcpy(copy, w.data, bytes);
        int k = trace_open(copy, bytes, &r, &error);
        if (bytes < HEADER) {
            assert_int_equal(k, -ENODATA);
            assert_non_null(strstr(error.what, "shorter than its header"));
        } else {
            assert_int_equal(k, 0);
            assert_int_equal(read_all(&r), (bytes - HEADER) / RECORD);
            assert_int_equal(trace_complete(&r), (bytes - HEADER) % RECORD == 0);
        }
        free(copy);
    }
    trace_done(&w);
}

static void header_with(void (*change)(struct nm_trace_header *), int expected, const char *words)
{
    struct trace_writer w = three_records(0);
    struct error error = {0};
    struct trace_reader r;

    change((struct nm_trace_header *)w.data);
    assert_int_equal(trace_open(w.data, w.bytes, &r, &error), expected);
    assert_non_null(strstr(error.what, words));
    trace_done(&w);
}

static void bad_magic(struct nm_trace_header *h)
{
    h->magic++;
}
static void newer(struct nm_trace_header *h)
{
    h->version = 2;
}
static void small_record(struct nm_trace_header *h)
{
    h->record_bytes = RECORD - 1;
}
static void no_record(struct nm_trace_header *h)
{
    h->record_bytes = 0;
}
static void huge_record(struct nm_trace_header *h)
{
    h->record_bytes = UINT32_MAX;
}
static void small_header(struct nm_trace_header *h)
{
    h->header_bytes = HEADER - 8;
}
static void header_beyond_end(struct nm_trace_header *h)
{
    h->header_bytes = HEADER + 3 * RECORD + 1;
}

static void test_headers_that_cannot_be(void **state)
{
    header_with(bad_magic, -EINVAL, "not a trace");
    header_with(newer, -ENOTSUP, "version 2");
    header_with(small_record, -EINVAL, "records of 55");
    header_with(no_record, -EINVAL, "records of 0");
    header_with(huge_record, -EINVAL, "records of 4294967295");
    header_with(small_header, -EINVAL, "header of 352");
    header_with(header_beyond_end, -EINVAL, "header of 529");
}

static void test_grown_header_and_records(void **state)
{
    struct trace_writer w = three_records(0);
    unsigned char data[HEADER + 8 + 3 * (RECORD + 16)] = {0};
    struct nm_trace_header *h = (struct nm_trace_header *)data;
    struct trace_reader r;

    memcpy(data, w.data, HEADER);
    h->header_bytes = HEADER + 8;
    h->record_bytes = RECORD + 16;
    for (unsigned i = 0; i < 3; i++)
        memcpy(data + HEADER + 8 + i * (RECORD + 16), w.data + HEADER + i * RECORD, RECORD);
    assert_int_equal(trace_open(data, sizeof(data), &r, NULL), 0);
    assert_int_equal(read_all(&r), 3);
    assert_true(trace_complete(&r));
    trace_done(&w);
}

static void missing_is(struct trace_writer *w, const char *expected)
{
    struct trace_reader r;
    char text[300];

    assert_int_equal(trace_open(w->data, w->bytes, &r, NULL), 0);
    read_all(&r);
    assert_string_equal(trace_missing(&r, text, sizeof(text)), expected);
    assert_int_equal(trace_complete(&r), !expected[0]);
    trace_done(w);
}

static void test_what_is_missing_has_words(void **state)
{
    struct trace_writer w = three_records(NM_TRACE_LATE | NM_TRACE_NO_SMALL);
    missing_is(&w, "it begins in the middle of the process's life, small blocks are missing");
    w = three_records(NM_TRACE_OPEN);
    missing_is(&w, "it has no end");
    w = three_records(NM_TRACE_FULL);
    missing_is(&w, "it reached its bound");
    w = three_records(0);
    add(&w, NM_TRACE_LOST, 30, 0, 5);
    missing_is(&w, "events were lost");
    w = three_records(0);
    add(&w, NM_TRACE_BLOCK_MALLOC, 5, 1, 1);
    missing_is(&w, "its times are out of order");
    w = three_records(0);
    add(&w, NM_TRACE_BLOCK_MALLOC, 40, 1, (uint64_t)-512); /* a negative size */
    missing_is(&w, "it has sizes that cannot be");
    w = three_records(0);
    add(&w, 200, 50, 0, 0);
    missing_is(&w, "it has records that are not known");
}

/* --- names --- */

static void test_names(void **state)
{
    struct nm_trace_header h = {0};
    struct trace_names names = {0};
    struct trace_writer w = {0};
    struct nm_trace_record record;
    struct trace_reader r;
    char text[NM_TRACE_NAME_BYTES_MAX + 100];

    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(trace_begin(&w, &h), 0);
    assert_int_equal(trace_add_name(&w, 1, "PTA@weights"), 0);
    assert_int_equal(trace_add_name(&w, 9, "exactly thirty-six bytes, no more 36"), 0);
    assert_int_equal(trace_add_name(&w, 2, "a name that does not fit into the text of one record"),
                     0);
    assert_int_equal(trace_add_name(&w, 4, text), 0);
    assert_int_equal(trace_open(w.data, w.bytes, &r, NULL), 0);
    while (trace_next(&r, &record) > 0)
        assert_int_equal(trace_names_add(&names, &record), 0);
    assert_string_equal(trace_name(&names, 1), "PTA@weights");
    assert_string_equal(trace_name(&names, 9), "exactly thirty-six bytes, no more 36");
    assert_string_equal(trace_name(&names, 2),
                        "a name that does not fit into the text of one record");
    assert_int_equal(strlen(trace_name(&names, 4)), NM_TRACE_NAME_BYTES_MAX);
    assert_null(trace_name(&names, 3));
    assert_null(trace_name(&names, 0));
    assert_true(trace_complete(&r));
    trace_names_done(&names);
    assert_null(trace_name(&names, 1));
    trace_done(&w);
}

static int name_part(struct trace_names *names, uint32_t id, uint16_t bytes)
{
    struct nm_trace_name part = {.id = id, .bytes = bytes, .kind = NM_TRACE_NAME};
    struct nm_trace_record record;

    memset(part.text, 'y', sizeof(part.text));
    memcpy(&record, &part, sizeof(record));
    return trace_names_add(names, &record);
}

static void test_hostile_names(void **state)
{
    struct trace_names names = {0};
    uint32_t refused = 0;

    assert_int_equal(name_part(&names, 0, 5), 1);
    assert_int_equal(name_part(&names, 1, 0), 1);
    assert_int_equal(name_part(&names, 1, NM_TRACE_NAME_BYTES_MAX + 1), 1);
    assert_int_equal(name_part(&names, 1, 50), 0);
    assert_int_equal(name_part(&names, 1, 50), 1); /* the rest is 14 bytes */
    assert_int_equal(name_part(&names, 1, 14), 0);
    assert_int_equal(name_part(&names, 1, 14), 1); /* whole already */
    assert_int_equal(strlen(trace_name(&names, 1)), 50);
    /* each asks for 4 KiB and gives 36 bytes: their sum is bounded */
    for (uint32_t id = 2; id < 30000; id++)
        refused += (uint32_t)name_part(&names, id, NM_TRACE_NAME_BYTES_MAX);
    assert_true(refused > 10000 && refused < 20000);
    trace_names_done(&names);
}

/* --- events --- */

static void test_from_events(void **state)
{
    struct nm_event block = {.kind = NM_EVENT_BLOCK,
                             .time_ns = 5,
                             .tid = 8,
                             .block = {.address = 0xa,
                                       .size_bytes = -1024,
                                       .stream = 3,
                                       .device = 1,
                                       .action = NM_BLOCK_BLOCK_FREE}};
    struct nm_event create = {.kind = NM_EVENT_CREATE,
                              .call = {.handle = 0xbeef, .physical_bytes = 2048}};
    struct nm_trace_record r;

    assert_true(trace_from_event(&block, false, &r));
    assert_int_equal(r.kind, NM_TRACE_BLOCK_DONE);
    assert_int_equal(r.size_bytes, 1024);
    assert_int_equal(r.device, 1);
    block.block.size_bytes = INT64_MIN; /* has no positive */
    assert_false(trace_from_event(&block, false, &r));
    block.block.size_bytes = 0;
    assert_true(trace_from_event(&block, false, &r));
    block.block.action = 9;
    assert_false(trace_from_event(&block, false, &r));
    assert_false(trace_from_event(&create, false, &r));
    assert_true(trace_from_event(&create, true, &r));
    assert_int_equal(r.kind, NM_TRACE_SEGMENT_ALLOC);
    assert_int_equal(r.address, 0xbeef);
    create.result = 207001;
    assert_true(trace_from_event(&create, true, &r));
    assert_int_equal(r.kind, NM_TRACE_FAILED);
    create.kind = NM_EVENT_HANDLE_FREE; /* a free that failed freed nothing */
    assert_false(trace_from_event(&create, true, &r));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_is_read),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_cut_at_every_byte),
        cmocka_unit_test(test_headers_that_cannot_be),
        cmocka_unit_test(test_grown_header_and_records),
        cmocka_unit_test(test_what_is_missing_has_words),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_hostile_names),
        cmocka_unit_test(test_from_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
