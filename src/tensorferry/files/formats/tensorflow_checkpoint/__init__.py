"""TensorFlow checkpoints, as ``tf.train.Checkpoint`` and ``tf.compat.v1.train.Saver`` write them.

A sorted table of protocol messages, ``NAME.index``, has the position of each tensor in
``NAME.data-…``:
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/protobuf/tensor_bundle.proto.
They are read and written here without TensorFlow, which takes seconds to import and has each tensor
in memory.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from ....errors import FileFormatError
from ...base.file_hints import FileHint, Metadataless, Renamed
from ...base.format import Format, owned
from ...base.nesting import keys_of
from ...base.raw import write_fully
from ...base.tree_strings import packed, unpacked
from ...encodings.crc32c import crc32c
from ...encodings.protobuf import bytes_field, number_field
from .bundle import INDEX, STATE, Bundle, index_of
from .entries import CODES, STRING, entry_of, from_metadata, string_of
from .sorted_table import is_table, table

if TYPE_CHECKING:
    from pathlib import Path

    from ...base.contents import Contents
    from ...base.pump import Pump

_PREFIX = "variables"
_ALIGNMENT = 64


def _better_name(name: str) -> str:
    return name.lstrip("\0") or "tensor"


class TensorflowCheckpoint(Format):
    """TensorFlow checkpoints (version 2, since 2016). The output is a folder with one checkpoint.

    From the folder of a SavedModel the variables are read, not the programs. Strings without axes
    become metadata, also the object graph that ``tf.train.Checkpoint`` needs. Those that are not
    UTF-8 are in base64, after ``tensorflow.base64:``.
    """

    name = "tensorflow"
    title = "TensorFlow checkpoint"
    suffixes = (".tfckpt",)
    other_suffixes = (".ckpt",)
    dtypes = frozenset(CODES)
    is_folder = True
    holds_tree = True
    holds_metadata = True
    unicode_only = True
    rank = 70

    def recognises(self, path: Path, head: bytes) -> bool:
        if head and not path.name.endswith(INDEX):
            return False
        index = index_of(path)
        return index is not None and is_table(index)

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        index = index_of(path)
        if index is None:
            raise FileFormatError(
                f"{path} has no TensorFlow checkpoint, or several.",
                f"the path of one, such as {path}/ckpt-1{INDEX}",
            )
        return unpacked(Bundle(index).contents())

    def refuse(self, contents: Contents) -> None:
        wrong = [
            name
            for name in (*contents.tensors, *contents.metadata)
            if not name or name.startswith("\0")
        ]
        wrong += [name for name in contents.metadata if name in contents.tensors]
        what = "needs a name of its own for each tensor and each string"
        ours = keys_of(contents, [name for name in wrong if name in contents.tensors])
        theirs = tuple(key for key in wrong if key in contents.metadata)
        renamed = Renamed(ours, frozenset((*contents.tensors, *contents.metadata)), _better_name)
        self.refuse_any(wrong, what, FileHint(renamed if ours else Metadataless(theirs)))

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        path.mkdir()
        entries = [(b"", number_field(1, 1) + bytes_field(3, number_field(1, 1)))]
        ties = contents.ties
        with (path / f"{_PREFIX}.data-00000-of-00001").open("xb", buffering=0) as file:
            at = 0
            for name, stored in contents.tensors.items():
                if name in ties:
                    continue
                # An empty tensor also gets some room, so that offsets have the order of names.
                at += write_fully(
                    file.fileno(), bytes(-at % _ALIGNMENT or (0 if stored.size else _ALIGNMENT))
                )
                checksum, begin = 0, at
                for block in pump.blocks(stored):
                    checksum = crc32c(block.view(np.uint8), checksum)
                    at += write_fully(file.fileno(), block.view(np.uint8))
                entries.append(
                    (
                        name.encode(),
                        entry_of(CODES[stored.dtype], stored.shape, begin, at - begin, checksum),
                    )
                )
            for key, text in packed(contents).items():
                raw, checksum = string_of(from_metadata(text))
                entries.append((key.encode(), entry_of(STRING, (), at, len(raw), checksum)))
                at += write_fully(file.fileno(), raw)
        (path / f"{_PREFIX}{INDEX}").write_bytes(table(sorted(entries)))
        (path / STATE).write_text(
            f'model_checkpoint_path: "{_PREFIX}"\nall_model_checkpoint_paths: "{_PREFIX}"\n',
            "utf-8",
        )

    def own_entries(self, folder: Path) -> list[str]:
        index = index_of(folder)
        if index is None:
            return []
        stem = re.escape(index.name.removesuffix(INDEX))
        return owned(
            folder,
            re.compile(
                rf"{STATE}|{stem}(?:{re.escape(INDEX)}|\.data-\d{{5}}-of-\d{{5}})"
            ).fullmatch,
        )


FORMAT = TensorflowCheckpoint()
