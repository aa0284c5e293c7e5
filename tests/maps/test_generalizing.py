"""From single outputs to rules over the numbers in names: each output is made as it was, and none besides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.maps.test_tracing import carried_out
from tests.support import examples

import tensorferry as ferry
from tensorferry.maps.fitting import fitted
from tensorferry.maps.generalizing import Model, Output, generalized
from tensorferry.maps.language import read_table, written_table
from tensorferry.maps.lowering import Header
from tensorferry.maps.spelling import numbered
from tensorferry.maps.table import Table


def counted(names, shape=(4, 6)):
    """An array for each name, in which each element has its own number, counted through."""
    size = int(np.prod(shape))
    return {
        name: np.arange(place * size, (place + 1) * size).reshape(shape)
        for place, name in enumerate(names)
    }


def table_of(arrays, made):
    """The table for outputs whose elements say where they come from."""
    shapes = {name: each.shape for name, each in arrays.items()}
    source = {name: Header(shape, "int64") for name, shape in shapes.items()}
    outputs = [
        Output(
            name,
            Header(each.shape, "int64"),
            fitted(each.reshape(-1), each.shape, shapes),
            None,
            (),
            "int64",
        )
        for name, each in made.items()
    ]
    rules, formulas = generalized([Model(source, outputs, {}, {})])
    return Table(tuple(rules), (), formulas.ways_of(rules))


def assert_makes(table, arrays, made):
    assert written_table(read_table(written_table(table))) == written_table(table)
    ours = carried_out(table, arrays)
    assert ours.keys() == made.keys()
    for name, array in made.items():
        np.testing.assert_array_equal(ours[name], array)


def targets(table):
    return [str(rule.target) for rule in table.rules]


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("layers.3.w1.0", (3, 0)),
        ("conv1d_12/kernel", (12,)),
        ("fc2.weight", ()),
        ("h.007.w", ()),
        ("block_10_1.w", (10, 1)),
        ("3", (3,)),
        ("a.1234567890123.b", ()),
    ],
)
def test_numbers_in_names(name, numbers):
    """Those that stand alone; others are words."""
    found = numbered(name)
    assert found.numbers == numbers
    assert str(found.template()) == name


def test_layers_are_one_rule():
    """And a further kind of layer another one."""
    arrays = counted([f"h.{i}.{kind}" for i in range(4) for kind in ("a", "b")])
    made = {f"layers.{name[2:]}": each.T for name, each in arrays.items()}
    table = table_of(arrays, made)
    assert targets(table) == ["layers.{i}.a", "layers.{i}.b"]
    assert_makes(table, arrays, made)


def test_a_rule_makes_nothing_that_was_not_there():
    """The last layer is dropped, so no rule is for all layers."""
    arrays = counted([f"h.{i}.a" for i in range(4)])
    made = {f"layers.{i}.a": arrays[f"h.{i}.a"] for i in range(3)}
    table = table_of(arrays, made)
    assert targets(table) == ["layers.0.a", "layers.1.a", "layers.2.a"]
    assert_makes(table, arrays, made)


def test_the_table_back_makes_nothing_that_was_not_there():
    """A number that another rule is for is in no rule: read backwards, it would be for it too."""
    arrays = counted(["out.2.1.w", "out.5.2.w", "out.8.2.w"])
    made = {f"up.{i}.w": each for i, each in enumerate(arrays.values())}
    table = table_of(arrays, made)
    assert_makes(table, arrays, made)
    restored = ferry.WeightMap.of(table).inverse().apply(made)
    assert restored.keys() == arrays.keys()
    for name, each in arrays.items():
        np.testing.assert_array_equal(restored[name], each)


def test_a_stack_of_some_is_a_list():
    """Only of all is it one name."""
    arrays = counted([f"e.{i}.a" for i in range(4)])
    some = {"all": np.stack(list(arrays.values())[:3])}
    assert_makes(table_of(arrays, some), arrays, some)
    every = {"all": np.stack(list(arrays.values()))}
    table = table_of(arrays, every)
    assert '{ stack = "e", of = "e.{e}.a", axis = 0 }' in str(table)
    assert_makes(table, arrays, every)
    turned = {"all": np.stack(list(arrays.values())[::-1])}
    assert_makes(table_of(arrays, turned), arrays, turned)
    joined = {"all": np.concatenate(list(arrays.values()), 1)}
    table = table_of(arrays, joined)
    assert 'stack = "e"' in str(table)
    assert_makes(table, arrays, joined)


def test_two_orders_of_layers():
    """Layers that are counted from both ends have a rule for each name."""
    arrays = counted([f"h.{i}.a" for i in range(5)])
    made = {f"layers.{4 - i}.a": arrays[f"h.{i}.a"] for i in range(5)}
    assert_makes(table_of(arrays, made), arrays, made)


@st.composite
def models(draw):
    """Tensors with one or two numbers in their names, and what a converter makes of them."""
    layers, inner = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    kinds = draw(st.lists(st.sampled_from(["w", "b", "fc1"]), min_size=1, unique=True))
    names = [f"h.{i}.x.{j}.{kind}" for i in range(layers) for j in range(inner) for kind in kinds]
    arrays = counted(names)
    made = {}
    for kind in kinds:
        how = draw(
            st.sampled_from(["same", "counted", "swapped", "stacked", "some", "shuffled", "split"])
        )
        turned = draw(st.booleans())
        order = draw(st.permutations(range(layers)))
        for i in range(layers):
            mine = [arrays[f"h.{i}.x.{j}.{kind}"] for j in range(inner)]
            mine = [each.T if turned else each for each in mine]
            if how == "stacked":
                made[f"l.{i}.{kind}"] = np.stack(mine)
                continue
            if how == "some" and i == layers - 1 and layers > 1:
                continue
            for j, each in enumerate(mine):
                names_of = {
                    "same": f"l.{i}.{j}.{kind}",
                    "counted": f"l.{inner * i + j + 2}.{kind}",
                    "swapped": f"l.{j}.{i}.{kind}",
                    "some": f"l.{i}.{j}.{kind}",
                    "shuffled": f"l.{order[i]}.{j}.{kind}",
                    "split": f"l.{i}.{j}.{kind}",
                }
                if how == "split":
                    for k, row in enumerate(each):
                        made[f"l.{i}.{j}.{kind}.{k}"] = row
                else:
                    made[names_of[how]] = each
    return arrays, made


@given(models())
@settings(max_examples=examples(300))
def test_any_names_are_made_exactly(given_model):
    """Whatever becomes of the numbers."""
    arrays, made = given_model
    assert_makes(table_of(arrays, made), arrays, made)
