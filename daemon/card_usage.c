/* SPDX-License-Identifier: Apache-2.0 */
/*
 * card_usage.c - see card_usage.h.
 *
 * Source of signatures and of struct dcmi_hbm_info: DCMI's dcmi_interface_api.h as described in
 * docs/ABI.md. "HBM" falls back to nothing: a card without HBM (310P) gives no figure here.
 */
#include "card_usage.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <unistd.h>

#include "clock.h"
#include "log.h"
#include "child.h"

#define CARDS_MAX 64
#define OUTPUT_MAX 16384

struct card_usage {
    char *library;
    uint64_t asked_ns, backoff_until_ns;
};

struct hbm_info { /* dcmi_hbm_info: sizes in MB */
    unsigned long long memory_size;
    unsigned int freq;
    unsigned long long memory_usage;
    int temperature;
    unsigned int bandwidth_rate;
};

int card_usage_new(const char *library, struct card_usage **ret)
{
    static const char *const places[] = {
        "/usr/local/dcmi/libdcmi.so",
        "/usr/local/Ascend/driver/lib64/driver/libdcmi.so",
        "/usr/local/Ascend/driver/lib64/libdcmi.so",
    };
    struct card_usage *c = calloc(1, sizeof(*c));

    if (!c)
        return -ENOMEM;
    for (size_t i = 0; !library[0] && i < ARRAY_SIZE(places); i++)
        if (access(places[i], R_OK) == 0)
            library = places[i];
    if (library[0] && !(c->library = strdup(library))) {
        free(c);
        return -ENOMEM;
    }
    *ret = c;
    return 0;
}

struct card_usage *card_usage_free(struct card_usage *c)
{
    if (c)
        free(c->library);
    free(c);
    return NULL;
}

/* Reads until the child closes its end. Returns the length; -ETIMEDOUT. */
static ssize_t read_output(int fd, char *buffer, size_t size)
{
    uint64_t end_ns = clock_ns(CLOCK_MONOTONIC) + CARD_TIMEOUT_MS * 1000000ull;
    size_t length = 0;

    while (length + 1 < size) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int64_t left = (int64_t)(end_ns - clock_ns(CLOCK_MONOTONIC)) / 1000000;
        ssize_t n;
        if (left <= 0 || poll(&p, 1, left) <= 0)
            return -ETIMEDOUT;
        n = read(fd, buffer + length, size - 1 - length);
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        length += n;
    }
    buffer[length] = '\0';
    return length;
}

/* A child that hangs in the driver may not die of SIGKILL at once: it is then reaped later, by init
 * when the daemon ends. */
static int reap(pid_t pid, bool kill_it)
{
    int status = 0;

    if (kill_it)
        kill(pid, SIGKILL);
    for (int i = 0; i < 50; i++) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        usleep(1000);
    }
    return 1;
}

static void feed(const char *text, struct ledger *ledger)
{
    unsigned device;
    unsigned long long total, used;

    while (text && *text) {
        if (sscanf(text, "card %u %llu %llu", &device, &total, &used) == 3 && device < CARDS_MAX &&
            total < (1ull << 40) && used <= total)
            ledger_card_usage(ledger, device, total << 20, used << 20);
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
}

void card_usage_update(struct card_usage *c, struct ledger *ledger, uint64_t now_ns)
{
    char output[OUTPUT_MAX];
    int pipe_fds[2];
    ssize_t n;
    pid_t pid;

    if (!c || !c->library || now_ns < c->backoff_until_ns ||
        (c->asked_ns && now_ns - c->asked_ns < CARD_FRESH_NS))
        return;
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return;
    pid = child_spawn((const char *const[]){"npumemd", "--dcmi", c->library, NULL}, pipe_fds[1]);
    close(pipe_fds[1]);
    n = pid < 0 ? -ESRCH : read_output(pipe_fds[0], output, sizeof(output));
    close(pipe_fds[0]);
    if (pid >= 0 && reap(pid, n < 0) != 0 && n >= 0)
        n = -EIO;
    c->asked_ns = now_ns;
    if (n < 0) {
        c->backoff_until_ns = now_ns + CARD_BACKOFF_NS;
        log_error(n, "%s: no figures of the cards, asking again in 30 s", c->library);
        return;
    }
    feed(output, ledger);
}

void card_usage_expire(struct card_usage *c)
{
    if (c)
        c->asked_ns = 0;
}

int card_usage_child(const char *library)
{
    void *l = dlopen(library, RTLD_NOW);
    int (*init)(void), (*card_list)(int *, int *, int), (*device_count)(int, int *);
    int (*logic_id)(int *, int, int), (*hbm)(int, int, struct hbm_info *);
    int cards[CARDS_MAX], count = 0;

    if (!l) {
        fprintf(stderr, "npumemd: %s\n", dlerror());
        return 1;
    }
    *(void **)&init = dlsym(l, "dcmi_init");
    *(void **)&card_list = dlsym(l, "dcmi_get_card_list");
    *(void **)&device_count = dlsym(l, "dcmi_get_device_num_in_card");
    *(void **)&logic_id = dlsym(l, "dcmi_get_device_logic_id");
    *(void **)&hbm = dlsym(l, "dcmi_get_device_hbm_info");
    if (!init || !card_list || !device_count || !logic_id || !hbm || init() != 0 ||
        card_list(&count, cards, CARDS_MAX) != 0)
        return 1;
    for (int i = 0; i < count && i < CARDS_MAX; i++) {
        int devices = 0;
        if (device_count(cards[i], &devices) != 0)
            continue;
        for (int d = 0; d < devices && d < CARDS_MAX; d++) {
            struct hbm_info info = {};
            int id = -1;
            if (logic_id(&id, cards[i], d) == 0 && id >= 0 && hbm(cards[i], d, &info) == 0)
                printf("card %d %llu %llu\n", id, info.memory_size, info.memory_usage);
        }
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
