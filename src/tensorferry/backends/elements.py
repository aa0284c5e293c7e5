"""Elements of lists that are no numbers: tensors, whose values are taken, and objects that are refused."""

from __future__ import annotations

from array import array as typed_array
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from ..columns.code import is_number
from ..core.info import TensorInfo
from ..core.request import Request
from ..errors import ConversionError, GradientError, UnsupportedTypeError
from ..hints import Hint, hint_at
from ..sequences import reader
from ..sequences.diagnostics import DEEPEST, ROWS, at_member, described, each_of, leaves
from . import base, registry
from .no_tensor import TAKEN

if TYPE_CHECKING:
    from ..typing import Array

__all__ = ["is_tensor", "read"]

_DATES = (date, timedelta)
_BUFFERS = (bytes, bytearray, memoryview, typed_array)


def is_tensor(element: Any) -> bool:
    """Whether an element is a tensor, or an object that is refused like one."""
    if type(element) in reader.PYTHON_NUMBERS or isinstance(element, (np.generic, *ROWS)):
        return False
    try:
        return registry.backend_of(element).name != "python" or isinstance(element, _BUFFERS)
    except ConversionError:
        return isinstance(element, np.ndarray)


def read(x: Any, head: Any) -> tuple[Array, str | None]:
    """As `reader.read`; the values of tensors are read with the numbers around them.

    >>> read([[1, 2], np.array([3, 4])], 1)
    (array([[1, 2],
           [3, 4]]), 'int32')
    """
    return reader.read(x, head, _OTHERS)


def _with_numbers(x: Any, path: str = "x", depth: int = 0) -> Any:
    """The rows, in which tensors among numbers are replaced by their values.

    Raises:
        UnsupportedTypeError: The values of a tensor cannot be read, for example because it is
            masked.
        GradientError: A tensor requires grad.
    """
    if isinstance(x, TensorInfo):
        raise described(path)
    if isinstance(x, (list, tuple)) and depth < DEEPEST:
        # Over a copy, because the code of a tensor's class could change the list.
        return [
            _with_numbers(each, f"{path}[{index}]", depth + 1) for index, each in enumerate([*x])
        ]
    if not is_tensor(x):
        return x
    try:
        _, info, _ = registry.backend_of(x).open(x)
        if not info.requires_grad:
            return base.convert(x, registry.backend_named("python"), Request("python"))
    except ConversionError as error:
        raise at_member(error, path) from error
    raise GradientError(
        f"The {info.framework} tensor at {path} requires grad, and stands among numbers, which have no graph.",
        f"{path}.detach()",
    )


def _why_no_number(path: str, element: Any, x: Any) -> ConversionError:
    name = type(element).__name__
    try:
        owner = registry.backend_of(element)
    except ConversionError as error:
        if not isinstance(element, (str, *_DATES, set, frozenset, dict)):
            unknown = error.hint == TAKEN
            hint = (
                Hint("{tree:x}, which leaves it as it is") if unknown else hint_at(error.hint, path)
            )
            return UnsupportedTypeError(
                f"The {name} at {path} is not a number: {error.message}", hint
            )
    else:
        if owner.name != "python":
            return UnsupportedTypeError(
                f"The {name} at {path} stands among numbers.", f"to_list({path})"
            )
    return UnsupportedTypeError(
        f"The {name} at {path} is not a number.", _no_number_hint(element, path, x)
    )


def _no_number_hint(element: Any, path: str, x: Any) -> Hint | None:
    here = "{leaf}" + path.removeprefix("x")
    found = [leaf for _, leaf in leaves(x)]
    if isinstance(element, str):
        return _text_hint(x, found)
    if isinstance(element, _DATES):
        kind = "timedelta64" if isinstance(element, timedelta) else "datetime64"
        if all(type(leaf) is type(element) for leaf in found):
            return Hint(f'np.array({{leaf}}, dtype="{kind}").astype("int64"), which is a count')
        return Hint(f'np.{kind}({here}).astype("int64"), which is a count')
    if isinstance(element, (set, frozenset)):
        if all(isinstance(leaf, (set, frozenset)) for leaf in found):
            return Hint(each_of("sorted(number)", x).replace("in x]", "in {leaf}]"))
        return Hint(f"sorted({here})")
    if isinstance(element, dict):
        inside = "{tree:x}, which converts what is in it"
        are_samples = len(found) == len(x) and all(isinstance(leaf, dict) for leaf in found)
        return Hint(
            f"{inside}; or {{collate:x}}, which makes one batch of all" if are_samples else inside
        )
    return Hint(f"list({here})")


KEEPS_TEXT = "which leaves text as it is"
"""The remark of a hint to convert a list as a tree. A leaf of a batch is no tree of its own."""


def _text_hint(x: Any, found: list[Any]) -> Hint:
    """The hint for text in a list: its numbers, if all of it is written as such; otherwise the list as a tree."""
    try:
        for leaf in found:
            float(leaf)
    except (TypeError, ValueError, OverflowError):
        if all(isinstance(leaf, str) and not is_number(leaf) for leaf in found):
            return Hint("np.unique({leaf}, return_inverse=True)[1], which numbers the words")
        return Hint(f"{{tree:x}}, {KEEPS_TEXT}")
    return Hint(each_of("float(number)", x).replace("in x]", "in {leaf}]"))


_OTHERS = reader.Others(_with_numbers, _why_no_number)
