# SPDX-License-Identifier: Apache-2.0
"""Block level: the hidden function of a stand-in libtorch_npu.so, against the allocator's own counters."""
import os
import random

from harness import MIB, check, equal, hal_address, program, wait_for

PREPARE = """
class Stats(ctypes.Structure):
    _fields_ = [("allocated", ctypes.c_int64), ("reserved", ctypes.c_int64), ("active", ctypes.c_int64), ("workspace", ctypes.c_int64)]
def stats(d=0):
    s = Stats(); find("npusim_torch_stats")(ctypes.c_int(d), ctypes.byref(s))
    return dict(allocated=s.allocated, reserved=s.reserved, active=s.active, workspace=s.workspace)
def tensor(size, stream=0, d=0):
    b = U64(); r = call("npusim_torch_malloc", size, stream, d, 0, b)
    assert r == 0, r
    return b.v
def untensor(block):
    call("npusim_torch_free", block)
def size_of(block):
    f = find("_ZN7c10_npu19NPUCachingAllocator12GetBlockSizeEPKv"); f.restype = ctypes.c_uint64
    return f(ctypes.c_uint64(block))
def pointer_of(block):
    f = find("_ZN7c10_npu19NPUCachingAllocator11GetBlockPtrEPKv"); f.restype = ctypes.c_uint64
    return f(ctypes.c_uint64(block))
live = {}
def churn(seed, steps):
    import random
    r = random.Random(seed)
    for i in range(steps):
        if live and r.random() < 0.45:
            k = r.choice(list(live)); del live[k]; untensor(k)
        else:
            b = tensor(r.choice([100, 512, 5000, 300000, (1 << 20) - 32, 1 << 20, 3 << 20, 12 << 20]), r.choice([0, 1, 2]))
            live[b] = size_of(b)
"""


def torch_agent(scratch, variant="stripped", late=False, env=None):
    directory = os.path.dirname(program(f"sim/torch-{variant}/libtorch_npu.so"))
    agent = scratch.agent("8.1", libs=("libascendcl.so", os.path.join(directory, "libtorch_npu.so")), log=False, env=env)
    agent(PREPARE)
    return agent


def totals_equal(daemon, agent, where):
    truth = agent("out = stats()")
    row = daemon.rank(agent.pid, 0)
    equal((row["allocated_bytes"], row["reserved_bytes"], row["active_bytes"]),
          (truth["allocated"], truth["reserved"] + truth["workspace"], truth["active"]), f"{where}: allocated, reserved, active")
    return row


def test_totals(scratch, variant, detail):
    """Allocated, reserved and active equal the allocator's counters at every checkpoint; so do the blocks."""
    daemon = scratch.daemon(sets=[f"probes.block_detail={detail}"])
    agent = torch_agent(scratch, variant)
    daemon.wait_target(agent.pid, "blocks")
    agent("first = tensor(2 << 20)")
    for step in range(6):
        agent(f"churn({step}, 400)")
        row = totals_equal(daemon, agent, f"step {step}")
        live = agent("out = [(pointer_of(b), s) for b, s in live.items()] + [(pointer_of(first), size_of(first))]")
        expected = {address: size for address, size in live if detail == "all" or size >= MIB}
        shown = {hal_address(b): b["size_bytes"] for b in daemon.blocks(agent.pid, "allocated")}
        # smaller ones are followed, too, while their Python frames have no name yet
        got = {address: size for address, size in shown.items() if detail == "all" or size >= MIB}
        equal(got, expected, f"step {step}: live blocks")
        small = sum(size for _, size in live) - sum(expected.values()) - (sum(shown.values()) - sum(got.values()))
        rows = {o["owner"]: o["bytes"] for o in row["owners"] if o["level"] == "allocated"}
        equal(rows.get("PTA@small", 0), small, f"step {step}: blocks below the threshold")
        equal(sum(rows.values()), sum(size for _, size in live), f"step {step}: owners of the block level")
    agent("[untensor(b) for b in live]; live.clear(); untensor(first)")
    totals_equal(daemon, agent, "all freed")
    agent("call('npusim_torch_empty_cache', 0)")
    totals_equal(daemon, agent, "empty_cache")
    equal(daemon.status()["events"]["lost"], 0, "lost events")


test_totals.variants = [("stripped", "large"), ("stripped", "all"), ("symtab", "large"), ("v24", "large"), ("v24", "all")]


