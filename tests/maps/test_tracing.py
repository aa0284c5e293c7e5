"""Tables that are read off converters: each with its right verdict, and the converter itself as the oracle."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
from tests.maps import converters
from tests.maps.forking import forked_converters
from tests.support import of_torch

from tensorferry import ConversionError, TensorInfo, WeightMap
from tensorferry.errors import NotEnoughMemoryError, UnsupportedTypeError
from tensorferry.host.numpy_dtypes import numpy_dtype
from tensorferry.maps.checking import findings
from tensorferry.maps.child import Child, Job
from tensorferry.maps.dyes import Pass
from tensorferry.maps.expressions import Cast
from tensorferry.maps.language import read_table
from tensorferry.maps.lowering import Constant, Header, lower
from tensorferry.maps.tracing import trace

torch = pytest.importorskip("torch")


def headers(dtype="float32", **shapes):
    return {name: Header(shape, dtype) for name, shape in shapes.items()}


PLAIN = headers(w=(24, 24), b=(24,))
QKV = headers(q=(24, 24), k=(12, 24), v=(12, 24))
TWO = headers(q=(24, 24), q2=(24, 24), w=(24, 24), b=(24,))
EXPERTS = {
    f"h.{layer}.experts.{e}.{name}": Header((5, 6) if name == "up" else (6, 5), "float32")
    for layer in range(2)
    for e in range(3)
    for name in ("up", "down")
}


def random_bits(header, seed):
    kind = numpy_dtype(header.dtype)
    raw = np.random.default_rng(seed).integers(0, 256, header.size * kind.itemsize, np.uint8)
    return raw.view(kind).reshape(header.shape)


def weights(source):
    return {name: random_bits(each, seed) for seed, (name, each) in enumerate(source.items())}


def positions(start, sizes, steps):
    found = np.array(start)
    for size, step in zip(sizes, steps, strict=True):
        found = np.add.outer(found, np.arange(size) * step)
    return found


def carried_out(table, arrays, config=None, dims=None):
    """What a table makes of arrays: each move element by element, by NumPy's indices alone."""
    source = {
        name: Header(each.shape, "bfloat16" if each.dtype.kind == "V" else each.dtype.name)
        for name, each in arrays.items()
    }
    lowered = lower(table, source, config=config, dims=dims)
    found = {}
    for name, made in lowered.tensors.items():
        result = np.empty(made.header.size, numpy_dtype(made.source_dtype))
        for move in made.moves:
            to = positions(move.target_start, move.sizes, move.target_steps)
            if isinstance(move.source, Constant):
                result[to] = np.array(move.source.number, result.dtype)
            else:
                of = positions(move.source_start, move.sizes, move.source_steps)
                result[to] = arrays[move.source].reshape(-1)[of]
        for change in made.changes:
            assert isinstance(change, Cast)
            with np.errstate(all="ignore"):
                result = result.astype(numpy_dtype(change.dtype))
        found[name] = result.reshape(made.header.shape)
    return found


def given_by(convert, arrays):
    """What a converter itself makes of arrays, as arrays."""
    result = convert({name: torch.from_numpy(each.copy()) for name, each in arrays.items()})
    return {name: each.detach().numpy() for name, each in result.items()}


def assert_same(ours, theirs):
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    ours, theirs = np.ascontiguousarray(ours), np.ascontiguousarray(theirs)
    words = f"u{ours.dtype.itemsize}"
    np.testing.assert_array_equal(ours.view(words), theirs.view(words))


def traced(name, source, framework="torch", **keywords):
    """The table of a converter; where its process comes from is not the question."""
    # Importing JAX starts threads, and what has threads is not forked.
    with nullcontext() if framework == "jax" else forked_converters():
        return trace(getattr(converters, name), source, framework=framework, **keywords)


def said(table):
    """What a table says of each output, as it is written."""
    lines = [line for line in str(table).splitlines() if " = " in line and line[0] == '"']
    return dict(re.match(r'"([^"]*)" = (.*)', line).groups() for line in lines)


