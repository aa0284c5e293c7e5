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
        axes = _expanded(self.left, len(self._rest(len(shape))))
        left = [tuple([atom for _, atom in group]) for group in axes]
        solved: dict[str, int] = {}
        goes_on = True
        while goes_on:
            goes_on = False
            for group, length in zip(left, shape, strict=True):
                there = {**known, **solved}
                unknown = _unknown(group, there)
                if unknown is not None:
                    solved[unknown.name] = _length_of(group, unknown, length, there)
                    goes_on = True
        return solved

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
        expanded = _expanded(self.left, len(self._rest(len(shape))))
        groups = [tuple([atom for _, atom in group]) for group in expanded]
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
        left, right = self._with_numbers(shape, known)
        target = {part.key: part for group in right for part in group if part.size != 1}
        own = [part for group in left for part in group if part.size != 1]
        lost = next((part for part in own if part.key not in target), None)
        if lost is not None:
            raise NoValueError(None, f"{lost.key} is only on the left of {self}")
        step_of = dict(zip(target, steps_of([part.size for part in target.values()]), strict=True))
        steps, start = [], 0
        for part in own:
            step = step_of[part.key]
            if part.is_reversed != target[part.key].is_reversed:
                start += (part.size - 1) * step
                step = -step
            steps.append(step)
        there = {part.key for part in own}
        repeated = [(part.size, step_of[key]) for key, part in target.items() if key not in there]
        split = tuple([part.size for part in own])
        moved = []
        for move in moves:
            moved += [
                _repeated(strided, repeated) for strided in restrided(move, split, steps, start)
            ]
        return moved, tuple([prod(part.size for part in group) for group in right])

    def _with_numbers(
        self, shape: tuple[int, ...], known: Mapping[str, int]
    ) -> tuple[list[list[_AxisPart]], list[list[_AxisPart]]]:
        """Both sides with the lengths of their parts."""
        rest = self._rest(len(shape))
        sizes: dict[object, int] = {}
        sides = []
        for number, side in enumerate(self):
            numbered = []
            for place, group in enumerate(_expanded(side, len(rest))):
                length = shape[place] if number == 0 else 1
                parts = [_part(key, atom, length, sizes, known) for key, atom in group]
                if number == 0 and prod(part.size for part in parts) != length:
                    size = prod(part.size for part in parts)
                    text = _in_group(tuple([atom for _, atom in group]))
                    raise NoValueError(None, f"{text} is {size}, and the axis {length}")
                sizes |= {part.key: part.size for part in parts}
                numbered.append(parts)
            sides.append(numbered)
        return sides[0], sides[1]

    def _rest(self, axes: int) -> range:
        """The axes that ``...`` stands for."""
        own = sum(not _is_rest(group) for group in self.left)
        has_rest = own < len(self.left)
        if axes < own or (axes > own and not has_rest):
            wanted = "1 axis" if own == 1 else f"{own} axes"
            raise NoValueError(
                None, f"{_written(self.left)} is for {wanted}, and the tensor has {axes}"
            )
        return range(axes - own)


class _AxisPart(NamedTuple):
    """A part of an axis, with its length in numbers.

    Args:
        key: What it is on both sides.
        size: Its length.
        is_reversed: Whether it is read from its end.
    """

    key: object
    size: int
    is_reversed: bool


def _part(
    key: object, atom: Atom, length: int, sizes: Mapping[object, int], known: Mapping[str, int]
) -> _AxisPart:
    size = sizes.get(key)
    if size is None:
        size = _size(atom, length, known)
    return _AxisPart(key, size, atom.is_reversed)


def _expanded(groups: Groups, rest: int) -> list[list[tuple[object, Atom]]]:
    """Groups with an axis for each that ``...`` stands for, each part with its key."""
    expanded: list[list[tuple[object, Atom]]] = []
    for group in groups:
        if _is_rest(group):
            expanded += [[(number, group[0])] for number in range(rest)]
        else:
            expanded.append([(atom.length, atom) for atom in group])
    return expanded


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


