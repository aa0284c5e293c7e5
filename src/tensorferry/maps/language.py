"""Read and write a table as TOML that a person reads and writes."""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING, Any

from ..core.dtypes import DTYPES
from ..errors import FileFormatError, shown
from .expressions import (
    Arithmetic,
    AxisSlice,
    Cast,
    Concatenation,
    Fill,
    Moves,
    Reference,
    Same,
    Stack,
    View,
    WrittenMove,
)
from .formulas import IDENTIFIER, LARGEST, formula
from .names import template
from .patterns import pattern
from .rules import Rule, refuse_words
from .table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .expressions import Expression

__all__ = ["MOST_BYTES", "read_table", "written_table"]

MOST_BYTES = 8 << 20
"""The longest text of a table."""
_MOST_RULES = 150_000
_MOST_MOVES = 1_000_000
_MOST_PARTS = 1 << 14
_DEEPEST = 8
_MOST_AXES = 64
_LONGEST_WORD = 200
_WIDTH = 100
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def read_table(text: str) -> Table:
    """Read a table.

    Raises:
        FileFormatError: It is no TOML, or no table.
    """
    if len(text) > MOST_BYTES:
        raise FileFormatError(f"A table of {len(text):,} characters is too long.")
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise FileFormatError(f"The table is no TOML: {error}.") from None
    return _table(document)


def _table(document: Mapping[str, Any]) -> Table:
    unknown = [key for key in document if key not in ("map", "dims", "words", "drop", "about")]
    if unknown:
        raise FileFormatError(
            f"A table has [map], [dims], [words] and drop, not {shown(unknown[0])}."
        )
    about, drop = document.get("about", ""), document.get("drop", [])
    if not isinstance(about, str):
        raise FileFormatError(f"about is text, not {shown(about)}.")
    if not isinstance(drop, list):
        raise FileFormatError(f"drop is a list of names, not {shown(drop)}.")
    rules = document.get("map", {})
    if not isinstance(rules, dict) or len(rules) > _MOST_RULES:
        raise FileFormatError("[map] has a name for each tensor, at most 150,000.")
    reader = _Reader()
    dims, words = _dims(document.get("dims", {})), _words(document.get("words", {}))
    both = dims.keys() & words.keys()
    if both:
        raise FileFormatError(f"{min(both)} is in [dims] and in [words]: give one another name.")
    table = Table(
        tuple([reader.rule(target, value) for target, value in rules.items()]),
        tuple([reader.reference(_text(dropped, "drop")) for dropped in drop]),
        dims,
        about,
        words,
    )
    refuse_words(table.rules, table.drop, table.words)
    return table


def _dims(given: Any) -> dict[str, tuple[str | int, ...]]:
    if not isinstance(given, dict):
        raise FileFormatError(f"[dims] has a name for each length, not {shown(given)}.")
    dims: dict[str, tuple[str | int, ...]] = {}
    for name, value in given.items():
        if IDENTIFIER.fullmatch(name) is None:
            raise FileFormatError(
                f"{shown(name)} is no name for a length: it has letters and digits."
            )
        ways = value if isinstance(value, list) else [value]
        for way in ways:
            if type(way) is int and 0 <= way <= LARGEST:
                continue
            if not isinstance(way, str):
                raise FileFormatError(
                    f"The length {name} is a number or a key of config.json, not {shown(way)}."
                )
            if way:
                formula(way)
        dims[name] = tuple(ways)
    return dims


def _words(given: Any) -> dict[str, dict[str, str]]:
    if not isinstance(given, dict):
        raise FileFormatError(f"[words] has a name for words, not {shown(given)}.")
    words: dict[str, dict[str, str]] = {}
    for name, value in given.items():
        if IDENTIFIER.fullmatch(name) is None:
            raise FileFormatError(f"{shown(name)} is no name for words: it has letters and digits.")
        if isinstance(value, list):
            pairs = [(single_word, single_word) for single_word in value]
        elif isinstance(value, dict):
            pairs = [*value.items()]
        else:
            pairs = []
        if not pairs:
            raise FileFormatError(
                f'The words {name} are a list, or a table of theirs by ours, such as ["weight", '
                f'"bias"] or {{ norm = "ln" }}, not {shown(value)}.'
            )
        for pair in pairs:
            for word in pair:
                if not isinstance(word, str) or not 0 < len(word) <= _LONGEST_WORD:
                    raise FileFormatError(
                        f"The words {name} have {shown(word)}, which is no word: text of 1 to "
                        f"{_LONGEST_WORD} characters is."
                    )
        words[name] = dict(pairs)
        if len(words[name]) < len(pairs):
            raise FileFormatError(f"The words {name} have one of them twice.")
    return words


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise FileFormatError(f"{where} has {shown(value)}, where a name has to be.")
    return value


