"""A table that is read off two sets of the same weights makes the one from the other, or says what it does not know."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.maps.support import assert_made, kinds, llama

import tensorferry as ferry
from tensorferry.files.base.stored import Decoded


def weights(seed, *shapes, dtype="float32"):
    """Arrays of numbers, as trained weights have them."""
    random = np.random.default_rng(seed)
    found = [random.standard_normal(shape).astype(dtype) for shape in shapes]
    return found[0] if len(found) == 1 else found


def inferred(source, target):
    """The table, which makes the target of the source; and its rules by their target."""
    table = ferry.WeightMap.infer(source, target)
    assert kinds(table.check(source, target)) == []
    made = table.apply(source)
    assert_made({name: made[name] for name in target}, target)
    assert ferry.WeightMap.parse(str(table)) == table
    return table, {str(rule.target): rule for rule in table.rules}


def lines(table):
    """The text below [map]."""
    return str(table).partition("[map]\n")[2].splitlines()


Q, K, V = weights(1, (24, 16), (12, 16), (12, 16))
CONV = weights(2, (8, 6, 3, 3))
CASES = {
    "as it is": Q,
    "transposed": Q.T,
    "rotary": Q.reshape(4, 2, 3, 16).transpose(0, 2, 1, 3).reshape(24, 16),
    "rotary back": Q.reshape(4, 3, 2, 16).transpose(0, 2, 1, 3).reshape(24, 16),
    "heads apart": Q.reshape(4, 6, 16),
    "heads apart, transposed": Q.T.reshape(16, 4, 6),
    "rows reversed": Q[::-1],
    "flat": Q.reshape(-1),
    "joined": np.concatenate([Q, K, V]),
    "joined along another axis": np.concatenate([Q.T, K.T], 1),
    "joined by heads": np.concatenate([x.reshape(4, -1, 16) for x in (Q, K, V)], 1).reshape(-1, 16),
    "interleaved": np.stack([K, V], 1).reshape(24, 16),
    "stacked": np.stack([K, V]),
    "stacked, transposed": np.stack([K.T, V.T]),
    "a part": Q[5:17],
    "a part of columns": Q[:, 3:9],
    "every other row": Q[1::2],
    "a part, transposed": Q[5:17].T,
    "two halves swapped": np.concatenate([Q[12:], Q[:12]]),
    "a kernel": CONV.transpose(2, 3, 1, 0),
    "a kernel without its axes": CONV.reshape(8, 54),
    "a kernel, flat and transposed": CONV.transpose(0, 2, 3, 1).reshape(8, 54),
    "in bfloat16": Q.astype(ml_dtypes.bfloat16),
    "in float16, transposed": Q.T.astype("float16"),
    "in float64": Q.astype("float64"),
}


@pytest.mark.parametrize("case", CASES)
def test_how_a_tensor_lies_in_others(case):
    source = {"q": Q, "k": K, "v": V, "conv": CONV}
    made = np.ascontiguousarray(CASES[case])
    table = ferry.WeightMap.infer(source, {"y": made})
    (rule,) = table.rules
    assert rule.reason is None
    assert not rule.assumed
    assert kinds(table.check(source, {"y": made})) == []
    assert_made(table.apply(source), {"y": made})


def test_layers_are_one_rule():
    source, expected = llama(layers=4)
    table, _ = inferred(source, expected)
    assert len(table.rules) == 6
    assert table.dropped == ("model.layers.*.self_attn.rotary.inv_freq",)
    assert (
        '"layers.{i}.mlp.w13" = { concat = ["model.layers.{i}.mlp.gate", "model.layers.{i}.mlp.up"], axis = 0 }'
        in lines(table)
    )


def test_experts_are_stacked():
    experts = {f"m.{i}.e.{e}.w": weights(100 * i + e, (5, 7)) for i in range(3) for e in range(11)}
    target = {
        f"l.{i}.w": np.stack([experts[f"m.{i}.e.{e}.w"].T for e in range(11)]) for i in range(3)
    }
    _, rules = inferred(experts, target)
    assert list(rules) == ["l.{i}.w"]


def test_a_fused_tensor_is_taken_apart():
    fused = {f"h.{i}.qkv": weights(i, (30, 8)) for i in range(3)}
    target = {}
    for i in range(3):
        for name, part in zip("qkv", np.split(fused[f"h.{i}.qkv"], 3), strict=True):
            target[f"l.{i}.{name}"] = part
    table, _ = inferred(fused, target)
    assert len(table.rules) == 3
    assert_made(dict(sorted(table.inverse().apply(target).items())), fused)


def test_what_is_left_is_dropped():
    source = {"a": Q, "b": K}
    table = ferry.WeightMap.infer(source, {"y": Q[6:].copy()})
    assert table.dropped == ("b", "a[0:6]")
    assert table.check(source) == []


def test_constants_are_assumed_and_chosen_by_names_and_neighbours():
    source, target = {}, {}
    for i in range(3):
        source |= {f"m.{i}.attn.w": weights(i, (8, 8)), f"m.{i}.mlp.w": weights(9 + i, (8, 8))}
        target |= {
            f"l.{i}.mixer.kernel": source[f"m.{i}.attn.w"].T,
            f"l.{i}.ff.kernel": source[f"m.{i}.mlp.w"].T,
        }
        for part in ("attn", "mlp"):
            source |= {
                f"m.{i}.{part}.scale": np.ones(8, "float32"),
                f"m.{i}.{part}.bias": np.zeros(8, "float32"),
            }
        for part in ("mixer", "ff"):
            target |= {
                f"l.{i}.{part}.scale": np.ones(8, "float32"),
                f"l.{i}.{part}.bias": np.zeros(8, "float32"),
            }
    target = {name: np.ascontiguousarray(x) for name, x in target.items()}
    table, rules = inferred(source, target)
    for name, rule in rules.items():
        assert rule.assumed == ("kernel" not in name), name
    assert rules["l.{i}.mixer.scale"].sources == ("m.{i}.attn.scale",)
    assert rules["l.{i}.ff.bias"].sources == ("m.{i}.mlp.bias",)
    assert str(table).count("assumed = true") == 4


def test_a_constant_that_the_source_has_not_is_filled_and_assumed():
    source, target = {"a": Q}, {"x": Q, "y": np.full((2, 3), -0.0, "float32")}
    _, rules = inferred(source, target)
    assert rules["y"].assumed


def test_copies_are_assumed():
    """Which of two equal tensors it was, nobody can tell."""
    _, rules = inferred({"a": Q, "b": Q.copy()}, {"a": Q, "b": Q.copy()})
    assert [rule.assumed for rule in rules.values()] == [True, True]
    assert [rule.sources for rule in rules.values()] == [("a",), ("b",)]


def test_a_tie_is_two_rules_of_one_source():
    _, rules = inferred({"embed": Q}, {"embed": Q, "head": Q.copy()})
    assert [rule.sources for rule in rules.values()] == [("embed",), ("embed",)]


def test_what_is_not_in_the_source_is_named():
    table = ferry.WeightMap.infer({"a": Q}, {"x": Q, "y": weights(8, (3, 3)), "z": Q + 1})
    assert not table.complete
    found = {str(rule.target): rule.reason for rule in table.rules}
    assert found["x"] is None
    assert found["y"] == found["z"] == "no tensor of the source has its elements"


def test_signs_of_zero_and_nans_count():
    """Equal for `==` is not equal: bits are compared."""
    one = np.array([[0.0, 1.0], [2.0, np.nan]], "float32")
    other = one.copy()
    other[0, 0] = -0.0
    (rule,) = ferry.WeightMap.infer({"a": one}, {"y": other}).rules
    assert rule.reason is not None
    bits = one.copy()
    bits.view("uint32")[1, 1] = 0x7FC00001
    (rule,) = ferry.WeightMap.infer({"a": one}, {"y": bits}).rules
    assert rule.reason is not None
    _, rules = inferred({"a": bits}, {"y": np.ascontiguousarray(bits.T)})
    assert rules["y"].reason is None


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int64", "complex64", "float8_e4m3fn", "float64"]
)
def test_any_dtype(dtype):
    x = (
        np.random.default_rng(3)
        .integers(0, 100, (16, 9))
        .astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    )
    if dtype == "complex64":
        x = x + 1j * np.arange(9, dtype="float32")
    inferred({"a": x.astype(x.dtype)}, {"y": np.ascontiguousarray(x.T)})


def test_integers_do_not_become_floats():
    x = np.arange(24).reshape(4, 6)
    (rule,) = ferry.WeightMap.infer({"a": x}, {"y": x.astype("float64")}).rules
    assert rule.reason == "no tensor of the source has its elements"


@pytest.mark.parametrize("shape", [(), (0,), (1,), (1, 1), (3, 0, 2), (1, 5)])
def test_small_shapes(shape):
    x = weights(5, shape) if 0 not in shape else np.zeros(shape, "float32")
    inferred({"a": np.asarray(x, "float32")}, {"y": np.asarray(x, "float32").copy()})


LONG = np.random.default_rng(7).integers(0, 1 << 16, (2100, 2050), "uint16")
"""More elements than an axis may have of which each line has a sum."""
WIDE = np.random.default_rng(8).integers(0, 1 << 16, (2100, 1000), "uint16")
BIAS = np.random.default_rng(6).permutation(2050).astype("uint16")
PARAMETERS = {"w": LONG, "b": BIAS, "v": WIDE}
FLAT = np.concatenate([LONG.reshape(-1), BIAS, WIDE.T.reshape(-1)])
FLATTENED = {
    "flat": (LONG, LONG.reshape(-1), "w : a b -> (a b)"),
    "flat and transposed": (LONG, LONG.T.reshape(-1), "w : a b -> (b a)"),
    "flat on both sides": (LONG.reshape(-1), LONG.reshape(-1), "w"),
    "of a flat one": (LONG.reshape(-1), LONG, "w : (a 2050) -> a 2050"),
    "of a flat one, transposed": (LONG.reshape(-1), LONG.T, "w : (a 2050) -> 2050 a"),
    "rotary": (
        LONG,
        LONG.reshape(10, 2, 105, 2050).swapaxes(1, 2).reshape(-1),
        "w : (a 2 105) b -> (a 105 2 b)",
    ),
    "two long axes": (
        LONG.reshape(1, -1),
        LONG.reshape(-1, 1),
        "w : 1 a -> a 1",
    ),
    "a part": (np.concatenate([LONG, WIDE], 1), LONG.T.reshape(-1), "w[:, :2050] : a b -> (b a)"),
}


@pytest.mark.parametrize("how", FLATTENED)
def test_an_axis_may_be_long(how):
    """Of four million lines and more, not each has a sum."""
    source, target, text = FLATTENED[how]
    table, _ = inferred({"w": source}, {"y": np.ascontiguousarray(target)})
    assert lines(table) == [f'"y" = "{text}"']


def test_all_parameters_as_one():
    """As a wrapper for training keeps them: flat, one behind the other."""
    table, _ = inferred(PARAMETERS, {"y": FLAT})
    assert lines(table) == [
        '"y" = { concat = ["w : a b -> (a b)", "b", "v : a b -> (b a)"], axis = 0 }'
    ]
    table, rules = inferred({"y": FLAT}, PARAMETERS)
    assert rules["b"].sources == rules["w"].sources == ("y",)
    assert '"v" = "y[4307050:6407050] : (a 2100) -> 2100 a"' in lines(table)
    table, _ = inferred({"y": FLAT}, {"w": LONG})
    assert table.dropped == ("y[4305000:6407050]",)


def test_what_is_not_found_along_a_long_axis_is_said():
    """Where nobody looked is not what is not there."""
    odd = np.append(LONG.reshape(-1), np.uint16(3))
    (rule,) = ferry.WeightMap.infer(PARAMETERS, {"y": odd}).rules
    assert "as far as y tells, of which an axis has more than 4194304 lines" in rule.reason
    (rule,) = ferry.WeightMap.infer({"y": odd}, {"w": LONG}).rules
    assert "as far as y tells" in rule.reason
    shuffled = np.random.default_rng(4).permutation(LONG.reshape(-1))
    (rule,) = ferry.WeightMap.infer({"w": LONG}, {"y": shuffled}).rules
    assert rule.reason == "the elements of w, in an order that was not found"


def test_no_elements_have_another_shape():
    """There is nothing to compare, and nothing to find out."""
    source = {"a": np.zeros((0, 3), "float32"), "b": Q}
    inferred(source, {"x": np.zeros((3, 0), "float32"), "y": Q.copy()})


def test_files(tmp_path):
    """From files of two formats, of which one is compressed."""
    source, expected = llama()
    ferry.save(source, tmp_path / "a.safetensors")
    np.savez_compressed(tmp_path / "b.npz", **expected)
    table = ferry.WeightMap.infer(tmp_path / "a.safetensors", tmp_path / "b.npz")
    assert table.check(tmp_path / "a.safetensors", tmp_path / "b.npz") == []
    made = table.apply(source)
    assert_made({name: made[name] for name in expected}, expected)


LARGE = np.random.default_rng(9).standard_normal((2000, 2100), "float32")
ARRANGED = {
    "transposed": {"y": LARGE.T},
    "rotary": {"y": LARGE.reshape(20, 2, 50, 2100).transpose(0, 2, 1, 3)},
    "joined": {"y": np.concatenate([LARGE[:, 1:], LARGE[:, :1]], 1)},
    "in parts": {"y": LARGE[:900].T, "z": LARGE[900:]},
}


@pytest.mark.parametrize("how", ARRANGED)
def test_no_number_for_each_element(tmp_path, how):
    """Not in memory at a time: an index of 34 MB, nor the 17 MB themselves."""
    if how == "joined":
        source = {"b": LARGE[:, 1:].copy(), "a": LARGE[:, :1].copy()}
    else:
        source = {"w": LARGE}
    ferry.save(source, tmp_path / "a.safetensors")
    target = {name: np.ascontiguousarray(x) for name, x in ARRANGED[how].items()}
    ferry.save(target, tmp_path / "b.safetensors")
    ferry.WeightMap.infer({"a": Q}, {"b": Q})
    tracemalloc.start()
    try:
        table = ferry.WeightMap.infer(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20
    assert_made(table.apply(source), target)


def test_what_must_be_decoded_is_decoded_few_times(tmp_path, monkeypatch):
    """Not for each block that is compared."""
    x = weights(4, (900, 1000))
    np.savez_compressed(tmp_path / "a.npz", w=x)
    np.savez_compressed(tmp_path / "b.npz", y=np.ascontiguousarray(x.T))
    decoded = []
    real = Decoded.blocks

    def blocks(self):
        decoded.append(self)
        return real(self)

    monkeypatch.setattr(Decoded, "blocks", blocks)
    table = ferry.WeightMap.infer(tmp_path / "a.npz", tmp_path / "b.npz")
    assert lines(table) == ['"y" = "w : a b -> b a"']
    assert len(decoded) == 2


@st.composite
def models(draw):
    """A source, and a target that is made of it by random steps of NumPy."""
    seed = draw(st.integers(0, 1 << 20))
    random = np.random.default_rng(seed)
    source, target = {}, {}
    for place in range(draw(st.integers(1, 4))):
        shape = tuple(
            draw(st.sampled_from([1, 2, 3, 4, 6, 8])) for _ in range(draw(st.integers(1, 4)))
        )
        x = random.standard_normal(shape).astype(draw(st.sampled_from(["float32", "float64"])))
        source[f"s.{place}"] = x
        how = draw(st.sampled_from(["permuted", "joined", "split", "cast", "reshaped"]))
        axis = draw(st.integers(0, x.ndim - 1))
        if how == "permuted":
            target[f"t.{place}"] = x.transpose(draw(st.permutations(range(x.ndim))))
        elif how == "joined":
            other = random.standard_normal(shape).astype(x.dtype)
            source[f"o.{place}"] = other
            target[f"t.{place}"] = np.concatenate([x, other], axis)
        elif how == "split":
            parts = np.array_split(x, 2, axis)
            target |= {
                f"t.{place}.{number}": part for number, part in enumerate(parts) if part.size
            }
        elif how == "cast":
            target[f"t.{place}"] = x.astype("float16")
        else:
            target[f"t.{place}"] = x.reshape(-1, x.shape[-1])
    return source, {name: np.ascontiguousarray(x) for name, x in target.items()}


@given(models())
def test_any_model(model):
    source, target = model
    table = ferry.WeightMap.infer(source, target)
    assert table.complete, table
    made = table.apply(source)
    assert_made({name: made[name] for name in target}, target)
