"""Loops over the objects of libraries: TensorDict, transformers, PIL, pandas, datasets, optax, Keras.

As in `loops.py`: the comment above a row says which kind of public training code it is from.
"""

from __future__ import annotations

import random
from itertools import count as count_from
from typing import Any

from .case import Case, Target
from .loops import CHAIN, FEW, FEWEST, LISTS, LOOKS, SAME, loops, names, state_dict_of

__all__ = ["SECTIONS"]


# -- TensorDict ------------------------------------------------------------------------------------


def _tensordicts() -> dict[str, Any]:
    import torch
    from tensordict import TensorDict

    def one(count: int) -> Any:
        return TensorDict(
            {
                "observation": torch.randn(count, 8),
                "action": torch.zeros(count, dtype=torch.int64),
                "next": {
                    "observation": torch.randn(count, 8),
                    "reward": torch.randn(count, 1),
                    "done": torch.zeros(count, 1, dtype=torch.bool),
                },
            },
            batch_size=[count],
        )

    collected = one(64)
    return {**names(), "collected": collected, "taken": [one(4) for _ in range(16)]}


_TENSORDICTS = (
    # What a collector of TorchRL gives, for a logger or another framework.
    Case('ferry.convert_tree(collected, "numpy")', "nested_to_numpy(collected)", FEW),
    Case("ferry.snapshot(collected)", "collected.clone()", FEWEST),
    # A replay buffer of TorchRL that gives a list.
    Case('ferry.collate(taken, "torch")', "torch.stack(taken)", FEW),
)


# -- language --------------------------------------------------------------------------------------


