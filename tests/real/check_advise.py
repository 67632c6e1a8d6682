# SPDX-License-Identifier: Apache-2.0
"""advise against reality: a program in each condition that has a rule, and the same program with the advice followed.
What torch and the simulated driver show less must be what was promised.

Pairs of programs stop at the same moments. The second one has the settings already, so that it must not be advised
them. Each promise has a tolerance: `over` is how much more than came true it may be, `under` how much less."""
import contextlib
import json
import re
import subprocess

from check_owners import FRAMES, Talker, settled
from harness import PROGRAMS, ROOT, CheckError, Daemon, Scratch, driver_bytes, wait_for

MIB, GIB = 1 << 20, 1 << 30
CONF, FRACTION = "PYTORCH_NPU_ALLOC_CONF", "set_per_process_memory_fraction"
CARD, NEIGHBOUR = 16 * GIB, 4 * GIB
# Of the card, what the neighbour leaves, less 5 %: by hand, 0.95 * 12 / 16, and the runtimes' 12 MiB.
LIMIT = 0.71
# Cards of their own: the daemon counts the processes of other tests on 0 and 1 as neighbours.
FIRST, FIRST_FOLLOWS, SECOND, SECOND_FOLLOWS, CONTROL = range(2, 7)
HOLES, GRANULE = 8, 20 * MIB  # of programs/advise.py; of expandable segments
REQUEST = 64 * MIB            # what one of its requests leaves in a cycle
OLDER_S = 700                 # than it is: gc.freeze() is for processes of ten minutes and more
# gives a process that reads the time since boot that many seconds more
CLOCK = f"""
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *now)
{{
    int r = (int)syscall(SYS_clock_gettime, id, now);
    if (r == 0 && id == CLOCK_BOOTTIME)
        now->tv_sec += {OLDER_S};
    return r;
}}
"""


class Side:
    """One program of a pair at one moment: what it counts, and what npumem advises it."""

    def __init__(self, daemon, scratch, program, line):
        self.line, self.tgid = json.loads(line), program.pid
        self.driver = driver_bytes(scratch, self.tgid)
        self.daemon = daemon
        wait_for(self.is_seen, 10, f"the bytes of {program.name} at {self.line['moment']}", program.alive)

    def is_seen(self):
        row = self.daemon.rank_row(self.tgid)
        return row and [row["allocated_bytes"], row["active_bytes"]] == [self.line["allocated"], self.line["active"]]

    def advice(self):
        """{setting: its row}"""
        rows = self.daemon.ask("advise", "--pid", str(self.tgid))["advice"]
        return {row["setting"]: row for row in rows}

    def advised(self, *settings):
        """The same, once these are among them, or when the time is up: reports of failures come later."""
        def ask():
            self.rows = self.advice()
            return all(setting in self.rows for setting in settings)
        settled(ask, True)
        return self.rows

    def delayed(self):
        return self.line["active"] - self.line["allocated"]

    def workspace(self):
        return self.driver["APP"] - self.line["reserved"]


class Pair:
    """Two programs that stop at the same moments: as it is, and with the advice followed."""

    def __init__(self, checks, daemon, scratch, programs):
        self.checks, self.daemon, self.scratch, self.programs = checks, daemon, scratch, programs

    def moment(self):
        lines = [program.line() for program in self.programs]
        return [Side(self.daemon, self.scratch, *one) for one in zip(self.programs, lines)]

    def go_on(self):
        for program in self.programs:
            program.go_on()

    def advice(self, name, sides, setting, now, to, where):
        """The row of the setting in the first program's advice, which is none in that of the second."""
        before, after = sides
        row = before.advised(setting).get(setting)
        if not row:
            raise CheckError(f"{name}: {setting} is not advised, but {list(before.rows)}")
        self.checks.equal(f"{name}: advice", (row["from"], row["to"], row["where"], row["restart"]),
                          (now, to, where, setting != "gc.garbage"))
        self.checks.true(f"{name}: not advised where it is followed", setting not in after.advice(),
                         f"{after.advice().get(setting)}")
        return row

    def promise(self, name, row, came, over=0, under=0):
        saves = row["saves_bytes"]
        self.checks.true(f"{name}: {saves} bytes promised, {came} came true", saves is not None and
                         came - under <= saves <= came + over, f"beyond {over} over, {under} under")

    def no_promise(self, name, row, came, least):
        """What cannot be told is not promised; it came true all the same."""
        self.checks.equal(f"{name}: promised", row["saves_bytes"], None)
        self.checks.true(f"{name}: {came} came true", came >= least, f"less than {least}")


def text_of(size):
    return f"{size / MIB:.2f} MiB" if size < GIB else f"{size / GIB:.2f} GiB"


