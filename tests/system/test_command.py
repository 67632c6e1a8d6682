# SPDX-License-Identifier: Apache-2.0
"""Wrong command lines: exit code 2, one line that says what is wrong and what would be right."""
import subprocess

from harness import check, equal, program

WRONG = (
    ("stauts", "status"), ("ps --foo", "--foo"), ("ls --min-size 5XB", "5XB"), ("ls --min-size -1", "-1"), ("ps -w 3parsecs", "3parsecs"),
    ("ps --rank x", "x"), ("attach", "PID"), ("attach abc", "abc"), ("attach 0", "0"), ("attach 99999999999", "99999999999"),
    ("ps --units YB", "YB"), ("ls --level sky", "sky"), ("ps -o yaml", "yaml"), ("ls --limit many", "many"), ("help nonsense", "nonsense"),
    ("completion tcsh", "tcsh"), ("ps extra", "arguments"), ("ps --pid", "--pid"), ("--timeout soon ps", "soon"), ("ps --color pink", "pink"),
    ("ls --owner", "--owner"), ("events --limit -5", "-5"),
)


def npumem(*arguments):
    return subprocess.run([program("npumem"), *arguments], capture_output=True, text=True, timeout=30)


def test_usage(scratch):
    """Unknown verbs, options, units, times and numbers."""
    for line, word in WRONG:
        out = npumem(*line.split())
        equal(out.returncode, 2, f"npumem {line}: exit code ({out.stderr.strip()})")
        equal(out.stdout, "", f"npumem {line}: output")
        check(word in out.stderr and out.stderr.startswith("npumem: "), f"npumem {line}: the error does not name {word}", out.stderr)
        check("try:" in out.stderr, f"npumem {line}: no way out", out.stderr)
        equal(out.stderr.count("\n"), 1, f"npumem {line}: lines of the error")


def test_unknown_field(scratch):
    """--fields with a name that no row has."""
    daemon = scratch.daemon()
    agent = scratch.agent()
    daemon.wait_target(agent.pid, "physical")
    out = daemon.cli("ps", "--fields", "tgid,colour", expect=2)
    check("colour" in out.stderr, "the error does not name the field", out.stderr)


def test_no_daemon(scratch):
    """Without a daemon: exit code 3 and how to start it; check, help and version work."""
    socket = scratch.path("nobody.sock")
    for verb in ("status", "ps", "breakdown", "ls", "events"):
        out = npumem("--socket", socket, verb)
        equal(out.returncode, 3, f"{verb}: exit code ({out.stderr.strip()})")
        check("try:" in out.stderr and socket in out.stderr, f"{verb}: error", out.stderr)
    equal(npumem("--socket", socket, "help").returncode, 0, "help")
    equal(npumem("--socket", socket, "version").returncode, 0, "version")
    check(npumem("--socket", socket, "check").returncode in (0, 1), "check")


def test_daemon_that_does_not_answer(scratch):
    """A socket behind which nobody answers: --timeout ends the wait."""
    import socket
    path = scratch.path("deaf.sock")
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    s.listen(4)
    out = npumem("--socket", path, "--timeout", "500ms", "ps")
    equal(out.returncode, 1, f"exit code ({out.stderr.strip()})")
    check("answer" in out.stderr and "try:" in out.stderr, "error", out.stderr)


def test_check_without_privileges(scratch):
    """npumem check says line by line what is missing, without a daemon and without root."""
    import os
    import shutil
    os.chmod(scratch.dir, 0o755)
    client = shutil.copy(program("npumem"), scratch.path("npumem"))
    out = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", client, "check"],
                         capture_output=True, text=True, timeout=30)
    equal(out.returncode, 1, f"exit code ({out.stdout})")
    check("privileges" in out.stdout, "lines", out.stdout)
