"""What a program makes of samples is what one stacks by hand, whatever was collated before."""

from __future__ import annotations

import collections
import copy
import dataclasses
import gc
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import examples

import tensorferry as ferry
from tensorferry.backends import together
from tensorferry.batches import api, program
from tensorferry.batches import samples as taking_apart
from tensorferry.execution import recipes, run


@dataclasses.dataclass
class Box:
    first: Any
    second: Any = None


Pair = collections.namedtuple("Pair", "left right")  # noqa: PYI024 - an untyped one is a container too

MANY = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


# -- random samples: a form says what each of them is ----------------------------------------------

DTYPES = ("bool", "uint8", "int32", "int64", "float16", "float32", "float64")
SHAPES = st.lists(st.integers(1, 3), max_size=2).map(tuple)
LEAVES = st.one_of(
    st.tuples(st.just("array"), st.sampled_from(DTYPES), SHAPES),
    st.tuples(st.just("tensor"), st.sampled_from(DTYPES), SHAPES),
    st.tuples(st.just("scalar"), st.sampled_from(DTYPES)),
    st.sampled_from(
        [("bool",), ("int",), ("float",), ("text",), ("none",), ("row", 3), ("rows", 2)]
    ),
)
KEYS = st.one_of(st.text(max_size=2), st.integers(0, 3))


def containers(children):
    few, named = st.lists(children, max_size=3), st.dictionaries(KEYS, children, max_size=3)
    return st.one_of(
        # Below a key, a list of nothing but numbers would be one tensor.
        few.map(lambda inside: (list, [*inside, ("text",)])),
        few.map(lambda inside: (tuple, inside)),
        few.map(lambda inside: (collections.deque, inside)),
        *(
            named.map(lambda inside, kind=kind: (kind, inside))
            for kind in (dict, dict, collections.OrderedDict, collections.UserDict)
        ),
        st.tuples(st.just(Pair), st.lists(children, min_size=2, max_size=2)),
        st.tuples(st.just(Box), st.lists(children, min_size=2, max_size=2)),
        st.tuples(st.just(SimpleNamespace), st.lists(children, min_size=2, max_size=2)),
    )


FORMS = st.recursive(LEAVES, containers, max_leaves=6)


def sample_of(form, generator):
    """One sample of a form, with random values."""
    kind, *about = form
    if kind in ("array", "tensor", "scalar"):
        dtype, shape = about[0], about[1] if about[1:] else ()
        array = np.asarray(generator.random(shape) * 100).astype(dtype)
        if kind == "scalar":
            return array[()]
        return torch.from_numpy(array) if kind == "tensor" else array
    if kind in ("row", "rows"):
        row = [int(each) for each in generator.integers(0, 100, about[0])]
        return row if kind == "row" else [[*map(float, row)], [*map(float, row)]]
    made = {
        "bool": lambda: bool(generator.integers(2)),
        "int": lambda: int(generator.integers(-100, 100)),
        "float": lambda: float(generator.random()),
        "text": lambda: str(generator.integers(100)),
        "none": lambda: None,
    }
    if kind in made:
        return made[kind]()
    (inside,) = about
    if isinstance(inside, dict):
        return kind({key: sample_of(each, generator) for key, each in inside.items()})
    values = [sample_of(each, generator) for each in inside]
    if kind is SimpleNamespace:
        return SimpleNamespace(**dict(zip("ab", values, strict=True)))
    return kind(*values) if kind in (Pair, Box) else kind(values)


def samples_of(form, count, seed):
    generator = np.random.default_rng(seed)
    return [sample_of(form, generator) for _ in range(count)]


# -- the oracle: by hand, with NumPy and PyTorch alone ---------------------------------------------


def by_hand(samples, to, becomes, below=False):
    """A batch as a person would write it; `becomes` gives the dtype of a leaf by its own dtype."""
    first = samples[0]
    if isinstance(first, (dict, collections.UserDict)):
        made = {key: by_hand([x[key] for x in samples], to, becomes, True) for key in first}
        return type(first)(made)
    if below and isinstance(first, list) and not isinstance(first[-1], str):
        return leaf_by_hand(samples, to, becomes)
    if isinstance(first, (list, tuple, collections.deque)):
        inside = [by_hand(list(each), to, becomes) for each in zip(*samples, strict=True)]
        return Pair(*inside) if isinstance(first, Pair) else type(first)(inside)
    if isinstance(first, (Box, SimpleNamespace)):
        names = vars(first)
        made = {name: by_hand([vars(x)[name] for x in samples], to, becomes) for name in names}
        return type(first)(**made)
    return leaf_by_hand(samples, to, becomes)


