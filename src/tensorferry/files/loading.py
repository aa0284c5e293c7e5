"""`loaded`: a file's tree in plain containers, with tensors in memory of their own."""

from __future__ import annotations

from contextlib import closing
from copy import copy
from glob import escape
from itertools import islice
from typing import TYPE_CHECKING, Any

from .. import hints
from ..core.dtypes import DTYPES, find
from ..core.info import TensorInfo
from ..core.layout import size_text
from ..core.names import EXCHANGE
from ..errors import ConversionError, FileFormatError, NotEnoughMemoryError, TreeError
from ..execution.run import prepare_described
from ..hints import Hint
from .base.nesting import leaves
from .source import Reading, TensorChoice, arrays_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from .base.stored import Stored
    from .source import Source

__all__ = ["AHEAD", "loaded", "readings_of", "result_bytes", "together"]


def _lazily_or_in_part(name: str) -> Hint:
    lazily = Hint(hints.keyword("lazy", True), ", which reads what is used")
    return lazily | Hint(hints.keyword("names", [name]), ", for a part of it")


AHEAD = 64 << 20
"""How many bytes are read before they are converted, if conversions do not take over memory."""
_POINTER = 8
"""What an element of a Python list takes at least."""


def loaded(source: Source, node: Any, hint: Callable[[str], Hint] = _lazily_or_in_part) -> Any:
    """A node of a file's tree in plain containers, whose tensors have memory of their own.

    Args:
        source: The file.
        node: The node.
        hint: Gives what to do instead, if that is more than the memory that is free, by the name
            of the smallest tensor.

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


def together(source: Source, node: Any) -> Callable[[str], Any]:
    """What gives each tensor of a part of the tree; those on a server are read by one plan."""
    if not source.is_remote:
        return source.tensor
    wanted = [ref.name for _, ref in leaves(node) if ref.name in source.tensors]
    left = {name: None for name in wanted if source.held(name) is None}
    read = {} if source.is_closed else _read(source, left, _lazily_or_in_part)
    for name, tensor in read.items():
        source.hold(name, tensor)
    return lambda name: read[name] if name in read else source.tensor(name)


def readings_of(source: Source, names: Iterable[str]) -> list[Reading]:
    """What is read for tensors, each once; nothing is read here, except headers.

    Raises:
        ConversionError: The framework cannot have a tensor.
        TreeError: That is so for several tensors.
    """
    alike: dict[Hashable, list[str]] = {}
    for name in names:
        alike.setdefault((source.tensors[name].key, source.choice(name)), []).append(name)
    wanted = {same[0]: source.tensors[same[0]] for same in alike.values()}
    _refuse_what_no_plan_converts(source, wanted)
    readings = []
    for same in alike.values():
        stored, choice = wanted[same[0]], source.choice(same[0])
        readings.append(Reading(same, stored, choice, source.shards(stored, choice)))
    return readings


def _read(source: Source, names: Iterable[str], hint: Callable[[str], Hint]) -> dict[str, Any]:
    """Tensors by name; tied names have one object."""
    readings = readings_of(source, names)
    copies = _refuse_what_is_too_large(source, readings, hint)
    tensors: dict[str, Any] = {}
    parts = [part for reading in readings for part in reading.parts]
    try:
        with closing(arrays_of(source, parts, AHEAD if copies else None)) as whole:
            for reading in readings:
                with source.naming(reading.names[0]):
                    own = list(islice(whole, len(reading.parts)))
                    tensor = source.made(reading, own)
                tensors.update(dict.fromkeys(reading.names, tensor))
            next(whole, None)  # what reads comes to its end too
    except FileFormatError:
        source.validate()  # that it has changed meanwhile says more
        raise
    source.validate()
    return tensors


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
        key = stored.dtype, stored.shape, source.choice(name)
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
        plan_error = plans[key]
        if plan_error is not None:
            errors.append((copy(plan_error), name))
    told = source.named(errors) if errors else []
    if len(told) == 1:
        raise told[0]
    if told:
        raise TreeError(f"{len(told):,} tensors of {source.path} cannot be converted:", told)


def _refuse_what_is_too_large(
    source: Source, readings: Sequence[Reading], hint: Callable[[str], Hint]
) -> bool:
    """Raise before anything is read; gives whether conversions need memory beside the tensors'.

    Raises:
        NotEnoughMemoryError: It is more than the memory that is free.
    """
    sizes, copied = result_bytes(source, readings)
    copies = copied is not None
    needed = sum(sizes.values()) + (copied or 0)
    from ..host.free_memory import free_memory  # here, because a lazy load takes none

    free = free_memory()
    if free is not None and needed > free:
        raise NotEnoughMemoryError(
            f"{source.path} takes {size_text(needed)} of memory as it is to be loaded, and "
            f"{size_text(free)} are free.",
            hint(escape(min(sizes, key=sizes.__getitem__))),
        )
    return copies


def result_bytes(source: Source, readings: Sequence[Reading]) -> tuple[dict[str, int], int | None]:
    """How much host memory each tensor takes, and conversions beside that; ``None`` without any."""
    conversion = source.conversion(TensorChoice(None), None)
    stays = conversion.is_for_host or conversion.request.placement is not None
    read = {reading.names[0]: sum(part.nbytes for part in reading.parts) for reading in readings}
    sizes = {reading.names[0]: _converted_bytes(source, reading) for reading in readings}
    if stays and sizes == read:
        return sizes, None
    return sizes if stays else dict.fromkeys(sizes, 0), max(read.values(), default=0)


def _converted_bytes(source: Source, reading: Reading) -> int:
    """How much memory a tensor takes after its conversion, at least."""
    size = sum(part.size for part in reading.parts)
    if not source.target.capabilities.memory.exists:
        return _POINTER * size
    asked = reading.choice.dtype
    if asked in DTYPES:
        return size * find(asked).itemsize
    return size * find(reading.stored.dtype).itemsize