def check_evidence(checks, name, row, *sizes):
    checks.true(f"{name}: evidence", all(text_of(size) in row["evidence"] for size in sizes),
                f"{[text_of(size) for size in sizes]} not in {row['evidence']}")


def first_pair(pair):
    """Settings of the environment and calls; the second program has MULTI_STREAM_MEMORY_REUSE=2 and so on."""
    checks = pair.checks
    sides = pair.moment()
    checks.equal("advise up: nothing for a program in order", [side.advice() for side in sides], [{}, {}])
    pair.go_on()

    before, after = sides = pair.moment()
    row = pair.advice("advise hccl", sides, "HCCL_BUFFSIZE", None, "100", "environment")
    check_evidence(checks, "advise hccl", row, before.driver["HCCL"])
    # The setting is a number, and so is what it takes: nothing may differ.
    pair.promise("advise hccl", row, before.driver["HCCL"] - after.driver["HCCL"])
    pair.go_on()

    before, after = sides = pair.moment()
    row = pair.advice("advise streams", sides, "MULTI_STREAM_MEMORY_REUSE", None, "2", "environment")
    check_evidence(checks, "advise streams", row, before.delayed())
    # It could be the program's own record_stream() as well: no bytes.
    pair.no_promise("advise streams", row, before.delayed() - after.delayed(), before.delayed())
    pair.go_on()

    before, after = sides = pair.moment()
    row = pair.advice("advise queue", sides, "TASK_QUEUE_ENABLE", "2", "1", "environment")
    check_evidence(checks, "advise queue", row, before.workspace())
    # At level 1 the cache lends the workspace; what it takes for that alone depends on what is free in it.
    pair.no_promise("advise queue", row, before.workspace() - after.workspace(), before.workspace())
    pair.go_on()

    before, after = sides = pair.moment()
    row = pair.advice("advise slack", sides, CONF, None, "expandable_segments:True", "environment")
    pair.go_on()
    before, after = pair.moment()
    # However a hole lies, up to a granule more of it can be whole than is promised, and the last one is begun.
    pair.promise("advise slack", row, before.line["reserved"] - after.line["reserved"], 0, HOLES * 2 * GRANULE)
    pair.go_on()

    before, after = sides = pair.moment()
    row = pair.advice("advise cycles", sides, "gc.collect()", None, "at the end of what makes the cycles, or break them",
                      "program")
    # The collector may come before or after the request that is under way has let go of its tensor.
    pair.promise("advise cycles", row, before.line["peak_allocated"] - after.line["peak_allocated"], REQUEST, REQUEST)
    pair.go_on()

    before, after = sides = pair.moment()
    row = pair.advice("advise sleep", sides, "torch.npu.empty_cache()", None, "after sleep", "program")
    # Whole segments: to the byte, and what the driver has of it.
    pair.promise("advise sleep", row, before.line["reserved"] - after.line["reserved"])
    reserved = before.driver["APP"]
    pair.go_on()
    before, after = pair.moment()
    checks.equal("advise sleep: the driver's bytes", reserved - before.driver["APP"], row["saves_bytes"])
    pair.go_on()


