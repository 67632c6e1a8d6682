/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trim_image.c - trim_image FROM TO: a recorded image without the bytes that a scan does not look
 * at (0 in their place), so that it packs well and holds nothing else of the process. Fails when a
 * scan of the result finds anything else.
 */
#include <stdio.h>

#include "touched.h"

static int summary(const struct base *b, struct scan_summary *ret)
{
    struct image_limits limits = {0};
    struct scan_result *result;
    if (base_scan(b, &limits, &result) < 0)
        return -1;
    *ret = result->s;
    ret->duration_ns = ret->cpu_ns = ret->read_bytes = 0;
    scan_result_free(result);
    return 0;
}

/* The maps with the paths' directories left out: where the recorded process had its files is
 * nobody's business. */
static size_t maps_copy(char *to, const char *from, size_t bytes)
{
    const char *end = from + bytes;
    char *start = to;

    while (from < end) {
        const char *newline = memchr(from, '\n', (size_t)(end - from));
        size_t length = (size_t)((newline ? newline : end - 1) - from) + 1;
        const char *path = memchr(from, '/', length), *name = path;
        for (const char *c = path; c && c < from + length; c++)
            if (*c == '/')
                name = c + 1;
        size_t head = path ? (size_t)(path - from) : length;
        to = mempcpy(to, from, head);
        if (path) {
            to = mempcpy(to, "/opt/", 5);
            to = mempcpy(to, name, length - (size_t)(name - from));
        }
        from += length;
    }
    return (size_t)(to - start);
}

int main(int argc, char **argv)
{
    struct scan_summary before, after;
    struct image_record record;
    struct base b, trimmed;

    if (argc != 3 || base_load(argv[1], &b) < 0 || summary(&b, &before) < 0 ||
        image_record_init(&record, b.bytes, b.size) < 0)
        return 1;
    trimmed = b;
    size_t pages_end = (size_t)(record.maps_text - (const char *)b.bytes);
    trimmed.bytes = malloc(2 * b.size);
    if (!trimmed.bytes)
        return 1;
    memcpy(trimmed.bytes, b.bytes, pages_end);
    for (size_t at = RECORD_HEAD; at < pages_end; at++)
        if ((at - RECORD_HEAD) % RECORD_PAGE >= 8 && !b.touched[at])
            trimmed.bytes[at] = 0;
    trimmed.size = pages_end + maps_copy((char *)trimmed.bytes + pages_end, record.maps_text,
                                         record.maps_bytes);
    if (summary(&trimmed, &after) < 0 || memcmp(&before, &after, sizeof(before)) != 0) {
        fprintf(stderr, "%s: its scan finds something else when it is trimmed\n", argv[1]);
        return 1;
    }
    FILE *f = fopen(argv[2], "wb");
    if (!f || fwrite(trimmed.bytes, 1, trimmed.size, f) != trimmed.size || fclose(f) != 0)
        return 1;
    fprintf(stderr, "%u tensors, %u objects, %zu bytes of %zu\n", after.tensor_count,
            (unsigned)after.objects, b.place_count, b.size);
    return 0;
}
