/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - npusim-run: options and the choice of what to do.
 *
 * Exit codes: 0 every process ended as the scenario says; 1 one did not, or a run-time error;
 * 2 wrong options or a malformed scenario. With --in-process: the rank's own end.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launch.h"

static const char usage_text[] =
    "usage: npusim-run [OPTIONS] SCENARIO\n"
    "runs a scenario (docs/SCENARIOS.md) on a simulated Ascend node, one process per rank\n"
    "  --layout 8.1|8.5|9.2   libraries as this CANN version lays them out (default 8.1)\n"
    "  --lib-dir DIR          the libraries themselves (default beside this program;\n"
    "                         also from NPUSIM_LIB_DIR)\n"
    "  --torch DIR|NAME       stand-in libtorch_npu.so: stripped (default), symtab, v24, or a "
    "directory\n"
    "  --truth DIR            each rank appends its own bookkeeping to DIR/RANK.jsonl\n"
    "  --step DIR             checkpoints wait for DIR/go.NAME (or go.RANK.NAME, go.all)\n"
    "  --control DIR          keep the meeting-point files in DIR\n"
    "  --in-process[=RANK]    run one rank in this process, without exec\n"
    "  --stay                 a rank that is through keeps what it holds until SIGTERM\n"
    "  -D NAME=VALUE          replace a param of the scenario (repeatable)\n"
    "  --check                read the scenario, run nothing\n"
    "  --dump                 print the compiled scenario as JSON, run nothing\n"
    "  -h, --help             this text\n";

enum {
    OPTION_LAYOUT = 256,
    OPTION_LIB_DIR,
    OPTION_TORCH,
    OPTION_TRUTH,
    OPTION_STEP,
    OPTION_CONTROL,
    OPTION_IN_PROCESS,
    OPTION_CHECK,
    OPTION_DUMP,
    OPTION_RANK_INDEX,
    OPTION_STEPPING,
    OPTION_STAY,
    OPTION_PADDING,
};

static const struct option long_options[] = {
    {"layout", required_argument, NULL, OPTION_LAYOUT},
    {"lib-dir", required_argument, NULL, OPTION_LIB_DIR},
    {"torch", required_argument, NULL, OPTION_TORCH},
    {"truth", required_argument, NULL, OPTION_TRUTH},
    {"step", required_argument, NULL, OPTION_STEP},
    {"control", required_argument, NULL, OPTION_CONTROL},
    {"in-process", optional_argument, NULL, OPTION_IN_PROCESS},
    {"check", no_argument, NULL, OPTION_CHECK},
    {"dump", no_argument, NULL, OPTION_DUMP},
    {"rank-index", required_argument, NULL, OPTION_RANK_INDEX},
    {"stepping", no_argument, NULL, OPTION_STEPPING},
    {"stay", no_argument, NULL, OPTION_STAY},
    {"padding", required_argument, NULL, OPTION_PADDING},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}};

static int option_take(struct options *o, int option)
{
    switch (option) {
    case OPTION_LAYOUT:
        o->layout = optarg;
        return 0;
    case OPTION_LIB_DIR:
        o->libraries = optarg;
        return 0;
    case OPTION_TORCH:
        o->torch = optarg;
        return 0;
    case OPTION_TRUTH:
        o->truth = optarg;
        return 0;
    case OPTION_STEP:
        o->stepping = true;
        o->control = optarg;
        return 0;
    case OPTION_CONTROL:
        o->control = optarg;
        return 0;
    case OPTION_IN_PROCESS:
        o->in_process = optarg ? optarg : "";
        return 0;
    case OPTION_CHECK:
        o->check = true;
        return 0;
    case OPTION_DUMP:
        o->dump = true;
        return 0;
    case OPTION_RANK_INDEX:
        o->rank_index = atoi(optarg);
        return 0;
    case OPTION_STEPPING:
        o->stepping = true;
        return 0;
    case OPTION_STAY:
        o->stay = true;
        return 0;
    case OPTION_PADDING:
        return 0;
    case 'D':
        if (o->define_count == DEFINES_MAX || !strchr(optarg, '=')) {
            fprintf(stderr, "npusim-run: -D NAME=VALUE, at most %d times\n", DEFINES_MAX);
            return -1;
        }
        o->defines[o->define_count++] = optarg;
        return 0;
    default:
        return -1;
    }
}

