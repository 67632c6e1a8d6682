# SPDX-License-Identifier: Apache-2.0
"""Long reads of the store: what others get meanwhile, and what a client or a daemon that goes leaves behind."""
import os
import select
import sqlite3
import time

from harness import check, equal
from test_socket import VERSION, alive, answer, ask, connect

ROWS = 1_000_000
FILL = f"""
INSERT INTO process (boot_id, tgid, start_ticks, start_wall_ns, first_wall_ns, last_wall_ns, comm, title, container,
                     rank_source) VALUES ('another', 1, 1, 0, 0, :begin, 'server', '', '', '');
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT {ROWS})
INSERT INTO sample_host SELECT :begin + i * 1000000, 1 + i * 1000000, (SELECT max(id) FROM process), 1 << 30, 0 FROM n;
"""


def call(method, **parameters):
    fields = ",".join(f'"{key}":{value}' for key, value in parameters.items())
    return f'{{"method":"io.npumem.Control.{method}","parameters":{{{fields}}}}}\0'.encode()


ALL = {"Leaks": call("Leaks", since_ns=1), "Timeline": call("Timeline", since_ns=1)}


def with_samples(scratch):
    """A daemon whose store has so many samples of the last hours that to read them takes some tenths of a second."""
    daemon = scratch.daemon()
    daemon.stop()
    db = sqlite3.connect(os.path.join(daemon.state_dir, "store.db"))
    first = time.time_ns() - ROWS * 1_000_000 - 60 * 10**9
    for statement in FILL.split(";")[:2]:
        db.execute(statement, {"begin": first})
    db.commit()
    db.close()
    return daemon.start()


def is_answered(s):
    return bool(select.select([s], [], [], 0)[0])


def store_files(daemon):
    """What the daemon has open of its store."""
    links = [os.readlink(f"/proc/{daemon.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{daemon.pid}/fd")]
    return sorted(os.path.basename(link) for link in links if "/store.db" in link)


def begin(daemon, request):
    """A client whose samples are being read, or that waits for those of another."""
    s = connect(daemon)
    s.sendall(request)
    for _ in range(3):  # turns of the loop
        alive(daemon, "while it reads")
    check(not is_answered(s), "the answer came too early for this test")
    return s


def test_others_meanwhile(scratch):
    """While the samples are read for two clients, a third gets its answers; then they get theirs."""
    daemon = with_samples(scratch)
    for name, request in ALL.items():
        with connect(daemon) as first, connect(daemon) as second, connect(daemon) as third:
            first.sendall(request)
            second.sendall(request)
            waits = []
            while not is_answered(second):
                start = time.monotonic()
                third.sendall(VERSION)
                answer(third)
                waits.append(time.monotonic() - start)
            check(len(waits) >= 8, f"{name}: only {len(waits)} answers of others while it read")
            for s in first, second:
                reply = answer(s)
                check(reply and "document" in reply["parameters"], f"{name}: no answer", reply)
        # what a piece takes, beside whatever else runs on the machine
        check(sorted(waits)[len(waits) // 2] < 0.1, f"{name}: others waited too long", waits)


def test_client_goes_away(scratch):
    """Clients hang up while their samples are read, or wait for that: nothing of theirs is left."""
    daemon = with_samples(scratch)
    ask(daemon, ALL["Leaks"])  # SQLite keeps the descriptor for the next one
    before = store_files(daemon)
    for request in ALL.values():
        clients = [begin(daemon, request) for _ in range(3)]
        for i in 1, 0, 2:
            clients[i].close()
            alive(daemon, "after a client")
        reply = ask(daemon, request)
        check(reply and "document" in reply["parameters"], "no answer to the next client", reply)
        equal(store_files(daemon), before, "files that are open")


def test_daemon_stops(scratch):
    """The daemon is asked to stop while it reads: it does, and its store is closed as always."""
    daemon = with_samples(scratch)
    with begin(daemon, ALL["Leaks"]) as first, begin(daemon, ALL["Timeline"]) as second:
        daemon.stop()
        equal(answer(first), None, "answer of a daemon that stopped")
        equal(answer(second), None, "answer of a daemon that stopped")
    equal(os.path.exists(os.path.join(daemon.state_dir, "store.db-wal")), False, "a log is left behind")