def leaf_by_hand(samples, to, becomes):
    first = samples[0]
    if first is None or isinstance(first, str):
        return None if first is None else samples
    if isinstance(first, torch.Tensor):
        array = torch.stack(samples).numpy()
    elif isinstance(first, np.ndarray):
        array = np.stack(samples)
    else:
        array = np.array(samples)
        if array.dtype == np.float64 and not isinstance(first, np.generic) and to == "torch":
            array = np.array(samples, "float32")
    return array.astype(becomes(array.dtype.name, isinstance(first, (float, list))))


def assert_is(made, expected, to):
    """A batch has the values, dtypes, containers and keys of another, which has arrays."""
    if isinstance(expected, np.ndarray):
        assert type(made) is (torch.Tensor if to == "torch" else np.ndarray)
        array = made.numpy() if to == "torch" else made
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
        assert array.tobytes() == expected.tobytes()
        return
    assert type(made) is type(expected)
    if isinstance(expected, (dict, collections.UserDict)):
        assert [(type(key), key) for key in made] == [(type(key), key) for key in expected]
        for key, each in expected.items():
            assert_is(made[key], each, to)
    elif isinstance(expected, (list, tuple, collections.deque)):
        assert len(made) == len(expected)
        for ours, each in zip(made, expected, strict=True):
            assert_is(ours, each, to)
    elif isinstance(expected, (Box, SimpleNamespace)):
        assert_is(vars(made), vars(expected), to)
    else:
        assert made == expected


def as_it_is(dtype, _):
    return dtype


def to_float32(dtype, _):
    return "float32" if dtype.startswith("float") else dtype


def to_float16_and_int16(dtype, _):
    return {"int64": "int16"}.get(dtype, "float16" if dtype.startswith("float") else dtype)


REQUESTS = [
    ("torch", {}, as_it_is),
    ("numpy", {}, as_it_is),
    ("torch", {"device": "cpu"}, as_it_is),
    ("torch", {"dtype": "float32"}, to_float32),
    ("numpy", {"dtype": "float32"}, to_float32),
    ("torch", {"like": torch.ones(1)}, to_float32),
    ("numpy", {"like": np.ones(1, "float32"), "to": None}, to_float32),
    ("torch", {"dtype": {"float": "float16", "int64": "int16"}}, to_float16_and_int16),
    ("torch", {"pad": 7}, as_it_is),
]


def collated(samples, to, keywords):
    keywords = {"to": None if "like" in keywords else to, **keywords}
    return ferry.collate(samples, keywords.pop("to"), **keywords)


def assert_alike(samples, request):
    to, keywords, becomes = request
    assert_is(collated(samples, to, keywords), by_hand(samples, to, becomes), to)


@pytest.mark.fast_paths
@pytest.mark.parametrize("verified", [False, True])
@settings(MANY, max_examples=examples(120))
@given(
    forms=st.lists(FORMS, min_size=1, max_size=3),
    count=st.integers(1, 4),
    seed=st.integers(0, 2**32),
    request_of=st.sampled_from(REQUESTS),
)
def test_programs_stack_what_is_stacked_by_hand(verified, forms, count, seed, request_of):
    """For each batch of a history, again and again: values, dtypes, containers, keys, order."""
    batches = [samples_of(form, count, seed + at) for at, form in enumerate(forms)]
    with run.verifying(verified):
        for samples in (*batches, *batches):
            assert_alike(samples, request_of)


# -- whatever is otherwise in one sample -----------------------------------------------------------


