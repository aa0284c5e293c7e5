"""`tensorferry explain`: a plan, and the code for it in colours."""

from __future__ import annotations

import io
import sys
import textwrap
import tokenize
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rich.text import Text

import tensorferry as ferry

from ..backends.registry import NAMES, backend_named, backends, known, outside
from ..core.devices import device_name
from ..core.dtype_names import name_of
from ..core.dtypes import CASTINGS, KEYWORDS
from ..core.layout import size_text
from ..planning.preconditions import refuse_place
from ..planning.step import WAYS
from .console import (
    EXIT_FAILED,
    EXIT_USAGE,
    err,
    fact_lines,
    line_width,
    out,
    print_json,
    printable,
    prose,
    report_width,
    show_lines,
    wrapped,
)
from .outcome import as_options, error_data, show_error, unknown_word

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from .. import Plan, TensorInfo
    from .console import Cell


__all__ = ["UsageError", "folded", "hypothetical", "print_code", "run", "understood"]


# -- code in colours -------------------------------------------------------------------------------


def print_code(
    console: Console, code: str, margin: str, *, first: str | None = None, is_typed: bool = True
) -> None:
    """Print Python code after a margin: with colours only on a terminal, and in a file as it is.

    In a file, a broken line would count as two.

    Args:
        console: The console.
        code: One or more lines.
        margin: The text before each line.
        first: The text before the first line, if it differs.
        is_typed: Whether people type it, so that a line that Python does not allow to break stays
            whole.
    """
    from rich.text import Text

    width = line_width(sys.stdout)
    if width is not None:
        code = folded(code, width - len(margin))
    lines = [Text(line) for line in code.split("\n")]
    if console.is_terminal:
        from rich.syntax import Syntax

        looks = Syntax("", "python", theme="ansi_dark", background_color="default")
        lines = list(looks.highlight(code).split())
    if width is not None and not is_typed:
        lines = [part for line in lines for part in wrapped(line, width - len(margin))]
    for number, line in enumerate(lines):
        before = margin if number or first is None else first
        console.print(Text.assemble(before, line), soft_wrap=True)


def folded(code: str, width: int) -> str:
    r"""Break code into lines of at most `width`, as far as brackets and comments allow it.

    >>> print(folded("y = torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)", 30))
    y = torch.from_numpy(
        x.view(np.int16)
    ).view(torch.bfloat16)
    """
    return "\n".join(part for line in code.split("\n") for part in _parts(line, width))


def _parts(line: str, width: int, indent: str = "") -> list[str]:
    if len(indent + line) <= width:
        return [indent + line]
    if line.startswith("#"):
        return textwrap.wrap(
            line, width, subsequent_indent="# ", break_long_words=False, break_on_hyphens=False
        )
    first, word, second = line.partition(" or ")
    if indent and word and first.count("(") == first.count(")") and not {"'", '"'} & set(first):
        return [*_parts(first, width, indent), *_parts(f"or {second}", width, indent)]
    pairs = [(start, end) for start, end in _brackets(line) if end > start]
    if not pairs:
        return [indent + line]
    fitting = [(start, end) for start, end in pairs if len(indent) + start <= width]
    start, end = max(fitting or pairs[:1], key=lambda pair: pair[1] - pair[0])
    return [
        indent + line[:start],
        *(
            part
            for argument in _arguments(line[start:end])
            for part in _parts(argument, width, indent + "    ")
        ),
        *_parts(line[end:], width, indent),
    ]


def _brackets(line: str) -> list[tuple[int, int]]:
    """The start and end of the contents of each outermost pair of brackets."""
    pairs: list[tuple[int, int]] = []
    open_at: list[int] = []
    for text, place in _operators(line):
        if text in "([{":
            open_at.append(place + 1)
        elif text in ")]}" and open_at:
            start = open_at.pop()
            if not open_at:
                pairs.append((start, place))
    return pairs


