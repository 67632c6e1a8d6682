# SPDX-License-Identifier: Apache-2.0
"""Requests of every kind of wrong on the control socket; after each the daemon answers the next one."""
import json
import os
import socket
import threading
import time

from harness import check, equal

VERSION = b'{"method":"io.npumem.Control.Version","parameters":{}}\0'


def connect(daemon, seconds=30):
    s = socket.socket(socket.AF_UNIX)
    s.connect(daemon.socket)  # waits while the queue of the socket is full; with a timeout it would not
    s.settimeout(seconds)
    return s


def answer(s):
    """The next NUL-terminated reply, None when the connection was closed."""
    data = b""
    while not data.endswith(b"\0"):
        try:
            piece = s.recv(1 << 16)
        except ConnectionResetError:
            return None
        if not piece:
            return None
        data += piece
    return json.loads(data[:-1])


def ask(daemon, data):
    with connect(daemon) as s:
        try:
            s.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return answer(s)


def alive(daemon, where):
    reply = ask(daemon, VERSION)
    check(reply and reply["parameters"]["version"], f"{where}: the daemon does not answer any more", reply)


WRONG = {
    "empty": b"\0",
    "no json": b"hello\0",
    "half": b'{"method":"io.npumem.Control.Ver\0',
    "array": b"[]\0",
    "number": b"17\0",
    "no method": b"{}\0",
    "method of a wrong type": b'{"method":5}\0',
    "parameters of a wrong type": b'{"method":"io.npumem.Control.Ps","parameters":[]}\0',
    "two objects": VERSION[:-1] * 2 + b"\0",
    "invalid UTF-8": b'{"method":"\xff\xfe"}\0',
    "NUL in a string": b'{"method":"io.npumem.Control.Version\\u0000x"}\0',
    "nested": b'{"method":"io.npumem.Control.Ps","parameters":{"tgid":' + b"[" * 5000 + b"]" * 5000 + b"}}\0",
    "nested objects": b'{"a":' * 3000 + b"1" + b"}" * 3000 + b"\0",
    "unknown method": b'{"method":"io.npumem.Control.NoSuch","parameters":{}}\0',
    "unknown interface": b'{"method":"com.example.Other.Ps","parameters":{}}\0',
    "unknown parameter": b'{"method":"io.npumem.Control.Ps","parameters":{"colour":"red"}}\0',
    "wrong type": b'{"method":"io.npumem.Control.Ps","parameters":{"tgid":"one"}}\0',
    "negative": b'{"method":"io.npumem.Control.Ps","parameters":{"tgid":[-1]}}\0',
    "too big a number": b'{"method":"io.npumem.Control.Ps","parameters":{"tgid":[99999999999999999999]}}\0',
    "fraction": b'{"method":"io.npumem.Control.Ps","parameters":{"tgid":[1.5]}}\0',
    "long list": b'{"method":"io.npumem.Control.Ps","parameters":{"tgid":[' + b",".join([b"1"] * 5000) + b"]}}\0",
    "stream without more": b'{"method":"io.npumem.Control.Events","parameters":{}}\0',
    "unknown level": b'{"method":"io.npumem.Control.Ls","parameters":{"level":["sky"]}}\0',
}


def test_malformed(scratch):
    """Each malformed request gets an error that names what is wrong; the next client is served."""
    daemon = scratch.daemon()
    for name, request in WRONG.items():
        reply = ask(daemon, request)
        check(reply and "error" in reply, f"{name}: no error", reply)
        check(reply["error"].startswith(("io.npumem.Control.", "org.varlink.service.")), f"{name}: {reply['error']}")
        # varlink's own ExpectedMore has no parameters
        check(reply["parameters"] or reply["error"].endswith(".ExpectedMore"), f"{name}: an error without an explanation", reply)
        alive(daemon, name)


def test_huge(scratch):
    """A request larger than the bound is refused and costs no more memory than the bound."""
    daemon = scratch.daemon()
    before = daemon.status()["daemon"]["rss_bytes"]
    for _ in range(4):
        with connect(daemon) as s:
            try:
                for _ in range(64):
                    s.sendall(b"x" * (1 << 20))
            except OSError:
                pass
            reply = answer(s)
            check(reply is None or "larger" in json.dumps(reply), "reply", reply)
        alive(daemon, "64 MiB")
    after = daemon.status()["daemon"]["rss_bytes"]
    check(after < before + (16 << 20), "the daemon has grown", before, after)