def at_length(given, to, keywords):
    """The same by programs that know nothing: each sample is taken apart, each column is planned."""
    found = dict.fromkeys(("dtype", "device"))
    asked = (None if "like" in keywords else to, keywords.get("like"))
    asked = (*asked, *(keywords.get(name) for name in found), None, None, "detach", {})
    padding = (keywords.get("pad"), None, "right", keywords.get("mask", False), False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(taking_apart, "take_columns", lambda *_: None)
        patch.setattr(program.BatchPrograms, "_are_tensors", lambda *_: False)
        patch.setattr(api, "_programs", lambda *_: None)
        return api.call_for(
            ferry.collate, asked, api._stack, given, asked, "numbers", "error", padding, None
        )


def outcome(function, *arguments):
    """What a call gives, or the type and message of its error."""
    try:
        return function(*arguments), None
    except ferry.ConversionError as error:
        return None, (type(error), error.message, error.hint)


def facts(tree):
    """All that can be told of a batch."""
    if isinstance(tree, (dict, collections.UserDict)):
        return type(tree), [(type(key), key, facts(value)) for key, value in tree.items()]
    if isinstance(tree, (list, tuple, collections.deque)):
        return type(tree), [facts(value) for value in tree]
    if isinstance(tree, (Box, SimpleNamespace)):
        return type(tree), facts(vars(tree))
    if not hasattr(tree, "shape"):
        return type(tree), repr(tree)
    info = ferry.describe(tree)
    return info._replace(misalignment=0), ferry.to_numpy(tree, copy=True).tobytes()


def assert_as_at_length(samples, to, keywords):
    expected, refused = outcome(at_length, samples, to, keywords)
    found, error = outcome(collated, samples, to, keywords)
    assert error == refused
    if error is None:
        assert facts(found) == facts(expected)


ODD = [
    lambda x: x.update(a=1),
    lambda x: x.update(a=[np.ones(2, "f4")]),
    lambda x: x.update(a=np.ones(2, "f8")),
    lambda x: x.update(a=np.ones(3, "f4")),
    lambda x: x.update(a=np.ones(2, ">f4")),
    lambda x: x.update(a=torch.ones(2)),
    lambda x: x.update(a=torch.nn.Parameter(torch.ones(2))),
    lambda x: x.update(a=np.ma.masked_array([1.0, 2.0], [True, False])),
    lambda x: x.update(a=np.zeros(2, [("x", "f4"), ("y", "i4")])),
    lambda x: x.update(a=np.array(["text", "more"])),
    lambda x: x.update(a=np.array([1, None], object)),
    lambda x: x.update(a=None),
    lambda x: x.update(b=2.5),
    lambda x: x.update(b=True),
    lambda x: x.update(b=2**70),
    lambda x: x.update(b=np.int64(2)),
    lambda x: x.update(b="text"),
    lambda x: x.update(c=7),
    lambda x: x.update(c=None),
    lambda x: x.update(d=[1, 2, 3]),
    lambda x: x.update(d=[1, "a"]),
    lambda x: x.update(d=[1.5, 2]),
    lambda x: x.update(d=(1, 2)),
    lambda x: x.update(d=[]),
    lambda x: x.update(d=[np.float32(1), 2]),
    lambda x: x.update(e=(np.ones(1), 5, 6)),
    lambda x: x.update(e=[np.ones(1), 5]),
    lambda x: x.update(e=Pair(np.ones(1), 5)),
    lambda x: x.update(f=np.ones(1)),
    lambda x: x.pop("a"),
    lambda x: x.update(a=x.pop("a")),
    lambda x: x.update({True: x.pop(1)}),
    lambda x: x.update({1.0: x.pop(1)}),
]
"""How one sample may be otherwise than the others."""


def ordinary(number):
    return {
        1: torch.full((2,), float(number)),
        "a": np.full(2, number, "f4"),
        "b": number,
        "c": str(number),
        "d": [number, 2],
        "e": (np.ones(1), 5),
    }


@pytest.mark.fast_paths
@pytest.mark.parametrize("place", [0, 1, 5])
@pytest.mark.parametrize("change", ODD)
def test_one_odd_sample_is_seen(change, place):
    """After batches without one, and before them: the value, or the error, of the way without programs."""
    for to, keywords in (
        ("torch", {}),
        ("numpy", {"dtype": {"a": "float64", "float32": "float16"}}),
        ("torch", {"pad": 0}),
    ):
        for _ in range(2):
            assert_as_at_length([ordinary(number) for number in range(6)], to, keywords)
            samples = [ordinary(number) for number in range(6)]
            change(samples[place])
            assert_as_at_length(samples, to, keywords)


@pytest.mark.fast_paths
def test_keys_in_another_order_in_one_sample():
    """Each value comes to its key: in dicts, in classes of one's own, in containers inside."""
    for kind in (dict, collections.OrderedDict, collections.UserDict):
        for around in (lambda x: x, lambda x: {"inner": x}, lambda x: (x, 1)):
            for _ in range(2):
                samples = [around(kind(a=np.full(2, n), b=np.full(2, -n))) for n in range(8)]
                samples[5] = around(kind(b=np.full(2, -5), a=np.full(2, 5)))
                made = ferry.collate(samples, "torch")
                inside = made if around(0) == 0 else made["inner" if isinstance(made, dict) else 0]
                assert list(inside) == ["a", "b"]
                assert inside["a"][:, 0].tolist() == [*range(8)]
                assert inside["b"][:, 0].tolist() == [-n for n in range(8)]


@pytest.mark.fast_paths
def test_an_ordered_dict_keeps_its_own_order():
    """Which is another than that in which the keys were put in."""
    for _ in range(2):
        samples = []
        for number in range(3):
            one = collections.OrderedDict(a=number, b=-number)
            one.move_to_end("a")
            samples.append(one)
        made = ferry.collate(samples, "numpy")
        assert [(key, each.tolist()) for key, each in made.items()] == [
            ("b", [0, -1, -2]),
            ("a", [0, 1, 2]),
        ]


class Strange:
    """A key whose comparison raises."""

    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return 1

    def __eq__(self, other):
        raise RuntimeError("this comparison is broken")

    def __repr__(self):
        return self.name


@pytest.mark.fast_paths
def test_keys_whose_comparison_raises():
    """One object is the same key in all samples; another one is not taken for it."""
    key = Strange("key")
    for _ in range(3):
        made = ferry.collate([{key: np.ones(1), "b": 1}, {key: np.zeros(1), "b": 2}], "numpy")
        assert next(iter(made)) is key
        assert made[key].tolist() == [[1.0], [0.0]]
    others = [{Strange(name): np.ones(1)} for name in "xy"]
    with pytest.raises(ferry.UnsupportedTypeError, match="different trees"):
        ferry.collate(others, "numpy")


@pytest.mark.fast_paths
@pytest.mark.parametrize("keys", [(1, True), (True, 1), (1, 1.0), (0, False)])
def test_keys_that_are_equal_are_not_the_same(keys):
    """1, True and 1.0 are equal, and so are their hashes; each batch keeps its own."""
    for _ in range(2):
        for key in keys:
            (made,) = ferry.collate([{key: 5}, {key: 6}], "numpy")
            assert type(made) is type(key)
        # Together they are one key, as in every dict: the one that comes first.
        (made,) = ferry.collate([{key: 5} for key in keys], "numpy")
        assert type(made) is type(keys[0])


class Count(int):
    """An int of a class of one's own, with which a list is no row of numbers."""


@pytest.mark.fast_paths
@pytest.mark.parametrize("rows", ["123", "023", "103", "120", "000", "003"])
def test_a_list_is_a_row_or_a_container_in_each_sample_anew(rows):
    """Whatever it is in the first one, and whatever else is in its column."""
    recipes.forget_recipes()
    for _ in range(2):
        samples = [{"w": [int(each) or Count(4)], "x": 1} for each in rows]
        assert_as_at_length(samples, "torch", {})
        assert_as_at_length([{"w": [each["w"]]} for each in samples], "torch", {})


class Sized(np.ndarray):
    """An array of a class of one's own."""


@pytest.mark.fast_paths
def test_a_dtype_or_a_class_that_changes_late_in_a_batch():
    """In sample 37 of 64, after batches in which it did not."""
    for odd in (
        np.ones(4, "f8"),
        np.ones(4, "f4").view(Sized),
        np.ones(5, "f4"),
        np.ones((4, 1), "f4"),
        torch.ones(4),
    ):
        samples = [{"x": np.full(4, number, "f4")} for number in range(64)]
        for _ in range(2):
            assert_as_at_length(samples, "torch", {})
            assert_as_at_length([*samples[:37], {"x": odd}, *samples[38:]], "torch", {})
    tensors = [torch.full((4,), float(number)) for number in range(64)]
    for odd in (
        torch.ones(4, dtype=torch.float64),
        torch.ones(4, requires_grad=True),
        torch.ones(5),
    ):
        for keywords in ({}, {"device": "cpu"}, {"dtype": {"float32": "float16"}}):
            for _ in range(2):
                assert_as_at_length(tensors, "torch", keywords)
                assert_as_at_length([*tensors[:37], odd, *tensors[38:]], "torch", keywords)


@pytest.mark.fast_paths
def test_a_tensor_inside_an_object_is_found_in_every_batch():
    """Objects that nobody knows are searched each time."""

    class Thing:
        def __init__(self, held):
            self.held = held

    for _ in range(2):
        things = [{"a": np.ones(1), "t": Thing(number)} for number in range(4)]
        assert ferry.collate(things, "numpy")["t"] == [each["t"] for each in things]
        things[2]["t"].held = torch.ones(1)
        with pytest.raises(ferry.UnsupportedTypeError, match="holds a tensor"):
            ferry.collate(things, "numpy")


@pytest.mark.fast_paths
def test_text_that_became_numbers_is_stacked():
    """An array of text is none; the next one in its place need not be text."""
    for values in (["a"], ["a"], [1.0], ["b"], [2]):
        (found,) = ferry.collate([[np.array(values)]] * 2, "torch")
        assert isinstance(found, torch.Tensor) == (not isinstance(values[0], str))


@pytest.mark.fast_paths
@pytest.mark.parametrize("keyword", ["dtype", "pad"])
def test_what_is_asked_for_by_name_follows_the_names(keyword):
    """The next batch may have other names in the same places."""
    given = {"dtype": {"a": "float16"}, "pad": {"a": 7}}[keyword]
    for _ in range(3):
        for names in ("ab", "ba", "ac"):
            samples = [{name: np.ones(n) for name in names} for n in (1, 2)]
            other = next(name for name in names if name != "a")
            if keyword == "pad":
                for each in samples:
                    each[other] = np.ones(2)
                made = ferry.collate(samples, "torch", pad=given)
                assert made["a"].tolist() == [[1, 7], [1, 1]]
                assert made[other].tolist() == [[1, 1], [1, 1]]
            else:
                samples = [samples[0]] * 2
                made = ferry.collate(samples, "torch", dtype=given)
                assert (made["a"].dtype, made[other].dtype) == (torch.float16, torch.float64)
    for odd in ({"b": np.ones(1)}, [], {"a": "text"}):
        with pytest.raises(ferry.UnsupportedTypeError, match="has the name 'a'"):
            ferry.collate([odd] * 2, "torch", **{keyword: given})


@pytest.mark.fast_paths
def test_padding_numbers_that_are_equal_are_not_the_same():
    """0.0 and -0.0, 1 and True, and NaN, which equals nothing."""
    rows = [{"x": [1.5]}, {"x": [1.5, 2.5]}]
    for _ in range(2):
        for number in (0.0, -0.0, 0, float("nan"), -float("nan"), 1, 1.0):
            made = ferry.collate(rows, "numpy", pad=number)["x"]
            assert made[0, 1].tobytes() == np.float64(number).tobytes()
        with pytest.raises(ferry.LossyCastError, match="bool"):
            ferry.collate(rows, "numpy", pad=True)


@pytest.mark.fast_paths
@pytest.mark.parametrize("make", [list, torch.tensor, np.array], ids=["lists", "torch", "numpy"])
def test_masks_and_lengths_come_beside_their_leaves(make):
    """At any depth of dicts, in their order; and where there is no room, or no key, that is said."""
    for _ in range(2):
        samples = [
            {
                "in": {"x": make([1] * n), "y": n},
                "z": make([2] * (3 - n)),
                "list": [np.ones(1), {"k": 1}],
            }
            for n in (1, 2)
        ]
        made = ferry.collate(samples, "numpy", pad={"in.x": 0, "z": -1}, mask=True, lengths=True)
        assert list(made) == ["in", "z", "list", "z_mask", "z_lengths"]
        assert list(made["in"]) == ["x", "y", "x_mask", "x_lengths"]
        assert made["in"]["x_mask"].tolist() == [[True, False], [True, True]]
        assert made["in"]["x_lengths"].tolist() == [1, 2]
        assert made["z_mask"].tolist() == [[True, True], [True, False]]
        assert made["z"].tolist() == [[2, 2], [2, -1]]
        if make is not list:
            with pytest.raises(ferry.UnsupportedTypeError, match="mask=True"):
                ferry.collate([make([1]), make([1, 2])], "numpy", pad=0, mask=True)
        for odd in ([{"x": make([1]), "x_mask": 1}] * 2, [{1: make([1])}] * 2, [(make([1]),)] * 2):
            if make is list and type(odd[0]) is tuple:
                continue  # there a list is a container
            with pytest.raises(ferry.UnsupportedTypeError, match="mask=True"):
                ferry.collate(odd, "numpy", pad=0, mask=True)


@pytest.mark.fast_paths
def test_nothing_of_a_batch_is_that_of_another():
    """Memory is new in each call, also where the recipe is known."""
    samples = [{"x": np.ones(2, "f4"), "y": torch.ones(2), "i": 1, "r": [1, 2]}] * 2
    for keywords in ({}, {"device": "cpu"}, {"dtype": {"float": "float16"}}, {"pad": 0}):
        first, second = (ferry.collate(samples, "torch", **keywords) for _ in range(2))
        for key, each in first.items():
            assert not ferry.shares_memory(each, second[key])
            assert not ferry.shares_memory(each, samples[0][key]) if key in "xy" else True
            before = second[key].clone()
            each.zero_()
            assert torch.equal(second[key], before)
    assert samples[0]["x"].tolist() == samples[0]["y"].tolist() == [1.0, 1.0]


@pytest.mark.fast_paths
def test_pictures_and_scalars_are_read_together():
    """Of one mode and size, or not; with the bits of NumPy's scalars."""
    image = pytest.importorskip("PIL.Image")
    generator = np.random.default_rng(0)
    for mode, shape in (
        ("RGB", (4, 5, 3)),
        ("L", (4, 5)),
        ("I", (4, 5)),
        ("1", (4, 5)),
        ("F", (4, 5)),
    ):
        arrays = [generator.integers(0, 2, shape).astype("uint8") * 255 for _ in range(3)]
        photos = [image.fromarray(each).convert(mode) for each in arrays]
        for _ in range(2):
            made = ferry.collate(photos, "torch").numpy()
            expected = np.stack([np.asarray(each) for each in photos])
            assert (made.dtype, made.tobytes()) == (expected.dtype, expected.tobytes())
        with pytest.raises(ferry.ShapeError):
            ferry.collate([*photos, photos[0].resize((2, 2))], "torch")
    for dtype in ("float16", "float32", "float64", "int8", "uint64", "bool"):
        bits = generator.integers(0, 2 if dtype == "bool" else 256, (3, np.dtype(dtype).itemsize))
        array = bits.astype("uint8").view(dtype)[:, 0]
        for _ in range(2):
            made = ferry.collate([each for each in array], "numpy")  # noqa: C416 - these are scalars
            assert (made.dtype, made.tobytes()) == (array.dtype, array.tobytes())


# -- faults that must be noticed -------------------------------------------------------------------


def columns_in_another_order(monkeypatch):
    real = program.take_columns

    def take(root, given):
        taken = real(root, given)
        return taken and (taken[0][::-1], taken[1])

    monkeypatch.setattr(program, "take_columns", take)


def types_are_not_compared(monkeypatch):
    monkeypatch.setattr(
        program.BatchProgram, "take", lambda self, given, _: program.take_columns(self.root, given)
    )


def names_are_not_compared(monkeypatch):
    monkeypatch.setattr(program, "labels_of", lambda _: [])


def keys_are_not_compared(monkeypatch):
    def apart(samples):
        return [
            *map(
                list, zip(*(x.values() if isinstance(x, dict) else x for x in samples), strict=True)
            )
        ]

    monkeypatch.setattr(taking_apart, "columns_apart", apart)


def buffers_are_shared(monkeypatch):
    real, made = run.execute, {}
    monkeypatch.setattr(
        run, "execute", lambda steps, x, *out: made.setdefault(id(steps), real(steps, x, *out))
    )


def the_first_tells_for_all(monkeypatch):
    real = together.signature
    monkeypatch.setattr(together, "signature", lambda tensors: real(tensors[:1]))


def subclasses_are_the_same(monkeypatch):
    real = taking_apart._take

    def take(container, given, *found):
        of_kind = isinstance(given[0], container.kind)
        other = copy.copy(container)
        other.kind = type(given[0]) if of_kind else container.kind
        return real(other, given, *found)

    monkeypatch.setattr(taking_apart, "_take", take)


def the_environment_is_not_looked_at(monkeypatch):
    real = recipes.Conversion.__init__

    def init(self, target, request):
        real(self, target, request)
        self.environment = lambda: None

    monkeypatch.setattr(recipes.Conversion, "__init__", init)
    recipes.forget_recipes()


def rows_are_containers(monkeypatch):
    monkeypatch.setattr(taking_apart, "_are_surely_alike", lambda *_, **__: True)
    recipes.forget_recipes()


class Doubled(Pair):
    """A named tuple whose constructor does more than to keep its arguments."""

    def __new__(cls, left, right):
        return super().__new__(cls, left, right * 2)


def history():
    """Batches one after the other, each with what comes out."""
    for value in ("text", np.ones(1), torch.ones(1), "text", 5, None, "text"):
        for samples in ([{"x": value}] * 2, [(value,)] * 2):
            assert_as_at_length(samples, "torch", {})
    for first in (Count(4), 4):
        samples = [{"w": [each], "x": 1} for each in (first, 2, 3)]
        assert_as_at_length(samples, "torch", {})
    for kind in (Pair, Doubled, Pair):
        assert_as_at_length([(kind(np.ones(1), number),) for number in range(3)], "torch", {})
    names = [
        {"a": np.full(2, 1.0), "b": np.full(2, 2.0)},
        {"a": np.full(2, 3.0), "b": np.full(2, 4.0)},
    ]
    turned = [names[0], {"b": names[1]["b"], "a": names[1]["a"]}]
    alike = [{"x": np.full(2, float(number), "f4")} for number in range(40)]
    late = [*alike[:37], {"x": np.ones(2, "f8")}, *alike[38:]]
    own = [*alike[:37], {"x": np.ma.masked_array(np.ones(2, "f4"), [True, False])}, *alike[38:]]
    for keywords in ({}, {"dtype": {"float32": "float16"}}):
        for samples in (names, turned, alike, late, own, alike, [{"x": 1}, {"x": 2}], names):
            assert_as_at_length(samples, "torch", keywords)
    again = [ferry.collate(alike, "torch", dtype={"float": "float64"})["x"] for _ in range(3)]
    again[0].zero_()
    assert again[2].tolist() == [each["x"].tolist() for each in alike]
    for keys in ("ab", "ba"):
        made = ferry.collate(
            [{key: np.ones(1) for key in keys}] * 2, "torch", dtype={"a": "float16"}
        )
        assert made["a"].dtype is torch.float16
    for default in (torch.float64, torch.bfloat16):
        before = torch.get_default_dtype()
        torch.set_default_dtype(default)
        try:
            for _ in range(2):
                made = ferry.collate([{"x": 1.5}] * 2, "torch", device="cpu")
                assert made["x"].dtype is default, default
        finally:
            torch.set_default_dtype(before)


@pytest.mark.quick
@pytest.mark.fast_paths
@pytest.mark.parametrize(
    "plant",
    [
        columns_in_another_order,
        types_are_not_compared,
        names_are_not_compared,
        keys_are_not_compared,
        buffers_are_shared,
        the_first_tells_for_all,
        subclasses_are_the_same,
        the_environment_is_not_looked_at,
        rows_are_containers,
    ],
)
def test_planted_faults_are_noticed(monkeypatch, plant):
    """The comparisons above are ones that can fail."""
    recipes.forget_recipes()
    history()
    plant(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError)):
        history()
    monkeypatch.undo()
    recipes.forget_recipes()
    history()


