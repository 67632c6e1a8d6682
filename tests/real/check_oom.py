# SPDX-License-Identifier: Apache-2.0
"""Running out of memory under the daemon looks, and ends, as without it; and what the report promises comes true."""
import contextlib
import json
import re
import signal
import sqlite3

from check_owners import Talker
from harness import PROGRAMS, CheckError, Daemon, Program, Scratch, wait_for

# What differs from run to run by itself; everything else must be the same, byte for byte.
VOLATILE = [(r"0x[0-9a-f]+", "ADDRESS"), (r"PID:\d+", "PID"),
            (r"\d{4}-\d\d-\d\d[- ][\d:.]+", "TIME"),
            (r"\[[WEI]\d{4} [\d:.]+", "[TIME"), (r"npumem-real-\w+", "SCRATCH")]
# ACL_ERROR_RT_MEMORY_ALLOCATION
OUT_OF_MEMORY = 207001
MODES = ("caught", "uncaught")
CONF, EXPANDABLE = "PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True"
KINDS = {"pool": {}, "expandable": {CONF: EXPANDABLE}}
MIB, CARD = 1 << 20, 8 << 30
SEGMENT, SEGMENTS, OTHER = 300 * MIB, 24, 200 * MIB  # of programs/fragments.py
GRANULE = 20 * MIB                                   # of expandable segments
DEVICE = 7  # its own: the daemon counts the processes of other tests as neighbours


def plain(path):
    text = path.read_text(errors="replace")
    for pattern, word in VOLATILE:
        text = re.sub(pattern, word, text)
    return text


def run_all(node, scratch, label):
    """(exit code, stdout, stderr) by kind and mode; the programs run side by side on devices of
    their own state, so that none takes another's memory."""
    results = {}
    for kind, settings in KINDS.items():
        pair = []
        for mode in MODES:
            name = f"{label}-{kind}-{mode}"
            program = Program(node, scratch, name, [PROGRAMS / "oom.py", mode],
                              scratch.make(f"{name}-node"), NPUSIM_HBM=1 << 30, **settings)
            pair.append((mode, program))
        for mode, program in pair:
            with program:
                results[kind, mode] = (program.finish(), plain(program.out), plain(program.err),
                                       program.pid)
    return results


