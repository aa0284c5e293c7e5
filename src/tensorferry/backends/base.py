"""`Backend`: the protocol that the code for each framework implements.

Frameworks share host memory through an `ndarray`: a backend exports its tensor as an array over the
same memory, and adopts an array as a tensor. So n frameworks need n backends, and no code for
pairs. It must be possible to import a backend without its framework. `load` imports the framework;
it is called only for a tensor of the framework, or if the user named it as the target.
"""

from __future__ import annotations

import importlib
import sys
from abc import ABC, abstractmethod
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ..core.kinds import RESERVED
from ..core.named_tuple import NamedTuple
from ..errors import FrameworkNotInstalledError
from .quick import Quick, quick_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..core.capabilities import Capabilities, DeviceFacts
    from ..core.declaration import Code, Placement, VerbCall
    from ..core.info import TensorInfo
    from ..core.labels import Labels
    from ..core.request import Request
    from ..devices.streams import Stream
    from ..hints import Hint
    from ..typing import Array
    from .nodes import Node

    Opened = tuple["Backend", TensorInfo, Any]
    """What `Backend.open` gives: backend, description, and the object that the first step takes."""

__all__ = ["UNASKED", "Backend", "DeviceParts", "Opening", "kind_of_type"]


def kind_of_type(kind: type) -> str:
    """The `Kind.name` of a class: with its module if its own means something for the planner."""
    if kind.__name__ in RESERVED:
        return f"{kind.__module__}.{kind.__name__}"
    return kind.__name__


class Opening:
    """What a tensor is opened for.

    Args:
        target: The backend of the target; ``None`` if it is only described.
        request: The request: values that must be read can be read in the right dtype.
        convert: Converts another tensor, as one that stands among Python numbers. Only who calls
            can give it, because backends run no plans. Without it, NumPy's own arrays are read
            there, and other tensors are refused.
    """

    __slots__ = ("convert", "request", "target")

    def __init__(
        self,
        target: Backend | None = None,
        request: Request | None = None,
        convert: Callable[[Any, Backend, Request], Any] | None = None,
    ) -> None:
        self.target = target
        self.request = request
        self.convert = convert


UNASKED = Opening()
"""For a description alone, of what holds no tensors."""


class DeviceParts(NamedTuple):
    """What the devices of this process have of a tensor that lies on several.

    Args:
        boxes: For each device, its part as slices; equal ones may occur.
        assemble: Makes the tensor of an array for each box, in order. The arrays' memory is nobody
            else's, except that one array may stand for equal boxes. There is none if this process
            has no such device.
    """

    boxes: Sequence[tuple[slice, ...]]
    assemble: Callable[[Sequence[Array]], Any]


@cache
def _unknown() -> DeviceFacts:
    # Here, because it would make `import tensorferry` a tenth slower.
    from ..core.capabilities import DeviceFacts

    return DeviceFacts()


def _another_module(backend: Backend, error: AttributeError) -> FrameworkNotInstalledError:
    """The error for a module that has not what the framework has, as a ``torch.py`` in the user's folder."""
    module = backend.module
    where = getattr(sys.modules.get(module), "__file__", None) or "no file"
    newer = backend.install or f"a later version of {module}"
    return FrameworkNotInstalledError(
        f"{module} is not what it should be ({error}): it was imported from {where}, "
        "which is another module of this name, or too old.",
        f"another name for that file, if it is yours; or {newer}",
    )


