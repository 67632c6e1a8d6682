# SPDX-License-Identifier: Apache-2.0
"""The statements of the scenario language for the Python driver; docs/SCENARIOS.md says what they do.

A statement returns the library's code, which is compared with what the scenario expects. Truth is
kept as in sim/driver/truth.h and written in the same form.
"""
import ctypes
import functools
import json
import mmap
import os
import signal
import sys
import threading
import time

from npusim_frames import frames_call, frames_of

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


# blocks

def block_repeat(t, op, at):
    count, variable = t.number(op, "count"), op["args"].get("as")
    if count < 0:
        raise t.error(op, "a count of %d" % count)
    done = 0
    while done < count:
        if variable is not None:
            t.values[variable] = done
        t.run(at + 1, op["jump"])
        done += 1
        if count == FOREVER and t.rank.stopped:
            return


def block_if(t, op, at):
    if t.number(op, "condition"):
        t.run(at + 1, op["jump"])


def block_phase(t, op, at):
    before, t.phase = t.phase, t.rank.program["phases"][op["phase"]]
    name = "name" if op["op"] == "phase" else "frames"
    frames_call(frames_of(op["op"], t.text(op, name)),
                functools.partial(t.run, at + 1, op["jump"]))
    t.phase = before


def thread_entry(t, body):
    libc.prctl(15, ctypes.c_char_p(t.name.encode()[:15]))
    try:
        body()
    except ScenarioError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)


def block_thread(t, op, at):
    name = t.text(op, "name")
    for number in range(t.number(op, "count", 1)):
        values = list(t.values)
        values[3] = number
        child = Thread(t.rank, name, values,
                       Random(t.random.state + 0x5851F42D4C957F2D * (number + 1)))
        thread = threading.Thread(target=thread_entry, name=name, daemon=True,
                                  args=(child, child.body(at + 1, op["jump"])))
        thread.start()
        t.threads.append(thread)


def block_fork(t, op, at):
    sys.stdout.flush()
    if os.fork():
        return
    rank = t.rank
    rank.name += "." + t.text(op, "name")[:40]
    rank.slots, rank.truth = [None] * len(rank.slots), Truth()
    torch, rank.torch = rank.torch, None
    t.threads, t.torch = [], torch
    try:
        t.body(at + 1, op["jump"])()
    except ScenarioError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


BLOCKS = {"repeat": block_repeat, "if": block_if, "phase": block_phase, "frames": block_phase,
          "thread": block_thread, "fork": block_fork}

# control


def do_let(t, op):
    t.values[op["args"]["name"]] = t.number(op, "value")


def do_seed(t, op):
    t.random = Random(t.number(op, "value"))


def do_sleep(t, op):
    end = time.monotonic() + t.number(op, "time") / 1e9
    while not t.rank.stopped and time.monotonic() < end:
        time.sleep(min(0.05, max(0, end - time.monotonic())))


def meeting(t, key):
    t.met[key] = t.met.get(key, 0) + 1
    return t.met[key]


def do_barrier(t, op):
    program, raw = t.rank.program, op["args"]["name"]
    needed = t.number(op, "count", sum(
        any(o["op"] == "barrier" and o["args"]["name"] == raw
            for o in program["ops"][rank["begin"]:rank["end"]]) for rank in program["ranks"]))
    name = file_name(t.text(op, "name"))
    directory = t.rank.control("b.%s.%d" % (name[:150], meeting(t, "b" + name)))
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "%s.%d" % (t.rank.name, threading.get_native_id())), "w"):
        pass
    end = time.monotonic() + KEY_WAIT_SECONDS
    while len(os.listdir(directory)) < needed and not t.rank.stopped:
        if os.path.exists(t.rank.control("failed")):
            raise t.error(op, "barrier %s: another rank has failed" % name)
        if time.monotonic() > end:
            raise t.error(op, "barrier %s: Connection timed out" % name)
        time.sleep(0.002)


def do_checkpoint(t, op):
    name, rank = file_name(t.text(op, "name"))[:80], t.rank
    times = meeting(t, "c" + name)
    label = name if times == 1 else "%s.%d" % (name, times)
    rank.put("reached.%s.%s" % (rank.name, label), rank.report(label).encode())
    gates = [rank.control(g) for g in ("go." + label, "go.%s.%s" % (rank.name, label), "go.all")]
    while rank.options.stepping and not rank.stopped and not any(map(os.path.exists, gates)):
        time.sleep(0.001)


