"""Hints name the function that was called, and work when they are pasted."""

from __future__ import annotations

import ast
import builtins
import copy
import dataclasses
import inspect
import pickle
import re
from collections import OrderedDict, UserDict, UserList, deque
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from tests.hints.sources import hints_of, texts_of
from tests.support import SOURCE

import tensorferry as ferry
from tensorferry import errors, hints
from tensorferry.backends import registry
from tensorferry.backends.tensorflow.declared import REFUSED as REFUSED_BY_TENSORFLOW
from tensorferry.hints import Call, Caller, Code, Hint, Lone

torch = pytest.importorskip("torch")
tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

PUBLIC = {name: getattr(ferry, name) for name in (*ferry.__all__, "open")}


def hint_of(call):
    with pytest.raises(ferry.ConversionError) as caught:
        call()
    return caught.value.hint


def pasted(hint, x):
    """What each piece of code in a hint gives."""
    found = [eval(code, {**PUBLIC, "x": x, "torch": torch}) for code in calls_in(hint)]  # noqa: S307 - that is what it is for
    assert found, hint
    return found


def calls_in(text):
    """Each call in a text, as far as its brackets go."""
    at = 0
    while (
        match := re.compile(
            r"(?<![\w.\"'`])\[?[A-Za-z_][\w.]*\(|(?<![\w.\"'`)\]])\[(?=[A-Za-z_])"
        ).search(text, at)
    ) is not None:
        at = end = match.end()
        closes = [text[i] for i in range(match.start(), match.end()) if text[i] in "(["]
        while closes and end < len(text):
            if text[end] in "([{":
                closes.append(text[end])
            elif text[end] in ")]}":
                closes.pop()
            end += 1
        if not closes:
            at = end
            while (
                more := re.compile(r"(\.\w+)+(\((?:[^()]|\([^()]*\))*\))?|\[[^\[\]]*\]").match(
                    text, at
                )
            ) is not None:
                at = more.end()
        yield text[match.start() : max(at, end)]


# -- what is refused, and what to type instead -----------------------------------------------------


def module():
    made = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    made.eval()
    return made


