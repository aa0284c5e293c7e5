"""`Source`: makes the tensors of a file for a framework, over a map of the file or of memory of their own."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping
from contextlib import closing, contextmanager, suppress
from functools import cached_property, reduce
from glob import escape
from itertools import repeat
from operator import getitem
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import hints
from ..backends.fast_paths import NOT_ACCEPTED, no_path, paths_to
from ..backends.registry import backend_named, caller, canonical, ready
from ..core.leaf_dtypes import DtypeRule, dtype_of_leaf, unknown_name, why_idle
from ..core.named_tuple import NamedTuple
from ..errors import (
    ConversionError,
    CopyRequiredError,
    FileFormatError,
    FormatLimitError,
    frames_of_ours,
)
from ..hints import Hint
from ..host.numpy_dtypes import numpy_dtype
from .base.contents import BLOCKS, NOTHING, Ref, Special
from .base.raw import fingerprints, is_on_server, mapped, mapped_private
from .base.stored import read_ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
    from mmap import mmap

    from ..core.leaf_dtypes import Choice
    from ..execution.recipes import Conversion
    from ..typing import Array
    from .base.contents import Blocks, Contents
    from .base.stored import Stored
    from .sharding import Shards

__all__ = ["Reading", "Source", "TensorChoice", "arrays_of", "target_of"]

_SHOWN = 8
"""How many names a message has with their reasons, and how many a hint has."""
_WIDTH = 200


def target_of(to: object, copy: bool | None, device: object) -> str:
    """The canonical name of the framework to load into, which is imported.

    Raises:
        TypeError: `copy` has no such value.
        UnknownFrameworkError: There is no such framework.
        FrameworkNotInstalledError: It is not installed.
        DeviceError: There is no such device.
    """
    name = canonical(to)
    target = ready(name)
    if isinstance(device, Mapping):
        for one_device in device.values():
            target_of(to, copy, one_device)
        return name
    if copy is None and device is None:
        return name
    # Here, because without keywords nothing is converted in the general way.
    from ..core.request import make_request
    from ..execution.recipes import conversion_of
    from ..execution.run import prepare_unread

    request = make_request(target, copy, None, None, device, "detach", ())
    if request.device is not None and request.placement is None:
        # Any tensor tells whether there is such a device, which is better known before the first
        # one is read. A layout over several devices must fit the shape of each tensor, and has
        # devices that exist.
        prepare_unread(np.zeros(1, "float32"), conversion_of(target, request._replace(copy=None)))
    return name


class TensorChoice(NamedTuple):
    """What is asked for one tensor.

    Args:
        dtype: Its dtype.
        device: The number of its device among those of the source.
    """

    dtype: Choice
    device: int = 0


class Reading(NamedTuple):
    """What is read for one tensor.

    Args:
        names: Its name, and those that are tied to it.
        stored: The tensor.
        choice: What is asked for it.
        shards: What this process's devices have of it; ``None`` if one has it all.
    """

    names: list[str]
    stored: Stored
    choice: TensorChoice
    shards: Shards | None

    @property
    def parts(self) -> Sequence[Stored]:
        """What is read: each part once."""
        return (self.stored,) if self.shards is None else self.shards.parts


class Source:
    """Makes the tensors of a file for a framework.

    Args:
        contents: The contents of the file.
        load: The function that opens it again, with `asked`.
        asked: The arguments of `load`.
        rule: The rule for dtypes.

    Warns:
        UserWarning: The rule is for no tensor.

    Raises:
        FormatLimitError: The rule has a name that no tensor has; or with ``strict``, something
            cannot be loaded.
    """

    def __init__(
        self, contents: Contents, load: Callable[..., Any], asked: dict[str, Any], rule: DtypeRule
    ) -> None:
        unknown = unknown_name("dtype", rule.names, contents.tensors)
        if unknown is not None:
            raise FormatLimitError(*unknown)
        idle = why_idle(rule, ((name, stored.dtype) for name, stored in contents.tensors.items()))
        # Columns of tables have been read by the rule already.
        if idle is not None and contents.columns is None:
            warnings.warn(idle, UserWarning, stacklevel=frames_of_ours())
        self.tensors = contents.tensors
        self.others = contents.others
        self.is_flat = contents.tree is None
        if not self.is_flat:
            self.tree = contents.tree
        self.blocks = _blocks_of(contents)
        self.load = load
        self.asked = asked
        self.path: str = asked["path"]
        self.is_remote = is_on_server(self.path)
        self.seen = fingerprints(contents.paths)
        self.target = backend_named(asked["to"])
        self.rule = rule
        self.devices: tuple[object, ...] = (asked["device"],)
        self._device_numbers: Mapping[str, int] = {}
        if isinstance(asked["device"], Mapping):
            from .slicing import devices_by_name

            self.devices, self._device_numbers = devices_by_name(asked["device"], self.tensors)
        self.is_closed = False
        self._maps: dict[str, mmap] = {}
        self._made: dict[Hashable, weakref.ref[Any]] = {}
        self._same_choice = (
            None if self._device_numbers or rule != DtypeRule() else TensorChoice(None)
        )
        self._adopts: dict[Hashable, bool] = {}
        self._directly: dict[Hashable, bool] = {}
        if asked["strict"]:
            self._refuse_what_is_left_out()

    # -- the tree ----------------------------------------------------------------------------------

    @cached_property
    def tree(self) -> Any:
        """The tree of the file; that of a plain mapping is made when it is used."""
        return _mapping_of(self.tensors, self.others)

    def is_left_out(self, node: Any) -> bool:
        """Whether a node of the tree is something that cannot be loaded."""
        return isinstance(node, Ref) and node.name in self.others and node.name not in self.tensors

    def left_out(self, node: Any) -> dict[str, str]:
        """Why something in a part of the tree cannot be loaded, by its name."""
        if node is self.tree or not self.others:
            return dict(self.others)
        from .base.nesting import leaves

        here = {ref.name for _, ref in leaves(node)}
        return {
            name: why
            for name, why in self.others.items()
            if name in here or name.rpartition("@")[0] in here
        }

    def warn_of_what_is_left_out(self, node: Any) -> None:
        """Give one warning that names all that cannot be loaded in a part of the tree.

        Warns:
            UserWarning: There is something.
        """
        left = self.left_out(node)
        if left:
            text = f"{self.path} also holds what is left out here: {_reasons(left)}."
            if self._are_in_lists(left):
                text += " In a list, None stands in its place."
            warnings.warn(text, UserWarning, stacklevel=frames_of_ours())

    def _refuse_what_is_left_out(self) -> None:
        left = self.others
        if not left:
            return
        if self.is_left_out(self.tree):
            self.known(self.tree.name)
        unstrict = Hint(hints.keyword("strict", False))
        hint = unstrict + ", which leaves it out, with a warning"
        if len(left) <= _SHOWN and not self._are_in_lists(left):
            globs = [*self.asked["exclude"], *map(escape, left)]
            hint = Hint(hints.keyword("exclude", globs), ", which leaves it out") | unstrict
        raise FormatLimitError(f"{self.path} holds what cannot be loaded: {_reasons(left)}.", hint)

    def _are_in_lists(self, left: Mapping[str, str]) -> bool:
        """Whether some of it is directly in a list: without it, others' places would change."""
        from .base.nesting import leaves

        paths = (keys for keys, ref in leaves(self.tree) if ref.name in left)
        return any(type(reduce(getitem, keys[:-1], self.tree)) in (list, tuple) for keys in paths)

    def value(self, node: Any) -> Any:
        """What stands in the tree for a node that is neither a container nor a tensor."""
        if not isinstance(node, Special):
            return node
        if node == NOTHING:
            return None
        value = self.target.value_of(*node)
        return node if value is None else value

    def plain(self, node: Any, tensor: Callable[[str], Any]) -> Any:
        """A node of the tree in plain containers, without what cannot be loaded.

        In a list or tuple, ``None`` keeps the place of that, because the places of the others would
        change.

        Args:
            node: The node.
            tensor: Gives the tensor with a name.

        Raises:
            FormatLimitError: The node itself cannot be loaded.
        """
        from .base.nesting import are_plain, same_dict  # here, because most trees are flat

        if isinstance(node, dict):
            children = ((key, child) for key, child in node.items() if not self.is_left_out(child))
            return same_dict(node, ((key, self.plain(child, tensor)) for key, child in children))
        if type(node) in (list, tuple):
            if are_plain(node):
                return type(node)(node)
            return type(node)(
                None if self.is_left_out(child) else self.plain(child, tensor) for child in node
            )
        if isinstance(node, Ref):
            return tensor(self.known(node.name))
        return self.value(node)

    def known(self, name: str) -> str:
        """The name itself, if it is that of a tensor.

        Raises:
            FormatLimitError: It is that of something that cannot be loaded.
        """
        if name not in self.tensors:
            raise FormatLimitError(
                f"{name!r} cannot be converted: {self.others[name]}.",
                "save it as a dense tensor of plain numbers with what made it",
            )
        return name

    # -- tensors over a map ------------------------------------------------------------------------

    @cached_property
    def _writes(self) -> bool:
        """Whether the framework's tensors can be written to."""
        memory = self.target.capabilities.memory
        return memory.writable and memory.exists

    def tensor(self, name: str) -> Any:
        """This name's tensor, over a map of the file if possible; the same as long as it is held.

        Raises:
            FormatLimitError: It cannot be loaded.
            FileFormatError: The file has been replaced.
            ValueError: The file has been closed.
        """
        if self.is_closed:
            raise ValueError(
                f"{self.path} was closed: {name!r} cannot be read.\n\nHint: load({self.path!r}, "
                "lazy=True) again"
            )
        # Written out, because a state has thousands of tensors.
        stored = self.tensors[name if name in self.tensors else self.known(name)]
        choice = self._same_choice or self.choice(name)
        key = stored.key, choice
        made = self._made.get(key)
        tensor = None if made is None else made()
        if tensor is None:
            try:
                tensor = self._over_map(stored, choice)
            except ConversionError as error:
                raise self.named([(error, name)])[0] from error
            self._hold(key, tensor)
        return tensor

    def held(self, name: str) -> Any:
        """This name's tensor, if it was made and something refers to it; otherwise ``None``."""
        made = self._made.get((self.tensors[name].key, self.choice(name)))
        return None if made is None else made()

    def hold(self, name: str, tensor: Any) -> None:
        """Give this tensor for a name, as long as something refers to it."""
        self._hold((self.tensors[name].key, self.choice(name)), tensor)

    def _hold(self, key: Hashable, tensor: Any) -> None:
        # Python lists and numbers do not support weak references.
        with suppress(TypeError):
            self._made[key] = weakref.ref(tensor)

    def map_of(self, path: str) -> mmap:
        """A file's memory map, which all its tensors share; private, if tensors can be written to.

        The caller must have checked that the file has not been replaced.
        """
        own_map = self._maps.get(path)
        if own_map is None:
            own_map = self._maps.setdefault(
                path, mapped_private(path) if self._writes else mapped(path)
            )
        return own_map

    def close(self) -> None:
        """Make no more tensors over maps."""
        self.is_closed = True
        self._maps = {}

    def _over_map(self, stored: Stored, choice: TensorChoice) -> Any:
        copy = self.asked["copy"]
        path = getattr(stored, "path", None)
        if path not in self._maps:
            self.validate(stored)
        shards = self.shards(stored, choice)
        if stored.is_remote:
            return self._read_from_server(Reading([], stored, choice, shards))
        if shards is not None:
            return shards.assembled([part.load() for part in shards.parts])
        array = stored.array(self.map_of)
        if copy is None:
            direct = self._direct(array, choice)
        else:
            direct = None
        return self._converted(stored, array, choice) if direct is None else direct

    def _read_from_server(self, reading: Reading) -> Any:
        own = [*arrays_of(self, reading.parts)]
        if self.asked["copy"] is False and reading.shards is None:
            from ..execution.run import convert  # here, because the fast path makes most tensors

            return convert(own[0], self.conversion(reading.choice, copy=False))
        return self.made(reading, own)

    def _converted(self, stored: Stored, array: Array, choice: TensorChoice) -> Any:
        """A tensor that the fast path does not make."""
        from ..execution.run import convert, prepare_unread  # here, as above

        copy = self.asked["copy"]
        conversion = self.conversion(choice, copy)
        is_plain = self.devices[choice.device] is None and choice.dtype is None and not copy
        if (
            self._writes and is_plain and array.flags.aligned
        ) or conversion.request.placement is not None:
            return convert(array, conversion)
        plan = prepare_unread(array, conversion).plan
        if (
            plan.shares_memory
            or copy is False
            or not plan.keeps_dtype
            or plan.result.device != plan.source.device
        ):
            return convert(array, conversion)
        # A tensor that must be copied is read into new memory, which is faster than a copy from the
        # map.
        self.validate(stored)
        return self.adopted(stored.load(), choice)

    # -- the fast path -----------------------------------------------------------------------------

    def _direct(self, array: Array, choice: TensorChoice) -> Any:
        """The tensor that the fast path of the framework makes of an array; ``None`` if it does not accept it.

        An immutable framework's may copy, so it is not for that.
        """
        is_plain = choice.dtype is None and self.devices[choice.device] is None
        if not is_plain or not self._writes:
            return None
        path: Any = paths_to(self.target.name).get(np.ndarray, no_path)
        try:
            return path(array)
        except NOT_ACCEPTED:
            return None

    def is_direct(self, stored: Stored, choice: TensorChoice) -> bool:
        """Whether the fast path makes such tensors, so that no plan has to be made: an empty one tells it."""
        axes = len(stored.shape)
        kind = stored.dtype, axes, choice
        is_direct = self._directly.get(kind)
        if is_direct is None:
            empty = np.empty((0,) * axes, numpy_dtype(stored.dtype))
            is_direct = self._directly[kind] = self._direct(empty, choice) is not None
        return is_direct

    # -- for both ways -----------------------------------------------------------------------------

    def choice(self, name: str) -> TensorChoice:
        """What `dtype` and `device` ask for a tensor."""
        if self._same_choice is not None:
            return self._same_choice
        dtype = dtype_of_leaf(self.rule, self.tensors[name].dtype, name)
        return TensorChoice(dtype, self._device_numbers.get(name, 0))

    def conversion(self, choice: TensorChoice, copy: bool | None) -> Conversion:
        """The conversion of an array to the framework."""
        from ..core.request import make_request  # here, because the fast path makes most tensors
        from ..execution.recipes import conversion_of

        device = self.devices[choice.device]
        request = make_request(self.target, copy, choice.dtype, None, device, "detach", ())
        return conversion_of(self.target, request)

    def shards(self, stored: Stored, choice: TensorChoice) -> Shards | None:
        """What this process's devices have of a tensor; ``None`` if one has it all.

        Raises:
            ConversionError: Such a tensor cannot be converted.
        """
        if self.devices[choice.device] is None or isinstance(self.devices[choice.device], str):
            return None
        from .sharding import shards_of

        return shards_of(stored, self.conversion(choice, None))

    def adopted(self, own: Array, choice: TensorChoice) -> Any:
        """A tensor that takes over an array's memory, which is nobody else's, if the framework can.

        Raises:
            ConversionError: The array cannot be converted.
        """
        direct = self._direct(own, choice)
        if direct is not None:
            return direct
        from ..execution.run import convert  # here, because the fast path makes most tensors

        kind = choice, own.dtype, bool(own.size)
        adopts = self._adopts.get(kind)
        if adopts is None:
            adopts = self._adopts[kind] = _can_adopt(own, self.conversion(choice, copy=False))
        if adopts:
            with suppress(CopyRequiredError):
                return convert(own, self.conversion(choice, copy=False))
        return convert(own, self.conversion(choice, None))

    def made(self, reading: Reading, own: Sequence[Array]) -> Any:
        """A tensor of what was read for it, whose memory is nobody else's.

        Raises:
            ConversionError: It cannot be converted.
        """
        if reading.shards is None:
            return self.adopted(own[0], reading.choice)
        return reading.shards.assembled(own)

    @contextmanager
    def naming(self, name: str) -> Iterator[None]:
        """A context in which errors end in the name of a tensor."""
        try:
            yield
        except ConversionError as error:
            raise self.named([(error, name)])[0] from error

    def named(self, errors: Sequence[tuple[ConversionError, str]]) -> list[ConversionError]:
        """Errors that end in the names of their tensors, and whose hints are for `load`."""
        from ..trees.failures import ask_for_all
        from .base.limits import Given, uncast  # here, because only an error needs it
        from .base.nesting import named_values

        for error, name in errors:
            stored = self.tensors[name]
            given = Given(
                exclude=tuple(self.asked["exclude"]),
                rule=self.rule,
                dtypes={name: stored.dtype},
                names=frozenset((*self.tensors, *self.others, *named_values(self.tree))),
            )
            called = caller("load", self.asked["to"])
            error.advise(uncast(error, given, name, called))
            error.complete_hint(called)
        ask_for_all(self.rule, errors)
        # The error of a column of a table has its name already.
        ends = [f" - at {name!r}" for _, name in errors]
        messages = [
            error.message.removesuffix(end) + end
            for (error, _), end in zip(errors, ends, strict=True)
        ]
        return [
            type(error)(message, error.advice)
            for (error, _), message in zip(errors, messages, strict=True)
        ]

    def validate(self, stored: Stored | None = None) -> None:
        """Raise if a tensor's file has been replaced; for decoded tensors, or all, if any file was.

        Raises:
            FileFormatError: It has.
        """
        path = getattr(stored, "path", None)
        for now in fingerprints(
            (path,) if path is not None else tuple(fingerprint.path for fingerprint in self.seen)
        ):
            if any(
                fingerprint.path == now.path and fingerprint != now for fingerprint in self.seen
            ):
                raise FileFormatError(
                    f"{now.path} has changed since it was opened.", f"load({now.path!r}) again"
                )