def failed_calls(path, tgid):
    """Failed allocations of one process in the store of a daemon that has ended."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return database.execute("SELECT count(*) FROM event WHERE tgid = ? AND result = ?",
                                (tgid, OUT_OF_MEMORY)).fetchone()[0]


def run(checks, node, binaries, keep=False):
    try:
        with Scratch(keep) as scratch:
            bare = run_all(node, scratch, "bare")
            check_bare(checks, bare)
            if not binaries:
                return
            with Daemon(binaries, scratch) as daemon:
                observed = run_all(node, scratch, "observed")
                checks.equal("oom: exit code of npumemd", daemon.stop(), 0)
            for (kind, mode), result in bare.items():
                other = observed[kind, mode]
                checks.equal(f"oom {kind} {mode}: exit code under the daemon", other[0], result[0])
                checks.equal(f"oom {kind} {mode}: output under the daemon", other[1], result[1])
                checks.equal(f"oom {kind} {mode}: errors under the daemon", other[2], result[2])
                # Else the programs may have run unobserved.
                failed = failed_calls(daemon.store(), other[3])
                checks.true(f"oom {kind} {mode}: seen by the daemon", failed > 0,
                            "no failed call stored")
    except (CheckError, sqlite3.Error) as error:
        checks.fail("oom", error)


def check_bare(checks, bare):
    """The programs do what they are for: else equal output would prove nothing."""
    for (kind, mode), (code, out, err, _) in bare.items():
        name = f"oom {kind} {mode}"
        if mode == "caught":
            checks.equal(f"{name}: exit code", code, 0)
            checks.equal(f"{name}: caught", out.count("NPU out of memory. Tried to allocate"), 3)
        else:
            checks.equal(f"{name}: exit code", code, 1)
            checks.true(f"{name}: traceback", "NPU out of memory. Tried to allocate" in err,
                        err[-300:])
        checks.true(f"{name}: not killed", code != -signal.SIGABRT, f"exit {code}")


class Ended:
    """A run of programs/fragments.py until its end: the exit code, its lines, the report of the daemon if it died."""

    def __init__(self, node, scratch, daemon, keep, request, others=0, **settings):
        name = f"fragments-{keep // MIB}-{others}-{len(settings)}"
        argv = [PROGRAMS / "fragments.py", DEVICE, keep // MIB, request // MIB, others]
        with Talker(node, scratch, name, argv, NPUSIM_HBM=CARD, **settings) as program:
            program.line()
            daemon.wait_blocks([program.pid], 20)
            program.go_on()
            program.line()
            program.go_on()
            self.code = program.finish()
            self.lines = [json.loads(line) for line in program.out.read_text().splitlines() if line[0] == "{"]
            self.full = self.lines[1]  # before the request
            self.died = "NPU out of memory. Tried to allocate" in program.err.read_text(errors="replace")
            tail = program.tail()
        if self.died != (self.code == 1) or self.died != (len(self.lines) == 2):
            raise CheckError(f"{name}: exit {self.code}, {len(self.lines)} lines: {tail}")
        self.report = self.report_of(daemon, program.pid) if self.died else None

    @staticmethod
    def report_of(daemon, tgid):
        rows = wait_for(lambda: daemon.ask("oom", "list", "--pid", str(tgid))["reports"], 10, f"report of {tgid}")
        return daemon.ask("oom", "show", str(rows[0]["id"]))

    def advice(self):
        return [row for row in self.report["advice"] if row["setting"] == CONF]


def check_report(checks, name, ended, hole, whole):
    """Of each segment `hole` is free, of which `whole` are granules however it lies: both by hand."""
    report = ended.report
    checks.equal(f"{name}: verdict", (report["verdict"], report["device"]), ("FRAGMENTATION", DEVICE))
    checks.equal(f"{name}: reserved, allocated, as torch counts", (report["reserved_bytes"], report["allocated_bytes"]),
                 (ended.full["reserved"], ended.full["allocated"]))
    checks.equal(f"{name}: largest hole", report["largest_hole_bytes"], hole)
    checks.equal(f"{name}: what could go back", report["unmap_bytes"], SEGMENTS * whole)


def large_pieces(checks, pair):
    """What is promised to be enough is, and comes true."""
    name, hole = "oom in large pieces", 260 * MIB
    died, lived = pair(SEGMENT - hole, 1000 * MIB)
    checks.equal(f"{name}: dies, and does not with the setting", (died.died, lived.died), (True, False))
    if not died.died or lived.died:
        return
    # 13 granules fit into a hole, 12 wherever it begins
    check_report(checks, name, died, hole, 12 * GRANULE)
    row, = died.advice()
    checks.equal(f"{name}: advice", (row["from"], row["to"], row["saves_bytes"], row["confidence"]),
                 (None, EXPANDABLE, SEGMENTS * 12 * GRANULE, "high"))
    checks.true(f"{name}: said to be enough", "enough for this request" in row["evidence"], row["evidence"])
    came = died.full["reserved"] - lived.lines[-1]["reserved"]
    checks.true(f"{name}: {row['saves_bytes'] >> 20} MiB promised, {came >> 20} came true",
                came - SEGMENTS * 2 * GRANULE <= row["saves_bytes"] <= came, "not at least, or too little")


def small_pieces(checks, pair):
    """Where nothing is promised, the setting does not help."""
    name, hole = "oom in small pieces", 15 * MIB
    pieces = pair(SEGMENT - hole, 300 * MIB)
    checks.equal(f"{name}: dies, with the setting as well", [one.died for one in pieces], [True, True])
    if pieces[0].died and pieces[1].died:
        check_report(checks, name, pieces[0], hole, 0)
        checks.equal(f"{name}: advice", [one.advice() for one in pieces], [[], []])
        reason = pieces[1].report["reason"]
        checks.true(f"{name}: only the granule that failed is known", "at least 20.00 MiB was" in reason, reason)


def beside_a_pool(checks, node, scratch, daemon):
    """Of free segments that the allocator keeps for a pool of their own nothing goes back: how much of the rest is such
    a pool's is not known."""
    name, others = "oom beside a pool of its own", 3
    died = Ended(node, scratch, daemon, SEGMENT - 260 * MIB, 1000 * MIB, others)
    checks.equal(f"{name}: dies", died.died, True)
    if died.died:
        report = died.report
        checks.equal(f"{name}: verdict, empty segments, what could go back",
                     (report["verdict"], report["empty_bytes"], report["unmap_bytes"]),
                     ("FRAGMENTATION", others * OTHER, None))
        checks.equal(f"{name}: promised", [row["saves_bytes"] for row in died.advice()], [None])


def run_pieces(checks, node, binaries, keep=False):
    """Programs that die of a pool in pieces, and the same again with expandable segments."""
    try:
        with Scratch(keep) as scratch, Daemon(
                binaries, scratch, sets=(f"daemon.dcmi_library={node.sim_lib / 'libdcmi.so'}",),
                NPUSIM_DIR=str(scratch.make("node")), NPUSIM_HBM=str(CARD)) as daemon:
            def pair(keep, request):
                return [Ended(node, scratch, daemon, keep, request, **settings)
                        for settings in ({}, {CONF: EXPANDABLE})]

            large_pieces(checks, pair)
            small_pieces(checks, pair)
            beside_a_pool(checks, node, scratch, daemon)
    except CheckError as error:
        checks.fail("oom in pieces", error)
