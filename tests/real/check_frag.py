# SPDX-License-Identifier: Apache-2.0
"""Holes of the real allocator: by events, and by a scan where it was attached late."""
import json

from harness import PROGRAMS, CheckError, Daemon, Program, Scratch, wait_for

KINDS = {"pool": {}, "expandable": {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}}


def said(program, lines):
    """The line of output with this number, once it is there."""
    def there():
        text = program.out.read_text()
        return text.count("\n") >= lines
    wait_for(there, 90, f"line {lines} of {program.name}", program.alive)
    return program.out.read_text().splitlines()[lines - 1]


def go(program):
    program.process.stdin.write(b"\n")
    program.process.stdin.flush()


def wanted_of(truth):
    """{pool: (segments, reserved, allocated, holes sorted)} by memory_snapshot()."""
    pools = {}
    for segment in truth["segments"]:
        pool = pools.setdefault(segment["type"], [0, 0, 0, []])
        pool[0] += 1
        pool[1] += segment["size"]
        pool[2] += sum(size for size, state in segment["blocks"] if state == "active_allocated")
        pool[3] += [size for size, state in segment["blocks"] if state == "inactive"]
    return {name: (*pool[:3], sorted(pool[3])) for name, pool in pools.items()}


def got_of(document, with_segments):
    """The same from frag's address maps."""
    pools = {}
    for row in document["pools"]:
        name = row["pool"].split("_")[0]
        pool = pools.setdefault(name, [0, 0, 0, []])
        pool[0] += row["segment_count"] if with_segments else 0
        pool[1] += row["reserved_bytes"]
        pool[2] += row["allocated_bytes"]
        pool[3] += [piece["size_bytes"] for segment in row["segments"] for piece in segment["map"]
                    if piece["state"] == "hole"]
    return {name: (*pool[:3], sorted(pool[3])) for name, pool in pools.items()}


def compare(checks, name, daemon, program, truth, source):
    wanted = wanted_of(truth)
    with_segments = source == "events"
    if not with_segments:  # where one ends and the next begins is not in the table
        wanted = {pool: (0, *figures[1:]) for pool, figures in wanted.items()}

    def right():
        document = daemon.ask("frag", "--pid", str(program.pid), "-v", "--request", "25MiB")
        last.append(document)
        return all(row["complete"] for row in document["pools"]) and \
            got_of(document, with_segments) == wanted
    last = []
    try:
        wait_for(right, 15, "the right answer")
    except CheckError:
        pass
    rows = last[-1]["pools"]
    checks.equal(f"{name}: source", {row["source"] for row in rows}, {source})
    if all(row["complete"] for row in rows):
        got = got_of(last[-1], with_segments)
        for pool, figures in wanted.items():
            checks.equal(f"{name}: {pool} pool, segments, reserved, allocated, holes",
                         got.get(pool, (0, 0, 0, []))[:3] + (len(got.get(pool, (0, 0, 0, []))[3]),),
                         figures[:3] + (len(figures[3]),))
            checks.equal(f"{name}: every hole of the {pool} pool", got.get(pool, [()] * 4)[3], figures[3])
    else:
        checks.fail(name, f"not complete: {[(row['pool'], row['unknown']) for row in rows]}")
    usable = sum(row["usable_bytes"] or 0 for row in rows)
    checks.equal(f"{name}: usable for 25 MiB and not, of free", usable + sum(row["unusable_bytes"] or 0 for row in rows),
                 sum(row["free_bytes"] or 0 for row in rows))
    return rows


def check_pin(checks, name, rows):
    """The tensor of 12 MiB keeps what 600 MiB were in; the segment of 900 MiB is full."""
    pins = [pin for row in rows for segment in row["segments"] if segment["size_bytes"] > 500 << 20
            for pin in segment.get("pins", [])]
    checks.equal(f"{name}: the block that pins 600 MiB", [pin["size_bytes"] >> 20 for pin in pins], [12])


def run(checks, node, binaries, keep=False):
    for kind, settings in KINDS.items():
        for late in (False, True):
            name = f"frag {kind} {'late' if late else 'early'}"
            try:
                with Scratch(keep) as scratch:
                    run_one(checks, name, node, binaries, scratch, settings, late)
            except CheckError as error:
                checks.fail(name, error)


def run_one(checks, name, node, binaries, scratch, settings, late):
    program = Program(node, scratch, "frag", [PROGRAMS / "frag.py"], **settings)
    with program:
        said(program, 1)
        if late:
            go(program)
            truth = json.loads(said(program, 2))
        with Daemon(binaries, scratch, sets=("probes.block_detail=all",)) as daemon:
            daemon.wait_blocks([program.pid], 20)
            if not late:
                go(program)
                truth = json.loads(said(program, 2))
            rows = compare(checks, name, daemon, program, truth, "scan" if late else "events")
            if "pool" in name and not late:
                check_pin(checks, name, rows)
            go(program)
            program.finish()