# -- what is kept ----------------------------------------------------------------------------------


def programs_for(to="torch", **keywords):
    asked = (to, None, keywords.get("dtype"), None, None, None, "detach", {})
    return api._find(asked, "numbers", "error", (None, None, "right", False, False), None)


@pytest.mark.quick
@pytest.mark.fast_paths
def test_a_second_batch_is_not_looked_at_anew(monkeypatch):
    """Nor are eight structures in turn, nor samples with keys that were never seen."""
    ferry.collate([np.ones(1)], "torch")
    recipes.forget_recipes()
    made = []
    real = program.BatchPrograms.make
    monkeypatch.setattr(
        program.BatchPrograms, "make", lambda self, x: made.append(x) or real(self, x)
    )
    eight = [
        [{"a": (np.ones(1),) * (n + 1), "b": 1, "c": "text"} for _ in range(3)] for n in range(6)
    ]
    eight += [[{"a": [1, 2]}, {"a": [3, 4]}], [{"a": ["x", "y"]}] * 2]
    for _ in range(4):
        for samples in eight:
            ferry.collate(samples, "torch")
    assert len(made) == 8
    made.clear()
    for number in range(20):
        ferry.collate([{f"layer{number}": np.ones(2), number: np.ones(3)}] * 2, "torch")
    assert len(made) == 1


