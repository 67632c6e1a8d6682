#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The units are accepted by systemd-analyze verify without a word, and the sandbox of the service is
# rated at most 4.0 ("OK" begins at 4.9). Needs no root; with it, more is checked.
# Exit: 0 passed, 1 failed, 77 systemd-analyze cannot be had.
set -u
limit=40 # tenths
here=$(cd "$(dirname "$0")" && pwd)
source=$here/../../systemd
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

if ! command -v systemd-analyze >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends systemd >/dev/null 2>&1
    elif [ "$(id -u)" = 0 ] && command -v dnf >/dev/null; then
        dnf install -q -y systemd >/dev/null 2>&1
    fi
fi
if ! command -v systemd-analyze >/dev/null; then
    echo "SKIP systemd_units: no systemd-analyze (package systemd)"
    exit 77
fi

failed=0
fail() {
    echo "FAIL systemd_units: $*"
    failed=1
}

# verify wants the program to exist; the real path is checked by the installation's own test.
sed 's#@NPUMEMD_PATH@#/bin/true#' "$source/npumemd.service.in" >"$work/npumemd.service"
cp "$source/npumemd.socket" "$work/"
# man pages are looked up on this machine, where npumem need not be installed.
sed -i '/^Documentation=/d' "$work"/npumemd.*
# The group comes with the installation.
getent group npumem >/dev/null || sed -i 's/^SocketGroup=.*/SocketGroup=root/' "$work/npumemd.socket"

said=$(SYSTEMD_LOG_LEVEL=warning systemd-analyze verify "$work/npumemd.service" "$work/npumemd.socket" 2>&1)
code=$?
# Only what is said about our units counts, not about others of this machine.
ours=$(printf '%s\n' "$said" | grep npumemd || true)
if [ $code -ne 0 ] || [ -n "$ours" ]; then
    fail "verify (exit $code): $said"
fi

rating=$(systemd-analyze security --offline=true --no-pager "$work/npumemd.service" 2>&1 |
    sed -n 's/.*Overall exposure level for npumemd.service: \([0-9]*\)\.\([0-9]\).*/\1\2/p')
if [ -z "$rating" ]; then
    fail "security gave no rating"
elif [ "$rating" -gt $limit ]; then
    fail "security rates the service $rating tenths, more than $limit"
fi
# The same check finds a service without a sandbox: it can fail.
sed '/^Protect/d;/^Private/d;/^Restrict/d;/^System/d;/^Capab/d;/^NoNew/d' "$work/npumemd.service" >"$work/open.service"
open=$(systemd-analyze security --offline=true --no-pager "$work/open.service" 2>&1 |
    sed -n 's/.*Overall exposure level for open.service: \([0-9]*\)\.\([0-9]\).*/\1\2/p')
[ "${open:-0}" -gt $limit ] || fail "a service without a sandbox is rated ${open:-nothing}"

if command -v systemd-sysusers >/dev/null; then
    mkdir -p "$work/root/etc"
    systemd-sysusers --root="$work/root" "$source/npumem.sysusers" >/dev/null 2>&1 &&
        grep -q '^npumem:' "$work/root/etc/group" || fail "sysusers did not make the group"
fi
if [ "$(id -u)" = 0 ] && command -v systemd-tmpfiles >/dev/null; then
    mkdir -p "$work/root/etc"
    printf 'root:x:0:0::/root:/bin/sh\n' >"$work/root/etc/passwd"
    grep -q '^root:' "$work/root/etc/group" 2>/dev/null || printf 'root:x:0:\n' >>"$work/root/etc/group"
    systemd-tmpfiles --create --root="$work/root" "$source/npumem.tmpfiles" 2>"$work/said" ||
        fail "tmpfiles: $(cat "$work/said")"
    [ "$(stat -c %a "$work/root/var/lib/npumem" 2>/dev/null)" = 750 ] || fail "tmpfiles: /var/lib/npumem"
fi

[ $failed = 0 ] && echo "PASS systemd_units: verify accepts them, exposure $(echo "$rating" | sed 's/\(.\)$/.\1/')"
exit $failed
