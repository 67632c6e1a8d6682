/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan_child.c - the child of scan.h: reads a process and writes what it found to standard output.
 *
 * Must not: use anything of the daemon's state; it is a process of its own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <unistd.h>

#include "scan.h"
#include "scan_read.h"

static int output_write(const char *data, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(STDOUT_FILENO, data, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -EIO;
        data += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int error_write(const struct error *error)
{
    output_write(error->what, strlen(error->what) + 1);
    output_write(error->fix, strlen(error->fix) + 1);
    return 1;
}

static int pool_child(uint32_t tgid, const struct scan_options *options)
{
    struct error error = {0};
    struct kv_pool pool;

    if (scan_read_pool(tgid, options, &pool, &error) < 0)
        return error_write(&error);
    return output_write((const char *)&pool, sizeof(pool)) < 0;
}

int scan_child(int argc, char **argv)
{
    _cleanup_(scan_result_freep) struct scan_result *result = NULL;
    _cleanup_free_ void *data = NULL;
    struct scan_options options = {0};
    struct error error = {0};
    struct rlimit processor = {.rlim_cur = 4, .rlim_max = 4}, core = {0};
    size_t bytes;

    if (argc != 4)
        return 2;
    /* the reader of a hostile image: behind everybody else, and dead when it does not end */
    setpriority(PRIO_PROCESS, 0, SCAN_NICE);
    setrlimit(RLIMIT_CPU, &processor);
    setrlimit(RLIMIT_CORE, &core);
    uint32_t tgid = (uint32_t)strtoul(argv[0], NULL, 10);
    options.start_ticks = strtoull(argv[1], NULL, 10);
    options.is_thorough = argv[2][0] == SCAN_THOROUGH;
    options.roots_dir = argv[3][0] ? argv[3] : NULL;
    if (argv[2][0] == SCAN_POOL)
        return pool_child(tgid, &options);
    if (scan_read_process(tgid, &options, &result, &error) < 0)
        return error_write(&error);
    if (scan_result_encode(result, &data, &bytes) < 0)
        return 1;
    return output_write(data, bytes) < 0;
}
