"""Weights of Keras, with h5py: ``.weights.h5``, those in ``.keras``, and Keras 2's ``.h5``."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false,
# reportArgumentType=false h5py has no types.

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from ... import hints
from ...core.dtypes import ORDINARY
from ...errors import FileFormatError, FormatLimitError
from ...hints import Hint
from ..base.contents import NotTensor
from ..base.format import Format
from ..base.limits import FileHint, Renamed, Words, other_names
from ..base.nesting import keys_of
from ..base.tree_strings import unpacked
from ..base.wording import named
from ..encodings.paths import NAMES
from . import is_fragile
from .hdf5 import MAGIC, MOST_AXES, Location, is_path, read_hdf5, write_hdf5

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ..base.contents import Contents
    from ..base.pump import Pump

__all__ = ["FORMAT"]

_WEIGHTS = "model.weights.h5"
_TEXTS = ("config.json", "metadata.json")
_MOST_TEXT = 1 << 26
_ROOTS = {"_layer_checkpoint_dependencies", "layers", "optimizer", "vars"}
_VARIABLE = re.compile(r"(?:^|/)vars/[^/]+$")
_CREATED: tuple[str, ...] = (
    *("embeddings", "kernel", "depthwise_kernel", "pointwise_kernel", "recurrent_kernel", "bias"),
    *("gamma", "beta", "moving_mean", "moving_variance"),
)
"""The names of variables in Keras's layers, in the order that a layer makes (and numbers) them."""


class Keras(Format):
    """Files of Keras: https://keras.io/guides/serialization_and_saving/.

    Their configurations become text.

    The layout of the HDF5 files is that of ``H5IOStore`` in
    https://github.com/keras-team/keras/blob/master/keras/src/saving/saving_lib.py and, for Keras 2,
    of https://github.com/keras-team/keras/blob/master/keras/src/legacy/saving/legacy_h5_format.py.
    Variables with Keras's names, such as ``dense.kernel``, are written to the path where Keras
    looks for them, ``layers/dense/vars/0``. An attribute has the names.
    """

    name = "keras"
    title = "Keras"
    suffixes = (".weights.h5", ".keras")
    dtypes = ORDINARY - {"complex64", "complex128"} | {"bfloat16"}
    module = "h5py"
    holds_tree = True
    holds_metadata = True
    reserved = frozenset({NAMES})
    ties = "own"
    most_axes = MOST_AXES
    rank = 60

    def recognises(self, path: Path, head: bytes) -> bool:
        if head.startswith(b"PK\3\4"):
            return is_fragile(path.name, head)
        return head.startswith(MAGIC) and (path.name.endswith(".weights.h5") or _is_weights(path))

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        self.ensure_loaded()
        with path.open("rb") as file:
            is_archive = file.read(4) == b"PK\3\4"
        if is_archive:
            return _read_archive(self.name, path)
        contents = read_hdf5(self.name, Location(str(path), 0, path.stat().st_size))
        _put_in_order(contents)
        return unpacked(contents)

    def refuse(self, contents: Contents) -> None:
        paths = _paths(contents.tensors)
        foreign = [name for name in contents.tensors if name not in paths]
        if foreign:
            any_name = Hint(hints.keyword("to", "hdf5"), ", which holds any name")
            few = len(foreign) <= _FEW and "dense" not in str(paths)
            raise FormatLimitError(
                f"Keras would not find {named(foreign)}: its weights are named like "
                "layers/dense/vars/0, or as its "
                "layers name them, like dense.kernel.",
                FileHint(
                    Words(any_name, any_name), *([self._numbered(contents, foreign)] if few else [])
                ),
            )
        taken = set(paths.values())
        above = {path[:at] for path in taken for at, letter in enumerate(path) if letter == "/"}
        clash = [name for name, path in paths.items() if path in above]
        clash += list(paths) if len(taken) < len(paths) else []
        hint = other_names(contents, clash[:1], _own_layer)
        self.refuse_any(clash, "has tensors under the paths of these, and no place for both", hint)

    @staticmethod
    def _numbered(contents: Contents, names: list[str]) -> Renamed:
        """The way that makes tensors the variables of one layer."""
        better = partial(_variable, tuple(names))
        return Renamed(keys_of(contents, names), frozenset(contents.tensors), better, in_tree=False)

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        if path.name.endswith(".keras"):
            raise FormatLimitError(
                "A .keras file holds the model's configuration too, which tensors do not have.",
                f"{path.stem}.weights.h5, and model.load_weights",
            )
        self.ensure_loaded()
        write_hdf5(contents, _paths(contents.tensors), path, pump, opaque=frozenset({"bfloat16"}))


