"""`DtypeRule`: to which dtype each leaf of a tree, a batch or a file is converted."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from .. import hints
from ..errors import UnsupportedTypeError, shown
from ..hints import Hint
from . import dtypes
from .dtype_names import asked_dtype, name_of
from .dtypes import KEYWORDS, KINDS, find
from .named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "DtypeRule",
    "dtype_of_leaf",
    "fits_glob",
    "is_of_its_kind",
    "place_of_name",
    "rule_for_all",
    "rule_of",
    "rule_of_words",
    "unknown_name",
    "why_idle",
    "with_choice",
    "with_others",
]

Choice = str | None
"""One leaf's ``dtype=``: a canonical name, ``"default"``, ``"fit"``, or ``None`` for its own."""

_TYPES: dict[object, str] = {bool: "bool", int: "int", float: "float", complex: "complex"}
_INTEGERS = ("int", "uint")


class DtypeRule(NamedTuple):
    """The value of ``dtype=`` for a tree. Names win over dtypes, and dtypes over kinds.

    Args:
        names: By dotted name, in which ``*``, ``?`` and ``[…]`` stand for other characters as in
            `fnmatch`.
        dtypes: By canonical name of a dtype.
        kinds: By ``"bool"``, ``"uint"``, ``"int"``, ``"float"`` or ``"complex"``.
    """

    names: tuple[tuple[str, Choice], ...] = ()
    dtypes: tuple[tuple[str, Choice], ...] = ()
    kinds: tuple[tuple[str, Choice], ...] = ()

    @property
    def for_all(self) -> tuple[Choice] | None:
        """The choice for all leaves, in a tuple; ``None`` if it depends on the leaf."""
        said = {choice for _, choice in self.kinds}
        if self.names or self.dtypes or len(said) > 1 or len(self.kinds) not in (0, len(KINDS)):
            return None
        return (said.pop() if said else None,)

    def as_mapping(self) -> dict[str, Choice]:
        """The rule as a mapping, for a hint.

        >>> rule_of({"float": "float16", "label": None}).as_mapping()
        {'label': None, 'float': 'float16'}
        """
        return dict((*self.names, *self.kinds, *self.dtypes))

    @property
    def without_names(self) -> tuple[tuple[str, Choice], ...]:
        """What it says of kinds and dtypes."""
        return (*self.kinds, *self.dtypes)


def dtype_of_leaf(rule: DtypeRule, dtype: str, name: str, otherwise: Choice = None) -> Choice:
    """The choice for one leaf of a tree, a batch or a file.

    Names are matched by `place_of_name`.

    >>> rule = rule_of({"image": "bfloat16", "int64": "int32", "bool": "uint8"})
    >>> [
    ...     dtype_of_leaf(rule, dtype, name)
    ...     for dtype, name in [("float32", "image"), ("int64", "label"), ("int8", "id")]
    ... ]
    ['bfloat16', 'int32', None]

    Args:
        rule: What was asked for.
        dtype: The canonical name of the leaf's dtype.
        name: Its dotted name.
        otherwise: The choice for a leaf that the rule does not mention.
    """
    tables = _tables_of_rule(rule)
    place = place_of_name(tables.names, name)
    if place is not None:
        return rule.names[place][1]
    if dtype in tables.dtypes:
        return tables.dtypes[dtype]
    return tables.kinds.get(find(dtype).kind, otherwise)


def why_idle(rule: DtypeRule, leaves: Iterable[tuple[str, str]]) -> str | None:
    """Why ``dtype=`` changes nothing, if it is for no leaf; ``None`` if for one, or if empty.

    >>> why_idle(rule_of("float16"), [("label", "int64")])
    'dtype changes nothing: a dtype is for the tensors of its kind,
    and there are none of that kind.'

    Args:
        rule: What was asked for.
        leaves: The name of each leaf, and the canonical name of its dtype.
    """
    if rule == DtypeRule() or any(
        dtype_of_leaf(rule, dtype, name) is not None for name, dtype in leaves
    ):
        return None
    return "dtype changes nothing: a dtype is for the tensors of its kind, and there are none of that kind."


