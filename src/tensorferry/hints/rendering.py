"""Write a hint: which function each call is of, which keywords it takes, and its code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import (
    NAME_ALONE,
    SOME,
    WIDEST,
    WIDEST_COMPLEX,
    Again,
    Call,
    Code,
    Described,
    DtypeOf,
    Each,
    InPython,
    Keywords,
    Lone,
    Mark,
    OfBatch,
    OtherOutput,
    Spoken,
    Written,
    quoted,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from . import Caller, Pairs, Piece, Way

__all__ = ["Renderer", "value_in_code"]

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
_WIDE = frozenset({"int64", "uint64", *_NARROW})
"""Dtypes that a target may lack, and that ``dtype=`` names in hints."""
_COLLATES = frozenset({"collate", "explain_collate"})
"""Functions with ``nulls=`` for columns, but no ``ragged=`` or ``pad=`` for a column's rows."""
_WITH_COLUMN_KEYWORDS = frozenset(
    {"convert", "convert_tree", "explain", "explain_tree", *_COLLATES}
)
"""Functions that take ``nulls=``. So do `to_numpy`, `to_torch` …"""
_BEFORE_IT: dict[str, str] = dict.fromkeys(
    ("describe_tree", "prefetch", "save", "snapshot", "start"), "convert_tree"
)
"""For functions that do not take the keywords of a conversion, the one to call before."""
_WITH_FILES = frozenset({"load", "convert_files"})
"""Functions for files: hints name only the keyword, as the call has the path of the user's file."""


def value_in_code(value: object) -> str:
    """The value of a keyword, in Python.

    >>> value_in_code({"a": "int8"}), value_in_code(Code("out.detach()")), value_in_code(SOME)
    ('{"a": "int8"}', 'out.detach()', '[…]')
    """
    if isinstance(value, Code):
        return value.text
    if isinstance(value, Written):
        return value.code
    if value == SOME:
        return "[…]"
    if value == NAME_ALONE:
        return ""
    return quoted(value)


def _in_code(pairs: Pairs) -> str:
    return ", ".join(f"{name}={value_in_code(value)}" for name, value in pairs)


