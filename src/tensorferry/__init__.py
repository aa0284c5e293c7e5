"""tensorferry carries tensors between Python sequences, NumPy, PyTorch, TensorFlow, JAX, CuPy and files.

>>> import tensorferry as ferry
>>> ferry.to_numpy([1.5, 2.5])
array([1.5, 2.5])

One call, exact values, and a memory contract that is checked: see `to_numpy` for the keywords,
`explain` for what a conversion would do and why, `load`, `save` and `convert_files` for files, `errors`
for what can be raised.
"""

from __future__ import annotations

from .api import (
    convert,
    to_jax,
    to_list,
    to_numpy,
    to_tensorflow,
    to_torch,
)
from .errors import (
    ConversionError,
    CopyRequiredError,
    DeviceError,
    FileFormatError,
    FormatLimitError,
    FrameworkNotInstalledError,
    GradientError,
    LossyCastError,
    OutputExistsError,
    PlanViolation,
    ResumableError,
    ShapeError,
    TreeError,
    UnsafeFileError,
    UnsupportedTypeError,
    VerificationError,
)
from .files.api import convert_files, load, open, save  # noqa: A004 - `ferry.open`, as in `os.open`
from .info import TensorInfo
from .inspection import FrameworkStatus, describe, explain, frameworks, shares_memory
from .plan import Plan, Step
from .transfers.api import prefetch, start
from .transfers.prefetch import Prefetch
from .transfers.transfer import Transfer
from .trees.api import collate, convert_tree, describe_tree, explain_tree, snapshot

__version__ = "0.1.0"

__all__ = [
    "ConversionError",
    "CopyRequiredError",
    "DeviceError",
    "FileFormatError",
    "FormatLimitError",
    "FrameworkNotInstalledError",
    "FrameworkStatus",
    "GradientError",
    "LossyCastError",
    "OutputExistsError",
    "Plan",
    "PlanViolation",
    "Prefetch",
    "ResumableError",
    "ShapeError",
    "Step",
    "TensorInfo",
    "Transfer",
    "TreeError",
    "UnsafeFileError",
    "UnsupportedTypeError",
    "VerificationError",
    "collate",
    "convert",
    "convert_files",
    "convert_tree",
    "describe",
    "describe_tree",
    "explain",
    "explain_tree",
    "frameworks",
    "load",
    "open",
    "prefetch",
    "save",
    "shares_memory",
    "snapshot",
    "start",
    "to_jax",
    "to_list",
    "to_numpy",
    "to_tensorflow",
    "to_torch",
]

for _each in [globals()[name] for name in __all__]:
    # Read by AutoGraph, which would rewrite what a function that it traces calls, and warn of what it cannot.
    if not isinstance(_each, type):
        _each.__dict__["autograph_info__"] = None
