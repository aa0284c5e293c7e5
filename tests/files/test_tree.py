"""Trees: names from nesting, renaming, leaving out, and the strings that store them beside tensors."""

from __future__ import annotations

import json
import math
import struct
from collections import OrderedDict, UserList, defaultdict, deque
from dataclasses import dataclass
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.files.support import contents
from tests.support import examples

import tensorferry
from tensorferry.errors import ConversionError, FileFormatError, FormatLimitError
from tensorferry.files.base.contents import Contents, Ref, Special
from tensorferry.files.base.nesting import leaves, names, relabel, written
from tensorferry.files.base.tree_edits import rename, without
from tensorferry.files.base.tree_strings import TIES, TREE, pack, unpack
from tensorferry.files.conversion.select import substitution


def through_strings(tree, tensors=()):
    """A tree after its way into strings and back."""
    held = contents({name: np.zeros(1) + number for number, name in enumerate(tensors)}, tree=tree)
    strings = pack(held)
    assert all(type(key) is str and type(text) is str for key, text in strings.items())
    return unpack(Contents("memory", (), held.tensors, strings)).tree


def told(value):
    """A value with everything that could be lost: types, bits of floats, the order of keys, attributes."""
    if isinstance(value, dict):
        factory = value.default_factory if isinstance(value, defaultdict) else None
        attributes = told(vars(value)) if hasattr(value, "__dict__") else None
        return (
            type(value),
            factory,
            [(told(key), told(held)) for key, held in value.items()],
            attributes,
        )
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(map(repr, map(told, value)))
    if type(value) in (list, tuple) or isinstance(value, (Ref, Special)):
        return type(value), [told(each) for each in value]
    if type(value) is float:
        return float, struct.pack(">d", value)
    if type(value) is complex:
        return complex, struct.pack(">dd", value.real, value.imag)
    if isinstance(value, np.generic):
        return type(value), value.dtype, value.tobytes()
    return type(value), value


SCALARS = [
    None,
    True,
    False,
    0,
    -1,
    1 << 63,
    -(1 << 63) - 1,
    1 << 200,
    -(1 << 8191),
    (1 << 8192) - 1,
    0.0,
    -0.0,
    5e-324,
    0.1,
    1e308,
    math.inf,
    -math.inf,
    math.nan,
    struct.unpack(">d", b"\x7f\xf0\x00\x00\x00\x00\x00\x01")[0],
    struct.unpack(">d", b"\xff\xf8\xde\xad\xbe\xef\x00\x01")[0],
    complex(-0.0, math.nan),
    "",
    'é\U0001f600\n\0"\\',
    "\ud800",
    b"",
    bytes(range(256)),
    bytearray(b"ab"),
    np.float32(0.1),
    np.float64(-0.0),
    np.int64(-7),
    np.bool_(True),
    np.complex128(1 + 2j),
    ml_dtypes.bfloat16(1.5),
    ml_dtypes.int4(-3),
    np.str_("é"),
    np.str_(""),
    np.bytes_(b"ab"),
    np.datetime64("2020-01-01", "ns"),
    np.timedelta64(5, "s"),
]


@pytest.mark.parametrize("value", SCALARS, ids=[str(n) for n in range(len(SCALARS))])
def test_plain_values_survive_bit_for_bit(value):
    """A value comes back of its own type, with its own bits."""
    assert told(through_strings({"x": value})) == told({"x": value})


CONTAINERS = [
    [],
    (),
    {},
    OrderedDict(),
    set(),
    frozenset({1, "a"}),
    {1, 2.5, (3, b"x")},
    [1, (2, [3, {"a": (4,)}])],
    {"@": "ref"},
    {"@": {"@": 1}},
    {1: "int", "1": "str", None: 0, 2.5: 0, (1, "a"): 0, b"b": 0, math.inf: 0},
    {True: 1, 0: 2},
    defaultdict(list, a=[1]),
    defaultdict(None, b=2),
    OrderedDict([("b", 1), ("a", OrderedDict(c=2))]),
    Special("dtype", "torch.float16"),
    Special("size", [2, 3]),
    Special("bytearray", b"x"),
]


@pytest.mark.parametrize("value", CONTAINERS, ids=[str(n) for n in range(len(CONTAINERS))])
def test_containers_survive(value):
    """A container comes back of its own type, with its keys of their own types in their order."""
    assert told(through_strings({"x": value})) == told({"x": value})
    if isinstance(value, dict):
        assert told(through_strings(value)) == told(value)