def place_of_name(names: tuple[str, ...], name: str) -> int | None:
    """Which of a mapping's names matches a leaf; ``None`` if none does.

    A plain name wins over a pattern, and of several patterns the last one wins.

    >>> place_of_name(("*.weight", "head.*", "head.bias"), "head.weight")
    1

    Args:
        names: The names in the mapping, in which ``*``, ``?`` and ``[…]`` are patterns as in
            `fnmatch`.
        name: The dotted name of a leaf.
    """
    exact, globs = _exact_and_globs(names)
    if name in exact:
        return exact[name]
    return next((place for matches, place in globs if matches(name)), None)


@lru_cache(maxsize=64)
def _exact_and_globs(
    names: tuple[str, ...],
) -> tuple[dict[str, int], list[tuple[Callable[[str], object], int]]]:
    exact = {name: place for place, name in enumerate(names) if not _is_glob(name)}
    return exact, [
        (fits_glob(name), place) for place, name in reversed([*enumerate(names)]) if _is_glob(name)
    ]


class _Tables(NamedTuple):
    names: tuple[str, ...]
    dtypes: dict[str, Choice]
    kinds: dict[str, Choice]


@lru_cache(maxsize=64)
def _tables_of_rule(rule: DtypeRule) -> _Tables:
    return _Tables(tuple(name for name, _ in rule.names), dict(rule.dtypes), dict(rule.kinds))


def _is_glob(name: str) -> bool:
    return any(mark in name for mark in "*?[")


@lru_cache(maxsize=256)
def fits_glob(name: str) -> Callable[[str], object]:
    """What says whether a name fits a pattern, by its case; `fnmatch` says what a pattern is."""
    import fnmatch
    import re

    return re.compile(fnmatch.translate(name)).match


def rule_of(dtype: object, like: str | None = None) -> DtypeRule:
    """The rule for a value of ``dtype=``.

    A single dtype is for the leaves of its own kind; an integer dtype is for signed and unsigned
    integers. The keys of a mapping are dtypes, kinds or dotted names. A key that is a kind
    (``"float"``, or Python's `float`) or the full name of a dtype (``"int64"``, not ``"long"``) is
    not a name; a leaf of that name needs a pattern (``"[f]loat"``).

    >>> rule_of("bfloat16").kinds, rule_of("int32").kinds
    ((('float', 'bfloat16'),), (('int', 'int32'), ('uint', 'int32')))

    Args:
        dtype: A dtype, a name, ``"default"``, ``"fit"``, ``None``, a mapping to those, or a rule.
        like: The dtype of the tensor in ``like=``, for leaves of its kind that `dtype` does not
            mention.

    Raises:
        UnsupportedTypeError: There is no such dtype; or a key is invalid, or contradicts another
            key.
    """
    kinds = {} if like is None else _of_its_kind(like)
    if isinstance(dtype, DtypeRule):
        return dtype._replace(kinds=tuple({**kinds, **dict(dtype.kinds)}.items()))
    if dtype is None and like is None:
        return DtypeRule()
    if not isinstance(dtype, Mapping):
        return DtypeRule(
            kinds=tuple(
                (kinds if dtype is None else {**kinds, **_of_its_kind(asked_dtype(dtype))}).items()
            )
        )
    tables: dict[str, dict[str, Choice]] = {"names": {}, "dtypes": {}, "kinds": {}}
    for key, value in dtype.items():
        where, what = _table_and_key(key)
        if isinstance(value, Mapping):
            raise UnsupportedTypeError(
                f"dtype= has a mapping under {shown(key)}, where a dtype belongs.",
                Hint(
                    hints.keyword("dtype", {f"{what}.*": "float32"}),
                    ", with dotted names for what lies deeper",
                ),
            )
        choice = asked_dtype(value)
        if tables[where].setdefault(what, choice) != choice:
            raise UnsupportedTypeError(
                f"dtype= says two things of {what}.",
                Hint(hints.keyword("dtype", {what: choice})),
            )
    tables["kinds"] = {**kinds, **tables["kinds"]}
    return DtypeRule(**{where: tuple(table.items()) for where, table in tables.items()})


