"""`include`, `exclude` and `names` take parts of a tree: tensors and values by their names, and containers of these."""

from __future__ import annotations

import fnmatch
import pickle
import re
import sys
from collections import OrderedDict, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.files.converting import checkpoint
from tests.files.support import contents

import tensorferry as ferry
from tensorferry.files.base.contents import NOTHING, Contents, NotTensor, Ref, Special
from tensorferry.files.base.nesting import names, relabel
from tensorferry.files.conversion.select import select
from tensorferry.files.opening.paths import formats

X = np.arange(3, dtype=np.float32)
WRITTEN = sorted(
    name
    for name, each in formats().items()
    if each.writes and not each.holds_one and name != "keras"
)


def held(tree, **keywords):
    """Contents with this tree, whose tensors are named by their paths."""
    found = iter(names(tree))
    named = relabel(tree, lambda ref: ref._replace(name=next(found)))
    tensors = contents(dict.fromkeys(names(tree), X)).tensors
    return Contents("memory", (), tensors, tree=named)._replace(**keywords)


def trainer():
    return {
        "model": OrderedDict(w=Ref(""), b=Ref("")),
        "optimizer": {
            "state": {0: {"step": Ref(""), "exp_avg": Ref("")}, 1: {}},
            "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": [0, 1]}],
        },
        "epoch": 7,
        "best": None,
        "dtype": Special("dtype", "float16"),
        "history": [],
    }


def left(tree, **keywords):
    """What stays, without the names of tensors."""
    after = select(held(tree), **keywords)
    flat = {name: Ref("") for name in after.tensors}
    return flat if after.tree is None else relabel(after.tree, lambda _: Ref(""))


MODEL = {"model": OrderedDict(w=Ref(""), b=Ref(""))}


@pytest.mark.parametrize(
    ("keywords", "wanted"),
    [
        ({"include": ["model.*"]}, MODEL),
        ({"include": ["model.*", "epoch"]}, {**MODEL, "epoch": 7}),
        ({"include": ["epoch", "best"]}, {"epoch": 7, "best": None}),
        ({"include": ["dtype"]}, {"dtype": Special("dtype", "float16")}),
        ({"include": ["history"]}, {"history": []}),
        ({"include": ["*.lr"]}, {"optimizer": {"param_groups": [{"lr": 0.1}]}}),
        (
            {"include": ["optimizer.state.0.*"]},
            {"optimizer": {"state": {0: {"step": Ref(""), "exp_avg": Ref("")}}}},
        ),
        ({"include": ["optimizer.state.1"]}, {"optimizer": {"state": {1: {}}}}),
        (
            {"include": ["*"], "exclude": ["optimizer.*", "best", "dtype", "history"]},
            {**MODEL, "epoch": 7},
        ),
        ({"exclude": ["model.*", "optimizer.*", "history", "best", "dtype"]}, {"epoch": 7}),
        ({"include": ["model.w"]}, {"model": OrderedDict(w=Ref(""))}),
    ],
    ids=str,
)
def test_a_pattern_takes_tensors_and_values_alike(keywords, wanted):
    """Containers of which nothing stays go; those that were empty before are values themselves."""
    tree = trainer()
    assert left(tree, **keywords) == wanted
    assert tree == trainer()


def test_types_keys_and_attributes_of_containers_stay():
    """An OrderedDict with its attributes, a defaultdict with its factory, and keys that are no strings."""
    state = OrderedDict(w=Ref(""), b=Ref(""))
    state._metadata = {"": {"version": 1}}
    counts = defaultdict(int, {1: 5, 2: 6})
    found = left(
        {"model": state, "counts": counts, (0, "a"): 1, None: 2},
        exclude=["model.b", "counts.2", "None"],
    )
    assert found == {"model": OrderedDict(w=Ref("")), "counts": {1: 5}, (0, "a"): 1}
    assert [type(each) for each in found.values()] == [OrderedDict, defaultdict, int]
    assert found["model"]._metadata == {"": {"version": 1}}
    assert found["counts"].default_factory is int


