"""The public functions for trees. They have the same keywords as those for one tensor."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from .. import hints
from ..backends import registry, tracers
from ..backends.no_tensor import state_of
from ..core.info import TensorInfo
from ..core.leaf_dtypes import rule_of
from ..core.names import EXCHANGE
from ..core.request import refuse_unknown
from ..errors import ConversionError, UnsupportedTypeError, validate_flags
from ..execution import recipes
from ..execution.named_arguments import by_name
from ..execution.run import described
from ..execution.target import describe_like, follow_quickly, name_like_device, target_of
from ..hints import Hint
from .leaves import leaf_rule

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from typing_extensions import Unpack

    from ..backends.quick import Quick
    from ..core.labels import Labels
    from ..typing import (
        Casting,
        Grad,
        JaxArray,
        Leaves,
        NumpyArray,
        Options,
        To,
        TorchTensor,
        Unknown,
    )
    from .leaves import LeafRule
    from .plans import TreePlan
    from .program import Programs
    from .targets import Targets

    Asked = tuple[To | None, Any, object, object, bool | None, str | None, str, Options]

__all__ = [
    "call_for",
    "convert_tree",
    "describe_tree",
    "explain_tree",
    "is_ordinary_tensor",
    "programs_of",
    "snapshot",
    "targets_followed",
    "targets_of",
    "untraced",
]

if TYPE_CHECKING:
    # A structured array becomes a dict of its fields, so that its snapshot is none of these.
    OfNumbers = np.ndarray[Any, np.dtype[np.number[Any] | np.bool_]]
    Key = TypeVar("Key")
    OfTorch = TypeVar("OfTorch", bound=TorchTensor)
    OfJax = TypeVar("OfJax", bound=JaxArray)
    Found = TypeVar("Found")
    Function = TypeVar("Function", bound=Callable[..., Any])


def _by_programs(function: Function) -> Function:
    """Decorate the declaration of a conversion of trees: by programs, unless none are known.

    With the declared keywords in its code, Python would fill in each default, and the call would
    take longer.
    """
    at_length = by_name(function)

    def conversion(*given: Any, **keywords: Any) -> Any:
        result = _convert_by_programs(function, _programs, given, keywords)
        return at_length(*given, **keywords) if result is _NOT_TRIED else result

    conversion.__kwdefaults__ = function.__kwdefaults__  # which `refuse_unknown` reads
    return cast("Function", wraps(function)(conversion))


@_by_programs
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
    nulls: object = None,
    ragged: Literal["rows"] | None = None,
    pad: object = None,
    index: bool = False,
    **options: Unpack[Options],
) -> Any:
    """Convert every tensor inside containers to one framework, and keep containers and all else.

    >>> import numpy as np, tensorferry as ferry
    >>> batch = {"x": np.zeros(2, "float32"), "names": ["a", "b"], "label": 1}
    >>> ferry.convert_tree(batch, "torch")
    {'x': tensor([0., 0.]), 'names': ['a', 'b'], 'label': 1}
    >>> ferry.convert_tree(batch, "numpy", leaves="numbers")["label"]
    array(1)

    Containers are dict, list, tuple and their subclasses, named tuples, deques, dataclasses, attrs
    classes, namespaces, mappings, structured NumPy arrays (they become a dict of their fields),
    tables of pandas, polars, Arrow, datasets and every object with Arrow's interfaces (a dict of
    their columns), caches of transformers, pydantic models, graphs of PyTorch Geometric,
    TensorDicts (a dict in another framework), and every class registered with optree, or with a
    framework that is imported. Their types, the order of keys and everything that is not a tensor
    are kept; ``None`` stays ``None``. `tree` itself is never changed. A tensor or a container that
    occurs twice is converted once, and tensors that overlap in memory still overlap, unless that
    takes more memory than a copy of each. The result *may share memory* with the tree, as with
    `convert`; a `snapshot` never does.

    Arguments are as for `convert`, except:

    Args:
        tree: The tree, or one tensor.
        like: Instead of `to`: one tensor, whose framework and device all leaves take, and whose
            dtype the leaves of its kind take; or a tree of the same structure, with one such tensor
            for each leaf. `dtype`, if given too, wins for the leaves that it names.
        dtype: One dtype changes the leaves of its kind (an integer dtype: signed and unsigned
            integers), ``"fit"`` and ``"default"`` all leaves. A mapping says more:
            ``{"image": "bfloat16", "encoder.*": "fit", "int64": "int32", "bool": "uint8"}``. Its
            keys are dotted names of leaves with ``*``; dtypes; or the kinds ``"float"``, ``"int"``,
            ``"uint"``, ``"bool"``, ``"complex"``. Names win over dtypes, and dtypes over kinds. A
            value may be ``None``: keep the dtype.
        out: A tree of the same structure, into whose tensors the results are written. Nothing is
            written unless every leaf can be written.
        leaves: ``"tensors"`` converts tensors; ``"numbers"`` also Python numbers and NumPy scalars,
            each to a tensor of shape ``()``; a callable decides for each value, containers (a list
            of numbers) included.
        unknown: What happens to an object that is not a tensor, a plain value or a known container,
            but holds a tensor, and to one that no target takes (sparse, masked, quantized …):
            ``"error"`` refuses it, ``"keep"`` keeps it as it is.
        coalesce: Send small leaves over the bus together, in one transfer for each pair of devices.
        nulls: For columns of tables and arrays of Python numbers, as for `to_numpy`; with
            ``"mask"``, the mask of a column is a leaf beside it, ``<name>_mask``.
        ragged: For columns of tables, as for `to_numpy`.
        pad: For columns of tables, as for `to_numpy`.
        index: Whether the index of a pandas frame becomes one of its columns.

    Raises:
        ConversionError: A leaf cannot be converted, as for `convert`; the message ends in its path,
            ``$["encoder"][3].weight``.
        UnsupportedTypeError: `dtype` has a name that no leaf has; the hint has the nearest name.
        TreeError: Several leaves cannot be converted; it has all their errors. No half-converted
            tree is returned.
        TypeError, ValueError: As for `convert`.

    .. versionadded:: 0.1
    """
    asked = (to, like, dtype, device, copy, casting, grad, options)
    if coalesce is not True or index is not False:
        _validate(coalesce, index)
    if nulls is ragged is pad is None and not index:
        of_columns = None
    else:
        of_columns = nulls, ragged, pad, index, dtype, casting
    return call_for(
        convert_tree, asked, _convert, tree, asked, out, leaves, unknown, coalesce, of_columns
    )


@overload
def snapshot(tree: OfNumbers, /, *, unknown: Unknown = ...) -> NumpyArray: ...
@overload
def snapshot(tree: TorchTensor, /, *, unknown: Unknown = ...) -> TorchTensor: ...
@overload
def snapshot(tree: JaxArray, /, *, unknown: Unknown = ...) -> JaxArray: ...
@overload
def snapshot(tree: dict[Key, OfTorch], /, *, unknown: Unknown = ...) -> dict[Key, TorchTensor]: ...
@overload
def snapshot(tree: dict[Key, OfJax], /, *, unknown: Unknown = ...) -> dict[Key, JaxArray]: ...
@overload
def snapshot(tree: object, /, *, unknown: Unknown = ...) -> Any: ...
def snapshot(tree: Any, /, *, unknown: Unknown = "error") -> Any:
    """Copy a tree: each tensor stays in its framework, and its memory is shared with nothing else.

    >>> import numpy as np, tensorferry as ferry
    >>> state = {"weight": np.zeros(2), "step": 3}
    >>> before = ferry.snapshot(state)
    >>> state["weight"] += 1
    >>> before
    {'weight': array([0., 0.]), 'step': 3}

    Where `convert_tree` may share memory, `snapshot` never does: each tensor is converted to its
    own framework with ``copy=True``, on its device. A tensor that occurs twice is copied once, and
    tensors that overlap still overlap, unless that takes more memory than a copy of each. The
    copies are plain tensors outside the autograd graph: not parameters, not variables.

    Arguments are as for `convert_tree`, except:

    Args:
        tree: As for `convert_tree`; everything that is not a tensor stays as it is.

    Raises:
        ConversionError: A tensor has no single block of memory to copy (sparse, quantized, deleted
            …); several such tensors raise a `TreeError`.

    .. versionadded:: 0.1
    """
    result = _convert_by_programs(snapshot, _programs_in_their_frameworks, (tree, unknown), {})
    if result is not _NOT_TRIED:
        return result
    return call_for(snapshot, None, _snapshot, tree, unknown)


@by_name
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
    nulls: object = None,
    ragged: Literal["rows"] | None = None,
    pad: object = None,
    index: bool = False,
    **options: Unpack[Options],
) -> TreePlan:
    """What the same call of `convert_tree` would do: the plan of each leaf, and the bytes in all.

    Nothing is converted.

    >>> import tensorferry as ferry
    >>> print(
    ...     ferry.explain_tree(
    ...         {"x": range(3), "y": ferry.TensorInfo("numpy", (2,))}, "numpy", copy=True
    ...     )
    ... )
    1 leaf, 1 kept as they are: 8 B copied, 0 B shared
       $["y"]  numpy float32[2] on cpu -> numpy float32[2] on cpu; copies 8 B:
           copy=True asks for independent memory
       $["x"]  range: kept as it is

    Arguments are as for `convert_tree`, except:

    Args:
        tree: As for `convert_tree`; a `TensorInfo` describes a tensor that need not exist.

    Raises:
        ConversionError: The error that the conversion would raise, unless it depends on values.

    .. versionadded:: 0.1
    """
    asked = (to, like, dtype, device, copy, casting, grad, options)
    if coalesce is not True or index is not False:
        _validate(coalesce, index)
    if nulls is ragged is pad is None and not index:
        of_columns = None
    else:
        of_columns = nulls, ragged, pad, index, dtype, casting
    return call_for(  # type: ignore[no-any-return]
        explain_tree, asked, _explain, tree, asked, out, leaves, unknown, coalesce, of_columns
    )


def describe_tree(
    tree: Any, /, *, leaves: Leaves = "tensors", unknown: Unknown = "error"
) -> dict[str, TensorInfo]:
    """Describe each tensor of a tree: a dict from its path to its `TensorInfo`.

    >>> import numpy as np, tensorferry as ferry
    >>> for path, info in ferry.describe_tree(
    ...     {"layers": [np.zeros((2, 3))], "name": "small"}
    ... ).items():
    ...     print(path, info.shape, info.dtype)
    $["layers"][0] (2, 3) float64

    Arguments are as for `convert_tree`.

    Raises:
        ConversionError: An object in the tree cannot be described; several such objects raise a
            `TreeError`.

    .. versionadded:: 0.1
    """
    rule = leaf_rule(leaves, infos=True, unknown=unknown)
    return call_for(describe_tree, None, _describe, tree, rule)  # type: ignore[no-any-return]


def _validate(coalesce: object, index: object) -> None:
    """Raise for values that are neither true nor false.

    Raises:
        TypeError: One is not; labels in ``index=`` are for one tensor.
    """
    validate_flags(coalesce=coalesce)
    if not isinstance(index, (bool, int, str)):
        raise TypeError(
            "index must be True or False here, "
            "where it says whether the index of a frame becomes a column; "
            "to_pandas(leaf, index=…) labels one leaf, and like= all"
        )
    validate_flags(index=index)


# -- what they do, out of any tracer's sight -------------------------------------------------------


def untraced(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that tracers must not trace."""
    if tracers.may_be_active():
        run = tracers.shield(_call)
    else:
        run = _call
    return run(function, arguments)


