"""What the page answers to a setting, as HTML: made when the site is built, and in the page by Pyodide.

It needs `planning/`, `core/` and what frameworks declare, which need the standard library alone.
"""

from __future__ import annotations

import json
from functools import reduce
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tensorferry.backends.declared import declarations, explain, stand_in
from tensorferry.core.layout import size_text
from tensorferry.errors import ConversionError
from tensorferry.planning.pictures.canvas import WORDS as PICTURES
from tensorferry.planning.pictures.memory import memory_picture

from .sentences import said as in_words
from .settings import (
    CHOICES,
    DEFAULTS,
    NAMES,
    OPTIONS,
    ImpossibleError,
    Setting,
    given,
    keywords,
    read,
    tensor,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tensorferry.core.info import TensorInfo
    from tensorferry.planning.plan import Plan

__all__ = ["Answer", "answer", "answer_json", "call", "refused", "said_of_writes"]

_FUNCTIONS = {
    "python": "to_list",
    **{name: f"to_{name}" for name in ("numpy", "torch", "tensorflow", "jax")},
}
_SOURCE = ("dtype", "shape", "layout", "device", "requires")
"""Controls of the tensor, besides its framework: what is impossible there is taken back."""
_ASIDE = {"from": _SOURCE, "to": OPTIONS}
"""What a framework that is chosen may put aside, and another one bring back."""
_WIDTHS = (("wide", 64), ("narrow", 32))
"""Bytes in a row of a picture; the page shows the one that there is room for."""


class Answer(NamedTuple):
    """What the page shows of a setting.

    Args:
        query: The setting, as it stands in the address.
        values: The value of each control.
        impossible: By control and choice: why it cannot be chosen.
        said: The answer in a line.
        note: What has been changed besides.
        html: The answer whole.
        wished: What the reader had chosen where something else had to be put, by control: see
            `answer`.
    """

    query: str
    values: dict[str, str]
    impossible: dict[str, dict[str, str]]
    said: str
    note: str
    html: str
    wished: dict[str, str]


def answer_json(query: str, words: str, changed: str = "", wished: str = "{}") -> str:
    """`answer` with plain text in and out: what is asked from JavaScript."""
    from urllib.parse import parse_qsl

    stand_in()
    setting = read(parse_qsl(query, keep_blank_values=True))
    return json.dumps(answer(setting, json.loads(words), changed, json.loads(wished))._asdict())


def answer(
    setting: Setting,
    words: Mapping[str, str],
    changed: str = "",
    wished: Mapping[str, str] = MappingProxyType({}),
) -> Answer:
    """The answer to a setting.

    Args:
        setting: The value of each control.
        words: The page's words in the reader's language.
        changed: The control that has been changed; others that are impossible with its value are
            put right.
        wished: The answer's before this one: with another framework, what had to be put right comes
            back.
    """
    left = {name: value for name, value in wished.items() if name != changed}
    asked = Setting(
        {**setting, **{name: left.pop(name) for name in _ASIDE.get(changed, ()) if name in left}}
    )
    found_right = _put_right(asked, changed)
    left |= {name: asked[name] for name in asked if found_right[name] != asked[name]}
    put_right = [name for name in setting if found_right[name] != setting[name]]
    setting = found_right
    named = [words.get(name, f"{name}=") for name in put_right]
    note = words["adjusted"].format(what=_listed(named, words)) if put_right else ""
    found = refused(setting, words)
    if found is not None:
        said, html = _refusal(found, setting, words)
    else:
        plan = explain(tensor(setting), setting["to"], **keywords(setting))
        said, html = _plan(plan, setting, words)
    return Answer(setting.query, dict(setting), _impossible(setting, words), said, note, html, left)


# -- what is possible -----------------------------------------------------------------------------


class _Refused(NamedTuple):
    kind: str
    message: str
    hint: str | None = None


def refused(setting: Setting, words: Mapping[str, str]) -> _Refused | None:
    """Why a setting has no plan; ``None``: it has one."""
    found = _absent(setting, words)
    if found is not None:
        return found
    try:
        explain(tensor(setting), setting["to"], **keywords(setting))
    except ConversionError as error:
        return _Refused(type(error).__name__, error.message, error.hint)
    except (TypeError, ValueError) as error:
        return _Refused(type(error).__name__, str(error))
    return None


def _absent(setting: Setting, words: Mapping[str, str]) -> _Refused | None:
    """Why there is no such tensor; ``None``: there is one."""
    try:
        tensor(setting)
    except ImpossibleError as found:
        return _Refused("", words[found.word].format(**found.facts))
    except ConversionError as error:
        return _Refused(type(error).__name__, error.message, error.hint)
    return None


def _impossible(setting: Setting, words: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """By control and choice, why there is no such tensor, or no such option; beside the setting as it is."""
    found: dict[str, dict[str, str]] = {}
    for control in ("dtype", "layout", "device", "requires"):
        for choice in CHOICES[control]:
            why = _absent(Setting({**setting, control: choice}), words)
            if why is not None:
                found.setdefault(control, {})[choice] = in_words(why.message, words)
    options = declarations()[setting["to"]].capabilities.options
    for option in OPTIONS:
        if option not in options.names | options.finishers:
            asked = Setting({**DEFAULTS, "to": setting["to"], option: "1"})
            why = refused(asked, words)
            found[option] = {"1": "" if why is None else in_words(why.message, words)}
    return found


def _put_right(setting: Setting, changed: str) -> Setting:
    """The setting with what is impossible beside the control that was changed put as it can be."""
    if changed == "to":
        known = declarations()[setting["to"]].capabilities.options
        unknown = [name for name in OPTIONS if name not in known.names | known.finishers]
        setting = Setting({**setting, **dict.fromkeys(unknown, "")})
    elif changed in ("from", *_SOURCE) and not _exists(setting):
        usual = Setting(
            {
                **setting,
                **{name: DEFAULTS[name] for name in _SOURCE if name not in (changed, "shape")},
            }
        )
        for name in [name for name in _SOURCE if name not in (changed, "shape")]:
            choices = (DEFAULTS[name], "float64", *CHOICES[name])
            usual[name] = next(
                (each for each in choices if _exists(Setting({**usual, name: each}))), usual[name]
            )
        if not _exists(usual):
            return setting
        # One after the other, what the reader has chosen is put back as far as it can be.
        for name in _SOURCE:
            kept = Setting({**usual, name: setting[name]})
            if _exists(kept):
                usual = kept
        setting = usual
    return setting


def _exists(setting: Setting) -> bool:
    try:
        tensor(setting)
    except (ImpossibleError, ConversionError):
        return False
    return True


# -- in words -------------------------------------------------------------------------------------


def call(setting: Setting) -> str:
    """The one call, as a person types it."""
    said = [f"{name}={_literal(value)}" for name, value in keywords(setting).items()]
    to = setting["to"]
    if to in _FUNCTIONS:
        return f"y = ferry.{_FUNCTIONS[to]}({', '.join(['x', *said])})"
    return f"y = ferry.convert({', '.join(['x', _literal(to), *said])})"


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def said_of_writes(plan: Plan, words: Mapping[str, str]) -> dict[str, str]:
    """What becomes of a write to the source, and of one to the result: who sees it, or why nobody may."""
    source, result, shared = plan.source, plan.result, plan.shares_memory
    one = [words["same-object"]] if shared and not plan.steps else []
    if source.writable is False:
        of_source = [_closed(source, "x", words)]
    else:
        shows = "x-shows" if result.writable is not False else "x-shows-through"
        of_source = [words[shows if shared else "x-stays"], *_remarks(source, words)]
    if result.writable is False:
        reason = in_words(plan.reason.removeprefix("read-only: "), words)
        of_result = [_closed(result, "y", words).format(reason=reason)]
    else:
        of_result = [words["y-shows" if shared else "y-stays"]]
    return {"source": " ".join(one + of_source), "result": " ".join(one + of_result)}


def _closed(info: TensorInfo, name: str, words: Mapping[str, str]) -> str:
    """Why nobody can write through a tensor."""
    if declarations()[info.framework].capabilities.memory.writable:
        return words[f"{name}-closed"]
    return words[f"{name}-immutable"].replace("{framework}", NAMES[info.framework])


def _remarks(info: TensorInfo, words: Mapping[str, str]) -> list[str]:
    """What else is to be known of a write to a source."""
    remarks = []
    if info.overlaps_itself:
        together = [
            length for length, step in zip(info.shape, info.strides, strict=True) if step == 0
        ]
        remarks.append(words["x-many"].format(count=together[0]))
    if info.requires_grad:
        remarks.append(words["x-graph"])
    return remarks


def _verdict(plan: Plan, words: Mapping[str, str]) -> tuple[str, str]:
    """What becomes of the memory: the key of its word, and what is copied over which path."""
    copied = [
        words[f"copied-{step.path}"].format(size=size_text(step.bytes))
        for step in plan.steps
        if step.copies
    ]
    kind = "copied" if not plan.shares_memory else "shared" if plan.steps else "same"
    return kind, _listed(copied, words) or words["copied-nothing"]


def _listed(parts: Sequence[str], words: Mapping[str, str]) -> str:
    """One after the other, as the language lists them."""
    return (
        reduce(lambda before, after: words["listed"].format(before=before, after=after), parts)
        if parts
        else ""
    )


# -- as HTML --------------------------------------------------------------------------------------


def _refusal(found: _Refused, setting: Setting, words: Mapping[str, str]) -> tuple[str, str]:
    kind = "refused" if _exists(setting) else "absent"
    parts = [f"<h2 class='pg-verdict {kind}'>{escape(words[kind])}</h2><p class='pg-error'>"]
    parts += [f"<code>{found.kind}</code> "] if found.kind else []
    parts.append(f"<span>{escape(found.message)}</span></p>")
    if found.hint is not None:
        parts.append(
            f"<p class='pg-hint'><b>{escape(words['hint'])}</b> <code>{escape(found.hint)}</code></p>"
        )
    plain = Setting(
        {**DEFAULTS, **{name: setting[name] for name in ("from", "shape", "to", *_SOURCE)}}
    )
    if keywords(setting) and refused(plain, words) is None:
        plan = explain(tensor(plain), plain["to"])
        of_plan, copied = _verdict(plan, words)
        verdict = words["answer"].format(
            what=words["without"], why=_listed((words[of_plan], copied), words)
        )
        parts.append(f"<h3>{escape(verdict)}</h3>{_memory(plan, words)}")
    return words["answer"].format(
        what=words[kind], why=found.message
    ), f"<div class='pg-top'>{''.join(parts)}</div>"


def _plan(plan: Plan, setting: Setting, words: Mapping[str, str]) -> tuple[str, str]:
    kind, copied = _verdict(plan, words)
    careful = escape(words["careful"])
    warnings = [
        f"<p class='pg-careful'><b>{careful}</b> {_said(text, words)}</p>" for text in plan.warnings
    ]
    parts = [
        f"<h2 class='pg-verdict {kind}'>{escape(words[kind])} <small>{escape(copied)}</small></h2>",
        f"<p class='pg-reason'><b>{escape(words['reason'])}</b> {_said(plan.reason, words)}</p>",
        *warnings,
        _memory(plan, words),
    ]
    rest = f"<div class='pg-rest'>{_steps(plan, words)}{_code(plan, setting, words)}</div>"
    verdict = _listed((words[kind], copied), words)
    said = words["answer"].format(what=verdict, why=in_words(plan.reason, words))
    return said, f"<div class='pg-top'>{''.join(parts)}</div>{rest}"


def _said(text: str, words: Mapping[str, str]) -> str:
    """What the planner says, in the reader's language, with the planner's own sentence, by which it can be searched."""
    told = in_words(text, words)
    title = "" if told == text else f" title='{escape(text)}'"
    return f"<span{title}>{escape(told)}</span>"


def _memory(plan: Plan, words: Mapping[str, str]) -> str:
    """The pictures, and the buttons that write."""
    figures = []
    language = {
        field: words.get(f"picture-{field}", english)
        for field, english in PICTURES._asdict().items()
    }
    pictures = PICTURES._replace(**language)
    for written in (None, "source", "result"):
        for name, width in _WIDTHS:
            drawn = memory_picture(plan, width=width, written=written, styled=False, words=pictures)
            marks = f"data-written='{written or ''}'{' hidden' if written else ''}"
            figures.append(f"<div class='pg-figure {name}' {marks}>{drawn}</div>")
    said = said_of_writes(plan, words)
    buttons = [
        f"<button type='button' data-write='{side}' aria-pressed='false' data-said='{escape(said[side])}'>"
        f"{escape(words[word])}</button>"
        for side, word in (("source", "write-x"), ("result", "write-y"))
    ]
    return (
        f"<div class='pg-picture'>{''.join(figures)}</div>"
        f"<div class='pg-write' role='group' aria-label='{escape(words['write'])}'>{''.join(buttons)}"
        f"<p role='status' data-said=''>{escape(words['write-start'])}</p></div>"
    )


def _steps(plan: Plan, words: Mapping[str, str]) -> str:
    """The steps, and the buttons that walk them."""
    heading = f"<h3>{escape(words['steps'])}</h3>"
    if not plan.steps:
        return f"<section class='pg-steps'>{heading}<p>{escape(words['no-steps'])}</p></section>"
    rows = []
    for number, step in enumerate(plan.steps, 1):
        cost = (
            words[f"copied-{step.path}"].format(size=size_text(step.bytes))
            if step.copies
            else words["no-bytes"]
        )
        so_far = plan._replace(steps=plan.steps[:number], modules=()).code
        where = words["step-of"].format(number=number, count=len(plan.steps))
        rows.append(
            f"<li data-where='{escape(where)}'><code>{escape(step.code)}</code> {_said(step.why, words)} "
            f"<small>{escape(cost)}</small><pre hidden>{escape(so_far)}</pre></li>"
        )
    return (
        f"<section class='pg-steps'>{heading}<div class='pg-walk'>"
        f"<button type='button' data-walk='-1' disabled>{escape(words['back'])}</button>"
        f"<button type='button' data-walk='1'>{escape(words['forward'])}</button>"
        f"<span role='status' data-before='{escape(words['before'])}'>{escape(words['before'])}</span></div>"
        f"<ol>{''.join(rows)}</ol></section>"
    )


def _code(plan: Plan, setting: Setting, words: Mapping[str, str]) -> str:
    """What can be pasted: the tensor, the one call, and the same by hand."""
    one_call = f"import tensorferry as ferry\n{call(setting)}"
    blocks = [
        f"<div class='pg-paste'><h4>{escape(words[word])}</h4>"
        f"<button type='button' data-paste='{escape(words['pasted'])}'>{escape(words['paste'])}</button>"
        f"<pre tabindex='0'>{escape(code)}</pre></div>"
        for word, code in (
            ("code-given", given(setting)),
            ("code-call", one_call),
            ("code-hand", plan.code),
        )
    ]
    return f"<section class='pg-code'><h3>{escape(words['code'])}</h3>{''.join(blocks)}</section>"
