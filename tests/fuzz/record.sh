#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# record.sh BUILD_DIR NAME COMMAND...: records the pages that a scan of tests/late/programs/small.py reads, into
# tests/fuzz/seeds/scan/NAME.xz. COMMAND is an interpreter with its environment and ends before the program, as in:
#     tests/fuzz/record.sh build/release cpython-3.12 ~/.pyenv/versions/3.12.1/bin/python3 -S plain
set -eu
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
build=$1 name=$2
shift 2
what=${*: -1}
set -- "${@:1:$#-1}"
scratch=$(mktemp -d)
trap 'kill $pid 2>/dev/null; rm -rf "$scratch"' EXIT
mkdir "$scratch/roots.d"
# as in fuzz_scan.c
printf 'type small Runner\npath small model PTA@small@model\npath small * PTA@small@rest\n' >"$scratch/roots.d/small.conf"
mkfifo "$scratch/out"
"$@" "$ROOT/tests/late/programs/small.py" "$what" >"$scratch/out" &
pid=$!
read -r _ <"$scratch/out"
"$build/tests/late/scan_one" --roots "$scratch/roots.d" --record "$scratch/image" "$pid" >"$scratch/document"
mkdir -p "$ROOT/tests/fuzz/seeds/scan"
"$build/tests/late/trim_image" "$scratch/image" "$scratch/trimmed"
xz -9e -c "$scratch/trimmed" >"$ROOT/tests/fuzz/seeds/scan/$name.xz"
grep -o '"coverage":{[^}]*}' "$scratch/document"
ls -l "$ROOT/tests/fuzz/seeds/scan/$name.xz"
