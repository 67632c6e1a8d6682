/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acl.c - opens the libraries of a layout and resolves their functions.
 *
 * Must not call any of them.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "acl.h"

static int library_open(struct acl *acl, const char *directory, const char *name, char *message,
                        size_t size)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s/%s", directory, name);
    if (n < 0 || (size_t)n >= sizeof(path) || access(path, R_OK) < 0)
        return 0;
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!handle) {
        snprintf(message, size, "%s", dlerror());
        return -ELIBACC;
    }
    acl->handles[acl->handle_count++] = handle;
    return 1;
}

void *acl_symbol(const struct acl *acl, const char *name)
{
    for (size_t i = 0; i < acl->handle_count; i++) {
        void *symbol = dlsym(acl->handles[i], name);
        if (symbol)
            return symbol;
    }
    return NULL;
}

int acl_open(const char *directory, bool hccl, bool atb, bool nnop, struct acl *ret, char *message,
             size_t size)
{
    struct acl acl = {0};
    const char *names[] = {"libascendcl.so",         "libacl_rt.so",
                           hccl ? "libhccl.so" : "", hccl ? "libhcomm.so" : "",
                           atb ? "libatb.so" : "",   nnop ? "libnnopbase.so" : ""};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (*names[i] && library_open(&acl, directory, names[i], message, size) < 0)
            return -ELIBACC;
    }
#define ACL(name) acl.name = (__typeof__(acl.name))acl_symbol(&acl, #name);
#include "acl_api.def"
#undef ACL
    if (!acl.aclrtMalloc || !acl.aclrtSetDevice) {
        snprintf(message, size, "%s holds no simulated CANN libraries", directory);
        return -ENOENT;
    }
    *ret = acl;
    return 0;
}

int torch_open(const char *directory, struct torch *ret, char *message, size_t size)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/libtorch_npu.so", directory);
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!handle) {
        snprintf(message, size, "%s", dlerror());
        return -ELIBACC;
    }
    struct torch torch = {
        .malloc = (__typeof__(torch.malloc))dlsym(handle, "npusim_torch_malloc"),
        .free = (__typeof__(torch.free))dlsym(handle, "npusim_torch_free"),
        .pointer = (__typeof__(torch.pointer))dlsym(
            handle, "_ZN7c10_npu19NPUCachingAllocator11GetBlockPtrEPKv"),
        .size = (__typeof__(torch.size))dlsym(handle,
                                              "_ZN7c10_npu19NPUCachingAllocator12GetBlockSizeEPKv"),
        .record_stream =
            (__typeof__(torch.record_stream))dlsym(handle, "npusim_torch_record_stream"),
        .stream_done = (__typeof__(torch.stream_done))dlsym(handle, "npusim_torch_stream_done"),
        .empty_cache = (__typeof__(torch.empty_cache))dlsym(handle, "npusim_torch_empty_cache"),
        .workspace = (__typeof__(torch.workspace))dlsym(handle, "npusim_torch_workspace"),
        .stats = (__typeof__(torch.stats))dlsym(handle, "npusim_torch_stats"),
    };
    if (!torch.malloc || !torch.free || !torch.pointer || !torch.size || !torch.record_stream ||
        !torch.stream_done || !torch.empty_cache || !torch.workspace || !torch.stats) {
        snprintf(message, size, "%s is not the stand-in of this project", path);
        return -ELIBACC;
    }
    *ret = torch;
    return 0;
}
