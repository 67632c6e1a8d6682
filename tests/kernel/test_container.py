# SPDX-License-Identifier: Apache-2.0
"""Containers: namespaces with a root of their own, and two overlay mounts of one image."""
import os
import re
import shutil
import subprocess

from harness import LAYOUTS, MIB, Holder, Skip, check, equal, fake_lib, hal_address, lib_dir, private_libs, process_used, program, wait_for
from test_library import overwritten_by_another_build


def needed_files(binary):
    out = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(/[^\s()]+)", out)


def build_root(scratch, layout):
    """A minimal root: the holder, the loader, libc and the simulated libraries in /opt/cann/lib."""
    root = scratch.path("image")
    binary = program("tests/kernel/holder")
    for source in {*needed_files(binary), *(f for lib in os.listdir(lib_dir(layout))
                                            for f in needed_files(os.path.join(lib_dir(layout), lib)) if "/cann-" not in f)}:
        target = root + source
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.exists(target):
            shutil.copy(source, target)
    shutil.copytree(lib_dir(layout), root + "/opt/cann/lib")
    os.makedirs(root + "/usr/bin", exist_ok=True)
    shutil.copy(binary, root + "/usr/bin/holder")
    for d in ("/proc", "/tmp", "/node"):
        os.makedirs(root + d, exist_ok=True)
    return root


def mount(scratch, *arguments):
    out = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if out.returncode:
        raise Skip("mount: " + out.stderr.strip())
    scratch.at_end(subprocess.run, ["umount", "-l", arguments[-1]])
    return arguments[-1]


