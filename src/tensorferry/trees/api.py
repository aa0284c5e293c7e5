"""The functions for trees that users call: thin, and the same keywords as for one tensor."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..backends import registry, tracers
from ..core.info import TensorInfo
from ..core.leaf_dtypes import rule_of
from ..core.names import EXCHANGE
from ..core.request import refuse_unknown
from ..errors import ConversionError, UnsupportedTypeError
from ..execution.target import aim, target_of
from .leaves import leaf_rule
from .targets import Targets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Unpack

    from ..typing import Casting, Grad, Leaves, Options, To, Unknown
    from .leaves import LeafRule
    from .plans import TreePlan

    Goal = tuple[To | None, Any, object, object, bool | None, str | None, str, Options]

__all__ = ["collate", "convert_tree", "describe_tree", "explain_tree", "snapshot"]

Tree = TypeVar("Tree")


def convert_tree(
    tree: Any,
    /,
    to: To | None = None,
    *,
    like: Any = None,
    copy: bool | None = None,
    dtype: object = None,
    casting: Casting | None = None,
    device: object = None,
    grad: Grad = "detach",
    out: Any = None,
    leaves: Leaves = "tensors",
    unknown: Unknown = "error",
    coalesce: bool = True,
    **options: Unpack[Options],
) -> Any:
    """Every tensor inside containers as a tensor of one framework; the containers and the rest as they are.

    >>> import numpy as np, tensorferry as ferry
    >>> batch = {"x": np.zeros(2, "float32"), "names": ["a", "b"], "label": 1}
    >>> ferry.convert_tree(batch, "torch")
    {'x': tensor([0., 0.]), 'names': ['a', 'b'], 'label': 1}
    >>> ferry.convert_tree(batch, "numpy", leaves="numbers")["label"]
    array(1)

    Containers are dict, list, tuple and their kin and subclasses, named tuples, deques, dataclasses, attrs
    classes, namespaces, mappings, structured NumPy arrays (as a dict of their fields), caches of transformers,
    pydantic models, graphs of PyTorch Geometric, TensorDicts (a dict in another framework), and
    what is registered with optree, or with a framework that is imported. Their types, the order of keys
    and all that is no tensor are kept; ``None`` passes through; the tree that came in is never changed.
    A tensor or a container that is there twice is converted once, and what overlaps in one memory still does.
    The result *may share memory* with the tree, as `convert` would: `snapshot` never does.

    Args:
        tree: The tree, or one tensor.
        to: As for `convert`.
        like: Instead of `to`: a tensor whose framework and device all leaves take, and those of its kind its dtype;
            or a tree of the same structure, of which each leaf takes its own. `dtype` beside it counts for the leaves
            of which it speaks.
        copy: As for `convert`.
        dtype: One dtype is for the leaves of its kind (an integer one for signed and unsigned), ``"fit"`` and
            ``"default"`` are for all. Or a mapping to those, or to ``None``, from dotted names of leaves with ``*``,
            which win over dtypes, which win over ``"float"``, ``"int"``, ``"uint"``, ``"bool"`` and ``"complex"``:
            ``{"image": "bfloat16", "encoder.*": "fit", "int64": "int32", "bool": "uint8"}``.
        casting: As for `convert`.
        device: As for `convert`.
        grad: As for `convert`.
        out: A tree of the same structure with what the results are written into. Nothing is written unless
            every leaf can be.
        leaves: ``"tensors"`` converts what has memory of a framework's; ``"numbers"`` Python numbers and
            NumPy's scalars too, each as a tensor of shape ``()``; a callable what it says yes to, which can
            be a container (a list of numbers, say).
        unknown: What is done about an object that is neither tensor nor plain value nor container, and holds a
            tensor: ``"error"`` refuses it, ``"keep"`` keeps it as it is.
        coalesce: Let small leaves cross the bus together, in one transfer for each pair of devices.
        **options: As for `convert`.

    Raises:
        ConversionError: A leaf cannot be converted, as for `convert`; the message ends in its path,
            ``$["encoder"][3].weight``.
        UnsupportedTypeError: `dtype` has a name that no leaf has; the hint has the nearest.
        TreeError: Several cannot: a group of their errors. Nothing half-converted is returned.
        TypeError: As for `convert`.

    .. versionadded:: 0.1
    """
    goal = (to, like, dtype, device, copy, casting, grad, options)
    return _untraced(convert_tree, goal, _convert, tree, goal, out, leaves, unknown, coalesce)


def snapshot(tree: Tree, /, *, unknown: Unknown = "error") -> Tree:
    """The tensors of a tree as they are now, each of its own framework, in memory that nobody else has.

    >>> import numpy as np, tensorferry as ferry
    >>> state = {"weight": np.zeros(2), "step": 3}
    >>> before = ferry.snapshot(state)
    >>> state["weight"] += 1
    >>> before
    {'weight': array([0., 0.]), 'step': 3}

    Where `convert_tree` may share memory, `snapshot` never does: each tensor is converted to its own framework with
    ``copy=True``, on its device. What is there twice is copied once, and what overlaps still does. Tensors
    come outside the autograd graph, as plain ones: no parameters, no variables.

    Args:
        tree: As for `convert_tree`; everything that is no tensor stays as it is.
        unknown: As for `convert_tree`.

    Raises:
        ConversionError: A tensor has not one memory to copy (sparse, quantized, deleted …); several raise a
            `TreeError`.

    .. versionadded:: 0.1
    """
    return _untraced(snapshot, None, _snapshot, tree, unknown)  # type: ignore[no-any-return]


def collate(
    samples: Iterable[Any],
    /,
    to: To | None = None,
    *,
    like: Any = None,
    dtype: object = None,
    casting: Casting | None = None,
    device: object = None,
    grad: Grad = "detach",
    leaves: Leaves = "numbers",
    unknown: Unknown = "error",
    pad: complex | Mapping[str, complex] | None = None,
    pad_to_multiple_of: int | None = None,
    padding_side: Literal["right", "left"] = "right",
    mask: bool = False,
    lengths: bool = False,
    **options: Unpack[Options],
) -> Any:
    """A list of trees as one tree of stacked tensors: a batch of samples, with an axis in front.

    >>> import numpy as np, tensorferry as ferry
    >>> samples = [{"x": np.ones(2), "label": 1, "name": "a"}, {"x": np.zeros(2), "label": 0, "name": "b"}]
    >>> batch = ferry.collate(samples, "numpy")
    >>> batch["x"].shape, batch["label"].dtype, batch["name"]
    ((2, 2), dtype('int64'), ['a', 'b'])

    >>> texts = [{"input_ids": [5, 7, 2], "labels": [5, 7, 2]}, {"input_ids": [9], "labels": [9]}]
    >>> batch = ferry.collate(texts, "numpy", pad={"input_ids": 0, "labels": -100}, mask=True)
    >>> batch["input_ids"].tolist(), batch["labels"].tolist(), batch["input_ids_mask"].tolist()
    ([[5, 7, 2], [9, 0, 0]], [[5, 7, 2], [9, -100, -100]], [[True, True, True], [True, False, False]])

    Each leaf takes one allocation, into which the samples are written. Tensors of several frameworks stack
    where one dtype holds them all; numbers take the target's own dtype, as in `convert`, and the tensors' where they
    stand among tensors and keep their values there. Integers, floats, complex numbers and bools do not meet in one
    leaf unless `dtype` names what they become. What is no number (strings, other objects) becomes a list; where all
    samples have ``None``, so has the result. A plain list of numbers, or of such lists, directly below a key of a
    mapping is one tensor; elsewhere (a sample itself, in a tuple or a dataclass) it is a container like any other.

    Args:
        samples: Trees of one structure, at least one.
        to: As for `convert`.
        like: As for `convert_tree`; a tree is one of the structure of a sample.
        dtype: As for `convert_tree`, by the names of a sample's leaves and the dtype that they have together.
        casting: As for `convert`.
        device: As for `convert`.
        grad: As for `convert`; what is padded leaves the graph.
        leaves: As for `convert_tree`; here Python numbers stack too, and lists of them below keys, unless
            ``"tensors"`` is asked for, or a callable says what is one leaf.
        unknown: As for `convert_tree`; what is kept becomes a list.
        pad: What leaves of unequal lengths are filled up with: a number for all leaves that have an axis, or a
            mapping to numbers from dotted names with ``*``, as `dtype` has them: ``{"input_ids": 0, "labels": -100}``.
        pad_to_multiple_of: What the length of each leaf that `pad` speaks of becomes a multiple of, on the first axis
            on which its samples differ; on its first where they are all alike.
        padding_side: The side of that axis on which the filling stands. All other axes are padded to the longest, on
            the right.
        mask: Add a leaf ``<name>_mask`` beside each that `pad` speaks of: bool, of shape (batch, length of that axis),
            true where the sample has data; also where all are equally long.
        lengths: Add ``<name>_lengths`` likewise: int64, or the target's widest, of shape (batch,).
        **options: As for `convert`.

    Raises:
        ShapeError: There are no samples, or a leaf's shapes differ and `pad` says nothing of it, or they have not as
            many axes; the message has both shapes and the path.
        UnsupportedTypeError: The samples are different trees, or have a tensor where others have none; `pad` has a name
            that no leaf has; a mask or lengths are wanted beside a leaf that is below no str key of a dict, or has a
            neighbour of that name.
        ConversionError: As for `convert`; several leaves raise a `TreeError`.
        LossyCastError: What is filled in does not fit into a leaf's dtype; or integers meet floats.
        TypeError: As for `convert`; or a keyword says how something is padded, and `pad` says of nothing that it is.
        ValueError: `pad_to_multiple_of` is less than 1.

    .. versionadded:: 0.1
    """
    goal = (to, like, dtype, device, None, casting, grad, options)
    padding = None
    if pad is not None or pad_to_multiple_of is not None or padding_side != "right" or mask or lengths:
        padding = {
            "pad": pad,
            "multiple": pad_to_multiple_of,
            "side": padding_side,
            "mask": mask,
            "lengths": lengths,
        }
    return _untraced(collate, goal, _collate, samples, goal, leaves, unknown, padding)


def explain_tree(
    tree: Any,
    /,
    to: To | None = None,
    *,
    like: Any = None,
    copy: bool | None = None,
    dtype: object = None,
    casting: Casting | None = None,
    device: object = None,
    grad: Grad = "detach",
    out: Any = None,
    leaves: Leaves = "tensors",
    unknown: Unknown = "error",
    coalesce: bool = True,
    **options: Unpack[Options],
) -> TreePlan:
    """What the same call of `convert_tree` would do: each leaf's plan, and the sums; nothing is converted.

    >>> import tensorferry as ferry
    >>> print(ferry.explain_tree({"x": range(3), "y": ferry.TensorInfo("numpy", (2,))}, "numpy", copy=True))
    1 leaf, 1 kept as they are: 8 B copied, 0 B shared
       $["y"]  numpy float32[2] on cpu -> numpy float32[2] on cpu; copies 8 B: copy=True asks for independent memory

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
        unknown: As for `convert_tree`.
        coalesce: As for `convert_tree`.
        **options: As for `convert_tree`.

    Raises:
        ConversionError: The same as the conversion would raise, except for what only the values show.

    .. versionadded:: 0.1
    """
    goal = (to, like, dtype, device, copy, casting, grad, options)
    return _untraced(explain_tree, goal, _explain, tree, goal, out, leaves, unknown, coalesce)  # type: ignore[no-any-return]


def describe_tree(tree: Any, /, *, leaves: Leaves = "tensors", unknown: Unknown = "error") -> dict[str, TensorInfo]:
    """What each tensor of a tree is, by its path.

    >>> import numpy as np, tensorferry as ferry
    >>> for path, info in ferry.describe_tree({"layers": [np.zeros((2, 3))], "name": "small"}).items():
    ...     print(path, info.shape, info.dtype)
    $["layers"][0] (2, 3) float64

    Args:
        tree: As for `convert_tree`.
        leaves: As for `convert_tree`.
        unknown: As for `convert_tree`.

    Raises:
        ConversionError: A tensor of a kind that cannot be carried; several raise a `TreeError`.

    .. versionadded:: 0.1
    """
    rule = leaf_rule(leaves, infos=True, unknown=unknown)
    return _untraced(describe_tree, None, _describe, tree, rule)  # type: ignore[no-any-return]


# -- what they do, out of any tracer's sight ----------------------------------------------------------


def _untraced(called: Callable[..., Any], goal: Goal | None, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function for the one that was `called`: that is named in hints, and where a keyword is unknown."""
    if goal is not None and goal[-1]:
        refuse_unknown(called, goal[-1])
    run = tracers.shield(_call) if tracers.may_be_met() else _call
    try:
        return run(function, arguments)
    except ConversionError as error:
        error.said_of(called.__name__, EXCHANGE if goal is None else target_of(goal[0], goal[1]))
        raise