@tracers.untraced
def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return function(*arguments)


def call_for(
    called: Callable[..., Any], asked: Asked | None, function: Callable[..., Any], *arguments: Any
) -> Any:
    """Call a function for the public one that was `called`, which messages and hints name."""
    if asked is not None and asked[-1]:
        refuse_unknown(called, asked[-1])
    try:
        return untraced(function, *arguments)
    except ConversionError as error:
        target = EXCHANGE if asked is None else target_of(asked[0], asked[1])
        error.complete_hint(registry.caller(called.__name__, target))
        raise


@tracers.untraced
def _convert_by_programs(
    called: Callable[..., Any],
    find: Callable[..., Programs | None],
    given: tuple[Any, ...],
    keywords: dict[str, Any],
) -> Any:
    """Convert a tree by a program, out of those that a function finds for arguments.

    `_NOT_TRIED`: the arguments are unusual, or one of them is refused. Both are the matter of what
    does it at length.

    Args:
        called: The public function, which messages and hints name.
        find: Finds the programs for what ``like=`` asks for, and for the arguments besides the tree
            and `out`.
        given: The arguments by position, the tree first.
        keywords: The other ones.
    """
    if not tracers.all_kept_out and tracers.may_be_active():
        return _NOT_TRIED
    out = followed = None
    try:
        if keywords:
            keywords = {**keywords}
            out, like = keywords.pop("out", None), keywords.pop("like", None)
            if like is not None and (followed := follow_quickly(like)) is None:
                return _NOT_TRIED
            dtype = keywords.get("dtype")
            if dtype is not None and type(dtype) is not str and isinstance(dtype, Mapping):
                keywords["dtype"] = rule_of(dtype)  # which can be hashed
        programs = find(followed, *given[1:], **keywords)
    except (ConversionError, TypeError, ValueError):
        return _NOT_TRIED
    if programs is None or not given:
        return _NOT_TRIED
    try:
        return programs.convert(given[0], out)
    except ConversionError as error:
        error.complete_hint(registry.caller(called.__name__, programs.target or EXCHANGE))
        raise


