"""`NamedTuple`, as `typing` has it, for classes that a first call needs: each is made in half the time.

That of `typing` compiles each annotation, to see that it is an expression, and a constructor for
each class. Type checkers see the first too, and for them this is the one of `typing`. It is here
because hints are the lowest values of all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["NamedTuple"]

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import _tuplegetter as _getter  # what `namedtuple` makes attributes of

    _new = tuple.__new__

    def _constructor(fields: tuple[str, ...], defaults: tuple[Any, ...]) -> Callable[..., Any]:
        """The `__new__` of a class with these fields, which are names of a class body."""
        arguments = ", ".join(fields)
        values = f"({arguments},)" if fields else "()"
        constructor = eval(f"lambda _cls, {arguments}: _new(_cls, {values})", {"_new": _new})  # noqa: S307
        constructor.__name__, constructor.__defaults__ = "__new__", defaults
        return constructor

    @classmethod
    def _make(cls: type, iterable: Iterable[Any]) -> Any:
        """Make one of the values of all fields, in their order."""
        result = _new(cls, iterable)
        if len(result) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(result)}")
        return result

    def _replace(self: Any, /, **values: Any) -> Any:
        """The same with other values of some fields."""
        result = _new(type(self), map(values.pop, self._fields, self))
        if values:
            raise ValueError(f"Got unexpected field names: {list(values)!r}")
        return result

    def _asdict(self: Any) -> dict[str, Any]:
        """The values by the names of their fields."""
        return dict(zip(self._fields, self, strict=True))

    def _field_values(self: Any) -> tuple[Any, ...]:
        return tuple(self)

    def _shown_fields(self: Any) -> str:
        fields = zip(self._fields, self, strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields)})"

    _METHODS = {
        "_make": _make,
        "_replace": _replace,
        "__replace__": _replace,  # for `copy.replace`
        "_asdict": _asdict,
        "__repr__": _shown_fields,
        "__getnewargs__": _field_values,  # for copies and pickles
    }

    class _Maker(type):
        """Makes a named tuple of the body of a class."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            annotations = body.get("__annotations__", {})
            fields = tuple(annotations)
            defaults = {field: body.pop(field) for field in fields if field in body}
            constructor = _constructor(fields, tuple(defaults.values()))
            constructor.__annotations__ = annotations  # for signatures
            constructor.__qualname__ = f"{name}.__new__"  # for the errors of calls
            own = {
                "__doc__": f"{name}({', '.join(fields)})",
                "__slots__": (),
                "_fields": fields,
                "_field_defaults": defaults,
                "__match_args__": fields,
                "__new__": constructor,
                **_METHODS,
                **{field: _getter(place, field) for place, field in enumerate(fields)},
            }
            if "__eq__" in body:
                own["__hash__"] = tuple.__hash__
            return type(name, (tuple,), own | body)

    class NamedTuple(metaclass=_Maker):
        """The base of classes that are named tuples."""
