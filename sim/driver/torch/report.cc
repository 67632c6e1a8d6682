/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.cc - the two functions that make a MemoryData.
 *
 * A file of its own, so that no compiler inlines, splits or clones the function that a tracer has
 * to find: its callers are elsewhere, and its only reference to the virtual table is inside it.
 */
#include <ctime>

#include "memory_data.h"
#include "report.h"

namespace torch_npu
{
namespace profiler
{

using toolkit::profiler::MemoryData;

static int64_t time_now()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The bytes that say what is reported are copied as they are, as the real function does: how many
 * there are is what tells the two layouts apart in its code. */
static const size_t kind_size = offsetof(MemoryUsage, allocator_type) + 1;

void reportMemoryDataToNpuProfiler(const MemoryUsage &usage)
{
    if (!toolkit::profiler::profiler_is_on())
        return;
    toolkit::profiler::profiler_take(new MemoryData(
        usage.ptr, usage.alloc_size, time_now(), usage.total_allocated, usage.total_reserved,
        usage.total_active, reinterpret_cast<int64_t>(usage.stream), usage.device_index, &usage,
        kind_size));
}

void NpuProfilerThreadLocalState::reportMemoryUsage(void *ptr, int64_t size, size_t allocated,
                                                    size_t reserved, int8_t device)
{
    if (!toolkit::profiler::profiler_is_on())
        return;
    toolkit::profiler::profiler_take(new MemoryData(
        reinterpret_cast<int64_t>(ptr), size, time_now(), static_cast<int64_t>(allocated),
        static_cast<int64_t>(reserved), 0, 0, device, &device, sizeof(device)));
}

} // namespace profiler
} // namespace torch_npu
