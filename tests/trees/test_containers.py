"""Containers: which are entered, what is kept of them, and what their leaves' paths are."""

from __future__ import annotations

import collections
import dataclasses
import types
from functools import partial
from typing import Any, NamedTuple

import attrs
import ml_dtypes
import numpy as np
import optree
import pytest
from tests.support import importable

import tensorferry as ferry

EVERYWHERE = optree.registry.__GLOBAL_NAMESPACE
"""optree's name for the namespace that all others see."""


@dataclasses.dataclass
class Sample:
    image: Any
    name: str = "digit"
    later: Any = dataclasses.field(default=None, init=False)


@dataclasses.dataclass(frozen=True)
class Frozen:
    image: Any
    name: str


@dataclasses.dataclass(frozen=True)
class Slotted:
    __slots__ = ("image",)
    image: Any


@dataclasses.dataclass
class Counting:
    image: Any
    built: Any = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.built.append(1)


@attrs.define
class Defined:
    image: Any
    name: str


@attrs.frozen
class FrozenAttrs:
    image: Any = attrs.field(converter=lambda x: x)
    name: str = "digit"


class Named(NamedTuple):
    image: Any
    name: str


class OwnDict(dict):
    """A dict with an attribute of its own."""


class OwnList(list):
    """A list with an attribute of its own."""


class OwnTuple(tuple):  # noqa: SLOT001 - it is to have an attribute
    """A tuple with an attribute of its own."""


class Locked(collections.abc.Mapping):
    """A mapping that a dict makes."""

    def __init__(self, values):
        self._values = dict(values)

    def __getitem__(self, key):
        return self._values[key]

    def __iter__(self):
        return iter(self._values)

    def __len__(self):
        return len(self._values)


class FromNothing(Locked):
    """A mapping that no dict makes."""

    def __init__(self):
        super().__init__({"image": np.ones(2)})


def with_attribute(x):
    x.note = "mine"
    return x


def deep(image):
    """A tree of every container of Python's, each with one tensor."""
    missing = Sample(image)
    return {
        "dict": {"b": image, "a": 1},
        "list": [image, "text"],
        "tuple": (image, None),
        "ordered": collections.OrderedDict(z=image, a=2),
        "default": collections.defaultdict(list, {"k": image}),
        "deque": collections.deque([image], maxlen=3),
        "named": Named(image, "x"),
        "dataclass": missing,
        "frozen": Frozen(image, "x"),
        "slots": Slotted(image),
        "attrs": Defined(image, "x"),
        "frozen attrs": FrozenAttrs(image),
        "namespace": types.SimpleNamespace(image=image, name="x"),
        "own dict": with_attribute(OwnDict(k=image)),
        "own list": with_attribute(OwnList([image])),
        "own tuple": with_attribute(OwnTuple([image])),
        "user dict": collections.UserDict(k=image),
        "proxy": types.MappingProxyType({"k": image}),
        "mapping": Locked({"k": image}),
    }


def only_tensor(container):
    """The one tensor in a container of `deep`."""
    (found,) = ferry.describe_tree(container).values()
    return found


@pytest.mark.parametrize("kind", deep(None))
def test_a_container_is_entered_and_keeps_its_type(kind):
    """Its tensor becomes one of the target; the class is the same."""
    image = np.arange(3.0)
    container = deep(image)[kind]
    result = ferry.convert_tree(container, "torch")
    assert type(result) is type(container)
    assert result is not container
    assert only_tensor(result).framework == "torch"
    assert only_tensor(container).framework == "numpy"


