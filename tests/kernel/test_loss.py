# SPDX-License-Identifier: Apache-2.0
"""Loss is counted exactly: attempted = received + lost, whatever was forced."""
import os
import signal
import time

from harness import Holder, check, equal, fake_lib


def test_full_ring(scratch, links):
    """A stopped daemon and a small ring: what did not fit is counted one by one, and said everywhere."""
    daemon = scratch.daemon(links=links, sets=["daemon.discovery=no", "probes.ring_bytes=64KiB"])
    holder = Holder(scratch, fake_lib(scratch))
    daemon.wait_target(holder.pid, "physical")
    first = daemon.status()["events"]
    equal(first["attempted"], first["received"] + first["lost"], "before")
    made = 0
    for round_ in range(3):
        os.kill(daemon.pid, signal.SIGSTOP)
        try:
            n = 5000 * (round_ + 1)
            equal(holder.ask(f"b {n}"), [str(n)], "calls made")
            made += n
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        events = daemon.status()["events"]
        equal(events["attempted"] - first["attempted"], made, "attempted")
        equal(events["received"] + events["lost"], events["attempted"], "received + lost")
        check(events["lost"] > 0, "nothing was lost")
        # 64 KiB of ring hold 630 events of 96 bytes and their heads
        fits = 3 * (64 * 1024 // 104 + 1)
        check(events["received"] - first["received"] <= fits + 64 * round_, "more was received than fits", events)
        # a gap is known once the next event of its CPU arrives
        holder.ask("b 64")
        made += 64
        time.sleep(0.2)
    document = daemon.json("breakdown")
    equal((document["complete"], document["lost_events"] > 0), (False, True), "breakdown says that events were lost")
    out = daemon.cli("status", "--strict", expect=6)
    check("lost" in (out.stdout + out.stderr), "status does not mention the loss", out.stdout)


test_full_ring.variants = [("multi",), ("perf",)]


def test_burst_without_loss(scratch):
    """300,000 events as fast as one thread makes them, into 16 MiB: none is lost."""
    daemon = scratch.daemon(sets=["daemon.discovery=no"])
    holder = Holder(scratch, fake_lib(scratch))
    daemon.wait_target(holder.pid, "physical")
    before = daemon.status()["events"]
    holder.ask("b 300000")
    after = daemon.status()["events"]
    equal(after["received"] - before["received"], 300000, "events received")
    equal((after["lost"], after["sequence_gaps"]), (0, 0), "events lost and gaps")
