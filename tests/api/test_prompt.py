"""What is seen at the prompt: short, true, and without a word to a framework or a device."""

from __future__ import annotations

import inspect
from concurrent.futures import Future
from importlib import metadata

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.simulated import installed
from tests.support import FRAMEWORKS, frozen, survives

import tensorferry as ferry
from tensorferry import TensorInfo
from tensorferry.core.dtypes import DTYPES
from tensorferry.transfers.transfer import Transfer

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
tf = pytest.importorskip("tensorflow")


# -- TensorInfo -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("info", "text"),
    [
        (TensorInfo("numpy", (3, 4)), 'TensorInfo("numpy", (3, 4), "float32")'),
        (
            TensorInfo("torch", (3, 4), "bfloat16", device="cuda:0", requires_grad=True),
            'TensorInfo("torch", (3, 4), "bfloat16", device="cuda:0", requires_grad=True)',
        ),
        (TensorInfo("jax", (2,)), 'TensorInfo("jax", (2,), "float32")'),
        (
            TensorInfo("jax", (2,), device="cuda", shards=2),
            'TensorInfo("jax", (2,), "float32", device="cuda", shards=2)',
        ),
        (TensorInfo("cupy", (2,)), 'TensorInfo("cupy", (2,), "float32")'),
        (
            TensorInfo("numpy", (3, 2), strides=(4, 12)),
            'TensorInfo("numpy", (3, 2), "float32", strides=(4, 12))',
        ),
        (
            TensorInfo("numpy", (), writable=False),
            'TensorInfo("numpy", (), "float32", writable=False)',
        ),
        (
            TensorInfo("numpy", (), writable=False, mutable=True),
            'TensorInfo("numpy", (), "float32", writable=False, mutable=True)',
        ),
    ],
)
def test_a_tensor_info_shows_what_is_not_ordinary(info, text):
    """As a person would write it."""
    assert repr(info) == text
    assert eval(text) == info  # noqa: S307 - that is what it is for


@settings(
    suppress_health_check=[HealthCheck.too_slow], deadline=None
)  # a busy machine is no finding
@given(
    framework=st.sampled_from(["numpy", "torch", "tensorflow", "jax", "cupy", "python", "polars"]),
    shape=st.lists(st.integers(0, 5), max_size=3),
    dtype=st.sampled_from(sorted(DTYPES)),
    device=st.sampled_from([None, "cpu", "cuda", "cuda:1"]),
    flags=st.fixed_dictionaries(
        {},
        optional={
            **{
                name: st.booleans()
                for name in ("requires_grad", "conjugate", "negative", "swapped", "pinned")
            },
            **{name: st.sampled_from([None, True, False]) for name in ("writable", "mutable")},
            "misalignment": st.integers(0, 63),
            "weak_dtype": st.sampled_from([None, "int8", "float32"]),
            "memory_map": st.booleans(),
            "shards": st.integers(1, 4),
            "kind": st.sampled_from(["", "Parameter", "odd 'kind\""]),
            "abstract": st.sampled_from([None, "meta"]),
        },
    ),
)
def test_every_tensor_info_can_be_pasted(framework, shape, dtype, device, flags):
    """What it shows makes an equal one."""
    info = TensorInfo(framework, shape, dtype, device, **flags)
    assert eval(repr(info)) == info  # noqa: S307 - that is what it is for


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.zeros((3, 4))[::2, ::-1],
        lambda: frozen(np.ones(2)),
        lambda: torch.ones(2, requires_grad=True),
        lambda: torch.nn.Parameter(torch.ones(2)),
        lambda: torch.ones(2, dtype=torch.complex64).conj(),
        lambda: torch.empty(2, device="meta"),
        lambda: tf.Variable([1.0]),
        lambda: jax.numpy.ones(2),
        lambda: [1, 2],
        lambda: b"ab",
        lambda: np.float32(1),
    ],
)
def test_what_describe_gives_can_be_pasted(make):
    """Of a tensor of each kind; an ordinary one's mutability goes without saying."""
    info = ferry.describe(make())
    assert eval(repr(info)) == info  # noqa: S307 - that is what it is for
    assert len(repr(info)) < 160


