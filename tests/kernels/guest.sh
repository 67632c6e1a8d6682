#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The first process of a guest of run.sh: the daemon by each link mode of the kernel's command line (modes=a,b),
# the demo's two ranks before it, and what it counted; ends with the machine.
export PATH=/bin NPUSIM_DIR=/tmp/node NPUMEM_SIM_DIR=/sim
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tracefs trace /sys/kernel/tracing 2>/dev/null
mount -t debugfs debug /sys/kernel/debug
mount -t bpf bpf /sys/fs/bpf
mkdir -p $NPUSIM_DIR
modes=$(sed -n 's/.*modes=\([a-z,-]*\).*/\1/p' /proc/cmdline | tr , ' ')
for mode in $modes; do
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
        npumem demo 2>&1 | cat           # no terminal, no pager
        npumem status 2>&1 | cat
        kill $daemon
    fi
    wait $daemon
    sed 's/^/log: /' /log
    echo "END $mode"
done
poweroff -f