def do_hold(t, op):
    if op["args"].get("time") is not None:
        return do_sleep(t, op)
    path = None
    if op["args"].get("flag") is not None:
        path = t.rank.control("flag." + file_name(t.text(op, "flag")))
    elif op["args"].get("file") is not None:
        path = t.text(op, "file")
    while not t.rank.stopped and not (path and os.path.exists(path)):
        time.sleep(0.005)
    return 0


def do_wait(t, op):
    while True:
        try:
            tgid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        end = ("signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status)
               else "exit %d" % os.WEXITSTATUS(status))
        meant, path = "exit 0", t.rank.control("end.%d" % tgid)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                meant = file.read()
        if end != meant:
            raise t.error(op, "child %d ended with %s" % (tgid, end))


def do_exit(t, op):
    code = t.number(op, "code")
    if not 0 <= code <= 255:
        raise t.error(op, "an exit code of %d" % code)
    if t.rank.options.truth:
        t.rank.report("end")
    t.rank.announce("exit %d" % code)
    sys.stdout.flush()
    os._exit(code)


def do_abort(t, _op):
    t.rank.announce("signal %d" % signal.SIGABRT)
    os.abort()


def do_kill(t, _op):
    t.rank.announce("signal %d" % signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def do_print(t, op):
    print("%s: %s" % (t.rank.name, t.text(op, "text")), flush=True)


# devices, contexts, streams

def do_device(t, op):
    device = t.number(op, "device")
    code = t.call("aclrtSetDevice", device)
    if code == 0:
        t.device = device
    return code


def do_device_reset(t, op):
    return t.call("aclrtResetDevice", t.number(op, "device"))


def make(t, op, kind, call, *arguments, **slot):
    place, out = t.place(op, "id"), ctypes.c_void_p()
    code = t.call(call, ctypes.byref(out), *arguments)
    if code == 0:
        t.fill(place, Slot(kind, out.value or 0, **slot))
    return code


def drop(t, op, kind, call, name="id"):
    code = t.call(call, t.get(op, name, kind).value)
    if code == 0:
        t.empty(op, name)
    return code


def do_context(t, op):
    device = t.number(op, "device")
    code = make(t, op, "context", "aclrtCreateContext", device, size=device)
    if code == 0:
        t.device = device
    return code


def do_context_use(t, op):
    slot = t.get(op, "id", "context")
    code = t.call("aclrtSetCurrentContext", slot.value)
    if code == 0:
        t.device = slot.bytes
    return code


def do_context_destroy(t, op):
    return drop(t, op, "context", "aclrtDestroyContext")


def do_stream(t, op):
    if t.choice(op, "api", 1):
        return make(t, op, "stream", "aclrtCreateStreamWithConfig", 0, 3)
    return make(t, op, "stream", "aclrtCreateStream")


def do_stream_destroy(t, op):
    force = t.number(op, "force")
    return drop(t, op, "stream", "aclrtDestroyStreamForce" if force else "aclrtDestroyStream")


def do_sync(t, op):
    if op["args"].get("stream") is None:
        return t.call("aclrtSynchronizeDevice")
    return t.call("aclrtSynchronizeStream", t.get(op, "stream", "stream").value)


# memory

class MallocAttribute(ctypes.Structure):
    _fields_ = [("attr", ctypes.c_int32), ("value", ctypes.c_uint8 * 8)]


class MallocConfig(ctypes.Structure):
    _fields_ = [("attrs", ctypes.POINTER(MallocAttribute)), ("count", ctypes.c_size_t)]


def config_make(pairs):
    attributes = (MallocAttribute * max(1, len(pairs)))()
    for attribute, (number, value) in zip(attributes, pairs):
        attribute.attr = number
        attribute.value[:] = (value & 0xFFFFFFFF).to_bytes(8, "little")
    return MallocConfig(attributes, len(pairs))


MALLOCS = ["aclrtMallocAlign32", "aclrtMalloc", "aclrtMallocCached", "aclrtMallocWithCfg",
           "aclrtMallocForTaskScheduler", "aclrtMemAllocManaged"]


def do_malloc(t, op):
    place, size, api = t.place(op, "id"), t.size(op, "size"), t.choice(op, "api")
    module, device = t.number(op, "module", 33), t.number(op, "device", -1)
    configured = api in (3, 4)
    if not configured and (op["args"].get("module") is not None or device >= 0):
        raise t.error(op, "module= and device= need api=cfg or api=ts")
    out, arguments = ctypes.c_void_p(), [t.choice(op, "policy")]
    if configured:
        config = config_make([(1, module)] + ([(2, device)] if device >= 0 else []))
        arguments.append(ctypes.byref(config))
    code = t.call(MALLOCS[api], ctypes.byref(out), size, *arguments)
    if code == 0:
        hal = (size + (63 if api in (1, 2) else 31)) // 32 * 32
        t.fill(place, Slot("device", out.value, size, hal),
               ("device", module, device if device >= 0 else t.device))
    return code


def do_free(t, op):
    slot = t.get(op, "id", "device", "host", "touched")
    if slot.kind == "device":
        sync = t.number(op, "sync")
        code = t.call("aclrtFreeWithDevSync" if sync else "aclrtFree", slot.value)
    elif slot.kind == "host":
        code = t.call("aclrtFreeHost", slot.value)
    else:
        code = libc.munmap(slot.value, slot.bytes)
    if code == 0:
        t.empty(op, "id")
    return code


def do_free_address(t, op):
    return t.call("aclrtFreeHost" if t.number(op, "host") else "aclrtFree", t.number(op, "address"))


def do_host(t, op):
    place, size, out = t.place(op, "id"), t.size(op, "size"), ctypes.c_void_p()
    if t.choice(op, "api"):
        config = config_make([(3, 1)])
        code = t.call("aclrtMallocHostWithCfg", ctypes.byref(out), size, ctypes.byref(config))
    else:
        code = t.call("aclrtMallocHost", ctypes.byref(out), size)
    if code == 0:
        t.fill(place, Slot("host", out.value, size, size), ("host", 33, 0))
    return code


def host_map(t, op, size):
    address = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, 0x4022, -1, 0)
    if address is None or address == 2 ** 64 - 1:
        raise t.error(op, "no host memory")
    return address


