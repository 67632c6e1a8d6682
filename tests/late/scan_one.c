/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan_one.c - scans one process without a daemon, for tests: scan_one [--host] [--all] [--record
 * FILE]
 * [--roots DIR] PID. Prints the document of `npumem scan`; exit 1 with the reason on stderr.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scan_read.h"
#include "view_scan.h"

/* Peak memory of this program; that of getrusage() begins with what its parent had. */
static long peak_kib(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[128];
    long kib = 0;

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmHWM: %ld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"host", 0, NULL, 'h'},   {"all", 0, NULL, 'a'},
                                            {"record", 1, NULL, 'r'}, {"roots", 1, NULL, 'd'},
                                            {"time", 1, NULL, 't'},   {NULL, 0, NULL, 0}};
    struct scan_options o = {0};
    struct scan_result *result = NULL;
    struct error error = {0};
    struct json j = {0};
    long peak;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        switch (option) {
        case 'h':
            o.include_host = true;
            break;
        case 'a':
            o.is_thorough = true;
            break;
        case 'r':
            o.record_path = optarg;
            break;
        case 'd':
            o.roots_dir = optarg;
            break;
        case 't':
            o.time_ns = strtoull(optarg, NULL, 10);
            break;
        default:
            return 2;
        }
    }
    if (optind + 1 != argc)
        return 2;
    struct view_scan_query q = {.tgid = (uint32_t)strtoul(argv[optind], NULL, 10),
                                .with_blocks = true};
    if (scan_read_process(q.tgid, &o, &result, &error) < 0) {
        fprintf(stderr, "%s%s%s\n", error.what, error.fix[0] ? "; try: " : "", error.fix);
        return 1;
    }
    peak = peak_kib();
    /* over the wire and back, as from the daemon's child */
    void *data;
    size_t bytes;
    if (scan_result_encode(result, &data, &bytes) < 0)
        return 1;
    scan_result_free(result);
    if (scan_result_decode(data, bytes, &result) < 0) {
        fprintf(stderr, "the result does not read back\n");
        return 1;
    }
    free(data);
    struct view_context c = {.host = "test", .complete = true};
    if (view_scan(result, &c, &q, &j) < 0 || json_finish(&j) < 0)
        return 1;
    puts(j.data);
    json_done(&j);
    scan_result_free(result);
    fprintf(stderr, "max_rss_kib %ld wire_bytes %zu\n", peak, bytes);
    return 0;
}
