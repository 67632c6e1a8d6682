# SPDX-License-Identifier: Apache-2.0
"""How full the KV cache of the real server was, as npumem read it of its scheduler, against the server's own /metrics."""
import concurrent.futures
import re
import threading
import time

import make_model
from harness import CheckError, wait_for

REQUESTS, PROMPT_TOKENS, ANSWER_TOKENS = 12, 1500, 120
# Blocks that come between two looks at a server that serves: a block per 128 tokens of each request, and
# what /metrics, which is told after a step, is behind.
SLACK_BLOCKS = REQUESTS // 2
READ_EVERY_S = 1.0  # store.kv_interval


def metric(text, name):
    found = re.search(rf"^vllm:{name}{{[^}}]*}} (\S+)$", text, re.M)
    return float(found[1]) if found else None


def history(daemon, server):
    rows = [row for row in daemon.ask("budget")["kv_history"] if row["server_tgid"] == server.pid]
    return rows[0] if len(rows) == 1 else None


def load(server, done):
    """Requests that share no prefix."""
    with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        list(pool.map(lambda i: server.complete(chr(97 + i) * PROMPT_TOKENS, ANSWER_TOKENS), range(REQUESTS)))
    done.set()


def watch(daemon, server):
    """(time, blocks used as /metrics says, as npumem says) while requests run, and a little after."""
    done, seen = threading.Event(), []
    thread = threading.Thread(target=load, args=(server, done))
    thread.start()
    blocks = history(daemon, server)["blocks"]
    after = 0
    while after < 2 * READ_EVERY_S:
        text = server.request("/metrics", method="GET")
        row = history(daemon, server)
        seen.append((time.monotonic(), metric(text, "kv_cache_usage_perc") * blocks, row["usage_ratio"] * blocks))
        time.sleep(0.05)
        after = after or (0.001 if done.is_set() else 0)
        if after:
            after += 0.25
    thread.join()
    return seen


def check_while_serving(checks, name, seen):
    """Each figure of npumem's is one that the server told within the time between two readings."""
    wrong, full = [], 0
    for at, _, read in seen:
        around = [said for then, said, _ in seen if at - 2 * READ_EVERY_S <= then <= at + 0.5]
        if not min(around) - SLACK_BLOCKS <= read <= max(around) + SLACK_BLOCKS:
            wrong.append((read, min(around), max(around)))
        full += read > REQUESTS * (PROMPT_TOKENS // 128)
    checks.true(f"{name}: {len(seen)} looks, {full} of them with all requests: as the server's own", full >= 2 and not wrong,
                f"{wrong[:5]} of {len(seen)}, {full} full: {seen[:40]}")


def check_kv_history(checks, name, daemon, server):
    label = f"{name}: KV cache over time"
    try:
        row = wait_for(lambda: (known := history(daemon, server)) and known["most_ratio"] is not None and known, 30,
                       "a reading of the scheduler")
        row = history(daemon, server)
    except CheckError as error:
        checks.fail(label, f"{error}: {history(daemon, server)}")
        return
    checks.equal(f"{label}: idle", (row["usage_ratio"], row["reason"], row["model_len"]), (0, None, make_model.POSITIONS))
    logged = re.search(r"KV cache size: ([\d,]+) tokens", server.text())
    usage = [one for one in daemon.ask("budget")["kv_usage"] if one["server_tgid"] == server.pid][0]
    same = ("usage_ratio", "tokens", "reserved_bytes", "fits_model_len")
    checks.equal(f"{label}: as the command itself reads /metrics, {logged and logged[1]} tokens", {key: row[key] for key in same},
                 {key: usage[key] for key in same})
    seen = watch(daemon, server)
    check_while_serving(checks, label, seen)
    row = history(daemon, server)
    most, said = round(row["most_ratio"] * row["blocks"]), max(said for _, said, _ in seen)
    checks.true(f"{label}: fullest {most} of {row['blocks']} blocks, {row['most_running']} requests",
                abs(most - said) <= SLACK_BLOCKS and 0 < row["most_running"] <= REQUESTS and row["most_waiting"] >= 0,
                f"the server said {said}: {row}")
    checks.equal(f"{label}: idle again", row["usage_ratio"], 0)
