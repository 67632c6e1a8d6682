/* SPDX-License-Identifier: Apache-2.0 */
/*
 * no_python.c - a program that looks like CPython from the outside and is none of those that are
 * known. Built once per KIND:
 *   1  a patched build: the version of 3.11, and a runtime that holds something else
 *   2  a free-threaded 3.13, as it says itself
 *   3  a version that is not known
 *   4  another interpreter: none of CPython's names
 * Prints "ready" and sleeps.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct runtime {
    char cookie[8];
    uint64_t version, free_threaded, words[512];
};

#if KIND == 4 /* names of its own */
#define _PyRuntime other_runtime
#define Py_Version other_version
#endif
extern const unsigned long Py_Version;
extern struct runtime _PyRuntime;

const unsigned long Py_Version = KIND == 2 ? 0x030d00f0 : KIND == 3 ? 0x03630000 : 0x030b07f0;
struct runtime _PyRuntime;

int main(void)
{
    /* pointers that lead back to the same object and fit nothing */
    for (unsigned i = 0; i < 512; i++)
        _PyRuntime.words[i] = (uint64_t)(uintptr_t)&_PyRuntime.words[(7 * i) % 512];
    if (KIND == 2) {
        memcpy(_PyRuntime.cookie, "xdebugpy", 8);
        _PyRuntime.version = Py_Version;
        _PyRuntime.free_threaded = 1;
    }
    puts("ready");
    fflush(stdout);
    pause();
    return (int)Py_Version & 1;
}
