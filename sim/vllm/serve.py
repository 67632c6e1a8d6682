#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The real vLLM server, with vllm-ascend, on the simulated node.

    serve.py --build DIR [--tp N] [--dp N] [--graphs] [--sleep] [--state DIR] [-- OPTION...]

Prints its port when it answers and runs until it is interrupted. Options after `--` go to
`vllm serve`. As a module: Server, a context manager; see its methods.
"""
import argparse
import ctypes
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "wheels"))
sys.path.insert(0, str(HERE))

import make_model  # noqa: E402
import make_venv  # noqa: E402
import make_vllm_venv  # noqa: E402
import node as wheels_node  # noqa: E402

READY = "Application startup complete"
# Printed by the API server when an engine did not come up; it ends soon after.
FAILED = ("Engine core initialization failed", "WorkerProc failed to start")
HBM = "8G"
# Share of the card that vLLM plans with: leaves room for another process on it.
UTILIZATION = "0.5"
# Graphs in pieces, without the passes that need triton's operators.
GRAPHS = ["--compilation-config",
          json.dumps({"cudagraph_mode": "PIECEWISE", "cudagraph_capture_sizes": [1, 2, 4, 8]})]
NO_TRITON = {"ascend_compilation_config": {"fuse_qknorm_rope": False, "fuse_norm_quant": False,
                                           "fuse_muls_add": False}}


PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None)


class ServerError(Exception):
    """The server did not do what it was asked; the message has the end of its log."""


def make_node(build, layout="8.1", quiet=False):
    """sim/wheels' node with the environment of vLLM."""
    python = make_vllm_venv.ensure(quiet)
    return wheels_node.Node(build, layout, f"vllm-{make_vllm_venv.VERSION}", quiet, python)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def read_proc(tgid, name):
    try:
        return pathlib.Path(f"/proc/{tgid}/{name}").read_bytes()
    except OSError:
        return b""


def parent_of(tgid):
    """Parent's pid from /proc/PID/stat, where the name in parentheses may hold anything; 0: gone."""
    words = read_proc(tgid, "stat").rpartition(b")")[2].split()
    return int(words[1]) if len(words) > 1 else 0


def title_of(tgid):
    return read_proc(tgid, "cmdline").split(b"\0")[0].decode(errors="replace")


