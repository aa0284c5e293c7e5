"""What `load` does for some tensors by their names: ``slices=``, and ``device=`` as a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .. import hints
from ..core.leaf_dtypes import fits_glob, unknown_name
from ..errors import FormatLimitError, UnsupportedTypeError, shown
from ..hints import Hint
from .ranges.boxes import box_of
from .ranges.cutting import cut

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .base.contents import Contents
    from .base.stored import Stored
    from .ranges.boxes import Box

__all__ = ["SlicedTensors", "by_name_or_pattern", "devices_by_name", "sliced"]


class SlicedTensors(dict[str, Any]):
    """The tensors of a file, of which some are parts.

    Args:
        tensors: All of them.
        boxes: For each that is cut, the shape in the file and which part it is.
    """

    def __init__(
        self,
        tensors: Mapping[str, Stored],
        boxes: Mapping[str, tuple[tuple[int, ...], Box]],
    ) -> None:
        super().__init__(tensors)
        self.boxes = boxes


def sliced(contents: Contents, slices: Any) -> Contents:
    """The contents with parts of some tensors. No values are read.

    Args:
        contents: The contents.
        slices: The indexes, by names or patterns.

    Raises:
        UnsupportedTypeError: It is no mapping, or an index is of another type.
        ShapeError: A step is below 1.
        IndexError: An index does not fit the shape.
        FormatLimitError: A pattern is for no tensor.
    """
    chosen = by_name_or_pattern("slices", slices, contents.tensors)
    tensors = dict(contents.tensors)
    boxes: dict[str, tuple[tuple[int, ...], Box]] = {}
    for name, index in chosen.items():
        stored = tensors[name]
        box = box_of(index, stored.shape, name)
        if not box.is_whole(stored.shape):
            boxes[name] = stored.shape, box
            tensors[name] = cut(stored, box)
    return contents._replace(tensors=SlicedTensors(tensors, boxes))


def devices_by_name(
    devices: Any, tensors: Mapping[str, Stored]
) -> tuple[tuple[object, ...], dict[str, int]]:
    """Devices, of which the first is ``None``, and the number of its own for each tensor with one.

    Raises:
        FormatLimitError: A pattern is for no tensor.
    """
    places = {pattern: number for number, pattern in enumerate(devices, 1)}
    return (None, *devices.values()), by_name_or_pattern("device", devices, tensors, places)


def by_name_or_pattern(
    keyword: str,
    given: Any,
    names: Iterable[str],
    values: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The value for each tensor that a mapping from names and patterns has one for.

    A tensor's own name is first, then the first pattern that fits it.

    Args:
        keyword: The keyword that takes the mapping.
        given: The mapping.
        names: The names of the tensors.
        values: What to give in place of the mapping's own values.

    Raises:
        UnsupportedTypeError: It is no mapping from strings.
        FormatLimitError: A name or pattern is for no tensor.
    """
    if not isinstance(given, Mapping):
        raise UnsupportedTypeError(
            f"{keyword}= is a mapping from names or patterns, not {shown(given)}."
        )
    for key in given:
        if not isinstance(key, str):
            raise UnsupportedTypeError(
                f"{keyword}= is a mapping from names or patterns, which are strings, not "
                f"{shown(key)}."
            )
    present = list(names)
    patterns = {key: fits_glob(key) for key in given}
    values = given if values is None else values
    unused = dict.fromkeys(given)
    by_name = {}
    for name in present:
        if name in patterns:
            fitting: str | None = name
        else:
            fitting = next((pattern for pattern, fits in patterns.items() if fits(name)), None)
        if fitting is not None:
            by_name[name] = values[fitting]
            unused.pop(fitting, None)
    for key in unused:
        unknown = unknown_name(keyword, [(key, hints.SOME)], present)
        if unknown is not None:
            message = unknown[0]
        else:
            message = f"{keyword}= has the pattern {key!r}, and other keys take all that fits it."
        rest = {other: value for other, value in given.items() if other != key}
        raise FormatLimitError(message, _with_others(keyword, rest))
    return by_name


def _with_others(keyword: str, rest: Mapping[str, Any]) -> Hint:
    """The hint that leaves one key out."""
    if not rest:
        return hints.without(keyword)
    if keyword == "slices":
        return Hint(hints.keyword(keyword, hints.Written(rest, repr(rest))))
    return Hint(hints.keyword(keyword), " without it")
