"""`TensorInfo`: a tensor's description, as a small value that a person can also write by hand."""

from __future__ import annotations

import operator
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from .. import hints
from ..errors import DeviceError, UnknownFrameworkError, nearest, shown
from ..hints import Hint
from . import names
from .devices import HOST, device_name, kind_of
from .dtype_names import name_of
from .dtypes import DTYPES, find
from .kinds import Kind, kind_of_text
from .layout import compact_strides, is_compact, overlaps_itself, packed_strides
from .named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from ..typing import To
    from .declaration import Declaration

__all__ = ["ANY_ADDRESS", "TensorInfo", "is_many"]

ANY_ADDRESS = 16
"""The assumed address, modulo 64, of memory that a library allocates."""
MANY = 1 << 16
"""From this many Python numbers on, they are read in chunks, to save the memory of an array."""


class _Fields(NamedTuple):
    framework: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    strides: tuple[int, ...]
    misalignment: int
    writable: bool | None
    mutable: bool | None
    requires_grad: bool
    conjugate: bool
    negative: bool
    swapped: bool
    weak_dtype: str | None
    memory_map: bool
    pinned: bool
    shards: int
    kind: Kind
    abstract: str | None


_PLACES = {name: place for place, name in enumerate(_Fields._fields)}
_BY_POSITION = ("framework", "shape", "dtype")
"""The fields that are written without their names."""


def _canonical_framework(framework: object) -> str:
    """A framework's canonical name.

    Raises:
        UnknownFrameworkError: No backend has this name, neither here nor in an outside package.
        TypeError: It is an object that cannot name a framework.
    """
    try:
        return names.canonical(framework)
    except TypeError:
        raise TypeError(
            "framework must be a framework (its name, its module or its tensor class), not "
            f"{shown(framework)}"
        ) from None
    except UnknownFrameworkError as error:
        if isinstance(framework, str) and not names.LOOKUPS:
            return framework  # where nobody knows a framework, no name is known
        if error.advice is not None:
            error.advise(error.advice.with_name("to", "framework"))
        raise


def _axis_lengths(shape: Any) -> tuple[int, ...]:
    """The lengths of the axes.

    Raises:
        TypeError: It is not a sequence of integers.
        ValueError: One of them is negative.
    """
    if hasattr(shape, "__index__"):
        raise TypeError(f"shape must be a sequence of lengths, shape=({shape},), not {shape}")
    try:
        lengths = tuple(map(operator.index, shape))
    except TypeError:
        raise TypeError(
            f"shape must be a sequence of lengths, such as shape=(3, 4), not {shown(shape)}"
        ) from None
    if any(length < 0 for length in lengths):
        raise ValueError(f"shape {lengths} has a negative length")
    return lengths


@lru_cache(maxsize=256)
def _canonical_device(device: str) -> str:
    """The canonical name of a device.

    Raises:
        DeviceError: It is not the name of one, or similar to that of a kind which is known.
    """
    name = device_name(device)
    kind, known = (
        kind_of(name),
        [declaration.capabilities for declaration in names.known().values()],
    )
    kinds = {kind for capabilities in known for kind in capabilities.devices.kinds}
    if kind in kinds or any(kind in capabilities.objects.abstract for capabilities in known):
        return name
    meant = nearest(kind, kinds, _MISSPELT)
    if meant is None:
        return name  # PyTorch takes devices that others bring
    raise DeviceError(
        f"{device!r} is not the name of a device.",
        Hint(hints.keyword("device", f"{meant}{name[len(kind) :]}")),
    )


_MISSPELT = 0.75
"""How similar the name of a device is to one that is misspelt, at least. hpu is 0.67 like cpu."""


def _as_code(value: object) -> str:
    """A value as a person would write it."""
    if isinstance(value, Kind):
        value = str(value)
    text = repr(value)
    if isinstance(value, str) and text == f"'{value}'" and '"' not in value:
        return f'"{value}"'
    return text


