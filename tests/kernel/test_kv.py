# SPDX-License-Identifier: Apache-2.0
"""How full KV caches were: the schedulers of simulated servers, read by the daemon over time, through restarts."""
import os
import re
import time

from harness import ROOT, check, equal, wait_for

ENGINE = ("bash", "-c", 'exec -a VLLM::EngineCore "$1" "$2"')
PREPARE = """
import sys, threading
sys.path.insert(0, PROGRAMS)
import kv_pool
ready, engines = threading.Event(), []
def run_engine_core():
    engine_core = kv_pool.EngineCoreProc(kv_pool.FCFSRequestQueue, 60)
    engines.append(engine_core)
    ready.set()
    threading.Event().wait()
def put(used, running, waiting):
    engines[-1].scheduler.put(used, running, waiting, 0)
"""
BLOCKS = 70_000  # of kv_pool.py, without the null block
SPANS = "SELECT sample_kv.* FROM sample_kv JOIN process ON process.id = process_id WHERE tgid = ? ORDER BY wall_ns"
GAP_NS = 2_300_000_000  # of kv_watch.c, at the interval below
FAST = ("store.kv_interval=100ms", "store.sample_interval=1s")


def engine(scratch):
    agent = scratch.agent(prefix=ENGINE)
    agent("PROGRAMS = %r" % os.path.join(ROOT, "tests/late/programs"))
    agent(PREPARE)
    return agent


def begin(agent):
    agent("threading.Thread(target=run_engine_core, daemon=True).start(); ready.wait(10)")


def history(daemon, agent, *arguments):
    rows = [row for row in daemon.json("budget", *arguments)["kv_history"] if row["tgid"] == agent.pid]
    check(len(rows) <= 1, f"one row per engine: {rows}")
    return rows[0] if rows else None


def wait_known(daemon, agent, wanted, seconds=90):  # scans of what else runs here come first
    def known():
        row = history(daemon, agent)
        return row if row and row["most_ratio"] is not None and wanted(row) else None
    return wait_for(known, seconds, "a reading of the KV cache")


def check_timeline(daemon, agent):
    """A tenth, 66500 blocks, none: the same over time, at what there was to read."""
    def caches(*arguments):
        return [row for row in daemon.json("timeline", *arguments)["kv_cache"] if row["tgid"] == agent.pid]
    filled = [[row["peak_blocks"], *row["last_blocks"]] for row in caches("--since", "-10min", "--until", "-5min")]
    equal(filled, [], "before it was read")
    row, = caches("--since", "-10min", "--steps", "240")
    equal((row["blocks"], row["peak_blocks"], row["peak_ratio"], row["to_ratio"]), (BLOCKS, 66500, 0.95, 0), "timeline")
    # nothing is known of the time before the first reading; then the three fills, in their order
    known = [n for n, value in enumerate(row["last_blocks"]) if value is not None]
    equal(known, list(range(known[0], 240)), "steps that are known")
    check(max(row["max_blocks"][known[0]:]) == 66500 and row["min_blocks"][-1] == row["last_blocks"][-1] == 0, "steps", row)
    check(row["min_blocks"][known[0]] in (0, 7000), "the first fill", row)
    lines = daemon.cli("timeline", "--since", "-10min", "-o", "csv").stdout.splitlines()
    check(any(f",{agent.pid},,,kv_cache,,,,,{BLOCKS},0,0," in line for line in lines), "the last step in csv", lines[-3:])
    check(f"{BLOCKS}" in daemon.cli("timeline").stdout.partition("KV cache in use")[2], "the table")
    equal(len(caches("--device", "0")), 0, "it is of no device")
    equal(len(caches("--pid", str(agent.pid))), 1, "of this process")