class Container:
    """holder in a mount namespace, chroot and pid namespace; pid is the one outside."""

    def __init__(self, scratch, root, library, node):
        mount(scratch, "--bind", node, root + "/node")
        self.holder = Holder(scratch, library, binary="/usr/bin/holder", env={"NPUSIM_DIR": "/node"},
                             prefix=["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private",
                                     "chroot", root])
        children = open(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read().split()
        equal(len(children), 1, "children of unshare")
        self.pid = int(children[0])

    def malloc(self, size):
        return self.holder.malloc(size)


def one_event_each(scratch, daemon, container, where):
    events = daemon.events("--pid", str(container.pid))
    container.holder.mark()
    events.until_mark(container.pid, 1)
    addresses = [container.malloc((i + 1) * MIB) for i in range(5)]
    container.holder.mark()
    group = [e for e in events.until_mark(container.pid, 1) if e["kind"] == "alloc"]
    equal([hal_address(e) for e in group], addresses, f"{where}: one event per call")
    equal([e["requested_bytes"] for e in group], [(i + 1) * MIB for i in range(5)], f"{where}: sizes")
    events.close()
    blocks = {hal_address(b) for b in daemon.blocks(container.pid, "physical")}
    check(set(addresses) <= blocks, f"{where}: blocks are missing")


def test_namespaces(scratch, layout, links, late):
    """Mount namespace, chroot and pid namespace: attached through the process's own root, exactly."""
    root = build_root(scratch, layout)
    library = "/opt/cann/lib/" + ("libascendcl.so" if layout == "8.1" else "libacl_rt.so")
    daemon = None if late == "late" else scratch.daemon(links=links)
    container = Container(scratch, root, library, scratch.node)
    equal(container.holder.inner_pid != container.pid, True, "the process has a pid namespace of its own")
    daemon = daemon or scratch.daemon(links=links)
    daemon.wait_target(container.pid, "physical")
    one_event_each(scratch, daemon, container, "container")
    pid = container.pid
    container.holder.process.stdin.close()
    container.holder.process.wait(10)
    wait_for(lambda: not daemon.target(pid), 5, "the container is gone")


test_namespaces.variants = [(layout, "multi", "early") for layout in LAYOUTS] + \
    [("8.5", "multi", "late"), ("8.1", "perf", "late"), ("9.2", "perf-legacy", "late")]


def test_overlay_twice(scratch, links, order):
    """Two containers of one image share the files under two overlay mounts: every call counts once."""
    image = build_root(scratch, "8.5")
    roots = []
    for name in ("one", "two"):
        for part in ("upper", "work", "merged"):
            os.makedirs(scratch.path(name, part))
        roots.append(mount(scratch, "-t", "overlay", "overlay", "-o",
                           f"lowerdir={image},upperdir={scratch.path(name, 'upper')},workdir={scratch.path(name, 'work')}",
                           scratch.path(name, "merged")))
    library = "/opt/cann/lib/libacl_rt.so"
    daemon = scratch.daemon(links=links) if order == "early" else None
    containers = [Container(scratch, root, library, scratch.node) for root in roots]
    daemon = daemon or scratch.daemon(links=links)
    for c in containers:
        daemon.wait_target(c.pid, "physical")
    for i, c in enumerate(containers):
        one_event_each(scratch, daemon, c, f"container {i}")
    # and a process of the host that maps the lower files themselves
    host = Holder(scratch, image + library)
    daemon.wait_target(host.pid, "physical")
    address = host.malloc(MIB)
    equal(len([b for b in daemon.blocks(host.pid, "physical") if hal_address(b) == address]), 1, "blocks of a call on the host")
    for i, c in enumerate(containers):
        one_event_each(scratch, daemon, c, f"container {i}, again")
    # a second link would be counted once for C functions as well, but not for entry-only probes
    aliases = [line for line in daemon.text().splitlines() if "through another mount" in line and "/opt/cann/lib/" in line]
    check(len(aliases) >= 2, "the files were linked again through the second mount", daemon.text()[-1500:])


test_overlay_twice.variants = [("multi", "early"), ("multi", "late"), ("perf", "late")]


def test_overlay_blocks(scratch, order):
    """Block events, which have an entry probe alone: through two mounts of one image, each once."""
    import test_block
    lower = scratch.path("lower")
    os.mkdir(lower)
    shutil.copytree(os.path.dirname(program("sim/torch-stripped/libtorch_npu.so")), lower + "/torch")
    mounts = []
    for name in ("one", "two"):
        for part in ("upper", "work", "merged"):
            os.makedirs(scratch.path(name, part))
        mounts.append(mount(scratch, "-t", "overlay", "overlay", "-o",
                            f"lowerdir={lower},upperdir={scratch.path(name, 'upper')},workdir={scratch.path(name, 'work')}",
                            scratch.path(name, "merged")))
    # with Python frames a first small block is followed until its frames have names
    sets = ("probes.python_frames=no",)
    daemon = scratch.daemon(sets=sets) if order == "early" else None
    agents = [scratch.agent("8.1", libs=("libascendcl.so", m + "/torch/libtorch_npu.so"), log=False) for m in mounts]
    daemon = daemon or scratch.daemon(sets=sets)
    for a in agents:
        daemon.wait_target(a.pid, "blocks")
        a(test_block.PREPARE)
    events = daemon.events("--pid", str(agents[0].pid), "--pid", str(agents[1].pid))
    for i, a in enumerate(agents):
        a("blocks = [tensor(3 << 20) for i in range(7)] + [tensor(5000) for i in range(9)]")
        row = test_block.totals_equal(daemon, a, f"process {i}")
        owners = {o["owner"]: o["bytes"] for o in row["owners"] if o["level"] == "allocated"}
        small = a("out = sum(size_of(b) for b in blocks if size_of(b) < 1 << 20)")
        equal(owners["PTA@small"], small, f"process {i}: blocks below the threshold")
        a("mark()")
        group = events.until_mark(a.pid)
        equal(len([e for e in group if e["kind"] == "block"]), 7, f"process {i}: block events")


test_overlay_blocks.variants = [("early",), ("late",)]


def test_copied_up(scratch):
    """A file that one container has changed is a file of its own."""
    image = build_root(scratch, "8.1")
    roots = []
    for name in ("one", "two"):
        for part in ("upper", "work", "merged"):
            os.makedirs(scratch.path(name, part))
        roots.append(mount(scratch, "-t", "overlay", "overlay", "-o",
                           f"lowerdir={image},upperdir={scratch.path(name, 'upper')},workdir={scratch.path(name, 'work')}",
                           scratch.path(name, "merged")))
    for name in ("libascendcl.so", "libascend_hal.so"):
        with open(roots[1] + "/opt/cann/lib/" + name, "ab") as f:
            f.write(b"\0")
    daemon = scratch.daemon()
    for i, root in enumerate(roots):
        c = Container(scratch, root, "/opt/cann/lib/libascendcl.so", scratch.node)
        daemon.wait_target(c.pid, "physical")
        one_event_each(scratch, daemon, c, f"container {i}")


def test_overwritten_in_container(scratch):
    """The same as library.in_place_moved through an overlay mount: of a file that is in its upper directory."""
    if os.uname().machine != "x86_64":
        return
    for part in ("lower", "upper", "work", "merged"):
        os.makedirs(scratch.path(part))
    shutil.copy(fake_lib(scratch), scratch.path("lower"))
    merged = mount(scratch, "-t", "overlay", "overlay", "-o", f"lowerdir={scratch.path('lower')},"
                   f"upperdir={scratch.path('upper')},workdir={scratch.path('work')}", scratch.path("merged"))
    path = os.path.join(merged, "libacl_rt.so")
    with open(path, "ab") as f:
        f.write(b"\0")  # copied up
    overwritten_by_another_build(scratch, scratch.daemon(), path)