MOVES = {
    "renamed": (PLAIN, {"model.w": '"w"'}),
    "transposed": (PLAIN, {"w": '"w : a b -> b a"'}),
    "reshaped": (PLAIN, {"w": '"w : (a 6) b -> a 6 b"', "b": '"b : a -> 1 a"'}),
    "permuted_for_rope": (PLAIN, {"q": '"w : (a 2 3) b -> (a 3 2) b"'}),
    "fused": (QKV, {"qkv": '{ concat = ["q", "k", "v"], axis = 0 }'}),
    "unfused": (
        headers(qkv=(48, 24)),
        {"q": '"qkv[:24]"', "k": '"qkv[24:36]"', "v": '"qkv[36:]"'},
    ),
    "fused_by_head": (
        QKV,
        {
            "qkv": '{ concat = ["q : (a 12) b -> a 12 b", "k : (a 6) b -> a 6 b", '
            '"v : (a 6) b -> a 6 b"], axis = 1, pattern = "a b c -> (a b) c" }'
        },
    ),
    "unfused_by_head": (
        headers(qkv=(48, 24)),
        {
            "q": '"qkv : (a 24[:12]) b -> (a 12) b"',
            "k": '"qkv : (a 24[12:18]) b -> (a 6) b"',
            "v": '"qkv : (a 24[18:]) b -> (a 6) b"',
        },
    ),
    "experts_stacked": (
        EXPERTS,
        {"layers.{i}.up": '{ stack = "e", of = "h.{i}.experts.{e}.up", axis = 0 }'},
    ),
    "experts_joined": (
        EXPERTS,
        {
            "layers.{i}.gate_up": '{ concat = [{ stack = "e", of = "h.{i}.experts.{e}.up", axis = 0'
            ' }, { stack = "e", of = "h.{i}.experts.{e}.down : a b -> b a", axis = 0 }], axis = 1 }'
        },
    ),
    "experts_unstacked": (
        {f"h.{layer}.up": Header((3, 5, 6), "float32") for layer in range(2)},
        {"layers.{i}.experts.{j}.up": '"h.{i}.up[j]"'},
    ),
    "flipped": (PLAIN, {"w": '"w : a b -> a~ b"', "b": '"b : a -> a~"'}),
    "halves_swapped": (PLAIN, {"w": '{ concat = ["w[12:]", "w[:12]"], axis = 0 }'}),
    "tied": (PLAIN, {"embedding": '"w"', "head": '"w"'}),
    "with_steps": (
        PLAIN,
        {"even": '"w[::2]"', "odd": '"w[1::2]"', "columns": '"w[:, 2:9:3]"'},
    ),
    "interleaved": (
        headers(q=(24, 24), k=(24, 24)),
        {"both": '{ stack = ["q", "k"], axis = 1, pattern = "a b c -> (a b) c" }'},
    ),
    "repeated": (
        headers(k=(8, 24), b=(24,)),
        {"w": '"k : a b -> (a 3) b"', "b": '"b : a -> 5 a"'},
    ),
    "padded": (PLAIN, {}),
    "diagonal": (PLAIN, {"d": '{ moves = [["w", [24], [0, 1], [0, 25]]], shape = [24] }'}),
    "in_small_range": (PLAIN, {"w": '"w : a b -> b a"'}),
    "changes_its_input": (PLAIN, {"x.w": '"w : a b -> 1 a b"', "x.b": '"b : a -> 1 a"'}),
    "in_threads": (PLAIN, {"t.w": '"w : a b -> b a"'}),
    "with_a_thread_that_stays": (PLAIN, {"w": '"w : a b -> b a"'}),
    "prints": (PLAIN, {"w": '"w"'}),
    "as_parameters": (PLAIN, {"w": '"w : a b -> b a"'}),
}
NOT_RUN_HERE = {"in_small_range", "changes_its_input", "with_a_thread_that_stays"}
"""What refuses random bits, changes what it is given, or leaves a thread behind."""


