"""The SVG of pictures: words that fit, boxes and lines."""

from __future__ import annotations

import re
from html import escape
from unicodedata import category, east_asian_width

from ...core.named_tuple import NamedTuple
from ..step import WAYS, Path

__all__ = ["GUTTER", "STYLE", "WORDS", "Canvas", "Words", "fitted_lines", "text_width", "xml_text"]


# -- words -----------------------------------------------------------------------------------------


class Words(NamedTuple):
    """Phrases with named gaps, which a translation may put in another order.

    >>> WORDS._replace(byte_count="{count} octets").byte_count.format(count=24)
    '24 octets'
    """

    # -- the two sides
    source: str = "source"
    result: str = "result"
    side: str = "{side}: {what}"
    may_write: str = "may write"
    read_only: str = "read-only"
    comma: str = ", "
    one_byte: str = "1 byte"
    byte_count: str = "{count} bytes"
    part_of: str = "{part} of {whole}"
    after_line: str = "{bytes} after a 64-byte line"
    strides: str = "strides {strides}"
    elements_share: str = "{count} elements share them"
    # -- the places
    on_host: str = "{device}: host memory"
    on_pinned: str = "{device}: page-locked host memory"
    on_device: str = "{device}: device memory"
    on_map: str = "{device}: a file that is mapped into memory"
    # -- the memory
    ruler: str = "byte"
    order: str = "Numbers: the order of reading."
    first_line: str = "the 64-byte line of its first element: number {number} of {count}"
    blocks: str = "all of it: {size} in each block"
    blocks_partly: str = "all of it: {size} in each block, full where all of it is touched"
    one_object: str = "1 object, in memory of its own"
    object_count: str = "{count} objects, each in memory of its own"
    one_part: str = "1 part, in memory of its own"
    part_count: str = "{count} parts, each in memory of its own"
    values: str = "values that are read, not one block of memory"
    no_memory: str = "no memory: {why}"
    no_elements: str = "no elements: no bytes"
    # -- what is copied
    over_host: str = f"{{size}} {WAYS[Path.HOST]}"
    over_bus: str = f"{{size}} {WAYS[Path.BUS]}"
    over_device: str = f"{{size}} {WAYS[Path.DEVICE]}"
    more_steps: str = "and {count} more steps"
    nothing: str = "nothing is copied"
    # -- the picture in words
    aloud: str = "{title}. {told}"
    title_shared: str = "{source} to {result}: one memory"
    title_copied: str = "{source} to {result}: a copy"
    told_empty: str = "There are no elements, so there are no bytes to share or to copy."
    told_same_bytes: str = "source and result are the same {bytes}; {writers}."
    told_same: str = "source and result are the same; {writers}."
    told_copied: str = (
        "The source is {source}. It is copied: {ways}. The result is {result}; {writers}."
    )
    told_apart: str = (
        "The source is {source}. Nothing is copied. The result is {result}; {writers}."
    )
    then: str = ", then "
    on: str = "{memory} on {device}"
    objects: str = "Python objects, each in memory of its own"
    none: str = "no memory"
    both_write: str = "both may write"
    source_writes: str = "only the source may write"
    result_writes: str = "only the result may write"
    neither_writes: str = "neither may write"
    # -- elements that are moved
    title_moves: str = "{source} to {result}, element by element"
    told_moves: str = "The numbers of the elements, in the order of the result: {elements}."
    # -- a write
    source_empty: str = "The source has no element to write."
    result_empty: str = "The result has no element to write."
    source_closed: str = "The source is read-only: nothing is written."
    result_closed: str = "The result is read-only: nothing is written."
    source_seen: str = "The first element of the source is written: the result has changed too."
    result_seen: str = "The first element of the result is written: the source has changed too."
    source_unseen: str = "The first element of the source is written: the result has not changed."
    result_unseen: str = "The first element of the result is written: the source has not changed."

    def way(self, path: Path, size: str) -> str:
        """A number of bytes, and the path that they take."""
        told = {Path.HOST: self.over_host, Path.BUS: self.over_bus, Path.DEVICE: self.over_device}[
            path
        ]
        return told.format(size=size)

    def bytes(self, number: int) -> str:
        """A number of bytes, written out."""
        if number == 1:
            return self.one_byte
        return self.byte_count.format(count=f"{number:,}")


