/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_whatif.c - npumem whatif [CONF]... --from FILE.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ask.h"
#include "doc.h"
#include "rows.h"
#include "whatif_text.h"

static const struct column columns[] = {
    {"SETTING", "setting", COLUMN_TEXT, true},
    {"PEAK RESERVED", "peak_reserved_bytes", COLUMN_BYTES, true},
    {"SAVES", "saves_bytes", COLUMN_BYTES, true},
    {"SEGMENTS", "segments", COLUMN_NUMBER, true},
    {"DRIVER CALLS", "driver_calls", COLUMN_NUMBER, true},
    {"FLUSHES", "flushes", COLUMN_NUMBER, true},
    {"COLLECTIONS", "collections", COLUMN_NUMBER, false},
    {"FAILURES", "failures", COLUMN_NUMBER, true},
    {"PEAK ALLOCATED", "peak_allocated_bytes", COLUMN_BYTES, false},
    {"RESERVED AT END", "reserved_bytes", COLUMN_BYTES, false},
};

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    struct json_object *baseline = doc_get(document, "baseline");
    char setting[256], peak[64];

    if (args->format == FORMAT_TABLE && !args->quiet) {
        const char *name = doc_text(baseline, "setting", "");
        printf("%srecorded under %s: %s peak reserved by the model%s\n\n", out_on(o, STYLE_DIM),
               out_clean(setting, sizeof(setting), name[0] ? name : "no setting"),
               rows_format(peak, sizeof(peak), baseline, &columns[1], args->units),
               out_off(o, STYLE_DIM));
    }
    return rows_print(args, o, doc_get(document, "settings"), columns, ARRAY_SIZE(columns));
}

/* Maps a file for reading; NULL with the error said. An empty one is not mapped. */
static void *map_file(const char *path, size_t *ret_bytes)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    void *data = MAP_FAILED;

    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0) {
        *ret_bytes = (size_t)st.st_size;
        data = mmap(NULL, *ret_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    } else if (fd >= 0) {
        errno = ENODATA;
    }
    if (data != MAP_FAILED)
        return data;
    fail_with(EXIT_RUNTIME, "%s: %s; try: a file that was recorded as a trace", path,
              strerror(errno));
    return NULL;
}

int verb_whatif(const struct args *args)
{
    struct error error = {0};
    struct timespec now;
    struct out o;
    size_t bytes = 0;
    char host[64] = "";

    if (rows_check_fields(args, columns, ARRAY_SIZE(columns), &error) < 0)
        return fail(EXIT_USAGE, &error);
    if (!args->from)
        return fail_with(EXIT_USAGE, "whatif: no trace to work on; try: --from FILE");
    void *trace = map_file(args->from, &bytes);
    if (!trace)
        return EXIT_RUNTIME;
    gethostname(host, sizeof(host) - 1);
    clock_gettime(CLOCK_REALTIME, &now);
    _cleanup_free_ char *text =
        whatif_text(trace, bytes, args->operands, args->operand_count, host,
                    (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, &error);
    munmap(trace, bytes);
    if (!text)
        return fail(EXIT_USAGE, &error);
    struct json_object *document = json_tokener_parse(text);
    out_init(&o, args);
    int code = document ? ask_show(args, &o, document, "settings", render) : EXIT_RUNTIME;
    json_object_put(document);
    return out_finish(&o, code);
}