class Server:
    """One `vllm serve` and all its processes, in a process group of their own.

    directory   keeps the model, the log and vLLM's caches
    state       NPUSIM_DIR: the devices that it shares with other programs (default: directory/node)
    settings    environment variables added as they are
    """

    def __init__(self, node, directory, tp=1, dp=1, graphs=False, sleep=False, state=None,
                 arguments=(), **settings):
        self.directory = pathlib.Path(directory)
        self.state = pathlib.Path(state or self.directory / "node")
        self.log = self.directory / "server.log"
        self.port = free_port()
        self.worker_count = tp * dp
        self.state.mkdir(parents=True, exist_ok=True)
        model = make_model.make(self.directory / "model")
        argv = [node.python, node.python.parent / "vllm", "serve", model, "--load-format", "dummy",
                "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", self.port,
                "--tensor-parallel-size", tp, "--gpu-memory-utilization", UTILIZATION,
                "--worker-extension-cls", "npusim_truth.Truth"]
        argv += ["--data-parallel-size", dp] if dp > 1 else []
        argv += GRAPHS if graphs else ["--enforce-eager"]
        more = dict(NO_TRITON) if graphs else {}
        if sleep:
            argv.append("--enable-sleep-mode")
            more["weight_nz_mode"] = 0  # wake_up refuses weights in the card's own format
        argv += ["--additional-config", json.dumps(more)] if more else []
        argv += arguments
        environment = node.environment(self.state, **(self.settings() | settings))
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [str(word) for word in argv], env=environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, cwd=self.directory, start_new_session=True,
                # A test that is killed takes its server with it.
                preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM))

    def settings(self):
        """Environment of every server: offline, local, with the entry points for tests."""
        return {"PYTHONPATH": HERE / "site", "NPUSIM_HBM": HBM, "NPUSIM_ATB_KB": 1024,
                "HF_HUB_OFFLINE": 1, "HF_HOME": self.directory / "hf", "VLLM_HOST_IP": "127.0.0.1",
                "VLLM_CACHE_ROOT": self.directory / "cache", "VLLM_NO_USAGE_STATS": 1,
                "VLLM_CONFIG_ROOT": self.directory / "config", "VLLM_SERVER_DEV_MODE": 1,
                "TORCHINDUCTOR_CACHE_DIR": self.directory / "inductor"}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.poll() is None

    def text(self):
        return self.log.read_text(errors="replace")

    def tail(self, lines=25):
        return "\n".join(line[:240] for line in self.text().splitlines()[-lines:])

    def wait_ready(self, seconds=420):
        """Seconds until it answers; ServerError when it ends or takes longer."""
        start = time.monotonic()
        while READY not in (text := self.text()):
            if not self.alive() or any(word in text for word in FAILED):
                raise ServerError(f"the server did not start\n{self.tail()}")
            if time.monotonic() - start > seconds:
                raise ServerError(f"the server was not up within {seconds} s\n{self.tail()}")
            time.sleep(0.1)
        return time.monotonic() - start

    def request(self, path, body=None, seconds=120, method="POST"):
        """Text of the answer; ServerError for any other code than 200."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, method=method,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                return answer.read().decode()
        except (urllib.error.URLError, OSError) as error:
            raise ServerError(f"{path}: {error}\n{self.tail()}") from error

    def complete(self, prompt, tokens=8, seconds=120):
        """Text that the model continues the prompt with."""
        answer = json.loads(self.request("/v1/completions", {
            "model": "tiny", "prompt": prompt, "max_tokens": tokens, "temperature": 0,
            "ignore_eos": True}, seconds))
        return answer["choices"][0]["text"]

    def ask_workers(self, method, seconds=120):
        """Answers of all workers' npusim_METHOD (site/npusim_truth.py), in the order of the ranks of
        one engine; with several engines, only those of the engine that took the request."""
        answer = json.loads(self.request("/collective_rpc", {"method": f"npusim_{method}"}, seconds))
        return [json.loads(one) for one in answer["results"]]

    def sleep(self, level=1):
        self.request(f"/sleep?level={level}")

    def wake_up(self, seconds=120):
        self.request("/wake_up", seconds=seconds)

    def processes(self):
        """{pid: title} of the server's process and all below it."""
        children = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            children.setdefault(parent_of(name), []).append(int(name))
        found, queue = {}, [self.pid]
        while queue:
            tgid = queue.pop()
            found[tgid] = title_of(tgid)
            queue += children.get(tgid, [])
        return found

    def workers(self):
        """{pid: title} of the processes that hold device memory."""
        return {tgid: title for tgid, title in self.processes().items()
                if title.startswith("VLLM::Worker")}

    def stop(self, seconds=40):
        """Asks it to end, ends what is left of its group; its exit code."""
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.pid, signal.SIGKILL)  # workers that outlive their server
        except ProcessLookupError:
            pass
        return self.process.wait()


def main():
    parser = argparse.ArgumentParser(description="serve a tiny model by the real vLLM")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--layout", default="8.1")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--dp", type=int, default=1)
    parser.add_argument("--graphs", action="store_true", help="ACL graphs in pieces, not eager")
    parser.add_argument("--sleep", action="store_true", help="sleep mode: /sleep and /wake_up")
    parser.add_argument("--state", help="directory of the simulated devices (default: a new one)")
    parser.add_argument("arguments", nargs="*")
    args = parser.parse_args()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="npumem-vllm-"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        node = make_node(args.build, args.layout)
        with Server(node, directory, args.tp, args.dp, args.graphs, args.sleep, args.state,
                    args.arguments) as server:
            print(f"NPUSIM_DIR={server.state} log={server.log}", flush=True)
            took = server.wait_ready()
            print(f"port={server.port} pid={server.pid} up in {took:.0f} s", flush=True)
            server.process.wait()
    except (ServerError, make_venv.WheelsError) as error:
        sys.exit(f"serve.py: {error}")
    except KeyboardInterrupt:
        pass
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
