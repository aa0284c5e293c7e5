"""The canvas of memory pictures: text in lines that fit, one light and dark style, ``<svg>``."""

from __future__ import annotations

import re
from html import escape
from unicodedata import category, east_asian_width

from .words import WORDS, Words

__all__ = ["GUTTER", "STYLE", "Canvas", "clean", "fitted", "wide"]

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


def clean(text: str) -> str:
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


def wide(text: str) -> float:
    """The assumed width of a text."""
    return sum(_LETTER * (1.9 if east_asian_width(letter) in "WF" else 1) for letter in text)


def fitted(text: str, width: float, lines: int = 3) -> list[str]:
    """A text in at most `lines` lines of at most `width`; a longer text ends in an ellipsis."""
    found = [""]
    for piece in _PIECES.findall(" ".join(text.split())):
        if wide(found[-1] + piece) <= width:
            found[-1] += piece
            continue
        found.append("")
        for letter in piece.lstrip():
            if found[-1] and wide(found[-1] + letter) > width:
                found.append("")
            found[-1] += letter
    found = [line for line in found if line]
    if len(found) > lines:
        found[lines - 1 :] = [found[lines - 1][: max(int(width / _LETTER / 1.9) - 1, 1)] + "…"]
    return found


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
            f"aria-label='{clean(aloud)}' width='{self.width}' height='{self.y:g}' "
            f"viewBox='0 0 {self.width} {self.y:g}'><title>{clean(title)}</title>"
            f"<desc>{clean(told)}</desc>{style}{''.join(self.parts)}</svg>"
        )

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        """Add text at a position."""
        marked = f" class='{kind}'" if kind else ""
        self.add(f"<text x='{x:g}' y='{y:g}'{marked}>{clean(words)}</text>")

    def lines(self, words: str, kind: str = "", left: float = GUTTER) -> None:
        """Add text below the drawing so far, in as many lines as it needs."""
        for line in fitted(words, self.right - left):
            self.y += 16
            self.text(left, self.y - 4, line, kind)
