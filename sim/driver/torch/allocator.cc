/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allocator.cc - the caching allocator of allocator.h.
 *
 * Invariants: a block is in exactly one of small_/large_ (reusable), waiting_, or allocated; totals
 * are those after the operation that is reported; blocks of a segment are linked by prev/next.
 */
#include "allocator.h"

#include "report.h"

namespace c10_npu
{
namespace NPUCachingAllocator
{

using torch_npu::profiler::MemoryUsage;
using torch_npu::profiler::reportMemoryDataToNpuProfiler;

static const size_t block_round = 512, pad_size = 32, small_size = 1 << 20, small_segment = 2 << 20,
                    large_segment = 20 << 20, min_large = 10 << 20, large_round = 2 << 20;

bool BlockLess::operator()(const Block *a, const Block *b) const
{
    if (a->stream != b->stream)
        return a->stream < b->stream;
    if (a->size != b->size)
        return a->size < b->size;
    return a->ptr < b->ptr;
}

static size_t round_size(size_t size)
{
    size += pad_size;
    return (size + block_round - 1) / block_round * block_round;
}

static size_t segment_size(size_t size)
{
    if (size <= small_size)
        return small_segment;
    if (size < min_large)
        return large_segment;
    return (size + large_round - 1) / large_round * large_round;
}

void DeviceCachingAllocator::report(const Block *block, int64_t size, uint8_t what,
                                    uint8_t allocator_type)
{
    MemoryUsage usage = {};
    usage.device_type = 20;
    usage.device_index = static_cast<int8_t>(block->device);
    usage.data_type = what;
    usage.allocator_type = allocator_type;
    usage.ptr = reinterpret_cast<int64_t>(block->ptr);
    usage.alloc_size = size;
    usage.total_allocated = stats_.allocated;
    usage.total_reserved = stats_.reserved;
    usage.total_active = stats_.active;
    usage.stream = block->stream;
    reportMemoryDataToNpuProfiler(usage);
}

Block *DeviceCachingAllocator::get_free_block(int device, size_t size, void *stream, bool small)
{
    Block key = {device, stream, size, nullptr, false, small, nullptr, nullptr, {}, {}, nullptr};
    auto &pool = small ? small_ : large_;
    auto found = pool.lower_bound(&key);
    if (found == pool.end() || (*found)->stream != stream)
        return nullptr;
    Block *block = *found;
    pool.erase(found);
    return block;
}

int DeviceCachingAllocator::segment_alloc(int device, size_t size, void *stream, bool small,
                                          Block **ret)
{
    void *ptr = nullptr;
    size_t bytes = segment_size(size);
    int code = segment_malloc(&ptr, bytes, 0);
    if (code)
        return code;
    stats_.reserved += static_cast<int64_t>(bytes);
    *ret =
        new Block{device, stream, bytes,  static_cast<char *>(ptr), false, small, nullptr, nullptr,
                  {},     {},     nullptr};
    return 0;
}

/* Backs the end of the pool's segment; a free block at its end counts towards the size. */
int DeviceCachingAllocator::segment_extend(int device, size_t size, void *stream, bool small,
                                           Block **ret)
{
    ExpandableSegment *&segment = segments_[{stream, small}];
    if (!segment) {
        auto *made = new ExpandableSegment{
            device, small ? small_segment : large_segment, 0, nullptr, {}, nullptr};
        int code = made->open();
        if (code) {
            delete made;
            return code;
        }
        segment = made;
    }
    Block *tail = segment->tail;
    bool tail_free = tail && !tail->allocated && !waiting_.count(tail);
    size_t missing = size - (tail_free ? tail->size : 0);
    size_t granules = (missing + segment->granule - 1) / segment->granule;
    char *end = segment->base + segment->handles.size() * segment->granule;
    int code = segment->grow(granules);
    if (code)
        return code;
    stats_.reserved += static_cast<int64_t>(granules * segment->granule);
    if (tail_free) {
        (small ? small_ : large_).erase(tail);
        tail->size += granules * segment->granule;
        *ret = tail;
        return 0;
    }
    Block *block =
        new Block{device, stream, granules * segment->granule, end, false, small, tail, nullptr, {},
                  {},     segment};
    if (tail)
        tail->next = block;
    segment->tail = block;
    *ret = block;
    return 0;
}

Block *DeviceCachingAllocator::alloc_block(int device, size_t size, void *stream, bool small)
{
    auto attempt = expandable_wanted() ? &DeviceCachingAllocator::segment_extend
                                       : &DeviceCachingAllocator::segment_alloc;
    Block *block = nullptr;
    int code = (this->*attempt)(device, size, stream, small, &block);
    if (code) {
        device_synchronize();
        release_cached_blocks();
        code = (this->*attempt)(device, size, stream, small, &block);
    }
    if (code)
        throw OutOfMemory{code};
    return block;
}

Block *DeviceCachingAllocator::alloc_found_block(Block *block, size_t size, uint8_t allocator_type)
{
    size_t left = block->size - size;
    if (block->small || block->segment ? left >= block_round : left > small_size) {
        Block *rest = new Block{block->device,
                                block->stream,
                                left,
                                block->ptr + size,
                                false,
                                block->small,
                                block,
                                block->next,
                                {},
                                {},
                                block->segment};
        if (rest->next)
            rest->next->prev = rest;
        else if (rest->segment)
            rest->segment->tail = rest;
        block->next = rest;
        block->size = size;
        (rest->small ? small_ : large_).insert(rest);
    }
    block->allocated = true;
    stats_.allocated += static_cast<int64_t>(block->size);
    stats_.active += static_cast<int64_t>(block->size);
    report(block, static_cast<int64_t>(block->size), torch_npu::profiler::MEMORY_MALLOC,
           allocator_type);
    return block;
}

Block *DeviceCachingAllocator::malloc(int device, size_t size, void *stream, uint8_t allocator_type)
{
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    process_events();
    size_t rounded = round_size(size);
    bool small = rounded <= small_size;
    Block *block = get_free_block(device, rounded, stream, small);
    if (!block)
        block = alloc_block(device, rounded, stream, small);
    return alloc_found_block(block, rounded, allocator_type);
}

/* The report is made here, by the function that FreeBlock calls, as in the real library. */
void DeviceCachingAllocator::free(Block *block, uint8_t allocator_type)
{
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    MemoryUsage usage = {};
    block->allocated = false;
    stats_.allocated -= static_cast<int64_t>(block->size);
    usage.device_type = 20;
    usage.device_index = static_cast<int8_t>(block->device);
    usage.data_type = torch_npu::profiler::MEMORY_FREE;
    usage.allocator_type = allocator_type;
    usage.ptr = reinterpret_cast<int64_t>(block->ptr);
    usage.alloc_size = -static_cast<int64_t>(block->size);
    usage.total_allocated = stats_.allocated;
    usage.total_reserved = stats_.reserved;
    usage.total_active = stats_.active;
    usage.stream = block->stream;
    reportMemoryDataToNpuProfiler(usage);
    if (!block->stream_uses.empty()) {
        block->pending.swap(block->stream_uses);
        waiting_.insert(block);
        return;
    }
    free_block(block, allocator_type);
}

void DeviceCachingAllocator::free_block(Block *block, uint8_t allocator_type)
{
    auto &pool = block->small ? small_ : large_;
    stats_.active -= static_cast<int64_t>(block->size);
    report(block, -static_cast<int64_t>(block->size), torch_npu::profiler::MEMORY_BLOCK_FREE,
           allocator_type);
    for (Block *other : {block->prev, block->next}) {
        if (!other || other->allocated || waiting_.count(other))
            continue;
        pool.erase(other);
        if (other == block->prev) {
            block->ptr = other->ptr;
            block->prev = other->prev;
            if (block->prev)
                block->prev->next = block;
        } else {
            block->next = other->next;
            if (block->next)
                block->next->prev = block;
            else if (block->segment)
                block->segment->tail = block;
        }
        block->size += other->size;
        delete other;
    }
    pool.insert(block);
}

void DeviceCachingAllocator::record_stream(Block *block, void *stream)
{
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    if (stream != block->stream)
        block->stream_uses.insert(stream);
}

void DeviceCachingAllocator::process_events()
{
    if (done_.empty())
        return;
    for (auto at = waiting_.begin(); at != waiting_.end();) {
        Block *block = *at;
        for (void *stream : done_)
            block->pending.erase(stream);
        if (!block->pending.empty()) {
            ++at;
            continue;
        }
        at = waiting_.erase(at);
        free_block(block, 0);
    }
    done_.clear();
}

void DeviceCachingAllocator::stream_done(void *stream)
{
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    done_.insert(stream);
}

/* Gives back the granules that the free end of a segment covers whole. */
void DeviceCachingAllocator::segment_trim(ExpandableSegment *segment)
{
    Block *tail = segment->tail;
    if (!tail || tail->allocated || waiting_.count(tail))
        return;
    size_t from = static_cast<size_t>(tail->ptr - segment->base);
    size_t keep = (from + segment->granule - 1) / segment->granule;
    size_t granules = segment->handles.size() - keep;
    if (!granules)
        return;
    auto &pool = tail->small ? small_ : large_;
    pool.erase(tail);
    segment->shrink(granules);
    stats_.reserved -= static_cast<int64_t>(granules * segment->granule);
    tail->size -= granules * segment->granule;
    if (tail->size) {
        pool.insert(tail);
        return;
    }
    segment->tail = tail->prev;
    if (tail->prev)
        tail->prev->next = nullptr;
    delete tail;
}

void DeviceCachingAllocator::release_cached_blocks()
{
    for (Block *block : waiting_)
        done_.insert(block->pending.begin(), block->pending.end());
    process_events();
    for (const auto &entry : segments_) {
        if (entry.second)
            segment_trim(entry.second);
    }
    for (auto *pool : {&small_, &large_}) {
        for (auto at = pool->begin(); at != pool->end();) {
            Block *block = *at;
            if (block->segment || block->prev || block->next || segment_free(block->ptr)) {
                ++at;
                continue;
            }
            stats_.reserved -= static_cast<int64_t>(block->size);
            at = pool->erase(at);
            delete block;
        }
    }
}

void DeviceCachingAllocator::empty_cache()
{
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    device_synchronize();
    release_cached_blocks();
}

Stats DeviceCachingAllocator::stats()
{
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    return stats_;
}

} // namespace NPUCachingAllocator
} // namespace c10_npu