_KEYS = {
    "concat": ("axis", "pattern"),
    "stack": ("of", "axis", "pattern"),
    "same": (),
    "cast": ("of", "from"),
    "view": ("of", "from"),
    "add": ("of",),
    "scale": ("of",),
    "fill": ("shape", "dtype"),
    "moves": ("shape",),
    "reason": (),
    "of": (),
}
"""The forms, each with its other keys."""


class _Reader:
    """Reads rules, and counts what stands in them."""

    def __init__(self) -> None:
        self._count = 0

    def rule(self, target: str, value: Any) -> Rule:
        """A rule."""
        name = template(target)
        assumed, reason = False, None
        if isinstance(value, dict):
            value = dict(value)
            assumed = value.pop("assumed", False)
            if not isinstance(assumed, bool):
                raise FileFormatError(f"{shown(target)}: assumed is true or false.")
            reason = value.pop("reason", None)
            if reason is not None:
                if not isinstance(reason, str) or value:
                    raise FileFormatError(f"{shown(target)}: a reason stands alone, as text.")
                return Rule(name, None, assumed, reason)
        try:
            return Rule(name, self.expression(value, 0), assumed, None)
        except FileFormatError as error:
            raise FileFormatError(f"{shown(target)}: {error.message}") from None

    def expression(self, value: Any, depth: int) -> Expression:
        """What a tensor is made of."""
        if depth > _DEEPEST:
            raise FileFormatError("it is nested too deeply.")
        if isinstance(value, str):
            return self.reference(value)
        if not isinstance(value, dict):
            raise FileFormatError(f"{shown(value)} says no tensor.")
        form = next((key for key in _KEYS if key in value), None)
        if form is None:
            raise FileFormatError(f"{shown(value)} has none of {', '.join(_KEYS)}.")
        odd = [key for key in value if key != form and key not in _KEYS[form]]
        if odd:
            raise FileFormatError(f"{form} does not go with {shown(odd[0])}.")
        read = getattr(self, f"_{form}")
        expression: Expression = read(value, depth + 1)
        return expression

    def _of(self, value: dict[str, Any], depth: int) -> Expression:
        if "of" not in value:
            raise FileFormatError("of= is missing, which says the tensor.")
        return self.expression(value["of"], depth)

    def _parts(self, given: Any, depth: int) -> tuple[Expression, ...]:
        if not isinstance(given, list) or not given:
            raise FileFormatError(f"{shown(given)} is no list of tensors.")
        if len(given) > _MOST_PARTS:
            raise FileFormatError(f"a list of {len(given):,} tensors is too long.")
        return tuple([self.expression(part, depth) for part in given])

    def _concat(self, value: dict[str, Any], depth: int) -> Expression:
        return Concatenation(self._parts(value["concat"], depth), _axis(value), _pattern(value))

    def _stack(self, value: dict[str, Any], depth: int) -> Expression:
        index = value["stack"]
        if isinstance(index, str):
            if IDENTIFIER.fullmatch(index) is None:
                raise FileFormatError(f"{shown(index)} is no name for a number.")
            parts: tuple[Expression, ...] = (self._of(value, depth),)
        else:
            if "of" in value:
                raise FileFormatError("a stack of a list has no of=.")
            parts, index = self._parts(index, depth), None
        return Stack(parts, _axis(value), index, _pattern(value))

    def _same(self, value: dict[str, Any], depth: int) -> Expression:
        return Same(self._parts(value["same"], depth))

    def _cast(self, value: dict[str, Any], depth: int) -> Expression:
        return Cast(_dtype(value["cast"]), self._of(value, depth), _before(value))

    def _view(self, value: dict[str, Any], depth: int) -> Expression:
        return View(_dtype(value["view"]), self._of(value, depth), _before(value))

    def _add(self, value: dict[str, Any], depth: int) -> Expression:
        return Arithmetic("add", _number(value["add"]), self._of(value, depth))

    def _scale(self, value: dict[str, Any], depth: int) -> Expression:
        return Arithmetic("scale", _number(value["scale"]), self._of(value, depth))

    def _fill(self, value: dict[str, Any], depth: int) -> Expression:
        del depth
        shape = value.get("shape")
        if not isinstance(shape, list) or len(shape) > _MOST_AXES:
            raise FileFormatError("fill needs shape=, a list of lengths.")
        lengths = tuple([_length(length) for length in shape])
        return Fill(_number(value["fill"]), lengths, _dtype(value.get("dtype", "float32")))

    def _moves(self, value: dict[str, Any], depth: int) -> Expression:
        del depth
        shape = value.get("shape")
        if not isinstance(shape, list) or len(shape) > _MOST_AXES:
            raise FileFormatError("moves need shape=, a list of numbers.")
        lengths = tuple([_whole(length) for length in shape])
        if not isinstance(value["moves"], list):
            raise FileFormatError("moves are a list.")
        self._count += len(value["moves"])
        if self._count > _MOST_MOVES:
            raise FileFormatError(f"the table has more than {_MOST_MOVES:,} moves.")
        return Moves(tuple(map(_move, value["moves"])), lengths)

    def reference(self, text: str) -> Reference:
        """A name, with what is taken of it and how it is rearranged."""
        before, colon, after = text.partition(" : ")
        end = _bracket(before)
        if end is None:
            name, slices = before, ""
        else:
            if not before.endswith("]"):
                raise FileFormatError(f"{shown(text)} has a [ without a ] at its end.")
            name, slices = before[:end], before[end + 1 : -1]
        return Reference(
            template(name),
            _slices(slices, text) if end is not None else (),
            pattern(after) if colon else None,
        )


