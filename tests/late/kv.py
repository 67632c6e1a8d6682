# SPDX-License-Identifier: Apache-2.0
"""Checks `kv`: the pool of KV blocks of programs that have objects of vLLM's names, against what they say themselves."""
import contextlib
import json
import subprocess
import sys

from harness import CheckError

READ_US_MAX = 50  # of a processor, for a reading


class Pair:
    """A program and the reader of its pool."""

    def __init__(self, python, program, kind, tool):
        self.program = subprocess.Popen([str(python), str(program), kind], text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.tool, self.reader = tool, None

    def say(self, words):
        self.program.stdin.write(words + "\n")
        self.program.stdin.flush()
        return json.loads(self.program.stdout.readline())

    def find(self):
        """What was found; CheckError with the reason."""
        if self.reader:
            self.reader.kill()
        self.reader = subprocess.Popen([str(self.tool), str(self.program.pid)], text=True, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = self.reader.stdout.readline()
        if not line:
            raise CheckError(f"kv_one: {self.reader.stderr.read().strip()}")
        return json.loads(line)

    def read(self, count=""):
        self.reader.stdin.write(f"{count}\n")
        self.reader.stdin.flush()
        return json.loads(self.reader.stdout.readline())

    def close(self):
        for process in filter(None, (self.reader, self.program)):
            process.kill()
            process.wait()


def check_follow(checks, name, pair):
    """It is read again and again without being looked for again."""
    for words in ("set 0 0 0 0", "set 1 1 0 0", "set 35000 12 3 2", "set 70000 256 300 0", "set 69744 1 1 1", "set 0 0 0 0"):
        said = pair.say(words)
        checks.equal(f"{name}: {words}", pair.read(), said)


def check_churn(checks, name, pair):
    """Everything is replaced all the time: what is told was there, or nothing is told."""
    pair.say("churn")
    said = pair.read(20000)
    checks.true(f"{name}: while it changes: {said}", said["good"] > 50 and not said["odd"] and not said["failed"]
                and said["different"] > 10, said)
    pair.say("set 5000 5 0 0")
    said = pair.read(2000)
    checks.true(f"{name}: cost {said['us']} us", said["good"] == 2000, said)
    return said["us"]


def check_moved(checks, name, pair):
    """A scheduler whose attributes move, and another pool: it is not what was found; found again it is right."""
    for words in ("grow", "replace"):
        pair.find()
        said = pair.say(words)
        got = pair.read()
        checks.true(f"{name}: {words}: read as before, or not at all: {got}", got == said or "error" in got, (got, said))
        if words == "replace":
            checks.true(f"{name}: another pool is not read", "error" in got, got)
        pair.find()
        checks.equal(f"{name}: {words}, found again", pair.read(), said)


def check_kind(checks, tools, program, minor, python, kind):
    name = f"kv: CPython 3.{minor}, {kind}"
    pair = Pair(python, program, kind, tools.directory / "kv_one")
    with contextlib.closing(pair):
        pair.say("set 7 1 0 0")
        found = pair.find()
        checks.true(f"{name}: found: {found}", found["counts"] == 4, found)
        check_follow(checks, name, pair)
        if kind == "inprocess":
            return []
        cost = check_churn(checks, name, pair)
        check_moved(checks, name, pair)
        return [cost]


def check_none(checks, tools, program):
    """A program without a scheduler: the reason."""
    with subprocess.Popen([sys.executable, "-c", "import sys; print('ready', flush=True); sys.stdin.read()"], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        done = subprocess.run([tools.directory / "kv_one", str(process.pid)], capture_output=True, text=True, timeout=30,
                              check=False)
        checks.true(f"kv: none: {done.stderr.strip()}", done.returncode == 1 and "no scheduler with a pool" in done.stderr,
                    done)
        process.kill()


def check_kv(checks, tools, programs, interpreters, minors):
    costs = []
    for minor in minors:
        if minor not in interpreters:
            checks.skip(f"kv: CPython 3.{minor}", "not installed")
            continue
        for kind in ("fcfs", "priority", "inprocess"):
            try:
                costs += check_kind(checks, tools, programs / "kv_pool.py", minor, interpreters[minor], kind)
            except CheckError as error:
                checks.fail(f"kv: CPython 3.{minor}, {kind}", error)
    if costs:  # the least: other programs run beside it
        checks.true(f"kv: a reading takes {min(costs)} us, at most {READ_US_MAX}", min(costs) <= READ_US_MAX, costs)
    check_none(checks, tools, programs / "kv_pool.py")
