"""The functions for trees that users call: convert_tree, describe_tree, explain_tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import registry
from ..errors import ConversionError, UnsupportedTypeError
from ..info import TensorInfo
from ..request import aim
from .leaves import LeafRule

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..typing import Casting, Grad
    from .journey import Aim
    from .plans import TreePlan

__all__ = ["convert_tree", "describe_tree", "explain_tree"]


def convert_tree(
    tree: Any,
    to: str | None = None,
    /,
    *,
    like: Any = None,
    copy: bool | None = None,
    dtype: object = None,
    casting: Casting | None = None,
    device: object = None,
    grad: Grad = "detach",
    out: Any = None,
    leaves: str | Callable[[Any], bool] = "tensors",
    coalesce: bool = True,
    **options: bool,
) -> Any:
    """Every tensor inside containers as a tensor of one framework; the containers and the rest as they are.

    >>> import numpy as np, tensorferry as ferry
    >>> batch = {"x": np.zeros(2), "names": ["a", "b"], "label": 1}
    >>> ferry.convert_tree(batch, "jax")["x"].device.platform
    'cpu'
    >>> ferry.convert_tree(batch, "numpy", dtype="float32")
    {'x': array([0., 0.], dtype=float32), 'names': ['a', 'b'], 'label': 1}

    Containers are dict, list, tuple and their kin and subclasses, named tuples, deques, dataclasses, attrs
    classes, `types.SimpleNamespace`, mappings, structured NumPy arrays (as a dict of their fields), and
    what is registered with optree, or with a framework that is imported. Their types, the order of keys
    and all that is no tensor are kept; ``None`` passes through; the tree that came in is never changed.
    A tensor that is there twice is converted once, and what overlaps in one memory still does. The result
    *may share memory* with the tree, as `convert` would: `snapshot` never does.

    Args:
        tree: The tree, or one tensor.
        to: As for `convert`.
        like: Instead of `to`: a tensor whose framework, dtype and device all leaves take, or a tree of the
            same structure, of which each leaf takes its own.
        copy: As for `convert`.
        dtype: As for `convert`.
        casting: As for `convert`.
        device: As for `convert`.
        grad: As for `convert`.
        out: A tree of the same structure with what the results are written into. Nothing is written unless
            every leaf can be.
        leaves: ``"tensors"`` converts what has memory of a framework's; ``"numbers"`` Python numbers and
            NumPy's scalars too, each as a tensor of shape ``()``; a callable what it says yes to, which can
            be a container (a list of numbers, say).
        coalesce: Let small leaves cross the bus together, in one transfer for each pair of devices.
        **options: As for `convert`.

    Raises:
        ConversionError: A leaf cannot be converted, as for `convert`; the message ends in its path,
            ``$["encoder"][3].weight``.
        TreeError: Several cannot: a group of their errors. Nothing half-converted is returned.
        TypeError: As for `convert`.
    """
    from . import journey  # with it comes optree, which importing tensorferry need not wait for

    rule = LeafRule(leaves)
    goal = _goal(to, like, dtype, device, rule, copy, casting, grad, options)
    return journey.Journey(tree, goal, rule, out, coalesce=coalesce).arrive()


def explain_tree(
    tree: Any,
    to: str | None = None,
    /,
    *,
    like: Any = None,
    copy: bool | None = None,
    dtype: object = None,
    casting: Casting | None = None,
    device: object = None,
    grad: Grad = "detach",
    out: Any = None,
    leaves: str | Callable[[Any], bool] = "tensors",
    coalesce: bool = True,
    **options: bool,
) -> TreePlan:
    """What the same call of `convert_tree` would do: each leaf's plan, and the sums; nothing is converted.

    >>> import numpy as np, tensorferry as ferry
    >>> print(ferry.explain_tree({"x": range(3), "y": np.zeros(2)}, "numpy", copy=True))
    1 leaf, 1 kept as they are: 16 B copied, 0 B shared
       $["y"]  numpy float64[2] on cpu -> numpy float64[2] on cpu; copies 16 B: copy=True asks for independent memory

    Args:
        tree: As for `convert_tree`; a `TensorInfo` stands for a tensor that need not exist.
        to: As for `convert_tree`.
        like: As for `convert_tree`.
        copy: As for `convert_tree`.
        dtype: As for `convert_tree`.
        casting: As for `convert_tree`.
        device: As for `convert_tree`.
        grad: As for `convert_tree`.
        out: As for `convert_tree`.
        leaves: As for `convert_tree`.
        coalesce: As for `convert_tree`.
        **options: As for `convert_tree`.

    Raises:
        ConversionError: The same as the conversion would raise, except for what only the values show.
    """
    from . import journey

    rule = LeafRule(leaves, infos=True)
    goal = _goal(to, like, dtype, device, rule, copy, casting, grad, options)
    return journey.Journey(tree, goal, rule, out, coalesce=coalesce).plan()


def describe_tree(tree: Any, /, *, leaves: str | Callable[[Any], bool] = "tensors") -> dict[str, TensorInfo]:
    """What each tensor of a tree is, by its path.

    >>> import numpy as np, tensorferry as ferry
    >>> for path, info in ferry.describe_tree({"layers": [np.zeros((2, 3))], "name": "small"}).items():
    ...     print(path, info.shape, info.dtype)
    $["layers"][0] (2, 3) float64

    Args:
        tree: As for `convert_tree`.
        leaves: As for `convert_tree`.

    Raises:
        ConversionError: A tensor of a kind that cannot be carried; several raise a `TreeError`.
    """
    return _describe(tree, LeafRule(leaves, infos=True))


def _describe(tree: Any, rule: LeafRule) -> dict[str, TensorInfo]:
    from .journey import raise_all
    from .structure import take_apart

    found, errors = {}, []
    parts, structure = take_apart(tree, rule.chosen)
    for path, leaf in zip(structure.paths(), parts, strict=True):
        try:
            if isinstance(leaf, TensorInfo):
                found[path] = leaf
            elif rule.takes(leaf):
                backend = registry.backend_of(leaf)
                if not backend.is_text(leaf):
                    found[path] = backend.open(leaf)[1]
        except ConversionError as error:
            errors.append((path, error))
    raise_all(errors)
    return found


def _goal(
    to: str | None,
    like: Any,
    dtype: object,
    device: object,
    rule: LeafRule,
    copy: bool | None,
    casting: str | None,
    grad: str,
    options: dict[str, bool],
) -> Aim:
    """Where the leaves go, from `to` or `like`."""
    from .journey import Aim

    keywords = {"copy": copy, "casting": casting, "grad": grad, "options": tuple(options.items())}
    if like is None or to is not None or isinstance(like, TensorInfo):
        return Aim(aim(to, like, dtype, device), **keywords)
    infos = _describe(like, rule)
    if not infos:
        raise UnsupportedTypeError("like= has no tensor in it.", "like= a tensor, or a tree of tensors")
    targets = {path: aim(None, info, dtype, device) for path, info in infos.items()}
    return Aim(targets["$"] if set(targets) == {"$"} else targets, **keywords)
