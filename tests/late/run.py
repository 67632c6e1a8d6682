#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The group `late`: what processes hold that were never observed before, by name.

    run.py BUILD_DIR [--only WORD]... [--keep]

--only    checks whose name contains the word: objects, kv, bad input, tensors, large, frameworks, attached,
          vllm eager,
          vllm graphs, vllm sleep; vllm rate (a part of those) and pythons only if they are named

Oracles: the processes themselves: their own description of their objects, memory_snapshot(), memory_stats(),
state_dict(), vLLM's log. Ends with one line "N passed, N failed, N skipped".
"""
import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
sys.path[:0] = [str(ROOT / "tests" / "real"), str(ROOT / "sim" / "vllm"), str(ROOT / "sim" / "wheels")]

import harness  # noqa: E402
import kv  # noqa: E402
import node as wheels_node  # noqa: E402
import pythons  # noqa: E402
import serve  # noqa: E402
from harness import CheckError, Checks, Daemon, Scratch  # noqa: E402

PROGRAMS = HERE / "programs"
MINORS = (9, 10, 11, 12, 13)
VLLM = {"vllm eager": {"tp": 2}, "vllm graphs": {"tp": 2, "graphs": True},
        "vllm sleep": {"tp": 2, "sleep": True}, "vllm rate": {"tp": 2}}
# vllm rate: a part of the others, alone for a figure on a quiet host. pythons: 2 GB for each.
ON_DEMAND = ("vllm rate", "pythons")
SCANS_IN_A_ROW = 20
RATE_ROUNDS, RATE_TOKENS = 20, 40
# The bars of the project.
NAMED_RATIO, NAMED_RATIO_WITHOUT_KV = 0.99, 0.75
LARGE_SECONDS = 2.0
LARGE_PARAMETERS = 100_000


class Tools:
    """Programs of the build directory."""

    def __init__(self, build):
        self.build, self.directory = build, build / "tests" / "late"

    def scan(self, tgid, *options):  # at the daemon's priority
        """(document, peak memory in KiB); CheckError with the reason."""
        done = subprocess.run(["nice", "-n", "10", self.directory / "scan_one", *options, str(tgid)],
                              capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise CheckError(f"scan_one {tgid}: {done.stderr.strip()}")
        return json.loads(done.stdout), int(re.search(r"max_rss_kib (\d+)", done.stderr)[1])

    def dump(self, tgid, function, local):
        done = subprocess.run([self.directory / "dump_objects", str(tgid), function, local],
                              capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise CheckError(f"dump_objects {tgid} {function} {local}: {done.stderr.strip()}")
        return json.loads(done.stdout)


def interpreters():
    """{minor: path} of the CPythons of pyenv and of the system."""
    found = {}
    for path in sorted(pathlib.Path.home().glob(".pyenv/versions/3.*/bin/python3")):
        found.setdefault(int(path.parent.parent.name.split(".")[1]), path)
    for minor in MINORS:
        system = shutil.which(f"python3.{minor}")
        if system:
            found.setdefault(minor, pathlib.Path(system))
    return found


def child_of(argv, pipe=False, **more):
    return subprocess.Popen([str(word) for word in argv], stdout=subprocess.PIPE, text=True,
                            stdin=subprocess.PIPE if pipe else subprocess.DEVNULL, **more)


def check_objects(checks, tools):
    """Every form of object on every interpreter, against the process's own description."""
    found = interpreters()
    for minor in MINORS:
        name = f"objects: CPython 3.{minor}"
        if minor not in found:
            checks.skip(name, "not installed")
            continue
        with child_of([found[minor], PROGRAMS / "objects.py"]) as process:
            try:
                said = json.loads(process.stdout.readline())
                process.stdout.readline()
                time.sleep(0.1)
                for local in ("value", "captured"):
                    got = tools.dump(process.pid, said["function"], local)
                    checks.equal(f"{name}: {local}", got["value"], said[local])
                checks.equal(f"{name}: version, modules", (got["minor"], got["modules"]),
                             (minor, True))
                checks.true(f"{name}: tracked objects", got["tracked"] > 1000, got["tracked"])
                document, _ = tools.scan(process.pid)
                checks.equal(f"{name}: nothing named without torch",
                             (document["tensors"], document["coverage"]["names"],
                              document["coverage"]["blocks"]), ([], "none", "none"))
            except CheckError as error:
                checks.fail(name, error)
            finally:
                process.kill()


def scan_whole(tools, tgid, tries=5):
    """As tools.scan(), again where a scan was cut, as the daemon does: the host may be busy."""
    for _ in range(tries):
        found = tools.scan(tgid)
        if (found[0]["coverage"]["blocks"], found[0]["coverage"]["names"]) == ("full", "full"):
            break
    return found


