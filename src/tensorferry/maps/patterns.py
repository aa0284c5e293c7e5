"""`Pattern`: how axes are taken apart, reordered and joined: ``(h 2 hd/2) d -> (h hd/2 2) d``, as in einops."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ..errors import FileFormatError, shown
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
    """

    length: Formula | None
    is_reversed: bool = False

    def __str__(self) -> str:
        return _REST if self.length is None else f"{self.length}{'~' * self.is_reversed}"


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
        return frozenset().union(*[atom.length.names for atom in atoms if atom.length is not None])

    @property
    def repeats(self) -> list[Atom]:
        """The parts that are only on the right."""
        there = {atom.length for group in self.left for atom in group}
        return [
            atom
            for group in self.right
            for atom in group
            if atom.length not in there and not _is_one(atom)
        ]

    def inverse(self) -> Pattern | None:
        """The pattern back; ``None`` if this one repeats."""
        return None if self.repeats else Pattern(self.right, self.left)

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
                there = {**known, **found}
                unknown = _unknown(group, there)
                if unknown is not None:
                    found[unknown.name] = _length_of(group, unknown, length, there)
                    goes_on = True
        return found

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
                    size = _size(atom, 1, known)
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
            found += [_repeated(each, repeated) for each in restrided(move, split, steps, start)]
        return found, tuple(result)


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


def _size(atom: Atom, length: int, known: Mapping[str, int]) -> int:
    """The length of a part; of an axis as it is, that is given."""
    if atom.length is None:
        return length
    size = atom.length.value(known)
    if size < 0:
        raise NoValueError(None, f"{atom.length} is {size}, which is no length")
    return size


class _Unknown(NamedTuple):
    """A part whose length is a name times a number plus others, or a name over a number.

    Args:
        name: The name, which has no value yet.
        constant: What is added to it.
        times: By what it is multiplied.
        over: By what it is divided.
    """

    name: str
    constant: int = 0
    times: int = 1
    over: int = 1

    def value(self, length: int) -> int | None:
        """The value of the name, from the length of the part."""
        found, rest = divmod((length - self.constant) * self.over, self.times)
        return None if rest else found


def _unknown(group: tuple[Atom, ...], known: Mapping[str, int]) -> _Unknown | None:
    """The only part of a group with a name that has no value; ``None`` if it is not the only one."""
    unknown = [
        atom.length
        for atom in group
        if atom.length is not None and not atom.length.names <= known.keys()
    ]
    if len(unknown) != 1:
        return None
    (length,) = unknown
    linear = length.linear()
    if linear is not None:
        constant, steps = linear
        names = steps.keys() - known.keys()
        if len(names) != 1:
            return None
        (name,) = names
        constant += sum(step * known[each] for each, step in steps.items() if each != name)
        return _Unknown(name, constant, steps[name])
    return _over_number(length)


def _over_number(length: Formula) -> _Unknown | None:
    """A name that is divided by a number, as in ``hd/2``."""
    if len(length.terms) != 1 or length.terms[0][1] != 1 or len(length.terms[0][0]) != 1:
        return None
    (factor,) = length.terms[0][0]
    if not isinstance(factor, tuple):
        return None
    above, below = factor
    if above.name is None or not below.number:
        return None
    return _Unknown(above.name, over=below.number)


def _length_of(
    group: tuple[Atom, ...], unknown: _Unknown, length: int, known: Mapping[str, int]
) -> int:
    """The value of a name, from the length of its axis."""
    rest = 1
    for atom in group:
        if atom.length is not None and atom.length.names <= known.keys():
            rest *= _size(atom, 1, known)
    found = None
    if rest and not length % rest:
        found = unknown.value(length // rest)
    if found is None or found < 0:
        raise NoValueError(None, f"{_in_group(group)} does not fit an axis of {length}")
    return found


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
    for group in found.left:
        for atom in group:
            if atom.length not in there and not _is_one(atom):
                raise FileFormatError(
                    f"The pattern {shown(text)} has {atom} only on the left: take a slice of it."
                )
    return found


def _validate_side(side: Groups, text: str) -> None:
    lengths = [atom.length for group in side for atom in group if not _is_one(atom)]
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
    length = formula(word.rstrip("~") if is_reversed else word)
    number = length.number
    if number is not None and number < 1:
        raise FileFormatError(f"The pattern {shown(whole)} has an axis of length {number}.")
    return Atom(length, is_reversed)
