"""`Hint`: code to type instead, with the name of the function that the user called.

The code that raises an error does not know whether the user called `to_torch`, `explain` or
`convert_tree`. So its hint has gaps, and the function that the user called fills them in.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Hint", "code_at", "hint_at", "lacks", "remedy"]


def _not_known(_target: str, _dtype: str) -> bool:
    return False


lacks: Callable[[str, str], bool] = _not_known
"""Whether a target does not have a dtype.

The registry of backends is on a higher floor, and puts its answer here.
"""


def _no_remedy(_target: str) -> str:
    return ""


remedy: Callable[[str], str] = _no_remedy
"""What gives a target the dtypes that it lacks, if something does.

The registry puts its answer here, too.
"""

_ORDINARY = "numpy"
"""The target in a hint, as long as the call is not known."""

_ALONE = {
    "collate": "convert",
    "convert_tree": "convert",
    "describe_tree": "describe",
    "explain_collate": "explain",
    "explain_tree": "explain",
    "load": "convert",
    "convert_files": "convert",
    "prefetch": "convert",
    "shares_memory": "describe",
}
"""For a function that takes trees, the function that does the same with one tensor."""
_IN_TREES = {
    "describe": "describe_tree",
    "describe_tree": "describe_tree",
    "explain": "explain_tree",
    "explain_collate": "explain_tree",
    "explain_tree": "explain_tree",
    "shares_memory": "describe_tree",
    "save": "save",
    "snapshot": "snapshot",
    "start": "start",
}
"""For a function, the one that does the same with a tree; for all others this is `convert_tree`."""
_WITHOUT_TARGET = frozenset({"describe", "describe_tree", "snapshot"})
"""Functions that take no target. Nor do `to_numpy`, `to_torch` …"""

_WITHOUT_DTYPE = frozenset({"describe", "describe_tree", "save", "shares_memory", "snapshot"})
"""Functions that do not take ``dtype=``."""
_NARROW = {"float64": "float32", "complex128": "complex64"}
"""The dtype to name if the target has no wider one, and the values are rounded anyway."""
_NAMED = r'((?:=|: )")(int64|uint64|float64|complex128)"'
"""A dtype as the value of ``dtype=``, or of an entry of its mapping."""
_COLLATES = frozenset({"collate", "explain_collate"})
"""Functions with ``nulls=`` for columns, but no ``ragged=`` or ``pad=`` for a column's rows."""
_WITH_COLUMN_KEYWORDS = frozenset(
    {"convert", "convert_tree", "explain", "explain_tree", *_COLLATES}
)
"""Functions that take ``nulls=``. So do `to_numpy`, `to_torch` …"""
_BEFORE_IT: dict[str, str] = dict.fromkeys(
    ("describe_tree", "prefetch", "save", "snapshot", "start"), "convert_tree"
)

_WITH_FILES = frozenset({"load", "convert_files"})
"""Functions for files: hints name only the keyword, as the call has the path of the user's file."""

_BY_NAME = ("load", "prefetch", "collate", "explain", "explain_tree")
"""Functions that a hint names, whichever was called."""


