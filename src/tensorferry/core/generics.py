"""`Generic`, `Protocol` and `TypeVar`, as `typing` has them, for classes that a first call needs.

Those of `typing` keep their parameters while a program runs, and take as long as many a module. Only
type checkers read them, and for them these are the ones of `typing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Generic", "Protocol", "TypeVar"]

if TYPE_CHECKING:
    from typing import Generic, Protocol, TypeVar
else:

    def TypeVar(name: str, **_: Any) -> str:  # noqa: N802 - as `typing` has it
        """A parameter, which nobody reads."""
        return name

    class Generic:
        """The base of classes with parameters."""

        __slots__ = ()

        def __class_getitem__(cls, _: object) -> type:
            return cls

    class Protocol:
        """The base of what is needed of another class."""

        __slots__ = ()