class Backend(ABC):
    """The base of every backend.

    A subclass declares the class variables and `capabilities`, and implements `load`, `describe`
    and the verbs that its capabilities need (`verbs.missing_verbs`). Each verb has a
    `snippet`: the code that a person would type.
    """

    name: str
    """The canonical name, which is the key in the registry."""
    module: str
    """The module to import."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names that users may write, also of modules that have its tensors."""
    owns: tuple[str, ...] = ()
    """The top-level modules whose types belong to this backend."""
    is_target: ClassVar[bool] = True
    """Whether tensors can be converted to it, not only from it."""
    is_functional: ClassVar[bool] = False
    """Whether its functions take their parameters as arguments, instead of keeping them."""
    keeps_devices: ClassVar[bool] = False
    """Whether its devices are the same ones as long as a process lives.

    Otherwise they are asked for at each call.
    """
    is_traced: ClassVar[bool] = False
    """Whether the framework has a tracer that traces the functions that a user calls."""
    reads_as_asked: ClassVar[bool] = False
    """Whether some of its objects (such as dates) are numbers only if a dtype is named for them."""
    rank: ClassVar[int] = 50
    """Its position in tables of frameworks."""
    install: ClassVar[str] = ""
    """The command that installs it."""
    imports: Mapping[str, str] = {}
    """For each module name that its snippets use, the import line."""
    quick_code: str = ""
    """The module that has its `Quick`, as ``QUICK``.

    It is imported when the framework is loaded. Without it, `quick` is the default.
    """
    not_yet_run: tuple[type, ...] = ()
    """Types that it refuses because they have no values yet, such as a query that has not run."""
    loaded: bool = False
    """Whether `load` has been called."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What the framework can do with its present settings.

        The framework need not be installed.
        """

    # -- the framework -----------------------------------------------------------------------------

    def import_framework(self) -> None:
        """Import the framework.

        Raises:
            FrameworkNotInstalledError: It is not installed, or its import fails.
        """
        try:
            importlib.import_module(self.module)
        except (Exception, SystemExit) as error:
            absent = isinstance(error, ModuleNotFoundError) and error.name == self.module
            if absent:
                what = "is not installed"
            else:
                what = f"fails when it is imported ({type(error).__name__}: {error})"
            raise FrameworkNotInstalledError(f"{self.module} {what}.", self.install) from error

    def ensure_loaded(self) -> None:
        """Load the framework once.

        Raises:
            FrameworkNotInstalledError: It is not installed, its import fails, or what is imported
                is another module.
        """
        if not self.loaded:
            self.import_framework()
            try:
                self.load()
                self.quick = quick_of(self)
            except AttributeError as error:
                raise _another_module(self, error) from error
            self.loaded = True

    @cached_property
    def quick(self) -> Quick[Any]:
        """What makes it fast; the slow and obvious default until the framework is loaded."""
        return Quick(self)

    @abstractmethod
    def load(self) -> None:
        """Get what is needed from the framework, which can be imported now."""

    def is_imported(self) -> bool:
        """Whether the framework has been imported. ``None`` in its place says that it cannot be."""
        return sys.modules.get(self.module) is not None

    def version(self) -> str:
        """The version of the framework, which must be loaded."""
        return str(getattr(sys.modules[self.module], "__version__", "unknown"))

    # -- which types are its tensors ---------------------------------------------------------------

    def accepts_foreign(self, x: object) -> bool:
        """Whether it accepts this object of another library."""
        return False

    def knows(self, kind: type) -> bool:
        """Whether it knows a type of another library, whose base class belongs to a backend."""
        return False

    @abstractmethod
    def claims(self, kind: type) -> bool:
        """Whether objects of this type, from a module that it owns, are its tensors."""

    def stands_for(self, kind: type) -> bool:
        """Whether a class of its modules is that of its plain tensors, and so can be the target.

        By default it is each class of tensors that is not derived from another one of them.
        """
        return self.is_target and self.claims(kind) and not any(map(self.claims, kind.__mro__[1:]))

    def refusal(self, kind: type) -> tuple[str, str | Hint | None] | None:
        """Why a type of its modules is no tensor of its own, and a hint; ``None`` without these."""
        return None

    # -- the framework's tracer, if it has one -----------------------------------------------------

    def shield(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Keep the framework's tracer out of a function and everything that it calls.

        Only called if `is_traced`.

        The result is the function to call this time, because the tracer may be running already.
        """
        return function

    # -- what a tensor is --------------------------------------------------------------------------

    @abstractmethod
    def describe(self, x: Any) -> TensorInfo:
        """Describe `x` by its metadata, without a copy, and without waiting for a device."""

    def open(self, x: Any, opening: Opening = UNASKED) -> Opened:
        """The backend of `x`, its description, and the object that the first step takes.

        For example, a list of tensors opens as its leaves, of another backend.
        """
        return self, self.describe(x), x

    def unlike(self, x: Any) -> tuple[str, str | Hint] | None:
        """Why no result is such an object as that in ``like=``, and what to type; ``None`` if one is."""
        return None

    def preview(self, x: Any, opening: Opening = UNASKED) -> Opened:
        """As `open`, but for a description or a plan: the memory of tensors is not read.

        The object is ``None`` if it would have to be made.
        """
        return self.open(x, opening)

    def labels_of(self, x: Any) -> Labels | None:
        """The labels of the rows and columns of a tensor; ``None`` if it has none."""
        return None

    def is_text(self, x: Any) -> bool:
        """Whether a tensor holds only text, dates or such, so that it stays as it is in a tree."""
        return False

    def remark(self, info: TensorInfo) -> str:
        """A warning for the plan, if such numbers are unexpected (they count days, for example)."""
        return ""

    @abstractmethod
    def pointer(self, x: Any) -> int | None:
        """The address of the first element; ``None`` if there is none."""

    def holds(self, owner: object) -> bool:
        """Whether a non-tensor that owns an array's memory belongs to a tensor of the framework."""
        return False

    # -- the verbs: each takes a value and returns the next ----------------------------------------

    @abstractmethod
    def export(self, x: Any) -> Array:
        """A new `ndarray` over the host memory of `x`, which may then be made read-only."""

    @abstractmethod
    def adopt(self, array: Array) -> Any:
        """A tensor over the memory of `array`, which keeps the memory alive."""

    def export_dlpack(self, x: Any) -> Any:
        """An object with ``__dlpack__`` that gives others the memory of a tensor on a device."""
        return x

    # -- containers: the framework's own, and those that its users registered with it --------------

    def opener_of(self, kind: type) -> Callable[[Any], Node | None] | None:
        """The function to open a type that is the framework's own container; ``None`` for others.

        The function gives ``None`` for an object that is a leaf all the same.
        """
        return None

    def has_node(self, kind: type) -> bool:
        """Whether this type is registered with the framework as a container."""
        return False

    def open_node(self, x: Any) -> Node | None:
        """Open a container of a registered type; ``None`` if the object is a leaf."""
        return None

    # -- the framework's objects that are no tensors, in files -------------------------------------

    def plain_value(self, x: Any) -> tuple[str, str | list[int]] | None:
        """The framework's object in plain values (``"dtype", "float32"``); ``None`` for others."""
        return None

    def value_of(self, kind: str, value: object) -> Any:
        """The object that `plain_value` told; ``None`` if there is none."""
        return None

    # -- one tensor on several devices: for a framework that has an object which says how ----------

    def placement(self, device: object) -> Placement | None:
        """The placement in ``device=``, if it is the framework's object for that; else ``None``."""
        return None

    def misfit(self, placement: Placement, shape: tuple[int, ...]) -> tuple[str, str | Hint] | None:
        """Why a tensor of this shape cannot have the placement, and a hint; ``None`` if it can."""
        return None

    def is_laid_out(self, x: Any, placement: Placement) -> bool:
        """Whether a tensor of the framework already has the placement."""
        return False

    def place_over(self, x: Any, placement: Placement) -> Any:
        """Lay a tensor of the framework out over devices, by the result of `placement`."""
        raise TypeError(f"{self.name} tensors lie on one device each")

    def device_parts(
        self, placement: Placement, shape: tuple[int, ...], dtype: str
    ) -> DeviceParts | None:
        """What the devices of this process have of a tensor with the placement.

        ``None`` for a backend that can only lay out whole tensors. The placement takes this shape:
        `misfit` says so.
        """
        return None

    # -- devices; those that work asynchronously have streams, others have none --------------------

    def devices(self) -> tuple[str, ...]:
        """The canonical names of the devices of this machine; the framework must be loaded."""
        return ("cpu",)

    def device_facts(self, kind: str) -> DeviceFacts:
        """What the framework can do on a kind of device."""
        return _unknown()

    def current_stream(self, device: str) -> Stream | None:
        """The current stream of this thread for a device; ``None`` without streams."""
        return None

    def side_stream(self, device: str) -> Stream | None:
        """A device's new stream, for transfers beside the current one; ``None`` without streams."""
        return None

    # -- the code to show --------------------------------------------------------------------------

    @abstractmethod
    def snippet(self, call: VerbCall) -> Code | str:
        """The code that a person types for a verb, such as ``f"np.asarray({call.x})"``.

        A text is an expression. What takes more is a `Code`, with the statements that follow and
        remarks.

        Args:
            call: The verb with its arguments, and the code and the description of the value. Its
                `details` are what else the code depends on, such as who casts. Besides the verbs of
                the plan there is ``view``, the value as another dtype of the same width: where two
                frameworks on a device cannot name its own to each other (`Dtypes.unnamed`).
        """