class Hint(str):
    """A hint with gaps for the function that the user called.

    >>> hint = Hint("{one:sorted(x)}, or {tree:x}")
    >>> hint
    'to_numpy(sorted(x)), or convert_tree(x, "numpy")'
    >>> hint.for_call("explain", "torch")
    'explain(sorted(x), "torch"), or explain_tree(x, "torch")'

    Args:
        template: The text. ``{one:…}`` becomes a call of the function with one tensor, ``{tree:…}``
            a call with a tree, ``{either:…}`` both of these, ``{load:…}``, ``{prefetch:…}``,
            ``{collate:…}``, ``{explain:…}`` and ``{explain_tree:…}`` calls of these functions with
            the same target, and ``{again:x|…}`` the same call with more keywords; so are
            ``{padded:x|…}`` and ``{rows:x|…}``, which are about the rows of a column.
            ``{lone:…}`` is code for a tensor without axes; in a tree, all of it becomes numbers.
            ``{listed:x|…}`` is about list rows, which a call with one tensor pads. A third part,
            as in ``{again:x|…|int64}`` and ``{tree:x||int64,bool}``, has the dtypes of `x`: it adds
            ``dtype="fit"`` if the target lacks one. ``{widest}`` and ``{widest_complex}`` are
            dtypes that it has. ``{row:"name"}`` is what comes after ``{collate:…}`` to get one leaf
            of it. ``{dtype:"float64"}`` is this keyword, or a call with it if the function does not
            take it. ``{leaf}`` is the tensor: `x`, or in a tree its place in `x`; a dtype in
            ``{again:x|…}`` is then named for this leaf alone.
        function: The function that was called.
        target: The canonical name of the target.
    """

    __slots__ = ("_call", "_template")
    _template: str
    _call: tuple[str, str]

    def __new__(cls, template: str, function: str = "to_numpy", target: str = _ORDINARY) -> Hint:  # noqa: D102, PYI034
        one, tree = _ALONE.get(function, function), _IN_TREES.get(function, "convert_tree")
        if function in _WITH_COLUMN_KEYWORDS | _WITH_FILES or function.startswith("to_"):
            again = function
        else:
            again = _BEFORE_IT.get(function, "to_numpy")
        gaps = {
            "one": one,
            "tree": tree,
            "again": again,
            "itself": again if function in _COLLATES else _ALONE.get(again, again),
        }
        if function in _COLLATES:
            gaps["padded"] = "convert_tree"
        else:
            gaps["padded"] = again
        gaps["listed"] = _ALONE.get(gaps["padded"], gaps["padded"])
        if function == "explain":
            gaps["rows"] = "explain_tree"
        else:
            gaps["rows"] = gaps["padded"]
        gaps |= dict(zip(_BY_NAME, _BY_NAME, strict=True))
        explains = function.startswith("explain")
        if explains:
            gaps["collate"] = "explain_collate"
        if "{widest" in template:
            widest = _widest_of(target)
        else:
            widest = {}
        filled: dict[str, Any] = {gap: _Gap(name, target) for gap, name in gaps.items()}
        if function in _WITH_FILES:
            filled |= {
                gap: _Keywords(function, target) for gap in ("again", "itself", "padded", "rows")
            }
        filled |= {
            "either": _Either(filled["one"], filled["tree"]),
            "row": _Row(explains),
            "leaf": "x",
            "lone": _Code(),
            **widest,
        }
        filled["dtype"] = _Dtype(filled["again"] if function in _WITHOUT_DTYPE else None)
        text = template.format(**filled)
        if filled["again"].is_short or filled["itself"].is_short:
            text += f"; {remedy(target)}"
        made = super().__new__(cls, text)
        made._template, made._call = template, (function, target)
        return made

    def for_call(self, function: str, target: str) -> Hint:
        """The hint, for a call of `function` with `target`."""
        return Hint(self._template, function, target)

    def for_leaf(self, place: str, name: str, dtype_of: Callable[[str], str]) -> Hint:
        """The hint, for a leaf of a tree.

        Args:
            place: The code for the leaf, such as ``x["a"]``.
            name: The dotted name of the leaf; empty if it is the whole tree.
            dtype_of: Gives the code for the value of ``dtype=`` that names a dtype for this leaf.
        """
        template = _at(self._template, place).replace("{leaf}", _escaped(place))
        # Integers beside this leaf have no NaN, and everything has a mask.
        if name:
            template = re.sub(_NAN_OR_MASK, r"\2; or \1", template)
        if not name:
            template = re.sub(_AGAIN, r'{itself:x|dtype="\2"', template)
        else:
            template = re.sub(
                _AGAIN,
                lambda found: f"{{{found[1]}:x|dtype={_escaped(dtype_of(found[2]))}",
                template,
            )
        return Hint(template, *self._call)

    def for_member(self, place: str) -> Hint:
        """The hint, if the tensor is a member of a list, at `place` in it."""
        template = _at(self._template, f"x{place}")
        return Hint(template.replace("{leaf}", "{leaf}" + _escaped(place)), *self._call)

    def for_list(self, code: str) -> Hint:
        """The hint, if the tensor is read as `code`'s list of `x`, which is to be converted."""
        return Hint(re.sub(r"\{tree:x(?=[|}])", f"{{tree:{code}", self._template), *self._call)

    def for_sample(self, place: str) -> Hint:
        """The hint, if the tensor is the list of one leaf of all samples, at `place` in each."""
        return Hint(
            re.sub(_ROW, lambda found: f"samples{found[1]}{_escaped(place)}", self._template),
            *self._call,
        )

    def before(self, text: str) -> Hint:
        """The hint, followed by `text`."""
        return Hint(self._template + _escaped(text), *self._call)

    def __reduce__(self) -> tuple[Any, ...]:
        return Hint, (self._template, *self._call)


_ROW = r"\{leaf\}(\[\d+\])"
"""A row of the tensor, in a template."""
_AGAIN = r'\{(again|padded):x\|dtype="(\w+)"'
"""A call with a dtype, in a template."""
_NAN_OR_MASK = (
    r'^(\{again:x\|[^{}]*nulls="nan"[^{}]*\}[^{}]*); or (\{again:x\|[^{}]*nulls="mask"[^{}]*\})$'
)
"""Two calls, of which one replaces nulls by NaN, and the other gives a mask."""


_X = r"(?<![\w.\"'`])x(?![\w\"'=]|\)\[|\)\.drop_null\(\)\.field)"
"""The name of the tensor, in code.

In ``pa.table(x)["c"]`` it is the table around the column, and stays.
"""
_PART = rf"\{{\{{|\}}\}}|\{{(?P<gap>\w+):(?P<code>[^{{}}|]*)(?P<rest>[^{{}}]*)\}}|\{{\w+\}}|{_X}"
"""What a template has in it: brackets of the text, gaps, and `x` outside of them."""
_OF_X = frozenset({"one", "either", "tree"})
"""Gaps with a call of the function with code for `x`.

At a place in a tree, only this code is another.
"""
_OTHER_CALLS = frozenset({"load", "prefetch", "explain"})
"""Gaps with a call of another function, for `x` alone. The result of `collate` takes its place."""


