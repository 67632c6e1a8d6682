#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes all that is free of a card, says how much, and holds it until its input ends.

    hog.py DEVICE [BYTES]      in the environment of the simulated node; with BYTES no more than that
"""
import ctypes
import sys

STEP = 64 << 20
OUT_OF_MEMORY = 207001


def take(device, most):
    """Bytes taken of the card, in steps; SystemExit when a call fails otherwise."""
    acl = ctypes.CDLL("libascendcl.so")
    acl.aclrtMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_int]
    if acl.aclInit(None) or acl.aclrtSetDevice(device):
        raise SystemExit(f"hog.py: no device {device}")
    taken = 0
    while taken < most:
        code = acl.aclrtMalloc(ctypes.byref(ctypes.c_void_p()), STEP, 0)
        if code == OUT_OF_MEMORY:
            return taken
        if code:
            raise SystemExit(f"hog.py: aclrtMalloc returned {code}")
        taken += STEP
    return taken


if __name__ == "__main__":
    print(take(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 60), flush=True)
    sys.stdin.read()