def scan_raw(tools, tgid, *before):
    """(exit code, first line of stderr, document or None) of one scan, which must end in time."""
    done = subprocess.run([*before, tools.directory / "scan_one", str(tgid)], capture_output=True,
                          text=True, timeout=60, check=False)
    return done.returncode, done.stderr.split("\n")[0], json.loads(done.stdout) if done.stdout else None


def check_no_python(checks, tools):
    """Programs that look like CPython and are none of those that are known: a reason, no names."""
    reasons = {1: "the interpreter's threads were not found", 2: "a free-threaded CPython",
               3: "this version of CPython is not known", 4: "no CPython"}
    for kind, wanted in reasons.items():
        with child_of([tools.directory / f"kind{kind}" / "python3"]) as process:
            try:
                process.stdout.readline()
                document, _ = tools.scan(process.pid)
                coverage = document["coverage"]
                checks.true(f"bad input: kind {kind}: {coverage['names_reason']}",
                            coverage["names"] == "none" and wanted in coverage["names_reason"] and
                            document["tensors"] == [] and coverage["blocks_reason"], coverage)
            finally:
                process.kill()
    for other in filter(None, map(shutil.which, ("perl", "node"))):
        with child_of([other, "-e", "setTimeout(()=>0, 60000)" if other.endswith("node") else
                       "sleep 60"]) as process:
            time.sleep(0.3)
            document, _ = tools.scan(process.pid)
            checks.equal(f"bad input: {other}", document["coverage"]["names_reason"],
                         "no CPython in this process")
            process.kill()


def check_stripped(checks, tools):
    """An interpreter without its table of symbols: the exported ones are enough."""
    for minor, path in interpreters().items():
        if minor != 11 or ".pyenv" not in str(path) or not shutil.which("strip"):
            continue
        with Scratch() as scratch:
            copy = scratch.path / "python3.11"
            subprocess.run(["strip", "-s", "-o", copy, path.resolve()], check=True)
            environment = {"PYTHONHOME": str(path.parent.parent)}
            with child_of([copy, PROGRAMS / "objects.py"], env=environment) as process:
                said = json.loads(process.stdout.readline())
                process.stdout.readline()
                checks.equal("bad input: stripped", tools.dump(process.pid, said["function"], "value")
                             ["value"], said["value"])
                process.kill()
        return
    checks.skip("bad input: stripped", "no CPython 3.11 of pyenv, or no strip")


def check_ending(checks, tools):
    """Processes that end while they are read: a reason or a document, at once, and no more."""
    said = set()
    for turn in range(12):
        with child_of([sys.executable, PROGRAMS / "objects.py"]) as process:
            process.stdout.readline()
            process.stdout.readline()
            timer = threading.Timer(turn * 0.005, process.kill)
            timer.start()
            code, line, document = scan_raw(tools, process.pid)
            timer.join()
            said.add(line if code else "a document")
            if not (code == 0 and document) and not re.fullmatch(
                    r"process \d+: no such process|process \d+ ended while it was read|"
                    r"process \d+: its mappings cannot be read: .*", line):
                checks.fail("bad input: ends in the middle", (code, line))
                return
    checks.true(f"bad input: ends in the middle: {len(said)} outcomes", True)


def check_permission(checks, tools):
    """Another user's process: one line with the way out."""
    setpriv = ["setpriv", "--reuid", "65534", "--clear-groups", "--bounding-set", "-all"]
    with Scratch() as scratch, child_of([sys.executable, PROGRAMS / "objects.py"]) as process:
        process.stdout.readline()
        process.stdout.readline()
        # the build directory may be closed to others
        program = shutil.copy(tools.directory / "scan_one", scratch.path)
        scratch.path.chmod(0o755)
        done = subprocess.run([*setpriv, program, str(process.pid)], capture_output=True, text=True,
                              timeout=60, check=False)
        process.kill()
    if "setpriv" in done.stderr:
        checks.skip("bad input: no permission", done.stderr.strip())
    else:
        checks.true(f"bad input: no permission: {done.stderr.strip()}", done.returncode == 1 and
                    re.search(r"process \d+: its (memory|mappings) (may not|cannot) be read.*; try: .*root", done.stderr),
                    done.stderr)


MADV_PAGEOUT, SYS_PIDFD_OPEN, SYS_PROCESS_MADVISE = 21, 434, 440


