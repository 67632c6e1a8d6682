# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154
# Sourced by run.sh ($source, $here): the files of a guest, as an initrd.

# Python's library is large: what no test imports stays out.
PYTHON_LEFT_OUT=(__pycache__ test idlelib lib2to3 ensurepip tkinter turtledemo pydoc_data distutils)

# copy_python ROOT TREE NAME: the interpreter NAME (python3.11) of a tree and its library
copy_python() {
    mkdir -p "$1/usr/bin" "$1/usr/lib/$3"
    cp -L "$2/usr/bin/$3" "$1/usr/bin/"
    tar -c -C "$2/usr/lib/$3" "${PYTHON_LEFT_OUT[@]/#/--exclude=}" . | tar -x -C "$1/usr/lib/$3"
    # of use where this host's is the same version; else the guest compiles what it imports
    python3 -m compileall -q "$1/usr/lib/$3" >/dev/null || true
}

# copy_libraries ROOT FOLDER...: what the programs and libraries below ROOT need, from the first FOLDER that has it
copy_libraries() {
    local root=$1 name from more=1
    shift
    mkdir -p "$root/lib"
    while [ $more = 1 ]; do
        more=0
        for name in $(find "$root" -type f \( -perm -u+x -o -name '*.so*' \) -exec readelf -d {} + 2>/dev/null |
            sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u); do
            [ ! -e "$root/lib/$name" ] || continue
            for from in "$@"; do
                [ -e "$from/$name" ] && cp -L "$from/$name" "$root/lib/$name" && more=1 && break
            done
        done
    done
}

# make_image ROOT BUILD TREE FOLDER...: beside what is in ROOT the programs, the simulated node and the tests of Python
# frames; busybox and the loader of TREE; the libraries that these need from the folders; all of it as ROOT.img
make_image() {
    local root=$1 build=$2 tree=$3 file
    shift 3
    mkdir -p "$root"/{usr/bin,proc,sys,dev,tmp,run,root,state,etc/npumem,npumem/tests} "$root$build/sim"
    ln -s usr/bin "$root/bin"
    cp "$tree/bin/busybox" "$root/bin/"
    for file in sh mount mkdir sed tr uname sleep kill cat env poweroff; do ln -s busybox "$root/bin/$file"; done
    # the simulated node's programs look for their libraries where they were built
    cp -r "$build"/sim/{npusim-run,cann-8.1,torch-stripped} "$source/sim/scenarios" "$root$build/sim/"
    cp "$build/npumemd" "$build/npumem" "$root$build/"
    ln -s "$build" "$root/build"
    ln -s "$build/npumemd" "$build/npumem" "$root/bin/"
    cp -r "$source/sim" "$root/npumem/"
    cp -r "$source/tests/kernel" "$root/npumem/tests/"
    copy_libraries "$root" "$@"
    file=$(readelf -l "$build/npumemd" | sed -n 's/.*program interpreter: \(.*\)\]/\1/p')
    mkdir -p "$root${file%/*}"
    cp -L "$tree$file" "$root$file"
    cp "$here/guest.sh" "$root/init"
    chmod +x "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet) >"$root.img"
}
