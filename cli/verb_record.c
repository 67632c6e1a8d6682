/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_record.c - npumem record start | stop | ls.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "ask.h"
#include "doc.h"
#include "record.h"
#include "rows.h"

static const struct column columns[] = {
    {"PID", "tgid", COLUMN_NUMBER, true},
    {"COMM", "comm", COLUMN_TEXT, true},
    {"RANK", "rank", COLUMN_NUMBER, true},
    {"DEVICE", "device", COLUMN_NUMBER, false},
    {"STATE", "state", COLUMN_TEXT, true},
    {"BEGIN", "begin_ns", COLUMN_TIME, true},
    {"FOR", "duration_ns", COLUMN_DURATION, true},
    {"RECORDS", "records", COLUMN_NUMBER, true},
    {"SIZE", "bytes", COLUMN_BYTES, true},
    {"LOST", "lost_events", COLUMN_NUMBER, true},
    {"LATE", "late", COLUMN_BOOL, true},
    {"SMALL MISSING", "small_missing", COLUMN_BOOL, false},
    {"FULL", "full", COLUMN_BOOL, false},
    {"FILE", "path", COLUMN_TEXT, true},
};

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    return rows_print(args, o, doc_get(document, "recordings"), columns, ARRAY_SIZE(columns));
}

static int check_one_pid(const struct args *args)
{
    if (args->tgids.count == 1)
        return EXIT_DONE;
    return fail_with(EXIT_USAGE, "%s: one process at a time; try: --pid PID", args->verb->name);
}

static struct json_object *start_parameters(const struct args *args)
{
    struct json_object *o = json_object_new_object();

    json_object_object_add(o, "tgid", json_object_new_int64(args->tgids.items[0]));
    if (args->for_ns)
        json_object_object_add(o, "for_ns", json_object_new_int64((int64_t)args->for_ns));
    return o;
}

static void sleep_ns(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
        ;
}

int record_for(const struct args *args, char *path, size_t size)
{
    struct json_object *parameters, *document = NULL;
    struct error error = {0};
    int code = check_one_pid(args);

    if (code != EXIT_DONE)
        return code;
    if (!args->for_ns)
        return fail_with(EXIT_USAGE, "%s: how long to record? try: --for 30s", args->verb->name);
    parameters = start_parameters(args);
    int r = ask(args, "RecordStart", parameters, &document, &error);
    json_object_put(parameters);
    if (r < 0)
        return fail(exit_code_of(r), &error);
    snprintf(path, size, "%s", doc_text(doc_item(document, "recordings", 0), "path", ""));
    json_object_put(document);
    sleep_ns(args->for_ns);
    /* it has ended by itself, or does now: either way it is on disk after this */
    document = NULL;
    parameters = json_object_new_object();
    json_object_object_add(parameters, "tgid", json_object_new_int64(args->tgids.items[0]));
    r = ask(args, "RecordStop", parameters, &document, &error);
    json_object_put(parameters);
    json_object_put(document);
    if (r < 0 && exit_code_of(r) != EXIT_NOT_FOUND)
        return fail(exit_code_of(r), &error);
    return EXIT_DONE;
}

int verb_record(const struct args *args)
{
    const char *what = args->operand_count ? args->operands[0] : "ls";
    struct error error = {0};
    int code;

    if (rows_check_fields(args, columns, ARRAY_SIZE(columns), &error) < 0)
        return fail(EXIT_USAGE, &error);
    if (strcmp(what, "start") == 0) {
        code = check_one_pid(args);
        return code != EXIT_DONE
                   ? code
                   : ask_and_show(args, "RecordStart", start_parameters(args), NULL, render);
    }
    if (args->for_ns)
        return fail_with(EXIT_USAGE, "--for: only start takes it; try: npumem record start --pid "
                                     "PID --for 10s");
    if (strcmp(what, "stop") == 0) {
        struct json_object *parameters = json_object_new_object();
        if (args->tgids.count > 1 && (code = check_one_pid(args)) != EXIT_DONE) {
            json_object_put(parameters);
            return code;
        }
        if (args->tgids.count)
            json_object_object_add(parameters, "tgid", json_object_new_int64(args->tgids.items[0]));
        return ask_and_show(args, "RecordStop", parameters, NULL, render);
    }
    if (strcmp(what, "ls") != 0)
        return fail_with(EXIT_USAGE, "%s: not something that record does; try: start, stop, ls",
                         what);
    return ask_and_show(args, "RecordList", json_object_new_object(), NULL, render);
}
