/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sim.h - the tests of the simulated libraries. Each case runs in a process of its own with a
 * node of its own ($NPUSIM_DIR) and a call log; it exits non-zero at the first value that is wrong.
 */
#ifndef TEST_SIM_H
#define TEST_SIM_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim_abi.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define EQUAL(a, b)                                                                                \
    do {                                                                                           \
        long long a_ = (long long)(a), b_ = (long long)(b);                                        \
        if (a_ != b_) {                                                                            \
            fprintf(stderr, "%s:%d: %s is %lld, not %s = %lld\n", __FILE__, __LINE__, #a, a_, #b,  \
                    b_);                                                                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define MIB (1ull << 20)
#define GIB (1ull << 30)

struct log_line {
    uint64_t begin_ns, end_ns;
    int pid, tid;
    char layer[32];
    char symbol[96];
    long long result;
    uint64_t out;
    uint64_t size_bytes;
    uint64_t args[10];
    int arg_count;
};

/* Reads a call log ($NPUSIM_LOG when path is NULL) into a new array; *count is set. */
struct log_line *log_read(const char *path, size_t *count);
/* Lines with the symbol (with or without its Impl suffix) of a layer, or of any layer (NULL). */
size_t log_count(const struct log_line *lines, size_t count, const char *layer, const char *symbol);
/* The nth (from 0) such line; fails the test when there is none. */
const struct log_line *log_nth(const struct log_line *lines, size_t count, const char *symbol,
                               size_t nth);

/* Sum of a column of the driver's text for a device and module; column 4 current ... 7 frees. */
uint64_t svm_sum(const char *file, int device, int module, int column);
/* $NPUSIM_DIR/proc/svm/task/<pid>/summary */
void svm_task_path(char *path, size_t size, int pid);

/* Bytes of the current device that are in use, by aclrtGetMemInfo. */
uint64_t used_bytes(void);
/* Runs this program again as another case; returns its pid. Environment: "NAME=value" or NULL. */
int spawn_case(const char *name, const char *argument, const char *environment);
/* Waits for a child and fails the test unless it exited with 0. */
void wait_good(int pid);

/* Bytes that a process holds on a device without any allocation of its own. */
#define RUNTIME_BYTES (6 * MIB)

void test_memory_cases(const char *name, const char *argument);
void test_process_cases(const char *name, const char *argument);

#endif
