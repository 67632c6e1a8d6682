#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD_DIR [MACHINE...] - the daemon on kernels and on a processor that are not this host's: Debian's 5.10, 6.1
# and 6.12 (openEuler 22.03 has 5.10, 24.03 has 6.6) for x86_64 and aarch64, each booted in an emulated machine. Whether
# their verifiers take the kernel programs, and what they make of them, shows nowhere else. The demo's two ranks must be
# seen whole by each kind of link that the kernel has: sums exact, no loss. Then tests of the python group run there.
# For aarch64 everything is cross-built into build/aarch64 against Debian's packages.
# MACHINE: one of FLAVOUR-VERSION as below (arm64-6.1); all of them unless named.
# Packages are fetched once into ${NPUMEM_CACHE:-~/.cache/npumem}/kernels.
set -u

build=$(cd "${1:?usage: run.sh BUILD_DIR [MACHINE...]}" && pwd)
shift
wanted=" $* "
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
cache=${NPUMEM_CACHE:-$HOME/.cache/npumem}/kernels
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
# shellcheck source=tests/kernels/fetch.sh
. "$here/fetch.sh"
# shellcheck source=tests/kernels/image.sh
. "$here/image.sh"

# FLAVOUR:SUITE:beginning of the kernel's version:link modes:those that it has not got. Pages of 16 KiB stand for the
# 64 KiB that some kernels have.
KERNELS="amd64:bullseye:5.10:auto:multi
    amd64:bookworm:6.1:auto,perf-legacy:multi
    amd64:bookworm-backports:6.12:auto,perf,perf-legacy:
    arm64:bullseye:5.10:auto:multi
    arm64:bookworm:6.1:auto,perf-legacy:multi
    arm64-16k:bookworm-backports:6.12:auto:"
# of tests/kernel/python_tests.py: every loop of the kernel programs, new threads, names by the kernel and the daemon
TESTS="phases[system][late],frames[system],thread[system],depth[system][60],fatal[system]"
TESTS_LOOP="depth[system][96],depth[system][10000]" # 5.17 and later: earlier ones walk 96 frames
# on aarch64 also an interpreter that does not keep the kernel's thread ids
TESTS_ARM64="phases[3.9][late][auto],thread[3.9]"
SYSROOT="libbpf-dev libelf-dev zlib1g-dev libsqlite3-dev libsystemd-dev libjson-c-dev libc6-dev libstdc++-12-dev
    python3.11 busybox-static"
BOOT_SECONDS=600

verdict() { # ok|FAIL|skip TEXT
    case $1 in ok) passed=$((passed + 1)) ;; FAIL) failed=$((failed + 1)) ;; *) skipped=$((skipped + 1)) ;; esac
    printf '%-5s %s\n' "$1" "$2"
}

# The host's own programs and Python.
image_amd64() {
    local name triplet
    name=$(basename "$(realpath /usr/bin/python3)")
    triplet=$(gcc -print-multiarch)
    copy_python "$work/amd64" "" "$name" && ln -s "$name" "$work/amd64/usr/bin/python3" &&
        make_image "$work/amd64" "$build" "" "/lib/$triplet" "/usr/lib/$triplet"
}

build_arm64() { # TREE
    export NPUMEM_SYSROOT=$1
    PKG_CONFIG_SYSROOT_DIR=$1 PKG_CONFIG_LIBDIR=$1/usr/lib/aarch64-linux-gnu/pkgconfig:$1/usr/share/pkgconfig \
        cmake -S "$source" -B "$source/build/aarch64" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DNPUMEM_TESTS=OFF \
        -DCMAKE_TOOLCHAIN_FILE="$here/aarch64.cmake" && cmake --build "$source/build/aarch64"
}

image_arm64() {
    local tree older root=$work/arm64
    # shellcheck disable=SC2086
    tree=$(fetch_tree arm64 bookworm $SYSROOT) && older=$(fetch_tree arm64 bullseye python3.9) || return 77
    build_arm64 "$tree" >&2 || return 1
    copy_python "$root" "$tree" python3.11 && copy_python "$root" "$older" python3.9 || return 1
    ln -s python3.11 "$root/usr/bin/python3"
    # where the tests look for other versions
    mkdir -p "$root/root/.pyenv/versions/3.9/bin"
    ln -s /usr/bin/python3.9 "$root/root/.pyenv/versions/3.9/bin/python3"
    make_image "$root" "$source/build/aarch64" "$tree" {"$tree/lib","$tree/usr/lib","$older/usr/lib"}/aarch64-linux-gnu
}

