"""`loaded`: a file's tree in plain containers, with tensors in memory of their own."""

from __future__ import annotations

from contextlib import closing
from copy import copy
from glob import escape
from typing import TYPE_CHECKING, Any

from ..core.dtypes import DTYPES, find
from ..core.info import TensorInfo
from ..core.leaf_dtypes import quoted
from ..core.names import EXCHANGE
from ..core.sizes import size_text
from ..errors import ConversionError, FileFormatError, NotEnoughMemoryError, TreeError
from ..execution.run import prepare_described
from ..host.free_memory import free_memory
from .base.nesting import leaves
from .base.readers import read_ahead

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from .base.stored import Stored
    from .source import Source

__all__ = ["loaded"]

_HINT = "lazy=True, which reads what is used; or names=[{name}], for a part of it"
_AHEAD = 64 << 20
"""How many bytes are read before they are converted, if a conversion does not take over their memory."""
_POINTER = 8
"""What an element of a Python list takes at least."""


def loaded(source: Source, node: Any, hint: str = _HINT) -> Any:
    """A node of a file's tree in plain containers, whose tensors have memory of their own.

    Args:
        source: The file.
        node: The node.
        hint: What to do instead, if that is more than the memory that is free.

    Warns:
        UserWarning: Something is left out.

    Raises:
        OSError: The file cannot be read.
        FileFormatError: The file is damaged, or has changed since it was opened.
        NotEnoughMemoryError: It is more than the memory that is free.
        ConversionError: A tensor cannot be converted, or the node itself cannot be loaded.
        TreeError: Several tensors cannot be converted.
    """
    names = [ref.name for _, ref in leaves(node) if ref.name in source.tensors]
    tensors = _read(source, dict.fromkeys(names), hint)
    result = source.plain(node, tensors.__getitem__)
    source.warn_of_what_is_left_out(node)
    return result


def _read(source: Source, names: Iterable[str], hint: str) -> dict[str, Any]:
    """Tensors by name; tied names have one object."""
    alike: dict[Hashable, list[str]] = {}
    for name in names:
        alike.setdefault((source.tensors[name].key, source.dtype(name)), []).append(name)
    wanted = {same[0]: source.tensors[same[0]] for same in alike.values()}
    _refuse_what_no_plan_converts(source, wanted)
    copies = _refuse_what_is_too_large(source, wanted, hint)
    found: dict[str, Any] = {}
    try:
        with closing(read_ahead(wanted.values(), _AHEAD if copies else None)) as arrays:
            for same, array in zip(alike.values(), arrays, strict=True):
                with source.naming(same[0]):
                    own = wanted[same[0]].decoded() if array is None else array
                    tensor = source.adopted(own, source.dtype(same[0]))
                found.update(dict.fromkeys(same, tensor))
    except FileFormatError:
        source.validate()  # that it has changed meanwhile says more
        raise
    source.validate()
    return found


def _refuse_what_no_plan_converts(source: Source, wanted: Mapping[str, Stored]) -> None:
    """Raise before anything is read, for all tensors together.

    Raises:
        ConversionError: The framework does not have the dtype of a tensor, or not so many axes, or
            not the device.
        TreeError: That is so for several tensors.
    """
    plans: dict[Hashable, ConversionError | None] = {}
    errors: list[tuple[ConversionError, str]] = []
    for name, stored in wanted.items():
        key = stored.dtype, stored.shape, source.dtype(name)
        if key not in plans:
            plans[key] = None
            if source.is_direct(stored, key[2]):
                continue
            try:
                prepare_described(
                    TensorInfo(EXCHANGE, stored.shape, stored.dtype),
                    source.conversion(key[2], None),
                )
            except ConversionError as error:
                plans[key] = error
        found = plans[key]
        if found is not None:
            errors.append((copy(found), name))
    told = source.named(errors) if errors else []
    if len(told) == 1:
        raise told[0]
    if told:
        raise TreeError(f"{len(told):,} tensors of {source.path} cannot be converted:", told)


def _refuse_what_is_too_large(source: Source, wanted: Mapping[str, Stored], hint: str) -> bool:
    """Raise before anything is read; gives whether conversions need memory beside that of the tensors.

    Raises:
        NotEnoughMemoryError: It is more than the memory that is free.
    """
    sizes = {name: _result_bytes(source, name, stored) for name, stored in wanted.items()}
    largest = max((stored.nbytes for stored in wanted.values()), default=0)
    conversion = source.conversion(None, None)
    stays = conversion.is_for_host or conversion.request.placement is not None
    copies = not stays or any(sizes[name] != stored.nbytes for name, stored in wanted.items())
    needed = (sum(sizes.values()) if stays else 0) + (largest if copies else 0)
    free = free_memory()
    if free is not None and needed > free:
        raise NotEnoughMemoryError(
            f"{source.path} takes {size_text(needed)} of memory as it is to be loaded, and {size_text(free)} are free.",
            hint.format(name=quoted(escape(min(sizes, key=sizes.__getitem__)))),
        )
    return copies


def _result_bytes(source: Source, name: str, stored: Stored) -> int:
    """How much memory a tensor takes after its conversion, at least."""
    if not source.target.capabilities.memory.exists:
        return _POINTER * stored.size
    asked = source.dtype(name)
    return stored.size * find(asked).itemsize if asked in DTYPES else stored.nbytes
