"""Weight maps: a check of many tensors, a table from two files, and files through a table."""

from __future__ import annotations

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .case import Case, Pace, Section, Target

__all__ = ["SECTIONS"]

_TENSORS = 100_000
_LAYERS = 8
_SIDE = 4096


def headers() -> dict[str, Any]:
    """Tables over 100,000 tensors, of which only the shapes are known."""
    import tensorferry as ferry

    source = {
        f"layers.{i}.w": ferry.TensorInfo("numpy", (4096, 1024), "float32") for i in range(_TENSORS)
    }
    table = ferry.WeightMap.parse(
        '[map]\n"l.{i}.a" = "layers.{i}.w[:1024] : a b -> b a"\n"l.{i}.b" = "layers.{i}.w[1024:]"'
    )
    name = "layers.{layer}.experts.{number}.w"
    experts = {
        name.format(layer=number // 8, number=number % 8): ferry.TensorInfo(
            "numpy", (14336, 4096), "bfloat16"
        )
        for number in range(_TENSORS)
    }
    stacked = ferry.WeightMap.parse(
        '[map]\n"l.{i}.w" = { stack = "e", of = "layers.{i}.experts.{e}.w : a b -> b a" }'
    )
    return {
        "table": table,
        "source": source,
        "stacked": stacked,
        "experts": experts,
        "nothing": lambda: None,
    }


def converters() -> dict[str, Any]:
    """Models of which only the shapes are known, and where each element of a tensor comes from."""
    import numpy as np

    import tensorferry as ferry
    from tensorferry.maps.fitting import fit

    def model(width: int, layers: int) -> dict[str, Any]:
        shapes = {"embed": (32 * width, width), "norm": (width,)}
        for layer in range(layers):
            shapes |= {f"h.{layer}.{name}.weight": (width, width) for name in "qkvo"}
            shapes |= {f"h.{layer}.{name}.weight": (3 * width, width) for name in ("gate", "up")}
            shapes |= {f"h.{layer}.down.weight": (width, 3 * width)}
        return {name: ferry.TensorInfo("torch", each, "bfloat16") for name, each in shapes.items()}

    # 46 M elements: the halves of each head one behind the other, as for rotary positions.
    index = np.arange(11_264 * 4096).reshape(176, 2, 32, 4096).transpose(0, 2, 1, 3).reshape(-1)
    return {
        "large": model(512, 12),
        "tiny": model(64, 2),
        "trace": lambda source: ferry.WeightMap.trace(rearranged, source),
        "passes": own_passes,
        "fit": lambda: fit(index, (11_264, 4096), {"w": (11_264, 4096)}),
        "nothing": lambda: None,
    }


def rearranged(weights: dict[str, Any]) -> dict[str, Any]:
    """A converter: some weights in heads, some transposed, all under other names."""
    found = {}
    for name, weight in weights.items():
        made = weight
        if ".q." in name or ".k." in name:
            heads = weight.reshape(-1, 2, 16, weight.shape[1])
            made = heads.transpose(1, 2).reshape(weight.shape)
        elif ".down." in name:
            made = weight.T.contiguous()
        found[f"model.{name}"] = made
    return found


