"""What to type instead, as data: `Hint`, of keywords, calls, code and text.

The code that raises an error does not know whether the user called `to_torch`, `explain` or
`convert_tree`, or a command. So it says what helps, and not how that is written::

    Hint(hints.again(nulls=0), ", which replaces them") | Hint(hints.again(nulls="mask"))
    Hint(hints.tree("dict(x)"))
    Hint(hints.keyword("dtype", "fit"), ", or ", hints.without("pinned"))

`rendering` writes it, for the function that was called; the command line has a `Renderer` of its
own, with options. `placing` puts it at a leaf of a tree, or at a member of a list. Only an error
that is shown, or placed, imports them.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from .named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = [
    "NAME_ALONE",
    "SOME",
    "WIDEST",
    "WIDEST_COMPLEX",
    "Again",
    "Call",
    "Caller",
    "Code",
    "Described",
    "DtypeOf",
    "Each",
    "Hint",
    "InPython",
    "Keywords",
    "Lone",
    "Mark",
    "OfBatch",
    "OtherOutput",
    "Piece",
    "Spoken",
    "Way",
    "Written",
    "again",
    "call",
    "code",
    "described",
    "either",
    "keyword",
    "keywords",
    "listed",
    "one",
    "one_of",
    "padded",
    "quoted",
    "rows",
    "tree",
    "without",
]


# -- values of keywords ----------------------------------------------------------------------------


class Mark(NamedTuple):
    """A value of a keyword that is no plain value."""

    name: str


NAME_ALONE = Mark("name alone")
"""The keyword is only named, as in ``without out=``."""
SOME = Mark("some")
"""A list of the user's own choice: ``[…]``."""
WIDEST = Mark("float64")
"""The widest floats that the target has."""
WIDEST_COMPLEX = Mark("complex128")
"""The widest complex numbers that the target has."""


class Written(NamedTuple):
    """A value, and how it is written in Python if that is not as usual."""

    value: object
    code: str


# -- pieces of a hint ------------------------------------------------------------------------------

Pairs = tuple[tuple[str, object], ...]
"""Keywords and their values."""


class Code(NamedTuple):
    """Code in Python. The name `x` in it is the tensor, and becomes another place for a leaf.

    Args:
        text: The code.
        numbered: Whether it names a member of a batch's column by the number of its sample.
        stays: Whether it is never put at another place.
    """

    text: str
    numbered: bool = False
    stays: bool = False

    def at(self, place: str) -> Code:
        """The code, if the tensor is at a place."""
        from .placing import code_at  # here, because only an error needs it

        return self if self.stays else self._replace(text=code_at(self.text, place))


class Keywords(NamedTuple):
    """Keywords for the call that the user made."""

    pairs: Pairs


class Again(NamedTuple):
    """The same call with more keywords.

    Args:
        about: What they are about, which chooses the function if the user's does not take them:
            ``"call"``, or the rows of a column: ``"padded"`` and ``"rows"``; or ``"itself"``, if
            the whole tree is one leaf.
        pairs: The keywords.
        held: The dtypes of `x`: if the target lacks one, ``dtype="fit"`` is added.
    """

    about: str
    pairs: Pairs = ()
    held: tuple[str, ...] = ()


class Call(NamedTuple):
    """A call of a function, with the target of the user's call.

    Args:
        function: ``"one"`` for the function that takes one tensor as the user's does, ``"tree"``
            for the one that takes a tree, ``"either"`` for both of these, ``"listed"`` for the one
            that pads list rows; or the name of a public function.
        code: The code for its argument.
        pairs: More keywords.
        held: As for `Again`.
    """

    function: str
    code: str = "x"
    pairs: Pairs = ()
    held: tuple[str, ...] = ()


class Each(NamedTuple):
    """A list of the results of a call with each row of a tensor."""

    code: str = "x"


class DtypeOf(NamedTuple):
    """``dtype=``; or a call with it, if the function that was called does not take it."""

    value: object


class Lone(NamedTuple):
    """Code for a tensor without axes. In a tree, all of it becomes numbers instead."""

    text: str


class OfBatch(NamedTuple):
    """One leaf of a batch, by its name, after a call of `collate`."""

    name: str


class Described(NamedTuple):
    """The description of a tensor with other fields; the code for it."""

    pairs: Pairs
    text: str = "x"


class InPython(NamedTuple):
    """A script in Python, for what no command does."""

    script: str


class OtherOutput(NamedTuple):
    """The same conversion of files with another output."""

    path: str


class Spoken(NamedTuple):
    """What is written in Python, and what people type who type commands."""

    python: str
    shell: str


Piece = (
    str
    | Code
    | Keywords
    | Again
    | Call
    | Each
    | DtypeOf
    | Lone
    | OfBatch
    | Described
    | InPython
    | OtherOutput
    | Spoken
)
"""A piece of a way. A string is text, which is the same whoever reads it."""
Way = tuple[Piece, ...]
"""One of several ways of a hint."""