def _arguments(inside: str) -> list[str]:
    """The parts between commas outside of inner brackets, each with its comma."""
    parts, depth, start = [], 0, 0
    for text, place in _operators(inside):
        depth += (text in "([{") - (text in ")]}")
        if text == "," and not depth:
            parts.append(inside[start : place + 1].strip())
            start = place + 1
    return [part for part in (*parts, inside[start:].strip()) if part]


def _operators(line: str) -> list[tuple[str, int]]:
    """The operators of a line, and their positions, without those in strings."""
    operators: list[tuple[str, int]] = []
    # A part of a line may open a bracket without closing it, which is an error here.
    with suppress(tokenize.TokenError, SyntaxError):
        operators.extend(
            (token.string, token.start[1])
            for token in tokenize.generate_tokens(io.StringIO(line).readline)
            if token.type == tokenize.OP and token.start[0] == 1
        )
    return operators


# -- explain ---------------------------------------------------------------------------------------

_GRADS = ("detach", "error")


class UsageError(ValueError):
    """An option has a wrong value; `option` is its name."""

    def __init__(self, message: str, option: str) -> None:
        super().__init__(message)
        self.option = option


def hypothetical(
    framework: str,
    *,
    shape: str,
    dtype: str | None,
    device: str | None,
    strides: str | None,
    **flags: Any,
) -> TensorInfo:
    """The description of the tensor in the options.

    For Python it is a nested list of floats; or, with a dtype, a typed buffer such as
    `array.array`.

    Raises:
        UsageError: An option has a wrong value; `option` is its name.
    """
    lengths = _integers(shape, "--shape")
    framework = _known(framework, "--from")
    if any(length < 0 for length in lengths):
        raise UsageError(f"a length cannot be negative: {shape}", "--shape")
    if strides is None:
        steps = None
    else:
        steps = _integers(strides, "--strides")
    if steps is not None and len(steps) != len(lengths):
        raise UsageError(f"{len(steps)} strides for {len(lengths)} axes", "--strides")
    if dtype is not None:
        _named(dtype, "--dtype")
    if device is not None:
        _named(device, "--device")
    if framework == "python":
        kind = ferry.describe([0.0] if dtype is None else bytearray(1))
        flags.update(kind=kind.kind, weak_dtype=kind.weak_dtype)
        dtype = dtype or kind.dtype
    return ferry.TensorInfo(framework, lengths, dtype or "float32", device, steps, **flags)


def understood(
    target: str,
    *,
    dtype: str | None,
    casting: str | None,
    device: str | None,
    grad: str,
    options: list[str],
) -> str:
    """The target's canonical name, if all words are known to some conversion.

    Raises:
        UsageError: One of them is unknown.
    """
    target = _known(target, "--to")
    if casting is not None and casting not in CASTINGS:
        raise UsageError(unknown_word(casting, CASTINGS), "--casting")
    if dtype is not None and dtype not in KEYWORDS:
        _named(dtype, "--to-dtype")
    if device is not None:
        _named(device, "--to-device")
    if grad not in _GRADS:
        raise UsageError(unknown_word(grad, _GRADS), "--grad")
    abilities = backend_named(target).capabilities
    known = sorted(abilities.options.names | abilities.options.finishers)
    for option in options:
        if option not in known:
            if known:
                own = f"; it has {', '.join(known)}"
            else:
                own = ""
            raise UsageError(f"{target} has no option {option!r}{own}", "--option")
    return target


def run(
    info: TensorInfo, target: str, keywords: dict[str, Any], *, html: Path | None, as_json: bool
) -> int:
    """Print the plan, or why there is none; the exit code."""
    about = "explain --from"  # until it is sure that there can be such a tensor, the error is about that
    try:
        refuse_place(info, backend_named(info.framework))
        about = "explain"
        plan = ferry.explain(info, target, **keywords)
    except ferry.ConversionError as error:
        if as_json:
            print_json(
                {"source": info.to_dict(), "target": target, "error": error_data(error, about)}
            )
        else:
            show_error(error, about)
        return EXIT_FAILED
    if html is not None:
        try:
            html.write_text(_page(plan), encoding="utf-8")
        except OSError as error:
            show_error(error, "explain")
            return EXIT_USAGE
        err().print(Text(f"wrote {printable(str(html))}", style="quiet"), soft_wrap=True)
    if as_json:
        print_json(plan.to_dict())
    else:
        _print_plan(out(), plan)
    return 0


