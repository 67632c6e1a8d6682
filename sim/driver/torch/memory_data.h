/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_data.h - the record class of the stand-in libnpu_profiler.so. Its virtual table is defined
 * there and imported by libtorch_npu.so through the global offset table, as in the real wheels.
 */
#ifndef NPUSIM_TORCH_MEMORY_DATA_H
#define NPUSIM_TORCH_MEMORY_DATA_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace torch_npu
{
namespace toolkit
{
namespace profiler
{

struct __attribute__((visibility("default"))) BaseReportData {
    explicit BaseReportData(int32_t device) : device_id(device)
    {
    }
    virtual ~BaseReportData();
    virtual std::vector<uint8_t> encode() = 0;
    int32_t device_id;
};

struct __attribute__((visibility("default"))) MemoryData : BaseReportData {
    MemoryData(int64_t address, int64_t bytes, int64_t time, int64_t allocated, int64_t reserved,
               int64_t active, int64_t stream, int8_t index, const void *kind_bytes,
               size_t kind_size)
        : BaseReportData(index), ptr(address), size(bytes), time_ns(time),
          total_allocated(allocated), total_reserved(reserved), total_active(active),
          stream_ptr(stream)
    {
        std::memcpy(kind, kind_bytes, kind_size);
    }
    ~MemoryData() override;
    std::vector<uint8_t> encode() override;
    int64_t ptr, size, time_ns, total_allocated, total_reserved, total_active, stream_ptr;
    uint8_t kind[8] = {}; /* device type and index, component, data and allocator type */
};

/* Takes over a record; does nothing with it unless a profiler runs (none ever does here). */
__attribute__((visibility("default"))) bool profiler_is_on();
__attribute__((visibility("default"))) void profiler_take(BaseReportData *data);

} // namespace profiler
} // namespace toolkit
} // namespace torch_npu

#endif
