"""Raise the errors of all leaves of a tree together, each with its path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import hints
from ..backends.no_tensor import KEEPS_TEXT
from ..core.leaf_dtypes import (
    DtypeRule,
    unknown_name,
    with_choice,
    with_others,
)
from ..errors import LossyCastError, TreeError, UnsupportedTypeError, shown
from ..hints import Hint
from .structure import at_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..errors import ConversionError

__all__ = ["ask_for_all", "hint_for_leaf", "raise_all", "refuse_unknown_name"]


def refuse_unknown_name(
    keyword: str,
    keys: Iterable[tuple[str, object]],
    names: Iterable[str],
    why_no_tensor: Callable[[str], tuple[str, str] | None] = lambda _: None,
    rest: Iterable[tuple[str, object]] = (),
) -> None:
    """Raise if a mapping has a name that no leaf has.

    Args:
        keyword: As for `unknown_name`.
        keys: As for `unknown_name`.
        names: As for `unknown_name`.
        why_no_tensor: Gives why the column with a name is no tensor, and the dtype to name, if there
            is one; ``None`` if there is no such column.
        rest: The mapping's keys that are no names, with their values.

    Raises:
        UnsupportedTypeError: It has such a name, or that of a column that is no tensor.
    """
    keys, names, rest = tuple(keys), tuple(names), tuple(rest)
    unknown = unknown_name(keyword, keys, names, rest)
    if unknown is None:
        return
    for name, _ in keys:
        if name in names:
            why_and_asked = None
        else:
            why_and_asked = why_no_tensor(name)
        if why_and_asked is not None:
            why, asked = why_and_asked
            if asked:
                kept = {**dict(keys), name: asked}
            else:
                kept = {key: value for key, value in keys if key != name}
            kept |= dict(rest)
            hint = Hint(hints.keyword(keyword, kept)) if kept else hints.without(keyword)
            raise UnsupportedTypeError(
                f"{keyword}= has the name {shown(name)}, which is no tensor: it {why}.", hint
            )
    raise UnsupportedTypeError(*unknown)


def raise_all(
    errors: dict[int, ConversionError],
    path: Callable[[int], str],
    rule: DtypeRule | None = None,
    name: Callable[[int], str] = lambda _: "",
    tree: str = "x",
) -> None:
    """Raise the error of one leaf, or a group of the errors of several.

    Each message ends in the path of the leaf.

    Args:
        errors: The error of each leaf, by its index. It is emptied, so that errors do not keep
            their frames alive.
        path: Gives the path of a leaf.
        rule: The rule for dtypes: a hint with another dtype keeps the rest of it.
        name: Gives the dotted name of a leaf.
        tree: The code for the tree: in a batch, this is each sample.

    Raises:
        ConversionError: There is one error.
        TreeError: There are several errors.
    """
    at_leaves = [
        _at_leaf(errors[index], path(index), name(index), rule, tree) for index in sorted(errors)
    ]
    if rule is not None:
        ask_for_all(
            rule,
            [(error, name(index)) for error, index in zip(at_leaves, sorted(errors), strict=True)],
        )
    errors.clear()
    try:
        if len(at_leaves) == 1:
            raise at_leaves[0]
        if at_leaves:
            raise TreeError(f"{len(at_leaves)} leaves cannot be converted:", at_leaves)
    finally:
        del at_leaves


def hint_for_leaf(
    hint: str | Hint | None,
    path: str,
    name: str,
    rule: DtypeRule | None = None,
    tree: str = "x",
) -> Hint | None:
    """The hint of an error for one leaf, which names this leaf.

    Args:
        hint: The hint.
        path: The path of the leaf.
        name: Its dotted name.
        rule: The rule for dtypes, which the hint keeps.
        tree: As for `raise_all`.
    """
    if hint is None:
        return None
    leaf_hint = Hint.of(hint)
    if tree == "sample":
        if leaf_hint == KEEPS_TEXT:
            return None
        # The tensors of all samples are a list; each of them is in its sample.
        leaf_hint = leaf_hint.for_each_sample()
    given = DtypeRule() if rule is None else rule
    return leaf_hint.for_leaf(
        f"{tree}{path[1:]}",
        name,
        lambda dtype: with_choice(given, name, dtype).as_mapping(),
    )


def _at_leaf(
    error: ConversionError, path: str, name: str, rule: DtypeRule | None, tree: str
) -> ConversionError:
    """The error of a leaf, whose message ends in its path, and whose hint names this leaf."""
    placed_error = at_path(error, path)
    placed_error.advise(hint_for_leaf(placed_error.advice, path, name, rule, tree))
    return placed_error


def ask_for_all(rule: DtypeRule, errors: Iterable[tuple[ConversionError, str]]) -> None:
    """Complete hints that name another dtype, so that they keep the rest of ``dtype=``.

    Args:
        rule: The rule for dtypes.
        errors: The error of each leaf, and its dotted name.
    """
    with_dtypes = [
        (error, error.instead, name) for error, name in errors if isinstance(error, LossyCastError)
    ]
    others = [(*instead, name) for _, instead, name in with_dtypes if instead is not None]
    if others:
        asked = with_others(rule, [(dtype, name, instead) for dtype, instead, name in others])
    else:
        asked = ""
    for error, instead, _ in with_dtypes:
        if instead is not None and error.advice is not None:
            error.advise(error.advice.with_dtype(asked))