def _ordinary_tensors(framework: str) -> tuple[str, bool | None, bool]:
    """The device of a framework's ordinary tensors, if they are writable, if they may change."""
    try:
        return _declared_ordinary(names.named(framework))
    except UnknownFrameworkError:
        return HOST, None, False  # without the registry


def _device_or_ordinary(framework: str, device: object) -> str:
    if device is None:
        return _ordinary_tensors(framework)[0]
    if isinstance(device, str):
        return HOST if device == HOST else _canonical_device(device)
    return device_name(device)


@lru_cache(maxsize=64)
def _declared_ordinary(framework: Declaration) -> tuple[str, bool, bool]:
    caps = framework.capabilities
    if HOST in caps.devices.kinds:
        device = HOST
    else:
        device = caps.devices.kinds[0]
    return device, caps.memory.writable, caps.memory.shows_writes


class TensorInfo(_Fields):
    """The description of a tensor: everything that a plan needs, but not the values.

    >>> info = TensorInfo(
    ...     "torch", shape=(3, 4), dtype="bfloat16", device="cuda:0", requires_grad=True
    ... )
    >>> info
    TensorInfo("torch", (3, 4), "bfloat16", device="cuda:0", requires_grad=True)
    >>> info.strides, info.nbytes
    ((8, 2), 24)

    What you leave out is as usual for the framework: compact strides, an address that is a multiple
    of 64, whether it can be written, the host (CuPy: the current GPU).

    Args:
        framework: The name of its backend (``"torch"``, ``"numpy"``, ``"python"`` …), or its module
            or tensor class, as for `convert`; kept as its canonical name.
        shape: Lengths of the axes.
        dtype: A dtype of any framework, or a name; kept as its canonical name.
        device: A device of any framework, or a name; kept as its canonical name.
        strides: Bytes from one element to the next along each axis.
        misalignment: Address of the first element modulo 64 bytes.
        writable: Whether this object permits writes; left out: as is usual for the framework.
        mutable: Whether anybody can write this memory, through this object or another; left out: as
            `writable`.
        requires_grad: Whether it belongs to an autograd graph.
        conjugate: Whether the conjugate bit is set: memory holds the conjugates.
        negative: Whether the negative bit is set: memory holds the negatives.
        swapped: Whether its bytes are in the other than the machine's order.
        weak_dtype: For Python numbers, whose dtype the target chooses: the narrowest that holds
            them. ``None`` for everything that has a dtype of its own.
        memory_map: Whether its memory is a file's.
        pinned: Whether its memory is page-locked.
        shards: On how many devices its parts lie.
        kind: The name of its type where that matters (``"Parameter"``, ``"Variable"``); kept as a
            value that equals its text, and has its parts: ``info.kind == "Parameter"``,
            ``info.kind.name``.
        abstract: Why it has no memory (``"traced"``, ``"meta"``, ``"deleted"`` …), or ``None``.

    Raises:
        UnknownFrameworkError: No framework has this name; the hint has the nearest one.
        UnsupportedTypeError: No such dtype.
        DeviceError: No such device.
        TypeError: `shape` is not a sequence of integers.
        ValueError: A negative length, fewer than one shard, or as many strides as axes are not
            given.

    .. versionadded:: 0.1
    """

    __slots__ = ()

    def __new__(  # noqa: D102 - documented with the class
        cls,
        framework: To,
        shape: Sequence[int] = (),
        dtype: object = "float32",
        device: object = None,
        strides: Sequence[int] | None = None,
        misalignment: int = 0,
        writable: bool | None = None,
        mutable: bool | None = None,
        requires_grad: bool = False,
        conjugate: bool = False,
        negative: bool = False,
        swapped: bool = False,
        weak_dtype: str | None = None,
        memory_map: bool = False,
        pinned: bool = False,
        shards: int = 1,
        kind: Kind | str = "",
        abstract: str | None = None,
    ) -> Self:
        if isinstance(framework, str):
            known = names.NAMES.get(framework)
        else:
            known = None
        framework = known or _canonical_framework(framework)
        name = dtype if type(dtype) is str and dtype in DTYPES else name_of(dtype)
        if weak_dtype is not None:
            weak_dtype = name_of(weak_dtype)
        if operator.index(shards) < 1:
            raise ValueError(f"a tensor lies in 1 shard at least, not in {shards}")
        lengths = _axis_lengths(shape)
        if strides is None:
            steps = compact_strides(lengths, find(name).itemsize)
        else:
            steps = tuple(operator.index(step) for step in strides)
            if len(steps) != len(lengths):
                raise ValueError(f"{len(steps)} strides for {len(lengths)} axes")
        if isinstance(kind, str):
            kind = kind_of_text(kind)
        if writable is None:
            writable = _ordinary_tensors(framework)[1]
        if mutable is None:
            mutable = writable or (not kind.copied and _ordinary_tensors(framework)[2])
        return cls._make(
            (
                framework,
                lengths,
                name,
                _device_or_ordinary(framework, device),
                steps,
                operator.index(misalignment) % 64,
                writable,
                mutable,
                requires_grad,
                conjugate,
                negative,
                swapped,
                weak_dtype,
                memory_map,
                pinned,
                shards,
                kind,
                abstract,
            )
        )

    def _replace(self, **changes: Any) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The description with other values in some fields, which are not checked.

        It takes half the time of the method that it replaces, and a plan calls it for each step.
        """
        values = [*self]
        for name, value in changes.items():
            values[_PLACES[name]] = value
        return tuple.__new__(type(self), values)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes its elements take without gaps."""
        return prod(self.shape) * find(self.dtype).itemsize

    @property
    def is_compact(self) -> bool:
        """Whether its memory is C-contiguous."""
        return is_compact(self.shape, self.strides, find(self.dtype).itemsize)

    @property
    def is_packed(self) -> bool:
        """Whether it has no gaps between elements, in any order of axes, and native byte order."""
        steps = packed_strides(self.shape, self.strides, find(self.dtype).itemsize)
        return not self.swapped and all(
            length == 1 or step == packed
            for length, step, packed in zip(self.shape, self.strides, steps, strict=True)
        )

    @property
    def overlaps_itself(self) -> bool:
        """Whether two elements share a byte, so that a write to one would change both."""
        return overlaps_itself(self.shape, self.strides, find(self.dtype).itemsize)

    def to_dict(self) -> dict[str, Any]:
        """The description as plain data for JSON."""
        fields = self._asdict()
        lists = {"shape": list(self.shape), "strides": list(self.strides)}
        return {**fields, **lists, "kind": str(self.kind)}

    def __repr__(self) -> str:
        ordinary = TensorInfo(self.framework, self.shape, self.dtype)
        if self.writable is not ordinary.writable:
            ordinary = ordinary._replace(mutable=self.writable)
        told = [_as_code(getattr(self, name)) for name in _BY_POSITION]
        told += [
            f"{name}={_as_code(value)}"
            for name, value, usual in zip(self._fields, self, ordinary, strict=True)
            if name not in _BY_POSITION and value != usual
        ]
        return f"{type(self).__name__}({', '.join(told)})"

    def __str__(self) -> str:
        marks = [
            word
            for word, holds in (
                ("requires grad", self.requires_grad),
                ("read-only", self.writable is False),
                ("not compact", not self.is_compact),
                (f"address % 64 == {self.misalignment}", self.misalignment != 0),
                ("conjugate bit", self.conjugate),
                ("negative bit", self.negative),
                ("other byte order", self.swapped),
                ("Python numbers", self.weak_dtype is not None),
                ("memory map", self.memory_map),
                ("pinned", self.pinned),
                (f"{self.shards} shards", self.shards > 1),
                (self.abstract or "", self.abstract is not None),
            )
            if holds
        ]
        name = f"{self.framework} {self.kind}".rstrip()
        head = f"{name} {self.dtype}{list(self.shape)} on {self.device}"
        return ", ".join([head, *marks])


def is_many(info: TensorInfo) -> bool:
    """Whether these are so many Python numbers that they are read in chunks."""
    return info.kind.is_numbers and info.size > MANY
