/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holder.c - a small process that holds device memory and does what a line on stdin says. For
 * where a Python process is too much: minimal containers, many processes, jumps and bursts.
 *
 *   holder LIBRARY [DEVICE]    dlopens it, aclrtSetDevice, prints "ready PID"; commands:
 *   a SIZE      aclrtMalloc; prints the address
 *   f ADDRESS   aclrtFree; prints the result
 *   b N         aclrtSetDevice(1) N times; prints the number made
 *   w SIZE      aclrtMallocCached: a tail-call wrapper in the fake library
 *   o SIZE      aclrtMallocAlign32: calls aclrtMalloc inside in the fake library
 *   j SIZE      aclrtMalloc from which a hook jumps away (longjmp)
 *   t SIZE      aclrtMalloc in a thread, from which a hook ends the thread (pthread_exit)
 *   n SIZE      as a, in a thread that then ends
 *   v           vfork and exec of /bin/true; prints its exit code
 *   m N         aclrtMalloc and aclrtFree of 4096 bytes N times in two threads at once
 *   x           exit
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int (*acl_malloc)(void **ret, uint64_t size, int policy);
static int (*acl_cached)(void **ret, uint64_t size, int policy);
static int (*acl_align32)(void **ret, uint64_t size, int policy);
static int (*acl_free)(void *address);
static int (*acl_set_device)(int device);
static void (**hook)(void);
static jmp_buf away;
static int set_device_number;

static void jump_away(void)
{
    longjmp(away, 1);
}

static void end_thread(void)
{
    pthread_exit(NULL);
}

/* From a frame of its own, so that the next call comes from further up the stack. */
static __attribute__((noinline)) void deep_malloc(uint64_t size)
{
    volatile char room[4096];
    void *address = NULL;

    room[0] = room[sizeof(room) - 1] = 0;
    acl_malloc(&address, size, room[0]);
}

static void *thread_malloc(void *size)
{
    void *address = NULL;

    acl_set_device(set_device_number);
    return acl_malloc(&address, (uintptr_t)size, 0) ? NULL : address;
}

static void *thread_churn(void *count)
{
    acl_set_device(set_device_number);
    for (uintptr_t i = (uintptr_t)count; i > 0; i--) {
        void *address = NULL;
        if (acl_malloc(&address, 4096, 0) || acl_free(address))
            return "failed";
    }
    return NULL;
}

static void *in_thread(void *(*fn)(void *), uint64_t value)
{
    void *result = NULL;
    pthread_t thread;

    if (pthread_create(&thread, NULL, fn, (void *)(uintptr_t)value))
        abort();
    pthread_join(thread, &result);
    return result;
}

static int vfork_true(void)
{
    int status = -1;
    pid_t child = vfork();

    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    }
    waitpid(child, &status, 0);
    return status;
}

static const char *churn(uint64_t count)
{
    pthread_t threads[2];
    void *results[2];

    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, thread_churn, (void *)(uintptr_t)count))
            abort();
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], &results[i]);
    return results[0] || results[1] ? "failed" : "done";
}

static void obey(char command, uint64_t value)
{
    void *address = NULL;
    int made = 0;

    switch (command) {
    case 'a':
        made = acl_malloc(&address, value, 0);
        printf("%d %p\n", made, address);
        break;
    case 'w':
        made = acl_cached(&address, value, 0);
        printf("%d %p\n", made, address);
        break;
    case 'o':
        made = acl_align32(&address, value, 0);
        printf("%d %p\n", made, address);
        break;
    case 'f':
        printf("%d\n", acl_free((void *)(uintptr_t)value));
        break;
    case 'b':
        for (uint64_t i = 0; i < value; i++)
            made += acl_set_device(1) == 0;
        printf("%d\n", made);
        break;
    case 'j':
        *hook = jump_away;
        if (setjmp(away) == 0)
            deep_malloc(value);
        *hook = NULL;
        printf("0\n");
        break;
    case 't':
        *hook = end_thread;
        in_thread(thread_malloc, value);
        *hook = NULL;
        printf("0\n");
        break;
    case 'n':
        printf("0 %p\n", in_thread(thread_malloc, value));
        break;
    case 'm':
        printf("%s\n", churn(value));
        break;
    case 'v':
        printf("%d\n", vfork_true());
        break;
    case 'x':
        exit(0);
    }
}

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    char line[128];

    if (!library) {
        fprintf(stderr, "holder: %s\n", argc > 1 ? dlerror() : "no library given");
        return 1;
    }
    acl_malloc = (int (*)(void **, uint64_t, int))dlsym(library, "aclrtMalloc");
    acl_cached = (int (*)(void **, uint64_t, int))dlsym(library, "aclrtMallocCached");
    acl_align32 = (int (*)(void **, uint64_t, int))dlsym(library, "aclrtMallocAlign32");
    acl_free = (int (*)(void *))dlsym(library, "aclrtFree");
    acl_set_device = (int (*)(int))dlsym(library, "aclrtSetDevice");
    hook = (void (**)(void))dlsym(library, "fake_hook");
    set_device_number = argc > 2 ? atoi(argv[2]) : 0;
    if (!acl_malloc || !acl_free || !acl_set_device || acl_set_device(set_device_number)) {
        fprintf(stderr, "holder: no device\n");
        return 1;
    }
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        obey(line[0], strtoull(line[0] && line[1] ? line + 2 : "0", NULL, 0));
        fflush(stdout);
    }
    return 0;
}
