"""`LeafRule`: which objects of a tree are converted. All others stay as they are."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import hints
from ..backends import registry
from ..backends.base import Backend
from ..backends.no_tensor import UNCALLED, method_for_array, refusal_to_convert, state_of
from ..core.info import TensorInfo
from ..core.named_tuple import NamedTuple
from ..errors import ConversionError, UnsupportedTypeError, an, validate_word
from ..execution.run import described
from ..hints import Hint
from ..host.numpy_dtypes import of_numpy
from . import libraries
from .containers import is_used_up, may_hold, tensor_inside
from .structure import are_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .structure import Structure

__all__ = ["UNKNOWN", "LeafRule", "leaf_rule"]

_NUMBERS = (bool, int, float, complex, np.generic)
_BOOL = np.dtype(bool)
_KINDS = "biufc"


UNKNOWN = object()
"""For objects of a type that may hold a tensor: see `LeafRule.answer_of`."""
_AS_LIST = Hint(hints.code("list(x)"), " in its place, if it ends")


class _Unknown(NamedTuple):
    """A type that is neither a tensor nor a plain value. Its objects may hold a tensor."""

    advice: Hint | None


def leaf_rule(
    leaves: str | Callable[[Any], bool],
    *,
    infos: bool = False,
    unknown: str | None = None,
    scalars: bool = False,
) -> LeafRule:
    """The `LeafRule` for these arguments.

    A rule that depends only on types is made once, and remembers types.
    """
    if callable(leaves):
        return LeafRule(leaves, infos=infos, unknown=unknown)
    try:
        return _rule_of_types(leaves, infos, unknown, scalars, registry.revision)
    except TypeError:
        # Not cached: it cannot be hashed, and may be refused.
        return LeafRule(leaves, infos=infos, unknown=unknown, scalars=scalars)


class LeafRule:
    """Decides which objects are converted.

    Args:
        leaves: ``"tensors"`` for tensors of frameworks; ``"numbers"`` for Python numbers and NumPy
            scalars too; or a callable that decides for each object, also for containers.
        infos: Whether a `TensorInfo` counts as a tensor.
        unknown: ``"error"``: an object that is no container and holds a tensor is refused;
            ``"keep"``: it stays, and so does what is refused as a leaf; ``None``: it is not looked
            into, and what is refused is refused.
        scalars: Whether NumPy scalars are converted, because the target has Python numbers instead.

    Raises:
        TypeError: `leaves` or `unknown` has a value of the wrong type.
        ValueError: One is another word.
    """

    def __init__(
        self,
        leaves: str | Callable[[Any], bool],
        *,
        infos: bool = False,
        unknown: str | None = None,
        scalars: bool = False,
    ) -> None:
        if not callable(leaves):
            validate_word("leaves", leaves, ("tensors", "numbers"), "a function")
        if unknown is not None:
            validate_word("unknown", unknown, ("error", "keep"))
        self._choose = leaves if callable(leaves) else None
        self._infos = infos
        self._numbers = leaves == "numbers"
        self._scalars = scalars or self._numbers
        self._chosen: dict[int, Any] = {}
        self._known: dict[type, bool | Backend | UnsupportedTypeError | _Unknown] = {}
        self._refuses = unknown == "error"
        self.keeps = unknown == "keep"
        """Whether a leaf that cannot be converted stays as it is."""
        self._kinds: dict[type, bool | UnsupportedTypeError] = {}

    @property
    def chosen(self) -> Callable[[Any], bool] | None:
        """The user's callable, which decides before containers are opened; ``None`` if none."""
        return None if self._choose is None else self._ask

    @property
    def takes_rows(self) -> bool:
        """Whether, in `collate`, a plain list of numbers below a key is one tensor."""
        return self._numbers

    def _ask(self, x: Any) -> bool:
        # The callable is asked once for each object. The object is kept with the answer, so that
        # its id stays unique.
        if self._infos and isinstance(x, TensorInfo):
            return True
        yes = self._choose is not None and bool(self._choose(x))
        if yes:
            self._chosen[id(x)] = x
        return yes

    def takes(self, x: Any) -> bool:
        """Whether a leaf is converted.

        An array of text is not a tensor, unless the user's callable says yes.

        Raises:
            UnsupportedTypeError: It is a tensor that cannot be converted, or an object that holds a
                tensor and would stay as it is.
        """
        if self._infos and isinstance(x, TensorInfo):
            return True
        kind = type(x)
        if self._choose is not None:
            if id(x) in self._chosen:
                return True
            if self._refuses and may_hold(kind):
                self._refuse(x, None)
            return False
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = self._look(x)
        if isinstance(known, bool):
            return known
        if isinstance(known, _Unknown):
            if self._refuses:
                self._refuse(x, known.advice)
            return False
        if isinstance(known, UnsupportedTypeError):
            if self.keeps:
                return False
            raise type(known)(known.message, known.advice)
        return not known.is_text(x)

    def answer_of(self, kind: type, x: Any) -> Any:
        """Whether leaves of a type are converted, if there is no user's callable.

        Args:
            kind: The type.
            x: One of them.

        Returns:
            Yes or no; a backend if its tensors may be text; `UNKNOWN` if each is to be asked for
            with `takes`; ``None`` if `takes` refuses them.
        """
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = self._look(x)
        if isinstance(known, UnsupportedTypeError):
            return False if self.keeps else None
        if isinstance(known, _Unknown):
            return UNKNOWN if self._refuses else False
        if isinstance(known, Backend) and type(known).is_text is Backend.is_text:
            return True
        return known

    @property
    def refuses(self) -> bool:
        """Whether a tensor that would stay as it is, in what is no container, is refused."""
        return self._refuses

    def is_free(self, static: Mapping[str, Any]) -> bool:
        """Whether a container's attributes that are not values are no tensors, and hold none."""
        return are_plain(static.values()) or self._in_static(static) is None

    def keeps_refused(self, x: Any, error: Exception) -> bool:
        """Whether a leaf refused with `error` stays as it is: it is no tensor for any target."""
        if (
            not self.keeps
            or not isinstance(error, UnsupportedTypeError)
            or isinstance(x, TensorInfo)
        ):
            return False
        try:
            info = described(x)
        except UnsupportedTypeError:
            return True
        except ConversionError:
            return False
        return info.abstract is not None

    def takes_each(self, leaves: Sequence[Any]) -> list[bool]:
        """`takes` for many leaves. If the type decides, it is asked once.

        Args:
            leaves: The leaves.

        Raises:
            UnsupportedTypeError: As for `takes`.
        """
        if self._choose is None and len(set(map(type, leaves))) == 1:
            answer = self.answer_of(type(leaves[0]), leaves[0])
            if isinstance(answer, bool):
                return [answer] * len(leaves)
        return [self.takes(leaf) for leaf in leaves]

    def _look(self, x: Any) -> bool | Backend | UnsupportedTypeError | _Unknown:
        kind = type(x)
        if x is None or isinstance(x, str):
            return False
        if kind is list:  # of numbers; any other list would have been opened
            return self._numbers
        if isinstance(x, _NUMBERS):
            dtype, taken = (
                getattr(x, "dtype", _BOOL),
                self._scalars if isinstance(x, np.generic) else self._numbers,
            )
            return taken and (dtype.kind in _KINDS or of_numpy(dtype) is not None)
        try:
            backend = registry.backend_of(x)
        except UnsupportedTypeError as error:
            # A tensor that cannot be converted is an error. Without elements, an object is not a
            # tensor.
            holds = hasattr(kind, "__getitem__") or hasattr(kind, "values")
            if holds and _has(x, "shape") and _has(x, "dtype"):
                return error.with_traceback(None)  # because the traceback refers to the leaf
            return may_hold(kind) and _Unknown(self.hint_of(x))
        return backend.capabilities.memory.exists and backend

    # -- objects that are no containers ------------------------------------------------------------

    def tensor_inside(self, x: Any) -> str | None:
        """The path to the first tensor in an object; ``None`` if none, or if it is a tensor."""
        if not may_hold(type(x)) or self._kind(type(x)) is True:
            return None
        return tensor_inside(x, self._is_tensor, self._goes_on)

    def hint_of(self, x: Any) -> Hint | None:
        """What to convert in an object's place, if a backend or library knows it; else ``None``."""
        known = self._kind(type(x))
        if isinstance(known, UnsupportedTypeError):
            return known.advice
        method = method_for_array(type(x))
        if method is None:
            code = state_of(type(x))
        else:
            code = f"x.{method}()"
        return Hint(hints.tree(code)) if code else None

    def check(self, structure: Structure, leaves: Sequence[Any]) -> None:
        """Check containers' attributes that are not values; the tree must be no function or class.

        Raises:
            UnsupportedTypeError: They are, or hold, tensors, which would not be converted; or the
                tree is a function that was not called, or a class.
        """
        if (
            self._refuses
            and len(leaves) == 1
            and id(leaves[0]) not in self._chosen
            and structure.root is None
        ):
            if isinstance(leaves[0], UNCALLED):
                raise refusal_to_convert(leaves[0], hints.tree("x()"))
            if is_used_up(type(leaves[0])):
                self._refuse(leaves[0], Hint(hints.tree("list(x)"), ", if it ends"))
        for node in structure.nodes() if self._refuses else ():
            if node.static:
                inside = self._in_static(node.static)
            else:
                inside = None
            if inside is not None:
                path = structure.path_of(node)
                raise UnsupportedTypeError(
                    "This attribute is, or holds, a tensor, but not one of its container's values "
                    f"- at {path}{inside}",
                    Hint(
                        hints.keyword("unknown", "keep"),
                        " keeps it as it is; a field of the container, or a key, is "
                        "converted with it",
                    ),
                )

    def _in_static(self, static: Mapping[str, Any]) -> str | None:
        for entry, value in static.items():
            if self._is_tensor(value):
                return entry
            inside = self.tensor_inside(value)
            if inside is not None:
                return entry + inside
        return None

    def _refuse(self, x: Any, hint: Hint | None) -> None:
        name = type(x).__name__
        kept = Hint(hints.keyword("unknown", "keep"), " keeps it as it is")
        unrun = registry.refusal_of_unrun(type(x))
        if unrun is not None:
            raise UnsupportedTypeError(unrun.message, Hint(unrun.advice or "", "; ", kept))
        if is_used_up(type(x)):
            raise UnsupportedTypeError(
                f"This {name} may give tensors, which would stay as they are: to look at them "
                "would use it up",
                Hint(hint or _AS_LIST, "; ", kept),
            )
        inside = self.tensor_inside(x)
        if inside is None:
            return
        hint = hint or self.hint_of(x)
        if hint is None:
            hint = Hint(kept, "; optree.register_pytree_node says how it is opened")
        elif hint.names_a_call:
            hint = Hint(hint, "; ", kept)
        else:
            hint = Hint(kept, "; ", hint)
        error = UnsupportedTypeError(
            f"{an(name, 'A')} is not a container that tensorferry knows, and holds a tensor, which "
            "would stay as it is",
            hint,
        )
        error.inside = inside
        raise error

    def _kind(self, kind: type) -> bool | UnsupportedTypeError:
        """Whether a type's objects are tensors; or the framework's error if not convertible."""
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = _is_tensor_type(kind)
        return known

    def _is_tensor(self, x: Any) -> bool:
        if self._kind(type(x)) is not True or registry.backend_of(x).is_text(x):
            return False
        return self._choose is None or bool(self._choose(x))

    def _goes_on(self, kind: type) -> bool:
        # Objects of a framework, such as modules, may be nested deeply.
        return isinstance(self._kind(kind), UnsupportedTypeError)


def _has(x: Any, name: str) -> bool:
    """Whether an object has an attribute, even if its value cannot be read yet."""
    try:
        return hasattr(x, name)
    except Exception:  # noqa: BLE001 - what a class of another library raises
        return True


def _is_tensor_type(kind: type) -> bool | UnsupportedTypeError:
    if kind.__module__ == "builtins" or issubclass(kind, np.generic):
        return False
    return (
        registry.is_tensor(kind)
        or registry.refusal_of(kind)
        or libraries.refusal_of(kind)
        or _gives_memory(kind)
    )


def _gives_memory(kind: type) -> bool:
    """Whether a type of another library exports the memory of its objects, with shape and dtype."""
    has = any(
        hasattr(kind, name)
        for name in ("__dlpack__", "__array_interface__", "__array_struct__", "__array__")
    )
    return has and hasattr(kind, "shape") and hasattr(kind, "dtype")


@lru_cache(maxsize=16)
def _rule_of_types(
    leaves: str, infos: bool, unknown: str | None, scalars: bool, _revision: int
) -> LeafRule:
    return LeafRule(leaves, infos=infos, unknown=unknown, scalars=scalars)