def rule_for_all(dtype: object) -> DtypeRule:
    """The rule with one dtype for leaves of any kind; a mapping means the same as in `rule_of`.

    >>> rule_for_all("int8").for_all
    ('int8',)

    Raises:
        UnsupportedTypeError: As for `rule_of`.
    """
    if isinstance(dtype, Mapping):
        return rule_of(dtype)
    return DtypeRule(kinds=tuple(dict.fromkeys(KINDS, asked_dtype(dtype)).items()))


def rule_of_words(words: object) -> DtypeRule:
    """The rule for ``dtype=`` of files and commands: ``"NAME"`` or ``"KEY=NAME"``, or several.

    >>> rule_of_words(["bf16", "int64=int32"])
    DtypeRule(names=(), dtypes=(('int64', 'int32'),), kinds=(('float', 'bfloat16'),))

    Args:
        words: These words, or what `rule_of` takes. If two have the same key, the last one counts.

    Raises:
        UnsupportedTypeError: As for `rule_of`.
    """
    if not isinstance(words, (str, list, tuple)) or isinstance(words, DtypeRule):
        return rule_of(words)
    said = []
    for word in [words] if isinstance(words, str) else words:
        if isinstance(word, str):
            key, equals, value = word.rpartition("=")
        else:
            key, equals, value = "", "", word
        said.append(rule_of({key: value} if equals and key else word))
    return DtypeRule(
        *(tuple(dict(chain.from_iterable(pairs)).items()) for pairs in zip(*said, strict=True))
    )


def _table_and_key(key: object) -> tuple[str, str]:
    """The table to which a key of a mapping belongs, and the key in that table."""
    if isinstance(key, type) and key in _TYPES:
        return "kinds", _TYPES[key]
    if type(key) is int:  # an index of a list
        return "names", str(key)
    if isinstance(key, tuple) and not hasattr(
        key, "_fields"
    ):  # the name of a column with several levels
        from glob import escape

        return "names", escape(str(key))
    if not isinstance(key, str):
        return "dtypes", name_of(key)
    if key in KINDS:
        return "kinds", key
    return ("dtypes" if key in dtypes.DTYPES else "names"), key


def _of_its_kind(choice: Choice) -> dict[str, Choice]:
    """The choice for each kind, if a single dtype is given."""
    return dict.fromkeys(
        KINDS if choice is None or choice in KEYWORDS else _kinds_of(choice), choice
    )


def with_choice(rule: DtypeRule, name: str, choice: Choice) -> DtypeRule:
    """The rule with another choice for one leaf.

    >>> with_choice(rule_of("bfloat16"), "norm", "float32").as_mapping()
    {'norm': 'float32', 'float': 'bfloat16'}

    Args:
        rule: What was asked for.
        name: The dotted name of the leaf.
        choice: Its choice.
    """
    from glob import escape

    # A name that would be read as a pattern, a kind or a dtype becomes a pattern of itself, and
    # comes last, which wins.
    key = escape(name)
    if key in KINDS or key in dtypes.DTYPES:
        key = f"[{key[0]}]{key[1:]}"
    names = {old_key: said for old_key, said in rule.names if old_key != key}
    return rule._replace(names=(*names.items(), (key, choice)))


def with_others(rule: DtypeRule, others: Iterable[tuple[str, str, str]]) -> str | dict[str, Choice]:
    """The value of ``dtype=`` that adds other choices for some leaves to a rule.

    >>> with_others(rule_of("bfloat16"), [("int64", "label", "fit")])
    {'float': 'bfloat16', 'int64': 'fit'}
    >>> with_others(rule_of({"float": None}), [("float64", "x", "fit")])
    'fit'

    Args:
        rule: What was asked for.
        others: For each of these leaves: the canonical name of its dtype, its dotted name, and its
            choice.
    """
    names, types = dict(rule.names), dict(rule.dtypes)
    kinds = {kind: choice for kind, choice in rule.kinds if choice is not None}
    others = list(others)
    if not (names or types or kinds) and {choice for *_, choice in others} == {dtypes.FIT}:
        return dtypes.FIT
    for dtype, name, choice in others:
        place, kind = place_of_name(tuple(names), name), find(dtype).kind
        if place is not None:
            names[list(names)[place]] = choice
        elif dtype not in types and kind in kinds:
            kinds.update(
                {other: choice for other in _kinds_of(dtype) if kinds.get(other) == kinds[kind]}
            )
        else:
            types[dtype] = choice
    if kinds and not names and not types:
        alone = set(kinds.values())
    else:
        alone = set()
    for alone_kind in alone:
        if kinds == _of_its_kind(alone_kind):
            return alone_kind
    return {**names, **kinds, **types}