def _bracket(text: str) -> int | None:
    r"""Where the first [ is that has no \ before it."""
    at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text[at] == "[":
            return at
        at += 1
    return None


def _slices(text: str, whole: str) -> tuple[AxisSlice, ...]:
    slices = []
    for part_text in text.split(","):
        parts = part_text.split(":")
        if len(parts) > 3 or not part_text.strip():
            raise FileFormatError(
                f"{shown(whole)} has no slice in its brackets: {shown(part_text)}."
            )
        values = [formula(part) if part.strip() else None for part in parts]
        if len(parts) == 1:
            slices.append(AxisSlice(values[0], None, None, is_index=True))
            continue
        step = values[2] if len(values) > 2 else None
        if step is not None and (step.number is None or step.number < 1):
            raise FileFormatError(f"{shown(whole)}: a step is a number above 0.")
        slices.append(AxisSlice(values[0], values[1], step))
    if len(slices) > _MOST_AXES:
        raise FileFormatError(f"{shown(whole)} has too many axes.")
    return tuple(slices)


def _axis(value: dict[str, Any]) -> int:
    axis = value.get("axis", 0)
    if type(axis) is not int or not -_MOST_AXES <= axis < _MOST_AXES:
        raise FileFormatError(f"axis is a number, not {shown(axis)}.")
    return axis


def _pattern(value: dict[str, Any]) -> Any:
    text = value.get("pattern")
    if text is None:
        return None
    return pattern(_text(text, "pattern"))


def _dtype(name: Any) -> str:
    if _text(name, "dtype") not in DTYPES:
        raise FileFormatError(f"{shown(name)} is no dtype, such as float32 or bfloat16.")
    return str(name)


def _before(value: dict[str, Any]) -> str | None:
    return _dtype(value["from"]) if "from" in value else None


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise FileFormatError(f"{shown(value)} is no number.")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise FileFormatError(f"{shown(value)} is too large.")
    return value  # type: ignore[no-any-return]


def _whole(value: Any) -> int:
    if type(value) is not int or abs(value) > LARGEST:
        raise FileFormatError(f"{shown(value)} is no whole number.")
    return value


def _length(value: Any) -> Any:
    return formula(value if isinstance(value, str) else str(_whole(value)))


def _move(value: Any) -> WrittenMove:
    if not isinstance(value, list) or len(value) != 4 or not isinstance(value[0], str):
        raise FileFormatError(
            f"{shown(value)} is no move: [source, sizes, [start, steps…], [start, steps…]]."
        )
    sizes, target, of = [
        tuple(map(_whole, numbers)) if isinstance(numbers, list) else () for numbers in value[1:]
    ]
    if len(sizes) > _MOST_AXES or not len(sizes) + 1 == len(target) == len(of):
        raise FileFormatError(
            f"{shown(value)} is no move: [source, sizes, [start, steps…], [start, steps…]]."
        )
    if min(sizes, default=1) < 1:
        raise FileFormatError(f"{shown(value)} has a length below 1.")
    return WrittenMove(template(value[0]), sizes, target, of)


# -- write -----------------------------------------------------------------------------------------