def page_out(tgid):
    """Writes the anonymous memory of a process to swap; its VmSwap in KiB."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(SYS_PIDFD_OPEN, tgid, 0)
    ranges = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ 00:00 0",
                        pathlib.Path(f"/proc/{tgid}/maps").read_text(), re.M)
    for first, last in ((int(a, 16), int(b, 16)) for a, b in ranges):
        vector = (ctypes.c_size_t * 2)(first, last - first)
        libc.syscall(SYS_PROCESS_MADVISE, fd, vector, ctypes.c_size_t(1), MADV_PAGEOUT, 0)
    os.close(fd)
    return int(re.search(r"VmSwap:\s+(\d+)", pathlib.Path(f"/proc/{tgid}/status").read_text())[1])


def check_swapped(checks, tools):
    """Objects in swap are read as any others."""
    name = "bad input: swapped out"
    with Scratch() as scratch, child_of([sys.executable, PROGRAMS / "objects.py"]) as process:
        said = json.loads(process.stdout.readline())
        process.stdout.readline()
        swap, is_on = scratch.path / "swap", False
        try:
            with open(swap, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, 48 << 20)
            swap.chmod(0o600)
            is_on = all(subprocess.run([*words, swap], capture_output=True, check=False).returncode == 0
                        for words in (["mkswap"], ["swapon"]))
            kib = page_out(process.pid)
            if kib < 1000:
                checks.skip(name, "this host has no swap and lets none be made" if not is_on else
                            f"only {kib} KiB went to swap")
                return
            checks.equal(f"{name}: {kib} KiB", tools.dump(process.pid, said["function"], "value")
                         ["value"], said["value"])
        finally:
            process.kill()
            process.wait()
            if is_on:
                subprocess.run(["swapoff", swap], check=False)


def check_bad_input(checks, tools):
    for fn in (check_no_python, check_stripped, check_ending, check_permission, check_swapped):
        guarded(checks, fn.__name__, fn, tools)


def live(document):
    return {(int(block["address"], 16), block["size_bytes"], block["requested_bytes"])
            for block in document["blocks"] if block["state"] == "live"}


def holes(document):
    return {(int(block["address"], 16), block["size_bytes"])
            for block in document["blocks"] if block["state"] in ("free", "pending")}


def states(document, owners=None):
    return {tensor["state_name"]: [int(tensor["address"], 16), tensor["size_bytes"], tensor["dtype"]]
            for tensor in document["tensors"]
            if "state_name" in tensor and (not owners or tensor["owner"] in owners)}


def owned(document, owner):
    return sum(row["bytes"] for row in document["owners"] if row["owner"] == owner)


def start_program(node, scratch, program, *arguments):
    process = child_of([node.python, PROGRAMS / program, *arguments], cwd=PROGRAMS,
                       env=node.environment(scratch.make("node")),
                       stderr=open(scratch.path / f"{program}.err", "wb"))
    for line in process.stdout:
        if line.strip() == "ready":
            return process
    raise CheckError(f"{program}: {(scratch.path / f'{program}.err').read_text()[-1500:]}")


def wheel_nodes(build, first):
    """{version: node} of the torch_npu wheels that sim/wheels knows; `first` is made already."""
    nodes = {wheels_node.VERSION: first}
    for path in sorted((ROOT / "sim" / "wheels").glob("wheels-*.txt")):
        version = path.stem.removeprefix("wheels-")
        if version not in nodes:
            nodes[version] = wheels_node.Node(build, version=version)
    return nodes


def check_tensors(checks, tools, node, keep):
    """A plain program on the real torch and torch_npu: blocks and names against torch's own."""
    for version, one in wheel_nodes(tools.build, node).items():
        check_tensors_of(checks, tools, one, keep, f"tensors {version}")


def check_tensors_of(checks, tools, node, keep, name):
    with Scratch(keep) as scratch:
        truth_path = scratch.path / "truth.json"
        process = start_program(node, scratch, "tensors.py", truth_path)
        try:
            truth = json.loads(truth_path.read_text())
            document, _ = tools.scan(process.pid)
            checks.equal(f"{name}: live blocks", live(document),
                         {tuple(b[:3]) for b in truth["blocks"] if b[3] == "active_allocated"})
            checks.equal(f"{name}: holes", holes(document),
                         {tuple(b[:2]) for b in truth["blocks"] if b[3] != "active_allocated"})
            row = document["allocators"][0]
            checks.equal(f"{name}: allocated and reserved",
                         (row["allocated_bytes"], row["reserved_bytes"]),
                         (truth["allocated"], truth["reserved"]))
            checks.equal(f"{name}: every byte named", row["unnamed_bytes"], 0)
            wanted = dict(truth["state_dict"])
            got = states(document)
            # tied weights have one name: whichever comes first
            missing = {key for key in wanted if key not in got}
            checks.equal(f"{name}: state_dict without the tied name", missing, {"tied.weight"})
            checks.equal(f"{name}: addresses, sizes, types",
                         got, {key: value for key, value in wanted.items() if key not in missing})
            named = {tensor["name"]: tensor for tensor in document["tensors"]}
            checks.equal(f"{name}: view under its base", named["main().runner.view"].get("base"),
                         "main().runner.kv_caches[0][0]")
            checks.equal(f"{name}: keys of a dict",
                         [named[f"main().runner.by_name[{key}]"]["shape"] for key in ("x", "7")],
                         [[3, 5, 7], [9]])
            checks.equal(f"{name}: quantised", named["main().runner.model.int8"].get("quantised"), True)
            checks.equal(f"{name}: cut off by its time", tools.scan(process.pid, "--time", "1")[0]
                         ["tensors"], [])
            process.send_signal(19)  # SIGSTOP: reading needs no cooperation
            stopped, _ = tools.scan(process.pid)
            checks.equal(f"{name}: stopped process", live(stopped), live(document))
            process.kill()
            process.wait()
            try:
                tools.scan(process.pid)
                checks.fail(f"{name}: ended process", "was scanned")
            except CheckError as error:
                checks.true(f"{name}: ended process", "no such process" in str(error), error)
        finally:
            process.kill()
            process.wait()


