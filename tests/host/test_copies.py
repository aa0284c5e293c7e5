"""Copies on several processors: the same bytes as one copy, however many processors there are."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

import tensorferry as ferry
from tensorferry.host import memory


@pytest.fixture
def names(monkeypatch):
    """Every copy is long; on which threads NumPy copied."""
    found = []

    def concatenate(*arguments, **keywords):
        found.append(threading.current_thread().name)
        return copy(*arguments, **keywords)

    copy = np.concatenate
    monkeypatch.setattr(memory, "MAPPED", 1)
    monkeypatch.setattr(memory.np, "concatenate", concatenate)
    return found


def rows_of(count):
    return [np.arange(7.0) + 10 * index for index in range(count)]


@pytest.mark.parametrize("processors", [1, 2, 3, 64])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 101])
def test_each_row_is_copied_once(names, monkeypatch, processors, count):
    """By as many threads as there are processors, rows or four; one of them is the caller's."""
    monkeypatch.setattr(memory, "processor_count", lambda: processors)
    out = np.full((count, 7), -1.0)
    memory.gather_rows(rows_of(count), out)
    assert out.tolist() == [row.tolist() for row in rows_of(count)]
    assert len(names) == min(processors, count, 4)
    assert names.count(threading.current_thread().name) == 1


def test_a_short_copy_starts_no_thread(names, monkeypatch):
    """From so many bytes on there are several, and not below."""
    monkeypatch.setattr(memory, "MAPPED", 8 * 7 * 8 + 1)
    monkeypatch.setattr(memory, "processor_count", lambda: 2)
    memory.gather_rows(rows_of(8), np.empty((8, 7)))
    assert names == [threading.current_thread().name]
    memory.gather_rows(rows_of(9), np.empty((9, 7)))
    assert len(names) == 3


@pytest.mark.parametrize("started", [0, 1, 2])
def test_where_no_thread_can_start_the_caller_copies_all(names, monkeypatch, started):
    """As when the interpreter is about to end; whether some could start before or not."""
    left = [started]

    def submit(self, *arguments, **keywords):
        if not left[0]:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")
        left[0] -= 1
        return as_ever(self, *arguments, **keywords)

    as_ever = ThreadPoolExecutor.submit
    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    monkeypatch.setattr(memory, "processor_count", lambda: 4)
    out = np.full((9, 7), -1.0)
    memory.gather_rows(rows_of(9), out)
    assert out.tolist() == [row.tolist() for row in rows_of(9)]


def test_an_error_of_another_thread_is_the_callers(monkeypatch):
    """A row of another length, in the part that another thread copies."""
    monkeypatch.setattr(memory, "MAPPED", 1)
    monkeypatch.setattr(memory, "processor_count", lambda: 2)
    rows = rows_of(4)
    rows[3] = np.zeros(6)
    with pytest.raises(ValueError, match="wrong shape"):
        memory.gather_rows(rows, np.empty((4, 7)))


def test_a_frame_is_gathered_on_several_threads(names, monkeypatch):
    """Columns that pandas keeps apart, in an order of their own."""
    monkeypatch.setattr(memory, "processor_count", lambda: 2)
    frame = pd.concat(
        [pd.DataFrame({name: np.arange(5.0) + place}) for place, name in enumerate("abcde")], axis=1
    )
    frame.insert(2, "z", np.full(5, 9.0))
    names.clear()
    array = ferry.to_numpy(frame)
    assert len(names) == 2
    assert array.tolist() == [[row, row + 1, 9, row + 2, row + 3, row + 4] for row in range(5)]
