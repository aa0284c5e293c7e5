"""What a case of the tour is, and where cases are entered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..stage import Stage

    Play = Callable[[Stage], None]

__all__ = ["CASES", "NO_GPU", "Case", "case"]

NO_GPU = "no accelerator here: the plan is shown"


@dataclass(frozen=True)
class Case:
    """One case: what it is called, what it cannot do without, and how it plays.

    Args:
        id: Its name in every document and test.
        title: What is converted to what, in a few words.
        needs: The frameworks without which it cannot play.
        play: Runs its lines on a stage.
    """

    id: str
    title: str
    needs: tuple[str, ...]
    play: Play


CASES: dict[str, Case] = {}
"""Every case by its id."""


def case(number: int, title: str, *needs: str) -> Callable[[Play], Play]:
    """Enter a function into `CASES`."""

    def enter(play: Play) -> Play:
        name = f"C{number:02d}"
        CASES[name] = Case(name, title, needs, play)
        return play

    return enter
