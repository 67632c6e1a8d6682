/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_atb.cc - a libatb.so whose operations throw, as the real one's do on a bad argument.
 */
#include "fake_atb.h"

#include <stdexcept>

namespace atb
{

OperationBase::~OperationBase()
{
}

int OperationBase::Setup(const VariantPack &pack, uint64_t &workspace_bytes, Context *context)
{
    workspace_bytes = static_cast<uint64_t>(pack.count) * 4096;
    if (!context)
        throw std::invalid_argument("no context");
    return 0;
}

int OperationBase::Execute(const VariantPack &pack, uint8_t *workspace, uint64_t workspace_bytes,
                           Context *context)
{
    if (!context || !workspace)
        throw std::runtime_error("no workspace");
    return static_cast<int>(pack.count + workspace_bytes) < 0;
}

int CreateContext(Context **ret)
{
    if (!ret)
        throw std::invalid_argument("nowhere to put it");
    *ret = new Context{1};
    return 0;
}

int DestroyContext(Context *context)
{
    delete context;
    return 0;
}

} // namespace atb
