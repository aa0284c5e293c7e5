"""The step that labels a result: the index of its rows, and the names of its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ShapeError

if TYPE_CHECKING:
    from ..core.declaration import Declaration
    from ..core.info import TensorInfo
    from ..core.labels import Labels
    from ..core.request import Request
    from .builder import PlanBuilder

__all__ = ["label", "refuse_misfit"]


def refuse_misfit(info: TensorInfo, request: Request, target: Declaration) -> None:
    """Raise if ``index=`` or ``columns=`` does not fit the result.

    Raises:
        ShapeError: It has another number of labels than the result has rows, or columns; or the
            result is one column.
    """
    given = None if request.labels is None else request.labels.given
    if given is None:
        return
    rows, columns = _extent(info)
    if given.index is not None and len(given.index) != rows:
        raise ShapeError(
            f"index= has {_counted(len(given.index), 'label')}, and the result has {_counted(rows, 'row')}.",
            "without index=",
        )
    if given.names is None:
        return
    if len(info.shape) == 1:
        raise ShapeError(
            f"columns= names the columns of a table. A tensor with one axis becomes a column of {target.name}, whose "
            "name is set by its method rename.",
            "without columns=",
        )
    if len(given.names) != columns:
        raise ShapeError(
            f"columns= has {_counted(len(given.names), 'name')}, and the result has {_counted(columns, 'column')}.",
            "without columns=",
        )


def label(plan: PlanBuilder) -> None:
    """Label the result, if there are labels for it that it has not got already."""
    wanted = plan.request.labels
    if wanted is None or plan.now.abstract is not None:
        return
    rows, columns = _extent(plan.now)
    index, index_from, index_left = _chosen(wanted._asdict(), "index", rows)
    names, names_from, names_left = _chosen(wanted._asdict(), "names", columns)
    if not plan.steps and plan.source is plan.target:
        # The result is the source itself, which keeps its own.
        index = None if index_from == "own" else index
        names = None if names_from == "own" else names
    remarks = _left(index_left, names_left, rows, columns)
    if index is not None or names is not None:
        plan.reason = plan.reason if plan.steps else "the same memory"
        _add(plan, (index, index_from), (names, names_from))
    plan.reason = "; ".join([plan.reason, *remarks])


def _add(
    plan: PlanBuilder, index: tuple[Labels | None, str], names: tuple[Labels | None, str]
) -> None:
    is_column = len(plan.now.shape) == 1
    codes = (
        None if index[0] is None else _INDEX[index[1]][0],
        None if names[0] is None else _code_of_names(names[0], names[1], is_column=is_column),
    )
    words = [] if index[0] is None else [_INDEX[index[1]][1]]
    words += [] if names[0] is None else [_NAMES[names[1]]]
    why = f"labelled by {' and '.join(words)}"
    plan.add(plan.target, "label", (index[0], names[0]), why, snippet_arguments=codes)


_INDEX = {
    "given": ("index", "index="),
    "own": ("x.index", "the index of x"),
    "like": ("like.index", "the index of like="),
}
"""By where an index comes from: the code for it, and the words."""
_NAMES = {"given": "columns=", "own": "the names of x", "like": "the names of like="}
"""By where names come from: the words for them."""


def _code_of_names(names: Labels, origin: str, *, is_column: bool) -> str:
    """The code for the name of a column, or for the names of a table."""
    if origin == "given":
        return "columns"
    owner = "x" if origin == "own" else origin
    if names.is_table:
        return f"{owner}.columns[0]" if is_column else f"{owner}.columns"
    return f"{owner}.name" if is_column else f"[{owner}.name]"


def _extent(info: TensorInfo) -> tuple[int, int]:
    """The numbers of rows and columns. A column is one."""
    return info.shape[0], 1 if len(info.shape) == 1 else info.shape[1]


def _chosen(
    wanted: dict[str, Labels | None], part: str, length: int
) -> tuple[Labels | None, str, int | None]:
    """The first labels that have this part in the right number, and where they come from.

    The last is the number of those of ``like=`` that do not fit; ``None`` if they are not needed.
    """
    for origin, labels in wanted.items():
        found = None if labels is None else getattr(labels, part)
        if found is not None and len(found) == length:
            return labels, origin, None
    theirs = None if wanted["like"] is None else getattr(wanted["like"], part)
    return None, "", None if theirs is None else len(theirs)


def _left(index: int | None, names: int | None, rows: int, columns: int) -> list[str]:
    """What a reason says of labels of ``like=`` that do not fit."""
    found = []
    if index is not None:
        found.append(
            f"the index of like= has {_counted(index, 'label')} for {_counted(rows, 'row')}, which are only numbered"
        )
    if names is not None:
        found.append(
            f"like= has {_counted(names, 'name')} for {_counted(columns, 'column')}, and is not taken"
        )
    return found


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
