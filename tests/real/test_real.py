#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The group `real`: npumem against the unmodified torch and torch_npu wheels on the simulated node.

    test_real.py [--build DIR] [--bin DIR] [--wheels V] [--self-check] [--only WORD]... [--keep]

--build  build directory of the simulated node (default: build/release)
--bin    directory of npumemd and npumem (default: the build directory)
--wheels version of torch_npu: 2.7.1 (default), 2.10.0.post4 (with vllm-ascend), 2.14.0
--self-check   without a daemon: torch's counters against the simulated driver's own figures
--only   checks whose name contains the word: pool, expandable, workspace, all, early, late, oom,
         pieces, whatif, frag, advise, record, kill, owners, camem

Ends with one line "N passed, N failed, N skipped"; the exit code is 1 when something failed.
"""
import argparse
import pathlib
import sys
import time

import check_advise
import check_frag
import check_inefficient
import check_kill
import check_moments
import check_oom
import check_owners
import check_record
import check_whatif
import harness
from harness import Checks, find_binaries, may_observe

# early and late attach of every kind of pool; "all" has the kinds together.
PLAN = [(configuration, late) for configuration in ("pool", "expandable", "workspace")
        for late in (False, True)] + [("all", True)]

WITH_VLLM = "2.10.0.post4"


def chosen(words, name):
    return not words or any(word in name for word in words)


def run_checks(args, checks, node, binaries):
    if args.self_check:
        for configuration in check_moments.CONFIGURATIONS:
            if chosen(args.only, configuration):
                check_moments.run(checks, node, None, configuration, None, args.keep)
    else:
        for configuration, late in PLAN:
            if chosen(args.only, f"{configuration} {'late' if late else 'early'}"):
                check_moments.run(checks, node, binaries, configuration, late, args.keep)
    if chosen(args.only, "oom"):
        check_oom.run(checks, node, None if args.self_check else binaries, args.keep)
    if binaries and not args.self_check and chosen(args.only, "oom pieces"):
        check_oom.run_pieces(checks, node, binaries, args.keep)
    if binaries and chosen(args.only, "whatif"):
        check_whatif.run(checks, node, binaries, args.keep)
    if binaries and chosen(args.only, "frag"):
        check_frag.run(checks, node, binaries, args.keep)
    if binaries and not args.self_check and chosen(args.only, "advise"):
        check_advise.run(checks, node, binaries, args.keep)
    if binaries and chosen(args.only, "record"):
        check_record.run(checks, node, binaries, args.keep)
    if binaries and not args.self_check and chosen(args.only, "inefficient"):
        check_inefficient.run(checks, node, binaries, args.keep)
    if chosen(args.only, "kill"):
        check_kill.run(checks, node, None if args.self_check else binaries, args.keep)
    for late in (False, True):
        if binaries and chosen(args.only, f"owners {'late' if late else 'early'}"):
            check_owners.run(checks, node, binaries, args.wheels, late, args.keep)
    if binaries and chosen(args.only, "camem") and (node.site / "vllm_ascend").is_dir():
        for cycles in (2, 1):
            check_owners.run_camem(checks, node, binaries, cycles, args.keep)


def make_node(args):
    """The node with the wheels that were asked for; one of the versions is that of the vLLM server."""
    if args.wheels == WITH_VLLM:
        sys.path.insert(0, str(harness.ROOT / "sim" / "vllm"))
        import serve
        node = serve.make_node(args.build, args.layout)
        node.settings["PYTHONPATH"] = serve.HERE / "site"  # acl, which sleep mode imports
        return node
    return harness.real_node.Node(args.build, args.layout, args.wheels)


def main():
    parser = argparse.ArgumentParser(description="npumem against the real torch_npu wheels")
    parser.add_argument("--build", type=pathlib.Path, default=harness.ROOT / "build" / "release")
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("--layout", default="8.1")
    parser.add_argument("--wheels", default=harness.real_node.VERSION)
    parser.add_argument("--self-check", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--keep", action="store_true", help="leave the scratch directories")
    args = parser.parse_args()
    checks = Checks()
    start = time.monotonic()
    try:
        node = make_node(args)
    except harness.real_node.make_venv.WheelsError as error:
        node = None
        checks.skip("real", error)
    binaries = find_binaries(args.bin or args.build)
    why = may_observe() if binaries else f"no npumemd and npumem in {args.bin or args.build}"
    if node and why and not args.self_check:
        checks.skip("real", why)
    elif node:
        run_checks(args, checks, node, binaries)
    print(f"      {time.monotonic() - start:.0f} s", flush=True)
    print(f"{checks.passed} passed, {checks.failed} failed, {checks.skipped} skipped", flush=True)
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
