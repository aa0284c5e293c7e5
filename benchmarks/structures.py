"""Loops by their structures: trees of all sizes, structures in turn, first calls, and keywords."""

from __future__ import annotations

import gc
from dataclasses import dataclass, make_dataclass
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .by_hand import nested_to_numpy
from .case import Case, Measured, Pace, Section, Target
from .loops import FEWEST, LOOKS, OFTEN, SAME, loops, names, network, state_dict_of
from .timing import paths_open

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["SECTIONS", "new_structures"]

SIZES = (1, 5, 50, 500, 50_000)
SELDOM = Pace(rounds=15, batch=1e-3, best=True, limit=15.0)
"""A tree of 50,000 leaves takes some ten milliseconds."""

KEYWORD = Target(ratio=1.2)

# -- trees of all sizes ----------------------------------------------------------------------------


def _tree(size: int, leaf: Callable[[], Any], prefix: str = "layer") -> dict[str, Any]:
    """Dicts of a weight and a bias each, in a dict, as the parameters of many libraries are."""
    flat = [leaf() for _ in range(size)]
    return {
        f"{prefix}{start}": dict(zip(("weight", "bias"), flat[start : start + 2], strict=False))
        for start in range(0, size, 2)
    }


def _sizes() -> dict[str, Any]:
    import numpy as np
    import torch

    made: dict[str, Any] = {}
    for size in SIZES:
        made[f"tensors_{size}"] = _tree(size, lambda: torch.ones(4))
        made[f"arrays_{size}"] = _tree(size, lambda: np.ones(4, np.float32))
    return {**names(), **made, "nested_clone": _nested_clone, "nested_tensor": _nested_tensor}


def _nested_clone(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _nested_clone(value) for key, value in tree.items()}
    return tree.clone()


def _nested_tensor(tree: Any) -> Any:
    import torch

    if isinstance(tree, dict):
        return {key: _nested_tensor(value) for key, value in tree.items()}
    return torch.tensor(tree)


_FEW_COPIES = {1: Target(ratio=2.9), 5: Target(ratio=2.2)}
"""By the number of leaves. Of the rest, PyTorch clones many together faster than one by one."""


def _target(size: int, rest: Target) -> Target:
    """What one call takes is a good part of the whole in a tree of few leaves."""
    return FEWEST if size <= 5 else rest


_SIZES = tuple(
    case
    for size in SIZES
    for case in (
        Case(
            f'ferry.convert_tree(tensors_{size}, "numpy")',
            f"nested_to_numpy(tensors_{size})",
            _target(size, SAME),
        ),
        Case(
            f"ferry.snapshot(tensors_{size})",
            f"nested_clone(tensors_{size})",
            _FEW_COPIES.get(size, LOOKS),
        ),
        Case(
            f'ferry.convert_tree(arrays_{size}, "torch", copy=True)',
            f"nested_tensor(arrays_{size})",
            _target(size, SAME),
        ),
    )
)


# -- structures in turn ----------------------------------------------------------------------------


def _turns() -> dict[str, Any]:
    import numpy as np
    import torch

    trees = [_tree(20 + extra, lambda: torch.ones(4), f"block{extra}_") for extra in range(8)]
    fields = ("ids", "mask", "labels", "weight", "image", "age", "score", "place")
    batches = [
        [
            {name: np.ones(4, np.float32) for name in fields[: 1 + extra]} | {"index": number}
            for number in range(16)
        ]
        for extra in range(8)
    ]
    numbers = count()
    leaves = [torch.ones(4) for _ in range(50)]
    return {
        **names(),
        "eight": trees,
        "alike": [trees[4]] * 8,
        "batches": batches,
        "batches_alike": [batches[4]] * 8,
        "renamed": lambda: {f"sample{next(numbers)}": each for each in leaves},
        "by_name": {f"sample{number}": each for number, each in enumerate(leaves)},
    }


_TURNS = (
    # Batches out of eight buckets, or of eight tasks.
    Case(
        '[ferry.convert_tree(tree, "numpy") for tree in eight]',
        "[nested_to_numpy(tree) for tree in eight]",
        SAME,
    ),
    Case(
        '[ferry.collate(samples, "torch") for samples in batches]',
        "[default_collate(samples) for samples in batches]",
        LOOKS,
    ),
    # A dict by the name of the sample, which is another one in each step.
    Case(
        'list(ferry.convert_tree(renamed(), "numpy").values())',
        "[v.detach().cpu().numpy() for v in renamed().values()]",
        LOOKS,
    ),
)