_NOT_TRIED: Any = object()


@lru_cache(maxsize=256, typed=True)
def _programs(
    followed: tuple[str, str | None, str | None] | None,
    /,
    to: To | None = None,
    *,
    dtype: object = None,
    device: object = None,
    copy: bool | None = None,
    casting: str | None = None,
    grad: str = "detach",
    leaves: Leaves = "tensors",
    unknown: str = "error",
    coalesce: bool = True,
) -> Programs | None:
    """The programs for keywords of `convert_tree`; ``None`` if they have none.

    Args:
        followed: Framework, dtype and device of the tensor in ``like=``; ``None`` without it.
        to: This and the others are as for `convert_tree`; a mapping in `dtype` as a rule.
        dtype: See there.
        device: See there.
        copy: See there.
        casting: See there.
        grad: See there.
        leaves: See there.
        unknown: See there.
        coalesce: See there.

    Raises:
        ConversionError, TypeError, ValueError: A keyword has a value that it does not take, or is
            none of these.
    """
    if coalesce is not True:
        _validate(coalesce, index=False)
    targets = targets_followed(to, followed, dtype, device, copy, casting, grad)
    if callable(leaves) or targets is None:
        return None
    rule = leaf_rule(leaves, unknown=unknown, scalars=targets.are_numbers)
    return programs_of(targets, rule, coalesce=coalesce)


