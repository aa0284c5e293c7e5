"""benchmarks, *Loops*: what is timed beside the line that people write gives the same as that line."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import library_loops, loops, structures
from benchmarks.case import Section
from benchmarks.same import DifferentValuesError, demand_same

pytestmark = pytest.mark.fast_paths  # as it is timed

MODULES = (loops, library_loops, structures)
SECTIONS = [
    pytest.param(section, id=section.title)
    for module in MODULES
    for section in module.SECTIONS
    if isinstance(section, Section) and section.checks
]
LARGEST = "_50000"
"""The same lines are there for trees of 500 leaves."""


@pytest.mark.parametrize("section", SECTIONS)
def test_both_lines_give_the_same(section):
    """Each row's two sides, once, over the objects that are timed."""
    why = section.absent()
    if why is not None:
        pytest.skip(why)
    names = section.world()
    for case in section.cases:
        if LARGEST not in case.ours:
            section.check(case, names)


def test_the_tenth_call_gives_what_the_first_gave():
    """For each structure whose first, second and tenth calls are timed."""
    for number, new in enumerate(structures.new_structures()):
        tree = new.make(number)
        first, *_, tenth = (new.line(tree) for _ in range(structures.CALLS))
        demand_same(tenth, first)


ARRAY = np.arange(3, dtype=np.float32)


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ({"a": ARRAY}, {"a": ARRAY + 1}, r"\$\['a'\]: other values"),
        ({"a": ARRAY}, {"b": ARRAY}, "keys"),
        ((ARRAY,), (ARRAY, ARRAY), "length"),
        ([ARRAY], (ARRAY,), "class"),
        ({"a": [ARRAY]}, {"a": [ARRAY[:2]]}, "shape"),
        (ARRAY.astype(np.float64), ARRAY, "float64 is not float32"),
        (ARRAY.astype(np.int64), ARRAY, "int64 is not float32"),
        (np.array([0.0]), np.array([-0.0]), "other values"),
        ("a", "b", "value"),
        ([1, 2], [1, 3], "other values"),
    ],
)
def test_what_differs_is_found(ours, theirs, found):
    """The comparison can fail: for keys, lengths, classes, shapes, dtypes, values and signs."""
    demand_same(theirs, theirs)
    with pytest.raises(DifferentValuesError, match=found):
        demand_same(ours, theirs)


def test_another_framework_is_found():
    """Where the line by hand makes a tensor, an array is not the same."""
    torch = pytest.importorskip("torch")
    with pytest.raises(DifferentValuesError, match="ndarray"):
        demand_same(ARRAY, torch.from_numpy(ARRAY))


def test_floats_of_python_may_take_the_dtype_of_the_target():
    """`default_collate` makes float64 of them: rounded, they are ours."""
    torch = pytest.importorskip("torch")
    demand_same(torch.tensor([1 / 7]), torch.tensor([1 / 7], dtype=torch.float64))
    with pytest.raises(DifferentValuesError, match="other values"):
        demand_same(torch.tensor([1 / 7]), torch.tensor([1 / 8], dtype=torch.float64))