@tracers.untraced
def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return function(*arguments)


_untraced.__dict__["_torchdynamo_disable"] = True


@cache
def _conversion() -> Any:
    """The module that converts trees: with it comes optree, which importing tensorferry need not wait for."""
    from . import tree_conversion

    return tree_conversion


def _convert(tree: Any, goal: Goal, out: Any, leaves: Any, unknown: str, coalesce: bool) -> Any:
    rule = leaf_rule(leaves, unknown=unknown)
    return _conversion().TreeConversion(tree, _targets(goal, leaves), rule, out, coalesce=coalesce).convert()


def _snapshot(tree: Any, unknown: str) -> Any:
    own = Targets(None, rule_of(None))
    return _conversion().TreeConversion(tree, own, leaf_rule("tensors", unknown=unknown), None, coalesce=True).convert()


def _explain(tree: Any, goal: Goal, out: Any, leaves: Any, unknown: str, coalesce: bool) -> TreePlan:
    rule = leaf_rule(leaves, infos=True, unknown=unknown)
    plan: TreePlan = _conversion().TreeConversion(tree, _targets(goal, leaves), rule, out, coalesce=coalesce).plan()
    return plan


def _collate(samples: Iterable[Any], goal: Goal, leaves: Any, unknown: str, padding: dict[str, Any] | None) -> Any:
    from .collate import stack_samples

    if isinstance(samples, (Mapping, str, bytes)):
        raise UnsupportedTypeError(
            f"collate takes the samples of a batch, and a {type(samples).__name__} is one value.",
            "collate([x], to), for a batch of one",
        )
    rule = leaf_rule(leaves, unknown=unknown)
    return stack_samples(list(samples), _targets(goal, leaves), rule, padding)


