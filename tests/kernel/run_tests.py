# SPDX-License-Identifier: Apache-2.0
"""The runner of the kernel and system groups: collects, runs, prints one line per test."""
import concurrent.futures
import importlib
import os
import sys
import time
import traceback

import harness


def run_one(name, function, arguments):
    begin = time.monotonic()
    scratch = harness.Scratch(name)
    result, detail = "passed", ""
    try:
        function(scratch, *arguments)
    except harness.Skip as e:
        result, detail = "skipped", f": {e}"
    except Exception as e:
        result = "failed"
        what = str(e) if isinstance(e, harness.Failure) else traceback.format_exc()
        where = [f for f in traceback.extract_tb(e.__traceback__) if "harness" not in f.filename]
        detail = f": {what}" + (f"\n  at {os.path.basename(where[-1].filename)}:{where[-1].lineno}: "
                                f"{where[-1].line}" if where else "")
    logs = scratch.close(result == "failed")
    if logs:
        detail += "\n" + logs
    return result, f"{result.upper():7} {name} ({time.monotonic() - begin:.1f} s){detail}"


def collect(modules, words):
    for module in modules:
        tests = importlib.import_module(module)
        for name, function in list(vars(tests).items()):
            if not name.startswith("test_"):
                continue
            for variant in getattr(function, "variants", [()]):
                full = f"{module[5:]}.{name[5:]}" + "".join(f"[{v}]" for v in variant)
                if not words or any(w in full for w in words):
                    yield full, function, variant


def main(modules):
    arguments = sys.argv[1:]
    jobs = 2
    if "-j" in arguments:
        at = arguments.index("-j")
        jobs = int(arguments[at + 1])
        del arguments[at:at + 2]
    harness.BUILD = os.path.realpath(arguments[0] if arguments else "build/release")
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    if os.geteuid() != 0:
        print("these tests need root")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    tests = list(collect(modules, arguments[1:]))
    alone = [t for t in tests if getattr(t[1], "alone", False)]
    together = [t for t in tests if t not in alone]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for result, line in pool.map(lambda t: run_one(*t), together):
            counts[result] += 1
            print(line, flush=True)
    for t in alone:
        result, line = run_one(*t)
        counts[result] += 1
        print(line, flush=True)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return counts["failed"] != 0

