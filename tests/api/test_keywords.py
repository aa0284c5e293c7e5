"""The target is a keyword like any other, and a keyword that nothing knows is refused under its function's name."""

from __future__ import annotations

import functools
import inspect
import pickle
import re

import numpy as np
import pytest
from tests.support import lives

import tensorferry as ferry
from tensorferry import typing as names

torch = pytest.importorskip("torch")

FUNCTIONS = {
    "convert": lambda **keywords: ferry.convert([1.5], **keywords),
    "convert_tree": lambda **keywords: ferry.convert_tree({"x": np.ones(2)}, **keywords),
    "collate": lambda **keywords: ferry.collate([{"x": 1.5}], **keywords),
    "explain": lambda **keywords: ferry.explain([1.5], **keywords),
    "explain_tree": lambda **keywords: ferry.explain_tree({"x": np.ones(2)}, **keywords),
    "explain_collate": lambda **keywords: ferry.explain_collate([{"x": 1.5}], **keywords),
    "start": lambda **keywords: ferry.start(np.ones(2), **keywords).result(),
    "prefetch": lambda **keywords: list(ferry.prefetch([np.ones(2)], **keywords)),
}
CONVERSIONS = {
    "to_numpy": ferry.to_numpy,
    "to_torch": ferry.to_torch,
    "to_tensorflow": ferry.to_tensorflow,
    "to_jax": ferry.to_jax,
    "to_list": ferry.to_list,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_target_can_be_written_as_a_keyword(name):
    """With the result of the same call without the word."""
    result = FUNCTIONS[name](to="torch")
    found = {
        "convert_tree": lambda: result["x"],
        "collate": lambda: result["x"],
        "prefetch": lambda: result[0],
    }.get(name, lambda: result)()
    if name.startswith("explain"):
        plan = found if name == "explain" else found.plans['$["x"]']
        assert plan.result.framework == "torch"
    else:
        assert isinstance(found, torch.Tensor)


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_collate_is_the_collate_fn_of_a_dataloader(method):
    """In a worker process, however that begins."""
    told = lives(
        f"""
        import functools, torch, tensorferry as ferry
        if __name__ == "__main__":
            samples = [{{"x": [float(i), 1.0], "label": i}} for i in range(4)]
            collate = functools.partial(ferry.collate, to="torch")
            loader = torch.utils.data.DataLoader(
                samples, batch_size=2, num_workers=1, collate_fn=collate, multiprocessing_context={method!r}
            )
            for batch in loader:
                assert isinstance(batch["label"], torch.Tensor)
                print(batch["x"][0].tolist(), batch["label"].tolist())
        """
    )
    assert told.splitlines() == ["[0.0, 1.0] [0, 1]", "[2.0, 1.0] [2, 3]"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_made_of_a_function_and_its_target_can_be_pickled(name):
    """As `spawn` does with it."""
    made = functools.partial(getattr(ferry, name), to=torch.Tensor)
    again = pickle.loads(pickle.dumps(made))  # noqa: S301 - our own
    assert (again.func, again.keywords) == (made.func, made.keywords)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("like", [False, True])
def test_a_keyword_that_nothing_knows_is_refused_as_such(name, like):
    """Under the function that was called, with the keyword that may have been meant."""
    target = {"like": {"x": np.ones(2)} if name in ("convert_tree", "explain_tree") else np.ones(2)}
    target = target if like else {"to": "numpy"}
    with pytest.raises(TypeError) as caught:
        FUNCTIONS[name](**target, devcie="cpu")
    assert (
        str(caught.value)
        == f"{name}() got an unexpected keyword argument 'devcie'. Did you mean 'device'?"
    )
    with pytest.raises(TypeError) as caught:
        FUNCTIONS[name](**target, nothing_of_the_kind=1)
    assert str(caught.value) == f"{name}() got an unexpected keyword argument 'nothing_of_the_kind'"


@pytest.mark.parametrize("name", CONVERSIONS)
def test_a_conversion_refuses_it_too(name):
    """The same words, beside right keywords too, and without a second error above the first."""
    for keywords in ({}, {"copy": True}):
        with pytest.raises(TypeError) as caught:
            CONVERSIONS[name]([1.5], devcie="cpu", **keywords)
        assert (
            str(caught.value)
            == f"{name}() got an unexpected keyword argument 'devcie'. Did you mean 'device'?"
        )
        assert caught.value.__suppress_context__


WORDS = {
    "na_value": "nulls",
    "padding_value": "pad",
    "zero_copy_only": "copy",
    "allow_copy": "copy",
}


@pytest.mark.parametrize("word", WORDS)
def test_words_of_other_libraries_for_a_keyword_are_understood(word):
    """pandas, PyTorch, Arrow and polars call them so."""
    with pytest.raises(TypeError, match=f"Did you mean {WORDS[word]!r}"):
        ferry.to_numpy([1.5], **{word: 0})


def test_what_is_no_keyword_but_another_call_is_said():
    """The code after "Write" gives what was meant."""
    pandas, torch = pytest.importorskip("pandas"), pytest.importorskip("torch")
    like = np.ones(2, "float32")
    meant = [
        ("to_torch", "requires_grad", True, lambda made: made.requires_grad),
        ("to_torch", "like", like, lambda made: isinstance(made, np.ndarray)),
        ("to_pandas", "name", "p", lambda made: made.name == "p"),
    ]
    for called, keyword, value, holds in meant:
        with pytest.raises(TypeError) as caught:
            getattr(ferry, called)([1.5], **{keyword: value})
        code = str(caught.value).partition("Write ")[2]
        names = {**vars(ferry), "x": [1.5], keyword: value, "pandas": pandas, "torch": torch}
        assert holds(eval(code, names)), code  # noqa: S307 - the code of the error
    with pytest.raises(TypeError) as caught:
        ferry.to_numpy([1.5], requires_grad=True)
    assert str(caught.value) == "to_numpy() got an unexpected keyword argument 'requires_grad'"


def test_a_function_that_does_not_exist_names_the_one_that_does():
    """``to_tf`` and ``to_pytorch`` are made of names that frameworks have; ``from_numpy`` is a habit."""
    for name, meant in {
        "to_tf": "to_tensorflow",
        "to_pytorch": "to_torch",
        "to_np": "to_numpy",
        "to_python": "to_list",
    }.items():
        with pytest.raises(AttributeError, match=f"Did you mean '{meant}'"):
            getattr(ferry, name)
    with pytest.raises(AttributeError, match=r"to_torch\(x\) takes tensors of every framework"):
        ferry.from_numpy  # noqa: B018 - it is the name that is tried
    for name in ("to_nothing", "to_array-like", "nothing", "_private"):
        assert not hasattr(ferry, name)
        with pytest.raises(AttributeError) as caught:
            getattr(ferry, name)
        assert str(caught.value) == f"module 'tensorferry' has no attribute {name!r}"


@pytest.mark.parametrize("name", ["to_torch", "to_numpy", "convert", "start"])
def test_the_word_of_a_framework_for_a_keyword_is_understood(name):
    """`pin_memory=` is not similar to `pinned=`, but means the same."""
    arguments = ("numpy",) if name in ("convert", "start") else ()
    with pytest.raises(TypeError) as caught:
        getattr(ferry, name)([1.5], *arguments, pin_memory=True)
    assert (
        str(caught.value)
        == f"{name}() got an unexpected keyword argument 'pin_memory'. Did you mean 'pinned'?"
    )


def test_it_is_refused_where_there_is_nothing_to_convert():
    """An empty tree has no leaf to which the keyword could not be applied."""
    with pytest.raises(TypeError, match="'devcie'"):
        ferry.convert_tree({}, like={"x": np.ones(2)}, devcie="cpu")
    with pytest.raises(TypeError, match="'devcie'"):
        ferry.prefetch([], like={"x": np.ones(2)}, devcie="cpu")


def test_an_option_of_another_target_says_whose_it_is():
    """The target has no such option; these have."""
    for call in (
        lambda: ferry.convert([1.5], "jax", pinned=True),
        lambda: ferry.explain([1.5], to="jax", pinned=True),
        lambda: ferry.convert_tree([np.ones(2)], "jax", pinned=False),
        lambda: ferry.collate([1.5], to="jax", pinned=True),
        lambda: ferry.start(np.ones(2), "jax", pinned=True),
        lambda: ferry.prefetch([np.ones(2)], "jax", pinned=True),
    ):
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value) == "jax has no option pinned=: numpy and torch have it"
    with pytest.raises(TypeError) as caught:
        ferry.to_jax([1.5], variable=True)
    assert (
        str(caught.value)
        == "to_jax() got an unexpected keyword argument 'variable': tensorflow has it"
    )


def test_an_error_of_a_value_is_not_taken_for_one_of_a_keyword():
    """Its own words are kept."""
    with pytest.raises(ferry.LossyCastError):
        ferry.convert([1.5], "numpy", dtype="int8", pinned=False)
    with pytest.raises(ferry.LossyCastError):
        ferry.to_numpy([1.5], dtype="int8")
    with pytest.raises(TypeError, match="pinned must be True or False"):
        ferry.convert([1.5], "numpy", pinned="yes")


BY_POSITION = [
    ("to_torch(x, 'float32')", 'to_torch(x, dtype="float32")'),
    ("to_numpy(x, np.float32)", 'to_numpy(x, dtype="float32")'),
    ("to_numpy(x, np.dtype('int8'), copy=True)", 'to_numpy(x, dtype="int8")'),
    ("to_torch(x, torch.float16, 'cpu')", 'to_torch(x, dtype="float16", device="cpu")'),
    ("to_jax(x, jax.numpy.float32)", 'to_jax(x, dtype="float32")'),
    ("to_numpy(x, float)", 'to_numpy(x, dtype="float64")'),
    ("to_list(x, 'fit')", 'to_list(x, dtype="fit")'),
    ("to_torch(x, torch.device('cpu'))", 'to_torch(x, device="cpu")'),
    ("convert(x, 'torch', 'float32')", 'convert(x, "torch", dtype="float32")'),
    ("convert(x, np, 'half')", 'convert(x, "numpy", dtype="float16")'),
    ("convert(x, torch.Tensor, 'same_kind')", 'convert(x, "torch", casting="same_kind")'),
    ("convert_tree(tree, 'torch', 'float32')", 'convert_tree(tree, "torch", dtype="float32")'),
    ("explain_tree(tree, 'torch', 'float32')", 'explain_tree(tree, "torch", dtype="float32")'),
    ("collate(samples, 'torch', 'int64')", 'collate(samples, "torch", dtype="int64")'),
    (
        "explain_collate(samples, 'torch', 'int64')",
        'explain_collate(samples, "torch", dtype="int64")',
    ),
    ("explain(x, 'torch', 'cpu')", 'explain(x, "torch", device="cpu")'),
    ("explain(x, 'torch', 'cuda:1')", 'explain(x, "torch", device="cuda:1")'),
    ("start(x, 'torch', 'cpu')", 'start(x, "torch", device="cpu")'),
    ("prefetch(iterable, 'torch', 'cpu')", 'prefetch(iterable, "torch", device="cpu")'),
    ("load(path, 'torch', 'float16')", 'load(path, "torch", dtype="float16")'),
    (
        "convert_files(sources, target, 'float16')",
        'convert_files(sources, target, dtype="float16")',
    ),
]


@pytest.mark.parametrize(("call", "hint"), BY_POSITION)
def test_a_dtype_or_a_device_by_position_says_its_name(call, hint, tmp_path):
    """The call that the error shows works where it is pasted."""
    sources = path = tmp_path / "x.npz"
    np.savez(path, a=np.ones(2, "float32"))
    x, samples = [2.0], [{"x": 1}]
    here = {
        "x": x,
        "tree": {"x": np.ones(2)},
        "samples": samples,
        "iterable": [np.ones(2)],
        "np": np,
        "torch": torch,
    }
    here["jax"] = pytest.importorskip("jax")
    here |= {name: getattr(ferry, name) for name in ferry.__all__}
    here |= {"path": path, "sources": sources, "target": tmp_path / "y.npz"}
    with pytest.raises(TypeError) as caught:
        eval(call, here)  # noqa: S307 - our own
    assert caught.value.__suppress_context__
    told, _, shown = str(caught.value).partition(": ")
    assert told.startswith(f"{call.partition('(')[0]}() takes ")
    assert told.endswith("by position, and all others by name")
    assert shown == hint
    if "cuda" not in hint:
        eval(shown, here)  # noqa: S307 - our own
    else:
        with pytest.raises(ferry.DeviceError, match="cuda"):
            eval(shown, here)  # noqa: S307 - our own


def test_a_dtype_with_two_meanings_by_position_shows_both():
    """Either works."""
    with pytest.raises(
        TypeError, match=r'\(x, dtype="float32"\) or to_numpy\(x, dtype="float64"\)$'
    ):
        ferry.to_numpy([1.5], "float")


@pytest.mark.parametrize("beyond", [True, None, 3, "flota32", object(), np.ones(2), "nowhere:x"])
def test_what_means_nothing_by_position_is_refused_too(beyond):
    """With an example that works."""
    for call in (
        lambda: ferry.to_numpy([1.5], beyond),
        lambda: ferry.to_numpy([1.5], beyond, copy=True),
        lambda: ferry.convert([1.5], "numpy", beyond),
        lambda: ferry.collate([{"x": 1.5}], "numpy", beyond),
    ):
        with pytest.raises(
            TypeError, match=r"by position, and all others by name, as in \w+\(.*copy=True\)$"
        ):
            call()


def test_the_target_is_given_once():
    """By position or by its word."""
    with pytest.raises(TypeError, match="multiple values for argument 'to'"):
        ferry.convert([1.5], "numpy", to="torch")
    with pytest.raises(TypeError, match="give one of to and like"):
        ferry.convert([1.5], to="numpy", like=np.ones(2))


DEFAULTS = {"grad": "detach", "non_blocking": False, "pinned": False, "variable": False}
"""Those that are not `None`."""

DECLARED = {
    ferry.to_numpy: (names.NumpyKeywords, set()),
    ferry.to_torch: (names.TorchKeywords, set()),
    ferry.to_tensorflow: (names.TensorflowKeywords, {"variable"}),
    ferry.to_jax: (names.WritingKeywords, set()),
    ferry.to_list: (names.WritingKeywords, set()),
    ferry.to_cupy: (names.WritingKeywords, set()),
    ferry.to_arrow: (names.Keywords, set()),
    ferry.to_pandas: (names.PandasKeywords, set()),
    ferry.to_polars: (names.PolarsKeywords, set()),
    ferry.convert: (names.AnyKeywords, {"like"}),
}


@pytest.mark.parametrize("function", DECLARED, ids=lambda each: each.__name__)
def test_help_shows_each_keyword(function):
    """The same for type checkers and for `help`; nothing stands there as ``**keywords``."""
    declared, own = DECLARED[function]
    shown = inspect.signature(function).parameters.values()
    keywords = {each.name: each for each in shown if each.kind is each.KEYWORD_ONLY}
    written = {name: kind.__forward_arg__ for name, kind in declared.__annotations__.items()}
    assert keywords.keys() == declared.__annotations__.keys() | own
    assert {name: keywords[name].annotation for name in written} == written
    assert all(keywords[name].default == DEFAULTS.get(name) for name in written)
    assert {each.kind for each in shown} <= {
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    }
    assert "keywords" not in function.__annotations__


@pytest.mark.parametrize(
    "function",
    [each for each in DECLARED if each not in (ferry.convert, ferry.to_cupy)],
    ids=lambda f: f.__name__,
)
def test_a_keyword_that_is_left_out_has_the_default_that_is_shown(function):
    """All of them given, with their defaults, is the same conversion."""
    every = {name: DEFAULTS.get(name) for name in DECLARED[function][0].__annotations__}
    given, left_out = function([1.5, 2.5], **every), function([1.5, 2.5])
    assert type(given) is type(left_out)
    assert ferry.to_list(given) == ferry.to_list(left_out) == [1.5, 2.5]


def arguments(function):
    """What the docstring of a function says of each of its arguments, and the function that it names for the others."""
    text = inspect.getdoc(function)
    section = re.search(r"^Args:\n((?: {4}.*\n?|\n)+)", text, re.MULTILINE)
    entries = re.findall(
        r"^ {4}\**(\w+): (.*(?:\n {8}.*)*)", section[1] if section else "", re.MULTILINE
    )
    others = re.search(r"Arguments\s+are\s+as\s+for\s+`(\w+)`", text)
    return dict(entries), getattr(ferry, others[1]) if others else None


def explained(function):
    """The arguments that a reader finds explained: there, or in the function that is named for the others."""
    own, others = arguments(function)
    return own.keys() | (explained(others) if others else set())


def parameters(function):
    """The names of the arguments, with those of the options in the place of ``**options``."""
    for each in inspect.signature(function).parameters.values():
        yield from (
            names.Options.__annotations__ if "Options" in str(each.annotation) else [each.name]
        )


PUBLIC = [getattr(ferry, name) for name in ferry.__all__]
PUBLIC = [each for each in PUBLIC if inspect.isfunction(each)]


@pytest.mark.parametrize("function", PUBLIC, ids=lambda each: each.__name__)
def test_each_argument_is_explained_once(function):
    """And none that is not there; "As for" another function is said of all the others together."""
    own, others = arguments(function)
    first = next(iter(inspect.signature(function).parameters))
    assert {*parameters(function)} <= explained(function) | ({first} if others else set())
    assert own.keys() <= {*parameters(function), "options"}
    if others is not None:
        assert [name for name, text in own.items() if re.fullmatch(r"As for `\w+`\.", text)] == []
