# SPDX-License-Identifier: Apache-2.0
"""inefficient against a program that knows how it uses its memory: all that it planted, and nothing else."""
import json
import subprocess

from harness import PROGRAMS, CheckError, Daemon, Program, Scratch, Stops, wait_for

CONFIGURATIONS = {
    "queue": {},                                # operators are launched on a thread of their own
    "no queue": {"TASK_QUEUE_ENABLE": "0"},
    "expandable": {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"},
}
WINDOW_S = 24                                   # longer than the program takes to plant


def open_window(daemon, tgid, seconds):
    """The window's process, once it is counting."""
    before = daemon.log.read_text(errors="replace").count("window of accesses:")
    argv = [str(daemon.npumem), "--socket", str(daemon.socket), "inefficient", "--pid", str(tgid), "--for",
            f"{seconds}s", "--idle", "2s", "-o", "json"]
    asked = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: daemon.log.read_text(errors="replace").count("window of accesses:") > before, 20,
             "the window", lambda: asked.poll() is None)
    return asked


# What a block may be larger than its tensor: a rest that is not worth a block of its own is not split off.
SLACK_BYTES = (1 << 20) + 1024


def of_planted(finding, planted):
    return (int(finding["address"], 16) == planted["address"] and finding["kind"] == planted["kind"] and
            0 <= finding["size_bytes"] - planted["size"] <= SLACK_BYTES)


def check_findings(checks, name, document, planted, end):
    left = list(document["findings"])
    for p in planted:
        # an address is used by several, one after the other
        found = sorted((f for f in left if of_planted(f, p)), key=lambda f: f["size_bytes"])
        what = f"{name}: {p['kind']} of {p['size']} bytes"
        checks.true(f"{what}: found", found, "not there")
        if not found:
            continue
        f = found[0]
        left.remove(f)
        checks.equal(f"{what}: senses", f["senses"], p["senses"])
        if "time" in p["senses"]:
            checks.true(f"{what}: idle for {f['idle_ns'] / 1e9:.2f} s", 2.7e9 < f["idle_ns"] < end * 1e9,
                        f["idle_ns"])
    for f in left:
        checks.fail(f"{name}: not planted", json.dumps(f))
    checks.true(f"{name}: nothing but what was planted", not left)
    checks.equal(f"{name}: events lost", document["lost_events"], 0)
    checks.true(f"{name}: complete", document["complete"], document["hidden"])


def check_one(checks, node, binaries, name, settings, keep):
    with Scratch(keep) as scratch:
        directory = scratch.make("moments")
        with Daemon(binaries, scratch) as daemon, \
                Program(node, scratch, "planted", [PROGRAMS / "inefficient.py", directory], **settings) as program:
            stops = Stops(directory, [program])
            stops.wait(1, 180)
            daemon.wait_blocks([program.pid], 30)
            asked = open_window(daemon, program.pid, WINDOW_S)
            stops.release(1)
            planted = stops.wait(2, WINDOW_S + 20)[0]["planted"]
            out, err = asked.communicate(timeout=WINDOW_S + 20)
            if asked.returncode:
                raise CheckError(f"npumem inefficient: exit {asked.returncode}: {err}")
            check_findings(checks, f"inefficient {name}", json.loads(out), planted, WINDOW_S)
            stops.release(2)
            checks.equal(f"inefficient {name}: the program's exit code", program.finish(), 0)
            checks.equal(f"inefficient {name}: exit code of npumemd", daemon.stop(), 0)


def run(checks, node, binaries, keep=False, only=None):
    for name, settings in CONFIGURATIONS.items():
        if only and only not in name:
            continue
        try:
            check_one(checks, node, binaries, name, settings, keep)
        except CheckError as error:
            checks.fail(f"inefficient {name}", error)