def _language() -> dict[str, Any]:
    import torch
    from torch.nn.utils.rnn import pad_sequence
    from transformers import BatchEncoding, BertConfig, BertForSequenceClassification

    torch.manual_seed(2)
    lengths = random.Random(2)  # noqa: S311
    config = BertConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=6,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
    )
    model = BertForSequenceClassification(config)
    ids = torch.randint(0, 64, (8, 32))
    encoded = {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": 0 * ids + 1}
    words = [lengths.randrange(20, 100) for _ in range(16)]
    return {
        **names(),
        "pad_sequence": pad_sequence,
        "BatchEncoding": BatchEncoding,
        "encoding": BatchEncoding(encoded),
        "output": model(
            **encoded, labels=torch.zeros(8, dtype=torch.int64), output_hidden_states=True
        ),
        "weights": state_dict_of(model),
        "tagged": [
            {
                "input_ids": [lengths.randrange(64) for _ in range(count)],
                "attention_mask": [1] * count,
                "labels": [lengths.randrange(9) for _ in range(count)],
            }
            for count in words
        ],
        "tokenised": [
            {
                "input_ids": torch.arange(count),
                "attention_mask": torch.ones(count, dtype=torch.int64),
                "labels": torch.tensor(count % 2),
            }
            for count in words
        ],
        "equal": [
            {
                "input_ids": [lengths.randrange(64) for _ in range(128)],
                "attention_mask": [1] * 128,
                "labels": number % 2,
            }
            for number in range(32)
        ],
        "generated": torch.randint(0, 64, (64, 20)),
        "embeddings": [torch.randn(8, 16, requires_grad=True) for _ in range(100)],
        "past": tuple((torch.randn(1, 2, 12, 8), torch.randn(1, 2, 12, 8)) for _ in range(12)),
    }


_LANGUAGE = (
    # A batch goes to the device of the model at the beginning of each step.
    Case('ferry.convert_tree(encoding, "torch", device="cpu")', 'encoding.to("cpu")', FEWEST),
    # An evaluation loop: what the model returned becomes arrays, with its hidden states.
    Case('ferry.convert_tree(output, "numpy")', "output_to_numpy(output)", FEW),
    # Token classification: ids, mask and labels are each padded with a number of their own.
    Case(
        'ferry.collate(tagged, "torch", pad={"input_ids": 0, "attention_mask": 0, "labels": -100})',
        'padded(tagged, {"input_ids": 0, "attention_mask": 0, "labels": -100})',
        LISTS,
    ),
    # The same over a dataset of tensors.
    Case(
        'ferry.collate(tokenised, "torch", pad={"input_ids": 0, "attention_mask": 0})',
        "padded_tensors(tokenised)",
        Target(ratio=1.4),
    ),
    # Texts that were padded before: the default collator of the Trainer.
    Case(
        'ferry.collate(equal, "torch")',
        "{k: torch.tensor([s[k] for s in equal]) for k in equal[0]}",
        LISTS,
    ),
    # Generation: ids go back to the tokenizer.
    Case("ferry.to_list(generated)", "generated.tolist()", LOOKS),
    # An index for search: the embeddings of many batches become arrays.
    Case('ferry.convert_tree(embeddings, "numpy")', f"[{CHAIN} for v in embeddings]", SAME),
    # The keys and values of twelve layers, kept beside those of another prompt.
    Case("ferry.snapshot(past)", "tuple((k.clone(), v.clone()) for k, v in past)", FEW),
    # A model's weights go to another framework.
    Case(
        'ferry.convert_tree(weights, "numpy")',
        f"{{k: {CHAIN} for k, v in weights.items()}}",
        SAME,
    ),
)


# -- vision ----------------------------------------------------------------------------------------


def _vision() -> dict[str, Any]:
    import numpy as np
    import torch
    from PIL import Image

    rng = np.random.default_rng(3)
    torch.manual_seed(3)

    def found(count: int) -> dict[str, Any]:
        return {
            "boxes": torch.rand(count, 4),
            "scores": torch.rand(count),
            "labels": torch.arange(count),
        }

    detections = [found(count) for count in range(1, 9)]
    numbers = count_from(0)
    targets = [
        {
            "boxes": torch.rand(count, 4),
            "labels": torch.arange(count),
            "image_id": torch.tensor(count),
            "area": torch.rand(count),
            "iscrowd": torch.zeros(count, dtype=torch.int64),
        }
        for count in range(1, 9)
    ]
    return {
        **names(),
        "cifar": [(torch.randn(3, 32, 32), number % 10) for number in range(64)],
        "raw": [
            (rng.integers(0, 255, (32, 32, 3), dtype="u1"), number % 10) for number in range(64)
        ],
        "masked": [
            {
                "image": rng.random((3, 32, 32), dtype="f4"),
                "mask": rng.integers(0, 2, (32, 32), dtype="u1"),
                "name": f"{number}.png",
            }
            for number in range(16)
        ],
        "photos": [
            Image.fromarray(rng.integers(0, 255, (32, 32, 3), dtype="u1")) for _ in range(16)
        ],
        "targets": targets,
        "detections": detections,
        "by_image": lambda: {f"image{next(numbers)}": each for each in detections},
        "logged": [
            {"loss": torch.tensor(0.5), "loss_box": torch.tensor(0.25), "accuracy": torch.tensor(3)}
            for _ in range(20)
        ],
    }


_VISION = (
    # torchvision: a tensor and a class.
    Case('ferry.collate(cifar, "torch")', "default_collate(cifar)", LOOKS),
    # Pictures as arrays, height and width first.
    Case(
        'ferry.collate(raw, "torch")',
        "(torch.from_numpy(np.stack([x for x, _ in raw])), torch.tensor([y for _, y in raw]))",
        LOOKS,
    ),
    # Segmentation: a picture, its mask, its name.
    Case('ferry.collate(masked, "torch")', "default_collate(masked)", SAME),
    # Pictures of PIL, without a transform.
    Case(
        'ferry.collate(photos, "torch")',
        "torch.from_numpy(np.stack([np.asarray(photo) for photo in photos]))",
        LOOKS,
    ),
    # Detection: targets go to the model's device.
    Case(
        'ferry.convert_tree(targets, "torch", device="cpu")',
        '[{k: v.to("cpu") for k, v in t.items()} for t in targets]',
        FEW,
    ),
    # Detection: what was found goes to an evaluator.
    Case(
        'ferry.convert_tree(detections, "numpy")',
        "[{k: v.cpu().numpy() for k, v in d.items()} for d in detections]",
        FEW,
    ),
    # The same, under the name of each picture. Keys that are new in each step can be slower than
    # known ones, but not than without anything that is kept: that is the bound.
    Case(
        'list(ferry.convert_tree(by_image(), "numpy").values())',
        "[{k: v.cpu().numpy() for k, v in d.items()} for d in by_image().values()]",
        Target(ratio=2.2),
    ),
    # A logger that takes numbers.
    Case(
        'ferry.convert_tree(logged, "list")',
        "[{k: v.item() for k, v in d.items()} for d in logged]",
        Target(ratio=2.1),
    ),
)


# -- tables ----------------------------------------------------------------------------------------


def _tables() -> dict[str, Any]:
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, 256),
            "income": rng.random(256),
            "hours": rng.random(256),
            "city": rng.integers(0, 40, 256),
            "label": rng.integers(0, 2, 256),
        }
    )
    return {
        **names(),
        "frame": frame,
        "records": frame.to_dict("records"),
        "rows": list(frame.itertuples(index=False)),
        "series": [row for _, row in frame.iloc[:64].iterrows()],
        "fold": (rng.random((64, 20)), rng.integers(0, 2, 64)),
        "lines": [([*rng.random(10)], number % 2) for number in range(128)],
        "features": [
            {"numbers": [float(each) for each in rng.random(10)], "label": number % 2}
            for number in range(128)
        ],
    }


