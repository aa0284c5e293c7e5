"""Selecting: globs, substitutions and dtypes that do what they say, and none that does nothing in silence."""

from __future__ import annotations

import re
from collections import OrderedDict

import numpy as np
import pytest

from tensorferry.errors import FormatLimitError, UnsupportedTypeError
from tensorferry.files.base.contents import Contents, NotTensor, Ref
from tensorferry.files.base.stored import InMemory
from tensorferry.files.conversion.select import Recast, select


def contents(**keywords):
    arrays = {
        "layers.0.weight": np.ones((2, 3), np.float32),
        "layers.0.bias": np.ones(2, np.float64),
        "layers.1.weight": np.ones((2, 3), np.float16),
        "position_ids": np.arange(3),
        "mask": np.array([True]),
    }
    tensors = {name: InMemory(array, array.dtype.name, id(array)) for name, array in arrays.items()}
    return Contents("memory", (), tensors, **keywords)


def dtypes(contents):
    return {name: stored.dtype for name, stored in contents.tensors.items()}


def test_nothing_asked_for_changes_nothing():
    """The same tensors, objects and order."""
    before = contents(metadata={"a": "b"})
    after = select(before)
    assert list(after.tensors.items()) == list(before.tensors.items())
    assert after.metadata == before.metadata


def test_include_and_exclude():
    """Whole names, case apart, dots crossed, in the source's order; exclude has the last word."""
    assert list(select(contents(), include=["position_ids", "layers.*"]).tensors) == [
        "layers.0.weight",
        "layers.0.bias",
        "layers.1.weight",
        "position_ids",
    ]
    assert list(select(contents(), exclude=["layers.?.weight", "mask"]).tensors) == [
        "layers.0.bias",
        "position_ids",
    ]
    assert list(select(contents(), include=["layers.*"], exclude=["*.bias"]).tensors) == [
        "layers.0.weight",
        "layers.1.weight",
    ]


@pytest.mark.parametrize(
    "keywords",
    [
        {"include": ["layers"]},
        {"include": ["layers.*", "Mask"]},
        {"exclude": ["weight"]},
        {"rename": ["s/^module\\.//"]},
        {"rename": ["s/mask/m/", "s/mask/n/"]},
        {"dtype": ["lm_head=float16"]},
        {"dtype": ["layers.*=float16", "nothing=float16"]},
    ],
)
def test_a_pattern_that_fits_nothing_is_an_error(keywords):
    """A typing error must not pass in silence; the message quotes the pattern."""
    pattern = next(iter(keywords.values()))[-1].split("=")[0]
    with pytest.raises(FormatLimitError) as raised:
        select(contents(), **keywords)
    assert repr(pattern) in str(raised.value) or pattern in str(raised.value)


@pytest.mark.parametrize(
    "keywords",
    [
        {"include": ["mask"], "exclude": ["mask"]},
        {"exclude": ["*"]},
        {"exclude": ["layers.*", "*s*"]},
    ],
)
def test_patterns_that_leave_nothing_are_an_error(keywords):
    """Each of them fits something; a file of nothing was written."""
    with pytest.raises(FormatLimitError, match=r"^Nothing is left by .*exclude '") as caught:
        select(contents(), **keywords)
    assert caught.value.hint == ("without exclude=" if "include" in keywords else None)
    assert not select(Contents("memory", (), {})).tensors


def test_rename_as_sed_does():
    """In order; the first match, or with g each; any separator; groups; what is escaped."""
    for rename, wanted in [
        (["s/layers\\.(\\d)/block_\\1/"], "block_0.weight"),
        (["s/e/E/"], "layErs.0.weight"),
        (["s/e/E/g"], "layErs.0.wEight"),
        (["s,layers,a/b,"], "a/b.0.weight"),
        (["s/layers/a\\/b/"], "a/b.0.weight"),
        (["s/layers/x/", "s/x\\./y_/"], "y_0.weight"),
        (["s/\\./\\\\./"], "layers\\.0.weight"),
    ]:
        assert next(iter(select(contents(), rename=rename).tensors)) == wanted


@pytest.mark.parametrize(
    "text",
    ["", "s", "s/a/b", "a/b/", "s/a/b/c/", "s/(/b/", "s/a/\\9/", "s/a/b/x", "saabaa", "s\\a\\b\\"],
)
def test_what_is_no_substitution_is_refused(text):
    """The message shows what one looks like, or what is wrong with the pattern."""
    with pytest.raises(ValueError, match="is not a substitution"):
        select(contents(), rename=[text])


@pytest.mark.parametrize(
    "pattern", ["(a){99999999999}", "(" * 5000 + "a" + ")" * 5000], ids=["repeats", "groups"]
)
def test_what_no_pattern_can_have_is_refused(pattern):
    """More repetitions, or more groups in groups, than there can be."""
    with pytest.raises(ValueError, match="is not a substitution"):
        select(contents(), rename=[f"s/{pattern}/b/"])


def test_two_tensors_of_one_name_are_refused():
    """The message has the two old names and the new one."""
    with pytest.raises(
        FormatLimitError, match=r"layers\.0\.weight and layers\.1\.weight would both be named w"
    ):
        select(contents(), rename=["s/layers.*weight/w/"])
    with pytest.raises(
        FormatLimitError, match=r"layers\.0\.weight and layers\.1\.weight would both have no name"
    ):
        select(contents(), rename=["s/layers.*weight//"])


