#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The first process of a guest of run.sh: the daemon by each link mode of the kernel's command line (modes=a,b),
# the demo's two ranks before it, and what it counted; then the tests of Python frames that are named there (tests=a,b);
# ends with the machine.
export PATH=/bin HOME=/root NPUSIM_DIR=/tmp/node NPUMEM_SIM_DIR=/build/sim
CANN=/build/sim/cann-8.1/lib
LIBRARIES="$CANN/libascendcl.so $CANN/libhccl.so /build/sim/torch-stripped/libtorch_npu.so"
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t tracefs trace /sys/kernel/tracing 2>/dev/null
mount -t debugfs debug /sys/kernel/debug
mount -t bpf bpf /sys/fs/bpf
mkdir -p $NPUSIM_DIR

argument() { # NAME: the words of the kernel's command line's NAME=a,b
    tr ' ' '\n' </proc/cmdline | sed -n "s/^$1=//p" | tr , ' '
}

for mode in $(argument modes); do
    printf "\nBEGIN %s %s\n" "$mode" "$(uname -r)"
    export NPUMEM_SOCKET="/run/$mode/control.sock"
    npumemd --runtime-dir "/run/$mode" --state-dir "/state/$mode" --config-dir /etc/npumem --links "$mode" >/log 2>&1 &
    daemon=$!
    seconds=0
    while ! npumem status >/dev/null 2>&1 && kill -0 $daemon 2>/dev/null && [ $seconds -lt 120 ]; do
        sleep 1
        seconds=$((seconds + 1))
    done
    if kill -0 $daemon 2>/dev/null; then # one that refuses the mode has ended
        # a process that has the libraries first: probes go live after a mapping, here later than the demo ends
        /usr/bin/python3 -c 'import ctypes, sys, time
for path in sys.argv[2:]: ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
open(sys.argv[1], "w")
time.sleep(3600)' "/tmp/held-$mode" $LIBRARIES &
        holder=$!
        while kill -0 $holder && [ ! -e "/tmp/held-$mode" ]; do sleep 1; done
        npumem attach $holder --timeout 2min 2>&1 | cat # no terminal, no pager
        npumem demo 2>&1 | cat
        npumem status 2>&1 | cat
        kill $holder $daemon
    fi
    wait
    sed 's/^/log: /' /log
    echo "END $mode"
done

unset NPUMEM_SOCKET
printf "\nBEGIN python %s\n" "$(uname -r)"
# shellcheck disable=SC2046
/usr/bin/python3 /npumem/tests/kernel/python_frames.py /build -j 1 $(argument tests)
echo "END python"
poweroff -f
