#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The observed process of the kernel tests: loads one layout of the simulated CANN libraries and runs
what the test sends, so that every call is made exactly when the test says so.

Protocol: one JSON string of Python per line on stdin; one JSON line back: {"ok": value} or {"error": text}.
The code runs with the names below; the value of `out` is what it returns.
"""
import ctypes
import json
import os
import sys
import threading
import time
import traceback

LIBS = []


def load(name):
    """dlopens a library of NPUSIM_LIB_DIR (or a path)."""
    path = name if "/" in name else os.path.join(os.environ["NPUSIM_LIB_DIR"], name)
    LIBS.append(ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL))
    return path


def find(symbol):
    for lib in LIBS:
        try:
            return getattr(lib, symbol)
        except AttributeError:
            pass
    return None


def has(symbol):
    return find(symbol) is not None


class U64:
    """An out-parameter; u.v is its value."""

    def __init__(self):
        self.c = ctypes.c_uint64(0)

    @property
    def v(self):
        return self.c.value


def argument(value):
    if isinstance(value, U64):
        return ctypes.byref(value.c)
    if isinstance(value, bytes):
        return ctypes.c_char_p(value)
    if isinstance(value, (ctypes.Structure, ctypes.Array)):
        return ctypes.byref(value)
    if value is None:
        return ctypes.c_void_p(None)
    return ctypes.c_uint64(value & (2**64 - 1))


def call(symbol, *arguments):
    """Calls a C function that returns int; the result is its value."""
    function = find(symbol)
    if function is None:
        raise AttributeError(symbol)
    function.restype = ctypes.c_int
    return function(*[argument(a) for a in arguments])


def device(n):
    call("aclInit", None)
    return call("aclrtSetDevice", n)


def malloc(size, policy=0, api="aclrtMallocAlign32"):
    """The address, or minus the error code."""
    p = U64()
    r = call(api, p, size, policy)
    return p.v if r == 0 else -r


def free(address, api="aclrtFree"):
    return call(api, address)


def mark(n=7):
    """A call whose event ends a group of events: aclrtSetDevice with a device no test uses else."""
    return call("aclrtSetDevice", n)


def in_thread(function, *arguments):
    result = []
    t = threading.Thread(target=lambda: result.append(function(*arguments)))
    t.start()
    t.join()
    return result[0]


class AclProp(ctypes.Structure):
    _fields_ = [("handle_type", ctypes.c_int32), ("allocation_type", ctypes.c_int32),
                ("mem_attr", ctypes.c_int32), ("id", ctypes.c_uint32), ("type", ctypes.c_int32),
                ("reserve", ctypes.c_uint64)]


class DrvProp(ctypes.Structure):
    _fields_ = [("side", ctypes.c_uint32), ("devid", ctypes.c_uint32), ("module_id", ctypes.c_uint32),
                ("pg_type", ctypes.c_uint32), ("mem_type", ctypes.c_uint32), ("reserve", ctypes.c_uint64)]


def main():
    scope = globals()
    for line in sys.stdin:
        try:
            scope["out"] = None
            exec(json.loads(line), scope)
            reply = {"ok": scope["out"]}
        except Exception:  # the test gets the whole story
            reply = {"error": traceback.format_exc()}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
