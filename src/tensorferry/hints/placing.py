"""Put hints at a leaf of a tree, at a member of a list, or at a leaf of each sample of a batch.

Code is read as Python reads it: the name `x` in it becomes the code for another place. What Python
cannot read stays as it is: whoever gives a hint as text may mean no code.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from . import Again, Call, Code, Described, Each, Lone, Way, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from . import Piece

__all__ = ["at", "code_at", "for_each_sample", "for_leaf", "for_sample"]

_IN_PLACE = " in its place"
_OF_ANOTHER = frozenset({"load", "prefetch", "explain"})
"""Functions whose calls are for `x` alone: the call stays, with the code for another place."""
_OF_THE_BATCH = frozenset({"collate", "listed"})
"""Functions whose result takes the place of `x`."""
_OF_X = frozenset({"one", "either", "tree"})
"""Functions that are called with code for `x`. In a tree, only the code stands in its place."""
_ALL_AS_NUMBERS = (
    Code('convert_tree(x, "list")', stays=True),
    ", which gives numbers and lists, of which a frame is made",
)


def at(ways: tuple[Way, ...], place: str) -> tuple[Way, ...]:
    """The ways, if the tensor is at a place in `x`: only its code goes there; the call stays."""
    if place == "x":
        return ways
    return tuple(_with_pieces_replaced(way, lambda piece: _piece_at(piece, place)) for way in ways)


def code_at(code: str, place: str) -> str:
    """Code for `x`, if the tensor is at a place.

    >>> code_at('f(x, x="x").x', 'y["a"]')
    'f(y["a"], x="x").x'
    """
    variables = _nodes_of_x(code)
    return (
        code
        if variables is None
        else _with_code_replaced(code, ((node, place) for node in variables))
    )


def for_leaf(
    ways: tuple[Way, ...], name: str, dtype_of: Callable[[str], object]
) -> tuple[Way, ...]:
    """The ways with keywords for one leaf of a tree: see `Hint.for_leaf`."""
    if name and _are_nan_and_mask(ways):
        # Integers beside this leaf have no NaN, and everything has a mask.
        ways = ways[::-1]
    return tuple(tuple(_for_leaf(piece, name, dtype_of) for piece in way) for way in ways)


def for_sample(ways: tuple[Way, ...], place: str) -> tuple[Way, ...]:
    """The ways with the code for a leaf of one sample: see `Hint.for_sample`."""
    return tuple(
        _with_pieces_replaced(way, lambda piece: _piece_in_sample(piece, place)) for way in ways
    )


def for_each_sample(ways: tuple[Way, ...]) -> tuple[Way, ...]:
    """The ways for one member of `x`: see `Hint.for_each_sample`."""
    return tuple(_without_first(way) for way in ways)


# -- ways ------------------------------------------------------------------------------------------


def _with_pieces_replaced(way: Way, replaced: Callable[[Piece], Way]) -> Way:
    """A way with other pieces. Only the last says that a value is to stand in the place of `x`."""
    result: Way = ()
    for index, piece in enumerate(way):
        new = replaced(piece)
        after = way[index + 1] if index + 1 < len(way) else ""
        if new[-1] == _IN_PLACE and isinstance(after, str) and after.startswith(_IN_PLACE):
            new = new[:-1]
        result = joined(result, new)
    return result


def _are_nan_and_mask(ways: tuple[Way, ...]) -> bool:
    """Whether of two ways one replaces nulls by NaN, and the other gives a mask."""
    if len(ways) != 2 or len(ways[1]) != 1:
        return False
    return [_nulls_of(way[0]) for way in ways] == ["nan", "mask"]


def _nulls_of(piece: Piece) -> object:
    if isinstance(piece, Again) and piece.about == "call":
        return dict(piece.pairs).get("nulls")
    return None


# -- pieces ----------------------------------------------------------------------------------------


def _piece_at(piece: Piece, place: str) -> Way:
    if isinstance(piece, Code):
        return (piece if piece.stays else piece._replace(text=code_at(piece.text, place)),)
    if isinstance(piece, Described):
        return (piece._replace(text=code_at(piece.text, place)),)
    if isinstance(piece, Lone):
        return _ALL_AS_NUMBERS
    if isinstance(piece, Call):
        return _call_at(piece, place)
    if isinstance(piece, Each):
        return (piece._replace(code=code_at(piece.code, place)),)
    return (piece,)


def _call_at(piece: Call, place: str) -> Way:
    code = code_at(piece.code, place)
    if piece.function in _OF_ANOTHER:
        return (piece._replace(code=code),)
    if piece.function in _OF_THE_BATCH:
        return piece._replace(code=code), _IN_PLACE
    if piece.function in _OF_X and piece.code not in ("x", code):
        return Code(code), _IN_PLACE
    return (piece,)


def _for_leaf(piece: Piece, name: str, dtype_of: Callable[[str], object]) -> Piece:
    """A piece with a dtype for this leaf alone."""
    if not isinstance(piece, Again) or piece.about not in ("call", "padded"):
        return piece
    dtype = piece.pairs[0][1] if piece.pairs and piece.pairs[0][0] == "dtype" else None
    if not isinstance(dtype, str):
        return piece
    if not name:
        return piece._replace(about="itself")
    return piece._replace(pairs=(("dtype", dtype_of(dtype)), *piece.pairs[1:]))


def _piece_in_sample(piece: Piece, place: str) -> Way:
    if not isinstance(piece, Code) or piece.stays:
        return (piece,)
    rows = list(_members_by_number(piece.text))
    if not rows:
        return (piece,)
    if piece.numbered:
        text = _with_code_replaced(
            piece.text, ((row, f"samples[{ast.unparse(row.slice)}]{place}") for row in rows)
        )
        return (Code(text, stays=True),)
    return Code(
        _with_code_replaced(piece.text, ((row, f"sample{place}") for row in rows)), stays=True
    ), _IN_PLACE


def _without_first(way: Way) -> Way:
    """A way, in which code that makes a list of `x` becomes that for one member, in its place."""
    kept: Way = ()
    for piece in way:
        member = (
            _member_code(piece.text) if isinstance(piece, Code) and not piece.numbered else None
        )
        if member is not None:
            kept = joined(kept, (Code(member), _IN_PLACE))
        elif isinstance(piece, str) and kept and kept[-1] == _IN_PLACE:
            kept = joined(kept, (piece.removeprefix(" first"),))
        else:
            kept = joined(kept, (piece,))
    return kept


# -- code ------------------------------------------------------------------------------------------


def _nodes_of_x(code: str) -> list[ast.Name] | None:
    """Each name `x` in code; ``None`` if Python cannot read it."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    of_functions = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda)
        and any(parameter.arg == "x" for parameter in node.args.args)
        for inner in ast.walk(node)
    }
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == "x" and id(node) not in of_functions
    ]


