# SPDX-License-Identifier: Apache-2.0
"""Library files: deleted, replaced, stripped, cut, of another machine, without the functions."""
import mmap
import os
import re
import shutil
import struct
import subprocess

from harness import MIB, Holder, check, equal, fake_lib, hal_address, private_libs, process_used, program, wait_for


def exact(scratch, daemon, holder, where):
    address = holder.malloc(3 * MIB)
    check(any(hal_address(b) == address for b in daemon.blocks(holder.pid, "physical")), f"{where}: a call is not seen")
    equal(daemon.rank(holder.pid, 0)["physical_bytes"], sum(process_used(scratch, holder.pid).values()), f"{where}: bytes")


def test_deleted(scratch, links):
    """Libraries that were unlinked while the process runs are reached through map_files."""
    libs = private_libs(scratch)
    holder = Holder(scratch, os.path.join(libs, "libascendcl.so"))
    shutil.rmtree(libs)
    daemon = scratch.daemon(links=links)
    daemon.wait_target(holder.pid, "physical")
    exact(scratch, daemon, holder, "deleted library")


test_deleted.variants = [("multi",), ("perf",)]


def test_replaced(scratch):
    """A package upgrade: new processes through the new files, old ones through the old, both right."""
    libs = private_libs(scratch)
    daemon = scratch.daemon()
    old = Holder(scratch, os.path.join(libs, "libascendcl.so"))
    daemon.wait_target(old.pid, "physical")
    exact(scratch, daemon, old, "before")
    for name in os.listdir(libs):
        new = os.path.join(libs, name + ".new")
        shutil.copy(os.path.join(libs, name), new)
        os.rename(new, os.path.join(libs, name))
    exact(scratch, daemon, old, "old process after the upgrade")
    new = Holder(scratch, os.path.join(libs, "libascendcl.so"))
    daemon.wait_target(new.pid, "physical")
    exact(scratch, daemon, new, "new process")
    exact(scratch, daemon, old, "old process beside the new")
    third = Holder(scratch, os.path.join(libs, "libascendcl.so"))
    first_call = third.malloc(MIB)
    check(any(hal_address(b) == first_call for b in daemon.blocks(third.pid, "physical")), "the next process's first call is not seen")


def test_in_place(scratch):
    """A file that is overwritten in place is another file: attached again, at its own offsets."""
    libs = private_libs(scratch)
    daemon = scratch.daemon()
    old = Holder(scratch, os.path.join(libs, "libascendcl.so"))
    daemon.wait_target(old.pid, "physical")
    old.end()
    wait_for(lambda: not daemon.target(old.pid), 5, "the process is gone")
    for name in os.listdir(libs):
        with open(os.path.join(libs, name), "rb") as f:
            data = f.read()
        with open(os.path.join(libs, name), "r+b") as f:
            f.truncate(0)
            f.write(data)
    new = Holder(scratch, os.path.join(libs, "libascendcl.so"))
    daemon.wait_target(new.pid, "physical")
    exact(scratch, daemon, new, "overwritten library")
    address = new.malloc(MIB)
    own = [b for b in daemon.blocks(new.pid, "physical") if hal_address(b) == address]
    equal(len(own), 1, "blocks of one call: old and new probes must not both count")
    events = daemon.events("--pid", str(new.pid))
    new.mark()
    events.until_mark(new.pid, 1)
    address = new.malloc(MIB)
    new.mark()
    group = [e for e in events.until_mark(new.pid, 1) if hal_address(e) == address]
    equal(len(group), 1, "events of one call")


