"""Read JSON piece by piece: text that is not trusted, of which only strings by name are needed.

`json.loads` would make two gigabytes from 100 MB of ``[[],[],…``; this raises an error. Each
function takes a position in the text, gives the value there and the position after it, and raises
`Cut` if the text is cut off or malformed.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from ...errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Cut",
    "blank",
    "compound",
    "expect",
    "loaded",
    "pairs",
    "string",
    "strings",
    "value",
]

_WHITE = b" \t\n\r"
_LITTLE = 16
"""How many bytes are looked at first: most text has no white space, or little."""
_QUOTE = rb'(?<!\\)(?:\\\\){0,1000}"'
"""The end of a string: a quote after an even number of backslashes."""
_TOKEN = rb'(?s)"(?:[^"\\]+|\\.)*("?)|[{}\[\]]'
"""A bracket, or a string, which may be cut off."""
_FLAT = rb'\{(?:[^{}"]|"[^"\\{}]*"){0,200}\}'
"""A short object without objects inside, as most are."""
_LONGEST = 1 << 16

_compiled = cache(re.compile)
"""Compiled at first use: an ordinary file needs none of them."""


class Cut(Exception):  # noqa: N818 - not an error yet, because the next part of the text may complete it
    """The text is cut off, or is not what is expected here."""


def blank(text: bytes, position: int) -> int:
    """The position after white space."""
    width = _LITTLE
    while True:
        near = text[position : position + width]
        rest = near.lstrip(_WHITE)
        position += len(near) - len(rest)
        if rest or len(near) < width:
            return position
        # The parts grow, so that even a megabyte of white space takes few of them.
        width *= 2


def expect(text: bytes, position: int, character: bytes) -> int:
    """The position after white space and a character."""
    position = blank(text, position)
    if text[position : position + 1] != character:
        raise Cut(f"{character.decode()!r} is due")
    return position + 1


def string(text: bytes, position: int) -> tuple[str, int]:
    """A string of valid Unicode."""
    position = expect(text, position, b'"')
    # Most strings have no backslash, and then no pattern is needed.
    end = text.find(b'"', position) + 1
    if end and b"\\" in text[position:end]:
        quote = _compiled(_QUOTE).search(text, position)
        end = 0 if quote is None else quote.end()
    if not end:
        raise Cut("a string does not end")
    try:
        decoded = json.loads(text[position - 1 : end].decode())
        decoded.encode()
    except ValueError as error:
        raise Cut(f"a string is malformed ({error})") from error
    return decoded, end


def compound(text: bytes, position: int) -> tuple[bytes, int]:
    """The text of an object or an array of up to 64 KiB, which may be malformed inside."""
    flat = _compiled(_FLAT).match(text, position)
    if flat is not None:
        return flat[0], flat.end()
    depth = 0
    for token in (
        _compiled(_TOKEN).finditer(text, position)
        if text[position : position + 1] in (b"{", b"[")
        else ()
    ):
        first = token[0][:1]
        depth += first in b"{["
        depth -= first in b"}]"
        if not depth:
            return text[position : token.end()], token.end()
        if (first == b'"' and not token[1]) or token.end() - position > _LONGEST:
            break
    raise Cut("an object or array of at most 64 KiB is due")


def strings(text: bytes, position: int) -> tuple[list[tuple[str, str]], int]:
    """An object whose values are strings, or null."""
    position = blank(text, position)
    if text[position : position + 4] == b"null":
        return [], position + 4
    return pairs(text, position, string)


def pairs(
    text: bytes, position: int, read: Callable[[bytes, int], tuple[str, int]]
) -> tuple[list[tuple[str, str]], int]:
    """An object whose values `read` gives as strings."""
    position = expect(text, position, b"{")
    held_pairs: list[tuple[str, str]] = []
    empty = blank(text, position)
    if text[empty : empty + 1] == b"}":
        return held_pairs, empty + 1
    while True:
        name, position = string(text, position)
        held, position = read(text, expect(text, position, b":"))
        held_pairs.append((name, held))
        position = blank(text, position) + 1
        if text[position - 1 : position] == b"}":
            return held_pairs, position
        expect(text, position - 1, b",")


def value(text: bytes, position: int) -> tuple[Any, int]:
    """A string, or any other value of up to 64 KiB."""
    position = blank(text, position)
    if text[position : position + 1] == b'"':
        return string(text, position)
    part = text[position : position + _LONGEST].decode("utf-8", "surrogateescape")
    try:
        decoded, length = json.JSONDecoder().raw_decode(part)
    except (ValueError, RecursionError) as error:
        raise Cut("a value cannot be read") from error
    return decoded, position + len(part[:length].encode("utf-8", "surrogateescape"))


def loaded(where: str, key: str, text: str | bytes, kind: type) -> Any:
    """The value of JSON text, which must have the type `kind`.

    Messages name the file `where` and the `key`.

    Raises:
        FileFormatError: It is not JSON, or the value has another type.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{where}: {key!r} is no JSON: {error}.") from error
    if not isinstance(value, kind):
        raise FileFormatError(
            f"{where}: {key!r} holds {type(value).__name__}, not {kind.__name__}."
        )
    return value