def _describe(tree: Any, rule: LeafRule) -> dict[str, TensorInfo]:
    from .tree_conversion import raise_all
    from .walk import take_apart

    found: dict[str, TensorInfo] = {}
    errors: dict[int, ConversionError] = {}
    parts, structure = take_apart(tree, rule.chosen)
    rule.check(structure)
    paths = structure.paths()
    for index, (path, leaf) in enumerate(zip(paths, parts, strict=True)):
        try:
            if isinstance(leaf, TensorInfo):
                found[path] = leaf
            elif rule.takes(leaf):
                found[path] = registry.backend_of(leaf).preview(leaf)[1]
        except ConversionError as error:
            errors[index] = error
    raise_all(errors, paths.__getitem__)
    return found


@lru_cache(maxsize=256, typed=True)
def _targets_of(
    name: str, _revision: int, dtype: object, theirs: str | None, device: object, **keywords: Any
) -> Targets:
    return Targets((name, device), rule_of(dtype, theirs), **keywords)


def _targets(goal: Goal, leaves: Leaves) -> Targets:
    """Where the leaves go, from `to` or `like`."""
    to, like, dtype, device, copy, casting, grad, options = goal
    keywords = {"copy": copy, "casting": casting, "grad": grad, "options": tuple(options.items())}
    if like is None or to is not None or isinstance(like, TensorInfo):
        name, theirs, device = aim(to, like, None, device)
    else:
        infos = _describe(like, leaf_rule(leaves, infos=True))
        if not infos:
            raise UnsupportedTypeError("like= has no tensor in it.", "like= a tensor, or a tree of tensors")
        targets = {path: aim(None, info, None, device) for path, info in infos.items()}
        if set(targets) != {"$"}:
            return Targets(targets, rule_of(dtype), **keywords)
        name, theirs, device = targets["$"]
    try:
        return _targets_of(name, registry.revision, dtype, theirs, device, **keywords)
    except TypeError:
        # Without the cache: a mapping is no key, and what nobody takes is refused in our words.
        return _targets_of.__wrapped__(name, registry.revision, dtype, theirs, device, **keywords)