@pytest.mark.parametrize("name", MOVES)
def test_a_rearrangement_is_exact_on_any_bits(name):
    """Its table makes what the converter itself does of random bits: NaN, infinity, subnormals."""
    source, expected = MOVES[name]
    table = traced(name, source)
    assert table.complete
    assert said(table).items() >= expected.items()
    assert read_table(str(table)) == table
    lowered = lower(table, source)
    assert [each for each in findings(lowered, source) if each.kind != "unused"] == []
    if name in NOT_RUN_HERE:
        return
    arrays = weights(source)
    theirs = given_by(getattr(converters, name), arrays)
    ours = carried_out(table, arrays)
    assert ours.keys() == theirs.keys()
    for each, array in ours.items():
        assert_same(array, theirs[each])


def test_what_is_in_no_output_is_dropped_by_name():
    """A whole tensor, and a part of one; so the table fits its source."""
    assert traced("tied", PLAIN).dropped == ("b",)
    source = headers(w=(24, 6), b=(7,))
    table = traced("first_rows", source)
    assert table.dropped == ("w[10:]",)
    assert findings(lower(table, source), source) == []


@pytest.mark.slow
def test_parts_that_are_dropped_have_formulas():
    """For a size that was not traced."""
    sizes = [
        (headers(w=(rows, 6), b=(count,)), {"rows": rows - 2 * count, "count": count})
        for rows, count in ((24, 7), (31, 5), (47, 11))
    ]
    table = traced("first_rows", sizes)
    source = headers(w=(90, 6), b=(13,))
    assert table.dropped == ("w[rows:]",)
    assert findings(lower(table, source, config={"rows": 64, "count": 13}), source) == []


@pytest.mark.slow
def test_sizes_for_a_function_of_a_path():
    """Each in a folder of its own, with its own configuration."""
    sizes = [
        ({f"h.{i}.w": Header((rows, 6), "float32") for i in range(2)}, {"num_hidden_layers": 2})
        for rows in (4, 5, 7)
    ]
    table = traced("from_folder", sizes, files={"a.safetensors": ["h.0.w", "h.1.w"]})
    assert said(table) == {"x.h.{i}.w": '"h.{i}.w : a b -> b a"'}


def test_names_of_chance_have_no_rule():
    """They are others in each run."""
    table = traced("with_names_of_chance", PLAIN)
    assert {rule.reason for rule in table.rules} == {"depends on values"}
    assert table.dropped == ()


def test_a_function_with_arguments_goes_too():
    """As `functools.partial` makes it."""
    table = trace(partial(converters.with_heads, heads=4), PLAIN, framework="torch")
    assert said(table) == {"w": '"w : (a 6) b -> a 6 b"'}


REASONS = {
    "plus_one": ("norm", "affine 1*x+1"),
    "scaled": ("w", "affine 0.125*x+0"),
    "clamped": ("w", "arithmetic"),
    "without_nan": ("w", "arithmetic"),
    "through_half": ("w", "narrowed through float16"),
    "turned_if_negative": ("w", "depends on values"),
    "dropped_if_ones": ("w", "depends on values"),
    "made_up": ("head", "not from the source"),
    "made_up_with_a_seed": ("head", "not from the source"),
    "made_up_by_numpy": ("head", "not from the source"),
    "with_constants": ("positions", "constant"),
    "mean_of_heads": ("w", "arithmetic"),
    "resampled": ("w", "arithmetic"),
    "gives_nothing_for_some": ("b", "no tensor (NoneType)"),
    "with_random_rows": ("w", "not from the source"),
    "seeded_everywhere": ("head", "not from the source"),
    "by_first_value": ("w", "arithmetic"),
    "in_order_of_values": ("w", "arithmetic"),
    "through_narrow": ("w", "narrowed through bfloat16"),
    "negated": ("w", "affine -1*x+0"),
    "in_small_range_and_more": ("w", "arithmetic"),
}


@pytest.mark.parametrize("name", REASONS)
def test_what_is_no_rearrangement_is_named(name):
    """With the reason; and what stands beside it still has its rule."""
    table = traced(name, PLAIN)
    output, reason = REASONS[name]
    assert not table.complete
    rules = {str(rule.target): rule for rule in table.rules}
    assert rules[output].expression is None
    assert rules[output].reason == reason
    assert read_table(str(table)) == table
    theirs = weights(PLAIN)
    for each, array in carried_out(table, theirs).items():
        if each in theirs:
            assert_same(array, theirs[each])