def programs_of(targets: Targets, rule: LeafRule, *, coalesce: bool) -> Programs:
    """The programs of trees for targets, the same object unless a callable chooses leaves.

    Args:
        targets: The targets of the leaves.
        rule: The rule for which leaves are converted.
        coalesce: Whether small leaves cross the bus together.
    """
    from .program import Programs  # here, because a lone tensor needs none of it

    if rule.chosen is not None:
        return Programs(targets, rule, coalesce=coalesce)
    programs = targets.programs.get((rule, coalesce))
    if programs is None:
        programs = targets.programs[rule, coalesce] = Programs(targets, rule, coalesce=coalesce)
    return programs


def targets_followed(
    to: To | None,
    followed: tuple[str, str | None, str | None] | None,
    dtype: object,
    device: object,
    copy: bool | None,
    casting: str | None,
    grad: str,
) -> Targets | None:
    """The targets for arguments of `_programs`; ``None`` if they have to be found at length."""
    if (to is None) is (followed is None):
        return None
    if followed is None:
        name, theirs, place = registry.canonical(to), None, None
        target = registry.ready(name)
    else:
        name, theirs, place = followed
        target = registry.ready(name)
        if place is None or target.capabilities.options.labels:
            return None
    return _targets_of(
        name,
        target.quick,
        registry.revision,
        dtype,
        theirs,
        place if device is None else device,
        copy=copy,
        casting=casting,
        grad=grad,
        options=(),
    )


