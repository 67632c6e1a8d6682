/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.cc - the exported functions of libtorch_npu.so that begin and end a graph capture, and the
 * constructor that is told a process group's rank: names and arguments as the real library has
 * them, and no more. Source of the names: the wheels' dynamic symbols.
 */
#include <cstdint>
#include <utility>

#define EXPORT __attribute__((visibility("default")))

enum aclmdlRICaptureMode : int { CAPTURE_MODE_GLOBAL };

static volatile int captures;

namespace c10_npu
{
class EXPORT NPUGraph
{
  public:
    void capture_begin(std::pair<unsigned long long, unsigned long long> pool,
                       aclmdlRICaptureMode mode);
    void capture_end();
};

void NPUGraph::capture_begin(std::pair<unsigned long long, unsigned long long>, aclmdlRICaptureMode)
{
    captures = captures + 1;
}

void NPUGraph::capture_end()
{
    captures = captures - 1;
}
} // namespace c10_npu

extern "C" EXPORT void npusim_process_group(void *self, void *store, int rank, int size) __asm__(
    "_ZN8c10d_npu16ProcessGroupHCCLC1ERKN3c1013intrusive_ptrIN4c10d5StoreENS1_6detail34intrusive_"
    "target_default_null_typeIS4_EEEEiiNS2_INS0_7OptionsENS6_ISB_EEEE");

void npusim_process_group(void *, void *, int, int)
{
    captures = captures + 0;
}