TREES = {
    "dict": lambda: {"a": np.ones(2), "b": 1},
    "OrderedDict": lambda: OrderedDict(a=np.ones(2)),
    "UserDict": lambda: UserDict(a=np.ones(2)),
    "Module": module,
    "tf.Module": lambda: keras.Sequential([keras.layers.Dense(2)]),
    "structured": lambda: np.zeros(3, [("a", "f4"), ("b", "i4")]),
    "recarray": lambda: np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")]),
}
CALLS = {
    "to_numpy": (ferry.to_numpy, "convert_tree", "numpy"),
    "to_torch": (ferry.to_torch, "convert_tree", "torch"),
    "to_list": (ferry.to_list, "convert_tree", "python"),
    "convert": (lambda x: ferry.convert(x, to="pt"), "convert_tree", "torch"),
    "convert like": (lambda x: ferry.convert(x, like=torch.ones(2)), "convert_tree", "torch"),
    "explain": (lambda x: ferry.explain(x, "torch"), "explain_tree", "torch"),
    "describe": (ferry.describe, "describe_tree", None),
    "shares_memory": (lambda x: ferry.shares_memory(x, x), "describe_tree", None),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", TREES)
def test_a_container_is_sent_to_the_function_for_trees(kind, call):
    """With the target that was asked for, and it works."""
    x = TREES[kind]()
    function, other, target = CALLS[call]
    hint = hint_of(lambda: function(x))
    assert re.fullmatch(rf"{other}\((.*?)(, \"{target}\")?\)", hint), hint
    assert target is None or hint.endswith(f', "{target}")')
    pasted(hint, x)


def test_a_module_comes_with_its_buffers():
    """As its state, which `named_parameters` is not the whole of."""
    x = module()
    [state] = pasted(hint_of(lambda: ferry.to_numpy(x)), x)
    assert state.keys() == x.state_dict().keys() != dict(x.named_parameters()).keys()
    assert all(isinstance(each, np.ndarray) for each in state.values())


MODULES = {
    "alone": lambda x: x,
    "in a dict": lambda x: {"model": x, "epoch": 3},
    "in a deque": lambda x: deque([1, x]),
}


@pytest.mark.parametrize("place", MODULES)
@pytest.mark.parametrize(
    "name",
    ["convert_tree", "explain_tree", "describe_tree", "snapshot", "start", "prefetch", "collate"],
)
def test_no_tree_function_leaves_a_modules_tensors_out_in_silence(name, place):
    """It is refused with its path, and the hint calls the same function."""
    x = module()
    tree = MODULES[place](x)
    calls = {
        "convert_tree": lambda: ferry.convert_tree(tree, "torch"),
        "explain_tree": lambda: ferry.explain_tree(tree, "torch"),
        "describe_tree": lambda: ferry.describe_tree(tree),
        "snapshot": lambda: ferry.snapshot(tree),
        "start": lambda: ferry.start(tree, "torch").result(),
        "prefetch": lambda: list(ferry.prefetch([tree], "torch")),
        "collate": lambda: ferry.collate([tree, tree], "torch"),
    }
    named = {"prefetch": "convert_tree"}.get(name, name)
    hint = hint_of(calls[name])
    assert '"numpy"' not in hint
    whole = "sample" if name == "collate" else "x"
    if place == "alone" and name != "collate":
        assert hint.startswith(f"{named}(x.state_dict()"), hint
        pasted(hint, x)
    else:
        inside = {"alone": "", "in a dict": '["model"]', "in a deque": "[1]"}[place]
        assert hint.startswith(f"{whole}{inside}.state_dict() in its place"), hint


@pytest.mark.parametrize("place", MODULES)
def test_a_module_is_saved_as_its_state(place, tmp_path):
    """The hint is of `save`, and writes what it says."""
    x, path = module(), tmp_path / "model.npz"
    hint = hint_of(
        lambda: ferry.save(
            list(MODULES[place](x)) if place == "in a deque" else MODULES[place](x), path
        )
    )
    inside = {"in a dict": 'x["model"]', "in a deque": "x[1]"}
    if place in inside:
        assert hint == f"{inside[place]}.state_dict() in its place"
        return
    assert hint == "save(x.state_dict(), path)"
    eval(hint, {"save": ferry.save, "x": x, "path": path})  # noqa: S307 - that is what it is for
    assert ferry.open(path).tensors.keys() == x.state_dict().keys()


def test_what_no_file_has_a_place_for_is_saved_as_something_else(tmp_path):
    """Each hint is of `save`, and works."""
    path = tmp_path / "all.npz"
    for x in (frozenset({1, 2}), map(float, [1, 2]), Decimal("0.5")):
        code, _, words = hint_of(lambda x=x: ferry.save([x], path)).partition(" in its place")
        assert words in ("", ", which rounds", " or list(x[0]) in its place")
        ferry.save([eval(code, {"x": [x]})], path)  # noqa: S307 - that is what it is for
        path.unlink()


def test_a_file_is_sent_to_load(tmp_path):
    """A path as text or as an object, and what `np.load` makes of one."""
    path = tmp_path / "a.npz"
    np.savez(path, a=np.ones(2))
    assert hint_of(lambda: ferry.to_numpy(path)) == "load(x)"
    assert hint_of(lambda: ferry.convert(path, "torch")) == 'load(x, "torch")'
    assert hint_of(lambda: ferry.to_torch(str(path))).startswith(
        'load(x, "torch") if it is a path; '
    )
    for x in (path, Path(path)):
        [loaded] = pasted(hint_of(lambda x=x: ferry.to_torch(x)), x)
        assert isinstance(loaded["a"], torch.Tensor)
    with np.load(path) as archive:
        loaded, tree = pasted(hint_of(lambda: ferry.to_torch(archive)), archive)
        assert isinstance(loaded["a"], torch.Tensor)
        assert isinstance(tree["a"], torch.Tensor)


def test_what_gives_batches_is_sent_to_prefetch():
    """A dataset of TensorFlow's, and a loader of PyTorch's."""
    for x in (
        tf.data.Dataset.range(4).batch(2),
        torch.utils.data.DataLoader(torch.arange(4), batch_size=2),
    ):
        hint = hint_of(lambda x=x: ferry.convert(x, to=np))
        assert hint == 'prefetch(x, "numpy")'
        [batches] = pasted(hint, x)
        assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ({2, 1}, [1, 2]),
        (frozenset({1}), [1]),
        (map(float, [1, 2]), [1, 2]),
        (Decimal("0.5"), 0.5),
        (deque([1, 2]), [1, 2]),
        (UserList([1, 2]), [1, 2]),
        ("1 2", None),
    ],
    ids=["set", "frozenset", "map", "Decimal", "deque", "UserList", "text"],
)
def test_the_function_that_was_called_is_called_again(x, expected):
    """On something that it takes; in a list too."""
    for function, start in (
        (ferry.to_torch, "to_torch("),
        (lambda x: ferry.convert(x, like=torch.ones(2)), "convert("),
        (lambda x: ferry.explain(x, "torch"), "explain("),
        (ferry.describe, "describe("),
    ):
        hint = hint_of(lambda function=function: function(x))
        [code, *_] = [code for code in calls_in(hint) if not code.startswith("load(")]
        assert code.startswith(start)
    if expected is not None:
        assert pasted(hint_of(lambda: ferry.to_numpy(x)), x)[0].tolist() == expected