def test_names_are_those_that_inspect_shows(tmp_path):
    """Also where a key has a dot in it, and two names would be the same."""
    ferry.save({"w": X, "a.b": 1, "a": {"b": 2, "c": 3}}, tmp_path / "in.safetensors")
    assert ferry.load(tmp_path / "in.safetensors", names="a.b")["a.b"] == 1
    found = ferry.load(tmp_path / "in.safetensors", names=["a.b#2", "a.c"])
    assert (list(found), dict(found["a"])) == (["a"], {"b": 2, "c": 3})


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"l": [Ref(""), Ref("")]}, r"l\.1 cannot be left out of the list"),
        ({"l": (Ref(""), 2)}, r"l\.1 cannot be left out of the tuple"),
        ({"l": [0, 1, 2]}, r"l\.1 cannot be left out of the list"),
        ({"l": [{"a": 1}, {"a": 2}]}, r"l\.1 cannot be left out of the list"),
        ([0, Ref("")], r"1 cannot be left out of the list"),
    ],
)
@pytest.mark.parametrize("option", ["include", "exclude", "names"])
def test_a_part_of_a_list_is_refused_with_a_hint_that_works(tree, message, option):
    """The places of others would change.

    The whole list goes, or is taken; so the hint can be pasted.
    """
    tree = {"other": Ref(""), **tree} if isinstance(tree, dict) else tree
    below = "l." if isinstance(tree, dict) else ""
    taken = ["other"] if isinstance(tree, dict) else []
    before = held(tree)
    chosen = {"include": [*taken, f"{below}0*"], "include_as": option}
    if option == "exclude":
        chosen = {"exclude": [f"{below}1*"]}
    with pytest.raises(ferry.FormatLimitError, match=message) as refused:
        select(before, **chosen)
    if option == "exclude" and isinstance(tree, list):
        assert (
            refused.value.hint == "without exclude="
        )  # to leave out all of it would leave nothing
        return
    code = refused.value.hint[: refused.value.hint.index("]") + 1]
    assert code.startswith(f"{option}=")
    keywords = eval(f"dict({code})")  # noqa: S307
    after = select(
        before, **{"include" if key == "names" else key: value for key, value in keywords.items()}
    )
    assert (after.tree == before.tree) is (option != "exclude")
    assert ("tensors_only=True" in refused.value.hint) is (option != "names")


def test_all_of_a_list_may_go():
    """Then its place goes with it."""
    assert left({"l": [Ref(""), 1, (2, 3)], "n": 1}, exclude=["l.*"]) == {"n": 1}
    assert left({"l": [Ref(""), Ref("")], "w": Ref("")}, exclude=["l.*"]) == {"w": Ref("")}


def test_the_name_of_a_container_is_no_name(tmp_path):
    """The hint has the pattern for all that is in it, and it works as it stands."""
    ferry.save({"model": {"w": X, "b": X}, "epoch": 1}, tmp_path / "in.safetensors")
    for option, call in (
        ("names", lambda **keywords: ferry.load(tmp_path / "in.safetensors", **keywords)),
        ("exclude", lambda **keywords: ferry.load(tmp_path / "in.safetensors", **keywords)),
        (
            "include",
            lambda **keywords: ferry.convert_files(
                tmp_path / "in.safetensors", tmp_path / "o.pt", **keywords
            ),
        ),
    ):
        with pytest.raises(
            ferry.FormatLimitError, match=f"^{option}: no name fits 'model'"
        ) as refused:
            call(**{option: "model"})
        code, _, why = refused.value.hint.partition(", ")
        assert why == "for all that is in it"
        call(**eval(f"dict({code})"))  # noqa: S307
    assert list(ferry.load(tmp_path / "o.pt")) == ["model"]


def test_a_value_is_not_what_is_in_a_container(tmp_path):
    """A pattern for what is in a value has the value's own name as its hint, and it works as it stands."""
    ferry.save({"w": X, "epoch": 1}, tmp_path / "in.safetensors")
    for option in ("names", "exclude"):
        with pytest.raises(
            ferry.FormatLimitError, match=rf"^{option}: no name fits 'epoch\.\*'"
        ) as refused:
            ferry.load(tmp_path / "in.safetensors", **{option: "epoch.*"})
        code, _, _ = refused.value.hint.partition(", ")
        found = ferry.load(tmp_path / "in.safetensors", **eval(f"dict({code})"))  # noqa: S307
        assert list(found) == (["epoch"] if option == "names" else ["w"])


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".pt"])
def test_load_gives_only_what_was_asked_for(tmp_path, suffix):
    """`names` and `exclude`, of tensors and values, and again after it was pickled."""
    ferry.save(
        {"model": {"w": X}, "optimizer": {"lr": 0.1, "m": X}, "epoch": 1}, tmp_path / f"a{suffix}"
    )
    found = ferry.load(tmp_path / f"a{suffix}", names="model.*")
    assert (list(found), list(found["model"])) == (["model"], ["w"])
    assert found["model"]["w"].tolist() == X.tolist()
    assert list(pickle.loads(pickle.dumps(found))) == ["model"]  # noqa: S301 - our own
    assert list(ferry.load(tmp_path / f"a{suffix}", exclude=["epoch", "*.lr"])["optimizer"]) == [
        "m"
    ]
    assert list(ferry.load(tmp_path / f"a{suffix}", exclude=["optimizer.*"])) == ["model", "epoch"]
    assert dict(ferry.load(tmp_path / f"a{suffix}", names="epoch")) == {"epoch": 1}


