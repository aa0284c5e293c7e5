"""Dtypes in HDF5: those with an HDF5 type, and those that are opaque bytes with an attribute."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false,
# reportArgumentType=false h5py has no types.

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ....core.dtypes import DTYPES, ORDINARY, find
from ...base.contents import NotTensor

__all__ = ["DTYPE", "OPAQUE", "dtype_of", "types"]

DTYPE = "dtype"
"""Keras's name for the attribute that says what opaque bytes are, https://github.com/keras-team/keras,
keras/src/saving/saving_lib.py, H5IOStore."""

OPAQUE = frozenset(DTYPES) - ORDINARY - {"float8_e5m2", "bfloat16"}


@lru_cache(maxsize=1)
def types() -> dict[str, tuple[Any, Any]]:
    """The HDF5 types of ordinary dtypes, little- and big-endian."""
    import h5py

    h5t = h5py.h5t
    found = {
        f"{sign}int{bits}": tuple(
            getattr(h5t, f"STD_{letter}{bits}{order}") for order in ("LE", "BE")
        )
        for sign, letter in (("", "I"), ("u", "U"))
        for bits in (8, 16, 32, 64)
    }
    found |= {
        f"float{bits}": (getattr(h5t, f"IEEE_F{bits}LE"), getattr(h5t, f"IEEE_F{bits}BE"))
        for bits in (16, 32, 64)
    }
    for name, fields, bias, size in (
        ("bfloat16", (15, 7, 8, 0, 7), 127, 2),
        ("float8_e5m2", (7, 2, 5, 0, 2), 15, 1),
    ):
        pair = (h5t.IEEE_F16LE.copy(), h5t.IEEE_F16BE.copy())
        for each in pair:
            each.set_fields(*fields)
            each.set_ebias(bias)
            each.set_precision(8 * size)
            each.set_size(size)
        found[name] = pair
    for name, part in (("complex64", "f4"), ("complex128", "f8")):
        found[name] = tuple(
            h5t.py_create(np.dtype([("r", order + part), ("i", order + part)]), logical=True)
            for order in "<>"
        )
    found["bool"] = (h5t.py_create(np.dtype(bool), logical=True),) * 2
    return found


_KNOWN: dict[bytes, tuple[str, bool]] = {}
"""What `dtype_of` has found, by the encoded type, because dozens of comparisons for each of many datasets take long."""


def dtype_of(found: Any) -> tuple[str, bool]:
    """The canonical name of a dataset's dtype, and whether its bytes are swapped; or why it has none."""
    import h5py

    kind = found.get_type()
    encoded = kind.encode()
    for name, pair in types().items() if encoded not in _KNOWN else ():
        for swapped, each in enumerate(pair):
            if kind == each:
                _KNOWN.setdefault(encoded, (name, bool(swapped)))
    if encoded in _KNOWN:
        return _KNOWN[encoded]
    if isinstance(kind, h5py.h5t.TypeOpaqueID):
        attributes = h5py.Dataset(found).attrs
        label = attributes.get(DTYPE)
        if isinstance(label, str) and label in DTYPES and find(label).itemsize == kind.get_size():
            return label, False
        return (
            f"opaque values of {kind.get_size()} bytes, without an attribute {DTYPE!r} that says of what",
            False,
        )
    if isinstance(kind, h5py.h5t.TypeStringID):
        return NotTensor("strings"), False
    described = type(kind).__name__.removeprefix("Type").removesuffix("ID").lower()
    return f"values of a type that is no tensor's ({described}, {kind.get_size()} bytes)", False
