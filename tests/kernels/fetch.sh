# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154
# Sourced by run.sh: Debian's packages of another suite or architecture, unpacked below $cache and kept there; nothing
# of the host's own packages is changed.

# apt_of DIR ARCH TOOL ARGUMENT...: apt-get or apt-cache with lists and a state of its own, as if nothing was installed
apt_of() {
    local dir=$1 arch=$2 tool=$3
    shift 3
    "$tool" -o "Dir::Etc::sourcelist=$dir/list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$dir/lists" \
        -o "Dir::State::status=$dir/status" -o "Dir::Cache=$dir" -o APT::Sandbox::User=root \
        -o "APT::Architecture=$arch" -o "APT::Architectures=$arch" "$@"
}

# suite_read DIR ARCH SUITE: what packages the suite has
suite_read() {
    mkdir -p "$1/lists/partial" "$1/archives/partial" "$1/tree" && : >"$1/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $3 main" >"$1/list"
    apt_of "$1" "$2" apt-get update
}

# unpack DIR FILES: of the packages that were fetched those files, into DIR/tree
unpack() {
    local package
    for package in "$1"/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -x -C "$1/tree" --wildcards "$2" || return 1
    done
    rm -rf "$1/archives" "$1/lists"
}

# fetch_kernel SUITE VERSION FLAVOUR: the newest such kernel's image, its path on stdout
fetch_kernel() {
    local dir=$cache/$3-$2 arch=${3%%-*} name
    if [ ! -e "$dir/done" ]; then
        suite_read "$dir" "$arch" "$1" >&2 || return 1
        name=$(apt_of "$dir" "$arch" apt-cache pkgnames "linux-image-$2" | grep -E "[0-9]-$3\$" | sort -V | tail -1)
        [ -n "$name" ] || { echo "$1 has no linux-image-$2*-$3" >&2; return 1; }
        (cd "$dir/archives" && apt_of "$dir" "$arch" apt-get download "$name" >&2) || return 1
        unpack "$dir" './boot/vmlinuz-*' || return 1
        touch "$dir/done"
    fi
    ls "$dir"/tree/boot/vmlinuz-*
}

# fetch_tree ARCH SUITE PACKAGE...: the packages and all that they need, unpacked; the path on stdout
fetch_tree() {
    local dir=$cache/$1-$2 arch=$1 suite=$2
    shift 2
    if [ ! -e "$dir/done" ]; then
        suite_read "$dir" "$arch" "$suite" >&2 &&
            apt_of "$dir" "$arch" apt-get install -y -qq --no-install-recommends --download-only "$@" >&2 &&
            unpack "$dir" '*' || return 1
        touch "$dir/done"
    fi
    echo "$dir/tree"
}
