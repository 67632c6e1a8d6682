#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD_DIR - the daemon on kernels that are not this host's: Debian's 5.10, 6.1 and 6.12 (openEuler 22.03 has
# 5.10, 24.03 has 6.6), each booted in an emulated machine. Whether their verifiers take the kernel programs shows
# nowhere else. The demo's two ranks must be seen whole by each kind of link that the kernel has: sums exact, no loss.
# Kernels are fetched once into ${NPUMEM_CACHE:-~/.cache/npumem}/kernels.
set -u

build=$(cd "${1:?usage: run.sh BUILD_DIR}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
cache=${NPUMEM_CACHE:-$HOME/.cache/npumem}/kernels
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0

# SUITE, beginning of the kernel's version, link modes, those that it has not got
KERNELS="bullseye:5.10:auto,perf-legacy:multi bookworm:6.1:auto,perf,perf-legacy:multi bookworm-backports:6.12:auto,multi,perf,perf-legacy:"
BOOT_SECONDS=600

verdict() { # ok|FAIL|skip TEXT
    case $1 in ok) passed=$((passed + 1)) ;; FAIL) failed=$((failed + 1)) ;; *) skipped=$((skipped + 1)) ;; esac
    printf '%-5s %s\n' "$1" "$2"
}

# fetch SUITE VERSION: the newest such kernel's image, its path on stdout
fetch() {
    local dir=$cache/$2 apt name
    apt=(-o "Dir::Etc::sourcelist=$dir/list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$dir/lists"
        -o "Dir::Cache=$dir" -o APT::Sandbox::User=root)
    if ! ls "$dir"/tree/boot/vmlinuz-* >/dev/null 2>&1; then
        mkdir -p "$dir/lists/partial" "$dir/archives/partial"
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $1 main" >"$dir/list"
        apt-get "${apt[@]}" update >&2 || return 1
        name=$(apt-cache "${apt[@]}" pkgnames "linux-image-$2" | grep -E '[0-9]-amd64$' | sort -V | tail -1)
        [ -n "$name" ] && (cd "$dir" && apt-get "${apt[@]}" download "$name" >&2) || return 1
        dpkg-deb -x "$dir/$name"_*.deb "$dir/tree" && rm -f "$dir/$name"_*.deb
    fi
    ls "$dir"/tree/boot/vmlinuz-*
}

# The guest's files: the programs, the simulated node, the libraries that these need.
make_guest() {
    local root=$work/root file
    mkdir -p "$root"/{bin,proc,sys,dev,tmp,run,state,etc/npumem} "$root$build/sim"
    cp /bin/busybox "$build/npumemd" "$build/npumem" "$root/bin/"
    for file in sh mount mkdir sed tail tr uname sleep kill cat poweroff; do ln -s busybox "$root/bin/$file"; done
    # the simulated node's programs look for their libraries where they were built
    cp -r "$build/sim/npusim-run" "$build/sim/cann-8.1" "$build/sim/torch-stripped" "$here/../../sim/scenarios" "$root$build/sim/"
    ln -s "$build/sim" "$root/sim"
    find "$root" -type f \( -name '*.so*' -o -path '*/bin/*' -o -name npusim-run \) -exec ldd {} + 2>/dev/null |
        grep -o '/[^ ]*\.so[^ ]*' | sort -u | while read -r file; do
        [ -e "$root$file" ] || cp -L --parents "$file" "$root/" 2>/dev/null
    done
    cp "$here/guest.sh" "$root/init"
    chmod +x "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd"
}

check_mode() { # VERSION MODE OUTPUT
    local text events
    text=$(sed -n "/^BEGIN $2 /,/^END $2\$/p" "$3")
    events=$(sed -n 's/^events *received \([0-9]*\), lost 0, malformed 0.*/\1/p' <<<"$text")
    # physical and allocated, of both ranks
    if [ "$(grep -cE '^ *sum of owners +exact +exact$' <<<"$text")" = 2 ] && [ "${events:-0}" -gt 5000 ]; then
        verdict ok "$1 $2: $(sed -n 's/^BEGIN [^ ]* //p' <<<"$text"), $events events"
    else
        verdict FAIL "$1 $2: the demo was not seen whole"
        tail -30 <<<"${text:-$(tail -30 "$3")}"
    fi
}

check_refused() { # VERSION MODE OUTPUT
    local text
    text=$(sed -n "/^BEGIN $2 /,/^END $2\$/p" "$3")
    if grep -q '^log: .* error: .*; try: --links auto' <<<"$text" && ! grep -q '^events ' <<<"$text"; then
        verdict ok "$1 $2: refused, and the way out is named"
    else
        verdict FAIL "$1 $2: a daemon that cannot attach must say so and end"
        tail -30 <<<"${text:-$(tail -30 "$3")}"
    fi
}

make_guest
for row in $KERNELS; do
    IFS=: read -r suite version modes refused <<<"$row"
    if ! image=$(fetch "$suite" "$version" 2>"$work/fetch"); then
        verdict skip "$version: $suite has no such kernel any more: $(tail -1 "$work/fetch")"
        continue
    fi
    timeout $BOOT_SECONDS qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 2G -smp 2 -nographic -no-reboot -kernel "$image" \
        -initrd "$work/initrd" -append "console=ttyS0 quiet panic=-1 modes=$modes${refused:+,$refused}" </dev/null 2>&1 | tr -d '\r' >"$work/$version.log"
    for mode in ${modes//,/ }; do
        check_mode "$version" "$mode" "$work/$version.log"
    done
    for mode in ${refused//,/ }; do
        check_refused "$version" "$mode" "$work/$version.log"
    done
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
