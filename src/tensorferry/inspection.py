"""What converts nothing: `describe`, `explain`, `shares_memory`, `is_tensor`, `frameworks`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from . import hints
from .backends import registry
from .core.info import TensorInfo
from .core.kinds import PLAIN
from .core.named_tuple import NamedTuple
from .core.names import EXCHANGE
from .core.request import COLUMN_KEYWORDS, make_request, refuse_unknown
from .errors import (
    ConversionError,
    FrameworkNotInstalledError,
    UnsupportedTypeError,
    validate_flags,
)
from .execution.named_arguments import by_name
from .execution.recipes import conversion_of
from .execution.run import described, opening_for, prepare_described, prepare_unread
from .execution.target import name_like_device
from .hints import Hint
from .host import memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from .backends.base import Backend
    from .planning.plan import Plan
    from .typing import Casting, Grad, Options, To

__all__ = ["FrameworkStatus", "describe", "explain", "frameworks", "is_tensor", "shares_memory"]


def describe(x: object, /) -> TensorInfo:
    """Say what a tensor is: framework, shape, dtype, device, strides, who may write, gradient.

    >>> import numpy as np, tensorferry as ferry
    >>> info = ferry.describe(np.zeros((2, 3), dtype="int16").T)
    >>> info.framework, info.shape, info.dtype, info.strides
    ('numpy', (3, 2), 'int16', (2, 6))

    It copies nothing and waits for no device. In a list of tensors, each tensor is described. In a
    list of Python numbers every element is read, because the shape and the dtype depend on all of
    them.

    Args:
        x: As for `to_numpy`.

    Raises:
        UnsupportedTypeError: `x` is not a tensor.

    .. versionadded:: 0.1
    """
    try:
        return described(x)
    except ConversionError as error:
        error.complete_hint(registry.caller("describe", EXCHANGE))
        raise


@by_name
def explain(
    x: object,
    /,
    to: To | None = None,
    *,
    like: object = None,
    copy: bool | None = None,
    dtype: object = None,
    casting: Casting | None = None,
    device: object = None,
    grad: Grad = "detach",
    out: object = None,
    index: object = None,
    columns: object = None,
    **options: Unpack[Options],
) -> Plan:
    """The plan that the same call of `convert` would run; nothing is converted.

    >>> import tensorferry as ferry
    >>> gpu = ferry.TensorInfo(
    ...     "torch", shape=(3, 4), dtype="bfloat16", device="cuda:0", requires_grad=True
    ... )
    >>> plan = ferry.explain(gpu, "numpy")
    >>> plan.bytes_copied, plan.shares_memory, plan.keeps_dtype
    (24, False, True)

    Arguments are as for `convert`, except:

    Args:
        x: A tensor, or a `TensorInfo` of one that need not exist, of a framework that need not be
            installed.
        like: As for `convert`; a tensor or a `TensorInfo`.
        out: As for `convert`; a tensor or a `TensorInfo`.

    Raises:
        ConversionError: The error that the conversion would raise, unless it depends on values.
        DeviceError: A `TensorInfo` is on a device that its framework cannot use.

    .. versionadded:: 0.1
    """
    # Here, as for all that `import tensorferry` does not need.
    from .execution.target import labels_like, take_labels

    name, theirs, device = name_like_device(to, like, device)
    target = registry.backend_named(name)
    if not isinstance(x, TensorInfo):
        registry.ready(name)
    original = x
    taken: Mapping[str, Any] = {}
    said = {"index": index, "columns": columns}
    try:
        given_labels = take_labels(
            name, {keyword: value for keyword, value in said.items() if value is not None}
        )
        column_keywords = {key: value for key, value in options.items() if key in COLUMN_KEYWORDS}
        if column_keywords:
            from .execution.column_keywords import (
                Masked,
                Rows,
                apply_column_keywords,
                take_column_keywords,
            )

            options = {key: value for key, value in options.items() if key not in column_keywords}  # type: ignore[assignment]
            taken = take_column_keywords(column_keywords)
            x = apply_column_keywords(x, dtype, casting, like=theirs, **taken)
            x = x.values if isinstance(x, Masked) else x
            if isinstance(x, Rows):
                raise UnsupportedTypeError(
                    'ragged="rows" gives a list of tensors, and this is the plan of one.',
                    Hint(hints.rows(ragged="rows"), ", which has the plan of each"),
                )
        request = make_request(
            target, copy, dtype, casting, device, grad, tuple(options.items()), theirs
        )
        conversion = conversion_of(target, request).labelled(
            given=given_labels, like=labels_like(name, like)
        )
        if isinstance(x, TensorInfo):
            return prepare_described(x, conversion, out).plan
        plan = prepare_unread(x, conversion, out).plan
        if x is original or not isinstance(x, list):
            return plan
        from .execution.list_keywords import plan_from

        return plan_from(plan, taken)
    except ConversionError as error:
        error.complete_hint(registry.caller("explain", name))
        raise
    except TypeError:
        refuse_unknown(explain, options)
        raise


def shares_memory(a: object, b: object, /) -> bool:
    """Whether two tensors of any frameworks have a byte of memory in common.

    >>> import numpy as np, tensorferry as ferry
    >>> array = np.arange(4)
    >>> ferry.shares_memory(array[::2], array), ferry.shares_memory(array[::2], array[1::2])
    (True, False)

    It compares addresses and strides, and reads no values. Python numbers share nothing. A table
    has the memory of all its columns.

    Args:
        a: A tensor.
        b: Another tensor, of the same framework or of another.

    Raises:
        UnsupportedTypeError: One of them is not a tensor, or has no memory.

    .. versionadded:: 0.1
    """
    memories = []
    for x in (a, b):
        try:
            memories.append(_memory_of(x))
        except ConversionError as error:
            error.complete_hint(registry.caller("shares_memory", EXCHANGE))
            raise
    first, second = memories
    if a is b:
        return any(info.size > 0 for info, _ in first)
    pairs = ((span, other) for span in first for other in second if None not in (span[1], other[1]))
    return any(memory.share_a_byte(*span, *other) for span, other in pairs)


def _memory_of(x: object) -> list[tuple[TensorInfo, Any]]:
    """A tensor's memory, as a description and an address; a column's or table's: all its pieces."""
    # Here, because they would make `import tensorferry` slower.
    from .backends.opening import over
    from .columns.column import Column, Ragged
    from .columns.interface import leaving_streams
    from .execution.column_keywords import contents_of

    source = registry.backend_of(x)
    with leaving_streams():
        contents = contents_of(x, None)
    if contents is not None:
        if contents.table is None:
            columns = [contents.found]
        else:
            columns = [column for _, column in contents.columns]
        flat = [column.elements if isinstance(column, Ragged) else column for column in columns]
        arrays = [array for column in flat if isinstance(column, Column) for array in column.memory]
        if arrays:
            return [
                (over(source.name, array, mutable=False, kind=PLAIN), memory.address(array))
                for array in arrays
            ]
    source, info, handle = source.preview(x, opening_for())
    if info.abstract is not None:
        why, hint = source.capabilities.objects.abstract[info.abstract]
        raise UnsupportedTypeError(f"This {source.name} object has no memory: {why}.", hint)
    if source.capabilities.objects.reads(info.kind):
        return []
    return [(info, source.pointer(handle))]


