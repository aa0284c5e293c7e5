"""Write safetensors files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import FormatLimitError
from ...base.limits import IN_SHARDS, FileHint, OtherDtypes, Without, other_names
from ...base.nesting import keys_of
from ...base.tree_strings import pack
from .header import HEADER_LIMIT, METADATA, NAMES, NIBBLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ....typing import Array
    from ...base.contents import Contents
    from ...base.format import Format
    from ...base.pump import Pump
    from ...base.stored import Stored

__all__ = ["refuse", "write"]

_ALIGNMENT = 64


def _packed(blocks: Iterator[Array]) -> Iterator[bytes]:
    left = np.empty(0, np.uint8)
    for block in blocks:
        values = np.concatenate([left, block.view(np.uint8) & 15])
        even = values.size // 2 * 2
        left = values[even:]
        yield (values[:even:2] | values[1:even:2] << 4).tobytes()


def _nbytes(stored: Stored) -> int:
    if stored.dtype == NIBBLES:
        return stored.size // 2
    return stored.nbytes


def _layout(contents: Contents) -> tuple[bytes, list[str]]:
    """The header of a new file, and the order of the tensors' bytes.

    Names keep their order. The bytes are ordered so that as many tensors as possible are aligned to
    64: first tensors whose sizes are multiples of 64, then by the power of two that divides their
    sizes. The data is aligned to 64 too.
    """
    ties = contents.ties
    sizes = {name: _nbytes(stored) for name, stored in contents.tensors.items() if name not in ties}
    order = sorted(
        sizes, key=lambda name: -min(sizes[name] & -sizes[name] or _ALIGNMENT, _ALIGNMENT)
    )
    begins = {}
    reached = 0
    for name in order:
        begins[name] = reached
        reached += sizes[name]
    strings = pack(contents)
    if strings:
        parts = [f'"{METADATA}":{_text(strings)}']
    else:
        parts = []
    for name, size in sizes.items():
        stored = contents.tensors[name]
        shape = ",".join(map(str, stored.shape))
        parts.append(
            f'{_text(name)}:{{"dtype":"{NAMES[stored.dtype]}","shape":[{shape}],'
            f'"data_offsets":[{begins[name]},{begins[name] + size}]}}'
        )
    header = f"{{{','.join(parts)}}}".encode()
    return header + b" " * (-(8 + len(header)) % _ALIGNMENT), order


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _without_underscores(name: str) -> str:
    return name.strip("_")


def refuse(format: Format, contents: Contents) -> None:  # noqa: A002 - the term
    """See `Format.refuse`."""
    odd = [
        name
        for name, stored in contents.tensors.items()
        if stored.dtype == NIBBLES and stored.size % 2
    ]
    what = f"packs two {NIBBLES} in a byte, and their number is odd"
    wider = OtherDtypes(
        dict.fromkeys(odd, NIBBLES),
        {NIBBLES: "float8_e4m3fn"},
        ", which holds all of its values",
    )
    hint = FileHint(wider, Without(keys_of(contents, odd)))
    format.refuse_any(odd, what, hint)
    if METADATA in contents.tensors:
        hint = other_names(contents, [METADATA], _without_underscores)
        raise FormatLimitError(f"A tensor in safetensors cannot be named {METADATA}.", hint)
    length = len(_layout(contents)[0])
    if length > HEADER_LIMIT:
        raise FormatLimitError(
            f"The header would have {length} bytes; readers take {HEADER_LIMIT}.",
            IN_SHARDS,
        )


def write(contents: Contents, path: Path, pump: Pump) -> None:
    """See `Format.write`."""
    header, order = _layout(contents)
    with path.open("xb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for name in order:
            stored = contents.tensors[name]
            if stored.dtype == NIBBLES:
                for part in _packed(pump.blocks(stored)):
                    file.write(part)
            else:
                file.flush()
                pump.copy(stored, file.fileno())
