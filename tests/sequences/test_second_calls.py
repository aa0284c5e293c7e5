"""The second call, which takes a kept plan or the fast path, gives what the first gives."""

from __future__ import annotations

import pytest
from tests.support import lives, survives

UINT64 = """
    import tensorferry as ferry

    for x in ([2**63], [1, 2**63]):
        for _ in range(4):
            assert ferry.to_numpy(x).dtype == "uint64", x
            assert ferry.to_numpy(x, dtype="float64").dtype == "float64", x
"""
REST = """
    import numpy as np, torch
    import tensorferry as ferry

    one = torch.tensor(1.5)
    for rest in (2.0, [1.0], None, "text"):
        said = set()
        for _ in range(3):
            ferry.to_torch([one, one])
            try:
                said.add(str(ferry.to_torch([one, rest])))
            except ferry.ConversionError as error:
                said.add(str(error))
        assert len(said) == 1, said
"""


def test_ints_that_only_uint64_holds_stay_an_array():
    survives(UINT64)


def test_what_no_stack_holds_is_refused_the_same():
    pytest.importorskip("torch")
    lives(REST)
