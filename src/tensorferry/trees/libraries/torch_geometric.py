"""Graphs of PyTorch Geometric, and batches of graphs: the values in their stores.

A batch also has ``_slice_dict`` and ``_inc_dict``, with tensors that tell where each graph begins.
``to_data_list`` needs them.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from ...backends.nodes import Node, attribute, item
from . import is_a

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["opener_of"]

_LIBRARY = __name__.rpartition(".")[2]
_STORES = ("_store", "_global_store", "_node_store_dict", "_edge_store_dict")
_OF_A_STORE = ("_mapping", "_parent", "_key", "_cached_attr")


def opener_of(kind: type) -> Callable[[Any], Node] | None:
    """The function that opens graphs and batches; ``None`` for other types."""
    if is_a(kind, _LIBRARY, "Data", "HeteroData", "TemporalData"):
        if is_a(kind, _LIBRARY, "Batch"):
            return _open_batch
        return _open
    return None


def _open(x: Any) -> Node:
    places: list[tuple[int, str, str]] = []
    entries: list[str] = []
    values: list[Any] = []
    static: dict[str, Any] = {}
    for number, (root, store) in enumerate(_stores(x)):
        for key, value in vars(store)["_mapping"].items():
            places.append((number, "_mapping", key))
            entries.append(root + (attribute(key) if isinstance(key, str) else item(key)))
            values.append(value)
        for name, value in vars(store).items():
            if name in _OF_A_STORE:
                continue
            if isinstance(value, (dict, list)):
                places.append((number, "", name))
                entries.append(root + attribute(name))
                values.append(value)
            else:
                static[root + attribute(name)] = value

    def rebuild(others: Sequence[Any]) -> Any:
        result = copy.copy(x)
        stores = [store for _, store in _stores(result)]
        for (number, where, key), value in zip(places, others, strict=True):
            held = vars(stores[number])
            (held[where] if where else held)[key] = value
        return result

    return Node(entries, values, rebuild, static)


def _open_batch(x: Any) -> Node:
    why = "A Batch is graphs one after the other: stacked ones are none."
    hint = f"{_LIBRARY}.data.Batch.from_data_list([graph for sample in samples for graph in sample.to_data_list()])"
    return _open(x)._replace(no_batch=(why, hint))


def _stores(x: Any) -> Iterator[tuple[str, Any]]:
    """Yield the path of each store of a graph, and the store."""
    for name in _STORES:
        stores = vars(x).get(name)
        if isinstance(stores, dict):
            yield from ((item(key), store) for key, store in stores.items())
        elif stores is not None:
            yield "", stores