def written_table(table: Table) -> str:
    """The text of a table, which `read_table` reads to an equal one."""
    lines = []
    if table.about:
        lines.append(f"about = {_quoted(table.about)}")
    if table.drop:
        lines.append(f"drop = [{', '.join(_quoted(str(reference)) for reference in table.drop)}]")
    if table.dims:
        lines += ["", "[dims]"] if lines else ["[dims]"]
        for name, ways in table.dims.items():
            words = [_quoted(way) if isinstance(way, str) else str(way) for way in ways]
            lines.append(f"{name} = {words[0] if len(words) == 1 else _listed(words)}")
    for line in _written_words(table.words):
        lines += ["", line] if lines and line.startswith("[words") else [line]
    lines += ["", "[map]"] if lines else ["[map]"]
    for rule in table.rules:
        lines.append(f"{_quoted(str(rule.target))} = {_rule(rule)}")
    return "\n".join(lines) + "\n"


def _written_words(words: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield the lines of [words]: those that are the same on both sides as lists, first."""
    alike = [name for name, pairs in words.items() if all(a == b for a, b in pairs.items())]
    if alike:
        yield "[words]"
    for name in alike:
        line = f"{name} = {_listed(map(_quoted, words[name]))}"
        if len(line) <= _WIDTH:
            yield line
            continue
        yield f"{name} = ["
        for word in words[name]:
            yield f"    {_quoted(word)},"
        yield "]"
    for name, pairs in words.items():
        if name in alike:
            continue
        yield f"[words.{name}]"
        for ours, theirs in pairs.items():
            key = ours if _BARE_KEY.fullmatch(ours) else _quoted(ours)
            yield f"{key} = {_quoted(theirs)}"


def _rule(rule: Rule) -> str:
    if rule.expression is None:
        return f"{{ reason = {_quoted(rule.reason or '')} }}"
    text = written_expression(rule.expression)
    if not rule.assumed:
        return text
    if text.startswith('"'):
        return f"{{ of = {text}, assumed = true }}"
    return f"{text[:-2]}, assumed = true }}"


def written_expression(expression: Expression) -> str:
    """An expression as a value of TOML."""
    if isinstance(expression, Reference):
        return _quoted(str(expression))
    if isinstance(expression, Concatenation):
        pairs = [("concat", _several(expression.parts)), ("axis", str(expression.axis))]
    elif isinstance(expression, Stack):
        if expression.over is None:
            pairs = [("stack", _several(expression.parts))]
        else:
            (part,) = expression.parts
            pairs = [("stack", _quoted(expression.over)), ("of", written_expression(part))]
        pairs.append(("axis", str(expression.axis)))
    elif isinstance(expression, Same):
        pairs = [("same", _several(expression.parts))]
    elif isinstance(expression, (Cast, View)):
        verb = "cast" if isinstance(expression, Cast) else "view"
        pairs = [(verb, _quoted(expression.dtype))]
        if expression.before is not None:
            pairs.append(("from", _quoted(expression.before)))
        pairs.append(("of", written_expression(expression.of)))
    elif isinstance(expression, Arithmetic):
        pairs = [
            (expression.verb, _float(expression.number)),
            ("of", written_expression(expression.of)),
        ]
    elif isinstance(expression, Fill):
        lengths = [_size(element) for element in expression.shape]
        pairs = [("fill", _float(expression.number)), ("shape", _listed(lengths))]
        pairs.append(("dtype", _quoted(expression.dtype)))
    else:
        moves = [
            _listed(
                [_quoted(str(element.source)), *[_listed(map(str, side)) for side in element[1:]]]
            )
            for element in expression.moves
        ]
        pairs = [("moves", _listed(moves)), ("shape", _listed(map(str, expression.shape)))]
    rearranged = getattr(expression, "pattern", None)
    if rearranged is not None:
        pairs.append(("pattern", _quoted(str(rearranged))))
    return f"{{ {', '.join(f'{key} = {text}' for key, text in pairs)} }}"


def _several(parts: tuple[Expression, ...]) -> str:
    return _listed(map(written_expression, parts))


def _listed(texts: Any) -> str:
    return f"[{', '.join(texts)}]"


def _size(length: Any) -> str:
    number = length.number
    return _quoted(str(length)) if number is None else str(number)


def _float(number: float) -> str:
    if isinstance(number, int):
        return str(number)
    if math.isnan(number):
        return "-nan" if math.copysign(1, number) < 0 else "nan"
    if math.isinf(number):
        return "inf" if number > 0 else "-inf"
    text = repr(number)
    return text if "." in text or "e" not in text else text.replace("e", ".0e", 1)


_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}


def _quoted(text: str) -> str:
    """A basic string of TOML."""
    quoted = ""
    for character in text:
        if character in _ESCAPES:
            quoted += _ESCAPES[character]
        elif ord(character) < 32 or ord(character) == 127:
            quoted += f"\\u{ord(character):04x}"
        else:
            quoted += character
    return f'"{quoted}"'
