/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_atb.h - the four C++ functions of ATB that are probed, with their public signatures.
 */
#ifndef NPUMEM_TESTS_FAKE_ATB_H
#define NPUMEM_TESTS_FAKE_ATB_H

#include <cstdint>

#define FAKE_EXPORT __attribute__((visibility("default"), noinline))

namespace atb
{

struct VariantPack {
    int count;
};
struct Context {
    int value;
};

class OperationBase
{
  public:
    FAKE_EXPORT virtual ~OperationBase();
    FAKE_EXPORT virtual int Setup(const VariantPack &pack, uint64_t &workspace_bytes,
                                  Context *context);
    FAKE_EXPORT virtual int Execute(const VariantPack &pack, uint8_t *workspace,
                                    uint64_t workspace_bytes, Context *context);
};

FAKE_EXPORT int CreateContext(Context **ret);
FAKE_EXPORT int DestroyContext(Context *context);

} // namespace atb

#endif
