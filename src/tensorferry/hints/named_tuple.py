"""`NamedTuple`, as `typing` has it, for classes that a first call needs: made in a fifth of the time.

That of `typing` compiles each annotation, to see that it is an expression, and a constructor for
each class; here it is compiled after some values of a class, as most classes have few or none in a
process. Type checkers see the first too, and for them this is the one of `typing`. It is here
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
    _FEW = 12
    """So many values of a class are made in the time in which its constructor is compiled."""

    def _constructor(owner: Any) -> Callable[..., Any]:
        """The `__new__` of a class, whose fields are names of a class body."""
        arguments = ", ".join(owner._fields)
        values = f"({arguments},)" if owner._fields else "()"
        constructor = eval(f"lambda _cls, {arguments}: _new(_cls, {values})", {"_new": _new})  # noqa: S307
        constructor.__defaults__ = tuple(owner._field_defaults.values())
        constructor.__annotations__ = owner.__annotations__  # for signatures
        constructor.__name__ = "__new__"
        constructor.__qualname__ = f"{owner.__name__}.__new__"  # for the errors of calls
        return constructor

    def _complete(owner: Any) -> None:
        """Give a class its constructor. Another thread may do so at the same time."""
        owner.__new__ = staticmethod(_constructor(owner))
        owner.__signature__ = None  # that of the constructor

    class _Unmade:
        """The `__signature__` of a class that has no constructor yet."""

        def __get__(self, instance: Any, kind: Any) -> Any:
            from inspect import signature  # here, because only documentation needs it

            _complete(
                next(base for base in kind.__mro__ if vars(base).get("__signature__") is self)
            )
            return signature(kind)

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

    _UNMADE = _Unmade()

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

            last, left = tuple(defaults.values()), _FEW

            def first(kind: Any, /, *values: Any, **by_name: Any) -> Any:
                nonlocal left
                left -= 1
                # A call that is wrong is left to the constructor, which says why.
                if left >= 0 and len(values) <= len(fields):
                    missing = len(fields) - len(values)
                    if not by_name and missing <= len(last):
                        return _new(kind, values + last[len(last) - missing :])
                    given, others = {**defaults, **by_name}, fields[len(values) :]
                    if by_name.keys() <= set(others) <= given.keys():
                        return _new(kind, (*values, *map(given.__getitem__, others)))
                _complete(owner)
                return owner.__new__(kind, *values, **by_name)

            own = {
                "__doc__": f"{name}({', '.join(fields)})",
                "__slots__": (),
                "_fields": fields,
                "_field_defaults": defaults,
                "__match_args__": fields,
                "__new__": first,
                "__signature__": _UNMADE,
                **_METHODS,
                **{field: _getter(place, field) for place, field in enumerate(fields)},
            }
            if "__eq__" in body:
                own["__hash__"] = tuple.__hash__
            owner = type(name, (tuple,), own | body)
            return owner

    class NamedTuple(metaclass=_Maker):
        """The base of classes that are named tuples."""
