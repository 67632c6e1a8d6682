/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exports.cc - what the stand-in libtorch_npu.so exports: the functions that the real one exports
 * under the same names, and extern "C" entries for the scenario drivers (npusim_torch_*).
 *
 * The real library throws through MallocBlock when memory is out; so does this one.
 */
#include <dlfcn.h>

#include "allocator.h"
#include "report.h"

#define EXPORT __attribute__((visibility("default")))

namespace c10_npu
{
namespace NPUCachingAllocator
{

static DeviceCachingAllocator *const allocators = new DeviceCachingAllocator[DEVICES_MAX];
static WorkspaceAllocator *const workspaces = new WorkspaceAllocator;

DeviceCachingAllocator &device_allocator(int device)
{
    return allocators[device & (DEVICES_MAX - 1)];
}

WorkspaceAllocator &workspace_allocator()
{
    return *workspaces;
}

void *acl_symbol(const char *name)
{
    for (const char *library : {"libascendcl.so", "libacl_rt.so"}) {
        void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
        void *symbol = handle ? dlsym(handle, name) : nullptr;
        if (symbol)
            return symbol;
    }
    return dlsym(RTLD_DEFAULT, name);
}

int segment_malloc(void **ret, size_t size, int policy)
{
    static auto call =
        reinterpret_cast<int (*)(void **, size_t, int)>(acl_symbol("aclrtMallocAlign32"));
    return call ? call(ret, size, policy) : 207000;
}

int segment_free(void *ptr)
{
    static auto call = reinterpret_cast<int (*)(void *)>(acl_symbol("aclrtFree"));
    return call ? call(ptr) : 207000;
}

void device_synchronize()
{
    static auto call = reinterpret_cast<int (*)(void)>(acl_symbol("aclrtSynchronizeDevice"));
    if (call)
        call();
}

EXPORT void *MallocBlock(size_t size, void *stream, int device)
{
    return device_allocator(device).malloc(device, size, stream, 1);
}

EXPORT void FreeBlock(void *handle)
{
    Block *block = static_cast<Block *>(handle);
    device_allocator(block->device).free(block, 1);
}

EXPORT void *GetBlockPtr(const void *handle)
{
    return static_cast<const Block *>(handle)->ptr;
}

EXPORT size_t GetBlockSize(const void *handle)
{
    return static_cast<const Block *>(handle)->size;
}

} // namespace NPUCachingAllocator
} // namespace c10_npu

using namespace c10_npu::NPUCachingAllocator;

extern "C" {

struct npusim_torch_stats_result {
    int64_t allocated_bytes, reserved_bytes, active_bytes, workspace_bytes;
};

EXPORT int npusim_torch_malloc(size_t size, void *stream, int device, int external,
                               void **ret_block)
{
    try {
        *ret_block = external ? MallocBlock(size, stream, device)
                              : device_allocator(device).malloc(device, size, stream, 0);
        return 0;
    } catch (const OutOfMemory &failure) {
        return failure.code;
    }
}

EXPORT int npusim_torch_free(void *handle)
{
    Block *block = static_cast<Block *>(handle);
    device_allocator(block->device).free(block, 0);
    return 0;
}

EXPORT int npusim_torch_record_stream(void *handle, void *stream)
{
    Block *block = static_cast<Block *>(handle);
    device_allocator(block->device).record_stream(block, stream);
    return 0;
}

EXPORT int npusim_torch_stream_done(int device, void *stream)
{
    device_allocator(device).stream_done(stream);
    return 0;
}

EXPORT int npusim_torch_empty_cache(int device)
{
    device_allocator(device).empty_cache();
    workspace_allocator().empty_cache(device);
    return 0;
}

EXPORT int npusim_torch_workspace(size_t size, void *stream, int device)
{
    try {
        workspace_allocator().malloc(device, size, stream);
        workspace_allocator().free(device, stream);
        return 0;
    } catch (const OutOfMemory &failure) {
        return failure.code;
    }
}

EXPORT void npusim_torch_stats(int device, struct npusim_torch_stats_result *ret)
{
    Stats stats = device_allocator(device).stats();
    *ret = {stats.allocated, stats.reserved, stats.active, workspace_allocator().reserved(device)};
}

/* Reaches the second function that makes a MemoryData, so that the linker keeps it. */
EXPORT void npusim_torch_profiler_report(void *ptr, int64_t size)
{
    torch_npu::profiler::NpuProfilerThreadLocalState state;
    state.reportMemoryUsage(ptr, size, 0, 0, 0);
}
}
