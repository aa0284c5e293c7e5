"""Write the arrays of an Orbax checkpoint with tensorstore, in transactions of a limited size."""

from __future__ import annotations

import re
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from ....core.dtypes import ORDINARY, find
from ....errors import FileFormatError, FormatLimitError, an
from ....host.numpy_dtypes import numpy_dtype, of_numpy
from ...base.contents import NOTHING, Ref, Special
from ...base.limits import FileHint, InPlace, Renamed, text_keys
from ...base.nesting import DEEPEST, names, written
from ...base.tree_json import decode
from ...base.tree_strings import TREE, packed
from ...base.wording import as_unicode, is_unicode, named
from ...encodings.array_parts import filled, slabs
from .reader import BATCH, BOX_BYTES, DICT, SEQUENCE, caches, place_of, pointer_to, store_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ....typing import Array
    from ...base.contents import Contents
    from ...base.pump import Pump
    from ...base.stored import Stored

__all__ = [
    "Leaf",
    "Writer",
    "is_known",
    "kind_of",
    "leaves_of",
    "left_out",
    "nested",
    "restored",
    "strings_of",
]

_NUMBERS = ORDINARY - {"complex64", "complex128"} | {"bfloat16"}


class Leaf(NamedTuple):
    """A value of a tree, or an empty container.

    Args:
        keys: The keys that lead to it, as text.
        forms: For each of them, whether it is a key of a dict or a place in a sequence.
        node: The value.
    """

    keys: tuple[str, ...]
    forms: tuple[int, ...]
    node: Any

    @property
    def name(self) -> str:
        """Orbax's name for it."""
        return ".".join(self.keys)


def leaves_of(contents: Contents) -> list[Leaf]:
    """The values to write, the tensors among them in the order of `contents`.

    Raises:
        FormatLimitError: Two have the same name, or a name is none.
    """
    leaves = list(_walk(_tree_of(contents), (), ()))
    wrong = {
        leaf.name: leaf.keys for leaf in leaves if "\0" in leaf.name or not is_unicode(leaf.name)
    }
    if wrong:
        raise FormatLimitError(
            f"Orbax needs names in UTF-8 without zero bytes, unlike {named(map(ascii, wrong))}.",
            FileHint(Renamed(wrong, frozenset(contents.tensors), _better_name)),
        )
    nested(leaves)
    seen: dict[str, Leaf] = {}
    for leaf in leaves:
        if kind_of(leaf.node) in _ARRAYS:
            other = seen.setdefault(place_of(leaf.name), leaf)
            if other is not leaf:
                _refuse_both(leaf, other)
    placed = {leaf.node.name: leaf for leaf in leaves if isinstance(leaf.node, Ref)}
    ordered = iter([placed[name] for name in contents.tensors])
    return [next(ordered) if isinstance(leaf.node, Ref) else leaf for leaf in leaves]


def _better_name(name: str) -> str:
    return as_unicode(name.replace("\0", "_"))


def nested(leaves: list[Leaf]) -> dict[str, Any]:
    """The JSON of the strings among values, in which the slashes of their names are levels.

    Raises:
        FormatLimitError: Orbax has no place for one of them.
    """
    texts = [leaf for leaf in leaves if kind_of(leaf.node) == "string"]
    wrong = [leaf for leaf in texts if _NO_POINTER.search(leaf.name)]
    wrong += [leaf for leaf in texts if leaf.name.count("/") > DEEPEST]
    if wrong:
        raise FormatLimitError(
            "Orbax takes the names of strings for paths, without a place for those that have ~ or "
            f"more than {DEEPEST} slashes: {named(ascii(leaf.name) for leaf in wrong)}.",
            FileHint(_with_plain_keys(wrong, "~/")),
        )
    root: dict[str, Any] = {}
    first: dict[tuple[str, ...], Leaf] = {}
    for leaf in texts:
        keys = tuple(pointer_to(leaf.name))
        node = root
        for depth in range(1, len(keys)):
            above = first.setdefault(keys[:depth], leaf)
            node = node.setdefault(keys[depth - 1], {})
            if type(node) is not dict:
                _refuse_both(leaf, above)
        other = first.setdefault(keys, leaf)
        if other is not leaf:
            _refuse_both(leaf, other)
        node[keys[-1]] = leaf.node
    return root


_NO_POINTER = re.compile("~(?![01])")