def is_of_its_kind(dtype: str, other: str) -> bool:
    """Whether two dtypes are of one kind, for which signed and unsigned integers count as one.

    >>> (
    ...     is_of_its_kind("uint8", "int64"),
    ...     is_of_its_kind("bool", "int64"),
    ...     is_of_its_kind("bfloat16", "float64"),
    ... )
    (True, False, True)
    """
    return find(dtype).kind in _kinds_of(other)


def _kinds_of(dtype: str) -> tuple[str, ...]:
    kind = find(dtype).kind
    return _INTEGERS if kind in _INTEGERS else (kind,)


def unknown_name(
    keyword: str,
    keys: Iterable[tuple[str, object]],
    names: Iterable[str],
    others: Iterable[tuple[str, object]] = (),
) -> tuple[str, Hint] | None:
    """The message and the hint if a mapping has a name that no leaf has; ``None`` if it has none.

    Args:
        keyword: The keyword that takes the mapping.
        keys: The mapping's names and their values.
        names: The dotted names of all leaves that are tensors.
        others: The mapping's other keys and their values, which the hint keeps.
    """
    keys = tuple(keys)
    if not keys:
        return None
    present = list(names)
    known = set(present)
    for name, choice in keys:
        if name in known or (_is_glob(name) and any(map(fits_glob(name), present))):
            continue
        near = _nearest_names(name, present)
        listed = ", ".join(near) + (", …" if len(near) < len(known) else "")
        dotted = ".".join(_words_of_name(name))
        deeper = any(name.startswith(f"{dotted}.") for name in present)
        better = near[0] if near else ""
        if deeper:
            better = f"{dotted}.*"
        elif keyword == "dtype":
            better = _is_dtype(name) or _kind_meant(name, near) or better
        if near:
            nearest = f"the nearest are {listed}"
        else:
            nearest = "none has a name"
        kept = {better if key == name else key: value for key, value in (*keys, *others)}
        return (
            f"{keyword}= has the name {shown(name)}, which no tensor has: {nearest}.",
            Hint(hints.keyword(keyword, kept if better else choice)),
        )
    return None


def _is_dtype(name: str) -> str | None:
    """The dtype that a key would mean if short names were allowed.

    One letter is rather the name of a leaf.
    """
    if len(name) == 1:
        return None
    try:
        return name_of(name)
    except UnsupportedTypeError:
        return None


def _nearest_names(name: str, present: Sequence[str]) -> list[str]:
    """The names that are most like one; the first names if none is."""
    from difflib import get_close_matches

    names = [path for path in dict.fromkeys(present) if path]
    dotted = ".".join(_words_of_name(name))
    near = [path for path in names if f".{dotted}." in f".{path}."]
    near.sort(key=dotted.__ne__)
    return near[:3] or get_close_matches(name, names, n=3) or names[:3]


def _words_of_name(name: str) -> list[str]:
    """The parts of a name, also of one that is written as a path: ``a["b"][0]`` like ``a.b.0``."""
    import re

    return re.findall(r"[^][.$/\"'\s]+", name)


def _kind_meant(name: str, near: Sequence[str]) -> str | None:
    """The kind or dtype that a name is more like than any name of a leaf."""
    from difflib import get_close_matches

    words = [*KINDS, *dtypes.DTYPES]
    return next(
        (word for word in get_close_matches(name, [*near, *words], n=1) if word in words), None
    )
