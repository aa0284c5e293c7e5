"""array-api-strict for tensorferry: what its arrays can do is declared, and a few short verbs do it."""

import numpy as np

from tensorferry.backends.base import Backend
from tensorferry.backends.registry import backend_named
from tensorferry.backends.verbs import PresentsReadOnly, Writes
from tensorferry.core.capabilities import Capabilities, Dtypes, Memory
from tensorferry.errors import UnsupportedTypeError

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"
SNIPPETS = {
    "export": "np.asarray({x})",
    "adopt": "xp.asarray({x}, copy=False)",
    "read_only": "xp.asarray(np.broadcast_to(np.asarray({x}), {x}.shape), copy=False)",
    "write": 'np.copyto(np.asarray(out), {x}, casting="unsafe"); {y} = out',
}


class StrictBackend(Backend, PresentsReadOnly, Writes):
    """`array_api_strict.Array`."""

    name = module = "array_api_strict"
    aliases = ("strict",)
    owns = ("array_api_strict",)
    install = "pip install array-api-strict"
    imports = {"np": "import numpy as np", "xp": "import array_api_strict as xp"}
    capabilities = Capabilities(
        dtypes=Dtypes(
            held=frozenset(DTYPES.split()),
            numbers={"bool": ("bool",), "int": ("int64",), "float": ("float64",), "complex": ("complex128",)},
        ),
        memory=Memory(writable=True, read_only=True, out=True),
    )

    def load(self):
        """Take what is needed from the framework; called once, when it is importable and somebody needs it."""
        import array_api_strict as xp

        self.xp, self.array, self.numpy = xp, type(xp.empty(0)), backend_named("numpy")
        self.host = xp.empty(0).device

    def claims(self, kind):
        """Whether objects of this type, from the modules that it owns, are its tensors."""
        return issubclass(kind, self.array)

    def describe(self, x):
        """Metadata only: NumPy's backend knows how to tell what lies below."""
        if x.device != self.host:
            hint = 'x.to_device(array_api_strict.Device("CPU_DEVICE"))'
            raise UnsupportedTypeError(f"This array is on {x.device}, which is no memory of its own.", hint)
        return self.numpy.describe(self.export(x))._replace(framework=self.name)

    def pointer(self, x):
        """The address of the first element."""
        return self.numpy.pointer(self.export(x))

    def export(self, x):
        """An ndarray over the same memory; a view, because NumPy gives the very array that is inside."""
        return np.asarray(x, copy=False).view()

    def adopt(self, array):
        """An array over an ndarray's memory, which it keeps alive."""
        return self.xp.asarray(array, copy=False)

    def read_only(self, x):
        """The same memory, that nobody can write through what is given."""
        return self.adopt(self.numpy.read_only(self.export(x)))

    def write(self, x, out):
        """Put an ndarray's values into an array of one's own, cast as everywhere in tensorferry."""
        self.numpy.write(x, self.export(out))

    def snippet(self, verb, arguments, info):
        """What a person would have typed."""
        return SNIPPETS[verb]
