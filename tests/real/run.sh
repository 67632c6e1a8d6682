#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [BUILD] [OPTION...] - the group `real`, see test_real.py and docs/REAL_WHEELS.md.
exec python3 "$(dirname "$0")/test_real.py" --build "${1:-build/release}" "${@:2}"