def test_what_is_no_tensor_is_kept():
    """Names, None, factories, lengths, attributes, keys and their order come along."""
    result = ferry.convert_tree(deep(np.ones(2)), "torch")
    assert list(result) == list(deep(None))
    assert list(result["dict"]) == ["b", "a"]
    assert result["dict"]["a"] == 1
    assert result["list"][1] == "text"
    assert result["tuple"][1] is None
    assert list(result["ordered"]) == ["z", "a"]
    assert result["default"].default_factory is list
    assert result["deque"].maxlen == 3
    assert result["named"].name == "x"
    assert result["dataclass"].name == "digit"
    assert result["dataclass"].later is None
    assert result["frozen"].name == "x"
    assert result["namespace"].name == "x"
    assert [result[kind].note for kind in ("own dict", "own list", "own tuple")] == ["mine"] * 3


def test_no_constructor_runs_again():
    """A class that counts, checks or converts when it is built is copied, not built."""
    sample = Counting(np.ones(2))
    ferry.convert_tree(sample, "torch")
    assert sample.built == [1]


def values_of(container):
    """The very objects that a container holds."""
    if isinstance(container, collections.abc.Mapping):
        return container.values()
    if isinstance(container, collections.abc.Sequence):
        return container
    return [getattr(container, name) for name in ("image", "name") if hasattr(container, name)]


def test_the_input_is_never_changed():
    """Every container holds the very objects that it held."""
    image = np.arange(3.0)
    tree = deep(image)
    before = {kind: list(values_of(each)) for kind, each in tree.items()}
    ferry.convert_tree(tree, "torch", copy=True)
    after = {kind: list(values_of(each)) for kind, each in tree.items()}
    assert all(a is b for kind in tree for a, b in zip(before[kind], after[kind], strict=True))
    assert tree["mapping"]["k"] is image
    assert tree["user dict"]["k"] is image


def test_a_field_that_is_not_set_stays_so():
    """A dataclass without one of its attributes is no error."""
    sample = Sample(np.ones(2))
    del sample.image
    assert not hasattr(ferry.convert_tree([sample, np.ones(1)], "torch")[0], "image")


def test_a_mapping_that_no_dict_makes_becomes_a_dict():
    """A view of a file, say: nothing is lost but the class."""
    result = ferry.convert_tree(FromNothing(), "torch")
    assert type(result) is dict
    assert ferry.describe_tree(result)['$["image"]'].framework == "torch"


class Attributes(dict):
    """Its attributes are its items."""

    def __init__(self, **items):
        super().__init__(**items)
        self.__dict__ = self


class Mirrored(dict):
    """Its items are attributes as well, beside others."""

    def __init__(self, **items):
        super().__init__(**items)
        self.__dict__.update(items, note="kept")


@pytest.mark.parametrize("kind", [Attributes, Mirrored])
def test_attributes_that_are_items_become_the_new_ones(kind):
    """Both names of a leaf lead to the result, and a snapshot has none of the source's memory."""
    tree = kind(x=np.ones(1))
    result = ferry.convert_tree(tree, "torch")
    assert type(result) is kind
    assert result.x is result["x"]
    assert ferry.describe(result.x).framework == "torch"
    ferry.snapshot(tree).x[0] = 5
    assert tree["x"][0] == 1
    assert kind is Attributes or result.note == "kept"


class Pair(NamedTuple):
    image: Any
    label: Any


class Scaled(Pair):
    def __new__(cls, image, label):
        return super().__new__(cls, image / 255, label)


class FromOne(Named):
    def __new__(cls, image):
        return super().__new__(cls, image, "made")


class Queue(collections.deque):
    pass


class Factory(collections.defaultdict):
    def __init__(self):
        super().__init__(list)
        self.note = "kept"


class Sized(collections.OrderedDict):
    def __init__(self, size):
        super().__init__()
        self.size = size


class Sealed(dict):
    def __setitem__(self, key, value):
        raise TypeError("sealed")


class Doubling(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, [value, value])


class Single(dict):
    def __copy__(self):
        return self


