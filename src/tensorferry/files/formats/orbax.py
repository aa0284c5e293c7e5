"""Orbax checkpoints: folders of JAX's trees, as ``orbax.checkpoint.PyTreeCheckpointer`` has them.

The layout: https://orbax.readthedocs.io/en/latest/guides/checkpoint/checkpoint_format.html. Arrays are in
Zarr inside TensorStore's OCDBT database, or in Zarr folders; tensorstore, by which Orbax itself reads and
writes them, does so here a box at a time. Orbax and JAX are not imported.
"""

from __future__ import annotations

import json
from functools import cache, partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.dtypes import find
from ...errors import FileFormatError, FormatLimitError, UnsafeFileError
from ...host.numpy_dtypes import numpy_dtype, of_numpy
from ..contents import Contents, Ref
from ..encodings.crc32c import crc32c
from ..encodings.paths import is_text
from ..encodings.shapes import checked
from ..encodings.slabs import filled, slabs
from ..format import Format, named, owned
from ..nesting import DEEPEST, leaves, names, relabel
from ..stored import Decoded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..pump import Pump
    from ..stored import Stored

Array = np.ndarray[Any, Any]

_TREE = "_METADATA"
_STEP = "_CHECKPOINT_METADATA"
_STRINGS = "_strings.json"
_HANDLER = "orbax.checkpoint._src.handlers.pytree_checkpoint_handler.PyTreeCheckpointHandler"
_SEQUENCE, _DICT = 1, 2
_ARRAYS = frozenset({"np.ndarray", "jax.Array"})
_EMPTY: dict[str, Any] = {"None": None, "Dict": {}, "List": [], "Tuple": ()}
_JSON = '{"orbax.json":'
_LARGEST_JSON = 256 << 20
_MANIFEST = b"\x0c\xdb\x3a\x2a"
_LARGEST_CHUNK = 8 << 30
_BATCH = 512
_BOX_BYTES = 2 << 20  # tensorstore holds some ten boxes at a time, raw and compressed
_COMPRESSOR = {"id": "zstd", "level": 1}


