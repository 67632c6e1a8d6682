/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expandable.cc - the driver calls of an expandable segment, in the order in which torch_npu makes
 * them: reserve once, then per request all physical handles, then all mappings; when a handle fails
 * (207001), those already made for this request go back and the addresses stay unbacked.
 */
#include <cstdlib>
#include <cstring>

#include "allocator.h"

namespace c10_npu
{
namespace NPUCachingAllocator
{

/* aclrtPhysicalMemProp: public offsets 0, 4, 8, 12, 16, 24 */
struct PhysicalProp {
    int32_t handle_type, allocation_type, attribute;
    uint32_t id;
    int32_t type;
    uint64_t reserve;
};

template <typename Function> static Function resolve(const char *name)
{
    return reinterpret_cast<Function>(acl_symbol(name));
}

static int unsupported()
{
    return 207000;
}

bool expandable_wanted()
{
    static const char *const setting = getenv("PYTORCH_NPU_ALLOC_CONF");
    static const bool wanted = setting && strstr(setting, "expandable_segments:True");
    return wanted;
}

int ExpandableSegment::open()
{
    auto info = resolve<int (*)(int, size_t *, size_t *)>("aclrtGetMemInfo");
    auto reserve =
        resolve<int (*)(void **, size_t, size_t, void *, uint64_t)>("aclrtReserveMemAddress");
    size_t available = 0, total = 0;
    void *ptr = nullptr;
    if (!info || !reserve)
        return unsupported();
    int code = info(1, &available, &total);
    if (code)
        return code;
    capacity = (total + total / 8) / granule;
    code = reserve(&ptr, capacity * granule, 0, nullptr, 1);
    base = static_cast<char *>(ptr);
    return code;
}

int ExpandableSegment::grow(size_t granules)
{
    static auto create =
        resolve<int (*)(void **, size_t, const PhysicalProp *, uint64_t)>("aclrtMallocPhysical");
    static auto release = resolve<int (*)(void *)>("aclrtFreePhysical");
    static auto map = resolve<int (*)(void *, size_t, size_t, void *, uint64_t)>("aclrtMapMem");
    if (!create || !release || !map)
        return unsupported();
    if (granules > capacity - handles.size())
        return 207001;
    PhysicalProp prop = {0, 0, 4, static_cast<uint32_t>(device), 1, 0};
    std::vector<void *> fresh;
    int code = 0;
    while (fresh.size() < granules && !code) {
        void *handle = nullptr;
        code = create(&handle, granule, &prop, 0);
        if (!code)
            fresh.push_back(handle);
    }
    if (code) {
        for (void *handle : fresh)
            release(handle);
        return code;
    }
    for (void *handle : fresh) {
        map(base + handles.size() * granule, granule, 0, handle, 0);
        handles.push_back(handle);
    }
    return 0;
}

void ExpandableSegment::shrink(size_t granules)
{
    static auto release = resolve<int (*)(void *)>("aclrtFreePhysical");
    static auto unmap = resolve<int (*)(void *)>("aclrtUnmapMem");
    for (; granules; granules--) {
        unmap(base + (handles.size() - 1) * granule);
        release(handles.back());
        handles.pop_back();
    }
}

} // namespace NPUCachingAllocator
} // namespace c10_npu
