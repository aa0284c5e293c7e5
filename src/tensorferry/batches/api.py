"""The public functions for batches: `collate` and `explain_collate`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from marshal import dumps, loads
from typing import TYPE_CHECKING, Any, Literal

from .. import hints
from ..backends import registry
from ..core.leaf_dtypes import rule_of
from ..errors import ConversionError, UnsupportedTypeError, an
from ..execution import recipes, run
from ..execution.named_arguments import by_name
from ..execution.target import follow_quickly
from ..hints import Hint
from ..trees.api import call_for, targets_followed, targets_of
from ..trees.leaves import leaf_rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Unpack

    from ..trees.api import Asked
    from ..typing import Casting, Grad, Leaves, Options, To, Unknown
    from .plans import BatchPlan
    from .program import BatchPrograms


__all__ = ["collate", "explain_collate"]


@by_name
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
    nulls: object = None,
    **options: Unpack[Options],
) -> Any:
    """Make one batch of a list of samples: each leaf's values are stacked along a new first axis.

    >>> import numpy as np, tensorferry as ferry
    >>> samples = [
    ...     {"x": np.ones(2), "label": 1, "name": "a"},
    ...     {"x": np.zeros(2), "label": 0, "name": "b"},
    ... ]
    >>> batch = ferry.collate(samples, "numpy")
    >>> batch["x"].shape, batch["label"].dtype, batch["name"]
    ((2, 2), dtype('int64'), ['a', 'b'])

    >>> texts = [{"input_ids": [5, 7, 2], "labels": [5, 7, 2]}, {"input_ids": [9], "labels": [9]}]
    >>> batch = ferry.collate(texts, "numpy", pad={"input_ids": 0, "labels": -100}, mask=True)
    >>> batch["input_ids"].tolist(), batch["labels"].tolist(), batch["input_ids_mask"].tolist()
    ([[5, 7, 2], [9, 0, 0]], [[5, 7, 2], [9, -100, -100]],
     [[True, True, True], [True, False, False]])

    Each leaf is allocated once, and the samples are written into it. Tensors of several frameworks
    can be stacked if one dtype holds them all. Python numbers take the dtype that the target gives
    them, as in `convert`; among tensors they take the tensors' dtype, if it holds their values.
    Integers, floats, complex numbers and bools in one leaf are an error, unless `dtype` says what
    they become. Strings and other objects become a list; if all samples have ``None``, the batch
    has ``None``. A list of numbers, or of lists of numbers, directly below a key of a mapping
    becomes one tensor, also an empty list; in any other place (as a sample, in a tuple or a
    dataclass) it is a container.

    Arguments are as for `convert_tree`, except:

    Args:
        samples: Trees of one structure, at least one.
        like: As for `convert_tree`; if it is a tree, it has the structure of a sample.
        dtype: As for `convert_tree`; names are those of a sample's leaves, and dtypes those that
            the samples have together.
        grad: As for `convert`; a leaf that is padded leaves the graph.
        leaves: As for `convert_tree`. The default also stacks Python numbers, and lists of them
            below keys; ``"tensors"`` does not, and a callable decides for each value.
        unknown: As for `convert_tree`; objects that are kept become a list.
        pad: The number with which shorter leaves are padded: one number for all leaves that have an
            axis, or a mapping from dotted names with ``*`` to numbers: ``{"input_ids": 0, "labels":
            -100}``.
        pad_to_multiple_of: The length of each padded leaf becomes a multiple of this, on the first
            axis on which its samples differ; on its first axis if they are all equally long.
        padding_side: The side of that axis on which the padding goes. All other axes are padded to
            the longest, on the right.
        mask: Add a leaf ``<name>_mask`` beside each leaf that `pad` names: bool, of shape (batch,
            length of that axis), true where the sample has data; also if all samples are equally
            long.
        lengths: Add a leaf ``<name>_lengths`` too: int64, or the target's widest integer dtype, of
            shape (batch,).
        nulls: For samples that are tables, or have columns of some, as for `convert_tree`.

    Raises:
        ShapeError: There are no samples; or the shapes of a leaf differ, and `pad` has no number
            for it or the numbers of axes differ. The message has both shapes and the path.
        UnsupportedTypeError: The samples are different trees, or one has a tensor where another
            does not; `pad` has a name that no leaf has; or `mask` or `lengths` cannot be added,
            because the leaf is not below a string key of a dict, or because there is a leaf of that
            name.
        ConversionError: As for `convert`; several leaves raise a `TreeError`.
        LossyCastError: The dtype of a leaf cannot hold its padding; or a leaf has integers and
            floats.
        TypeError: As for `convert`; or a keyword about padding is given without `pad`.
        ValueError: As for `convert`; or `pad_to_multiple_of` is less than 1.

    .. versionadded:: 0.1
    """
    asked = (to, like, dtype, device, None, casting, grad, options)
    padding = (pad, pad_to_multiple_of, padding_side, mask, lengths)
    return call_for(collate, asked, _stack, samples, asked, leaves, unknown, padding, nulls)


@by_name
def explain_collate(
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
    nulls: object = None,
    **options: Unpack[Options],
) -> BatchPlan:
    """What the same call of `collate` would do: the plan of each leaf, and what is kept.

    Nothing is converted.

    >>> import numpy as np, tensorferry as ferry
    >>> samples = [
    ...     {"x": np.ones(2), "ids": [5, 7], "name": "a"},
    ...     {"x": np.zeros(2), "ids": [9], "name": "b"},
    ... ]
    >>> print(ferry.explain_collate(samples, "numpy", pad={"ids": 0}))
    2 leaves of 2 samples, 1 kept: 64 B copied
       $["x"]     python stack float64[2, 2] on cpu -> numpy float64[2, 2] on cpu; copies 32 B:
           2 samples stacked
       $["ids"]   python padded int64[2, 2] on cpu -> numpy int64[2, 2] on cpu; copies 32 B:
           2 samples padded to (2,)
       $["name"]  str: a list of 2: str is no number or tensor

    Python numbers are looked at one by one, as `describe` does; a tensor's memory is not read.

    Arguments are as for `collate`.

    Raises:
        ConversionError: The error that `collate` would raise, unless it depends on values.

    .. versionadded:: 0.1
    """
    asked = (to, like, dtype, device, None, casting, grad, options)
    padding = (pad, pad_to_multiple_of, padding_side, mask, lengths)
    return call_for(  # type: ignore[no-any-return]
        explain_collate, asked, _explain, samples, asked, leaves, unknown, padding, nulls
    )


# -- what they do, out of any tracer's sight -------------------------------------------------------


def _stack(
    samples: Iterable[Any],
    asked: Asked,
    leaves: Any,
    unknown: str,
    padding: tuple[Any, ...],
    nulls: object,
) -> Any:
    if type(samples) is not list:
        _refuse_one_value(samples)
    return _find(asked, leaves, unknown, padding, nulls).open([*samples]).stack()


def _explain(samples: Iterable[Any], *asked: Any) -> BatchPlan:
    from ..columns.interface import leaving_streams

    if type(samples) is not list:
        _refuse_one_value(samples)
    with leaving_streams():
        return _find(*asked).open([*samples], run.prepare_unread).plan()


def _find(
    asked: Asked, leaves: Any, unknown: str, padding: tuple[Any, ...], nulls: object
) -> BatchPrograms:
    """The programs of a call: those of earlier ones, if its keywords can be compared."""
    to, like, dtype, device, _, casting, grad, options = asked
    target: Any = to
    followed = None
    if nulls is None and type(leaves) is str and not options:
        try:
            if like is not None:
                followed = follow_quickly(like)
                if followed is None:
                    return _new_programs(asked, leaves, unknown, padding, nulls)
            if dtype is not None and type(dtype) is not str and isinstance(dtype, Mapping):
                dtype = rule_of(dtype)
            pad, *others = padding
            if pad is not None:
                pad = dumps(pad, 2)  # by the types of numbers too, and the bits of floats
            programs_found = _programs(
                target, followed, dtype, device, casting, grad, leaves, unknown, pad, *others
            )
            if programs_found is not None:
                return programs_found
        except (ConversionError, TypeError, ValueError):
            pass  # an error is raised below
    return _new_programs(asked, leaves, unknown, padding, nulls)


def _new_programs(
    asked: Asked, leaves: Any, unknown: str, padding: tuple[Any, ...], nulls: object
) -> BatchPrograms:
    from .padding import Padding
    from .program import BatchPrograms

    rule = leaf_rule(leaves, unknown=unknown)
    if nulls is not None:
        from ..execution.column_keywords import validate

        validate(nulls)
    _, _, dtype, _, _, casting, _, _ = asked
    targets = targets_of(asked, leaves)
    return BatchPrograms(targets, rule, Padding(*padding), nulls, dtype=dtype, casting=casting)


@lru_cache(maxsize=256, typed=True)
def _programs(
    to: To | None,
    followed: tuple[str, str | None, str | None] | None,
    dtype: object,
    device: object,
    casting: str | None,
    grad: str,
    leaves: Leaves,
    unknown: str,
    pad: bytes | None,
    *padding: Any,
) -> BatchPrograms | None:
    """The programs for keywords of `collate`; ``None`` if they have none that can be kept.

    Args:
        to: This and the others are as for `collate`; a mapping in `dtype` as a rule.
        followed: Framework, dtype and device of the tensor in ``like=``; ``None`` without it.
        dtype: See there.
        device: See there.
        casting: See there.
        grad: See there.
        leaves: See there.
        unknown: See there.
        pad: See there; as `marshal` writes it.
        *padding: The other keywords about padding.

    Raises:
        ConversionError, TypeError, ValueError: A keyword has a value that it does not take.
    """
    # Here, because `import tensorferry` needs none of them.
    from .padding import Padding
    from .program import BatchPrograms

    targets = targets_followed(to, followed, dtype, device, None, casting, grad)
    if targets is None:
        return None
    rule = leaf_rule(leaves, unknown=unknown)
    asked = Padding(pad and loads(pad), *padding)  # noqa: S302 - it was written above
    return BatchPrograms(targets, rule, asked, dtype=dtype, casting=casting)


recipes.on_forget.append(_programs.cache_clear)


def _refuse_one_value(samples: object) -> None:
    from ..trees.tables import is_one_value

    if isinstance(samples, str) and (name := registry.NAMES.get(samples)) is not None:
        raise UnsupportedTypeError(
            "collate takes the samples first, and then where they go.",
            f'collate(samples, to="{name}"); functools.partial(collate, to="{name}") takes them '
            "later",
        )
    unrun = registry.refusal_of_unrun(type(samples))
    if unrun is not None:
        raise UnsupportedTypeError(
            unrun.message, Hint(hints.call("collate", f"[{unrun.hint}]"), ", for a batch of one")
        )
    if not hasattr(samples, "__iter__") and not hasattr(samples, "__getitem__"):
        raise UnsupportedTypeError(
            f"collate takes the samples of a batch, not {an(type(samples).__name__)}.",
            Hint(hints.call("collate", "x()" if callable(samples) else "[x]")),
        )
    if is_one_value(samples):
        raise UnsupportedTypeError(
            f"collate takes the samples of a batch, and {an(type(samples).__name__)} is one value.",
            Hint(hints.call("collate", "[x]"), ", for a batch of one"),
        )