def is_tensor(x: object, /) -> bool:
    """Whether an object is a tensor: what `convert_tree` converts, and leaves no container around.

    >>> import numpy as np, tensorferry as ferry
    >>> (
    ...     ferry.is_tensor(np.ones(2)),
    ...     ferry.is_tensor([1.0, 1.0]),
    ...     ferry.is_tensor(np.float32(1)),
    ...     ferry.is_tensor(1.0),
    ... )
    (True, False, False, False)

    True for arrays and tensors of every framework that `frameworks` lists, of subclasses too
    (parameters, variables); for columns (a ``pd.Series``, a ``pa.Array``); and for objects of other
    libraries with ``__dlpack__``, a buffer or one of the array protocols. It is also true for
    tensors that have no values to convert: while a function is traced (``jax.jit``), on PyTorch's
    ``meta`` device, sparse, deleted.

    False for numbers, also NumPy's scalars; lists, ``bytes`` and everything else that is Python's
    own; tables and structured arrays, which hold several columns; arrays and columns of text or
    dates; a `TensorInfo`; and classes.

    It imports no framework, because an object of a framework that is not imported cannot exist. It
    raises nothing.

    Args:
        x: Any object.

    .. versionadded:: 0.1
    """
    kind = type(x)
    try:
        owner = registry.backend_of(x)
        if not owner.capabilities.memory.exists or isinstance(x, np.generic):
            return False
        if owner.opener_of(kind) is not None or getattr(getattr(x, "dtype", None), "names", None):
            return False
        return not owner.is_text(x)
    except Exception:  # noqa: BLE001 - what a class of another library raises when it is asked what it has
        return False


class FrameworkStatus(NamedTuple):
    """What is known of one framework on this machine.

    Args:
        installed: Whether it is installed; if it was imported, whether that worked.
        version: Its version.
        devices: The devices that it sees; empty unless it is imported.
        error: Why it cannot be used, or ``None``.
        install: The command that installs it.
        package: The package that its backend came from, with its version; ``None`` for
            tensorferry's own.

    .. versionadded:: 0.1
    """

    installed: bool
    version: str | None
    devices: tuple[str, ...]
    error: str | None
    install: str
    package: str | None = None


