# SPDX-License-Identifier: Apache-2.0
"""The verbs from end to end, and the fields that scripts may rely on."""
import csv
import io
import json
import os
import subprocess

from harness import MIB, ROOT, check, equal, program, wait_for

HEADER = {"schema_version", "complete", "lost_events", "time_ns", "host"}
RANK = {"tgid", "start_time_ns", "comm", "title", "rank", "rank_source", "world_size", "device", "physical_device",
        "container", "physical_bytes", "reserved_bytes", "allocated_bytes", "active_bytes", "before_attach_bytes",
        "peak_bytes", "coverage"}
BLOCK = {"tgid", "rank", "device", "address", "size_bytes", "owner", "stream", "level", "allocated_ns", "age_ns",
         "last_access_ns", "frames", "caller"}


def has(document, fields, what):
    missing = fields - set(document)
    check(not missing, f"{what}: fields are missing", sorted(missing))


def test_promised_fields(scratch):
    """Every field of the JSON documents that scripts rely on is there, with the right type."""
    daemon = scratch.daemon()
    agent = scratch.agent()
    daemon.wait_target(agent.pid, "physical")
    agent("p = malloc(5 << 20)")
    status = daemon.status()
    has(status, HEADER | {"daemon", "kernel", "probes", "targets", "events", "store"}, "status")
    has(status["daemon"], {"version", "uptime_ns", "rss_bytes", "cpu_ns"}, "status.daemon")
    has(status["probes"][0], {"library", "symbol", "kind", "state", "hits", "cost_ns"}, "status.probes")
    has(status["targets"][0], {"tgid", "state", "level", "coverage", "overhead_ratio"}, "status.targets")
    has(status["events"], {"received", "lost", "decode_errors", "unmatched_frees"}, "status.events")
    has(status["store"], {"bytes", "oldest_ns"}, "status.store")
    for verb in ("ps", "breakdown"):
        document = daemon.json(verb, "--pid", str(agent.pid))
        has(document, HEADER | {"ranks"}, verb)
        has(document["ranks"][0], RANK, f"{verb}.ranks")
        row = document["ranks"][0]
        check(isinstance(row["physical_bytes"], int) and row["physical_bytes"] >= 5 * MIB, "physical_bytes", row)
    has(document["ranks"][0], {"owners", "gaps"}, "breakdown.ranks")
    has(document["ranks"][0]["owners"][0], {"owner", "level", "bytes", "blocks", "inferred"}, "owners")
    has({g["name"]: 0 for g in document["ranks"][0]["gaps"]},
        {"pool_slack", "stream_delayed", "before_attach", "driver_side", "lost"}, "gaps by name")
    has(document, {"devices"}, "breakdown")
    has(document["devices"][0], {"device", "total_bytes", "used_bytes", "attributed_bytes", "other_processes_bytes",
                                 "unattributed_bytes", "balanced"}, "breakdown.devices")
    document = daemon.json("ls", "--pid", str(agent.pid))
    has(document, HEADER | {"blocks"}, "ls")
    has(document["blocks"][0], BLOCK, "ls.blocks")


def test_formats(scratch):
    """Table, JSON lines and CSV say the same as JSON."""
    daemon = scratch.daemon()
    agent = scratch.agent()
    daemon.wait_target(agent.pid, "physical")
    agent("held = [malloc((i + 1) << 20, 1) for i in range(5)]")
    pid = str(agent.pid)
    blocks = daemon.json("ls", "--pid", pid, "--level", "physical")["blocks"]
    sizes = sorted(b["size_bytes"] for b in blocks)
    check(len(sizes) >= 5, "blocks", blocks)
    lines = [json.loads(line) for line in daemon.cli("ls", "--pid", pid, "--level", "physical", "-o", "jsonl").stdout.splitlines()]
    equal(sorted(b["size_bytes"] for b in lines if "size_bytes" in b), sizes, "sizes in JSON lines")
    rows = list(csv.DictReader(io.StringIO(daemon.cli("ls", "--pid", pid, "--level", "physical", "-o", "csv",
                                                      "--fields", "tgid,size_bytes").stdout)))
    equal(sorted(int(r["size_bytes"]) for r in rows), sizes, "sizes in CSV")
    equal({r["tgid"] for r in rows}, {pid}, "tgid in CSV")
    table = daemon.cli("ls", "--pid", pid, "--level", "physical", "--units", "MiB", "--no-header").stdout
    check("5.00 MiB" in table or "5 MiB" in table or "5.0 MiB" in table, "the table", table)


def test_filters(scratch):
    """--pid, --device, --min-size and --limit select; a wrong pid is an error, not an empty answer."""
    daemon = scratch.daemon()
    one, two = scratch.agent(device=0), scratch.agent(device=3)
    for a in (one, two):
        daemon.wait_target(a.pid, "physical")
        a("held = [malloc((i + 1) << 20, 1) for i in range(8)]")
    document = daemon.json("ls", "--device", "3", "--pid", str(one.pid), "--pid", str(two.pid))
    equal({b["tgid"] for b in document["blocks"]}, {two.pid}, "--device")
    document = daemon.json("ls", "--pid", str(one.pid), "--min-size", "7MiB", "--level", "physical")
    equal(sorted(b["size_bytes"] for b in document["blocks"]), [7 * MIB, 8 * MIB], "--min-size")
    document = daemon.json("ls", "--pid", str(one.pid), "--limit", "2", "--level", "physical")
    equal([b["size_bytes"] for b in document["blocks"]], [8 * MIB, 7 * MIB], "--limit, largest first")
    equal(document["truncated"], True, "truncated")
    out = daemon.cli("ps", "--pid", "4194303", expect=4)
    check("4194303" in out.stderr and "try:" in out.stderr, "error for a pid that is not observed", out.stderr)


def test_demo(scratch):
    """npumem demo shows the breakdown of the simulated server's ranks."""
    daemon = scratch.daemon()
    program("sim/npusim-run")
    out = daemon.cli("demo", os.path.join(ROOT, "sim/scenarios/demo.sim"), "-o", "json", expect=None, timeout=120,
                     env=scratch.environment())
    equal(out.returncode, 0, f"exit code ({out.stderr.strip()})")
    ranks = [r for r in json.loads(out.stdout)["ranks"] if r["rank"] is not None]
    check(len({r["rank"] for r in ranks}) >= 2, "ranks of the demo", out.stdout[:500])


def test_watch_and_events(scratch):
    """events --limit ends by itself; a closed pipe ends quietly."""
    daemon = scratch.daemon()
    agent = scratch.agent()
    daemon.wait_target(agent.pid, "physical")
    p = subprocess.Popen([program("npumem"), "--socket", daemon.socket, "events", "--pid", str(agent.pid), "--limit", "3",
                          "-o", "jsonl"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    scratch.at_end(p.kill)

    def fed():
        agent("free(malloc(4096))")
        daemon.status()
        return p.poll() is not None
    wait_for(fed, 10, "events --limit 3 ends")
    out, err = p.communicate()
    equal((p.returncode, len(out.splitlines())), (0, 3), f"exit code and events ({err})")
    shell = subprocess.run(f"{program('npumem')} --socket {daemon.socket} status -v | head -1", shell=True,
                           capture_output=True, text=True)
    equal(shell.stderr, "", "messages after a closed pipe")
