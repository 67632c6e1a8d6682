// SPDX-License-Identifier: Apache-2.0
//
// atb.cpp - libatb: operations that ask for a workspace and use it, and contexts. C++ like the real
// library, because callers go through its virtual tables and observers through its mangled names;
// nothing of an operator is computed. Types hold only what the ABI fixes: order of virtual
// functions, argument types by name, offsets of a tensor's size (96) and of a list's count (8).
//
// NPUSIM_ATB_KB: workspace that Setup asks for (default 0). Executing with less fails.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "call.h"
#include "sim_abi.h"

#define ATB_EXPORT __attribute__((visibility("default")))

namespace atb
{
using Status = int;
enum : int { NO_ERROR = 0, ERROR_INVALID_PARAM = 1, ERROR_OUT_OF_DEVICE_MEMORY = 13 };
enum ExecuteType : int {
    EXECUTE_NORMAL = 0,
};

struct TensorDesc;
struct Tensor;
template <typename T> class SVector;
struct VariantPack;

class ATB_EXPORT Context
{
  public:
    virtual ~Context() = default;
    virtual Status SetExecuteStream(void *stream) = 0;
    virtual void *GetExecuteStream() const = 0;
    virtual Status SetAsyncTilingCopyStatus(bool enable) = 0;
    virtual bool GetAsyncTilingCopyStatus() const = 0;
    virtual Status SetExecuteStreams(const std::vector<void *> &streams) = 0;
    virtual std::vector<void *> GetExecuteStreams() = 0;
    virtual Status SetExecuteType(ExecuteType type) = 0;
    virtual ExecuteType GetExecuteType() = 0;
    virtual Status SetL2WorkspaceBuffer(void *buffer, size_t size) = 0;
    virtual Status SetL2TensorBuffer(void *buffer, size_t size) = 0;
};

class ATB_EXPORT Operation
{
  public:
    virtual ~Operation() = default;
    virtual std::string GetName() const = 0;
    virtual Status InferShape(const SVector<TensorDesc> &in, SVector<TensorDesc> &out) const = 0;
    virtual uint32_t GetInputNum() const = 0;
    virtual uint32_t GetOutputNum() const = 0;
    virtual Status Setup(const VariantPack &pack, uint64_t &workspaceSize, Context *context) = 0;
    virtual Status Execute(const VariantPack &pack, uint8_t *workspace, uint64_t workspaceSize,
                           Context *context) = 0;
};

class ATB_EXPORT OperationBase : public Operation
{
  public:
    explicit OperationBase(const char *name);
    ~OperationBase() override;
    std::string GetName() const override;
    Status InferShape(const SVector<TensorDesc> &in, SVector<TensorDesc> &out) const override;
    uint32_t GetInputNum() const override;
    uint32_t GetOutputNum() const override;
    Status Setup(const VariantPack &pack, uint64_t &workspaceSize, Context *context) override;
    Status Execute(const VariantPack &pack, uint8_t *workspace, uint64_t workspaceSize,
                   Context *context) override;

  private:
    const char *name_;
    uint64_t workspace_bytes_;
};

namespace
{
// The default allocator of a context: its one tiling buffer comes from aclrtMalloc.
void *device_allocate(size_t size)
{
    void *buffer = nullptr;

    return aclrtMalloc(&buffer, size, SIM_HUGE_FIRST) == 0 ? buffer : nullptr;
}

void device_free(void *buffer)
{
    (void)aclrtFree(buffer);
}

class ContextBase : public Context
{
  public:
    ContextBase(std::function<void *(size_t)> allocate, std::function<void(void *)> release)
        : allocate_(std::move(allocate)), release_(std::move(release))
    {
    }
    ~ContextBase() override
    {
        if (tiling_)
            release_(tiling_);
    }
    bool Open()
    {
        tiling_ = allocate_(TILING_BYTES);
        return tiling_ != nullptr;
    }
    Status SetExecuteStream(void *stream) override
    {
        streams_.assign(1, stream);
        return NO_ERROR;
    }
    void *GetExecuteStream() const override
    {
        return streams_.empty() ? nullptr : streams_[0];
    }
    Status SetAsyncTilingCopyStatus(bool enable) override
    {
        async_ = enable;
        return NO_ERROR;
    }
    bool GetAsyncTilingCopyStatus() const override
    {
        return async_;
    }
    Status SetExecuteStreams(const std::vector<void *> &streams) override
    {
        streams_ = streams;
        return NO_ERROR;
    }
    std::vector<void *> GetExecuteStreams() override
    {
        return streams_;
    }
    Status SetExecuteType(ExecuteType type) override
    {
        type_ = type;
        return NO_ERROR;
    }
    ExecuteType GetExecuteType() override
    {
        return type_;
    }
    Status SetL2WorkspaceBuffer(void *, size_t) override
    {
        return NO_ERROR;
    }
    Status SetL2TensorBuffer(void *, size_t) override
    {
        return NO_ERROR;
    }

  private:
    static constexpr size_t TILING_BYTES = 3u << 20;
    std::function<void *(size_t)> allocate_;
    std::function<void(void *)> release_;
    void *tiling_ = nullptr;
    std::vector<void *> streams_;
    ExecuteType type_ = EXECUTE_NORMAL;
    bool async_ = false;
};

// One line of the call log around an exported C++ function; nothing when there is no log.
class Logged
{
  public:
    explicit Logged(const char *symbol)
    {
        if (sim_call_active)
            injected_ = sim_call_begin(&call_, symbol, symbol);
    }
    bool injected() const
    {
        return injected_;
    }
    Status done(Status result, std::initializer_list<uint64_t> args, int out, int size)
    {
        if (injected_)
            result = static_cast<Status>(call_.code);
        if (sim_call_active) {
            std::vector<uint64_t> list(1, 0);

            list.insert(list.end(), args);
            sim_call_end(&call_, result, out, size, args.size(), list.data());
        }
        return result;
    }