def second_pair(pair):
    """Expandable segments are excluded, and the card has another process on it."""
    checks, conf = pair.checks, "expandable_segments:False"
    before, after = sides = pair.moment()
    row = pair.advice("advise record_stream", sides, "Tensor.record_stream()", None,
                      "let the own stream wait for the other one, then drop the tensor", "program")
    # Blocks, to the byte.
    pair.promise("advise record_stream", row, before.delayed() - after.delayed())
    pair.go_on()

    before, after = sides = pair.moment()
    row = pair.advice("advise split", sides, CONF, conf, f"{conf},max_split_size_mb:128", "environment")
    shared = before.advised(FRACTION).get(FRACTION)
    if not shared:
        raise CheckError(f"advise shared card: {FRACTION} is not advised, but {list(before.rows)}")
    checks.equal("advise shared card: advice", (shared["to"], shared["where"]), (f"{LIMIT}", "program"))
    check_evidence(checks, "advise shared card", shared, before.line["reserved"] - before.line["active"])
    pair.go_on()
    before, after = pair.moment()
    # Which blocks will share a segment then is not known: no bytes. What came is worth the restart.
    pair.no_promise("advise split", row, before.line["reserved"] - after.line["reserved"], 256 * MIB)
    pair.go_on()

    before, after = sides = pair.moment()
    settled(lambda: "garbage" in before.advice()[FRACTION]["to"], True)
    row = before.advice()[FRACTION]
    checks.equal("advise retries: advice", (row["to"], row["saves_bytes"]),
                 (f"{LIMIT}, with {CONF}={conf},garbage_collection_threshold:0.8", None))
    count = int(re.match(r"(\d+) request", row["evidence"]).group(1))
    checks.equal("advise retries: as many as torch counts", count, before.line["retries"])
    checks.equal("advise retries: none where it is followed", after.line["retries"], 0)
    # A limit leaves the neighbour room to grow, 5 % of what it leaves; without it the next request takes that.
    room = [CARD - NEIGHBOUR - side.line["peak_reserved"] for side in sides]
    checks.true(f"advise shared card: {room[1] >> 20} MiB left instead of {room[0] >> 20}",
                room[1] >= (CARD - NEIGHBOUR) // 20 and room[1] > room[0], f"{room}")
    pair.go_on()

    before, after = sides = pair.moment()
    if before.line["uncollectable"] is None:
        checks.skip("advise garbage", "this python has no _testcapi")
    else:
        pair.advice("advise garbage", sides, "gc.garbage", None, "look at what is in it", "program")
        checks.equal("advise garbage: objects", [side.line["uncollectable"] for side in sides], [1, 0])
    pair.go_on()


def control(checks, scratch, binaries, daemon, program):
    """Nothing for a program in order; collections, once it is old enough for their rate to be known, until it freezes."""
    def side(of):
        return Side(of, scratch, program, line)
    line = program.line()
    checks.equal("advise control: nothing for a program in order", side(daemon).advice(), {})
    library = scratch.path / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"], input=CLOCK, text=True, check=True)
    with Daemon(binaries, scratch, name="older", LD_PRELOAD=str(library)) as older:
        older.wait_blocks([program.pid], 20)
        program.go_on()
        line = program.line()
        before = json.loads(line)["collection_ms"]
        checks.equal("advise freeze: not in a young process", side(daemon).advice(), {})
        row = side(older).advised("gc.freeze()").get("gc.freeze()")
        checks.true("advise freeze: advice", row and row["saves_bytes"] is None and row["where"] == "program", f"{row}")
        program.go_on()
        line = program.line()
        after = json.loads(line)["collection_ms"]
        checks.true(f"advise freeze: {before:.1f} ms a collection, then {after:.2f}", after < before / 10)
        checks.equal("advise freeze: not once it is frozen", side(older).advice(), {})
        program.go_on()


def run(checks, node, binaries, keep=False):
    with Scratch(keep) as scratch, contextlib.ExitStack() as stack:
        def start(name, card, moments, *options, **settings):
            return stack.enter_context(Talker(
                node, scratch, name, [PROGRAMS / "advise.py", card, FRAMES, *moments.split(), *options],
                NPUSIM_HBM="16G", NPUSIM_EVENT_MS=1500, NPUSIM_WORKSPACE_KB=300 << 10, **settings))

        def pair_of(first, second):
            pair = Pair(checks, daemon, scratch, (first, second))
            for program in pair.programs:
                program.line(180)  # imports of several programs at a time
            daemon.wait_blocks([program.pid for program in pair.programs], 20)
            pair.go_on()
            return pair

        try:
            daemon = stack.enter_context(Daemon(
                binaries, scratch, sets=(f"daemon.dcmi_library={node.sim_lib / 'libdcmi.so'}",),
                NPUSIM_DIR=str(scratch.make("node")), NPUSIM_HBM="16G"))
            neighbours = [stack.enter_context(Talker(
                node, scratch, f"neighbour{card}", [ROOT / "sim" / "vllm" / "hog.py", card, NEIGHBOUR],
                NPUSIM_HBM="16G")) for card in (SECOND, SECOND_FOLLOWS)]
            moments = "up hccl streams queue slack cycles sleep"
            first = [start("first", FIRST, moments, TASK_QUEUE_ENABLE=2),
                     start("first_follows", FIRST_FOLLOWS, moments, "--follow", TASK_QUEUE_ENABLE=1,
                           HCCL_BUFFSIZE=100, MULTI_STREAM_MEMORY_REUSE=2,
                           PYTORCH_NPU_ALLOC_CONF="expandable_segments:True")]
            for neighbour in neighbours:
                neighbour.line()
            first_pair(pair_of(*first))
            moments, conf = "record_stream slack retries garbage", "expandable_segments:False"
            second = [start("second", SECOND, moments, PYTORCH_NPU_ALLOC_CONF=conf),
                      start("second_follows", SECOND_FOLLOWS, moments, "--follow", "--fraction", LIMIT,
                            PYTORCH_NPU_ALLOC_CONF=f"{conf},max_split_size_mb:128,garbage_collection_threshold:0.8")]
            alone = start("control", CONTROL, "up freeze")
            second_pair(pair_of(*second))
            alone.line(180)
            daemon.wait_blocks([alone.pid], 20)
            alone.go_on()
            control(checks, scratch, binaries, daemon, alone)
        except CheckError as error:
            checks.fail("advise", error)
