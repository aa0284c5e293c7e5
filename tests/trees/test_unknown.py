"""Objects that are no containers and hold a tensor: refused with the path of it, or kept because somebody says so."""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import threading
import types

import numpy as np
import optree
import pytest

import tensorferry as ferry

torch = pytest.importorskip("torch")


class Box:
    def __init__(self, held):
        self.held = held


class Slotted:
    __slots__ = ("held", "unset")

    def __init__(self, held):
        self.held = held


class Code:
    """An object that says what is asked of it."""

    def __init__(self, asked):
        object.__setattr__(self, "asked", asked)
        object.__setattr__(self, "held", torch.ones(2))

    def __getattribute__(self, name):
        object.__getattribute__(self, "asked").append(name)
        return object.__getattribute__(self, name)

    @property
    def computed(self):
        raise AssertionError


TENSOR = torch.ones(2)

HOLDING = [
    (Box(TENSOR), ".held"),
    (Slotted(TENSOR), ".held"),
    (Box([0, {"k": (TENSOR,)}]), '.held[1]["k"][0]'),
    (Box(Box(np.ones(2))), ".held.held"),
    ({TENSOR}, "[0]"),
    (functools.partial(torch.nn.Linear(1, 1)), '.func._parameters["weight"]'),
    (functools.partial(print, 1, [TENSOR]), ".args[1][0]"),
    (functools.partial(print, end=Box(TENSOR)), '.keywords["end"].held'),
    (slice(None, TENSOR), ".stop"),
    (torch.distributions.Normal(TENSOR, TENSOR), ".loc"),
    (
        torch.distributions.Independent(torch.distributions.Normal(TENSOR, TENSOR), 1),
        ".base_dist.loc",
    ),
    (torch.utils.data.TensorDataset(TENSOR), ".tensors[0]"),
    (torch.nn.Linear(1, 1), '._parameters["weight"]'),
    (
        torch.nn.Sequential(torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(1, 1)))),
        '._modules["0"]._modules["0"]._modules["0"]._parameters["weight"]',
    ),
]


EVERY_FUNCTION = {
    "convert_tree": lambda tree, **keywords: ferry.convert_tree(tree, "numpy", **keywords),
    "numbers": lambda tree, **keywords: ferry.convert_tree(
        tree, "numpy", leaves="numbers", **keywords
    ),
    "explain_tree": lambda tree, **keywords: ferry.explain_tree(tree, "numpy", **keywords),
    "describe_tree": ferry.describe_tree,
    "snapshot": ferry.snapshot,
    "collate": lambda tree, **keywords: ferry.collate([tree], "numpy", **keywords),
    "start": lambda tree, **keywords: ferry.start(tree, "numpy", **keywords).result(),
    "prefetch": lambda tree, **keywords: list(ferry.prefetch([tree], "numpy", **keywords)),
}


@pytest.mark.parametrize("function", EVERY_FUNCTION)
def test_every_function_refuses_and_keeps(function):
    """With the path of the tensor; what is kept is the object itself."""
    box = Box([TENSOR])
    tree = {"x": torch.ones(1), "box": box}
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        EVERY_FUNCTION[function](tree)
    assert caught.value.message.endswith('- at $["box"].held[0]')
    assert 'unknown="keep"' in caught.value.hint
    EVERY_FUNCTION[function](tree, unknown="keep")
    with pytest.raises(ValueError, match="unknown must be"):
        EVERY_FUNCTION[function](tree, unknown="maybe")
    assert ferry.convert_tree(tree, "numpy", unknown="keep")["box"] is box
    assert ferry.snapshot(tree, unknown="keep")["box"] is box


@pytest.mark.parametrize(
    ("x", "inside"), HOLDING, ids=lambda x: x if isinstance(x, str) else type(x).__name__
)
def test_where_a_tensor_is_found(x, inside):
    """In attributes and slots, and in lists, tuples, dicts, sets and objects in them."""
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.convert_tree([x], "numpy")
    assert caught.value.message.endswith(f"- at $[0]{inside}")