def _print_steps(console: Console, plan: Plan) -> None:
    """Each step on lines of its own: the code, then why it is there, and what it costs."""
    margin = " " * (len(str(len(plan.steps))) + 2)
    for number, step in enumerate(plan.steps, 1):
        print_code(
            console, step.code, margin, first=f"{number:>{len(margin) - 2}}  ", is_typed=False
        )
        if step.copies:
            cost = f"{size_text(step.bytes)} {WAYS[step.path]}"
        else:
            cost = "no copy"
        words = Text.assemble(step.why, "  ", (f"[{cost}]", "copied" if step.copies else "quiet"))
        lines = wrapped(words, report_width() - len(margin))
        show_lines([[(margin, 0), (line, 0)] for line in lines], [""])
    if not plan.steps:
        prose("nothing to do: x is returned as it is")


def _print_plan(console: Console, plan: Plan) -> None:
    if plan.shares_memory:
        memory = "shared with the source", "shared"
    else:
        memory = "a copy", "copied"
    marks = [
        ("read-only" if plan.result.writable is False else "", "warn"),
        ("" if plan.keeps_dtype else f"dtype becomes {plan.result.dtype}", "warn"),
        (_gradient(plan), "warn"),
    ]
    words = [memory, *(mark for mark in marks if mark[0])]
    told: list[tuple[Cell, Cell]] = [
        ("from", Text(str(plan.source), "name")),
        ("to", Text(str(plan.result), "name")),
        ("memory", Text(", ").join(Text(word, style) for word, style in words)),
        ("why", plan.reason),
        ("copied", size_text(plan.bytes_copied)),
    ]
    show_lines(list(fact_lines(told, report_width(), margin=0)), ["quiet", ""])
    prose()
    _print_steps(console, plan)
    for warning in plan.warnings:
        prose()
        prose(Text.assemble(("careful: ", "warn"), warning))
    prose()
    prose(Text("by hand", "quiet"))
    print_code(console, plan.code, "  ")


def _gradient(plan: Plan) -> str:
    if not plan.source.requires_grad:
        return ""
    if plan.keeps_gradient:
        return "stays in the autograd graph"
    return "leaves the autograd graph"


def _page(plan: Plan) -> str:
    title = f"{plan.source.framework} to {plan.result.framework}"
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8"><meta '
        'name="color-scheme" content="light dark">\n'
        f'<meta name="viewport" content="width=device-width"><title>{title}</title></head>\n'
        f"<body>\n{plan._repr_html_()}\n</body></html>\n"
    )


def _integers(text: str, option: str) -> tuple[int, ...]:
    listed = text.strip("()[] ").removesuffix(",")
    try:
        return tuple(int(part) for part in listed.split(",")) if listed else ()
    except ValueError:
        raise UsageError(f"{text!r} is not a list of whole numbers such as 3,4", option) from None


def _named(name: str, option: str) -> None:
    """Raise for a wrong name of a dtype or a device."""
    try:
        name_of(name) if option.endswith("dtype") else device_name(name)
    except ferry.ConversionError as error:
        if option.startswith("--to-"):
            about = "explain"
        else:
            about = "explain --from"
        if error.advice is not None:
            hint = f" Hint: {as_options(error.advice, about)}"
        else:
            hint = ""
        raise UsageError(error.message + hint, option) from None


def _known(framework: str, option: str) -> str:
    """The canonical name of a framework. For an unknown name, outside packages are looked up."""
    frameworks = known()
    framework = NAMES.get(framework, framework)
    if framework not in frameworks:
        frameworks = backends()
    names = [
        name
        for name, backend in frameworks.items()
        if option == "--from" or backend.capabilities.dtypes.held
    ]
    if framework in names:
        broken = None
    else:
        broken = outside.failure({framework})
    if broken is not None:
        raise UsageError(broken.message, option)
    if framework not in names:
        raise UsageError(unknown_word(framework, names), option)
    return framework
