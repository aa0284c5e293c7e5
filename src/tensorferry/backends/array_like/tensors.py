"""The backend for objects without a backend of their own. They can be sources, but not targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import hints
from ...columns.column import Refused
from ...columns.interface import gives_arrow, leaving_streams
from ...hints import Hint
from ...host import memory
from ..base import UNASKED, Backend, Opening
from ..opening import TableContents, Unread, remark_of
from ..quick import Quick
from .declared import CAPABILITIES, DECLARED, NAME, snippet
from .libraries import known_class
from .protocols import open_by_protocol, protocol_of, reading, values_of
from .tables import ArrowColumn, found_in, is_known_by_arrow, open_arrow, open_contents, opener_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from ...core.info import TensorInfo
    from ...core.labels import Labels
    from ...typing import Array
    from ..base import Opened


class ArrayLikeBackend(Backend):
    """Any object that gives an array, and the objects of known libraries."""

    name = NAME
    module = "builtins"
    rank = 90
    is_target = False
    reads_as_asked = True
    imports = DECLARED.imports
    capabilities = CAPABILITIES  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    quick_code = __name__
    snippet = staticmethod(snippet)  # pyright: ignore[reportAssignmentType]
    opener_of = staticmethod(opener_of)  # pyright: ignore[reportAssignmentType]

    def load(self) -> None:
        """There is no framework to load."""

    def claims(self, kind: type) -> bool:
        return False

    def accepts_foreign(self, x: object) -> bool:
        kind = type(x)
        known = kind in (TableContents, ArrowColumn) or known_class(kind) is not None
        return known or gives_arrow(kind) or protocol_of(x) is not None

    def knows(self, kind: type) -> bool:
        return known_class(kind) is not None

    def is_text(self, x: Any) -> bool:
        known = known_class(type(x))
        try:
            if isinstance(x, ArrowColumn) or is_known_by_arrow(type(x)):
                column = found_in(x, None).found
                return isinstance(column, Refused) and column.stays
            if known is not None:
                return known.is_text(x)
            dtype = getattr(x, "dtype", None)
        except Exception:  # noqa: BLE001 - what a class of another library raises: `open` says it
            return False
        return isinstance(dtype, np.dtype) and dtype.kind in "USTmM"

    def labels_of(self, x: Any) -> Labels | None:
        if isinstance(x, TableContents):
            return x.labels
        return None

    def unlike(self, x: Any) -> tuple[str, str | Hint] | None:
        known = known_class(type(x))
        array = hints.keyword("like", hints.code("np.asarray(like)"))
        hint = Hint(array, ", which gives an array of its dtype")
        if known is not None and known.made_like:
            hint = Hint(known.made_like) | hint
        return "which only gives its memory: no result can be one", hint

    def describe(self, x: Any) -> TensorInfo:
        """Describe the array over the object's memory, or the one that is made from its values."""
        with leaving_streams():
            return self.open(x)[1]

    def preview(self, x: Any, opening: Opening = UNASKED) -> Opened:
        with leaving_streams():
            return self.open(x, opening, exactly=True)

    def open(self, x: Any, opening: Opening = UNASKED, *, exactly: bool = False) -> Opened:
        target, request = opening.target, opening.request
        exactly = exactly or (request is not None and request.copy is False)
        if isinstance(x, TableContents):
            return self, *open_contents(x, target, request, exactly=exactly)
        if isinstance(x, ArrowColumn) or is_known_by_arrow(type(x)):
            return self, *open_arrow(x, target, request, exactly=exactly)
        known = known_class(type(x))
        if known is None:
            backend, info, handle = open_by_protocol(x, opening)
        else:
            with reading(type(x).__name__):
                backend, info, handle = known.open(x, opening)
        return backend or self, info, handle

    def remark(self, info: TensorInfo) -> str:
        if not info.kind.of_palette:
            return remark_of(info.kind)
        return 'the numbers are indices into the image\'s palette, no colours: x.convert("RGB") has those'

    def pointer(self, x: Any) -> int | None:
        if isinstance(x, Unread):
            return None
        return memory.address(x)

    def read(self, x: Any) -> Array:
        """The object's values in new memory."""
        return values_of(x)

    def export(self, x: Any) -> Array:
        array: Array = x
        return array

    def adopt(self, array: Array) -> Any:
        return array


class ArrayLikeQuick(Quick[ArrayLikeBackend]):
    """What makes many objects of a library fast."""

    def signature_together(self, tensors: Sequence[Any]) -> Hashable | None:
        known = known_class(type(tensors[0]))
        if known is None or known.together is None or len(set(map(type, tensors))) > 1:
            return None
        keys = set(map(known.together.key, tensors))
        if len(keys) > 1:
            return None
        return keys.pop()

    def lengths(self, x: Any) -> tuple[int, ...]:
        known = known_class(type(x))
        if known is None or known.together is None:
            return super().lengths(x)
        return known.together.lengths(x)

    def join(self, tensors: Sequence[Any]) -> Array | None:
        known = known_class(type(tensors[0]))
        if known is None or known.together is None or not memory.can_join():
            return None
        return memory.joined_array(list(map(known.together.read, tensors)))


QUICK = ArrayLikeQuick
BACKEND = ArrayLikeBackend()
