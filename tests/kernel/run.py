#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/kernel/run.py BUILD_DIR [-j N] [WORD...] - real uprobes in simulated processes; needs root.

Each test has a daemon, directories and a simulated node of its own; N (2) run at a time. A WORD selects
the tests whose name contains it. One line per test; the last line has the counts.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run_tests  # noqa: E402

if __name__ == "__main__":
    sys.exit(run_tests.main(("test_calls", "test_process", "test_library", "test_container", "test_block", "test_loss",
                             "test_daemon", "test_record", "test_diff", "test_access", "test_kv")))
