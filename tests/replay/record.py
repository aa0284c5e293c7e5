"""Writes what the package that is imported says: plans, errors with their hints, help, and signatures.

Run by `replay.py` with one checkout on the path at a time. It uses public names alone, so that it
also runs with a checkout that is older than itself.
"""

from __future__ import annotations

import argparse
import inspect
import io
import itertools
import json
import os
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path

LAYOUTS = {
    "C order": lambda size: {},
    "Fortran order": lambda size: {"strides": (size, 3 * size)},
    "gaps": lambda size: {"strides": (16 * size, 2 * size)},
    "backwards": lambda size: {"strides": (-4 * size, -size)},
    "repeated rows": lambda size: {"strides": (0, size)},
    "misaligned": lambda size: {"misalignment": 1},
}
"""Layouts of a tensor of shape (3, 4), by the size of an element."""

DTYPES = {
    "bool": 1,
    "uint8": 1,
    "uint16": 2,
    "int64": 8,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
}
COPIES = (None, True, False)
DEVICES = (None, "cpu", "cuda")

STATES = {
    "requires grad": {"requires_grad": True},
    "read-only": {"writable": False, "mutable": False},
    "read-only view": {"writable": False, "mutable": True},
    "conjugate": {"conjugate": True, "dtype": "complex64"},
    "negative": {"negative": True},
    "other byte order": {"swapped": True},
    "memory map": {"memory_map": True},
    "page-locked": {"pinned": True},
    "on a device": {"device": "cuda:1"},
    "on a device, requires grad": {"device": "cuda:0", "requires_grad": True},
    "on two devices": {"device": "cuda:0", "shards": 2},
    "meta": {"abstract": "meta"},
    "traced": {"abstract": "traced"},
    "deleted": {"abstract": "deleted"},
    "parameter": {"kind": "Parameter"},
    "variable": {"kind": "Variable"},
    "scalar": {"shape": ()},
    "empty": {"shape": (0, 4)},
    "large": {"shape": (3000, 4000)},
    "65 axes": {"shape": (1,) * 65},
}

REQUESTS = {
    f"dtype={dtype!r}, casting={casting!r}": {"dtype": dtype, "casting": casting}
    for dtype in ("fit", "default", "int8", "float16", "float64", "complex64", "float8_e4m3fn")
    for casting in (None, "safe", "same_value", "same_kind", "unsafe")
}
REQUESTS |= {
    f"{option}={value!r}": {option: value}
    for option, value in (
        ("grad", "error"),
        ("pinned", True),
        ("non_blocking", True),
        ("variable", True),
        ("device", "cuda:1"),
        ("device", "mps"),
    )
}

WRONG = (
    {"copy": 1},
    {"copy": "yes"},
    {"dtype": "flaot32"},
    {"dtype": object},
    {"dtype": {"float64": "float32"}},
    {"casting": "save"},
    {"device": "gpu"},
    {"device": "cpu:1"},
    {"device": 3},
    {"grad": "drop"},
    {"nulls": 0},
    {"nulls": "maks"},
    {"ragged": "row"},
    {"pad": 0},
    {"out": 1},
    {"pinned": 1},
    {"pinned": True},
    {"variable": True},
    {"requires_grad": True},
    {"like": 1},
    {"index": [1]},
    {"columns": ["a"]},
    {"unknown": "leave"},
    {"coppy": True},
    {"pin_memory": True},
    {"strict": 1},
)
"""Keywords that some call does not take, or not with this value."""

VALUES = {
    "a list": [1, 2, 3],
    "a list with None": [1, None],
    "a ragged list": [[1], [2, 3]],
    "a string": "text",
    "an object": object(),
    "an empty list": [],
    "a dict": {"a": [1.5]},
    "a large number": 2**70,
}

MODULES = ("tensorferry", "tensorferry.errors", "tensorferry.testing", "tensorferry.typing")


