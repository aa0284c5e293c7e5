"""Convert a table whose columns are plain memory: the columns are described together, and recipes are found at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..core.info import TensorInfo
from ..errors import ConversionError
from ..execution import run
from ..host.numpy_dtypes import of_numpy
from .many import may_share_a_byte
from .tables import has_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..backends.columnar import ColumnBackend, Views
    from ..execution.recipes import Conversion, Recipe
    from ..typing import Array
    from .targets import Targets

__all__ = ["convert_plainly"]


def convert_plainly(table: Any, targets: Targets) -> dict[object, Any] | None:
    """The columns of a table, converted. Columns of text stay as they are.

    Args:
        table: Any object.
        targets: One target for all columns, and a ``dtype=`` without names.

    Returns:
        The columns by name. ``None``: it is no table; a column has to be described; or two of those
        that are copied have memory in common.
    """
    if not has_columns(table) or targets.common is None:
        return None
    if targets.common.described or not targets.common.is_for_host:
        return None
    owner: Any = registry.backend_of(table)
    views = None if targets.common.target is owner else owner.views(table)
    try:
        return None if views is None else _converted(owner, views, targets)
    except ConversionError:
        return None  # the general way raises the error, with the name of the column


def _converted(owner: ColumnBackend, views: Views, targets: Targets) -> dict[object, Any] | None:
    results: dict[object, Any] = dict(views.arrays)
    names = [name for name, array in results.items() if array is not None]
    if not names:
        return None
    if len(names) < len(results):
        kept = {name: column for name, column in views.columns().items() if results[name] is None}
        if not all(map(owner.is_text, kept.values())):
            return None
        results.update(kept)
    arrays: list[Any] = [results[name] for name in names]
    common: Any = targets.common
    target = registry.ready(common.target.name)
    environment, alignment = common.environment(), target.capabilities.memory.alignment
    groups: list[tuple[Recipe, Conversion, Sequence[int]]] = []
    copied: list[Array] = []
    for signature, places in owner.grouped_views(arrays, alignment).items():
        conversion = common
        if targets.decides_by_leaf:
            info = TensorInfo(owner.name, (), of_numpy(arrays[places[0]].dtype) or "")
            conversion = targets.asked_of(common, info, str)
        recipe = conversion.find((signature, environment))
        if recipe is None:
            recipe = run.prepare(views.columns()[names[places[0]]], conversion).recipe
            conversion.keep((signature, environment), recipe)
        groups.append((recipe, conversion, places))
        if recipe.copies:
            copied += [arrays[place] for place in places]
    if may_share_a_byte(copied, compact=False):
        return None
    for recipe, _, places in groups:
        found = run.execute(recipe.bulk, [arrays[place] for place in places])
        for place, result in zip(places, found, strict=True):
            results[names[place]] = result
    for _, conversion, places in groups if run.is_verifying() else ():
        columns = views.columns()
        for name in [names[place] for place in places]:
            run.verify(run.prepare(columns[name], conversion), results[name])
    return results