  private:
    struct sim_call call_ = {};
    bool injected_ = false;
};

uint64_t number(const void *pointer)
{
    return reinterpret_cast<uintptr_t>(pointer);
}

Status context_make(Context **context, std::function<void *(size_t)> allocate,
                    std::function<void(void *)> release, const char *symbol)
{
    Logged log(symbol);
    Status result = NO_ERROR;

    if (!log.injected()) {
        if (!context) {
            result = ERROR_INVALID_PARAM;
        } else {
            auto *made = new ContextBase(std::move(allocate), std::move(release));

            if (made->Open()) {
                *context = made;
            } else {
                delete made;
                result = ERROR_OUT_OF_DEVICE_MEMORY;
            }
        }
    }
    return log.done(result, {number(context)}, 0, -1);
}
} // namespace

OperationBase::OperationBase(const char *name) : name_(name), workspace_bytes_(0)
{
    const char *text = getenv("NPUSIM_ATB_KB");

    if (text)
        workspace_bytes_ = strtoull(text, nullptr, 10) << 10;
}

OperationBase::~OperationBase() = default;

std::string OperationBase::GetName() const
{
    return name_;
}

Status OperationBase::InferShape(const SVector<TensorDesc> &, SVector<TensorDesc> &) const
{
    return NO_ERROR;
}

uint32_t OperationBase::GetInputNum() const
{
    return 1;
}

uint32_t OperationBase::GetOutputNum() const
{
    return 1;
}

Status OperationBase::Setup(const VariantPack &pack, uint64_t &workspaceSize, Context *context)
{
    Logged log("_ZN3atb13OperationBase5SetupERKNS_11VariantPackERmPNS_7ContextE");
    Status result = context ? NO_ERROR : ERROR_INVALID_PARAM;

    if (!log.injected() && result == NO_ERROR)
        workspaceSize = workspace_bytes_;
    return log.done(result, {number(this), number(&pack), number(&workspaceSize), number(context)},
                    2, -1);
}

Status OperationBase::Execute(const VariantPack &pack, uint8_t *workspace, uint64_t workspaceSize,
                              Context *context)
{
    Logged log("_ZN3atb13OperationBase7ExecuteERKNS_11VariantPackEPhmPNS_7ContextE");
    bool enough = workspaceSize >= workspace_bytes_ && (workspace || !workspace_bytes_);
    Status result = context && enough ? NO_ERROR : ERROR_INVALID_PARAM;

    return log.done(
        result, {number(this), number(&pack), number(workspace), workspaceSize, number(context)},
        -1, 3);
}

ATB_EXPORT Status CreateContext(Context **context);
Status CreateContext(Context **context)
{
    return context_make(context, device_allocate, device_free,
                        "_ZN3atb13CreateContextEPPNS_7ContextE");
}

ATB_EXPORT Status CreateContext(Context **context, const std::function<void *(size_t)> &allocate,
                                const std::function<void(void *)> &release);
Status CreateContext(Context **context, const std::function<void *(size_t)> &allocate,
                     const std::function<void(void *)> &release)
{
    return context_make(context, allocate, release,
                        "_ZN3atb13CreateContextEPPNS_7ContextERKSt8functionIFPvmEERKS3_IFvS4_EE");
}

ATB_EXPORT Status CreateContext(Context **context, uint32_t workers, uint32_t flags);
Status CreateContext(Context **context, uint32_t, uint32_t)
{
    return context_make(context, device_allocate, device_free,
                        "_ZN3atb13CreateContextEPPNS_7ContextEjj");
}

ATB_EXPORT Status DestroyContext(Context *context);
Status DestroyContext(Context *context)
{
    Logged log("_ZN3atb14DestroyContextEPNS_7ContextE");

    if (!log.injected())
        delete context;
    return log.done(NO_ERROR, {number(context)}, -1, -1);
}

ATB_EXPORT Status DestroyOperation(Operation *operation);
Status DestroyOperation(Operation *operation)
{
    delete operation;
    return NO_ERROR;
}

ATB_EXPORT Status SetExecuteStreamId(Operation *operation, uint32_t id);
Status SetExecuteStreamId(Operation *, uint32_t)
{
    return NO_ERROR;
}

class ATB_EXPORT Utils
{
  public:
    static uint64_t GetTensorSize(const Tensor &tensor);
};

uint64_t Utils::GetTensorSize(const Tensor &tensor)
{
    uint64_t size;

    memcpy(&size, reinterpret_cast<const char *>(&tensor) + 96, sizeof(size));
    return size;
}

template <typename Param>
ATB_EXPORT Status CreateOperation(const Param &param, Operation **operation);

// The operator parameters that the torch_npu and vllm-ascend wheels instantiate.
#define ATB_OPERATION(param)                                                                       \
    namespace infer                                                                                \
    {                                                                                              \
    struct param;                                                                                  \
    }                                                                                              \
    template <>                                                                                    \
    ATB_EXPORT Status CreateOperation<infer::param>(const infer::param &, Operation **operation)   \
    {                                                                                              \
        if (!operation)                                                                            \
            return ERROR_INVALID_PARAM;                                                            \
        *operation = new OperationBase(#param);                                                    \
        return NO_ERROR;                                                                           \
    }
#include "atb.def"
} // namespace atb
