"""Framework x layout x dtype x keyword on a real CUDA device: the host's bits, the plan's words; skipped elsewhere.

The values are random bits, NaN of every payload and numbers below the normal ones among them.
"""

from __future__ import annotations

import importlib
import itertools
import json

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.host.numpy_dtypes import numpy_dtype

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("_wide_jax")]

NARROW = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""What CuPy stores, but does not copy. (ml_dtypes puts their names into `np.sctypeDict` too.)"""
DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
    *NARROW,
)
SOURCES = ("torch", "jax", "cupy")
TARGETS = ("numpy", "python", "torch", "jax", "cupy")
ROWS, COLUMNS = 24, 36

VIEWS = {
    "compact": lambda x: x,
    "transposed": lambda x: x.T,
    "strided": lambda x: x[:, ::2],
    "offset": lambda x: x[1:, 1:],
    "0-d": lambda x: x[1, 1],
    "empty": lambda x: x[:0],
}
"""What every framework has."""

LAYOUTS = {
    "numpy": VIEWS,
    "jax": VIEWS,
    "torch": {
        **VIEWS,
        "expanded": lambda x: x[:1].expand(ROWS, COLUMNS),
        "windows": lambda x: x.reshape(-1).unfold(0, 6, 2),
    },
    "cupy": {**VIEWS, "negative": lambda x: x[::-1, ::-3]},
}
IN_NUMPY = {
    **VIEWS,
    "expanded": lambda x: np.broadcast_to(x[:1], (ROWS, COLUMNS)),
    "windows": lambda x: np.lib.stride_tricks.sliding_window_view(as_integers(x).reshape(-1), 6)[
        ::2
    ].view(x.dtype),
    "negative": lambda x: x[::-1, ::-3],
}


def needs(name):
    """Skip where a framework is not installed, or sees no GPU."""
    if name == "jax" and importlib.import_module("jax").default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")
    if name == "cupy":
        cupy = pytest.importorskip("cupy")
        if not cupy.cuda.is_available():
            pytest.skip("CuPy sees no GPU")


def random_bits(name):
    kind = numpy_dtype(name)
    raw = np.random.default_rng(7).integers(0, 256, ROWS * COLUMNS * kind.itemsize, dtype=np.uint8)
    return (raw % 2 if name == "bool" else raw).view(kind).reshape(ROWS, COLUMNS)


def as_integers(array):
    """The elements as integers of the same width, if there are any so wide."""
    size = array.dtype.itemsize
    return array.view(np.dtype(f"u{size}") if size <= 8 else array.dtype)


def on_gpu(framework, whole):
    """An array's bits on the GPU, brought there by the framework itself."""
    if framework == "torch":
        name = whole.dtype.name
        raw = torch.from_numpy(whole.reshape(-1).view(np.uint8).copy()).cuda()
        return raw.view(getattr(torch, name)).reshape(whole.shape)
    if framework == "jax":
        jax = importlib.import_module("jax")
        return jax.device_put(whole, jax.devices("gpu")[0])
    cupy = importlib.import_module("cupy")
    if whole.dtype.name in NARROW:
        return cupy.asarray(as_integers(whole)).view(whole.dtype)
    return cupy.asarray(whole)


def content(x):
    """The values of a tensor as an array of NumPy, as its own framework tells them; of a list, as it is printed."""
    if isinstance(x, torch.Tensor):
        raw = x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return raw.view(numpy_dtype(str(x.dtype).removeprefix("torch."))).reshape(tuple(x.shape))
    if type(x).__module__.startswith("cupy"):
        cupy = importlib.import_module("cupy")
        if x.dtype.name in NARROW:
            return cupy.ascontiguousarray(as_integers(x)).get().view(x.dtype).reshape(x.shape)
        return x.get()
    if isinstance(x, (list, int, float, complex, bool)):
        return repr(x)
    return np.asarray(x)


