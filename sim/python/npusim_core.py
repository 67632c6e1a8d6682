# SPDX-License-Identifier: Apache-2.0
"""A rank of the Python driver: expressions, names, bookkeeping and the flow of statements.

A statement returns the library's code, which is compared with what the scenario expects. Truth is
kept as in sim/driver/truth.h and written in the same form. What the statements do is in
npusim_control.py and npusim_memory.py, which fill BLOCKS and STATEMENTS.
"""
import ctypes
import json
import os
import sys
import threading
import time

from npusim_frames import frames_call

MISSING, ANY = 999999, 999998
FOREVER = 2 ** 63 - 1
KINDS = ["device", "handle", "host", "registered", "range", "pool", "imported", "tensor", "touched"]
KEY_WAIT_SECONDS = 120
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
U64 = ctypes.c_uint64
BLOCKS, STATEMENTS = {}, {}


class ScenarioError(Exception):
    """file:line: statement: what."""


class Random:
    """splitmix64, the generator of the C driver."""

    def __init__(self, state):
        self.state = state & 0xFFFFFFFFFFFFFFFF

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return z ^ (z >> 31)


def divide(a, b):
    quotient = abs(a) // abs(b)  # towards zero, as in C
    return quotient if (a < 0) == (b < 0) else -quotient


OPERATORS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": divide,
    "%": lambda a, b: a - divide(a, b) * b, "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b), "<": lambda a, b: int(a < b), "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b), ">=": lambda a, b: int(a >= b),
}


def evaluate(items, values, random, address):
    """A compiled expression: an integer, or a list in postfix order (sim/driver/dump.c)."""
    if isinstance(items, int):
        return items
    stack = []
    for item in items:
        if isinstance(item, int):
            stack.append(item)
        elif isinstance(item, str):
            b, a = stack.pop(), stack.pop()
            if item == "rand":
                if b < a:
                    raise ValueError("an empty random range")
                result = a + random.next() % (b - a + 1)
            else:
                if item in "/%" and not b:
                    raise ValueError("a division by zero")
                result = OPERATORS[item](a, b)
            if not -2 ** 63 <= result < 2 ** 63:
                raise ValueError("a number that is too large")
            stack.append(result)
        elif item[0] == "var":
            stack.append(values[item[1]])
        elif item[0] == "ref":
            stack.append(address(item[1]))
        else:
            some = [stack.pop() for _ in range(item[1])][::-1]
            stack.append(some[random.next() % len(some)])
    return stack[0]


def expand(program, values, text):
    """Replaces $name and ${name}."""
    names = {name: index for index, (name, _) in enumerate(program["vars"])}
    out, at = [], 0
    while at < len(text):
        if text[at] != "$":
            out.append(text[at])
            at += 1
            continue
        at += 1
        braced = text[at: at + 1] == "{"
        at += braced
        end = at
        while end < len(text) and (text[end].isalnum() or text[end] == "_"):
            end += 1
        out.append(str(values[names[text[at:end]]]))
        at = end + braced
    return "".join(out)


def file_name(text):
    return "".join("_" if c == "/" or c <= " " else c for c in text)


class Slot:
    __slots__ = ("kind", "value", "bytes", "hal", "cell", "more")

    def __init__(self, kind, value, size=0, hal=0, cell=None, more=None):
        self.kind, self.value, self.bytes, self.hal = kind, value, size, hal
        self.cell, self.more = cell, more


class Truth:
    def __init__(self):
        self.lock = threading.Lock()
        self.cells, self.device, self.peak, self.calls, self.failures = {}, 0, 0, 0, 0

    def add(self, cell, size, hal):
        with self.lock:
            row = self.cells.setdefault(cell, [0, 0, 0])
            row[0] += 1
            row[1] += size
            row[2] += hal
            if cell[0] in ("device", "handle"):
                self.device += hal
                self.peak = max(self.peak, self.device)

    def remove(self, cell, size, hal):
        with self.lock:
            row = self.cells[cell]
            row[0] -= 1
            row[1] -= size
            row[2] -= hal
            if cell[0] in ("device", "handle"):
                self.device -= hal

    def report(self):
        kinds = {kind: {"count": 0, "requested_bytes": 0} for kind in KINDS}
        cells = []
        for (kind, module, device, phase), row in self.cells.items():
            if row[0]:
                kinds[kind]["count"] += row[0]
                kinds[kind]["requested_bytes"] += row[1]
                cells.append({"kind": kind, "module": module, "device": device, "phase": phase,
                              "count": row[0], "requested_bytes": row[1], "hal_bytes": row[2]})
        return {"cells": cells, "kinds": kinds, "device_bytes": self.device,
                "device_peak_bytes": self.peak, "calls": self.calls, "failures": self.failures}


