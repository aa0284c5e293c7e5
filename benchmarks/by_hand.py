"""The lines of `loops.py` that people write as a function."""

from __future__ import annotations

from typing import Any

__all__ = [
    "copied_into",
    "floats_to_float32",
    "keras_batch",
    "nested_stack",
    "nested_to_numpy",
    "nested_to_torch",
    "numpy_collate",
    "output_to_numpy",
    "padded",
    "padded_tensors",
    "padded_with_mask",
]


def padded_with_mask(samples: list[Any]) -> dict[str, Any]:
    """Token ids of several lengths, with a mask."""
    import torch

    longest = max(len(sample["input_ids"]) for sample in samples)
    ids = torch.zeros(len(samples), longest, dtype=torch.int64)
    mask = torch.zeros(len(samples), longest, dtype=torch.bool)
    for index, sample in enumerate(samples):
        length = len(sample["input_ids"])
        ids[index, :length] = torch.tensor(sample["input_ids"])
        mask[index, :length] = True
    return {"input_ids": ids, "input_ids_mask": mask}


def padded(samples: list[Any], numbers: dict[str, int]) -> dict[str, Any]:
    """Lists of each key, padded with a number of the key: a collator for token classification."""
    import torch

    longest = max(len(sample["input_ids"]) for sample in samples)
    return {
        key: torch.tensor(
            [sample[key] + [number] * (longest - len(sample[key])) for sample in samples]
        )
        for key, number in numbers.items()
    }


def padded_tensors(samples: list[Any]) -> dict[str, Any]:
    """The same for tensors, and a label."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    return {
        "input_ids": pad_sequence([each["input_ids"] for each in samples], batch_first=True),
        "attention_mask": pad_sequence(
            [each["attention_mask"] for each in samples], batch_first=True
        ),
        "labels": torch.stack([each["labels"] for each in samples]),
    }


def floats_to_float32(observation: dict[str, Any]) -> dict[str, Any]:
    """An observation for a policy, whose float64 becomes float32."""
    import numpy as np
    import torch

    return {
        key: torch.as_tensor(value, dtype=torch.float32)
        if getattr(value, "dtype", None) == np.float64
        else torch.as_tensor(value)
        for key, value in observation.items()
    }


def nested_to_torch(tree: Any) -> Any:
    """Dicts in dicts of arrays."""
    import torch

    if isinstance(tree, dict):
        return {key: nested_to_torch(value) for key, value in tree.items()}
    return torch.as_tensor(tree)


def nested_to_numpy(tree: Any) -> Any:
    """Mappings in mappings of tensors."""
    import torch

    if isinstance(tree, torch.Tensor):
        return tree.detach().cpu().numpy()
    return {key: nested_to_numpy(value) for key, value in tree.items()}


def nested_stack(trees: list[Any]) -> Any:
    """Dicts in dicts of arrays, all alike, stacked."""
    import numpy as np
    import torch

    first = trees[0]
    if isinstance(first, dict):
        return {key: nested_stack([tree[key] for tree in trees]) for key in first}
    return torch.as_tensor(np.stack(trees))


def output_to_numpy(output: Any) -> Any:
    """A model output of transformers, with tuples of tensors in it."""
    import torch

    def leaf(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().cpu().numpy()
        return tuple(map(leaf, value))

    return type(output)(**{key: leaf(value) for key, value in output.items()})


def copied_into(target: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
    """Weights that take the values of others."""
    import torch

    with torch.no_grad():
        for key, value in source.items():
            target[key].copy_(value)
    return target


def numpy_collate(batch: list[Any]) -> Any:
    """The collator of JAX's tutorial for loaders of PyTorch, with tuples in place of lists."""
    import numpy as np

    if isinstance(batch[0], np.ndarray):
        return np.stack(batch)
    if isinstance(batch[0], (tuple, list)):
        return tuple(numpy_collate(list(column)) for column in zip(*batch, strict=True))
    return np.array(batch)


def keras_batch(samples: list[Any]) -> tuple[dict[str, Any], Any]:
    """Inputs by name and targets, as `fit` takes them."""
    import numpy as np

    inputs = {key: np.stack([sample[key] for sample, _ in samples]) for key in samples[0][0]}
    return inputs, np.array([target for _, target in samples])