def do_register(t, op):
    place, size, out = t.place(op, "id"), t.size(op, "size"), ctypes.c_void_p()
    address = host_map(t, op, size)
    if t.choice(op, "api"):
        code = t.call("aclrtHostRegisterV2", address, size, 0)
    else:
        code = t.call("aclrtHostRegister", address, size, 0, ctypes.byref(out))
    if code == 0:
        t.fill(place, Slot("registered", address, size, size), ("registered", 33, 0))
    else:
        libc.munmap(address, size)
    return code


def do_unregister(t, op):
    slot = t.get(op, "id", "registered")
    code = t.call("aclrtHostUnregister", slot.value)
    if code == 0:
        libc.munmap(slot.value, slot.bytes)
        t.empty(op, "id")
    return code


def do_forget(t, op):
    t.rank.slots[t.index(op, op["args"]["id"])] = None


def do_touch(t, op):
    place, size = t.place(op, "id"), t.size(op, "size")
    address = host_map(t, op, size)
    ctypes.memset(address, 1, size)
    t.fill(place, Slot("touched", address, size, size), ("touched", 0, 0))


# virtual memory management

class Prop(ctypes.Structure):
    _fields_ = [("handle_type", ctypes.c_int32), ("allocation_type", ctypes.c_int32),
                ("attribute", ctypes.c_int32), ("id", ctypes.c_uint32), ("type", ctypes.c_int32),
                ("reserve", ctypes.c_uint64)]


def do_reserve(t, op):
    place, size, out = t.place(op, "id"), t.size(op, "size"), ctypes.c_void_p()
    code = t.call("aclrtReserveMemAddress", ctypes.byref(out), size, 0, None,
                  t.number(op, "flags"))
    if code == 0:
        t.fill(place, Slot("range", out.value, size, size), ("range", 0, t.device))
    return code


def do_release(t, op):
    return drop(t, op, "range", "aclrtReleaseMemAddress")


def handle_create(t, size, host, attribute):
    out = ctypes.c_void_p()
    prop = Prop(0, 0, attribute, 0 if host else t.device, 0 if host else 1, 0)
    code = t.call("aclrtMallocPhysical", ctypes.byref(out), size, ctypes.byref(prop), 0)
    return code, out.value


def do_create(t, op):
    place, size, host = t.place(op, "id"), t.size(op, "size"), t.choice(op, "where")
    code, value = handle_create(t, size, host, t.number(op, "attribute", 0 if host else 4))
    if code == 0:
        t.fill(place, Slot("physical handle", value, size, size, more=size),
               ("host", 33, 0) if host else ("handle", 33, t.device))
    return code


