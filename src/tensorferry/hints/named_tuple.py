"""`NamedTuple`, as `typing` has it, for classes that a first call needs: each is made in a tenth of the time.

That of `typing` compiles each annotation, to see that it is an expression, and a constructor for
each class. Type checkers see the first too, and for them this is the one of `typing`. Constructors
of classes with equally many fields differ only in the names of their arguments, so they are
compiled once, with this module. It is here because hints are the lowest values of all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["NamedTuple"]

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import _tuplegetter as _getter  # what `namedtuple` makes attributes of
    from types import FunctionType

    _new = tuple.__new__
    _ALIKE = (
        lambda _cls: _new(_cls, ()),
        lambda _cls, a: _new(_cls, (a,)),
        lambda _cls, a, b: _new(_cls, (a, b)),
        lambda _cls, a, b, c: _new(_cls, (a, b, c)),
        lambda _cls, a, b, c, d: _new(_cls, (a, b, c, d)),
        lambda _cls, a, b, c, d, e: _new(_cls, (a, b, c, d, e)),
        lambda _cls, a, b, c, d, e, f: _new(_cls, (a, b, c, d, e, f)),
        lambda _cls, a, b, c, d, e, f, g: _new(_cls, (a, b, c, d, e, f, g)),
        lambda _cls, a, b, c, d, e, f, g, h: _new(_cls, (a, b, c, d, e, f, g, h)),
        lambda _cls, a, b, c, d, e, f, g, h, i: _new(_cls, (a, b, c, d, e, f, g, h, i)),
        lambda _cls, a, b, c, d, e, f, g, h, i, j: _new(_cls, (a, b, c, d, e, f, g, h, i, j)),
        lambda _cls, a, b, c, d, e, f, g, h, i, j, k: _new(_cls, (a, b, c, d, e, f, g, h, i, j, k)),
        lambda _cls, a, b, c, d, e, f, g, h, i, j, k, m: _new(
            _cls, (a, b, c, d, e, f, g, h, i, j, k, m)
        ),
    )
    """Constructors, by the number of fields; few classes have more."""

    def _constructor(fields: tuple[str, ...], defaults: tuple[Any, ...]) -> FunctionType:
        """The `__new__` of a class with these fields."""
        if len(fields) < len(_ALIKE):
            code = _ALIKE[len(fields)].__code__.replace(co_varnames=("_cls", *fields))
        else:
            arguments = ", ".join(fields)
            # Of the names of a class body.
            made = eval(f"lambda _cls, {arguments}: _new(_cls, ({arguments}))")  # noqa: S307
            code = made.__code__
        return FunctionType(code, {"_new": _new}, "__new__", defaults)

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

    def _values(self: Any) -> tuple[Any, ...]:
        return tuple(self)

    def _shown(self: Any) -> str:
        fields = zip(self._fields, self, strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields)})"

    _METHODS = {
        "_make": _make,
        "_replace": _replace,
        "__replace__": _replace,  # for `copy.replace`
        "_asdict": _asdict,
        "__repr__": _shown,
        "__getnewargs__": _values,  # for copies and pickles
    }

    class _Maker(type):
        """Makes a named tuple of the body of a class."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            annotations = body.get("__annotations__", {})
            fields = tuple(annotations)
            defaults = {field: body.pop(field) for field in fields if field in body}
            made = _constructor(fields, tuple(defaults.values()))
            made.__annotations__ = annotations  # for signatures
            made.__qualname__ = f"{name}.__new__"  # for the errors of calls
            own = {
                "__doc__": f"{name}({', '.join(fields)})",
                "__slots__": (),
                "_fields": fields,
                "_field_defaults": defaults,
                "__match_args__": fields,
                "__new__": made,
                **_METHODS,
                **{field: _getter(place, field) for place, field in enumerate(fields)},
            }
            if "__eq__" in body:
                own["__hash__"] = tuple.__hash__
            return type(name, (tuple,), own | body)

    class NamedTuple(metaclass=_Maker):
        """The base of classes that are named tuples."""
