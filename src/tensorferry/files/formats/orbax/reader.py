"""Read the tree of an Orbax checkpoint. Tensorstore reads its arrays, a box at a time."""

from __future__ import annotations

import json
import re
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ....core.dtypes import find
from ....errors import FileFormatError, UnsafeFileError
from ....host.numpy_dtypes import of_numpy
from ...base.contents import NOTHING, Contents, NotTensor, Ref
from ...base.nesting import DEEPEST, leaves, names, relabel
from ...base.stored import BoxReader, Decoded
from ...base.wording import named
from ...encodings.array_parts import ZSTD_RATIO, checked, is_bomb, slabs
from ...encodings.crc32c import crc32c
from ...encodings.paths import is_entry, size_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ....typing import Array
    from ...base.stored import Stored

__all__ = [
    "BATCH",
    "BOX_BYTES",
    "DICT",
    "EMPTY",
    "LARGEST_JSON",
    "SEQUENCE",
    "STEP",
    "STRINGS",
    "TREE",
    "ArrayChunks",
    "Checkpoint",
    "caches",
    "dump",
    "is_own",
    "item_of",
    "load",
    "place_of",
    "pointer_to",
    "store_at",
    "tagged",
    "untagged",
]

TREE = "_METADATA"
STEP = "_CHECKPOINT_METADATA"
STRINGS = "_strings.json"
SEQUENCE, DICT = 1, 2
EMPTY: dict[str, Any] = {"None": None, "Dict": {}, "List": [], "Tuple": ()}
_JSON = '{"orbax.json":'
LARGEST_JSON = 256 << 20
BATCH = 512
BOX_BYTES = 2 << 20  # tensorstore holds some ten boxes at a time, raw and compressed
_DATABASE = r"manifest\.ocdbt|d/[0-9a-f]+"
_OF_TREE = re.compile(
    r"_METADATA|_CHECKPOINT_METADATA|_strings\.json|_sharding|commit_success\.txt|array_metadatas/process_\d+"
    rf"|{_DATABASE}|ocdbt\.process_\d+/(?:{_DATABASE})"
)
_ARRAY = re.compile(r"\.zarray|\.zattrs|zarr\.json|c|(?:c[/.])?\d+(?:[/.]\d+)*")


def is_own(folder: Path, inner: str) -> bool:
    """Whether a file belongs to the checkpoint: to its tree, or to the tree in an item of a step.

    Args:
        folder: The checkpoint.
        inner: The path of the file in the checkpoint.
    """
    item, _, below = inner.partition("/")
    if below and (folder / item / TREE).is_file():
        return _is_of_tree(folder / item, below)
    return _is_of_tree(folder, inner)


def _is_of_tree(folder: Path, inner: str) -> bool:
    array, _, below = inner.partition("/")
    is_array = any((folder / array / name).is_file() for name in (".zarray", "zarr.json"))
    return bool(_OF_TREE.fullmatch(inner) or (is_array and _ARRAY.fullmatch(below)))


def caches(nodes: int) -> dict[str, Any]:
    """What tensorstore keeps: no values, but nodes of a database's tree of keys.

    Each access begins at the root of that tree.

    Args:
        nodes: The most bytes of nodes. A larger node is read again for each access.
    """
    return {
        "cache_pool": {"total_bytes_limit": 0},
        "cache_pool#nodes": {"total_bytes_limit": nodes},
    }


def place_of(name: str) -> str:
    """The place of an array in a checkpoint: its name, of which Orbax drops one slash at the end.

    >>> place_of("linear/w"), place_of("w/"), place_of("/")
    ('linear/w/', 'w/', '')
    """
    plain = name.removesuffix("/")
    return f"{plain}/" if plain else ""


