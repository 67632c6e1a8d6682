#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD_DIR - finds the block function in real torch_npu wheels and compares it with what is
# known of them. Wheels are fetched once (pip, ~40 MB each) into ${NPUMEM_CACHE:-~/.cache/npumem}/wheels.
# Oracles: the offset, from disassembly or from .symtab where a wheel has one; the struct layout, from
# npu_profiler.h inside the same wheel. NPUMEM_WHEELS="2.7.1 2.9.1" takes a few of them only.
set -eu

build=${1:?usage: run.sh BUILD_DIR}
cache=${NPUMEM_CACHE:-$HOME/.cache/npumem}/wheels
here=$(cd "$(dirname "$0")" && pwd)
tool=$build/find_block_function
mkdir -p "$cache" "$build"
${CC:-cc} -std=gnu11 -O2 -D_GNU_SOURCE -I "$here/../../lib" -o "$tool" "$here/find_block_function.c" \
    "$here/../../lib/blockfn.c" "$here/../../lib/blockfn_layout.c" \
    "$here/../../lib/elf_image.c" "$here/../../lib/elf_symbol.c"

passed=0 failed=0 skipped=0

# check VERSION MACHINE OFFSET; "-": offset not known beforehand, the layout and .symtab still are
check() {
    version=$1 machine=$2 expected=$3
    case " ${NPUMEM_WHEELS:-$version} " in *" $version "*) ;; *) return 0 ;; esac
    dir=$cache/$version-$machine
    library=$dir/torch_npu/lib/libtorch_npu.so
    if [ ! -f "$library" ]; then
        wheels=$dir/download
        mkdir -p "$wheels"
        if ! python3 -m pip download -q --no-deps --only-binary=:all: --disable-pip-version-check \
            --python-version 3.11 --implementation cp --abi cp311 \
            --platform "manylinux_2_28_$machine" --platform "manylinux2014_$machine" \
            --platform "manylinux_2_17_$machine" -d "$wheels" "torch_npu==$version"; then
            echo "SKIP $version $machine: cannot be downloaded"
            skipped=$((skipped + 1))
            return 0
        fi
        (cd "$dir" && python3 -c 'import sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
for n in ("torch_npu/lib/libtorch_npu.so", "torch_npu/include/torch_npu/csrc/profiler/npu_profiler.h"):
    z.extract(n)' "$wheels"/*.whl)
        rm -r "$wheels"
    fi
    layout=v24
    if grep -q component_type "$dir/torch_npu/include/torch_npu/csrc/profiler/npu_profiler.h"; then
        layout=component
    fi
    found=$("$tool" "$library" 2>&1) || true
    symbol=$(printf '%s\n' "$found" | sed -n 's/.* symbol=\([^ ]*\).*/\1/p')
    micros=$(printf '%s\n' "$found" | sed -n 's/.* micros=\([0-9]*\).*/\1/p')
    verdict=ok
    case $found in *" layout=$layout "*) ;; *) verdict="layout is not $layout" ;; esac
    case $found in *" source=code "*) ;; *) verdict="not found by its code" ;; esac
    if [ "$expected" != - ]; then
        case $found in "offset=$expected "*) ;; *) verdict="offset is not $expected" ;; esac
    fi
    if [ "${symbol:-none}" != none ]; then
        case $found in "offset=$symbol "*) ;; *) verdict="offset is not that of .symtab" ;; esac
    fi
    [ "${micros:-999999}" -lt 300000 ] || verdict="took $micros us"
    if [ "$verdict" = ok ]; then
        passed=$((passed + 1))
        echo "ok   $version $machine $found"
    else
        failed=$((failed + 1))
        echo "FAIL $version $machine: $verdict: $found"
    fi
}

check 2.1.0.post17 x86_64 0x36d26d0
check 2.3.1.post6 x86_64 -
check 2.4.0 x86_64 -
check 2.4.0 aarch64 -
check 2.5.1.post1 x86_64 0x2ebebd0
check 2.7.1 x86_64 0x2e016b0
check 2.7.1 aarch64 -
check 2.7.1.post11 x86_64 0x5499b80
check 2.9.1 x86_64 0x4587e60
check 2.9.1 aarch64 0x3b84ac4
check 2.10.0.post4 x86_64 0x587ae20
check 2.10.0.post4 aarch64 -
check 2.10.0.post7 x86_64 0x5a91ae0
check 2.14.0 x86_64 0x5a6e550
check 2.14.0 aarch64 -

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