def _is_rest(group: tuple[Atom, ...]) -> bool:
    return len(group) == 1 and group[0].length is None


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
        quotient, rest = divmod((length - self.constant) * self.over, self.times)
        return None if rest else quotient


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
        constant += sum(
            step * known[step_name] for step_name, step in steps.items() if step_name != name
        )
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
    value = None
    if rest and not length % rest:
        value = unknown.value(length // rest)
    if value is None or value < 0:
        raise NoValueError(None, f"{_in_group(group)} does not fit an axis of {length}")
    return value


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
    sides = Pattern(_groups(left, text), _groups(right, text))
    for side in sides:
        _validate_side(side, text)
    if any(map(_is_rest, sides.left)) != any(map(_is_rest, sides.right)):
        raise FileFormatError(f"The pattern {shown(text)} has ... on one side only.")
    there = {atom.length for group in sides.right for atom in group}
    if any(atom.taken is not None for group in sides.right for atom in group):
        raise FileFormatError(f"The pattern {shown(text)} takes a part on the right.")
    for group in sides.left:
        for atom in group:
            if not atom.goes and atom.kept not in there and not _is_one(atom):
                raise FileFormatError(
                    f"The pattern {shown(text)} has {atom} only on the left: take a slice of it."
                )
    return sides


def _validate_side(side: Groups, text: str) -> None:
    lengths = [atom.kept for group in side for atom in group if not _is_one(atom) and not atom.goes]
    if len(lengths) > _MOST_ATOMS:
        raise FileFormatError(f"The pattern {shown(text)} has more than {_MOST_ATOMS} parts.")
    twice = next((length for length in lengths if lengths.count(length) > 1), None)
    if len(set(lengths)) < len(lengths):
        raise FileFormatError(
            f"The pattern {shown(text)} has {twice or '...'} twice on one side: give one of them "
            "another name."
        )


def _groups(text: str, whole: str) -> Groups:
    groups: list[tuple[Atom, ...]] = []
    for word in _words(text, whole):
        if word.startswith("("):
            inner = word[1:-1]
            groups.append(
                tuple([_atom(word_inside, whole) for word_inside in _words(inner, whole)])
            )
        else:
            groups.append((_atom(word, whole),))
    return tuple(groups)


def _words(text: str, whole: str) -> list[str]:
    """Words between blanks, with what is in brackets together."""
    words, depth, word = [], 0, ""
    for character in text:
        if character == "(":
            depth += 1
        if character == ")":
            depth -= 1
        if character.isspace() and not depth:
            words += [word] if word else []
            word = ""
        else:
            word += character
    if depth:
        raise FileFormatError(f"The brackets in the pattern {shown(whole)} do not match.")
    return [*words, *([word] if word else [])]


def _atom(word: str, whole: str) -> Atom:
    if word == _REST:
        return Atom(None)
    is_reversed = word.endswith("~")
    word, bracket, inner = word.removesuffix("~").partition("[")
    length = formula(word)
    taken = _slice_of(inner, whole) if bracket else None
    number = length.number
    if number is not None and number < 1:
        raise FileFormatError(f"The pattern {shown(whole)} has an axis of length {number}.")
    return Atom(length, is_reversed, taken)


def _slice_of(text: str, whole: str) -> AxisSlice:
    """What is taken of a part: an index, or from where to where."""
    start, colon, stop = text.removesuffix("]").partition(":")
    if not text.endswith("]") or ":" in stop or not (start or colon):
        raise FileFormatError(f"The pattern {shown(whole)} takes no part by [{shown(text)}.")
    if not colon:
        return AxisSlice(formula(start), None, None, is_index=True)
    places = [formula(place) if place else None for place in (start, stop)]
    return AxisSlice(places[0], places[1], None)