def test_no_constructor_or_method_of_a_container_runs_again():
    """They could refuse, scale or double what has been through them already."""
    scaled = Scaled(np.array([255.0]), 1)
    scaled.note = "kept"
    ordered = Sized(3)
    ordered["x"] = np.ones(1)
    factory = Factory()
    factory["x"] = np.ones(1)
    doubling = Doubling(x=np.ones(1))
    tree = {
        "tuple": scaled,
        "one": FromOne(np.ones(1)),
        "deque": Queue([np.ones(1)], 3),
        "default": factory,
        "ordered": ordered,
        "sealed": Sealed(x=np.ones(1)),
        "doubling": doubling,
        "single": Single(x=np.ones(1)),
        "user": collections.UserDict(collections.OrderedDict(x=np.ones(1))),
    }
    tree["user"].data = collections.OrderedDict(x=np.ones(1))
    for result in (ferry.convert_tree(tree, "torch"), ferry.snapshot(tree)):
        assert [type(value) for value in result.values()] == [
            type(value) for value in tree.values()
        ]
        assert all(result[key] is not tree[key] for key in tree)
        assert result["tuple"].image.tolist() == [1.0]
        assert (result["tuple"].note, result["default"].note, result["ordered"].size) == (
            "kept",
            "kept",
            3,
        )
        assert result["deque"].maxlen == 3
        assert result["default"]["missing"] == []
        assert type(result["user"].data) is collections.OrderedDict
    converted = ferry.convert_tree(tree, "torch")
    infos = ferry.describe_tree(converted)
    assert list(infos) == list(ferry.describe_tree(tree))
    assert {info.framework for info in infos.values()} == {"torch"}
    assert list(infos)[:2] == ['$["tuple"].image', '$["one"].image']


def test_a_state_dict_keeps_its_metadata():
    """An OrderedDict has attributes of its own; PyTorch keeps versions there."""
    import torch

    state = torch.nn.BatchNorm1d(2).state_dict()
    for result in (ferry.convert_tree(state, "numpy"), ferry.snapshot(state)):
        assert type(result) is collections.OrderedDict
        assert list(result) == list(state)
        assert result._metadata == state._metadata


def test_a_tuple_of_cs_comes_back():
    """A torch.Size holds numbers alone."""
    import torch

    size = torch.ones(2, 3).shape
    assert type(ferry.convert_tree([size, np.ones(1)], "torch")[0]) is torch.Size
    assert type(ferry.snapshot({"size": size})["size"]) is torch.Size


class Scaling(collections.abc.Mapping):
    """A mapping whose constructor takes what its items are not."""

    def __init__(self, held, scale=2):
        self.held, self.scale = held, scale

    def __getitem__(self, key):
        return self.held[key] * self.scale

    def __iter__(self):
        return iter(self.held)

    def __len__(self):
        return len(self.held)


def test_a_mapping_that_would_change_its_values_becomes_a_dict():
    """A constructor that takes a dict need not give back what is in it."""
    result = ferry.convert_tree(Scaling({"x": np.ones(1)}, 3), "torch")
    assert type(result) is dict
    assert result["x"].tolist() == [3.0]


def test_what_cannot_be_made_again_is_refused_by_path():
    """A class of C's that cannot be copied either; nothing is written into `out` before."""

    @dataclasses.dataclass
    class FailureError(Exception):
        image: Any

        def __copy__(self):
            return self

    tree = {"a": [FailureError(np.ones(2))]}
    with pytest.raises(
        ferry.UnsupportedTypeError, match=r'cannot be made again.* - at \$\["a"\]\[0\]'
    ):
        ferry.convert_tree(tree, "torch")
    out = [np.zeros(2), FailureError(np.zeros(2))]
    with pytest.raises(ferry.UnsupportedTypeError, match="cannot be made again"):
        ferry.convert_tree([np.ones(2), FailureError(np.ones(2))], "numpy", out=out)
    assert out[0].tolist() == [0.0, 0.0]


def test_a_masked_array_is_refused_whatever_its_dtype():
    """Its mask would be lost with its fields too."""
    masked = np.ma.array([(1.0, 2)], dtype=[("a", "f4"), ("b", "i4")], mask=[(True, False)])
    with pytest.raises(ferry.UnsupportedTypeError, match="mask"):
        ferry.convert_tree({"m": masked}, "torch")