def _blocks_of(contents: Contents) -> Mapping[str, Blocks]:
    """The tensors in quantised blocks, which few files have."""
    if BLOCKS not in contents.metadata:
        return {}
    from .base.contents import blocks_of

    return blocks_of(contents)


def _mapping_of(tensors: Iterable[str], others: Iterable[str]) -> dict[str, Ref]:
    """A plain mapping's tree, without a Python call per tensor: there may be a hundred thousand."""
    names = [*tensors, *others]
    fields = zip(names, *map(repeat, Ref._field_defaults.values()), strict=False)
    return dict(zip(names, map(tuple.__new__, repeat(Ref), fields), strict=True))


def _reasons(left: Mapping[str, str]) -> str:
    told = [f"{name} ({why})" for name, why in left.items()]
    if len(told) > _SHOWN:
        more = f" and {len(told) - _SHOWN:,} more"
    else:
        more = ""
    return (
        ", ".join(
            line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…" for line in told[:_SHOWN]
        )
        + more
    )


def _can_adopt(own: Array, conversion: Conversion) -> bool:
    from ..execution.run import prepare_unread  # here, because the fast path makes most tensors

    try:
        return prepare_unread(own, conversion).plan.shares_memory
    except CopyRequiredError:
        return False


def arrays_of(
    source: Source, parts: Sequence[Stored], most: int | None = None
) -> Generator[Array, None, None]:
    """Yield parts of tensors in memory of their own, in order; at most so many bytes ahead."""
    if source.is_remote:
        from .remote.reading import read_remote

        reader: Any = read_remote
    else:
        reader = read_ahead
    with closing(reader(parts, most)) as arrays:
        for part, array in zip(parts, arrays, strict=True):
            yield part.decoded() if array is None else array
