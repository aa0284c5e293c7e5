"""Objects of other libraries that offer their memory: ``__dlpack__``, a buffer, ``__array_interface__``, ``__array__``.

One order for every target: the first of these that an object has is taken, and if it fails the
producer's own error is the cause that is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import dlpack, memory
from ..backend import Backend, Capabilities, kind_of_type
from ..dtypes import find, of_numpy
from ..errors import DeviceError, UnsupportedTypeError
from ..info import TensorInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..request import Request

Array = np.ndarray[Any, Any]


_CAPABILITIES = Capabilities(dtypes=frozenset(), numbers={}, writable=True, host_array=True, ordinary_kind="object")


class ArrayLikeBackend(Backend):
    """Any object with one of the protocols; a source for every target, never a target."""

    name = "array-like"
    module = "builtins"
    rank = 90
    is_target = False
    imports: ClassVar[Mapping[str, str]] = {"np": "import numpy as np", "ferry": "import tensorferry as ferry"}

    @property
    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    def load(self) -> None:
        """No framework stands behind it."""

    def claims(self, kind: type) -> bool:
        return False

    def accepts_foreign(self, x: object) -> bool:
        return _protocol(x) is not None

    def describe(self, x: Any) -> TensorInfo:
        """What the array is that lies over the object's memory."""
        return self.open(x)[1]

    def open(
        self, x: Any, target: Backend | None = None, request: Request | None = None
    ) -> tuple[Backend, TensorInfo, Any]:
        kind = type(x).__name__
        name, take = _protocol(x) or ("no protocol", np.asarray)
        try:
            array = take(x)
        except (UnsupportedTypeError, DeviceError):
            raise
        except Exception as error:
            raise _failed(x, name, error) from error
        canonical = of_numpy(array.dtype)
        if canonical is None:
            raise UnsupportedTypeError(
                f"A {kind} comes through {name} as dtype {array.dtype}, which cannot be carried.",
                "convert it to an array of numbers first",
            )
        writable = array.flags.writeable
        over = ".__dlpack__" if name == "__dlpack__" else ""
        info = TensorInfo(
            self.name,
            array.shape,
            canonical,
            strides=array.strides,
            misalignment=memory.address(array),
            writable=writable,
            mutable=writable or bool(memory.writable_somewhere(array)),
            swapped=not array.dtype.isnative,
            memory_map=memory.is_mapped(array),
            kind=kind_of_type(type(x)) + over,
        )
        return self, info, array

    def pointer(self, x: Any) -> int | None:
        return memory.address(x)

    def export(self, x: Any) -> Array:
        array: Array = x
        return array

    def adopt(self, array: Array) -> Any:
        return array

    def snippet(self, verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:
        if not info.kind.endswith(".__dlpack__"):
            return "np.asarray({x})"
        if find(info.dtype).numpy.type.__module__ == "numpy":
            return "np.from_dlpack({x})"
        return f"# NumPy's from_dlpack does not know {info.dtype}\nferry.to_numpy({{x}})"


def _protocol(x: object) -> tuple[str, Callable[[Any], Array]] | None:
    """The first protocol that an object offers, and how it is taken."""
    if _offers(x, "__dlpack__") and _offers(x, "__dlpack_device__"):
        return "__dlpack__", dlpack.take
    try:
        memoryview(x)  # type: ignore[arg-type]
    except TypeError:
        pass
    except Exception as error:
        raise _failed(x, "the buffer protocol", error) from error
    else:
        return "the buffer protocol", _from_buffer
    if _offers(x, "__array_interface__"):
        return "__array_interface__", _from_interface
    if _offers(x, "__array__"):
        return "__array__", _from_array
    if _offers(x, "__cuda_array_interface__"):
        return "__cuda_array_interface__", _on_a_gpu
    return None


def _offers(x: object, name: str) -> bool:
    """Whether an object has an attribute; to look can run code of its class, which can fail."""
    try:
        return hasattr(x, name)
    except Exception as error:
        raise _failed(x, name, error) from error


def _failed(x: object, name: str, error: Exception) -> UnsupportedTypeError:
    call = {"__array__": "np.asarray(x)", "__dlpack__": "x.__dlpack__()"}
    hint = f"{call.get(name, f'x.{name}')}, which has to work by itself"
    if name == "the buffer protocol":
        hint = 'np.frombuffer(x, "uint8"), or the dtype that is meant'
    return UnsupportedTypeError(
        f"A {type(x).__name__} offers {name}, which failed: {type(error).__name__}: {error}", hint
    )


def _from_buffer(x: Any) -> Array:
    return np.asarray(memoryview(x))


def _from_array(x: Any) -> Array:
    array = np.asanyarray(x)
    if isinstance(array, np.ma.MaskedArray):
        raise _masked(x, "np.asanyarray(x).filled(value)")
    return np.asarray(array)


def _from_interface(x: Any) -> Array:
    interface = x.__array_interface__
    if interface.get("mask") is not None:
        # What it says is which elements are valid (https://numpy.org/doc/stable/reference/arrays.interface.html).
        raise _masked(x, 'np.where(x.__array_interface__["mask"], np.asarray(x), value)')
    data = interface.get("data")
    empty = 0 in interface["shape"]
    if empty and data is not None and not data[0]:
        # An empty array may have no address, which NumPy refuses.
        return np.empty(interface["shape"], interface["typestr"])
    return np.asarray(x)


def _masked(x: object, hint: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(f"A {type(x).__name__} is values and a mask, and its mask would be lost.", hint)


def _on_a_gpu(x: Any) -> Array:
    raise DeviceError(
        f"A {type(x).__name__} lies on a GPU and offers only __cuda_array_interface__.",
        "convert it to a tensor of a framework on the GPU first",
    )


BACKEND = ArrayLikeBackend()