@pytest.mark.parametrize(
    "x",
    [
        Box("text"),
        Box(np.array(["text"])),
        Box(np.float32(1)),
        Slotted(None),
        {1, 2},
        torch.nn.ReLU(),
        lambda: TENSOR,
        Box,
        types,
        threading.Lock(),
        np.random.default_rng(0),
        torch.Generator(),
        torch.float32,
        functools.partial(print, 1),
        slice(1, None),
        iter("text"),
        iter("Größe"),
        itertools.count(),
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_holds_no_tensor_is_kept(x):
    """And so is code, whatever it refers to."""
    assert ferry.convert_tree([x], "numpy")[0] is x
    assert ferry.snapshot([x])[0] is x


def test_a_module_is_refused_in_its_frameworks_words():
    """As `to_numpy` does."""
    module = torch.nn.Linear(1, 1)
    with pytest.raises(ferry.UnsupportedTypeError) as alone:
        ferry.to_numpy(module)
    with pytest.raises(ferry.UnsupportedTypeError) as inside:
        ferry.convert_tree({"model": module}, "numpy")
    assert alone.value.hint == 'convert_tree(x.state_dict(), "numpy")'
    assert inside.value.hint.startswith('x["model"].state_dict() in its place')


def test_no_code_of_an_object_is_run():
    """No property, and not its own way to get attributes."""
    asked = []
    with pytest.raises(ferry.UnsupportedTypeError, match=r"\.held\[0\]\.held"):
        ferry.convert_tree(Box([Code(asked)]), "numpy")
    assert asked == []


def test_an_object_that_refers_to_itself_is_looked_at_once():
    """Or to one that refers to it."""
    box = Box(None)
    box.held = [box, Box(box)]
    assert ferry.convert_tree([box], "numpy")[0] is box


def test_a_callable_says_which_tensors_are_meant():
    """An object that holds none of them is kept."""
    box = Box(TENSOR)
    assert ferry.convert_tree(
        [box], "numpy", leaves=lambda x: isinstance(x, (np.ndarray, list)) and x != [box]
    ) == [box]
    with pytest.raises(ferry.UnsupportedTypeError, match=r"\$\[0\]\.held"):
        ferry.convert_tree([box], "numpy", leaves=lambda x: isinstance(x, torch.Tensor))
    assert ferry.convert_tree([box], "torch", leaves=lambda x: x is box.held and False) == [box]


def test_a_plan_says_what_is_kept():
    """Each leaf: where it is, of which type, and where its tensor is if it holds one."""
    plan = ferry.explain_tree(
        {"box": Box([TENSOR]), "x": TENSOR, "plain": Box(1)}, "numpy", unknown="keep"
    )
    assert tuple((leaf.path, leaf.type, leaf.tensor) for leaf in plan.kept) == (
        ('$["box"]', "Box", '$["box"].held[0]'),
        ('$["plain"]', "Box", None),
    )
    assert '$["box"]  Box: kept as it is with the tensor at $["box"].held[0]' in str(plan)
    assert '$["plain"]  Box: kept as it is\n' in f"{plan}\n"
    assert plan.to_dict()["kept"][0] == plan.kept[0]._asdict()
    assert ferry.explain_tree({"x": TENSOR}, "numpy").kept == ()


def test_a_plan_of_many_that_are_kept_shows_those_with_tensors_first():
    """And counts the others that there is no room for; all of them are in the plan."""
    plan = ferry.explain_tree([*range(30), Box(TENSOR), TENSOR], "numpy", unknown="keep")
    shown = str(plan).splitlines()
    assert "with the tensor at $[30].held" in shown[2]
    assert shown[-1] == "   … and 19 more are kept: see .kept"
    assert [each.path for each in plan.kept] == [f"$[{index}]" for index in range(31)]


def test_what_a_container_has_beside_its_values_is_looked_at_too():
    """An attribute of a list is not one of its items."""

    class Rows(list):
        pass

    rows = Rows([TENSOR])
    rows.note = [TENSOR]
    for function in EVERY_FUNCTION.values():
        with pytest.raises(ferry.UnsupportedTypeError, match=r"\$\[0\]\.note"):
            function([rows])
    assert ferry.convert_tree(rows, "numpy", unknown="keep").note is rows.note
    rows.note = "text"
    assert ferry.convert_tree([rows], "numpy")[0].note == "text"


def test_every_sample_of_a_batch_is_looked_at():
    """Not the first of a type alone."""
    with pytest.raises(ferry.UnsupportedTypeError, match=r'\$\["box"\]\.held'):
        ferry.collate([{"box": Box(1)}, {"box": Box(TENSOR)}], "numpy")
    boxes = [Box(1), Box(TENSOR)]
    assert ferry.collate([{"box": box} for box in boxes], "numpy", unknown="keep")["box"] == boxes


@pytest.mark.parametrize("unknown", ["error", "keep"])
def test_a_file_keeps_no_objects(tmp_path, unknown):
    """Where one holds a tensor, the message says where."""
    for x, inside in (
        (Box(TENSOR), ".held"),
        (torch.nn.Linear(1, 1), r'\._parameters\["weight"\]'),
    ):
        with pytest.raises(ferry.UnsupportedTypeError, match=rf'\$\["box"\]{inside}'):
            ferry.save({"box": x}, tmp_path / "all.npz", unknown=unknown)
    ferry.save({"box": vars(Box(TENSOR))}, tmp_path / "all.npz")
    for x in (Slotted(TENSOR), functools.partial(print, TENSOR), slice(TENSOR)):
        with pytest.raises(ferry.UnsupportedTypeError, match=r'\$\["box"\]\.') as caught:
            ferry.save({"box": x}, tmp_path / "all.npz", unknown=unknown)
        assert "vars(" not in (caught.value.hint or ""), "it has none"
    with pytest.raises(ValueError, match="unknown must be"):
        ferry.save({"x": TENSOR}, tmp_path / "other.npz", unknown="maybe")


def test_a_type_that_is_registered_is_a_container():
    """As the hint says, in a namespace of its own."""

    class Mine(Box):
        pass

    def rebuild(_, values):
        result = copy.copy(mine)
        result.held = values[0]
        return result

    mine = Mine(TENSOR)
    optree.register_pytree_node(Mine, lambda x: ((x.held,), None), rebuild, namespace="tensorferry")
    try:
        assert isinstance(ferry.convert_tree([mine], "numpy")[0].held, np.ndarray)
    finally:
        optree.unregister_pytree_node(Mine, namespace="tensorferry")


@pytest.mark.parametrize("make", [dict, __import__("collections").OrderedDict])
def test_the_views_of_a_dict_are_looked_into(make):
    """They are no containers that can be made again, and their tensors would stay as they are."""
    held = make(a=np.ones(2))
    for view in (held.values(), held.items()):
        with pytest.raises(ferry.UnsupportedTypeError, match="holds a tensor"):
            ferry.convert_tree({"view": view}, "numpy")
        assert ferry.convert_tree({"view": view}, "numpy", unknown="keep")["view"] is view
    assert list(ferry.convert_tree({"keys": held.keys()}, "numpy")["keys"]) == ["a"]


ITERATORS = {
    "generator": lambda: (each for each in [TENSOR]),
    "map": lambda: map(abs, [TENSOR]),
    "filter": lambda: filter(torch.is_tensor, [TENSOR]),
    "zip": lambda: zip([TENSOR], strict=True),
    "enumerate": lambda: enumerate([TENSOR]),
    "list_iterator": lambda: iter([TENSOR]),
    "dict_valueiterator": lambda: iter({"a": TENSOR}.values()),
    "deque_iterator": lambda: iter(collections.deque([TENSOR])),
    "Mine": lambda: type("Mine", (map,), {})(abs, [TENSOR]),
    "chain": lambda: itertools.chain([TENSOR]),
}


@pytest.mark.unwatched  # a hint uses it up
@pytest.mark.parametrize("name", ITERATORS)
def test_an_iterator_is_refused_without_using_it_up(name):
    """By its path, and with the whole call at the top; what is kept can still be read."""
    for tree, path, instead in (
        (ITERATORS[name](), "\n", 'convert_tree(list(x), "numpy"), if it ends'),
        ({"x": [ITERATORS[name]()]}, r' - at \$\["x"\]\[0\]\n', 'list(x["x"][0]) in its place'),
    ):
        with pytest.raises(
            ferry.UnsupportedTypeError, match=rf"{name} may give tensors.*{path}"
        ) as caught:
            ferry.convert_tree(tree, "numpy")
        assert caught.value.hint.startswith(instead)
        assert 'unknown="keep"' in caught.value.hint
    x = ITERATORS[name]()
    ferry.convert_tree(list(x), "numpy", unknown="keep")
    x = ITERATORS[name]()
    assert ferry.convert_tree([x], "numpy", unknown="keep")[0] is x
    with pytest.raises(ferry.UnsupportedTypeError, match="may give tensors"):
        ferry.convert_tree([x], "numpy")
    assert len(list(x)) == 1


def test_an_iterator_is_refused_by_every_function(tmp_path):
    """With a callable for `leaves` too, unless that takes it for a leaf; a file says what to save instead."""
    for function in EVERY_FUNCTION.values():
        with pytest.raises(ferry.UnsupportedTypeError, match=r'\$\["x"\]'):
            function({"x": map(abs, [TENSOR])})
        function({"x": map(abs, [TENSOR])}, unknown="keep")
    with pytest.raises(ferry.UnsupportedTypeError, match="may give tensors"):
        ferry.convert_tree([map(abs, [TENSOR])], "numpy", leaves=lambda _: False)
    with pytest.raises(ferry.UnsupportedTypeError, match=r'\$\["x"\]') as caught:
        ferry.save({"x": map(abs, [TENSOR])}, tmp_path / "all.npz")
    assert caught.value.hint == 'list(x["x"]) in its place'


def test_a_partial_that_is_kept_is_the_same():
    """And a plan says where its tensor is."""
    x = functools.partial(print, TENSOR)
    assert ferry.convert_tree([x], "numpy", unknown="keep")[0] is x
    (kept,) = ferry.explain_tree([x], "numpy", unknown="keep").kept
    assert (kept.path, kept.type, kept.tensor) == ("$[0]", "partial", "$[0].args[0]")


@pytest.mark.parametrize("inside", [False, True], ids=["a module", "modules in lists of modules"])
def test_a_module_of_nnx_that_is_no_pytree_is_refused(inside, tmp_path):
    """However deep its parameters are; its state goes through each function instead."""
    nnx = pytest.importorskip("flax.nnx", reason="Flax is not installed")

    class Plain(nnx.Module, pytree=False):
        def __init__(self, held):
            self.held = held

    x = Plain(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
    for _ in range(3 if inside else 0):
        x = Plain({"a": [x]})
    for function in EVERY_FUNCTION.values():
        with pytest.raises(
            ferry.UnsupportedTypeError, match=r'\$\["model"\].*\.kernel\._raw_value\n'
        ):
            function({"model": x})
        function({"model": x}, unknown="keep")
        function({"model": nnx.to_pure_dict(nnx.state(x))})
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.convert_tree(x, "torch")
    code = caught.value.hint.partition(";")[0]
    made = eval(code, {"nnx": nnx, "x": x, "convert_tree": ferry.convert_tree})  # noqa: S307 - that is what the hint is for
    assert len(ferry.describe_tree(made)) == 2
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.save({"model": x}, tmp_path / "all.npz")
    path = tmp_path / "state.npz"
    code = caught.value.hint.removesuffix(" in its place")
    ferry.save(eval(code, {"nnx": nnx, "x": {"model": x}}), path)  # noqa: S307 - that is what the hint is for
    assert len(ferry.open(path).tensors) == 2


def test_a_module_of_nnx_that_is_a_pytree_is_a_container():
    """As its registration with JAX says."""
    nnx = pytest.importorskip("flax.nnx", reason="Flax is not installed")
    module = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    assert isinstance(ferry.convert_tree([module], "torch")[0].kernel[...], torch.Tensor)
    assert not isinstance(module.kernel[...], torch.Tensor)
