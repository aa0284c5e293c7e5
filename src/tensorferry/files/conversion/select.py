"""Select what is in a file, and rename and cast its tensors."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache, partial
from glob import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ... import hints
from ...core.dtypes import DEFAULT, FIT, find, fitting_dtype, holds_exactly
from ...core.leaf_dtypes import (
    DtypeRule,
    dtype_of_leaf,
    fits_glob,
    rule_of_words,
    unknown_name,
    with_choice,
)
from ...errors import FormatLimitError, LossyCastError, UnsupportedTypeError, nearest, validate_word
from ...files.base.limits import renamed_by
from ...files.base.tree_edits import UNNESTED
from ...hints import Hint
from ...host.casts import cast
from ...host.numpy_dtypes import of_numpy
from ..base.contents import NotTensor, blocks_of, with_block_kinds, with_columns
from ..base.nesting import is_flat, named_values
from ..base.objects import refuse_demands
from ..base.stored import BLOCK_BYTES, Stored
from ..base.tree_edits import rename as rename_in
from ..base.tree_edits import without
from ..base.wording import named
from ..opening.paths import each_format
from ..reports.summary import values_of

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Hashable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from ...typing import Array
    from ..base.contents import Blocks, ColumnKeywords, Contents
    from ..base.format import Format

__all__ = ["OVERFLOWS", "Recast", "left_by_tensors_only", "names_taken", "select", "substitution"]

OVERFLOWS = ("raise", "saturate", "nan")

_ELEMENTS = BLOCK_BYTES // 4
_AHEAD = 8 * BLOCK_BYTES
"""From this size on, a block is read and cast while the one before is written."""


class Recast(Stored):
    """A stored tensor whose values are cast when read, with the bits of `tensorferry.host.casts`.

    Between two float dtypes, numbers are rounded to the nearest, ties to even. NaN stays NaN, and
    an infinity stays an infinity if the dtype has infinities; if not, it is too large, like a
    finite number outside of the dtype's range. `overflow` decides what becomes of these:

    - ``"raise"``: an error.
    - ``"saturate"``: the largest finite number of the dtype, with the sign.
    - ``"nan"``: NaN.

    A number or NaN for which the dtype has no place is an error in every mode. If one of the dtypes
    is not a float dtype, each value must be kept, whatever `overflow` is. A lost value is a
    `LossyCastError` with the name of the tensor and the position, when it is read.

    Args:
        inner: The tensor.
        dtype: The canonical name of the dtype to cast to.
        overflow: ``"raise"``, ``"saturate"`` or ``"nan"``.
        name: The name of the tensor in errors.
        spared: Gives the code that leaves this tensor as it is, for the hint of errors.
    """

    __slots__ = ("dtype", "inner", "name", "overflow", "shape", "spared")

    def __init__(
        self,
        inner: Stored,
        dtype: str,
        overflow: str = "raise",
        name: str = "",
        spared: Callable[[], Hint] | None = None,
    ) -> None:
        self.inner = inner
        self.dtype = dtype
        self.shape = inner.shape
        self.overflow = overflow
        self.name = name
        self.spared = spared

    @property
    def key(self) -> Hashable:
        return (self.inner.key, self.dtype, self.overflow)

    def blocks(self) -> Iterator[Array]:
        if self.inner.nbytes < _AHEAD:
            yield from self._cast_all()
            return
        cast_blocks = self._cast_all()
        with ThreadPoolExecutor(1) as ahead:
            coming = ahead.submit(next, cast_blocks, None)
            while (block := coming.result()) is not None:
                coming = ahead.submit(next, cast_blocks, None)
                yield block

    def _cast_all(self) -> Iterator[Array]:
        done = 0
        for whole in self.inner.blocks():
            # A cast to a wider dtype makes a block larger, so it is divided first.
            for start in range(0, whole.size, _ELEMENTS):
                block = whole[start : start + _ELEMENTS]
                yield self._cast(block, done)
                done += block.size

    def _cast(self, block: Array, start: int) -> Array:
        source, target = find(self.inner.dtype), find(self.dtype)
        if holds_exactly(source.name, target.name):
            return cast(block, target.name)
        if (source.kind, target.kind) not in _ROUNDING:
            try:
                return cast(block, target.name, "value")
            except LossyCastError:
                raise self._lossy(start + _first_lost(block, target.name)) from None
        result = cast(block, target.name)
        if not _all_fit(result):
            self._settle(block, result, start)
        return result

    def _settle(self, block: Array, result: Array, start: int) -> None:
        """Replace each number that is too large as `overflow` says.

        Raises:
            LossyCastError: A number is lost; the message names the position of the first one.
        """
        per = 1
        if block.dtype.kind == "c":
            block, result, per = _parts(block), _parts(result), 2
        elif result.dtype.kind == "c":
            result = result.real
        ends = _ends(result.dtype)
        with np.errstate(all="ignore"):
            infinite, missing = np.isinf(block), np.isnan(block)
            too_large = np.abs(block.astype(np.float64)) > ends.largest
            if ends.has_nan:
                # A number slightly larger than the largest is rounded to it, which is not an
                # overflow.
                too_large &= ~np.isfinite(result)
            too_large &= ~infinite if ends.has_infinity else ~missing
            if not ends.has_nan:
                lost = missing
            else:
                lost = ~missing & ~np.isfinite(result)
            if ends.has_infinity:
                lost &= ~infinite
            lost |= too_large
            if ends.lowest > 0:
                too_large &= block > 0
            if self.overflow == "saturate":
                result[too_large] = np.where(
                    block[too_large] < 0, ends.lowest, ends.largest
                ).astype(result.dtype)
                lost &= ~too_large
            elif self.overflow == "nan" and ends.has_nan:
                result[too_large] = np.nan
                lost &= ~too_large
        if np.any(lost):
            first = int(np.argmax(lost))
            if ends.has_nan:
                modes = ["saturate", "nan"]
            else:
                modes = ["saturate"]
            raise self._lossy(start + first // per, modes if too_large[first] else [])

    def _lossy(self, position: int, modes: Sequence[str] = ()) -> LossyCastError:
        """The error for a lost value; `modes` are values of `overflow` that would avoid it."""
        if modes:
            hint = hints.one_of([hints.keyword("overflow", mode) for mode in modes])
        else:
            hint = Hint()
        if self.spared is not None:
            hint |= self.spared()
        if self.shape:
            where = [int(index) for index in np.unravel_index(position, self.shape)]
        else:
            where = []
        return LossyCastError(
            f"{self.name or 'The tensor'}: {self.inner.dtype} to {self.dtype}: "
            f"the value{f' at {where}' if where else ''} does not fit.",
            hint,
        )


_ROUNDING = (("float", "float"), ("float", "complex"), ("complex", "complex"))
"""The kinds between which a cast may round. Between all others, it must keep each value."""


class _Ends(NamedTuple):
    lowest: float
    largest: float
    has_infinity: bool
    has_nan: bool


@cache
def _ends(dtype: np.dtype[Any]) -> _Ends:
    import ml_dtypes

    limits: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call, unused-ignore]
    specials = find(of_numpy(dtype) or "").specials
    return _Ends(float(limits.min), float(limits.max), "inf" in specials, "nan" in specials)


@cache
def _first_special(dtype: np.dtype[Any]) -> int | None:
    """The bit pattern from which on all numbers are infinite or NaN, if the dtype has one."""
    if not _ends(dtype).has_infinity:
        return None
    return int(np.array(np.inf).astype(dtype).view(f"u{dtype.itemsize}"))


def _parts(array: Array) -> Array:
    """The real and imaginary parts of complex numbers, alternately."""
    return array.view(f"f{array.dtype.itemsize // 2}")


def _all_fit(result: Array) -> bool:
    """Whether all numbers are finite, by two reductions."""
    if result.dtype.kind == "c":
        result = _parts(result)
    if not _ends(result.dtype).has_nan:
        return False
    special = _first_special(result.dtype)
    if special is None or not result.size:
        return bool(np.isfinite(result).all())
    width = result.dtype.itemsize
    sign = 1 << (8 * width - 1)
    positive = int(np.max(result.view(f"i{width}")))
    return positive < special and int(np.max(result.view(f"u{width}"))) < special + sign


def _first_lost(block: Array, dtype: str) -> int:
    """The position of the first value that a cast does not keep."""
    low, high = 0, block.size
    while high - low > 1:
        middle = (low + high) // 2
        try:
            cast(block[low:middle], dtype, "value")
            low = middle
        except LossyCastError:
            high = middle
    return low


_SEPARATOR = re.compile(r"[./]")
"""What stands between the names of containers in a name; paths in HDF5 and Zarr have slashes."""
_FEW = 20
"""Of more tensors, a hint does not list the names."""


def select(
    contents: Contents,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    rename: Sequence[str] = (),
    dtype: object = None,
    overflow: str = "raise",
    tensors_only: bool = False,
    metadata: Mapping[str, str] | None = None,
    dequantize: bool = False,
    include_as: str = "include",
    to: Format | None = None,
    columns: ColumnKeywords | None = None,
) -> Contents:
    """Make new contents over the same files. No values are read.

    Patterns are those of `fnmatch`, are case-sensitive, and match whole names in the source; ``*``
    also matches dots. The names are those of tensors, and of values that are not tensors by their
    paths (`named_values`). A container of which nothing stays is left out too, and so are metadata
    of a tensor or container that is left out (``"name@key"``).

    Args:
        contents: The contents.
        include: Patterns of what to take; empty for all.
        exclude: Patterns of what to leave out.
        rename: Substitutions ``"s/REGEX/REPLACEMENT/"``, applied to each name one after the other.
            As in sed, any character may be the separator, and only a ``g`` after the last one
            replaces more than the first match.
        dtype: As for `rule_of_words`.
        overflow: As for `Recast`.
        tensors_only: Leave out metadata, values that are not tensors, and the nesting; never a
            tensor.
        metadata: Strings to put among the metadata, in place of those with the same keys.
        dequantize: Take the numbers of tensors in quantised blocks, as float32.
        include_as: The user's name for `include`, for messages.
        to: The format of the output: its dtypes for ``"fit"``, its own metadata; ``None`` without
            one.
        columns: The keywords for tables, whose columns are read for their shapes; ``None`` to leave
            them.

    Raises:
        TypeError: `overflow` is not a string.
        ValueError: A substitution is malformed, or `overflow` is not one of the three.
        FormatLimitError: A pattern matches nothing; two tensors would have the same name; the new
            names do not fit the tree; there is nothing to dequantise, or the library cannot do it.
        FrameworkNotInstalledError: The library that dequantises is not installed.
        UnsafeFileError: What is taken asks for a call that is not allowed.
        UnsupportedTypeError: There is no such dtype, or it is ``"default"``, which a file does not
            have.
    """
    validate_word("overflow", overflow, OVERFLOWS)
    if columns is not None:
        # First the choice, because what is left out need not be read.
        taken = contents
        if include or exclude:
            taken = select(
                contents,
                include=include,
                exclude=exclude,
                include_as=include_as,
                tensors_only=tensors_only,
            )
        contents = with_columns(taken, columns, rule_of_words(dtype), exclude=exclude)
        include, exclude = (), ()
    held = None if to is None else to.dtypes
    if include or exclude:
        values = named_values(contents.tree)
    else:
        values = {}
    among = (*contents.tensors, *contents.others)
    # Without values, a pattern that fits only values would take nothing.
    if not tensors_only:
        among = (*among, *values)
    kept = _kept(contents, values, include, exclude, among, include_as)
    if not kept:
        _refuse_nothing(include, exclude, include_as)
    others = {
        name: why
        for name, why in contents.others.items()
        if name in kept and not (tensors_only and isinstance(why, NotTensor))
    }
    blocks = {
        name: tensor_blocks for name, tensor_blocks in blocks_of(contents).items() if name in kept
    }
    if dequantize:
        contents, blocks = _dequantised(contents, blocks), {}
    excluded = [name for name in (*contents.tensors, *contents.others) if name not in kept]
    names = [name for name in contents.tensors if name in kept]
    mapping = _renamed(names, rename)
    rule = rule_of_words(dtype)
    casts = _casts(names, contents.tensors, rule, held, blocks)
    tensors: dict[str, Stored] = {}
    for name in names:
        stored = contents.tensors[name]
        wanted = casts.get(name, stored.dtype)
        if wanted != stored.dtype:
            stored = Recast(
                stored, wanted, overflow, name, partial(_spared, rule, name, stored.dtype, held)
            )
        tensors[mapping.get(name, name)] = stored
    tree = None
    if contents.tree is not None and not tensors_only:
        dropped = bytes(name not in kept for name in values)
        hint = partial(_whole_list, include, exclude, include_as)
        renamed = rename_in(without(contents.tree, set(excluded), dropped, hint), mapping)
        if renamed is not contents.tree and is_flat(renamed, tensors):
            tree = None
        else:
            tree = renamed
    given = metadata or {}
    carried = _metadata(contents, kept, values, to, tensors_only=tensors_only)
    # The meaning of a tensor's bytes belongs to it, like its shape.
    carried = with_block_kinds(
        carried, {mapping.get(name, name): tensor_blocks for name, tensor_blocks in blocks.items()}
    )
    own = {key: text for key, text in contents.own.items() if key in carried and key not in given}
    chosen = contents._replace(
        tensors=tensors, tree=tree, metadata={**carried, **given}, others=others, own=own
    )
    refuse_demands(chosen)
    return chosen


def names_taken(
    contents: Contents, include: Sequence[str], exclude: Sequence[str]
) -> frozenset[str]:
    """The names that a choice takes, for hints; all names there if a pattern fits nothing."""
    values = named_values(contents.tree)
    among = (*contents.tensors, *contents.others, *values)
    try:
        return frozenset(_kept(contents, values, include, exclude, among, "include"))
    except FormatLimitError:
        return frozenset(among)


def left_by_tensors_only(before: Contents, after: Contents) -> list[str]:
    """The names of what `tensors_only` leaves out.

    Args:
        before: The contents.
        after: What `select` made of them.
    """
    left = [*values_of(before)]
    left += [key for key in with_block_kinds(before.metadata, {}) if key not in before.own]
    plain = [name for name, why in before.others.items() if isinstance(why, NotTensor)]
    return left + [name for name in plain if name not in after.tensors]


def _metadata(
    contents: Contents,
    kept: Collection[str],
    values: Iterable[str],
    to: Format | None,
    *,
    tensors_only: bool,
) -> dict[str, str]:
    """The metadata that stay."""
    if to is None:
        foreign = {}
    else:
        foreign = to.foreign(contents.metadata)
    stays = {key: text for key, text in contents.metadata.items() if key not in foreign}
    if tensors_only:
        # They say how the names and shapes of the tensors are meant.
        own = {} if to is None else to.own_metadata
        return {key: text for key, text in stays.items() if key in contents.own and key in own}
    owners = {key: key.rpartition("@")[0] for key in stays if "@" in key}
    names = [*contents.tensors, *contents.others, *values]
    if not owners or all(name in kept for name in names):
        return stays
    before = _with_containers(names)
    gone = before - _with_containers(name for name in names if name in kept)
    return {key: text for key, text in stays.items() if owners.get(key) not in gone}


def _with_containers(names: Iterable[str]) -> set[str]:
    """Names, and those of the containers that they stand in."""
    names_and_containers = set(names)
    for name in [*names_and_containers]:
        names_and_containers.update(name[: mark.start()] for mark in _SEPARATOR.finditer(name))
    return names_and_containers


def _whole_list(include: Sequence[str], exclude: Sequence[str], include_as: str, path: str) -> Hint:
    """The hint for a list of which only some elements would stay."""
    whole = f"{escape(path)}.*" if path else "*"
    if exclude and not path:
        return hints.without("exclude")
    if exclude:
        hint = Hint(_patterns("exclude", [*exclude, whole]), ", which leaves all of it out")
    else:
        hint = Hint(_patterns(include_as, [*include, whole]), ", which takes all of it")
    if include_as == "names":
        return hint
    return Hint(hint, ", or ", UNNESTED)


def _patterns(option: str, globs: list[str]) -> hints.Keywords:
    return hints.keyword(option, hints.Written(globs, repr(globs)))


def _spared(rule: DtypeRule, name: str, own: str, held: Collection[str] | None) -> Hint:
    """The hint that leaves one tensor as it is."""
    if held is not None and own not in held:
        return Hint(
            hints.keyword("exclude", escape(name)),
            f", which leaves it out: the format does not hold {own}",
        )
    dtype = with_choice(rule, name, own).as_mapping()
    return Hint(hints.keyword("dtype", dtype), ", which leaves it as it is")


def _dequantised(contents: Contents, blocks: Mapping[str, Blocks]) -> Contents:
    if not blocks:
        raise FormatLimitError(
            "dequantize: no tensor that is taken is in blocks that can be dequantised.",
            hints.without("dequantize"),
        )
    formats = {known_format.name: known_format for known_format in each_format()}
    tensors = dict(contents.tensors)
    made: dict[Hashable, Stored] = {}
    for name, noted in blocks.items():
        format_ = formats.get(noted.kind.partition(".")[0])
        if format_ is None:
            raise FormatLimitError(
                f"{name} is in blocks of {noted.kind}, which no format here has."
            )
        stored = contents.tensors[name]
        tensors[name] = made.setdefault(stored.key, format_.dequantised(stored, noted, name))
    return contents._replace(tensors=tensors, metadata=with_block_kinds(contents.metadata, {}))


def _kept(
    contents: Contents,
    values: Collection[str],
    include: Sequence[str],
    exclude: Sequence[str],
    among: Sequence[str],
    include_as: str,
) -> set[str]:
    """The names of what stays, of tensors, others and values; `include` takes some of `among`."""
    names = (*contents.tensors, *contents.others, *values)
    owners = {
        name: name.rpartition("@")[0]
        for name, why in contents.others.items()
        if isinstance(why, NotTensor) or why.startswith("an attribute")
    }
    attributes = {name: owner for name, owner in owners.items() if owner in contents.tensors}
    kept = set(names)
    if include:
        kept = {name for glob in include for name in _fitting(glob, include, among, include_as)}
        # Attributes of a tensor that is taken are taken too.
        kept |= {name for name in attributes if attributes[name] in kept}
    for glob in exclude:
        kept.difference_update(_fitting(glob, exclude, names, "exclude"))
    return {name for name in kept if attributes.get(name, name) in kept}


def _refuse_nothing(include: Sequence[str], exclude: Sequence[str], include_as: str) -> None:
    """Raise if it is patterns that leave nothing: no part of a file is empty."""
    globs = {include_as: include, "exclude": exclude}
    asked = " and ".join(
        f"{word} {named(map(repr, unused))}" for word, unused in globs.items() if unused
    )
    if asked:
        # Where only exclude= leaves nothing, an earlier hint may have said it: without it, that
        # error comes again.
        raise FormatLimitError(
            f"Nothing is left by {asked}.",
            hints.without("exclude") if include and exclude else None,
        )


def _fitting(glob: str, given: Sequence[str], names: Collection[str], option: str) -> list[str]:
    """The names that fit a pattern, which is one of those that are `given`."""
    fits = fits_glob(glob)
    fitting = [name for name in names if fits(name)]
    if not fitting:
        hint = _other_pattern(glob, given, names, option)
        raise FormatLimitError(
            f"{option}: no name fits {glob!r}; there are {named(names) or 'none'}.", hint
        )
    return fitting


def _other_pattern(glob: str, given: Sequence[str], names: Collection[str], option: str) -> Hint:
    """The hint for a pattern that fits no name: another one in its place among those given."""

    def instead(*others: str) -> Hint:
        kept = [new for pattern in given for new in (others if pattern == glob else (pattern,))]
        if kept:
            return Hint(_patterns(option, [*dict.fromkeys(kept)]))
        return hints.without(option)

    whole = glob.removesuffix(".*")
    if any(map(fits_glob(f"{glob}.*"), names)):
        return instead(f"{glob}.*") + ", for all that is in it"
    if whole != glob and any(map(fits_glob(whole), names)):
        return instead(whole) + ", which has nothing in it that is named"
    near = nearest(glob.strip("*."), names, 0.5)
    likely = next(
        (name for name in names if near is not None and name.casefold() == near.casefold()), None
    )
    return instead(*([] if likely is None else [escape(likely)]))


def _renamed(names: Sequence[str], substitutions: Sequence[str]) -> dict[str, str]:
    """The new name of each tensor that gets one."""
    now = list(names)
    for text in substitutions:
        substitute = substitution(text)
        after = [substitute(name) for name in now]
        if after == now:
            raise FormatLimitError(
                f"rename: {text!r} changes no name; there are {named(now) or 'none'}."
            )
        now = after
    if len(set(now)) < len(now):
        seen: dict[str, str] = {}
        for old, new in zip(names, now, strict=True):
            if new in seen:
                if new:
                    both = f"be named {new}"
                else:
                    both = "have no name"
                raise FormatLimitError(f"rename: {seen[new]} and {old} would both {both}.")
            seen[new] = old
    renamed = {old: new for old, new in zip(names, now, strict=True) if old != new}
    for old, new in renamed.items():
        if not new:
            raise FormatLimitError(
                f"rename: {old} would have no name.", _with_name(old, substitutions)
            )
    return renamed


def _with_name(old: str, substitutions: Sequence[str]) -> Hint:
    """The hint with one more substitution, by which a tensor without a name keeps the old one."""
    mark = next((mark for mark in "/|#!" if mark not in old), None)
    if mark is None:
        return Hint(hints.keyword("rename", hints.SOME), " that leaves it a name")
    own = old.replace("\\", r"\\")
    renamed = renamed_by([*substitutions, f"s{mark}^${mark}{own}{mark}"])
    return renamed + ", or another name in the last one"


@lru_cache(maxsize=64)
def substitution(text: str) -> Callable[[str], str]:
    """A function that applies a substitution to a name.

    Raises:
        ValueError: It is malformed.
    """
    wrong = ValueError(
        f"rename: {text!r} is not a substitution: these are s/REGEX/REPLACEMENT/, for example "
        "'s/^module\\.//'"
    )
    if len(text) < 4 or text[0] != "s" or text[1].isalnum() or text[1] in "\\ \n":
        raise wrong
    pieces = _split(text[2:], text[1])
    if len(pieces) != 3 or pieces[2] not in ("", "g"):
        raise wrong
    try:
        pattern = re.compile(pieces[0])
        pattern.sub(pieces[1], "")
    except (re.error, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(f"rename: {text!r} is not a substitution: {error}") from error
    count = 0 if pieces[2] else 1
    return lambda name: pattern.sub(pieces[1], name, count=count)


def _split(text: str, mark: str) -> list[str]:
    """The pieces between separators.

    An escaped separator belongs to its piece, without the escape.
    """
    pieces, start, place = [], 0, 0
    while place < len(text):
        if text[place] == "\\":
            place += 2
            continue
        if text[place] == mark:
            pieces.append(text[start:place])
            start = place + 1
        place += 1
    return [piece.replace("\\" + mark, mark) for piece in (*pieces, text[start:])]


def _with_bytes(rule: DtypeRule, blocks: Collection[str]) -> Hint:
    """The hint for tensors in blocks, which no dtype is for."""
    if len(blocks) > _FEW:
        return Hint(hints.keyword("dequantize", True))
    for name in blocks:
        rule = with_choice(rule, name, None)
    kept = Hint(hints.keyword("dtype", rule.as_mapping()), ", which keeps the bytes")
    return Hint(hints.keyword("dequantize", True)) | kept


def _casts(
    names: Sequence[str],
    tensors: Mapping[str, Stored],
    rule: DtypeRule,
    held: Collection[str] | None,
    blocks: Mapping[str, Blocks],
) -> dict[str, str]:
    """The dtype of each tensor that gets one."""
    if rule == DtypeRule():
        return {}
    unknown = unknown_name("dtype", rule.names, names, rule.without_names)
    if unknown is not None:
        raise FormatLimitError(*unknown)
    casts: dict[str, str] = {}
    for name in names:
        own = tensors[name].dtype
        choice = dtype_of_leaf(rule, own, name)
        if choice == DEFAULT:
            raise UnsupportedTypeError(
                "A file has no default dtype.",
                Hint(hints.keyword("dtype", "float32"), ", or ", hints.keyword("dtype", FIT)),
            )
        if name in blocks:
            if choice not in (FIT, None, own):
                raise FormatLimitError(
                    f"dtype: {name} is in blocks of {blocks[name].kind}, "
                    "whose bytes have no dtype.",
                    _with_bytes(rule, [blocked for blocked in names if blocked in blocks]),
                )
            continue
        # A dtype that does not fit at all is refused later, with everything else that the format
        # cannot hold.
        if choice != FIT:
            casts[name] = choice or own
        elif held is None:
            casts[name] = own
        else:
            casts[name] = fitting_dtype(own, held) or own
    return casts