_TABLES = (
    # Rows as dicts, as a Dataset over `to_dict("records")` gives them.
    Case(
        'ferry.collate(records, "torch")',
        "{k: torch.tensor([r[k] for r in records]) for k in records[0]}",
        Target(ratio=0.6),
    ),
    # Rows as named tuples of pandas.
    Case(
        'ferry.collate(rows, "torch")',
        "type(rows[0])(*(torch.tensor(c) for c in zip(*rows)))",
        LISTS,
    ),
    # Rows as Series.
    Case(
        'ferry.collate(series, "torch")',
        "torch.stack([torch.tensor(s.to_numpy()) for s in series])",
        SAME,
    ),
    # A frame whose columns become tensors.
    Case(
        'ferry.convert_tree(frame, "torch", copy=True)',
        "{c: torch.tensor(frame[c].to_numpy()) for c in frame}",
        SAME,
    ),
    # A fold of scikit-learn for a network.
    Case(
        'ferry.convert_tree(fold, "torch", dtype="float32")',
        "(torch.tensor(fold[0], dtype=torch.float32), torch.tensor(fold[1]))",
        FEWEST,
    ),
    # Rows as lists of floats, as a reader of CSV gives them.
    Case(
        'ferry.collate(features, "torch")',
        "{k: torch.tensor([f[k] for f in features]) for k in features[0]}",
        LISTS,
    ),
)


def _dataset() -> dict[str, Any]:
    import datasets
    import numpy as np

    rng = np.random.default_rng(5)
    made = datasets.Dataset.from_dict(
        {
            "input_ids": [list(range(16)) for _ in range(64)],
            "vector": rng.random((64, 32)).tolist(),
            "label": list(range(64)),
        }
    )
    as_arrays = made.with_format("numpy")
    return {
        **names(),
        "taken": [made[number] for number in range(64)],
        "arrays": [as_arrays[number] for number in range(64)],
    }


_DATASET = (
    # Samples out of `datasets`, as a DataLoader takes them: dicts of lists and numbers.
    Case(
        'ferry.collate(taken, "torch")',
        "{k: torch.tensor([s[k] for s in taken]) for k in taken[0]}",
        LISTS,
    ),
    # The same with `with_format("numpy")`.
    Case('ferry.collate(arrays, "torch")', "default_collate(arrays)", LOOKS),
)


# -- JAX and optax ---------------------------------------------------------------------------------


