#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes, once, the virtual environment with the unmodified torch and torch_npu wheels.

    make_venv.py [--version 2.7.1] [--quiet]      prints the path of its python

Everything is kept under ${NPUMEM_CACHE:-$HOME/.cache/npumem}: wheels/ (about 850 MB) and
venv-VERSION/ (about 2.1 GB). The environment is made again only when the lists of packages, the
interpreter or this file's FORMAT change; a half-made one has no stamp and is made again.
"""
import argparse
import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
FORMAT = "1"
PYTHON = "3.11"
# Free space that a cold run needs: wheels, the environment, and pip's unpacking.
NEEDED_BYTES = 4 << 30


class WheelsError(Exception):
    """The environment cannot be made here; the message says why."""


def cache_dir():
    root = os.environ.get("NPUMEM_CACHE")
    return pathlib.Path(root) if root else pathlib.Path.home() / ".cache" / "npumem"


def find_python():
    """A CPython 3.11 that can make a virtual environment, as an absolute path."""
    candidates = [os.environ.get("NPUMEM_PYTHON311"), "/usr/bin/python3.11"]
    path = os.environ.get("PATH", "").split(":")
    candidates += [os.path.join(directory, "python3.11") for directory in path if directory]
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    candidates += sorted(str(p) for p in pyenv.glob("versions/3.11.*/bin/python3.11"))
    for python in filter(None, candidates):
        if not os.access(python, os.X_OK):
            continue
        probe = "import venv, ensurepip, sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([python, "-c", probe], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() == PYTHON:
            return python
    raise WheelsError("no python3.11 with the venv module (Debian: python3.11-venv)")


def run(argv, quiet):
    done = subprocess.run(argv, stdout=subprocess.PIPE if quiet else sys.stderr,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout or "").splitlines()[-15:])
        raise WheelsError(f"{' '.join(map(str, argv[:6]))} ... failed ({done.returncode})\n{tail}")


def stamp_of(version, python):
    text = FORMAT + os.path.realpath(python)
    for name in (f"wheels-{version}.txt", f"deps-{version}.txt"):
        text += (HERE / name).read_text()
    return hashlib.sha256(text.encode()).hexdigest()


@contextlib.contextmanager
def locked(path):
    """Two test runs at once must not make the same environment."""
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def ensure(version="2.7.1", quiet=False):
    """Returns the path of the environment's python, making the environment if need be."""
    if os.uname().machine != "x86_64":
        raise WheelsError(f"the pinned wheels are for x86_64, this machine is {os.uname().machine}")
    python = find_python()
    cache = cache_dir()
    wheels = cache / "wheels"
    venv = cache / f"venv-{version}"
    wheels.mkdir(parents=True, exist_ok=True)
    stamp = venv / "npumem.stamp"
    wanted = stamp_of(version, python)
    with locked(cache / f"venv-{version}.lock"):
        if stamp.exists() and stamp.read_text() == wanted:
            return venv / "bin" / "python"
        free = shutil.disk_usage(cache).free
        if free < NEEDED_BYTES:
            raise WheelsError(f"{cache} has {free >> 20} MiB free, {NEEDED_BYTES >> 20} are needed")
        shutil.rmtree(venv, ignore_errors=True)
        run([python, "-m", "venv", venv], quiet)
        pip = [venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
        listed = HERE / f"wheels-{version}.txt"
        # pip takes a wheel that is already in the directory and checks its hash either way.
        run(pip + ["download", "--no-deps", "--only-binary=:all:", "--require-hashes",
                   "--find-links", wheels, "--dest", wheels, "-r", listed], quiet)
        run(pip + ["install", "--no-deps", "--no-index", "--require-hashes", "--find-links", wheels,
                   "-r", listed], quiet)
        run(pip + ["install", "--only-binary=:all:", "-r", HERE / f"deps-{version}.txt"], quiet)
        stamp.write_text(wanted)
    return venv / "bin" / "python"


def main():
    parser = argparse.ArgumentParser(description="make the virtual environment of the real wheels")
    parser.add_argument("--version", default="2.7.1")
    parser.add_argument("--quiet", action="store_true")
    args = parser.parse_args()
    try:
        print(ensure(args.version, args.quiet))
    except WheelsError as error:
        sys.exit(f"make_venv.py: {error}")


if __name__ == "__main__":
    main()
