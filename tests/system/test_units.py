# SPDX-License-Identifier: Apache-2.0
"""The systemd units, by their own script."""
import os
import re
import subprocess

import harness
from harness import Failure, Skip


def test_systemd_units(scratch):
    """Verified by systemd itself; see systemd_units.sh."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "systemd_units.sh")
    if not os.path.exists(script):
        raise Failure("systemd_units.sh does not exist")
    out = subprocess.run(["bash", script, harness.BUILD], capture_output=True, text=True, timeout=300)
    text = out.stdout + out.stderr
    if out.returncode == 77:
        raise Skip(text.strip().splitlines()[-1] if text.strip() else "by its own word")
    if out.returncode:
        raise Failure(text[-3000:])
    counts = re.findall(r"^(\d+) passed, (\d+) failed", text, re.M)
    if counts and counts[-1][1] != "0":
        raise Failure(text[-3000:])
