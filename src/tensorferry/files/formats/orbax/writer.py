"""Write the arrays of an Orbax checkpoint with tensorstore, in transactions of a limited size."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from ....core.dtypes import find
from ....host.numpy_dtypes import numpy_dtype
from ...encodings.slabs import filled, slabs
from .layout import BATCH, BOX_BYTES, caches, store_at

if TYPE_CHECKING:
    from pathlib import Path

    from ....typing import Array
    from ...base.pump import Pump
    from ...base.stored import Stored

__all__ = ["Writer", "is_known"]

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
        chunk = (
            [each.stop - each.start for each in boxes[0]]
            if boxes
            else [max(n, 1) for n in stored.shape]
        )
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
        """A transaction for an array, which stays in memory until the commit; ``None`` if it is written in boxes."""
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
