"""What a list is opened for: its `Opening` has what converts the tensors that stand among numbers."""

from __future__ import annotations

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.backends import registry
from tensorferry.backends.base import Opening

torch = pytest.importorskip("torch")


def test_a_tensor_among_numbers_is_converted_by_who_opens_the_list():
    """Once each, to Python's numbers; what comes back stands in its place."""
    asked = []

    def convert(x, target, request):
        asked.append((x, target.name, request.target))
        return 7

    tensor = torch.tensor(2)
    backend = registry.ready("python")
    for do in (backend.open, backend.preview):
        asked.clear()
        _, info, array = do([1, tensor], Opening(convert=convert))
        assert array.tolist() == [1, 7]
        assert info.shape == (2,)
        assert [(found is tensor, *names) for found, *names in asked] == [
            (True, "python", "python")
        ]


def test_an_array_of_objects_hands_it_on():
    """It is opened as the list of its elements."""
    objects = np.empty(2, object)
    objects[:] = [1, torch.tensor(2)]
    _, info, array = registry.ready("numpy").open(objects, Opening(convert=lambda *_: 7))
    assert array.tolist() == [1, 7]
    assert info.kind == "objects"


@pytest.mark.parametrize(
    "tensor",
    [torch.tensor(2), np.ma.array(2, mask=True), torch.ones((), requires_grad=True)],
    ids=["torch", "masked", "grad"],
)
def test_without_it_a_tensor_is_refused_and_not_read_in_another_way(tensor):
    """NumPy would read some of them, without the mask or the graph that they have."""
    with pytest.raises(
        ferry.UnsupportedTypeError, match=r"stands among numbers|mask would be lost"
    ):
        registry.ready("python").open([1, tensor])


def test_without_it_numpys_own_arrays_are_read():
    _, _, array = registry.ready("python").open([1, np.array(2)])
    assert array.tolist() == [1, 2]


def test_descriptions_and_conversions_give_it():
    """Whoever describes such a list: alone, in a tree, for `explain` or `like=`, among others."""
    mixed = [1, torch.tensor(2)]
    assert ferry.to_numpy(mixed).tolist() == [1, 2]
    assert ferry.describe(mixed).shape == (2,)
    assert ferry.explain(mixed, "numpy").source.shape == (2,)
    assert ferry.convert(np.array([1.5]), like=mixed) == [1.5]
    objects = np.empty(2, object)
    objects[:] = mixed
    assert ferry.to_numpy([objects, objects]).tolist() == [[1, 2], [1, 2]]
    assert ferry.collate([{"a": objects}] * 2, "numpy")["a"].tolist() == [[1, 2], [1, 2]]
    assert not ferry.shares_memory(mixed, np.ones(2))
