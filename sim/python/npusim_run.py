#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a scenario (docs/SCENARIOS.md) with CPython processes as ranks.

The same language as npusim-run, which compiles the scenario for this driver (--dump); here a phase is
a chain of nested Python functions named like vLLM-Ascend's, so that an observer that walks Python
frames finds what it finds in a real server. Standard library only, CPython 3.9 and later.
"""
import argparse
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

import npusim_control  # noqa: E402,F401  (fills the tables of statements)
import npusim_memory  # noqa: E402,F401
from npusim_core import Rank, ScenarioError, expand, evaluate  # noqa: E402

PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
PADDING = "-" * 512
libc = ctypes.CDLL(None, use_errno=True)


def options_parse(arguments):
    parser = argparse.ArgumentParser(prog="npusim_run.py", description=__doc__.split("\n")[0])
    parser.add_argument("--run", help="npusim-run (default: beside this file, else in PATH)")
    parser.add_argument("--layout", default="8.1", choices=["8.1", "8.5", "9.2"])
    parser.add_argument("--lib-dir", default=os.environ.get("NPUSIM_LIB_DIR"))
    parser.add_argument("--torch", default="stripped")
    parser.add_argument("--truth")
    parser.add_argument("--step")
    parser.add_argument("--control")
    parser.add_argument("-D", dest="defines", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--rank-index", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--compiled", help=argparse.SUPPRESS)
    parser.add_argument("--die-with-parent", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--stepping", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--padding", help=argparse.SUPPRESS)
    parser.add_argument("scenario")
    options = parser.parse_args(arguments)
    if not options.run:
        beside = os.path.join(HERE, "npusim-run")
        options.run = beside if os.path.exists(beside) else shutil.which("npusim-run")
    if not options.run:
        parser.error("npusim-run was not found; try --run PATH")
    place = os.path.dirname(os.path.realpath(options.run))
    if not options.lib_dir:
        options.lib_dir = os.path.join(place, "cann-" + options.layout, "lib")
    if "/" not in options.torch:
        options.torch = os.path.join(place, "torch-" + options.torch)
    if options.step:
        options.control, options.stepping = options.step, True
    return options


def scenario_compile(options):
    command = [options.run, "--dump"]
    for define in options.defines:
        command += ["-D", define]
    done = subprocess.run(command + [options.scenario], stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def rank_vars(program, rank):
    values = [value for _, value in program["vars"]]
    values[0], values[1], values[2] = rank["number"], len(program["ranks"]), -1
    if rank["device"] is not None:
        values[2] = evaluate(rank["device"], values, None, None)
    return values


def rank_text(program, rank, text):
    return expand(program, rank_vars(program, rank), text or "")


def rank_spawn(options, program, index):
    rank = program["ranks"][index]
    environment = dict(os.environ)
    for line in rank["env"]:
        name, _, value = rank_text(program, rank, line).partition("=")
        environment[name] = value
    command = [sys.executable, os.path.abspath(__file__), "--run", options.run, "--lib-dir",
               options.lib_dir, "--torch", options.torch, "--control", options.control,
               "--compiled", options.compiled, "--rank-index", str(index)]
    if options.truth:
        command += ["--truth", options.truth]
    if options.stepping:
        command.append("--stepping")
    if options.rank_index < 0:
        command.append("--die-with-parent")
    sys.stdout.flush()
    return subprocess.Popen(command + ["--padding=" + PADDING, options.scenario], env=environment)


def ranks_spawn(options, program, parent):
    started = []
    for index, rank in enumerate(program["ranks"]):
        if rank_text(program, rank, rank["parent"]) == parent:
            started.append(rank_spawn(options, program, index))
    return started


def title_set(title, comm):
    """Writes the title over the argument area, as setproctitle does."""
    if not title and not comm:
        return
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # proc(5): 48 arg_start, 49 arg_end
    if title and end > start + 1:
        text = title.encode()[: end - start - 1]
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, text, len(text))
    libc.prctl(PR_SET_NAME, ctypes.c_char_p((comm or title).encode()[:15]))


def rank_main(options):
    with open(options.compiled, encoding="utf-8") as compiled:
        program = json.load(compiled)
    entry = program["ranks"][options.rank_index]
    if options.die_with_parent:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    rank = Rank(program, entry, rank_vars(program, entry), options)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, rank.stop_request)
    title_set(rank_text(program, entry, entry["title"]), rank_text(program, entry, entry["comm"]))
    rank.children = ranks_spawn(options, program, entry["name"])
    rank.load()
    return rank.main()


def end_of(status):
    if os.WIFSIGNALED(status):
        return "signal %d" % os.WTERMSIG(status)
    return "exit %d" % os.WEXITSTATUS(status)


def end_meant(control, tgid):
    try:
        with open(os.path.join(control, "end.%d" % tgid), encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError:
        return "exit 0"


def tree_pids(root):
    found = []
    try:
        tasks = os.listdir("/proc/%d/task" % root)
    except OSError:
        return found
    for task in tasks:
        try:
            with open("/proc/%d/task/%s/children" % (root, task), encoding="utf-8") as file:
                children = [int(word) for word in file.read().split()]
        except OSError:
            continue
        for child in children:
            found += tree_pids(child) + [child]
    return found


def children_wait(options, stopped):
    code, forwarded = 0, False
    while True:
        if stopped and not forwarded:
            forwarded = True
            for tgid in tree_pids(os.getpid()):
                try:
                    os.kill(tgid, signal.SIGTERM)
                except ProcessLookupError:
                    pass
        try:
            tgid, status = os.waitpid(-1, 0)
        except InterruptedError:
            continue
        except ChildProcessError:
            return code
        end, meant = end_of(status), end_meant(options.control, tgid)
        as_meant = end == meant or (bool(stopped) and os.WIFSIGNALED(status))
        if options.truth:
            with open(os.path.join(options.truth, "exits.jsonl"), "a", encoding="utf-8") as file:
                file.write(json.dumps({"tgid": tgid, "end": end, "meant": as_meant}) + "\n")
        if not as_meant:
            print("%s: process %d ended with %s, not %s" % (options.scenario, tgid, end, meant),
                  file=sys.stderr)
            with open(os.path.join(options.control, "failed"), "w", encoding="utf-8") as file:
                file.write(end)
            code = 1


def node_prepare(options, program):
    if not program["devices"]:
        return
    os.environ.setdefault("NPUSIM_DEVICES", str(program["devices"]))
    os.environ.setdefault("NPUSIM_HBM", str(program["device_bytes"]))
    os.environ.setdefault("NPUSIM_BASELINE", str(program["baseline_bytes"]))
    if "NPUSIM_DIR" not in os.environ:
        os.environ["NPUSIM_DIR"] = os.path.join(options.control, "node")
        os.makedirs(os.environ["NPUSIM_DIR"], exist_ok=True)



def supervise(options):
    compiled = scenario_compile(options)
    program = json.loads(compiled)
    own = options.control is None
    if own:
        options.control = tempfile.mkdtemp(prefix="npusim-")
    for directory in (options.control, options.truth):
        if directory:
            os.makedirs(directory, exist_ok=True)
    options.compiled = os.path.join(options.control, "scenario.json")
    with open(options.compiled, "wb") as file:
        file.write(compiled)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    stopped = []

    def stop(number, _frame):
        if not stopped:
            stopped.append(number)
            raise InterruptedError

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        node_prepare(options, program)
        started = []
        try:
            started = ranks_spawn(options, program, "")
        except InterruptedError:
            pass
        code = children_wait(options, stopped)
        for process in started:
            process.returncode = 0  # reaped above, whatever its code
        return code
    finally:
        if own:
            shutil.rmtree(options.control, ignore_errors=True)


def main():
    options = options_parse(sys.argv[1:])
    try:
        return rank_main(options) if options.rank_index >= 0 else supervise(options)
    except ScenarioError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
