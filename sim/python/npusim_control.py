# SPDX-License-Identifier: Apache-2.0
"""Blocks, time, meeting points and the end of a process; docs/SCENARIOS.md says what they do."""
import ctypes
import functools
import os
import signal
import sys
import threading
import time

from npusim_core import (BLOCKS, FOREVER, KEY_WAIT_SECONDS, STATEMENTS, Random, ScenarioError, Thread,
                         Truth, file_name, libc)
from npusim_frames import frames_call, frames_of

# blocks

def block_repeat(t, op, at):
    count, variable = t.number(op, "count"), op["args"].get("as")
    if count < 0:
        raise t.error(op, "a count of %d" % count)
    done = 0
    while done < count:
        if variable is not None:
            t.values[variable] = done
        t.run(at + 1, op["jump"])
        done += 1
        if count == FOREVER and t.rank.stopped:
            return


def block_if(t, op, at):
    if t.number(op, "condition"):
        t.run(at + 1, op["jump"])


def block_phase(t, op, at):
    before, t.phase = t.phase, t.rank.program["phases"][op["phase"]]
    name = "name" if op["op"] == "phase" else "frames"
    frames_call(frames_of(op["op"], t.text(op, name)),
                functools.partial(t.run, at + 1, op["jump"]))
    t.phase = before


def thread_entry(t, body):
    libc.prctl(15, ctypes.c_char_p(t.name.encode()[:15]))
    try:
        body()
    except ScenarioError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)


def block_thread(t, op, at):
    name = t.text(op, "name")
    for number in range(t.number(op, "count", 1)):
        values = list(t.values)
        values[3] = number
        child = Thread(t.rank, name, values,
                       Random(t.random.state + 0x5851F42D4C957F2D * (number + 1)))
        thread = threading.Thread(target=thread_entry, name=name, daemon=True,
                                  args=(child, child.body(at + 1, op["jump"])))
        thread.start()
        t.threads.append(thread)


def block_fork(t, op, at):
    sys.stdout.flush()
    if os.fork():
        return
    rank = t.rank
    rank.name += "." + t.text(op, "name")[:40]
    rank.slots, rank.truth = [None] * len(rank.slots), Truth()
    torch, rank.torch = rank.torch, None
    t.threads, t.torch = [], torch
    try:
        t.body(at + 1, op["jump"])()
    except ScenarioError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


BLOCKS.update({"repeat": block_repeat, "if": block_if, "phase": block_phase,
               "frames": block_phase, "thread": block_thread, "fork": block_fork})

# control


def do_let(t, op):
    t.values[op["args"]["name"]] = t.number(op, "value")


def do_seed(t, op):
    t.random = Random(t.number(op, "value"))


def do_sleep(t, op):
    end = time.monotonic() + t.number(op, "time") / 1e9
    while not t.rank.stopped and time.monotonic() < end:
        time.sleep(min(0.05, max(0, end - time.monotonic())))


def meeting(t, key):
    t.met[key] = t.met.get(key, 0) + 1
    return t.met[key]


def do_barrier(t, op):
    program, raw = t.rank.program, op["args"]["name"]
    needed = t.number(op, "count", sum(
        any(o["op"] == "barrier" and o["args"]["name"] == raw
            for o in program["ops"][rank["begin"]:rank["end"]]) for rank in program["ranks"]))
    name = file_name(t.text(op, "name"))
    directory = t.rank.control("b.%s.%d" % (name[:150], meeting(t, "b" + name)))
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "%s.%d" % (t.rank.name, threading.get_native_id())), "w"):
        pass
    end = time.monotonic() + KEY_WAIT_SECONDS
    while len(os.listdir(directory)) < needed and not t.rank.stopped:
        if os.path.exists(t.rank.control("failed")):
            raise t.error(op, "barrier %s: another rank has failed" % name)
        if time.monotonic() > end:
            raise t.error(op, "barrier %s: Connection timed out" % name)
        time.sleep(0.002)


def do_checkpoint(t, op):
    name, rank = file_name(t.text(op, "name"))[:80], t.rank
    times = meeting(t, "c" + name)
    label = name if times == 1 else "%s.%d" % (name, times)
    rank.put("reached.%s.%s" % (rank.name, label), rank.report(label).encode())
    gates = [rank.control(g) for g in ("go." + label, "go.%s.%s" % (rank.name, label), "go.all")]
    while rank.options.stepping and not rank.stopped and not any(map(os.path.exists, gates)):
        time.sleep(0.001)


def do_hold(t, op):
    if op["args"].get("time") is not None:
        return do_sleep(t, op)
    path = None
    if op["args"].get("flag") is not None:
        path = t.rank.control("flag." + file_name(t.text(op, "flag")))
    elif op["args"].get("file") is not None:
        path = t.text(op, "file")
    while not t.rank.stopped and not (path and os.path.exists(path)):
        time.sleep(0.005)
    return 0


def do_wait(t, op):
    while True:
        try:
            tgid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        end = ("signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status)
               else "exit %d" % os.WEXITSTATUS(status))
        meant, path = "exit 0", t.rank.control("end.%d" % tgid)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                meant = file.read()
        if end != meant:
            raise t.error(op, "child %d ended with %s" % (tgid, end))


def do_exit(t, op):
    code = t.number(op, "code")
    if not 0 <= code <= 255:
        raise t.error(op, "an exit code of %d" % code)
    if t.rank.options.truth:
        t.rank.report("end")
    t.rank.announce("exit %d" % code)
    sys.stdout.flush()
    os._exit(code)


def do_abort(t, _op):
    t.rank.announce("signal %d" % signal.SIGABRT)
    os.abort()


def do_kill(t, _op):
    t.rank.announce("signal %d" % signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def do_print(t, op):
    print("%s: %s" % (t.rank.name, t.text(op, "text")), flush=True)


STATEMENTS.update({name[3:]: function for name, function in list(globals().items())
                   if name.startswith("do_")})