WORDS = Words()
"""English."""


# -- the canvas ------------------------------------------------------------------------------------

GUTTER = 34
"""The room at the left of a row, for the number of its first byte."""
_BYTE = {64: 10, 32: 9}
"""The width of a byte, by the number of bytes in a row."""
_LETTER = 6.9
"""The assumed width of a letter. In no common font is a text wider."""

_LIGHT = (
    "--f-shared:var(--ferry-shared,#2563eb);--f-source:var(--ferry-source,#b45309);"
    "--f-result:var(--ferry-result,#0f766e);--f-written:var(--ferry-written,#be185d);--f-ink:var(--ferry-ink,#fff)"
)
_DARK = (
    "--f-shared:var(--ferry-shared,#8ab4ff);--f-source:var(--ferry-source,#fbbf24);"
    "--f-result:var(--ferry-result,#5eead4);--f-written:var(--ferry-written,#f9a8d4);--f-ink:var(--ferry-ink,#111827)"
)
STYLE = (
    f".ferry-memory{{{_LIGHT};display:block;max-width:100%;height:auto;font:12px "
    "system-ui,sans-serif}"
    f"svg.ferry-memory:root{{color:#1f2937}}"
    "@media "
    f"(prefers-color-scheme:dark){{.ferry-memory{{{_DARK}}}svg.ferry-memory:root{{color:#e5e7eb}}}}"
    f"body[data-theme='light'] .ferry-memory,[data-jp-theme-light='true'] .ferry-memory{{{_LIGHT}}}"
    f"body[data-theme='dark'] .ferry-memory,[data-jp-theme-light='false'] .ferry-memory{{{_DARK}}}"
    ".ferry-memory text{fill:currentColor}"
    ".ferry-memory .name{font-weight:600}"
    ".ferry-memory .quiet,.ferry-memory .ruler{opacity:.78}"
    ".ferry-memory .ruler,.ferry-memory .number text{font-size:10px}"
    ".ferry-memory .end{text-anchor:end}"
    ".ferry-memory .mid,.ferry-memory .number text{text-anchor:middle}"
    ".ferry-memory .number text{fill:var(--f-ink);font-weight:600}"
    ".ferry-memory "
    ".place{fill:currentColor;fill-opacity:.045;stroke:currentColor;stroke-opacity:.22}"
    ".ferry-memory .row{fill:none;stroke:currentColor;stroke-opacity:.4}"
    ".ferry-memory .grid{fill:none;stroke:currentColor;stroke-opacity:.13}"
    ".ferry-memory .edge{fill:none;stroke:currentColor;stroke-width:2.5}"
    ".ferry-memory .line{fill:none;stroke:currentColor;stroke-width:1.3}"
    ".ferry-memory .shape{fill:currentColor}"
    ".ferry-memory .shared{fill:var(--f-shared)}"
    ".ferry-memory .source{fill:var(--f-source)}"
    ".ferry-memory .result{fill:var(--f-result)}"
    ".ferry-memory .none{fill:none;stroke:currentColor;stroke-dasharray:4 3}"
    ".ferry-memory .written{fill:none;stroke:var(--f-written);stroke-width:3.5}"
)
"""The style of every picture.

The colours are ``--ferry-shared``, ``-source``, ``-result``, ``-written``, ``-ink``.
"""


def xml_text(text: str) -> str:
    """A text without the characters that XML forbids: control characters and lone surrogates."""
    return escape(
        "".join(
            "\N{REPLACEMENT CHARACTER}" if category(letter) in ("Cc", "Cs") else letter
            for letter in text
        )
    )


