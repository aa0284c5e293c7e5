"""`make mutants` puts in each kind of fault that it names, one alone, and none where no test could see it."""

from __future__ import annotations

import ast

import pytest
from tests.mutants.mutants import PACKAGE, ROOT, TESTS, faults

SOURCE = '''
def f(x: int = 1) -> int:
    """Documented."""
    y = x
    if x < 3 and y:
        y = 2
    while not y:
        y += 1
    return [each for each in x if each]
'''


def test_each_kind_of_fault_is_put_in_alone():
    """A statement dropped, a comparison flipped, and/or swapped, a condition negated: one line each, all compile."""
    tree = ast.parse(SOURCE)
    before = ast.unparse(tree)
    made = list(faults(tree))
    assert ast.unparse(tree) == before
    assert {fault[:3] for fault in made} == {
        (5, "x < 3 and y", "x < 3 or y"),
        (5, "x < 3 and y", "not (x < 3 and y)"),
        (5, "x < 3", "x <= 3"),
        (6, "y = 2", "pass"),
        (7, "not y", "y"),
        (8, "y += 1", "pass"),
        (9, "return [each for each in x if each]", "pass"),
        (9, "each", "not each"),
    }
    for _, _, _, whole in made:
        changed = [line for line in whole.splitlines() if line not in before.splitlines()]
        assert len(changed) == 1, whole
        compile(whole, "mutant", "exec")


@pytest.mark.parametrize("module", TESTS)
def test_what_is_changed_and_what_finds_it_are_there(module):
    """A folder or file that is renamed takes its line here with it."""
    assert (ROOT / PACKAGE / module).exists()
    assert all((ROOT / path).exists() for path in TESTS[module])
