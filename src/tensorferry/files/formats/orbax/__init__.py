"""Orbax checkpoints: folders of JAX trees, as ``orbax.checkpoint.PyTreeCheckpointer`` writes them.

The layout: https://orbax.readthedocs.io/en/latest/guides/checkpoint/checkpoint_format.html. Arrays
are in Zarr inside TensorStore's OCDBT database, or in Zarr folders. They are read and written with
tensorstore, as in Orbax, a box at a time. Orbax and JAX are not imported.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...base.contents import Ref
from ...base.format import Format, owned
from ...base.limits import FileHint, Without, Words
from ...base.nesting import keys_of
from ...base.wording import named
from ...encodings.paths import refuse_links_out
from .reader import EMPTY, STEP, STRINGS, TREE, Checkpoint, dump, is_own, item_of, untagged
from .writer import Writer, is_known, kind_of, leaves_of, left_out, nested, restored, strings_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ...base.contents import Contents
    from ...base.pump import Pump

_HANDLER = "orbax.checkpoint._src.handlers.pytree_checkpoint_handler.PyTreeCheckpointHandler"


class Orbax(Format):
    """Orbax checkpoints of a tree of arrays, numbers and strings.

    The structure is the one that Orbax writes for the same tree. What it does not tell (that a
    sequence was a tuple, keys that are not text, …) stands in the custom metadata, which Orbax
    ignores.
    """

    name = "orbax"
    title = "Orbax"
    suffixes = (".orbax",)
    other_suffixes = (".ckpt",)
    dtypes = frozenset(
        {
            "bool",
            "int2",
            "int4",
            "int8",
            "int16",
            "int32",
            "int64",
            "uint8",
            "uint16",
            "uint32",
            "uint64",
        }
        | {
            "float4_e2m1fn",
            "float8_e3m4",
            "float8_e4m3b11fnuz",
            "float8_e4m3fn",
            "float8_e4m3fnuz",
            "float8_e5m2",
        }
        | {
            "float8_e5m2fnuz",
            "float8_e8m0fnu",
            "bfloat16",
            "float16",
            "float32",
            "float64",
            "complex64",
            "complex128",
        }
    )
    module = "tensorstore"
    is_folder = True
    holds_tree = True
    holds_metadata = True
    ties = "copy"

    def recognises(self, path: Path, head: bytes) -> bool:
        return not head and ((path / TREE).is_file() or (path / STEP).is_file())

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        self.ensure_loaded()
        folder, others = item_of(path)
        refuse_links_out(path, TREE if folder == path else f"{folder.name}/{TREE}")
        return restored(Checkpoint(path, folder).contents(others))

    def own_entries(self, folder: Path) -> list[str]:
        return owned(folder, partial(is_own, folder))

    def refuse(self, contents: Contents) -> None:
        self.ensure_loaded()
        unknown = [name for name, stored in contents.tensors.items() if not is_known(stored.dtype)]
        kinds = ", ".join(sorted({contents.tensors[name].dtype for name in unknown}))
        what = f"needs a newer tensorstore, as the one that is installed has no {kinds}"
        newer = "pip install --upgrade tensorstore"
        hint = FileHint(Words(newer, newer), Without(keys_of(contents, unknown)))
        self.refuse_any(unknown, what, hint)
        leaves_of(contents)
        strings_of(contents)

    def changes(self, contents: Contents) -> Iterator[str]:
        without = left_out(contents)
        if without:
            yield (
                f"{self.title} has None in place of these, for which it has no form; only "
                "tensorferry reads them, from "
                f"the custom metadata: {named(without)}."
            )

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        self.ensure_loaded()
        leaves, strings = leaves_of(contents), strings_of(contents)
        path.mkdir()
        writer = Writer(path)
        entries = {}
        for leaf in leaves:
            kind = kind_of(leaf.node) or "None"
            if isinstance(leaf.node, Ref):
                writer.write(leaf.name, contents.tensors[leaf.node.name], pump)
            elif kind == "scalar":
                writer.put(leaf.name, np.asarray(leaf.node))
            places = zip(leaf.keys, leaf.forms, strict=True)
            entries[str(leaf.keys)] = {
                "key_metadata": [{"key": key, "key_type": form} for key, form in places],
                "value_metadata": {"value_type": kind, "skip_deserialize": kind in EMPTY},
            }
        writer.finish()
        note = {
            "tree_metadata": entries,
            "use_ocdbt": True,
            "use_zarr3": False,
            "store_array_data_equal_to_fill_value": True,
            "custom_metadata": {key: untagged(text) for key, text in strings.items()} or None,
        }
        texts = nested(leaves)
        if texts:
            dump(path / STRINGS, texts)
        dump(path / TREE, note)
        dump(
            path / STEP,
            {
                "item_handlers": _HANDLER,
                "metrics": {},
                "performance_metrics": {},
                "custom_metadata": {},
            },
        )


FORMAT = Orbax()