@pytest.mark.fast_paths
def test_the_programs_that_are_kept_are_bounded(monkeypatch):
    """By how many structures there are, and by their columns; their recipes too."""
    recipes.forget_recipes()
    monkeypatch.setattr(program, "_MOST_COLUMNS", 500)
    monkeypatch.setattr(program, "_MOST_RECIPES", 8)
    kept = programs_for()
    for number in range(200):
        ferry.collate([tuple(np.ones(1) for _ in range(number % 100))] * 2, "torch")
        ferry.collate([{"x": [("a",)] * (number + 1), "y": np.ones(1)}] * 2, "torch")
        assert len(kept._kept) <= program._MOST
        assert all(len(each) <= program._ALTERNATIVES for each in kept._kept.values())
        columns_kept = sum(len(each.columns) for many in kept._kept.values() for each in many)
        assert columns_kept == kept._columns < 700
    for rank in range(20):
        ferry.collate([np.ones((1,) * rank, ">f4")] * 2, "torch")
    assert len(kept.known) <= 8
    assert programs_for() is kept


@pytest.mark.fast_paths
def test_nothing_of_the_samples_is_kept():
    """A program knows types, and what is made of them; no tensor, and no container."""
    samples = [Box(np.ones(3), collections.UserDict(a=torch.ones(2), n=[1, 2])) for _ in range(2)]
    watched = [weakref.ref(each.first) for each in samples]
    watched += [weakref.ref(each.second) for each in samples]
    watched += [weakref.ref(each.second["a"]) for each in samples]
    for keywords in ({}, {"pad": 0}, {"device": "cpu"}, {"dtype": {"first": "float16"}}):
        for _ in range(2):
            ferry.collate(samples, "torch", **keywords)
    del samples
    gc.collect()
    assert [each() for each in watched] == [None] * 6