@pytest.mark.parametrize(
    "kind", [np.ndarray, torch.Tensor, tf.Tensor, int, list, torch.nn.Linear, dict, Path]
)
def test_a_class_is_called_a_class(kind):
    """It has no values, whatever its objects have; a class in a tree is no tensor, and stays."""
    for function in (ferry.to_numpy, ferry.describe, lambda x: ferry.explain(x, "numpy")):
        with pytest.raises(
            ferry.UnsupportedTypeError, match=f"{kind.__name__} is a class, not an object"
        ):
            function(kind)
    assert ferry.convert_tree({"of": kind}, "numpy") == {"of": kind}


def test_what_is_wrong_with_a_keyword_is_not_said_of_x():
    """Its name comes first."""
    for keyword in ("like", "out"):
        with pytest.raises(
            ferry.UnsupportedTypeError, match=f"^{keyword}= has to be a tensor. A dict is"
        ) as caught:
            ferry.convert([1.5], **{"like": np.ones(1), keyword: {"a": 1}})
        assert f"without {keyword}=" in caught.value.hint


def test_what_was_given_in_the_wrong_order():
    """What goes where is said, by the call that works."""
    samples = [{"a": 1}, {"a": 2}]
    hint = hint_of(lambda: ferry.collate("torch", samples))
    assert eval(next(iter(calls_in(hint))), {**PUBLIC, "samples": samples})["a"].tolist() == [1, 2]  # noqa: S307 - that is what it is for
    with pytest.raises(TypeError, match="the tensor to convert comes first"):
        ferry.convert_tree("torch", samples)
    assert hint_of(lambda: ferry.convert([1.5], like="pt")) == 'to="torch", without like='
    with pytest.raises(TypeError, match=r"in save\(tree, path\) must be a string or a path"):
        ferry.save("model.safetensors", {})
    with pytest.raises(
        TypeError, match=r"must be a string or a pathlib.Path, not an object of type dict"
    ):
        ferry.load({})
    with pytest.raises(TypeError, match=r"shape=\(3,\), not 3"):
        ferry.TensorInfo("numpy", 3, "float32")


