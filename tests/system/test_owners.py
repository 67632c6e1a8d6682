# SPDX-License-Identifier: Apache-2.0
"""Whose memory it is: ranks, devices, phases, peaks and moments on simulated servers.

The truth is what each simulated process wrote down of itself at its checkpoints, and what the public
reports say (rows 10, 12, 13, 17, 20 and 23 of the scenarios).
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import harness
from harness import Failure, Skip, check, equal, program, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
SIM = os.path.join(HERE, "../../sim")
MIB, GIB = 1 << 20, 1 << 30


def near(got, wanted, what, percent=1.0):
    check(got is not None and abs(got - wanted) <= wanted * percent / 100,
          f"{what}: {got}, expected {wanted} within {percent} %")


def scenario_text(name):
    with open(os.path.join(SIM, "scenarios", name + ".sim"), encoding="utf-8") as f:
        return f.read()


class Run:
    """A scenario that stops at its checkpoints, and a daemon that saw it from its start (or late)."""

    def __init__(self, scratch, text, python=False, arguments=(), late=None, sets=()):
        path = scratch.path("scenario.sim")
        if not late:  # nothing is held before every probe is live
            text = re.sub(r"^(rank .*\bdevice=.*\n(?:  env .*\n)*)",
                          r"\1  tensor warm 1KiB\n  del warm\n  checkpoint start\n", text, flags=re.M)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        devices = re.search(r"^devices\s+(\S+)\s+(\S+)(?:\s+([^\s#]+))?", text, re.M)
        self.env = scratch.environment("8.1", NPUSIM_DEVICES=devices.group(1), NPUSIM_HBM=devices.group(2),
                                       NPUSIM_BASELINE=devices.group(3) or "0")
        self.env.pop("LD_LIBRARY_PATH", None)
        self.scratch = scratch
        self.sets = ("probes.block_detail=all", "store.sample_interval=60s", *sets)
        self.daemon = None if late else scratch.daemon(sets=self.sets)
        self.steps = scratch.path("steps")
        os.makedirs(self.steps)
        driver = [program("sim/npusim-run")]
        if python:
            driver = [sys.executable, os.path.join(SIM, "python/npusim_run.py"), "--run", driver[0]]
        self.process = subprocess.Popen([*driver, "--step", self.steps, *arguments, path], env=self.env,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        scratch.at_end(harness.stop_process, self.process, signal.SIGTERM)

        for numbers in re.findall(r"^rank (\S+).*\bdevice=", "" if late else text, re.M):
            first, _, last = numbers.partition("..")
            for rank in range(int(first), int(last or first) + 1):
                self.daemon.wait_target(self.reach("start", str(rank))["tgid"], "blocks")
        self.go("start")

    def attach(self):
        self.daemon = self.scratch.daemon(sets=self.sets)

    def reach(self, checkpoint, rank="0"):
        """Waits for a rank at a checkpoint; its own books."""
        path = os.path.join(self.steps, f"reached.{rank}.{checkpoint}")

        def there():
            if os.path.exists(path) and os.path.getsize(path):
                return True
            if self.process.poll() is not None:
                raise Failure(f"the scenario ended: {self.process.stdout.read()}")
            return False
        wait_for(there, 60, f"rank {rank} at {checkpoint}")
        with open(path, encoding="utf-8") as f:
            return json.loads(f.read())

    def go(self, checkpoint):
        with open(os.path.join(self.steps, f"go.{checkpoint}"), "w"):
            pass

    def rows(self, verb="ps", *arguments):
        return self.daemon.json(verb, *arguments)["ranks"]

    def row(self, tgid, verb="ps", *arguments):
        rows = [r for r in self.rows(verb, "--pid", str(tgid), *arguments) if r["main"]]
        equal(len(rows), 1, f"main rows of process {tgid}")
        return rows[0]


def owner_bytes(row, level, owner=None):
    return sum(o["bytes"] for o in row["owners"] if o["level"] == level and owner in (None, o["owner"]))


def gap(row, name):
    return [g["bytes"] for g in row["gaps"] if g["name"] == name][0]


# --- identity ---

REPLICAS = """
devices 8 16GiB
rank server comm=vllm
  wait
end
rank e0 title=VLLM::EngineCore_DP0 parent=server
  wait
end
rank e1 title=VLLM::EngineCore_DP1 parent=server
  wait
