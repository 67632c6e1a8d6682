#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""npumem as a script and as a person see it, against a fake daemon. usage: test_cli.py NPUMEM SOURCE"""

import copy
import csv
import io
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import fcntl
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import documents as D
from fake_daemon import FakeDaemon, document, error, reply, stop_listening

NPUMEM, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
SCRIPT = {"Ps": document(D.PS), "Breakdown": document(D.BREAKDOWN), "Ls": document(D.LS),
          "Status": document(D.STATUS),
          "Version": reply({"version": "0.1.0", "event_abi": 1, "schema_version": 1})}


def read(path):
    with open(path) as f:
        return f.read()


def verbs():
    return re.findall(r"^VERB\((\w+),", read(f"{SOURCE}/cli/verbs.def"), re.M)


def is_running(pid):
    """Not gone, and not a zombie that its new parent has yet to collect."""
    try:
        return read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.socket = os.path.join(self.directory.name, "s")
        self.addCleanup(self.directory.cleanup)

    def environment(self, **more):
        env = {k: v for k, v in os.environ.items()
               if k not in ("COLUMNS", "NO_COLOR", "NPUMEM_SOCKET", "PAGER", "LESS", "LC_ALL", "LANG")}
        return {**env, "TERM": "xterm", "TZ": "UTC", **more}

    def run_cli(self, *args, env=None, sock=True, **more):
        command = [NPUMEM, *args] + (["--socket", self.socket] if sock else [])
        r = subprocess.run(command, capture_output=True, text=True, timeout=60,
                           env=self.environment(**(env or {})), **more)
        self.assertNotIn("Sanitizer", r.stderr)
        self.assertGreaterEqual(r.returncode, 0, f"killed by a signal: {command}")
        return r

    def shown(self, *args, **more):
        """What a call prints that succeeds."""
        r = self.run_cli(*args, **more)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r.stdout

    def daemon(self, **script):
        d = FakeDaemon(self.socket, {**SCRIPT, **script})
        self.addCleanup(d.close)
        return d

    def assert_error(self, r, code, what, fix=None):
        """One line, in the form that is promised."""
        self.assertEqual(r.returncode, code, r.stderr)
        self.assertEqual(r.stderr.count("\n"), 1, r.stderr)
        self.assertRegex(r.stderr, r"^npumem: [^;]+: [^;]+(; try: .+)?\n$")
        self.assertIn(what, r.stderr)
        if fix:
            self.assertTrue(r.stderr.endswith(f"; try: {fix}\n"), r.stderr)
        self.assertEqual(r.stdout, "")


class Usage(Case):
    def test_nearest_words(self):
        for args, what, fix in [
                (["brekdown"], "brekdown: unknown verb", "npumem breakdown"),
                (["xyzzy"], "xyzzy: unknown verb", "npumem help"),
                (["ps", "--divice", "0"], "--divice: unknown option", "--device"),
                (["ps", "--units", "MB"], "--units MB: unknown", "--units MiB"),
                (["ps", "-o", "jsn"], "--output jsn", "--output json"),
                (["ps", "--watch", "soon"], "--watch soon: not a time", "--watch 2s"),
                (["ls", "--min-size", "64MX"], "--min-size 64MX: not a size", "--min-size 64MiB"),
                (["ls", "--level", "phisical"], "--level phisical", "--level physical"),
                (["ps", "--pid", "12x"], "--pid 12x: not a number", None),
                (["ps", "--pid", "-1"], "--pid -1", None),
                (["ps", "--pid", "99999999999"], "--pid 99999999999", None),
                (["ps", "--min-size", "1"], "--min-size: ps does not take it", "npumem help ps"),
                (["ps", "-o"], "--output: needs FORMAT", None),
                (["ps", "--no-header=x"], "--no-header x: takes no value", None),
                (["attach"], "attach: an argument is missing", "npumem attach PID"),
                (["attach", "abc"], "attach abc: not a process id", "npumem ps"),
                (["attach", "0"], "attach 0: not a process id", "npumem ps"),
                (["ps", "x"], "ps: too many arguments", "npumem ps"),
                (["completion", "fsh"], "completion fsh", "fish"),
                (["help", "brekdown"], "brekdown: unknown verb", "npumem breakdown"),
                (["ps", "--fields", "tgid,fysical_bytes"], "fysical_bytes", "--fields physical_bytes"),
                (["ps", "--socket", "x" * 200], "at most 107 bytes", "a shorter path")]:
            with self.subTest(args):
                self.assert_error(self.run_cli(*args, sock=False), 2, what, fix)

    def test_options_stand_anywhere(self):
        d = self.daemon()
        for args in [["-o", "json", "ps"], ["ps", "-o", "json"], ["ps", "-ojson"],
                     ["--output=json", "ps"], ["-qo", "json", "ps"], ["-o", "json", "--", "ps"]]:
            r = self.run_cli("--socket", self.socket, *args, sock=False)
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertEqual(json.loads(r.stdout), D.PS)
        self.assertEqual(len(d.requests), 6)

    def test_help_lists_every_verb_and_option(self):
        overview = self.run_cli("help", sock=False)
        self.assertEqual(overview.returncode, 0)
        self.assertEqual(self.shown("--help", sock=False), overview.stdout)
        options = re.findall(r'"([a-z-]+)", "[^"]*", GROUP', read(f"{SOURCE}/cli/options.def"))
        self.assertGreater(len(options), 15)
        all_help = ""
        for verb in verbs():
            self.assertRegex(overview.stdout, rf"(?m)^  {verb}\b")
            r = self.run_cli("help", verb, sock=False)
            self.assertEqual(r.returncode, 0)
            self.assertTrue(r.stdout.startswith(f"npumem {verb} - "))
            self.assertEqual(self.shown(verb, "--help", sock=False), r.stdout)
            self.assertIn("examples\n  ", r.stdout)
            all_help += r.stdout
        for option in options:
            self.assertIn(f"--{option}", all_help)
        self.assertLess(max(map(len, all_help.splitlines())), 100)

    def test_no_verb_is_an_error_with_help(self):
        r = self.run_cli(sock=False)
        self.assertEqual(r.returncode, 2)
        self.assertIn("usage:", r.stdout)

    def test_completion(self):
        r = self.run_cli("completion", "bash", sock=False)
        path = os.path.join(self.directory.name, "c")
        with open(path, "w") as f:
            f.write(r.stdout)
        def complete(*words):
            script = (f"source {path}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1};"
                      "_npumem; printf '%s\\n' \"${COMPREPLY[@]}\"")
            return subprocess.run(["bash", "-c", script], capture_output=True, text=True).stdout.split()
        self.assertEqual(complete("npumem", "bre"), ["breakdown"])
        self.assertEqual(complete("npumem", "ps", "--units", "M"), ["MiB"])
        self.assertEqual(complete("npumem", "ls", "--min-s"), ["--min-size"])
        self.assertEqual(complete("npumem", "ps", "--min"), [])
        self.assertEqual(complete("npumem", "help", "det"), ["detach"])
        for shell in "zsh", "fish":
            out = self.shown("completion", shell, sock=False)
            for verb in verbs():
                self.assertIn(verb, out)