def test_sums_of_two_tensors_are_arithmetic():
    """None of them is then said to be dropped."""
    table = traced("summed", headers(q=(24, 24), q2=(24, 24), b=(24,)))
    assert [(str(rule.target), rule.reason) for rule in table.rules] == [
        ("w", "arithmetic"),
        ("b", None),
    ]
    assert table.dropped == ()


@pytest.mark.parametrize("name", ["as_sparse", "with_nothing_added"])
def test_nothing_is_said_to_be_dropped_while_something_is_not_known(name):
    """It may be in there: in a tensor that cannot be read, or as what is added without effect."""
    table = traced(name, PLAIN)
    assert table.dropped == ()
    assert not table.complete


def test_the_bits_of_another_dtype_are_a_view():
    """As packed blocks are, which are viewed as wide integers."""
    source = {"blocks": Header((8, 16), "uint8"), "w": Header((3, 3), "float32")}
    table = traced("as_wide_integers", source)
    assert said(table)["blocks"] == '{ view = "int32", from = "uint8", of = "blocks" }'
    arrays = weights(source)
    ours = WeightMap.of(table).apply(arrays)
    theirs = given_by(converters.as_wide_integers, arrays)
    assert_same(ours["blocks"], theirs["blocks"])


def test_a_cast_is_a_rule():
    """With the values that PyTorch's own cast has."""
    table = traced("cast", PLAIN)
    assert said(table)["w"] == '{ cast = "float16", of = "w" }'
    arrays = weights(PLAIN)
    ours, theirs = carried_out(table, arrays), given_by(converters.cast, arrays)
    np.testing.assert_array_equal(ours["w"], theirs["w"])


def test_constants_are_filled():
    """One number is written down; what has more is a constant without a rule."""
    assert said(traced("with_constants", PLAIN)) == {
        "w": '"w"',
        "bias": '{ fill = 0.0, shape = [7], dtype = "float32" }',
        "scale": '{ fill = 0.5, shape = [3, 2], dtype = "float32" }',
        "positions": '{ reason = "constant" }',
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype",
    of_torch(
        "bfloat16",
        "float16",
        "float64",
        "float8_e4m3fn",
        "float8_e5m2",
        "uint8",
        "int8",
        "int16",
        "int64",
        "bool",
        "complex64",
    ),
)
def test_each_dtype_carries_the_numbers(dtype):
    """Of eight bits to one."""
    source = headers(dtype, w=(24, 24), b=(24,))
    table = traced("transposed", source)
    assert said(table) == {"w": '"w : a b -> b a"', "b": '"b"'}


def test_several_dtypes_are_traced_together():
    """Each has its own digits."""
    source = {
        "a": Header((6, 4), "bfloat16"),
        "b": Header((6, 4), "uint8"),
        "c": Header((6, 4), "bool"),
        "d": Header((6, 4), "int64"),
        "e": Header((6, 4), "float8_e4m3fn"),
    }
    table = traced("transposed", source)
    assert said(table) == {name: f'"{name} : a b -> b a"' for name in "abcde"}


# -- results, and what goes in -----------------------------------------------------------------------


def test_nested_results_have_dotted_names():
    """As everywhere."""
    assert said(traced("nested", PLAIN)) == {
        "params.dense.kernel": '"w : a b -> b a"',
        "params.dense.bias": '"b"',
        "params.list.0": '"b"',
    }


def test_an_object_gives_its_state_dict():
    """A module that loads the weights."""
    assert said(traced("as_module", PLAIN)) == {"weight": '"w"', "bias": '"b"'}


def test_a_function_of_a_path_gets_a_folder():
    """With the files that are asked for, and the configuration beside them."""
    files = {"a.safetensors": ["w"], "b.safetensors": ["b"]}
    table = traced("from_folder", PLAIN, config={"num_hidden_layers": 2}, files=files)
    assert said(table) == {"x.w": '"w : a b -> b a"', "x.b": '"b"'}


def test_a_function_of_a_path_can_get_a_file():
    """Of another format, by its ending."""
    table = traced("from_file", PLAIN, files="weights.npz")
    assert said(table) == {"w": '"w : a b -> b a"', "b": '"b"'}


