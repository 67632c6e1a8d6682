/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.c - the call log and failure injection of one simulated library. Owns the library's log
 * descriptor and its injection rules; must not allocate or take a lock, because it runs inside
 * every exported function. Rules and path are read from the environment once, at load.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "call.h"

#define RULES_MAX 32
#define SYMBOL_MAX 64

struct rule {
    char symbol[SYMBOL_MAX];
    uint64_t nth;
    int64_t code;
    _Atomic uint64_t seen;
};

bool sim_call_active;
static struct rule rules[RULES_MAX];
static size_t rule_count;
static int log_fd = -1;

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void log_open(void)
{
    const char *pattern = getenv("NPUSIM_LOG");
    const char *mark;
    char path[4096];

    if (!pattern || !*pattern)
        return;
    mark = strstr(pattern, "%p");
    if (mark)
        snprintf(path, sizeof(path), "%.*s%d%s", (int)(mark - pattern), pattern, (int)getpid(),
                 mark + 2);
    else
        snprintf(path, sizeof(path), "%s", pattern);
    log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log_fd < 0)
        fprintf(stderr, "npusim: %s: %s\n", path, strerror(errno));
    else
        sim_call_active = true;
}

static void log_reopen(void)
{
    if (log_fd < 0)
        return;
    close(log_fd);
    log_fd = -1;
    log_open();
}

static void rules_parse(const char *text)
{
    while (*text && rule_count < RULES_MAX) {
        struct rule *rule = &rules[rule_count];
        int used = 0;

        if (sscanf(text, "%63[^:,]:%" SCNu64 ":%" SCNd64 "%n", rule->symbol, &rule->nth,
                   &rule->code, &used) != 3) {
            fprintf(stderr, "npusim: NPUSIM_FAIL: expected symbol:nth:code at \"%s\"\n", text);
            return;
        }
        rule_count++;
        sim_call_active = true;
        text += used;
        if (*text == ',')
            text++;
    }
}

__attribute__((constructor)) static void call_setup(void)
{
    const char *text = getenv("NPUSIM_FAIL");

    log_open();
    pthread_atfork(NULL, NULL, log_reopen);
    if (text)
        rules_parse(text);
}

bool sim_call_begin(struct sim_call *call, const char *symbol, const char *base)
{
    bool injected = false;

    call->symbol = symbol;
    call->code = 0;
    call->begin_ns = log_fd >= 0 ? now_ns() : 0;
    for (size_t i = 0; i < rule_count; i++) {
        uint64_t seen;

        if (strcmp(rules[i].symbol, base) && strcmp(rules[i].symbol, symbol))
            continue;
        seen = atomic_fetch_add(&rules[i].seen, 1) + 1;
        if (!injected && (!rules[i].nth || seen == rules[i].nth)) {
            injected = true;
            call->code = rules[i].code;
        }
    }
    return injected;
}

void sim_call_end(const struct sim_call *call, int64_t result, int out, int size, size_t count,
                  const uint64_t *args)
{
    char line[640];
    int saved = errno;
    int used;

    if (log_fd < 0)
        return;
    used = snprintf(line, sizeof(line), "%" PRIu64 "\t%" PRIu64 "\t%d\t%d\t%s\t%s\t%" PRId64,
                    call->begin_ns, now_ns(), (int)getpid(), (int)syscall(SYS_gettid), SIM_LAYER,
                    call->symbol, result);
    if (out >= 0 && !result && args[out + 1])
        used += snprintf(line + used, sizeof(line) - (size_t)used, "\t0x%" PRIx64,
                         *(const uint64_t *)(uintptr_t)args[out + 1]);
    else
        used += snprintf(line + used, sizeof(line) - (size_t)used, "\t-");
    if (size >= 0)
        used += snprintf(line + used, sizeof(line) - (size_t)used, "\t%" PRIu64, args[size + 1]);
    else
        used += snprintf(line + used, sizeof(line) - (size_t)used, "\t-");
    for (size_t i = 0; i < count; i++)
        used += snprintf(line + used, sizeof(line) - (size_t)used, "%c0x%" PRIx64, i ? ',' : '\t',
                         args[i + 1]);
    if (!count)
        used += snprintf(line + used, sizeof(line) - (size_t)used, "\t-");
    line[used++] = '\n';
    if (write(log_fd, line, (size_t)used) < 0)
        log_fd = -1; /* a full disk ends the log, never the program under test */
    errno = saved;
}
