"""A backend for array-api-strict: it declares what the arrays can do, and has a few short methods that do it."""

import numpy as np

from tensorferry.backends.base import Backend
from tensorferry.backends.registry import backend_named
from tensorferry.backends.verbs import PresentsReadOnly, Writes
from tensorferry.core.capabilities import Capabilities, Dtypes, Memory
from tensorferry.core.declaration import Code
from tensorferry.errors import UnsupportedTypeError

INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64"
DTYPES = f"bool {INTEGERS} float32 float64 complex64 complex128"
NUMBERS = {"bool": ("bool",), "int": ("int64",), "float": ("float64",), "complex": ("complex128",)}


class StrictBackend(Backend, PresentsReadOnly, Writes):
    """`array_api_strict.Array`."""

    name = module = "array_api_strict"
    aliases = ("strict",)
    owns = ("array_api_strict",)
    install = "pip install array-api-strict"
    imports = {"np": "import numpy as np", "xp": "import array_api_strict as xp"}
    capabilities = Capabilities(
        dtypes=Dtypes(held=frozenset(DTYPES.split()), numbers=NUMBERS),
        memory=Memory(writable=True, read_only=True, out=True),
    )

    def load(self):
        """Import the framework. This is called once, before the framework is used for the first time."""
        import array_api_strict as xp

        self.xp, self.array, self.numpy = xp, type(xp.empty(0)), backend_named("numpy")
        self.host = xp.empty(0).device

    def claims(self, kind):
        """Whether objects of this type are arrays; it is asked for the types that are defined in the modules `owns`."""
        return issubclass(kind, self.array)

    def describe(self, x):
        """The metadata of an array: NumPy's backend describes the ndarray inside."""
        if x.device != self.host:
            hint = 'x.to_device(array_api_strict.Device("CPU_DEVICE"))'
            raise UnsupportedTypeError(
                f"This array is on {x.device}, and its memory cannot be read there.", hint
            )
        return self.numpy.describe(self.export(x))._replace(framework=self.name)

    def pointer(self, x):
        """The address of the first element."""
        return self.numpy.pointer(self.export(x))

    def export(self, x):
        """An ndarray that shares the memory. It is a view, because NumPy gives the array inside itself."""
        return np.asarray(x, copy=False).view()

    def adopt(self, array):
        """An array that shares an ndarray's memory and keeps it alive."""
        return self.xp.asarray(array, copy=False)

    def read_only(self, x):
        """A read-only array that shares the memory."""
        return self.adopt(self.numpy.read_only(self.export(x)))

    def write(self, x, out):
        """Write an ndarray's values into an array, with tensorferry's rules for casts."""
        self.numpy.write(x, self.export(out))

    def snippet(self, call):
        """The code that a person would type."""
        x = call.x
        written = 'np.copyto(np.asarray(out), y, casting="unsafe")'
        return {
            "export": f"np.asarray({x})",
            "adopt": f"xp.asarray({x}, copy=False)",
            "read_only": f"xp.asarray(np.broadcast_to(np.asarray({x}), {x}.shape), copy=False)",
            "write": Code(x, (written, "y = out")),
        }[call.verb]