class Caller(NamedTuple):
    """The call that a hint is for.

    Args:
        function: The function that the user called.
        target: The canonical name of the target.
        dtypes: The dtypes that the target has; ``None`` if they are not known.
        remedy: What gives the target the dtypes that it lacks, if something does.
    """

    function: str = "to_numpy"
    target: str = "numpy"
    dtypes: frozenset[str] | None = None
    remedy: str = ""

    def lacks(self, dtype: str) -> bool:
        """Whether the target is known not to have a dtype."""
        return self.dtypes is not None and dtype not in self.dtypes


_NOBODY = Caller()


class Hint:
    """What to type instead: one way, or several of which each is enough.

    >>> from tensorferry import hints
    >>> hint = Hint(hints.one("sorted(x)")) | Hint(hints.tree(), ", which converts each")
    >>> str(hint)
    'to_numpy(sorted(x)); or convert_tree(x, "numpy"), which converts each'
    >>> str(hint.for_call(Caller("explain", "torch")))
    'explain(sorted(x), "torch"); or explain_tree(x, "torch"), which converts each'

    Args:
        pieces: The pieces of the one way. A hint among them is put in with all its ways.
    """

    __slots__ = ("caller", "ways")
    ways: tuple[Way, ...]
    """The ways, the best one first."""
    caller: Caller
    """The call that it is for."""

    def __init__(self, *pieces: Piece | Hint) -> None:
        ways: list[Way] = [()]
        for piece in pieces:
            if isinstance(piece, Hint):
                first, *others = piece.ways or ((),)
                ways[-1] = joined(ways[-1], first)
                ways += others
            elif piece != "":
                ways[-1] = joined(ways[-1], (piece,))
        self.ways = tuple(way for way in ways if way)
        self.caller = _NOBODY

    @classmethod
    def of(cls, hint: str | Hint) -> Hint:
        """A hint that may be given as text, which is code if Python can read it."""
        return hint if isinstance(hint, Hint) else Hint(Code(hint))

    @classmethod
    def of_ways(cls, ways: Iterable[Way], caller: Caller = _NOBODY) -> Hint:
        """A hint of several ways."""
        hint = Hint()
        hint.ways, hint.caller = tuple(ways), caller
        return hint

    def __or__(self, other: str | Hint) -> Hint:
        """This hint, or another one."""
        return Hint.of_ways((*self.ways, *Hint.of(other).ways), self.caller)

    def __add__(self, other: Piece | Hint) -> Hint:
        """This hint, with more behind its last way."""
        return Hint.of_ways(Hint(self, other).ways, self.caller)

    def __eq__(self, other: object) -> bool:
        """Whether two hints have the same ways, whatever call they are for."""
        return self.ways == other.ways if isinstance(other, Hint) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.ways)

    def __str__(self) -> str:
        if len(self.ways) == 1 and len(self.ways[0]) == 1 and isinstance(self.ways[0][0], Code):
            return self.ways[0][0].text
        from .rendering import Renderer  # here, because only an error that is shown needs it

        return Renderer(self.caller).text(self.ways)

    def __repr__(self) -> str:
        """As it is shown: it stands in the `repr` of its error."""
        return repr(str(self))

    def __reduce__(self) -> tuple[Callable[..., Hint], tuple[object, ...]]:
        return Hint.of_ways, (self.ways, self.caller)

    def for_call(self, caller: Caller) -> Hint:
        """The hint, for the call that the user made."""
        return Hint.of_ways(self.ways, caller)

    def where(self, keeps: Callable[[Way], bool]) -> Hint | None:
        """The hint with some of its ways; ``None`` if none is left."""
        kept = tuple(filter(keeps, self.ways))
        return Hint.of_ways(kept, self.caller) if kept else None

    def values_of(self, keyword: str) -> list[object]:
        """The values that a keyword has in this hint, in pieces for the call itself."""
        return [value for way in self.ways for name, value in pairs_in(way) if name == keyword]

    @property
    def names_a_call(self) -> bool:
        """Whether it names a call that is like the user's."""
        return any(isinstance(piece, (Again, Call)) for way in self.ways for piece in way)

    def with_name(self, keyword: str, other: str) -> Hint:
        """The hint with another name of a keyword."""
        return Hint.of_ways(
            (tuple(_with_name(piece, keyword, other) for piece in way) for way in self.ways),
            self.caller,
        )

    def with_dtype(self, value: object) -> Hint:
        """The hint with another value of the dtype that it names for the user's call."""
        return Hint.of_ways(
            (
                tuple(DtypeOf(value) if isinstance(piece, DtypeOf) else piece for piece in way)
                for way in self.ways
            ),
            self.caller,
        )

    # -- placing -----------------------------------------------------------------------------------

    def at(self, place: str) -> Hint:
        """The hint, if the tensor is at a place: code for `x`, such as ``x[0]``."""
        from .placing import at  # here, because only an error needs it

        return Hint.of_ways(at(self.ways, place), self.caller)

    def for_leaf(self, place: str, name: str, dtype_of: Callable[[str], object]) -> Hint:
        """The hint, for a leaf of a tree.

        Args:
            place: The code for the leaf, such as ``x["a"]``.
            name: The dotted name of the leaf; empty if it is the whole tree.
            dtype_of: Gives the value of ``dtype=`` that names a dtype for this leaf.
        """
        from .placing import at, for_leaf  # here, because only an error needs them

        return Hint.of_ways(for_leaf(at(self.ways, place), name, dtype_of), self.caller)

    def for_list(self, given: str) -> Hint:
        """The hint, if the tensor is read as code's list of `x`, which is to be converted."""
        return Hint.of_ways(
            (
                tuple(
                    piece._replace(code=given)
                    if isinstance(piece, Call) and piece[:2] == ("tree", "x")
                    else piece
                    for piece in way
                )
                for way in self.ways
            ),
            self.caller,
        )

    def for_sample(self, place: str) -> Hint:
        """The hint, if the tensor is the list of one leaf of all samples, at `place` in each."""
        from .placing import for_sample  # here, because only an error needs it

        return Hint.of_ways(for_sample(self.ways, place), self.caller)

    def for_each_sample(self) -> Hint:
        """The hint with what is done for each member of the list `x` done for `x`."""
        from .placing import for_each_sample  # here, because only an error needs it

        return Hint.of_ways(for_each_sample(self.ways), self.caller)