end
""" + "".join(f"""
rank {n} device={n % 2} title=VLLM::Worker_TP{n % 2} parent=e{n // 2}
  env ASCEND_RT_VISIBLE_DEVICES={4 * (n // 2) + 1},{4 * (n // 2) + 3}
  env HCCL_BUFFSIZE={100 + n}
  malloc w {n + 1}GiB
  checkpoint up
end
""" for n in range(4))


def test_dense_replicas(scratch):
    """DP=2 x TP=2: two workers of each title are told apart, on the right cards, with their own settings."""
    run = Run(scratch, REPLICAS)
    engine_tgids = set()
    for n in range(4):
        truth = run.reach("up", str(n))
        row = run.row(truth["tgid"])
        wanted = {"title": f"VLLM::Worker_TP{n % 2}", "rank": n % 2, "world_size": 2, "replica": n // 2,
                  "server_rank": n, "server_size": 4, "device": 4 * (n // 2) + 1 + 2 * (n % 2),
                  "visible_device": n % 2, "rank_source": "title", "rank_inferred": False,
                  "groups": {"TP": n % 2}, "state": "running", "user": "root"}
        equal({k: row[k] for k in wanted}, wanted, f"worker {n}")
        near(row["physical_bytes"], (n + 1) * GIB, f"bytes of worker {n}")
        equal(row["environment"]["HCCL_BUFFSIZE"], str(100 + n), f"HCCL_BUFFSIZE of worker {n}")
        engine_tgids.add(row["engine_tgid"])
    engines = [r for r in run.rows() if r["tgid"] in engine_tgids]
    equal(sorted(e["title"] for e in engines), ["VLLM::EngineCore_DP0", "VLLM::EngineCore_DP1"], "engines")
    for e in engines:
        equal(e["rank"], None, "rank of an engine with workers")


def test_pipeline_by_tensor_titles(scratch):
    """PP=2 x TP=2: no title alone decides the rank, all four together do."""
    run = Run(scratch, "devices 4 16GiB\nrank e title=VLLM::EngineCore\n  wait\nend\n" + "".join(
        f"rank {n} device={n} title=VLLM::Worker_PP{n // 2}_TP{n % 2} parent=e\n  malloc w 1GiB\n  checkpoint up\nend\n"
        for n in range(4)))
    tgids = [run.reach("up", str(n))["tgid"] for n in range(4)]
    for n, tgid in enumerate(tgids):
        row = run.row(tgid)
        equal((row["rank"], row["world_size"], row["rank_source"], row["rank_inferred"]), (n, 4, "title", True),
              f"worker {n}")


def test_a_title_that_lies(scratch):
    """Communicators count; that the title says otherwise is shown."""
    run = Run(scratch, "devices 2 16GiB\n" + "".join(
        f"rank {n} device={n} title=VLLM::Worker_TP{1 - n}\n  hccl world rank={n} ranks=2\n  checkpoint up\nend\n"
        for n in range(2)))
    for n in range(2):
        row = run.row(run.reach("up", str(n))["tgid"])
        equal((row["rank"], row["rank_source"], row["rank_conflict"], row["world_size"]), (n, "hccl", True, 2),
              f"rank {n}")


def test_a_communicator_of_a_group(scratch):
    """A communicator of two in a world of four numbers the group, not the world."""
    run = Run(scratch, "devices 4 16GiB\n" + "".join(
        f"rank {n} device={n}\n  env RANK={n}\n  env WORLD_SIZE=4\n  hccl g{n // 2} rank={n % 2} ranks=2\n"
        "  checkpoint up\nend\n" for n in range(4)))
    for n in range(4):
        row = run.row(run.reach("up", str(n))["tgid"])
        equal((row["rank"], row["world_size"], row["rank_source"]), (n, 4, "environ"), f"rank {n}")


def test_r10_foreign_contexts(scratch):
    """Report 10: seven ranks also hold 107 MB on card 0; each keeps the rank of its main device."""
    run = Run(scratch, scenario_text("r10_contexts"))
    tgids = [run.reach("up", str(n))["tgid"] for n in range(8)]
    rows = [r for r in run.rows() if r["tgid"] in tgids]
    foreign = [r for r in rows if r["foreign"]]
    equal(sorted((r["device"], r["rank"], r["main_device"]) for r in foreign), [(0, n, n) for n in range(1, 8)],
          "foreign contexts")
    held = [r for r in run.rows("breakdown", "--device", "0") if r["foreign"] and r["tgid"] in tgids]
    # the runtime takes 6 MiB for itself on a card that is set (NPUSIM_RUNTIME), which a process may have done
    # before its probes were live: then they are in before_attach
    near(sum(owner_bytes(r, "physical") for r in held) - len(held) * 6 * MIB, 749_000_000,
         "their bytes, without the runtime's own")
    for n, tgid in enumerate(tgids):
        main = [r for r in rows if r["tgid"] == tgid and r["main"]][0]
        equal((main["rank"], main["device"], main["foreign"]), (n, n, False), f"main row of rank {n}")
    table = run.daemon.cli("ps", "--pid", str(tgids[3])).stdout
    check(re.search(r"\(0\)", table), "the table does not mark the foreign device", table)


def test_r20_orphan(scratch):
    """Report 20: the parent exits, its child still holds the card: listed as the holder until it ends."""
    run = Run(scratch, scenario_text("r20_orphan"))
    truth = run.reach("orphaned")
    row = wait_for(lambda: (lambda r: r if r["state"] == "orphan" else None)(run.row(truth["tgid"])), 10,
                   "the orphan is told")
    near(row["physical_bytes"], 20 * GIB, "what it holds")
    equal(row["title"], "VLLM::Worker", "title")
    run.go("orphaned")
    wait_for(lambda: not [r for r in run.rows() if r["tgid"] == truth["tgid"]], 20, "the orphan's end")
    # by the store's last word it held what it held, and is gone
    exits = run.daemon.sql("SELECT exit_seen, (SELECT sum(size_bytes) FROM live_block WHERE process_id=process.id AND "
                           "level='physical') FROM process WHERE tgid=? AND exit_wall_ns IS NOT NULL", truth["tgid"])
    equal(len(exits), 1, "exits in the store")
    equal(exits[0][0], 1, "the exit was seen")
    near(exits[0][1], 20 * GIB, "what it held at its end")


# --- owners ---

def test_r12_kv_transfer(scratch):
    """Report 12: 49 GiB of weights and 10 GiB of buffers from other frames are two owners."""
    run = Run(scratch, scenario_text("r12_kv_transfer"), python=True)
    row = run.row(run.reach("loaded")["tgid"], "breakdown")
    near(owner_bytes(row, "allocated", "PTA@vllm@weights"), 49 * GIB, "weights")
    near(owner_bytes(row, "allocated", "PTA@vllm@kv_transfer"), 10 * GIB, "kv_transfer")


def test_r13_budget_table(scratch):
    """Report 13: the budget's rows, graph on a row of its own."""
    run = Run(scratch, scenario_text("r13_budget_table"), python=True)
    profiled = run.row(run.reach("profiled")["tgid"], "breakdown")
    near(owner_bytes(profiled, "allocated", "PTA@vllm@profile"), 2.0 * GIB, "activation while profiling")
    run.go("profiled")
    row = run.row(run.reach("up")["tgid"], "breakdown")
    near(owner_bytes(row, "allocated", "PTA@vllm@weights"), 30.16 * GIB, "weights")
    near(owner_bytes(row, "allocated", "PTA@vllm@kv_cache"), 21.26 * GIB, "kv_cache")
    graph = [o for o in row["owners"] if o["level"] == "allocated" and "graph" in o["owner"]]
    near(sum(o["bytes"] for o in graph), 0.44 * GIB, "graph")
    outside = sum(o["bytes"] for o in row["owners"] if o["level"] == "physical" and o["owner"].startswith("CANN@"))
    near(outside, 2.07 * GIB, "non-torch")


def test_r17_streams(scratch):
    """Report 17: what waits for the other stream is shown, by the stream that it belongs to."""
    run = Run(scratch, scenario_text("r17_stream_delayed"))
    tgid = run.reach("waiting")["tgid"]
    row = run.row(tgid, "breakdown")
    near(gap(row, "stream_delayed"), 30 * 40 * MIB, "stream-delayed", 1)
    blocks = run.daemon.blocks(tgid, "pending")
    equal(len(blocks), 30, "blocks that wait")
    streams = {b["stream"] for b in blocks}
    equal(len(streams), 1, "streams of the blocks that wait")
    of_stream = run.daemon.json("ls", "--pid", str(tgid), "--stream", streams.pop(), "--level", "pending", "--limit", "0")
    equal(of_stream["matched_blocks"], 30, "blocks by stream")
    equal(run.daemon.json("ls", "--pid", str(tgid), "--stream", "0x1")["matched_blocks"], 0, "of another stream")
    run.go("waiting")
    run.reach("reclaimed")
    equal(gap(run.row(tgid, "breakdown"), "stream_delayed"), 0, "stream-delayed after the stream was done")


def test_r23_late_attach(scratch):
    """Row 23: 50 GiB before attach, smaller with each unknown free, never below 0."""
    run = Run(scratch, scenario_text("r23_late_attach"), late=True)
    truth = run.reach("held")
    run.attach()
    run.daemon.wait_target(truth["tgid"])
    row = run.row(truth["tgid"], "breakdown")
    equal(row["before_attach_bytes"], row["physical_bytes"], "all of it is from before attach")
    near(owner_bytes(row, "physical", "before_attach"), 50 * GIB, "owner before_attach")
    run.go("held")
    run.reach("freed")
    # what stays is the runtime's own, which the scenario does not free
    wait_for(lambda: 0 <= run.row(truth["tgid"])["before_attach_bytes"] < 16 * MIB, 10, "all of it is freed")
    near(run.row(truth["tgid"], "breakdown")["physical_bytes"], 1 * GIB, "what is held now")
    near(run.row(truth["tgid"], "breakdown", "--peak")["physical_bytes"], 50 * GIB, "at the peak")


COMMUNICATORS = """
devices 2 64GiB
rank 0..1 device=$rank title=VLLM::Worker_TP$rank
  hccl world rank=$rank ranks=2 name=world buffer=300MiB
  hccl tp rank=$rank ranks=2 buffer=100MiB
  checkpoint both
  hccl_destroy world
  checkpoint one
end
"""


def test_communicators(scratch):
    """What each communicator took, by its name or its place; gone when it is destroyed."""
    run = Run(scratch, COMMUNICATORS)
    for rank in range(2):
        tgid = run.reach("both", str(rank))["tgid"]
        row = run.row(tgid, "breakdown")
        # the simulated library allocates in and out buffer at once, and 1 MiB beside
        equal(owner_bytes(row, "physical", "CANN@HCCL@world"), 2 * 300 * MIB + MIB, f"world of rank {rank}")
        equal([(c["name"], c["rank"], c["world_size"], c["buffer_bytes"]) for c in row["communicators"]][:1],
              [("world", rank, 2, 300 * MIB)], f"communicator of rank {rank}")
        equal([c["bytes"] for c in row["communicators"]], [601 * MIB, 201 * MIB], f"bytes of rank {rank}")
    table = run.daemon.cli("ps", "-v", "--pid", str(tgid)).stdout
    check("CANN@HCCL@world" in table, "ps -v does not list communicators", table)
    run.go("both")
    tgid = run.reach("one")["tgid"]
    row = run.row(tgid, "breakdown")
    equal(owner_bytes(row, "physical", "CANN@HCCL@world"), 0, "world after its end")
    equal(len(row["communicators"]), 1, "communicators left")


def test_atb_operations(scratch):
    """ATB operations by class, with the largest workspace that one was given: labels, not memory."""
    run = Run(scratch, "devices 1 16GiB\nrank 0 device=0\n  malloc ws 20MiB\n  atb setup 20MiB\n"
                       "  atb execute 20MiB block=ws\n  atb execute 12MiB block=ws\n  checkpoint up\nend\n")
    row = run.row(run.reach("up")["tgid"], "breakdown")
    got = [(a["operation"], a["setup_count"], a["execute_count"], a["workspace_max_bytes"]) for a in row["atb_operations"]]
    equal(got, [("OperationBase", 1, 2, 20 * MIB)], "operations")
    equal([o for o in row["owners"] if o["owner"].startswith("ATB")], [], "memory of ATB's own")


def test_drift_is_shown(scratch):
    """The ledger against the driver's own account, per process and device."""
    run = Run(scratch, MOMENTS)
    tgid = run.reach("low")["tgid"]
    rows = wait_for(lambda: [r for r in run.daemon.status()["reconciliation"] if r["tgid"] == tgid], 10, "a figure")
    equal([(r["device"], r["drift_bytes"], r["ledger_bytes"] - r["driver_bytes"]) for r in rows], [(0, 0, 0)], "drift")
    equal(rows[0]["driver_bytes"], sum(harness.process_used(scratch, tgid).values()), "the driver's figure")
    equal(run.row(tgid)["drift_bytes"], 0, "drift of the row")


def torch_agent(scratch, daemon):
    """A process with the stand-in torch_npu, and functions alloc(bytes) and release(block) in it."""
    agent = scratch.agent(device=0)
    agent("import ctypes, sys, threading")
    agent(f"torch = ctypes.CDLL({program('sim/torch-stripped/libtorch_npu.so')!r}, mode=ctypes.RTLD_GLOBAL)")
    agent("def alloc(n):\n"
          "    b = ctypes.c_void_p()\n"
          "    assert torch.npusim_torch_malloc(ctypes.c_size_t(n), None, 0, 0, ctypes.byref(b)) == 0\n"
          "    return b.value\n"
          "def address(b):\n"
          "    f = torch['_ZN7c10_npu19NPUCachingAllocator11GetBlockPtrEPKv']\n"
          "    f.restype = ctypes.c_void_p\n"
          "    return f(ctypes.c_void_p(b))\n"
          "def size(*blocks):\n"
          "    f = torch['_ZN7c10_npu19NPUCachingAllocator12GetBlockSizeEPKv']\n"
          "    f.restype = ctypes.c_size_t\n"
          "    return sum(f(ctypes.c_void_p(b)) for b in blocks)\n"
          "def release(b):\n"
          "    torch.npusim_torch_free(ctypes.c_void_p(b))\n")
    agent("warm = alloc(1024)")
    daemon.wait_target(agent.pid, "blocks")
    return agent


def owners_of(daemon, tgid, level="allocated"):
    row = [r for r in daemon.json("breakdown", "--pid", str(tgid))["ranks"] if r["main"]][0]
    return {o["owner"]: o["bytes"] for o in row["owners"] if o["level"] == level}


def test_graph_capture(scratch):
    """Blocks allocated while a graph is captured, small ones too, on the capturing thread only."""
    daemon = scratch.daemon()
    agent = torch_agent(scratch, daemon)
    agent("graph = ctypes.create_string_buffer(64)\n"
          "begin = torch['_ZN7c10_npu8NPUGraph13capture_beginESt4pairIyyE19aclmdlRICaptureMode']\n"
          "end = torch['_ZN7c10_npu8NPUGraph11capture_endEv']\n"
          "z = ctypes.c_ulonglong(0)\n"
          "begin(graph, z, z, 0)\n"
          "captured = [alloc(30 << 20), alloc(4096)]\n"
          "t = threading.Thread(target=lambda: captured.append(alloc(5 << 20)))\n"
          "t.start(); t.join()\n"
          "end(graph)\n"
          "after = alloc(7 << 20)")
    owners = owners_of(daemon, agent.pid)
    held = agent("out = size(*captured[:2])")  # by the allocator's own word
    check(held > (30 << 20) + 4096, "what the allocator says", held)
    equal(owners.get("PTA@graph_pool"), held, f"graph pool ({owners})")
    agent("for b in captured[:2]: release(b)")
    equal(owners_of(daemon, agent.pid).get("PTA@graph_pool", 0), 0, "graph pool after its end")


def test_process_group(scratch):
    """The rank that torch_npu's process group is constructed with."""
    daemon = scratch.daemon()
    agent = torch_agent(scratch, daemon)
    agent("make = torch['_ZN8c10d_npu16ProcessGroupHCCLC1ERKN3c1013intrusive_ptrIN4c10d5StoreENS1_6detail34intrusive_"
          "target_default_null_typeIS4_EEEEiiNS2_INS0_7OptionsENS6_ISB_EEEE']\n"
          "make(graph if 'graph' in globals() else None, None, 5, 8)\nmake(None, None, 1, 2)")
    row = [r for r in daemon.json("ps", "--pid", str(agent.pid))["ranks"] if r["main"]][0]
    equal((row["rank"], row["world_size"], row["rank_source"]), (5, 8, "process_group"), "rank")


def test_tags_from_python(scratch):
    """describe() as context manager, decorator, by hand and for a tensor; without the library, nothing."""
    daemon = scratch.daemon()
    agent = torch_agent(scratch, daemon)
    agent(f"sys.path.insert(0, {os.path.dirname(program('python/libnpumem_tag.so'))!r})\n"
          "from npumem_tag import describe, available\nout = available()")
    time.sleep(0.5)  # a library that is loaded later is probed when its mapping is told
    daemon.status()
    agent("with describe('UserDefined@test@kvcache'):\n"
          "    a = alloc(10 << 20)\n"
          "    with describe('UserDefined@test@inner'):\n"
          "        b = alloc(3 << 20)\n"
          "    c = alloc(2048)\n"
          "@describe('UserDefined@test@function')\n"
          "def load():\n"
          "    return alloc(2 << 20)\n"
          "d = load()\n"
          "tag = describe('UserDefined@test@hand').start()\n"
          "e = alloc(1 << 20)\n"
          "tag.stop()\n"
          "f = alloc(6 << 20)\n"
          "g = alloc(4 << 20)\n"
          "describe('UserDefined@test@tensor', address(g))")
    owners = owners_of(daemon, agent.pid)
    wanted = agent("out = {'kvcache': size(a, c), 'inner': size(b), 'function': size(d), 'hand': size(e),"
                   "'tensor': size(g)}")
    check(wanted["kvcache"] > 10 << 20, "what the allocator says", wanted)
    equal({k[17:]: v for k, v in owners.items() if k.startswith("UserDefined@test@")}, wanted, "tagged bytes")
    row = [r for r in daemon.json("breakdown", "--pid", str(agent.pid))["ranks"] if r["main"]][0]
    equal([o["inferred"] for o in row["owners"] if o["owner"].startswith("UserDefined@")], [False] * 5, "inferred")
    agent("import importlib, os, npumem_tag\nos.environ['NPUMEM_TAG_LIBRARY'] = ''\n"
          "npumem_tag._library = None\n"
          "with npumem_tag.describe('UserDefined@test@none', 1): pass")


TAGGED = r"""
#include <dlfcn.h>
#include <stdio.h>
#include "npumem/tag.h"
int main(void)
{
    char line[16];
    void *acl = dlopen("libascendcl.so", RTLD_NOW), *p[4];
    int (*set)(int) = (int (*)(int))dlsym(acl, "aclrtSetDevice");
    int (*take)(void **, size_t, int) = (int (*)(void **, size_t, int))dlsym(acl, "aclrtMalloc");
    if (set(0) || !fgets(line, sizeof(line), stdin))
        return 1;
    npumem_tag_begin("UserDefined@program@table");
    if (take(&p[0], 64 << 20, 0))
        return 1;
    npumem_tag_end();
    if (take(&p[1], 32 << 20, 0) || take(&p[2], 16 << 20, 0))
        return 1;
    npumem_tag_address(p[2], "UserDefined@program@late");
    puts("held");
    fflush(stdout);
    return !fgets(line, sizeof(line), stdin);
}
"""


def test_tags_from_c(scratch):
    """The header alone in a program: no library, no daemon that it knows of."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise Skip("no C compiler")
    with open(scratch.path("tagged.c"), "w") as f:
        f.write(TAGGED)
    subprocess.run([compiler, "-Wall", "-Wextra", "-Werror", "-O2", "-I", os.path.join(HERE, "../../include"), "-o",
                    scratch.path("tagged"), scratch.path("tagged.c"), "-ldl"], check=True)
    daemon = scratch.daemon()
    p = subprocess.Popen([scratch.path("tagged")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                         env=scratch.environment("8.1"))
    scratch.at_end(harness.stop_process, p)
    daemon.wait_target(p.pid)
    p.stdin.write("go\n")
    p.stdin.flush()
    equal(p.stdout.readline().strip(), "held", "the program")
    owners = owners_of(daemon, p.pid, "physical")
    # aclrtMalloc asks the driver for 32 bytes more
    equal((owners.get("UserDefined@program@table"), owners.get("UserDefined@program@late")), (64 * MIB + 32, 16 * MIB + 32),
          f"tagged bytes ({owners})")


def test_labels(scratch):
    """npumem mark --begin and --end: what is allocated in between has that owner, small blocks too, over
    frames and all; the time has its mark as well."""
    daemon = scratch.daemon()
    agent, other = torch_agent(scratch, daemon), torch_agent(scratch, daemon)
    agent("before = alloc(2 << 20)")
    daemon.status()
    out = daemon.cli("mark", "warm up", "--begin", "--pid", str(agent.pid)).stdout
    check("UserDefined@warm up" in out, "npumem mark --begin", out)
    agent("held = [alloc(5 << 20), alloc(4096), alloc(700)]\ngone = alloc(9 << 20)\nrelease(gone)")
    other("held = alloc(3 << 20)")
    equal([(x["owner"], x["tgid"]) for x in daemon.status()["labels"]], [("UserDefined@warm up", agent.pid)], "labels")
    check("label" in daemon.cli("status").stdout, "status does not show the label")
    daemon.cli("mark", "warm up", "--end", "--pid", str(other.pid), expect=4)
    daemon.cli("mark", "warm up", "--end")
    agent("after = [alloc(6 << 20), alloc(4096)]")
    held = agent("out = size(*held)")
    equal(owners_of(daemon, agent.pid).get("UserDefined@warm up"), held, "labelled bytes")
    check("UserDefined@warm up" not in owners_of(daemon, other.pid), "another process has the label")
    equal(daemon.status()["labels"], [], "labels after the end")
    agent("release(held.pop())")
    equal(owners_of(daemon, agent.pid)["UserDefined@warm up"], agent("out = size(*held)"), "labelled bytes after a free")
    # for every process, with an owner in full
    daemon.cli("mark", "UserDefined@test@all", "--begin")
    agent("late = alloc(5 << 20)")
    other("late = alloc(5 << 20)")
    for a in (agent, other):
        equal(owners_of(daemon, a.pid).get("UserDefined@test@all"), a("out = size(late)"), "of every process")
    daemon.cli("mark", "UserDefined@test@all", "--end")
    daemon.cli("breakdown", "--at", "mark:warm up")
    for arguments, code in ((["x", "--end"], 4), (["x", "--begin", "--pid", "1"], 4), (["x", "--pid", str(agent.pid)], 2),
                            (["x", "--begin", "--end"], 2), (["y" * 40, "--begin"], 2)):
        daemon.cli("mark", *arguments, expect=code)


LAZY = """
devices 1 64GiB
rank 0 device=0
  hccl tp rank=0 ranks=1 buffer=50MiB name=tp
  hccl dp rank=0 ranks=1 buffer=20MiB name=dp
  hccl_destroy tp
  malloc later 41MiB api=cfg module=3
  malloc other 500MiB api=cfg module=3
  checkpoint up
end
"""


def test_buffers_at_first_use(scratch):
    """What HCCL takes outside a communicator's making: whose it is where one alone can be, marked as inferred."""
    run = Run(scratch, LAZY)
    row = run.row(run.reach("up")["tgid"], "breakdown")
    owners = {o["owner"]: (o["bytes"] // MIB, o["inferred"]) for o in row["owners"] if o["level"] == "physical"}
    equal(owners.get("CANN@HCCL@dp"), (41 + 41 + 500, True), f"dp ({owners})")


# --- moments ---

MOMENTS = """
devices 1 64GiB
rank 0 device=0 title=VLLM::Worker
  malloc base 10GiB
  malloc runtime 1GiB api=cfg module=7
  checkpoint low
  malloc big 20GiB
  checkpoint high
  free big
  malloc other 5GiB
  checkpoint after
end
"""


def test_peak_composition(scratch):
    """The peak keeps the owners that it had, whatever comes after it."""
    run = Run(scratch, MOMENTS)
    for checkpoint in ("low", "high"):
        tgid = run.reach(checkpoint)["tgid"]
        run.go(checkpoint)
    run.reach("after")
    now, peak = run.row(tgid, "breakdown"), run.row(tgid, "breakdown", "--peak")
    small = now["physical_bytes"] - 16 * GIB  # the runtime's and the warm-up's own
    check(0 <= small < 16 * MIB, "now", now["physical_bytes"])
    equal(peak["physical_bytes"], 31 * GIB + small, "at the peak")
    equal(owner_bytes(peak, "physical"), 31 * GIB + small, "owners at the peak")
    near(owner_bytes(peak, "physical", "CANN@RUNTIME"), 1 * GIB, "runtime at the peak")
    check(abs(now["peak_time_ns"] - peak["peak_time_ns"]) < 1e6, "time of the peak")
    document = run.daemon.json("breakdown", "--peak")
    equal(document["moment"]["kind"], "peak", "moment")


LAST_TENSOR = """
devices 1 64GiB
rank 0 device=0 title=VLLM::Worker_TP0
  tensor small 1GiB
  checkpoint low
  tensor big 8GiB
  checkpoint high
end
"""


def test_peak_behind(scratch):
    """A daemon that is behind reads the pool's totals when the call that made the peak is still in the ring: the
    peak is noted with the totals of its own moment."""
    run = Run(scratch, LAST_TENSOR)
    tgid = run.reach("low")["tgid"]
    os.kill(run.daemon.process.pid, signal.SIGSTOP)
    run.go("low")
    run.reach("high")
    with subprocess.Popen([program("npumem"), "--socket", run.daemon.socket, "breakdown", "--peak", "-o", "json"],
                          stdout=subprocess.PIPE, text=True) as question:
        time.sleep(0.3)
        os.kill(run.daemon.process.pid, signal.SIGCONT)
        rows = [r for r in json.loads(question.communicate(timeout=30)[0])["ranks"] if r["tgid"] == tgid]
    equal(len(rows), 1, "rows")
    check(rows[0]["physical_bytes"] >= 9 * GIB, "at the peak", rows[0]["physical_bytes"])
    equal(rows[0]["allocated_bytes"], owner_bytes(rows[0], "allocated"), "owners of the peak and its pool's total")


PEAKS = """
devices 2 64GiB
array w 8
array c 8
rank 0..1 device=$rank title=VLLM::Worker_TP$rank
  phase weights
    repeat 4 as=i
      tensor w[$i] 1GiB
    end
  end
  checkpoint weights
  phase profile
    tensor big ($rank+2)*2GiB
  end
  malloc extra 1GiB
  checkpoint high
  del big
  free extra
  empty_cache
  phase kv_cache
    repeat 1+$rank as=i
      tensor c[$i] 1GiB
    end
  end
  checkpoint after
end
"""


def test_peak_of_each_rank(scratch):
    """Each rank and device keeps the owners of its own peak, at the level of its tensors as well, to the byte of
    what was shown while it was there."""
    run = Run(scratch, PEAKS, python=True)
    tgids = [run.reach("weights", str(rank))["tgid"] for rank in range(2)]
    run.go("weights")
    shown = {}
    for rank, tgid in enumerate(tgids):
        run.reach("high", str(rank))

        def composition(*arguments):
            row = run.row(tgid, "breakdown", *arguments)
            return row["physical_bytes"], row["device"], {
                (o["level"], o["owner"]): o["bytes"] for o in row["owners"] if o["bytes"]
                and o["level"] in ("physical", "allocated") and o["owner"] != "PTA@small"}
        wait_for(lambda: composition()[2].get(("allocated", "PTA@vllm@profile"), 0) >= (rank + 2) * 2 * GIB, 10, "the peak")
        shown[rank] = composition()
        equal(composition("--peak"), shown[rank], f"rank {rank} at its peak")
    run.go("high")
    for rank, tgid in enumerate(tgids):
        run.reach("after", str(rank))
        wait_for(lambda: composition()[2].get(("allocated", "PTA@vllm@kv_cache"), 0) >= (1 + rank) * GIB, 10, "after")
        check(composition()[0] < shown[rank][0], "less is held than at the peak")
        equal(composition("--peak"), shown[rank], f"rank {rank} at its peak, seen later")


def test_marks_and_times(scratch):
    """A mark, a time and a relative time show what was then; what nobody kept is an error."""
    run = Run(scratch, MOMENTS, sets=("store.sample_interval=200ms",))
    tgid = run.reach("low")["tgid"]
    low = wait_for(lambda: (lambda r: r["physical_bytes"] > 11 * GIB and r)(run.row(tgid)), 10, "11 GiB")["physical_bytes"]
    check(low < 11 * GIB + 16 * MIB, "at the low checkpoint", low)
    equal(run.daemon.cli("mark", "low water").stdout.strip(), "mark:low water", "npumem mark")
    run.go("low")
    run.reach("high")
    wait_for(lambda: run.row(tgid)["physical_bytes"] == low + 20 * GIB, 10, "the daemon has seen it")
    time.sleep(0.6)
    high_ns = time.time_ns()
    run.go("high")
    run.reach("after")
    time.sleep(0.8)
    row = run.row(tgid, "breakdown", "--at", "mark:low water")
    equal(row["physical_bytes"], low, "at the mark")
    equal(owner_bytes(row, "physical"), low, "owners at the mark")
    equal((row["device"], row["title"], row["rank"]), (0, "VLLM::Worker", 0), "who it was")
    at = f"@{high_ns // 10**9}.{high_ns % 10**9:09}"
    equal(run.row(tgid, "breakdown", "--at", at)["physical_bytes"], low + 20 * GIB, "at a time")
    document = run.daemon.json("ps", "--at", "-0.3s")
    equal([r["physical_bytes"] for r in document["ranks"] if r["tgid"] == tgid], [low + 5 * GIB], "a moment ago")
    check(document["moment"]["kind"] == "at" and document["moment"]["newest_sample_ns"], "moment", document["moment"])
    equal(run.row(tgid)["physical_bytes"], low + 5 * GIB, "now")
    for arguments, code in ((["--at", "mark:none"], 4), (["--at", "2001-01-01"], 4), (["--at", "soon"], 2),
                            (["--at", "+1h"], 2)):
        run.daemon.cli("breakdown", *arguments, expect=code)
    run.daemon.cli("mark", "", expect=2)


def test_ls_by_age(scratch):
    """Blocks by when they were allocated."""
    run = Run(scratch, MOMENTS)
    tgid = run.reach("low")["tgid"]
    time.sleep(1.5)
    run.go("low")
    run.reach("high")

    def sizes(*arguments):
        document = run.daemon.json("ls", "--pid", str(tgid), "--level", "physical", "--min-size", "1GiB", *arguments)
        return sorted(b["size_bytes"] // GIB for b in document["blocks"])
    wait_for(lambda: len(sizes()) == 3, 10, "three blocks")
    equal(sizes("--min-age", "1.2s"), [1, 10], "old ones")
    equal(sizes("--max-age", "1.2s"), [20], "young ones")
    equal(sizes("--since", "-1.2s"), [20], "since")
    equal(sizes("--until", "-1.2s"), [1, 10], "until")
    equal(sizes("--since", "-1h", "--until", "-10min"), [], "in between")


def test_live_environment(scratch):
    """What a process sets after its start is read; a wiped /proc/PID/environ is no obstacle."""
    run = Run(scratch, "devices 1 16GiB\nrank 0 device=0\n  env TASK_QUEUE_ENABLE=2\n  env LOCAL_RANK=5\n"
                       "  malloc w 1GiB\n  checkpoint up\nend\n")
    row = run.row(run.reach("up")["tgid"])
    equal(row["environment"]["TASK_QUEUE_ENABLE"], "2", "TASK_QUEUE_ENABLE")
    equal((row["local_rank"], row["environment_source"]), (5, "live"), "local rank")
    check("PATH" not in row["environment"], "variables that nobody needs are shown", row["environment"])