def code_at(code: str, place: str) -> str:
    """Code for `x`, if the tensor is at a place in it.

    >>> code_at("x.to_dense()", 'x["a"]')
    'x["a"].to_dense()'
    """
    return re.sub(_X, lambda _: place, code)


def hint_at(hint: str | None, place: str) -> str | None:
    """A hint about `x`, if the tensor is at a place in it.

    >>> hint_at("x.to_dense()", "x[0]")
    'x[0].to_dense()'
    """
    if isinstance(hint, Hint):
        return hint.for_member(place.removeprefix("x"))
    return hint and code_at(hint, place)


def _widest_of(target: str) -> dict[str, str]:
    """The widest floats and complex numbers that a target has, by their gaps."""
    return {
        "widest": "float32" if lacks(target, "float64") else "float64",
        "widest_complex": "complex64" if lacks(target, "complex128") else "complex128",
    }


def _at(template: str, place: str) -> str:
    """The template if the tensor is at a place in `x`: only its code goes there; the call stays."""
    if place == "x":
        return template

    def part(found: re.Match[str]) -> str:
        gap, code = found["gap"], found["code"]
        if found[0] == "x":
            return _escaped(place)
        if gap in _OTHER_CALLS:
            return f"{{{gap}:{_escaped(code_at(code, place))}{found['rest']}}}"
        if gap == "lone":
            return (
                'convert_tree(x, "list"), which gives numbers and lists, of which a frame is made'
            )
        if gap in ("collate", "listed"):
            return f"{{{gap}:{_escaped(code_at(code, place))}{found['rest']}}} in its place"
        if gap in _OF_X and code != "x" and code != code_at(code, ""):
            return f"{_escaped(code_at(code, place))} in its place"
        return found[0]

    return re.sub(_PART, part, template)


def _escaped(text: str) -> str:
    """Text for a template."""
    return text.replace("{", "{{").replace("}", "}}")


class _Gap:
    """A call of a function; `str.format` gives it the arguments that stand in the gap."""

    def __init__(self, function: str, target: str) -> None:
        self.function = function
        self.target = target
        self.is_short = False
        """Whether the call names a dtype that the target has only after its `remedy`."""

    def __format__(self, x: str) -> str:
        if self.function == "save":
            # `save` takes trees, so that `x` itself was not one.
            if x == "x":
                found = f'convert_tree(x, "{self.target}")'
            else:
                found = x
            return f"save({found}, path)"
        no_target = self.function in _WITHOUT_TARGET or self.function.startswith("to_")
        ordinary = self.function == "load" and self.target == _ORDINARY
        x, _, rest = x.partition("|")
        keywords = self._keywords(rest)
        arguments = [
            x,
            *([] if no_target or ordinary else [f'"{self.target}"']),
            *([keywords] if keywords else []),
        ]
        return f"{self.function}({', '.join(arguments)})"

    def _keywords(self, text: str) -> str:
        """The keywords in a gap, for the target."""
        keywords, _, names = text.partition("|")
        if any(lacks(self.target, dtype) for dtype in names.split(",") if dtype):
            keywords += (", " if keywords else "") + 'dtype="fit"'
        return re.sub(_NAMED, self._held, keywords)

    def _held(self, found: re.Match[str]) -> str:
        """A dtype in keywords.

        If the target lacks it: a narrower float, or the same integer after its `remedy`.
        """
        dtype = found[2]
        if lacks(self.target, dtype):
            dtype = _NARROW.get(dtype, dtype)
            self.is_short = self.is_short or (
                dtype not in _NARROW.values() and bool(remedy(self.target))
            )
        return f'{found[1]}{dtype}"'


class _Keywords(_Gap):
    """The keywords of a call, without the call."""

    def __format__(self, x: str) -> str:
        return self._keywords(x.partition("|")[2])


class _Code:
    """Code as it stands in the gap."""

    def __format__(self, code: str) -> str:
        return code


class _Dtype:
    """The keyword ``dtype=``, or a call with it."""

    def __init__(self, again: _Gap | None) -> None:
        self.again = again

    def __format__(self, code: str) -> str:
        if self.again is None:
            return f"dtype={code}"
        return format(self.again, f"x|dtype={code}")


class _Row:
    """One leaf of a batch, in brackets; nothing if the batch is only explained."""

    def __init__(self, explains: bool) -> None:
        self.explains = explains

    def __format__(self, name: str) -> str:
        return "" if self.explains else f"[{name}]"


class _Either:
    """Two calls: it is not known whether the code in the gap gives one tensor or several."""

    def __init__(self, one: _Gap, tree: _Gap) -> None:
        self.one, self.tree = one, tree

    def __format__(self, x: str) -> str:
        one, tree = format(self.one, x), format(self.tree, x)
        if one == tree:
            return one
        return f"{one}, or {tree} if it gives several tensors"
