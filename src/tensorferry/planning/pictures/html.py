"""A plan as HTML for notebooks: its picture, and a table of its steps."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from ...core.layout import size_text
from ..step import WAYS
from .canvas import STYLE, xml_text
from .memory import memory_picture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Literal

    from ...core.info import TensorInfo
    from ..plan import Plan
    from ..step import Step


__all__ = [
    "both_widths",
    "code_block",
    "html_page",
    "html_table",
    "plan_page",
    "source_and_result",
    "warnings_of",
]

_PAGE = (
    ".ferry{font:14px/1.45 system-ui,sans-serif;max-width:60em;container-type:inline-size}"
    ".ferry p{margin:.3em 0;overflow-wrap:anywhere}"
    ".ferry .value{white-space:nowrap}"
    ".ferry p .value{display:inline-block;max-width:100%;overflow:auto "
    "hidden;vertical-align:bottom}"
    ".ferry .scroll{overflow-x:auto;max-width:100%}"
    ".ferry .scroll table{border-collapse:collapse;margin:.5em "
    "0;font-size:13px;table-layout:auto;width:auto}"
    ".ferry .scroll :is(td,th){text-align:left;vertical-align:top;padding:.25em 1em .25em "
    "0;border:0;"
    "background:none;white-space:nowrap;font-size:13px}"
    ".ferry .scroll th{font-weight:600;border-bottom:1px solid}"
    ".ferry .scroll tr{background:none}"
    ".ferry .scroll td.words{white-space:normal;min-width:15em}"
    ".ferry code{font:13px "
    "ui-monospace,monospace;white-space:pre;background:none;color:inherit;padding:0;border:0}"
    ".ferry .warning{border-left:3px solid var(--ferry-source,#d97706);padding-left:.6em}"
    ".ferry figure{margin:.6em 0;overflow:visible}"
    ".ferry .narrow{display:none}"
    "@container (max-width:600px){.ferry .wide{display:none}.ferry .narrow{display:block}}"
)


def html_page(parts: Iterable[str]) -> str:
    """The HTML of a page, from its parts and the style that they need."""
    return f"<div class='ferry'><style>{_PAGE}{STYLE}</style>{''.join(parts)}</div>"


def both_widths(draw: Callable[[Literal[64, 32]], str]) -> str:
    """A wide and a narrow picture; the width of the page decides which one is shown."""
    return f"<figure class='wide'>{draw(64)}</figure><figure class='narrow'>{draw(32)}</figure>"


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table. The last cell of each row is prose, which may be broken into lines."""
    head = "".join(f"<th>{xml_text(head)}</th>" for head in heads)
    lines = (
        "".join(f"<td>{cell}</td>" for cell in cells) + f"<td class='words'>{words}</td>"
        for *cells, words in rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<div class='scroll' tabindex='0'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def code_block(text: str) -> str:
    """Code as HTML."""
    return f"<code>{xml_text(text)}</code>"


def source_and_result(source: TensorInfo, result: TensorInfo) -> str:
    """The source and the result in one line, which may be broken only between their parts."""
    return f"{_spans_of_values(source)} &rarr; {_spans_of_values(result)}"


def warnings_of(warnings: Iterable[str]) -> str:
    """The warnings of a plan."""
    return "".join(f"<p class='warning'><b>Warning:</b> {xml_text(text)}</p>" for text in warnings)


def plan_page(plan: Plan, summary: str) -> str:
    """A plan as HTML: source and result, memory, and steps."""

    def draw(width: Literal[64, 32]) -> str:
        return memory_picture(plan, width=width, styled=False)

    rows = [
        (str(number), code_block(step.code), _bytes_and_way(step), escape(step.why))
        for number, step in enumerate(plan.steps, 1)
    ]
    if rows:
        steps = html_table(("", "step", "bytes", "why"), rows)
    else:
        steps = "<p>Nothing to do: x is returned as it is.</p>"
    head = f"<p><b>{source_and_result(plan.source, plan.result)}</b></p><p>{xml_text(summary)}</p>"
    return html_page([head, both_widths(draw), steps, warnings_of(plan.warnings)])


def _spans_of_values(info: TensorInfo) -> str:
    values = re.split(r", (?![^\[]*\])", str(info))
    return ", ".join(f"<span class='value'>{xml_text(value)}</span>" for value in values)


def _bytes_and_way(step: Step) -> str:
    if step.copies:
        return f"{size_text(step.bytes)} {WAYS[step.path]}"
    return "none move"
