"""`LazyTree`: the contents of a file as a mapping, whose tensors are made when they are used."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

from ..backends.registry import backend_named
from ..core.leaf_dtypes import dtype_of_leaf, unknown_name
from ..core.request import make_request
from ..errors import ConversionError, CopyRequiredError, FileFormatError, FormatLimitError, frames_of_ours
from ..execution.recipes import conversion_as, conversion_of
from ..execution.run import convert, foresee
from .base.blocks import blocks_of
from .base.contents import NOTHING, Ref, Special
from .base.fingerprints import fingerprints
from .base.nesting import leaves, like
from .base.raw import mapped, mapped_private
from .base.wording import named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from mmap import mmap

    from typing_extensions import Self

    from ..core.leaf_dtypes import DtypeRule
    from .base.contents import Contents
    from .base.fingerprints import Fingerprint
    from .base.stored import Stored

__all__ = ["LazyTree", "lazily", "mapped_arrays"]

_SHOWN = 4
_WIDTH = 60


class LazyTree(Mapping[Any, Any]):
    """What a file holds, as a read-only mapping; `load` makes it.

    >>> import numpy as np, tempfile, tensorferry as ferry
    >>> path = f"{tempfile.mkdtemp()}/model.npz"
    >>> _ = ferry.save({"weight": np.ones(2), "step": 3}, path)
    >>> with ferry.load(path) as state:
    ...     sorted(state), state["weight"]
    (['step', 'weight'], array([1., 1.]))

    A tensor is made when it is used. As long as something refers to it, you get the same object again, under each of
    the names of tied weights. Later, and with ``to="python"``, a new object is made. It has the same memory, so what
    you wrote into it is still there, as long as this mapping exists. Mappings inside are of this kind too; lists and
    tuples are plain, and made when they are used.

    At the end of a ``with`` block, and after `close`, no more tensors are made; those that were made do not change.
    A pickle of it has the path and the arguments of `load`: the file is opened again, and must not have changed.

    Args:
        source: Makes the tensors.
        node: The node of this mapping in the file's tree.
        keys: The keys that lead to the node.

    .. versionadded:: 0.1
    """

    __slots__ = ("_keys", "_node", "_source")

    def __init__(self, source: Source, node: dict[Any, Any], keys: tuple[Any, ...] = ()) -> None:
        self._source = source
        self._node = node
        self._keys = keys

    def __getitem__(self, key: Any) -> Any:
        return self._made(self._node[key], key)

    def __contains__(self, key: object) -> bool:
        return key in self._node and not self._is_skipped(self._node[key])

    def __iter__(self) -> Iterator[Any]:
        if not self._source.others:
            return iter(self._node)
        return (key for key, child in self._node.items() if not self._is_skipped(child))

    def __len__(self) -> int:
        return sum(1 for _ in self) if self._source.others else len(self._node)

    def __repr__(self) -> str:
        shown = [f"{_short(key)}: {self._look(self._node[key])}" for key in islice(self, _SHOWN)]
        shown += ["…"] if len(self) > _SHOWN else []
        text = f"<LazyTree of {len(self)}: {', '.join(shown)}"
        skipped = self.skipped
        if skipped:
            listed = [f"{_short(name)}: {_cut(why)}" for name, why in islice(skipped.items(), _SHOWN)]
            text += f"; {len(skipped)} skipped: {', '.join(listed)}{', …' if len(skipped) > _SHOWN else ''}"
        return f"{text}>"

    def __reduce__(self) -> Any:
        return _opened_again, (self._source.load, self._source.asked, self._source.seen, self._keys)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Make no more tensors, in this mapping and those inside it; the tensors that are held keep their memory."""
        self._source.close()

    @property
    def skipped(self) -> dict[str, str]:
        """Why something in the file cannot be loaded, by its name. ``load(…, strict=True)`` raises an error instead."""
        others = self._source.others
        if not self._keys or not others:
            return dict(others)
        here = {ref.name for _, ref in leaves(self._node)}
        return {name: why for name, why in others.items() if name in here or name.rpartition("@")[0] in here}

    def read(self) -> Any:
        """Everything at once, as the plain dicts, lists and values that were saved.

        Returns:
            What was saved, of its own container types as far as `save` keeps them.

        Warns:
            UserWarning: Something is left out, which plain containers have no place to list.

        Raises:
            FormatLimitError: A list has a tensor in it that cannot be converted.
        """
        read, left = self._read(self._node), self.skipped
        if left:
            path = self._source.asked["path"]
            text = f"{path} also holds what read() leaves out: {named(left)}; .skipped says why."
            warnings.warn(text, UserWarning, stacklevel=frames_of_ours())
        return read

    def _is_skipped(self, node: Any) -> bool:
        return isinstance(node, Ref) and node.name in self._source.others and node.name not in self._source.tensors

    def _look(self, node: Any) -> str:
        """A description of a node, from the header."""
        if isinstance(node, Ref):
            stored = self._source.tensors[node.name]
            blocks = self._source.blocks.get(node.name)
            held = f"{stored.dtype}{list(stored.shape)}"
            return held if blocks is None else f"{held}, {blocks.kind}{list(blocks.shape(stored.shape))}"
        return f"{{{len(node)}}}" if isinstance(node, dict) else _short(node)

    def _made(self, node: Any, *keys: Any) -> Any:
        if isinstance(node, dict):
            return LazyTree(self._source, node, (*self._keys, *keys))
        if type(node) in (list, tuple):
            return type(node)(self._made(child, *keys, place) for place, child in enumerate(node))
        return self._source.leaf(node)

    def _read(self, node: Any) -> Any:
        if isinstance(node, dict):
            children = ((key, child) for key, child in node.items() if not self._is_skipped(child))
            return like(node, ((key, self._read(child)) for key, child in children))
        return type(node)(map(self._read, node)) if type(node) in (list, tuple) else self._source.leaf(node)


