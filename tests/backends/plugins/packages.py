"""Outside packages as they are installed: a module on `sys.path`, and a ``.dist-info`` with its entry points."""

from __future__ import annotations

import textwrap

__all__ = ["BACKEND", "FORMAT", "WITNESS", "install", "loads"]

BACKEND = '''
import numpy as np
from tensorferry.backends.base import Backend
from tensorferry.core.capabilities import Capabilities, Dtypes, Memory
from tensorferry.core.info import TensorInfo
from tensorferry.core.layout import compact_strides
import {module}

class {kind}(Backend):
    """Tensors of `{module}`: float32 over an ndarray that they keep."""

    name = module = "{module}"
    owns = ("{module}",)
    capabilities = Capabilities(
        dtypes=Dtypes(frozenset({{"float32"}}), dict.fromkeys(("bool", "int", "float", "complex"), ("float32",))),
        memory=Memory(writable=True, read_only={read_only}),
    )

    def load(self):
        self.tensor = {module}.Tensor

    def claims(self, kind):
        return issubclass(kind, {module}.Tensor)

    def describe(self, x):
        a = x.array
        at, writable = a.__array_interface__["data"][0] % 64, a.flags.writeable
        return TensorInfo(self.name, a.shape, "float32", strides=a.strides, misalignment=at, writable=writable,
                          mutable=writable)

    def pointer(self, x):
        return x.array.__array_interface__["data"][0]

    def export(self, x):
        return x.array

    def adopt(self, array):
        # Written anew, as a framework does that knows no flags: what is adopted can be written.
        import tensorferry.host.memory as memory
        return {module}.Tensor(memory.over(array) if array.size else array)

    def snippet(self, call):
        return f"{module}.{{call.verb}}({{call.x}})"
'''
"""The backend of a made-up framework; `install` fills in its name, and adds what a test wants to be otherwise."""

FRAMEWORK = """
class Tensor:
    def __init__(self, array):
        self.array = array
"""

READ_ONLY = """
    def read_only(self, x):
        array = x.array[...]
        array.flags.writeable = False
        return {module}.Tensor(array)
"""

WITNESS = """
import numpy as np
import slabs
from tensorferry import testing
from tensorferry.testing.memory import Place


class MyWitness(testing.Witness):
    name = module = "slabs"
    writes = True

    def build(self, content, dtype, shape):
        if dtype != "float32":
            raise TypeError(dtype)
        return slabs.Tensor(np.frombuffer(bytearray(content), dtype).reshape(shape))

    def place(self, x):
        return Place(x.array.__array_interface__["data"][0], x.array.shape, x.array.strides, 4)

    def state(self, x):
        return x.array.shape, x.array.strides, x.array.flags.writeable

    def dtype(self, x):
        return "float32"

    def shape(self, x):
        return x.array.shape

    def poke(self, x, content):
        x.array[...] = np.frombuffer(content, np.float32).reshape(x.array.shape)


"""
"""A witness for that framework where it is named `slabs`."""

FORMAT = """
from tensorferry.files.base.format import Format

class Rows(Format):
    name = "rows"
    title = "Rows"
    suffixes = (".rows",)
    dtypes = frozenset({"float32"})

    def recognises(self, path, head):
        return head[:4] == b"ROWS"

    def read(self, path, *, allow=frozenset()):
        from tensorferry.files.base.contents import Contents
        return Contents("rows", (str(path),), {})
"""


def install(
    folder,
    name,
    module,
    body="",
    *,
    group="backends",
    points=None,
    version="1.0",
    read_only=False,
    extra="",
    framework=FRAMEWORK,
):
    """Put a package into a folder that is, or will be, on `sys.path`.

    Args:
        folder: The folder.
        name: The distribution's name.
        module: Its framework's module, which is beside ``<module>_ferry``, where the entry points
            lead.
        body: The source of ``<module>_ferry``; ``""``: a backend that works.
        group: Which of tensorferry's groups.
        points: The entry points, as name to value; ``None``: one named as the module.
        version: The distribution's.
        read_only: Whether that backend presents memory read-only.
        extra: More methods of its class.
        framework: The source of the framework.
    """
    if not body:
        more = (READ_ONLY.format(module=module) if read_only else "") + textwrap.indent(
            textwrap.dedent(extra), "    "
        )
        body = BACKEND.format(module=module, kind="Mine", read_only=read_only) + more
    points = {module: f"{module}_ferry:Mine"} if points is None else points
    (folder / f"{module}.py").write_text(framework, encoding="utf-8")
    (folder / f"{module}_ferry.py").write_text(textwrap.dedent(body), encoding="utf-8")
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8"
    )
    lines = "".join(f"{key} = {value}\n" for key, value in points.items())
    (info / "entry_points.txt").write_text(f"[tensorferry.{group}]\n{lines}", encoding="utf-8")
    return folder


def loads(folder, code):
    """Code that runs with the packages of a folder installed, and ends with the names of those that it imported."""
    head = f"import sys; sys.path.insert(0, {str(folder)!r})\n"
    tail = "\nprint('loaded', *sorted(name for name in sys.modules if name.endswith('_ferry')))\n"
    return head + textwrap.dedent(code) + tail