@lru_cache(maxsize=4, typed=True)
def _programs_in_their_frameworks(_: None, /, unknown: str) -> Programs:
    """The programs that copy each leaf in its own framework."""
    rule = leaf_rule("tensors", unknown=unknown)
    return programs_of(_in_its_framework(registry.revision), rule, coalesce=True)


def _forget() -> None:
    """Forget programs: they have recipes, which are for the backends and devices of the time."""
    _programs.cache_clear()
    _programs_in_their_frameworks.cache_clear()
    _targets_of.cache_clear()
    _in_its_framework.cache_clear()


recipes.on_forget.append(_forget)

for _function in (untraced, call_for):
    _function.__dict__["_torchdynamo_disable"] = True


def _with_column_keywords(tree: Any, column_keywords: tuple[Any, ...]) -> Any:
    from .tables import with_column_keywords

    nulls, ragged, pad, index, dtype, casting = column_keywords
    return with_column_keywords(
        tree, nulls=nulls, ragged=ragged, pad=pad, index=index, dtype=dtype, casting=casting
    )


def _convert(
    tree: Any,
    asked: Asked,
    out: Any,
    leaves: Any,
    unknown: str,
    coalesce: bool,
    of_columns: tuple[object, ...] | None,
) -> Any:
    targets = targets_of(asked, leaves)
    rule = leaf_rule(leaves, unknown=unknown, scalars=targets.are_numbers)
    if of_columns is not None:
        tree = _with_column_keywords(tree, of_columns)
    return programs_of(targets, rule, coalesce=coalesce).convert(tree, out)


def _explain(
    tree: Any,
    asked: Asked,
    out: Any,
    leaves: Any,
    unknown: str,
    coalesce: bool,
    of_columns: tuple[object, ...] | None,
) -> TreePlan:
    from ..columns.interface import leaving_streams
    from .described import DescribedTree  # here, because most trees are converted without it

    targets = targets_of(asked, leaves)
    rule = leaf_rule(leaves, infos=True, unknown=unknown, scalars=targets.are_numbers)
    with leaving_streams():
        if of_columns is not None:
            tree = _with_column_keywords(tree, of_columns)
        return DescribedTree(tree, targets, rule, out).plan(coalesce=coalesce)


def _snapshot(tree: Any, unknown: str) -> Any:
    rule = leaf_rule("tensors", unknown=unknown)
    targets = _in_its_framework(registry.revision)
    return programs_of(targets, rule, coalesce=True).convert(tree)


def _describe(tree: Any, rule: LeafRule) -> dict[str, TensorInfo]:
    return _looked_at(
        tree,
        rule,
        lambda x: x if isinstance(x, TensorInfo) else described(x),
    )


def _looked_at(tree: Any, rule: LeafRule, look: Callable[[Any], Found]) -> dict[str, Found]:
    """By path, what a function gives for each tensor of a tree, or for its description."""
    from ..columns.interface import leaving_streams
    from .failures import raise_all
    from .walk import take_apart

    looked_at: dict[str, Found] = {}
    errors: dict[int, ConversionError] = {}
    with leaving_streams():
        parts, structure = take_apart(tree, rule.chosen)
    rule.check(structure, parts)
    paths = structure.paths()
    for index, (path, leaf) in enumerate(zip(paths, parts, strict=True)):
        try:
            if isinstance(leaf, TensorInfo) or rule.takes(leaf):
                looked_at[path] = look(leaf)
        except ConversionError as error:
            if not rule.keeps_refused(leaf, error):
                errors[index] = error
    raise_all(errors, paths.__getitem__, name=structure.name)
    return looked_at