def _members_by_number(code: str) -> Iterator[ast.Subscript]:
    """Each member of `x` by its number, in code."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id == "x"
            and isinstance(node.slice, ast.Constant)
            and type(node.slice.value) is int
        ):
            yield node


def _member_code(code: str) -> str | None:
    """What a list comprehension over `x` does with one member, as code for `x`."""
    try:
        node = ast.parse(code, mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(node, ast.ListComp) or len(node.generators) != 1:
        return None
    source = node.generators[0]
    if source.ifs or ast.unparse(source.iter) != "x" or isinstance(node.elt, ast.ListComp):
        return None
    member = ast.unparse(source.target)
    text = ast.get_source_segment(code, node.elt) or ""
    members = [
        node
        for node in ast.walk(ast.parse(text, mode="eval"))
        if isinstance(node, ast.Name) and node.id == member
    ]
    return _with_code_replaced(text, ((member, "x") for member in members))


def _with_code_replaced(code: str, new: Iterator[tuple[ast.expr, str]]) -> str:
    """Code with other code in the place of some of its parts."""
    lines = [line.encode() for line in code.splitlines(keepends=True)]
    starts = [sum(map(len, lines[:index])) for index in range(len(lines))]
    text = code.encode()
    parts = [
        (
            starts[node.lineno - 1] + node.col_offset,
            starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0),
            put,
        )
        for node, put in new
    ]
    for start, end, put in sorted(parts, reverse=True):
        text = text[:start] + put.encode() + text[end:]
    return text.decode()
