# SPDX-License-Identifier: Apache-2.0
"""Starting with too few privileges, on a kernel that lacks something, or where another already runs."""
import concurrent.futures
import glob
import os
import shutil
import subprocess

from harness import MIB, Holder, Skip, check, equal, fake_lib, lib_dir, process_used, program, wait_for

NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


def refused(scratch, expect=1, seconds=30, **options):
    """A daemon that must end by itself: its log."""
    daemon = scratch.daemon(start=False, **options)
    code = daemon.spawn().wait(seconds)
    text = daemon.text()
    equal(code, expect, f"exit code of npumemd\n{text}")
    lines = [line for line in text.splitlines() if " error: " in line]
    check(lines, "no error was logged", text)
    return lines[-1]


def open_up(scratch):
    for d in (scratch.dir, scratch.node):
        os.chmod(d, 0o755)


def test_no_root(scratch):
    """Without root: says what it needs, and how to get it."""
    open_up(scratch)
    daemon = scratch.daemon(start=False, prefix=NOBODY)
    for d in (daemon.run_dir, daemon.state_dir, daemon.config_dir):
        os.chown(d, 65534, 65534)
    program_dir = scratch.path("bin")
    os.mkdir(program_dir)
    daemon.command[len(NOBODY)] = shutil.copy(program("npumemd"), program_dir)
    code = daemon.spawn().wait(20)
    equal(code, 1, "exit code")
    check("CAP_BPF" in daemon.text() and "root" in daemon.text(), "no clear error", daemon.text())
    check("ermi" in daemon.text(), "the error does not name the permission", daemon.text())


def test_missing_capability(scratch):
    """Root without CAP_BPF and CAP_SYS_ADMIN, as in a container: the same clear error."""
    line = refused(scratch, prefix=["setpriv", "--bounding-set", "-sys_admin,-bpf,-perfmon", "--inh-caps",
                                    "-sys_admin,-bpf,-perfmon"])
    check("CAP_BPF" in line, "no clear error", line)


def test_directories(scratch):
    """A runtime directory that cannot be made."""
    with open(scratch.path("file"), "w"):
        pass
    out = subprocess.run([program("npumemd"), "--runtime-dir", scratch.path("file", "run"), "--state-dir", scratch.path("state")],
                         capture_output=True, text=True, timeout=20)
    equal(out.returncode, 1, "exit code")
    check(scratch.path("file", "run") in out.stderr, "the error does not name the directory", out.stderr)


def test_bad_options(scratch):
    """Unknown options, settings and values end with 2 and say what was wrong."""
    for arguments, word in ((["--nonsense"], "try"), (["--links", "ftrace"], "mode"), (["extra"], "arguments"),
                            (["--set", "probes.ring_bytes=7"], "ring_bytes"), (["--set", "no.such=1"], "no.such"),
                            (["--set", "store.max_age=never"], "max_age")):
        out = subprocess.run([program("npumemd"), "--runtime-dir", scratch.path("r"), "--state-dir", scratch.path("s"),
                              "--config-dir", scratch.path("c"), *arguments], capture_output=True, text=True, timeout=20)
        equal(out.returncode, 2, f"{arguments}: exit code ({out.stderr.strip()})")
        check(word in out.stderr, f"{arguments}: the error does not say {word}", out.stderr)


def test_bad_configuration(scratch):
    """A configuration file that cannot be read as one: file and line are named, nothing is started."""
    os.makedirs(scratch.path("etc"))
    for content, word in (("[probes]\nring_bytes = lots\n", "npumemd.conf:2"), ("[probes\n", "npumemd.conf:1"),
                          ("[probes]\nno_such_key = 1\n", "no_such_key"), ("key = 1\n", "npumemd.conf:1")):
        with open(scratch.path("etc", "npumemd.conf"), "w") as f:
            f.write(content)
        out = subprocess.run([program("npumemd"), "--runtime-dir", scratch.path("r"), "--state-dir", scratch.path("s"),
                              "--config-dir", scratch.path("etc")], capture_output=True, text=True, timeout=20)
        equal(out.returncode, 2, f"{content!r}: exit code ({out.stderr.strip()})")
        check(word in out.stderr, f"{content!r}: the error does not say {word}", out.stderr)


def faulty(*rules):
    """A prefix that makes system calls fail as they would on another kernel."""
    if not shutil.which("strace"):
        raise Skip("strace is not installed: system calls cannot be made to fail")
    # -f would follow the threads that close links; the calls of interest are of the first
    # -D: strace is the detached one, the child of this test is npumemd
    return ["strace", "-D", "-qq", "-o", "/dev/null", *[a for rule in rules for a in ("-e", rule)]]