def test_paths_that_look_alike_are_told_apart():
    """Two keys with one `repr`, or an attribute named as another's path: leaves are never mixed up."""

    class Key:
        def __repr__(self):
            return "key"

    first, second = Key(), Key()

    def make(a, b):
        return {first: types.SimpleNamespace(v=a), second: types.SimpleNamespace(v=b)}

    batch = ferry.collate([make(1, 2), make(10, 20)], "numpy")
    assert (batch[first].v.tolist(), batch[second].v.tolist()) == ([1, 10], [2, 20])
    tree = make(np.ones(1), np.ones(2))
    assert [info.shape for info in ferry.describe_tree(tree).values()] == [(1,), (2,)]
    like = make(np.ones(1, "f4"), np.ones(1, "f8"))
    result = ferry.convert_tree(tree, like=like)
    assert (result[first].v.dtype, result[second].v.dtype) == (np.float32, np.float64)


def test_a_tensor_class_is_a_leaf_also_where_it_is_registered():
    """The same before and after one of its objects has been met."""
    import torch

    class Labelled(torch.Tensor):
        pass

    torch.utils._pytree.register_pytree_node(
        Labelled, lambda x: ([x.as_subclass(torch.Tensor)], None), lambda v, _: v
    )
    x = torch.ones(2).as_subclass(Labelled)
    before = ferry.describe_tree([x])
    ferry.to_numpy(x)
    assert list(before) == list(ferry.describe_tree([x])) == ["$[0]"]


def test_a_structured_array_is_a_dict_of_its_fields():
    """Views of the same memory, also of nested fields."""
    array = np.zeros(3, [("x", "f4"), ("inner", [("y", "i4", 2)])])
    result = ferry.convert_tree([array], "numpy")[0]
    assert list(result) == ["x", "inner"]
    result["x"][1] = 5
    result["inner"]["y"][2, 0] = 7
    assert array["x"][1] == 5
    assert array["inner"]["y"][2, 0] == 7
    assert list(ferry.describe_tree([array])) == ['$[0]["x"]', '$[0]["inner"]["y"]']


def test_paths_are_the_code_that_leads_to_a_leaf():
    """Keys, indices and attributes, also through containers that optree does not know."""
    tree = {
        "encoder": [0, Sample({"weight": np.ones(1)})],
        3: Named(np.ones(1), ""),
        "u": collections.UserDict(a=[np.ones(1)]),
    }
    paths = list(ferry.describe_tree(tree))
    assert paths == ['$["encoder"][1].image["weight"]', "$[3].image", '$["u"]["a"][0]']
    for path in paths:
        assert eval(path.replace("$", "tree", 1)).shape == (1,)  # noqa: S307 - the path is our own


def test_one_tensor_is_a_tree():
    """Its path is the root's."""
    assert type(ferry.convert_tree([1.0], "torch")) is list
    assert ferry.describe(ferry.convert_tree(np.ones(2), "torch")).framework == "torch"
    assert list(ferry.describe_tree(np.ones(2))) == ["$"]


@pytest.mark.parametrize("tree", [None, 3, "text", [], {}, (), [None], {1, 2}])
def test_a_tree_without_tensors_comes_back_equal(tree):
    """There is nothing to do, and nothing is made of it."""
    assert ferry.convert_tree(tree, "torch") == tree
    assert ferry.describe_tree(tree) == {}


def test_text_stays():
    """An array of strings is no tensor, in NumPy or in TensorFlow."""
    import tensorflow as tf

    names, words = np.array(["a", "b"]), tf.constant(["a"])
    result = ferry.convert_tree({"names": names, "words": words, "x": np.ones(1)}, "torch")
    assert result["names"] is names
    assert result["words"] is words
    assert list(ferry.describe_tree({"names": names, "words": words})) == []
    assert ferry.snapshot([names])[0] is names
    assert ferry.collate([{"n": names}, {"n": names}], "torch") == {"n": [names, names]}