def test_text_that_is_numbers_becomes_numbers():
    """As the hint has it; a list of the same text would be refused too."""
    pd, pl = (
        pytest.importorskip(name, reason=f"{name} is not installed")
        for name in ("pandas", "polars")
    )
    for x in (np.array(["1.5", "2"]), pd.Series(["1.5", "2"]), pl.Series(["1.5", "2"])):
        assert ferry.to_list(pasted(hint_of(lambda x=x: ferry.to_numpy(x)), x)[0]) == [1.5, 2.0]
    x = pl.Series([None, None])
    assert np.isnan(
        ferry.to_numpy(pasted(hint_of(lambda: ferry.to_numpy(x)), x)[0], nulls="nan")
    ).all()


# -- the text itself -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "padded"),
    [
        ([[1, 2], [3]], [[1, 2], [3, 0]]),
        ([(1.5,), (), (2.5, 3.5)], [[1.5, 0], [0, 0], [2.5, 3.5]]),
        ([[[1, 2]], [[3, 4], [5, 6]]], [[[1, 2], [0, 0]], [[3, 4], [5, 6]]]),
        ([[[1]], [[2, 3]]], [[[1, 0]], [[2, 3]]]),
        ([np.ones(1), np.full(2, 2.0)], [[1, 0], [2, 2]]),
    ],
)
def test_rows_of_unequal_lengths_are_padded(x, padded):
    """The code of the hint gives one tensor of the target that was named."""
    pytest.importorskip("torch")
    with pytest.raises(ferry.ShapeError) as caught:
        ferry.to_torch(x)
    code, _, words = caught.value.hint.rpartition("; or ")[2].partition(", which ")
    assert words == "pads them"
    result = eval(code, {"collate": ferry.collate, "to_torch": ferry.to_torch, "x": x})  # noqa: S307 - a hint
    assert ferry.describe(result).framework == "torch"
    assert result.tolist() == padded


def test_rows_of_unequal_lengths_are_explained():
    """`explain` sends to the function that explains, and not to the one that converts."""
    hint = hint_of(lambda: ferry.explain([[1, 2], [3]], "torch"))
    assert hint.startswith("explain(")
    [plan] = pasted(hint, [[1, 2], [3]])
    assert plan.result.shape == (2, 2)
    x = [np.ones(1), np.full(2, 2.0)]
    tree, padded = pasted(hint_of(lambda: ferry.explain(x, "torch")), x)
    assert (len(tree.leaves), padded.result.shape) == (2, (2, 2))


@pytest.mark.parametrize("name", ["Int64", "UInt64", "Float64"])
@pytest.mark.parametrize("library", ["pyarrow", "pandas", "polars"])
def test_one_hint_is_enough_for_nulls_of_a_dtype_that_the_target_lacks(library, name):
    """JAX has no dtypes of 64 bits unless they are switched on."""
    pytest.importorskip("jax", reason="JAX is not installed")
    other = pytest.importorskip(library, reason=f"{library} is not installed")
    if library == "pyarrow":
        x = other.array([1, None, 3], getattr(other, name.lower())())
    else:
        x = other.Series([1, None, 3], dtype=name if library == "pandas" else getattr(other, name))

    def tree(x):
        return ferry.convert_tree([x], "jax")

    for call in (ferry.to_jax, lambda x: ferry.convert(x, "jax"), tree):
        values, masked = pasted(hint_of(lambda call=call: call(x)), x)
        if call is tree and name == "Float64":
            values, masked = masked, values  # in a tree the mask is first: integers have no NaN
        assert np.asarray(values)[[0, 2]].tolist() == [1, 3]
        if call is ferry.to_jax:
            assert np.asarray(masked[1]).tolist() == [True, False, True]
    assert pasted(hint_of(lambda: ferry.explain(x, "jax")), x)
    assert "dtype=" not in hint_of(lambda: ferry.to_torch(x))


