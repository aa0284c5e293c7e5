"""The data of the tour: a small classifier of handwritten digits, and its predictions.

The data is scikit-learn's: 1,797 images of 8 x 8 pixels, shipped in its package
(https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import tensorferry as ferry

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Digits", "classifier", "load", "picture"]

HELD_OUT = 360
STEPS = 300
RATE = 2.0
SEED = 20


class Digits(NamedTuple):
    """Images as rows of 64 pixels from 0 to 1, and the digits that they show."""

    train_images: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    images: NDArray[np.float32]
    labels: NDArray[np.int64]


def load() -> Digits:
    """The data, the same 360 images held out every time."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(pixels))
    images = (pixels[order] / 16).astype(np.float32)
    labels = labels[order].astype(np.int64)
    seen = len(images) - HELD_OUT
    return Digits(images[:seen], labels[:seen], images[seen:], labels[seen:])


def classifier(digits: Digits) -> Any:
    """An ``nn.Linear(64, 10)`` trained on the digits, on the memory of the ndarrays."""
    import torch

    torch.manual_seed(SEED)
    model = torch.nn.Linear(64, 10)
    images = ferry.to_torch(digits.train_images)
    labels = ferry.to_torch(digits.train_labels)
    for _ in range(STEPS):
        # Plain gradient descent: torch.optim would import Triton, if PyTorch was built for CUDA,
        # and Triton ends the process where TensorFlow is there before it.
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        gradients = torch.autograd.grad(loss, [model.weight, model.bias])
        with torch.no_grad():
            model.weight -= RATE * gradients[0]
            model.bias -= RATE * gradients[1]  # type: ignore[misc]
    return model


_SHADES = " ░▒▓█"


def picture(image: NDArray[np.float32]) -> list[str]:
    """An image as eight lines of sixteen characters."""
    levels = np.minimum((image.reshape(8, 8) * len(_SHADES)).astype(int), len(_SHADES) - 1)
    return ["".join(_SHADES[level] * 2 for level in row) for row in levels]
