#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everything that a program on the real wheels needs to run on the simulated node.

    node.py --build DIR [--layout 8.1] [--state DIR] run PROGRAM [ARGUMENT...]
    node.py --build DIR env                              prints NAME=VALUE lines

DIR is a build directory in which the simulated node (sim/) was built. The first use makes the
virtual environment (make_venv.py) and the stand-in libraries (gen.py); later uses find them made.
"""
import argparse
import os
import pathlib
import sys
import tempfile

import gen
import make_venv

VERSION = "2.7.1"


class Node:
    """The made parts: python, library directories, and the environment of a process on the node."""

    def __init__(self, build, layout="8.1", version=VERSION, quiet=False, python=None):
        """`python`: that of an environment which make_venv.py did not make (sim/vllm)."""
        build = pathlib.Path(build).resolve()
        self.sim_lib = build / "sim" / f"cann-{layout}" / "lib"
        if not self.sim_lib.is_dir():
            raise make_venv.WheelsError(f"{self.sim_lib} is missing: build sim/ first")
        self.python = python or make_venv.ensure(version, quiet)
        self.site = next(self.python.parent.parent.glob("lib/python3.*/site-packages"))
        self.out = build / "sim" / (f"wheels-{version}" + ("" if layout == "8.1" else f"-{layout}"))
        self.report = gen.generate(self.site, self.sim_lib, self.out, os.environ.get("CC", "cc"))
        self.settings = {}  # of every program, beside what environment() says
        self.home = self.out / "home"
        for part in ("runtime", "compiler", "opp"):
            (self.home / part).mkdir(parents=True, exist_ok=True)

    def environment(self, state, **more):
        """Environment of a program; `state` is the directory that its simulated devices share,
        `more` is added as it is (NPUSIM_* settings, torch_npu's own)."""
        keep = {k: v for k, v in os.environ.items()
                if k in ("HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR")}
        keep |= {
            "PATH": f"{self.python.parent}:/usr/bin:/bin",
            "LD_LIBRARY_PATH": f"{self.sim_lib}:{self.out / 'lib'}",
            "ASCEND_HOME_PATH": str(self.home),
            "ASCEND_OPP_PATH": str(self.home / "opp"),
            # Else `import torch` imports torch_npu by itself, and a failure hides in a warning.
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "NPUSIM_DIR": str(state),
        }
        if self.report["preload"]:
            keep["LD_PRELOAD"] = self.report["preload"]
        return keep | {k: str(v) for k, v in (self.settings | more).items()}


def main():
    parser = argparse.ArgumentParser(description="run a program on the real wheels, simulated node")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--layout", default="8.1")
    parser.add_argument("--state", help="directory of the simulated devices (default: a new one)")
    parser.add_argument("action", choices=("env", "run"))
    parser.add_argument("argv", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    try:
        node = Node(args.build, args.layout)
    except make_venv.WheelsError as error:
        sys.exit(f"node.py: {error}")
    state = args.state or tempfile.mkdtemp(prefix="npusim-")
    own = {k: v for k, v in os.environ.items()
           if k.startswith(("NPUSIM_", "PYTORCH_", "TASK_QUEUE_", "RANK", "WORLD_"))}
    environment = node.environment(state, **own) | ({} if args.state is None else {
        "NPUSIM_DIR": args.state})
    if args.action == "env":
        print("\n".join(f"{k}={v}" for k, v in environment.items()))
        return
    if not args.argv:
        sys.exit("node.py: run what?")
    os.execve(node.python, [str(node.python), *args.argv], environment)


if __name__ == "__main__":
    main()
