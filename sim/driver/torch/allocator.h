/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allocator.h - a small real caching allocator with torch_npu's rules, over aclrtMallocAlign32.
 *
 * Rules (facts of torch_npu's NPUCachingAllocator): a request is rounded to 512 after adding 32;
 * segments are 2 MiB for requests up to 1 MiB, 20 MiB below 10 MiB, else the next 2 MiB; best fit
 * within one stream; small blocks split at 512 bytes, large ones when more than 1 MiB is left; a
 * block that another stream uses is reusable only after that stream is done; after a failed
 * allocation cached segments go back and it is tried once more. Everything is reported.
 */
#ifndef NPUSIM_TORCH_ALLOCATOR_H
#define NPUSIM_TORCH_ALLOCATOR_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <unordered_set>
#include <vector>

namespace c10_npu
{
namespace NPUCachingAllocator
{

struct ExpandableSegment;

struct Block {
    int device;
    void *stream;
    size_t size;
    char *ptr;
    bool allocated;
    bool small; /* belongs to a 2 MiB segment */
    Block *prev, *next;
    std::set<void *> stream_uses;
    std::set<void *> pending;   /* streams that are not done with it yet */
    ExpandableSegment *segment; /* NULL: a segment of its own */
};

/* Reserved addresses that are backed granule by granule (PYTORCH_NPU_ALLOC_CONF
 * expandable_segments:True): one per pool and stream, 1 1/8 of the card, granules of 2 or 20 MiB.
 */
struct ExpandableSegment {
    int device;
    size_t granule, capacity;
    char *base;
    std::vector<void *> handles; /* handles[i] is mapped at base + i * granule */
    Block *tail;                 /* last block, free or not; NULL: nothing is mapped */

    int open();
    int grow(size_t granules); /* all handles first, then all mappings; all or nothing */
    void shrink(size_t granules);
};

struct BlockLess {
    bool operator()(const Block *a, const Block *b) const;
};

struct OutOfMemory {
    int code; /* of the last failing library call */
};

struct Stats {
    int64_t allocated, reserved, active;
};

/* One per device. Throws OutOfMemory, like the real one throws c10::OutOfMemoryError. */
class DeviceCachingAllocator
{
  public:
    __attribute__((noinline)) Block *malloc(int device, size_t size, void *stream,
                                            uint8_t allocator_type);
    __attribute__((noinline)) void free(Block *block, uint8_t allocator_type);
    void record_stream(Block *block, void *stream);
    void stream_done(void *stream);
    void empty_cache();
    Stats stats();

  private:
    Block *get_free_block(int device, size_t size, void *stream, bool small);
    Block *alloc_block(int device, size_t size, void *stream, bool small);
    int segment_alloc(int device, size_t size, void *stream, bool small, Block **ret);
    int segment_extend(int device, size_t size, void *stream, bool small, Block **ret);
    void segment_trim(ExpandableSegment *segment);
    __attribute__((noinline)) Block *alloc_found_block(Block *block, size_t size,
                                                       uint8_t allocator_type);
    __attribute__((noinline)) void free_block(Block *block, uint8_t allocator_type);
    void process_events();
    void release_cached_blocks();
    void report(const Block *block, int64_t size, uint8_t what, uint8_t allocator_type);

    std::recursive_mutex mutex_;
    std::set<Block *, BlockLess> small_, large_;
    std::unordered_set<Block *> waiting_; /* freed by the user, in use by another stream */
    std::set<void *> done_;
    Stats stats_ = {0, 0, 0};
    std::map<std::pair<void *, bool>, ExpandableSegment *> segments_;
};

/* One block per stream, grows only, freed by empty_cache. */
class WorkspaceAllocator
{
  public:
    void *malloc(int device, size_t size, void *stream);
    void free(int device, void *stream);
    void empty_cache(int device);
    int64_t reserved(int device);

  private:
    struct Space {
        char *ptr;
        size_t size;
    };
    void report(int device, void *stream, const Space &space, int64_t size, uint8_t what);
    std::mutex mutex_;
    std::map<std::pair<int, void *>, Space> spaces_;
    std::map<int, Stats> stats_;
};

enum { DEVICES_MAX = 16 };
DeviceCachingAllocator &device_allocator(int device);
WorkspaceAllocator &workspace_allocator();

/* The library's functions, resolved at first use from the libraries that the process has. */
int segment_malloc(void **ret, size_t size, int policy);
int segment_free(void *ptr);
void device_synchronize();
void *acl_symbol(const char *name);
bool expandable_wanted(); /* the setting of the environment, read once */

} // namespace NPUCachingAllocator
} // namespace c10_npu

#endif
