# SPDX-License-Identifier: Apache-2.0
"""A process killed by SIGKILL with 300 live tensors: every one of them, and every segment, is in
the store, as the process itself listed them before."""
import signal
import sqlite3
import time

from harness import (MODULE_APP, PROGRAMS, CheckError, Daemon, Program, Scratch, Stops,
                     driver_bytes)

BLOCKS = 300
SETTLE_S = 10
MASK = (1 << 64) - 1


def stored(path, tgid, level):
    """[(address, size)] of a dead process; empty until the daemon has written its end."""
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        rows = database.execute(
            "SELECT address, size_bytes FROM live_block JOIN process ON process.id = process_id "
            "WHERE tgid = ? AND level = ? AND exit_wall_ns IS NOT NULL", (tgid, level)).fetchall()
    finally:
        database.close()
    return sorted((address & MASK, size) for address, size in rows)


def wait_stored(path, tgid):
    until = time.monotonic() + SETTLE_S
    while True:
        try:
            rows = stored(path, tgid, "allocated")
        except sqlite3.OperationalError as error:
            if time.monotonic() > until:
                raise CheckError(f"store: {error}") from error
            rows = []
        if len(rows) >= BLOCKS or time.monotonic() > until:
            return rows
        time.sleep(0.1)


def run(checks, node, binaries, keep=False):
    try:
        with Scratch(keep) as scratch:
            daemon = Daemon(binaries, scratch) if binaries else None
            try:
                run_in(checks, node, scratch, daemon)
            finally:
                if daemon:
                    daemon.stop()
    except CheckError as error:
        checks.fail("kill", error)


def run_in(checks, node, scratch, daemon):
    moments = scratch.make("moments")
    argv = [PROGRAMS / "kill300.py", "--moments", moments]
    with Program(node, scratch, "kill300", argv) as program:
        line, = Stops(moments, [program]).wait(1)
        checks.equal("kill: live tensors", len(line["addresses"]), BLOCKS)
        driver = driver_bytes(scratch, program.pid)
        checks.equal("kill: driver holds the segments", driver.get(MODULE_APP),
                     sum(size for _, size in line["segment_list"]))
        program.process.send_signal(signal.SIGKILL)
        checks.equal("kill: ended by SIGKILL", program.finish(), -signal.SIGKILL)
        if not daemon:
            return
        blocks = wait_stored(daemon.store(), program.pid)
        # Blocks are rounded up, and a rest of a segment that is too small to split off stays with one:
        # each is at least its tensor, and together they are what torch counts.
        wanted = sorted(map(tuple, line["addresses"]))
        checks.equal("kill: addresses of blocks in the store", [a for a, _ in blocks],
                     [a for a, _ in wanted])
        checks.true("kill: sizes of blocks in the store", len(blocks) == len(wanted) and all(
            got >= size for (_, got), (_, size) in zip(blocks, wanted)), str(blocks[:3]))
        checks.equal("kill: bytes of blocks in the store", sum(size for _, size in blocks),
                     line["allocated"])
        held = stored(daemon.store(), program.pid, "physical")
        missing = set(map(tuple, line["segment_list"])) - set(held)
        checks.true("kill: every segment in the store", not missing, str(missing))
        # With the runtime's own memory, all that the driver counted just before.
        checks.equal("kill: bytes of segments in the store", sum(size for _, size in held),
                     sum(driver.values()))
