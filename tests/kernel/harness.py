# SPDX-License-Identifier: Apache-2.0
"""What the kernel tests share: a daemon with directories of its own, observed processes, events.

Every test gets a Scratch (a directory and everything that must end with the test). Nothing of the
system's own npumem is used: sockets, stores and simulated nodes lie below the scratch directory.
"""
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.realpath(os.path.join(HERE, "../.."))
LAYOUTS = ("8.1", "8.5", "9.2")
LINKS = ("multi", "perf", "perf-legacy")
MIB = 1 << 20
BUILD = None  # set by run.py
# Kernels before 6.6 style: attaching waits for the detaching of others, so one test at a time.
PERF = threading.Lock()

DAEMON_STOP_S = 90  # bound for perf links, which the kernel takes 0.1 s each to close


class Skip(Exception):
    pass


class Failure(AssertionError):
    pass


def check(condition, what, *details):
    if not condition:
        raise Failure(what + "".join(f"\n    {d}" for d in details))


def equal(got, expected, what):
    check(got == expected, f"{what}: {got!r}, expected {expected!r}")


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"not within {seconds} s: {what}")
        time.sleep(0.005)


def program(name):
    path = os.path.join(BUILD, name)
    if not os.path.exists(path):
        raise Skip(f"{name} is not built")
    return path


def lib_dir(layout):
    path = os.path.join(BUILD, f"sim/cann-{layout}/lib")
    if not os.path.isdir(path):
        raise Skip(f"no simulated libraries of layout {layout}")
    return path


def kernel_has_multi():
    release = [int(x) for x in re.findall(r"\d+", os.uname().release)[:2]]
    return release >= [6, 6]