def test_attributes_of_an_ordered_dict_survive():
    """The versions that PyTorch hangs on a state dict come back."""
    tree = OrderedDict(w=Ref("w"))
    tree._metadata = OrderedDict([("", {"version": 1}), ("layer", {"version": 2})])
    found = through_strings(tree, ["w"])
    assert told(found) == told(tree)
    assert found._metadata["layer"] == {"version": 2}


def test_tensors_keep_kind_and_grad():
    """The place of a tensor comes back with its name, what stood there, and whether it required grad."""
    tree = {
        "a": Ref("a"),
        "b": [Ref("b.0", "parameter", requires_grad=True), Ref("elsewhere", "array")],
        "c": (Ref("c.0", "scalar"),),
    }
    found = through_strings(tree, ["a", "b.0", "elsewhere", "c.0"])
    assert told(found) == told(tree)


def test_a_lone_tensor_is_a_tree():
    """A file may hold a tensor and nothing that names it."""
    assert through_strings(Ref("tensor"), ["tensor"]) == Ref("tensor")
    assert through_strings(Ref("w", "array"), ["w"]) == Ref("w", "array")


def test_a_large_flat_tree_takes_little_text():
    """A tensor whose name follows from its place takes no second name in the text."""
    keys = [f"layer.{n}.weight" for n in range(1000)]
    held = contents(
        {key: np.zeros(1) for key in keys}, tree=OrderedDict((key, Ref(key)) for key in keys)
    )
    assert len(pack(held)[TREE]) < 1000 * (len(keys[-1]) + 20)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.complex_numbers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.booleans() | st.none(), inner, max_size=3)
        | st.dictionaries(st.text(), inner, max_size=3).map(OrderedDict)
    ),
    max_leaves=12,
)


@given(plain)
@settings(max_examples=examples(150), deadline=None)
def test_any_tree_of_plain_values_survives(tree):
    """Whatever is made of plain values and containers comes back the same."""
    assert told(through_strings([tree])) == told([tree])


def test_names_are_the_keys_joined_and_a_clash_gets_a_number():
    """A name is made of the keys that lead to the tensor; a second one of the same name ends in #2."""
    tree = {
        "a.b": Ref(""),
        "a": {"b": Ref(""), "c": [Ref(""), (Ref(""),)]},
        1: Ref(""),
        "1": Ref(""),
        "a.b#2": Ref(""),
    }
    assert names(tree) == ["a.b", "a.b#2", "a.c.0", "a.c.1.0", "1", "1#2", "a.b#2#2"]
    assert names(Ref("")) == ["tensor"]
    assert names({"a": 1, "b": [None, "x"]}) == []
    assert names({"x": {"y": 3}, "z": 4}, int) == ["x.y", "z"]


def test_every_clash_gets_a_name_of_its_own():
    """A path that can be cut into keys in 512 ways gives 512 tensors of one name, and each gets its own."""

    def cut(parts):
        if parts == 0:
            return Ref("")
        return {".".join("a" * length): cut(parts - length) for length in range(1, parts + 1)}

    found = names(cut(10))
    assert len(found) == len(set(found)) == 512
    assert set(found) == {".".join("a" * 10) + (f"#{n}" if n > 1 else "") for n in range(1, 513)}


def test_relabel_keeps_everything_else():
    """Another label in the place of each tensor leaves types, order and attributes as they are, and the original."""
    tree = OrderedDict(a=[Ref("x"), 1], b=defaultdict(list, c=(Ref("y"),)))
    tree.mark = "kept"
    before = told(tree)
    found = relabel(tree, lambda ref: ref._replace(name=ref.name * 2))
    assert told(tree) == before
    assert found == {"a": [Ref("xx"), 1], "b": {"c": (Ref("yy"),)}}
    assert (type(found), found.mark, found["b"].default_factory) == (OrderedDict, "kept", list)


def test_a_tree_is_written_with_all_that_could_differ():
    """Types, keys, default factories and attributes; sets whatever they were before."""
    noted = OrderedDict(a=1)
    noted._metadata = {"version": 2}
    different = [
        {"a": 1},
        {"a": True},
        {"a": 1.0},
        {1: "a"},
        OrderedDict(a=1),
        noted,
        defaultdict(int, a=1),
    ]
    different += [
        defaultdict(None, a=1),
        {"a": (1,)},
        {"a": [1]},
        {"a": {1}},
        {"a": frozenset({1})},
        {"a": set()},
    ]
    assert len(set(map(written, different))) == len(different)
    ups, downs = set(range(0, 16, 8)), set(range(8, -8, -8))
    assert repr(ups) != repr(downs)
    assert written([ups, frozenset(ups)]) == written([downs, frozenset(downs)])