def test_what_is_ordinary_is_filled_in():
    """A description by hand has its framework's own mutability, as a tensor of it has."""
    assert (TensorInfo("numpy").writable, TensorInfo("numpy").mutable) == (True, True)
    assert (TensorInfo("jax").writable, TensorInfo("jax").mutable) == (False, False)
    assert TensorInfo("numpy", writable=False).mutable is False


REFUSED = [
    (lambda: TensorInfo("tourch", (2,)), ferry.UnknownFrameworkError, 'framework="torch"'),
    (lambda: TensorInfo("nunpy"), ferry.UnknownFrameworkError, 'framework="numpy"'),
    (
        lambda: TensorInfo("cuda"),
        ferry.UnknownFrameworkError,
        'framework="tensorflow", device="cuda"',
    ),
    (
        lambda: TensorInfo("float16"),
        ferry.UnknownFrameworkError,
        'framework="numpy", dtype="float16"',
    ),
    (lambda: TensorInfo("torch", (2,), "flota32"), ferry.UnsupportedTypeError, 'dtype="float32"'),
    (lambda: TensorInfo("torch", (2,), device="cudaa:1"), ferry.DeviceError, 'device="cuda:1"'),
    (lambda: TensorInfo("jax", (2,), device="tpuu"), ferry.DeviceError, 'device="tpu"'),
]


@pytest.mark.parametrize(("make", "error", "hint"), REFUSED)
def test_a_description_of_what_cannot_be_is_refused_when_it_is_made(make, error, hint):
    """With the word that was meant, which works in its place."""
    with pytest.raises(error) as caught:
        make()
    assert caught.value.hint == hint
    words = eval(f"dict({hint})")  # noqa: S307 - it is what the user types
    right = TensorInfo(**{"framework": "torch", **words})
    assert {word: getattr(right, word) for word in words} == words


@pytest.mark.parametrize("shape", [None, "ab", (2.0,), ("3",), 3, 2.5])
def test_a_shape_is_a_sequence_of_integers(shape):
    """What else is given is named, with a shape that works."""
    with pytest.raises(TypeError, match=r"shape must be a sequence of lengths, .*shape=\("):
        TensorInfo("torch", shape)


def test_a_framework_is_no_number():
    """The error is about the description, not about a call of `convert`."""
    with pytest.raises(TypeError, match="framework must be a framework"):
        TensorInfo(3)


@pytest.mark.parametrize("device", ["mtia", "xpu", "hpu", "meta", "privateuseone", "mps", "tpu:0"])
def test_a_device_that_pytorch_may_have_is_no_misspelt_one(device):
    """It need not be here."""
    assert TensorInfo("torch", (2,), device=device).device == device


@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4)])
def test_ndim_is_that_of_the_array(shape):
    """As NumPy counts."""
    assert TensorInfo("torch", shape).ndim == np.zeros(shape).ndim
    assert ferry.describe(np.zeros(shape)).ndim == np.zeros(shape).ndim


# -- frameworks -----------------------------------------------------------------------------------


def test_frameworks_are_shown_as_a_table_and_are_a_dict():
    """A row for each, with its version; why one is not there, and the command that changes it."""
    found = ferry.frameworks()
    assert isinstance(found, dict)
    assert dict(found) == {name: found[name] for name in found}
    assert str(found) == repr(found)
    head, *rows = str(found).splitlines()
    assert head.split() == ["framework", "version", "devices"]
    shown = {row.split()[0]: row for row in rows[: len(found)]}
    assert list(shown) == list(found)
    for name, status in found.items():
        assert (status.version or "-") == shown[name].split()[1]
        if status.error is not None:
            assert shown[name].endswith(f"{status.error.rstrip('.')}: {status.install}")
    assert shown["numpy"].split() == ["numpy", np.__version__, "cpu"]