def do_destroy(t, op):
    return drop(t, op, "physical handle", "aclrtFreePhysical")


def do_map(t, op):
    where, handle = t.get(op, "range", "range"), t.get(op, "handle", "physical handle")
    return t.call("aclrtMapMem", where.value + t.size(op, "offset"), handle.more or 0, 0,
                  handle.value, 0)


def do_unmap(t, op):
    return t.call("aclrtUnmapMem", t.get(op, "range", "range").value + t.size(op, "offset"))


def do_retain(t, op):
    place, out = t.place(op, "id"), ctypes.c_void_p()
    address = t.get(op, "range", "range").value + t.size(op, "offset")
    code = t.call("aclrtMemRetainAllocationHandle", address, ctypes.byref(out))
    if code == 0:
        t.fill(place, Slot("physical handle", out.value), ("imported", 0, t.device))
    return code


def do_export(t, op):
    slot, out = t.get(op, "handle", "physical handle"), (ctypes.c_uint64 * 16)()
    if t.choice(op, "api"):
        code = t.call("aclrtMemExportToShareableHandleV2", slot.value, 0, 1, ctypes.byref(out))
    else:
        code = t.call("aclrtMemExportToShareableHandle", slot.value, 0, 0, ctypes.byref(out))
    if code == 0:
        out[15] = slot.more or 0
        t.rank.put("key." + file_name(t.text(op, "key")), bytes(out))
    return code


def do_import(t, op):
    place, out = t.place(op, "id"), ctypes.c_void_p()
    data = t.rank.key(file_name(t.text(op, "key")), t, op)
    if t.choice(op, "api"):
        shared = (ctypes.c_uint8 * 128).from_buffer_copy(data[:128].ljust(128, b"\0"))
        code = t.call("aclrtMemImportFromShareableHandleV2", ctypes.byref(shared), 1, 0,
                      ctypes.byref(out))
    else:
        code = t.call("aclrtMemImportFromShareableHandle", int.from_bytes(data[:8], "little"),
                      t.device, ctypes.byref(out))
    if code == 0:
        t.fill(place, Slot("physical handle", out.value, more=int.from_bytes(data[120:128], "little")),
               ("imported", 0, t.device))
    return code


def do_ipc_export(t, op):
    slot, name = t.get(op, "id", "device"), ctypes.create_string_buffer(256)
    code = t.call("aclrtIpcMemGetExportKey", slot.value, slot.bytes, name, 256, 0)
    if code == 0:
        t.rank.put("key." + file_name(t.text(op, "key")), name.raw)
    return code


def do_ipc_open(t, op):
    place, out = t.place(op, "id"), ctypes.c_void_p()
    name = ctypes.create_string_buffer(t.rank.key(file_name(t.text(op, "key")), t, op), 257)
    code = t.call("aclrtIpcMemImportByKey", ctypes.byref(out), name, 0)
    if code == 0:
        t.fill(place, Slot("opened", out.value), ("imported", 0, t.device))
    return code


def do_ipc_close(t, op):
    t.get(op, "id", "opened")
    name = ctypes.create_string_buffer(t.rank.key(file_name(t.text(op, "key")), t, op), 257)
    code = t.call("aclrtIpcMemClose", name)
    if code == 0:
        t.empty(op, "id")
    return code


def do_segment(t, op):
    place, size, granule = t.place(op, "id"), t.size(op, "reserve"), t.size(op, "granule")
    if not granule or size % granule or size // granule > 1 << 20:
        raise t.error(op, "the granule must divide the reserved size, at most 1048576 times")
    out = ctypes.c_void_p()
    code = t.call("aclrtReserveMemAddress", ctypes.byref(out), size, 0, None, 1)
    if code == 0:
        t.fill(place, Slot("segment", out.value, size, size, more=[granule, []]),
               ("range", 0, t.device))
    return code


def do_grow(t, op):
    slot, count, code, fresh = t.get(op, "id", "segment"), t.size(op, "granules"), 0, []
    granule, granules = slot.more
    left = slot.bytes // granule - len(granules)
    if count > left:
        raise t.error(op, "%d granules, but only %d are left of the reserved range" % (count, left))
    while len(fresh) < count and code == 0:
        code, value = handle_create(t, granule, False, 4)
        if code == 0:
            cell = ("handle", 33, t.device, t.phase)
            t.rank.truth.add(cell, granule, granule)
            fresh.append((value, cell))
    if code:
        for value, cell in fresh:
            if t.call("aclrtFreePhysical", value) == 0:
                t.rank.truth.remove(cell, granule, granule)
        return code
    for value, cell in fresh:
        code = t.call("aclrtMapMem", slot.value + len(granules) * granule, granule, 0, value, 0)
        if code:
            return code
        granules.append((value, cell))
    return 0