def test_rename_changes_the_key_in_its_own_dict():
    """A new name is a new key where the tensor stands; its place among the others stays."""
    tree = OrderedDict(
        model={"module.w": Ref("model.module.w"), "module.b": Ref("model.module.b"), "epoch": 3},
        last=Ref("last"),
    )
    found = rename(tree, {"model.module.w": "model.w", "last": "final"})
    assert told(found) == told(
        OrderedDict(
            model={"w": Ref("model.w"), "module.b": Ref("model.module.b"), "epoch": 3},
            final=Ref("final"),
        )
    )
    swapped = rename({"a": Ref("a"), "b": Ref("b")}, {"a": "b", "b": "a"})
    assert told(swapped) == told({"b": Ref("b"), "a": Ref("a")})
    assert rename(None, {"a": "b"}) is None
    assert rename(Ref("tensor"), {"tensor": "w"}) == Ref("w")


def _encoder(prefix):
    """The names of a container of tensors, and what stands beside them."""
    return {"b": f"{prefix}b", "l": [f"{prefix}l.0", f"{prefix}l.1"], "n": 1}


@pytest.mark.parametrize(
    ("substitute", "wanted"),
    [
        (r"s/^model\.//", {"w": "w", "enc": _encoder("enc."), "epoch": 3}),
        ("s/^model/net/", {"net": {"w": "net.w", "enc": _encoder("net.enc.")}, "epoch": 3}),
        (
            r"s/^model\.enc\.//",
            {"model": {"w": "model.w", "enc": {"n": 1}}, "b": "b", "l": ["l.0", "l.1"], "epoch": 3},
        ),
        ("s/enc/dec/", {"model": {"w": "model.w", "dec": _encoder("model.dec.")}, "epoch": 3}),
        (
            r"s/enc\.b/b/",
            {"model": {"w": "model.w", "b": "model.b", "enc": {"l": None, "n": 1}}, "epoch": 3},
        ),
    ],
)
def test_a_rename_moves_what_no_longer_belongs_to_its_dict(substitute, wanted):
    """Up to where its name begins as its place does; with its container, if all of that moves alike."""
    inner = {"b": Ref("model.enc.b"), "l": [Ref("model.enc.l.0"), Ref("model.enc.l.1")], "n": 1}
    tree = {"model": {"w": Ref("model.w"), "enc": inner}, "epoch": 3}
    change = substitution(substitute)
    held = {ref.name: change(ref.name) for _, ref in leaves(tree)}
    found = rename(tree, held)
    plain = relabel(found, lambda ref: ref.name)
    if wanted.get("model", {}).get("b"):
        wanted["model"]["enc"]["l"] = ["model.enc.l.0", "model.enc.l.1"]
    assert plain == wanted
    assert sorted(names(found)) == sorted(held.values())


@pytest.mark.parametrize(
    ("tree", "mapping", "message"),
    [
        ({0: Ref("0")}, {"0": "a"}, "0 cannot be named a"),
        ([Ref("0"), Ref("1")], {"1": "x"}, "stands in a list, at place 1"),
        (
            {"l": [{"w": Ref("l.0.w")}, Ref("l.1")]},
            {"l.0.w": "w"},
            r"l\.0 stands in a list, at place 0",
        ),
        ({"a": Ref("a"), "b": 3}, {"a": "b"}, "there would be two of b"),
        ({"m": {"w": Ref("m.w")}, "w": Ref("w")}, {"m.w": "w"}, "there would be two of w"),
    ],
)
def test_a_rename_that_does_not_fit_the_tree_is_refused(tree, mapping, message):
    """A name that its place in the tree cannot have is refused."""
    with pytest.raises(FormatLimitError, match=message):
        rename(tree, mapping)


