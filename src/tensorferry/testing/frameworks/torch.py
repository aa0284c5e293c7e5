"""The witness for PyTorch: strided views, lazy bits, leaves and results of a graph, subclasses."""

# ruff: noqa: D102, SLF001 - the methods are documented in the base class; some facts are private in PyTorch

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar

from ..bits import FORMATS, flip_sign
from ..memory import LAYOUTS, Image, Place, read
from ..memory import image as image_of
from ..witness import Sample, Witness

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping


class TorchWitness(Witness):
    """`torch.Tensor` on the host."""

    name = "torch"
    module = "torch"
    writes = True
    layouts: ClassVar[tuple[str, ...]] = (
        *(layout for layout in LAYOUTS if layout not in ("negative", "reversed", "field")),
        "conjugate",
        "imaginary part",
        "leaf",
        "leaf strided",
        "result",
        "conjugate leaf",
        "parameter",
        "subclass",
    )
    everyday: ClassVar[Mapping[str, str]] = {"aligned": "", "leaf": "gradient"}

    def load(self) -> None:
        self.torch: Any = importlib.import_module("torch")

        class Subclass(self.torch.Tensor):  # type: ignore[name-defined, misc]
            """A subclass that adds nothing."""

        self.subclass: Any = Subclass

    def knows(self, dtype: str) -> bool:
        if not hasattr(self.torch, dtype):
            return False
        try:
            # The dtypes of less than 8 bits have a name and a size, but no operations.
            self.torch.zeros(2, dtype=getattr(self.torch, dtype)).clone()
        except (RuntimeError, NotImplementedError):
            return False
        return FORMATS[dtype].bits >= 8 or dtype == "bool"

    def build(self, content: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
        kind = getattr(self.torch, dtype)
        if not content:
            return self.torch.empty(shape, dtype=kind)
        raw = self.torch.frombuffer(bytearray(content), dtype=self.torch.uint8).clone()
        return raw.view(kind).reshape(shape)

    def lay(self, image: Image, dtype: str) -> Any:
        torch, kind, itemsize = self.torch, getattr(self.torch, dtype), FORMATS[dtype].itemsize
        if 0 in image.shape:
            return torch.empty(image.shape, dtype=kind)
        size = len(image.block)
        raw = torch.empty(size + 128, dtype=torch.uint8)
        start = -raw.data_ptr() % 64
        whole = raw[start : start + size]
        whole.copy_(torch.frombuffer(bytearray(image.block), dtype=torch.uint8))
        if image.offset % itemsize:
            count = (size - image.offset) // itemsize
            whole = torch.frombuffer(whole.numpy(), dtype=kind, count=count, offset=image.offset)
            return whole.reshape(image.shape)
        padded = raw[start : start + size + -size % itemsize].view(kind)
        # The stride of an axis of length 1 is not used, and PyTorch needs whole elements.
        strides = [
            step // itemsize if length > 1 else 5
            for length, step in zip(image.shape, image.strides, strict=True)
        ]
        first = (start + image.offset) // itemsize
        return padded.as_strided(image.shape, strides, first)

    def make(self, layout: str, dtype: str) -> Sample | None:
        head, _, tail = layout.partition(" ")
        if layout in LAYOUTS:
            image = image_of(layout, dtype)
            x = self.lay(image, dtype)
            return Sample(x, dtype, image.shape, image.content, True, True)
        if layout in ("conjugate", "imaginary part", "conjugate leaf"):
            return self._lazy(layout, dtype)
        if head in ("leaf", "result", "parameter"):
            return self._in_graph(head, tail, dtype)
        image = image_of("aligned", dtype)
        x = self.lay(image, dtype).as_subclass(self.subclass)
        return Sample(x, dtype, image.shape, image.content, True, True)

    def _lazy(self, layout: str, dtype: str) -> Sample | None:
        kind, image = FORMATS[dtype].kind, image_of("aligned", dtype)
        if layout == "imaginary part":
            # This is the public way to set the negative bit. The tensor is strided too.
            wide = {"float32": "complex64", "float64": "complex128"}.get(dtype)
            if wide is None:
                return None
            image = image_of("aligned", wide)
            size = FORMATS[dtype].itemsize
            parts = [image.content[at : at + size] for at in range(0, len(image.content), size)]
            content = flip_sign(dtype, b"".join(parts[1::2]))
            x = self.lay(image, wide).conj().imag
            return Sample(x, dtype, image.shape, content, True, True, lazy=True)
        if kind != "complex":
            return None
        whole = self.lay(image, dtype)
        leaf = layout == "conjugate leaf"
        if leaf:
            whole.requires_grad_()
        content = flip_sign(dtype, image.content, imaginary_only=True)
        return Sample(
            whole.conj(), dtype, image.shape, content, True, True, lazy=True, requires_grad=leaf
        )

    def _in_graph(self, head: str, tail: str, dtype: str) -> Sample | None:
        if FORMATS[dtype].kind not in ("float", "complex"):
            return None
        image = image_of(tail or "aligned", dtype)
        x = self.lay(image, dtype)
        if head == "parameter":
            x = self.torch.nn.Parameter(x)
        else:
            x.requires_grad_()
        if head == "result":
            x = x.clone()
        return Sample(x, dtype, image.shape, image.content, True, True, requires_grad=True)

    def place(self, x: Any) -> Place:
        size = x.element_size()
        strides = tuple(step * size for step in x.stride())
        return Place(x.data_ptr(), tuple(x.shape), strides, size)

    def content(self, x: Any) -> bytes:
        held = x.detach().cpu().resolve_conj().resolve_neg()
        return read(self.place(held))

    def is_plain(self, x: Any) -> bool:
        return type(x) is self.torch.Tensor and not x.is_conj() and not x.is_neg()

    def requires_grad(self, x: Any) -> bool:
        return bool(x.requires_grad)

    def state(self, x: Any) -> Hashable:
        # In PyTorch 2.11, each look at a node may make another object for it.
        node = x.grad_fn and (x.grad_fn.name(), x.grad_fn._sequence_nr())
        graph = (x.requires_grad, x.is_leaf, node, x._version)
        return type(x), x.dtype, str(x.device), self.place(x), x.is_conj(), x.is_neg(), graph

    def poke(self, x: Any, content: bytes) -> None:
        values = self.build(content, self.dtype(x), tuple(x.shape))
        # PyTorch refuses writes where elements share memory, as along a broadcast axis.
        first_of_repeats = tuple(slice(None if step else 1) for step in x.stride())
        x.detach()[first_of_repeats].copy_(values[first_of_repeats])


WITNESS = TorchWitness()
