"""A witness for array-api-strict: with it the conformance suite and ``tensorferry doctor`` look."""

import array_api_strict as xp
import numpy as np

from tensorferry import testing
from tensorferry.testing.memory import LAYOUTS, Place


class StrictWitness(testing.Witness):
    """Makes arrays and looks at them, without tensorferry."""

    name = module = "array_api_strict"
    layouts = LAYOUTS
    writes = True

    def build(self, content, dtype, shape):
        getattr(xp, dtype)  # raises AttributeError if there is no such dtype
        return xp.asarray(np.frombuffer(bytearray(content), dtype).reshape(shape), copy=False)

    def lay(self, image, dtype):
        memory = np.zeros(len(image.block) + 64, np.uint8)
        memory = memory[-memory.__array_interface__["data"][0] % 64 :][: len(image.block)]
        memory[...] = np.frombuffer(image.block, np.uint8)
        return xp.asarray(
            np.ndarray(image.shape, dtype, memory.data, image.offset, image.strides), copy=False
        )

    def place(self, x):
        array = np.asarray(x)
        return Place(
            array.__array_interface__["data"][0], array.shape, array.strides, array.itemsize
        )

    def state(self, x):
        return x.dtype, x.device, self.place(x), self.writable(x)

    def writable(self, x):
        return np.asarray(x).flags.writeable

    def is_plain(self, x):
        return type(x) is type(xp.empty(0))

    def poke(self, x, content):
        np.asarray(x)[...] = np.frombuffer(content, np.asarray(x).dtype).reshape(x.shape)
