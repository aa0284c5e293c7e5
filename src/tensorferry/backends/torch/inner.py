"""Call functions of PyTorch from other frameworks."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import UnsupportedTypeError
from .. import registry
from ..functions import Inner
from .autograd_use import AutogradUse, foreign_leaves
from .calls import Watch, closed_over, forward
from .derivatives import derived
from .modules import opened
from .tensors import BACKEND

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from ...core.derivations import Rule, Spec
    from ..functions import Flat

__all__ = ["INNER"]

torch: Any = registry.load(BACKEND).torch  # type: ignore[attr-defined]


def _keep_guard() -> None:
    """Set PyTorch's guard for GPUs that are not there on a thread that does not end.

    The first fake tensor mode sets it otherwise. In PyTorch 2.11 it is in memory of the thread that
    does, and once that thread has ended, as one that compiled a function may, each backward pass
    ends the process.
    """
    # PyTorch 2.6 sets none, and has no function for it.
    if (
        torch.version.cuda
        and not torch.cuda.is_available()
        and hasattr(torch._C, "_ensureCUDADeviceGuardSet")
    ):
        if threading.current_thread() is threading.main_thread():
            torch._C._ensureCUDADeviceGuardSet()
        else:
            done = threading.Event()
            threading.Thread(target=_keep_guard_here, args=(done,), daemon=True).start()
            done.wait()


def _keep_guard_here(done: threading.Event) -> None:
    torch._C._ensureCUDADeviceGuardSet()
    done.set()
    threading.Event().wait()


_keep_guard()


class TorchInner(Inner):
    """Calls functions of PyTorch."""

    name = "torch"
    traces_first = True

    def environment(self) -> Hashable:
        """The default dtype, and the autocast of each kind of device; ``None`` for PyTorch's initial settings."""
        default = torch.get_default_dtype()
        if not _is_any_autocast_on():
            return None if default is torch.float32 else (default, ())
        kinds = ("cpu", "cuda")
        return default, tuple(
            (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
            for kind in kinds
        )

    @contextmanager
    def under(self, environment: Any) -> Iterator[None]:
        # The default dtype is global to the process, so it is not changed here.
        with ExitStack() as stack:
            for kind, on, dtype in (environment or (None, ()))[1] or (
                ("cpu", False, None),
                ("cuda", False, None),
            ):
                stack.enter_context(torch.autocast(kind, enabled=on, dtype=dtype))
            yield

    def output(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf
        if not isinstance(leaf, (np.ndarray, np.generic)):
            return None
        try:
            return torch.as_tensor(leaf)
        except TypeError:  # a dtype that PyTorch has, and NumPy's arrays have only by an extension
            return BACKEND.adopt(np.asarray(leaf))

    def module(
        self, module: Any, state: bool
    ) -> tuple[Callable[..., Any], Sequence[dict[str, Any]]] | None:
        return opened(module, state) if isinstance(module, torch.nn.Module) else None

    def remarks(self, flat: Flat) -> Sequence[str]:
        if flat.careful:
            return [
                "its values decide what it does, so it cannot be traced without shapes=, and each call is watched"
            ]
        return ()

    # -- derivatives -------------------------------------------------------------------------------

    def native(self, flat: Flat, rules: tuple[Rule, ...]) -> Callable[..., Sequence[Any]]:
        return derived(flat, rules) if rules else partial(forward, flat)

    def shapes(self, flat: Flat, specs: Sequence[Spec]) -> Sequence[Spec]:
        """Use fake tensors, which have no values.

        See https://docs.pytorch.org/docs/stable/torch.compiler_fake_tensor.html. This also finds
        out whether the function uses random numbers, uses other tensors that require grad, or
        writes into its arguments.
        """
        from torch._subclasses import fake_tensor

        problems = (
            fake_tensor.DataDependentOutputException,
            fake_tensor.DynamicOutputShapeException,
            fake_tensor.UnsupportedOperatorException,
        )
        with (
            self.under(flat.environment),
            Watch(flat) as watch,
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True), AutogradUse() as use:
                tensors = [torch.empty(shape, dtype=BACKEND.dtypes[name]) for shape, name in specs]
                versions = [each._version for each in tensors]
                try:
                    results = flat(*tensors)
                except problems as error:
                    raise _needs_values(flat, _first_line(error)) from error
                except RuntimeError as error:
                    if not use.takes_values:
                        raise
                    raise _needs_values(flat, use.takes_values) from error
            watch.refuse()
        flat.changes_inputs |= versions != [each._version for each in tensors]
        flat.steers_autograd |= use.steers or any(each.requires_grad for each in tensors)
        flat.switches_autograd_off |= use.switches_off
        made = foreign_leaves(results, tensors)
        flat.makes_leaves |= bool(made)
        if not all(isinstance(each, fake_tensor.FakeTensor) for each in made):
            raise closed_over(flat)
        return [(tuple(each.shape), BACKEND.names[each.dtype]) for each in results]


def _needs_values(flat: Flat, why: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"The shapes that {flat.source.name} gives cannot be told without values: {why}",
        'tensors of PyTorch from argument to result; or wrap(function, inner="torch", shapes=lambda x: x) says them; '
        "or call it outside jit, grad and vmap",
    )


def _autocast_on() -> bool:
    return any(map(torch.is_autocast_enabled, ("cpu", "cuda")))


_is_any_autocast_on: Callable[[], bool] = getattr(
    torch._C, "_is_any_autocast_enabled", _autocast_on
)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200]


INNER = TorchInner()
