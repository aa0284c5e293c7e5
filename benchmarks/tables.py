"""Columns and tables: pandas, polars, Arrow and datasets to PyTorch and JAX, against each library's own way."""

from __future__ import annotations

import importlib.util
from typing import Any

from .case import LARGE, Case, Section, Target

__all__ = ["SECTIONS"]


def _modules() -> dict[str, Any]:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc
    import torch

    import tensorferry as ferry

    return {"ferry": ferry, "torch": torch, "pa": pa, "pc": pc, "pd": pd, "pl": pl}


def _columns(rows: int, count: int, dtype: str) -> dict[str, Any]:
    """The same columns in each library; pandas has them in one block (`d`), and each in its own (`b`)."""
    import numpy as np

    names = _modules()
    values = {
        f"c{index}": np.random.default_rng(index).random(rows, "f8").astype(dtype)
        for index in range(count)
    }
    apart = [names["pd"].DataFrame({name: column}) for name, column in values.items()]
    return {
        **names,
        "d": names["pd"].DataFrame(values),
        "b": names["pd"].concat(apart, axis=1),
        "p": names["pl"].DataFrame(values),
        "a": names["pa"].table(values),
    }


def small() -> dict[str, Any]:
    names = _columns(16, 1, "f8")
    return {**names, "s": names["d"]["c0"], "q": names["p"]["c0"], "r": names["a"]["c0"].chunk(0)}


def wide() -> dict[str, Any]:
    return _columns(1000, 100, "f8")


def large() -> dict[str, Any]:
    return _columns(10_000_000, 8, "f4")


def nulls() -> dict[str, Any]:
    import numpy as np

    names = _modules()
    random = np.random.default_rng(0)
    return {
        **names,
        "x": names["pa"].array(random.random(10_000_000), mask=random.random(10_000_000) < 0.01),
    }


def dataset() -> dict[str, Any]:
    """512 rows of an image of 3x64x64 uint8, a label, 256 floats."""
    import datasets
    import numpy as np

    random = np.random.default_rng(0)
    features = datasets.Features(
        {
            "image": datasets.Array3D((3, 64, 64), "uint8"),
            "label": datasets.Value("int64"),
            "vector": datasets.Sequence(datasets.Value("float32")),
        }
    )
    rows = {
        "image": random.integers(0, 255, (512, 3, 64, 64)).astype("uint8"),
        "label": np.arange(512),
        "vector": random.random((512, 256), "f4"),
    }
    made = datasets.Dataset.from_dict(rows, features=features)
    formats = {name: made.with_format(name) for name in ("arrow", "torch", "jax")}
    return {**_modules(), **{f"in_{name}": each for name, each in formats.items()}}


def _no_datasets() -> str | None:
    if importlib.util.find_spec("datasets") is not None:
        return None
    return "datasets is not installed: `.venv-everyday/bin/python -m benchmarks --only dataset`, after `make everyday`"


_SMALL = (
    Case("ferry.to_torch(s)", "torch.from_numpy(s.to_numpy())", Target(ratio=3)),
    Case("ferry.to_torch(q)", "torch.from_numpy(q.to_numpy())", Target(ratio=3)),
    Case("ferry.to_torch(r)", "torch.from_numpy(r.to_numpy())", Target(ratio=3)),
)
_WIDE = (
    Case("ferry.to_torch(b)", "torch.from_numpy(b.to_numpy())", Target(ratio=1)),
    Case("ferry.to_torch(p)", "torch.from_numpy(p.to_numpy())", Target(ratio=1)),
    Case("ferry.to_torch(a)", "torch.from_numpy(a.to_pandas().to_numpy())", Target(ratio=1)),
    Case(
        'ferry.convert_tree(p, "torch")',
        "{x.name: torch.from_numpy(x.to_numpy()) for x in p}",
        Target(),
    ),
)
_LARGE = (
    Case("ferry.to_torch(d, copy=False)", "torch.from_numpy(d.to_numpy())", Target(extra=0.001)),
    Case("ferry.to_torch(b)", "torch.from_numpy(b.to_numpy())", Target(ratio=0.6)),
    Case("ferry.to_torch(p)", "torch.from_numpy(p.to_numpy())", Target(ratio=0.6)),
    Case("ferry.to_torch(a)", "torch.from_numpy(a.to_pandas().to_numpy())", Target(ratio=0.6)),
    # What it takes to move these bytes at all: one copy into new memory.
    Case("ferry.to_torch(b)", "d.to_numpy().T.copy()", Target()),
    Case("ferry.to_torch(a)", "d.to_numpy().T.copy()", Target()),
)
_NULLS = (
    Case(
        "ferry.to_torch(x, nulls=0)",
        "torch.from_numpy(pc.fill_null(x, 0).to_numpy())",
        Target(ratio=1.2),
    ),
)
"""Into memory of Arrow's pool, as in the other line."""
_DATASET = (
    Case('ferry.convert_tree(in_arrow[:256], "torch")', "in_torch[:256]", Target(ratio=0.06)),
    Case(
        'ferry.convert_tree(in_arrow[:256], "torch", copy=False)',
        "in_torch[:256]",
        Target(ratio=0.06),
    ),
    Case(
        'ferry.convert_tree(in_arrow[:256], "jax", dtype="fit")', "in_jax[:256]", Target(ratio=0.06)
    ),
)

SECTIONS = (
    Section("Tables: a column of 16 float64", small, _SMALL),
    Section("Tables: 100 columns of 1,000 float64", wide, _WIDE),
    Section("Tables: 8 columns of 1e7 float32", large, _LARGE, LARGE),
    Section("Tables: 1e7 float64 with nulls", nulls, _NULLS, LARGE),
    Section("Tables: 256 rows of a dataset", dataset, _DATASET, absent=_no_datasets),
)