def _short(value: Any) -> str:
    """A key, or a value that is not a tensor, as short Python code."""
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}[{len(value)}]"
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


class Source:
    """Makes the tensors of a file for a framework, when they are used.

    Args:
        contents: The contents of the file.
        load: The function that opens it again, with `asked`.
        asked: The arguments of `load`.
        rule: The rule for dtypes.
    """

    def __init__(self, contents: Contents, load: Callable[..., Any], asked: dict[str, Any], rule: DtypeRule) -> None:
        self.tensors = contents.tensors
        self.others = contents.others
        self.blocks = blocks_of(contents)
        self.load = load
        self.asked = asked
        self.seen = fingerprints(contents.paths)
        self._rule = rule
        self._closed = False
        self._target = backend_named(asked["to"])
        memory = self._target.capabilities.memory
        self._writes = memory.writable and memory.exists
        self._maps: dict[str, mmap] = {}
        self._made: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()

    def leaf(self, node: Any) -> Any:
        """What stands in the tree for a node that is no container.

        Raises:
            FormatLimitError: It is a tensor that cannot be loaded.
            ValueError: It is a tensor, and the file has been closed.
        """
        if isinstance(node, Ref):
            return self.tensor(node.name)
        if not isinstance(node, Special):
            return node
        if node == NOTHING:
            return None
        found = self._target.value_of(*node)
        return node if found is None else found

    def tensor(self, name: str) -> Any:
        """The tensor with this name.

        Raises:
            FormatLimitError: It cannot be loaded.
            ValueError: The file has been closed.
        """
        if self._closed:
            path = self.asked["path"]
            raise ValueError(f"{path} was closed: {name!r} cannot be read.\n\nHint: load({path!r}) again")
        stored = self.tensors.get(name)
        if stored is None:
            raise FormatLimitError(
                f"{name!r} cannot be converted: {self.others[name]}.",
                "save it as a dense tensor of plain numbers with what made it",
            )
        dtype = dtype_of_leaf(self._rule, stored.dtype, name)
        tensor = self._made.get((stored.key, dtype))
        if tensor is None:
            tensor = self._convert(name, stored, dtype)
            # Python lists and numbers do not support weak references.
            with suppress(TypeError):
                self._made[stored.key, dtype] = tensor
        return tensor

    def map_of(self, path: str) -> mmap:
        """The memory map of a file, which all its tensors share; private, if tensors can be written to.

        The caller must have checked that the file has not been replaced.
        """
        found = self._maps.get(path)
        if found is None:
            found = self._maps.setdefault(path, mapped_private(path) if self._writes else mapped(path))
        return found

    def close(self) -> None:
        """Make no more tensors."""
        self._closed = True
        self._maps = {}

    def _validate(self, stored: Stored) -> None:
        """Raise if the file of a tensor has been replaced; for a decoded tensor, if any file has."""
        path = getattr(stored, "path", None)
        for now in fingerprints((path,) if path is not None else tuple(each.path for each in self.seen)):
            if any(each.path == now.path and each != now for each in self.seen):
                raise FileFormatError(f"{now.path} has changed since it was opened.", f"load({now.path!r}) again")

    def _convert(self, name: str, stored: Stored, dtype: object) -> Any:
        to, device, copy = self.asked["to"], self.asked["device"], self.asked["copy"]
        try:
            if getattr(stored, "path", None) not in self._maps:
                self._validate(stored)
            array = stored.array(self.map_of)
            request = make_request(self._target, copy, dtype, None, device, "detach", ())
            conversion = conversion_of(self._target, request)
            is_copied_on_write = self._writes and device is None and dtype is None and not copy and array.flags.aligned
            if is_copied_on_write or request.placement is not None:
                return convert(array, conversion)
            plan = foresee(array, conversion).plan
            if plan.shares_memory or copy is False or not plan.keeps_dtype or plan.result.device != plan.source.device:
                return convert(array, conversion)
            # A tensor that must be copied is read into new memory, which is faster than a copy from the map.
            self._validate(stored)
            own = stored.load()
            return convert(own, conversion_as(to, copy=False if _may_share(own, to) else None))
        except ConversionError as error:
            error.complete_hint("convert", to)
            from ..trees.failures import ask_for_all

            ask_for_all(self._rule, [(error, name)])
            raise type(error)(f"{error.message} - at {name!r}", error.hint) from error


