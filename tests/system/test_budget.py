# SPDX-License-Identifier: Apache-2.0
"""npumem budget on simulated servers: the plan of the KV cache, and the term to change.

The right answers are the public reports' own numbers (rows 4 and 13), and the scenario's books.
"""
import os
import re
import time

import harness
from harness import check, equal
from test_owners import GIB, MIB, Run, near, scenario_text

PLAN = {"weights": 30.16, "profile_peak": 2.0, "non_torch": 2.07, "graph": 0.44, "kv_cache": 21.26}


def budget_of(run, tgid):
    rows = run.daemon.json("budget", "--pid", str(tgid))["ranks"]
    equal(len(rows), 1, f"rows of process {tgid}")
    return rows[0]


def check_plan(row, total, utilization, plan):
    equal(row["verdict"], "FITS", f"verdict ({row['reason']})")
    near(row["card_total_bytes"], total * GIB, "card")
    near(row["utilization"], utilization, "utilization", 0.01)
    near(row["budget_bytes"], total * utilization * GIB, "budget")
    for term, size in plan.items():
        near(row[f"{term}_bytes"], size * GIB, term)
    near(row["available_bytes"],
         (total * utilization - plan["weights"] - plan["profile_peak"] - plan["non_torch"]) * GIB, "available")
    near(row["sum_bytes"], sum(plan.values()) * GIB, "sum")


def r13(scratch, changes=(), total=60.96, utilization=0.92, plan=None, sets=()):
    text = scenario_text("r13_budget_table")
    for pattern, replacement in changes:
        text, count = re.subn(pattern, replacement, text, flags=re.M)
        check(count, f"no line fits {pattern}")
    run = Run(scratch, text, python=True, sets=sets)
    run.reach("profiled")
    run.go("profiled")
    row = budget_of(run, run.reach("up")["tgid"])
    check_plan(row, total, utilization, plan or PLAN)
    equal(row["utilization_source"], "command line", "where the utilization is from")
    equal([t["term"] for t in row["terms"] if t["term"] == "graph"], ["graph"], "graph has a row of its own")
    return run, row


def test_r13_report(scratch):
    """Report 13: every term within 1 %, graph on its own row, the sum below the budget."""
    _, row = r13(scratch)
    check(row["sum_bytes"] <= row["budget_bytes"], f"sum {row['sum_bytes']} above {row['budget_bytes']}")


def test_r13_large_blocks_only(scratch):
    """Report 13 with the default detail: blocks below 1 MiB send no events."""
    r13(scratch, sets=("probes.block_detail=large",))


def test_r13_other_device(scratch):
    """Report 13 on the third of four cards, with other sizes."""
    r13(scratch, [("^devices 1 60.96GiB", "devices 4 64GiB"), ("rank 0 device=0", "rank 0 device=2"),
                  ("utilization 0.92", "utilization=0.85"), ("1.04GiB", "0.75GiB"), (r"\$i\] 0.5GiB", "$i] 0.8GiB"),
                  ("tensor g 0.44GiB", "tensor g 1.2GiB"), ("680.32MiB", "866.1MiB")],
        64, 0.85, {"weights": 21.75, "profile_peak": 3.2, "non_torch": 2.07, "graph": 1.2, "kv_cache": 27.0656})


def test_r13_expandable(scratch):
    """Report 13 with expandable segments, which ask the driver themselves."""
    # granules of 20 MiB: the driver gives 460 MiB for a graph of 450.56
    r13(scratch, [("^  phase init", "  env PYTORCH_NPU_ALLOC_CONF=expandable_segments:True\n  phase init")],
        plan={**PLAN, "graph": 460 / 1024})


def r04(scratch, changes=(), short=0.61 * GIB, utilization="0.97", to=("0.95", "0.96")):
    text = scenario_text("r04_budget")
    for pattern, replacement in (("^rank 0 (.*)$", 'rank server "title=vllm serve m --gpu-memory-utilization '
                                  f'{utilization}"\n  wait\nend\nrank 0 \\1 parent=server'), *changes):
        text, count = re.subn(pattern, replacement, text, flags=re.M)
        check(count, f"no line fits {pattern}")
    run = Run(scratch, text, python=True)
    run.reach("before")
    run.go("before")
    tgid = run.reach("oom")["tgid"]
    row = budget_of(run, tgid)
    equal(row["verdict"], "OVERRUN", f"verdict ({row['reason']})")
    near(row["weights_bytes"], 30 * GIB, "weights")
    near(row["kv_cache_bytes"], 25.7 * GIB, "KV cache until then")
    check("kv_cache" in row["reason"], row["reason"])
    advice = row["advice"][0]
    equal((advice["setting"], advice["from"]), ("gpu_memory_utilization", utilization), "the term to change")
    check(advice["to"] in to, f"advice: {advice['to']}")  # 0.61 GiB are a step of 0.01, and a bit
    near(row["short_bytes"], short, "short by", 2)
    run.go("oom")
    run.process.wait(60)
    again = budget_of(run, tgid)
    equal((again["state"], again["verdict"], again["advice"]), ("exited", "OVERRUN", row["advice"]), "after its end")