def pointer_to(name: str) -> list[str]:
    """The keys that lead to a string in the JSON of strings, where Orbax has it.

    Its name is a JSON pointer (https://www.rfc-editor.org/rfc/rfc6901) to it.

    >>> pointer_to("linear/w"), pointer_to("a.b")
    (['linear', 'w'], ['a.b'])
    """
    return [key.replace("~1", "/").replace("~0", "~") for key in name.split("/")]


def store_at(folder: Path, name: str, database: bool) -> dict[str, Any]:
    """Tensorstore's description of the place for a name, for a context with `caches`."""
    inner = place_of(name)
    if not database:
        return {"driver": "file", "path": f"{folder.absolute()}/{inner}"}
    base = {"driver": "file", "path": f"{folder.absolute()}/"}
    return {"driver": "ocdbt", "base": base, "path": inner, "cache_pool": "cache_pool#nodes"}


def load(path: Path) -> dict[str, Any]:
    """The object in a file of JSON.

    Raises:
        FileFormatError: It has no object.
        UnsafeFileError: It is far too large.
    """
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise UnsafeFileError(f"{path} is larger than {LARGEST_JSON:,} bytes.")
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise FileFormatError(f"There is no {path}.") from None
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is not JSON: {error}.") from error
    if not isinstance(document, dict):
        raise FileFormatError(f"{path} holds no JSON object.")
    return document


def dump(path: Path, value: Any) -> None:
    """Write a file of JSON."""
    path.write_text(json.dumps(value), "utf-8")


def tagged(value: Any) -> str:
    """A custom metadata value as text: JSON, or a string as it is, unless it looks like JSON."""
    if isinstance(value, str) and untagged(value) is value:
        return value
    return f"{_JSON}{json.dumps(value)}}}"


def untagged(text: str) -> Any:
    """The value for a text from `tagged`."""
    if not text.startswith(_JSON):
        return text
    try:
        value = json.loads(text)["orbax.json"]
    except (ValueError, RecursionError):
        return text
    return value if tagged(value) == text else text


_OVERHEAD = 1 << 20
_PER_PIECE = 64
"""A piece's bytes in a shard besides its values: its entry in the index, and codecs' headers."""
_HELD = slice(4, 8)
"""The position of the decompressed size in blosc data: README_CHUNK_FORMAT.rst of c-blosc."""


