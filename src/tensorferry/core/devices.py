"""Device names across frameworks: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"tpu:0"``.

A name without an index means any device of that kind: a tensor on one of them stays there, and a
tensor that must move goes to the framework's current one. The frameworks know which kinds exist.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

from .. import hints
from ..errors import DeviceError, nearest, shown
from ..hints import Hint

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

__all__ = ["HOST", "device_name", "host_index", "kind_of", "meant_kind", "same_place"]

HOST = "cpu"

_ALIASES = {"gpu": "cuda", "rocm": "cuda", "host": HOST}
"""Other names of kinds: JAX and TensorFlow say gpu, PyTorch and CuPy say cuda."""
_HINT = Hint(
    hints.keyword("device", "cpu"),
    ", or a kind and an index: ",
    hints.keyword("device", "cuda:1"),
)


def device_name(device: object) -> str:
    """The canonical name of a device of any framework.

    >>> device_name("gpu:1"), device_name("/job:localhost/replica:0/task:0/device:CPU:0")
    ('cuda:1', 'cpu')

    Args:
        device: A name, or a framework's device object: one with ``platform`` and ``id``, one with a
            ``name``, or one whose ``str`` is its name.

    Raises:
        DeviceError: It does not name a device.
    """
    return _canonical_name(_text_of_device(device))


def host_index(device: object) -> int:
    """The index of a CPU device; 0 for all other devices."""
    match = _kind_and_index(_text_of_device(device))
    if match is not None and _canonical_kind(match[1]) == HOST:
        return int(match[2] or 0)
    return 0


@cache
def _kind_pattern() -> re.Pattern[str]:
    import re

    return re.compile(r"(?:.*device:|<|/)?([a-z_][a-z0-9_]*)(?:(?::| device )(\d+)>?)?")


def _kind_and_index(text: str) -> re.Match[str] | None:
    """A device's kind and index, in any of the spellings of the frameworks."""
    return _kind_pattern().fullmatch(text.strip().lower())


def _text_of_device(device: object) -> str:
    if isinstance(device, str):
        return device
    platform = getattr(device, "platform", None)
    if isinstance(platform, str):
        return f"{platform}:{getattr(device, 'id', 0)}"
    name = getattr(device, "name", None)
    if isinstance(name, str):
        return name
    if "device" in type(device).__name__.lower():
        return str(device)
    raise DeviceError(f"This is not the name of a device: {shown(device)}.", _HINT)


@lru_cache(maxsize=256)
def _canonical_name(text: str) -> str:
    match = _kind_and_index(text)
    if match is None:
        raise DeviceError(f"{text[:40]!r} is not the name of a device.", _HINT)
    kind = _canonical_kind(match[1])
    if kind == HOST or match[2] is None:
        return kind
    return f"{kind}:{int(match[2])}"


def _canonical_kind(word: str) -> str:
    return _ALIASES.get(word, word)


def kind_of(device: str) -> str:
    """The kind of a canonical device name: ``"cuda"`` of ``"cuda:1"``."""
    return device.partition(":")[0]


def meant_kind(device: str, kinds: Sequence[str]) -> str:
    """The known kind that is most like an unknown one; the first one if none is.

    >>> meant_kind("gpux", ("cpu", "cuda")), meant_kind("mps", ("cpu", "cuda"))
    ('cuda', 'cpu')
    """
    words = {word: kind for word, kind in _ALIASES.items() if kind in kinds} | {
        kind: kind for kind in kinds
    }
    closest = nearest(kind_of(device), words)
    return words[closest] if closest else kinds[0]


def same_place(actual: str, asked: str) -> bool:
    """Whether a tensor on `actual` is already where `asked` says."""
    return actual == asked or (":" not in asked and kind_of(actual) == asked)
