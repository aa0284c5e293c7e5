"""What 60 jobs and 20 more met: each hint is pasted, and each result is compared with the library's own."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest

import tensorferry as ferry

torch = pytest.importorskip("torch", reason="torch is not installed")

PUBLIC = {name: getattr(ferry, name) for name in ferry.__all__}


def hint_of(call):
    with pytest.raises(ferry.ConversionError) as caught:
        call()
    return caught.value.hint


def pasted(hint, **names):
    """What the first code of a hint gives."""
    code = hint.partition("; or ")[0].partition(", which")[0].partition(", if ")[0]
    code = code.partition('; unknown="keep"')[0].removesuffix(" in its place")
    return eval(code, {**PUBLIC, **names})  # noqa: S307 - that is what the hint is for


def _tables():
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    pl = pytest.importorskip("polars", reason="polars is not installed")
    data = {"price": [Decimal("1.5"), None], "n": [1, None]}
    return [pa.table(data), pl.DataFrame(data), pd.DataFrame(data).astype({"n": "Int64"})]


@pytest.mark.parametrize("nulls", [None, "mask", 0])
def test_decimals_beside_integers(nulls):
    """The hint's first form works, and keeps what the user had said of nulls."""
    for x in _tables():
        for call in (ferry.convert_tree, ferry.explain_tree):
            hint = hint_of(lambda x=x, call=call: call(x, "torch", nulls=nulls))
            assert 'dtype={"price": "float64"}' in hint
            found = pasted(hint, x=x)
        found = pasted(hint_of(lambda x=x: ferry.convert_tree(x, "torch", nulls=nulls)), x=x)
        assert found["price"].tolist() == [1.5, 0]
        assert found["n"].tolist() == [1, 0]
        assert ("n_mask" in found) is (nulls != 0)
        one = hint_of(lambda x=x: ferry.to_numpy(x, nulls="mask"))
        values, mask = pasted(one, x=x)
        assert (values.tolist(), mask.tolist()) == ([[1.5, 1], [0, 0]], [[True] * 2, [False] * 2])


def test_the_keyword_is_not_repeated_where_its_value_does_not_fit():
    """Counts of days have no NaN."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    x = pa.array([2, None], pa.date32())
    assert pasted(hint_of(lambda: ferry.to_list(x, nulls="nan")), x=x) == [2, 0]
    assert pasted(hint_of(lambda: ferry.to_list(x, nulls=-1)), x=x) == [2, -1]
    kept = ferry.convert_tree({"day": x}, "torch", nulls="mask")
    assert kept["day"] is x


def test_histories_become_a_frame():
    """Losses without axes: one hint for the tree, of which each library makes its frame."""
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    pl = pytest.importorskip("polars", reason="polars is not installed")
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    x = {
        "loss": [torch.tensor(1.0, requires_grad=True), torch.tensor(0.5)],
        "acc": [torch.tensor(0.25), torch.tensor(0.75)],
    }
    plain = {"loss": [1.0, 0.5], "acc": [0.25, 0.75]}
    for target in ("pandas", "polars", "arrow"):
        for call in (ferry.convert_tree, ferry.explain_tree):
            with pytest.raises(ferry.TreeError) as caught:
                call(x, target)
            assert str(caught.value).count("Hint:") == 1
        numbers = pasted(caught.value.hint, x=x)
        assert numbers == plain
    assert pd.DataFrame(numbers).equals(pd.DataFrame(plain))
    assert pl.DataFrame(numbers).equals(pl.DataFrame(plain))
    assert pa.table(numbers).equals(pa.table(plain))
    records = [{"loss": torch.tensor(1.0)}, {"loss": torch.tensor(0.5)}]
    with pytest.raises(ferry.TreeError) as caught:
        ferry.convert_tree(records, "pandas")
    assert pd.DataFrame(pasted(caught.value.hint, x=records))["loss"].tolist() == [1, 0.5]
    alone = torch.tensor(1.0)
    assert pasted(hint_of(lambda: ferry.to_pandas(alone)), x=alone).tolist() == [1]


def test_a_model_of_keras_is_saved_with_its_paths(tmp_path):
    """As Keras names its variables; what is loaded goes back by these names."""
    keras = pytest.importorskip("keras", reason="keras is not installed")
    load_file = pytest.importorskip("safetensors.numpy", reason="no safetensors").load_file
    x = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(3), keras.layers.BatchNormalization()]
    )
    path = tmp_path / "model.safetensors"
    pasted(hint_of(lambda: ferry.save(x, path)), x=x, path=path)
    expected = {each.path: np.asarray(each) for each in x.variables}
    loaded = load_file(path)
    assert loaded.keys() == expected.keys()
    assert all(np.array_equal(loaded[name], expected[name]) for name in expected)
    for hint in (
        hint_of(lambda: ferry.convert_tree(x, "torch")),
        hint_of(lambda: ferry.to_torch(x)),
    ):
        tree = pasted(hint, x=x)
        assert {name: tuple(each.shape) for name, each in tree.items()} == {
            name: each.shape for name, each in expected.items()
        }
    second = hint_of(lambda: ferry.to_torch(x)).partition("; or ")[2]
    assert len(pasted(second, x=x)) == len(expected)  # where two variables have one path
    inside = {"model": x, "epoch": 3}
    hint = hint_of(lambda: ferry.save(inside, path))
    assert pasted(hint, x=inside).keys() == expected.keys()


def test_an_optimizer_is_its_state(tmp_path):
    """Also a scheduler, in a tree, in a file, and as what a result is like."""
    module = torch.nn.Linear(2, 1)
    x = torch.optim.Adam(module.parameters())
    module(torch.ones(1, 2)).sum().backward()
    x.step()
    path = tmp_path / "optimizer.pt"
    for hint in (
        hint_of(lambda: ferry.to_numpy(x)),
        hint_of(lambda: ferry.convert_tree(x, "numpy")),
    ):
        assert pasted(hint, x=x)["state"][0]["exp_avg"].shape == (1, 2)
    pasted(hint_of(lambda: ferry.save(x, path)), x=x, path=path)
    fresh = torch.optim.Adam(module.parameters())
    fresh.load_state_dict(torch.load(path))
    assert torch.equal(fresh.state_dict()["state"][0]["exp_avg"], x.state[module.weight]["exp_avg"])
    scheduler = {"scheduler": torch.optim.lr_scheduler.StepLR(x, 1)}
    hint = hint_of(lambda: ferry.save(scheduler, path))
    assert pasted(hint, x=scheduler) == scheduler["scheduler"].state_dict()
    weights = {"weight": np.ones((1, 2)), "bias": np.ones(1)}
    hint = hint_of(lambda: ferry.convert_tree(weights, like=module))
    assert hint == "like=like.state_dict()"
    back = ferry.convert_tree(weights, like=module.state_dict())
    assert back["weight"].dtype == torch.float32


def test_computations_of_polars_that_have_not_run():
    """An expression belongs to a frame, and groups have to be summed up."""
    pl = pytest.importorskip("polars", reason="polars is not installed")
    frame = pl.DataFrame({"g": [1, 1], "a": [1.0, 2.0]})
    x = pl.col("a") * 2
    for call in (ferry.to_torch, ferry.describe):
        assert pasted(
            hint_of(lambda call=call: call(x)), x=x, frame=frame
        ).to_series().to_list() == [
            2,
            4,
        ]
    groups = frame.group_by("g")
    assert pasted(hint_of(lambda: ferry.to_torch(groups)), x=groups).rows() == [(1, 1.5)]
