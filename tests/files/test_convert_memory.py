"""Converting takes the same memory whatever the size: at most 64 MiB of the heap.

What is resident is measured in `benchmarks`: the kernel decides how many pages of a file that is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20

CHILD = textwrap.dedent("""
    import json, sys, tracemalloc
    from pathlib import Path
    from tensorferry.files.conversion.convert import convert_files

    small, steps = sys.argv[1], json.loads(sys.argv[2])
    # Everything is imported before it counts.
    for _, target, keywords in steps:
        end = "".join(Path(target).suffixes)
        convert_files(small, f"{small}.warm{end}", overwrite=True, **keywords)
    told = []
    for source, target, keywords in steps:
        tracemalloc.start()
        report = convert_files(source, target, **keywords)
        heap = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        told.append([heap, report.bytes_written])
    print(json.dumps(told))
""")


def sparse(path, nbytes, tensors=4):
    """A safetensors file of zeros that takes no room on the disk."""
    each = nbytes // tensors
    entries, offset = {}, 0
    for number in range(tensors):
        shape = [each // 4 // 4096, 4096]
        entries[f"layers.{number}.weight"] = {
            "dtype": "F32",
            "shape": shape,
            "data_offsets": [offset, offset + each],
        }
        offset += each
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(path, 8 + len(header) + offset)
    return path


def measure(folder, steps):
    """For each conversion: the peak of the heap, and the bytes that were written."""
    small = folder / "small.safetensors"
    header = json.dumps({"w": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}).encode()
    header += b" " * (-len(header) % 8)
    small.write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
    script = folder / "child.py"
    script.write_text(CHILD)
    done = subprocess.run(
        [sys.executable, str(script), str(small), json.dumps(steps)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def demand_room(folder, nbytes):
    free = shutil.disk_usage(folder).free
    if free < nbytes + (2 << 30):
        pytest.skip(
            f"needs {nbytes >> 30} GiB of disk and 2 GiB to spare; {free >> 30} GiB are free"
        )


def check(told, wanted):
    for (heap, written), nbytes in zip(told, wanted, strict=True):
        assert written == nbytes
        assert heap <= 64 * MIB, f"{heap / MIB:.0f} MiB on the heap"


@pytest.fixture
def folder(tmp_path):
    """One whose gigabytes do not stay after the test."""
    yield tmp_path
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("mebibytes", [256, pytest.param(1024, marks=pytest.mark.slow)])
def test_large_tensors(folder, mebibytes):
    """Copies, checksums, a cast, one tensor larger than all allowances together."""
    nbytes = mebibytes * MIB
    demand_room(folder, 3 * nbytes)
    source = sparse(folder / "in.safetensors", nbytes, tensors=2)
    told = measure(
        folder,
        [
            [str(source), str(folder / "a.pt"), {}],
            [str(folder / "a.pt"), str(folder / "b.safetensors"), {"dtype": "bfloat16"}],
            [
                str(source),
                str(folder / "c.npz"),
                {"dtype": "float8_e4m3fn", "overflow": "saturate"},
            ],
        ],
    )
    check(told, [nbytes, nbytes // 2, nbytes // 4])


@pytest.mark.parametrize("rows", [4096, pytest.param(8192, marks=pytest.mark.slow)])
def test_strided_tensors(folder, rows):
    """Transposed and strided over a storage of at least 128 MiB: by rows, never whole."""
    torch = pytest.importorskip("torch")
    base = torch.zeros(rows * 8192, dtype=torch.float32)
    state = {"transposed": base.reshape(rows, 8192).T, "every_other": base[::2]}
    torch.save(state, folder / "in.pt")
    del base, state
    told = measure(
        folder, [[str(folder / "in.pt"), str(folder / "out.safetensors"), {"verify": True}]]
    )
    check(told, [rows * 8192 * 6])


@pytest.mark.slow
@pytest.mark.parametrize("gibibytes", [4, 16])
def test_more_gibibytes(folder, gibibytes):
    """The same allowance, also verified, in shards and with threads."""
    demand_room(folder, gibibytes << 30)
    source = sparse(folder / "in.safetensors", gibibytes << 30)
    steps = [[str(source), str(folder / "a.pt"), {"verify": gibibytes == 4}]]
    check(measure(folder, steps), [gibibytes << 30])
    (folder / "a.pt").unlink()
    steps = [
        [
            str(source),
            str(folder / "shards"),
            {"to": "safetensors", "shard": "1GiB", "jobs": 2, "dtype": "float16"},
        ]
    ]
    check(measure(folder, steps), [gibibytes << 29])
