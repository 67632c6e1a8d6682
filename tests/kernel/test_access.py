# SPDX-License-Identifier: Apache-2.0
"""Windows of accesses: what a process does with its blocks, against what the test had it do; and how windows end."""
import json
import os
import subprocess
import time

from harness import check, equal, program, wait_for
from test_block import PREPARE

MIB = 1 << 20
SLEEP_S, IDLE = 1.0, "700ms"
OPERATIONS = 60

USES = """
import time
def new(size, stream=0):
    return tensor(size, stream)
def at(block):
    return pointer_of(block)
def create(address):
    f = find("aclCreateTensor"); f.restype = ctypes.c_void_p
    one = ctypes.c_int64(1)
    return f(ctypes.byref(one), ctypes.c_uint64(1), 0, ctypes.byref(one), ctypes.c_uint64(0), 2, ctypes.byref(one),
             ctypes.c_uint64(1), ctypes.c_uint64(address))
def operator(*blocks, offset=0):
    made = [create(at(b) + offset) for b in blocks]
    call("CommonOpExecutorRun", None, 0, 1, None)
    for t in made:
        call("aclDestroyTensor", t)
def several(n, *blocks):
    for _ in range(n):
        operator(*blocks)
def work(seconds, *blocks):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        operator(*blocks)
        time.sleep(0.005)
def pack(inside, outside):
    p = (ctypes.c_uint64 * (13568 // 8))()
    for which, addresses in enumerate((inside, outside)):
        at_ = which * (6784 // 8)
        p[at_ + 1] = len(addresses)
        for i, a in enumerate(addresses):
            p[at_ + 2 + (i * 104 + 80) // 8] = a
    return p
"""

LIBS = ("libascendcl.so", "libnnopbase.so", "libatb.so", "libhccl.so")


def agent_of(scratch, libs=LIBS):
    torch = os.path.join(os.path.dirname(program("sim/torch-stripped/libtorch_npu.so")), "libtorch_npu.so")
    agent = scratch.agent("8.1", libs=(*libs, torch), log=False)
    agent(PREPARE)
    agent(USES)
    return agent


