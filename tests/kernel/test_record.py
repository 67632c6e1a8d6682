# SPDX-License-Identifier: Apache-2.0
"""Recorded traces: what is in the file, against what the process itself says that it did."""
import glob
import os
import subprocess

from harness import MIB, check, equal, wait_for
from test_block import torch_agent, totals_equal
from trace_reader import FULL, LATE, NO_SMALL, OPEN, Trace

# The agent writes down each block as it comes and goes: address and size as its allocator says.
LOGGED = """
history = []
plain_tensor, plain_untensor = tensor, untensor
def tensor(size, stream=0, d=0):
    b = plain_tensor(size, stream, d); history.append(("malloc", pointer_of(b), size_of(b))); return b
def untensor(block):
    history.append(("free", pointer_of(block), size_of(block))); plain_untensor(block)
"""


def start(daemon, tgid, *options):
    return daemon.json("record", "start", "--pid", str(tgid), *options)["recordings"][0]


def stop(daemon, *options):
    return daemon.json("record", "stop", *options)["recordings"]


def same_history(trace, agent, where):
    done = [("malloc" if r.kind == "malloc" else "free", r.address, r.size) for r in trace.of("malloc", "free")
            if r.time_ns > trace.begin_boot_ns]
    equal(done, [tuple(h) for h in agent("out = history")], f"{where}: blocks in the trace, in order")
    times = [r.time_ns for r in trace.records]
    equal(times, sorted(times), f"{where}: times")


def test_record(scratch, detail):
    """Every block of the recorded process, small ones too, and of no other; afterwards all is as before."""
    daemon = scratch.daemon(sets=(f"probes.block_detail={detail}", "probes.python_frames=no"))
    agent, other = torch_agent(scratch), torch_agent(scratch)
    for a in (agent, other):
        daemon.wait_target(a.pid, "blocks")
    agent("first = tensor(2 << 20); small = tensor(1000)" + LOGGED)
    row = start(daemon, agent.pid)
    equal((row["state"], row["tgid"], row["late"]), ("recording", agent.pid, True), "row of the start")
    agent("churn(7, 600); other = tensor(777)")
    other("kept = tensor(1000)")
    ended = stop(daemon, "--pid", str(agent.pid))
    equal([(r["path"], r["state"], r["lost_events"]) for r in ended], [(row["path"], "ended", 0)], "what stop says")
    trace = Trace(row["path"])
    same_history(trace, agent, "recorded")
    equal(ended[0]["records"] * trace.record_bytes + trace.header_bytes, os.path.getsize(row["path"]), "records")
    equal(trace.flags, LATE | (NO_SMALL if detail == "large" else 0), "flags")
    held = [(r.kind, r.size) for r in trace.records if r.time_ns <= trace.begin_boot_ns and r.kind != "segment"]
    first, small = agent("out = (size_of(first), size_of(small))")
    equal(sorted(held), sorted([("malloc", first)] + ([("malloc", small)] if detail == "all" else [])), "what was there before")
    check(trace.of("segment"), "there is no segment in the trace")
    check(trace.end_boot_ns > trace.begin_boot_ns, "the trace has no end")
    if detail == "large":
        equal(daemon.blocks(other.pid, "allocated"), [], "small blocks of another process")
    agent("tensor(300)")  # small again, and after the end
    equal(len(Trace(row["path"]).records), len(trace.records), "records after the end")
    agent("[untensor(b) for b in live]; live.clear(); untensor(first); untensor(small); untensor(other)")
    totals_equal(daemon, agent, "all freed after the recording")
    equal([b["size_bytes"] for b in daemon.blocks(agent.pid, "allocated") if b["size_bytes"] > 512], [], "blocks at the end")
    equal(daemon.status()["events"]["lost"], 0, "lost events")
    replay = daemon.json("whatif", "expandable_segments:True", "--from", row["path"])
    equal(replay["settings"][0]["requests"], len([r for r in trace.of("malloc") if r.component == 0]), "requests replayed")
    equal(replay["complete"], False, "a late trace is not complete")


test_record.variants = [("large",), ("all",)]


# What is of now, or of who asked.
OF_THE_ANSWER = ("age_ns", "source_time_ns")


def same_pools(live, recorded, where):
    def plain(value):
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items() if k not in OF_THE_ANSWER}
        return [plain(v) for v in value] if isinstance(value, list) else value
    equal([p["pool"] for p in recorded], [p["pool"] for p in live], f"{where}: pools")
    for a, b in zip(live, recorded):
        if a["complete"]:
            equal(plain(b), plain(a), f"{where}: pool {a['pool']}")
        else:
            equal((b["complete"], b["holes"], b["reserved_bytes"]), (False, None, a["reserved_bytes"]), f"{where}: pool {a['pool']}")