def unlike(found, expected, *, cast):
    """How two contents differ; after a cast a NaN may have any payload."""
    if isinstance(expected, str) or isinstance(found, str):
        return "" if found == expected else f"{found!s:.80} instead of {expected!s:.80}"
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{found.dtype} {found.shape} instead of {expected.dtype} {expected.shape}"
    if found.tobytes() == expected.tobytes():
        return ""
    same = as_integers(_parts(found)) == as_integers(_parts(expected))
    if cast and found.dtype.kind not in "biu":
        with np.errstate(all="ignore"):
            same |= (_parts(found) != _parts(found)) & (_parts(expected) != _parts(expected))
    if same.all():
        return ""
    where = tuple(int(each[0]) for each in np.nonzero(~same))
    return f"{int((~same).sum())} other values, {_parts(found)[where]!r} instead of {_parts(expected)[where]!r}"


def _parts(array):
    array = np.ascontiguousarray(array).reshape(-1)
    return array.view(array.real.dtype) if array.dtype.kind == "c" else array


def outcome(call):
    try:
        return call(), None
    except ferry.ConversionError as error:
        return None, error


def run_code(plan, x):
    """What the plan's code makes of `x`.

    Any warning is an error, but for NumPy's about floating point.
    """
    names = {"x": x}
    with np.errstate(all="ignore"):
        exec("\n".join([*plan.imports, plan.code]), names)  # noqa: S102 - that is what the code is for
    return names["y"]


def wrong(source, target, layout, name, keywords):
    """What is wrong with a cell, or an empty text."""
    whole = random_bits(name)
    x, host = LAYOUTS[source][layout](on_gpu(source, whole)), IN_NUMPY[layout](whole)
    before = content(x).tobytes()
    apart = {key: value for key, value in keywords.items() if key in ("dtype", "casting")}
    expected, refused = outcome(
        lambda: ferry.convert(host, "python" if target == "python" else "numpy", **apart)
    )
    plan, unplanned = outcome(lambda: ferry.explain(x, target, **keywords))
    result, error = outcome(lambda: ferry.convert(x, target, **keywords))
    if unplanned is not None:
        if type(unplanned) is not type(error):
            return f"explain raises {unplanned!r}, convert {error!r}"
        # NumPy has every dtype; the target may lack one.
        if refused is None and target in ("numpy", "python", "torch"):
            return f"refused: {unplanned!r}"
        return ""
    if error is not None:
        return "" if type(error) is type(refused) else f"raises {error!r}, on the host {refused!r}"
    if refused is not None:
        return f"gives {result!r:.60}, on the host {refused!r}"
    cast = "dtype" in keywords
    if found := unlike(content(result), content(expected), cast=cast):
        return found
    if content(x).tobytes() != before:
        return "the source has changed"
    if target == "python":
        return ""
    told = ferry.describe(result)
    if (told.device, told.dtype) != (plan.result.device, plan.result.dtype):
        return f"{told.device} {told.dtype}, planned {plan.result.device} {plan.result.dtype}"
    shared = ferry.shares_memory(x, result)
    if shared is not None and told.size and shared is not (plan.bytes_copied == 0):
        return f"shared: {shared}, planned {plan.bytes_copied} bytes"
    if told.device.startswith("cuda") and "dtype" not in keywords and bus(plan):
        return f"{bus(plan)} bytes over the bus"
    if keywords.get("casting") == "unsafe" and numpy_dtype(keywords["dtype"]).kind in "iu":
        return ""  # what becomes of a float that an integer cannot hold, each framework's own cast says for itself
    pasted, broken = outcome(lambda: run_code(plan, x))
    if broken is not None:
        return f"the code raises {broken!r}"
    if found := unlike(content(pasted), content(expected), cast=cast):
        return f"the code gives {found}: {plan.code}"
    return ""


def bus(plan):
    return [step.bytes for step in plan.steps if step.path == "bus" and step.bytes]


def failures(cells):
    found = []
    for cell in cells:
        try:
            said = wrong(*cell)
        except Exception as error:  # noqa: BLE001 - what is no ConversionError is wrong too
            said = f"{type(error).__name__}: {error}"
        if said:
            found.append((cell, said))
    shown = "\n".join(f"{cell}: {said}" for cell, said in found[:40])
    assert not found, f"{len(found)} of {len(cells)} cells:\n{shown}"


