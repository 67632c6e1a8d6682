/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.h - what every exported function of a simulated library does around its body: the call log
 * (ground truth for tests) and failure injection. Linked into each library separately.
 *
 * NPUSIM_LOG=FILE (%p becomes the pid): one line per call at its return, tab separated, written
 * by one write(2), so that a killed process leaves every finished call:
 *   begin_ns end_ns pid tid layer symbol result out size arguments
 * Times are CLOCK_BOOTTIME; layer is the library without ".so"; symbol the exported ELF name;
 * result decimal; out is the produced 64-bit value in hex ("-": none or failed); size decimal or
 * "-"; arguments comma-separated hex. A tail-call wrapper is one jump and can't log: it stands for
 * exactly one line of the layer below.
 * NPUSIM_FAIL=symbol:nth:code[,...]: the nth call (1-based; 0: each) of the symbol in a process
 * returns the code and does nothing. A name matches its ...Impl too.
 * Cost without both: one load and one branch.
 */
#ifndef SIM_CALL_H
#define SIM_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_EXPORT __attribute__((visibility("default"), noinline))
#define SIM_STRING_(x) #x
#define SIM_STRING(x) SIM_STRING_(x)

struct sim_call {
    uint64_t begin_ns;
    const char *symbol;
    int64_t code;
};

#ifdef __cplusplus
extern "C" {
#endif

/* True when a log or an injection rule is set for this process. */
extern bool sim_call_active;

/* Starts a call; true when the body has to be skipped because call->code is injected. */
bool sim_call_begin(struct sim_call *call, const char *symbol, const char *base);
/* Logs a finished call; args[0] is unused, argument i is args[i + 1]. */
void sim_call_end(const struct sim_call *call, int64_t result, int out, int size, size_t count,
                  const uint64_t *args);

#ifdef __cplusplus
}
#endif

/* Maps the parenthesised argument list of a table row to a list of 64-bit values. */
#define SIM_U64(x) (uint64_t)(uintptr_t)(x)
#define SIM_M0()
#define SIM_M1(a) , SIM_U64(a)
#define SIM_M2(a, ...) SIM_M1(a) SIM_M1(__VA_ARGS__)
#define SIM_M3(a, ...) SIM_M1(a) SIM_M2(__VA_ARGS__)
#define SIM_M4(a, ...) SIM_M1(a) SIM_M3(__VA_ARGS__)
#define SIM_M5(a, ...) SIM_M1(a) SIM_M4(__VA_ARGS__)
#define SIM_M6(a, ...) SIM_M1(a) SIM_M5(__VA_ARGS__)
#define SIM_M7(a, ...) SIM_M1(a) SIM_M6(__VA_ARGS__)
#define SIM_M8(a, ...) SIM_M1(a) SIM_M7(__VA_ARGS__)
#define SIM_M9(a, ...) SIM_M1(a) SIM_M8(__VA_ARGS__)
#define SIM_M10(a, ...) SIM_M1(a) SIM_M9(__VA_ARGS__)
#define SIM_PICK(z, a, b, c, d, e, f, g, h, i, j, name, ...) name
#define SIM_ARGS(...)                                                                              \
    SIM_PICK(0, ##__VA_ARGS__, SIM_M10, SIM_M9, SIM_M8, SIM_M7, SIM_M6, SIM_M5, SIM_M4, SIM_M3,    \
             SIM_M2, SIM_M1, SIM_M0)                                                               \
    (__VA_ARGS__)

/* The exported function `name` of a table row whose public symbol is `base`. */
#define SIM_FUNCTION(ret, name, base, out, size, params, args, body)                               \
    SIM_EXPORT ret name params;                                                                    \
    SIM_EXPORT ret name params                                                                     \
    {                                                                                              \
        struct sim_call call;                                                                      \
        ret result;                                                                                \
        if (__builtin_expect(!sim_call_active, 1))                                                 \
            return body;                                                                           \
        if (sim_call_begin(&call, SIM_STRING(name), SIM_STRING(base)))                             \
            result = (ret)(intptr_t)call.code;                                                     \
        else                                                                                       \
            result = body;                                                                         \
        const uint64_t list[] = {0 SIM_ARGS args};                                                 \
        sim_call_end(&call, (int64_t)(intptr_t)result, out, size,                                  \
                     sizeof(list) / sizeof(list[0]) - 1, list);                                    \
        return result;                                                                             \
    }

#endif
