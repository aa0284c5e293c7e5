"""Columns and tables, to a real GPU: the host's values, all over there; skipped elsewhere."""

from __future__ import annotations

import pytest
from tests.columns.on_devices import compare_all

pytest.importorskip("torch")

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("_wide_jax")]


@pytest.mark.parametrize(
    ("target", "host"), [("torch", "torch"), ("jax", "jax"), ("cupy", "numpy")]
)
def test_a_device_gets_what_the_host_gets(target, host):
    pytest.importorskip(target)
    compare_all(target, "cuda:0", host)
