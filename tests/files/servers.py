"""Servers of the tests' own on loopback: each counts what it is asked, and behaves in one of many ways."""

from __future__ import annotations

import http.server
import os
import re
import threading
from contextlib import contextmanager
from typing import NamedTuple

BOUNDS = re.compile(r"bytes=(\d+)-(\d+)")


class Asked(NamedTuple):
    """A request: which path, which bytes of it, with which headers."""

    path: str
    span: tuple[int, int] | None
    headers: dict[str, str]


class Server(http.server.ThreadingHTTPServer):
    """Files by their paths; `behave` may answer in place of the server, and says so by a true value."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {}
        self.tags = {}
        self.asked = []
        self.behave = lambda _: False

    @property
    def spans(self):
        """What was asked, in order of the file."""
        return sorted(each.span for each in self.asked)

    def url(self, path="/model.safetensors", user=""):
        return f"http://{user}127.0.0.1:{self.server_port}{path}"

    def handle_error(self, request, client_address):
        """Nobody looks at what a broken connection says."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        """Nothing is printed."""

    def do_GET(self):
        path = self.path.partition("?")[0]
        found = BOUNDS.fullmatch(self.headers.get("Range", ""))
        self.span = (int(found[1]), int(found[2]) + 1) if found else None
        self.server.asked.append(Asked(self.path, self.span, dict(self.headers)))
        if self.server.behave(self):
            return
        data = self.server.files.get(path)
        if data is None:
            self.answer(404)
            return
        tag = self.server.tags.get(path, '"one"')
        if self.headers.get("If-Match", tag) != tag:
            self.answer(412)
            return
        self.ranged(data, {"ETag": tag})

    def ranged(self, data, headers=()):
        """Bytes of data, as an ordinary server gives them."""
        start, stop = self.span[0], min(self.span[1], len(data))
        if start >= len(data):
            self.answer(416, {"Content-Range": f"bytes */{len(data)}"})
            return
        bounds = {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}
        self.answer(206, bounds | dict(headers), data[start:stop])

    def answer(self, status, headers=(), data=b"", *, length=None):
        self.send_response(status)
        if length is not False:
            self.send_header("Content-Length", str(len(data) if length is None else length))
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serving():
    """A server, as long as the context lasts."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def chain(error):
    """Every text of an error and of those behind it."""
    texts, todo, seen = [], [error], set()
    while todo:
        each = todo.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        texts += [str(each), repr(each), repr(each.args)]
        todo += [each.__cause__, each.__context__]
    return "\n".join(texts)


def holds_in_a_fork(check):
    """Whether something is true in a process that was forked from this one."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write, b"y" if check() else b"n")
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as answer:
        return answer.read() == b"y"
