"""The cases of the tour, C01 to C27.

Each plays on a `Stage` whose names are the libraries (``np``, ``torch``, ``tf``, ``jnp``,
``ferry``), ``images`` and ``labels`` (ndarrays), and, where torch is installed, ``model`` and
``scores``, the model's predictions on the images, which are part of an autograd graph.
"""

from __future__ import annotations

from . import inward, outward  # noqa: F401 - importing them is what enters their cases
from .case import CASES, Case

__all__ = ["CASES", "Case"]
