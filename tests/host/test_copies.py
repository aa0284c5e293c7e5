"""Many arrays are copied into one by one thread or by several, with the same result."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.host import copies


@pytest.fixture(params=[1, 2, 4], ids=lambda count: f"{count} threads")
def threads(request, monkeypatch):
    """As many processors, and so few bytes that all of them copy."""
    monkeypatch.setattr(copies, "MAPPED", 1)
    monkeypatch.setattr(copies, "processors", lambda: request.param)
    return request.param


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("shape", [(1,), (5,), (0,), (3, 4), (2, 0, 3), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex128"])
def test_arrays_are_copied_into_rows(threads, count, shape, dtype):
    rows = [np.random.default_rng(index).integers(0, 2, shape).astype(dtype) for index in range(count)]
    layouts = [np.asfortranarray, lambda x: x[::-1], lambda x: x, lambda x: np.repeat(x, 2, axis=0)[::2]]
    rows = [layouts[index % 4](x) for index, x in enumerate(rows)]
    out = np.empty((count, *shape), dtype)
    copies.gather(rows, out)
    assert np.array_equal(out, np.stack(rows))


@pytest.mark.fast_paths
@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_a_batch_of_much_data_is_copied_by_several_threads(monkeypatch, target):
    """From `memory.MAPPED` bytes on, which is where the system gives new memory for the batch."""
    seen = set()
    copy = copies._copy
    monkeypatch.setattr(copies, "processors", lambda: 3)
    monkeypatch.setattr(copies, "_copy", lambda *arguments: (seen.add(threading.get_ident()), copy(*arguments)))
    samples = [np.full((copies.MAPPED // 32,), index, np.float64) for index in range(5)]
    batch = ferry.to_numpy(ferry.collate(samples, target))
    assert len(seen) == 3
    assert [row.min() for row in batch] == [row.max() for row in batch] == [0, 1, 2, 3, 4]
    seen.clear()
    ferry.collate([x[:1000] for x in samples], target)
    assert seen <= {threading.get_ident()}
