"""`LazyTree`: what a file holds as a mapping, whose tensors are made when they are used."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..api import convert
from ..core.leaf_dtypes import dtype_of_leaf, unknown_name
from ..errors import ConversionError, CopyRequiredError, FormatLimitError
from ..inspection import explain
from .base.contents import Ref
from .base.nesting import like

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..core.leaf_dtypes import DtypeRule
    from .base.contents import Contents
    from .base.stored import Stored

__all__ = ["LazyTree"]

_SHOWN = 4
_WIDTH = 60


class LazyTree(Mapping[Any, Any]):
    """What a file holds, as a read-only mapping; `load` makes it.

    A tensor is made when it is used. While somebody holds it, the same object comes again, under each of
    the names of tied weights; when nobody does, or with ``to="python"``, it is made anew. Mappings inside are of
    this kind too; lists and tuples are plain, made when they are used.

    Args:
        node: The mapping's own node of the file's tree.
        make: Gives the tensor of a name.
        stored: What the file says of each tensor.
    """

    __slots__ = ("_make", "_node", "_stored")

    def __init__(self, node: dict[Any, Any], make: Callable[[str], Any], stored: Mapping[str, Stored]) -> None:
        self._node = node
        self._make = make
        self._stored = stored

    def __getitem__(self, key: Any) -> Any:
        return self._lazily(self._node[key])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._node)

    def __len__(self) -> int:
        return len(self._node)

    def __repr__(self) -> str:
        shown = [f"{_short(key)}: {self._look(child)}" for key, child in islice(self._node.items(), _SHOWN)]
        more = ", …" if len(self._node) > _SHOWN else ""
        return f"<LazyTree of {len(self._node)}: {', '.join(shown)}{more}>"

    def _look(self, node: Any) -> str:
        """What is there, from the header alone."""
        if isinstance(node, Ref):
            stored = self._stored[node.name]
            return f"{stored.dtype}{list(stored.shape)}"
        return f"{{{len(node)}}}" if isinstance(node, dict) else _short(node)

    def read(self) -> Any:
        """All of it at once, as the plain dicts, lists and values that were saved.

        Returns:
            What was saved, of its own container types as far as `save` keeps them.
        """
        return self._read(self._node)

    def _lazily(self, node: Any) -> Any:
        if isinstance(node, Ref):
            return self._make(node.name)
        if isinstance(node, dict):
            return LazyTree(node, self._make, self._stored)
        return _rebuilt(node, self._lazily) if isinstance(node, (list, tuple)) else node

    def _read(self, node: Any) -> Any:
        if isinstance(node, Ref):
            return self._make(node.name)
        if isinstance(node, dict):
            return like(node, ((key, self._read(child)) for key, child in node.items()))
        return _rebuilt(node, self._read) if isinstance(node, (list, tuple)) else node


def _short(value: Any) -> str:
    """A key, or a value that is no tensor, as Python writes it if that is short."""
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}[{len(value)}]"
    text = repr(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def _rebuilt(node: Any, child: Callable[[Any], Any]) -> Any:
    if isinstance(node, list):
        return [child(each) for each in node]
    # Marked values (a dtype, a device) are named tuples of plain values: they stay as they are.
    return node if hasattr(node, "_fields") else tuple(child(each) for each in node)


def lazily(contents: Contents, to: str, *, device: object, copy: bool | None, rule: DtypeRule) -> Any:
    """A file's tree with tensors of a framework, made when they are used.

    Args:
        contents: What the file holds.
        to: The framework's name.
        device: As for `convert`, for each tensor.
        copy: As for `convert`, for each tensor.
        rule: Which dtype each tensor takes.

    Raises:
        FormatLimitError: The rule has a name that no tensor has.
    """
    unknown = unknown_name(rule, contents.tensors)
    if unknown is not None:
        raise FormatLimitError(*unknown)
    made: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()

    def make(name: str) -> Any:
        stored = contents.tensors[name]
        dtype = dtype_of_leaf(rule, stored.dtype, name)
        tensor = made.get((stored.key, dtype))
        if tensor is None:
            tensor = _convert(name, stored, to, device, copy, dtype)
            # Lists and numbers of Python have no weak references.
            with suppress(TypeError):
                made[stored.key, dtype] = tensor
        return tensor

    tree = contents.tree
    if tree is None:
        tree = {name: Ref(name) for name in contents.tensors}
    lazy = LazyTree(tree if isinstance(tree, dict) else {}, make, contents.tensors)
    return lazy if isinstance(tree, dict) else lazy._lazily(tree)  # noqa: SLF001 - its own module


def _convert(name: str, stored: Stored, to: str, device: object, copy: bool | None, dtype: object) -> Any:
    try:
        mapped = stored.array()
        plan = explain(mapped, to, device=device, copy=copy, dtype=dtype)
        if plan.shares_memory or copy is False or not plan.keeps_dtype or plan.result.device != plan.source.device:
            return convert(mapped, to, device=device, copy=copy, dtype=dtype)
        # What has to be copied is read, which is quicker than to copy from a map, into memory to be shared.
        own = stored.load()
        return convert(own, to, copy=False if _may_share(own, to) else None)
    except ConversionError as error:
        raise type(error)(f"{error.message} - at {name!r}", error.hint) from error


def _may_share(own: Any, to: str) -> bool:
    try:
        return explain(own, to, copy=False).shares_memory
    except CopyRequiredError:
        return False