@pytest.mark.parametrize("keywords", [{}, {"copy": True}], ids=["plain", "copy"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_every_layout_and_dtype_arrives_bit_for_bit(source, target, keywords):
    """As on the host, where the plan says, by the plan's code too; the source stays as it is."""
    needs(source), needs(target)
    if target == "python" and keywords:
        keywords = {"grad": "detach"} if source == "torch" else {}
    failures(
        [(source, target, layout, name, keywords) for layout in LAYOUTS[source] for name in DTYPES]
    )


@pytest.mark.parametrize("casting", ["same_kind", "same_value", "unsafe"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_every_cast_gives_the_hosts_values(source, target, casting):
    """From each dtype to each: the same values, the same refusals."""
    needs(source), needs(target)
    failures(
        [
            (source, target, "compact", before, {"dtype": after, "casting": casting})
            for before, after in itertools.permutations(DTYPES, 2)
        ]
    )


BUS = [
    ("torch", "numpy", {}),
    ("torch", "numpy", {"pinned": True}),
    ("torch", "numpy", {"dtype": "bfloat16", "casting": "same_kind"}),
    ("torch", "numpy", {"dtype": "float64"}),
    ("torch", "jax", {}),
    ("torch", "cupy", {}),
    ("torch", "jax", {"copy": True}),
    ("torch", "torch", {"device": "cpu"}),
    ("torch", "torch", {"device": "cpu", "non_blocking": True}),
    ("cupy", "numpy", {}),
    ("cupy", "torch", {}),
    ("cupy", "numpy", {"dtype": "float16", "casting": "same_kind"}),
    ("jax", "torch", {}),
    ("jax", "cupy", {}),
    ("jax", "numpy", {}),
    ("numpy", "torch", {"device": "cuda"}),
    ("numpy", "torch", {"device": "cuda", "non_blocking": True}),
    ("numpy", "torch", {"device": "cuda", "dtype": "float64"}),
    ("numpy", "torch", {"device": "cuda", "dtype": "float16", "casting": "same_kind"}),
    ("numpy", "cupy", {}),
    ("numpy", "jax", {"device": "cuda"}),
]


def test_the_bus_carries_what_the_plan_says(tmp_path):
    """The bytes of each transfer, as CUDA's own profiler has seen them."""
    needs("jax"), needs("cupy")
    from torch.profiler import ProfilerActivity, profile, record_function

    jobs = []
    for source, target, keywords in BUS:
        for layout in ("compact", "transposed", "strided"):
            # Large enough that no framework has to share a transfer with something else.
            whole = np.random.default_rng(1).standard_normal((256, 384)).astype(np.float32)
            x = LAYOUTS[source][layout](whole if source == "numpy" else on_gpu(source, whole))
            ferry.convert(x, target, **keywords)
            jobs.append((source, target, layout, keywords, x))
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as seen:
        kept = []
        for number, (_, target, _, keywords, x) in enumerate(jobs):
            if hasattr(x, "block_until_ready"):
                x = x + 0  # noqa: PLW2901
                x.block_until_ready()
            with record_function(f"job {number}"):
                kept.append(ferry.convert(x, target, **keywords))
                if hasattr(kept[-1], "block_until_ready"):
                    kept[-1].block_until_ready()
                torch.cuda.synchronize()
    seen.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = {
        each["name"]: (each["ts"], each["ts"] + each["dur"])
        for each in events
        if each.get("cat") == "user_annotation"
    }
    copies = [
        each for each in events if each.get("cat") == "gpu_memcpy" and "DtoD" not in each["name"]
    ]
    found = []
    for number, (source, target, layout, keywords, x) in enumerate(jobs):
        start, end = spans[f"job {number}"]
        crossed = [each["args"]["bytes"] for each in copies if start <= each["ts"] <= end]
        plan = ferry.explain(x, target, **keywords)
        if bus(plan) != crossed:
            found.append(
                f"{source} -> {target} {layout} {keywords}: planned {bus(plan)}, crossed {crossed}"
            )
    assert not found, "\n".join(found)