class Renderer:
    """Writes hints in Python, for one call.

    Args:
        caller: The call.
    """

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._is_short = False
        """Whether a call names a dtype that the target has only after the remedy."""
        function = caller.function
        if function in _WITH_COLUMN_KEYWORDS | _WITH_FILES or function.startswith("to_"):
            again = function
        else:
            again = _BEFORE_IT.get(function, "to_numpy")
        if function in _COLLATES:
            itself, padded = again, "convert_tree"
        else:
            itself, padded = _ALONE.get(again, again), again
        self._functions = {
            "one": _ALONE.get(function, function),
            "tree": _IN_TREES.get(function, "convert_tree"),
            "call": again,
            "itself": itself,
            "padded": padded,
            "listed": _ALONE.get(padded, padded),
            "rows": "explain_tree" if function == "explain" else padded,
            "collate": "explain_collate" if self._explains else "collate",
        }
        """The functions that the pieces of a hint name in another way."""

    @property
    def _explains(self) -> bool:
        return self.caller.function.startswith("explain")

    def text(self, ways: Iterable[Way]) -> str:
        """The hint, as it is shown."""
        text = "; or ".join([self.way(way) for way in ways])
        if self._is_short:
            return f"{text}; {self.caller.remedy}"
        return text

    def way(self, way: Way) -> str:
        """One of its ways."""
        return "".join([self.piece(piece) for piece in way])

    def piece(self, piece: Piece) -> str:
        """One piece of a way."""
        if isinstance(piece, str):
            return piece
        if isinstance(piece, (Code, Lone)):
            return piece.text
        if isinstance(piece, Keywords):
            return self.keywords(self._known(piece.pairs))
        if isinstance(piece, Call):
            return self._called(piece)
        if isinstance(piece, Again):
            return self._again(piece)
        if isinstance(piece, Each):
            return f"[{self._call(self._functions['one'], 'row', ())} for row in {piece.code}]"
        if isinstance(piece, DtypeOf):
            return self._dtype(piece.value)
        if isinstance(piece, OfBatch):
            return "" if self._explains else f"[{quoted(piece.name)}]"
        return self._other(piece)

    def _other(self, piece: Described | InPython | OtherOutput | Spoken) -> str:
        if isinstance(piece, Described):
            return self.described(piece)
        if isinstance(piece, InPython):
            return self.in_python(piece)
        if isinstance(piece, OtherOutput):
            return self.other_output(piece)
        return self.spoken(piece)

    # -- what a command line writes in another way -------------------------------------------------

    def keywords(self, pairs: Pairs) -> str:
        """Keywords for the user's call."""
        return _in_code(pairs)

    def described(self, piece: Described) -> str:
        """A description with other fields."""
        return f"{piece.text}._replace({_in_code(piece.pairs)})"

    def in_python(self, piece: InPython) -> str:
        """A script."""
        return f"in Python: {piece.script}"

    def other_output(self, piece: OtherOutput) -> str:
        """A conversion of files with another output."""
        return f"convert_files(source, {piece.path!r})"

    def spoken(self, piece: Spoken) -> str:
        """What Python and a shell say in ways of their own."""
        return piece.python

    # -- calls -------------------------------------------------------------------------------------

    def _called(self, piece: Call) -> str:
        if piece.function != "either":
            function = self._functions.get(piece.function, piece.function)
            return self._call(function, piece.code, self._asked(piece.pairs, piece.held))
        single, tree = (
            self._call(self._functions[name], piece.code, ()) for name in ("one", "tree")
        )
        if single == tree:
            return single
        return f"{single}, or {tree} if it gives several tensors"

    def _again(self, piece: Again) -> str:
        names_short = piece.about in ("call", "itself")
        pairs = self._asked(piece.pairs, piece.held, names_short=names_short)
        if self.caller.function in _WITH_FILES:
            return self.keywords(pairs)
        return self._call(self._functions[piece.about], "x", pairs)

    def _dtype(self, value: object) -> str:
        if self.caller.function in _WITHOUT_DTYPE:
            return self._again(Again("call", (("dtype", value),)))
        return self.keywords(self._known((("dtype", value),)))

    def _call(self, function: str, code: str, pairs: Pairs) -> str:
        if function == "save":
            # `save` takes trees, so that `x` itself was not one.
            if code == "x":
                code = f'convert_tree(x, "{self.caller.target}")'
            return f"save({code}, path)"
        target = self.caller.target
        has_no_target = function in _WITHOUT_TARGET or function.startswith("to_")
        is_ordinary = function == "load" and target == _ORDINARY
        arguments = [code]
        if not has_no_target and not is_ordinary:
            arguments.append(f'"{target}"')
        if pairs:
            arguments.append(_in_code(pairs))
        return f"{function}({', '.join(arguments)})"

    # -- dtypes ------------------------------------------------------------------------------------

    def _known(self, pairs: Pairs) -> Pairs:
        """Keywords, with the widest dtypes of the target by their names."""
        return tuple((name, self._widest(value)) for name, value in pairs)

    def _widest(self, value: object) -> object:
        if not isinstance(value, Mark) or value not in (WIDEST, WIDEST_COMPLEX):
            return value
        dtype = value.name
        return _NARROW[dtype] if self.caller.lacks(dtype) else dtype

    def _asked(self, pairs: Pairs, held: tuple[str, ...], *, names_short: bool = False) -> Pairs:
        """The keywords of a call, for the target.

        Args:
            pairs: The keywords.
            held: The dtypes of the tensor.
            names_short: Whether the remedy is named if the target lacks an integer.
        """
        known = self._known(pairs)
        if any(map(self.caller.lacks, held)):
            known += (("dtype", "fit"),)
        return tuple((name, self._held(value, names_short)) for name, value in known)

    def _held(self, value: object, names_short: bool) -> object:
        """A value that names dtypes.

        If the target lacks one: a narrower float, or the same integer after the remedy.
        """
        if isinstance(value, dict):
            return {key: self._held(part, names_short) for key, part in value.items()}
        if not isinstance(value, str) or value not in _WIDE or not self.caller.lacks(value):
            return value
        if value not in _NARROW and names_short and self.caller.remedy:
            self._is_short = True
        return _NARROW.get(value, value)
