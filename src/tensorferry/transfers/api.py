"""The public functions `start` and `prefetch`."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Literal

from .. import hints
from ..backends import registry
from ..errors import ConversionError, UnsupportedTypeError, an, shown, validate_word
from ..execution.named_arguments import by_name
from ..execution.target import target_of
from ..hints import Hint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Unpack

    from ..typing import Casting, Grad, Leaves, Options, To, Unknown
    from .prefetch import Prefetch
    from .transfer import Transfer

__all__ = ["prefetch", "start"]


@by_name
def start(
    x: Any,
    /,
    to: To | None = None,
    *,
    like: Any = None,
    copy: bool | None = None,
    dtype: object = None,
    casting: Casting | None = None,
    device: object = None,
    grad: Grad = "detach",
    leaves: Leaves = "tensors",
    unknown: Unknown = "error",
    coalesce: bool = True,
    **options: Unpack[Options],
) -> Transfer:
    """Begin to convert a tensor or tree; return a `Transfer` at once, which gives the result later.

    >>> import numpy as np, tensorferry as ferry
    >>> transfer = ferry.start({"x": np.zeros(2)}, "torch")
    >>> transfer.result()
    {'x': tensor([0., 0.], dtype=torch.float64)}

    *Do not write to the sources before the transfer is complete.* They stay in memory until then. A
    tensor that crosses a bus is converted by another thread on side streams, after the work that
    this thread has queued for it, through page-locked memory if PyTorch has some. A tensor that
    stays on the host is converted before this function returns, and one that stays on a device is
    queued there, as by `convert`; the transfer is `done` then. The other thread has PyTorch's
    default for whether gradients are recorded. There is no ``out``: other code could read a result
    that is half written.

    Arguments are as for `convert_tree`, except:

    Args:
        x: A tensor, as for `convert`, or a tree, as for `convert_tree`; a list is a tree.
        dtype: As for `convert_tree`; for one tensor, as for `convert`.

    Raises:
        ConversionError: The conversion is impossible. Errors that depend on values are raised by
            `Transfer.result`.
        TypeError, ValueError: As for `convert`.

    .. versionadded:: 0.1
    """
    from .begin import begin_transfer
    from .target import Target

    target = Target.of(
        start, to, like, dtype, device, (copy, casting, grad, options), leaves, unknown, coalesce
    )
    try:
        return begin_transfer(x, target)
    except ConversionError as error:
        error.complete_hint(registry.caller("start", target_of(to, like)))
        raise


@by_name
def prefetch(
    iterable: Iterable[Any],
    /,
    to: To | None = None,
    *,
    like: Any = None,
    device: object = None,
    depth: int = 2,
    on_error: Literal["raise", "skip"] = "raise",
    copy: bool | None = None,
    dtype: object = None,
    casting: Casting | None = None,
    grad: Grad = "detach",
    leaves: Leaves = "tensors",
    unknown: Unknown = "error",
    coalesce: bool = True,
    **options: Unpack[Options],
) -> Prefetch:
    """Iterate over converted batches: the next one crosses the bus while you work with this one.

    >>> import numpy as np, tensorferry as ferry
    >>> loader = [{"x": np.full(2, i), "name": str(i)} for i in range(2)]
    >>> with ferry.prefetch(loader, "torch") as batches:
    ...     for batch in batches:
    ...         print(batch)
    {'x': tensor([0, 0]), 'name': '0'}
    {'x': tensor([1, 1]), 'name': '1'}

    Batches come in the order of the source, and an exception of the source or of a conversion comes
    in its place. At most `depth` batches are read ahead. The source is first read when you ask for
    the first batch. More speed is not promised.

    If a batch comes from a device or goes to one, one thread reads the source and converts, on one
    side stream. To devices of PyTorch, and from them to the host, batches go through PyTorch's
    page-locked memory. If no more memory can be locked (``ulimit -l``), ordinary memory is used,
    with one warning. When you get a batch, your current stream waits for it; the host does not
    wait. At most ``depth + 2`` batches are on a device, even if your loop never synchronises. If no
    device is involved, there is no thread: each batch is converted when you ask for it.

    A batch may share memory with the source's batch, as with `convert`. If the source fills the
    same memory again for each batch, use ``copy=True``, unless the batch goes to another device.

    If the source can be read again, as a list and a ``DataLoader`` can, each ``for`` loop starts
    from the beginning. A generator can be read once. There is a ``len`` if the source has one.

    Arguments are as for `convert_tree`, except:

    Args:
        iterable: A source of tensors or trees: a ``torch.utils.data.DataLoader``, a
            ``tf.data.Dataset``, a generator …
        device: As for `convert_tree`; for JAX also a ``jax.sharding.Sharding``, over which each
            batch is laid out.
        depth: How many batches may be read ahead, at least 1.
        on_error: ``"skip"`` leaves out a batch that cannot be converted (a `ConversionError`). Such
            batches are counted in ``.skipped``, and the first one gives a warning. An error of the
            source itself is always raised, because only the source knows whether it can continue.
        dtype: As for `convert_tree`; for one tensor, as for `convert`.

    Raises:
        TypeError: `iterable` is not an iterable of batches (a table, a dict or text would give
            columns, keys or characters); `depth` is not an integer; or as for `convert`.
        ValueError: `depth` is less than 1, or `on_error` is not one of its two words.
        DeviceError: The device does not exist.
        ConversionError: As for `convert_tree`; the iterator raises it in the place of the batch.

    .. versionadded:: 0.1
    """
    from ..trees.tables import is_one_value
    from .prefetch import Prefetch
    from .target import Target

    unrun = registry.refusal_of_unrun(type(iterable))
    if unrun is not None:
        raise UnsupportedTypeError(
            unrun.message,
            Hint(hints.call("prefetch", f"[{unrun.hint}]"), ", which has it as one batch"),
        )
    if is_one_value(iterable):
        kind = type(iterable).__name__
        raise TypeError(
            f"prefetch reads an iterable of batches, and {an(kind)} is one value: prefetch([x], "
            "to) has it as one"
        )
    if not hasattr(iterable, "__iter__") and not hasattr(iterable, "__getitem__"):
        if callable(iterable):
            called = "; prefetch(x(), to), for a function x that gives them"
        else:
            called = ""
        raise TypeError(
            f"prefetch reads an iterable of batches, not {an(type(iterable).__name__)}{called}"
        )
    if isinstance(depth, bool) or not hasattr(depth, "__index__"):
        raise TypeError(f"depth must be an integer, not {shown(depth)}")
    if operator.index(depth) < 1:
        raise ValueError(
            f"depth must be at least 1, not {depth}: without a batch there is nothing to give"
        )
    validate_word("on_error", on_error, ("raise", "skip"))
    target = Target.of(
        prefetch, to, like, dtype, device, (copy, casting, grad, options), leaves, unknown, coalesce
    )
    return Prefetch(iterable, target, operator.index(depth), skips=on_error == "skip")