def test_without_leaves_the_rest_as_it_is():
    """What is left out goes with its key, and containers of nothing else with it; other values stay."""
    tree = OrderedDict(
        a=Ref("a"), b={"c": [Ref("b.c.0"), Ref("b.c.1")], "n": 1}, d=(Ref("d.0"), 2), e=[]
    )
    found = without(tree, {"a", "b.c.0", "b.c.1"})
    assert told(found) == told(OrderedDict(b={"n": 1}, d=(Ref("d.0"), 2), e=[]))
    assert without(tree, ()) is tree
    # The values are b.n, d.1 and e.
    assert told(without(tree, {"d.0"}, [0, 1, 1])) == told(OrderedDict(a=tree["a"], b=tree["b"]))
    assert told(without(tree, {"a", "b.c.0", "b.c.1", "d.0"}, [1, 1, 1])) == told(OrderedDict())
    assert without([1, 2], (), [1, 1]) == []
    assert without(3, (), [1]) == {}
    assert without(Ref("tensor"), {"tensor"}) == {}
    with pytest.raises(FormatLimitError, match=r"b\.c\.1 cannot be left out of the list"):
        without(tree, {"b.c.1"})
    with pytest.raises(FormatLimitError, match=r"d\.0 cannot be left out of the tuple"):
        without(tree, {"d.0"})


class Config:
    """A value that is not plain."""


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": {"b": [0, Config()]}}, r"a\.b\.1 is a .*Config"),
        ({"a": {Config(): 1}}, "a has a key that is a Config"),
        ({"a": defaultdict(Config)}, "a makes its missing values by Config"),
        ({"a": np.zeros(3)}, r"a is a numpy\.ndarray"),
        ({"a": np.longdouble(1)}, "a is a NumPy scalar"),
        (Config(), "What the file holds is a"),
    ],
)
def test_what_is_not_plain_is_refused_by_its_place(tree, message):
    """What JSON cannot hold is refused, and the message says where it stands."""
    with pytest.raises(FormatLimitError, match=message):
        pack(contents({}, tree=tree))


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".npz", ".msgpack"])
def test_integers_that_python_does_not_write_are_refused(suffix, tmp_path):
    """By their place, in values and in keys, before anything is written."""
    for tree in (
        {"a": {"b": 10**5000}, "w": np.ones(2)},
        {"a": {10**5000: np.ones(2)}},
        {"a": {-(10**5000): 1}},
    ):
        with pytest.raises(ConversionError, match=r"a.*integer of [0-9]+ b|integer of [0-9]+ b.*a"):
            tensorferry.save(tree, tmp_path / f"a{suffix}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "digits", ["-0x1" + "0" * 2048, "f" * 2049, "0" * 9000, "f" * 1_000_000], ids=len
)
def test_integers_in_a_file_that_python_does_not_write_are_an_error(digits):
    """Not an exception of Python where somebody fingerprints them."""
    text = json.dumps({"w": {"@": "ref"}, "x": {"@": "int", "hex": digits}})
    with pytest.raises(FileFormatError, match="more than 8192 bits"):
        unpack(contents({"w": np.ones(1)}, metadata={TREE: text}))


def test_a_tree_that_nests_too_deep_or_in_itself_is_refused():
    """Sixty-four levels are stored; more, and a list in itself, are refused."""
    tree: object = 1
    for _ in range(64):
        tree = [tree]
    assert told(through_strings(tree)) == told(tree)
    with pytest.raises(FormatLimitError, match="nests deeper than 64"):
        pack(contents({}, tree=[tree]))
    loop: list[object] = []
    loop.append(loop)
    for function in (
        names,
        lambda each: pack(contents({}, tree=each)),
        lambda each: list(leaves(each)),
    ):
        with pytest.raises(FormatLimitError, match="nests deeper than 64"):
            function(loop)


def test_lists_that_stand_in_each_other_many_times_are_refused(monkeypatch):
    """A tree of few objects that unfolds to more than there is room for is refused, not unfolded."""
    monkeypatch.setattr("tensorferry.files.base.nesting.MOST", 10_000)
    tree: list[object] = []
    for _ in range(40):
        tree = [tree, tree]
    with pytest.raises(FormatLimitError, match="more than 10,000"):
        pack(contents({}, tree=tree))


def test_ties_come_back_in_their_places():
    """Further names of tensors come back among the others, where they stood, even before the first name."""
    shared, other = np.ones(4), np.zeros(2)
    held = contents({"z": shared, "a": other, "m": shared, "b": other, "c": np.ones(1)})
    strings = pack(held)
    stored = {name: each for name, each in held.tensors.items() if name not in held.ties}
    found = unpack(Contents("x", (), stored, strings))
    assert list(found.tensors) == ["z", "a", "m", "b", "c"]
    assert found.ties == {"m": "z", "b": "a"}
    assert found.metadata == {}


