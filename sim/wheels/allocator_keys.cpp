// SPDX-License-Identifier: Apache-2.0
/*
 * allocator_keys.cpp - lets torch_npu be loaded beside a torch that is built for CUDA. Preloaded.
 *
 * In newer releases (2.14.0) an accelerator's allocator tells libc10 which words of
 * PYTORCH_ALLOC_CONF it knows, and a word that is told twice is an error. torch_npu is made for a
 * torch without CUDA; the index has x86_64 wheels with CUDA only, whose libc10_cuda tells the same
 * words. Here the set that torch_npu adds to is what it was before libc10_cuda did.
 */
#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <unordered_set>

namespace c10
{
namespace CachingAllocator
{
using keys_t = std::unordered_set<std::string>;

struct AcceleratorAllocatorConfig {
    static keys_t &getMutableKeys();
};

/* torch_npu looks its functions up elsewhere when it sees the variable. */
__attribute__((constructor)) static void hide_preload()
{
    unsetenv("LD_PRELOAD");
}

static keys_t &keys_of_libc10()
{
    void *library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
    void *function = library
                         ? dlsym(library, "_ZN3c1016CachingAllocator26AcceleratorAllocatorConfig"
                                          "14getMutableKeysB5cxx11Ev")
                         : nullptr;

    if (!function)
        throw std::runtime_error("allocator_keys: libc10.so does not have the keys");
    return reinterpret_cast<keys_t &(*)()>(function)();
}

keys_t &AcceleratorAllocatorConfig::getMutableKeys()
{
    keys_t &keys = keys_of_libc10();
    static const keys_t before = keys; // of the first caller
    Dl_info caller = {};

    if (dladdr(__builtin_return_address(0), &caller) &&
        std::string(caller.dli_fname).find("libtorch_npu.so") != std::string::npos)
        keys = before;
    return keys;
}
} // namespace CachingAllocator
} // namespace c10
