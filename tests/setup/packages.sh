# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by quickstart and run-tests: installs what is missing, by apt or dnf, as root.

BUILD_DEB="gcc g++ cmake ninja-build pkg-config clang llvm bpftool libbpf-dev libelf-dev zlib1g-dev libsqlite3-dev
    libsystemd-dev libjson-c-dev linux-libc-dev"
BUILD_RPM="gcc gcc-c++ cmake ninja-build pkgconf-pkg-config clang llvm bpftool libbpf-devel elfutils-libelf-devel zlib-devel
    sqlite-devel systemd-devel json-c-devel kernel-headers"
TEST_DEB="git libcmocka-dev strace shellcheck python3 python3-venv sqlite3 socat jq systemd clang-format libclang-rt-14-dev iproute2 util-linux"
TEST_RPM="git libcmocka-devel strace ShellCheck python3 sqlite socat jq systemd clang-tools-extra iproute util-linux"
# memleak-bpfcc compiles against headers of some kernel (tests/bench/run.py)
BENCH_DEB="bpftrace bpfcc-tools linux-headers-$(dpkg --print-architecture 2>/dev/null)"
BENCH_RPM="bpftrace bcc-tools kernel-devel"

# emulated machines for other kernels, and a cross build for them (tests/kernels/run.sh)
KERNELS_DEB="qemu-system-x86 qemu-system-arm busybox-static cpio debian-archive-keyring gcc-aarch64-linux-gnu
    g++-aarch64-linux-gnu"

say() { printf '%s\n' "$*" >&2; }

# Packages of the list that are not installed.
missing_packages() {
    if command -v dpkg-query >/dev/null; then
        for p in "$@"; do
            dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || echo "$p"
        done
    else
        for p in "$@"; do rpm -q "$p" >/dev/null 2>&1 || echo "$p"; done
    fi
}

# install_packages WHAT: build, test, bench or kernels (Debian only)
install_packages() {
    local list missing
    case "$1-$(command -v apt-get >/dev/null && echo deb || echo rpm)" in
    build-deb) list=$BUILD_DEB ;; build-rpm) list=$BUILD_RPM ;;
    test-deb) list=$TEST_DEB ;; test-rpm) list=$TEST_RPM ;;
    bench-deb) list=$BENCH_DEB ;; bench-rpm) list=$BENCH_RPM ;;
    kernels-deb) list=$KERNELS_DEB ;;
    *) say "npumem: the packages of $1 are not known here"; return 1 ;;
    esac
    # shellcheck disable=SC2086
    missing=$(missing_packages $list)
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" != 0 ]; then
        say "npumem: packages are missing: $(echo $missing); try: sudo $0"
        return 1
    fi
    say "installing: $(echo $missing)"
    if command -v apt-get >/dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq >/dev/null 2>&1
        # shellcheck disable=SC2086
        apt-get install -y -qq --no-install-recommends $missing >/dev/null || return 1
    else
        # shellcheck disable=SC2086
        dnf install -y -q $missing || return 1
    fi
}

# The presets need CMake 3.25 (Debian 12); older distributions get it from PyPI into the build folder.
ensure_cmake() {
    if cmake --version 2>/dev/null | awk 'NR==1{split($3,v,"."); exit !(v[1]>3 || (v[1]==3 && v[2]>=25))}'; then
        return 0
    fi
    say "CMake is older than 3.25: taking one from PyPI"
    python3 -m venv "$ROOT/build/cmake-venv" && "$ROOT/build/cmake-venv/bin/pip" install -q 'cmake>=3.25,<4' || return 1
    PATH="$ROOT/build/cmake-venv/bin:$PATH"
}

# build_preset PRESET [TARGET...]; $BUILD_TESTS is ON or OFF: tests need packages that a user does not, and
# a warning of a newer compiler must not stop a user
build_preset() {
    local preset=$1
    shift
    cmake --preset "$preset" -DNPUMEM_TESTS="${BUILD_TESTS:-ON}" -DNPUMEM_WERROR="${BUILD_TESTS:-ON}" >"$ROOT/build/$preset.log" 2>&1 || { tail -20 "$ROOT/build/$preset.log" >&2; return 1; }
    cmake --build --preset "$preset" ${1:+--target "$@"} >>"$ROOT/build/$preset.log" 2>&1 ||
        { grep -E 'error|warning|FAILED' "$ROOT/build/$preset.log" | head -20 >&2; tail -5 "$ROOT/build/$preset.log" >&2; return 1; }
}
