/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sim.c - runs the cases of test_sim_*.c, each in a fresh process and node. With arguments it
 * is one case: test_sim CASE [ARGUMENT].
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_sim.h"

struct log_line *log_read(const char *path, size_t *count)
{
    struct log_line *lines = NULL;
    char text[1024];
    FILE *in = fopen(path ? path : getenv("NPUSIM_LOG"), "re");

    CHECK(in);
    *count = 0;
    while (fgets(text, sizeof(text), in)) {
        struct log_line line = {0};
        char out[32], size[32], args[512];

        EQUAL(sscanf(text,
                     "%" SCNu64 "\t%" SCNu64
                     "\t%d\t%d\t%31[^\t]\t%95[^\t]\t%lld\t%31s\t%31s\t%511s",
                     &line.begin_ns, &line.end_ns, &line.pid, &line.tid, line.layer, line.symbol,
                     &line.result, out, size, args),
              10);
        line.out = strtoull(out, NULL, 16);
        line.size_bytes = strtoull(size, NULL, 10);
        for (char *arg = strtok(args, ","); arg && *arg != '-'; arg = strtok(NULL, ","))
            line.args[line.arg_count++] = strtoull(arg, NULL, 16);
        lines = realloc(lines, (*count + 1) * sizeof(*lines));
        CHECK(lines);
        lines[(*count)++] = line;
    }
    fclose(in);
    return lines;
}

static bool same_symbol(const struct log_line *line, const char *symbol)
{
    size_t length = strlen(symbol);

    return !strncmp(line->symbol, symbol, length) &&
           (!line->symbol[length] || !strcmp(line->symbol + length, "Impl"));
}

size_t log_count(const struct log_line *lines, size_t count, const char *layer, const char *symbol)
{
    size_t found = 0;

    for (size_t i = 0; i < count; i++)
        found += same_symbol(&lines[i], symbol) && (!layer || !strcmp(layer, lines[i].layer));
    return found;
}

const struct log_line *log_nth(const struct log_line *lines, size_t count, const char *symbol,
                               size_t nth)
{
    for (size_t i = 0; i < count; i++)
        if (same_symbol(&lines[i], symbol) && nth-- == 0)
            return &lines[i];
    fprintf(stderr, "no such line in the log: %s\n", symbol);
    exit(1);
}

uint64_t svm_sum(const char *file, int device, int module, int column)
{
    char line[256];
    uint64_t sum = 0;
    FILE *in = fopen(file, "re");

    CHECK(in);
    while (fgets(line, sizeof(line), in)) {
        unsigned long long values[4];
        int dev, mod;

        if (sscanf(line, "dev%d %*s %*s %d %llu %llu %llu %llu", &dev, &mod, &values[0], &values[1],
                   &values[2], &values[3]) == 6 &&
            dev == device && mod == module)
            sum += values[column - 4];
    }
    fclose(in);
    return sum;
}

void svm_task_path(char *path, size_t size, int pid)
{
    snprintf(path, size, "%s/proc/svm/task/%d/summary", getenv("NPUSIM_DIR"), pid);
}

uint64_t used_bytes(void)
{
    size_t free_bytes, total_bytes;

    EQUAL(aclrtGetMemInfo(SIM_ATTR_HBM, &free_bytes, &total_bytes), 0);
    return total_bytes - free_bytes;
}

int spawn_case(const char *name, const char *argument, const char *environment)
{
    int pid = fork();

    CHECK(pid >= 0);
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed case must not leave its children waiting */
    if (environment)
        putenv(strdup(environment));
    execl("/proc/self/exe", "test_sim", name, argument, NULL);
    _exit(127);
}

void wait_good(int pid)
{
    int status;

    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    EQUAL(WEXITSTATUS(status), 0);
}

static void remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        char name[4096];

        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        if (unlink(name) < 0)
            remove_tree(name);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

static int run_case(const char *name, const char *environment)
{
    char dir[] = "/tmp/npusim-test-XXXXXX";
    char log[64];
    int status, pid;

    CHECK(mkdtemp(dir));
    snprintf(log, sizeof(log), "%s/calls.log", dir);
    setenv("NPUSIM_DIR", dir, 1);
    setenv("NPUSIM_LOG", log, 1);
    pid = spawn_case(name, NULL, environment);
    CHECK(waitpid(pid, &status, 0) == pid);
    printf("%s %s\n", status ? "FAIL" : "ok  ", name);
    fflush(stdout);
    remove_tree(dir);
    return status ? 1 : 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        const char *environment;
    } cases[] = {
        {"nesting", NULL},
        {"oom", "NPUSIM_HBM=1G"},
        {"vmm", NULL},
        {"vmm_oom", "NPUSIM_HBM=64M"},
        {"host", NULL},
        {"pool", NULL},
        {"errors", NULL},
        {"reuse", NULL},
        {"no_ram", NULL},
        {"svm", NULL},
        {"svm_off", "NPUSIM_SVM=0"},
        {"fail", "NPUSIM_FAIL=halMemFree:2:8,aclrtMallocAlign32:1:507899"},
        {"kill", "NPUSIM_HBM=8G"},
        {"visible", "ASCEND_RT_VISIBLE_DEVICES=2,5"},
        {"share", NULL},
        {"fork", NULL},
        {"crowd", "NPUSIM_HBM=1G"},
        {"reset", NULL},
        {"hccl", NULL},
        {"dcmi", NULL},
        {"atb", "NPUSIM_ATB_KB=64"},
        {"streams", "NPUSIM_STREAMS=3"},
        {"busy", "NPUSIM_EVENT_MS=300"},
        {"exec", NULL},
    };
    int failed = 0;

    if (argc > 1) {
        test_memory_cases(argv[1], argv[2]);
        test_process_cases(argv[1], argv[2]);
        fprintf(stderr, "no such case: %s\n", argv[1]);
        return 2;
    }
    unsetenv("ASCEND_RT_VISIBLE_DEVICES");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        failed += run_case(cases[i].name, cases[i].environment);
    printf("%zu passed, %d failed\n", sizeof(cases) / sizeof(cases[0]) - (size_t)failed, failed);
    return failed != 0;
}
