/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npu_profiler.cc - stand-in libnpu_profiler.so: defines the virtual table that libtorch_npu.so
 * imports. Its profiler is never on.
 */
#include "memory_data.h"

namespace torch_npu
{
namespace toolkit
{
namespace profiler
{

BaseReportData::~BaseReportData() = default;
MemoryData::~MemoryData() = default;

std::vector<uint8_t> MemoryData::encode()
{
    std::vector<uint8_t> bytes;
    for (int64_t value : {ptr, size, time_ns, total_allocated, total_reserved, total_active}) {
        for (int shift = 0; shift < 64; shift += 8)
            bytes.push_back(static_cast<uint8_t>(value >> shift));
    }
    return bytes;
}

static volatile bool on;

bool profiler_is_on()
{
    return on;
}

void profiler_take(BaseReportData *data)
{
    data->encode();
    delete data;
}

} // namespace profiler
} // namespace toolkit
} // namespace torch_npu