_TURNS_OF_OURS = (
    # What the turns cost: as many leaves of one structure.
    Case(
        '[ferry.convert_tree(tree, "numpy") for tree in eight]',
        '[ferry.convert_tree(tree, "numpy") for tree in alike]',
        KEYWORD,
    ),
    Case(
        '[ferry.collate(samples, "torch") for samples in batches]',
        '[ferry.collate(samples, "torch") for samples in batches_alike]',
        KEYWORD,
    ),
)


# -- keywords --------------------------------------------------------------------------------------


def _keywords() -> dict[str, Any]:
    import jax.numpy as jnp
    import numpy as np
    import torch

    state = state_dict_of(network(8))
    floats = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}
    return {
        **names(),
        "batch": {
            "x": torch.randn(32, 8),
            "y": torch.arange(32),
            "m": torch.ones(32, dtype=torch.bool),
        },
        "state": state,
        "floats": floats,
        "others": {name: tensor.clone() for name, tensor in floats.items()},
        "views": {name: tensor.numpy() for name, tensor in floats.items()},
        "arrays": {name: tensor.numpy().copy() for name, tensor in floats.items()},
        "jaxes": {name: jnp.asarray(tensor.numpy()) for name, tensor in floats.items()},
        "samples": [
            {"x": np.ones(16, np.float32), "y": number, "z": number / 2} for number in range(64)
        ],
        "points": [torch.randn(16) for _ in range(64)],
        "array": np.ones(4, np.float32),
        "tensor": torch.ones(4),
    }


def _with(call: str, *keywords: str) -> tuple[Case, ...]:
    """A call with each of some keywords, beside the call without."""
    return tuple(Case(f"{call[:-1]}, {each})", call, KEYWORD) for each in keywords)


_KEYWORDS = (
    # Views: the keywords ask for what there is.
    *_with('ferry.convert_tree(batch, "numpy")', 'dtype="float32"', 'device="cpu"', "copy=False"),
    Case("ferry.convert_tree(batch, like=array)", 'ferry.convert_tree(batch, "numpy")', KEYWORD),
    *_with('ferry.convert_tree(state, "numpy")', 'dtype="float32"', 'device="cpu"', "copy=False"),
    Case("ferry.convert_tree(state, like=array)", 'ferry.convert_tree(state, "numpy")', KEYWORD),
    *_with('ferry.convert_tree(arrays, "torch")', 'dtype="float32"', 'device="cpu"', "copy=False"),
    Case("ferry.convert_tree(arrays, like=tensor)", 'ferry.convert_tree(arrays, "torch")', KEYWORD),
    # Copies: JAX's memory is copied for PyTorch in any case.
    *_with('ferry.convert_tree(jaxes, "torch")', "copy=True", 'dtype="float32"', 'device="cpu"'),
    # Into memory that is there, beside memory that is allocated.
    *(
        Case(
            f"ferry.convert_tree({source}, {to}, out={out})",
            f"ferry.convert_tree({source}, {to}, copy=True)",
            KEYWORD,
        )
        for source, to, out in (
            ("floats", '"torch"', "others"),
            ("arrays", '"torch"', "others"),
            ("jaxes", '"numpy"', "arrays"),
        )
    ),
    # Batches.
    *_with('ferry.collate(samples, "torch")', 'dtype="float32"', 'device="cpu"'),
    Case("ferry.collate(samples, like=tensor)", 'ferry.collate(samples, "torch")', KEYWORD),
    *_with('ferry.collate(points, "torch")', 'dtype="float32"', 'device="cpu"'),
    Case("ferry.collate(points, like=tensor)", 'ferry.collate(points, "torch")', KEYWORD),
)


# -- the first, second and tenth call --------------------------------------------------------------

SECOND = Target(ratio=1.3)
"""Beside the tenth call. What a structure may take once is 30 us, and 3 us a leaf."""
CALLS = 10
STRUCTURES = 40
"""As many trees with keys of their own: of each, the first ten calls are timed one by one."""