def own_passes(source: dict[str, Any]) -> None:
    """What is not ours of a trace: a process that imports the framework and runs ten passes."""
    import subprocess
    import sys

    shapes = {name: tuple(each.shape) for name, each in source.items()}
    code = (
        "import torch\nfrom benchmarks.maps import rearranged\nfor _ in range(10):\n"
        f"    rearranged({{n: torch.zeros(s, dtype=torch.bfloat16) for n, s in {shapes}.items()}})"
    )
    paths = os.pathsep.join(each or "." for each in sys.path)
    environment = {**os.environ, "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)  # noqa: S603 - our own


def two_files() -> dict[str, Any]:
    """Pairs of files of the same weights, what makes a table of each, and what hashes both."""
    import hashlib

    import tensorferry as ferry

    folder = Path(tempfile.mkdtemp(prefix="tensorferry-maps-"))
    found: dict[str, Any] = {}
    for make in (model, experts, heads, rounded):
        name = make.__name__
        found[name] = folder / f"{name}.a.safetensors", folder / f"{name}.b.safetensors"
        for tensors, path in zip(make(), found[name], strict=True):
            ferry.save(tensors, path)

    def digests(pair: tuple[Path, Path]) -> None:
        for path in pair:
            hashlib.blake2b(path.read_bytes()).digest()

    return {**found, "infer": lambda pair: ferry.WeightMap.infer(*pair), "digests": digests}


def model() -> tuple[dict[str, Any], dict[str, Any]]:
    """The weights of a small model, and the same with transposed kernels."""
    import numpy as np

    random = np.random.default_rng(0)
    one = {"embed": random.standard_normal((30_000, 384), "float32")}
    for i in range(6):
        for name, shape in (("q", (384, 384)), ("k", (384, 384)), ("v", (384, 384))):
            one[f"h.{i}.{name}.weight"] = random.standard_normal(shape, "float32")
        one[f"h.{i}.up.weight"] = random.standard_normal((1536, 384), "float32")
        one[f"h.{i}.down.weight"] = random.standard_normal((384, 1536), "float32")
        one[f"h.{i}.norm.weight"] = random.standard_normal(384, "float32")
    two = {
        f"model.{name}": x.T.copy() if x.ndim == 2 and "weight" in name else x
        for name, x in one.items()
    }
    return one, two


def experts() -> tuple[dict[str, Any], dict[str, Any]]:
    """64 experts of 1.4 MB, apart and transposed as one tensor for each layer."""
    import ml_dtypes
    import numpy as np

    random = np.random.default_rng(0)
    one = {
        f"m.{i}.experts.{e}.w": random.standard_normal((1024, 704), "float32").astype(
            ml_dtypes.bfloat16
        )
        for i in range(4)
        for e in range(16)
    }
    two = {
        f"l.{i}.w": np.stack([one[f"m.{i}.experts.{e}.w"].T for e in range(16)]) for i in range(4)
    }
    return one, two


def heads() -> tuple[dict[str, Any], dict[str, Any]]:
    """Projections apart, and as one tensor that has those of each head one behind the other."""
    import ml_dtypes
    import numpy as np

    random = np.random.default_rng(0)
    one = {
        f"h.{i}.{name}": random.standard_normal((1536, 1536), "float32").astype(ml_dtypes.bfloat16)
        for i in range(6)
        for name in "qkv"
    }
    two = {
        f"l.{i}.qkv": np.concatenate(
            [one[f"h.{i}.{name}"].reshape(12, -1, 1536) for name in "qkv"], 1
        ).reshape(-1, 1536)
        for i in range(6)
    }
    return one, two


def rounded() -> tuple[dict[str, Any], dict[str, Any]]:
    """Kernels of 0.6 MB, and the same transposed and in bfloat16."""
    import ml_dtypes
    import numpy as np

    random = np.random.default_rng(0)
    one = {f"h.{i}.w": random.standard_normal((384, 384), "float32") for i in range(160)}
    two = {
        f"l.{i}.w": np.ascontiguousarray(x.T).astype(ml_dtypes.bfloat16)
        for i, x in enumerate(one.values())
    }
    return one, two


def large_file() -> dict[str, Any]:
    """A file of 512 MiB in bfloat16's width, tables, and NumPy's way to transpose it."""
    import numpy as np

    import tensorferry as ferry

    folder = Path(tempfile.mkdtemp(prefix="tensorferry-maps-"))
    random = np.random.default_rng(0)
    source = folder / "a.safetensors"
    ferry.save(
        {
            f"l.{i}.w": random.integers(0, 1 << 16, (_SIDE, _SIDE)).astype("uint16")
            for i in range(2 * _LAYERS)
        },
        source,
    )
    start = source.stat().st_size - 2 * _LAYERS * _SIDE * _SIDE * 2

    def convert(table: Any = None) -> None:
        ferry.convert_files(source, folder / "out.safetensors", map=table, overwrite=True)

    def by_hand() -> None:
        whole = np.memmap(source, "uint16", "r", start, (2 * _LAYERS, _SIDE, _SIDE))
        with (folder / "out.bin").open("wb") as file:
            for layer in whole:
                file.write(np.ascontiguousarray(layer.T).data)
            file.flush()
            os.fsync(file.fileno())

    joined = ", ".join(f'"l.{i}.w"' for i in range(2 * _LAYERS))
    return {
        "convert": convert,
        "by_hand": by_hand,
        "columns": ferry.WeightMap.parse(
            "[map]\n"
            + "\n".join(
                f'"c.{i}" = {{ concat = ["l.{2 * i}.w", "l.{2 * i + 1}.w"], axis = 1 }}'
                for i in range(_LAYERS)
            )
        ),
        "joined": ferry.WeightMap.parse(f'[map]\n"all" = {{ stack = [{joined}], axis = 0 }}'),
        "rotary": ferry.WeightMap.parse('[map]\n"r.{i}" = "l.{i}.w : (32 2 k) d -> (32 k 2) d"\n'),
        "transposed": ferry.WeightMap.parse('[map]\n"t.{i}" = "l.{i}.w : a b -> b a"'),
    }


_ONCE = Pace(rounds=5, batch=0.0, best=True)

SECTIONS = (
    Section(
        "Weight maps: a table over 100,000 tensors, from their headers",
        headers,
        (
            Case("table.check(source)", "nothing()", Target(total=2.0)),
            Case("stacked.check(experts)", "nothing()", Target(total=2.0)),
        ),
        pace=_ONCE,
    ),
    Section(
        "Weight maps: a table from a converter, beside its own imports and passes",
        converters,
        (
            Case("trace(large)", "passes(large)", Target(extra=10.0)),
            Case("trace(tiny)", "passes(tiny)", Target(extra=5.0)),
            Case("fit()", "nothing()", Target(total=1.0)),
        ),
        pace=_ONCE,
        absent=lambda: None if find_spec("torch") else "PyTorch is not installed",
    ),
    Section(
        "Weight maps: a table from two files of 90 MB",
        two_files,
        (
            Case("infer(model)", "digests(model)", Target(ratio=3)),
            Case("infer(experts)", "digests(experts)", Target(ratio=3)),
            Case("infer(heads)", "digests(heads)", Target(ratio=3)),
            Case("infer(rounded)", "digests(rounded)", Target(ratio=3)),
        ),
        pace=_ONCE,
    ),
    Section(
        "Weight maps: 512 MiB through a table",
        large_file,
        (
            Case("convert(joined)", "convert()", Target(ratio=1.25)),
            Case("convert(columns)", "convert()", Target(ratio=1.25)),
            Case("convert(rotary)", "convert()", Target(ratio=1.25)),
            Case("convert(transposed)", "by_hand()", Target(ratio=0.5)),
        ),
        pace=_ONCE,
    ),
)