def test_analyses_of_a_recording(scratch, detail, conf):
    """frag of a recording, at its end and at a mark in it, as frag of the process at these moments; timeline and leaks of it
    against what the process itself says that it did."""
    daemon = scratch.daemon(sets=(f"probes.block_detail={detail}",))
    agent = torch_agent(scratch, env={"PYTORCH_NPU_ALLOC_CONF": conf} if conf else None)
    daemon.wait_target(agent.pid, "blocks")
    agent("churn(5, 300)" + LOGGED)
    begin = agent("out = stats()")["allocated"]

    def live():
        return daemon.json("frag", "--pid", str(agent.pid), "--request", "3MiB", "-v")["pools"]
    path = start(daemon, agent.pid)["path"]
    agent("churn(6, 300)")
    daemon.cli("mark", "half")
    half = live()
    agent("churn(7, 300); grown = [tensor(2 << 20) for i in range(20)]; call('npusim_torch_empty_cache', 0)")
    end = live()
    stop(daemon)

    def recorded(*options):
        return daemon.json("frag", "--from", path, "--request", "3MiB", "-v", *options)["pools"]
    check(any(p["complete"] and p["holes"] for p in end), "there is no hole to compare", end)
    same_pools(end, recorded(), "at the end")
    same_pools(half, recorded("--at", "mark:half"), "at the mark")
    row = {(r["level"], r["owner"]): r for r in daemon.json("timeline", "--from", path)["rows"]}[("allocated", None)]
    held = peak = begin
    for what, _, size in agent("out = history"):
        held += size if what == "malloc" else -size
        peak = max(held, peak)
    if detail == "all":
        equal((row["peak_bytes"], row["to_bytes"]), (peak, held), "peak and end of the timeline")
    equal([m["name"] for m in daemon.json("timeline", "--from", path)["marks"]], ["half"], "marks")
    d = daemon.json("leaks", "--from", path)
    check(d["judged"]["series"] > 3 and d["mark"] == "half", "what leaks looked at", d)


test_analyses_of_a_recording.variants = [("all", ""), ("large", ""), ("all", "expandable_segments:True")]


def test_record_ends(scratch):
    """A recording ends by time, with its process and with the daemon; each file says that it is whole."""
    daemon = scratch.daemon()
    agent, other = torch_agent(scratch), torch_agent(scratch)
    for a in (agent, other):
        daemon.wait_target(a.pid, "blocks")
        a(LOGGED)

    def state(path):
        return {r["path"]: r["state"] for r in daemon.json("record", "ls")["recordings"]}[path]
    timed = start(daemon, agent.pid, "--for", "1s")
    agent("churn(1, 50)")
    daemon.cli("record", "start", "--pid", str(agent.pid), expect=2)
    wait_for(lambda: state(timed["path"]) == "ended", 5, "the time is over")
    same_history(Trace(timed["path"]), agent, "by time")
    dying = start(daemon, other.pid)
    other("churn(2, 50)")
    history = other("out = history")
    other.end()
    wait_for(lambda: state(dying["path"]) == "ended", 5, "the process is gone")
    equal(len(Trace(dying["path"]).of("malloc", "free")), len(history), "blocks of a process that is gone")
    last = start(daemon, agent.pid)
    agent("history.clear(); churn(3, 50)")
    daemon.stop()
    trace = Trace(last["path"])
    equal(trace.flags & (OPEN | FULL), 0, "flags after the daemon's end")
    same_history(trace, agent, "with the daemon")
    equal(len(glob.glob(os.path.join(daemon.state_dir, "traces", "*.trace"))), 3, "files")


def test_record_bounds(scratch, bound):
    """At the bound, or when the disk is full, it ends with a whole file that says so; the daemon goes on."""
    daemon = scratch.daemon(sets=("record.max_bytes=1MiB",), start=False)
    if bound == "disk":
        traces = os.path.join(daemon.state_dir, "traces")
        os.makedirs(traces)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "none", traces], check=True)
        scratch.at_end(subprocess.run, ["umount", "-l", traces])
    daemon.start()
    agent = torch_agent(scratch)
    daemon.wait_target(agent.pid, "blocks")
    row = start(daemon, agent.pid)

    def ended():
        agent("for i in range(500): untensor(tensor(4096))")
        return [r for r in daemon.json("record", "ls")["recordings"] if r["state"] == "ended"]
    ended = wait_for(ended, 60, "the recording ends")
    equal((ended[0]["path"], ended[0]["full"]), (row["path"], True), "what ls says")
    trace = Trace(row["path"])
    equal(trace.flags & (FULL | OPEN), FULL, "flags")
    size = os.path.getsize(row["path"])
    equal((size - trace.header_bytes) % trace.record_bytes, 0, "a record is cut")
    check(size <= (MIB if bound == "bytes" else 96 << 10), f"{size} bytes were written")
    check(size > (MIB - 200 if bound == "bytes" else 80 << 10), f"only {size} bytes were written")
    equal(daemon.json("whatif", "", "--from", row["path"])["complete"], False, "a trace that was cut is not complete")
    totals_equal(daemon, agent, "after it")


test_record_bounds.variants = [("bytes",), ("disk",)]


def test_record_refused(scratch):
    """What cannot be recorded is refused in words."""
    daemon = scratch.daemon()
    agent = scratch.agent("8.1")
    daemon.wait_target(agent.pid)
    out = daemon.cli("record", "start", "--pid", str(agent.pid), expect=1)
    check("blocks are not seen" in out.stderr, "no reason is given", out.stderr)
    daemon.cli("record", "start", "--pid", "1", expect=4)
    daemon.cli("record", "start", expect=2)
    daemon.cli("record", "stop", expect=4)
    equal(daemon.json("record", "ls")["recordings"], [], "recordings")