int options_locate(struct options *o, char *message, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", o->self, sizeof(o->self) - 1);
    if (n < 0)
        return -errno;
    o->self[n] = '\0';
    int directory = (int)(strrchr(o->self, '/') - o->self);
    if (!o->libraries)
        o->libraries = getenv("NPUSIM_LIB_DIR");
    if (!o->libraries) {
        snprintf(o->libraries_buffer, sizeof(o->libraries_buffer), "%.*s/cann-%.20s/lib", directory,
                 o->self, o->layout);
        o->libraries = o->libraries_buffer;
    }
    if (!strchr(o->torch, '/')) {
        snprintf(o->torch_buffer, sizeof(o->torch_buffer), "%.*s/torch-%.20s", directory, o->self,
                 o->torch);
        o->torch = o->torch_buffer;
    }
    if (access(o->libraries, R_OK | X_OK) < 0) {
        snprintf(message, size, "no simulated CANN libraries in %.300s (layouts: 8.1 8.5 9.2)",
                 o->libraries);
        return -ENOENT;
    }
    return 0;
}

static int directories_make(const struct options *o)
{
    const char *directories[] = {o->truth, o->control};
    for (size_t i = 0; i < 2; i++) {
        if (directories[i] && mkdir(directories[i], 0755) < 0 && errno != EEXIST) {
            fprintf(stderr, "npusim-run: %s: %s\n", directories[i], strerror(errno));
            return -errno;
        }
    }
    return 0;
}

static char temporary[] = "/tmp/npusim-XXXXXX";
static pid_t temporary_owner;

/* Also when the rank ends by `exit`; not in a forked child, and not when it is killed. */
static void temporary_remove(void)
{
    if (getpid() == temporary_owner)
        tree_remove(temporary);
}

static int in_process_run(struct options *o, const struct scenario *s)
{
    uint32_t index = 0;
    while (*o->in_process && index < s->rank_count && strcmp(s->ranks[index].name, o->in_process))
        index++;
    if (index == s->rank_count) {
        fprintf(stderr, "npusim-run: the scenario has no rank '%s'\n", o->in_process);
        return 2;
    }
    if (!o->control && (o->control = mkdtemp(temporary))) {
        temporary_owner = getpid();
        atexit(temporary_remove);
    }
    return o->control ? rank_main(o, s, index) : 1;
}

static int scenario_main(struct options *o)
{
    struct scenario *s = NULL;
    char message[512];
    if (scenario_load(o->scenario, o->defines, o->define_count, &s, message, sizeof(message)) < 0) {
        fprintf(stderr, "npusim-run: %s\n", message);
        return 2;
    }
    int code = 0;
    if (o->dump)
        scenario_dump(s, stdout);
    if (!o->dump && !o->check) {
        if (options_locate(o, message, sizeof(message)) < 0) {
            fprintf(stderr, "npusim-run: %s\n", message);
            code = 2;
        } else if (directories_make(o) < 0) {
            code = 1;
        } else if (o->rank_index >= 0) {
            code = (uint32_t)o->rank_index < s->rank_count
                       ? rank_main(o, s, (uint32_t)o->rank_index)
                       : 2;
        } else if (o->in_process) {
            code = in_process_run(o, s);
        } else {
            code = supervise(o, s);
        }
    }
    scenario_free(s);
    return code;
}

int main(int argc, char **argv)
{
    static struct options o = {.layout = "8.1", .torch = "stripped", .rank_index = -1};
    int option;
    /* a rank's title is written over the argument area: everything kept from it is a copy */
    for (int i = 1; i < argc; i++) {
        argv[i] = strdup(argv[i]);
        if (!argv[i])
            return 1;
    }
    while ((option = getopt_long(argc, argv, "hD:", long_options, NULL)) != -1) {
        if (option == 'h') {
            fputs(usage_text, stdout);
            return 0;
        }
        if (option_take(&o, option) < 0) {
            fputs("try: npusim-run --help\n", stderr);
            return 2;
        }
    }
    if (optind + 1 != argc) {
        fputs(usage_text, stderr);
        return 2;
    }
    o.scenario = argv[optind];
    return scenario_main(&o);
}
