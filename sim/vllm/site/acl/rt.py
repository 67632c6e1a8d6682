# SPDX-License-Identifier: Apache-2.0
"""The one function that vllm-ascend takes from acl.rt, passed on to the node's libascendcl."""
import ctypes

_copy = ctypes.CDLL("libascendcl.so").aclrtMemcpy
_copy.restype = ctypes.c_int
_copy.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def memcpy(dst, dest_max, src, count, kind):
    """Addresses and sizes in bytes as plain numbers; returns the code of aclrtMemcpy."""
    return _copy(dst, dest_max, src, count, kind)
