/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - npumemd: command line, settings, run.
 */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "log.h"
#include "manager.h"
#include "mapped_file.h"

#define DAEMON_NICE (-10)

struct options {
    struct manager_paths paths;
    enum probe_link_mode link_mode;
    const char *assignments[64];
    size_t assignment_count;
    const char *svm_dir;
};

static void print_help(void)
{
    printf("npumemd - observes device memory of Ascend inference processes, system-wide\n\n"
           "usage: npumemd [OPTION...]\n\n"
           "  --runtime-dir DIR   control.sock (default /run/npumem)\n"
           "  --state-dir DIR     store.db (default /var/lib/npumem)\n"
           "  --config-dir DIR    npumemd.conf, npumemd.conf.d/ (default /etc/npumem)\n"
           "  --svm-dir DIR       the driver's memory figures (default /proc/svm)\n"
           "  --set SECTION.KEY=VALUE\n"
           "                      one setting, as in npumemd.conf; may be repeated\n"
           "  --links MODE        auto, multi, perf or perf-legacy: how probes are attached\n"
           "  --sample-config     prints a configuration file with every default\n"
           "  --help, --version\n\n"
           "Settings:\n");
    config_print_help(stdout);
}

static int link_mode_parse(const char *text, enum probe_link_mode *ret)
{
    static const char *const names[] = {"auto", "multi", "perf", "perf-legacy"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcmp(text, names[i]) == 0) {
            *ret = i;
            return 0;
        }
    return -EINVAL;
}

static int usage_error(const char *what)
{
    fprintf(stderr, "npumemd: %s; try: npumemd --help\n", what);
    return 2;
}

/* Returns -1 to go on, else the exit code. */
static int options_parse(int argc, char **argv, struct options *o)
{
    enum { RUNTIME = 1, STATE, CONFIG, SVM, SET, LINKS, SAMPLE, HELP, VERSION };
    static const struct option table[] = {
        {"runtime-dir", required_argument, NULL, RUNTIME},
        {"state-dir", required_argument, NULL, STATE},
        {"config-dir", required_argument, NULL, CONFIG},
        {"svm-dir", required_argument, NULL, SVM},
        {"set", required_argument, NULL, SET},
        {"links", required_argument, NULL, LINKS},
        {"sample-config", no_argument, NULL, SAMPLE},
        {"help", no_argument, NULL, HELP},
        {"version", no_argument, NULL, VERSION},
        {},
    };
    int c;

    while ((c = getopt_long(argc, argv, "", table, NULL)) >= 0) {
        switch (c) {
        case RUNTIME:
            o->paths.runtime_dir = optarg;
            break;
        case STATE:
            o->paths.state_dir = optarg;
            break;
        case CONFIG:
            o->paths.config_dir = optarg;
            break;
        case SVM:
            o->svm_dir = optarg;
            break;
        case SET:
            if (o->assignment_count == ARRAY_SIZE(o->assignments))
                return usage_error("too many --set");
            o->assignments[o->assignment_count++] = optarg;
            break;
        case LINKS:
            if (link_mode_parse(optarg, &o->link_mode) < 0)
                return usage_error("--links: no such mode");
            break;
        case SAMPLE:
            config_print_sample(stdout);
            return 0;
        case HELP:
            print_help();
            return 0;
        case VERSION:
            printf("npumemd " NPUMEM_VERSION "\n");
            return 0;
        default:
            return usage_error("bad option");
        }
    }
    return optind < argc ? usage_error("arguments are not expected") : -1;
}

static int config_load(const struct options *o, struct config *config, struct error *reterr)
{
    int r;

    config_init(config);
    r = config_read_dir(config, o->paths.config_dir, reterr);
    for (size_t i = 0; r >= 0 && i < o->assignment_count; i++)
        r = config_set_assignment(config, o->assignments[i], "--set", reterr);
    if (r >= 0 && o->svm_dir)
        r = config_set(config, "daemon.svm_dir", o->svm_dir, "--svm-dir", reterr);
    return r < 0 ? r : 0;
}

static int directory_make(const char *path, mode_t mode, struct error *reterr)
{
    if (mkdir(path, mode) < 0 && errno != EEXIST) {
        int r =
            error_set(reterr, errno, "%s: cannot make the directory: %s", path, strerror(errno));
        return error_fix(reterr, r, "run as root, or give another directory");
    }
    return 0;
}

/* Probes cost descriptors and, before 5.11, locked memory; both failures are harmless here. */
static void limits_raise(void)
{
    struct rlimit files = {.rlim_cur = 65536, .rlim_max = 65536};
    struct rlimit locked = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};

    if (setrlimit(RLIMIT_NOFILE, &files) < 0) {
        getrlimit(RLIMIT_NOFILE, &files);
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    setrlimit(RLIMIT_MEMLOCK, &locked);
}

/*
 * The names of a process's frames can only be read until the kernel has taken its memory away,
 * milliseconds after it dies; where all processors are busy that needs a place before the others.
 * What an administrator has set stays.
 */
static void priority_raise(void)
{
    errno = 0;
    if (getpriority(PRIO_PROCESS, 0) == 0 && errno == 0)
        (void)setpriority(PRIO_PROCESS, 0, DAEMON_NICE);
}

int main(int argc, char **argv)
{
    struct options o = {
        .paths = {"/run/npumem", "/var/lib/npumem", "/etc/npumem"},
    };
    _cleanup_(manager_freep) struct manager *m = NULL;
    struct config config;
    struct error error = {};
    int r;

    mapped_file_guard();
    if (argc == 3 && strcmp(argv[1], "--dcmi") == 0) /* the daemon's own child, see card_usage.h */
        return card_usage_child(argv[2]);
    if (argc == 6 && strcmp(argv[1], "--scan") == 0) /* the same, see scan.h */
        return scan_child(argc - 2, argv + 2);
    r = options_parse(argc, argv, &o);
    if (r >= 0)
        return r;
    log_open();
    r = config_load(&o, &config, &error);
    if (r < 0) {
        log_error_detail(LOG_ERR, r, &error);
        return 2;
    }
    log_set_level(config_log_level(&config));
    limits_raise();
    priority_raise();
    r = directory_make(o.paths.runtime_dir, 0755, &error);
    if (r == 0)
        r = directory_make(o.paths.state_dir, 0750, &error);
    if (r == 0)
        r = manager_new(&config, &o.paths, o.link_mode, &m, &error);
    if (r < 0) {
        log_error_detail(LOG_ERR, r, &error);
        return 1;
    }
    r = manager_run(m);
    if (r < 0)
        log_error(r, "event loop failed");
    return r < 0 ? 1 : 0;
}