def lazily(contents: Contents, load: Callable[..., Any], asked: dict[str, Any], rule: DtypeRule) -> Any:
    """The tree of a file, whose tensors are made when they are used. The arguments are those of `Source`.

    Raises:
        FormatLimitError: The rule has a name that no tensor has; or something cannot be loaded, and ``strict`` is set
            or the result is not a mapping that could list it.
    """
    unknown = unknown_name("dtype", rule.names, contents.tensors)
    if unknown is not None:
        raise FormatLimitError(*unknown)
    tree = contents.tree
    if tree is None:
        # Without a Python call for each tensor, because there may be a hundred thousand.
        names = [*contents.tensors, *contents.others]
        fields = zip(names, *map(repeat, Ref._field_defaults.values()), strict=False)
        tree = dict(zip(names, map(tuple.__new__, repeat(Ref), fields), strict=True))
    if contents.others and asked["strict"]:
        name, why = next(iter(contents.others.items()))
        raise FormatLimitError(
            f"Not all of it can be converted: {named(contents.others)} ({name}: {why}).",
            "strict=False, which lists it in .skipped",
        )
    lazy = LazyTree(Source(contents, load, asked, rule), tree if isinstance(tree, dict) else {})
    if isinstance(tree, dict):
        return lazy
    made = lazy._made(tree)  # noqa: SLF001 - its own module
    if contents.others:
        # A tensor or a list has no attribute `skipped`.
        text = f"{asked['path']} also holds what load leaves out: {named(contents.others)}; open(path).others says why."
        warnings.warn(text, UserWarning, stacklevel=frames_of_ours())
    return made


def mapped_arrays(tree: LazyTree) -> dict[str, Any]:
    """Arrays over the same memory map as the tensors of a mapping, by name."""
    source = tree._source  # noqa: SLF001 - its own module
    return {name: stored.array(source.map_of) for name, stored in source.tensors.items()}


def _opened_again(
    load: Callable[..., Any], asked: dict[str, Any], seen: tuple[Fingerprint, ...], keys: tuple[Any, ...]
) -> Any:
    """The mapping at a place in a file, for unpickling."""
    found = load(asked["path"], **{key: value for key, value in asked.items() if key != "path"})
    if found._source.seen != seen:  # noqa: SLF001 - its own module
        raise FileFormatError(f"{asked['path']} has changed since the mapping was pickled.", f"load({asked['path']!r})")
    for key in keys:
        found = found[key]
    return found


def _may_share(own: Any, to: str) -> bool:
    try:
        return foresee(own, conversion_as(to, copy=False)).plan.shares_memory
    except CopyRequiredError:
        return False
