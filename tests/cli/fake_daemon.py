# SPDX-License-Identifier: Apache-2.0
"""A daemon that answers what a test wants: NUL-terminated JSON over a unix socket.

It shares no code with npumem. `script` maps a method name to a function of the request's parameters
that returns bytes to send; what is sent is up to the test, malformed answers among it.
"""

import json
import os
import socket
import threading
import time

INTERFACE = "io.npumem.Control."


def reply(parameters, **more):
    return json.dumps({"parameters": parameters, **more}).encode() + b"\0"


def document(content):
    return reply({"document": content})


def error(name, message, fix=""):
    return json.dumps({"error": INTERFACE + name,
                       "parameters": {"message": message, "fix": fix}}).encode() + b"\0"


def stop_listening(listener, thread):
    """Closes a listener whose thread accepts. The thread must be out of accept() before: the next listener
    gets the same number, and this thread would take its clients."""
    listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    listener.close()


class FakeDaemon:
    def __init__(self, path, script):
        self.path, self.script, self.requests = path, script, []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(8)
        self.server = threading.Thread(target=self.serve, daemon=True)
        self.server.start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(client,), daemon=True).start()

    def talk(self, client):
        data = b""
        with client:
            while True:
                try:
                    part = client.recv(65536)
                except OSError:
                    return
                if not part:
                    return
                data += part
                while b"\0" in data:
                    message, data = data.split(b"\0", 1)
                    request = json.loads(message)
                    self.requests.append(request)
                    method = request["method"]
                    assert method.startswith(INTERFACE), method
                    answer = self.script[method[len(INTERFACE):]]
                    if callable(answer):
                        answer = answer(request.get("parameters", {}))
                    if isinstance(answer, bytes):
                        answer = [answer]
                    for piece in answer:
                        if piece is None:  # end the connection here
                            return
                        if isinstance(piece, float):
                            time.sleep(piece)
                            continue
                        try:
                            client.sendall(piece)
                        except OSError:
                            return

    def close(self):
        stop_listening(self.listener, self.server)
        os.unlink(self.path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