@pytest.mark.parametrize(
    "x",
    [
        [[1, [2]], [3, 4]],
        [[1], 2],
        [np.ones(1), np.ones((1, 1))],
        [[[1], [1, 2]], [[1]]],
        [[[1, [2]]], []],
    ],
)
def test_no_hint_pads_what_cannot_be_padded(x):
    """Rows inside of rows, arrays with more axes than others, and rows that are unequal in themselves."""
    with pytest.raises(ferry.ShapeError) as caught:
        ferry.to_numpy(x)
    assert "collate" not in caught.value.hint
    if "pad=" in caught.value.hint:
        assert pasted(caught.value.hint, x)


def test_a_hint_survives_a_process():
    """With the call that it names, and that it may yet be told."""
    error = ferry.UnsupportedTypeError("no", Hint(hints.one("list(x)")))
    error.complete_hint(Caller("explain", "torch"))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (str(again), again.hint) == (str(error), 'explain(list(x), "torch")')
    again.complete_hint(Caller("to_jax", "jax"))
    assert again.hint == "to_jax(list(x))"
    assert copy.copy(again).hint == copy.deepcopy(again).hint == again.hint


def test_several_errors_name_the_function_that_was_called():
    """Each of a group."""
    with pytest.raises(ferry.TreeError) as caught:
        ferry.explain_tree([module(), module()], "torch")
    for error in caught.value.exceptions:
        assert re.match(r"x\[[01]\]\.state_dict\(\) in its place", error.hint)


