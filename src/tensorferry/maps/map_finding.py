"""`MapFinding`: something that is wrong between a table and its tensors."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MapFinding"]


class MapFinding(NamedTuple):
    """Something that is wrong between a table and its tensors.

    Args:
        kind: ``"unfilled"`` (elements that nothing writes, or a tensor that the target needs),
            ``"twice"`` (elements that are written twice), ``"unused"`` (of the source, and not in
            `drop`), ``"bounds"`` (elements that do not exist), ``"shape"``, ``"dtype"``,
            ``"unknown"`` (names), ``"length"`` (a length that is not known, or does not fit).
        tensor: The tensor that it concerns.
        message: What is wrong, in one line.
        length: The name of the length that is not known, if that is it.
    """

    kind: str
    tensor: str
    message: str
    length: str | None = None

    def __str__(self) -> str:
        return f"{self.tensor}: {self.message}" if self.tensor else self.message