def test_streams(scratch):
    """Blocks that another stream still uses: active stays, allocated falls."""
    daemon = scratch.daemon(sets=["probes.block_detail=all"])
    agent = torch_agent(scratch)
    daemon.wait_target(agent.pid, "blocks")
    agent("b = tensor(4 << 20); c = tensor(300); call('npusim_torch_record_stream', b, 99)")
    totals_equal(daemon, agent, "recorded")
    agent("untensor(b)")
    row = totals_equal(daemon, agent, "freed, another stream uses it")
    check(row["active_bytes"] - row["allocated_bytes"] >= 4 * MIB, "nothing waits for the stream", row)
    equal([b["level"] for b in daemon.blocks(agent.pid, "pending")], ["pending"], "pending blocks")
    agent("call('npusim_torch_stream_done', 0, 99); d = tensor(700)")
    row = totals_equal(daemon, agent, "stream done")
    equal(row["active_bytes"], row["allocated_bytes"], "active and allocated at the end")
    equal(daemon.blocks(agent.pid, "pending"), [], "pending blocks at the end")


def test_workspace(scratch):
    """The workspace allocator is a pool of its own."""
    daemon = scratch.daemon()
    agent = torch_agent(scratch)
    daemon.wait_target(agent.pid, "blocks")
    agent("t = tensor(3 << 20); call('npusim_torch_workspace', 50 << 20, 0, 0)")
    totals_equal(daemon, agent, "workspace")
    check(agent("out = stats()")["workspace"] >= 50 * MIB, "no workspace was made")


def test_late_attach(scratch):
    """Blocks from before attach: totals exact after the first event, the rest is before_attach."""
    agent = torch_agent(scratch)
    agent("churn(1, 600)")
    daemon = scratch.daemon()
    daemon.wait_target(agent.pid, "blocks")
    agent("n = tensor(5 << 20)")
    row = totals_equal(daemon, agent, "first event")
    own = agent("out = size_of(n)")
    before = [o for o in row["owners"] if o["level"] == "allocated" and "before" in o["owner"]]
    equal(sum(o["bytes"] for o in before), row["allocated_bytes"] - own, "before attach at the block level")
    agent("[untensor(b) for b in live]; live.clear()")
    row = totals_equal(daemon, agent, "old blocks freed")
    before = [o for o in row["owners"] if o["level"] == "allocated" and "before" in o["owner"]]
    equal(sum(o["bytes"] for o in before), 0, "before attach after all old blocks were freed")


def test_detail_changes(scratch):
    """SIGHUP reads the detail again: large to all to off, totals stay right."""
    import signal
    # with Python frames a first small block is followed until its frames have names
    daemon = scratch.daemon(sets=("probes.python_frames=no",))
    agent = torch_agent(scratch)
    daemon.wait_target(agent.pid, "blocks")

    def configure(detail):
        with open(os.path.join(daemon.config_dir, "npumemd.conf"), "w") as f:
            f.write(f"[probes]\nblock_detail = {detail}\n[daemon]\nlog_level = debug\n")
        n = daemon.text().count("read again")
        daemon.process.send_signal(signal.SIGHUP)
        wait_for(lambda: daemon.text().count("read again") > n, 5, "SIGHUP is obeyed")
    agent("a = tensor(1000)")
    equal(daemon.blocks(agent.pid, "allocated"), [], "small blocks in detail large")
    configure("all")
    agent("b = tensor(2000)")
    equal([x["size_bytes"] for x in daemon.blocks(agent.pid, "allocated")], [agent("out = size_of(b)")], "small blocks in detail all")
    totals_equal(daemon, agent, "detail all")
    configure("large")
    agent("untensor(b); untensor(a)")
    totals_equal(daemon, agent, "detail large again")


def test_hidden_function_absent(scratch):
    """A libtorch_npu.so without the function: physical level, and status says why."""
    import subprocess
    os.mkdir(scratch.path("t"))
    path = scratch.path("t", "libtorch_npu.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input="int f(void); int f(void) { return 1; }\n", text=True, check=True)
    daemon = scratch.daemon()
    agent = scratch.agent("8.1", libs=("libascendcl.so", path))
    target = daemon.wait_target(agent.pid, "physical")
    check(target["reason"] and "block" in target["reason"], "status does not say why blocks are not seen", target)
