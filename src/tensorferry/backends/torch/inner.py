"""Call functions of PyTorch from other frameworks."""

from __future__ import annotations

import sys
import threading
import weakref
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core.derivations import Jvp, Vjp, chosen
from ...errors import GradientError, UnsupportedTypeError
from .. import registry
from ..functions import Inner
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

    The first fake tensor mode sets it otherwise. In PyTorch 2.11 it is in memory of the thread that does, and once that
    thread has ended, as one that compiled a function may, each backward pass ends the process.
    """
    # PyTorch 2.6 sets none, and has no function for it.
    if torch.version.cuda and not torch.cuda.is_available() and hasattr(torch._C, "_ensureCUDADeviceGuardSet"):
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

_UNLIKELY_SEED = 0x7E6A5EED5EED5EED
_CLOSED_OVER = "pass them as arguments; the parameters of a module: apply, params = wrap_module(module)"
_RANDOM = "without generator=, they differ at each call, also when its gradient is computed"


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
        return default, tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds)

    @contextmanager
    def under(self, environment: Any) -> Iterator[None]:
        # The default dtype is global to the process, so it is not changed here.
        with ExitStack() as stack:
            for kind, on, dtype in (environment or (None, ()))[1] or (("cpu", False, None), ("cuda", False, None)):
                stack.enter_context(torch.autocast(kind, enabled=on, dtype=dtype))
            yield

    def output(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf
        return torch.as_tensor(leaf) if isinstance(leaf, (bool, int, float, complex)) or _is_array(leaf) else None

    def module(self, module: Any, state: bool) -> tuple[Callable[..., Any], Sequence[dict[str, Any]]] | None:
        return opened(module, state) if isinstance(module, torch.nn.Module) else None

    def remarks(self, flat: Flat) -> Sequence[str]:
        if flat.careful:
            return ["its values decide what it does, so it cannot be traced without shapes=, and each call is watched"]
        return ()

    # -- derivatives ----------------------------------------------------------------------------------

    def native(self, flat: Flat, rules: tuple[Rule, ...]) -> Callable[..., Sequence[Any]]:
        """Gradients use autograd, unless a transformation of `torch.func` is running, which needs its own."""
        if not rules:
            return partial(_forward, flat)
        found: Callable[..., Sequence[Any]] = partial(_called_again, flat)
        last = max((index for index, rule in enumerate(rules) if not isinstance(rule, Vjp)), default=-1)
        for index, rule in enumerate(rules):
            if isinstance(rule, Vjp):
                found = _vjp_by_autograd(flat, found, rule) if index > last else _vjp(found, rule)
            else:
                found = _jvp(found, rule) if isinstance(rule, Jvp) else _vmap(found, rule)
        return found

    def shapes(self, flat: Flat, specs: Sequence[Spec]) -> Sequence[Spec]:
        """Use fake tensors, which have no values.

        See https://docs.pytorch.org/docs/stable/torch.compiler_fake_tensor.html. This also finds out whether the
        function uses random numbers, uses other tensors that require grad, or writes into its arguments.
        """
        from torch._subclasses import fake_tensor

        problems = (
            fake_tensor.DataDependentOutputException,
            fake_tensor.DynamicOutputShapeException,
            fake_tensor.UnsupportedOperatorException,
        )
        with self.under(flat.environment), _Watch(flat) as watch, torch.inference_mode(False), torch.enable_grad():
            with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
                tensors = [torch.empty(shape, dtype=BACKEND.dtypes[name]) for shape, name in specs]
                versions = [each._version for each in tensors]
                try:
                    results = flat(*tensors)
                except problems as error:
                    raise UnsupportedTypeError(
                        f"The shapes that {flat.source.name} gives cannot be told without values: {_first_line(error)}",
                        'wrap(function, inner="torch", shapes=lambda x: x) says them; or call it outside jit',
                    ) from error
            watch.refuse()
        flat.changes_inputs |= versions != [each._version for each in tensors]
        _refuse_closed_over(flat, results)
        return [(tuple(each.shape), BACKEND.names[each.dtype]) for each in results]


def _autocast_on() -> bool:
    return any(map(torch.is_autocast_enabled, ("cpu", "cuda")))


_is_any_autocast_on: Callable[[], bool] = getattr(torch._C, "_is_any_autocast_enabled", _autocast_on)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200]


def _is_array(leaf: Any) -> bool:
    return type(leaf).__module__ == "numpy" and hasattr(leaf, "dtype")


def _forward(flat: Flat, *tensors: Any) -> Sequence[Any]:
    if not flat.careful:
        results: Sequence[Any] = flat(*tensors)
    else:
        with torch.enable_grad():
            results = _call_watched(flat, tensors)
    for each in results:
        if each.requires_grad:
            _refuse_closed_over(flat, results)
    return results


def _call_watched(flat: Flat, tensors: Sequence[Any]) -> Sequence[Any]:
    with _Watch(flat) as watch:
        results = flat(*tensors)
    watch.refuse()
    return results


def _called_again(flat: Flat, *tensors: Any) -> Sequence[Any]:
    """Call the function again, for its derivative. It must give the same results.

    Raises:
        GradientError: It uses random numbers.
    """
    call = partial(_call_watched, flat) if flat.careful else lambda tensors: flat(*tensors)
    if not flat.generators:
        return call(tensors)
    known = (reference() for reference in flat.generators)
    before = {generator: generator.get_state() for generator in known if generator is not None}
    try:
        seeded = {generator: generator.manual_seed(_UNLIKELY_SEED).get_state() for generator in before}
        results = call(tensors)
        if any(
            generator.initial_seed() == _UNLIKELY_SEED and not torch.equal(generator.get_state(), state)
            for generator, state in seeded.items()
        ):
            raise GradientError(
                f"{flat.source.name} draws random numbers from a generator without setting its seed, and would draw "
                "others for its derivative.",
                "generator.manual_seed(int(seed)) in the function, with the seed as an argument",
            )
    finally:
        for generator, state in before.items():
            generator.set_state(state)
    return results


def _refuse_closed_over(flat: Flat, results: Sequence[Any]) -> None:
    for each in results:
        if not each.requires_grad:
            continue
        raise GradientError(
            f"{flat.source.name} uses tensors that require grad and are not among its arguments: no gradient would "
            "reach them.",
            _CLOSED_OVER,
        )


class _Reference:
    """Stands for a weak reference to a generator: it gives the generator as long as something else has it too.

    Args:
        generator: The generator.
    """

    __slots__ = ("_generator", "_identity")

    def __init__(self, generator: Any) -> None:
        self._generator: Any = generator
        self._identity = id(generator)

    def __call__(self) -> Any:
        # One of the two is the argument of `getrefcount`.
        if self._generator is not None and sys.getrefcount(self._generator) <= 2:
            self._generator = None
        return self._generator

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reference) and self._generator is not None and self._generator is other._generator

    def __hash__(self) -> int:
        return self._identity


# Generators of PyTorch 2.11 take no weak references.
_reference: Any = weakref.ref if torch.Generator.__weakrefoffset__ else _Reference


class _Watch(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
    """Finds out whether the default random generators are used."""

    def __init__(self, flat: Flat) -> None:
        super().__init__()
        self._flat = flat
        self._random_operator = ""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        arguments = (*args, *(kwargs or {}).values())
        if torch.Tag.nondeterministic_seeded in function.tags:
            generators = {each for each in arguments if isinstance(each, torch.Generator)}
            alive = {each for each in self._flat.generators if each() is not None}
            self._flat.generators = frozenset(alive.union(map(_reference, generators)))
            self._random_operator = self._random_operator or ("" if generators else str(function))
        return function(*args, **(kwargs or {}))

    def refuse(self) -> None:
        """Raise if one was used."""
        if self._random_operator:
            raise UnsupportedTypeError(
                f"{self._flat.source.name} draws random numbers ({self._random_operator}): {_RANDOM}.",
                "draw them outside and pass them as an argument; module.eval() switches dropout off",
            )


# -- gradients and tangents of functions of tensors -----------------------------------------------------


def _vjp_by_autograd(flat: Flat, function: Callable[..., Any], rule: Any) -> Callable[..., Any]:
    def gradients(*tensors: Any) -> Sequence[Any]:
        inputs, cotangents = list(tensors[: rule.kept]), tensors[rule.kept :]
        around = any(each.requires_grad for each in tensors)
        with torch.inference_mode(False), torch.enable_grad():
            for index in rule.wrt:
                x = inputs[index]
                if x.is_inference():
                    x = x.clone()
                inputs[index] = x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
            wrt = [inputs[index] for index in rule.wrt]
            if flat.changes_inputs or flat.careful:
                inputs = [x.clone() if x.requires_grad else x for x in inputs]
            results = function(*inputs)
            pairs = [(results[o], ct) for o, ct in zip(rule.outs, cotangents, strict=True) if results[o].requires_grad]
            if not pairs:
                return [torch.zeros_like(x, requires_grad=False) for x in wrt]
            found: Sequence[Any] = torch.autograd.grad(
                [y for y, _ in pairs],
                wrt,
                [ct for _, ct in pairs],
                create_graph=around,
                allow_unused=True,
                materialize_grads=True,
            )
            return found

    return gradients


def _vjp(function: Callable[..., Any], rule: Any) -> Callable[..., Any]:
    def gradients(*tensors: Any) -> Sequence[Any]:
        inputs, cotangents = tensors[: rule.kept], tensors[rule.kept :]
        with torch.inference_mode(False), torch.enable_grad():
            pulled: Any = torch.func.vjp(chosen(function, inputs, rule), *(inputs[index] for index in rule.wrt))
            found: Sequence[Any] = pulled[1](tuple(cotangents))
        return found

    return gradients


def _jvp(function: Callable[..., Any], rule: Any) -> Callable[..., Any]:
    def tangents(*tensors: Any) -> Sequence[Any]:
        inputs, input_tangents = tensors[: rule.kept], tensors[rule.kept :]
        primals = tuple(inputs[index] for index in rule.wrt)
        found: Any = torch.func.jvp(chosen(function, inputs, rule), primals, tuple(input_tangents))
        return found[1]  # type: ignore[no-any-return]

    return tangents


def _vmap(function: Callable[..., Any], rule: Any) -> Callable[..., Any]:
    def batch(*tensors: Any) -> Sequence[Any]:
        found: Any = torch.vmap(lambda *each: tuple(function(*each)), in_dims=tuple(rule.dims))(*tensors)
        return found  # type: ignore[no-any-return]

    return batch


INNER = TorchInner()