class Failures(Case):
    def test_no_daemon(self):
        for verb in ["status", "ps", "breakdown", "ls", "events", "demo", "attach"]:
            r = self.run_cli(verb, *(["1"] if verb == "attach" else []))
            self.assert_error(r, 3, "daemon not running", "sudo systemctl start npumemd")
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(self.socket)  # bound, never listening: what a crash leaves
        self.assert_error(self.run_cli("ps"), 3, "daemon not running")
        stale.close()

    def test_socket_from_environment(self):
        self.daemon()
        r = self.run_cli("ps", "-o", "json", sock=False, env={"NPUMEM_SOCKET": self.socket})
        self.assertEqual(json.loads(r.stdout), D.PS)

    def test_errors_of_the_daemon(self):
        for name, code in [("NoSuchProcess", 4), ("NotPermitted", 5), ("BadParameter", 2),
                           ("Busy", 1), ("Failed", 1), ("Unheard", 1)]:
            with FakeDaemon(self.socket, {"Ps": error(name, "thing: it is so", "this")}):
                self.assert_error(self.run_cli("ps"), code, "thing: it is so", "this")
        with FakeDaemon(self.socket, {"Ps": error("Failed", "a: \x1b[2J\nb", "")}):
            r = self.run_cli("ps")
            self.assertEqual((r.returncode, r.stderr.count("\n")), (1, 1))
            self.assertNotIn("\x1b", r.stderr)

    def test_malformed_answers(self):
        deep = b'{"parameters":' + b"[" * 100000 + b"\0"
        for answer in [b"\0", b"nonsense\0", b"{\0", b"null\0", b"[]\0", b"3\0", b'"x"\0',
                       b'{"parameters":3}\0', b'{"parameters":{}}\0', b'{"parameters":{"document":[]}}\0',
                       b'{"parameters":{"document":{}}} trailing\0', b'{"a":"\xff\xfe"}\0',
                       b'{"error":7}\0', b'{"error":"x","parameters":[1]}\0', deep, b"half", b"",
                       b'{"parameters":{"document":{"ranks":[' ]:
            with self.subTest(answer[:40]):
                with FakeDaemon(self.socket, {"Ps": [answer, None]}):
                    r = self.run_cli("ps")
                self.assertEqual(r.returncode, 1, r.stderr)
                self.assertRegex(r.stderr, r"^npumem: [^\n]+\n$")

    def test_any_shape_of_document_is_rendered(self):
        """Every member in turn is replaced by every type; the table may be odd, never a crash."""
        junk = [None, 0, -1, 2 ** 63 - 1, 1.5, "\x1b[31m\u202ename", True, [], {}, [1, None, "x"],
                {"a": 1}]

        def paths(value, path=()):
            if path:
                yield path
            if isinstance(value, dict):
                for k in value:
                    yield from paths(value[k], (*path, k))
            elif isinstance(value, list):
                for i in range(len(value)):
                    yield from paths(value[i], (*path, i))

        def replaced(value, path, new):
            value = copy.deepcopy(value)
            at = value
            for step in path[:-1]:
                at = at[step]
            at[path[-1]] = new
            return value
        for verb, method, doc in [("breakdown", "Breakdown", D.BREAKDOWN), ("ps", "Ps", D.PS),
                                  ("ls", "Ls", D.LS), ("status", "Status", D.STATUS),
                                  ("budget", "Budget", D.BUDGET), ("advise", "Advise", D.ADVISE)]:
            variants = [replaced(doc, p, junk[(i + len(p)) % len(junk)])
                        for i, p in enumerate(paths(doc))]
            step = max(1, len(variants) // 40)  # a sample: other tests and fuzzing go further
            state = {"i": 0}
            with FakeDaemon(self.socket, {method: lambda _: document(state["doc"])}):
                for variant in variants[::step]:
                    state["doc"] = variant
                    for extra in [], ["-o", "csv"]:
                        r = self.run_cli(verb, "-v", *extra)
                        self.assertEqual(r.returncode, 0, r.stderr)
                        if not extra:
                            self.assertNotIn("\x1b", r.stdout)

    def test_time_out(self):
        with FakeDaemon(self.socket, {"Ps": [b'{"par', 3.0, None]}):
            began = time.monotonic()
            r = self.run_cli("ps", "--timeout", "300ms")
            self.assertLess(time.monotonic() - began, 2.5)
        self.assert_error(r, 1, "no answer within 0.3 s")

    def test_answer_without_end(self):
        chunk = b'{"parameters":"' + b"x" * (1 << 20)
        with FakeDaemon(self.socket, {"Ps": [chunk] * 300}):
            r = self.run_cli("ps")
        self.assert_error(r, 1, "larger than 256 MiB", "a filter or --limit")

    def test_large_answer(self):
        block = D.LS["blocks"][0]
        doc = {**D.LS, "blocks": [{**block, "address": hex(i)} for i in range(50000)]}
        self.daemon(Ls=document(doc))
        r = self.run_cli("ls", "--limit", "0", "-o", "jsonl")
        self.assertEqual(len(r.stdout.splitlines()), 50000)

    def test_full_disk(self):
        self.daemon()
        with open("/dev/full", "w") as full:
            r = subprocess.run([NPUMEM, "ps", "--socket", self.socket], stdout=full,
                               stderr=subprocess.PIPE, text=True, env=self.environment())
        self.assertEqual(r.returncode, 1)
        self.assertEqual(r.stderr, "npumem: output: No space left on device\n")

    def test_quiet_when_the_reader_goes(self):
        block = D.LS["blocks"][0]
        self.daemon(Ls=document({**D.LS, "blocks": [block] * 20000}))
        for ignore in False, True:  # a parent that ignores SIGPIPE makes no difference
            p = subprocess.Popen([NPUMEM, "ls", "--limit", "0", "--socket", self.socket],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env=self.environment(), restore_signals=not ignore)
            p.stdout.readline()
            p.stdout.close()
            self.assertEqual(p.wait(20), -signal.SIGPIPE)
            self.assertEqual(p.stderr.read(), b"")
            p.stderr.close()


class Output(Case):
    def test_json_is_passed_through(self):
        self.daemon()
        for verb, doc in [("ps", D.PS), ("breakdown", D.BREAKDOWN), ("ls", D.LS),
                          ("status", D.STATUS)]:
            r = self.run_cli(verb, "-o", "json")
            self.assertEqual(json.loads(r.stdout), doc)
        self.assertIn("9007199254740993", self.shown("ls", "-o", "json"))  # 2^53 + 1

    def test_ps_table(self):
        self.daemon()
        out = self.shown("ps")
        lines = out.splitlines()
        self.assertEqual(lines[0].split()[:5], ["PID", "COMM", "RANK", "DEVICE", "PHYSICAL"])
        self.assertRegex(lines[1], r"^1234  VLLM::Worker_TP     0       0  30\.00 GiB  28\.00 GiB  "
                                   r"26\.00 GiB  31\.00 GiB  blocks    -  +vllm serve")
        # right-aligned: figures end where their headers end; unknown is "?", with its reason below
        end = lines[0].index("PHYSICAL") + len("PHYSICAL")
        self.assertTrue(lines[1][:end].endswith("GiB") or lines[1][:end + 2].endswith("GiB"))
        self.assertRegex(lines[2], r"^1235  VLLM::Worker_TP     1       1 +\? +\? +\? +\?  physical")
        self.assertIn("? PHYSICAL: attached late", out)
        self.assertIn("? RESERVED: no torch_npu", out)
        self.assertNotIn("\x1b", out)
        self.assertFalse(re.search(r"[\u2500-\u257f]", out))
        self.assertFalse(any(line != line.rstrip() for line in lines))

    def test_units_and_fields(self):
        self.daemon()
        out = self.shown("ps", "--units", "B", "--fields", "allocated_bytes,tgid", "--no-header",
                           "-q")
        self.assertEqual(out.splitlines()[0], f"{26 * D.GIB + 512} B  1234")
        out = self.shown("ps", "--fields", "rank,tgid", "-o", "jsonl")
        self.assertEqual([json.loads(line) for line in out.splitlines()],
                         [{"rank": 0, "tgid": 1234}, {"rank": 1, "tgid": 1235}])
        out = self.shown("ps", "--fields", "tgid", "-o", "json")
        self.assertEqual(json.loads(out)["ranks"], [{"tgid": 1234}, {"tgid": 1235}])

    def test_csv_is_exact(self):
        odd = {**D.RANK0, "title": 'a,"b"\nc', "allocated_bytes": 2 ** 62 + 1}
        self.daemon(Ps=document({**D.HEADER, "ranks": [odd, D.RANK1]}))
        rows = list(csv.DictReader(io.StringIO(self.shown("ps", "-o", "csv"))))
        self.assertEqual(rows[0]["allocated_bytes"], str(2 ** 62 + 1))
        self.assertEqual(rows[0]["title"], 'a,"b"\nc')
        self.assertEqual(rows[1]["physical_bytes"], "")
        self.assertEqual(rows[1]["container"], "4f1c0ffee")

    def test_breakdown_table(self):
        self.daemon()
        out = self.shown("breakdown")
        lines = out.splitlines()
        self.assertEqual(lines, [line.rstrip() for line in lines])
        def cells(label, nth=0):
            found = [l for l in lines if l.startswith(label + "  ")]
            return re.split(r" {2,}", found[nth][len(label):].strip())
        self.assertEqual(lines[0].split(), ["rank", "0", "rank", "1"])
        self.assertEqual(lines[2].split(), ["pid", "1234", "pid", "1235"])
        self.assertEqual(cells("physical"), ["30.00 GiB", "?"])
        self.assertEqual(cells("  PTA@pool"), ["28.00 GiB", "-"])
        self.assertEqual(cells("  CANN@HCCL"), ["2.00 GiB~", "2.00 GiB"])
        self.assertEqual(cells("  sum of owners"), ["exact", "?"])
        self.assertEqual(cells("  - pool slack"), ["1024.00 MiB", "?"])  # 1 GiB - 512 B: below the unit
        self.assertEqual(cells("  - stream-delayed"), ["1.00 GiB", "?"])
        self.assertEqual(cells("allocated"), ["26.00 GiB", "?"])
        self.assertEqual(cells("  PTA@small"), ["512 B", "-"])
        self.assertEqual(cells("host (pinned)"), ["512.00 MiB", "512.00 MiB"])
        self.assertEqual(cells("  driver side"), ["5.00 MiB", "?"])
        self.assertNotIn("address ranges", out)
        # a level's owners stand under it and nowhere else
        order = [lines.index(next(l for l in lines if l.startswith(s))) for s in (
            "physical", "  PTA@pool", "  - outside pools", "reserved by pools", "  - pool slack",
            "active", "  - stream-delayed", "allocated", "  PTA@small", "host (pinned)")]
        self.assertEqual(order, sorted(order))
        self.assertIn("device 0  34.00 GiB used of 64.00 GiB = 30.00 GiB attributed + 1.00 GiB other "
                      "processes + 5.00 MiB driver side + 3.00 GiB unattributed  balanced", out)
        self.assertIn("device 1  ? used of ? =", out)
        self.assertIn("? reserved_bytes: no torch_npu", out)
        self.assertIn("? driver_side: no driver figure", out)
        self.assertIn("~ inferred", out)

    def test_what_was_read_has_a_mark(self):
        rank = {**D.RANK0, "owners": [D.owner("PTA@vllm@weights", "allocated", 3 * D.GIB, 7, source="read"),
                                      D.owner("PTA@block", "allocated", 2 * D.GIB, 7, source="event+read"),
                                      D.owner("before_attach", "allocated", D.GIB, None, source="total")],
                "gaps": [D.gap("unmapped", "reserved", 5 * D.MIB)], "checks": []}
        self.daemon(Breakdown=document({**D.HEADER, "ranks": [rank], "devices": []}))
        out = self.shown("breakdown")
        self.assertIn("  PTA@vllm@weights", out)
        for line in ["3.00 GiB^", "2.00 GiB^", "  - without memory"]:
            self.assertIn(line, out)
        self.assertNotIn("1.00 GiB^", out)
        self.assertRegex(out, r"(?m)^\^ allocated before npumem attached, found by reading .*npumem scan PID$")
        self.fresh_daemon(Breakdown=document(D.BREAKDOWN))
        out = self.shown("breakdown")
        self.assertNotIn("^", out)
        self.assertNotIn("without memory", out)

    def fresh_daemon(self, **script):
        self.doCleanups()
        self.setUp()
        return self.daemon(**script)

    def module(self, name, depth, **dtypes):
        return {"name": name, "depth": depth, "bytes": sum(dtypes.values()), "tensors": len(dtypes),
                "dtypes": ",".join(dtypes), "dtype_bytes": dtypes}

    def scanned(self, odd=0):
        modules = [self.module("model", 0, bfloat16=900)]
        for i in range(4):
            size = 100 + (odd if i == 3 else 0)
            modules += [self.module(f"model.layers.{i}", 2, bfloat16=size, int8=8),
                        self.module(f"model.layers.{i}.mlp", 3, bfloat16=size, int8=8)]
        return {**D.HEADER, "framework": "vllm", "root": "R", "python": "3.11", "coverage": {"names": "full"},
                "allocators": [], "owners": [], "tensors": [], "modules": modules,
                "layers": [m for m in modules if m["depth"] == 2],
                "dtypes": [{"dtype": "bfloat16", "role": "parameter", "bytes": 900, "tensors": 3}],
                "parameters": [{"kind": "quantised", "expert": True, "bytes": 32, "tensors": 4},
                               {"kind": "plain", "expert": False, "bytes": 500, "tensors": 4}]}

    def test_tree_of_all_ranks(self):
        d = self.daemon(Scan=lambda p: document(self.scanned(odd=p["tgid"] % 2)))
        out = self.shown("ls", "--tree", "--units", "B")
        self.assertEqual(sorted(r["parameters"]["tgid"] for r in d.requests if r["method"].endswith(".Scan")),
                         [1234, 1235])
        even, odd = out.split("pid 1235")
        self.assertIn("pid 1234, rank 0, device 0", even)
        self.assertRegex(even, r"108 B +0 to 3, 4 alike, each  bfloat16 100 B, int8 8 B")
        self.assertEqual(even.count("mlp"), 1)
        self.assertIn("layers      4 of 108 B each from model.layers.0 on (bfloat16 100 B, int8 8 B)", even)
        self.assertIn("32 B quantised (experts), 500 B plain", even)
        # the layer that differs stands out
        self.assertRegex(odd, r"0 to 2, 3 alike")
        self.assertRegex(odd, r"109 B +3  bfloat16 101 B, int8 8 B")
        self.assertIn("3 of 108 B each from model.layers.0 on", odd)
        self.assertEqual(self.shown("ls", "--tree", "-v").count("mlp"), 8)
        doc = json.loads(self.shown("ls", "--tree", "-o", "json"))
        self.assertEqual([r["tgid"] for r in doc["ranks"]], [1234, 1235])
        self.assertEqual(len(doc["ranks"][0]["modules"]), 9)
        rows = list(csv.DictReader(io.StringIO(self.shown("ls", "--tree", "-o", "csv"))))
        self.assertEqual(len(rows), 18)

    def test_tree_of_what_cannot_be_scanned(self):
        self.daemon(Scan=error("Failed", "process 1234: its memory may not be read"))
        out = self.shown("ls", "--tree")
        self.assertIn("? names: ", out)
        self.assertIn("may not be read", out)

    def test_breakdown_that_does_not_add_up_says_so(self):
        doc = copy.deepcopy(D.BREAKDOWN)
        doc["ranks"][0]["checks"][0] = D.check("physical", 30 * D.GIB, 3 * D.MIB)
        doc["devices"][0]["balanced"] = False
        self.daemon(Breakdown=document(doc))
        out = self.shown("breakdown")
        self.assertIn("off by 3.00 MiB", out)
        self.assertIn("UNBALANCED", out)

    def test_breakdown_csv_and_jsonl(self):
        self.daemon()
        rows = list(csv.DictReader(io.StringIO(self.shown("breakdown", "-o", "csv"))))
        pool = [r for r in rows if r["name"] == "PTA@pool"]
        self.assertEqual([(r["tgid"], r["level"], r["bytes"], r["kind"]) for r in pool],
                         [("1234", "physical", str(28 * D.GIB), "owner")])
        total = sum(int(r["bytes"]) for r in rows
                    if r["kind"] == "owner" and r["level"] == "allocated" and r["tgid"] == "1234")
        self.assertEqual(total, D.RANK0["allocated_bytes"])
        lines = self.shown("breakdown", "-o", "jsonl").splitlines()
        self.assertEqual(len(lines), len(rows))

    def test_sixteen_ranks_wrap_at_the_width(self):
        ranks = [{**D.BREAKDOWN["ranks"][0], "rank": i, "tgid": 1000 + i} for i in range(16)]
        self.daemon(Breakdown=document({**D.BREAKDOWN, "ranks": ranks, "devices": []}))
        out = self.shown("breakdown", "-q", env={"COLUMNS": "80"})
        self.assertLessEqual(max(map(len, out.splitlines())), 80)
        shown = re.findall(r"\brank (\d+)", out)
        self.assertEqual(shown, [str(i) for i in range(16)])
        wide = self.shown("breakdown", "-q")
        self.assertEqual(sum(l.startswith("physical") for l in wide.splitlines()), 1)

    def test_width_shortens_text_never_figures(self):
        self.daemon()
        for width in range(80, 160, 7):
            out = self.shown("ps", "-q", env={"COLUMNS": str(width)})
            self.assertLessEqual(max(map(len, out.splitlines())), width)
            self.assertIn("30.00 GiB  28.00 GiB  26.00 GiB  31.00 GiB", out)
            if 120 < width < 145:  # before that the long columns are left out
                self.assertIn("vllm s", out)
                self.assertIn("...", out)
        out = self.shown("ps", "--fields", "title,container", env={"COLUMNS": "10"})
        self.assertIn("TITLE", out)
        self.assertIn("CONTA", out)

    def test_frag(self):
        """The verdict first; unknown holes are not made up; the block that pins, with its frame."""
        d = self.daemon(Frag=document(D.FRAG))
        lines = self.shown("frag", "--request", "72MiB").splitlines()
        self.assertEqual(lines[0], "process 1234, device 0: 3.00 GiB of 4.01 GiB reserved is free, in 2 holes, the "
                         "largest 2.00 GiB; of 6.00 MiB it is not known; a request of 72.00 MiB fits nowhere, "
                         "3.00 GiB is of no use to it")
        self.assertEqual(d.requests[-1]["parameters"], {"request_bytes": 72 * D.MIB})
        self.assertRegex(lines[3], r"small +6\.00 MiB +5\.00 MiB +\? +\? +\?")
        self.assertIn(D.FRAG_REASON, lines[4])
        self.assertRegex(lines[-1], r"2\.00 GiB +1\.99 GiB +12\.00 MiB +PTA@vllm@serve +1 h 0 min +execute_model")
        self.assertEqual(json.loads(self.shown("frag", "-v", "-o", "json")), D.FRAG)
        self.assertEqual(d.requests[-1]["parameters"], {"map": True})
        rows = list(csv.DictReader(io.StringIO(self.shown("frag", "-o", "csv"))))
        self.assertEqual([r["largest_hole_bytes"] for r in rows], [str(2 * D.GIB), ""])
        for size in ("0", "-1", "72MX"):
            self.assert_error(self.run_cli("frag", "--request", size), 2, f"--request {size}: not a size", "--request 72MiB")

    def test_inefficient(self):
        """The verdict, what of the window was seen and what was not; the costliest finding first, with its frame."""
        d = self.daemon(Inefficient=document(D.INEFFICIENT), Ps=document(D.PS))
        out = self.run_cli("inefficient", "--pid", "1234", "--for", "2s", "--idle", "500ms", "--min-size", "1MiB", "--operations", "7").stdout
        self.assertEqual(d.requests[-1]["parameters"], {"tgid": 1234, "for_ns": 2 * 10**9, "limit": 30, "idle_ns": 5 * 10**8,
                                                        "operations": 7, "min_bytes": D.MIB})
        lines = out.splitlines()
        self.assertEqual(lines[0], "the verdict of the window")
        self.assertEqual(lines[1], "5000 operations used 12 blocks 9000 times in 9.0 s of work; the process ended before the window did")
        self.assertEqual(lines[2], "not seen: 3 captured graphs ?[2J")
        self.assertRegex(out, r"late_deallocation +512\.00 MiB +6\.0 s +75\.00 % +3\.00 GiB +both +4100 +17 +PTA@vllm@serve +"
                         r"0x12c041200000 +step \(worker\.py:12\)\n")
        self.assertRegex(out, r"early_allocation +1\.00 GiB +2\.0 s +20\.00 % +2\.00 GiB +time +- +0 +- +0x12c081200000 +model\.embed_tokens\.weight\n")
        self.assertEqual(lines[-1], "5 more (--limit)")
        rows = list(csv.DictReader(io.StringIO(self.run_cli("inefficient", "--pid", "1234", "--fields", "kind,sense,byte_seconds,freed",
                                                            "-o", "csv").stdout)))
        self.assertEqual(rows[0], {"kind": "late_deallocation", "sense": "both", "byte_seconds": str(3 * D.GIB), "freed": "false"})
        self.assertEqual(json.loads(self.run_cli("inefficient", "--pid", "1234", "-o", "json").stdout), D.INEFFICIENT)
        self.run_cli("inefficient")  # the only one with an allocator
        self.assertEqual(d.requests[-1]["parameters"]["tgid"], 1234)
        d.script["Inefficient"] = document({**D.INEFFICIENT, "verdict": "nothing lay idle", "findings": [], "hidden": [],
                                            "matched_findings": 0})
        self.assertEqual(self.run_cli("inefficient", "--pid", "1234").stdout.splitlines()[0], "nothing lay idle")
        self.assertEqual(len(self.run_cli("inefficient", "--pid", "1234").stdout.splitlines()), 2)
        d.script["Ps"] = document({**D.PS, "ranks": []})
        self.assert_error(self.run_cli("inefficient"), 4, "no observed process has an allocator", "npumem ps")
        d.script["Ps"] = document({**D.PS, "ranks": [D.RANK0, {**D.RANK0, "tgid": 1235}]})
        self.assert_error(self.run_cli("inefficient"), 2, "several processes have an allocator", "npumem ps")
        self.assert_error(self.run_cli("inefficient", "--pid", "1,2"), 2, "one process at a time", "--pid 1")

    def test_leaks(self):
        """The finding and where it is allocated; without one, what that is worth."""
        d = self.daemon(Leaks=document(D.LEAKS))
        out = self.shown("leaks", "--since", "@1799990000", "--mark", "step", "--pid", "1234")
        self.assertEqual(d.requests[-1]["parameters"], {"tgid": [1234], "since_ns": 1799990000 * 10**9, "mark": "step"})
        self.assertEqual(out.splitlines()[0], "process 1234 (rank 0): leak of PTA@vllm@serve, 300.00 MiB per hour, 5.00 MiB "
                         "per cycle, full in 2 h 0 min (1 h 56 min): the floor rose from 1.00 GiB to 1.29 GiB without coming back")
        self.assertRegex(out, r"PTA@vllm@serve +leak +300\.00 MiB +5\.00 MiB +2 h 0 min +1 h 0 min")
        self.assertIn("keep (?[2Jcache.py:7)", out)
        none = {**D.LEAKS, "findings": []}
        for judged, text in [({"series": 40, "too_short": 3}, "nothing grows for good in 40 series (3 too short to tell)"),
                             ({"series": 0, "too_short": 0}, "no samples in this window: nothing can be said"),
                             ({"series": 5, "too_short": 5}, "too early to tell: 5 series, none seen for 10 min 0 s yet")]:
            d.script["Leaks"] = document({**none, "judged": {**judged, "least_ns": 600 * 10**9}})
            self.assertEqual(self.shown("leaks").strip(), text)
        self.assert_error(self.run_cli("leaks", "--since", "soon"), 2, "--since soon: not a time")

    def test_oom(self):
        """A report: what of the slack could go back, or that it is not known; a setting that cannot be used."""
        d = self.daemon(OomShow=document(D.OOM))
        out = self.shown("oom", "show", "3")
        self.assertRegex(out, r"\nslack +6\.00 GiB\nin whole granules, at least +5\.00 GiB\n")
        self.assertIn("\nnot used: PYTORCH_NPU_ALLOC_CONF=x: no\n", out)
        self.assertRegex(out, r"1\. PYTORCH_NPU_ALLOC_CONF: expandable_segments:True  \(saves 5\.00 GiB\)\n")
        d.script["OomShow"] = document({**D.OOM, "unmap_bytes": None, "complaint": None})
        out = self.shown("oom", "show", "3")
        self.assertNotIn("whole granules", out)
        self.assertNotIn("not used", out)
        self.assertNotIn("~", out)
        figures = {"foreign_bytes": D.GIB, "baseline_bytes": 3 * D.GIB, "baseline_assumed": True}
        d.script["OomShow"] = document({**D.OOM, **figures, "holders": []})
        out = self.shown("oom", "show", "3")
        self.assertRegex(out, r"\nheld by others +1\.00 GiB~\nidle card +3\.00 GiB~\n~ what an idle card uses is assumed, not read\n")
        d.script["OomShow"] = document({**D.OOM, **figures, "holders": [{"tgid": 7, "bytes": D.GIB}]})
        self.assertRegex(self.shown("oom", "show", "3"), r"\nheld by others +1\.00 GiB\nidle card +3\.00 GiB~\n")

    def test_budget(self):
        """Verdict, terms, what is unknown and why, the term to change."""
        self.daemon(Budget=document(D.BUDGET))
        out = self.shown("budget")
        lines = out.splitlines()
        self.assertEqual(lines[0], "rank 0, pid 1234, device 0 (VLLM::Worker_TP): NEGATIVE, the reason of NEGATIVE")
        self.assertIn("  not used: --gpu-memory-utilization=7: no", lines)
        self.assertRegex(out, r"- weights +30\.00 GiB +\?\n")
        self.assertRegex(out, r"= available for KV +-1\.00 GiB +\?\n")
        self.assertRegex(out, r"= budget +35\.00 GiB +~35\.00 GiB\n")
        self.assertRegex(out, r"x utilization +0\.55 +~0\.55\n")
        self.assertIn("? others_at_start, weights, profile_peak, non_torch, available, kv_cache, graph: unknown: attached late", out)
        self.assertRegex(out, r"1\. gpu_memory_utilization: 0\.55 -> at least 0\.57\n +the evidence of gpu_memory_utilization; confidence high")
        rows = list(csv.DictReader(io.StringIO(self.shown("budget", "-o", "csv"))))
        self.assertEqual([(r["verdict"], r["weights_bytes"], r["available_bytes"]) for r in rows],
                         [("NEGATIVE", str(30 * D.GIB), str(-D.GIB)), ("INCOMPLETE", "", "")])
        got = json.loads(self.shown("budget", "-o", "json"))
        self.assertEqual(got.pop("kv_usage"), [])
        self.assertEqual(got, D.BUDGET)

    def test_kv_history(self):
        """How full the caches were: a block per engine, those that have ended, the reason where nothing is known; the window."""
        d = self.daemon(Budget=document(D.BUDGET))
        out = self.shown("budget", "--since", "@1799000000", "--until", "@1800000000")
        self.assertEqual(d.requests[-1]["parameters"], {"since_ns": 1799000000 * 10**9, "until_ns": 1800000000 * 10**9})
        block = out[out.index("KV cache of server 1200"):].splitlines()
        self.assertRegex(block[0], r"^KV cache of server 1200 since 2027-01-03 18:13:20\.\d+: 11 d 13 h known, read every 1\.0* ?s$")
        self.assertRegex(block[1], r"^  fullest 50\.0 % \(10\.00 GiB of 20\.00 GiB per rank\) on 2027-01-09 13:06:40\.\d+, "
                                   r"12 requests ran, 3 waited; now 3\.1 %$")
        self.assertRegex(block[2], r"^  half of the time at most 10 % full, 95 % of it at most 42 %, 99 % of it at most 48 %; 90 % or more for 0")
        self.assertEqual(block[3], "  fits: gpu_memory_utilization 0.76, 11.00 GiB of KV cache hold the fullest and a tenth more; "
                                   "max_model_len up to 128128 tokens (one request alone)")
        self.assertRegex(block[4], r"^KV cache of server 1300, replica 1 \(exited\) since ")
        self.assertRegex(block[5], r"^  fullest 50\.0 % on \S+ \S+$")
        self.assertEqual(block[7], "KV cache of server 1400: not followed: no CPython that is known")
        self.assertNotIn("not followed", self.shown("budget", "--quiet"))

    def metrics(self, answer, pause=0):
        """A server of one's own metrics; its port."""
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        seen = []

        def serve():
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    seen.append(client.recv(4096))
                    time.sleep(pause)
                    body = answer.pop(0) if len(answer) > 1 else answer[0]
                    try:
                        client.sendall(body)
                    except OSError:
                        pass
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        self.addCleanup(stop_listening, listener, thread)
        return listener.getsockname()[1], seen

    def kv_usage(self, answer, pause=0, arguments=(), **more):
        port, seen = self.metrics(answer, pause)
        ranks = [D.plan(0, "FITS", [D.term("card_total", 64 * D.GIB), D.term("kv_cache", 20 * D.GIB)], utilization=0.9)]
        server = {"tgid": 1200, "metrics_port": port, "network": os.readlink("/proc/self/ns/net"), "reason": None, **more}
        with FakeDaemon(self.socket, {"Budget": document({**D.BUDGET, "ranks": ranks, "servers": [server]})}):
            rows = json.loads(self.shown("budget", "-o", "json", *arguments))["kv_usage"]
            table = self.shown("budget")
        return rows, table, seen

    def until(self, fits, answers, pause=0, **more):
        """The same again, on a host that is too busy to answer in a second."""
        for _ in range(8):
            result = self.kv_usage(list(answers), pause, **more)
            if fits(*result[:2]):
                break
        return result

    def test_kv_usage(self):
        """What the server's own /metrics says: now, over a window, and what would fit."""
        text = ('vllm:kv_cache_usage_perc{engine="0",model_name="m"} %s\nvllm:num_requests_running{engine="0"} 3\n'
                'vllm:cache_config_info{block_size="128",engine="0",num_gpu_blocks="1000",gpu_memory_utilization="0.9"} 1\n')
        answers = [b"HTTP/1.0 200 OK\r\n\r\n" + (text % use).encode() for use in ("0.1", "0.5", "0.2")]
        def both_seen(rows, _):  # a look takes at most a second, which a busy host may not keep
            return rows[0].get("least_ratio") == 0.1 and rows[0]["most_ratio"] == 0.5
        rows, table, seen = self.until(both_seen, answers, arguments=["--for", "1500ms"])
        row = rows[0]
        self.assertEqual((row["least_ratio"], row["most_ratio"]), (0.1, 0.5), rows)
        self.assertGreaterEqual(row["samples"], 2)
        self.assertEqual((row["tokens"], row["reserved_bytes"], row["fits_model_len"]), (128000, 20 * D.GIB, 128000))
        self.assertEqual((row["fits_utilization"], row["fits_bytes"]), (0.76, 11 * D.GIB))  # of 20 GiB, of a card of 64: 0.14 less
        self.assertTrue(seen[0].startswith(b"GET /metrics HTTP/1.0\r\n"), seen[0])
        self.assertIn("KV cache of server 1200, engine 0: 20.0 % full (4.00 GiB of 20.00 GiB per rank); 3 requests run, 0 wait\n"
                      "  fits: gpu_memory_utilization 0.66, 4.40 GiB of KV cache hold the fullest and a tenth more; "
                      "max_model_len up to 128000 tokens (one request alone)\n",
                      self.until(lambda _, table: "engine 0: 20.0" in table, answers[-1:])[1])

    def test_kv_usage_unknown(self):
        """What is not asked or does not answer has a reason, and the budget stands."""
        ok = b"HTTP/1.0 200 OK\r\n\r\n"
        for answer, pause, more, reason in [
                ([b"SSH-2.0-x\r\n"], 0, {}, "no HTTP"), ([b"HTTP/1.1 404 Not Found\r\n\r\n"], 0, {}, "answers 404"),
                ([ok + b"x" * (5 << 20)], 0, {}, "File too large"), ([ok + b"other 1\n"], 0, {}, "tells no use"),
                ([ok], 20, {}, "timed out"), ([ok], 0, {"network": "net:[1]"}, "another network namespace"),
                ([ok], 0, {"metrics_port": None, "reason": "its command line names no port"}, "names no port")]:
            with self.subTest(reason):
                rows, table, seen = self.until(lambda rows, _: reason in (rows[0]["reason"] or ""), answer, pause, **more)
                self.assertIn(reason, rows[0]["reason"])
                self.assertIn(f"KV cache of server 1200: use unknown: ", table)
                self.assertIn("= budget", table)
                if more:
                    self.assertEqual(seen, [])

    def test_advise(self):
        self.daemon(Advise=document(D.ADVISE))
        out = self.shown("advise")
        self.assertRegex(out, r"rank 0, process 1234\n1\. gpu_memory_utilization: 0\.55 -> at least 0\.57\n")
        self.assertIn("2. PYTORCH_NPU_ALLOC_CONF: not set -> expandable_segments:True  (saves 8.00 GiB)\n", out)
        self.assertIn("process 1235\n1. HCCL_BUFFSIZE: 100  (saves 1.00 GiB)\n", out)
        self.assertIn("   where: a variable of the process's environment; takes effect after a restart\n", out)
        rows = list(csv.DictReader(io.StringIO(self.shown("advise", "-o", "csv"))))
        self.assertEqual([r["saves_bytes"] for r in rows], ["", str(8 * D.GIB), str(D.GIB)])
        self.assertEqual(json.loads(self.shown("advise", "-o", "json")), D.ADVISE)

    def test_nothing_to_advise(self):
        self.daemon(Advise=document({**D.ADVISE, "advice": []}))
        self.assertEqual(self.shown("advise"),
                         "nothing to advise on 3 processes: no setting has evidence that it would help\n")

    def test_ls_table(self):
        d = self.daemon()
        out = self.shown("ls", "--owner", "PTA@*", "--level", "physical,host", "--min-size", "2MiB",
                           "--rank", "0")
        self.assertIn("PTA@pool", out)
        self.assertIn("1 min 1 s", out)
        self.assertIn("1 of 7 shown; --limit 0 shows all", out)
        self.assertIn("physical: 7 blocks", out)
        self.assertEqual(d.requests[0]["parameters"],
                         {"owner": ["PTA@*"], "level": ["physical", "host"], "min_bytes": 2 * D.MIB,
                          "rank": [0], "limit": 100})

    def test_filters_reach_the_daemon(self):
        d = self.daemon()
        self.run_cli("ps", "--pid", "1,2", "--pid", "3", "--rank", "0", "--device", "7",
                     "--container", "4f1c")
        self.assertEqual(d.requests[0]["parameters"],
                         {"tgid": [1, 2, 3], "rank": [0], "device": [7], "container": ["4f1c"]})

    def test_a_filter_that_fits_nothing(self):
        self.daemon(Ps=document({**D.HEADER, "ranks": []}))
        self.assert_error(self.run_cli("ps", "--rank", "9"), 4, "no observed process", "npumem ps")
        self.assertEqual(self.run_cli("ps").returncode, 0)

    def test_incomplete_data(self):
        self.daemon(Ps=document(D.incomplete(D.PS)))
        r = self.run_cli("ps")
        self.assertEqual(r.returncode, 0)
        self.assertIn("incomplete: 17 events lost", r.stdout)
        r = self.run_cli("ps", "-o", "csv")
        self.assertNotIn("incomplete", r.stdout)
        self.assertIn("17 events lost", r.stderr)
        for form in "table", "json", "csv", "jsonl":
            r = self.run_cli("ps", "--strict", "-o", form)
            self.assertEqual(r.returncode, 6)
            self.assertTrue(r.stdout)
        self.assertNotIn("incomplete", self.shown("ps", "-q"))

    def test_status(self):
        self.daemon()
        out = self.shown("status", "-v")
        self.assertRegex(out, r"daemon +version 0\.1\.0, up 3 min 20 s, memory 20\.00 MiB, cpu 1\.5 s")
        self.assertRegex(out, r"events +received 12345, lost 0")
        self.assertIn("2, 1 attached", out)
        self.assertIn("0.25 %", out)
        self.assertIn("aclrtMalloc", out)
        self.assertNotIn("aclrtMalloc", self.shown("status"))

    def test_events(self):
        stream = [reply({"document": {**D.EVENT, "sequence": i}}, continues=True) for i in range(50)]
        self.daemon(Events=[*stream, None])
        r = self.run_cli("events", "-f", "--limit", "5")
        self.assertEqual(r.returncode, 0, r.stderr)
        lines = r.stdout.splitlines()
        self.assertEqual(len(lines), 6)
        for word in "1234", "alloc", "1000 B", "2.00 MiB", "aclrtMalloc", "0x12c041200000":
            self.assertIn(word, lines[1])
        r = self.run_cli("events", "-o", "jsonl", "--limit", "50")
        self.assertEqual([json.loads(l)["sequence"] for l in r.stdout.splitlines()], list(range(50)))
        r = self.run_cli("events", "-o", "csv", "--limit", "2")
        rows = list(csv.DictReader(io.StringIO(r.stdout)))
        self.assertEqual([x["requested_bytes"] for x in rows], ["1000", "1000"])
        r = self.run_cli("events")  # the daemon ends the stream
        self.assertEqual(r.returncode, 3)
        self.assertIn("it ended the stream", r.stderr)

    def test_attach(self):
        d = self.daemon(Attach=document({**D.HEADER, "tgid": 5, "state": "attached"}),
                        Detach=error("NoSuchProcess", "process 6 is not observed", "npumem ps"))
        r = self.run_cli("attach", "5", "7")
        self.assertEqual((r.returncode, r.stdout), (0, "attached to 5\nattached to 7\n"))
        self.assertEqual([q["parameters"] for q in d.requests], [{"tgid": 5}, {"tgid": 7}])
        self.assert_error(self.run_cli("detach", "6"), 4, "process 6", "npumem ps")
        self.run_cli("attach", "8", "x")
        self.assertEqual(len(d.requests), 3)  # one wrong operand: nothing is done

    def test_version(self):
        self.daemon()
        self.assertRegex(self.shown("version"),
                         r"^npumem \d+\.\d+\.\d+\nnpumemd 0\.1\.0 \(event ABI 1\)\n$")
        r = self.run_cli("--version", "--socket", "/nonexistent/s", sock=False)
        self.assertEqual(r.returncode, 0)
        self.assertIn("not reachable", r.stdout)

    def test_watch_repeats(self):
        d = self.daemon()
        p = subprocess.Popen([NPUMEM, "ps", "-w", "100ms", "-o", "json", "--socket", self.socket],
                             stdout=subprocess.PIPE, text=True, env=self.environment())
        docs = [json.loads(p.stdout.readline()) for _ in range(3)]
        p.terminate()
        p.wait(10)
        p.stdout.close()
        self.assertEqual(docs, [D.PS] * 3)
        self.assertGreaterEqual(len(d.requests), 3)


class Terminal(Case):
    def on_terminal(self, *args, columns=120, **env):
        """Output of npumem on a terminal of that width."""
        self.daemon()
        pid, fd = pty.fork()
        if pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
            os.execve(NPUMEM, [NPUMEM, *args, "--socket", self.socket], self.environment(**env))
        data = b""
        while True:
            try:
                part = os.read(fd, 65536)
            except OSError:
                break
            if not part:
                break
            data += part
        _, status = os.waitpid(pid, 0)
        os.close(fd)
        return os.waitstatus_to_exitcode(status), data.decode().replace("\r\n", "\n")

    def test_color(self):
        for env, args, colored in [({}, [], True), ({"NO_COLOR": "1"}, [], False),
                                   ({"TERM": "dumb"}, [], False), ({}, ["--color", "never"], False),
                                   ({"NO_COLOR": ""}, [], True),
                                   ({"NO_COLOR": "1"}, ["--color", "always"], True)]:
            with self.subTest(env=env, args=args):
                self.fresh()
                code, out = self.on_terminal("breakdown", "--no-pager", *args, **env)
                self.assertEqual(code, 0)
                self.assertEqual("\x1b[" in out, colored)

    def fresh(self):
        self.doCleanups()
        self.setUp()

    def test_always_without_terminal(self):
        self.daemon()
        self.assertIn("\x1b[1m", self.shown("ps", "--color", "always"))

    def test_width_of_the_terminal(self):
        code, out = self.on_terminal("ps", "-q", "--no-pager", "--color", "never", columns=90)
        self.assertEqual(code, 0)
        self.assertLessEqual(max(map(len, out.splitlines())), 90)

    def test_pager(self):
        code, out = self.on_terminal("ps", PAGER="sed s/^/PAGED:/")
        self.assertEqual(code, 0)
        self.assertTrue(all(l.startswith("PAGED:") for l in out.splitlines()), out)
        for args, env in [(["--no-pager"], {"PAGER": "sed s/^/PAGED:/"}), ([], {"PAGER": ""}),
                          (["-o", "json"], {"PAGER": "sed s/^/PAGED:/"})]:
            self.fresh()
            self.assertNotIn("PAGED", self.on_terminal("ps", *args, **env)[1])
        self.fresh()
        code, out = self.on_terminal("breakdown", PAGER="head -n 1")  # a pager that is quit
        self.assertEqual(len(out.splitlines()), 1)

    def test_names_of_processes_do_not_reach_the_terminal_raw(self):
        evil = {**D.RANK0, "title": "x\x1b]0;owned\x07\x9b31m\u202eabc", "comm": "a\nb\tc"}
        self.daemon(Ps=document({**D.HEADER, "ranks": [evil]}))
        out = self.shown("ps")
        for bad in "\x1b", "\x07", "\x9b", "\u202e", "\t":
            self.assertNotIn(bad, out)
        self.assertEqual(len(out.splitlines()), 2)


class Check(Case):
    def test_check_without_daemon(self):
        r = self.run_cli("check")
        self.assertIn(r.returncode, (0, 1))
        lines = r.stdout.splitlines()
        self.assertGreaterEqual(len(lines), 10)
        for line in lines:
            self.assertRegex(line, r"^(ok|info|missing) +[a-z_]+ ")
        self.assertEqual(r.returncode, int(any(l.startswith("missing") for l in lines)))
        self.assertTrue(any("daemon not running" in l for l in lines))
        doc = json.loads(self.shown("check", "-o", "json"))
        self.assertEqual(doc["ready"], r.returncode == 0)
        states = {l.split()[1]: l.split()[0] for l in lines}
        asked_again = {n["need"]: n["state"] for n in doc["needs"]}
        self.assertEqual({**asked_again, "processes": states["processes"]}, states)  # those may come and go
        for key in "schema_version", "complete", "lost_events", "time_ns", "host":
            self.assertIn(key, doc)

    def test_check_sees_the_daemon(self):
        self.daemon()
        self.assertRegex(self.shown("check"), r"(?m)^ok +daemon +serves ")

    @unittest.skipIf(os.geteuid() != 0, "needs root to give privileges up")
    def test_without_privileges(self):
        command = ["setpriv", "--reuid", "65534", "--clear-groups", "--bounding-set", "-all",
                   NPUMEM, "check", "-o", "json"]
        r = subprocess.run(command, capture_output=True, text=True, env=self.environment())
        if "setpriv" in r.stderr or not r.stdout:
            self.skipTest("the program cannot be run by another user here")
        doc = json.loads(r.stdout)
        states = {n["need"]: n for n in doc["needs"]}
        self.assertEqual(r.returncode, 1)
        self.assertFalse(doc["ready"])
        self.assertEqual(states["privileges"]["state"], "missing")
        self.assertIn("CAP_BPF", states["privileges"]["detail"])
        self.assertIn("sudo", states["privileges"]["fix"])

    def test_a_process_with_a_library_is_found(self):
        library = os.path.join(self.directory.name, "libascendcl.so")
        with open(library, "wb") as f:
            f.write(b"\0" * 8192)
        code = ("import mmap,sys,time; f=open(sys.argv[1],'rb');"
                "m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ); print('up',flush=True); time.sleep(60)")
        p = subprocess.Popen([sys.executable, "-c", code, library], stdout=subprocess.PIPE)
        try:
            p.stdout.readline()
            line = [l for l in self.shown("check").splitlines() if "processes" in l][0]
            self.assertRegex(line, r"^ok ")
            self.assertRegex(line, r"\d+ map a CANN library: ")
        finally:
            p.kill()
            p.wait()
            p.stdout.close()


class Recordings(Case):
    """Traces in files: what is no trace is refused in words, what is not whole is said to be."""

    def trace(self, name, records=(), flags=0, cut=0, version=1, begin=0, end=1000):
        """Records are (kind, time, address, bytes); schema/trace.h."""
        data = struct.pack("<8sIIIIQQQQIiII256s16sQQ", b"NPMUTRC1", version, 360, 56, flags, begin, 0, 64 << 30, 0, 7, -1, 0, 0,
                           b"", b"worker", end, 0)
        for kind, when, address, size in records:
            data += struct.pack("<QQQQQIBBHII", when, address, size % (1 << 64), 0, 1, 7, kind, 0, 0, 0, 0)
        path = os.path.join(self.directory.name, name)
        with open(path, "wb") as f:
            f.write(data[:len(data) - cut])
        return path

    def each(self, path, code, words):
        for verb in ("whatif", "diff", "frag", "leaks", "timeline"):
            out = self.run_cli(verb, "--from", path, sock=False)
            self.assertEqual(out.returncode, code, (verb, out.stderr))
            self.assertIn(words, out.stderr if code else out.stdout, verb)
            self.assertLessEqual(out.stderr.count("\n"), 1, verb)

    def test_what_is_no_trace(self):
        text = os.path.join(self.directory.name, "text")
        with open(text, "w") as f:
            f.write("not a trace at all " * 40)
        empty = os.path.join(self.directory.name, "empty")
        open(empty, "w").close()
        self.each(text, 1, "this is not a trace of npumem; try: a file that npumem record made")
        self.each(empty, 1, "shorter than its header (0 bytes)")
        self.each(self.trace("short", cut=100), 1, "shorter than its header (260 bytes)")
        self.each(self.trace("newer", version=2), 1, "trace version 2, this npumem reads up to 1")
        self.each(os.path.join(self.directory.name, "none"), 1, "No such file or directory")
        self.each(self.directory.name, 1, "not a regular file")

    def test_what_is_not_whole(self):
        block = [(1, 10, 4096, 1 << 20), (2, 20, 4096, 1 << 20), (3, 20, 4096, 1 << 20), (1, 30, 8192, 2 << 20)]
        self.each(self.trace("whole", block), 0, "")
        for name, options, words in (("cut", {"cut": 5}, "its last record is cut off"), ("open", {"flags": 4}, "it has no end"),
                                     ("late", {"flags": 1}, "it begins in the middle"), ("full", {"flags": 8}, "it reached its bound"),
                                     ("lost", {"records": block + [(8, 40, 0, 3)]}, "events were lost"),
                                     ("back", {"records": block + [(1, 5, 9999, 512)]}, "its times are out of order"),
                                     ("negative", {"records": block + [(1, 40, 9999, -512)]}, "it has sizes that cannot be"),
                                     ("odd", {"records": block + [(77, 40, 9999, 512)]}, "it has records that are not known")):
            path = self.trace(name, **{"records": block, **options})
            self.each(path, 0, words)
            out = self.run_cli("diff", "--from", path, "--strict", "-o", "json", sock=False)
            self.assertEqual((out.returncode, json.loads(out.stdout)["complete"]), (6, False), name)
        out = self.run_cli("diff", "--from", self.trace("whole", block), "-o", "json", "--strict", sock=False)
        self.assertEqual((out.returncode, json.loads(out.stdout)["verdict"]),
                         (0, "allocated +2.00 MiB (0 B -> 2.00 MiB); most: unknown +2.00 MiB"))

    def test_nothing_in_it(self):
        self.each(self.trace("nothing"), 0, "")
        out = self.run_cli("diff", "--from", self.trace("nothing"), sock=False)
        self.assertIn("neither side holds anything", out.stdout)

    BEGIN = 1_800_000_000 * 10**9

    def served(self):
        """200 MiB reserved. At 2 s a block of 40 MiB lies in it, from 5 s on a second one of 2 MiB, at 8 s the first goes."""
        s, at = 10**9, 1 << 40
        return self.trace("served", [(4, s, at, 200 << 20), (1, 2 * s, at, 40 << 20), (1, 5 * s, at + (100 << 20), 2 << 20),
                                     (3, 8 * s, at, 40 << 20), (2, 8 * s, at, 40 << 20)], begin=self.BEGIN, end=10 * s)

    def test_frag(self):
        """The end, or a moment of it: counted from the end, or the highest use of the pool."""
        path = self.served()
        out = self.run_cli("frag", "--from", path, sock=False).stdout
        self.assertEqual(out.splitlines()[0], "process 7, device 0: 198.00 MiB of 200.00 MiB reserved is free, in 2 holes, the "
                         "largest 100.00 MiB")
        self.assertRegex(out, r"200\.00 MiB +198\.00 MiB +2\.00 MiB +PTA@block +5\.0 s")
        for at, holes in (("-3s", [60, 98]), ("@1800000003", [160]), ("peak", [200]), ("now", [100, 98])):
            d = json.loads(self.run_cli("frag", "--from", path, "--at", at, "-v", "-o", "json", sock=False).stdout)
            pieces = [p for segment in d["pools"][0]["segments"] for p in segment["map"]]
            self.assertEqual([p["size_bytes"] >> 20 for p in pieces if p["state"] == "hole"], holes, at)
        row = next(csv.DictReader(io.StringIO(self.run_cli("frag", "--from", path, "--request", "99MiB", "--fields",
                                                           "usable_bytes,fitting_requests", "-o", "csv", sock=False).stdout)))
        self.assertEqual(row, {"usable_bytes": str(100 << 20), "fitting_requests": "1"})
        self.assertIn("no memory of a caching allocator then", self.run_cli("frag", "--from", path, "--pid", "8", sock=False).stdout)

    def test_timeline(self):
        path = self.served()
        out = self.run_cli("timeline", "--from", path, sock=False).stdout
        self.assertEqual(out.splitlines()[0], "most changed: PTA@pool (physical) +200.00 MiB")
        self.assertRegex(out, r"allocated +- +0 B +2\.00 MiB +\+2\.00 MiB +42\.00 MiB")
        rows = list(csv.DictReader(io.StringIO(self.run_cli("timeline", "--from", path, "--since", "-6s", "--until", "@1800000008",
                                                            "--steps", "2", "-o", "csv", sock=False).stdout)))
        steps = [(r["time_ns"], r["min_bytes"], r["max_bytes"], r["last_bytes"]) for r in rows if (r["level"], r["owner"]) == ("allocated", "")]
        self.assertEqual([[int(v) >> 20 for v in step[1:]] for step in steps], [[40, 42, 42], [2, 42, 2]])
        self.assertEqual(int(steps[0][0]), self.BEGIN + 4 * 10**9)

    def test_timeline_kv_cache(self):
        """How full a server's cache was: a table of its own, lines of its own in csv, nothing of it where fields are asked for."""
        cache = {"server_tgid": 1200, "tgid": 1201, "replica": None, "blocks": 1000, "from_ratio": 0.1, "to_ratio": 0.031, "peak_ratio": 0.5,
                 "peak_blocks": 500, "peak_ns": 1799500000 * 10**9, "min_blocks": [90, None, 31], "max_blocks": [500, None, 40],
                 "last_blocks": [100, None, 31]}
        row = {"tgid": 1234, "rank": 0, "device": 0, "level": "reserved", "owner": None, "from_bytes": 1 << 30, "to_bytes": 2 << 30,
               "delta_bytes": 1 << 30, "peak_bytes": 2 << 30, "peak_ns": 1799500000 * 10**9, "min_bytes": [1 << 30, 1 << 30, 2 << 30],
               "max_bytes": [1 << 30, 2 << 30, 2 << 30], "last_bytes": [1 << 30, 2 << 30, 2 << 30]}
        d = {**D.HEADER, "verdict": "nothing changed", "since_ns": 1799499990 * 10**9, "until_ns": 1799500020 * 10**9, "step_ns": 10**10,
             "steps": 3, "marks": [], "matched_rows": 1, "truncated": False, "rows": [row], "kv_cache": [cache]}
        self.daemon(Timeline=document(d))
        out = self.shown("timeline")
        table = out[out.index("KV cache in use"):].splitlines()
        self.assertEqual(table[1].split(), ["PID", "SERVER", "BLOCKS", "FROM", "TO", "PEAK", "AT"])
        self.assertRegex(table[2], r"^ *1201 +1200 +1000 +10\.00 % +3\.10 % +50\.00 % +2027-01-09 13:06:40")
        self.assertNotIn("KV cache", self.shown("timeline", "--fields", "tgid,to_bytes"))
        self.assertNotIn("KV cache", self.shown("timeline", "--quiet"))
        self.assertEqual(json.loads(self.shown("timeline", "-o", "json"))["kv_cache"], [cache])
        lines = list(csv.DictReader(io.StringIO(self.shown("timeline", "-o", "csv"))))
        self.assertEqual([(x["level"], x["last_bytes"], x["blocks"]) for x in lines[:3]],
                         [("reserved", str(n << 30), "") for n in (1, 2, 2)])
        self.assertEqual([(x["tgid"], x["rank"], x["level"], x["last_bytes"], x["blocks"], x["last_blocks"], x["min_blocks"], x["max_blocks"])
                          for x in lines[3:]], [("1201", "", "kv_cache", "", "1000", "100", "90", "500"),
                                                ("1201", "", "kv_cache", "", "1000", "31", "31", "40")])
        self.assertEqual(int(lines[4]["time_ns"]), 1799500010 * 10**9)

    def test_leaks(self):
        """A block of 1 MiB stays of every 100 ms: 36000 MiB per hour."""
        path = self.trace("leaky", [(1, i * 10**8 + 1, (i + 1) << 20, 1 << 20) for i in range(600)], end=60 * 10**9)
        out = self.run_cli("leaks", "--from", path, sock=False).stdout
        self.assertRegex(out.splitlines()[0], r"^process 7: leak of PTA@block, 35\.1\d GiB per hour: the floor rose")
        out = self.run_cli("leaks", "--from", path, "--until", "-59.9s", sock=False).stdout
        self.assertIn("too early to tell: ", out)
        self.assert_error(self.run_cli("leaks", "--from", path, "--mark", "step", sock=False), 4, "none of that name in the recording")

    def test_moments(self):
        path = self.served()
        for words, code, text in ((["frag", "--at", "-1h"], 2, "--from FILE --at TIME"),
                                  (["frag", "--from", path, "--at", "-1h"], 2, "the recording is of @1800000000.000000000 to @1800000010"),
                                  (["frag", "--from", path, "--at", "mark:x"], 4, "no such mark"),
                                  (["timeline", "--from", path, "--since", "-1s", "--until", "-2s"], 2, "not before"),
                                  (["leaks", "--from", path, "-w", "1s"], 2, "without --watch")):
            self.assert_error(self.run_cli(*words, sock=False), code, text)

    def test_sides(self):
        path = self.trace("a")
        for words, code in ((["diff"], 2), (["diff", "--from", path, "--to", "now"], 2), (["diff", "--to", path], 2),
                            (["diff", "--from", "yesterdy"], 2), (["whatif"], 2), (["whatif", "--pid", "1"], 2),
                            (["record", "begin"], 2), (["record", "stop", "--for", "1s"], 2), (["record", "start"], 2)):
            out = self.run_cli(*words, sock=False)
            self.assertEqual(out.returncode, code, (words, out.stderr))
            self.assertIn("try: ", out.stderr, words)


class Demo(Case):
    """A stand-in for the simulated server: a shell script that starts two ranks."""

    def server(self, text):
        os.makedirs(f"{self.directory.name}/sim/scenarios")
        path = f"{self.directory.name}/sim/npusim-run"
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, 0o755)
        open(f"{self.directory.name}/sim/scenarios/demo.sim", "w").close()
        return {"NPUMEM_SIM_DIR": f"{self.directory.name}/sim"}

    def test_demo_shows_its_ranks_and_stops_them(self):
        pids = f"{self.directory.name}/pids"
        env = self.server(f"#!/bin/sh\nsleep 300 & a=$!\nsleep 300 & b=$!\n"
                          f"echo $a $b > {pids}.tmp; mv {pids}.tmp {pids}\nwait\n")
        polls = []

        def breakdown(parameters):
            polls.append(parameters)
            ranks = [D.BREAKDOWN["ranks"][0]]  # somebody else's process is there as well
            if os.path.exists(pids) and len(polls) > 2:
                for i, pid in enumerate(read(pids).split()):
                    ranks.append({**D.BREAKDOWN["ranks"][0], "tgid": int(pid), "rank": i})
            wanted = parameters.get("tgid")
            if wanted:
                ranks = [r for r in ranks if r["tgid"] in wanted]
            return document({**D.BREAKDOWN, "ranks": ranks})
        self.daemon(Breakdown=breakdown)
        r = self.run_cli("demo", "-o", "json", env=env)
        self.assertEqual(r.returncode, 0, r.stderr)
        started = [int(p) for p in read(pids).split()]
        self.assertEqual([x["tgid"] for x in json.loads(r.stdout)["ranks"]], started)
        until = time.monotonic() + 10  # a signal takes its effect when the process gets a processor
        while any(is_running(pid) for pid in started) and time.monotonic() < until:
            time.sleep(0.01)
        for pid in started:
            self.assertFalse(is_running(pid))

    def test_server_that_fails(self):
        env = self.server("#!/bin/sh\nexit 7\n")
        self.daemon()
        self.assert_error(self.run_cli("demo", env=env), 1, "ended early (exit 7)", "npumem demo -v")

    def test_missing_pieces(self):
        self.daemon()
        self.assert_error(self.run_cli("demo", env={"NPUMEM_SIM_DIR": "/nonexistent"}), 1,
                          "no npusim-run", "unset NPUMEM_SIM_DIR")
        env = self.server("#!/bin/sh\nsleep 9\n")
        self.assert_error(self.run_cli("demo", "nosuch", env=env), 1, "no such scenario")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