boot() { # ARCH KERNEL "WORD..." >console
    local machine=(qemu-system-x86_64 -cpu max) console=ttyS0
    # the architecture's own way to sign pointers is slow to emulate
    [ "$1" = amd64 ] || machine=(qemu-system-aarch64 -M virt -cpu "max,pauth-impdef=on") console=ttyAMA0
    timeout $BOOT_SECONDS "${machine[@]}" -accel tcg,thread=multi -m 2G -smp 2 -nographic -no-reboot -kernel "$2" \
        -initrd "$work/$1.img" -append "console=$console quiet panic=-1 $3" </dev/null 2>&1 | tr -d '\r'
}

check_mode() { # NAME MODE CONSOLE
    local text events
    text=$(sed -n "/^BEGIN $2 /,/^END $2\$/p" "$3")
    events=$(sed -n 's/^events *received \([0-9]*\), lost 0, malformed 0.*/\1/p' <<<"$text")
    # physical and allocated, of both ranks
    if [ "$(grep -cE '^ *sum of owners +exact +exact$' <<<"$text")" = 2 ] && [ "${events:-0}" -gt 5000 ]; then
        verdict ok "$1 $2: $(sed -n 's/^BEGIN [^ ]* //p' <<<"$text"), $events events"
    else
        verdict FAIL "$1 $2: the demo was not seen whole"
        tail -80 <<<"${text:-$(tail -30 "$3")}"
    fi
}

check_python() { # NAME CONSOLE
    local text result test rest
    text=$(sed -n '/^BEGIN python /,/^END python$/p' "$2")
    while read -r result test rest; do
        case $result in
        PASSED) verdict ok "$1 ${test#n_tests.} $rest" ;;
        FAILED) verdict FAIL "$1 ${test#n_tests.} $rest" ;;
        SKIPPED) verdict skip "$1 ${test#n_tests.} $rest" ;;
        esac
    done <<<"$text"
    if ! grep -qE '^[1-9][0-9]* passed, 0 failed' <<<"$text"; then
        verdict FAIL "$1: not all tests of Python frames passed"
        grep -v 'npumemd debug' <<<"${text:-$(tail -30 "$2")}" | cut -c1-400 | tail -60
    fi
}

check_refused() { # NAME MODE CONSOLE
    local text
    text=$(sed -n "/^BEGIN $2 /,/^END $2\$/p" "$3")
    if grep -q '^log: .* error: .*; try: --links auto' <<<"$text" && ! grep -q '^events ' <<<"$text"; then
        verdict ok "$1 $2: refused, and the way out is named"
    else
        verdict FAIL "$1 $2: a daemon that cannot attach must say so and end"
        tail -30 <<<"${text:-$(tail -30 "$3")}"
    fi
}

for row in $KERNELS; do
    IFS=: read -r flavour suite version modes refused <<<"$row"
    arch=${flavour%%-*} name=$flavour-$version tests=$TESTS
    case $wanted in "  " | *" $name "*) ;; *) continue ;; esac
    [ "$arch" = amd64 ] || tests+=,$TESTS_ARM64
    [ "$version" = 5.10 ] || tests+=,$TESTS_LOOP
    if [ ! -e "$work/$arch.img" ]; then
        "image_$arch" 2>"$work/$arch.log"
        case $? in
        0) ;;
        77) verdict skip "$name: Debian's packages cannot be fetched: $(tail -1 "$work/$arch.log")" && continue ;;
        *) verdict FAIL "$name: no machine could be made for it" && tail -30 "$work/$arch.log" && continue ;;
        esac
    fi
    if ! image=$(fetch_kernel "$suite" "$version" "$flavour" 2>"$work/fetch"); then
        verdict skip "$name: no such kernel can be fetched: $(tail -1 "$work/fetch")"
        continue
    fi
    begin=$SECONDS
    boot "$arch" "$image" "modes=$modes${refused:+,$refused} tests=$tests" >"$work/console"
    for mode in ${modes//,/ }; do
        check_mode "$name" "$mode" "$work/console"
    done
    for mode in ${refused//,/ }; do
        check_refused "$name" "$mode" "$work/console"
    done
    check_python "$name" "$work/console"
    echo "      $name: $((SECONDS - begin)) s"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