def test_a_notebook_shows_the_frameworks_as_a_table():
    """What stands in it is text, and no markup."""
    html = ferry.frameworks()._repr_html_()
    assert html.count("<tr>") == 1 + len(ferry.frameworks())
    assert f"<td>{np.__version__}</td>" in html
    from tensorferry.inspection import FrameworkStatus, FrameworkTable

    broken = FrameworkTable(
        {"<b>": FrameworkStatus(False, None, (), "<i>", "pip install x", "y 1.0")}
    )
    assert "<b>" not in broken._repr_html_()
    assert "&lt;i&gt;: pip install x (y 1.0)" in broken._repr_html_()


def test_the_version_of_what_is_not_imported_is_its_packages():
    """As `importlib.metadata` tells it: also of a package that is named otherwise than its module."""
    from tensorferry.inspection import _installed_version

    brought_by = metadata.packages_distributions()
    modules = {*FRAMEWORKS, "pandas", "polars", "pyarrow", "pytest", "yaml", "PIL"} & {*brought_by}
    assert {"numpy", "pytest"} <= modules
    for module in modules:
        assert _installed_version(module) == metadata.version(brought_by[module][0]), module
    assert _installed_version("no_such_module_anywhere") is None
    assert _installed_version("this") == "unknown"


def test_what_is_not_imported_says_how_to_ask_it():
    """A framework is not imported for a table; with ``load=True`` the line is gone."""
    told = survives(
        """
        import sys, tensorferry as ferry
        before = str(ferry.frameworks())
        assert "torch" not in sys.modules
        assert "not imported" in before and "frameworks(load=True)" in before.splitlines()[-1], before
        """
    )
    assert told is not None
    assert "frameworks(load=True)" not in str(ferry.frameworks(load=True))


# -- plans and transfers ---------------------------------------------------------------------------


def test_a_plan_is_a_few_lines():
    """From what to what, whether it copies and why, and where the rest is."""
    info = TensorInfo("torch", (3, 4), "bfloat16", device="cuda:0", requires_grad=True)
    lines = repr(ferry.explain(info, "numpy")).splitlines()
    assert lines == [
        "<Plan: torch bfloat16[3, 4] on cuda:0, requires grad -> numpy bfloat16[3, 4] on cpu",
        "  copies 24 B: the source is on cuda:0, the result on cpu",
        "  print() shows the 3 steps>",
    ]


def test_a_plan_of_a_large_tree_is_a_line():
    """The sums."""
    plan = ferry.explain_tree(
        {"a": [TensorInfo("torch", (1 << 20,)) for _ in range(500)], "b": "text"}, "numpy"
    )
    assert (
        repr(plan)
        == "<TreePlan of 500 leaves, 1 kept as they are: 0 B copied, 1.95 GiB shared; print() shows them>"
    )


def test_a_transfer_says_how_far_it_is():
    """Going on, complete, or failed with what."""
    future = Future()
    transfer = Transfer(future)
    assert repr(transfer) == "<Transfer: going on>"
    future.set_exception(ferry.LossyCastError("no"))
    assert repr(transfer) == "<Transfer: failed with LossyCastError>"
    assert repr(ferry.start(np.ones(2), "numpy")) == "<Transfer: complete>"


def test_a_prefetch_says_how_far_it_is():
    """How many it has given, and in what state it is; to look does not begin it."""
    read = []
    batches = ferry.prefetch((read.append(i) or np.ones(2) for i in range(2)), "pt", device="cpu")
    assert repr(batches) == "<Prefetch to torch on cpu: 0 batches given, not begun>"
    assert not read
    next(batches)
    assert repr(batches) == "<Prefetch to torch on cpu: 1 batch given, up to 2 ahead>"
    list(batches)
    assert repr(batches) == "<Prefetch to torch on cpu: 2 batches given, at its end>"
    batches.close()
    assert repr(batches) == "<Prefetch to torch on cpu: 2 batches given, closed>"
    like = ferry.prefetch([], like={"x": np.ones(2)})
    assert repr(like) == "<Prefetch to what like= names: 0 batches given, not begun>"