@lru_cache(maxsize=256, typed=True)
def _targets_of(
    name: str,
    _quick: Quick[Any],
    _revision: int,
    dtype: object,
    theirs: str | None,
    device: object,
    **keywords: Any,
) -> Targets:
    """Targets; other ones when the framework is loaded, and has its own `Backend.quick`."""
    return _made((name, device), dtype, theirs, **keywords)


@lru_cache(maxsize=1)
def _in_its_framework(_revision: int) -> Targets:
    """What copies each leaf in its own framework."""
    return _made(None, None)


def _made(targets: Any, dtype: object, theirs: str | None = None, **keywords: Any) -> Targets:
    """Make `Targets`, from a module that is imported only when it is needed."""
    from .targets import Targets

    return Targets(targets, rule_of(dtype, theirs), **keywords)


def is_ordinary_tensor(x: Any) -> bool:
    """Whether an object is certainly one tensor, and not a container."""
    kind = type(x)
    if kind not in registry.BY_TYPE:
        registry.is_tensor(kind)  # which looks it up
    if not registry.is_known_tensor(kind):
        return False  # a table, say, is several columns
    owner = registry.BY_TYPE[kind]
    if owner.quick.likeness(x) is not None:
        return True
    # What is on a device, say, has no such key.
    try:
        owner.describe(x)
    except ConversionError:
        return False
    return True


def _liked(like: Any, leaves: Leaves) -> dict[str, tuple[TensorInfo, Labels | None]]:
    """By path, the description and the labels of each tensor in ``like=``.

    Raises:
        UnsupportedTypeError: There is none.
    """
    if is_ordinary_tensor(like):
        return {"$": _look_at_like(like)}
    liked = _looked_at(like, leaf_rule(leaves, infos=True), _look_at_like)
    if not liked:
        state = state_of(type(like))
        if state:
            code = hints.Code(state).at("like")
            hint = Hint(hints.keyword("like", code))
        else:
            hint = Hint(hints.keyword("like"), " a tensor, or a tree of tensors")
        raise UnsupportedTypeError("like= has no tensor in it.", hint)
    return liked


def _look_at_like(x: Any) -> tuple[TensorInfo, Labels | None]:
    from ..execution.target import labels_like

    info = x if isinstance(x, TensorInfo) else describe_like(x)
    return info, labels_like(info.framework, x)


def targets_of(
    asked: Asked,
    leaves: Leaves,
    *,
    overlaps: bool = False,
    alone: str | None = None,
    labels: Labels | None = None,
) -> Targets:
    """The targets of the leaves, from `to` or `like`.

    Args:
        asked: The keywords of the call.
        leaves: This keyword of the call.
        overlaps: See `Targets`.
        alone: The `like` of `Targets`.
        labels: See `Targets`; with `to`.
    """
    to, like, dtype, device, copy, casting, grad, options = asked
    keywords: dict[str, Any] = {
        "copy": copy,
        "casting": casting,
        "grad": grad,
        "options": tuple(options.items()),
    }
    if overlaps:
        keywords["overlaps"] = True
    if alone is not None:
        keywords["like"] = alone
    if like is None or to is not None or isinstance(like, TensorInfo):
        name, theirs, device = name_like_device(to, like, device)
    else:
        liked = _liked(like, leaves)
        targets = {
            path: (*name_like_device(None, info, device), labels)
            for path, (info, labels) in liked.items()
        }
        if set(targets) != {"$"}:
            return _made(targets, dtype, **keywords)
        name, theirs, device, labels = targets["$"]
    if labels is not None:
        # They are not kept in a cache, since they can take as much memory as the result.
        return _made((name, device), dtype, theirs, labels=labels, **keywords)
    quick = registry.backend_named(name).quick
    try:
        return _targets_of(name, quick, registry.revision, dtype, theirs, device, **keywords)
    except TypeError:
        # A mapping cannot be hashed, and a wrong value is refused below, so neither is cached.
        return _made((name, device), dtype, theirs, **keywords)