class Rank:
    """One process of a scenario."""

    def __init__(self, program, entry, values, options):
        self.program, self.entry, self.values, self.options = program, entry, values, options
        self.name, self.device = entry["name"], values[2]
        self.slots = [None] * (program["slots"] + 1)
        self.truth, self.stopped, self.children = Truth(), False, []
        self.libraries, self.torch = [], None

    def stop_request(self, _number, _frame):
        self.stopped = True

    def load(self):
        uses = self.program["uses"]
        names = ["libascendcl.so", "libacl_rt.so"]
        names += ["libhccl.so", "libhcomm.so"] if uses["hccl"] else []
        names += ["libatb.so"] if uses["atb"] else []
        names += ["libnnopbase.so"] if uses["nnop"] else []
        for name in names:
            path = os.path.join(self.options.lib_dir, name)
            if os.path.exists(path):
                self.libraries.append(ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL))
        if self.function("aclrtMalloc") is None:
            raise ScenarioError("%s holds no simulated CANN libraries" % self.options.lib_dir)
        if uses["torch"]:
            self.torch = ctypes.CDLL(os.path.join(self.options.torch, "libtorch_npu.so"),
                                     mode=ctypes.RTLD_GLOBAL)
        if self.device >= 0:
            self.function("aclInit")(None)

    def function(self, name):
        for library in self.libraries:
            try:
                return getattr(library, name)
            except AttributeError:
                continue
        return None

    def report(self, checkpoint):
        line = {"checkpoint": checkpoint, "rank": self.name, "tgid": os.getpid(),
                "device": self.device, "time_ns": time.time_ns()}
        line.update(self.truth.report())
        if self.torch is not None and self.device >= 0:
            figures = (ctypes.c_int64 * 4)()
            self.torch.npusim_torch_stats(self.device, figures)
            names = ["allocated_bytes", "reserved_bytes", "active_bytes", "workspace_bytes"]
            line["torch"] = dict(zip(names, figures))
        text = json.dumps(line, separators=(",", ":")) + "\n"
        if self.options.truth:
            path = os.path.join(self.options.truth, self.name + ".jsonl")
            with open(path, "a", encoding="utf-8") as file:
                file.write(text)
        return text

    def control(self, name):
        return os.path.join(self.options.control, name)

    def put(self, name, data):
        temporary = self.control("tmp.%d.%s" % (os.getpid(), name))
        with open(temporary, "wb") as file:
            file.write(data)
        os.rename(temporary, self.control(name))

    def key(self, name, thread, op):
        path, end = self.control("key." + name), time.monotonic() + KEY_WAIT_SECONDS
        while not os.path.exists(path):
            if self.stopped or time.monotonic() > end:
                raise thread.error(op, "key %s never came" % name)
            time.sleep(0.002)
        with open(path, "rb") as file:
            return file.read()

    def announce(self, how):
        self.put("end.%d" % os.getpid(), how.encode())

    def main(self):
        seed = self.program["seed"] + 0xD1342543DE82EF95 * (self.entry["number"] + 1)
        thread = Thread(self, "main", self.values, Random(seed))
        body = thread.body(self.entry["begin"], self.entry["end"])
        frames_call(["WorkerProc.worker_busy_loop"] if self.device >= 0 else [], body)
        if self.options.truth:
            self.report("end")
        sys.stdout.flush()
        os._exit(0)  # as a killed interpreter would: no destructor frees anything


