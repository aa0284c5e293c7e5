"""Values of GGUF's key-value pairs as metadata: a string stays a string; other values are JSON with their type."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

from ...base.wording import is_unicode

__all__ = ["ARRAY", "DEEPEST", "KINDS", "STRING", "VALUES", "tagged", "text", "untagged"]

VALUES = {
    0: ("uint8", "B"),
    1: ("int8", "b"),
    2: ("uint16", "H"),
    3: ("int16", "h"),
    4: ("uint32", "I"),
    5: ("int32", "i"),
    6: ("float32", "f"),
    7: ("bool", "?"),
    10: ("uint64", "Q"),
    11: ("int64", "q"),
    12: ("float64", "d"),
}
"""The name and the `struct` format of each gguf_metadata_value_type."""
STRING, ARRAY = 8, 9
KINDS = {name: kind for kind, (name, _) in VALUES.items()} | {"string": STRING, "array": ARRAY}
_NAMES = {kind: name for name, kind in KINDS.items()}
_TAG = "gguf."

DEEPEST = 4
"""The deepest nesting of arrays."""


def tagged(kind: int, value: Any) -> str:
    """A value as metadata: a string as it is, unless it looks tagged; other values as JSON with their type."""
    return str(value) if kind == STRING and _is_plain(value) else _json(kind, value)


def _is_plain(text: str) -> bool:
    return is_unicode(text) and untagged(text) is None


def _json(kind: int, value: Any) -> str:
    return json.dumps(_noted(kind, value), separators=(",", ":"))


def _noted(kind: int, value: Any) -> dict[str, Any]:
    if kind != ARRAY:
        return {_TAG + _NAMES[kind]: value}
    inner, items = value
    key = f"{_TAG}array.{_NAMES[inner]}"
    return {key: [_noted(ARRAY, item) for item in items] if inner == ARRAY else items}


def untagged(text: str) -> bytes | None:
    """The bytes of a type and value for a text from `tagged`; ``None`` for a plain string."""
    if not text.startswith('{"' + _TAG):
        return None
    try:
        note = json.loads(text)
        if json.dumps(note, separators=(",", ":")) != text:
            return None
        kind, raw = _packed(note, 0)
        if kind == STRING and _is_plain(note[_TAG + "string"]):
            return None
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
        struct.error,
    ):
        return None
    return struct.pack("<I", kind) + raw


def _packed(note: dict[str, Any], depth: int) -> tuple[int, bytes]:
    (key, value), *rest = note.items()
    if rest or not key.startswith(_TAG) or depth >= DEEPEST:
        raise ValueError(key)
    name = key[len(_TAG) :]
    if not name.startswith("array."):
        return KINDS[name], _scalar(name, value)
    inner = name[len("array.") :]
    if type(value) is not list:
        raise TypeError(key)
    if inner == "array":
        items = [_packed(item, depth + 1) for item in value]
        if any(kind != ARRAY for kind, _ in items):
            raise ValueError(key)
        raw = b"".join(each for _, each in items)
    else:
        raw = b"".join(_scalar(inner, item) for item in value)
    return ARRAY, struct.pack("<IQ", KINDS[inner], len(value)) + raw


def _scalar(name: str, value: Any) -> bytes:
    if name == "string":
        return text(value)
    code = VALUES[KINDS[name]][1]
    if code in "fd":
        width = struct.calcsize("=" + code)
        if type(value) is str:
            bits = int(value, 16)
            if f"{bits:0{2 * width}x}" != value:
                raise ValueError(value)
            raw = bits.to_bytes(width, "little")
            if math.isfinite(struct.unpack("<" + code, raw)[0]):
                raise ValueError(value)
            return raw
        raw = struct.pack("<" + code, value)
        if (
            type(value) is not float
            or not math.isfinite(value)
            or struct.unpack("<" + code, raw)[0] != value
        ):
            raise ValueError(value)
        return raw
    if type(value) is not (bool if name == "bool" else int):
        raise TypeError(value)
    return struct.pack("<" + code, value)


def text(value: str) -> bytes:
    """A string with its length before it."""
    raw = value.encode(errors="surrogateescape")
    return struct.pack("<Q", len(raw)) + raw