@pytest.mark.fast_paths
def test_a_function_that_chooses_leaves_is_not_kept():
    """It may hold anything."""

    def chosen(_):
        return False

    watched = weakref.ref(chosen)
    ferry.collate([np.ones(1)] * 2, "numpy", leaves=chosen)
    del chosen
    gc.collect()
    assert watched() is None


@pytest.mark.fast_paths
def test_programs_are_shared_by_threads():
    """Many threads collate samples of many structures at the same time, each its own values."""
    failed = []

    def work(seed):
        generator = np.random.default_rng(seed)
        for _ in range(100):
            count = int(generator.integers(1, 12))
            values = generator.random((4, count, 2))
            samples = [{"a": tuple(row[:-1]), "b": (row[-1], seed)} for row in values]
            for keywords in ({}, {"device": "cpu"}, {"dtype": "float32"}):
                made = ferry.collate(samples, "torch", **keywords)
                found = torch.stack([*made["a"], made["b"][0]], 1).float().numpy()
                if not np.array_equal(found, values.astype("f4")) or set(made["b"][1].tolist()) != {
                    seed
                }:
                    failed.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.unwatched  # a hint that is pasted meanwhile meets another list each time
@pytest.mark.fast_paths
def test_samples_that_a_thread_changes_meanwhile():
    """Its values come before the change or after it, under their own keys; nothing else comes out."""
    samples = [{"a": np.full(2, 1.0), "b": np.full(2, 2.0)} for _ in range(16)]
    stop = threading.Event()

    def change():
        while not stop.is_set():
            sample = samples[5]
            sample["a"] = sample.pop("a")
            sample["c"] = 5
            del sample["c"]

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(300):
            made, error = outcome(ferry.collate, samples, "numpy")
            if error is not None:
                assert error[0] is ferry.UnsupportedTypeError
            else:
                assert (made["a"] == 1).all()
                assert (made["b"] == 2).all()
    finally:
        stop.set()
        thread.join()