def test_a_lazy_tree_shows_its_header(tmp_path, monkeypatch):
    """Names, dtypes and shapes, nested and long; no tensor is made."""
    state = {
        "weight": np.ones((2, 3), "f2"),
        "epoch": 3,
        "inner": {"bias": np.ones(4)},
        "names": ["a"],
        "last": "x",
    }
    ferry.save({**state, "k" * 500: "v" * 500}, tmp_path / "a.npz")
    lazy = ferry.load(tmp_path / "a.npz", "torch", lazy=True)
    monkeypatch.setattr(
        "tensorferry.files.source.Source.tensor", lambda *_: pytest.fail("a tensor was made")
    )
    shown = "'weight': float16[2, 3], 'epoch': 3, 'inner': {1}, 'names': list[1], …"
    assert repr(lazy) == f"<LazyTree of 6: {shown}>"
    assert repr(lazy["inner"]) == "<LazyTree of 1: 'bias': float64[4]>"
    ferry.save({"k" * 500: "v" * 500, "x": np.ones(1)}, tmp_path / "b.npz")
    assert len(repr(ferry.load(tmp_path / "b.npz", lazy=True))) < 200


def test_no_repr_asks_a_framework_or_a_device():
    """All that is shown was known before; the framework could be gone."""
    with installed() as backend:
        info = TensorInfo(backend.name, (2,), device="cpu")
        shown = [
            info,
            ferry.explain(info, "numpy"),
            ferry.explain_tree([info], "numpy"),
            ferry.prefetch([], backend.name, device="cpu"),
            ferry.start(np.ones(2), "numpy"),
        ]
        before = [repr(each) for each in shown]
        for name, method in inspect.getmembers(type(backend), inspect.isfunction):
            if not name.startswith("__"):
                setattr(
                    backend, name, lambda *_, name=name, **__: pytest.fail(f"{name} was called")
                )
                assert callable(method)
        try:
            assert [repr(each) for each in shown] == before
        finally:
            for name in list(vars(backend)):
                if callable(getattr(type(backend), name, None)):
                    delattr(backend, name)


# -- the package's own names -----------------------------------------------------------------------


def test_dir_shows_the_public_names():
    """And nothing that they are made of."""
    assert dir(ferry) == sorted([*ferry.__all__, "open", "__version__"])
    assert all(hasattr(ferry, name) for name in dir(ferry))


def test_a_star_takes_no_builtins_place():
    """`open` has to be asked for."""
    import builtins

    names = {}
    exec("from tensorferry import *", names)  # noqa: S102 - a star stands at a module's top alone
    del names["__builtins__"]
    assert not set(names) & set(dir(builtins))
    assert set(names) == set(ferry.__all__)
    assert callable(ferry.open)


@pytest.mark.parametrize("name", ["LazyTree", "Report", "TreePlan", "Transfer"])
def test_names_for_annotations_are_at_the_top(name):
    """Classes, the very ones that functions give, which importing the package does not wait for."""
    assert isinstance(getattr(ferry, name), type)
    survives(
        f"""
        import sys, tensorferry as ferry
        later = {{"LazyTree": "files.lazy", "Report": "files.convert", "TreePlan": "trees.plans"}}
        assert not any(f"tensorferry.{{module}}" in sys.modules for module in later.values())
        found = ferry.{name}
        assert found.__name__ == {name!r} and found is ferry.{name} and {name!r} in vars(ferry)
        """
    )


def test_what_functions_give_is_of_these_classes(tmp_path):
    """So that an annotation is true."""
    report = ferry.save({"x": np.ones(2)}, tmp_path / "a.npz")
    assert type(report) is ferry.Report
    assert type(ferry.load(tmp_path / "a.npz", lazy=True)) is ferry.LazyTree
    assert type(ferry.explain_tree([np.ones(2)], "numpy")) is ferry.TreePlan
    assert type(ferry.start(np.ones(2), "numpy")) is ferry.Transfer


def test_a_name_that_is_not_there_is_an_attribute_error():
    """As of any module."""
    with pytest.raises(AttributeError, match="module 'tensorferry' has no attribute 'to_nunpy'"):
        ferry.to_nunpy  # noqa: B018 - that is what is refused
