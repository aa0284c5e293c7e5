"""What a file holds in a few lines: folding leaves no name out and makes none up."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorferry.files.base.contents import Contents, Ref, Special
from tensorferry.files.base.nesting import named_values
from tensorferry.files.base.stored import InMemory
from tensorferry.files.reports.summary import disk_bytes, fold, modules, summarise, values_of

WORDS = st.sampled_from(
    ["layers.", "h", ".w", "#", "##", "", "-", "é", "\x1b[2J", "\0", "bn", "x", "2a", " "]
)
NUMBERS = st.sampled_from(
    ["0", "1", "2", "3", "9", "10", "11", "00", "01", "02", "09", "007", "9" * 30, "\u0661"]
)
NAMES = st.lists(st.one_of(WORDS, NUMBERS), max_size=7).map("".join)
KINDS = st.sampled_from(
    [("float32", (2, 3)), ("float32", (3, 2)), ("bfloat16", (2, 3)), ("float32", ())]
)


@given(st.dictionaries(NAMES, KINDS, max_size=60))
def test_unfolding_gives_each_name_once_with_its_dtype_and_shape(entries):
    """Whatever the names are, folds stand for exactly those names, each with its own dtype and shape."""
    folds = fold((name, *kind) for name, kind in entries.items())

    unfolded = [(name, (each.dtype, each.shape)) for each in folds for name in each.unfold()]
    assert Counter(unfolded) == Counter(entries.items())
    assert [each.total for each in folds] == [len(list(each.unfold())) for each in folds]


@given(st.sets(st.tuples(*[st.integers(0, 4)] * 3), max_size=60))
def test_numbers_that_are_no_rectangle_are_cut_into_some(rows):
    """Any set of numbers is cut into products: none of them holds a name that is not there."""
    names = [f"a.{i}.b.{j}.c.{k}" for i, j, k in sorted(rows)]

    folds = fold((name, "int8", ()) for name in names)

    assert sorted(name for each in folds for name in each.unfold()) == sorted(names)


@given(st.sets(st.integers(0, 10**6), min_size=2), st.sampled_from([0, 1, 4]))
def test_one_number_that_varies_is_one_line(numbers, width):
    """Names that differ in one number are one line, unless zeros before some make them two spellings."""
    folds = fold((f"a.{number:0{width}d}.b", "int8", ()) for number in numbers)

    assert [each.name for each in folds] == ["a.#.b"]


def test_a_model_is_as_many_lines_as_its_layer_has_tensors():
    """The usual names of a transformer fold to one line for each tensor of a layer, in the file's order."""
    names = ["embed.weight"]
    names += [f"layers.{layer}.{part}.weight" for layer in range(32) for part in ("q", "k")]
    names += [
        f"layers.{layer}.experts.{expert}.w{n}"
        for layer in range(32)
        for expert in range(8)
        for n in (1, 3)
    ]
    shapes = {name: (8, 4) if name.endswith("w3") else (4, 8) for name in names}

    folds = fold((name, "bfloat16", shapes[name]) for name in names)

    assert [(each.name, each.ranges, each.total) for each in folds] == [
        ("embed.weight", (), 1),
        ("layers.#.q.weight", ("0..31",), 32),
        ("layers.#.k.weight", ("0..31",), 32),
        ("layers.#.experts.#.w1", ("0..31", "0..7"), 256),
        ("layers.#.experts.#.w3", ("0..31", "0..7"), 256),
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a.0", "a.2", "a.3", "a.4"], [("a.#", ("0, 2..4",))]),
        (["a.08", "a.09", "a.10", "a.11"], [("a.#", ("08..11",))]),
        (["a.1", "a.01"], [("a.#", ("1, 01",))]),
        (["a.0.b0", "a.1.b1", "a.2.b2"], [("a.#.b#", ("0..2", "#1"))]),
        (["a.0.b", "a#1.b"], [("a.0.b", ()), ("a#1.b", ())]),
        (["a#.0", "a#.1"], [("a##.#", ("0..1",))]),
        (["a.0.x.0", "a.0.x.1", "a.1.x.0"], [("a.0.x.#", ("0..1",)), ("a.1.x.0", ())]),
        (["res2a", "res3a"], [("res2a", ()), ("res3a", ())]),
        (["fc1", "fc2"], [("fc#", ("1..2",))]),
        ([f"{10**20}", f"{10**20 + 1}"], [(f"{10**20}", ()), (f"{10**20 + 1}", ())]),
    ],
)
def test_what_a_line_says(names, expected):
    """Gaps, leading zeros, repeated numbers and # itself are told apart in what is shown."""
    assert [
        (each.name, each.ranges) for each in fold((name, "int8", ()) for name in names)
    ] == expected


