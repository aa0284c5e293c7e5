"""What converters of other libraries do, as tables: their own result on random bits is the oracle."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tests.converters.cases import cases
from tests.converters.sources import random_bits
from tests.maps.test_tracing import carried_out

import tensorferry as ferry

pytestmark = pytest.mark.slow

SEED = 20261128


def traced(case, source):
    return ferry.WeightMap.trace(case.convert, source)


def bits(array):
    """The bytes of a tensor of any library, with its shape and dtype."""
    if isinstance(array, torch.Tensor):
        array = array.detach().contiguous()
        dtype = str(array.dtype).rpartition(".")[2]
        return dtype, tuple(array.shape), array.reshape(-1).view(torch.uint8).numpy().tobytes()
    array = np.asarray(array)
    return array.dtype.name, array.shape, array.tobytes()


def matches(name, patterns):
    return next((each for each in patterns if fnmatchcase(name, each)), None)


def is_unsure(reasons):
    return any(reason in ("arithmetic", "depends on values") for reason in reasons.values())


def as_arrays(tensors):
    """Tensors of PyTorch as arrays with the same bits."""
    return {name: ferry.to_numpy(each) for name, each in tensors.items()}


def in_file(path):
    """The bytes of each tensor of a file, as safetensors reads them."""
    with safe_open(path, "pt") as file:
        found = {name: bits(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        # A tensor that is there twice is kept once, and noted as `save_model` notes it.
        kept = {name: each for name, each in file.metadata().items() if each in found}
        return found | {name: found[each] for name, each in kept.items()}


def check_files(source, weights, theirs, table, folder):
    """A whole file through the table, and what that makes through the inverse."""
    before, between, after = (folder / f"{name}.safetensors" for name in ("a", "b", "a_again"))
    save_file(weights, before, {"format": "pt"})
    ferry.convert_files(before, between, map=table, verify=True)
    ferry.convert_files(between, after, map=table.inverse(source))
    assert in_file(between) == {name: bits(each) for name, each in theirs.items()}
    assert in_file(after) == {name: bits(each) for name, each in weights.items()}


def check(case, source, table, folder):
    """What was found, by kind."""
    assert len(table.rules) <= case.most
    weights = random_bits(source, SEED)
    theirs = case.convert({name: each.clone() for name, each in weights.items()})
    reasons = {str(rule.target): rule.reason for rule in table.rules if rule.expression is None}
    found = {name: matches(name, case.reasons) for name in theirs}
    assert reasons == {name: case.reasons[key] for name, key in found.items() if key is not None}
    rules = tuple(rule for rule in table.rules if rule.expression is not None)
    known = ferry.WeightMap(rules, table.drop, table.dims, words=table.words)
    arrays = as_arrays(weights)
    ours = carried_out(known, arrays)
    assert ours.keys() == theirs.keys() - reasons.keys()
    for name, each in ours.items():
        assert bits(each) == bits(theirs[name]), name
    # What is dropped is said, unless an output is not known.
    dropped = {name for name in source if matches(name, case.dropped)}
    assert set(table.explain(source).dropped) == (set() if is_unsure(reasons) else dropped)
    assert [each for each in table.check(source) if not reasons] == []
    counts = Counter({"converters": 1, "outputs": len(theirs), "exact outputs": len(ours)})
    counts.update(reasons.values())
    if reasons or dropped:
        with pytest.raises(ferry.ConversionError):
            table.inverse(source)
        return counts
    # What a person reads is the whole table, and the table back gives every bit back.
    again = ferry.WeightMap.parse(table.text)
    applied = again.apply(arrays)
    assert applied.keys() == theirs.keys()
    for name, each in applied.items():
        assert bits(each) == bits(theirs[name]), name
    restored = again.inverse(source).apply(applied)
    assert restored.keys() == arrays.keys()
    for name, each in restored.items():
        assert bits(each) == bits(arrays[name]), name
    check_files(source, weights, theirs, again, folder)
    return counts + Counter({"converters there and back": 1})


def every():
    """Each case, and for each library that is not here why it is skipped."""
    found = []
    for library, case, why in cases():
        marks = [pytest.mark.skip(reason=f"{library}: {why}")] if why else []
        found.append(pytest.param(case, id=library if why else case.function, marks=marks))
    return found


@pytest.mark.parametrize("case", every())
def test_each_output_is_exact_or_has_its_reason(case, tmp_path, record_property):
    source = case.source()
    counts = check(case, source, traced(case, source), tmp_path)
    for name, count in counts.items():
        record_property(name, count)
