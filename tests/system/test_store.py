# SPDX-License-Identifier: Apache-2.0
"""Stores of every kind of wrong: nothing is lost that was there, and the daemon says what it does."""
import errno
import glob
import os
import sqlite3
import subprocess

from harness import Skip, check, equal, process_used, program, wait_for
from test_start import refused

MAKE = "CREATE TABLE process (id INTEGER); INSERT INTO process VALUES (42);"


def mount(scratch, *arguments):
    out = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if out.returncode:
        raise Skip("mount: " + out.stderr.strip())
    scratch.at_end(subprocess.run, ["umount", "-l", arguments[-1]])


def store_path(scratch):
    os.makedirs(scratch.path("state"), exist_ok=True)
    return scratch.path("state", "store.db")


def observes(scratch, daemon, where):
    agent = scratch.agent()
    daemon.wait_target(agent.pid, "physical")
    agent("held = [malloc(1 << 20) for i in range(20)]")
    equal(daemon.rank(agent.pid, 0)["physical_bytes"], sum(process_used(scratch, agent.pid).values()), f"{where}: bytes")
    return agent


def test_read_only(scratch):
    """A state directory that cannot be written: a clear error, not a daemon without a memory."""
    os.makedirs(scratch.path("state"))
    mount(scratch, "-t", "tmpfs", "-o", "ro", "tmpfs", scratch.path("state"))
    line = refused(scratch)
    check("store" in line and ("ead-only" in line), "no clear error", line)


def test_read_only_file(scratch):
    """An existing store on a file system that has become read-only is not touched."""
    state = scratch.path("state")
    os.makedirs(state)
    mount(scratch, "-t", "tmpfs", "tmpfs", state)
    daemon = scratch.daemon()
    observes(scratch, daemon, "before")
    daemon.stop()
    subprocess.run(["mount", "-o", "remount,ro", state], check=True)
    before = open(os.path.join(state, "store.db"), "rb").read()
    line = refused(scratch)
    check("ead-only" in line, "no clear error", line)
    equal(open(os.path.join(state, "store.db"), "rb").read() == before, True, "the file is as it was")


def test_newer_version(scratch):
    """A store of a later npumem is refused and left alone."""
    daemon = scratch.daemon()
    daemon.stop()
    path = store_path(scratch)
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 9999")
    db.close()
    before = open(path, "rb").read()
    line = refused(scratch)
    check("newer" in line or "version" in line, "no clear error", line)
    equal(open(path, "rb").read() == before, True, "the file is as it was")


def test_of_something_else(scratch):
    """A database of another program is refused and left alone."""
    path = store_path(scratch)
    db = sqlite3.connect(path)
    db.executescript(MAKE)
    db.close()
    before = open(path, "rb").read()
    refused(scratch)
    equal(open(path, "rb").read() == before, True, "the file is as it was")


def test_corrupt(scratch, how):
    """A damaged store is moved aside, kept, and a new one begun."""
    daemon = scratch.daemon()
    observes(scratch, daemon, "before")
    daemon.stop()
    path = store_path(scratch)
    size = os.path.getsize(path)
    with open(path, "r+b") as f:
        if how == "garbage":
            f.write(os.urandom(size))
        elif how == "pages":
            f.seek(4096)
            f.write(b"\xff" * (size - 4096))
        elif how == "cut":
            f.truncate(size // 2)
    again = scratch.daemon()
    observes(scratch, again, how)
    kept = glob.glob(path + ".corrupt-*")
    check(kept, "the damaged file was not kept", os.listdir(scratch.path("state")))
    check("corrupt" in again.text() or "damaged" in again.text(), "nothing was logged", again.log_tail())


test_corrupt.variants = [("garbage",), ("pages",), ("cut",)]


def test_disk_full(scratch):
    """A full disk stops neither observing nor answering; what matters is written when there is room."""
    state = scratch.path("state")
    os.makedirs(state)
    mount(scratch, "-t", "tmpfs", "-o", "size=8m", "tmpfs", state)
    daemon = scratch.daemon(sets=["daemon.discovery=no"])
    fill = os.open(os.path.join(state, "fill"), os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(fill, b"x" * 4096):
            pass
    except OSError as e:
        equal(e.errno, errno.ENOSPC, "the disk is full")
    os.close(fill)
    agent = observes(scratch, daemon, "full")
    agent("more = [malloc(5000 + i) for i in range(2000)]")
    pid = agent.pid
    agent.kill()
    wait_for(lambda: not daemon.target(pid), 10, "the process is gone")
    check(daemon.process.poll() is None, "the daemon ended")
    check("full" in daemon.text() or "store" in daemon.text(), "nothing was logged", daemon.log_tail())
    os.unlink(os.path.join(state, "fill"))

    def written():
        rows = daemon.sql("SELECT count(*) AS n FROM live_block JOIN process ON process.id = process_id"
                          " WHERE tgid = ? AND exit_wall_ns IS NOT NULL", pid)
        return rows[0]["n"] >= 2020
    wait_for(written, 30, "the blocks of the process that died are written once there is room")


def test_two_daemons_one_store(scratch):
    """A second daemon with a socket of its own may not have the first one's store."""
    daemon = scratch.daemon()
    other = scratch.daemon(start=False)
    other.command[other.command.index("--runtime-dir") + 1] = scratch.path("run2")
    code = other.spawn().wait(20)
    equal(code, 1, "exit code")
    check("another npumemd" in other.text(), "no clear error", other.text())
    daemon.status()


def test_without_store(scratch):
    """store.enabled=no: everything but history works."""
    daemon = scratch.daemon(sets=["store.enabled=no"])
    observes(scratch, daemon, "without a store")
    check(not os.path.exists(store_path(scratch)), "a store was made")
    equal(daemon.status()["store"]["bytes"], None, "store bytes")