def _jax() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    import torch

    rng = np.random.default_rng(6)
    params = {
        f"Dense_{number}": {"kernel": jnp.ones((16, 16)) * number, "bias": jnp.zeros(16)}
        for number in range(12)
    }
    state = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)).init(params)
    images = [(rng.random((28, 28), dtype="f4"), number % 10) for number in range(128)]
    return {
        **names(),
        "params": params,
        "optimizer": state,
        "kept": jax.tree.map(np.asarray, (params, state)),
        "images": images,
        "loaded": {
            "image": torch.randn(32, 28, 28),
            "label": torch.arange(32, dtype=torch.int32),
        },
        "metrics": {
            name: jnp.float32(number / 3)
            for number, name in enumerate(("loss", "accuracy", "grad_norm", "lr", "kl", "entropy"))
        },
        "grads": {f"Dense_{number}": jnp.ones((16, 16)) for number in range(12)},
    }


_JAX = (
    # A DataLoader of PyTorch with a collator for NumPy: the JAX tutorial of data loading.
    Case('ferry.collate(images, "numpy")', "numpy_collate(images)", LOOKS),
    # A batch of a DataLoader goes to JAX.
    Case(
        'ferry.convert_tree(loaded, "jax")',
        "{k: jnp.asarray(v.numpy()) for k, v in loaded.items()}",
        LOOKS,
    ),
    # A checkpoint: parameters, and the state of an optimizer of optax, to the host.
    Case(
        'ferry.convert_tree((params, optimizer), "numpy")',
        "jax.tree.map(np.asarray, (params, optimizer))",
        LOOKS,
    ),
    # The checkpoint comes back.
    Case('ferry.convert_tree(kept, "jax")', "jax.tree.map(jnp.asarray, kept)", SAME),
    # Numbers for a logger.
    Case(
        'ferry.convert_tree(metrics, "list")', "{k: float(v) for k, v in metrics.items()}", FEWEST
    ),
    # Gradients for a loop in PyTorch.
    Case(
        'ferry.convert_tree(grads, "torch")',
        "{k: torch.from_numpy(np.array(v)) for k, v in grads.items()}",
        LOOKS,
    ),
)


# -- Keras and TensorFlow --------------------------------------------------------------------------


def _keras() -> dict[str, Any]:
    import keras
    import numpy as np
    import tensorflow as tf
    import torch

    rng = np.random.default_rng(8)
    model = keras.Sequential(
        [keras.layers.Input((16,)), *(keras.layers.Dense(16) for _ in range(10))]
    )
    return {
        **names(),
        "weights": model.get_weights(),
        "pairs": [({"a": rng.random(16, "f4"), "b": rng.random(8, "f4")}, 1.0) for _ in range(32)],
        "loaded": (torch.randn(32, 16), torch.arange(32)),
        "drawn": (rng.random((32, 16), "f4"), rng.integers(0, 10, 32)),
        "served": {"x": tf.constant(rng.random((32, 16), "f4")), "y": tf.range(32)},
    }


_KERAS = (
    # `fit` with a Sequence: inputs by name, and targets.
    Case('ferry.collate(pairs, "numpy")', "keras_batch(pairs)", LOOKS),
    # `fit` with a generator over a DataLoader of PyTorch.
    Case('ferry.convert_tree(loaded, "numpy")', "tuple(v.numpy() for v in loaded)", FEWEST),
    # A generator for `Dataset.from_generator`.
    Case(
        'ferry.convert_tree(drawn, "tensorflow")',
        "tuple(map(tf.convert_to_tensor, drawn))",
        LOOKS,
    ),
    # A loop in PyTorch over `tf.data`.
    Case(
        'ferry.convert_tree(served, "torch")',
        "{k: torch.tensor(v.numpy()) for k, v in served.items()}",
        FEW,
    ),
    # `get_weights`, for a model in PyTorch.
    Case(
        'ferry.convert_tree(weights, "torch", copy=True)',
        "[torch.tensor(w) for w in weights]",
        SAME,
    ),
)


SECTIONS = (
    loops("agents with TensorDict", _tensordicts, _TENSORDICTS, "tensordict"),
    loops("language", _language, _LANGUAGE, "transformers"),
    loops("vision", _vision, _VISION, "PIL"),
    loops("rows of tables", _tables, _TABLES, "pandas"),
    loops("samples of datasets", _dataset, _DATASET, "datasets"),
    loops("JAX and optax", _jax, _JAX, "jax", "optax"),
    loops("Keras and TensorFlow", _keras, _KERAS, "keras", "tensorflow"),
)
