#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/system/run.py BUILD_DIR [WORD...] - daemon and command line end to end; needs root.

Everything of "bad input gets a clear error and loses nothing": wrong privileges, kernels that lack
something, wrong processes, a taken socket, stores of every kind of wrong, requests of every kind of
wrong, wrong command lines. One line per test; the last line has the counts.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../kernel")]
import run_tests  # noqa: E402

if __name__ == "__main__":
    sys.exit(run_tests.main(("test_documents", "test_start", "test_store", "test_history", "test_socket", "test_command", "test_units",
                             "test_owners", "test_budget", "test_advise")))