def test_text_that_was_asked_for_is_refused():
    """A callable that says yes to it is not overruled in silence."""
    tree = [np.array(["a"])]
    for call in (partial(ferry.convert_tree, tree, "torch"), partial(ferry.describe_tree, tree)):
        with pytest.raises(ferry.UnsupportedTypeError, match=r"at \$\[0\]"):
            call(leaves=lambda x: isinstance(x, np.ndarray))


@pytest.mark.parametrize(
    "make",
    [list, types.SimpleNamespace, lambda: Sample(None)],
    ids=["list", "namespace", "dataclass"],
)
def test_a_tree_that_contains_itself_is_refused(make):
    """Whatever holds the circle together."""
    tree = make()
    if isinstance(tree, list):
        tree.append(tree)
    else:
        tree.image = tree
    with pytest.raises(ferry.UnsupportedTypeError, match="contains itself"):
        ferry.convert_tree(tree, "torch")


# -- which leaves -------------------------------------------------------------------------------


def test_what_only_has_a_shape_and_a_dtype_stays():
    """A specification is no tensor."""
    import jax
    import tensorflow as tf

    tree = [tf.TensorSpec((2,)), jax.ShapeDtypeStruct((2,), np.float32), np.ones(1)]
    for result in (ferry.convert_tree(tree, "torch"), ferry.snapshot(tree)):
        assert result[:2] == tree[:2]
    assert list(ferry.describe_tree(tree)) == ["$[2]"]


def test_what_fails_when_it_is_looked_at_is_no_crash():
    """A tensor without a shape yet is refused by path; an object whose attributes raise stays."""
    import torch

    class Hostile:
        def __getattr__(self, name):
            raise KeyError(name)

    tree = {"hostile": Hostile(), "x": np.ones(1)}
    for result in (ferry.convert_tree(tree, "torch"), ferry.snapshot(tree)):
        assert result["hostile"] is tree["hostile"]
    for call in (
        ferry.snapshot,
        ferry.describe_tree,
        lambda tree: ferry.convert_tree(tree, "numpy"),
    ):
        with pytest.raises(ferry.UnsupportedTypeError, match=r'no shape yet.* - at \$\["a"\]'):
            call({"a": torch.nn.UninitializedParameter()})
    for numbers in ([Hostile()], [1.0, Hostile()]):
        with pytest.raises(ferry.UnsupportedTypeError, match="Hostile"):
            ferry.to_numpy(numbers)


def test_numbers_are_scalars_of_every_dtype():
    """Also those that NumPy has from ml_dtypes."""
    for number in (ml_dtypes.bfloat16(1.5), ml_dtypes.float8_e4m3fn(1.5), np.float16(1.5)):
        result = ferry.convert_tree([number], "torch", leaves="numbers")[0]
        assert ferry.describe(result).dtype == number.dtype.name
        assert tuple(ferry.collate([number, number], "torch").shape) == (2,)


def test_a_callable_is_asked_of_every_object_of_its_own():
    """What it said of an object that is gone by now is not taken for another's answer."""
    fields = [("a", "f8"), ("b", "f8"), ("c", "i8"), ("d", "f8")]

    def chosen(x):
        return isinstance(x, np.ndarray) and x.dtype in (np.float32, np.float64)

    for count in (1, 2):
        samples = list(np.zeros(count, fields).reshape(count, 1))
        assert type(ferry.collate(samples, "torch", leaves=chosen)["c"]) is list
    like = np.zeros(2, [("a", "f4"), ("b", "f4")])
    integers = np.zeros(2, [("a", "i8"), ("b", "i8")])
    for keywords in ({"like": like}, {}):
        result = ferry.convert_tree(
            integers, *(() if keywords else ("numpy",)), **keywords, leaves=chosen
        )
        assert result["a"].dtype == np.int64


