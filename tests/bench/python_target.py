# SPDX-License-Identifier: Apache-2.0
"""The observed Python program of the benchmark: allocates and frees blocks below a deep stack of frames.

usage: python_target.py LIBASCENDCL LIBTORCH_NPU
Reads commands from stdin, answers each with one line:
  block N DEPTH SIZE   N MallocBlock+FreeBlock pairs of SIZE bytes below DEPTH Python frames, with a leaf
                       function of its own every 16 pairs; answers thread CPU ns per pair
"""
import ctypes
import sys
import time

acl = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
torch = ctypes.CDLL(sys.argv[2], mode=ctypes.RTLD_GLOBAL)
malloc = torch._ZN7c10_npu19NPUCachingAllocator11MallocBlockEmPvi
malloc.restype = ctypes.c_void_p
malloc.argtypes = [ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int]
free = torch._ZN7c10_npu19NPUCachingAllocator9FreeBlockEPv
free.restype = None
free.argtypes = [ctypes.c_void_p]


def leaf_one(size):
    for _ in range(16):
        free(malloc(size, None, 0))


def leaf_two(size, unused=None):
    for _ in range(16):
        free(malloc(size, None, 0))


class Module:
    """Frames between the phase and the leaf, of two shapes, as nn.Module.__call__ makes them."""

    def call(self, depth, n, size):
        a = b = depth
        return self.forward(a - 1, n, size) if b > 0 else run(n, size)

    def forward(self, depth, n, size):
        return self.call(depth - 1, n, size) if depth > 0 else run(n, size)


class NPUModelRunner:
    def execute_model(self, depth, n, size):
        return Module().call(depth, n, size)


def run(n, size):
    begin = time.thread_time_ns()
    for _ in range(n // 32):
        leaf_one(size)
        leaf_two(size)
    return (time.thread_time_ns() - begin) / (n // 32 * 32)


def main():
    acl.aclInit(None)
    acl.aclrtSetDevice(0)
    print("ready", flush=True)
    for line in sys.stdin:
        command, n, depth, size = line.split()
        # main, <module>, execute_model, run and the leaf are frames, too
        print("%.1f" % NPUModelRunner().execute_model(max(int(depth) - 6, 0), int(n), int(size)), flush=True)


main()
