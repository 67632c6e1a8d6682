# SPDX-License-Identifier: Apache-2.0
"""What the checks of this group share: a score, programs on the simulated node, the daemon."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "sim" / "wheels"))

import node as real_node  # noqa: E402

PROGRAMS = HERE / "programs"
# The module of torch_npu's and ATB's memory in the driver's table.
MODULE_APP = "APP"
# Card, kind of memory, module's name and id, bytes now; peak and counts follow.
DRIVER_ROW = re.compile(r"(?:dev)?\d+\s+\S+\s+(\S+)\s+\d+\s+(\d+)\s")


class CheckError(Exception):
    """A check cannot go on; counted as failed, the next one runs."""


class Checks:
    """Prints one line per check and keeps the score."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def equal(self, name, got, wanted):
        if got == wanted:
            self.passed += 1
            print(f"ok    {name}: {short(wanted)}", flush=True)
        else:
            self.fail(name, f"got {got!r}, wanted {wanted!r}")

    def true(self, name, condition, why=""):
        if condition:
            self.passed += 1
            print(f"ok    {name}", flush=True)
        else:
            self.fail(name, why or "does not hold")

    def fail(self, name, why):
        self.failed += 1
        print(f"FAIL  {name}: {why}", flush=True)

    def skip(self, name, why):
        self.skipped += 1
        print(f"skip  {name}: {why}", flush=True)


def short(value):
    text = str(value)
    return text if len(text) <= 70 else f"{text[:67]}..."


def wait_for(condition, seconds, what, alive=lambda: True):
    """First true value of `condition`; CheckError after `seconds` or when `alive` says no."""
    until = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if not alive():
            raise CheckError(f"{what}: the program ended")
        if time.monotonic() > until:
            raise CheckError(f"{what}: nothing within {seconds} s")
        time.sleep(0.01)


class Scratch:
    """A directory of one check; `with` removes it."""

    def __init__(self, keep=False):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="npumem-real-"))
        self.keep = keep

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.keep:
            print(f"      kept {self.path}", flush=True)
        else:
            shutil.rmtree(self.path, ignore_errors=True)

    def make(self, name):
        path = self.path / name
        path.mkdir(exist_ok=True)
        return path


class Program:
    """One process on the real wheels; `state` holds its simulated devices (default: those that all
    programs of the scratch directory share)."""

    def __init__(self, node, scratch, name, argv, state=None, **settings):
        self.out = scratch.path / f"{name}.out"
        self.err = scratch.path / f"{name}.err"
        self.name = name
        environment = node.environment(state or scratch.make("node"), **settings)
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(
                [str(node.python), *map(str, argv)], cwd=PROGRAMS, env=environment, stdout=out,
                stderr=err, stdin=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.alive():
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.poll() is None

    def finish(self, seconds=120):
        """Exit code; a negative one is a signal."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise CheckError(f"{self.name} did not end within {seconds} s") from error

    def tail(self, lines=12):
        return "\n".join(self.err.read_text(errors="replace").splitlines()[-lines:])


class Stops:
    """The moments of a group of programs (programs/moments.py)."""

    def __init__(self, directory, programs):
        self.directory = directory
        self.programs = programs

    def wait(self, number, seconds=90):
        """The figures of every rank at moment `number`, all of them stopped there."""
        lines = []
        for rank, program in enumerate(self.programs):
            path = self.directory / f"{rank}.{number}.json"
            try:
                wait_for(path.exists, seconds, f"moment {number} of rank {rank}", program.alive)
            except CheckError as error:
                raise CheckError(f"{error}\n{program.tail()}") from error
            lines.append(json.loads(path.read_text()))
        return lines

    def release(self, number):
        (self.directory / f"go.{number}").touch()


def driver_text(scratch, tgid):
    path = scratch.path / "node" / "proc" / "svm" / "task" / str(tgid) / "summary"
    try:
        return path.read_text()
    except OSError as error:
        raise CheckError(f"the simulated driver shows nothing: {error}") from error


def driver_bytes(scratch, tgid):
    """{module: bytes} of one process from the simulated driver's own text, devices added up."""
    sums = {}
    for line in driver_text(scratch, tgid).splitlines():
        row = DRIVER_ROW.match(line)
        if row:
            module, size = row.groups()
            sums[module] = sums.get(module, 0) + int(size)
    if not sums:
        raise CheckError("the simulated driver's text has no row of a module")
    return sums


def driver_pages_bytes(scratch, tgid):
    """What the same process has of the card: whole pages."""
    units = {"4K": 4 << 10, "2M": 2 << 20, "1G": 1 << 30}
    pages = re.findall(r"\bused_page_(\w+):\s*(\d+)", driver_text(scratch, tgid))
    return sum(units[unit] * int(count) for unit, count in pages)


class Daemon:
    """A private npumemd with its own directories and socket."""

    def __init__(self, binaries, scratch, sets=(), name="daemon", **environment):
        self.directory = scratch.make(name)
        self.socket = self.directory / "run" / "control.sock"
        self.npumem = binaries / "npumem"
        self.log = self.directory / "log"
        argv = [str(binaries / "npumemd")]
        for option, name in (("runtime", "run"), ("state", "state"), ("config", "etc")):
            (self.directory / name).mkdir(exist_ok=True)
            argv += [f"--{option}-dir", str(self.directory / name)]
        for setting in sets:
            argv += ["--set", setting]
        argv += ["--svm-dir", str(scratch.make("node") / "proc" / "svm")]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            env=os.environ | environment)
        try:
            wait_for(self.answers, 20, "npumemd's socket", lambda: self.process.poll() is None)
        except CheckError as error:
            self.stop()
            raise CheckError(f"{error}\n{self.last_words()}") from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def answers(self):
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(self.socket))
            except OSError:
                return False
            return True

    def stop(self):
        """Asks it to end; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode

    def last_words(self):
        return f"{self.process.returncode}: {self.log.read_text(errors='replace')[-1500:]}"

    def ask(self, *words):
        argv = [str(self.npumem), "--socket", str(self.socket), *words, "-o", "json"]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
        except subprocess.TimeoutExpired as error:
            raise CheckError(f"npumem {' '.join(words)}: no answer within 30 s") from error
        if done.returncode or not done.stdout.strip():
            raise CheckError(f"npumem {' '.join(words)}: exit {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def rank_row(self, tgid):
        """The breakdown's row of one process, None while there is none."""
        rows = [row for row in self.ask("breakdown")["ranks"] if row["tgid"] == tgid]
        return rows[0] if len(rows) == 1 else None

    def wait_blocks(self, tgids, seconds=10):
        """Waits until it sees the blocks of all these processes; seconds that took."""
        def attached():
            levels = {t["tgid"]: t["level"] for t in self.ask("status")["targets"]}
            return all(levels.get(tgid) == "blocks" for tgid in tgids)
        start = time.monotonic()
        wait_for(attached, seconds, "npumemd at block level", lambda: self.process.poll() is None)
        return time.monotonic() - start

    def store(self):
        """Path of the store; readable once the daemon has ended."""
        return self.directory / "state" / "store.db"


def find_binaries(given):
    """Directory of npumemd and npumem, or None."""
    places = [pathlib.Path(given)] if given else [ROOT / "build" / "release"]
    for place in places:
        for sub in ("", "daemon"):
            if (place / sub / "npumemd").exists() and (place / "npumem").exists():
                return (place / sub).resolve()
    return None


def may_observe():
    """Why the kernel would not let a daemon of ours observe, or None."""
    return None if os.geteuid() == 0 else "needs root"
