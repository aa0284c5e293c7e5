"""What a backend declares and does: the protocol that one framework's one file implements.

Memory on the host changes hands as an `ndarray`: a backend exports its tensor as one that lies over
the same memory, and adopts one in turn. So n frameworks need n files and no pairs. A backend file
must be importable without its framework: the framework is loaded by `load`, which is called for a
live object of it or for an explicit target, never to look around.
"""

from __future__ import annotations

import importlib
import sys
from abc import ABC, abstractmethod
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from ..core.info import JOINS, NUMBERS
from ..core.places import places_by
from ..errors import FrameworkNotInstalledError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    import numpy as np

    from ..core.capabilities import Capabilities, DeviceFacts
    from ..core.info import TensorInfo
    from ..core.placement import Placement
    from ..core.request import Request
    from ..devices.streams import Stream
    from ..planning.plan import Plan
    from ..planning.step import Step
    from .nodes import Node

    Array = np.ndarray[Any, Any]

__all__ = ["Backend", "kind_of_type", "unchanged"]

_KINDS = NUMBERS | JOINS.keys() | {"Variable", "buffer", "new", "object", "scalar", "traced"}


def kind_of_type(kind: type) -> str:
    """A class's name as a `TensorInfo.kind`, which is none of those that a plan goes by."""
    return f"{kind.__module__}.{kind.__name__}" if kind.__name__ in _KINDS else kind.__name__


def unchanged(x: Any) -> Any:
    """What `Backend.bound` gives for a verb that the next one takes care of: nothing is called for it."""
    return x