def test_converters_of_numpy_arrays():
    """Get arrays."""
    table = traced("by_numpy", TWO, framework="numpy")
    assert table.complete
    arrays = weights(TWO)
    ours, theirs = carried_out(table, arrays), converters.by_numpy(arrays)
    for name, array in theirs.items():
        assert_same(ours[name], array)


def test_converters_of_jax():
    """Get arrays of JAX's, in processes that are forked before it starts threads."""
    jnp = pytest.importorskip("jax.numpy")
    table = traced("by_jax", TWO, framework="jax")
    assert table.complete
    arrays = weights(TWO)
    theirs = converters.by_jax({name: jnp.asarray(each) for name, each in arrays.items()})
    ours = carried_out(table, arrays)
    for name, array in theirs.items():
        assert_same(ours[name], np.asarray(array))


def test_a_function_of_this_program_goes_by_cloudpickle():
    """A lambda, or a closure."""
    pytest.importorskip("cloudpickle")
    prefix = "x."
    table = trace(
        lambda w: {prefix + name: each for name, each in w.items()}, PLAIN, framework="torch"
    )
    assert said(table) == {"x.w": '"w"', "x.b": '"b"'}


def test_without_cloudpickle_a_lambda_is_refused(monkeypatch):
    """With what helps."""
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(UnsupportedTypeError, match="into a module") as caught:
        trace(lambda weights: weights, PLAIN, framework="torch")
    assert "lambda" in str(caught.value)


