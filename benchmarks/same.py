"""Whether two lines give the same, leaf by leaf, by the frameworks' own means."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DifferentValuesError", "demand_same"]

_FLOATS = "f"
_NUMBERS = (bool, int, float, complex)
_FRAMEWORKS = ("torch", "tensorflow", "jaxlib", "jax")
"""Packages of tensors. A scalar of NumPy may stay where the other line makes a tensor of it."""


class DifferentValuesError(AssertionError):
    """Ours is not what the line by hand gives."""


def demand_same(ours: Any, theirs: Any, path: str = "$") -> None:
    """Compare two results: containers by their keys, fields and lengths, leaves by their numbers.

    What the line by hand gives decides what is compared: where it makes a plain dict of a container
    of another library, ours may be that container. Where it has a Python float, or a float64 that
    was made of Python floats, ours may have the target's own float: then the other's numbers,
    rounded to it, are ours.

    Raises:
        DifferentValuesError: They differ; the message has the path of the leaf.
    """
    if isinstance(theirs, Mapping) or hasattr(theirs, "keys"):
        # JAX sorts keys, which ours does not.
        _equal(set(ours.keys()), set(theirs.keys()), path, "keys")
        # Without `keys`, a TensorDict gives its rows.
        for key in theirs.keys():  # noqa: SIM118
            demand_same(ours[key], theirs[key], f"{path}[{key!r}]")
    elif dataclasses.is_dataclass(theirs):
        _equal(type(ours), type(theirs), path, "class")
        for field in dataclasses.fields(theirs):
            name = field.name
            demand_same(getattr(ours, name), getattr(theirs, name), f"{path}.{name}")
    elif isinstance(theirs, (list, tuple)) and not _is_numbers(theirs, ours):
        if isinstance(theirs, tuple):  # where ours is one, `default_collate` makes a list of it
            _equal(type(ours), type(theirs), path, "class")
        _equal(len(ours), len(theirs), path, "length")
        for index, pair in enumerate(zip(ours, theirs, strict=True)):
            demand_same(*pair, f"{path}[{index}]")
    elif theirs is None or isinstance(theirs, str):
        _equal(ours, theirs, path, "value")
    else:
        _same_numbers(ours, theirs, path)


def _is_numbers(theirs: Any, ours: Any) -> bool:
    """Whether a list is compared as one leaf: of numbers, where ours is one too."""
    return (
        type(theirs) is list
        and type(ours) is list
        and len(theirs) > 0
        and isinstance(theirs[0], _NUMBERS)
    )


def _same_numbers(ours: Any, theirs: Any, path: str) -> None:
    import numpy as np

    framework = _framework(theirs)
    if framework != _framework(ours) and not isinstance(ours, (np.generic, *_NUMBERS)):
        raise DifferentValuesError(f"{path}: {type(ours)} is not {type(theirs)}")
    here, there = _array(ours), _array(theirs)
    _equal(here.shape, there.shape, path, "shape")
    if here.dtype != there.dtype:
        kinds = here.dtype.kind + there.dtype.kind
        if kinds not in (_FLOATS * 2, "ii", "uu") or here.dtype.itemsize > there.dtype.itemsize:
            raise DifferentValuesError(f"{path}: {here.dtype} is not {there.dtype}")
        there = there.astype(here.dtype)
    if here.tobytes() != there.tobytes():
        raise DifferentValuesError(f"{path}: other values")


def _framework(leaf: Any) -> str:
    return next(
        (
            package
            for each in type(leaf).__mro__
            if (package := each.__module__.partition(".")[0]) in _FRAMEWORKS
        ),
        "",
    )


def _array(leaf: Any) -> np.ndarray:
    import numpy as np

    if _framework(leaf) == "torch":
        leaf = leaf.detach().cpu().numpy()
    return np.ascontiguousarray(leaf).reshape(np.shape(leaf))


def _equal(ours: Any, theirs: Any, path: str, what: str) -> None:
    if ours != theirs:
        raise DifferentValuesError(f"{path}: another {what}: {ours}, and by hand {theirs}")
