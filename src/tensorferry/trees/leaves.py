"""Which objects of a tree are to be converted; the rest stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import registry
from ..backend import Backend
from ..dtypes import of_numpy
from ..errors import UnsupportedTypeError
from ..info import TensorInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["LeafRule"]

_NUMBERS = (bool, int, float, complex, np.generic)
_KEPT = (type(None), str)
_BOOL = np.dtype(bool)
_KINDS = "biufc"


class LeafRule:
    """Which objects are to be converted.

    Args:
        leaves: ``"tensors"``: what has memory of a framework's; ``"numbers"``: Python numbers and NumPy's
            scalars too; a callable: what it says yes to, containers included.
        infos: Whether a `TensorInfo` stands for a tensor.

    Raises:
        TypeError: `leaves` is none of those.
    """

    def __init__(self, leaves: str | Callable[[Any], bool], *, infos: bool = False) -> None:
        if not callable(leaves) and leaves not in ("tensors", "numbers"):
            raise TypeError(f'leaves must be "tensors", "numbers" or a callable, not {leaves!r}')
        self._choose = leaves if callable(leaves) else None
        self._infos = infos
        self._numbers = leaves == "numbers"
        self._chosen: dict[int, Any] = {}
        self._known: dict[type, bool | Backend | UnsupportedTypeError] = {}

    @property
    def chosen(self) -> Callable[[Any], bool] | None:
        """Whether an object is a leaf although it may be a container; ``None``: none is."""
        return None if self._choose is None and not self._infos else self._ask

    def _ask(self, x: Any) -> bool:
        # Asked once, of the tree; what it said of each object is kept, with the object: the number of one
        # that is gone would be another's.
        if self._infos and isinstance(x, TensorInfo):
            return True
        yes = self._choose is not None and bool(self._choose(x))
        if yes:
            self._chosen[id(x)] = x
        return yes

    def keeps(self, kind: type) -> bool:
        """Whether all leaves of a type certainly stay as they are."""
        if self._choose is not None or self._infos:
            return False
        return kind in _KEPT or (kind in _NUMBERS and not self._numbers)

    def takes(self, x: Any) -> bool:
        """Whether a leaf is to be converted; an array of text is no tensor, unless a callable says yes to it.

        Raises:
            UnsupportedTypeError: It is a tensor of a kind that cannot be carried.
        """
        if self._infos and isinstance(x, TensorInfo):
            return True
        if self._choose is not None:
            return id(x) in self._chosen
        kind = type(x)
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = self._look(x)
        if isinstance(known, UnsupportedTypeError):
            raise type(known)(known.message, known.hint)
        return known if isinstance(known, bool) else not known.is_text(x)

    def takes_each(self, leaves: Sequence[Any]) -> list[bool]:
        """The same for many leaves; each type is asked once where that decides.

        Raises:
            UnsupportedTypeError: As for `takes`.
        """
        if self._choose is not None or self._infos:
            return [self.takes(leaf) for leaf in leaves]
        answers: dict[type, bool] = {}
        text: dict[type, Callable[[Any], bool]] = {}
        for kind, leaf in {type(leaf): leaf for leaf in leaves}.items():
            answers[kind] = self.takes(leaf)
            known = self._known[kind]
            if isinstance(known, Backend) and type(known).is_text is not Backend.is_text:
                text[kind] = known.is_text
        if not text:
            return [answers[type(leaf)] for leaf in leaves]
        return [not text[kind](leaf) if (kind := type(leaf)) in text else answers[kind] for leaf in leaves]

    def _look(self, x: Any) -> bool | Backend | UnsupportedTypeError:
        kind = type(x)
        if x is None or isinstance(x, str):
            return False
        if isinstance(x, _NUMBERS):
            dtype = getattr(x, "dtype", _BOOL)
            return self._numbers and (dtype.kind in _KINDS or of_numpy(dtype) is not None)
        try:
            backend = registry.backend_of(x)
        except UnsupportedTypeError as error:
            # A tensor that cannot be carried is an error; what has a shape and a dtype and no elements is none.
            if registry.holds_tensors(kind):
                return error
            holds = hasattr(kind, "__getitem__") or hasattr(kind, "values")
            return error if holds and _has(x, "shape") and _has(x, "dtype") else False
        return backend.capabilities.memory and backend


def _has(x: Any, name: str) -> bool:
    """Whether an object has an attribute, or one that cannot be had yet."""
    try:
        return hasattr(x, name)
    except Exception:  # noqa: BLE001 - whatever a class of somebody else's raises
        return True