def check_pythons(checks, tools, keep):
    """The same program on the newest wheels, on every other CPython that they and this host have."""
    found = interpreters()
    for minor in pythons.MINORS:
        name = f"pythons: CPython 3.{minor}, torch_npu {pythons.VERSION}"
        try:
            if minor not in found:
                raise serve.make_venv.WheelsError(f"CPython 3.{minor} is not installed")
            python = pythons.ensure(minor, found[minor])
        except serve.make_venv.WheelsError as error:
            checks.skip(name, error)
            continue
        node = wheels_node.Node(tools.build, version=f"{pythons.VERSION}-3.{minor}", python=python)
        guarded(checks, name, check_tensors_of, tools, node, keep, name)


def check_large(checks, tools, node, keep):
    name = "large"
    with Scratch(keep) as scratch:
        process = start_program(node, scratch, "large.py")
        try:
            document = min((tools.scan(process.pid)[0] for _ in range(3)),
                           key=lambda one: one["scan"]["duration_ns"])
            checks.equal(f"{name}: parameters named", len(states(document)), LARGE_PARAMETERS)
            checks.equal(f"{name}: blocks", document["allocators"][0]["allocated_blocks"],
                         LARGE_PARAMETERS)
            # its own time: what else runs on this host is not the scan's
            seconds, wall = (document["scan"][what] / 1e9 for what in ("cpu_ns", "duration_ns"))
            checks.true(f"{name}: within {LARGE_SECONDS} s ({seconds:.2f} s, {wall:.2f} s on the wall)",
                        seconds <= LARGE_SECONDS, f"{seconds} s")
        finally:
            process.kill()
            process.wait()


def check_frameworks(checks, tools, node, keep):
    """Rows of schema/roots.def for servers that are not here: objects of the same names, real tensors."""
    for framework in ("sglang", "sglang_old", "mindie"):
        with Scratch(keep) as scratch:
            process = child_of([node.python, PROGRAMS / "frameworks.py", framework], cwd=PROGRAMS,
                               env=node.environment(scratch.make("node")),
                               stderr=open(scratch.path / "err", "wb"))
            try:
                wanted = json.loads(process.stdout.readline())
                process.stdout.readline()
                time.sleep(0.2)
                document, _ = tools.scan(process.pid)
                checks.equal(f"frameworks: {framework} ({document['root']})",
                             {row["owner"]: row["bytes"] for row in document["owners"]}, wanted)
                kib = 1024
                kinds = {(row["kind"], row["expert"]): row["bytes"] for row in document["parameters"]}
                checks.equal(f"frameworks: {framework}: experts, quantised ones, scales",
                             {key: kinds.get(key) for key in ((kind, expert) for kind in
                              ("quantised", "scale") for expert in (True, False))},
                             {("quantised", True): 3 * 128 * kib, ("quantised", False): 3 * 32 * kib,
                              ("scale", True): 3 * 4 * kib, ("scale", False): 3 * 2 * kib})
                checks.equal(f"frameworks: {framework}: bytes and types of layers",
                             [(row["bytes"], row["dtype_bytes"]) for row in document["layers"]],
                             [(166 * kib, {"int8": 160 * kib, "float32": 6 * kib})] * 3)
            finally:
                process.kill()
                process.wait()


def table_words(row, owner):
    """(bytes, source) of an owner at the allocated level of a rank."""
    for one in row["owners"]:
        if (one["owner"], one["level"]) == (owner, "allocated"):
            return one["bytes"], one["source"]
    return 0, None