@dataclass(frozen=True)
class New:
    """A kind of tree or batch, made anew with keys that no call has seen.

    Args:
        name: What is done, as the table has it.
        leaves: The leaves of the tree, or of a sample.
        make: Makes one; the number makes its keys its own.
        line: What is called with it.
    """

    name: str
    leaves: int
    make: Callable[[int], Any]
    line: Callable[[Any], Any]

    @property
    def rows(self) -> tuple[tuple[int, str, Target], ...]:
        """The number of a call, and the name and target of its row beside the tenth."""
        tree = f"{self.name}, {self.leaves} {'leaf' if self.leaves == 1 else 'leaves'} / tenth"
        once = Target(extra=30e-6 + 3e-6 * self.leaves)
        return (1, f"second {tree}", SECOND), (0, f"first {tree}", once)


def _flat(size: int) -> Callable[[int], Any]:
    import torch

    return lambda number: {f"t{number}_{index}": torch.ones(4) for index in range(size)}


def _nested(size: int) -> Callable[[int], Any]:
    import torch

    return lambda number: _tree(size, lambda: torch.ones(4), f"t{number}_")


_FIELDS = ("logits", "loss", "hidden", "attention", "labels")


def _object(number: int) -> Any:
    """An object of a class that no call has seen."""
    import torch

    return make_dataclass(f"Output{number}", _FIELDS)(*(torch.ones(4) for _ in _FIELDS))


def _samples(size: int) -> Callable[[int], Any]:
    import numpy as np

    def made(number: int) -> list[dict[str, Any]]:
        keys = [f"s{number}_{index}" for index in range(size)]
        return [
            {key: np.ones(4, np.float32) if index % 2 else index for index, key in enumerate(keys)}
            for _ in range(8)
        ]

    return made


def new_structures() -> Iterator[New]:
    """The kinds of trees and batches whose first calls are timed."""
    import tensorferry as ferry

    def to_numpy(tree: Any) -> Any:
        return ferry.convert_tree(tree, "numpy")

    def to_torch(samples: Any) -> Any:
        return ferry.collate(samples, "torch")

    for size in SIZES[:-1]:
        yield New('convert_tree(dict, "numpy")', size, _flat(size), to_numpy)
    yield New('convert_tree(dicts in a dict, "numpy")', 50, _nested(50), to_numpy)
    model = network(7)

    def state_dict(number: int) -> Any:
        return model.state_dict(prefix=f"m{number}.")

    yield New('convert_tree(state_dict(), "numpy")', len(state_dict(0)), state_dict, to_numpy)
    yield New('convert_tree(dataclass, "numpy")', len(_FIELDS), _object, to_numpy)
    yield New("snapshot(dict)", 50, _flat(50), ferry.snapshot)
    for size in (2, 20):
        yield New('collate(8 dicts, "torch")', size, _samples(size), to_torch)


def _timed(new: New, numbers: Iterator[int]) -> list[list[float]]:
    """The seconds of the first ten calls with each of some structures: a list for each call."""
    trees = [new.make(next(numbers)) for _ in range(STRUCTURES)]
    times: list[list[float]] = [[] for _ in range(CALLS)]
    for _ in range(3):
        new.line(new.make(next(numbers)))  # what such leaves need is made once, and is not counted
    gc.collect()
    gc.disable()
    try:
        for tree in trees:
            if isinstance(tree, dict):
                nested_to_numpy(tree)  # the tensors come into the processor's cache
            for each in times:
                begin = perf_counter()
                new.line(tree)
                each.append(perf_counter() - begin)
    finally:
        gc.enable()
    return times


class _Calls:
    title = "Loops: calls with a structure, beside the tenth"

    def rows(self) -> Iterable[Measured]:
        numbers = count()
        with paths_open(True):
            for new in new_structures():
                times = _timed(new, numbers)
                for number, name, target in new.rows:
                    yield Measured.of(name, (times[number], times[-1]), target)


SECTIONS = (
    loops(f"trees of 1 to {SIZES[-1]:,} leaves", _sizes, _SIZES, pace=SELDOM),
    loops("structures in turn", _turns, _TURNS),
    Section("Loops: structures in turn, beside one structure", _turns, _TURNS_OF_OURS, OFTEN),
    loops("keywords, beside the same call without", _keywords, _KEYWORDS, "jax"),
    _Calls(),
)