def test_a_function_by_its_name_is_not_imported_here(tmp_path, monkeypatch):
    """The command line names it; only the other process imports its module."""
    code = (
        "def doubled(w):\n    return {**w, **{f'again.{name}': each for name, each in w.items()}}\n"
    )
    (tmp_path / "a_converter_of_its_own.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    table = trace("a_converter_of_its_own:doubled", PLAIN, framework="torch")
    assert said(table) == {"w": '"w"', "b": '"b"', "again.w": '"w"', "again.b": '"b"'}
    assert "a_converter_of_its_own" not in sys.modules


def test_this_process_imports_no_framework(tmp_path):
    """Whatever the converter needs, and whatever its tensors are."""
    code = "import torch\ndef f(w):\n    return {name: each.T.contiguous() for name, each in w.items()}\n"
    (tmp_path / "a_converter_alone.py").write_text(code)
    program = """
import sys
from tensorferry.maps.lowering import Header
from tensorferry.maps.tracing import trace

table = trace("a_converter_alone:f", {"w": Header((4, 6), "bfloat16")})
assert str(table.rules[0].expression) == "w : a b -> b a", table
print(sorted({"torch", "jax", "tensorflow", "a_converter_alone"} & sys.modules.keys()))
"""
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "[]", done.stderr


# -- what goes wrong ---------------------------------------------------------------------------------

FAILS = {
    "raises": "raised KeyError",
    "exits": "raised SystemExit",
    "ends_the_process": r"ended the process \(exit code 5\)",
    "gives_a_number": "returned int",
    "a_tensor_alone": "returned a tensor",
    "two_of_a_name": r"two tensors of the name a\.b",
    "too_much_memory": "allocate",
}


@pytest.mark.parametrize("name", FAILS)
def test_a_converter_that_fails_is_an_error(name):
    """With what it says; and this process goes on."""
    with pytest.raises(ConversionError, match=FAILS[name]):
        traced(name, PLAIN)


def test_an_exception_is_shown_with_its_line():
    """As Python shows it."""
    with pytest.raises(ConversionError, match=r"converters\.py") as caught:
        traced("raises", PLAIN)
    assert "KeyError: 'model.embed_tokens.weight'" in str(caught.value)
    assert "in raises" in str(caught.value)


def test_a_converter_that_does_not_end_is_ended():
    """After the time that is given."""
    with pytest.raises(ConversionError, match="within 2 seconds"):
        traced("for_ever", PLAIN, seconds=2)


def child_of(name, folder, monkeypatch):
    """A process for a converter that takes arrays of NumPy, whose files are in a folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    headers = {"w": Header((2,), "float32")}
    place = f"tests.maps.converters:{name}"
    return Child(Job((place, None), headers, "numpy", None, None, 60.0, None, ""))


@pytest.mark.parametrize("runs", [False, True], ids=["between passes", "in a pass"])
def test_a_trace_that_was_killed_leaves_nothing(tmp_path, monkeypatch, runs):
    """Its converter's process sees that the pipe has ended, removes the files, and ends."""
    child = child_of("for_ever", tmp_path, monkeypatch)
    process = child._start()
    if runs:
        line = json.dumps([0, *Pass("ones")]) + "\n"
        process.stdin.write(line.encode())
    # As when the process that traces is killed.
    process.stdin.close()
    assert process.wait(120) == 0
    assert list(tmp_path.iterdir()) == []
    child.close()


def test_what_was_killed_with_its_converter_is_removed_by_the_next(tmp_path, monkeypatch):
    """Not what another process uses, or has just begun, or what is none of ours."""
    old = time.time() - 3600
    for name in ("left", "used", "young", "other"):
        folder = tmp_path / f"tensorferry-trace-{name}"
        folder.mkdir()
        (folder / "0.bin").write_bytes(b"0123")
        if name != "other":
            (folder / "lock").touch()
        if name != "young":
            os.utime(folder, (old, old))
    (tmp_path / "tensorferry-trace-link").symlink_to(tmp_path / "tensorferry-trace-left")
    with (tmp_path / "tensorferry-trace-used" / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with child_of("for_ever", tmp_path, monkeypatch):
            there = {each.name.removeprefix("tensorferry-trace-") for each in tmp_path.iterdir()}
            assert {"used", "young", "other", "link"} <= there
            assert "left" not in there
            assert len(there) == 5
    assert len(list(tmp_path.iterdir())) == 4


def test_memory_is_bounded():
    """A converter that takes more than is given fails as it would without any left."""
    with pytest.raises(ConversionError, match="memory"):
        traced("takes_memory", PLAIN, memory=256 << 20)


def test_a_source_that_is_too_large_is_refused_before_anything_runs():
    """With what to do instead."""
    source = {"w": Header((1 << 40,), "float32")}
    with pytest.raises(NotEnoughMemoryError, match="smaller model"):
        traced("renamed", source)


def test_a_module_that_cannot_be_imported_is_said():
    """By its own error."""
    with pytest.raises(ConversionError, match=r"No module named 'tests\.maps\.nowhere'"):
        trace("tests.maps.nowhere:f", PLAIN, framework="torch")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tests.maps.converters:renaimed", '"tests.maps.converters:renamed"'),
        ("json:nothing", '"json:dump", or "json:dumps", or "json:detect_encoding"'),
        ("json:decoder.JSONDecoder.raw_decod", '"json:decoder.JSONDecoder.raw_decode"'),
        ("json:__doc__", '"json:dump", or "json:dumps", or "json:detect_encoding"'),
        ("jason:loads", "there is json"),
        ("tests.maps.convertors:renamed", "there is tests.maps.converters, but no tests.maps.conv"),
        ("this_is_nowhere_at_all:f", "into a module that can be imported"),
    ],
)
def test_a_function_that_is_not_there_is_told_from_those_that_are(name, hint):
    """By the closest names, or by the first."""
    with pytest.raises(ConversionError, match="could not be imported") as caught:
        trace(name, PLAIN, framework="numpy")
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize("wrong", ["f", "a.b", ":f", 3])
def test_what_is_no_function_is_refused(wrong):
    """Before a process is started."""
    with pytest.raises(UnsupportedTypeError):
        trace(wrong, PLAIN, framework="torch")


def test_nothing_to_trace_with_is_refused():
    """There is nothing to see then."""
    with pytest.raises(UnsupportedTypeError, match="no tensors"):
        traced("renamed", {})


# -- real weights ------------------------------------------------------------------------------------


def test_real_weights_decide_where_values_matter():
    """Both ways: the branch that was traced, and the other one."""
    real = {"w": np.full((24, 24), 0.5, np.float32), "b": np.zeros(24, np.float32)}
    table = traced("turned_if_negative", PLAIN, verify_with=real)
    assert said(table)["w"] == '"w"'
    real["w"] = -real["w"] - np.arange(24, dtype=np.float32)[:, None]
    table = traced("turned_if_negative", PLAIN, verify_with=real)
    assert said(table)["w"] == '{ reason = "depends on values" }'