def test_r04_report(scratch):
    """Report 4: KV planned too large by 0.61 GiB; known after the process has ended, too."""
    r04(scratch)


def test_r04_smaller_card_use(scratch):
    """Report 4 with another baseline: short by that much more."""
    r04(scratch, [("60.96GiB 1407MiB", "60.96GiB 1907MiB")], 0.61 * GIB + 500 * MIB, "0.90", ("0.88",))


def test_r04_other_device(scratch):
    """Report 4 on the last of eight cards."""
    r04(scratch, [("^devices 1", "devices 8"), ("rank 0 device=0", "rank 0 device=7")])


NEGATIVE = """
devices 2 32GiB
rank server "title=vllm serve m --gpu-memory-utilization 0.5"
  wait
end
rank other device=1 title=another
  malloc theirs THEIRS
  barrier there
  barrier done
end
rank 0 device=1 title=VLLM::Worker parent=server
  barrier there
  phase init
    meminfo free total
  end
  malloc runtime 1GiB api=cfg module=7
  phase weights
    tensor w 14GiB
  end
  phase profile
    meminfo free total
    tensor a 1.87GiB
    del a
    empty_cache
    meminfo free total
  end
  checkpoint profiled
  barrier done
end
"""


def negative(scratch, theirs):
    run = Run(scratch, NEGATIVE.replace("THEIRS", theirs).replace("rank other", "rank 1"), python=True)
    row = budget_of(run, run.reach("profiled")["tgid"])
    equal(row["verdict"], "NEGATIVE", f"verdict ({row['reason']})")
    near(-row["available_bytes"], 0.87 * GIB, "short by", 2)
    return row


def test_negative(scratch):
    """The plan leaves -0.87 GiB: the card has room, so the utilization is the term to change."""
    row = negative(scratch, "1GiB")
    near(row["others_at_start_bytes"], 1 * GIB, "others", 2)
    equal([(a["setting"], a["from"], a["to"]) for a in row["advice"]][0], ("gpu_memory_utilization", "0.50", "at least 0.53"),
          "advice")


def test_negative_on_a_taken_card(scratch):
    """The same where another process holds the rest of the card: that is the term to change."""
    row = negative(scratch, "15.1GiB")
    near(row["others_at_start_bytes"], 15.1 * GIB, "others", 2)
    equal(row["advice"][0]["setting"], "placement", "advice")
    check(all(a["setting"] != "gpu_memory_utilization" for a in row["advice"]), row["advice"])


def test_late(scratch):
    """Attached late: what nobody can know is unknown, with the reason, and no verdict is made up."""
    run = Run(scratch, scenario_text("r13_budget_table"), python=True, late=True,
              sets=("daemon.dcmi_library=" + os.path.join(harness.lib_dir("8.1"), "libdcmi.so"),))
    os.environ.update({k: run.env[k] for k in ("NPUSIM_DEVICES", "NPUSIM_HBM", "NPUSIM_BASELINE")})
    run.reach("profiled")
    run.go("profiled")
    tgid = run.reach("up")["tgid"]
    run.attach()
    run.daemon.wait_target(tgid)
    row = budget_of(run, tgid)
    equal((row["verdict"], row["late"]), ("INCOMPLETE", True), "verdict")
    near(row["budget_bytes"], 56.08 * GIB, "budget")
    for term in ("profile_peak", "available", "others_at_start"):
        equal(row[f"{term}_bytes"], None, term)
    reasons = {t["term"]: t["reason"] for t in row["terms"]}
    equal(reasons["profile_peak"], "attached late", "reason")
    equal(row["advice"], [], "advice without evidence")


test_late.alone = True  # the cards that DCMI shows are those of the environment


def restart(run, tgid, end):
    if end == "killed":  # nothing is written at its end: the newest sample counts
        time.sleep(0.6)
        run.daemon.process.kill()
        run.daemon.process.wait()
    else:
        run.daemon.stop()
    run.daemon.start()
    run.daemon.wait_target(tgid)


def test_restart_of_the_daemon(scratch, when, end):
    """Report 13 with another daemon after all, or from the middle of the profile run on: what the first one saw of the
    phases is in the store; of a run that nobody saw in full no peak is told."""
    run = Run(scratch, scenario_text("r13_budget_table"), python=True, sets=("store.sample_interval=200ms",))
    tgid = run.reach("profiled")["tgid"]
    if when == "middle":
        restart(run, tgid, end)
    run.go("profiled")
    run.reach("up")
    if when == "after":
        restart(run, tgid, end)
    row = budget_of(run, tgid)
    equal(row["late"], True, "the second daemon attached late")
    if when == "after":
        check_plan(row, 60.96, 0.92, PLAN)
        return
    for term in ("profile_peak", "available"):
        equal(row[f"{term}_bytes"], None, f"{term} of a run of which a part was not seen")
    for term in ("weights", "kv_cache", "graph", "non_torch"):
        near(row[f"{term}_bytes"], PLAN[term] * GIB, term)


test_restart_of_the_daemon.variants = [("after", "stopped"), ("after", "killed"), ("middle", "stopped")]
