"""What is met for the first time: shapes never seen, and kinds of tensors of which nothing is remembered."""

from __future__ import annotations

from itertools import product
from timeit import Timer
from typing import TYPE_CHECKING, Any

from tensorferry.execution import recipes

from .case import Measured, Target
from .pairs import CASTS, COPIES, PLAIN, TARGETS, TRACKED, cases, world
from .small import aligned, modules

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SECTIONS"]

MOST = 45
"""Shapes are all the pairs of 1 to so many; their mean is the one shape of the other side, and so is their size's."""
PART = 81
"""Tensors that are converted in one round."""
AS_SEEN = Target(ratio=1.2)
FIRST = Target(total=100e-6)
FIRSTS = 60
"""Times that something is done for the first time."""

_PLAIN = tuple(f"ferry.to_{target}({{0}})" for target in TARGETS)
_KEYWORDS = (
    "ferry.to_numpy({0}, copy=True)",
    'ferry.to_numpy({0}, dtype="float16")',
    "ferry.to_numpy({0}, out=out)",
    'ferry.to_torch({0}, device="cpu")',
    'ferry.to_torch({0}, dtype="float16")',
    "ferry.convert({0}, like=like)",
)
_LINES = {
    "a": (*_PLAIN, *_KEYWORDS),
    "t": (*_PLAIN, *_KEYWORDS),
    "s": (*_PLAIN, *_KEYWORDS),
    "g": _PLAIN,
    "p": _PLAIN,
    "x": _PLAIN,
    "j": _PLAIN,
}

_OWN = {
    "ferry.to_jax(a)": "jax.device_put(a)",
    "ferry.to_jax(t)": "jax.device_put(t.numpy())",
    "ferry.to_jax(s)": "jax.device_put(s.numpy())",
    "ferry.to_jax(g)": "jax.device_put(g.detach().numpy())",
    "ferry.to_jax(p)": "jax.device_put(p.detach().numpy())",
    "ferry.to_jax(x)": "jnp.from_dlpack(x)",
    "ferry.to_numpy(j)": "np.asarray(j)",
    "ferry.to_torch(j)": "torch.from_numpy(np.array(j))",
    "ferry.to_tensorflow(j)": "tf.constant(np.asarray(j))",
    "ferry.to_list(j)": "j.tolist()",
}
"""JAX keeps things by shape itself: what its own line takes longer for a shape never seen is added to a seen one."""


class _Shapes:
    title = f"A shape never seen / a seen one, both ours: {MOST**2} shapes of two axes, each once"

    def rows(self) -> Iterator[Measured]:
        names = modules()
        shapes = list(product(range(1, MOST + 1), repeat=2))
        names["np"].random.default_rng(5).shuffle(shapes)
        usual = ((MOST + 1) // 2,) * 2
        names["like"] = names["np"].zeros(usual, "float32")
        for source, lines in _LINES.items():
            # As many objects on both sides: the first touch of a tensor costs its framework
            # something.
            unseen = [_filled(names, source, tuple(shape)) for shape in shapes]
            seen = [_filled(names, source, usual) for _ in shapes]
            for line in lines:
                yield self._race(line.format(source), source, names, (unseen, seen))

    def _race(
        self, line: str, source: str, names: dict[str, Any], sides: tuple[list[Any], list[Any]]
    ) -> Measured:
        unseen, seen = self._times(line, source, names, sides)
        name, own = line.replace("ferry.", ""), _OWN.get(line)
        if own is not None:
            first, again = map(min, self._times(own, source, names, sides))
            seen = [time + max(first - again, 0.0) for time in seen]
            name += f" / and what {own} takes longer"
        return Measured.of(name, (unseen, seen), AS_SEEN)

    def _times(
        self, line: str, source: str, names: dict[str, Any], sides: tuple[list[Any], list[Any]]
    ) -> tuple[list[float], list[float]]:
        times: tuple[list[float], list[float]] = ([], [])
        recipes.forget_recipes()
        names["jax"].clear_caches()
        _loop(line, source, names, sides[1][:1])
        for turn, start in enumerate(range(0, len(sides[0]), PART)):
            for side in ((0, 1), (1, 0))[turn % 2]:
                part = sides[side][start : start + PART]
                times[side].append(_loop(line, source, names, part) / len(part))
        return times


def _filled(names: dict[str, Any], source: str, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """A tensor of a shape, and an array to write it into."""
    np, torch = names["np"], names["torch"]
    array = aligned(np.ones(shape, np.float32))
    make = {
        "a": lambda: array,
        "t": lambda: torch.ones(shape),
        "s": lambda: torch.ones(shape[0], 2 * shape[1])[:, ::2],
        "g": lambda: torch.ones(shape, requires_grad=True),
        "p": lambda: torch.nn.Parameter(torch.ones(shape)),
        "x": lambda: names["tf"].constant(array),
        "j": lambda: names["jax"].device_put(array),
    }
    return make[source](), np.empty(shape, np.float32)


def _loop(line: str, source: str, names: dict[str, Any], part: list[Any]) -> float:
    return Timer(f"for {source}, out in part: {line}", globals={**names, "part": part}).timeit(1)


class _Kinds:
    title = "The first conversion of a kind, nothing remembered / by hand"

    def rows(self) -> Iterator[Measured]:
        names = {**world(), "forget": recipes.forget_recipes}
        calls = {"": {**PLAIN, **TRACKED}, ", copy=True": COPIES, ', dtype="float16"': CASTS}
        for keywords, hands in calls.items():
            for case in cases(hands, FIRST, f"ferry.to_{{to}}({{source}}{keywords})"):
                sides = (
                    Timer(case.ours, "forget()", globals=names),
                    Timer(case.theirs, globals=names),
                )
                for side in sides:
                    side.timeit(1)
                times = [side.timeit(1) for _ in range(FIRSTS) for side in sides]
                yield Measured.of(case.name, (times[0::2], times[1::2]), case.target)


SECTIONS = (_Shapes(), _Kinds())