def moved_by_a_byte(path):
    """Another build of the fake library: aclrtFree is `mov $0, %eax; ret`, and begins a byte earlier than it did."""
    address = int(re.search(r"^([0-9a-f]+) T aclrtFree$", subprocess.run(
        ["nm", "-D", path], capture_output=True, text=True, check=True).stdout, re.M)[1], 16)
    with open(path, "rb") as f:
        data = f.read()
    value = struct.pack("<Q", address)
    entry = rb"(\x12\0..)" + re.escape(value)  # a global function of some section
    data, entries = re.subn(entry, lambda found: found[1] + struct.pack("<Q", address - 1), data, flags=re.S)
    equal(entries, 2, "entries of aclrtFree: in .dynsym and .symtab")
    code = b"\xb8\0\0\0\0\xc3"
    return data[:address - 1] + code + data[address - 1 + len(code):]  # linked where it lies in the file


def overwrite(path, data):
    with open(path, "r+b") as f:
        f.truncate(0)
        f.write(data)


def overwritten_by_another_build(scratch, daemon, path, write=overwrite):
    """The library at path, whose probes are in, becomes another build. Returns a process that mapped it then, which
    runs as if nobody watched: no breakpoint of the old build is in the middle of its instructions."""
    old = Holder(scratch, path)
    daemon.wait_target(old.pid, "physical")
    equal(old.ask("f 4096"), ["0"], "aclrtFree of the old build")
    old.end()
    write(path, moved_by_a_byte(path))
    new = wait_for(lambda: (one := Holder(scratch, path)).ask("f 4096") == ["0"] and one, 5, "the old build's probes are out")
    daemon.wait_target(new.pid, "physical")
    equal(new.ask("f 4096"), ["0"], "aclrtFree of the new build, observed")
    address = new.malloc(MIB)
    check(any(hal_address(b) == address for b in daemon.blocks(new.pid, "physical")), "a call of the new build is not seen")
    return new


def test_in_place_moved(scratch, links):
    """A breakpoint belongs to a place in a file: those of the old build must be out when the new one runs."""
    if os.uname().machine == "x86_64":
        overwritten_by_another_build(scratch, scratch.daemon(links=links), fake_lib(scratch))


test_in_place_moved.variants = [("multi",), ("perf",), ("perf-legacy",)]


def test_in_place_unseen(scratch):
    """Written through a mapping, which the kernel tells nobody of: the next process that is attached to shows it."""
    def write(path, data):
        with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
            m[:] = data
            m.flush()
    if os.uname().machine == "x86_64":
        daemon = scratch.daemon()
        overwritten_by_another_build(scratch, daemon, fake_lib(scratch), write)
        check("probes were taken out" in daemon.text(), "the log does not say it", daemon.text())


def test_touched(scratch):
    """A new time is not a new content: probes stay, and each call counts once."""
    path = fake_lib(scratch)
    daemon = scratch.daemon()
    old = Holder(scratch, path)
    daemon.wait_target(old.pid, "physical")
    os.utime(path)
    new = Holder(scratch, path)
    for holder in (new, old):
        daemon.wait_target(holder.pid, "physical")
        address = holder.malloc(MIB)
        equal(len([b for b in daemon.blocks(holder.pid, "physical") if hal_address(b) == address]), 1, "blocks of a call")


def test_in_place_used(scratch):
    """The process that still runs the old build is not seen any more, and that is said with the reason."""
    path = fake_lib(scratch)
    daemon = scratch.daemon()
    old = Holder(scratch, path)
    daemon.wait_target(old.pid, "physical")
    with open(path, "rb") as f:
        data = f.read()
    overwrite(path, data)
    target = wait_for(lambda: (t := daemon.target(old.pid))["level"] == "none" and t, 5, "its probes are out")
    check("overwritten in place" in target["reason"], "no reason", target)
    equal(old.ask("f 4096"), ["0"], "the old process goes on")