def _refuse_both(leaf: Leaf, other: Leaf) -> NoReturn:
    """Raise for two values in one place.

    Raises:
        FormatLimitError: Always.
    """
    if "/" in leaf.name + other.name:
        apart = "/"
    else:
        apart = "."
    raise FormatLimitError(
        f"Orbax would keep two values under one name, {leaf.name!r}: those at "
        f"{_place(other)} and {_place(leaf)}.",
        FileHint(_with_plain_keys((leaf, other), apart)),
    )


def _with_plain_keys(leaves: Sequence[Leaf], characters: str) -> InPlace:
    """The way for names that Orbax has no place for: a dict gets keys without some characters."""
    leaf, at = next(
        (leaf, index)
        for leaf in leaves
        for index, key in enumerate(leaf.keys)
        if any(character in key for character in characters)
    )
    code = "str(key)" + "".join(f'.replace("{character}", "_")' for character in characters)
    return InPlace(leaf.keys[:at], f"{{{{{code}: value for key, value in {{}}.items()}}}}")


def strings_of(contents: Contents) -> dict[str, str]:
    """The custom metadata: contents' strings, and the tree unless the structure tells it all."""
    strings = packed(contents, ties=False)
    tree = _tree_of(contents)
    if _is_exact(tree) and list(contents.tensors) == names(tree):
        strings.pop(TREE, None)
    return strings


def left_out(contents: Contents) -> list[str]:
    """The places of values that Orbax cannot hold, with their types."""
    told = []
    for leaf in _walk(_tree_of(contents), (), ()):
        if kind_of(leaf.node) is None:
            if isinstance(leaf.node, Special):
                kind = leaf.node.kind
            else:
                kind = type(leaf.node).__name__
            told.append(f"{leaf.name or 'the whole tree'} ({an(kind)})")
    return told


def restored(contents: Contents) -> Contents:
    """The contents with the tree that `strings_of` has put beside the structure, if it is there.

    Raises:
        FileFormatError: It does not fit the structure.
    """
    metadata = dict(contents.metadata)
    text = metadata.pop(TREE, None)
    if text is None:
        return contents
    tree = decode(text, contents.paths)
    try:
        told = {(leaf.keys, leaf.forms): leaf.node for leaf in _walk(tree, (), ())}
    except FormatLimitError as error:
        raise FileFormatError(
            f"The tree that {named(contents.paths)} describes is none: {error.message}"
        ) from error
    there = {(leaf.keys, leaf.forms): leaf.node for leaf in _walk(_tree_of(contents), (), ())}
    wrong = [
        ".".join(place[0])
        for place in there
        if place not in told or not _fit(told[place], there[place])
    ]
    wrong += [".".join(place[0]) for place in told if place not in there]
    labels = {place: node.name for place, node in told.items() if isinstance(node, Ref)}
    if wrong or len(set(labels.values())) < len(labels):
        raise FileFormatError(
            f"The string {TREE!r} of {named(contents.paths)} does not fit what is stored at "
            f"{named(map(repr, wrong)) or 'two places of one name'}.",
            "another program may have changed the checkpoint and kept the string: "
            "save it without it",
        )
    tensors = {
        labels[place]: contents.tensors[node.name]
        for place, node in there.items()
        if isinstance(node, Ref)
    }
    return contents._replace(tensors=tensors, metadata=metadata, tree=tree)


def kind_of(node: Any) -> str | None:
    """Orbax's name for the type of a value; ``None`` if it has none."""
    if isinstance(node, Ref):
        return "np.ndarray"
    if node is None or _is_nothing(node):
        return "None"
    if isinstance(node, dict):
        return "Dict"
    if type(node) in _CONTAINERS:
        return _CONTAINERS[type(node)]
    if type(node) is str:
        return "string"
    if type(node) is int:
        if -(1 << 63) <= node < 1 << 64:
            return "scalar"
        return None
    if type(node) in (float, bool):
        return "scalar"
    if isinstance(node, np.generic):
        dtype = of_numpy(node.dtype)
    else:
        dtype = None
    return "scalar" if dtype in _NUMBERS else None


_CONTAINERS: dict[type, str] = {list: "List", tuple: "Tuple"}
_ARRAYS = frozenset({"np.ndarray", "scalar"})


def _as_stored(node: Any) -> Any:
    """A value as Orbax restores it, in which case ``None`` stands for what it cannot hold."""
    if isinstance(node, np.generic):
        return None if kind_of(node) is None else node.item()
    if isinstance(node, dict):
        return {}
    return None if kind_of(node) in (None, "None") else node


def _tree_of(contents: Contents) -> Any:
    if contents.tree is None:
        return {name: Ref(name) for name in contents.tensors}
    return contents.tree


