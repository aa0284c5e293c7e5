"""Our named tuples are what `typing` makes of the same class."""

from __future__ import annotations

import collections
import copy
import inspect
import pickle
import typing
from concurrent.futures import ThreadPoolExecutor

import pytest

from tensorferry.core.named_tuple import NamedTuple, fields_but


class Ours(NamedTuple):
    """Documented."""

    first: int
    second: dict[str, list[int]] = {}  # noqa: RUF012 - one for all, as defaults of named tuples are
    third: Unknown = None  # noqa: F821 - it is not looked up

    @property
    def total(self):
        """A property."""
        return self.first + len(self.second)


class Theirs(typing.NamedTuple):
    """Documented."""

    first: int
    second: dict[str, list[int]] = {}  # noqa: RUF012
    third: Unknown = None  # noqa: F821

    @property
    def total(self):
        """A property."""
        return self.first + len(self.second)


@pytest.mark.parametrize(
    "look",
    [
        lambda cls: cls._fields,
        lambda cls: cls._field_defaults,
        lambda cls: cls.__doc__,
        lambda cls: cls.__module__,
        lambda cls: cls.__bases__,
        lambda cls: cls.__match_args__,
        lambda cls: cls(1),
        lambda cls: cls(1, third=2)._replace(second={"x": [1]}),
        lambda cls: cls(2, {"x": [1]}).total,
        lambda cls: cls(1)._asdict(),
        lambda cls: cls._make([1, {}, 3]),
        lambda cls: hash(cls(1, 2)),
        lambda cls: cls(1, 2).__getnewargs__(),
        lambda cls: (copy.copy(cls(1, 2)), type(copy.copy(cls(1, 2))) is cls),
        lambda cls: cls.second.__get__(cls(1, 2)),
        lambda cls: hasattr(cls(1), "__dict__"),
        lambda cls: repr(cls(1)).removeprefix(cls.__name__),
    ],
)
def test_it_has_what_that_of_typing_has(look):
    """Fields, defaults, methods, and no dict of its own."""
    assert look(Ours) == look(Theirs)


def test_it_is_made_anew_from_a_pickle():
    """By the name of its class."""
    assert pickle.loads(pickle.dumps(Ours(1))) == Ours(1)  # noqa: S301 - our own
    assert type(pickle.loads(pickle.dumps(Ours(1)))) is Ours  # noqa: S301


def test_annotations_are_kept_as_they_are_written():
    """They are not compiled."""
    written = ["int", "dict[str, list[int]]", "Unknown"]
    assert list(Ours.__annotations__.values()) == written
    shown = inspect.signature(Ours).parameters.values()
    assert [each.annotation for each in shown] == written
    theirs = inspect.signature(Theirs).parameters.values()
    assert [each.annotation.__forward_arg__ for each in theirs] == written


def test_an_argument_that_is_missing_or_unknown_is_refused():
    """As for every call."""
    for cls in (Ours, Theirs):
        with pytest.raises(TypeError, match=rf"{cls.__name__}\.__new__\(\) missing 1 .*'first'"):
            cls()
        with pytest.raises(TypeError, match="fourth"):
            cls(1, fourth=2)
        with pytest.raises((TypeError, ValueError), match=r"unexpected field names: .'fourth'"):
            cls(1)._replace(fourth=2)
        with pytest.raises(TypeError, match="Expected 3 arguments, got 1"):
            cls._make([1])


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 12, 13, 20, 40])
def test_each_field_has_its_own_place_however_many_there_are(count):
    """Also before the first value, for which the constructor is compiled."""
    names = [f"field{place}" for place in range(count)]
    body = {"__module__": __name__, "__annotations__": dict.fromkeys(names, "int")}
    made = type(NamedTuple)(
        "Made", (NamedTuple,), {**body, **dict.fromkeys(names[count // 2 :], -1)}
    )
    theirs = collections.namedtuple("Made", names, defaults=[-1] * (count - count // 2))  # noqa: PYI024
    assert inspect.signature(made).parameters.keys() == inspect.signature(theirs).parameters.keys()
    given = dict(zip(names, range(count // 2), strict=False))
    for value in (made(**given), made(*given.values())):
        assert value == theirs(**given)
        assert [getattr(value, name) for name in names] == list(theirs(**given))
        assert repr(value) == repr(theirs(**given))


def test_a_subclass_shows_its_own_signature_or_that_of_the_class_before_any_value():
    """The constructor is compiled when somebody looks, too."""

    class Made(NamedTuple):
        first: int
        second: int = 2

    class Same(Made):
        """No constructor of its own."""

    class Other(Made):
        def __new__(cls, third):
            return super().__new__(cls, third, 3)

    assert str(inspect.signature(Other)) == "(third)"
    assert str(inspect.signature(Same)) == "(first: 'int', second: 'int' = 2)"
    assert str(inspect.signature(Made)) == "(first: 'int', second: 'int' = 2)"
    assert (Same(1), Other(1), type(Same(1)), type(Other(1))) == ((1, 2), (1, 3), Same, Other)


def test_threads_may_make_the_first_value_at_the_same_time():
    """Each gets its own."""

    class Made(NamedTuple):
        first: int
        second: int = 2

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(Made, range(64))) == [(number, 2) for number in range(64)]


class Compared(NamedTuple):  # noqa: PLW1641 - that of a tuple
    """A named tuple with an order of its own, which has the hash of a tuple all the same."""

    first: int

    def __eq__(self, other):
        """By the first digit."""
        return self.first % 10 == other.first % 10


def test_one_that_defines_what_is_equal_keeps_its_hash():
    """As with `typing`."""
    assert hash(Compared(1)) == hash((1,))
    assert Compared(1) == Compared(11)


def test_fields_are_left_out_by_name():
    """The others come in their order."""
    assert fields_but(Ours, "second")(Ours(1, {"x": [2]}, 3)) == (1, 3)
    assert fields_but(Ours)(Ours(1, {}, 3)) == (1, {}, 3)
    with pytest.raises(KeyError, match="fourth"):
        fields_but(Ours, "fourth")