def test_stripped(scratch):
    """Without section headers and symbol table the dynamic symbols are found through the segments."""
    libs = private_libs(scratch)
    for name in os.listdir(libs):
        path = os.path.join(libs, name)
        subprocess.run(["strip", "--strip-all", path], check=True)
        with open(path, "r+b") as f:
            f.seek(0x28)
            f.write(struct.pack("<Q", 0))  # e_shoff
            f.seek(0x3c)
            f.write(struct.pack("<HH", 0, 0))  # e_shnum, e_shstrndx
    daemon = scratch.daemon()
    holder = Holder(scratch, os.path.join(libs, "libascendcl.so"))
    daemon.wait_target(holder.pid, "physical")
    exact(scratch, daemon, holder, "stripped library")


def bad_file(scratch, name, change):
    libs = private_libs(scratch, name=f"bad-{name}")
    path = os.path.join(libs, "libascendcl.so")
    with open(path, "rb") as f:
        data = bytearray(f.read())
    with open(path, "wb") as f:
        f.write(change(data))
    return path


def patched(at, fmt, value):
    def change(data):
        struct.pack_into(fmt, data, at, value)
        return data
    return change


BAD = {
    "machine": (patched(0x12, "<H", 183 if os.uname().machine == "x86_64" else 62), "machine"),
    "bits": (patched(0x04, "<B", 1), ""),
    "truncated": (lambda data: data[:len(data) // 3], ""),
    "head": (lambda data: data[:40], ""),
    "empty": (lambda data: b"", ""),
    "text": (lambda data: b"#!/bin/sh\nnot a library\n" * 500, ""),
    "headers": (patched(0x20, "<Q", 2**63 - 1), ""),
    "count": (patched(0x38, "<H", 0xffff), ""),
}


def test_bad_file(scratch):
    """Files that are no libraries: each has its reason in status, and the daemon lives on."""
    daemon = scratch.daemon()
    agents = {}
    for name, (change, _) in BAD.items():
        path = bad_file(scratch, name, change)
        agent = scratch.agent(libs=(), device=None)
        size = max(os.path.getsize(path), 1)
        agent(f"""
import mmap
with open({path!r}, 'rb') as f:
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    keep = libc.mmap(None, {size}, 5, 2, f.fileno(), ctypes.c_long(0))
""")
        agents[name] = agent
    for name, agent in agents.items():
        target = daemon.wait_target(agent.pid)
        equal(target["level"], "none", f"{name}: level")
        check(target["reason"] and len(target["reason"]) > 10, f"{name}: no reason", target)
        check(BAD[name][1] in target["reason"], f"{name}: reason does not say why", target["reason"])
    good = scratch.agent()
    daemon.wait_target(good.pid, "physical")


def test_no_functions(scratch):
    """A library of the right name with none of the functions: said so, nothing attached."""
    os.mkdir(scratch.path("none"))
    path = scratch.path("none", "libruntime.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input="int nothing(void);int nothing(void) { return 1; }\n",
                   text=True, check=True)
    daemon = scratch.daemon()
    agent = scratch.agent(libs=(path,), device=None, layout=None)
    target = daemon.wait_target(agent.pid)
    equal(target["level"], "none", "level")
    check("no CANN library" in target["reason"], "reason", target)


def test_unmount(scratch, links):
    """What nobody maps any more is let go after a while (here a second): its file system can be unmounted."""
    where = scratch.path("mounted")
    os.mkdir(where)
    subprocess.run(["mount", "-t", "tmpfs", "none", where], check=True)
    scratch.at_end(lambda: subprocess.run(["umount", "-l", where], stderr=subprocess.DEVNULL))
    path = shutil.copy(fake_lib(scratch), where)
    daemon = scratch.daemon(links=links, sets=("probes.keep_unused=1s",))
    holder = Holder(scratch, path)
    daemon.wait_target(holder.pid, "physical")
    check(subprocess.run(["umount", where], stderr=subprocess.DEVNULL).returncode != 0, "unmounted under a process that maps it")
    holder.end()
    wait_for(lambda: subprocess.run(["umount", where], stderr=subprocess.DEVNULL).returncode == 0, 10, "unmounted")


test_unmount.variants = [("multi",), ("perf",)]
