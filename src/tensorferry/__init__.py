"""Convert tensors between Python sequences, NumPy, PyTorch, TensorFlow, JAX, CuPy and files.

>>> import tensorferry as ferry
>>> ferry.to_numpy([1.5, 2.5])
array([1.5, 2.5])

One call converts a tensor. Values are exact, and it is known before the call whether memory is
shared. `to_numpy` lists the keywords, `explain` says what a conversion would do and why, `load`,
`save` and `convert_files` are for files, and `errors` has every error that can be raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# What every conversion needs is imported here, so that a first one need not import it.
from .backends import base as _base  # noqa: F401
from .backends import registry as _registry  # noqa: F401
from .core.version import __version__ as __version__
from .errors import (
    ConversionError,
    CopyRequiredError,
    DeviceError,
    FileFormatError,
    FormatLimitError,
    FrameworkNotInstalledError,
    GradientError,
    LossyCastError,
    NotEnoughMemoryError,
    OutputExistsError,
    PlanViolation,
    ResumableError,
    ShapeError,
    TreeError,
    UnknownFrameworkError,
    UnsafeFileError,
    UnsupportedTypeError,
    VerificationError,
)

if TYPE_CHECKING:
    from .api import (
        convert,
        to_arrow,
        to_cupy,
        to_jax,
        to_list,
        to_numpy,
        to_pandas,
        to_polars,
        to_tensorflow,
        to_torch,
    )
    from .batches.api import collate, explain_collate
    from .batches.plans import BatchPlan
    from .core.info import TensorInfo
    from .files.api import convert_files, explain_load, load, save
    from .files.api import open as open  # noqa: A004 - `ferry.open`, as in `os.open`; a star takes it to nobody
    from .files.conversion.convert import Report
    from .files.lazy import LazyReference, LazyTree
    from .files.load_plan import LoadPlan
    from .functions.explain import WrapPlan, explain_wrap
    from .functions.modules import wrap_module
    from .functions.wrap import wrap
    from .inspection import FrameworkStatus, describe, explain, frameworks, is_tensor, shares_memory
    from .planning.plan import Plan
    from .planning.step import Step
    from .transfers.api import prefetch, start
    from .transfers.prefetch import Prefetch
    from .transfers.transfer import Transfer
    from .trees.api import convert_tree, describe_tree, explain_tree, snapshot
    from .trees.plans import TreePlan
    from .weight_map import WeightMap

__all__ = [
    "BatchPlan",
    "ConversionError",
    "CopyRequiredError",
    "DeviceError",
    "FileFormatError",
    "FormatLimitError",
    "FrameworkNotInstalledError",
    "FrameworkStatus",
    "GradientError",
    "LazyReference",
    "LazyTree",
    "LoadPlan",
    "LossyCastError",
    "NotEnoughMemoryError",
    "OutputExistsError",
    "Plan",
    "PlanViolation",
    "Prefetch",
    "Report",
    "ResumableError",
    "ShapeError",
    "Step",
    "TensorInfo",
    "Transfer",
    "TreeError",
    "TreePlan",
    "UnknownFrameworkError",
    "UnsafeFileError",
    "UnsupportedTypeError",
    "VerificationError",
    "WeightMap",
    "WrapPlan",
    "collate",
    "convert",
    "convert_files",
    "convert_tree",
    "describe",
    "describe_tree",
    "explain",
    "explain_collate",
    "explain_load",
    "explain_tree",
    "explain_wrap",
    "frameworks",
    "is_tensor",
    "load",
    "prefetch",
    "save",
    "shares_memory",
    "snapshot",
    "start",
    "to_arrow",
    "to_cupy",
    "to_jax",
    "to_list",
    "to_numpy",
    "to_pandas",
    "to_polars",
    "to_tensorflow",
    "to_torch",
    "wrap",
    "wrap_module",
]

_AT_FIRST_USE = {
    "BatchPlan": "batches.plans",
    "FrameworkStatus": "inspection",
    "LazyReference": "files.lazy",
    "LazyTree": "files.lazy",
    "LoadPlan": "files.load_plan",
    "Plan": "planning.plan",
    "Prefetch": "transfers.prefetch",
    "Report": "files.conversion.convert",
    "Step": "planning.step",
    "TensorInfo": "core.info",
    "Transfer": "transfers.transfer",
    "TreePlan": "trees.plans",
    "WeightMap": "weight_map",
    "WrapPlan": "functions.explain",
    "collate": "batches.api",
    "convert": "api",
    "convert_files": "files.api",
    "convert_tree": "trees.api",
    "describe": "inspection",
    "describe_tree": "trees.api",
    "explain": "inspection",
    "explain_collate": "batches.api",
    "explain_load": "files.api",
    "explain_tree": "trees.api",
    "explain_wrap": "functions.explain",
    "frameworks": "inspection",
    "is_tensor": "inspection",
    "load": "files.api",
    "open": "files.api",
    "prefetch": "transfers.api",
    "save": "files.api",
    "shares_memory": "inspection",
    "snapshot": "trees.api",
    "start": "transfers.api",
    "to_arrow": "api",
    "to_cupy": "api",
    "to_jax": "api",
    "to_list": "api",
    "to_numpy": "api",
    "to_pandas": "api",
    "to_polars": "api",
    "to_tensorflow": "api",
    "to_torch": "api",
    "wrap": "functions.wrap",
    "wrap_module": "functions.modules",
}
"""Public names imported at first use, and their modules, to keep ``import tensorferry`` fast."""


def __getattr__(name: str) -> object:
    if name not in _AT_FIRST_USE:
        raise _no_such_name(name)
    from importlib import import_module

    return globals().setdefault(
        name, _unwritten(getattr(import_module(f".{_AT_FIRST_USE[name]}", __name__), name))
    )


def _no_such_name(name: str) -> AttributeError:
    """The error for a name that is none of ours.

    If it is made of a framework's name, it says what is meant.
    """
    refused = f"module {__name__!r} has no attribute {name!r}"
    start, _, framework = name.partition("_")
    if start == "from":
        refused += (
            ". A source needs no function of its own: to_torch(x) takes tensors of every framework"
        )
    if start != "to":
        return AttributeError(refused)
    from .core.names import canonical  # here, because only an error needs it

    try:
        meant = [
            function
            for function in __all__
            if function.startswith("to_")
            and canonical(function[len("to_") :]) == canonical(framework)
        ]
    except UnknownFrameworkError:
        meant = []
    # A framework of an outside package has no function of its own.
    return AttributeError(f"{refused}. Did you mean {meant[0]!r}?" if meant else refused)


def __dir__() -> list[str]:
    return [*__all__, "__version__", "open"]


def _unwritten(public: Any) -> Any:
    """A public function or class, which TensorFlow's AutoGraph does not rewrite.

    Otherwise it may warn.
    """
    if not isinstance(public, type):
        public.__dict__["autograph_info__"] = None
    return public
