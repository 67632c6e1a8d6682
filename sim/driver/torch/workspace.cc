/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workspace.cc - the workspace allocator: one block per device and stream that only grows.
 *
 * Reports as torch_npu does: growth is a malloc of the block, each use a malloc and a free of the
 * whole block, empty_cache a free. Its totals are its own, not the caching allocator's.
 */
#include "allocator.h"

#include "report.h"

namespace c10_npu
{
namespace NPUCachingAllocator
{

using torch_npu::profiler::MemoryUsage;
using torch_npu::profiler::reportMemoryDataToNpuProfiler;

static const size_t workspace_round = 2 << 20, workspace_pad = 32;

void WorkspaceAllocator::report(int device, void *stream, const Space &space, int64_t size,
                                uint8_t what)
{
    MemoryUsage usage = {};
    const Stats &stats = stats_[device];
    usage.device_type = 20;
    usage.device_index = static_cast<int8_t>(device);
#ifndef NPUSIM_TORCH_V24
    usage.component_type = 1;
#endif
    usage.data_type = what;
    usage.ptr = reinterpret_cast<int64_t>(space.ptr);
    usage.alloc_size = size;
    usage.total_allocated = stats.allocated;
    usage.total_reserved = stats.reserved;
    usage.total_active = stats.active;
    usage.stream = stream;
    reportMemoryDataToNpuProfiler(usage);
}

void *WorkspaceAllocator::malloc(int device, size_t size, void *stream)
{
    std::lock_guard<std::mutex> lock(mutex_);
    Space &space = spaces_[{device, stream}];
    Stats &stats = stats_[device];
    if (space.size < size + workspace_pad) {
        void *ptr = nullptr;
        size_t bytes =
            (size + workspace_pad + workspace_round - 1) / workspace_round * workspace_round;
        if (space.ptr && segment_free(space.ptr) == 0)
            stats.reserved -= static_cast<int64_t>(space.size);
        space = {nullptr, 0};
        int code = segment_malloc(&ptr, bytes, 1);
        if (code)
            throw OutOfMemory{code};
        space = {static_cast<char *>(ptr), bytes};
        stats.reserved += static_cast<int64_t>(bytes);
        report(device, stream, space, static_cast<int64_t>(bytes),
               torch_npu::profiler::MEMORY_MALLOC);
    }
    stats.allocated += static_cast<int64_t>(space.size);
    stats.active += static_cast<int64_t>(space.size);
    report(device, stream, space, static_cast<int64_t>(space.size),
           torch_npu::profiler::MEMORY_MALLOC);
    return space.ptr;
}

void WorkspaceAllocator::free(int device, void *stream)
{
    std::lock_guard<std::mutex> lock(mutex_);
    const Space &space = spaces_[{device, stream}];
    Stats &stats = stats_[device];
    stats.allocated -= static_cast<int64_t>(space.size);
    stats.active -= static_cast<int64_t>(space.size);
    report(device, stream, space, -static_cast<int64_t>(space.size),
           torch_npu::profiler::MEMORY_FREE);
}

void WorkspaceAllocator::empty_cache(int device)
{
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto at = spaces_.begin(); at != spaces_.end();) {
        Space space = at->second;
        if (at->first.first != device || (space.ptr && segment_free(space.ptr))) {
            ++at;
            continue;
        }
        stats_[device].reserved -= static_cast<int64_t>(space.size);
        if (space.ptr)
            report(device, at->first.second, space, -static_cast<int64_t>(space.size),
                   torch_npu::profiler::MEMORY_FREE);
        at = spaces_.erase(at);
    }
}

int64_t WorkspaceAllocator::reserved(int device)
{
    std::lock_guard<std::mutex> lock(mutex_);
    return stats_[device].reserved;
}

} // namespace NPUCachingAllocator
} // namespace c10_npu