@pytest.mark.parametrize("to", WRITTEN)
def test_a_filtered_file_has_no_skeleton(tmp_path, to):
    """Of a checkpoint of a trainer, in every format: what was taken and nothing else, and it reads back the same."""
    torch = pytest.importorskip(
        "torch", reason="writes a checkpoint of torch, which is not installed"
    )
    form = formats()[to]
    if form.module:
        pytest.importorskip(form.module, reason=f"{to} needs {form.module}, which is not installed")
    state = checkpoint(torch)
    torch.save(state, tmp_path / "in.pt")
    target = tmp_path / f"out{form.suffixes[0]}"
    report = ferry.convert_files(
        tmp_path / "in.pt", target, include="model.*", dtype="float32", verify=True
    )
    assert report.tensors == 2
    found = ferry.load(target)
    flat = {"model.weight", "model.bias"}
    assert set(found) in ({"model"}, flat)
    inner = found["model"] if "model" in found else {name[6:]: found[name] for name in flat}
    assert np.array_equal(inner["weight"], state["model"]["weight"].numpy())
    ferry.convert_files(
        tmp_path / "in.pt", tmp_path / "bare.pt", include="model.*", rename=r"s/^model\.//"
    )
    bare = torch.load(tmp_path / "bare.pt", weights_only=True)
    assert list(bare) == ["weight", "bias"]


def test_torch_loads_what_was_filtered_strictly(tmp_path):
    """No unexpected keys: the module's own state, and nothing of what stood beside it."""
    torch = pytest.importorskip("torch", reason="loads a module of torch, which is not installed")
    from safetensors.torch import load_file

    module, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(3)).sum().backward()
    optimizer.step()
    state = {
        "model": module.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": 3,
        "args": {"lr": 0.1},
    }
    torch.save(state, tmp_path / "in.pt")
    for name in ("out.pt", "out.safetensors"):
        ferry.convert_files(
            tmp_path / "in.pt",
            tmp_path / name,
            include="model.*",
            rename=r"s/^model\.//",
            verify=True,
        )
    other.load_state_dict(torch.load(tmp_path / "out.pt", weights_only=True), strict=True)
    assert torch.equal(other.weight, module.weight)
    other.load_state_dict(load_file(tmp_path / "out.safetensors"), strict=True)
    ferry.convert_files(
        tmp_path / "in.pt", tmp_path / "optimizer.pt", include="optimizer.*", verify=True
    )
    found = torch.load(tmp_path / "optimizer.pt", weights_only=True)
    assert list(found) == ["optimizer"]
    optimizer.load_state_dict(found["optimizer"])
    assert found["optimizer"]["param_groups"] == state["optimizer"]["param_groups"]


def test_metadata_of_what_is_left_out_go_too():
    """Attributes of tensors and of their groups, as HDF5 and Zarr have them; the file's own and a user's stay."""
    arrays = dict.fromkeys(["g/a/w", "g/b", "h.c"], X)
    metadata = {
        "g/a/w@unit": "m", "g/a@kind": "group", "g@kind": "group", "g/b@unit": "s", "h.c@unit": "kg", "h@kind": "group",
        "title": "t", "by": "me@here", "me@here": "x", "g/b@": "empty",
    }  # fmt: skip
    others = {"g/text": NotTensor("an array of strings"), "g/text@x": NotTensor("an attribute")}
    before = contents(arrays, metadata=metadata)._replace(others=others)
    always = {"title", "by", "me@here"}
    kept = {
        "g/a/w": {"g/a/w@unit", "g/a@kind", "g@kind"},
        "g/b": {"g/b@unit", "g@kind", "g/b@"},
        "h.c": {"h.c@unit", "h@kind"},
        "g/text": {"g@kind"},
    }
    for name, own in kept.items():
        assert set(select(before, include=[name]).metadata) == always | own, name
    assert set(select(before, exclude=["h.*"]).metadata) == {*metadata} - {"h.c@unit", "h@kind"}
    assert select(before).metadata == metadata


