"""The functions that users call: start, prefetch."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Literal

from ..core.request import refuse_unknown
from ..errors import ConversionError, an, shown, validate_word
from ..execution.target import target_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from typing_extensions import Unpack

    from ..typing import Casting, Grad, Leaves, Options, To, Unknown
    from .prefetch import Prefetch
    from .transfer import Transfer

__all__ = ["prefetch", "start"]


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
    """Begin a conversion of a tensor or a tree, and return at once what it can be asked for.

    >>> import numpy as np, tensorferry as ferry
    >>> transfer = ferry.start({"x": np.zeros(2)}, "torch")
    >>> transfer.result()
    {'x': tensor([0., 0.], dtype=torch.float64)}

    What crosses a bus does so on a thread of its own and on side streams, after what this thread has queued for the
    sources, and through page-locked memory where PyTorch has some. The sources live until it is complete; *do not
    write to them before that*. What stays on the host is converted before this returns, and what stays on one device
    is queued there, as `convert` does: the transfer is `done` then. Whether PyTorch records gradients is decided by
    each thread for itself, so by its default for what crosses a bus. There is no ``out``: what is half-written could
    be read.

    Args:
        x: A tensor, as for `convert`, or a tree, as for `convert_tree`; a list is a tree.
        to: As for `convert_tree`.
        like: As for `convert_tree`.
        copy: As for `convert_tree`.
        dtype: As for `convert_tree`; for a tensor alone, of whatever kind, one dtype is as for `convert`.
        casting: As for `convert_tree`.
        device: As for `convert_tree`.
        grad: As for `convert_tree`.
        leaves: As for `convert_tree`.
        unknown: As for `convert_tree`.
        coalesce: As for `convert_tree`.
        **options: As for `convert_tree`.

    Raises:
        ConversionError: There is no plan for such a conversion. What only the values show is raised by
            `Transfer.result`.
        TypeError: As for `convert`.

    .. versionadded:: 0.1
    """
    from .begin import begin
    from .target import Target

    if options:
        _refuse_out(options)
        refuse_unknown(start, options)
    target = Target.of(to, like, dtype, device, (copy, casting, grad, options), leaves, unknown, coalesce)
    try:
        return begin(x, target)
    except ConversionError as error:
        error.said_of("start", target_of(to, like))
        raise


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
    """Iterate over batches that are converted ahead: the next one crosses the bus while this one is worked on.

    >>> import numpy as np, tensorferry as ferry
    >>> loader = [{"x": np.full(2, i), "name": str(i)} for i in range(2)]
    >>> with ferry.prefetch(loader, "torch") as batches:
    ...     for batch in batches:
    ...         print(batch)
    {'x': tensor([0, 0]), 'name': '0'}
    {'x': tensor([1, 1]), 'name': '1'}

    It promises order and bounds, not a speed-up. Batches come in the source's order, an exception of the source or
    of a conversion in its place, and never are more than `depth` batches read from the source and not yet handed
    out. The source is first read when the first batch is asked for.

    If a batch comes from a device or goes to one, one thread reads the source and converts, on one side stream.
    To PyTorch's devices, and from them to the host, batches go through its page-locked memory; if no more can be
    locked (``ulimit -l``), through pageable memory, with one warning. The stream that is current when a batch is
    handed out waits for it, the host does not. On a device lie at most ``depth + 2`` batches, however far the loop
    is ahead of the device. On the host there is no thread: batches are converted when they are asked for.

    The result may share memory with the source's batch, as with `convert`: a source that fills the same memory
    again for each batch needs ``copy=True``, unless the batch goes to another device.

    Each ``for`` over it is a pass from the beginning if the source can be read again, as a list and a ``DataLoader``
    can; a generator gives one pass. It has a ``len`` where the source has one.

    Args:
        iterable: Gives tensors or trees: a ``torch.utils.data.DataLoader``, a ``tf.data.Dataset``, a generator …
        to: As for `convert_tree`.
        like: As for `convert_tree`.
        device: As for `convert_tree`; for JAX also a ``jax.sharding.Sharding``, over which each batch is laid out.
        depth: How many batches may be ahead of the consumer, at least 1.
        on_error: ``"skip"`` leaves a batch out that cannot be converted (a `ConversionError`): they are counted in
            ``.skipped``, with one warning for the first. What the source itself raises is raised in its place
            all the same: whether it can go on after that, only the source knows.
        copy: As for `convert_tree`.
        dtype: As for `convert_tree`; for a tensor alone, of whatever kind, one dtype is as for `convert`.
        casting: As for `convert_tree`.
        grad: As for `convert_tree`.
        leaves: As for `convert_tree`.
        unknown: As for `convert_tree`.
        coalesce: As for `convert_tree`.
        **options: As for `convert_tree`.

    Raises:
        TypeError: `iterable` is not one, or is a dict or text, which give their keys or characters; `depth` is no
            integer; or as for `convert`.
        ValueError: `depth` is less than 1, or `on_error` is not one of its two words.
        DeviceError: There is no such device.
        ConversionError: As for `convert_tree`; by the iterator, for the batch that it is about.

    .. versionadded:: 0.1
    """
    from ..trees.tables import is_one_value
    from .prefetch import Prefetch
    from .target import Target

    if not hasattr(iterable, "__iter__") and not hasattr(iterable, "__getitem__"):
        called = "; prefetch(x(), to), for a function x that gives them" if callable(iterable) else ""
        raise TypeError(f"prefetch reads an iterable of batches; {an(type(iterable).__name__)} is none{called}")
    if is_one_value(iterable):
        kind = type(iterable).__name__
        raise TypeError(
            f"prefetch reads an iterable of batches, and {an(kind)} is one value: prefetch([x], to) has it as one"
        )
    if isinstance(depth, bool) or not hasattr(depth, "__index__"):
        raise TypeError(f"depth must be an integer, not {shown(depth)}")
    if operator.index(depth) < 1:
        raise ValueError(f"depth must be at least 1, not {depth}: without a batch there is nothing to hand out")
    validate_word("on_error", on_error, ("raise", "skip"))
    if options:
        _refuse_out(options)
        refuse_unknown(prefetch, options)
    target = Target.of(to, like, dtype, device, (copy, casting, grad, options), leaves, unknown, coalesce)
    return Prefetch(iterable, target, operator.index(depth), skips=on_error == "skip")


def _refuse_out(options: Mapping[str, object]) -> None:
    if "out" in options:
        raise TypeError("There is no out= here: whoever holds it could read it before it is complete.")