def segment_shrink(t, slot, count):
    granule, granules = slot.more
    for _ in range(count):
        value, cell = granules[-1]
        code = t.call("aclrtUnmapMem", slot.value + (len(granules) - 1) * granule)
        code = code or t.call("aclrtFreePhysical", value)
        if code:
            return code
        granules.pop()
        t.rank.truth.remove(cell, granule, granule)
    return 0


def do_shrink(t, op):
    slot, count = t.get(op, "id", "segment"), t.size(op, "granules")
    if count > len(slot.more[1]):
        raise t.error(op, "the segment has fewer granules")
    return segment_shrink(t, slot, count)


def do_segment_free(t, op):
    slot = t.get(op, "id", "segment")
    code = segment_shrink(t, slot, len(slot.more[1]))
    return code or drop(t, op, "segment", "aclrtReleaseMemAddress")


class PoolProps(ctypes.Structure):
    _fields_ = [("alloc_type", ctypes.c_int32), ("handle_type", ctypes.c_int32),
                ("id", ctypes.c_uint32), ("type", ctypes.c_int32), ("max_bytes", ctypes.c_size_t),
                ("rsv", ctypes.c_uint8 * 32)]


def do_pool(t, op):
    props = PoolProps(0, 0, t.device, 1, t.number(op, "max"))
    return make(t, op, "pool", "aclrtMemPoolCreate", ctypes.byref(props))


def do_pool_malloc(t, op):
    place, size, out = t.place(op, "id"), t.size(op, "size"), ctypes.c_void_p()
    code = t.call("aclrtMemPoolMallocAsync", ctypes.byref(out), size,
                  t.get(op, "pool", "pool").value, t.get(op, "stream", "stream").value)
    if code == 0:
        t.fill(place, Slot("pool memory", out.value, size, size), ("pool", 33, t.device))
    return code


def do_pool_free(t, op):
    code = t.call("aclrtMemPoolFreeAsync", t.get(op, "id", "pool memory").value,
                  t.get(op, "stream", "stream").value)
    if code == 0:
        t.empty(op, "id")
    return code


def do_pool_trim(t, op):
    return t.call("aclrtMemPoolTrimTo", t.get(op, "pool", "pool").value, t.size(op, "keep"))


def do_pool_destroy(t, op):
    return drop(t, op, "pool", "aclrtMemPoolDestroy")


# HCCL, copies, ATB, calls by name

def do_hccl(t, op):
    place, out = t.place(op, "id"), ctypes.c_void_p()
    rank, ranks = t.number(op, "rank", t.values[0]), t.number(op, "ranks", t.values[1])
    buffer = t.number(op, "buffer", 200 << 20)
    name = file_name(t.text(op, "name")) if op["args"].get("name") is not None else ""
    if not 0 <= rank < ranks or buffer < 0 or buffer % (1 << 20):
        raise t.error(op, "rank %d of %d, buffer of %d (whole MiB)" % (rank, ranks, buffer))
    root = ctypes.create_string_buffer(4108)
    key = "hccl." + (name or "default")[:100]
    if rank == 0:
        code = t.call("HcclGetRootInfo", root)
        if code:
            return code
        if ranks > 1:
            t.rank.put("key." + key, root.raw)
    else:
        ctypes.memmove(root, t.rank.key(key, t, op), 4108)
    if t.choice(op, "api"):
        code = t.call("HcclCommInitRootInfo", ranks, root, rank, ctypes.byref(out))
    else:
        config = ctypes.create_string_buffer(24 + 4 + 4 + 128 + 256)
        config[24:28] = (buffer >> 20).to_bytes(4, "little")
        text = name.encode()[:100]
        config[32:32 + len(text)] = text
        code = t.call("HcclCommInitRootInfoConfig", ranks, root, rank, config, ctypes.byref(out))
    if code == 0:
        t.fill(place, Slot("communicator", out.value))
    return code


def do_hccl_destroy(t, op):
    return drop(t, op, "communicator", "HcclCommDestroy")


