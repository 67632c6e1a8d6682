#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The group `fuzz`: every libFuzzer target for $NPUMEM_FUZZ_SECONDS (600) each; a finding is a failure and its
# input is kept in build/fuzz/findings. Ends with one line "N passed, N failed, N skipped".
set -u
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
cd "$ROOT" || exit 1
seconds=${NPUMEM_FUZZ_SECONDS:-600}
cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
    -DNPUMEM_FUZZ=ON -DNPUMEM_WERROR=OFF || exit 1
targets=$(cd tests/fuzz && for f in fuzz_*.c; do echo "${f%.c}"; done)
# shellcheck disable=SC2086
ninja -C build/fuzz $targets || exit 1
passed=0 failed=0
mkdir -p build/fuzz/findings
# recorded processes, which fuzz_scan changes
export NPUMEM_FUZZ_IMAGES=$ROOT/build/fuzz/images
mkdir -p "$NPUMEM_FUZZ_IMAGES"
for image in tests/fuzz/seeds/scan/*.xz; do
    xz -dc "$image" >"$NPUMEM_FUZZ_IMAGES/$(basename "$image" .xz)" || exit 1
done
for target in $targets; do
    binary=$(find build/fuzz -name "$target" -type f -perm -u+x | head -1)
    corpus=build/fuzz/corpus/$target
    mkdir -p "$corpus"
    seeds=tests/fuzz/seeds/${target#fuzz_}
    [ -d "$seeds" ] && [ "$target" != fuzz_scan ] || seeds= # its seeds are images, see above
    # shellcheck disable=SC2086
    if "$binary" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix=build/fuzz/findings/ "$corpus" $seeds; then
        echo "PASSED  $target: $seconds s"
        passed=$((passed + 1))
    else
        echo "FAILED  $target: see build/fuzz/findings"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