def frameworks(*, load: bool = False) -> dict[str, FrameworkStatus]:
    """Which frameworks are installed here, in which versions, with which devices.

    >>> import tensorferry as ferry
    >>> ferry.frameworks()["numpy"].installed
    True

    At the prompt, in `print` and in a notebook, the dict is shown as a table.

    Backends of other packages are included. If one is broken, its entry has the error and the name
    of the package.

    Args:
        load: Import the frameworks, which can take seconds. Without it, the devices of a framework
            are known only if it is imported already, and so is whether it works.

    Returns:
        A dict with the status of each framework, by its name.

    .. versionadded:: 0.1
    """
    outside = registry.outside
    validate_flags(load=load)
    statuses = {
        name: _status(backend, load=load)
        for name, backend in registry.backends().items()
        if backend.install or outside.package_of(name)
    }
    for plugin in outside.plugins():
        if plugin.error is not None:
            own = statuses.get(plugin.name)
            if own is not None and own.package == plugin.package:
                statuses[plugin.name] = own._replace(error=plugin.error)
            else:
                if own is None:
                    name = plugin.name
                else:
                    name = f"{plugin.name} ({plugin.package})"
                broken = outside.broken(*plugin[1:])
                statuses[name] = FrameworkStatus(
                    False, None, (), plugin.error, broken.hint or "", plugin.package
                )
    return FrameworkTable(statuses)


class FrameworkTable(dict[str, FrameworkStatus]):
    """What `frameworks` gives: a dict that is shown as a table."""

    __slots__ = ()

    def _rows(self) -> list[tuple[str, str, str]]:
        return [(name, status.version or "-", _remarks(status)) for name, status in self.items()]

    def _notes(self) -> list[str]:
        unasked = any(
            status.installed and not status.devices and not status.error for status in self.values()
        )
        if unasked:
            return ["frameworks(load=True) imports them, and shows their devices."]
        return []

    def __repr__(self) -> str:
        rows = [_HEADS, *self._rows()]
        first, second = (max(len(row[place]) for row in rows) for place in (0, 1))
        lines = [f"{name:<{first}}  {version:<{second}}  {told}" for name, version, told in rows]
        return "\n".join([*lines, *self._notes()])

    def _repr_html_(self) -> str:
        # Here, because only a notebook needs them.
        from .planning.pictures.canvas import xml_text
        from .planning.pictures.html import html_page, html_table

        rows = [tuple(map(xml_text, row)) for row in self._rows()]
        return html_page(
            [html_table(_HEADS, rows), *(f"<p>{xml_text(note)}</p>" for note in self._notes())]
        )


_HEADS = "framework", "version", "devices"


def _remarks(status: FrameworkStatus) -> str:
    """The devices of a framework; or why there are none, and what to type then."""
    package = f" ({status.package})" if status.package else ""
    if status.error is not None:
        hint = f": {status.install}" if status.install else ""
        return f"{status.error.rstrip('.')}{hint}{package}"
    return (", ".join(status.devices) or "not imported") + package


def _installed_version(module: str) -> str | None:
    """The installed version, by the package's metadata; ``None`` if it is not installed."""
    from importlib.metadata import distributions
    from importlib.util import find_spec

    if find_spec(module) is None:
        return None
    # `packages_distributions` says it too, and reads what all packages bring before: 0.1 s for each module.
    listed = re.compile(rf"^{re.escape(module)}[/.,]", re.MULTILINE)
    for package in distributions():
        declared = (package.read_text("top_level.txt") or "").split()
        if module in declared or (
            not declared and listed.search(package.read_text("RECORD") or "")
        ):
            return package.version
    return "unknown"


def _status(backend: Backend, *, load: bool) -> FrameworkStatus:
    package = registry.outside.package_of(backend.name)
    try:
        if load or backend.is_imported():
            registry.load(backend)
            return FrameworkStatus(
                True, backend.version(), backend.devices(), None, backend.install, package
            )
        version = _installed_version(backend.module)
    except FrameworkNotInstalledError as error:
        return FrameworkStatus(False, None, (), error.message, backend.install, package)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a broken framework is a finding, not a failure
        return FrameworkStatus(
            False, None, (), f"{type(error).__name__}: {error}", backend.install, package
        )
    if version is not None:
        absent = None
    else:
        absent = f"{backend.module} is not installed."
    return FrameworkStatus(version is not None, version, (), absent, backend.install, package)
