# SPDX-License-Identifier: Apache-2.0
"""Environments with the newest torch_npu for other CPythons than sim/wheels has. Kept in its cache, 2 GB each."""
import pathlib
import shutil

import make_venv

HERE = pathlib.Path(__file__).resolve().parent
LIST = HERE / "pythons.txt"
VERSION = "2.14.0"
MINORS = (10, 12, 13)
NEEDED_BYTES = 4 << 30


def ensure(minor, interpreter):
    """Path of the environment's python, made if need be; make_venv.WheelsError with the reason."""
    venv = make_venv.cache_dir() / f"venv-{VERSION}-3.{minor}"
    venv.parent.mkdir(parents=True, exist_ok=True)
    stamp, wanted = venv / "npumem.stamp", f"{interpreter}\n{LIST.read_text()}"
    python = venv / "bin" / "python"
    with make_venv.locked(venv.parent / f"{venv.name}.lock"):
        if stamp.exists() and stamp.read_text() == wanted:
            return python
        if shutil.disk_usage(venv.parent).free < NEEDED_BYTES:
            raise make_venv.WheelsError(f"{venv.parent} has less than {NEEDED_BYTES >> 20} MiB free")
        shutil.rmtree(venv, ignore_errors=True)
        make_venv.run([interpreter, "-m", "venv", venv], True)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--only-binary=:all:"]
        make_venv.run([*pip, "--no-deps", "--no-cache-dir", "--require-hashes", "-r", LIST], True)
        make_venv.run([*pip, "-r", make_venv.HERE / f"deps-{VERSION}.txt"], True)
        stamp.write_text(wanted)
    return python
