"""Find the labels of a result: those of ``index=`` and ``columns=``, and those of the tensor in ``like=``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..core.info import TensorInfo
from ..core.request import LABEL_KEYWORDS, refuse_option

if TYPE_CHECKING:
    from ..core.labels import Labels

__all__ = ["labels_like", "take_labels"]


def take_labels(name: str, keywords: dict[str, Any]) -> Labels | None:
    """Take ``index=`` and ``columns=`` out of the keywords of a call; ``None`` if neither is given.

    Args:
        name: The name of the target.
        keywords: The keywords of the call.

    Raises:
        TypeError: The target has no such keyword, or it has a value that it does not take.
        ShapeError: A name occurs twice.
        FrameworkNotInstalledError: The target's framework is not installed.
    """
    found = {each: keywords.pop(each) for each in LABEL_KEYWORDS if each in keywords}
    for option in sorted(found):
        refuse_option(registry.backend_named(name), option)
    if all(value is None for value in found.values()):
        return None
    target: Any = registry.ready(name)
    return target.labels_given(found.get("index"), found.get("columns"))  # type: ignore[no-any-return]


def labels_like(name: str, like: object) -> Labels | None:
    """The labels of the tensor in ``like=``; ``None`` if it has none, or is not of the target's library.

    Args:
        name: The name of the target.
        like: The tensor, or its description, which has no labels.
    """
    owner = None if isinstance(like, TensorInfo) else registry.BY_TYPE.get(type(like))
    if owner is None or owner.name != name:
        return None
    return owner.labels_of(like)