def _held(dtype="float32", shape=(2, 3), key=None):
    return InMemory(np.zeros(shape, dtype), dtype, key or object())


def test_a_summary_counts_tied_weights_once(tmp_path):
    """Names are counted each, elements once, and the size is that of the files on the disk."""
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "b").write_bytes(b"123")
    tied = _held(shape=(5, 2))
    contents = Contents(
        "npz",
        (str(tmp_path / "a"), str(tmp_path / "folder")),
        {"embed": tied, "h.0": _held("int8"), "h.1": _held("int8"), "head": tied},
    )

    told = summarise(tmp_path / "a", contents)

    assert told.tensors == 4
    assert told.parameters == {"float32": 10, "int8": 12}
    assert told.tied == {"head": "embed"}
    assert told.nbytes == 8 == disk_bytes(contents.paths)
    assert [each.name for each in told.folds] == ["embed", "h.#", "head"]
    assert told.safe


def test_what_is_beside_the_tensors_is_told_by_its_place():
    """Leaves of the tree that are no tensors are found wherever they are, in order, empty containers too."""
    tree = OrderedDict(
        model={"w": Ref("model.w")},
        epoch=3,
        optimizer={"groups": [{"lr": 0.1, "params": (0, 1)}], "state": {}},
        none=None,
    )
    tree["a.b"] = 1
    tree["a"] = {"b": 2}

    assert values_of(Contents("pytorch", (), {}, tree=tree)) == {
        "epoch": 3,
        "optimizer.groups.0.lr": 0.1,
        "optimizer.groups.0.params.0": 0,
        "optimizer.groups.0.params.1": 1,
        "optimizer.state": {},
        "none": None,
        "a.b": 1,
        "a.b#2": 2,
    }
    assert values_of(Contents("npy", ())) == {}
    assert values_of(Contents("pytorch", (), tree={})) == {}


def test_values_of_pytorch_are_printed_by_their_names():
    """As PyTorch has them; and a file that claims another kind cannot write to the screen."""
    torch = pytest.importorskip(
        "torch", reason="compares with what PyTorch prints, which is not installed"
    )
    assert repr(Special("dtype", "float16")) == repr(torch.float16)
    assert repr(Special("layout", "strided")) == repr(torch.strided)
    assert repr(Special("size", [2, 3])) == repr(torch.Size([2, 3]))
    assert eval(repr(Special("device", "cuda:0"))) == torch.device("cuda:0")  # noqa: S307
    for kind in ("dtype", "layout", "size", "device", "\x1b[2J\n"):
        assert repr(Special(kind, "\x1b[2J\n")).isprintable()


def test_deep_nesting_is_no_trouble():
    """A tree that is deeper than Python's stack is still listed."""
    tree: object = 1
    for _ in range(5000):
        tree = [tree]

    assert list(values_of(Contents("pytorch", (), tree=tree)).values()) == [1]


def test_many_values_at_one_place_are_named_in_one_pass():
    """The lines that run grow with the number of values, not with its square; their names differ."""
    older, newer = {"a": 5}, {"a": {"a": 5}, "a.a": 6}
    for _ in range(12):
        older, newer = newer, {"a": newer, "a.a": older}
    lines = Counter()

    def traced(frame, event, _):
        lines[event] += frame.f_code is named_values.__code__
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        found = values_of(Contents("pytorch", (), tree=newer))
    finally:
        sys.settrace(before)

    assert len(found) > 500
    assert lines["line"] < 100 * len(found)


@given(st.dictionaries(NAMES, KINDS, min_size=1, max_size=60))
def test_every_parameter_is_in_one_module(entries):
    """Whatever the names are, the modules' parameters are all there are."""
    found = modules(fold((name, *kind) for name, kind in entries.items()))

    assert found == {} or sum(found.values()) == sum(
        int(np.prod(shape)) for _, shape in entries.values()
    )


def test_modules_that_differ_in_a_number_are_named_by_it_if_they_are_few():
    """Tensors of two layers that have the same name and shape are counted in their layers, not in a third one."""
    few = {"0.weight": (3, 4), "0.bias": (4,), "1.weight": (4,), "1.bias": (4,)}
    many = {f"layers.{n}.{part}": (2,) for n in range(40) for part in ("w", "b")} | {
        "layers.40.w": (3,),
        "layers.40.b": (3,),
    }

    assert modules(fold((name, "float32", shape) for name, shape in few.items())) == {
        "0": 16,
        "1": 8,
    }
    assert modules(
        fold((name, "float32", shape) for name, shape in {**many, "embed.w": (10,)}.items())
    ) == {
        "layers.#": 166,
        "embed": 10,
    }
