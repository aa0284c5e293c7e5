"""PyTorch's own warnings about what it uses itself, which it hides where warnings are not errors, are not about us."""

from __future__ import annotations

from pathlib import Path

import pytest

OF_PYTORCH = (
    "ignore:.torch.jit.script. is deprecated:DeprecationWarning",
    "ignore:.torch.jit.script_method. is deprecated:DeprecationWarning",
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            for each in OF_PYTORCH:
                item.add_marker(pytest.mark.filterwarnings(each))