class Thread:
    """A thread of a rank: variables, random numbers, current device and phase."""

    def __init__(self, rank, name, values, random):
        self.rank, self.name, self.values, self.random = rank, name, list(values), random
        self.device, self.phase, self.threads, self.met, self.all_slot = -1, "", [], {}, None

    def error(self, op, what):
        return ScenarioError("%s:%d: %s (rank %s, thread %s): %s" % (
            self.rank.program["path"], op["line"], op["op"], self.rank.name, self.name, what))

    def body(self, begin, end):
        def run():
            if self.rank.device >= 0:
                code = self.rank.function("aclrtSetDevice")(self.rank.device)
                if code:
                    raise ScenarioError("rank %s: aclrtSetDevice(%d) failed: %d" % (
                        self.rank.name, self.rank.device, code))
                self.device = self.rank.device
            self.run(begin, end)
            self.join()
        return run

    def join(self):
        for thread in self.threads:
            thread.join()
        self.threads = []

    def run(self, at, end):
        ops = self.rank.program["ops"]
        while at < end:
            op = ops[at]
            block = BLOCKS.get(op["op"])
            if block:
                block(self, op, at)
                at = op["jump"] + 1
                continue
            self.statement(op)
            at += 1

    def statement(self, op):
        if op["op"] == "join":
            self.join()
            return
        first = next(iter(op["args"].values()), None)
        if isinstance(first, dict) and first["all"]:
            for index in range(first["slot"], first["slot"] + first["slots"]):
                if self.rank.slots[index] is not None:
                    self.all_slot = index
                    self.check(op, STATEMENTS[op["op"]](self, op))
            return
        self.check(op, STATEMENTS[op["op"]](self, op))

    def check(self, op, code):
        truth, code = self.rank.truth, code or 0
        with truth.lock:
            truth.calls += 1
            truth.failures += code != 0
        if code == op["expect"] or op["expect"] == ANY:
            return
        if code == MISSING:
            raise self.error(op, "this layout has no such function")
        raise self.error(op, "returned %d where %d was expected" % (code, op["expect"]))

    # operands

    def value(self, op, items):
        try:
            return evaluate(items, self.values, self.random,
                            lambda ref: self.slot_value(op, self.rank.program["refs"][ref]))
        except ValueError as problem:
            raise self.error(op, str(problem)) from None

    def number(self, op, name, absent=0):
        items = op["args"].get(name)
        return absent if items is None else self.value(op, items)

    def size(self, op, name):
        value = self.number(op, name)
        if value < 0:
            raise self.error(op, "%s is negative: %d" % (name, value))
        return value

    def text(self, op, name):
        return expand(self.rank.program, self.values, op["args"][name])

    def choice(self, op, name, absent=0):
        value = op["args"].get(name)
        return absent if value is None else value

    def index(self, op, ref):
        if ref["all"]:
            return self.all_slot
        index = self.value(op, ref["index"])
        if not 0 <= index < ref["slots"]:
            raise self.error(op, "an index outside its array")
        return ref["slot"] + index

    def slot_value(self, op, ref):
        slot = self.rank.slots[self.index(op, ref)]
        return slot.value if slot else 0

    def get(self, op, name, *kinds):
        slot = self.rank.slots[self.index(op, op["args"][name])]
        if slot is None or (kinds and slot.kind not in kinds):
            raise self.error(op, "%s holds %s, not %s" % (
                name, slot.kind if slot else "nothing", " or ".join(kinds) or "something"))
        return slot

    def place(self, op, name):
        """Where a new slot goes; None for the anonymous one."""
        ref = op["args"][name]
        if ref["anonymous"]:
            return None
        index = self.index(op, ref)
        if self.rank.slots[index] is not None:
            raise self.error(op, "%s still holds %s (free it, or `forget` it)" % (
                name, self.rank.slots[index].kind))
        return index

    def fill(self, place, slot, cell=None):
        if cell:
            slot.cell = cell + (self.phase,)
            self.rank.truth.add(slot.cell, slot.bytes, slot.hal)
        if place is not None:
            self.rank.slots[place] = slot

    def empty(self, op, name):
        index = self.index(op, op["args"][name])
        slot = self.rank.slots[index]
        self.rank.slots[index] = None
        if slot.cell:
            self.rank.truth.remove(slot.cell, slot.bytes, slot.hal)

    def call(self, name, *arguments):
        function = self.rank.function(name)
        if function is None:
            return MISSING
        return function(*[U64(a & 0xFFFFFFFFFFFFFFFF) if isinstance(a, int) else a
                          for a in arguments])