def main() -> None:
    """Record the groups that are asked for, in a file of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--frameworks", nargs="*", help="only these as sources and targets")
    parser.add_argument("--groups", nargs="*", default=[*GROUPS], choices=[*GROUPS])
    asked = parser.parse_args()
    recorded = {
        group: {key: _plain(text) for key, text in GROUPS[group](asked.frameworks)}
        for group in asked.groups
    }
    asked.out.write_text(json.dumps(recorded, ensure_ascii=False), encoding="utf-8")


def _plain(text):
    """A text without what differs from one process, or one checkout, to the next."""
    root = str(Path(import_module("tensorferry").__file__).parents[1])
    return re.sub(r"0x[0-9a-f]{6,}", "0x…", text.replace(root, "…"))


def plans(frameworks):
    """The plan, or the error, of each source, target, dtype, layout, `copy` and device."""
    grid = itertools.product(_pairs(frameworks), DTYPES, LAYOUTS, COPIES, DEVICES)
    for (source, target), dtype, layout, copy, device in grid:
        key = f"{source} {dtype}, {layout} -> {target}, copy={copy}, device={device}"
        laid_out = LAYOUTS[layout](DTYPES[dtype])
        info = {"framework": source, "shape": (3, 4), "dtype": dtype, **laid_out}
        yield key, _said(_explained, info, target, copy=copy, device=device)


def states(frameworks):
    """The same for tensors in special states."""
    for (source, target), state, copy in itertools.product(_pairs(frameworks), STATES, COPIES):
        info = {"framework": source, "shape": (3, 4), "dtype": "float32", **STATES[state]}
        key = f"{source}, {state} -> {target}, copy={copy}"
        yield key, _said(_explained, info, target, copy=copy)


def requests(frameworks):
    """The same for the other keywords."""
    grid = itertools.product(_pairs(frameworks), ("int64", "float32", "bfloat16"), REQUESTS)
    for (source, target), dtype, request in grid:
        info = {"framework": source, "shape": (3, 4), "dtype": dtype}
        key = f"{source} {dtype} -> {target}, {request}"
        yield key, _said(_explained, info, target, **REQUESTS[request])


def calls(frameworks):
    """What public functions give, or raise, for each wrong keyword, and for what is no tensor."""
    ferry = import_module("tensorferry")
    targets = frameworks or ("numpy", "list", "torch")
    functions = {f"to_{target}": getattr(ferry, f"to_{target}") for target in targets}
    for name in ("convert", "convert_tree", "explain", "explain_tree"):
        function = getattr(ferry, name)
        functions |= {f"{name} to {target}": _bound(function, target) for target in targets}
    functions |= {name: getattr(ferry, name) for name in ("describe", "collate", "snapshot")}
    for (name, function), wrong in itertools.product(functions.items(), WRONG):
        yield f"{name}, {wrong}", _said(function, [1, 2], **wrong)
    for (name, function), value in itertools.product(functions.items(), VALUES):
        yield f"{name} of {value}", _said(function, VALUES[value])


def pictures(frameworks):
    """The plan as a page."""
    for (source, target), layout in itertools.product(_pairs(frameworks), LAYOUTS):
        info = {"framework": source, "shape": (3, 4), "dtype": "float32", **LAYOUTS[layout](4)}
        yield f"{source}, {layout} -> {target}", _said(_pictured, info, target)


def helps(_frameworks):
    """What each command says of itself."""
    from tensorferry.cli import main as command

    whole = _printed(command, "--help")
    yield "tensorferry --help", whole
    for name in re.findall(r"^  ([a-z]+)  ", whole, re.MULTILINE):
        yield f"tensorferry {name} --help", _printed(command, name, "--help")


def signatures(_frameworks):
    """The signature and the docstring of each public function, class, method and property."""
    for module_name in MODULES:
        module = import_module(module_name)
        yield module_name, _documented(module)
        for name in sorted(getattr(module, "__all__", ())):
            public = getattr(module, name)
            yield f"{module_name}.{name}", _declared(public)
            for method in _methods(public) if inspect.isclass(public) else ():
                yield f"{module_name}.{name}.{method}", _declared(getattr(public, method))


GROUPS = {
    each.__name__: each for each in (plans, states, requests, calls, pictures, helps, signatures)
}


def _pairs(frameworks):
    ferry = import_module("tensorferry")
    known = frameworks or ["list", "array-like", *ferry.frameworks()]
    return list(itertools.product(known, known))


def _explained(info, target, **keywords):
    ferry = import_module("tensorferry")
    plan = ferry.explain(ferry.TensorInfo(**info), target, **keywords)
    return f"{plan}\n{json.dumps(plan.to_dict(), indent=1, default=str)}"


def _pictured(info, target):
    ferry = import_module("tensorferry")
    return ferry.explain(ferry.TensorInfo(**info), target)._repr_html_()


def _bound(function, target):
    return lambda x, **keywords: function(x, target, **keywords)


def _said(function, *given, **keywords):
    """The result as text, or the error with its hint."""
    try:
        return str(function(*given, **keywords))
    except Exception as error:  # noqa: BLE001 - whatever it raises is what is recorded
        return f"{type(error).__name__}: {error}"


def _methods(public):
    """The public methods, properties and fields that a class has from us."""
    return sorted(
        attribute.name
        for attribute in inspect.classify_class_attrs(public)
        if not attribute.name.startswith("_")
        and attribute.defining_class.__module__.startswith("tensorferry")
    )


def _declared(public):
    try:
        written = str(inspect.signature(public))
    except (TypeError, ValueError):
        written = ""
    return f"{written}\n{_documented(public)}"


def _documented(public):
    """The docstring with a sentence a line: how its lines are broken says nothing."""
    return re.sub(r"(?<=\.) ", "\n", " ".join((inspect.getdoc(public) or "").split()))


def _printed(command, *words):
    """What the command line prints for these words, in a terminal of 100 columns without colours."""
    os.environ.update(COLUMNS="100", TERM="dumb", NO_COLOR="1")
    printed, before = io.StringIO(), sys.argv
    sys.argv = ["tensorferry", *words]
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            command()
    except SystemExit:
        pass
    finally:
        sys.argv = before
    return printed.getvalue()


if __name__ == "__main__":
    main()
