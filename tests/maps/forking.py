"""Processes of converters that are forked, not started: what they import is there already."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
from functools import cache
from types import SimpleNamespace

import pytest
from tests.support import ROOT, SOURCE

from tensorferry.maps import child

_FORKER = """
import gc, json, os, socket, sys
import torch
from tensorferry.maps import running
from tensorferry.backends import registry
for name in ("torch", "numpy"):
    registry.backend_named(name).import_framework()
threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
assert threads == 1, "a process with threads cannot be forked"
gc.collect()
gc.freeze()  # else each collection in a child walks through all that PyTorch holds, and copies it
link = socket.socket(fileno=int(sys.argv[1]))
while True:
    text, pipes, _, _ = socket.recv_fds(link, 1 << 20, 2)
    if not text:
        break
    request = json.loads(text)
    if "wait" in request:
        status = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        link.send(json.dumps(status).encode())
        continue
    process = os.fork()
    if not process:
        os.setsid()
        link.close()
        for to, pipe in enumerate(pipes):
            os.dup2(pipe, to)
            os.close(pipe)
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.path[:] = ["", *request["path"], *sys.path[1:]]
        running.main(request["folder"])
    for pipe in pipes:
        os.close(pipe)
    link.send(json.dumps(process).encode())
"""


@cache
def _forker():
    """A process that has imported PyTorch, and forks one for each converter."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.set_inheritable(False)
    process = subprocess.Popen(
        [sys.executable, "-c", _FORKER, str(its.fileno())],
        pass_fds=[its.fileno()],
        stderr=subprocess.DEVNULL,
        # As the library starts its own: threads of these begin at import.
        env={
            **os.environ,
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(SOURCE), str(ROOT), *filter(None, sys.path)]),
        },
    )
    its.close()

    def end():
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


class _Forked:
    """What `subprocess.Popen` gives, of a process that was forked."""

    def __init__(self, command, *, env, stdin, stdout, start_new_session):
        assert (stdin, stdout, start_new_session) == (subprocess.PIPE, subprocess.PIPE, True)
        its_input, our_output = os.pipe()
        our_input, its_output = os.pipe()
        request = {
            "folder": command[-1],
            "environment": env,
            "path": env["PYTHONPATH"].split(os.pathsep),
        }
        socket.send_fds(_forker(), [json.dumps(request).encode()], [its_input, its_output])
        os.close(its_input)
        os.close(its_output)
        self.stdin = os.fdopen(our_output, "wb", buffering=0)
        self.stdout = os.fdopen(our_input, "rb")
        self.pid = json.loads(_forker().recv(1 << 10))

    def wait(self):
        _forker().send(json.dumps({"wait": self.pid}).encode())
        return json.loads(_forker().recv(1 << 10))


@contextlib.contextmanager
def forked_converters():
    """Let the processes of converters be forked from one that has imported PyTorch: a tenth of the time of a start.

    That a process is started, with what it has and has not, is for tests that do without this.
    """
    with pytest.MonkeyPatch.context() as patch:
        starts = SimpleNamespace(Popen=_Forked, PIPE=subprocess.PIPE)
        patch.setattr(child, "subprocess", starts)
        yield
