"""A setting of the page: from its words to a tensor that is described and the keywords of a call."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from tensorferry.backends.declared import declarations
from tensorferry.core.dtypes import CASTINGS, DTYPES, KEYWORDS, ORDINARY, find
from tensorferry.core.info import TensorInfo
from tensorferry.core.layout import compact_strides, is_compact
from tensorferry.planning.preconditions import refuse_place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "CHOICES",
    "DEFAULTS",
    "KEYWORDS_OF",
    "NAMES",
    "OPTIONS",
    "ImpossibleError",
    "Setting",
    "given",
    "keywords",
    "read",
    "tensor",
]

NAMES = {
    "python": "Python list",
    "numpy": "NumPy",
    "torch": "PyTorch",
    "tensorflow": "TensorFlow",
    "jax": "JAX",
    "cupy": "CuPy",
}
"""The frameworks of the page, as people write them."""

KEYWORDS_OF = {
    "copy": "copy",
    "as": "dtype",
    "casting": "casting",
    "place": "device",
    "grad": "grad",
}
"""The keyword that each control of the call stands for; those of the options stand for themselves."""

LAYOUTS = ("plain", "transposed", "second", "reversed", "broadcast", "off")
DEVICES = ("cpu", "cuda:0", "cuda:1", "mps:0", "tpu:0")
OPTIONS = ("pinned", "non_blocking", "variable")
_SHOWN = (
    *(
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
    ),
    *("complex64", "complex128"),
)
_DTYPES = (*_SHOWN, *(name for name in DTYPES if name not in _SHOWN))
_READ_AS = {"bool": "bool", "int64": "int32", "float64": "float32", "complex128": "complex128"}
"""The dtypes of Python's numbers, and the narrowest that holds the zeros of the example."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    "from": tuple(NAMES),
    "dtype": _DTYPES,
    "layout": LAYOUTS,
    "device": DEVICES,
    "requires": ("", "1"),
    "to": tuple(NAMES),
    "copy": ("", "True", "False"),
    "as": ("", *KEYWORDS, *_DTYPES),
    "casting": ("", *CASTINGS),
    "place": ("", "cpu", "cuda", "cuda:1", "mps", "tpu"),
    "grad": ("detach", "error"),
    **dict.fromkeys(OPTIONS, ("", "1")),
}
"""What each control of the page has; the shape is free."""


class Setting(dict[str, str]):
    """The value of every control; those that are as usual are not in the address."""

    @property
    def query(self) -> str:
        """The setting as it stands in an address: what is as usual left out."""
        told = {name: value for name, value in self.items() if value != DEFAULTS[name]}
        return urlencode({"from": self["from"], "to": self["to"], **told}, safe=",:")


DEFAULTS = Setting(
    {
        **{name: values[0] for name, values in CHOICES.items()},
        "from": "numpy",
        "to": "torch",
        "dtype": "float32",
        "shape": "3,4",
    }
)


class ImpossibleError(ValueError):
    """There is no such tensor.

    Args:
        word: The key of the page's sentence that says so.
        facts: What stands in its gaps.
    """

    def __init__(self, word: str, **facts: str) -> None:
        super().__init__(word)
        self.word = word
        self.facts = facts


def read(words: Mapping[str, str] | Iterable[tuple[str, str]]) -> Setting:
    """The setting that an address asks for; what no control has is as usual."""
    asked = dict(words)
    shape = ",".join(
        part.strip() for part in asked.pop("shape", DEFAULTS["shape"]).strip("()[] ").split(",")
    )
    told = {name: value for name, value in asked.items() if value in CHOICES.get(name, ())}
    return Setting({**DEFAULTS, **told, "shape": shape.rstrip(",")})


def tensor(setting: Setting) -> TensorInfo:
    """The tensor that a setting describes, at an address where a 64-byte line starts if its layout does not say else.

    Raises:
        ImpossibleError: There is no such tensor, as the page knows.
        ConversionError: There is none, as the planner says.
    """
    framework, dtype, layout = setting["from"], setting["dtype"], setting["layout"]
    lengths = _lengths(setting["shape"])
    listed = framework == "python"
    if listed:
        _refuse_list(lengths, dtype, layout)
    elif layout != "plain" and not lengths:
        raise ImpossibleError("no-axis")
    strides, offset = _lie(lengths, find(dtype).itemsize, layout)
    info = TensorInfo(
        framework,
        lengths,
        dtype,
        setting["device"],
        strides,
        offset,
        # NumPy closes what it broadcasts to writes, PyTorch does not; others can write the memory
        # under it.
        writable=False if layout == "broadcast" and framework == "numpy" else None,
        mutable=True if layout == "broadcast" and framework == "numpy" else None,
        requires_grad=bool(setting["requires"]),
        kind="numbers" if listed else "",
        weak_dtype=_READ_AS[dtype] if listed else None,
    )
    _refuse_layout(info)
    refuse_place(info, declarations()[framework])
    if info.requires_grad and find(dtype).kind not in ("float", "complex"):
        raise ImpossibleError("no-graph")
    return info