class Steps:
    """programs/steps.py: holds tensors and frees them when told."""

    def __init__(self, node, scratch):
        self.process = child_of([node.python, PROGRAMS / "steps.py"], cwd=PROGRAMS, pipe=True,
                                env=node.environment(scratch.make("node")),
                                stderr=open(scratch.path / "steps.err", "wb"))

    def told(self, word=None):
        """What the program says after a step: {allocated, big, small}, in bytes of whole blocks."""
        if word:
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def check_attached(checks, node, binaries, keep):
    """After a late attach: owners from reading; frees of read blocks by address; and a second reading
    where small ones went, which nobody sees one by one."""
    name = "attached"
    with Scratch(keep) as scratch:
        steps = Steps(node, scratch)
        tgid = steps.process.pid
        try:
            said = steps.told()
            with Daemon(binaries, scratch) as daemon:
                def weights():
                    row = daemon.rank_row(tgid)
                    return table_words(row, "PTA@tensor") if row else (0, None)

                def settled(wanted, seconds):
                    harness.wait_for(lambda: weights()[0] == wanted, seconds,
                                     f"{wanted} bytes of PTA@tensor, not {weights()}")
                    bad = [one for one in daemon.rank_row(tgid)["checks"] if not one["balanced"]]
                    checks.equal(f"{name}: sums at {wanted}", bad, [])

                settled(said["big"] + said["small"], 30)
                checks.equal(f"{name}: source", weights()[1], "read")
                row = daemon.rank_row(tgid)
                checks.equal(f"{name}: nothing is left before attach", row["before_attach_bytes"]
                             if row["before_attach_bytes"] == 0 else
                             [gap["bytes"] for gap in row["gaps"]
                              if gap["name"] == "before_attach_blocks"][0], 0)
                reads = daemon.log.read_text().count("tensors in ")
                # blocks of 4 MiB, each with an event of its own
                said = steps.told("free big")
                settled(said["big"] + said["small"], 5)
                checks.equal(f"{name}: freed by address, without another reading",
                             daemon.log.read_text().count("tensors in "), reads)
                text = subprocess.run([daemon.npumem, "--socket", daemon.socket, "breakdown", "--pid",
                                       str(tgid)],
                                      capture_output=True, text=True, check=False).stdout
                checks.true(f"{name}: marked in the table",
                            re.search(r"PTA@tensor +[0-9.]+ [KMG]iB\^", text) and "^ allocated before" in text,
                            text)
                # 20 KiB each: the kernel sends their sum only
                said = steps.told("free small")
                settled(said["big"] + said["small"], 90)
                checks.true(f"{name}: read again when the totals disagree",
                            daemon.log.read_text().count("tensors in ") > reads, "was not")
                said = steps.told("new big")
                harness.wait_for(lambda: daemon.rank_row(tgid)["allocated_bytes"] == said["allocated"],
                                 20, "the allocator's total")
                tree = daemon.ask("ls", "--tree", "--pid", str(tgid))["ranks"][0]
                checks.equal(f"{name}: ls --tree", [(m["name"], m["bytes"]) for m in tree["modules"]],
                             [("main().model", said["model"])])
            # rows of one's own
            rows = scratch.path / "daemon" / "etc" / "roots.d"
            rows.mkdir()
            (rows / "mine.conf").write_text("type mine Model\npath mine * PTA@mine@model\n")
            with Daemon(binaries, scratch) as daemon:
                def mine():
                    row = daemon.rank_row(tgid)
                    return table_words(row, "PTA@mine@model") if row else None
                harness.wait_for(lambda: (mine() or [0])[0], 30, "an owner of roots.d/mine.conf")
                checks.equal(f"{name}: own rows in roots.d", mine(), (said["model_block"], "read"))
        finally:
            steps.process.kill()
            steps.process.wait()


# --- the real server ---

def check_worker(checks, name, tools, truth, names, blocks, server):
    document, memory = scan_whole(tools, truth["pid"])
    checks.equal(f"{name}: live blocks", live(document),
                 {tuple(b[:3]) for b in blocks if b[3] == "active_allocated"})
    row = document["allocators"][0]
    checks.equal(f"{name}: allocated, reserved",
                 (row["allocated_bytes"], row["reserved_bytes"]),
                 (truth["stats"]["allocated"], truth["stats"]["reserved"]))
    checks.equal(f"{name}: coverage", (document["coverage"]["blocks"], document["coverage"]["names"]),
                 ("full", "full"))
    kv = sum(block["size_bytes"] for block in document["blocks"]
             if block["state"] == "live" and block.get("owner") == "PTA@vllm@kv_cache")
    ratio = row["named_bytes"] / row["allocated_bytes"]
    rest = (row["named_bytes"] - kv) / (row["allocated_bytes"] - kv)
    print(f"      {name}: {100 * ratio:.2f} % named, {100 * rest:.2f} % without KV cache, "
          f"{document['scan']['duration_ns'] / 1e6:.0f} ms, peak {memory} KiB", flush=True)
    checks.true(f"{name}: named", ratio >= NAMED_RATIO, ratio)
    checks.true(f"{name}: named without KV cache", rest >= NAMED_RATIO_WITHOUT_KV, rest)
    wanted = {key: [value[1], value[0], value[2][6:]] for key, value in names["state_dict"].items()}
    got = states(document, {"PTA@vllm@weights"})
    checks.equal(f"{name}: state_dict", {key: got.get(key) for key in wanted}, wanted)
    checks.equal(f"{name}: KV cache", owned(document, "PTA@vllm@kv_cache"),
                 sum(size for size, _ in names["kv_caches"].values()))
    logged = re.findall(r"Available KV cache memory: ([0-9.]+) GiB", server.text())
    # only the first rank logs; all have the same
    checks.equal(f"{name}: KV cache in vLLM's log",
                 f"{owned(document, 'PTA@vllm@kv_cache') / (1 << 30):.2f}", logged[0])
    return document


