#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/kernel/python_frames.py BUILD_DIR [-j N] [WORD...] - Python frames and phases in real interpreters; see
run.py for the arguments. Interpreters: those below ~/.pyenv/versions, and the system's own."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run_tests  # noqa: E402

if __name__ == "__main__":
    sys.exit(run_tests.main(("python_tests",)))
