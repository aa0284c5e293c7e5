"""`NamedTuple`, as `typing` has it, for classes that a first call needs: each is made in half the time.

`fields_but`: several fields of one together, for keys.

That of `typing` compiles each annotation, to see that it is an expression. Type checkers see that
too, and for them this is the one of `typing`.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple", "fields_but"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NamedTuple
else:
    from collections import namedtuple

    class _Maker(type):
        """Makes a named tuple of the body of a class."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = body.get("__annotations__", {})
            defaults = [body.pop(field) for field in fields if field in body]
            # `typing` makes its own of this one, too.
            made = namedtuple(  # noqa: PYI024
                name, fields, defaults=defaults, module=body["__module__"]
            )
            made.__new__.__annotations__ = fields  # for signatures
            for attribute, value in body.items():
                setattr(made, attribute, value)
            return made

    class NamedTuple(metaclass=_Maker):
        """The base of classes that are named tuples."""


def fields_but(kind: Any, *names: str) -> Callable[[Any], tuple[Any, ...]]:
    """A function that gives the values of a named tuple, without these fields, as a tuple.

    >>> from tensorferry import TensorInfo
    >>> without_lengths = fields_but(TensorInfo, "shape", "strides")
    >>> without_lengths(TensorInfo("numpy", (2, 3))) == without_lengths(TensorInfo("numpy", (4,)))
    True

    Args:
        kind: The class of the named tuples.
        names: Their names. Two fields or more stay.

    Raises:
        KeyError: The class has no such field.
    """
    places = {name: place for place, name in enumerate(kind._fields)}
    for name in names:
        del places[name]
    return itemgetter(*places.values())
