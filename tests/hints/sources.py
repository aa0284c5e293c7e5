"""The hints that are written in the source: as data, with a name in the place of what is not known before it runs."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tensorferry import hints
from tensorferry.hints import Hint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PUT_IN = "value"
"""What stands for a value that only a run has."""


def hints_of(path: Path) -> list[Hint]:
    """Each hint that a module makes with `Hint`, or with a function of `hints`."""
    found = _Hints()
    found.visit(ast.parse(path.read_text(encoding="utf-8")))
    return found.made


def texts_of(node: ast.expr) -> Iterator[str]:
    """The texts of an expression that is given as a hint; what is put into one is `PUT_IN`."""
    if isinstance(node, ast.JoinedStr):
        yield _joined(node)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from texts_of(node.body)
        yield from texts_of(node.orelse)


class _Hints(ast.NodeVisitor):
    """Evaluates each expression that makes a hint, but for those that are a part of another."""

    def __init__(self) -> None:
        self.made: list[Hint] = []

    def visit_Call(self, node: ast.Call) -> None:
        if not _makes_one(node):
            self.generic_visit(node)
            return
        code = ast.unparse(_plain(node))
        found = eval(code, {"Hint": Hint, "hints": hints})  # noqa: S307 - code of this package, whose values are plain
        self.made.append(found if isinstance(found, Hint) else Hint(found))


def _plain(node: ast.expr) -> ast.expr:
    """An expression with plain values in the place of all that only a run has."""
    if isinstance(node, ast.Constant) or (
        isinstance(node, ast.Attribute) and ast.unparse(node) in _MARKS
    ):
        return node
    if isinstance(node, ast.JoinedStr):
        return ast.Constant(_joined(node))
    if isinstance(node, ast.IfExp):
        return _plain(node.body)
    if not isinstance(node, ast.Call) or not _makes_one(node):
        return ast.Constant(PUT_IN)
    # What a hint is made of may be more text, or nothing.
    is_whole = ast.unparse(node.func) == "Hint"
    given = [_plain(each) for each in node.args if not isinstance(each, ast.Starred)]
    if is_whole:
        given = [each for each in given if getattr(each, "value", "") != PUT_IN]
    named = [ast.keyword(each.arg, _plain(each.value)) for each in node.keywords if each.arg]
    return ast.Call(node.func, given, named)


def _makes_one(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    module, _, name = ast.unparse(node.func).rpartition(".")
    return (module, name) == ("", "Hint") or (module == "hints" and name not in _OTHERS)


_MARKS = {"hints.NAME_ALONE", "hints.SOME", "hints.WIDEST", "hints.WIDEST_COMPLEX"}
_OTHERS = {"Keywords", "Written", "pairs_in", "quoted"}
"""Functions of `hints` that make no hint."""


def _joined(node: ast.JoinedStr) -> str:
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else PUT_IN for part in node.values
    )