def test_half_and_never_ending(scratch):
    """Half a request, and one that trickles on for ever, hold up nobody and are closed in time."""
    daemon = scratch.daemon()
    half = connect(daemon)
    half.sendall(VERSION[:20])
    trickle = connect(daemon)
    stop = threading.Event()

    def drip():
        while not stop.is_set():
            try:
                trickle.sendall(b" ")
            except OSError:
                return
            time.sleep(0.05)
    thread = threading.Thread(target=drip)
    thread.start()
    try:
        begin = time.monotonic()
        for _ in range(20):
            alive(daemon, "beside half a request")
        check(time.monotonic() - begin < 5, "other clients are held up")
        for s in (half, trickle):
            reply = answer(s)
            check(reply is None or "in time" in json.dumps(reply), "reply to a request that does not end", reply)
        check(time.monotonic() - begin < 20, "closed late")
    finally:
        stop.set()
        thread.join()
        half.close()
        trickle.close()


def test_many_connections(scratch):
    """More connections than allowed: the rest is told so, and served again later."""
    daemon = scratch.daemon(sets=["control.max_connections=8"])
    time.sleep(0.5)  # the connection that found the daemon ready is gone by now
    idle = [connect(daemon) for _ in range(8)]
    for s in idle:
        s.sendall(VERSION)
        check(answer(s), "one of the first eight was refused")
    reply = ask(daemon, VERSION)
    check(reply is None or reply.get("error", "").endswith(".Busy"), "the ninth", reply)
    out = daemon.cli("ps", expect=None)
    check(out.returncode == 1 and "connections" in out.stderr, "npumem against a busy daemon", out.returncode, out.stderr)
    for s in idle:
        s.close()
    time.sleep(0.2)
    alive(daemon, "after the idle ones have gone")


def test_client_that_does_not_read(scratch):
    """A subscriber that never reads costs bounded memory, and events go on for others."""
    daemon = scratch.daemon()
    agent = scratch.agent(log=False)
    daemon.wait_target(agent.pid, "physical")
    s = connect(daemon)
    s.sendall(b'{"method":"io.npumem.Control.Events","parameters":{},"more":true}\0')
    before = daemon.status()["daemon"]["rss_bytes"]
    agent("for i in range(30000): free(malloc(4096))")
    status = daemon.status()
    check(status["daemon"]["rss_bytes"] < before + (64 << 20), "the daemon has grown", before, status["daemon"])
    equal(status["events"]["lost"], 0, "lost events")
    s.close()
    alive(daemon, "after a reader that did not read")


def test_disconnect_in_the_middle(scratch):
    """Clients that vanish before, while and after an answer is written."""
    daemon = scratch.daemon()
    for _ in range(50):
        s = connect(daemon)
        s.sendall(b'{"method":"io.npumem.Control.Status","parameters":{}}\0')
        s.close()
    for _ in range(20):
        s = connect(daemon)
        s.sendall(b'{"method":"io.npumem.Control.Events","parameters":{},"more":true}\0')
        s.close()
    alive(daemon, "after clients that vanished")


def test_introspection(scratch):
    """GetInfo and GetInterfaceDescription, as every varlink client expects them."""
    daemon = scratch.daemon()
    info = ask(daemon, b'{"method":"org.varlink.service.GetInfo","parameters":{}}\0')["parameters"]
    check("io.npumem.Control" in info["interfaces"] and info["vendor"], "GetInfo", info)
    reply = ask(daemon, b'{"method":"org.varlink.service.GetInterfaceDescription","parameters":{"interface":"io.npumem.Control"}}\0')
    text = reply["parameters"]["description"]
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../schema/npumem.varlink")
    equal(text, open(root).read(), "the interface as the repository has it")
    pipelined = connect(daemon)
    pipelined.sendall(VERSION * 3)
    data = b""
    while data.count(b"\0") < 3:
        data += pipelined.recv(65536)
    equal(data.count(b'"version"'), 3, "answers to three requests in one write")
