"""`Pattern`: how axes are taken apart, reordered and joined: ``(h 2 hd/2) d -> (h hd/2 2) d``, as in einops."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ..errors import FileFormatError, shown
from .expressions import AxisSlice
from .formulas import Formula, NoValueError, formula
from .moves import Move, restrided, simplified, steps_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Atom", "Pattern", "pattern"]

_LONGEST = 400
_MOST_ATOMS = 32
_REST = "..."


class Atom(NamedTuple):
    """A part of an axis.

    Args:
        length: How long it is; ``None`` for ``...``, which is any number of axes.
        is_reversed: Whether it is read from its end.
        taken: What is taken of it, on the left; ``None`` for all.
    """

    length: Formula | None
    is_reversed: bool = False
    taken: AxisSlice | None = None

    @property
    def kept(self) -> Formula | None:
        """How much there is of it on the right; ``None`` for ``...`` or if one index is taken."""
        if self.taken is None or self.length is None:
            return self.length
        if self.taken.is_index:
            return None
        stop = self.length if self.taken.stop is None else self.taken.stop
        return stop if self.taken.start is None else stop.plus(self.taken.start, -1)

    @property
    def goes(self) -> bool:
        """Whether one index is taken, so that it is not on the right."""
        return self.taken is not None and self.taken.is_index

    def __str__(self) -> str:
        if self.length is None:
            return _REST
        taken = "" if self.taken is None else f"[{self.taken}]"
        return f"{self.length}{taken}{'~' * self.is_reversed}"


Groups = tuple[tuple[Atom, ...], ...]
"""For each axis its parts, from the outer one to the inner."""


class Pattern(NamedTuple):
    """How axes are rearranged.

    Args:
        left: The axes of what there is.
        right: The axes that are made of the same parts; a part that is only there repeats.
    """

    left: Groups
    right: Groups

    @property
    def names(self) -> frozenset[str]:
        """The names of lengths."""
        atoms = [atom for side in self for group in side for atom in group]
        lengths = [atom.length for atom in atoms if atom.length is not None]
        taken = [atom.taken[:2] for atom in atoms if atom.taken is not None]
        lengths += [place for places in taken for place in places if place is not None]
        return frozenset().union(*[length.names for length in lengths])

    @property
    def takes(self) -> bool:
        """Whether only a part is taken of a part of an axis."""
        return any(atom.taken is not None for group in self.left for atom in group)

    @property
    def repeats(self) -> list[Atom]:
        """The parts that are only on the right."""
        there = {atom.kept for group in self.left for atom in group}
        return [
            atom
            for group in self.right
            for atom in group
            if atom.length not in there and not _is_one(atom)
        ]

    def inverse(self) -> Pattern | None:
        """The pattern back; ``None`` if this one repeats, or takes a part."""
        return None if self.repeats or self.takes else Pattern(self.right, self.left)

    def __str__(self) -> str:
        return f"{_written(self.left)} -> {_written(self.right)}"

    # -- with numbers --------------------------------------------------------------------------------

    def solve(self, shape: Sequence[int], known: Mapping[str, int]) -> dict[str, int]:
        """The lengths that a shape tells, besides those that are known.

        Raises:
            NoValueError: The shape has other axes, or does not fit the lengths.
        """
        left = _without_rest(self.left, len(shape))
        if len(left) != len(shape):
            raise NoValueError(
                None, f"{_written(self.left)} has {len(left)} axes, not {len(shape)}"
            )
        found: dict[str, int] = {}
        goes_on = True
        while goes_on:
            goes_on = False
            for group, length in zip(left, shape, strict=True):
                name = _unknown(group, {**known, **found})
                if name is not None:
                    found[name] = _length_of(group, name, length, {**known, **found})
                    goes_on = True
        return found

    def opened(
        self,
        shape: tuple[int, ...],
        start: int,
        steps: tuple[int, ...],
        known: Mapping[str, int],
    ) -> tuple[Pattern, tuple[int, ...], int, tuple[int, ...]]:
        """The pattern for what is taken, with the shape, the first position and the steps of that.

        Args:
            shape: The shape of a source, or of a part of it.
            start: Where it begins.
            steps: The step of each axis.
            known: The lengths.

        Raises:
            NoValueError: A length is not known, or the shape does not fit.
        """
        left: list[tuple[Atom, ...]] = []
        lengths: list[int] = []
        by: list[int] = []
        groups = _without_rest(self.left, len(shape))
        if len(groups) != len(shape):
            raise NoValueError(
                None, f"{_written(self.left)} has {len(groups)} axes, not {len(shape)}"
            )
        for group, length, step in zip(groups, shape, steps, strict=True):
            if all(atom.taken is None for atom in group):
                left.append(group)
                lengths.append(length)
                by.append(step)
                continue
            sizes = [_size(atom, length, known) for atom in group]
            if prod(sizes) != length:
                raise NoValueError(
                    None, f"{_in_group(group)} is {prod(sizes)}, and the axis {length}"
                )
            for atom, size, inner in zip(group, sizes, steps_of(sizes), strict=True):
                first, count = _taken(atom, size, known)
                start += first * inner * step
                if atom.goes:
                    continue
                left.append((Atom(atom.kept, atom.is_reversed),))
                lengths.append(count)
                by.append(inner * step)
        return Pattern(tuple(left), self.right), tuple(lengths), start, tuple(by)

    def apply(
        self, moves: Iterable[Move], shape: tuple[int, ...], known: Mapping[str, int]
    ) -> tuple[list[Move], tuple[int, ...]]:
        """The moves into the rearranged tensor, and its shape.

        Args:
            moves: Moves into a tensor.
            shape: Its shape.
            known: The lengths.

        Raises:
            NoValueError: A length is not known, or the shape does not fit.
            NotMovedError: It takes too many moves.
        """
        left = _without_rest(self.left, len(shape))
        if len(left) != len(shape):
            raise NoValueError(
                None, f"{_written(self.left)} has {len(left)} axes, not {len(shape)}"
            )
        right = _without_rest(self.right, len(shape) - _axes_of(self.left))
        atoms: list[tuple[object, int, bool]] = []
        for axis, (group, length) in enumerate(zip(left, shape, strict=True)):
            sizes = [_size(atom, length, known) for atom in group]
            if prod(sizes) != length:
                raise NoValueError(
                    None, f"{_in_group(group)} is {prod(sizes)}, and the axis {length}"
                )
            atoms += [
                (_key(atom, axis), size, atom.is_reversed)
                for atom, size in zip(group, sizes, strict=True)
            ]
        kept = [atom for atom in atoms if atom[1] != 1]
        split = tuple([size for _, size, _ in kept])
        keys = [key for key, _, _ in kept]
        made: list[tuple[object, int, bool]] = []
        result: list[int] = []
        first_rest = len(self.left) and _place_of_rest(self.left)
        for axis, group in enumerate(right):
            part = []
            for atom in group:
                key = _key_right(atom, axis, self.right, first_rest)
                size = dict(zip(keys, split, strict=True)).get(key)
                if size is None:
                    size = _size(atom, None, known) if atom.length is not None else 1
                part.append((key, size, atom.is_reversed))
            made += part
            result.append(prod(size for _, size, _ in part))
        places = [each for each in made if each[1] != 1]
        new_steps = steps_of([size for _, size, _ in places])
        step_of = {key: step for (key, _, _), step in zip(places, new_steps, strict=True)}
        is_turned = {key: turned for key, _, turned in places}
        lost = [key for key in keys if key not in step_of]
        if lost:
            raise NoValueError(None, f"{lost[0]} is only on the left of {self}")
        steps, start = [], 0
        for key, size, turned in kept:
            step = step_of[key]
            if turned != is_turned[key]:
                start += (size - 1) * step
                step = -step
            steps.append(step)
        repeated = [
            (size, step)
            for (key, size, _), step in zip(places, new_steps, strict=True)
            if key not in keys
        ]
        found = []
        for move in moves:
            for each in restrided(move, split, steps, start):
                found.append(_repeated(each, repeated))
        return found, tuple(result)


def _taken(atom: Atom, size: int, known: Mapping[str, int]) -> tuple[int, int]:
    """The first index that is taken of a part, and how many are."""
    if atom.taken is None:
        return 0, size
    first = 0 if atom.taken.start is None else atom.taken.start.value(known)
    if atom.goes:
        stop = first + 1
    else:
        stop = size if atom.taken.stop is None else atom.taken.stop.value(known)
    if not 0 <= first <= stop <= size:
        raise NoValueError(None, f"there is no [{atom.taken}] in a part of {size}")
    return first, stop - first


def _repeated(move: Move, axes: list[tuple[int, int]]) -> Move:
    """A move that is made once for each index of further axes of the target."""
    if not axes:
        return move
    return simplified(
        move._replace(
            sizes=(*[size for size, _ in axes], *move.sizes),
            target_steps=(*[step for _, step in axes], *move.target_steps),
            source_steps=(*[0 for _ in axes], *move.source_steps),
        )
    )


def _is_one(atom: Atom) -> bool:
    return atom.length is not None and atom.length.number == 1


def _axes_of(groups: Groups) -> int:
    return sum(not _is_rest(group) for group in groups)


def _is_rest(group: tuple[Atom, ...]) -> bool:
    return len(group) == 1 and group[0].length is None


def _place_of_rest(groups: Groups) -> int:
    return next((axis for axis, group in enumerate(groups) if _is_rest(group)), -1)


def _without_rest(groups: Groups, axes: int) -> Groups:
    """Groups with an axis for each that ``...`` stands for.

    Args:
        groups: The groups.
        axes: The number of axes that there are; on the right, only of those that it stands for.
    """
    place = _place_of_rest(groups)
    if place < 0:
        return groups
    rest = axes - _axes_of(groups) if axes >= _axes_of(groups) else 0
    return (*groups[:place], *[groups[place]] * rest, *groups[place + 1 :])


def _key(atom: Atom, axis: int) -> object:
    return ("axis", axis) if atom.length is None else atom.length


def _key_right(atom: Atom, axis: int, right: Groups, first_rest: int) -> object:
    if atom.length is not None:
        return atom.length
    return ("axis", axis - _place_of_rest(right) + first_rest)


def _size(atom: Atom, length: int | None, known: Mapping[str, int]) -> int:
    if atom.length is None:
        assert length is not None
        return length
    size = atom.length.value(known)
    if size < 0:
        raise NoValueError(None, f"{atom.length} is {size}, which is no length")
    return size


def _unknown(group: tuple[Atom, ...], known: Mapping[str, int]) -> str | None:
    """The only name in a group without a value, if it stands alone as a part; else ``None``."""
    unknown = [
        atom.length
        for atom in group
        if atom.length is not None and not atom.length.names <= known.keys()
    ]
    if len(unknown) != 1:
        return None
    linear = unknown[0].linear()
    names = unknown[0].names - known.keys()
    if linear is not None and len(names) == 1:
        return next(iter(names))
    above = _dividend(unknown[0])
    return above if above is not None and above not in known else None


def _dividend(length: Formula) -> str | None:
    """The name that is divided by a number, as in ``hd/2``."""
    if len(length.terms) != 1 or length.terms[0][1] != 1 or len(length.terms[0][0]) != 1:
        return None
    factor = length.terms[0][0][0]
    if isinstance(factor, tuple) and factor[1].number:
        above: Formula = factor[0]
        return above.name
    return None


def _length_of(group: tuple[Atom, ...], name: str, length: int, known: Mapping[str, int]) -> int:
    """The value of a name, from the length of its axis."""
    rest, found = 1, None
    for atom in group:
        assert atom.length is not None
        if atom.length.names <= known.keys():
            rest *= _size(atom, None, known)
        else:
            found = atom.length
    assert found is not None
    if not rest or length % rest:
        raise NoValueError(None, f"{_in_group(group)} does not fit an axis of {length}")
    size = length // rest
    above = _dividend(found)
    if above is not None:
        return size * _divisor(found)
    linear = found.linear()
    assert linear is not None
    constant, steps = linear
    left = size - constant - sum(step * known[each] for each, step in steps.items() if each != name)
    if left % steps[name]:
        raise NoValueError(None, f"{_in_group(group)} does not fit an axis of {length}")
    return left // steps[name]


def _divisor(length: Formula) -> int:
    factor = length.terms[0][0][0]
    assert isinstance(factor, tuple)
    number = factor[1].number
    assert isinstance(number, int)
    return number


def _in_group(group: tuple[Atom, ...]) -> str:
    text = " ".join(map(str, group))
    return text if len(group) == 1 else f"({text})"


def _written(groups: Groups) -> str:
    return " ".join(map(_in_group, groups))


# -- read ------------------------------------------------------------------------------------------


def pattern(text: str) -> Pattern:
    """Read a pattern.

    Raises:
        FileFormatError: It is none.
    """
    if len(text) > _LONGEST:
        raise FileFormatError(f"A pattern of {len(text)} characters is too long: {shown(text)}.")
    left, arrow, right = text.partition("->")
    if not arrow or "->" in right:
        raise FileFormatError(f"The pattern {shown(text)} has not one -> in it.")
    found = Pattern(_groups(left, text), _groups(right, text))
    for side in found:
        _validate_side(side, text)
    if (_place_of_rest(found.left) < 0) != (_place_of_rest(found.right) < 0):
        raise FileFormatError(f"The pattern {shown(text)} has ... on one side only.")
    there = {atom.length for group in found.right for atom in group}
    if any(atom.taken is not None for group in found.right for atom in group):
        raise FileFormatError(f"The pattern {shown(text)} takes a part on the right.")
    for group in found.left:
        for atom in group:
            if not atom.goes and atom.kept not in there and not _is_one(atom):
                raise FileFormatError(
                    f"The pattern {shown(text)} has {atom} only on the left: take a slice of it."
                )
    return found


def _validate_side(side: Groups, text: str) -> None:
    lengths = [atom.kept for group in side for atom in group if not _is_one(atom) and not atom.goes]
    if len(lengths) > _MOST_ATOMS:
        raise FileFormatError(f"The pattern {shown(text)} has more than {_MOST_ATOMS} parts.")
    twice = next((each for each in lengths if lengths.count(each) > 1), None)
    if len(set(lengths)) < len(lengths):
        raise FileFormatError(
            f"The pattern {shown(text)} has {twice or '...'} twice on one side: give one of them "
            "another name."
        )


def _groups(text: str, whole: str) -> Groups:
    found: list[tuple[Atom, ...]] = []
    for word in _words(text, whole):
        if word.startswith("("):
            inner = word[1:-1]
            found.append(tuple([_atom(each, whole) for each in _words(inner, whole)]))
        else:
            found.append((_atom(word, whole),))
    return tuple(found)


def _words(text: str, whole: str) -> list[str]:
    """Words between blanks, with what is in brackets together."""
    found, depth, word = [], 0, ""
    for each in text:
        if each == "(":
            depth += 1
        if each == ")":
            depth -= 1
        if each.isspace() and not depth:
            found += [word] if word else []
            word = ""
        else:
            word += each
    if depth:
        raise FileFormatError(f"The brackets in the pattern {shown(whole)} do not match.")
    return [*found, *([word] if word else [])]


def _atom(word: str, whole: str) -> Atom:
    if word == _REST:
        return Atom(None)
    is_reversed = word.endswith("~")
    word, bracket, inner = word.removesuffix("~").partition("[")
    length = formula(word)
    taken = _part(inner, whole) if bracket else None
    number = length.number
    if number is not None and number < 1:
        raise FileFormatError(f"The pattern {shown(whole)} has an axis of length {number}.")
    return Atom(length, is_reversed, taken)


def _part(text: str, whole: str) -> AxisSlice:
    """What is taken of a part: an index, or from where to where."""
    start, colon, stop = text.removesuffix("]").partition(":")
    if not text.endswith("]") or ":" in stop or not (start or colon):
        raise FileFormatError(f"The pattern {shown(whole)} takes no part by [{shown(text)}.")
    if not colon:
        return AxisSlice(formula(start), None, None, is_index=True)
    places = [formula(each) if each else None for each in (start, stop)]
    return AxisSlice(places[0], places[1], None)