def _walk(node: Any, keys: tuple[str, ...], forms: tuple[int, ...]) -> Iterator[Leaf]:
    if isinstance(node, dict) and node:
        for key, child in text_keys(node, keys).items():
            yield from _walk(child, (*keys, key), (*forms, DICT))
    elif type(node) in _CONTAINERS and node:
        for index, child in enumerate(node):
            yield from _walk(child, (*keys, str(index)), (*forms, SEQUENCE))
    else:
        yield Leaf(keys, forms, node)


def _is_exact(node: Any) -> bool:
    """Whether the structure tells all about a tree."""
    if isinstance(node, Ref):
        return node == Ref(node.name)
    if isinstance(node, dict):
        return type(node) is dict and all(
            type(key) is str and _is_exact(child) for key, child in node.items()
        )
    if type(node) in _CONTAINERS:
        return (type(node) is list or not node) and all(map(_is_exact, node))
    return _is_nothing(node) or (
        type(node) in (str, int, float, bool, type(None)) and kind_of(node) is not None
    )


def _is_nothing(node: Any) -> bool:
    return isinstance(node, Special) and node == NOTHING


def _fit(told: Any, stored: Any) -> bool:
    """Whether a value of the tree is what is stored in its place."""
    if isinstance(told, Ref) or isinstance(stored, Ref):
        return isinstance(told, Ref) and isinstance(stored, Ref)
    return written(_as_stored(told)) == written(_as_stored(stored))


def _place(leaf: Leaf) -> str:
    return "".join(f"[{key!r}]" for key in leaf.keys)


_NODES_BYTES = 16 << 20  # two of tensorstore's largest nodes
_COMPRESSOR = {"id": "zstd", "level": 1}


class Writer:
    """Writes arrays into a database, in transactions of a bounded size. Args: path: The folder."""

    def __init__(self, path: Path) -> None:
        import tensorstore

        self._path = path
        self._library = tensorstore
        # The caller flushes everything to the disk, once.
        self._context = tensorstore.Context({**caches(_NODES_BYTES), "file_io_sync": False})
        self._transaction: Any = None
        self._bytes = self._count = 0

    def write(self, name: str, stored: Stored, pump: Pump) -> None:
        row = find(stored.dtype)
        boxes = list(slabs(stored.shape, row.itemsize, nbytes=BOX_BYTES))
        if boxes:
            chunk = [axis.stop - axis.start for axis in boxes[0]]
        else:
            chunk = [max(n, 1) for n in stored.shape]
        store = self._create(name, stored.dtype, stored.shape, chunk)
        sizes = [prod(axis.stop - axis.start for axis in box) for box in boxes]
        pieces = filled(pump.blocks(stored), sizes, numpy_dtype(row.name))
        for box, piece in zip(boxes, pieces, strict=True):
            part = store[box]
            part.write(piece.reshape(part.shape)).result()

    def put(self, name: str, value: Array) -> None:
        self._create(name, str(value.dtype), (), []).write(value).result()

    def finish(self) -> None:
        self._commit()
        # A database without keys has no manifest yet, but a checkpoint must have one.
        if not (self._path / "manifest.ocdbt").exists():
            database = self._library.KvStore.open(
                store_at(self._path, "", True), context=self._context
            ).result()
            database.write("_", b"").result()
            database.delete_range(self._library.KvStore.KeyRange()).result()

    def _create(self, name: str, dtype: str, shape: tuple[int, ...], chunk: list[int]) -> Any:
        return self._library.open(
            {
                "driver": "zarr",
                "kvstore": store_at(self._path, name, True),
                "metadata": {"chunks": chunk, "compressor": _COMPRESSOR},
                "store_data_equal_to_fill_value": True,
            },
            create=True,
            dtype=self._library.dtype(dtype),
            shape=shape,
            context=self._context,
            transaction=self._room(prod(shape) * find(dtype).itemsize),
        ).result()

    def _room(self, nbytes: int) -> Any:
        """A transaction for an array, in memory until the commit; ``None`` if written in boxes."""
        if self._bytes + nbytes > BOX_BYTES or self._count >= BATCH:
            self._commit()
        if nbytes > BOX_BYTES:
            return None
        if self._transaction is None:
            self._transaction = self._library.Transaction()
        self._bytes += nbytes
        self._count += 1
        return self._transaction

    def _commit(self) -> None:
        if self._transaction is not None:
            self._transaction.commit_async().result()
        self._transaction, self._bytes, self._count = None, 0, 0


@cache
def is_known(dtype: str) -> bool:
    """Whether the installed tensorstore has a dtype."""
    import tensorstore

    try:
        tensorstore.dtype(dtype)
    except ValueError:
        return False
    return True
