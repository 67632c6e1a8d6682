#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/system/owners.py BUILD_DIR [WORD...] - whose memory it is, on simulated servers; needs root.

Only the tests of test_owners.py, which the system group runs as well. The last line has the counts.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../kernel")]
import run_tests  # noqa: E402

if __name__ == "__main__":
    sys.exit(run_tests.main(("test_owners",)))