_CJK = "\u3040-\u30ff\u3400-\u9fff"
"""Letters of Japanese and Chinese: a line may end between them; Korean has spaces between words."""
_CLOSING = (
    "\u3001\u3002\uff0c\uff0e\uff1b\uff1a\uff01\uff1f\uff09\u300d\u300f\u3011\u3009\u300b"
    "\u30fc\u3063\u3083\u3085\u3087\u30c3\u30e3\u30e5\u30e7\u30a1\u30a3\u30a7\u30a9"
)
"""Characters that must not begin a line."""
_OPENING = "\uff08\u300c\u300e\u3010\u3008\u300a"
"""Characters that must not end a line."""
_PIECES = re.compile(
    rf"\s*[{_OPENING}]*(?:[{_CJK}]|[^\s{_CJK}{_CLOSING}{_OPENING}]+|(?=[{_CLOSING}]))[{_CLOSING}]*|\s*\S"
)


def text_width(text: str) -> float:
    """The assumed width of a text."""
    return sum(_LETTER * (1.9 if east_asian_width(letter) in "WF" else 1) for letter in text)


def fitted_lines(text: str, width: float, lines: int = 3) -> list[str]:
    """A text in at most `lines` lines of at most `width`; a longer text ends in an ellipsis."""
    pieces_of_line = [""]
    for piece in _PIECES.findall(" ".join(text.split())):
        if text_width(pieces_of_line[-1] + piece) <= width:
            pieces_of_line[-1] += piece
            continue
        pieces_of_line.append("")
        for letter in piece.lstrip():
            if pieces_of_line[-1] and text_width(pieces_of_line[-1] + letter) > width:
                pieces_of_line.append("")
            pieces_of_line[-1] += letter
    pieces_of_line = [line for line in pieces_of_line if line]
    if len(pieces_of_line) > lines:
        pieces_of_line[lines - 1 :] = [
            pieces_of_line[lines - 1][: max(int(width / _LETTER / 1.9) - 1, 1)] + "…"
        ]
    return pieces_of_line


class Canvas:
    """A drawing that grows from the top down.

    Args:
        columns: Bytes in a row.
        words: The words of the picture.
    """

    def __init__(self, columns: int, words: Words = WORDS) -> None:
        self.columns = columns
        self.words = words
        self.byte = _BYTE[columns]
        self.left = GUTTER
        self.right = GUTTER + columns * self.byte
        self.width = self.right + 10
        self.y = 0.0
        self.parts: list[str] = []

    def add(self, part: str) -> None:
        """Add an SVG element."""
        self.parts.append(part)

    def svg(self, title: str, told: str, *, styled: bool = True) -> str:
        """The drawing as ``<svg>`` with a title, a description in words, and style if `styled`."""
        style = f"<style>{STYLE}</style>" if styled else ""
        aloud = self.words.aloud.format(title=title, told=told)
        # Without ids, because the same picture may be on a page twice.
        return (
            f"<svg xmlns='http://www.w3.org/2000/svg' class='ferry-memory' role='img' "
            f"aria-label='{xml_text(aloud)}' width='{self.width}' height='{self.y:g}' "
            f"viewBox='0 0 {self.width} {self.y:g}'><title>{xml_text(title)}</title>"
            f"<desc>{xml_text(told)}</desc>{style}{''.join(self.parts)}</svg>"
        )

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        """Add text at a position."""
        marked = f" class='{kind}'" if kind else ""
        self.add(f"<text x='{x:g}' y='{y:g}'{marked}>{xml_text(words)}</text>")

    def lines(self, words: str, kind: str = "", left: float = GUTTER) -> None:
        """Add text below the drawing so far, in as many lines as it needs."""
        for line in fitted_lines(words, self.right - left):
            self.y += 16
            self.text(left, self.y - 4, line, kind)