def texts_in(path):
    """The texts that a module gives as hints: of errors that it makes, and of what its `refusal` says."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in errors.__all__ and len(node.args) > 1 and name != "TreeError":
                yield from texts_of(node.args[1])
        elif isinstance(node, ast.FunctionDef) and node.name == "refusal":
            for each in ast.walk(node):
                if isinstance(each, ast.Return) and isinstance(each.value, ast.Tuple):
                    yield from texts_of(each.value.elts[1])


CALLERS = [
    Caller("to_numpy", "numpy"),
    Caller("convert", "torch"),
    Caller("explain_tree", "jax", frozenset({"float32", "int32"}), "jax.devices() first"),
]
SOURCES = sorted(
    path for path in (SOURCE / "tensorferry").rglob("*.py") if path.parent.name != "hints"
)


def all_hints():
    """Each with the name of the module, or of the backend, that it is from."""
    for path in SOURCES:
        for hint in (*map(Hint, texts_in(path)), *hints_of(path)):
            yield path.stem, hint
    for backend in registry.backends().values():
        for _, hint in backend.capabilities.objects.abstract.values():
            if hint is not None:
                yield backend.name, hint if isinstance(hint, Hint) else Hint(hint)
    for _, hint in REFUSED_BY_TENSORFLOW.values():
        yield "tensorflow", hint if isinstance(hint, Hint) else Hint(hint)


MODULES_OF_OTHERS = {
    "np",
    "torch",
    "tf",
    "jax",
    "jnp",
    "keras",
    "optree",
    "ml_dtypes",
    "functools",
    "nnx",
    "pa",
    "pd",
    "pickle",
}
VALUES = {
    "batch",
    "frame",
    "high",
    "inputs",
    "key",
    "loader",
    "low",
    "metadata",
    "model",
    "module",
    "number",
    "out",
    "path",
    "row",
}
VALUES |= {
    "like",
    "sharding",
    "source",
    "function",
    "generator",
    "jvp",
    "samples",
    "seed",
    "columns",
    "index",
    "vjp",
    "primals",
    "outputs",
    "cotangents",
    "tangents",
    "shape",
    "tensor",
    "to",
    "value",
    "values",
    "x",
    "y",
}


def test_code_in_hints_can_be_typed():
    """It compiles, and what it calls is there: public functions, by their own names, with keywords that they have."""
    found = list(all_hints())
    assert len(found) > 350
    for where, text in dict.fromkeys(
        (where, str(hint.for_call(caller))) for where, hint in found for caller in CALLERS
    ):
        can_be_typed(where, text)


def code_in(hint):
    """The code about `x` in a hint."""
    for way in hint.ways:
        for piece in way:
            if isinstance(piece, Code | Lone):
                yield piece.text
            elif isinstance(piece, Call):
                yield piece.code


def test_code_about_a_tensor_is_marked_as_code():
    """Python reads all of it, so that it can be put at the place of a leaf; no other text names `x`."""
    found = [hint for _, hint in all_hints()]
    assert sum(code == "x" for hint in found for code in code_in(hint)) > 20
    for hint in found:
        for code in code_in(hint):
            ast.parse(code)
        for way in hint.ways:
            texts = [piece for piece in way if isinstance(piece, str)]
            names_x = any(re.search(r"(?<![\w.\"'`])x(?![\w\"'=])", text) for text in texts)
            assert not names_x or (len(way) == 1 and ast.parse(texts[0])), way


def can_be_typed(where, hint):
    """Check that who reads a hint of a module can paste the code in it."""
    assert "tensorferry[" not in hint
    assert "import tensorferry as ferry" in hint or "ferry." not in hint, (
        "public functions are named without a prefix"
    )
    for code in calls_in(hint):
        tree = ast.parse(code, mode="eval")
        bound = {
            name.id
            for name in ast.walk(tree)
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id not in bound:
                known = (
                    node.id in PUBLIC
                    or hasattr(builtins, node.id)
                    or node.id in VALUES | MODULES_OF_OTHERS
                )
                assert known or where in ("pytorch", "executors", "format", "bare"), (
                    f"{node.id} in {code}"
                )
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in PUBLIC
            ):
                arguments = [
                    None
                    for each in node.args
                    if not isinstance(each, ast.Constant) or each.value is not ...
                ]
                inspect.signature(PUBLIC[node.func.id]).bind(
                    *arguments, **{each.arg: None for each in node.keywords if each.arg}
                )


class OfARuntime:
    """A tensor of a library that has a method for an array, and none of the interfaces (onnxruntime's OrtValue)."""

    def __init__(self, held):
        self._held = held

    def numpy(self):
        return self._held


def test_an_object_with_a_method_for_an_array_is_converted_by_it():
    """The hint was what to pass instead; in a tree, how a class is registered."""
    x = OfARuntime(np.ones(2, "float32"))
    hint = hint_of(lambda: ferry.to_torch(x))
    assert hint == "to_torch(x.numpy())"
    assert pasted(hint, x)[0].tolist() == [1, 1]
    assert hint_of(lambda: ferry.convert_tree(x, "torch")).startswith(
        'convert_tree(x.numpy(), "torch"); unknown='
    )
    hint = hint_of(lambda: ferry.convert_tree({"a": [x]}, "torch"))
    assert hint.startswith('x["a"][0].numpy() in its place; ')
    assert hint_of(lambda: ferry.save({"a": x}, "never.npz")) == 'x["a"].numpy() in its place'


@dataclasses.dataclass
class Draw:
    """A state of a library of JAX, with a random key."""

    key: object
    scale: object
    name: str


def test_what_the_hint_of_save_puts_in_the_place_of_random_keys_is_saved(tmp_path):
    """A dict of the values of such an object was refused in its turn, for its key."""
    jax = pytest.importorskip("jax")
    jax.tree_util.register_dataclass(Draw, data_fields=["key", "scale"], meta_fields=["name"])
    x = {"draw": [Draw(jax.random.key(1), np.ones(2), "a")]}
    code, _, _ = hint_of(lambda: ferry.save(x, tmp_path / "a.npz")).partition(" in its place")
    found = eval(code, {"x": x, "jax": jax})  # noqa: S307 - that is what it is for
    ferry.save(found, tmp_path / "a.npz")
    read = ferry.load(tmp_path / "a.npz")
    assert read["key"].tolist() == jax.random.key_data(jax.random.key(1)).tolist()
    assert read["scale"].tolist() == [1, 1]
