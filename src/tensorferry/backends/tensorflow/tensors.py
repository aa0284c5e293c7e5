"""`TensorflowBackend`: descriptions of TensorFlow tensors, and the verbs."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import hints
from ...core.devices import HOST, device_name
from ...core.dtypes import ORDINARY
from ...core.info import TensorInfo
from ...core.kinds import kind_named
from ...core.layout import AXES
from ...errors import UnsupportedTypeError, an
from ...hints import Hint
from ...host import casts, dlpack, memory
from ...host.numpy_dtypes import numpy_dtype
from ...planning.rules import frameworks_agree
from .. import registry
from ..base import Backend
from ..nodes import Node
from .declared import (
    CAPABILITIES,
    COPIED,
    DECLARED,
    DEFAULT_STREAM,
    HELD,
    REFUSED,
    device_code,
    snippet,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...typing import Array

_DLPACK = frozenset(map(numpy_dtype, ORDINARY))
"""The dtypes that NumPy's ``__dlpack__`` supports.

Narrow dtypes are adopted through the constructor.
"""


@lru_cache(maxsize=4096)
def _described(
    shape: tuple[int, ...], name: str, device: str, misalignment: int, kind: str
) -> TensorInfo:
    return TensorInfo(
        "tensorflow",
        shape,
        name,
        device,
        misalignment=misalignment,
        writable=False,
        mutable=False,
        kind=kind_named(kind),
    )


_WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "ListWrapper": list,
    "_DictWrapper": dict,
    "_TupleWrapper": tuple,
}


class TensorflowBackend(Backend):
    """`tf.Tensor` and `tf.Variable`."""

    name = "tensorflow"
    module = "tensorflow"
    aliases = ("tf",)
    owns = ("tensorflow", "keras")
    keeps_devices = True
    rank = 3
    install = "pip install tensorflow"
    imports = DECLARED.imports
    capabilities = CAPABILITIES  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    snippet = staticmethod(snippet)  # pyright: ignore[reportAssignmentType]
    quick_code = f"{__package__}.quick"

    def load(self) -> None:
        import tensorflow as tf

        self.tf: Any = tf
        self.dtypes = {}
        for name in HELD:
            with suppress(TypeError):
                self.dtypes[name] = tf.dtypes.as_dtype(numpy_dtype(name))
        self.capabilities = CAPABILITIES.holding(self.dtypes)
        self.names = {dtype: name for name, dtype in self.dtypes.items()}
        self.enums = {dtype.as_datatype_enum: name for name, dtype in self.dtypes.items()}
        self.eager = tf.__internal__.EagerTensor
        self.from_dlpack = tf.experimental.dlpack.from_dlpack
        self.all_host = not tf.config.list_physical_devices("GPU")
        with tf.init_scope(), tf.device("CPU:0"):
            # The first tensor creates TensorFlow's context, which is needed to adopt memory.
            self.host = tf.constant(0).backing_device

    def version(self) -> str:
        return str(self.tf.__version__)

    def devices(self) -> tuple[str, ...]:
        gpus = [
            f"cuda:{index}" for index, _ in enumerate(self.tf.config.list_logical_devices("GPU"))
        ]
        return ("cpu", *gpus)

    def opener_of(self, kind: type) -> Callable[[Any], Node] | None:
        """Open wrappers that a `tf.Module` puts around lists, dicts and tuples, as plain ones."""
        wraps = kind.__name__ in _WRAPPERS and kind.__module__.startswith(self.module)
        if wraps:
            return lambda x: Node([""], [_WRAPPERS[kind.__name__](x)], lambda values: values[0])
        return None

    def claims(self, kind: type) -> bool:
        return issubclass(kind, (self.tf.Tensor, self.tf.Variable))

    def stands_for(self, kind: type) -> bool:
        return kind is self.tf.Tensor or issubclass(kind, self.eager)

    def refusal(self, kind: type) -> tuple[str, str | Hint | None] | None:
        if issubclass(kind, self.tf.data.Dataset):
            return "A tf.data.Dataset is many tensors, one after the other.", Hint(
                hints.call("prefetch")
            )
        if issubclass(kind, self.tf.Module) or (
            hasattr(kind, "variables") and hasattr(kind, "get_weights")
        ):
            hint = Hint(hints.tree("x.variables"))
            if hasattr(kind, "path"):
                by_path = hints.tree("dict((v.path, v) for v in x.variables)")
                hint = Hint(by_path, ", if no two have one path") | hint
            return f"{an(kind.__name__, 'A')} holds tensors, but is not one.", hint
        refused = REFUSED.get(kind.__name__)
        if refused is None:
            return None
        return f"A tf.{kind.__name__} is {refused[0]}.", refused[1]

    # -- describe ----------------------------------------------------------------------------------

    def describe(self, x: Any) -> TensorInfo:
        if isinstance(x, self.eager):
            return self._describe_eager(x)
        if isinstance(x, self.tf.Variable):
            kind = "Variable"
        else:
            kind = "traced"
        name = self.names.get(x.dtype.base_dtype)
        if kind == "traced" or not self.tf.executing_eagerly():
            if x.shape.rank is not None:
                known = [length or 0 for length in x.shape]
            else:
                known = []
            return TensorInfo(
                self.name, known, name or "uint8", kind=kind_named(kind), abstract="traced"
            )
        if name is None:
            raise self._no_such_dtype(x.dtype)
        device = device_name(x.device)
        # A variable whose shape may change has the shape of its value.
        if x.shape.is_fully_defined():
            shape = tuple(x.shape)
        else:
            shape = self.value(x)._shape_tuple()
        return _described(shape, name, device, 0, kind)

    def _describe_eager(self, x: Any) -> TensorInfo:
        name = self.enums.get(x._datatype_enum())
        if name is None:
            raise self._no_such_dtype(x.dtype)
        shape = x._shape_tuple()
        # `backing_device`, because TensorFlow keeps int32 "GPU" tensors in host memory.
        place = x.backing_device
        if place == self.host:
            device = HOST
        else:
            device = device_name(place)
        # TensorFlow gives an address only through an array, which cannot have as many axes.
        if device == HOST and len(shape) <= AXES:
            at = memory.address(self.memory_of(x))
        else:
            at = 0
        return _described(shape, name, device, at & 63, "")

    def _no_such_dtype(self, dtype: Any) -> UnsupportedTypeError:
        if dtype.name == "string":
            return UnsupportedTypeError(
                "A tensor of strings has no numbers to convert.", "x.numpy()"
            )
        if dtype.name.startswith(("qint", "quint")):
            return UnsupportedTypeError(
                f"A quantized tensor ({dtype.name}) is integers, a scale and a zero point.",
                Hint(hints.code("tf.bitcast(x, tf.int8)"), ", which has its integers"),
            )
        return UnsupportedTypeError(
            f"TensorFlow's {dtype.name} cannot be converted: it has no elements.", None
        )

    def is_text(self, x: Any) -> bool:
        return bool(x.dtype.name == "string")

    def pointer(self, x: Any) -> int | None:
        if isinstance(x, self.tf.Variable):
            x = self.value(x)
        on_host = device_name(x.backing_device) == HOST
        if on_host and len(x.shape) <= AXES:
            return memory.address(self.memory_of(x))
        return None

    # -- verbs -------------------------------------------------------------------------------------

    def value(self, x: Any) -> Any:
        """The value of a variable, as a constant that a later assignment does not change.

        After a sparse update, a variable copies its value whenever it is read. This operation makes
        it copy at its next update instead, which may never happen.
        (https://www.tensorflow.org/api_docs/python/tf/raw_ops/DisableCopyOnRead)
        """
        if self.tf.executing_eagerly():
            try:
                return x.read_value_no_copy()
            except (
                AttributeError,
                TypeError,
            ):  # the result of `assign` is another kind of variable
                return x.value()
        try:
            return x.value()
        except RuntimeError as error:
            raise UnsupportedTypeError(
                f"This variable is not of the graph that is being built: {error}",
                "convert it before the graph",
            ) from error

    def export(self, x: Any) -> Array:
        array: Array = x._numpy_internal()
        if type(array) is not np.ndarray:
            array = self.memory_of(x)
        array.setflags(False)  # type: ignore[call-arg]  # by its name it takes as long again
        return array

    def memory_of(self, x: Any) -> Array:
        """The array that `numpy()` copies: over the tensor's own memory, except for shape ()."""
        array: Array = x._numpy_internal()
        if type(array) is not np.ndarray:
            # For shape () it is a scalar. With another axis, it is an array over the same memory.
            array = self._reshape(x, (1,))._numpy_internal().reshape(())
        return array

    def _reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        """An eager tensor over the same memory, also inside a traced function."""
        if self.all_host and self.tf.executing_eagerly():
            return self.tf.reshape(x, shape)
        # Not tf.init_scope, which does not leave a tf.Graph of the user.
        with self.tf.__internal__.eager_context.eager_mode(), self.tf.device(x.backing_device):
            return self.tf.reshape(x, shape)

    def fetch(self, x: Any) -> Array:
        """A copy of a device's tensor in host memory."""
        return np.array(x.numpy())

    def adopt(self, array: Array) -> Any:
        if array.flags.writeable and array.dtype in _DLPACK and array.size:
            return self.from_dlpack(array.__dlpack__())
        if not array.shape:
            return self._reshape(self.eager(array.reshape(1), self.host, None), ())
        return self.eager(array, self.host, None)

    def cast(self, x: Any, dtype: str, check: str = "") -> Any:
        """A cast with the same bits as on the host; in a traced function, TensorFlow's own cast."""
        if not isinstance(x, self.eager):
            return self.tf.cast(x, self.dtypes[dtype])
        # With the device, because otherwise TensorFlow uses the first one.
        with self.tf.device(x.backing_device):
            if not check and frameworks_agree(self.enums[x._datatype_enum()], dtype):
                return self.tf.cast(x, self.dtypes[dtype])
            return self.tf.identity(
                self.adopt(casts.cast(self.fetch(x), dtype, check, compact=True))
            )

    def copy(self, x: Any) -> Any:
        """A copy on the same device; for a symbolic tensor, another one with the same values."""
        if not isinstance(x, self.eager):
            return self.tf.identity(x)
        if x.backing_device == self.host:
            array = self.memory_of(x)
            own = memory.compact(array.shape, array.dtype)
            own[...] = array
            return self.adopt(own)
        with self.tf.device(x.backing_device):
            if self.enums[x._datatype_enum()] in COPIED:
                return self.tf.raw_ops.DeepCopy(x=x)
            return self.tf.identity(self.adopt(self.fetch(x)))

    def move(self, x: Any, device: str, non_blocking: bool = False) -> Any:
        """A copy on another device."""
        with self.tf.device(device_code(device)):
            return self.tf.identity(x)

    def wait(self, x: Any) -> Any:
        """The tensor, after its values have been computed.

        TensorFlow can only wait for all devices.
        """
        self.tf.test.experimental.sync_devices()
        return x

    def export_dlpack(self, x: Any) -> Any:
        # TensorFlow does not take a stream. Its values are complete when it exports
        # (https://www.tensorflow.org/api_docs/python/tf/experimental/dlpack/to_dlpack).
        return dlpack.DlpackExport(x, self.enums[x._datatype_enum()], nullcontext, streams=False)

    def import_dlpack(self, x: Any, source: str = "") -> Any:
        """A tensor over the memory of another framework's tensor on the same device."""
        if source:
            exported = registry.backend_named(source).export_dlpack(x)
        else:
            exported = x
        if isinstance(exported, dlpack.DlpackExport):
            exported = exported.as_named()
        # TensorFlow does not name a stream. The step before has waited for the producer.
        return self.from_dlpack(exported.__dlpack__(stream=DEFAULT_STREAM))

    def variable(self, x: Any) -> Any:
        """A new variable with this value, on the same device."""
        # With the device, because otherwise TensorFlow uses the first GPU
        # (https://www.tensorflow.org/guide/variable).
        eager = isinstance(x, self.eager) and self.tf.executing_eagerly()
        if eager:
            place = self.tf.device(x.backing_device)
        else:
            place = nullcontext()
        try:
            with place:
                return self.tf.Variable(x)
        except self.tf.errors.InvalidArgumentError as error:
            name = self.names[x.dtype]
            raise UnsupportedTypeError(
                f"TensorFlow makes no variable of {name}: it has no operation that assigns one.",
                hints.without("variable"),
            ) from error
        except (RuntimeError, ValueError) as error:
            if self.tf.executing_eagerly():
                raise
            raise UnsupportedTypeError(
                f"TensorFlow makes no variable here, where a graph is built: {error}",
                "make it before the graph",
            ) from error

    def write(self, x: Array, out: Any) -> None:
        """Assign an array's values, cast to its dtype, to a variable."""
        # An aligned copy, which the variable keeps as its memory. Operations on unaligned memory
        # end the process.
        out.assign(self.adopt(casts.cast(x, self.names[out.dtype], compact=True)), read_value=False)


BACKEND = TensorflowBackend()