class Orbax(Format):
    """Orbax checkpoints of a tree of arrays, numbers and strings.

    A tree of dicts, lists, tensors, numbers and strings is written as it is; of any other the tensors are written
    by name, and the rest stands in the checkpoint's custom metadata.
    """

    name = "orbax"
    title = "Orbax"
    suffixes = (".orbax",)
    dtypes = frozenset(
        {"bool", "int2", "int4", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
        | {"float4_e2m1fn", "float8_e3m4", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"}
        | {"float8_e5m2fnuz", "float8_e8m0fnu", "bfloat16", "float16", "float32", "float64", "complex64", "complex128"}
    )
    module = "tensorstore"
    is_folder = True
    holds_tree = True
    holds_metadata = True

    def recognises(self, path: Path, head: bytes) -> bool:
        return not head and ((path / _TREE).is_file() or (path / _STEP).is_file())

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        from ..encodings.tree_strings import unpacked

        self.ensure_loaded()
        folder, others = _item(path)
        return unpacked(_Checkpoint(path, folder).contents(others))

    def own_entries(self, folder: Path) -> list[str]:
        from ..encodings.orbax_files import is_own

        return owned(folder, partial(is_own, folder))

    def refuse(self, contents: Contents) -> None:
        super().refuse(contents)
        self.ensure_loaded()
        unknown = [name for name, stored in contents.tensors.items() if not _is_known(stored.dtype)]
        if unknown:
            kinds = ", ".join(sorted({contents.tensors[name].dtype for name in unknown}))
            raise FormatLimitError(
                f"The tensorstore that is installed has no {kinds}: {named(unknown)}.",
                "pip install --upgrade tensorstore, or dtype= with one that it has",
            )
        wrong = [name for name in contents.tensors if not name or "\0" in name or not is_text(name)]
        if wrong:
            raise FormatLimitError(f"Orbax needs names for its arrays: {named(map(repr, wrong))}.", "rename=[…]")

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        self.ensure_loaded()
        ties = contents.ties
        nodes, strings = _outline(contents)
        path.mkdir()
        writer = _Writer(path)
        texts, entries = {}, {}
        for keys, node in nodes:
            plain = tuple(key for key, _ in keys)
            kind = _kind(node)
            if isinstance(node, Ref):
                if node.name in ties:
                    continue
                writer.write(".".join(plain), contents.tensors[node.name], pump)
            elif kind == "string":
                texts[".".join(plain)] = node
            elif kind == "scalar":
                writer.put(".".join(plain), np.asarray(node))
            entries[str(plain)] = {
                "key_metadata": [{"key": key, "key_type": form} for key, form in keys],
                "value_metadata": {"value_type": kind, "skip_deserialize": kind in _EMPTY},
            }
        writer.finish()
        note = {
            "tree_metadata": entries,
            "use_ocdbt": True,
            "use_zarr3": False,
            "store_array_data_equal_to_fill_value": True,
            "custom_metadata": {key: _untagged(text) for key, text in strings.items()} or None,
        }
        if texts:
            _dump(path / _STRINGS, texts)
        _dump(path / _TREE, note)
        _dump(
            path / _STEP, {"item_handlers": _HANDLER, "metrics": {}, "performance_metrics": {}, "custom_metadata": {}}
        )


class _Leaf(NamedTuple):
    """A place in a checkpoint's tree."""

    keys: tuple[str, ...]
    forms: tuple[int, ...]
    kind: str


class _Checkpoint:
    """Reads a checkpoint. Args: path: As the user named it. folder: That of the tree."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._path = path
        self._folder = folder
        self._note = _load(folder / _TREE)
        self._database = self._note.get("use_ocdbt", True) is not False
        self._driver = "zarr3" if self._note.get("use_zarr3") else "zarr"
        if self._database:
            _check_manifest(folder / "manifest.ocdbt")

    def contents(self, others: dict[str, str]) -> Contents:
        found = Contents("orbax", (str(self._path),), others=others)
        for key, value in (self._note.get("custom_metadata") or {}).items():
            found.metadata[key] = _tagged(value)
        placed = list(self._leaves())
        stores = iter(self._open([leaf for leaf in placed if leaf.kind in _ARRAYS or leaf.kind == "scalar"]))
        texts = _load(self._folder / _STRINGS) if any(leaf.kind == "string" for leaf in placed) else {}
        values: list[tuple[_Leaf, Any]] = []
        for leaf in placed:
            name = ".".join(leaf.keys)
            if leaf.kind in _ARRAYS:
                values.append((leaf, _Array(next(stores), name)))
            elif leaf.kind == "scalar":
                values.append((leaf, next(stores).read().result().item()))
            elif leaf.kind == "string":
                if not isinstance(texts.get(name), str):
                    raise FileFormatError(f"{self._folder} lacks the string {name!r} in {_STRINGS}.")
                values.append((leaf, texts[name]))
            elif leaf.kind in _EMPTY:
                value = _EMPTY[leaf.kind]
                values.append((leaf, type(value)() if value is not None else None))
            else:
                found.others[name] = f"a value of type {leaf.kind}"
        root = self._nested(values)
        tensors = dict(zip(names(root, _Array), (array for _, array in leaves(root, _Array)), strict=True))
        for name, array in tensors.items():
            found.tensors[name] = self._stored(array.store, array.name)
        labels = iter(tensors)
        tree = relabel(root, lambda _: Ref(next(labels)), _Array)
        if not isinstance(tree, dict) or any(not isinstance(node, Ref) for node in tree.values()):
            found.tree = tree
        return found

    def _leaves(self) -> Iterator[_Leaf]:
        entries = self._note.get("tree_metadata")
        if not isinstance(entries, dict):
            raise FileFormatError(f"{self._folder / _TREE} has no tree.")
        for entry in entries.values():
            try:
                keys = tuple(str(part["key"]) for part in entry["key_metadata"])
                forms = tuple(int(part["key_type"]) for part in entry["key_metadata"])
                kind = str(entry["value_metadata"]["value_type"])
            except (KeyError, TypeError, ValueError) as error:
                raise FileFormatError(f"{self._folder / _TREE} has an entry that is no place in a tree.") from error
            if len(keys) > DEEPEST:
                raise UnsafeFileError(f"{self._folder / _TREE} has a tree that is {len(keys)} deep.")
            name = ".".join(keys)
            if not self._database and ("/" in name or "\0" in name or name in ("", ".", "..")):
                raise UnsafeFileError(f"{self._folder} asks for the array {name!r}, which is no name in its folder.")
            yield _Leaf(keys, forms, kind)

    def _open(self, wanted: list[_Leaf]) -> Iterator[Any]:
        import tensorstore

        context = tensorstore.Context({"cache_pool": {"total_bytes_limit": 0}})
        for start in range(0, len(wanted), _BATCH):
            batch = wanted[start : start + _BATCH]
            opened = [
                tensorstore.open(
                    {"driver": self._driver, "kvstore": _place(self._folder, ".".join(leaf.keys), self._database)},
                    open=True,
                    read=True,
                    context=context,
                )
                for leaf in batch
            ]
            for leaf, each in zip(batch, opened, strict=True):
                try:
                    yield each.result()
                except Exception as error:
                    name = ".".join(leaf.keys)
                    raise FileFormatError(f"{self._folder}: {name!r} cannot be opened: {str(error)[:300]}.") from error

    def _stored(self, store: Any, name: str) -> Stored:
        where = f"{self._folder}: {name!r}"
        dtype = of_numpy(store.dtype.numpy_dtype)
        if dtype is None:
            raise FileFormatError(f"{where} has elements of {store.dtype.name}.")
        itemsize = find(dtype).itemsize
        shape = checked(store.shape, itemsize, where)
        chunks = store.chunk_layout.read_chunk.shape or (1,) * len(shape)
        if prod(chunks) * itemsize > _LARGEST_CHUNK:
            raise UnsafeFileError(f"{where} has chunks of {prod(chunks) * itemsize:,} bytes, more than are read.")
        # A box holds whole chunks, so that none of them is decompressed twice.
        band = min(chunks[0], shape[0]) * prod(shape[1:]) * itemsize if shape else itemsize

        def read() -> Iterator[Array]:
            for box in slabs(shape, itemsize, chunks, max(_BOX_BYTES, band)):
                try:
                    yield store[box].read().result()
                except Exception as error:
                    raise FileFormatError(f"{where} cannot be read: {str(error)[:300]}.", "get it anew") from error

        return Decoded(dtype, shape, read, (str(self._folder), name))

    def _nested(self, values: list[tuple[_Leaf, Any]]) -> Any:
        """The tree that the values' keys make."""
        root = _Node()
        for leaf, value in values:
            node = root
            for key, form in zip(leaf.keys, leaf.forms, strict=True):
                if node.form not in (0, form) or node.full:
                    raise FileFormatError(
                        f"{self._folder / _TREE} has both a value and keys at {'.'.join(leaf.keys)!r}."
                    )
                node.form = form
                node = node.children.setdefault(key, _Node())
            if node.children or node.full:
                raise FileFormatError(f"{self._folder / _TREE} has two values at {'.'.join(leaf.keys)!r}.")
            node.full, node.value = True, value
        return self._plain(root) if values else {}

    def _plain(self, node: _Node) -> Any:
        if node.full:
            return node.value
        if node.form != _SEQUENCE:
            return {key: self._plain(child) for key, child in node.children.items()}
        items = {int(key) if key.isdecimal() else -1: child for key, child in node.children.items()}
        if sorted(items) != list(range(len(node.children))):
            raise FileFormatError(f"{self._folder / _TREE} has a list with items {named(node.children)}.")
        return [self._plain(items[index]) for index in range(len(items))]


class _Node:
    """A container, or a value, while the tree is built."""

    __slots__ = ("children", "form", "full", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.form = 0
        self.full = False
        self.value: Any = None


class _Array(NamedTuple):
    """An array of the tree, opened."""

    store: Any
    name: str


class _Writer:
    """Writes arrays into a database, in transactions of a bounded size. Args: path: The folder."""

    def __init__(self, path: Path) -> None:
        import tensorstore

        self._path = path
        self._library = tensorstore
        # What is written is flushed to the disk by the caller, once.
        settings = {"cache_pool": {"total_bytes_limit": 0}, "file_io_sync": False}
        self._context = tensorstore.Context(settings)
        self._transaction: Any = None
        self._bytes = self._count = 0

    def write(self, name: str, stored: Stored, pump: Pump) -> None:
        row = find(stored.dtype)
        boxes = list(slabs(stored.shape, row.itemsize, nbytes=_BOX_BYTES))
        chunk = [each.stop - each.start for each in boxes[0]] if boxes else [max(n, 1) for n in stored.shape]
        store = self._create(name, stored.dtype, stored.shape, chunk)
        sizes = [prod(each.stop - each.start for each in box) for box in boxes]
        pieces = filled(pump.blocks(stored), sizes, numpy_dtype(row.name))
        for box, piece in zip(boxes, pieces, strict=True):
            part = store[box]
            part.write(piece.reshape(part.shape)).result()

    def put(self, name: str, value: Array) -> None:
        self._create(name, str(value.dtype), (), []).write(value).result()

    def finish(self) -> None:
        self._commit()
        # A database without a key has no manifest yet: a checkpoint has one.
        if not (self._path / "manifest.ocdbt").exists():
            database = self._library.KvStore.open(_place(self._path, "", True), context=self._context).result()
            database.write("_", b"").result()
            database.delete_range(self._library.KvStore.KeyRange()).result()

    def _create(self, name: str, dtype: str, shape: tuple[int, ...], chunk: list[int]) -> Any:
        return self._library.open(
            {
                "driver": "zarr",
                "kvstore": _place(self._path, name, True),
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
        """A transaction for an array, which is in memory until then; ``None`` for one that is written by boxes."""
        if self._bytes + nbytes > _BOX_BYTES or self._count >= _BATCH:
            self._commit()
        if nbytes > _BOX_BYTES:
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
def _is_known(dtype: str) -> bool:
    import tensorstore

    try:
        tensorstore.dtype(dtype)
    except ValueError:
        return False
    return True


def _item(path: Path) -> tuple[Path, dict[str, str]]:
    """The folder of the tree, which may be one item of several, and the others."""
    if (path / _TREE).is_file():
        return path, {}
    items = sorted(each for each in path.iterdir() if each.is_dir())
    trees = [each for each in items if (each / _TREE).is_file()]
    if len(trees) != 1:
        hint = f"the path of one, such as {trees[0]}" if trees else "the path of a step, such as PATH/1000"
        raise FileFormatError(f"{path} has {len(trees)} trees of arrays in it: {named(t.name for t in trees)}.", hint)
    return trees[0], {each.name: "an item that is no tree of arrays" for each in items if each != trees[0]}


def _check_manifest(path: Path) -> None:
    """Compare a database's length and CRC-32C: tensorstore 0.1.78 ends the process over a damaged one.

    The layout: https://google.github.io/tensorstore/kvstore/ocdbt/index.html#storage-format.
    """
    if not path.is_file():
        raise FileFormatError(f"There is no {path}; the checkpoint was not finished.")
    if path.stat().st_size > _LARGEST_JSON:
        raise UnsafeFileError(f"{path} is larger than {_LARGEST_JSON:,} bytes.")
    raw = path.read_bytes()
    if len(raw) < 16 or raw[:4] != _MANIFEST or int.from_bytes(raw[4:12], "little") != len(raw):
        raise FileFormatError(f"{path} is no manifest of a database, or is cut off.")
    if crc32c(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        raise FileFormatError(f"{path} is corrupt: it has another CRC-32C than it says.", "get the checkpoint anew")


def _place(folder: Path, name: str, database: bool) -> dict[str, Any]:
    inner = f"{name}/" if name else ""
    if not database:
        return {"driver": "file", "path": f"{folder.absolute()}/{inner}"}
    return {"driver": "ocdbt", "base": {"driver": "file", "path": f"{folder.absolute()}/"}, "path": inner}


def _load(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LARGEST_JSON:
            raise UnsafeFileError(f"{path} is larger than {_LARGEST_JSON:,} bytes.")
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise FileFormatError(f"There is no {path}.") from None
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise FileFormatError(f"{path} holds no JSON object.")
    return found


def _dump(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), "utf-8")


def _outline(contents: Contents) -> tuple[list[tuple[tuple[tuple[str, int], ...], Any]], dict[str, str]]:
    """Each value to write with its keys and their kinds; and the strings beside them."""
    from ..encodings.tree_strings import packed

    strings = packed(contents)
    tree = contents.tree
    if tree is not None and not contents.ties:
        nodes = list(_walk(tree, ()))
        joined = [".".join(key for key, _ in keys) for keys, _ in nodes]
        refs = [node.name for _, node in nodes if isinstance(node, Ref)]
        if None not in (_kind(node) for _, node in nodes) and len(set(joined)) == len(nodes) and all(joined):
            same = refs == list(contents.tensors) == names(tree)
            if same and not all(isinstance(node, Ref) and len(keys) == 1 for keys, node in nodes):
                return nodes, dict(contents.metadata)
    return [(((name, _DICT),), Ref(name)) for name in contents.tensors], strings


def _walk(node: Any, keys: tuple[tuple[str, int], ...]) -> Iterator[tuple[tuple[tuple[str, int], ...], Any]]:
    if type(node) is dict and node and all(type(key) is str and key for key in node):
        for key, child in node.items():
            yield from _walk(child, (*keys, (key, _DICT)))
    elif type(node) is list and node:
        for index, child in enumerate(node):
            yield from _walk(child, (*keys, (str(index), _SEQUENCE)))
    else:
        yield keys, node


def _kind(node: Any) -> str | None:
    """What Orbax calls a value; ``None`` if it has no place for it."""
    if isinstance(node, Ref):
        return "np.ndarray" if node.kind == "tensor" and not node.requires_grad else None
    if node is None:
        return "None"
    if type(node) in (dict, list):
        return None if node else type(node).__name__.capitalize()
    if type(node) is str:
        return "string"
    if type(node) is int:
        return "scalar" if -(1 << 63) <= node < 1 << 63 else None
    return "scalar" if type(node) in (float, bool) else None


def _tagged(value: Any) -> str:
    """A value of the custom metadata as a string: itself, unless it would be taken for another value, else JSON."""
    if isinstance(value, str) and _untagged(value) is value:
        return value
    return f"{_JSON}{json.dumps(value)}}}"


def _untagged(text: str) -> Any:
    """The value that `_tagged` made this text from."""
    if not text.startswith(_JSON):
        return text
    try:
        value = json.loads(text)["orbax.json"]
    except (ValueError, RecursionError):
        return text
    return value if _tagged(value) == text else text


FORMAT = Orbax()
