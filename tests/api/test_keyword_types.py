"""A keyword takes its own values.

Another word is a ValueError, another type a TypeError, with the keyword's name.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from tests.backends import paper_cupy

import tensorferry as ferry

torch = pytest.importorskip("torch")


def path_to(folder):
    """A file with an array in it."""
    np.savez(folder / "in.npz", a=np.ones(2))
    return folder / "in.npz"


def to_cupy(**on):
    """With the stand-in for CuPy."""
    with paper_cupy.installed():
        return ferry.to_cupy(ARRAY, **on)


ARRAY, TREE = np.ones(2, "float32"), {"a": np.ones(2, "float32")}
SAMPLES = [{"ids": [5, 7]}, {"ids": [9]}]
CALLS = {
    "collate": lambda _, **on: ferry.collate(SAMPLES, "numpy", pad=0, **on),
    "convert": lambda _, **on: ferry.convert(
        ARRAY, "tensorflow" if "variable" in on else "torch", **on
    ),
    "convert_files": lambda folder, **on: ferry.convert_files(
        path_to(folder), folder / "out.npz", **on
    ),
    "convert_tree": lambda _, **on: ferry.convert_tree(TREE, "numpy", **on),
    "explain": lambda _, **on: ferry.explain(ARRAY, "torch", **on),
    "explain_collate": lambda _, **on: ferry.explain_collate(SAMPLES, "numpy", pad=0, **on),
    "explain_tree": lambda _, **on: ferry.explain_tree(TREE, "numpy", **on),
    "frameworks": lambda _, **on: ferry.frameworks(**on),
    "load": lambda folder, **on: ferry.load(path_to(folder), **on),
    "prefetch": lambda _, **on: ferry.prefetch([TREE], "numpy", **on),
    "save": lambda folder, **on: ferry.save(TREE, folder / "out.npz", **on),
    "start": lambda _, **on: ferry.start(TREE, "numpy", **on),
    "to_cupy": lambda _, **on: to_cupy(**on),
    "to_numpy": lambda _, **on: ferry.to_numpy(ARRAY, **on),
    "to_tensorflow": lambda _, **on: ferry.to_tensorflow(ARRAY, **on),
    "to_torch": lambda _, **on: ferry.to_torch(ARRAY, **on),
    "wrap": lambda _, **on: ferry.wrap(np.sin, inner="numpy", **on),
    "wrap_module": lambda _, **on: ferry.wrap_module(torch.nn.Linear(1, 1), **on),
}


def flags_of(name):
    """The keywords of a function whose default is True or False, and ``copy=``."""
    parameters = inspect.signature(getattr(ferry, name)).parameters.values()
    return [
        each.name for each in parameters if isinstance(each.default, bool) or each.name == "copy"
    ]


FUNCTIONS = [
    name for name in (*ferry.__all__, "open") if not isinstance(getattr(ferry, name), type)
]
FLAGS = [(name, flag) for name in FUNCTIONS for flag in flags_of(name)]
OPTIONS = [
    (name, option) for name in ("convert", "explain") for option in ("pinned", "non_blocking")
]


@pytest.mark.parametrize("value", ["no", 1, [], np.True_], ids=["str", "int", "list", "numpy"])
@pytest.mark.parametrize(("name", "flag"), [*FLAGS, *OPTIONS])
def test_what_is_neither_true_nor_false_is_refused(tmp_path, name, flag, value):
    """``verify="no"`` would verify, and ``overwrite=[]`` would not replace: neither is done in silence."""
    call = CALLS.get(name) or (lambda _, **on: getattr(ferry, name)(ARRAY, **on))
    with pytest.raises(TypeError, match=f"{flag} must be (True|None)"):
        call(tmp_path, **{flag: value})
    assert {each.name for each in tmp_path.iterdir()} <= {"in.npz"}


KEYWORDS = (
    "casting",
    "engine",
    "grad",
    "leaves",
    "nulls",
    "on_error",
    "overflow",
    "padding_side",
    "ragged",
    "unknown",
)
"""Their values are words, or something else that is no string."""
WORDS = [
    (name, keyword)
    for name in FUNCTIONS
    for keyword in KEYWORDS
    if keyword in inspect.signature(getattr(ferry, name)).parameters
]


def test_all_words_are_tried():
    """So that the next test tests something."""
    assert {keyword for _, keyword in WORDS} == {*KEYWORDS}


@pytest.mark.parametrize("value", [["raise"], ("safe",), "perhaps"], ids=["list", "tuple", "word"])
@pytest.mark.parametrize(("name", "keyword"), [*WORDS, ("wrap", "dtype")])
def test_no_word_is_a_type_error_and_another_word_a_value_error(tmp_path, name, keyword, value):
    """As Python's own functions tell them apart."""
    call = CALLS.get(name) or (lambda _, **on: getattr(ferry, name)(ARRAY, **on))
    with pytest.raises(
        ValueError if value == "perhaps" else TypeError, match=f"{keyword} must be .* or .*, not"
    ):
        call(tmp_path, **{keyword: value})
    assert {each.name for each in tmp_path.iterdir()} <= {"in.npz"}


@pytest.mark.parametrize("keyword", ["inner", "outer"])
def test_a_function_is_wrapped_for_a_framework(keyword):
    """The message names the keyword that was given."""
    keywords = {"inner": "numpy", keyword: 1}
    with pytest.raises(TypeError, match=f"{keyword} must be a framework"):
        ferry.wrap(np.sin, **keywords)


@pytest.mark.parametrize("keyword", ["vjp", "jvp", "shapes"])
def test_what_is_called_later_is_looked_at_now(keyword):
    """Else it would fail in the middle of a training."""
    with pytest.raises(TypeError, match=f"{keyword} must be a function or None, not 1"):
        ferry.wrap(np.sin, inner="numpy", **{keyword: 1})


def test_a_bool_fills_up_bools_alone():
    """``pad=False`` is not "without padding": it is refused where there are numbers."""
    for pad in (True, False, np.False_, {"ids": False}):
        with pytest.raises(ferry.LossyCastError, match="is a bool, but the leaf has int64"):
            ferry.collate(SAMPLES, "numpy", pad=pad)
    masks = ferry.collate([{"m": [True]}, {"m": [True, False]}], "numpy", pad=False)
    assert masks["m"].tolist() == [[True, False], [True, False]]


def test_the_depth_of_prefetch_is_a_number():
    """True is one batch only by chance."""
    with pytest.raises(TypeError, match="depth must be an integer, not True"):
        ferry.prefetch([TREE], "numpy", depth=True)