def memory_of(t, op, name, size):
    slot = t.get(op, name, "device", "host", "registered", "touched", "tensor", "pool memory")
    if size > slot.bytes:
        raise t.error(op, "%s is smaller than %d bytes" % (name, size))
    if slot.kind == "tensor":
        pointer = t.rank.torch._ZN7c10_npu19NPUCachingAllocator11GetBlockPtrEPKv
        pointer.restype = ctypes.c_void_p
        return pointer(U64(slot.value))
    return slot.value


def do_allreduce(t, op):
    count = t.size(op, "count")
    memory = memory_of(t, op, "block", count * 4)
    return t.call("HcclAllReduce", memory, memory, count, 4, 0,
                  t.get(op, "comm", "communicator").value, None)


def do_copy(t, op):
    size, kind = t.size(op, "size"), op["args"]["kind"]
    to, source = memory_of(t, op, "to", size), memory_of(t, op, "from", size)
    if op["args"].get("stream") is None:
        return t.call("aclrtMemcpy", to, size, source, size, kind)
    return t.call("aclrtMemcpyAsync", to, size, source, size, kind,
                  t.get(op, "stream", "stream").value)


def do_memset(t, op):
    size = t.size(op, "size")
    return t.call("aclrtMemset", memory_of(t, op, "id", size), size, t.number(op, "value"), size)


def do_meminfo(t, op):
    available, total = ctypes.c_size_t(), ctypes.c_size_t()
    code = t.call("aclrtGetMemInfo", 1, ctypes.byref(available), ctypes.byref(total))
    if code == 0:
        t.values[op["args"]["free"]], t.values[op["args"]["total"]] = available.value, total.value
    return code


def do_atb(t, op):
    size = t.size(op, "workspace")
    operation, variants, context = ((ctypes.c_uint64 * n)() for n in (512, 1696, 512))
    operation[2] = size  # sim/cann/atb.cpp: what the operation asks for
    memory = memory_of(t, op, "block", size) if op["args"].get("block") is not None else None
    if op["args"]["call"]:
        return t.call("_ZN3atb13OperationBase7ExecuteERKNS_11VariantPackEPhmPNS_7ContextE",
                      operation, variants, memory, size, context)
    workspace = ctypes.c_uint64(size)
    return t.call("_ZN3atb13OperationBase5SetupERKNS_11VariantPackERmPNS_7ContextE", operation,
                  variants, ctypes.byref(workspace), context)


def do_call(t, op):
    return t.call(t.text(op, "symbol"), *[t.number(op, name) for name in "abcdef"])


# the stand-in torch_npu

def stream_of(t, op, name="stream"):
    if op["args"].get(name) is None:
        return U64(0)
    return U64(t.get(op, name, "stream").value)


def torch_of(t):
    return t.rank.torch or t.torch


def do_tensor(t, op):
    place, size, block = t.place(op, "id"), t.size(op, "size"), ctypes.c_void_p()
    device = t.number(op, "device", t.device)
    if device < 0:
        raise t.error(op, "the thread has no device")
    torch = torch_of(t)
    code = torch.npusim_torch_malloc(U64(size), stream_of(t, op), device,
                                     int(t.number(op, "external") != 0), ctypes.byref(block))
    if code == 0:
        size_of = torch._ZN7c10_npu19NPUCachingAllocator12GetBlockSizeEPKv
        size_of.restype = ctypes.c_size_t
        t.fill(place, Slot("tensor", block.value, size, size_of(U64(block.value))),
               ("tensor", 0, device))
    return code


def do_del(t, op):
    code = torch_of(t).npusim_torch_free(U64(t.get(op, "id", "tensor").value))
    if code == 0:
        t.empty(op, "id")
    return code


def do_record_stream(t, op):
    return torch_of(t).npusim_torch_record_stream(U64(t.get(op, "id", "tensor").value),
                                                  stream_of(t, op))


def do_stream_done(t, op):
    return torch_of(t).npusim_torch_stream_done(t.device, stream_of(t, op))


def do_empty_cache(t, _op):
    return torch_of(t).npusim_torch_empty_cache(t.device)


def do_workspace(t, op):
    if t.device < 0:
        raise t.error(op, "the thread has no device")
    return torch_of(t).npusim_torch_workspace(U64(t.size(op, "size")), stream_of(t, op), t.device)


STATEMENTS = {name[3:]: function for name, function in list(globals().items())
              if name.startswith("do_")}
