"""`Hint`: code to type instead, which calls again the function that was called.

An error is raised where nobody knows any more whether `to_torch`, `explain` or `convert_tree` was called. Its
hint has gaps, which the function that was called fills in when the error comes by.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Hint"]

_ORDINARY = "numpy"
"""The target of a call that says none."""

_ALONE = {
    "collate": "convert",
    "convert_tree": "convert",
    "describe_tree": "describe",
    "explain_collate": "explain",
    "explain_tree": "explain",
    "prefetch": "convert",
    "shares_memory": "describe",
}
"""For a function that does not take one tensor, the one that does the same to one."""
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
"""The function that does the same to a tree; of the others it is `convert_tree`."""
_AIMLESS = frozenset({"describe", "describe_tree", "snapshot"})
"""Functions that take no target; nor do those that are named after theirs."""


_SAYING = frozenset({"convert", "convert_tree", "explain", "explain_tree"})
"""Functions that take keywords of what is missing in columns."""
_SAYING_LIKE: dict[str, str] = dict.fromkeys(
    ("collate", "describe_tree", "explain_collate", "prefetch", "save", "snapshot", "start"), "convert_tree"
)


class Hint(str):
    """A hint in which the function that was called is called again.

    >>> hint = Hint("{one:sorted(x)}, or {tree:x}")
    >>> hint
    'to_numpy(sorted(x)), or convert_tree(x, "numpy")'
    >>> hint.said_of("explain", "torch")
    'explain(sorted(x), "torch"), or explain_tree(x, "torch")'

    Args:
        template: The text, with ``{one:…}`` for a call on something else, ``{tree:…}`` for one of the function that
            does the same to a tree, ``{either:…}`` for both of these, ``{load:…}`` and ``{prefetch:…}`` for one
            with the same target, and ``{again:x|…}`` for the same call with more keywords.
        function: The function that was called.
        target: The canonical name of the target.
    """

    __slots__ = ("_said_of", "_template")
    _template: str
    _said_of: tuple[str, str]

    def __new__(cls, template: str, function: str = "to_numpy", target: str = _ORDINARY) -> Hint:  # noqa: D102, PYI034
        one, tree = _ALONE.get(function, function), _IN_TREES.get(function, "convert_tree")
        again = (
            function if function in _SAYING or function.startswith("to_") else _SAYING_LIKE.get(function, "to_numpy")
        )
        gaps = {"one": one, "tree": tree, "again": again, "load": "load", "prefetch": "prefetch"}
        filled: dict[str, Any] = {gap: _Gap(name, target) for gap, name in gaps.items()}
        text = template.format(either=_Either(filled["one"], filled["tree"]), **filled)
        made = super().__new__(cls, text)
        made._template, made._said_of = template, (function, target)
        return made

    def said_of(self, function: str, target: str) -> Hint:
        """The same hint of another call."""
        return Hint(self._template, function, target)

    def before(self, text: str) -> Hint:
        """The same hint with more words behind it."""
        return Hint(self._template + text.replace("{", "{{").replace("}", "}}"), *self._said_of)

    def __reduce__(self) -> tuple[Any, ...]:
        return Hint, (self._template, *self._said_of)


class _Gap:
    """A function that `str.format` calls on what stands in a gap."""

    def __init__(self, function: str, target: str) -> None:
        self.function = function
        self.target = target

    def __format__(self, x: str) -> str:
        if self.function == "save":
            # It takes trees by itself, so `x` was not one yet.
            found = f'convert_tree(x, "{self.target}")' if x == "x" else x
            return f"save({found}, path)"
        aimless = self.function in _AIMLESS or self.function.startswith("to_")
        ordinary = self.function == "load" and self.target == _ORDINARY
        x, _, keywords = x.partition("|")
        said = [x, *([] if aimless or ordinary else [f'"{self.target}"']), *([keywords] if keywords else [])]
        return f"{self.function}({', '.join(said)})"


class _Either:
    """Two of those, where it is not known whether what stands in the gap is one tensor or several."""

    def __init__(self, one: _Gap, tree: _Gap) -> None:
        self.one, self.tree = one, tree

    def __format__(self, x: str) -> str:
        one, tree = format(self.one, x), format(self.tree, x)
        return one if one == tree else f"{one}, or {tree} if it gives several tensors"
