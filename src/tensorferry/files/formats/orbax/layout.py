"""The layout of an Orbax checkpoint: its files, the places of its arrays, its strings.

https://orbax.readthedocs.io/en/latest/guides/checkpoint/checkpoint_format.html
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ....errors import FileFormatError, UnsafeFileError

if TYPE_CHECKING:
    from pathlib import Path

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
]
__all__ += ["caches", "dump", "is_own", "load", "store_at", "tagged", "untagged"]

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
    """What tensorstore keeps: no values, but nodes of a database's tree of keys, since each access begins at its root.

    Args:
        nodes: The most bytes of nodes. A larger node is read again for each access.
    """
    return {
        "cache_pool": {"total_bytes_limit": 0},
        "cache_pool#nodes": {"total_bytes_limit": nodes},
    }


def store_at(folder: Path, name: str, database: bool) -> dict[str, Any]:
    """Tensorstore's description of the place for a name, for a context with `caches`."""
    inner = f"{name}/" if name else ""
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
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise FileFormatError(f"There is no {path}.") from None
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise FileFormatError(f"{path} holds no JSON object.")
    return found


def dump(path: Path, value: Any) -> None:
    """Write a file of JSON."""
    path.write_text(json.dumps(value), "utf-8")


def tagged(value: Any) -> str:
    """A value of the custom metadata as text: a string as it is, unless it looks like JSON; other values as JSON."""
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