def test_kv_follow(scratch):
    """A server that was there before the daemon: fill, requests, its fullest and when; then a daemon that comes later."""
    agent = engine(scratch)
    begin(agent)
    agent("put(7000, 3, 1)")
    daemon = scratch.daemon(sets=FAST)
    row = wait_known(daemon, agent, lambda row: row["usage_ratio"] == 0.1)
    equal((row["most_ratio"], row["most_running"], row["most_waiting"], row["blocks"]), (0.1, 3, 1, BLOCKS), "a tenth")
    equal((row["tokens"], row["model_len"], row["fits_model_len"]), ((BLOCKS + 1) * 128, 4096, (BLOCKS + 1) * 128), "tokens")
    equal((row["full_ns"], row["state"], row["reason"]), (0, "running", None), "state")
    before = time.time_ns()
    agent("put(66500, 40, 7)")
    wait_known(daemon, agent, lambda row: row["full_ns"] >= 1e9)
    agent("put(0, 0, 0)")
    after = time.time_ns()
    row = wait_known(daemon, agent, lambda row: row["usage_ratio"] == 0)
    equal((row["most_ratio"], row["most_running"], row["most_waiting"]), (0.95, 40, 7), "the fullest")
    check(before <= row["most_ns"] <= after, f"when it was fullest: {row['most_ns']} in {before}..{after}")
    # a reading stands for the time since the one before, on a busy host as much as a gap may be
    check(row["full_ns"] <= after - before + GAP_NS, f"time at 90 % or more: {row['full_ns']} of {after - before}")
    check(row["p99_ratio"] == 0.95 and row["p50_ratio"] in (0, 0.1, 0.95), f"of the time: {row}")
    shown = daemon.cli("budget").stdout
    check("fullest 95.0 %" in shown and "40 requests ran, 7 waited; now 0.0 %" in shown, shown)
    check_timeline(daemon, agent)
    daemon.stop()
    since = row["since_ns"]
    spans = [dict(span) for span in daemon.sql(SPANS, agent.pid)]
    check(2 <= len(spans) <= 20, f"rows: {len(spans)}")
    for one, next_one in zip(spans, spans[1:]):
        check(one["wall_ns"] <= one["end_wall_ns"] <= next_one["wall_ns"], f"rows do not overlap: {one} {next_one}")

    again = scratch.daemon(sets=FAST)
    row = wait_known(again, agent, lambda row: row["until_ns"] > spans[-1]["end_wall_ns"])
    equal((row["since_ns"], row["most_ratio"], row["usage_ratio"]), (since, 0.95, 0), "through a restart of the daemon")
    check(row["known_ns"] <= row["until_ns"] - since, f"the time between is not known: {row}")
    none = history(again, agent, "--since", "-1d", "--until", "-1h")
    check(none and none["most_ratio"] is None and "nothing was read in this time" in none["reason"], f"another window: {none}")


def test_kv_begins(scratch):
    """A server that starts while it is observed; it ends, and is shown where a time is asked for."""
    daemon = scratch.daemon(sets=FAST)
    agent = engine(scratch)
    daemon.wait_target(agent.pid, "physical")
    row = wait_for(lambda: history(daemon, agent), 20, "a row of an engine")
    check(row["most_ratio"] is None and row["reason"], f"no scheduler so far: {row}")
    wait_for(lambda: "no scheduler" in history(daemon, agent)["reason"], 20, "why there is none")
    begin(agent)
    agent("put(35000, 1, 0)")
    wait_known(daemon, agent, lambda row: row["most_ratio"] == 0.5)
    agent("engines[-1].scheduler.kv_cache_manager = kv_pool.KVCacheManager(1001)")
    row = wait_known(daemon, agent, lambda row: row["blocks"] == 1000)
    equal((row["usage_ratio"], row["most_ratio"]), (0, 0.5), "another pool: the fullest stays what it was")
    agent.kill()
    wait_for(lambda: history(daemon, agent) is None, 10, "it has ended")
    row = history(daemon, agent, "--since", "-1h")
    equal((row["state"], row["most_ratio"], row["usage_ratio"]), ("exited", 0.5, None), "what is kept of it")


def longest_sleep(daemon, seconds):
    """The longest time for which the daemon was about to sleep until its next timer, looked at for so long."""
    longest, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for fd in os.listdir(f"/proc/{daemon.pid}/fd"):
            try:
                with open(f"/proc/{daemon.pid}/fdinfo/{fd}") as f:
                    timer = re.search(r"clockid: 1\n.*it_value: \((\d+), (\d+)\)", f.read(), re.S)
            except FileNotFoundError:
                continue
            if timer:
                longest = max(longest, int(timer[1]) + int(timer[2]) / 1e9)
        time.sleep(0.02)
    return longest


def test_kv_off(scratch):
    """Switched off: nothing is read, the daemon does not even wake up for it, and it is said."""
    # the shortest other timer is then one of 1 s; each may be 250 ms late, to fall together with another
    calm = ("probes.poll_interval=10s", "store.checkpoint_interval=10s", "store.kv_interval=100ms")
    with_timer = scratch.daemon(sets=calm)
    slept = longest_sleep(with_timer, 3)
    check(0 < slept < 0.4, f"with a reading every 100 ms: {slept} s")
    with_timer.stop()
    daemon = scratch.daemon(sets=(*calm, "store.kv_history=no"))
    slept = longest_sleep(daemon, 5)
    check(slept > 0.5, f"without: {slept} s")
    agent = engine(scratch)
    begin(agent)
    daemon.wait_target(agent.pid, "physical")
    row = wait_for(lambda: history(daemon, agent), 10, "a row of an engine")
    equal((row["most_ratio"], row["reason"]), (None, "switched off (store.kv_history)"), "the reason")
    time.sleep(1)
    equal(len(daemon.sql(SPANS, agent.pid)), 0, "rows")