def test_metadata_that_names_a_tensor_survives():
    """A string that is the name of a tensor is another name of it, as in save_model's files; it is written again."""
    held = contents({"w": np.ones(2)}, metadata={"alias": "w", "format": "w", "w2": "other"})
    found = unpack(held)
    assert found.ties == {"alias": "w"}
    assert found.metadata == {"format": "w", "w2": "other"}
    assert pack(found)["alias"] == "w"


def test_a_string_of_ours_in_the_metadata_is_refused():
    """Metadata cannot take the names that tensorferry's own strings have."""
    for key in (TREE, TIES):
        with pytest.raises(FormatLimitError, match=key):
            pack(contents({}, metadata={key: "x"}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nan",
        "NaN",
        '{"a":Infinity}',
        '{"a":1,"a":2}',
        '{"@":"none of these"}',
        '{"@":1}',
        '{"@":["x"]}',
        '{"@":"tuple"}',
        '{"@":"tuple","items":3}',
        '{"@":"set","items":[[]]}',
        '{"@":"dict","items":[[1]]}',
        '{"@":"dict","items":[1]}',
        '{"@":"dict","items":[[{"@":"dict","items":[]},1]]}',
        '{"@":"dict","items":[[1,2],[true,3]]}',
        '{"@":"defaultdict","items":{},"factory":"eval"}',
        '{"@":"OrderedDict","items":{},"attributes":[1]}',
        '{"@":"OrderedDict","items":{},"attributes":{"items":1}}',
        '{"@":"OrderedDict","items":{},"attributes":{"__deepcopy__":1}}',
        '{"@":"bytes","base64":"*"}',
        '{"@":"bytes","base64":"é"}',
        '{"@":"int","hex":"zz"}',
        '{"@":"float","bits":"00"}',
        '{"@":"complex","bits":"00"}',
        '{"@":"numpy","dtype":"object","hex":"00"}',
        '{"@":"numpy","dtype":"|O8","hex":"0000000000000000"}',
        '{"@":"numpy","dtype":"float32","hex":"00"}',
        '{"@":"numpy","dtype":"<U999999999","hex":""}',
        '{"@":"numpy","dtype":"<U9","hex":""}',
        '{"@":"ref","name":3}',
        '{"@":"ref","kind":"code"}',
        '{"@":"special","kind":"dtype","value":3}',
        '{"@":"special","kind":3,"value":"x"}',
        '{"@":"ref","name":"absent"}',
        '[{"@":"ref","name":"w"},{"@":"ref","name":"w"}]',
        "[]",
        "9" * 5000,
        "[" * 100_000,
        "[" * 70 + "]" * 70,
        '{"a":' * 5000 + "1" + "}" * 5000,
    ],
    ids=lambda text: text[:40],
)
def test_a_tree_that_nobody_wrote_is_an_error(text):
    """Whatever stands in the string, it is an error that says so: never a crash, never a wrong tree."""
    with pytest.raises(FileFormatError, match=r"tree|mention"):
        unpack(contents({"w": np.zeros(1)}, metadata={TREE: text}))


@pytest.mark.parametrize(
    ("ties", "message"),
    [
        ("[", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"a":1}', "cannot be read"),
        ('{"a":["w"]}', "cannot be read"),
        ('{"a":["absent",0]}', "which is not there"),
        ('{"a":["w","0"]}', "which is not there"),
        ('{"a":[["w"],0]}', "which is not there"),
        ('{"w":["v",0]}', "stored itself"),
        ('{"t":["v",0,2]}', "not there"),
        ("[" * 100_000, "cannot be read"),
    ],
    ids=lambda text: text[:30],
)
def test_ties_that_nobody_wrote_are_an_error(ties, message):
    """Ties to what is not there, or of what is stored, are errors."""
    with pytest.raises(FileFormatError, match=message):
        unpack(contents({"w": np.zeros(1), "v": np.ones(1)}, metadata={TIES: ties}))


