# SPDX-License-Identifier: Apache-2.0
"""The daemon's own life: start, stop, restart, detach."""
import os
import signal
import time

from harness import LAYOUTS, MIB, Holder, check, equal, hal_address, lib_dir, private_libs, process_used, wait_for


def test_stop(scratch):
    """With uprobe_multi links the daemon stops within a second; the observed processes go on."""
    daemon = scratch.daemon(links="multi")
    agents = [scratch.agent(layout) for layout in LAYOUTS]
    for a in agents:
        daemon.wait_target(a.pid, "physical")
        a("p = malloc(5 << 20)")
    seconds = daemon.stop()
    check(seconds < 1, f"stopping took {seconds:.2f} s")
    for a in agents:
        equal(a("out = free(p)"), 0, "a call after the daemon has gone")
    rows = daemon.sql("SELECT count(*) AS n FROM live_block JOIN process ON process.id = process_id WHERE tgid = ?", agents[0].pid)
    check(rows[0]["n"] >= 1, "live blocks are not in the store after a clean stop")


test_stop.alone = True


def test_stop_perf(scratch):
    """Perf links, which old kernels have, are closed one by one: bounded, and the processes go on."""
    daemon = scratch.daemon(links="perf")
    agent = scratch.agent("8.1")
    daemon.wait_target(agent.pid, "physical")
    seconds = daemon.stop()
    check(seconds < 60, f"stopping took {seconds:.1f} s")
    equal(agent("out = free(malloc(1 << 20))"), 0, "a call after the daemon has gone")


def test_restart(scratch):
    """A daemon that comes back takes up the processes that still live, and closes those that do not."""
    daemon = scratch.daemon()
    library = os.path.join(private_libs(scratch), "libascendcl.so")
    stays, goes = Holder(scratch, library), Holder(scratch, library, device=2)
    for h in (stays, goes):
        daemon.wait_target(h.pid, "physical")
        h.malloc(30 * MIB)
    wait_for(lambda: len(daemon.sql("SELECT * FROM live_block JOIN process ON process.id = process_id WHERE tgid = ?", goes.pid)) >= 1,
             5, "checkpoint")
    daemon.kill()
    goes.process.kill()
    goes.process.wait()
    stays.malloc(7 * MIB)
    again = scratch.daemon()
    again.wait_target(stays.pid, "physical")
    driver = sum(process_used(scratch, stays.pid).values())
    equal(again.rank(stays.pid, 0)["physical_bytes"], driver, "bytes of the process that lives")
    rows = again.sql("SELECT * FROM process WHERE tgid = ?", stays.pid)
    equal([(r["exit_wall_ns"]) for r in rows], [None], "the process that lives has one open row")
    rows = wait_for(lambda: again.sql("SELECT * FROM process WHERE tgid = ? AND exit_wall_ns IS NOT NULL", goes.pid), 5, "closed row")
    equal(rows[0]["exit_seen"], 0, "an exit that nobody saw")
    blocks = again.sql("SELECT * FROM live_block WHERE process_id = ?", rows[0]["id"])
    check(any(b["requested_bytes"] == 30 * MIB for b in blocks), "blocks of the process that died meanwhile are kept")


def test_crash(scratch):
    """kill -9 of the daemon: the processes go on, what was reported is in the store, a new one starts."""
    daemon = scratch.daemon()
    agent = scratch.agent()
    daemon.wait_target(agent.pid, "physical")
    addresses = agent("held = [malloc(1 << 20) for i in range(50)]; out = held")
    wait_for(lambda: len(daemon.sql("SELECT 1 FROM live_block JOIN process ON process.id = process_id WHERE tgid = ? AND level = 'physical'",
                                    agent.pid)) >= 50, 5, "checkpoint of 50 blocks")
    daemon.process.kill()
    daemon.process.wait(60)
    equal(agent("out = free(malloc(1 << 20))"), 0, "a call after the crash")
    rows = daemon.sql("SELECT address FROM live_block JOIN process ON process.id = process_id WHERE tgid = ?", agent.pid)
    check(set(addresses) <= {r["address"] for r in rows}, "blocks that were reported are gone")
    again = scratch.daemon()
    again.wait_target(agent.pid, "physical")
    equal(again.rank(agent.pid, 0)["physical_bytes"], sum(process_used(scratch, agent.pid).values()), "bytes after the crash")


def test_detach_and_attach(scratch):
    """detach leaves a process alone; attach takes it up again, with what happened meanwhile as unseen."""
    daemon = scratch.daemon()
    agent = scratch.agent()
    daemon.wait_target(agent.pid, "physical")
    seen = agent("out = malloc(1 << 20)")
    daemon.cli("detach", str(agent.pid))
    unseen = agent("out = malloc(2 << 20)")
    addresses = {hal_address(b) for b in daemon.blocks(agent.pid, "physical")}
    check(unseen not in addresses, "a call of a detached process was seen")
    target = daemon.target(agent.pid)
    check(target["state"] == "detached" or target["level"] == "none", "status of a detached process", target)
    daemon.cli("attach", str(agent.pid))
    again = agent("out = malloc(3 << 20)")
    addresses = {hal_address(b) for b in daemon.blocks(agent.pid, "physical")}
    check({seen, again} <= addresses, "calls are not seen after attach")
    equal(daemon.rank(agent.pid, 0)["physical_bytes"], sum(process_used(scratch, agent.pid).values()), "bytes, with what was not seen")


def test_nothing_is_written(scratch):
    """The observed process is never stopped or traced, and keeps no more descriptors or threads."""
    daemon = scratch.daemon()
    agent = scratch.agent()

    def state():
        with open(f"/proc/{agent.pid}/status") as f:
            text = f.read()
        return ([line for line in text.splitlines() if line.startswith(("TracerPid", "Threads", "SigPnd", "ShdPnd", "FDSize"))],
                len(os.listdir(f"/proc/{agent.pid}/fd")))
    before = state()
    daemon.wait_target(agent.pid, "physical")
    agent("[free(malloc(1 << 20)) for i in range(100)]")
    equal(state(), before, "the process from outside")


def test_two_daemons(scratch):
    """A second daemon on the same socket refuses to start and does not hurt the first."""
    daemon = scratch.daemon()
    second = scratch.daemon(start=False)
    code = second.spawn().wait(20)
    check(code not in (0, None), "the second started")
    check("already" in second.text() or "in use" in second.text(), "no clear error", second.text())
    equal(daemon.process.poll(), None, "the first ended")
    daemon.status()