def test_numbers_stay_unless_they_are_asked_for():
    """Python's and NumPy's scalars; each becomes a tensor of shape ()."""
    import torch

    tree = {
        "int": 3,
        "float": 0.5,
        "bool": True,
        "scalar": np.float32(2),
        "text": "x",
        "none": None,
    }
    assert ferry.convert_tree(tree, "torch") == tree
    result = ferry.convert_tree(tree, "torch", leaves="numbers")
    assert [result[key].dtype for key in ("int", "float", "bool", "scalar")] == [
        torch.int64,
        torch.float32,
        torch.bool,
        torch.float32,
    ]
    assert (result["text"], result["none"]) == ("x", None)


def test_equal_numbers_do_not_become_one_tensor():
    """A small integer is one object wherever it stands; a write to one result must not show in another."""
    result = ferry.convert_tree([1, 1, 1], "torch", leaves="numbers")
    result[0] += 1
    assert [each.item() for each in result] == [2, 1, 1]


def test_a_callable_chooses_leaves():
    """Also containers, as one tensor each; what it says no to stays."""
    tree = {"tokens": [1, 2, 3], "kept": np.ones(2), "names": ["a"]}

    def chosen(x):
        return isinstance(x, list) and all(isinstance(each, int) for each in x)

    result = ferry.convert_tree(tree, "numpy", leaves=chosen)
    assert result["tokens"].tolist() == [1, 2, 3]
    assert result["kept"] is tree["kept"]
    assert result["names"] == ["a"]


@pytest.mark.parametrize("wrong", ["all", 3, None])
def test_leaves_takes_three_kinds_of_values(wrong):
    """Anything else is refused in words."""
    with pytest.raises(ValueError if wrong == "all" else TypeError, match="leaves must be"):
        ferry.convert_tree([1], "numpy", leaves=wrong)


# -- what is registered -------------------------------------------------------------------------


class Registered:
    """A class that somebody registers."""

    def __init__(self, weight, name):
        self.weight, self.name = weight, name


def test_what_optree_knows_is_entered():
    """A registration in its global namespace."""

    class Own(Registered):
        pass

    optree.register_pytree_node(
        Own,
        lambda x: ((x.weight,), x.name),
        lambda name, values: Own(*values, name),
        namespace=EVERYWHERE,
    )
    try:
        result = ferry.convert_tree(Own(np.ones(1), "n"), "torch")
        assert (ferry.describe(result.weight).framework, result.name) == ("torch", "n")
    finally:
        optree.unregister_pytree_node(Own, namespace=EVERYWHERE)


def test_what_jax_knows_is_entered():
    """A class that is registered with jax.tree_util: its children are converted, the rest is as it says."""
    import jax

    @jax.tree_util.register_pytree_with_keys_class
    class Module(Registered):
        def tree_flatten_with_keys(self):
            return ((jax.tree_util.GetAttrKey("weight"), self.weight),), self.name

        @classmethod
        def tree_unflatten(cls, name, values):
            return cls(*values, name)

    tree = [Module(np.ones(1), "n")]
    result = ferry.convert_tree(tree, "torch")[0]
    assert (type(result), ferry.describe(result.weight).framework, result.name) == (
        Module,
        "torch",
        "n",
    )
    assert list(ferry.describe_tree(tree)) == ["$[0].weight"]


def test_what_torch_knows_is_entered():
    """A class that is registered with torch.utils._pytree, with the names of its values or without."""
    import torch.utils._pytree as pytree

    class Plain(Registered):
        pass

    class WithKeys(Registered):
        pass

    def flatten(x):
        return [x.weight], x.name

    def flatten_with_keys(x):
        return [(pytree.GetAttrKey("weight"), x.weight)], x.name

    pytree.register_pytree_node(Plain, flatten, lambda values, name: Plain(*values, name))
    pytree.register_pytree_node(
        WithKeys,
        flatten,
        lambda values, name: WithKeys(*values, name),
        flatten_with_keys_fn=flatten_with_keys,
    )
    tree = [Plain(np.ones(1), "p"), WithKeys(np.ones(1), "k")]
    plain, keyed = ferry.convert_tree(tree, "torch")
    assert (ferry.describe(plain.weight).framework, plain.name) == ("torch", "p")
    assert (ferry.describe(keyed.weight).framework, keyed.name) == ("torch", "k")
    assert list(ferry.describe_tree(tree)) == ["$[0][0]", "$[1].weight"]


