"""`NamedTuple`, as `typing` has it, for classes that a first call needs: each is made in half the time.

That of `typing` compiles each annotation, to see that it is an expression. Type checkers see that
too, and for them this is the one of `typing`. It is here because hints are the lowest values of all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple"]

if TYPE_CHECKING:
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