class Scratch:
    def __init__(self, name):
        self.name = name
        self.dir = tempfile.mkdtemp(prefix="npumem-" + re.sub(r"[^a-z0-9_]+", "-", name.lower())[:28] + "-")
        self.node = self.path("node")
        os.mkdir(self.node)
        self.ending = []
        self.daemons = []

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def at_end(self, function, *arguments):
        self.ending.append((function, arguments))

    def close(self, keep):
        for function, arguments in reversed(self.ending):
            try:
                function(*arguments)
            except Exception as e:
                print(f"  clean-up of {self.name}: {e}")
        logs = "".join(d.log_tail() for d in self.daemons) if keep else ""
        shutil.rmtree(self.dir, ignore_errors=True)
        return logs

    def daemon(self, *arguments, **options):
        d = Daemon(self, *arguments, **options)
        self.daemons.append(d)
        return d

    def agent(self, *arguments, **options):
        return Agent(self, *arguments, **options)

    def environment(self, layout=None, **more):
        env = dict(os.environ, NPUSIM_DIR=self.node, NPUSIM_DEVICES="8", NPUSIM_HBM="64G")
        for name in ("NPUMEM_SOCKET", "ASCEND_RT_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
            env.pop(name, None)
        if layout:
            env["NPUSIM_LIB_DIR"] = lib_dir(layout)
            env["LD_LIBRARY_PATH"] = lib_dir(layout)
        env.update(more)
        return env


def stop_process(p, sig=signal.SIGKILL):
    if p.poll() is None:
        p.send_signal(sig)
    try:
        p.wait(10)
    except subprocess.TimeoutExpired:
        p.kill()
        p.wait()


class Daemon:
    """npumemd with directories of its own. links: attach mechanism; sets: settings; svm: whether it
    may read the simulated driver's own account."""

    def __init__(self, scratch, links="auto", sets=(), svm=True, start=True, arguments=(), prefix=()):
        if links == "multi" and not kernel_has_multi():
            raise Skip("this kernel has no uprobe_multi links")
        self.scratch = scratch
        self.links = links
        self.number = len(scratch.daemons)
        self.run_dir = scratch.path("run")
        self.state_dir = scratch.path("state")
        self.config_dir = scratch.path("etc")
        for d in (self.run_dir, self.state_dir, self.config_dir):
            os.makedirs(d, exist_ok=True)
        self.socket = os.path.join(self.run_dir, "control.sock")
        self.log_path = scratch.path(f"daemon{self.number}.log")
        svm_dir = os.path.join(scratch.node, "proc/svm") if svm else scratch.path("no-svm")
        self.command = [*prefix, program("npumemd"), "--runtime-dir", self.run_dir, "--state-dir", self.state_dir,
                        "--config-dir", self.config_dir, "--svm-dir", svm_dir, "--links", links]
        if "perf" in links:
            # every probe costs 0.1 s at the end: none in processes of others
            sets = (*sets, "daemon.discovery=no")
        for s in ("store.checkpoint_interval=100ms", "daemon.log_level=debug", *sets):
            self.command += ["--set", s]
        self.command += arguments
        self.process = None
        if "perf" in links:
            PERF.acquire()
            scratch.at_end(PERF.release)
        scratch.at_end(self.kill)
        if start:
            self.start()

    def spawn(self):
        self.log = open(self.log_path, "ab")
        env = self.scratch.environment()
        env.pop("NOTIFY_SOCKET", None)
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log,
                                        stdin=subprocess.DEVNULL, env=env)
        return self.process

    def start(self, seconds=60):  # beside whatever else runs
        self.spawn()
        wait_for(self.is_ready, seconds, "npumemd answers")
        return self

    def is_ready(self):
        if self.process.poll() is not None:
            raise Failure(f"npumemd ended with {self.process.returncode}\n{self.log_tail()}")
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(20)
        try:
            s.connect(self.socket)
            s.sendall(b'{"method":"io.npumem.Control.Version","parameters":{}}\0')
            return s.recv(4096)
        except OSError:
            return False
        finally:
            s.close()

    @property
    def pid(self):
        return self.process.pid

    def text(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def log_tail(self):
        if not os.path.exists(self.log_path):
            return ""
        # other processes of the machine come and go as well
        lines = [line for line in self.text().splitlines()
                 if self.scratch.dir in line or not re.search("functions probed|observed|exited|through another mount", line)]
        return f"  --- log of npumemd {self.number}\n" + "".join(f"  {line}\n" for line in lines[-12:])

    def cli(self, *arguments, expect=0, env=None, timeout=60):
        out = subprocess.run([program("npumem"), "--socket", self.socket, *arguments], capture_output=True,
                             text=True, timeout=timeout, env=env)
        check(expect is None or out.returncode == expect,
              f"npumem {' '.join(arguments)}: exit code {out.returncode}, expected {expect}", out.stderr, out.stdout[:500])
        return out

    def json(self, *arguments, **options):
        return json.loads(self.cli(*arguments, "-o", "json", **options).stdout)

    def status(self):
        return self.json("status")

    def target(self, tgid):
        for t in self.status()["targets"]:
            if t["tgid"] == tgid:
                return t
        return None

    def wait_target(self, tgid, level=None, seconds=10):
        if "daemon.discovery=no" in self.command:
            self.cli("attach", str(tgid), "--timeout", "2min", timeout=130)
        def ready():
            t = self.target(tgid)
            return t if t and (level is None or t["level"] == level) else None
        return wait_for(ready, seconds, f"process {tgid} is observed" + (f" at level {level}" if level else ""))

    def rank(self, tgid, device=None):
        """The row of a process (on one device) in breakdown."""
        rows = [r for r in self.json("breakdown", "--pid", str(tgid))["ranks"]
                if device is None or r["device"] == device]
        check(len(rows) == 1, f"{len(rows)} rows of process {tgid} on device {device}", rows)
        return rows[0]

    def blocks(self, tgid, *levels):
        doc = self.json("ls", "--pid", str(tgid), "--limit", "1000000",
                        *[a for level in levels for a in ("--level", level)])
        check(not doc["truncated"], "npumem ls was cut")
        return doc["blocks"]

    def events(self, *arguments):
        return Events(self, *arguments)

    def db(self):
        # immutable=0: the WAL is read as well
        db = sqlite3.connect(f"file:{self.state_dir}/store.db?mode=ro", uri=True)
        db.row_factory = sqlite3.Row
        return db

    def sql(self, query, *parameters):
        db = self.db()
        try:
            return db.execute(query, parameters).fetchall()
        finally:
            db.close()

    def stop(self):
        """Ends it by SIGTERM; the seconds that took."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(DAEMON_STOP_S)
        seconds = time.monotonic() - begin
        equal(code, 0, "exit code of npumemd after SIGTERM")
        self.log.close()
        return seconds

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(DAEMON_STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Events:
    """The event stream of a daemon, through `npumem events`."""

    def __init__(self, daemon, *arguments):
        self.process = subprocess.Popen(
            [program("npumem"), "--socket", daemon.socket, "events", "-f", "-o", "jsonl", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        daemon.scratch.at_end(self.close)
        self.daemon = daemon
        self.list = []
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()
        time.sleep(0.2)  # the subscription has no reply before the first event
        daemon.status()

    def read(self):
        for line in self.process.stdout:
            self.list.append(json.loads(line))

    def until_mark(self, tgid, device=7, seconds=10):
        """All events up to the next mark() of the process, without it."""
        def marked():
            self.daemon.json("status")
            return [i for i, e in enumerate(self.list) if e["kind"] == "device_set" and e["tgid"] == tgid
                    and e.get("flags", 0) and int(str(e["flags"]), 0) == device]
        at = wait_for(marked, seconds, f"the mark of process {tgid}")[0]
        group, self.list[:at + 1] = self.list[:at], []
        return [e for e in group if e["tgid"] == tgid]

    def close(self):
        stop_process(self.process)


class Agent:
    """agent.py in a process of its own; a("code") runs code there and returns its `out`."""

    def __init__(self, scratch, layout="8.1", libs=("libascendcl.so",), device=0, log=True, fail=None,
                 prefix=(), env=None, start=True):
        self.scratch = scratch
        self.layout = layout
        more = dict(env or {})
        self.log_path = None
        if log:
            self.log_path = scratch.path(f"calls.{len(scratch.ending)}")
            more["NPUSIM_LOG"] = self.log_path
        if fail:
            more["NPUSIM_FAIL"] = fail
        self.process = subprocess.Popen(
            [*prefix, "/usr/bin/env", "python3", os.path.join(HERE, "agent.py")], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env=scratch.environment(layout, **more))
        scratch.at_end(self.end)
        self.log_at = 0
        if start:
            for lib in libs:
                self(f"load({lib!r})")
            if device is not None:
                equal(self(f"out = device({device})"), 0, "aclrtSetDevice")

    @property
    def pid(self):
        return self.process.pid

    def send(self, code):
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()

    def receive(self):
        line = self.process.stdout.readline()
        if not line:
            raise Failure(f"the observed process ended with {self.process.wait()}")
        reply = json.loads(line)
        if "error" in reply:
            raise Failure("in the observed process: " + reply["error"])
        return reply["ok"]

    def __call__(self, code):
        self.send(code)
        return self.receive()

    def calls(self):
        """Lines of the call log since the last time: the simulated libraries' own truth."""
        with open(self.log_path) as f:
            f.seek(self.log_at)
            lines = f.readlines()
            self.log_at = f.tell()
        names = ("begin", "end", "pid", "tid", "layer", "symbol", "result", "out", "size", "args")
        rows = []
        for line in lines:
            row = dict(zip(names, line.rstrip("\n").split("\t")))
            for key in ("begin", "end", "pid", "tid", "result"):
                row[key] = int(row[key])
            row["out"] = int(row["out"], 16) if row["out"] != "-" else 0
            row["size"] = int(row["size"]) if row["size"] != "-" else 0
            row["args"] = [int(a, 16) for a in row["args"].split(",")] if row["args"] != "-" else []
            rows.append(row)
        return rows

    def end(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass
        stop_process(self.process)

    def kill(self):
        self.process.kill()
        self.process.wait()


def probe_rows():
    """Rows of schema/probes.def: {symbol: (level, kind, call_flags)} of the C functions."""
    with open(os.path.join(ROOT, "schema/probes.def")) as f:
        body = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    rows = {}
    for m in re.finditer(r'NM_CALL\((\w+), "(\w+)", (\w+), (\w+),(.*)\)\n', body):
        rows[m.group(2)] = (m.group(3), m.group(4).lower(), m.group(5).rsplit(",", 1)[1].strip())
    return rows


def hal_address(e, key="address"):
    return int(str(e.get(key, 0)), 0)


def card_used(scratch, device):
    """Device bytes of all processes by the simulated driver's own text."""
    path = os.path.join(scratch.node, f"proc/svm/dev{device}/summary")
    total = 0
    if os.path.exists(path):
        with open(path) as f:
            for line in f:
                m = re.match(r"dev\d+\s+MEM_DEV_\w*HBM\s+\S+\s+\d+\s+(\d+)", line)
                if m:
                    total += int(m.group(1))
    return total


def process_used(scratch, tgid):
    """{(device, module): bytes} of one process by the simulated driver's own text."""
    path = os.path.join(scratch.node, f"proc/svm/task/{tgid}/summary")
    sums = {}
    if os.path.exists(path):
        with open(path) as f:
            for line in f:
                m = re.match(r"dev(\d+)\s+MEM_DEV_\w*HBM\s+\S+\s+(\d+)\s+(\d+)", line)
                if m and int(m.group(3)):
                    key = int(m.group(1)), int(m.group(2))
                    sums[key] = sums.get(key, 0) + int(m.group(3))
    return sums


class Holder:
    """programs/holder.c in a process of its own; ask("a 4096") sends a line and returns the answer."""

    def __init__(self, scratch, library, device=0, prefix=(), env=None, binary=None, start=True):
        self.process = subprocess.Popen(
            [*prefix, binary or program("tests/kernel/holder"), library, str(device)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=scratch.environment(**(env or {})))
        scratch.at_end(self.end)
        self.inner_pid = None
        if start:
            self.wait_ready()

    def wait_ready(self):
        line = self.process.stdout.readline().split()
        check(line[:1] == ["ready"], "holder does not start", line)
        self.inner_pid = int(line[1])  # as it sees itself
        return self

    @property
    def pid(self):
        return self.process.pid

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def receive(self):
        line = self.process.stdout.readline()
        check(line, f"holder ended with {self.process.poll()}")
        return line.split()

    def ask(self, line):
        self.send(line)
        return self.receive()

    def malloc(self, size, command="a"):
        result, address = self.ask(f"{command} {size}")
        equal(result, "0", "aclrtMalloc")
        return int(address, 16)

    def mark(self):
        # b 1 is aclrtSetDevice(1): tests with a holder use device 1 for nothing else
        equal(self.ask("b 1"), ["1"], "aclrtSetDevice")

    def end(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass
        stop_process(self.process)


def private_libs(scratch, layout="8.1", name="lib"):
    """A copy of a layout's libraries: inodes that no other test has."""
    target = scratch.path(name)
    shutil.copytree(lib_dir(layout), target)
    return target


def fake_lib(scratch, name="libacl_rt.so"):
    """A copy of a library of programs/: an inode that no other test has."""
    source = program("tests/kernel/fake/" + name)
    os.makedirs(scratch.path("fake"), exist_ok=True)
    return shutil.copy(source, scratch.path("fake", name))