def test_kernel_without_bpf(scratch):
    """A kernel built without bpf(2)."""
    line = refused(scratch, prefix=faulty("inject=bpf:error=ENOSYS"))
    check("kernel" in line and "try:" in line, "no clear error", line)


def test_kernel_without_ring_buffer(scratch):
    """A kernel before 5.8 refuses the map type."""
    line = refused(scratch, prefix=faulty("inject=bpf:error=EINVAL"))
    check("ring buffer" in line and "5.8" in line, "no clear error", line)


def bpf_calls(scratch, **options):
    """The calls of bpf(2) of a daemon that starts, in their order."""
    trace = scratch.path("trace")
    prefix = faulty("trace=bpf")
    prefix[prefix.index("/dev/null")] = trace
    scratch.daemon(prefix=prefix, **options).stop()
    with open(trace, encoding="utf-8", errors="replace") as f:
        return f.read().splitlines()


def test_kernel_without_multi(scratch):
    """A kernel before 6.6, which knows no uprobe_multi links: one that must have them does not start, another does without."""
    calls = bpf_calls(scratch, links="multi")
    at = next(i for i, call in enumerate(calls, 1) if call.startswith("bpf(BPF_LINK_CREATE,"))
    check("EBADF" in calls[at - 1], "the daemon asks whether there are such links before it makes one", calls[at - 1])
    prefix = faulty(f"inject=bpf:error=EINVAL:when={at}")
    line = refused(scratch, links="multi", prefix=prefix)
    check("uprobe_multi" in line and "try: --links auto" in line, "no clear error", line)
    daemon = scratch.daemon(prefix=prefix, sets=("daemon.discovery=no",))
    check(": perf links" in daemon.text(), "auto takes perf links", daemon.text())


def test_kernel_that_kills(scratch):
    """A kernel whose return probes kill processes under seccomp, which stands here for by a child that cannot end as it
    should: the daemon does not start, but where that is asked for."""
    prefix = faulty("inject=exit_group:error=EPERM:when=1") + ["-f"]
    line = refused(scratch, prefix=prefix)
    check("seccomp" in line and "try: Linux 6.12.14" in line, "no clear error", line)
    daemon = scratch.daemon(prefix=prefix, sets=("probes.allow_seccomp_risk=yes", "daemon.discovery=no"))
    equal(daemon.status()["targets"], [], "it runs")


def scan_runs(tgid):
    """Whether a child of some daemon scans the process, and not for the pool of KV blocks alone (SCAN_POOL)."""
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if b"--scan" in words and str(tgid).encode() in words and b"p" not in words:
            return True
    return False


def test_scan_anew(scratch):
    """Who asks while a scan runs is not answered by that one: it began before what is asked about may have happened."""
    daemon = scratch.daemon(prefix=faulty("inject=exit_group:delay_enter=700000") + ["-f"])  # no scan ends sooner
    agent = scratch.agent()
    daemon.wait_target(agent.pid, "physical")
    ended = f"process {agent.pid}: read "
    wait_for(lambda: ended in daemon.text(), 10, "the scan at attach")
    before = daemon.text().count(ended)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = pool.submit(daemon.cli, "scan", str(agent.pid), expect=None)
        wait_for(lambda: scan_runs(agent.pid), 10, "the first scan")
        second = pool.submit(daemon.cli, "scan", str(agent.pid), expect=None)
        first.result()
        equal(daemon.text().count(ended), before + 1, "scans when the first was answered")
        second.result()
    equal(daemon.text().count(ended), before + 2, "scans when the second was answered")


def test_no_inotify(scratch):
    """Where other programs have all instances of inotify: the daemon starts, says it, and keeps no probe that nobody needs."""
    daemon = scratch.daemon(prefix=faulty("inject=inotify_init1:error=EMFILE"))
    check("fs.inotify.max_user_instances" in daemon.text(), "no warning with a way out", daemon.text())
    path = fake_lib(scratch)
    holder = Holder(scratch, path)
    daemon.wait_target(holder.pid, "physical")
    holder.end()
    wait_for(lambda: not [p for p in daemon.status()["probes"] if p["library"] == path], 5, "the probes are out")