def test_tensors_that_the_tree_does_not_mention_are_an_error():
    """If another program added a tensor and kept the string, nothing is dropped in silence."""
    held = contents({"w": np.zeros(1)}, tree={"w": Ref("w")})
    strings = pack(held)
    with pytest.raises(FileFormatError, match="does not mention: new"):
        unpack(contents({"w": np.zeros(1), "new": np.ones(1)}, metadata=strings))
    assert json.loads(strings[TREE]) == {"w": {"@": "ref"}}


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".npz", ".gguf"])
@pytest.mark.parametrize("text", ["embed", "norm", "other"])
def test_metadata_under_the_name_of_a_tie_survives(tmp_path, text, suffix):
    """A string is told from the further name that it is called as, and from what says whose that is."""
    weight = np.ones(3, "float32")
    path = tmp_path / f"a{suffix}"
    tree = {"embed": weight, "norm": weight + 1, "head": weight}
    tensorferry.save(tree, path, metadata={"head": text}, ties="alias")
    contents = tensorferry.open(path)
    assert (contents.metadata["head"], contents.ties) == (text, {"head": "embed"})
    tensorferry.convert_files(path, tmp_path / "b.safetensors")
    contents = tensorferry.open(tmp_path / "b.safetensors")
    assert (contents.metadata, contents.ties) == ({"head": text, "format": "pt"}, {"head": "embed"})


def test_a_string_that_happens_to_be_a_name_stays_a_string(tmp_path):
    """Metadata whose value is a tensor's name is no tie, beside real ties too; save_model's are."""
    import safetensors.numpy

    weight = np.ones(3, "float32")
    for tensors in ({"w": weight}, {"w": weight, "tied": weight}):
        path = tmp_path / f"{len(tensors)}.safetensors"
        tensorferry.save(tensors, path, metadata={"base": "w"})
        contents = tensorferry.open(path)
        assert list(contents.tensors) == list(tensors)
        assert contents.metadata == {"base": "w", "format": "pt"}
    safetensors.numpy.save_file({"w": weight}, tmp_path / "theirs.safetensors", {"base": "w"})
    assert tensorferry.open(tmp_path / "theirs.safetensors").ties == {"base": "w"}


# -- containers that convert_tree enters -----------------------------------------------------------


@dataclass
class Layer:
    weight: object
    bias: object
    name: str = "dense"


CONTAINERS = {
    "dataclass": (Layer, lambda a, b: {"weight": a, "bias": b, "name": "dense"}),
    "nested": (
        lambda a, b: {"x": [Layer(a, b)]},
        lambda a, b: {"x": [{"weight": a, "bias": b, "name": "dense"}]},
    ),
    "namespace": (lambda a, b: SimpleNamespace(a=a, b=b), lambda a, b: {"a": a, "b": b}),
    "deque": (lambda a, b: deque([a, b]), lambda a, b: [a, b]),
    "empty": (
        lambda a, b: {"x": SimpleNamespace(), "a": a, "b": b},
        lambda a, b: {"x": {}, "a": a, "b": b},
    ),
    "names that are digits": (
        lambda a, b: SimpleNamespace(**{"0": a, "1": b}),
        lambda a, b: {"0": a, "1": b},
    ),
    "list of its own": (lambda a, b: UserList([a, b]), lambda a, b: [a, b]),
    "fields": (
        lambda a, b: np.array([(1, 2.5), (3, 0.5)], [("i", "i8"), ("f", "f4")]),
        lambda a, b: {"i": np.array([1, 3]), "f": np.array([2.5, 0.5], np.float32)},
    ),
}


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "pt"])
@pytest.mark.parametrize(("make", "plain"), CONTAINERS.values(), ids=CONTAINERS)
def test_what_convert_tree_enters_is_saved_as_what_it_holds(make, plain, suffix, tmp_path):
    """A file keeps no classes: a dataclass is a dict of its fields there, and reads back as that."""
    pair = np.arange(3.0), np.ones((2, 2), np.float32)
    assert tensorferry.describe_tree(make(*pair))  # it enters them
    tensorferry.save(make(*pair), tmp_path / f"a.{suffix}")
    tensorferry.save(plain(*pair), tmp_path / f"b.{suffix}")
    found, expected = (tensorferry.load(tmp_path / f"{name}.{suffix}") for name in "ab")
    assert repr(tensorferry.convert_tree(found, "numpy")) == repr(
        tensorferry.convert_tree(expected, "numpy")
    )


def test_what_a_container_has_beside_its_values_is_not_left_out(tmp_path):
    """An attribute that is no field has no place in the dict: such an object is refused as before."""
    layer = Layer(np.ones(2), np.ones(3))
    layer.extra = np.zeros(1)
    with pytest.raises(ConversionError, match="holds a tensor"):
        tensorferry.save(layer, tmp_path / "a.npz")
    assert not list(tmp_path.iterdir())
