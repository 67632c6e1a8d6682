#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes, once, the virtual environment with the unmodified vLLM, vllm-ascend, torch and torch_npu.

    make_vllm_venv.py [--quiet]      prints the path of its python

Everything is kept under ${NPUMEM_CACHE:-$HOME/.cache/npumem}: wheels/ and venv-vllm-VERSION/. Like
sim/wheels/make_venv.py it is made again only when a list, the interpreter or FORMAT changes.
"""
import argparse
import hashlib
import os
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "wheels"))

import make_venv  # noqa: E402

VERSION = "0.23.0"
FORMAT = "1"
NEEDED_BYTES = 8 << 30
LISTS = ("wheels.txt", "sdist.txt", "build.txt", "deps.txt")
# vLLM's setup.py imports torch to learn for which accelerator it was built. For none, this is all
# that it asks.
TORCH_FOR_SETUP = {
    "torch/__init__.py": "class version:\n    cuda = hip = xpu = None\n",
    "torch/utils/__init__.py": "",
    "torch/utils/cpp_extension.py": "CUDA_HOME = ROCM_HOME = None\n",
}


def stamp_of(python):
    text = FORMAT + os.path.realpath(python) + "".join((HERE / n).read_text() for n in LISTS)
    return hashlib.sha256(text.encode()).hexdigest()


def build_vllm(pip, wheels, quiet):
    """Path of vLLM's wheel; it is made from its source when it is not there yet."""
    found = sorted(wheels.glob(f"vllm-{VERSION}-*.whl"))
    if found:
        return found[0]
    with tempfile.TemporaryDirectory(prefix="npumem-vllm-") as name:
        for path, text in TORCH_FOR_SETUP.items():
            file = pathlib.Path(name) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        settings = [f"PYTHONPATH={name}", "VLLM_TARGET_DEVICE=empty",
                    f"VLLM_VERSION_OVERRIDE={VERSION}", f"SETUPTOOLS_SCM_PRETEND_VERSION={VERSION}"]
        make_venv.run(["env", *settings, *pip, "wheel", "--no-deps", "--no-build-isolation",
                       "--no-binary=vllm", "--require-hashes", "--wheel-dir", wheels, "-r",
                       HERE / "sdist.txt"], quiet)
    return next(wheels.glob(f"vllm-{VERSION}-*.whl"))


def fill(python, venv, wheels, quiet):
    make_venv.run([python, "-m", "venv", venv], quiet)
    pip = [venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    fetched = ["--no-deps", "--only-binary=:all:", "--find-links", wheels]
    kept = ["--no-deps", "--no-index", "--find-links", wheels]
    for name, hashes in (("build.txt", []), ("wheels.txt", ["--require-hashes"]), ("deps.txt", [])):
        make_venv.run(pip + ["download", *fetched, *hashes, "--dest", wheels, "-r", HERE / name],
                      quiet)
        make_venv.run(pip + ["install", *kept, *hashes, "-r", HERE / name], quiet)
    make_venv.run(pip + ["install", "--no-deps", build_vllm(pip, wheels, quiet)], quiet)


def ensure(quiet=False):
    """Returns the path of the environment's python, making the environment if need be."""
    if os.uname().machine != "x86_64":
        raise make_venv.WheelsError(f"the pinned wheels are for x86_64, not {os.uname().machine}")
    python = make_venv.find_python()
    cache = make_venv.cache_dir()
    wheels = cache / "wheels"
    venv = cache / f"venv-vllm-{VERSION}"
    wheels.mkdir(parents=True, exist_ok=True)
    stamp = venv / "npumem.stamp"
    wanted = stamp_of(python)
    with make_venv.locked(cache / f"venv-vllm-{VERSION}.lock"):
        if stamp.exists() and stamp.read_text() == wanted:
            return venv / "bin" / "python"
        free = shutil.disk_usage(cache).free
        if free < NEEDED_BYTES:
            raise make_venv.WheelsError(
                f"{cache} has {free >> 20} MiB free, {NEEDED_BYTES >> 20} are needed")
        shutil.rmtree(venv, ignore_errors=True)
        fill(python, venv, wheels, quiet)
        stamp.write_text(wanted)
    return venv / "bin" / "python"


def main():
    parser = argparse.ArgumentParser(description="make the virtual environment of the real vLLM")
    parser.add_argument("--quiet", action="store_true")
    args = parser.parse_args()
    try:
        print(ensure(args.quiet))
    except make_venv.WheelsError as error:
        sys.exit(f"make_vllm_venv.py: {error}")


if __name__ == "__main__":
    main()
