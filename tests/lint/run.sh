#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/lint/run.sh BUILD_DIR - the rules of docs/ARCHITECTURE.md and CONTRIBUTING.md that a machine can
# check. One line per rule; the last line has the counts. Nothing is changed.
set -u
cd "$(dirname "$0")/../.." || exit 1
exec python3 tests/lint/lint.py "${1:-build/release}"
