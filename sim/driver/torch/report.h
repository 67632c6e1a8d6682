/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h - the one hidden function through which every block event of torch_npu goes, and the
 * struct that it reads. Offsets: the public layout of torch_npu's MemoryUsage (2.1 to 2.14; 2.3.1
 * and 2.4.0 lack component_type).
 */
#ifndef NPUSIM_TORCH_REPORT_H
#define NPUSIM_TORCH_REPORT_H

#include <cstddef>
#include <cstdint>

namespace torch_npu
{
namespace profiler
{

struct MemoryUsage {
    int8_t device_type; /* 20: PrivateUse1 */
    int8_t device_index;
#ifndef NPUSIM_TORCH_V24
    uint8_t component_type; /* 0 caching allocator, 1 workspace allocator */
#endif
    uint8_t data_type;      /* 0 malloc, 1 free, 2 block free */
    uint8_t allocator_type; /* 0 inner, 1 external */
    int64_t ptr;
    int64_t alloc_size; /* negative for a free */
    int64_t total_allocated, total_reserved, total_active;
    void *stream;
};

static_assert(sizeof(MemoryUsage) == 56, "size of MemoryUsage");
static_assert(offsetof(MemoryUsage, ptr) == 8 && offsetof(MemoryUsage, stream) == 48,
              "offsets of MemoryUsage");

enum { MEMORY_MALLOC, MEMORY_FREE, MEMORY_BLOCK_FREE };

/* Hidden and never inlined, as in the real library. */
__attribute__((noinline)) void reportMemoryDataToNpuProfiler(const MemoryUsage &usage);

/* A second function that makes a MemoryData: whoever looks for the first one must not take it. */
struct NpuProfilerThreadLocalState {
    __attribute__((noinline)) void reportMemoryUsage(void *ptr, int64_t size, size_t allocated,
                                                     size_t reserved, int8_t device);
};

} // namespace profiler
} // namespace torch_npu

#endif