_FEW = 4
"""Up to this many names are written out in a hint."""


def _variable(names: tuple[str, ...], name: str) -> str:
    return f"layers/dense/vars/{names.index(name)}"


def _own_layer(name: str) -> str:
    """A name of a variable in a layer that no other tensor is in."""
    layer = re.sub(r"[./]", "_", name)
    return f"layers/{layer}/vars/0"


def _paths(names: Iterable[str]) -> dict[str, str]:
    """The paths where Keras looks for variables of these names, without those it would not find."""
    paths: dict[str, str] = {}
    layers: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        *above, last = re.split("[./]", name)
        if is_path(name) and _VARIABLE.search(name):
            paths[name] = name
        elif last in _CREATED and is_path("/".join([*above, last])):
            layer = "/".join(
                [*(["layers"] if above and above[0] != "layers" else []), *above, "vars"]
            )
            layers.setdefault(layer, []).append((_CREATED.index(last), name))
            paths[name] = ""
    for layer, variables in layers.items():
        order = sorted({place for place, _ in variables})
        paths |= {name: f"{layer}/{order.index(place)}" for place, name in variables}
    return paths


def _is_weights(path: Path) -> bool:
    try:
        import h5py

        with h5py.File(path, "r") as file:
            roots = {
                key
                for key in file
                if file.id.links.get_info(key.encode()).type == h5py.h5l.TYPE_HARD
            }
            described = {"keras_version", "layer_names"} & set(file.attrs)
            return bool(described) or (bool(roots) and roots <= _ROOTS)
    except Exception:  # noqa: BLE001 - whatever it is, it is not Keras's; reading it as HDF5 says what is wrong
        return False


def _read_archive(form: str, path: Path) -> Contents:
    from ..encodings.zip_archive import Archive

    archive = Archive(path)
    if _WEIGHTS not in archive:
        if "model.weights.json" in archive:
            what = "has its weights in several files"
        else:
            what = "has no weights"
        raise FileFormatError(
            f"{path} {what}: there is no {_WEIGHTS} in it.",
            "model.save_weights('model.weights.h5')",
        )
    record = archive.record(archive[_WEIGHTS])
    contents = read_hdf5(form, Location(str(path), record.offset, record.nbytes, record))
    for member in archive:
        if member in _TEXTS:
            raw = archive.read_bytes(archive[member], _MOST_TEXT)
            try:
                contents.metadata[member] = raw.decode()
            except UnicodeDecodeError as error:
                raise FileFormatError(f"{path}: {member} is not UTF-8 text.") from error
        elif member != _WEIGHTS and not member.endswith("/"):
            contents.others[member] = NotTensor("a file in the archive that is not weights")
    return contents


def _put_in_order(contents: Contents) -> None:
    """Sort tensors in the order in which Keras 2 lists layers and weights."""
    listed = []
    for root in ("", "model_weights"):
        for layer in _names(contents, f"{root}@layer_names" if root else "layer_names"):
            place = f"{root}/{layer}" if root else layer
            listed += [f"{place}/{weight}" for weight in _names(contents, f"{place}@weight_names")]
    first = {name: contents.tensors[name] for name in listed if name in contents.tensors}
    contents.tensors = {**first, **contents.tensors}


def _names(contents: Contents, key: str) -> list[str]:
    try:
        names: Any = json.loads(contents.metadata.get(key, "[]"))
    except (ValueError, RecursionError):
        return []
    if isinstance(names, list):
        return [name for name in names if isinstance(name, str)]
    return []


FORMAT = Keras()