def test_keys_that_change_after_they_were_read(monkeypatch):
    """The batch has the keys that its samples had."""
    samples = [{"a": np.full(2, n), "b": np.full(2, -n)} for n in range(3)]
    ferry.collate(samples, "numpy")
    ferry.collate(samples, "numpy")
    real = program.BatchProgram.take

    def change(self, given, rule):
        found = real(self, given, rule)
        given[0]["c"] = given[0].pop("a")
        return found

    monkeypatch.setattr(program.BatchProgram, "take", change)
    made = ferry.collate(samples, "numpy")
    assert {key: each[:, 0].tolist() for key, each in made.items()} == {
        "a": [0, 1, 2],
        "b": [0, -1, -2],
    }


def test_programs_are_forgotten_with_recipes():
    """They have recipes of backends and devices of their time."""
    ferry.collate([np.ones(1)] * 2, "torch")
    ferry.collate([np.ones(1)] * 2, "torch")
    before = programs_for()
    assert before._kept
    recipes.forget_recipes()
    assert programs_for() is not before


@pytest.mark.quick
def test_results_of_programs_are_verified(monkeypatch):
    """In verifying mode each column's result is compared with its plan."""
    samples = [{"x": np.ones(2)}, {"x": np.zeros(2)}]
    for _ in range(2):
        ferry.collate(samples, "numpy", dtype={"x": "float32"})
    real = run.execute
    monkeypatch.setattr(run, "execute", lambda *given: real(*given).astype("int8"))
    with pytest.raises(ferry.PlanViolation, match="dtype"):
        ferry.collate(samples, "numpy", dtype={"x": "float32"})


@pytest.mark.fast_paths
def test_errors_name_the_leaf_and_all_of_them_are_told():
    """As without programs, also after batches that had one."""
    good = [{"a": np.ones(2), "b": {"c": [1, 2]}, "d": 1}] * 3
    bad = [*good[:2], {"a": np.ones(3), "b": {"c": [1]}, "d": 1}]
    for _ in range(2):
        ferry.collate(good, "torch")
        with pytest.raises(ferry.TreeError) as caught:
            ferry.collate(bad, "torch")
        assert [each.message.rpartition(" - at ")[2] for each in caught.value.exceptions] == [
            '$["a"]',
            '$["b"]["c"]',
        ]