def persistent(document):
    """What does not come and go with requests."""
    return sorted((tensor["name"], tensor["address"], tensor["size_bytes"])
                  for tensor in document["tensors"]
                  if tensor["owner"] in ("PTA@vllm@weights", "PTA@vllm@kv_cache"))


class Clients:
    """Several clients that ask for completions all the time."""

    def __init__(self, server, count):
        self.server, self.is_over = server, threading.Event()
        self.threads = [threading.Thread(target=self.run) for _ in range(count)]

    def run(self):
        while not self.is_over.is_set():
            self.server.complete("hello", 60)

    def __enter__(self):
        for thread in self.threads:
            thread.start()

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


def check_generating(checks, name, tools, server, tgid):
    """Scans while it generates: each that is not cut finds the same weights and caches."""
    lists, cut, whole = [], [], 0
    with Clients(server, 3):
        for _ in range(SCANS_IN_A_ROW):
            document, _ = tools.scan(tgid)
            whole += document["coverage"]["blocks"] == "full"
            if document["coverage"]["names"] == "full":
                lists.append(persistent(document))
                if lists[-1] != lists[0]:
                    print(f"      {name}: differs: {document['scan']} {document['root']}", flush=True)
            else:
                cut.append(document["coverage"]["names_reason"])
    print(f"      {name}: of {SCANS_IN_A_ROW} scans {len(lists)} saw all names, {whole} all blocks; "
          f"others: {sorted(set(cut), key=str)}", flush=True)
    checks.equal(f"{name}: scans that differ", [len(one) for one in lists if one != lists[0]], [])
    checks.true(f"{name}: named in each", lists and len(lists[0]) > 50, lists and len(lists[0]))
    # a scan is cut where the host is too busy; that is said, and is no wrong name
    checks.true(f"{name}: scans that saw all names", len(lists) >= SCANS_IN_A_ROW // 2, cut)
    checks.true(f"{name}: scans that saw all blocks", whole >= SCANS_IN_A_ROW // 2, whole)


class Scans:
    """Scans of the workers in turn, one after the other, while the block runs; nobody else does anything. The one
    that is under way at its end comes to its own."""

    def __init__(self, tools, tgids):
        self.program, self.tgids, self.done = tools.directory / "scan_one", tgids, 0

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory()
        self.over = pathlib.Path(self.directory.name, "over")
        turn = f'[ -e {self.over} ] || {{ {self.program} "$tgid" >/dev/null 2>&1 && echo done; }}'
        script = f"until [ -e {self.over} ]; do for tgid in {' '.join(map(str, self.tgids))}; do {turn}; done; done"
        self.process = subprocess.Popen(["nice", "-n", "10", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        self.over.touch()
        self.done = self.process.communicate()[0].count("done")
        self.directory.cleanup()


@contextlib.contextmanager
def counting():
    """Somebody who does nothing but count, at a scan's priority."""
    program = subprocess.Popen(["nice", "-n", "10", sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        program.kill()
        program.wait()


def check_rate(checks, name, tools, server, tgids):
    """Seconds for a request alone, alone again as a control, while its workers are scanned in a row all the
    time, and while somebody only counts at a scan's priority: two cores have none to spare for either, so that
    what a scan does to the server itself is what it takes beyond that. In turns of a random order, so that what
    else runs on the host falls on all; a request at a time, since a median of many short ones stands more than
    one of few long ones."""
    taken = {"alone": [], "control": [], "scanned": [], "counting": []}
    order, scans, chance = list(taken), 0, random.Random(1)
    scanning = Scans(tools, tgids)
    for _ in range(RATE_ROUNDS):
        chance.shuffle(order)
        for kind in order:
            beside = {"scanned": scanning, "counting": counting()}.get(kind, contextlib.nullcontext())
            with beside:
                start = time.monotonic()
                server.complete("hello", RATE_TOKENS)
                taken[kind].append(time.monotonic() - start)
            scans += scanning.done if kind == "scanned" else 0
    alone, control, scanned, counted = (statistics.median(found) for found in taken.values())
    quartiles = statistics.quantiles(taken["alone"] + taken["control"], n=4)
    print(f"      {name}: {RATE_TOKENS / alone:.1f} tokens/s alone, ratio {alone / control:.3f} to a control, "
          f"{alone / scanned:.3f} with {scans} scans in a row, {alone / counted:.3f} beside one who counts; alone the "
          f"middle half varies by "
          f"{quartiles[2] / quartiles[0]:.2f}", flush=True)
    checks.true(f"{name}: enough scans", scans >= SCANS_IN_A_ROW, scans)
    checks.true(f"{name}: token rate within the noise",
                scanned <= max(quartiles[2], 1.1 * quartiles[1], 1.1 * counted), taken)


def check_idle(checks, name, tools, tgid):
    """Scans of an idle worker are all the same: every tensor, every block."""
    seen = []
    for _ in range(SCANS_IN_A_ROW):
        document, _ = scan_whole(tools, tgid)
        seen.append((document["coverage"]["blocks"], document["coverage"]["names"], live(document),
                     sorted((t["name"], t["address"], t["size_bytes"]) for t in document["tensors"])))
    full = [one for one in seen if one[:2] == ("full", "full")]
    checks.equal(f"{name}: idle, scans that are whole", len(full), SCANS_IN_A_ROW)
    checks.equal(f"{name}: idle, scans that differ", [one[:2] for one in full if one != full[0]], [])


def check_daemon(checks, name, scratch, binaries, server, truths, names):
    """The daemon that starts now says the same, by owner."""
    with Daemon(binaries, scratch) as daemon:
        wanted = {truth["pid"]: sum(size for size, _ in named["kv_caches"].values())
                  for truth, named in zip(truths, names)}
        # a block is rounded up, and not divided for the sake of less than 1 MiB (torch's kSmallSize)
        slack = {truth["pid"]: len(named["kv_caches"]) << 20 for truth, named in zip(truths, names)}

        def kv():
            rows = [row for row in daemon.ask("breakdown")["ranks"] if row["tgid"] in wanted]
            return {row["tgid"]: owner["bytes"] for row in rows for owner in row["owners"]
                    if owner["owner"] == "PTA@vllm@kv_cache" and owner["level"] == "allocated"}

        harness.wait_for(lambda: len(kv()) == len(wanted), 60, "KV cache in breakdown")
        for tgid, size in wanted.items():
            checks.true(f"{name}: breakdown of {tgid}", 0 <= kv()[tgid] - size <= slack[tgid],
                        f"{kv()[tgid]}, wanted {size}")
        for row in daemon.ask("breakdown")["ranks"]:
            if row["tgid"] in wanted and row["main"]:
                bad = [check for check in row["checks"] if not check["balanced"]]
                checks.equal(f"{name}: sums of {row['tgid']}", bad, [])
        tgid = truths[0]["pid"]
        document = daemon.ask("scan", str(tgid), "--limit", "0")
        got = states(document, {"PTA@vllm@weights"})
        checks.equal(f"{name}: npumem scan", {key: got.get(key, [0, 0])[1] for key in
                                              names[0]["state_dict"]},
                     {key: value[0] for key, value in names[0]["state_dict"].items()})
        server.complete("hello", 20)


def driver_bytes_of(scratch, truth):
    """What the simulated driver's text says of a worker on its own card."""
    visible = truth["visible_devices"]
    device = int(visible.split(",")[truth["device"]]) if visible else truth["device"]
    return sum(int(size) for number, size in re.findall(
        r"dev(\d+)\s+\S*HBM\s+\S+\s+\d+\s+(\d+)\s", harness.driver_text(scratch, truth["pid"]))
        if int(number) == device)


def unmapped(daemon, tgid):
    """Bytes of addresses without memory, as breakdown and scan have them."""
    row = [one for one in daemon.ask("breakdown")["ranks"] if one["tgid"] == tgid and one["main"]][0]
    gap = [one["bytes"] for one in row["gaps"] if one["name"] == "unmapped"][0]
    return gap, daemon.ask("scan", str(tgid))["allocators"][0]["unmapped_bytes"]


def check_sleep(checks, name, tools, binaries, scratch, server, truths):
    """Asleep, the books and the names are as before, and it is told that the memory is gone."""
    tgids = [truth["pid"] for truth in truths]
    awake = {tgid: persistent(scan_whole(tools, tgid)[0]) for tgid in tgids}
    server.sleep()
    truths = server.ask_workers("truth")
    for tgid, blocks in zip(tgids, server.ask_workers("blocks")):
        document, _ = scan_whole(tools, tgid)
        checks.equal(f"{name}: asleep, coverage of {tgid}",
                     (document["coverage"]["blocks"], document["coverage"]["names"]), ("full", "full"))
        checks.equal(f"{name}: asleep, live blocks of {tgid}", live(document),
                     {tuple(b[:3]) for b in blocks if b[3] == "active_allocated"})
        checks.true(f"{name}: asleep, names of {tgid}",
                    awake[tgid] and persistent(document) == awake[tgid], len(persistent(document)))
    if binaries:
        with Daemon(binaries, scratch) as daemon:
            daemon.wait_blocks(tgids, 30)
            time.sleep(1)  # the driver's figures are settled once a second
            for truth in truths:
                tgid = truth["pid"]
                # the driver's own text; the allocator's own statistics
                wanted = truth["stats"]["reserved"] - driver_bytes_of(scratch, truth)
                checks.true(f"{name}: asleep, something is unmapped", wanted > 0, wanted)
                checks.equal(f"{name}: asleep, unmapped bytes of {tgid}", unmapped(daemon, tgid),
                             (wanted, wanted))
            server.wake_up()
            for tgid in tgids:
                checks.equal(f"{name}: awake again, nothing is unmapped in {tgid}",
                             unmapped(daemon, tgid), (0, 0))
    else:
        server.wake_up()
    server.complete("hello", 8)
    for tgid in tgids:
        checks.true(f"{name}: awake again, names of {tgid}",
                    persistent(scan_whole(tools, tgid)[0]) == awake[tgid], "differ")


def check_vllm(checks, tools, node, binaries, name, options, keep):
    with Scratch(keep) as scratch:
        with serve.Server(node, scratch.make("server"), state=scratch.make("node"),
                          NPUSIM_BASELINE=0, **options) as server:
            print(f"      {name}: up in {server.wait_ready():.0f} s", flush=True)
            server.complete("hello", 16)
            truths, names = server.ask_workers("truth"), server.ask_workers("names")
            if name == "vllm rate":
                check_idle(checks, name, tools, truths[0]["pid"])
                check_rate(checks, name, tools, server, [truth["pid"] for truth in truths])
                return
            for truth, named, blocks in zip(truths, names, server.ask_workers("blocks")):
                check_worker(checks, f"{name} rank {truth['rank']}", tools, truth, named, blocks, server)
            check_generating(checks, name, tools, server, truths[0]["pid"])
            check_idle(checks, name, tools, truths[0]["pid"])
            check_rate(checks, name, tools, server, [truth["pid"] for truth in truths])
            if binaries:
                check_daemon(checks, f"{name} daemon", scratch, binaries, server, truths, names)
            if options.get("sleep"):
                check_sleep(checks, name, tools, binaries, scratch, server, truths)


def chosen(args, name):
    if not args.only:
        return name not in ON_DEMAND
    return any(word in name for word in args.only)


def guarded(checks, name, fn, *arguments):
    try:
        fn(checks, *arguments)
    except (CheckError, serve.ServerError, OSError) as error:
        checks.fail(name, error)


def main():
    parser = argparse.ArgumentParser(description="late attach with names")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    checks, tools = Checks(), Tools(args.build)
    if os.geteuid():
        checks.skip("late", "reading other processes needs root")
    else:
        if chosen(args, "objects"):
            guarded(checks, "objects", check_objects, tools)
        if chosen(args, "kv"):
            guarded(checks, "kv", kv.check_kv, tools, PROGRAMS, interpreters(), MINORS)
        if chosen(args, "bad input"):
            guarded(checks, "bad input", check_bad_input, tools)
        torch = [fn for word, fn in (("tensors", check_tensors), ("large", check_large),
                                     ("frameworks", check_frameworks))
                 if chosen(args, word)]
        servers = {name: options for name, options in VLLM.items() if chosen(args, name)}
        try:
            node = wheels_node.Node(args.build) if torch else None
            for fn in torch:
                guarded(checks, fn.__name__, fn, tools, node, args.keep)
            binaries = harness.find_binaries(args.build)
            if harness.may_observe():
                binaries = None
            if chosen(args, "attached") and not binaries:
                checks.skip("attached", harness.may_observe() or "npumemd is not built")
            elif chosen(args, "attached"):
                guarded(checks, "attached", check_attached, node or wheels_node.Node(args.build),
                        binaries, args.keep)
            if chosen(args, "pythons"):
                check_pythons(checks, tools, args.keep)
            node = serve.make_node(args.build) if servers else None
            for name, options in servers.items():
                guarded(checks, name, check_vllm, tools, node, binaries, name, options, args.keep)
        except serve.make_venv.WheelsError as error:
            checks.skip("the wheels", error)
    print(f"{checks.passed} passed, {checks.failed} failed, {checks.skipped} skipped", flush=True)
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