@pytest.mark.parametrize("old", ["mask", "a/b", r"a\1", "a'b"])
def test_the_hint_for_a_tensor_without_a_name_gives_it_one(old):
    """Its code can be pasted."""
    held = contents()
    held = held._replace(tensors={**held.tensors, old: held.tensors["mask"]})
    with pytest.raises(FormatLimitError, match=" would have no name") as caught:
        select(held, rename=[f"s#^{re.escape(old)}$##"])
    code, _, rest = caught.value.hint.partition(", or another name")
    assert old in select(held, **eval(f"dict({code})")).tensors, rest  # noqa: S307


def test_a_tensor_without_a_name_stays_or_gets_one():
    """Only a name that becomes empty is refused."""
    nameless = contents()._replace(tensors={"": contents().tensors["mask"]}, tree=None)
    assert list(select(nameless).tensors) == [""]
    assert list(select(nameless, rename=["s/^$/mask/"]).tensors) == ["mask"]
    assert list(select(nameless, rename=["s/^$/mask/", "s/mask//"]).tensors) == [""]


@pytest.mark.parametrize("word", ["float16", "fp16", "f2", "half"])
def test_a_dtype_for_all_is_for_floats(word):
    """Integers and bools stay; what has the dtype already is not touched; people spell it as they are used to."""
    before = contents()
    after = select(before, dtype=word)
    assert dtypes(after) == {
        "layers.0.weight": "float16",
        "layers.0.bias": "float16",
        "layers.1.weight": "float16",
        "position_ids": "int64",
        "mask": "bool",
    }
    assert after.tensors["layers.1.weight"] is before.tensors["layers.1.weight"]
    assert isinstance(after.tensors["layers.0.weight"], Recast)


def test_dtypes_by_glob():
    """Of several globs the last that fits counts; one reaches integers too; they are of the source's names."""
    after = select(
        contents(),
        dtype=["bfloat16", "*.bias=float32", "position_ids=int32", "layers.1.*=float16"],
        rename=["s/layers/blocks/"],
        overflow="saturate",
    )
    assert dtypes(after) == {
        "blocks.0.weight": "bfloat16",
        "blocks.0.bias": "float32",
        "blocks.1.weight": "float16",
        "position_ids": "int32",
        "mask": "bool",
    }
    assert after.tensors["blocks.0.weight"].overflow == "saturate"
    assert after.tensors["blocks.0.weight"].name == "layers.0.weight"


def test_unknown_dtypes_and_modes_are_refused():
    """With the names that there are."""
    with pytest.raises(UnsupportedTypeError, match="float17"):
        select(contents(), dtype="float17")
    with pytest.raises(ValueError, match='"raise", "saturate" or "nan"'):
        select(contents(), overflow="wrap")


def nested():
    tensors = contents().tensors
    tree = OrderedDict(model={"w": Ref("model.w"), "b": Ref("model.b")}, epoch=3, sizes=[1, 2])
    names = {"model.w": tensors["layers.0.weight"], "model.b": tensors["layers.0.bias"]}
    return Contents(
        "memory",
        (),
        names,
        {"a": "b"},
        tree,
        {"text": NotTensor("an array of strings"), "sparse": "sparse"},
    )


def test_a_tree_follows():
    """What is left out leaves it, what is renamed has another key, everything else stays."""
    after = select(nested(), exclude=["model.b"], rename=["s/w$/weight/"])
    assert after.tree == OrderedDict(model={"weight": Ref("model.weight")}, epoch=3, sizes=[1, 2])
    assert list(after.tensors) == ["model.weight"]
    assert after.others == {"text": "an array of strings", "sparse": "sparse"}


def test_only_attributes_go_with_their_tensor():
    """A tensor that has an @ in its name is nobody's."""
    others = {"model.w@tag": NotTensor("an attribute of a tensor"), "model.w@q": "Q8_0, quantised"}
    before = nested()._replace(others=others)
    assert select(before, exclude=["model.w"]).others == {"model.w@q": "Q8_0, quantised"}
    assert select(before, include=["model.w"]).others == {"model.w@tag": "an attribute of a tensor"}


def test_others_can_be_left_out():
    """By name, by not being included, or with all that is not a tensor; a tensor by its name alone."""
    assert not select(nested(), exclude=["text", "sparse"]).others
    assert not select(nested(), include=["model.*"]).others
    after = select(nested(), tensors_only=True)
    assert (after.others, after.tree, after.metadata) == ({"sparse": "sparse"}, None, {})
    assert list(after.tensors) == ["model.w", "model.b"]


@pytest.mark.parametrize(
    "keywords", [{"exclude": ["model.odd"]}, {"include": ["model.b", "epoch"]}]
)
def test_others_that_are_left_out_leave_the_tree_too(keywords):
    """What is not among the tensors nor the others has no place in the tree."""
    tensors = {"model.b": contents().tensors["layers.0.bias"]}
    tree = {"model": {"odd": Ref("model.odd", "parameter"), "b": Ref("model.b")}, "epoch": 3}
    after = select(
        Contents("memory", (), tensors, {}, tree, {"model.odd": "has attributes"}), **keywords
    )
    assert after.tree == {"model": {"b": Ref("model.b")}, "epoch": 3}
    assert not after.others


def test_the_contents_given_stay_as_they_are():
    """Nothing is changed in place."""
    before = nested()
    select(before, exclude=["*.b"], rename=["s/w$/weight/"], dtype="float16", tensors_only=True)
    after = nested()
    assert (before.tree, before.others, before.metadata) == (
        after.tree,
        after.others,
        after.metadata,
    )
    assert dtypes(before) == dtypes(after)