class Backend(ABC):
    """The base of every backend.

    A subclass declares the class variables and `capabilities`, and implements `load`, `describe`
    and the verbs that its capabilities call for (`validation.verbs_lacking`). Each verb has a `snippet`: what a person
    would type.
    """

    name: str
    """What users write, and the key in the registry."""
    module: str
    """The module to import."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """What else users call it, names of modules that give its tensors included."""
    owns: tuple[str, ...] = ()
    """Top-level modules whose types belong to this backend."""
    is_target: ClassVar[bool] = True
    """Whether tensors can be converted to it, not only from it."""
    is_functional: ClassVar[bool] = False
    """Whether its functions are given their parameters, rather than keeping them."""
    is_traced: ClassVar[bool] = False
    """Whether a tracer of the framework's looks into the functions that its user calls."""
    reads_as_asked: ClassVar[bool] = False
    """Whether some of its objects, dates say, are numbers only as the dtype that is named for them."""
    rank: ClassVar[int] = 50
    """Its place among the others in tables."""
    install: ClassVar[str] = ""
    """The line that installs it."""
    imports: Mapping[str, str] = {}
    """For each name that its snippets use, the line that brings it in."""
    loaded: bool = False
    """Whether `load` has been called."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What it can hold, adopt and promise as things are now; its framework need not be installed."""

    # -- the framework ----------------------------------------------------------------------------

    def import_framework(self) -> None:
        """Import the framework; its own words are the cause if that fails.

        Raises:
            FrameworkNotInstalledError: It is not installed, or its import fails.
        """
        try:
            importlib.import_module(self.module)
        except (Exception, SystemExit) as error:
            absent = isinstance(error, ModuleNotFoundError) and error.name == self.module
            what = "is not installed" if absent else f"fails when it is imported ({type(error).__name__}: {error})"
            raise FrameworkNotInstalledError(f"{self.module} {what}.", self.install) from error

    def ensure_loaded(self) -> None:
        """Load the framework once.

        Raises:
            FrameworkNotInstalledError: It is not installed, or its import fails.
        """
        if not self.loaded:
            self.import_framework()
            self.load()
            self.loaded = True

    @abstractmethod
    def load(self) -> None:
        """Take what is needed from the framework, which is importable now."""

    def is_imported(self) -> bool:
        """Whether somebody has imported the framework."""
        return self.module in sys.modules

    def installed_version(self) -> str | None:
        """The version that its package says is installed, without importing it; ``None``: it is not."""
        from importlib.metadata import packages_distributions, version
        from importlib.util import find_spec

        if find_spec(self.module) is None:
            return None
        packages = packages_distributions().get(self.module)
        return version(packages[0]) if packages else "unknown"

    def version(self) -> str:
        """The framework's version; it is loaded."""
        return str(getattr(sys.modules[self.module], "__version__", "unknown"))

    def devices(self) -> tuple[str, ...]:
        """Canonical names of the devices that are present; the framework is loaded."""
        return ("cpu",)

    def refusal(self, kind: type) -> tuple[str, str | None] | None:
        """Why a type from a module that it owns is not one of its tensors, and what to do."""
        return None

    def accepts_foreign(self, x: object) -> bool:
        """Whether it takes objects of other libraries, like this one."""
        return False

    def knows(self, kind: type) -> bool:
        """Whether it has words for a type of another library, whatever is said of what that is derived from."""
        return False

    @abstractmethod
    def claims(self, kind: type) -> bool:
        """Whether objects of this type, which comes from a module that it owns, are its tensors."""

    def stands_for(self, kind: type) -> bool:
        """Whether a class, from a module that it owns, names it as a target: plain tensors of its are of that class."""
        return False

    def fast_paths(self) -> Mapping[tuple[type, str], Callable[[Any], Any]]:
        """Fast paths: (type of source, name of target) to a function that gives what the plan gives.

        For what it does not accept a fast path returns ``None`` or raises one of `fast_paths.REFUSALS`; it
        never decides differently. One to NumPy gives `x` itself or an array over memory that it does not own:
        what owns its memory was copied, or never set.
        """
        return {}

    def fast_paths_for_many(self) -> Mapping[tuple[type, str], Callable[[list[Any]], list[Any] | None]]:
        """Fast paths for the leaves of a tree, all at once, that give what their batch in the plan gives.

        Each object comes once. For what it does not accept a fast path returns ``None``.
        """
        return {}

    def shield(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Keep the framework's tracer out of a function and all that it calls; only asked if `is_traced`.

        What it gives is to be called this once: the tracer may have set out already.
        """
        return function

    # -- describe ---------------------------------------------------------------------------------

    @abstractmethod
    def describe(self, x: Any) -> TensorInfo:
        """What `x` is: metadata only, no copy, no waiting for a device."""

    def open(
        self, x: Any, target: Backend | None = None, request: Request | None = None
    ) -> tuple[Backend, TensorInfo, Any]:
        """Whose tensor `x` is, what it is, and the object that the plan's steps start from.

        A list of tensors, for one, opens as what its leaves are. Where and as what it is to arrive
        is told so that what has to be read can be read as that.
        """
        return self, self.describe(x), x

    def environment(self) -> Hashable:
        """What its `capabilities` depend on as things are now: they are the same wherever this is."""
        return self.capabilities

    def signature(self, x: Any) -> Hashable | None:
        """What `signature.signature_of` tells of `x`, in attributes that are read in less time than it is described in.

        Two tensors may have one only if they are alike in all but shape, strides and address. It is a tuple that has
        `signature.COMPACT` in it only where there are no gaps. ``None``: it has to be described, as it is not one of
        the ordinary, or not in host memory.
        """
        return None

    def signature_reader(self, kind: type, target: Backend, request: Request) -> Callable[[Any], Hashable | None]:
        """What reads the signatures of a type's objects, which it claims, for conversions to a target.

        It may leave out of `signature` what does not count for that. The steps start from the object itself.
        """
        return self.signature

    lengths: Callable[[Any], tuple[int, ...]] = staticmethod(attrgetter("shape"))
    """The shape of what has a signature."""

    def describe_alike(self, tensors: Sequence[Any]) -> TensorInfo | None:
        """What many tensors of one type are, if one look at all of them shows that they are alike; else ``None``.

        It is what the first one is. Alike are they in all but shape, strides and address, and each has a ``shape``; if
        one requires grad, so does what is described.
        """
        return None

    def bound(self, step: Step, plan: Plan) -> Callable[..., Any] | None:
        """A verb as one function, where its method looks at what the plan knows already; ``None``: the method does.

        Args:
            step: The verb, and what it takes besides the value.
            plan: The plan that it is a step of, for each tensor of one signature.
        """
        return None

    def likeness(self, x: Any) -> Hashable | None:
        """What decides, of an object in ``like=``, which dtype and device it says; ``None``: it has to be described."""
        return self.signature(x)

    def grouped(self, tensors: Sequence[Any], alignment: int) -> Mapping[Hashable, Sequence[int]] | None:
        """Where tensors of each signature stand among many of one type; ``None``: one of them has to be described.

        For who asks of addresses only what they are modulo `alignment`, 0 for the element's own, the others are alike.
        """
        found = list(map(self.signature, tensors))
        return None if None in found else places_by(found)

    def extents(
        self, tensors: Sequence[Any], *, compact: bool
    ) -> tuple[Sequence[int] | Array, Sequence[int] | Array] | None:
        """The address of the first byte that each of many reaches in host memory, and of the one after its last.

        Only asked of what has a `signature`, and `compact` if each of those says so. ``None``: to tell takes as long as
        to describe them.
        """
        return None

    def owns_memory(self, signature: Any) -> bool:
        """Whether no tensor of a signature has a byte in common with another object of the framework's."""
        return False

    def for_many(self) -> Mapping[str, Callable[..., Any]]:
        """By the name of a verb: what does for a list of values, in one go, what the verb does for each.

        Only called with what has a `signature`, all of it of one dtype, all in a graph or none, and what other verbs
        have made of that.
        """
        return {}

    def preview(
        self, x: Any, target: Backend | None = None, request: Request | None = None
    ) -> tuple[Backend, TensorInfo, Any]:
        """What `open` would give, for somebody who only looks: no memory of a tensor is read for that.

        The object is ``None`` where it would have to be made.
        """
        return self.open(x, target, request)

    def is_text(self, x: Any) -> bool:
        """Whether an object that is claimed holds text, not numbers."""
        return False

    def device_facts(self, kind: str) -> DeviceFacts:
        """What it has on a kind of device; of one that is not here, what most kinds have."""
        from ..core.capabilities import DeviceFacts

        return DeviceFacts()

    def remark(self, info: TensorInfo) -> str:
        """What a plan has to say of such a tensor's numbers, if it is not what one expects."""
        return ""

    @abstractmethod
    def pointer(self, x: Any) -> int | None:
        """The address of the first element, or ``None`` where there is none to tell."""

    def holds(self, owner: object) -> bool:
        """Whether an object that owns an array's memory, and is no tensor, stands for one of this framework's."""
        return False

    # -- the verbs: each takes a value and returns the next ---------------------------------------

    @abstractmethod
    def export(self, x: Any) -> np.ndarray[Any, Any]:
        """The ndarray that lies over `x`'s host memory: an object of its own, which may be closed to writes."""

    @abstractmethod
    def adopt(self, array: np.ndarray[Any, Any]) -> Any:
        """A tensor that lies over `array`'s memory and keeps it alive."""

    def join_alike(self, tensors: Sequence[Any]) -> Any:
        """Tensors that `describe_alike` finds alike in one, one after the other; ``None``: they are taken apart."""
        return None

    def stack(self, tensors: Sequence[Any], shape: tuple[int, ...]) -> Any:
        """One tensor of equal ones, in the graph of each; only asked of a backend with gradients."""
        raise TypeError(f"{self.name} tensors carry no graph: they are stacked as arrays")

    def start_fetch(self, x: Any) -> None:
        """Start what `fetch` will wait for; only asked of a backend that `fetches_ahead`."""
        raise TypeError(f"{self.name} starts no transfer ahead")

    def copy_together(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """Copies of tensors that overlap on one device, which overlap as they do; only asked of one that `spreads`."""
        raise TypeError(f"{self.name} tensors do not tell which memory they share")

    def pack(self, tensors: Sequence[Any], alignment: int, lock: bool = False) -> tuple[Any, Any]:
        """One tensor that holds the bytes of many on one device, and what `unpack` needs to part them again.

        Only asked of a backend that `packs`. Each lies at a multiple of `alignment` bytes, and of its own
        element's size; from the host, of one that `pins`, in page-locked memory if there is any.
        """
        raise TypeError(f"{self.name} tensors are not packed")

    def unpack(self, parcel: Any, layout: Any) -> Sequence[Any]:
        """The tensors of a packed one, as views of its memory."""
        raise TypeError(f"{self.name} tensors are not packed")

    # -- containers: the framework's own, and those that its users registered with it ---------------

    def opener_of(self, kind: type) -> Callable[[Any], Node] | None:
        """What opens the objects of a type that is one of the framework's own containers; ``None``: it is none."""
        return None

    def has_node(self, kind: type) -> bool:
        """Whether objects of this type are containers by a registration with the framework."""
        return False

    def open_node(self, x: Any) -> Node | None:
        """Such a container, opened; ``None``: this one is a leaf."""
        return None

    # -- one tensor on several devices: for a framework that has an object which says how -------------

    def placement(self, device: object) -> Placement | None:
        """What ``device=`` asks for, if it is the framework's own object that lays a tensor out over devices."""
        return None

    def misfit(self, placement: Placement, shape: tuple[int, ...]) -> tuple[str, str] | None:
        """Why a tensor of this shape cannot be laid out so, and what to do; ``None``: it can."""
        return None

    def is_laid_out(self, x: Any, placement: Placement) -> bool:
        """Whether a tensor of its own lies over devices as `placement` says."""
        return False

    def place_over(self, x: Any, placement: Placement) -> Any:
        """A tensor of this framework's laid out over devices; only asked with what `placement` gave."""
        raise TypeError(f"{self.name} tensors lie on one device each")

    def offer(self, x: Any) -> Any:
        """What another framework asks for the memory of a tensor on a device: an object with ``__dlpack__``."""
        return x

    # -- devices that work asynchronously: those that do not have no streams ------------------------

    def current_stream(self, device: str) -> Stream | None:
        """The stream on which this thread's work for a device is queued now."""
        return None

    def side_stream(self, device: str) -> Stream | None:
        """A new stream of a device's, for transfers beside the current one."""
        return None

    @abstractmethod
    def snippet(self, verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:
        """The code that a person would have typed for a verb on ``{x}``; `info` is what it is then.

        For ``adopt`` the arguments are ``("newly allocated",)`` where the memory was allocated on the way: a person's
        copy need not be aligned as ours is. For ``export`` they are ``("read-only",)`` where the array is the result,
        and not to be written; for ``detach``, ``("by hand",)`` where it is what to do before a conversion. For
        ``write`` they are the `TensorInfo` of what is written into.
        """