class Window:
    """npumem inefficient, from the moment at which uses count."""

    def __init__(self, daemon, tgid, seconds, *arguments):
        before = daemon.text().count("window of accesses:")
        self.process = subprocess.Popen(
            [program("npumem"), "--socket", daemon.socket, "inefficient", "--pid", str(tgid), "--for", f"{seconds}s",
             "-o", "json", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        daemon.scratch.at_end(self.process.kill)
        wait_for(lambda: daemon.text().count("window of accesses:") > before or self.process.poll() is not None, 30,
                 "the window counts")
        check(self.process.poll() is None, "the window could not be opened", self.process.stderr)

    def end(self, seconds=60):
        out, err = self.process.communicate(timeout=seconds)
        equal(self.process.returncode, 0, f"exit code of npumem inefficient ({err})")
        return json.loads(out)


def findings_of(document):
    return {(f["kind"], f["size_bytes"] // MIB): f for f in document["findings"]}


def test_planted(scratch, links):
    """Blocks of every kind beside proper ones: each is found, none is invented; counts are exact."""
    daemon = scratch.daemon(links=links, sets=["probes.block_detail=all"])
    agent = agent_of(scratch)
    daemon.wait_target(agent.pid, "blocks")
    agent("w = new(3 << 20); unused = new(4 << 20); inside = new(5 << 20); several(3, w, inside)")
    window = Window(daemon, agent.pid, 9, "--idle", IDLE, "--operations", str(OPERATIONS))
    agent("several(10, w, inside)")  # 10 operations
    # early: something is freed between its allocation and its use
    agent("other = new(6 << 20); operator(other)\nearly = new(7 << 20); untensor(other); operator(early, w); untensor(early)")
    # late: something is allocated between its last use and its free
    agent("late = new(8 << 20); operator(late)\nother = new(9 << 20); operator(other); untensor(late); untensor(other)")
    # idle: many operations between two uses
    agent(f"idle = new(10 << 20); operator(idle); several({OPERATIONS + 5}, w, inside); operator(idle); untensor(idle)")
    # the same by time alone; what is used properly is used meanwhile
    agent(f"a = new(11 << 20); work({SLEEP_S}, w, inside); operator(a); untensor(a)")
    agent(f"a = new(12 << 20); operator(a); work({SLEEP_S}, w, inside); untensor(a)")
    agent("for i in range(50):\n  a = new(13 << 20); operator(a, w, inside); untensor(a)")  # proper, one address again and again
    # within blocks: copies, sets, ATB, collectives
    agent("call('aclrtMemcpy', at(inside) + (1 << 20), 64, at(w) + 4096, 64, 3)")
    agent("call('aclrtMemset', at(inside) + (5 << 20) - 64, 64, 0, 64)")
    agent("operator(w, inside, offset=(3 << 20) - 1)")
    document = window.end()
    found = findings_of(document)
    wanted = {("temporary_idleness", 4), ("late_deallocation", 6), ("early_allocation", 7), ("late_deallocation", 8),
              ("temporary_idleness", 10), ("early_allocation", 11), ("late_deallocation", 12)}
    equal(set(found), wanted, "what was found")
    equal(len(document["findings"]), len(wanted), "findings")
    for key, sense in ((("late_deallocation", 6), ["operations"]), (("early_allocation", 7), ["operations"]),
                       (("late_deallocation", 8), ["operations"]), (("temporary_idleness", 10), ["operations"])):
        check(set(sense) <= set(found[key]["senses"]), f"senses of {key}", found[key])
    for key in (("early_allocation", 11), ("late_deallocation", 12)):
        check("time" in found[key]["senses"], f"senses of {key}", found[key])
        check(SLEEP_S * 0.95 <= found[key]["idle_ns"] / 1e9 <= SLEEP_S + 1, f"idle time of {key}", found[key])
        check(found[key]["byte_seconds"] >= key[1] * MIB * SLEEP_S * 0.9, f"cost of {key}", found[key])
    equal(found["temporary_idleness", 10]["operations"]["idle"], OPERATIONS + 6, "operations between two uses")
    check(document["complete"], "complete", document["hidden"])
    return document


test_planted.variants = [("multi",), ("perf",), ("perf-legacy",)]


# Every function that a window looks at, with how many uses of known blocks a call makes and how many operations.
ROWS = [
    ("aclCreateTensor", "create(at(w))", 1, 1), ("CommonOpExecutorRun", "call('CommonOpExecutorRun', at(w), 4, 1, None)", 1, 0),
    ("aclSetRawTensorAddr", "call('aclSetRawTensorAddr', made, at(w))", 1, 1),
    ("aclSetTensorAddr", "call('aclSetTensorAddr', 1, 0, made, at(w) + 5)", 1, 0),
    ("AddTensorAddrToCachedList", "call('AddTensorAddrToCachedList', at(w) + 4096)", 1, 0),
    ("NnopbaseRunWithWorkspace", "call('NnopbaseRunWithWorkspace', 1, None, at(w), 4)", 1, 0),
    ("aclrtMemcpy", "call('aclrtMemcpy', at(w), 64, at(x), 64, 3)", 2, 1),
    ("aclrtMemcpy", "call('aclrtMemcpy', at(w), 64, host, 64, 1)", 1, 1),
    ("aclrtMemcpy", "call('aclrtMemcpy', host, 64, at(w), 64, 2)", 1, 1),
    ("aclrtMemcpy", "call('aclrtMemcpy', host, 64, host, 64, 0)", 0, 0),
    ("aclrtMemcpyAsync", "call('aclrtMemcpyAsync', at(w) + 8, 64, at(x) + 8, 64, 3, None)", 2, 1),
    ("aclrtMemcpy2d", "call('aclrtMemcpy2d', at(w), 64, at(x), 64, 32, 4, 3)", 2, 1),
    ("aclrtMemset", "call('aclrtMemset', at(w), 64, 0, 64)", 1, 1),
    ("aclrtMemsetAsync", "call('aclrtMemsetAsync', at(x), 64, 0, 64, None)", 1, 1),
    ("HcclAllReduce", "call('HcclAllReduce', at(w), at(x), 1, 0, 0, None, None)", 2, 1),
    ("HcclAllGather", "call('HcclAllGather', at(w), at(x), 1, 0, None, None)", 2, 1),
    ("HcclReduceScatter", "call('HcclReduceScatter', at(w), at(x), 1, 0, 0, None, None)", 2, 1),
    ("HcclBroadcast", "call('HcclBroadcast', at(w), 1, 0, 0, None, None)", 1, 1),
    ("HcclSend", "call('HcclSend', at(w), 1, 0, 0, None, None)", 1, 1),
    ("HcclRecv", "call('HcclRecv', at(w), 1, 0, 0, None, None)", 1, 1),
    ("HcclAlltoAll", "call('HcclAlltoAll', at(w), 1, 0, at(x), 1, 0, None, None)", 2, 1),
    ("HcclAlltoAllV", "call('HcclAlltoAllV', at(w), 0, 0, 0, at(x), 0, 0, 0, None, None)", 2, 1),
    ("ATB", "call('_ZN3atb13OperationBase7ExecuteERKNS_11VariantPackEPhmPNS_7ContextE', thing, pack([at(w), at(x) + 512], [at(w) + 64]), at(x), 0, thing)", 4, 1),
]


def test_every_row(scratch, links):
    """Every function: its uses and its operations, one by one in the window's own account."""
    daemon = scratch.daemon(links=links, sets=["probes.block_detail=all"])
    agent = agent_of(scratch)
    daemon.wait_target(agent.pid, "blocks")
    agent("w, x = new(3 << 20), new(4 << 20); made = create(at(w)); host = ctypes.addressof(ctypes.create_string_buffer(128))\n"
          "thing = (ctypes.c_uint64 * 512)()\nthing_, host_ = thing, ctypes.create_string_buffer(128); host = ctypes.addressof(host_)")
    window = Window(daemon, agent.pid, 3)
    uses = operations = 0
    for _, code, use, operation in ROWS:
        agent(code)
        uses, operations = uses + use, operations + operation
    agent("call('aclmdlRIExecuteAsync', 1, None); call('aclmdlRIExecute', 1, 0); call('HcclBatchSendRecv', None, 0, None, None)")
    document = window.end()
    equal(document["window"]["uses"], uses, "uses")
    equal(document["window"]["operations"], operations + 3, "operations")
    equal(document["window"]["graph_launches"], 2, "launches of graphs")
    equal(document["window"]["opaque_calls"], 1, "calls whose lists are not read")
    equal(document["window"]["unknown_addresses"], 0, "unknown addresses")
    check(any("captured graphs" in line for line in document["hidden"]), "graphs are said", document["hidden"])


test_every_row.variants = [("multi",), ("perf-legacy",)]


def code_at(pid, agent, symbol):
    """The first bytes of a function as the process has them, and its address."""
    address = agent(f"out = ctypes.cast(find({symbol!r}), ctypes.c_void_p).value")
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as f:
        f.seek(address)
        return f.read(8)


def test_other_processes(scratch):
    """The probes of a window are in its process alone, and gone when it has ended."""
    daemon = scratch.daemon(links="multi", sets=["probes.block_detail=all"])
    agent, other = agent_of(scratch), agent_of(scratch)
    for a in (agent, other):
        daemon.wait_target(a.pid, "blocks")
    agent("w = new(3 << 20)")
    before = code_at(agent.pid, agent, "aclCreateTensor")
    window = Window(daemon, agent.pid, 2)
    check(code_at(agent.pid, agent, "aclCreateTensor") != before, "the process is not probed")
    equal(code_at(other.pid, other, "aclCreateTensor"), before, "the other process")
    other("w = new(3 << 20); several(20, w)")
    agent("several(5, w)")
    document = window.end()
    equal((document["window"]["operations"], document["window"]["uses"]), (5, 5), "operations and uses")
    wait_for(lambda: code_at(agent.pid, agent, "aclCreateTensor") == before, 5, "the probes are gone")


def test_small_blocks_before(scratch):
    """With detail `large`, blocks that were summed before the window are said not to be known; those of the window are."""
    daemon = scratch.daemon(links="multi", sets=["probes.python_frames=no"])
    agent = agent_of(scratch)
    daemon.wait_target(agent.pid, "blocks")
    agent("big = new(3 << 20); small = [new(1000) for _ in range(100)]")
    window = Window(daemon, agent.pid, 3, "--idle", IDLE)
    agent(f"mine = new(2000); work({SLEEP_S}, big); operator(mine); untensor(mine); operator(small[0])")
    document = window.end()
    found = [(f["kind"], f["size_bytes"]) for f in document["findings"]]
    equal(found, [("early_allocation", 2048)], "findings")
    check(not document["complete"], "complete although small blocks are not known")
    check(any("from before the window" in line for line in document["hidden"]), "it is said", document["hidden"])
    # the sums are as exact after it as before
    row = daemon.rank(agent.pid, 0)
    equal(row["allocated_bytes"], agent("out = stats()")["allocated"], "allocated bytes after the window")


def test_process_ends(scratch, how):
    """A process that ends within its window: what was seen until then is the answer."""
    daemon = scratch.daemon(links="multi", sets=["probes.block_detail=all"])
    agent = agent_of(scratch)
    daemon.wait_target(agent.pid, "blocks")
    agent("w = new(3 << 20); unused = new(4 << 20)")
    window = Window(daemon, agent.pid, 60, "--idle", IDLE)
    agent(f"work({SLEEP_S}, w)")
    begin = time.monotonic()
    if how == "killed":
        agent.process.kill()
    else:
        agent.send("os.execv('/bin/sleep', ['sleep', '30'])")
    document = window.end(20)
    check(time.monotonic() - begin < 10, "the answer waited for the end of the window")
    check(document["window"]["ended_early"] and not document["complete"], "it is said", document["window"])
    equal([(f["kind"], f["size_bytes"] // MIB) for f in document["findings"]], [("temporary_idleness", 4)], "findings")


test_process_ends.variants = [("killed",), ("exec",)]


def test_busy_at_its_end(scratch, links):
    """A process that uses, allocates and frees on two threads while windows begin and end: no life contradicts itself,
    and what is held all the time is in each window's account, however close to its end it was used."""
    daemon = scratch.daemon(links=links, sets=["probes.block_detail=all"])
    agent = agent_of(scratch)
    daemon.wait_target(agent.pid, "blocks")
    agent("import threading\nheld = [new((i + 1) << 20) for i in range(8)]; stop = False\n"
          "def busy(mine):\n  while not stop:\n    operator(*mine)\n    untensor(new(1 << 20))\n"
          "threads = [threading.Thread(target=busy, args=(half,)) for half in (held[:4] * 4, held[4:] * 4)]\n"
          "for t in threads: t.start()")
    for _ in range(4):
        document = Window(daemon, agent.pid, 1).end()
        check(not any("contradict" in line for line in document["hidden"]), "times", document["hidden"])
        check(document["window"]["used_blocks"] >= 8, "blocks held and used", document["window"])
        length = document["window"]["end_ns"] - document["window"]["begin_ns"]
        check(abs(length - 10**9) < 10**6, "length of the window", length)
    agent("stop = True\nfor t in threads: t.join()")


test_busy_at_its_end.variants = [("multi",), ("perf-legacy",)]


def test_without_use(scratch):
    """A window in which nothing happens says so, and finds nothing."""
    daemon = scratch.daemon(links="multi", sets=["probes.block_detail=all"])
    agent = agent_of(scratch)
    daemon.wait_target(agent.pid, "blocks")
    agent("w = new(3 << 20)")
    document = Window(daemon, agent.pid, 2, "--idle", "500ms").end()
    equal(document["findings"], [], "findings")
    check("nothing can be said" in document["verdict"], "verdict", document["verdict"])
    # blocks come and go, but no library tells what they are used for
    plain = agent_of(scratch, libs=("libascendcl.so",))
    daemon.wait_target(plain.pid, "blocks")
    plain("w = new(3 << 20)")
    window = Window(daemon, plain.pid, 2, "--idle", "500ms")
    plain("for i in range(50): untensor(new(1 << 20))")
    document = window.end()
    equal(document["findings"], [], "findings without operators")
    check("nothing can be said" in document["verdict"], "verdict without operators", document["verdict"])


def test_library_comes_late(scratch):
    """Operators are loaded at their first use, after the window has begun."""
    daemon = scratch.daemon(links="multi", sets=["probes.block_detail=all"])
    agent = agent_of(scratch, libs=("libascendcl.so",))
    daemon.wait_target(agent.pid, "blocks")
    agent("w = new(3 << 20)")
    window = Window(daemon, agent.pid, 4)
    agent("load('libnnopbase.so'); time.sleep(1.5); several(7, w)")
    document = window.end()
    equal(document["window"]["uses"], 7, "uses")


def test_refusals(scratch):
    """What cannot be looked at, and what is asked for wrongly: one line that says why."""
    daemon = scratch.daemon(links="multi", sets=["probes.block_detail=all"])
    agent = agent_of(scratch)
    without = scratch.agent("8.1", log=False)
    daemon.wait_target(agent.pid, "blocks")
    daemon.wait_target(without.pid, "physical")
    agent("w = new(3 << 20)")

    def refused(code, words, *arguments):
        out = daemon.cli("inefficient", *arguments, expect=code)
        check(words in out.stderr and out.stderr.count("\n") == 1, f"inefficient {' '.join(arguments)}", out.stderr)
    refused(4, "not observed", "--pid", "999999")
    refused(1, "its blocks are not seen", "--pid", str(without.pid))
    refused(2, "0.1 s to 10 min", "--pid", str(agent.pid), "--for", "1h")
    refused(2, "0.1 s to 10 min", "--pid", str(agent.pid), "--for", "1ms")
    refused(2, "one process at a time", "--pid", f"{agent.pid},{without.pid}")
    window = Window(daemon, agent.pid, 30)
    refused(1, "a window is open", "--pid", str(agent.pid))
    window.process.kill()  # nobody waits for it any more: it goes
    wait_for(lambda: "a window is open" not in daemon.cli("inefficient", "--pid", str(agent.pid), "--for", "200ms",
                                                        expect=None).stderr, 10, "the window has gone")
    equal(daemon.status()["events"]["decode_errors"], 0, "decode errors")
    # a window that is open when the daemon ends
    Window(daemon, agent.pid, 30)
    check(daemon.stop() < 2, "the daemon did not end in time")
    agent("operator(w)")
