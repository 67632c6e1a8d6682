# SPDX-License-Identifier: Apache-2.0
"""diff of moments, processes and recordings against the allocator's own counters."""
import time

from harness import MIB, check, equal
from test_block import torch_agent
from test_record import start, stop


def level(document, name, key="delta_bytes"):
    rows = [row for row in document["levels"] if row["level"] == name]
    equal(len(rows), 1, f"rows of level {name}")
    return rows[0][key]


def test_diff_moments(scratch):
    """Between two marks, and from a mark to now: the difference of the allocator's own totals."""
    daemon = scratch.daemon()
    agent = torch_agent(scratch)
    daemon.wait_target(agent.pid, "blocks")
    agent("kept = [tensor(8 << 20), tensor(3 << 20)]; churn(1, 200)")
    a = agent("out = stats()")
    daemon.cli("mark", "a")
    time.sleep(0.01)  # a mark is a moment: what follows is after it
    agent("more = tensor(40 << 20); churn(2, 300); untensor(kept.pop())")
    b = agent("out = stats()")
    daemon.cli("mark", "b")
    agent("last = tensor(64 << 20)")
    c = agent("out = stats()")
    for sides, want in ((("--from", "mark:a", "--to", "mark:b"), b["allocated"] - a["allocated"]),
                        (("--from", "mark:a"), c["allocated"] - a["allocated"]),
                        (("--from", "mark:b", "--to", "mark:a"), a["allocated"] - b["allocated"]),
                        (("--from", "mark:b", "--to", "now"), c["allocated"] - b["allocated"])):
        d = daemon.json("diff", *sides, "--limit", "0", "--pid", str(agent.pid))  # others may be on this host
        equal(level(d, "allocated"), want, f"{' '.join(sides)}: allocated")
        equal(sum(r["delta_bytes"] for r in d["rows"] if r["level"] == "allocated"), want, f"{' '.join(sides)}: rows")
        deltas = [abs(r["delta_bytes"]) for r in d["rows"]]
        equal(deltas, sorted(deltas, reverse=True), f"{' '.join(sides)}: order")
        check(d["verdict"].startswith("allocated "), "the verdict is of another level", d["verdict"])
    since = daemon.json("diff", "--from", "mark:b", "--pid", str(agent.pid))["allocated_since"]
    equal([r["to_bytes"] for r in since], [agent("out = size_of(last)")], "allocated since, by path")
    daemon.cli("diff", "--from", "mark:none", expect=4)
    daemon.cli("diff", "--from", "in 5 min", expect=2)
    daemon.cli("diff", "--to", "now", expect=2)
    out = daemon.cli("diff", "--from", "mark:a", "--pid", str(agent.pid)).stdout
    check(out.startswith("allocated "), "the verdict is not first", out)


def test_diff_processes(scratch):
    """Two processes as they are now; their tensors cannot be read, which is said."""
    daemon = scratch.daemon()
    agents = [torch_agent(scratch), torch_agent(scratch)]
    for agent, size in zip(agents, (20, 52)):
        daemon.wait_target(agent.pid, "blocks")
        agent(f"x = tensor({size} << 20)")
    d = daemon.json("diff", "--pid", f"{agents[0].pid},{agents[1].pid}")
    equal((d["compared"], d["from"]["tgid"], d["to"]["tgid"]), ("ranks", agents[0].pid, agents[1].pid), "sides")
    a, b = (agent("out = stats()") for agent in agents)
    equal(level(d, "allocated"), b["allocated"] - a["allocated"], "allocated")
    equal((d["parameters"], sorted(d["unread"])), (None, sorted(a.pid for a in agents)), "tensors of a process without any")
    same = daemon.json("diff", "--from", f"pid:{agents[0].pid}", "--to", f"pid:{agents[0].pid}")
    equal(same["rows"], [], "a process against itself")
    daemon.cli("diff", "--rank", "0", "--rank", "1", expect=4)
    daemon.cli("diff", "--from", "rank:x", "--to", "rank:1", expect=2)
    daemon.cli("diff", "--from", "rank:0", "--to", "now", expect=2)


def test_diff_recordings(scratch):
    """Two recordings of one program that was changed: what is alive at the end of each, by owner."""
    daemon = scratch.daemon()
    agent = torch_agent(scratch)
    daemon.wait_target(agent.pid, "blocks")
    paths, live = [], []
    for extra in (0, 24):
        paths.append(start(daemon, agent.pid)["path"])
        agent(f"churn({extra}, 300); extra{extra} = tensor({extra} << 20)")
        stop(daemon)
        live.append(agent("out = stats()")["allocated"])
    d = daemon.json("diff", "--from", paths[0], "--to", paths[1])
    check(d["to"]["missing"].startswith("it begins in the middle"), "a late recording is not said to be late", d["to"])
    equal(level(d, "allocated", "to_bytes"), live[1], "alive at the end of the second")
    equal(level(d, "allocated"), live[1] - live[0], "difference")
    one = daemon.json("diff", "--from", paths[1])
    equal(level(one, "allocated"), live[1] - live[0], "grown within the second")
    daemon.cli("diff", "--from", paths[0], "--to", "now", expect=2)


def test_timeline(scratch):
    """What was held over time, by owner and level: against the allocator's own counters at three moments."""
    daemon = scratch.daemon(sets=["store.sample_interval=100ms"])
    agent = torch_agent(scratch)
    daemon.wait_target(agent.pid, "blocks")
    held = []
    for size in (30, 100, 20):
        agent(f"x = tensor({size} << 20)")
        time.sleep(0.4)
        daemon.cli("mark", f"at{size}")
        held.append(agent("out = stats()")["allocated"])
        agent("untensor(x)")
    time.sleep(0.4)

    def rows(*options):
        d = daemon.json("timeline", "--pid", str(agent.pid), "--since", "-20s", *options)
        return d, {(r["level"], r["owner"]): r for r in d["rows"]}
    d, found = rows()
    row = found[("allocated", None)]
    equal((row["peak_bytes"], row["to_bytes"]), (max(held), 0), "peak and end of the allocated level")
    known = [v for v in row["max_bytes"] if v is not None]
    check(all(h in known for h in held), "a value is in no step", known, held)
    equal(found[("allocated", "PTA@block")]["peak_bytes"], max(held), "peak of the owner")
    equal(found[("allocated", "PTA@block")]["last_bytes"][-1], 0, "an owner that has gone holds nothing")
    check(found[("reserved", None)]["peak_bytes"] >= max(held), "reserved", found)
    equal([m["name"] for m in d["marks"]], ["at30", "at100", "at20"], "marks")
    equal(len(row["min_bytes"]), 60, "steps")
    equal(len(rows("--steps", "7")[1][("allocated", None)]["max_bytes"]), 7, "steps that were asked for")
    lines = daemon.cli("timeline", "--pid", str(agent.pid), "--since", "-20s", "-o", "csv").stdout.splitlines()
    equal(lines[0], "time_ns,tgid,rank,device,level,owner,last_bytes,min_bytes,max_bytes,blocks,last_blocks,min_blocks,max_blocks", "head of the csv")
    check(any(f",{agent.pid},,0,allocated,PTA@block," in line for line in lines), "no step of the owner", lines[:5])
    table = daemon.cli("timeline", "--pid", str(agent.pid), "--since", "-20s").stdout
    check("mark:at100" in table and "CURVE" not in table, "the table", table)
    daemon.cli("timeline", "--since", "-1min", "--until", "-2min", expect=2)
    daemon.cli("timeline", "--pid", "1", expect=4)