class ArrayChunks:
    """The chunks of an array.

    Args:
        store: The array, opened by tensorstore.
        itemsize: The size of an element in bytes.
        where: The name of the array in messages.
        folder: The folder with the files of chunks; ``None`` if they are in a database.

    Raises:
        UnsafeFileError: It has blosc data in shards, which no program writes for Orbax.
    """

    def __init__(self, store: Any, itemsize: int, where: str, folder: Path | None) -> None:
        described = store.spec().to_json()["metadata"]
        self._store, self._where, self._folder = store, where, folder
        self._lengths = store.chunk_layout.write_chunk.shape or (1,) * store.rank
        self._nbytes = prod(self._lengths) * itemsize
        pieces = prod(self._lengths) // max(prod(store.chunk_layout.read_chunk.shape or ()), 1)
        self._most = 2 * (self._nbytes + _PER_PIECE * pieces) + _OVERHEAD
        encoding = described.get("chunk_key_encoding", {"name": "v2"})
        apart = "/" if encoding["name"] == "default" else "."
        apart = (
            described.get("dimension_separator")
            or encoding.get("configuration", {}).get("separator")
            or apart
        )
        if encoding["name"] == "default":
            self._key = "c", apart
        else:
            self._key = "", apart
        codecs = described.get("codecs") or [
            {"name": (described.get("compressor") or {}).get("id")}
        ]
        self._by_blosc = any(codec["name"] == "blosc" for codec in codecs)
        if not self._by_blosc and '"blosc"' in json.dumps(codecs):
            raise UnsafeFileError(
                f"{where} has shards of chunks that are compressed by blosc, which are not read."
            )

    def look_at(self, box: Sequence[slice]) -> None:
        """Raise for a box in which a chunk has more bytes than declared.

        Raises:
            UnsafeFileError: A chunk has more bytes.
        """
        if self._folder is None and not self._by_blosc:
            return
        for key in self._keys(box):
            if self._folder is not None:
                file = self._folder / key
                if file.is_file():
                    nbytes = file.stat().st_size
                else:
                    nbytes = 0
                self._refuse(nbytes, self._most)
            if self._by_blosc:
                chunk = self._store.kvstore.read(key).result()
                self._refuse(int.from_bytes((chunk.value or b"")[_HELD], "little"), self._nbytes)

    def _keys(self, box: Sequence[slice]) -> Iterator[str]:
        begin, apart = self._key
        places = (
            range(part.start // length, -(-part.stop // length))
            for part, length in zip(box, self._lengths, strict=True)
        )
        for place in product(*places):
            words = ([begin] if begin else []) + [str(number) for number in place]
            yield apart.join(words) or "0"

    def _refuse(self, nbytes: int, most: int) -> None:
        if nbytes > most:
            raise UnsafeFileError(
                f"{self._where} has a chunk of {nbytes:,} bytes or more, where {most:,} are "
                "declared: a bomb."
            )


_ARRAYS = frozenset({"np.ndarray", "jax.Array"})
_MANIFEST = b"\x0c\xdb\x3a\x2a"
_LARGEST_CHUNK = 8 << 30
_NODES_BYTES = 128 << 20  # Orbax lets a node have 100 MB


class _OrbaxLeaf(NamedTuple):
    """A leaf of a checkpoint's tree."""

    keys: tuple[str, ...]
    forms: tuple[int, ...]
    kind: str


class Checkpoint:
    """Reads a checkpoint. Args: path: As the user named it. folder: That of the tree."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._path = path
        self._folder = folder
        self._note = load(folder / TREE)
        self._database = self._note.get("use_ocdbt", True) is not False
        self._declared = 0
        if self._note.get("use_zarr3"):
            self._driver = "zarr3"
        else:
            self._driver = "zarr"
        if self._database:
            _check_manifest(folder / "manifest.ocdbt")

    def contents(self, others: dict[str, str]) -> Contents:
        contents = Contents("orbax", (str(self._path),), others=others)
        for key, value in (self._note.get("custom_metadata") or {}).items():
            contents.metadata[key] = tagged(value)
        placed = list(self._leaves())
        stores = iter(
            self._open([leaf for leaf in placed if leaf.kind in _ARRAYS or leaf.kind == "scalar"])
        )
        if any(leaf.kind == "string" for leaf in placed):
            texts = load(self._folder / STRINGS)
        else:
            texts = {}
        values: list[tuple[_OrbaxLeaf, Any]] = []
        for leaf in placed:
            name = ".".join(leaf.keys)
            if leaf.kind in _ARRAYS:
                values.append((leaf, _Array(next(stores), name)))
            elif leaf.kind == "scalar":
                values.append((leaf, self._scalar(next(stores), name)))
            elif leaf.kind == "string":
                text: Any = texts
                for key in pointer_to(name):
                    text = text.get(key) if isinstance(text, dict) else None
                if not isinstance(text, str):
                    raise FileFormatError(f"{self._folder} lacks the string {name!r} in {STRINGS}.")
                values.append((leaf, text))
            elif leaf.kind in EMPTY:
                value = EMPTY[leaf.kind]
                values.append((leaf, type(value)() if value is not None else None))
            else:
                contents.others[name] = f"a value of type {leaf.kind}"
        root = self._nested(values)
        tensors = dict(
            zip(names(root, _Array), (array for _, array in leaves(root, _Array)), strict=True)
        )
        for name, array in tensors.items():
            contents.tensors[name] = self._stored(array.store, array.name)
        labels = iter(tensors)
        tree = relabel(root, lambda _: Ref(next(labels)), _Array)
        if not isinstance(tree, dict) or any(not isinstance(node, Ref) for node in tree.values()):
            contents.tree = NOTHING if tree is None else tree
        return contents

    def _leaves(self) -> Iterator[_OrbaxLeaf]:
        entries = self._note.get("tree_metadata")
        if not isinstance(entries, dict):
            raise FileFormatError(f"{self._folder / TREE} has no tree.")
        for entry in entries.values():
            try:
                keys = tuple(str(part["key"]) for part in entry["key_metadata"])
                forms = tuple(int(part["key_type"]) for part in entry["key_metadata"])
                kind = str(entry["value_metadata"]["value_type"])
            except (KeyError, TypeError, ValueError) as error:
                raise FileFormatError(
                    f"{self._folder / TREE} has an entry that is no place in a tree."
                ) from error
            if len(keys) > DEEPEST:
                raise UnsafeFileError(f"{self._folder / TREE} has a tree that is {len(keys)} deep.")
            name = ".".join(keys)
            inside = name.removesuffix("/").split("/")
            is_file = not self._database and kind != "string"
            if is_file and not all(map(is_entry, inside)):
                raise UnsafeFileError(
                    f"{self._folder} asks for the array {name!r}, which is no name in its folder."
                )
            yield _OrbaxLeaf(keys, forms, kind)

    def _open(self, wanted: list[_OrbaxLeaf]) -> Iterator[Any]:
        import tensorstore

        context = tensorstore.Context(caches(_NODES_BYTES))
        for start in range(0, len(wanted), BATCH):
            batch = wanted[start : start + BATCH]
            opened = [
                tensorstore.open(
                    {
                        "driver": self._driver,
                        "kvstore": store_at(self._folder, ".".join(leaf.keys), self._database),
                    },
                    open=True,
                    read=True,
                    context=context,
                )
                for leaf in batch
            ]
            for leaf, array in zip(batch, opened, strict=True):
                try:
                    yield array.result()
                except Exception as error:
                    name = ".".join(leaf.keys)
                    raise FileFormatError(
                        f"{self._folder}: {name!r} cannot be opened: {str(error)[:300]}."
                    ) from error

    def _stored(self, store: Any, name: str) -> Stored:
        where = f"{self._folder}: {name!r}"
        dtype = of_numpy(store.dtype.numpy_dtype)
        if dtype is None:
            raise FileFormatError(f"{where} has elements of {store.dtype.name}.")
        itemsize = find(dtype).itemsize
        shape = checked(store.shape, itemsize, where)
        chunks = store.chunk_layout.read_chunk.shape or (1,) * len(shape)
        if prod(chunks) * itemsize > _LARGEST_CHUNK:
            raise UnsafeFileError(
                f"{where} has chunks of {prod(chunks) * itemsize:,} bytes, more than are read."
            )
        # All chunks may be missing, and are filled in then.
        self._declared += max(prod(shape), prod(chunks) if prod(shape) else 0) * itemsize
        if is_bomb(self._declared, 0) and is_bomb(self._declared, self._held, ZSTD_RATIO):
            raise UnsafeFileError(
                f"{where} is out of all proportion: up to it, {self._declared:,} bytes are "
                f"declared in {self._held:,}."
            )
        # A box has whole chunks, so that none is decompressed twice.
        if shape:
            band = min(chunks[0], shape[0]) * prod(shape[1:]) * itemsize
        else:
            band = itemsize
        held = ArrayChunks(store, itemsize, where, None if self._database else self._folder / name)

        def box(slices: tuple[slice, ...]) -> Array:
            held.look_at(slices)
            try:
                values: Array = store[slices].read().result()
            except Exception as error:
                raise FileFormatError(
                    f"{where} cannot be read: {str(error)[:300]}.", "get it again"
                ) from error
            return values

        def read() -> Iterator[Array]:
            return map(box, slabs(shape, itemsize, chunks, max(BOX_BYTES, band)))

        return Decoded(dtype, shape, read, (str(self._folder), name), BoxReader(chunks, box))

    @cached_property
    def _held(self) -> int:
        """How many bytes the checkpoint has."""
        return size_of(self._folder)

    def _scalar(self, store: Any, name: str) -> Any:
        """A number of the tree."""
        stored = self._stored(store, name)
        if stored.size != 1:
            raise FileFormatError(
                f"{self._folder}: {name!r} is no number, but an array of {stored.size:,}."
            )
        return stored.load().item()

    def _nested(self, values: list[tuple[_OrbaxLeaf, Any]]) -> Any:
        """The tree, from the keys of the values."""
        root = _UnfinishedNode()
        for leaf, value in values:
            node = root
            for key, form in zip(leaf.keys, leaf.forms, strict=True):
                if node.form not in (0, form) or node.full:
                    raise FileFormatError(
                        f"{self._folder / TREE} has both a value and keys at "
                        f"{'.'.join(leaf.keys)!r}."
                    )
                node.form = form
                node = node.children.setdefault(key, _UnfinishedNode())
            if node.children or node.full:
                raise FileFormatError(
                    f"{self._folder / TREE} has two values at {'.'.join(leaf.keys)!r}."
                )
            node.full, node.value = True, value
        return self._plain(root) if values else {}

    def _plain(self, node: _UnfinishedNode) -> Any:
        if node.full:
            return node.value
        if node.form != SEQUENCE:
            return {key: self._plain(child) for key, child in node.children.items()}
        items = {int(key) if key.isdecimal() else -1: child for key, child in node.children.items()}
        if sorted(items) != list(range(len(node.children))):
            raise FileFormatError(
                f"{self._folder / TREE} has a list with items {named(node.children)}."
            )
        return [self._plain(items[index]) for index in range(len(items))]


class _UnfinishedNode:
    """A container, or a value, while the tree is built."""

    __slots__ = ("children", "form", "full", "value")

    def __init__(self) -> None:
        self.children: dict[str, _UnfinishedNode] = {}
        self.form = 0
        self.full = False
        self.value: Any = None


class _Array(NamedTuple):
    """An opened array of the tree."""

    store: Any
    name: str


def item_of(path: Path) -> tuple[Path, dict[str, str]]:
    """The folder of the tree, which may be one of several items; and the other items."""
    if (path / TREE).is_file():
        return path, {}
    items = sorted(entry for entry in path.iterdir() if entry.is_dir())
    trees = [entry for entry in items if (entry / TREE).is_file()]
    if len(trees) != 1:
        if trees:
            hint = f"the path of one, such as {trees[0]}"
        else:
            hint = "the path of a step, such as PATH/1000"
        raise FileFormatError(
            f"{path} has {len(trees)} trees of arrays in it: {named(t.name for t in trees)}.", hint
        )
    return trees[0], {
        entry.name: NotTensor("an item that is no tree of arrays")
        for entry in items
        if entry != trees[0]
    }


def _check_manifest(path: Path) -> None:
    """Check a database's length and CRC-32C: tensorstore 0.1.78 ends the process if it is damaged.

    The layout: https://google.github.io/tensorstore/kvstore/ocdbt/index.html#storage-format.
    """
    if not path.is_file():
        raise FileFormatError(f"There is no {path}; the checkpoint was not finished.")
    if path.stat().st_size > LARGEST_JSON:
        raise UnsafeFileError(f"{path} is larger than {LARGEST_JSON:,} bytes.")
    raw = path.read_bytes()
    if len(raw) < 16 or raw[:4] != _MANIFEST or int.from_bytes(raw[4:12], "little") != len(raw):
        raise FileFormatError(f"{path} is no manifest of a database, or is cut off.")
    if crc32c(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        raise FileFormatError(
            f"{path} is corrupt: it has another CRC-32C than it says.", "get the checkpoint again"
        )
