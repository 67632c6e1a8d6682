#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cost of the block level on the real torch_npu: `torch.empty` of 700 KiB and `del`.

    bench_micro.py [--build DIR] [--bin DIR] [--rounds 7] [--pairs 20000]

One process; its rounds alternate between bare, with an empty probe on the reporting function (the
floor: three traps a pair), and under a daemon; probe and daemon are started and stopped around each
round, so that all see the same machine. Prints one JSON object: best and median of each in ns of
thread CPU time per pair, and the ratios of the bests (bar: 2.0 for the daemon). The exit code is 1
above the bar.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

import harness
from harness import PROGRAMS, CheckError, Daemon, Program, Scratch, find_binaries, wait_for

BAR = 2.0


def other_daemon():
    """Process id of an npumemd that is not ours: its probes would be in the bare rounds too."""
    for comm in pathlib.Path("/proc").glob("[0-9]*/comm"):
        try:
            if comm.read_text().strip() == "npumemd":
                return int(comm.parent.name)
        except OSError:
            continue
    return None


class Micro:
    """programs/micro.py, one round at a time."""

    def __init__(self, node, scratch, pairs):
        argv = [PROGRAMS / "micro.py", "--pairs", pairs]
        self.program = Program(node, scratch, "micro", argv)
        self.lines = 0
        self.pid = self.next_line()["ready"]

    def next_line(self):
        def ready():
            lines = self.program.out.read_text().splitlines()
            return lines[self.lines] if len(lines) > self.lines else None
        line = wait_for(ready, 120, "micro.py", self.program.alive)
        self.lines += 1
        return json.loads(line)

    def round_ns(self):
        self.program.process.stdin.write(b"\n")
        self.program.process.stdin.flush()
        return self.next_line()["ns_per_pair"]


class EmptyProbe:
    """An empty program at the entry of the reporting function of the process's libtorch_npu."""

    def __init__(self, build, pid):
        tools = build / "tests" / "bench"
        library = next(line.split()[-1] for line in open(f"/proc/{pid}/maps", encoding="utf-8")
                       if line.rstrip().endswith("/libtorch_npu.so"))
        offset = int(subprocess.run([tools / "bench_block_offset", library], check=True,
                                    capture_output=True, text=True).stdout, 16)
        self.command = [tools / "bench_floor", "multi", library, f"e:{offset:x}"]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise CheckError("bench_floor did not attach")

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def measure(node, binaries, build, rounds, pairs):
    """{"bare": [ns], "empty": [ns], "observed": [ns]}, interleaved."""
    results = {"bare": [], "empty": [], "observed": []}
    with Scratch() as scratch:
        micro = Micro(node, scratch, pairs)
        empty = EmptyProbe(build, micro.pid)
        with micro.program:
            for _ in range(rounds):
                other = other_daemon()
                if other:
                    raise CheckError(f"npumemd {other} runs: a bare round would not be bare")
                results["bare"].append(micro.round_ns())
                with empty:
                    results["empty"].append(micro.round_ns())
                with Daemon(binaries, scratch) as daemon:
                    wait_for(lambda: daemon.rank_row(micro.pid), 10, "row of micro.py")
                    results["observed"].append(micro.round_ns())
                    # Else the round ran without the probe that it is to measure.
                    wait_for(lambda: (daemon.rank_row(micro.pid) or {}).get("reserved_bytes"), 5,
                             "block level of micro.py")
    return results


def main():
    parser = argparse.ArgumentParser(description="block level cost on the real torch_npu")
    parser.add_argument("--build", type=pathlib.Path, default=harness.ROOT / "build" / "release")
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pairs", type=int, default=20000)
    args = parser.parse_args()
    binaries = find_binaries(args.bin or args.build)
    if not binaries:
        sys.exit(f"bench_micro.py: no npumemd and npumem in {args.bin or args.build}")
    try:
        node = harness.real_node.Node(args.build, quiet=True)
        results = measure(node, binaries, args.build, args.rounds, args.pairs)
    except (CheckError, harness.real_node.make_venv.WheelsError) as error:
        sys.exit(f"bench_micro.py: {error}")
    ratio = min(results["observed"]) / min(results["bare"])
    floor = min(results["empty"]) / min(results["bare"])
    report = {"name": "torch.empty 700 KiB and del", "bar": BAR, "ratio": round(ratio, 3),
              "floor_ratio": round(floor, 3)}
    for name, values in results.items():
        report[name] = {"best_ns": round(min(values)),
                        "median_ns": round(statistics.median(values))}
    print(json.dumps(report))
    sys.exit(1 if ratio > BAR else 0)


if __name__ == "__main__":
    main()