def keywords(setting: Setting) -> dict[str, object]:
    """The keywords of the call; what is as usual is left out."""
    said: dict[str, object] = {}
    if setting["copy"]:
        said["copy"] = setting["copy"] == "True"
    for control in ("as", "casting", "place", "grad"):
        if setting[control] != DEFAULTS[control]:
            said[KEYWORDS_OF[control]] = setting[control]
    return {**said, **{option: True for option in OPTIONS if setting[option]}}


def given(setting: Setting) -> str:
    """Code that makes the tensor of a setting that is possible."""
    framework, layout, lengths = setting["from"], setting["layout"], _lengths(setting["shape"])
    inner = {
        "transposed": lengths[::-1],
        "second": (*lengths[:-1], *(2 * length for length in lengths[-1:])),
        "broadcast": (1, *lengths[1:]),
        "off": (prod(lengths) + 1,),
    }.get(layout, lengths)
    lines, place, zeros, module = _zeros(framework, inner, setting["dtype"], setting["device"])
    torch = framework == "torch"
    expression = {
        "transposed": zeros + (f".permute({tuple(range(len(lengths)))[::-1]})" if torch else ".T"),
        "second": zeros + "[..., ::2]",
        "reversed": zeros + "[::-1]",
        "broadcast": f"{zeros}.expand({lengths})"
        if torch
        else f"{module}.broadcast_to({zeros}, {lengths})",
        "off": f"{zeros}[1:].reshape({lengths})",
    }.get(layout, zeros)
    expression += (
        ".tolist()" if framework == "python" else ".requires_grad_()" if setting["requires"] else ""
    )
    return "\n".join(
        [*lines, *([place, f"    x = {expression}"] if place else [f"x = {expression}"])]
    )


def _lengths(text: str) -> tuple[int, ...]:
    try:
        lengths = tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise ImpossibleError("not-shape", shape=repr(text)) from None
    if min(lengths, default=0) < 0 or prod(lengths) > _MOST:
        raise ImpossibleError("not-shape", shape=repr(text))
    return lengths


_MOST = 1 << 40
"""Elements of a tensor that somebody may have."""


def _lie(lengths: tuple[int, ...], itemsize: int, layout: str) -> tuple[tuple[int, ...], int]:
    """The strides of a layout, and where its first element lies beyond a 64-byte line."""
    steps = compact_strides(lengths, itemsize)
    if layout == "transposed":
        return compact_strides(lengths[::-1], itemsize)[::-1], 0
    if layout == "second":
        return tuple(2 * step for step in steps), 0
    if layout == "reversed":
        return (-steps[0], *steps[1:]), max(lengths[0] - 1, 0) * steps[0] % 64
    if layout == "broadcast":
        return (0, *steps[1:]), 0
    return steps, itemsize if layout == "off" else 0


def _refuse_list(lengths: tuple[int, ...], dtype: str, layout: str) -> None:
    if dtype not in _READ_AS:
        raise ImpossibleError("no-list-dtype", dtype=dtype)
    if layout != "plain":
        raise ImpossibleError("no-list-layout")
    if 0 in lengths[:-1]:
        raise ImpossibleError("no-list-empty")


def _refuse_layout(info: TensorInfo) -> None:
    """Raise for strides and addresses that the framework's own tensors never have: what it adopts, it can have."""
    memory, name = declarations()[info.framework].capabilities.memory, NAMES[info.framework]
    if memory.strides == "compact" and not is_compact(
        info.shape, info.strides, find(info.dtype).itemsize
    ):
        raise ImpossibleError("no-strides", framework=name)
    if memory.strides == "non-negative" and any(step < 0 for step in info.strides):
        raise ImpossibleError("no-negative", framework=name)
    if memory.alignment > 1 and info.misalignment % memory.alignment:
        raise ImpossibleError("no-offset", framework=name)


def _zeros(
    framework: str, shape: tuple[int, ...], dtype: str, device: str
) -> tuple[list[str], str, str, str]:
    """Lines before, a line around, an expression for zeros that lie plainly on a device, and the module's name."""
    kind, _, index = device.partition(":")
    here = kind == "cpu"
    if framework == "torch":
        where = "" if here else f', device="{device}"'
        return ["import torch"], "", f"torch.zeros({shape}, dtype=torch.{dtype}{where})", "torch"
    if framework == "tensorflow":
        place = (
            ""
            if here
            else f'with tf.device("{"GPU" if kind == "cuda" else kind.upper()}:{index}"):'
        )
        return ["import tensorflow as tf"], place, f"tf.cast(tf.zeros({shape}), tf.{dtype})", "tf"
    if framework == "jax":
        wide = dtype in declarations()[framework].capabilities.dtypes.absent_reasons
        lines = [
            "import jax, jax.numpy as jnp",
            *(['jax.config.update("jax_enable_x64", True)'] if wide else []),
        ]
        where = "" if here else f', device=jax.devices("{kind}")[{index}]'
        return lines, "", f"jnp.zeros({shape}, jnp.{dtype}{where})", "jnp"
    if framework == "cupy":
        place = "" if index in ("", "0") else f"with cupy.cuda.Device({index}):"
        return ["import cupy"], place, f'cupy.zeros({shape}, "{dtype}")', "cupy"
    if dtype in ORDINARY:
        return ["import numpy as np"], "", f'np.zeros({shape}, "{dtype}")', "np"
    return ["import ml_dtypes, numpy as np"], "", f"np.zeros({shape}, ml_dtypes.{dtype})", "np"