def test_kernel_without_uprobes(scratch):
    """A kernel without uprobes: the daemon runs, status says that nothing could be attached and why."""
    if not os.path.exists("/sys/bus/event_source/devices/uprobe/type"):
        raise Skip("this kernel has no uprobes at all: that is what the other tests would say")
    prefix = faulty("inject=openat:error=ENOENT") + ["-P", "/sys/bus/event_source/devices/uprobe/type"]
    daemon = scratch.daemon(links="perf", prefix=prefix)
    agent = scratch.agent()
    daemon.cli("attach", str(agent.pid), expect=None)
    target = wait_for(lambda: daemon.target(agent.pid), 10, "the process is known")
    equal(target["level"], "none", "level")
    check(target["reason"] and "uprobe" in target["reason"], "the reason", target)


def test_socket_in_use(scratch):
    """A second daemon on the same socket is refused; the first goes on undisturbed."""
    daemon = scratch.daemon()
    agent = scratch.agent()
    daemon.wait_target(agent.pid, "physical")
    agent("p = malloc(5 << 20)")
    line = refused(scratch)
    check("control.sock" in line or "already" in line, "no clear error", line)
    equal(daemon.rank(agent.pid, 0)["physical_bytes"], sum(process_used(scratch, agent.pid).values()), "bytes of the first daemon")


def test_stale_socket(scratch):
    """The socket of a daemon that was killed is in nobody's way."""
    daemon = scratch.daemon()
    daemon.process.kill()
    daemon.process.wait(30)
    check(os.path.exists(daemon.socket), "the socket went with the daemon")
    scratch.daemon().status()


def test_socket_path_too_long(scratch):
    """A path that does not fit into a socket address."""
    deep = scratch.path("d" * 60, "e" * 60)
    os.makedirs(deep)
    out = subprocess.run([program("npumemd"), "--runtime-dir", deep, "--state-dir", scratch.path("state")],
                         capture_output=True, text=True, timeout=20)
    equal(out.returncode, 1, "exit code")
    check("longer" in out.stderr, "no clear error", out.stderr)


def test_pid_of_nobody(scratch):
    """attach to a pid that does not exist, to a kernel thread, to the daemon itself."""
    daemon = scratch.daemon()
    out = daemon.cli("attach", "4194303", expect=4)
    check("4194303" in out.stderr, "the error does not name the pid", out.stderr)
    daemon.cli("detach", "4194303", expect=4)
    out = daemon.cli("attach", str(daemon.pid), "-o", "json", expect=None)
    check(out.returncode in (0, 1, 4), "attach to a process without CANN", out.stderr)
    daemon.status()


def test_process_of_another_user(scratch):
    """A process of another user is observed like any other; that user may not ask the daemon."""
    open_up(scratch)
    os.chmod(scratch.node, 0o777)
    daemon = scratch.daemon()
    shutil.copytree(lib_dir("8.1"), scratch.path("lib"))
    binary = shutil.copy(program("tests/kernel/holder"), scratch.path("holder"))
    holder = Holder(scratch, scratch.path("lib", "libascendcl.so"), prefix=NOBODY, binary=binary)
    daemon.wait_target(holder.pid, "physical")
    holder.malloc(9 * MIB)
    equal(daemon.rank(holder.pid, 0)["physical_bytes"], sum(process_used(scratch, holder.pid).values()), "bytes")
    client = shutil.copy(program("npumem"), scratch.path("npumem"))
    os.chmod(scratch.path("run"), 0o755)
    for verb in (["ps"], ["attach", str(holder.pid)]):
        out = subprocess.run([*NOBODY, client, "--socket", daemon.socket, *verb], capture_output=True, text=True, timeout=20)
        equal(out.returncode, 5, f"{verb}: exit code ({out.stderr.strip()})")
        check("try:" in out.stderr and "npumem" in out.stderr.split("npumem:", 1)[1], f"{verb}: no way out is named", out.stderr)


def test_group_members(scratch):
    """Members of the group read; only root attaches and detaches."""
    open_up(scratch)
    daemon = scratch.daemon(sets=["control.socket_group=daemon"])
    os.chmod(scratch.path("run"), 0o755)
    agent = scratch.agent()
    daemon.wait_target(agent.pid, "physical")
    client = shutil.copy(program("npumem"), scratch.path("npumem"))
    member = ["setpriv", "--reuid", "65534", "--regid", "65534", "--groups", "daemon", client, "--socket", daemon.socket]
    equal(subprocess.run([*member, "ps"], capture_output=True, timeout=20).returncode, 0, "ps by a member")
    for verb in ("attach", "detach"):
        out = subprocess.run([*member, verb, str(agent.pid)], capture_output=True, text=True, timeout=20)
        equal(out.returncode, 5, f"{verb} by a member: exit code ({out.stderr.strip()})")
    mode = os.stat(daemon.socket).st_mode & 0o777
    equal(oct(mode), oct(0o660), "mode of the socket")
