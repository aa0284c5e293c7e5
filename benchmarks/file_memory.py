"""What single steps over files take of a process's memory, each in a process of its own.

The tests count what Python and NumPy hold; what is resident is the allocator's and the kernel's
affair too, so it is measured here.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from .case import Measured, Target, Unmeasured
from .files import LOOKS, MAKE, MANY, TORCH, Line, why_not, workplace

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SECTIONS"]


class _Alone(NamedTuple):
    """A line that has no other beside it: what it starts from, and what it may take."""

    name: str
    make: str
    imports: str
    code: str
    memory: int
    seconds: float | None = None


_CONVERT = (
    "from tensorferry.files.conversion.convert import convert_files; import tensorferry as ferry; "
    "from tensorferry.files.opening import paths; paths.formats()"
)
_STREAM = """
from tensorferry.files.base.contents import Contents
from tensorferry.files.base.pump import Pump
from tensorferry.files.base.stored import Decoded
from tensorferry.files.formats.{form} import FORMAT
import numpy as np

def values():
    block = np.arange(1 << 18, dtype="f4")
    for _ in range(384):
        yield block

def through(shape, read, path):
    FORMAT.write(Contents("memory", (), {{"x": Decoded("float32", shape, read, 0)}}), path, Pump())
    for _ in FORMAT.read(path).tensors["x"].blocks():
        pass

from pathlib import Path
FORMAT.ensure_loaded()
through((1, 4), lambda: iter([np.ones(4, "f4")]), Path("warm"))
"""
_READ = (
    "from pathlib import Path; import numpy; from tensorferry.files.formats.{form} import FORMAT"
)
_REFUSE = """
try:
    FORMAT.read(Path("bad.safetensors"))
except Exception:
    pass
"""
_ZARR = """
import gzip, json
from pathlib import Path
Path("bomb").mkdir()
described = {"zarr_format": 2, "shape": [1000], "chunks": [1000], "dtype": "|u1", "order": "C", "fill_value": 0}
Path("bomb", ".zarray").write_text(json.dumps({**described, "compressor": {"id": "gzip"}, "filters": None}))
Path("bomb", "0").write_bytes(gzip.compress(bytes(1 << 22)) * 128)
"""
_REFUSE_CHUNK = """
from tensorferry.errors import UnsafeFileError
try:
    FORMAT.read(Path("bomb")).tensors["tensor"].load()
except UnsafeFileError:
    pass
else:
    raise RuntimeError("it was read")
"""
_BLOCKS = 'for block in FORMAT.read(Path("a.npz")).tensors["x"].blocks(): pass'


def _trap(name: str, header: str) -> _Alone:
    make = f"import struct; h = {header}; open('bad.safetensors', 'wb').write(struct.pack('<Q', len(h)) + h)"
    return _Alone(
        f"refuse a header of {name}", make, _READ.format(form="safetensors"), _REFUSE, 64, 20.0
    )


_ALONE = (
    _Alone(
        f"read the header of {MANY:,} tensors in a .safetensors",
        LOOKS[0].make,
        _READ.format(form="safetensors"),
        'held = FORMAT.read(Path("many.safetensors"))',
        32,
    ),
    _Alone(
        f"read the header of {MANY:,} tensors in a .pt",
        LOOKS[1].make,
        _READ.format(form="pytorch"),
        'held = FORMAT.read(Path("many.pt"))',
        33,
    ),
    _Alone(
        f"read the directory of {MANY:,} members of a zip",
        "import zipfile\nwith zipfile.ZipFile('a.zip', 'w') as z:\n"
        f"    for n in range({MANY}): z.writestr(f'archive/data/{{n}}', b'12345678')",
        "from tensorferry.files.encodings.zip_archive import Archive",
        'held = Archive("a.zip")',
        50,
    ),
    _Alone(
        "read a compressed .npz of 512 MiB, a few rows at a time",
        "import numpy as np; np.savez_compressed('a.npz', x=np.zeros((512, 1 << 20), 'u1'))",
        _READ.format(form="npz"),
        _BLOCKS,
        64,
    ),
    _Alone(
        "read an .npz of 128 MiB whose axes are not in C order",
        "import numpy as np; np.savez('a.npz', x=np.ones((8192, 4096), 'f4').T)",
        _READ.format(form="npz"),
        _BLOCKS,
        64,
    ),
    _trap("99 MB of brackets", "b'{\"a\":' + b'[' * 99_000_000"),
    _trap("99 MB of lists", "b'{\"a\":' + b'[],' * 33_000_000"),
    _trap("99 MB of a name", "b'{\"' + b'a' * 99_000_000"),
    _trap("99 MB of a name and backslashes", "b'{\"' + b'\\\\' * 99_000_000"),
    _trap("99 MB of a shape", 'b\'{"a":{"dtype":"U8","shape":[\' + b\'1,\' * 49_000_000'),
    _trap("99 MB of blanks", "b'{' + b' ' * 99_000_000"),
    _Alone(
        "refuse a chunk of Zarr that is declared to hold 1,000 bytes, and holds 512 MiB",
        _ZARR,
        _READ.format(form="zarr") + "; FORMAT.ensure_loaded()",
        _REFUSE_CHUNK,
        16,
        2.0,
    ),
    _Alone(
        "write and read orbax of 384 MiB",
        "",
        _STREAM.format(form="orbax"),
        'through((384 << 10, 256), values, Path("big"))',
        64,
    ),
    _Alone(
        ".safetensors -> .npz as float8, saturating",
        TORCH + "\n" + MAKE,
        _CONVERT,
        'convert_files("model.safetensors", "out", to="npz", dtype="float8_e4m3fn", overflow="saturate")',
        64,
    ),
    _Alone(
        ".pt -> .safetensors as bfloat16",
        TORCH + "\n" + MAKE,
        _CONVERT,
        'convert_files("model.pt", "out", to="safetensors", dtype="bfloat16")',
        64,
    ),
    _Alone(
        ".pt -> shards of 256 MiB, two at a time",
        TORCH + "\n" + MAKE,
        _CONVERT,
        'convert_files("model.pt", "shards", to="safetensors", shard="256MiB", jobs=2, dtype="float16")',
        64,
    ),
    _Alone(
        "transposed and strided tensors of a .pt, verified",
        "import torch; b = torch.zeros(1 << 26); "
        "torch.save({'t': b.reshape(8192, 8192).T, 'every_other': b[::2]}, 'strided.pt')",
        _CONVERT,
        'convert_files("strided.pt", "out", to="safetensors", verify=True)',
        64,
    ),
)


class _Memory:
    title = "Files: what a process takes beyond what it had (resident; for traps the time as well)"

    def rows(self) -> Iterator[Measured | Unmeasured]:
        why = why_not()
        if why is not None:
            yield from (
                Unmeasured(each.name, Target(total=each.memory * 2**20), why, "B")
                for each in _ALONE
            )
            return
        for each in _ALONE:
            target = Target(total=each.memory * 2**20)
            with workplace() as folder:
                try:
                    if each.make:
                        subprocess.run([sys.executable, "-c", each.make], cwd=folder, check=True)  # noqa: S603
                    found = Line(each.code, each.imports).run(folder)
                except (RuntimeError, subprocess.CalledProcessError) as error:
                    yield Unmeasured(each.name, target, str(error), "B")
                    continue
            yield Measured(
                f"{each.name}, extra resident", max(found.resident, 1000), 0, target, "B"
            )
            if each.seconds is not None:
                yield Measured(each.name, found.seconds, 0, Target(total=each.seconds))


SECTIONS = (_Memory(),)
