"""JSON read piece by piece: text that nobody vouches for, of which only strings by name are wanted.

`json.loads` makes of 100 MB of ``[[],[],…`` two gigabytes; this makes an error. Each function takes a position in the
text, gives what stands there and the position behind it, and raises `Cut` where that is cut off or something else.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ...errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BLANK", "Cut", "blank", "compound", "expect", "loaded", "pairs", "string", "strings", "value"]

BLANK = rb"[ \t\n\r]*"
"""What may stand between any two parts of JSON."""

_BLANK = re.compile(BLANK)
_QUOTE = re.compile(rb'(?<!\\)(?:\\\\){0,1000}"')
"""The end of a string: a quote after an even number of backslashes."""
_PLAIN = rb'"([^"\\\x00-\x1f]*)"'
_PAIR = re.compile(BLANK.join([b"", _PLAIN, b":", _PLAIN, b"([,}])"]))
"""A string by name, neither with a backslash, and what comes next."""
_TOKEN = re.compile(rb'"(?:[^"\\]+|\\.)*("?)|[{}\[\]]', re.DOTALL)
"""A string, which may lack its end, or a bracket."""
_FLAT = re.compile(rb'\{(?:[^{}"]|"[^"\\{}]*"){0,200}\}')
"""A short object without others inside, as most are."""
_LONGEST = 1 << 16


class Cut(Exception):  # noqa: N818 - no error yet: what is missing may stand in the part that comes next
    """What stands here is cut off, or is not what is due."""


def blank(text: bytes, position: int) -> int:
    """The position of what stands behind blanks."""
    return _BLANK.match(text, position).end()  # type: ignore[union-attr]


def expect(text: bytes, position: int, character: bytes) -> int:
    """The position behind blanks and a character."""
    position = blank(text, position)
    if text[position : position + 1] != character:
        raise Cut(f"{character.decode()!r} is due")
    return position + 1


def string(text: bytes, position: int) -> tuple[str, int]:
    """A string of valid Unicode."""
    position = expect(text, position, b'"')
    end = _QUOTE.search(text, position)
    if end is None:
        raise Cut("a string does not end")
    try:
        found = json.loads(text[position - 1 : end.end()].decode())
        found.encode()
    except ValueError as error:
        raise Cut(f"a string is malformed ({error})") from error
    return found, end.end()


def compound(text: bytes, position: int) -> tuple[bytes, int]:
    """The text of an object or array of up to 64 KiB, which may be malformed."""
    flat = _FLAT.match(text, position)
    if flat is not None:
        return flat[0], flat.end()
    depth = 0
    for token in _TOKEN.finditer(text, position) if text[position : position + 1] in (b"{", b"[") else ():
        first = token[0][:1]
        depth += first in b"{["
        depth -= first in b"}]"
        if not depth:
            return text[position : token.end()], token.end()
        if (first == b'"' and not token[1]) or token.end() - position > _LONGEST:
            break
    raise Cut("an object or array of at most 64 KiB is due")


def strings(text: bytes, position: int) -> tuple[list[tuple[str, str]], int]:
    """An object of strings by name, or null."""
    position = blank(text, position)
    if text[position : position + 4] == b"null":
        return [], position + 4
    return pairs(text, position, string, _PAIR)


def pairs(
    text: bytes, position: int, read: Callable[[bytes, int], tuple[str, int]], usual: re.Pattern[bytes] | None = None
) -> tuple[list[tuple[str, str]], int]:
    """An object of values by name, which `read` gives as strings; `usual` matches a pair as most are written."""
    position = expect(text, position, b"{")
    found: list[tuple[str, str]] = []
    empty = blank(text, position)
    if text[empty : empty + 1] == b"}":
        return found, empty + 1
    while True:
        pair = usual.match(text, position) if usual is not None else None
        if pair is not None:
            try:
                found.append((pair[1].decode(), pair[2].decode()))
            except UnicodeDecodeError as error:
                raise Cut(f"a string is malformed ({error})") from error
            position = pair.end()
            if pair[3] == b"}":
                return found, position
            continue
        name, position = string(text, position)
        held, position = read(text, expect(text, position, b":"))
        found.append((name, held))
        position = blank(text, position) + 1
        if text[position - 1 : position] == b"}":
            return found, position
        expect(text, position - 1, b",")


def value(text: bytes, position: int) -> tuple[Any, int]:
    """A string, or any other value of up to 64 KiB."""
    position = blank(text, position)
    if text[position : position + 1] == b'"':
        return string(text, position)
    part = text[position : position + _LONGEST].decode("utf-8", "surrogateescape")
    try:
        found, length = json.JSONDecoder().raw_decode(part)
    except (ValueError, RecursionError) as error:
        raise Cut("a value cannot be read") from error
    return found, position + len(part[:length].encode("utf-8", "surrogateescape"))


def loaded(where: str, key: str, text: str | bytes, kind: type) -> Any:
    """The value of JSON text, which must be of a type; messages name the file, `where`, and the text, `key`.

    Raises:
        FileFormatError: It is no JSON, or a value of another type.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{where}: {key!r} is no JSON: {error}.") from error
    if not isinstance(value, kind):
        raise FileFormatError(f"{where}: {key!r} holds {type(value).__name__}, not {kind.__name__}.")
    return value