def test_groups_that_are_left_out_leave_no_attributes(tmp_path):
    """What h5py finds in the file that is written: the group that was taken, with its own attributes."""
    h5py = pytest.importorskip(
        "h5py", reason="writes and reads HDF5 with h5py, which is not installed"
    )
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file.attrs["title"] = "t"
        for group in ("g", "h"):
            file[f"{group}/w"] = X
            file[group].attrs["kind"] = group
            file[f"{group}/w"].attrs["unit"] = "m"
    ferry.convert_files(tmp_path / "in.h5", tmp_path / "out.h5", include="g/*", verify=True)
    with h5py.File(tmp_path / "out.h5") as file:
        assert list(file) == ["g"]
        assert (file["g"].attrs["kind"], file["g/w"].attrs["unit"], file.attrs["title"]) == (
            "g",
            "m",
            "t",
        )


def test_values_alone_and_tensors_only():
    """A pattern of values takes nothing if values are left out anyway, and is an error; one to exclude is none."""
    before = held({"w": Ref(""), "epoch": 1})
    with pytest.raises(ferry.FormatLimitError, match="no name fits 'epoch'; there are w"):
        select(before, include=["epoch"], tensors_only=True)
    assert list(select(before, exclude=["epoch"], tensors_only=True).tensors) == ["w"]
    after = select(before, include=["epoch"])
    assert (after.tensors, after.tree) == ({}, {"epoch": 1})
    assert select(before._replace(tensors={}, tree=NOTHING), include=["*"]).tree == NOTHING
    with pytest.raises(ferry.FormatLimitError, match=r"^Nothing is left by exclude '\*'"):
        select(before._replace(tensors={}, tree=3), exclude=["*"])


KEYS = st.sampled_from(["a", "b", "a.b", 0, 1, "1"])
TREES = st.recursive(
    st.sampled_from([Ref(""), 1, None, "text", 0.5, (), {}, [], b"x", Special("dtype", "int8")]),
    lambda inner: st.dictionaries(KEYS, inner, max_size=4) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=12,
).filter(lambda tree: isinstance(tree, dict))


def flat(tree, path=()):
    """Each leaf with its keys, in order; the empty containers among them."""
    if (
        isinstance(tree, (dict, tuple))
        and not isinstance(tree, (Ref, Special))
        and (tree or not path)
    ):
        pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
        return [leaf for key, child in pairs for leaf in flat(child, (*path, key))]
    return [(path, tree)]


@given(
    TREES,
    st.lists(st.sampled_from(["*", "a*", "*.b", "*1*", "a.b", "?", "b.*"]), min_size=1, max_size=2),
)
def test_what_stays_is_what_fits(tree, globs):
    """By the rule itself: of all leaves those whose name fits, in their order, nothing else, in the same places."""
    before = held(tree)
    counts = {True: {}, False: {}}
    wanted, fits = [], 0
    for keys, leaf in flat(tree):
        name = ".".join(map(str, keys))
        taken = counts[isinstance(leaf, Ref)]
        unique, number = name, 1
        while unique in taken:
            number += 1
            unique = f"{name}#{number}"
        taken[unique] = keys
        if not any(fnmatch.fnmatchcase(unique, glob) for glob in globs):
            wanted.append((keys, leaf))
        else:
            fits += 1
    refused = ""
    try:
        after = select(before, exclude=globs)
    except ferry.FormatLimitError as error:
        refused = str(error)
    if refused:
        assert re.match(
            "Nothing is left by|exclude: no name fits|.*cannot be left out of the tuple", refused
        )
        return
    assert fits
    kept = (
        relabel(after.tree, lambda _: Ref(""))
        if after.tree is not None
        else {name: Ref("") for name in after.tensors}
    )
    assert flat(kept) == wanted


def test_many_values_are_filtered_in_one_pass():
    """Twice as many values take twice as many lines of code, not four times."""

    def lines(count):
        tree = {
            "w": Ref(""),
            "ids": list(range(count)),
            "groups": [{"lr": [0.1], "n": n} for n in range(count)],
        }
        before = held({**tree, **{f"t{n}": Ref("") for n in range(count)}})
        seen = [0]

        def traced(_frame, event, _):
            seen[0] += event == "line"
            return traced

        tracing = sys.gettrace()
        sys.settrace(traced)
        try:
            after = select(before, exclude=["ids.*", "groups.*.n", "t*"])
        finally:
            sys.settrace(tracing)
        assert after.tree == {"w": Ref("w"), "groups": [{"lr": [0.1]}] * count}
        return seen[0]

    assert lines(2000) < 2.1 * lines(1000)
