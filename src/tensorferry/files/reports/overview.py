"""Facts about a checkpoint: parameters by module, quantisation, and whether all shards are there."""

from __future__ import annotations

import os
import re
from math import prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..base.blocks import Blocks
    from .folded_names import Fold

    _Entry = tuple[list[str], int, Fold]

__all__ = ["Shards", "modules", "quantisation", "shards"]

_SHARD = re.compile(r"(.*-)(\d{5})-of-(\d{5})(\.[\w.]+)")
_PACKED = re.compile(
    r"(.*[./])?(qweight|qzeros|scales|g_idx|SCB|weight|absmax|bitsandbytes__(?:nf4|fp4))"
)
_MOST_SHARDS = 10_000
_MOST_PARTS = 12
_MOST_UNFOLDED = 4096


class Shards(NamedTuple):
    """The shards of a checkpoint, by the names of its files.

    Args:
        total: The number of tensors.
        missing: The names of shards that are not in the folder.
    """

    total: int
    missing: tuple[str, ...]


def modules(folds: Sequence[Fold]) -> dict[str, int]:
    """The number of parameters of each module of a model.

    A module with most of the parameters is divided further.

    Args:
        folds: The tensors, each counted once.

    Returns:
        Empty if there are no modules, only tensors.
    """
    entries = [(re.split("[./]", each.name), each.total * prod(each.shape), each) for each in folds]
    groups: dict[tuple[str, ...], list[_Entry]] = {(): entries}
    while len(groups) < _MOST_PARTS:
        largest = max(groups, key=lambda each: sum(size for _, size, _ in groups[each]))
        depth = len(largest) + 1
        size = sum(size for _, size, _ in groups[largest])
        if not any(len(path) > depth for path, _, _ in groups[largest]) or (
            len(groups) > 1 and 4 * size < 3 * sum(size for _, size, _ in entries)
        ):
            break
        groups |= _apart(largest, groups.pop(largest))
    found = {".".join(each): sum(size for _, size, _ in inside) for each, inside in groups.items()}
    return found if 1 < len(found) < sum(each.total for each in folds) else {}


def _apart(name: tuple[str, ...], inside: list[_Entry]) -> dict[tuple[str, ...], list[_Entry]]:
    """The parts of a module.

    Parts that differ only in a number are listed one by one if they are few.
    """
    depth = len(name)
    heads = {path[depth] for path, _, _ in inside if len(path) > depth}
    if any(
        "#" in head and each != head and _without(each) == head for head in heads for each in heads
    ):
        # A fold has tensors of one shape. Layers of other sizes are in other folds.
        few = sum(fold.total for _, _, fold in inside) <= _MOST_UNFOLDED
        several = [each for entry in inside for each in _unfolded(entry, depth)] if few else []
        if several and len({tuple(path[: depth + 1]) for path, _, _ in several}) <= _MOST_PARTS:
            inside = several
        else:
            inside = [(_numberless(path, depth), size, fold) for path, size, fold in inside]
    apart: dict[tuple[str, ...], list[_Entry]] = {}
    for entry in inside:
        apart.setdefault((*entry[0][: depth + 1],), []).append(entry)
    return apart


def _numberless(path: list[str], depth: int) -> list[str]:
    return [*path[:depth], *map(_without, path[depth : depth + 1]), *path[depth + 1 :]]


def _without(head: str) -> str:
    return re.sub(r"\d+", "#", head)


def _unfolded(entry: _Entry, depth: int) -> Iterator[_Entry]:
    path, size, fold = entry
    if fold.total == 1:
        yield entry
        return
    for name in fold.unfold():
        yield [*path[:depth], *re.split("[./]", name)[depth:]], size // fold.total, fold


def quantisation(
    folds: Iterable[Fold], blocks: Mapping[str, Blocks], values: Mapping[str, object]
) -> dict[str, int]:
    """How many tensors are quantised in which way.

    Known are the blocks of GGUF, PyTorch's quantised tensors, and the layouts of GPTQ, AWQ and
    bitsandbytes: packed integers with scales beside them, under certain names.
    """
    found: dict[str, int] = {}
    for each in blocks.values():
        kind = each.kind.replace("gguf.", "", 1)
        found[kind] = found.get(kind, 0) + 1
    for place in [each for each in values if each.endswith("scheme")]:
        value, above = values[place], place[: -len("scheme")]
        if str(value).startswith("per_") and str(values.get(f"{above}dtype"))[:1] == "q":
            kind = f"{values[f'{above}dtype']} {value}"
            found[kind] = found.get(kind, 0) + 1
    packed: dict[str, dict[str, list[Fold]]] = {}
    for fold in folds:
        name = _PACKED.fullmatch(fold.name)
        if name is not None:
            # Layers of other sizes are in other folds.
            above = re.sub(r"\d+", "#", name[1] or "")
            packed.setdefault(above, {}).setdefault(name[2], []).append(fold)
    for above, parts in packed.items():
        for kind, fold in _layouts(above, parts):
            found[kind] = found.get(kind, 0) + fold.total
    return found


def _layouts(above: str, parts: Mapping[str, list[Fold]]) -> Iterator[tuple[str, Fold]]:
    """The quantisation of the tensors under one name (GPTQ, AWQ or bitsandbytes), and the folds that it concerns."""
    inputs = parts.get("g_idx", [])
    for weight, scales in zip(parts.get("qweight", []), parts.get("scales", []), strict=False):
        if (
            weight.dtype == "int32"
            and len(weight.shape) == len(scales.shape) == 2
            and all((*weight.shape, *scales.shape))
        ):
            # GPTQ packs the inputs of a layer, AWQ its outputs.
            awq = weight.shape[1] != scales.shape[1]
            wide = weight.shape[0] if awq else prod(inputs[0].shape) if inputs else 0
            bits = (
                32 * weight.shape[1] / scales.shape[1]
                if awq
                else 32 * weight.shape[0] / max(wide, 1)
            )
            known = f", {bits:g} bits in groups of {wide // scales.shape[0]}" if wide else ""
            yield f"{'AWQ' if awq else 'GPTQ'}{known}", weight
    for weight, scale in zip(parts.get("weight", []), parts.get("SCB", []), strict=False):
        if weight.dtype == "int8":
            yield "bitsandbytes, 8 bits", scale
    for form in ("nf4", "fp4"):
        for state in (
            parts.get(f"bitsandbytes__{form}", []) if above.endswith("quant_state.") else []
        ):
            yield f"bitsandbytes, 4 bits ({form})", state


def shards(paths: Sequence[str]) -> Shards | None:
    """The shards of the checkpoint to which these files belong; ``None`` if it has no shards."""
    for path in paths:
        folder, name = os.path.split(path)
        found = _SHARD.fullmatch(name)
        if found is not None and 0 < int(found[2]) <= int(found[3]) <= _MOST_SHARDS:
            there = set(os.listdir(folder or "."))  # noqa: PTH208 - names only
            wanted = (
                f"{found[1]}{number:05d}-of-{found[3]}{found[4]}"
                for number in range(1, int(found[3]) + 1)
            )
            return Shards(int(found[3]), tuple(each for each in wanted if each not in there))
    return None