def _with_name(piece: Piece, keyword: str, other: str) -> Piece:
    if not isinstance(piece, Keywords):
        return piece
    return Keywords(
        tuple((other if name == keyword else name, value) for name, value in piece.pairs)
    )


def joined(way: Way, more: Way) -> Way:
    """The pieces of two parts of a way, with the text between them as one piece."""
    if way and more and type(way[-1]) is str and type(more[0]) is str:
        return (*way[:-1], way[-1] + more[0], *more[1:])
    return (*way, *more)


def pairs_in(way: Way) -> Iterable[tuple[str, object]]:
    """The keywords in a way that are for the call that the user made."""
    for piece in way:
        if isinstance(piece, (Keywords, Again)):
            yield from piece.pairs


# -- how pieces are made ---------------------------------------------------------------------------


def again(_about: str = "call", _held: Iterable[str] = (), /, **keywords: object) -> Again:
    """The same call with more keywords: see `Again`."""
    return Again(_about, tuple(keywords.items()), tuple(_held))


def padded(_held: Iterable[str] = (), /, **keywords: object) -> Again:
    """The same call, which pads the rows of a column."""
    return again("padded", _held, **keywords)


def rows(_held: Iterable[str] = (), /, **keywords: object) -> Again:
    """The same call, which gives the rows of a column."""
    return again("rows", _held, **keywords)


def listed(_code: str = "x", _held: Iterable[str] = (), /, **keywords: object) -> Call:
    """A call with a list, which pads its rows."""
    return Call("listed", _code, tuple(keywords.items()), tuple(_held))


def one(_code: str = "x") -> Call:
    """A call with one tensor."""
    return Call("one", _code)


def tree(_code: str = "x", _held: Iterable[str] = (), /, **keywords: object) -> Call:
    """A call with a tree."""
    return Call("tree", _code, tuple(keywords.items()), tuple(_held))


def either(_code: str = "x") -> Call:
    """A call with one tensor, or with several: it is not known which the code gives."""
    return Call("either", _code)


def call(_function: str, _code: str = "x", /, **keywords: object) -> Call:
    """A call of another function: see `Call`."""
    return Call(_function, _code, tuple(keywords.items()))


def code(text: str, numbered: bool = False) -> Code:
    """Code, in which `x` is the tensor."""
    return Code(text, numbered)


def keyword(name: str, value: object = NAME_ALONE) -> Keywords:
    """A keyword for the user's call; without a value it is only named, as in ``another to=``."""
    return Keywords(((name, value),))


def keywords(**pairs: object) -> Keywords:
    """Keywords for the user's call, which belong together."""
    return Keywords(tuple(pairs.items()))


def without(name: str) -> Hint:
    """The user's call without a keyword."""
    return Hint("without ", keyword(name))


def one_of(pieces: Sequence[Piece], word: str = "or") -> Hint:
    """The hint to type one of several things; with another `word`, all of them."""
    first, *others = pieces
    return Hint(first, *(piece for other in others for piece in (f" {word} ", other)))


def described(**pairs: object) -> Described:
    """The description `x` with other fields."""
    return Described(tuple(pairs.items()))


def quoted(value: object) -> str:
    """A plain value as code.

    >>> quoted("a"), quoted(1.5), quoted(["a", 1]), quoted({"a": "int8", "b": None})
    ('"a"', '1.5', '["a", 1]', '{"a": "int8", "b": None}')
    """
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return f"[{', '.join(map(quoted, value))}]"
    if isinstance(value, dict):
        return mapping_in_code(value)
    is_odd = isinstance(value, float) and not isfinite(value)
    return f'float("{value}")' if is_odd else repr(value)


def mapping_in_code(mapping: Mapping[str, object]) -> str:
    """The value of a keyword that takes a mapping, as code.

    >>> mapping_in_code({"a": "int8", "b": 0})
    '{"a": "int8", "b": 0}'
    """
    pairs = ", ".join(f"{quoted(key)}: {quoted(value)}" for key, value in mapping.items())
    return f"{{{pairs}}}"
