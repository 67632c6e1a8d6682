/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demo.c - finding the simulated server's files and its processes.
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "demo.h"

/* More generations than any scenario has; bounds a loop over a /proc that changes meanwhile. */
#define GENERATIONS_MAX 16

/* Directory of this program, "" if it cannot be told. */
static void own_directory(char *ret, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", ret, size - 1);
    ret[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(ret, '/');
    if (slash)
        *slash = '\0';
}

static bool find_program(const char *own, char *ret, size_t size, struct error *reterr)
{
    /* a build tree; an installation: bin/ and lib/npumem/sim/ of one prefix */
    static const char *const beside[] = {"sim", "../sim", "../lib/npumem/sim"};
    const char *set = getenv("NPUMEM_SIM_DIR");

    if (set && set[0]) { /* set means meant: nothing else is tried */
        static const char *const within[] = {"", "driver/"};
        for (size_t i = 0; i < ARRAY_SIZE(within); i++) {
            snprintf(ret, size, "%s/%snpusim-run", set, within[i]);
            if (access(ret, X_OK) == 0)
                return true;
        }
        error_set(reterr, ENOENT, "demo: no npusim-run in NPUMEM_SIM_DIR=%.120s", set);
        error_fix(reterr, 0, "unset NPUMEM_SIM_DIR");
        return false;
    }
    for (size_t i = 0; i < ARRAY_SIZE(beside); i++) {
        snprintf(ret, size, "%s/%s/npusim-run", own, beside[i]);
        if (access(ret, X_OK) == 0)
            return true;
    }
    error_set(reterr, ENOENT, "demo: the simulated server (npusim-run) is not installed");
    error_fix(reterr, 0, "NPUMEM_SIM_DIR=DIR npumem demo");
    return false;
}

static bool find_scenario(const char *own, const char *program, const char *name, char *ret,
                          size_t size, struct error *reterr)
{
    const char *suffix = strrchr(name, '.');
    int directory = (int)(strrchr(program, '/') - program);

    if (strchr(name, '/') || (suffix && strcmp(suffix, ".sim") == 0)) {
        snprintf(ret, size, "%s", name);
    } else {
        snprintf(ret, size, "%.*s/scenarios/%s.sim", directory, program, name);
        if (access(ret, R_OK) != 0)
            snprintf(ret, size, "%.*s/../scenarios/%s.sim", directory, program, name);
        if (access(ret, R_OK) != 0) /* build/PRESET/ of a source tree */
            snprintf(ret, size, "%s/../../sim/scenarios/%s.sim", own, name);
    }
    if (access(ret, R_OK) == 0)
        return true;
    error_set(reterr, ENOENT, "demo %.100s: no such scenario", name);
    error_fix(reterr, 0, "npumem demo FILE.sim");
    return false;
}

int demo_find(const char *scenario, struct demo_paths *ret, struct error *reterr)
{
    char own[PATH_MAX / 2];

    own_directory(own, sizeof(own));
    if (!find_program(own, ret->program, sizeof(ret->program), reterr) ||
        !find_scenario(own, ret->program, scenario, ret->scenario, sizeof(ret->scenario), reterr))
        return -ENOENT;
    return 0;
}

/* Parent of a process, 0 unknown. Source: proc(5), stat: the name in parentheses may hold anything,
 * so the fields are counted from the last one. */
static int64_t parent_of(int64_t tgid)
{
    char path[64], line[512];
    int64_t parent = 0;

    snprintf(path, sizeof(path), "/proc/%" PRId64 "/stat", tgid);
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    if (!f || !fgets(line, sizeof(line), f))
        return 0;
    const char *end = strrchr(line, ')');
    return end && sscanf(end + 1, " %*c %" SCNd64, &parent) == 1 ? parent : 0;
}

bool demo_is_descendant(int64_t tgid, pid_t ancestor)
{
    for (int i = 0; i < GENERATIONS_MAX && tgid > 1; i++) {
        if (tgid == ancestor)
            return true;
        tgid = parent_of(tgid);
    }
    return false;
}
