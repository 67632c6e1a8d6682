# SPDX-License-Identifier: Apache-2.0
"""Running out of memory under the daemon looks, and ends, as without it."""
import contextlib
import re
import signal
import sqlite3

from harness import PROGRAMS, CheckError, Daemon, Program, Scratch

# What differs from run to run by itself; everything else must be the same, byte for byte.
VOLATILE = [(r"0x[0-9a-f]+", "ADDRESS"), (r"PID:\d+", "PID"),
            (r"\d{4}-\d\d-\d\d[- ][\d:.]+", "TIME"),
            (r"\[[WEI]\d{4} [\d:.]+", "[TIME"), (r"npumem-real-\w+", "SCRATCH")]
# ACL_ERROR_RT_MEMORY_ALLOCATION
OUT_OF_MEMORY = 207001
MODES = ("caught", "uncaught")
KINDS = {"pool": {}, "expandable": {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}}


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