def test_a_model_output_is_rebuilt_as_the_same_class():
    """Hugging Face's are an OrderedDict with attributes, which stay one."""
    import torch
    from transformers.modeling_outputs import CausalLMOutputWithPast

    output = CausalLMOutputWithPast(
        loss=torch.tensor(0.5), logits=torch.ones(2, 3), hidden_states=(torch.zeros(1),)
    )
    result = ferry.convert_tree(output, "numpy")
    assert type(result) is CausalLMOutputWithPast
    assert type(result.logits) is np.ndarray
    assert result["logits"] is result.logits
    assert result.past_key_values is None
    assert list(result) == list(output)
    assert list(ferry.describe_tree(output)) == [
        '$["loss"]',
        '$["logits"]',
        '$["hidden_states"][0]',
    ]


def test_a_batch_of_a_tokenizer_is_rebuilt_as_the_same_class():
    """A UserDict with more than its data."""
    import torch
    from transformers import BatchEncoding

    batch = BatchEncoding({"input_ids": torch.tensor([[1, 2]])}, n_sequences=1)
    result = ferry.convert_tree(batch, "numpy")
    assert type(result) is BatchEncoding
    assert result["input_ids"].tolist() == [[1, 2]]
    assert result.n_sequences == 1
    assert torch.is_tensor(batch["input_ids"])


def test_a_tensordict_is_rebuilt_as_one():
    """With its batch size, nested; on the way to another dtype."""
    import torch

    TensorDict = importable("tensordict").TensorDict
    tree = TensorDict({"a": torch.ones(2, 3), "inner": {"b": torch.zeros(2)}}, batch_size=[2])
    result = ferry.convert_tree(tree, "torch", dtype="float64")
    assert type(result) is TensorDict
    assert result.batch_size == tree.batch_size
    assert result["inner", "b"].dtype is torch.float64
    assert tree["a"].dtype is torch.float32
    assert type(ferry.convert_tree(tree, "numpy")["inner"]["b"]) is np.ndarray


class Picky:
    """Takes arrays of NumPy only."""

    def __init__(self, held):
        if not isinstance(held, np.ndarray):
            raise TypeError("an array of NumPy is wanted")
        self.held = held


def test_an_exception_of_a_class_that_is_made_again_says_where_it_is():
    """It keeps its type and words; nothing said which of many objects it was about."""
    torch = pytest.importorskip("torch")
    pytree = torch.utils._pytree
    pytree.register_pytree_node(Picky, lambda x: ([x.held], None), lambda values, _: Picky(*values))
    try:
        with pytest.raises(TypeError, match=r"^an array of NumPy is wanted") as caught:
            ferry.convert_tree({"a": [1, Picky(np.ones(2))]}, "torch")
    finally:
        pytree._deregister_pytree_node(Picky)
    assert not isinstance(caught.value, ferry.ConversionError)
    [note] = caught.value.__notes__
    assert 'Picky at $["a"][1]' in note


@pytest.mark.parametrize("name", ["$", '$["o"]'])
def test_the_place_inside_an_array_of_objects_is_a_part_of_the_path(name):
    """The message ended in "- at x[1] - at $"."""
    objects = np.array([np.ones(2), None], object)
    with pytest.raises(
        ferry.UnsupportedTypeError, match=r"^None is not a tensor\. - at \$"
    ) as caught:
        ferry.convert_tree(objects if name == "$" else {"o": objects}, "numpy")
    assert caught.value.message.endswith(f" - at {name}[1]")
    assert caught.value.message.count(" - at ") == 1