def test_real_weights_do_not_hide_arithmetic():
    """That no weight is clamped now does not make it a rearrangement."""
    real = {"w": np.full((24, 24), 0.5, np.float32), "b": np.zeros(24, np.float32)}
    table = traced("clamped", PLAIN, verify_with=real)
    assert said(table)["w"] == '{ reason = "arithmetic" }'


def test_real_weights_must_be_those_of_the_source():
    """By name and shape."""
    with pytest.raises(UnsupportedTypeError, match="verify_with has no b"):
        traced("renamed", PLAIN, verify_with={"w": np.zeros((24, 24), np.float32)})


# -- sizes -------------------------------------------------------------------------------------------


def of_llama(heads, groups, size, width, inner, vocab, layers):
    source = {"model.embed_tokens.weight": (vocab, width)}
    for layer in range(layers):
        one = f"model.layers.{layer}"
        source |= {
            f"{one}.self_attn.q_proj.weight": (heads * size, width),
            f"{one}.self_attn.k_proj.weight": (groups * size, width),
            f"{one}.self_attn.v_proj.weight": (groups * size, width),
            f"{one}.mlp.gate_proj.weight": (inner, width),
            f"{one}.mlp.up_proj.weight": (inner, width),
            f"{one}.mlp.down_proj.weight": (width, inner),
            f"{one}.input_layernorm.weight": (width,),
            f"{one}.self_attn.rotary_emb.inv_freq": (size // 2,),
        }
    config = {
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": size,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "rope_theta": 1e4,
    }
    return {name: Header(shape, "float32") for name, shape in source.items()}, config


LARGE = of_llama(8, 4, 32, 256, 300, 500, 5)


@pytest.mark.parametrize(
    "small",
    [
        [(5, 2, 8, 40, 52, 64, 2), (3, 2, 12, 39, 50, 66, 3), (7, 3, 10, 70, 90, 97, 2)],
        [(5, 2, 8, 40, 52, 64, 2), (3, 1, 12, 36, 50, 66, 3), (7, 3, 10, 70, 90, 97, 2)],
    ],
    ids=["sizes", "one of one group"],
)
def test_three_sizes_give_a_table_for_a_fourth(small):
    """Exact for a larger model than any that was traced, with more layers."""
    table = traced("of_sizes", [of_llama(*each) for each in small])
    assert table.complete
    assert len(table.rules) == 5
    assert table.dims == {"hd": ("head_dim",)}
    source, config = LARGE
    numbers = {key: value for key, value in config.items() if type(value) is int}
    assert findings(lower(table, source, config=numbers), source) == []
    arrays = weights(source)
    ours = carried_out(table, arrays, numbers)
    theirs = given_by(converters.of_sizes, arrays)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        assert_same(ours[name], array)


def of_fused(heads, groups, size, width, layers):
    shape = ((heads + 2 * groups) * size, width)
    config = {
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": size,
        "hidden_size": width,
    }
    source = {f"m.{layer}.wqkv.weight": Header(shape, "float32") for layer in range(layers)}
    return source, config


@pytest.mark.slow
def test_places_have_formulas():
    """Where q ends, k and v do; none is taken from sizes that only happen to be equal."""
    small = [(5, 2, 8, 44, 2), (3, 2, 12, 50, 3), (7, 3, 10, 62, 2)]
    table = traced("parts_of_sizes", [of_fused(*each) for each in small])
    source, config = of_fused(8, 4, 32, 256, 4)
    assert findings(lower(table, source, config=config), source) == []
    arrays = weights(source)
    ours, theirs = carried_out(table, arrays, config), given_by(converters.parts_of_sizes, arrays)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        assert_same(ours[name], array)


def test_sizes_that_rhyme_give_no_formula():
    """Half as many groups as heads in each model: the places are names, which somebody must give."""
    small = [(4, 2, 8, 45, 2), (6, 3, 12, 50, 3), (10, 5, 10, 62, 2)]
    table = traced("parts_of_sizes", [of_fused(*each) for each in small])
    source, config = of_fused(8, 2, 32, 256, 4)
    lowered = lower(table, source, config=config)
    assert lowered.tensors == {} or {each.kind for each in lowered.findings} == {"length"}
    named = [name for name, ways in table.dims.items() if not ways]
    assert len(named) == 2
    given = dict(zip(named, (256, 320), strict=True))
    arrays = weights(source)
    ours = carried_out(table, arrays, config, given)
    theirs = given_by(converters.parts_of_sizes, arrays)
    for name, array in theirs.items():
        assert_same(ours[name], array)


@pytest.mark.slow
def test_dims_can_be_named_where_there_is_no_configuration():
    """With a value for each size."""
    small = [(5, 2, 8, 44, 2), (3, 2, 12, 50, 3), (7, 3, 10, 62, 2)]
    sizes = [(of_fused(*each)[0], {}) for each in small]
    dims = {"heads": (5, 3, 7), "groups": (2, 2, 3), "size": (8, 12, 10)}
    table = traced("parts_of_sizes", sizes, dims=dims)
    source, _ = of_fused(8, 4, 32, 256, 4)
    given = {"heads": 8, "groups": 4, "size": 32}
    used = {name: value for name, value in given.items() if name in table.dims}
    assert findings(lower(table, source, dims=used), source) == []


def test_numbers_in_names_that_are_words_stay():
    """``w1``, ``fc2`` and ``conv1d`` are no indices; ``.0`` and ``_0`` are."""
    source = {
        f"h.{layer}.{name}": Header((4, 3), "float32")
        for layer in range(3)
        for name in ("w1", "fc2", "conv1d_0", "conv1d_1")
    }
    table = traced("renamed", source)
    assert set(said(table)) == {
        "model.h.{i}.w1",
        "model.h.{i}.fc2",
        "model.h.{i}.conv1d_{j}",
    }


def test_numbers_that_are_sums_of_two():
    """Blocks of three that are counted through, as in a U-Net; and back."""
    source = {
        f"down.{i}.resnets.{j}.w": Header((4, 3), "float32") for i in range(4) for j in range(2)
    }
    table = traced("counted_through", source)
    assert said(table) == {"input_blocks.{3*i+j+1}.w": '"down.{i}.resnets.{j}.w"'}
    one = Header((4, 3), "float32")
    back = {f"input_blocks.{3 * i + j + 1}.w": one for i in range(4) for j in range(2)}
    table = traced("counted_back", back)
    assert said(table) == {"down.{i}.resnets.{j}.w": '"input_blocks.{3*i+j+1}.w"'}


def test_numbers_without_a_formula_are_rules_each():
    """As where some layers are of another kind."""
    source = {f"h.{i}.w": Header((4, 3), "float32") for i in range(5)}
    table = traced("shifted_irregularly", source)
    arrays = weights(source)
    ours, theirs = carried_out(table, arrays), given_by(converters.shifted_irregularly, arrays)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        assert_same(ours[name], array)


@pytest.mark.parametrize(
    "sizes", [((1, 4, 6), (1, 8, 10), (3, 5, 14)), ((4, 1, 6), (2, 1, 10), (3, 5, 14))]
)
def test_a_length_of_one_in_most_sizes_is_refused_with_what_to_try(sizes):
    """What is an axis in one model only has no name: that one length was meant would be a guess."""

    def convert(tensors):
        weight, groups = tensors["w"], tensors["g"].shape[0]
        rows, columns = weight.shape
        turned = weight.reshape(groups, rows // groups, columns).transpose(0, 1)
        return {"q": turned.reshape(rows, columns), "g": tensors["g"]}

    models = [
        {
            "w": TensorInfo("torch", (groups * size, columns), "float32"),
            "g": TensorInfo("torch", (groups,), "float32"),
        }
        for groups, size, columns in sizes
    ]
    with forked_converters():
        table = WeightMap.trace(convert, models, framework="torch")
    reasons = {str(rule.target): rule.reason for rule in table.rules}
    assert reasons == {
        "q": "differs between sizes: try others, in which no length is 1",
        "g": None,
    }
    assert "try others, in which no length is 1" in str(table)
