"""Functions across frameworks, for JAX: call its functions from others; make others part of it.

They are part of jit, vmap, grad, jvp and combinations through a primitive of JAX. All uses of JAX's
private interfaces for it are here.

The primitive calls a `Function`. Its tangents are another such call, which is linear in its last
arguments; the transpose of that is a call of the function's gradient. It is lowered to a callback
with NumPy arrays. On the CPU, these are over XLA's own memory, also the results. If a version of
JAX has other interfaces, `jax.pure_callback` and `jax.custom_vjp` are used instead: see
`_Fallback`.
"""

from __future__ import annotations

import inspect
import sys
import threading
import warnings
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import hints
from ...core import dtypes
from ...core.derivations import Jvp, Vjp, Vmap, apply_rules, of_chosen
from ...errors import LossyCastError, UnsupportedTypeError
from ...hints import Hint
from ...host import subnormals
from ...host.numpy_dtypes import by_numpy, numpy_dtype
from .. import registry
from ..functions import Inner, Outer
from .declared import NARROW, PACKED, X64
from .tensors import BACKEND

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from contextlib import AbstractContextManager

    from ...core.derivations import Rule, Spec
    from ..functions import Function, TensorFunction

__all__ = ["INNER", "OUTER", "call_for", "spec_of"]

jax: Any = registry.load(BACKEND).jax  # type: ignore[attr-defined]
jnp: Any = jax.numpy
_NAMES = by_numpy()
_WORTH_A_CHECK = 1 << 14
"""From this size in bytes on, a copy takes longer than a check whether it is needed."""
_ONLY_IN_TUPLE = 2
"""The reference count of an object that only a tuple refers to, with the reference of the call."""


# -- functions of JAX, called from other frameworks ------------------------------------------------


class JaxInner(Inner):
    """Calls functions of JAX."""

    name = "jax"

    def environment(self) -> Hashable:
        """Whether 64-bit dtypes are on (it may differ between threads), and whether jit is off."""
        return bool(jax.config.jax_enable_x64), bool(jax.config.jax_disable_jit)

    def under(self, environment: Any) -> AbstractContextManager[Any]:
        if hasattr(jax, "enable_x64"):
            enable = jax.enable_x64
        else:
            enable = import_module("jax.experimental").enable_x64
        return enable(environment[0])  # type: ignore[no-any-return]

    def output(self, leaf: Any) -> Any:
        if isinstance(leaf, jax.Array):
            return leaf
        if isinstance(leaf, (np.ndarray, np.generic)):
            return jnp.asarray(leaf)
        return None

    def native(self, flat: TensorFunction, rules: tuple[Rule, ...]) -> Callable[..., Sequence[Any]]:
        """Functions that are derived from a jitted function are jitted too."""
        if not rules:
            return flat.plain
        native = apply_rules(flat, rules, {Vjp: _vjp, Jvp: _jvp, Vmap: _vmap})
        return jax.jit(native) if _is_jitted(flat) else native  # type: ignore[no-any-return]

    def shapes(self, flat: TensorFunction, specs: Sequence[Spec]) -> Sequence[Spec]:
        inputs = [jax.ShapeDtypeStruct(shape, numpy_dtype(name)) for shape, name in specs]
        # A new function each time. JAX would cache the result, and not call it again.
        outputs = jax.eval_shape(lambda *tensors: flat(*tensors), *inputs)  # noqa: PLW0108
        return [(tuple(output.shape), _NAMES[np.dtype(output.dtype)]) for output in outputs]

    def borrows(self, flat: Any) -> bool:
        return _is_jitted(flat) and not flat.environment[1]

    def unshared(self, results: Sequence[Any], inputs: Sequence[Any]) -> Sequence[bool]:
        # Other code also has the object if a jitted function returns an argument or a constant.
        alone = [
            sys.getrefcount(results[i]) <= _ONLY_IN_TUPLE and _bytes(results[i]) >= _WORTH_A_CHECK
            for i in range(len(results))
        ]
        if not any(alone) or any(x.is_deleted() for x in inputs):
            return [False] * len(results)
        known = [x.unsafe_buffer_pointer() for x in (*results, *inputs)]
        return [is_alone and known.count(known[index]) == 1 for index, is_alone in enumerate(alone)]

    def remarks(self, flat: TensorFunction) -> Sequence[str]:
        if _is_jitted(flat):
            return ()
        return [
            (
                "the function is not jitted, so it and its gradients run one operation at a time: "
                "jax.jit(function)"
            )
        ]


def _bytes(x: Any) -> int:
    return x.size * x.dtype.itemsize  # type: ignore[no-any-return]  # `nbytes` takes three times as long


def _is_jitted(flat: TensorFunction) -> bool:
    return hasattr(flat.source.function, "lower") and hasattr(flat.source.function, "eval_shape")


def _vjp(function: Callable[..., Any], rule: Any) -> Callable[..., Any]:
    """JAX transposes without conjugating; the others conjugate.

    See https://github.com/jax-ml/jax/issues/9110.
    """

    def gradients(*tensors: Any) -> Sequence[Any]:
        inputs, cotangents = tensors[: rule.kept], tensors[rule.kept :]
        _, pull = jax.vjp(of_chosen(function, inputs, rule), *(inputs[index] for index in rule.wrt))
        return tuple(jnp.conj(x) for x in pull(tuple(jnp.conj(x) for x in cotangents)))

    return gradients


def _jvp(function: Callable[..., Any], rule: Any) -> Callable[..., Any]:
    def tangents(*tensors: Any) -> Sequence[Any]:
        inputs, input_tangents = tensors[: rule.kept], tensors[rule.kept :]
        primals = tuple(inputs[index] for index in rule.wrt)
        pushed: Sequence[Any] = jax.jvp(
            of_chosen(function, inputs, rule), primals, tuple(input_tangents)
        )[1]
        return pushed

    return tangents


def _vmap(function: Callable[..., Any], rule: Any) -> Callable[..., Any]:
    return jax.vmap(function, in_axes=tuple(rule.dims), axis_size=rule.size)  # type: ignore[no-any-return]


INNER = JaxInner()


_WIDE = X64.dtypes.held - NARROW.dtypes.held
"""The dtypes that exist only with x64."""


# -- functions of other frameworks as a part of JAX ------------------------------------------------


def call_for(outer: Outer) -> Any:
    """The function that calls a `Function` with JAX arrays or tracers, in the graph of `outer`."""
    try:
        return _Primitive(outer)
    except (ImportError, AttributeError, TypeError) as error:
        return _Fallback(error)


def spec_of(aval: Any) -> Spec:
    """See `Outer.spec`."""
    try:
        return tuple(aval.shape), _NAMES[np.dtype(aval.dtype)]
    except (KeyError, TypeError):
        raise UnsupportedTypeError(
            f"JAX's {aval.dtype} cannot cross: no other framework has it.",
            "jax.random.key_data(key)",
        ) from None


def _supported(function: Function, specs: Sequence[Spec]) -> list[Spec]:
    """The shapes and dtypes, if JAX has them with its present settings.

    Raises:
        LossyCastError: JAX does not have a dtype.
    """
    held = BACKEND.capabilities.dtypes.held
    shapes = []
    for shape, name in specs:
        if function.flat.source.dtype:
            fitting = dtypes.fitting_dtype(name, held)
        else:
            fitting = name
        if fitting is None or fitting not in held:
            raise LossyCastError(
                f"{function.flat.source.name} gives {name}, which JAX has not as it is set up now.",
                f'{function.flat.fit}, or jax.config.update("jax_enable_x64", True)',
            )
        shapes.append((shape, fitting))
    return shapes


def _result_specs(function: Function, avals: Sequence[Any]) -> list[Spec]:
    return _supported(function, function.specs([spec_of(aval) for aval in avals]))


def _is_inexact(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.inexact))


def _conj(x: Any) -> Any:
    """JAX transposes without conjugating; the others conjugate.

    See https://github.com/jax-ml/jax/issues/9110.
    """
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return jnp.conj(x)
    return x


def _unbatched(x: Any, axis: int | None) -> Any:
    """A result with its first axis where `Adjoint.axes` says: moved, summed over, or as it is."""
    if axis == -1:
        return x
    if axis is None:
        return x.sum(0)
    return jnp.moveaxis(x, 0, axis)


def _run_here(function: Function, arrays: Sequence[Any], outer: Outer) -> list[Any]:
    """Call a function with concrete arrays."""
    shardings = {array.sharding for array in arrays if isinstance(array, jax.Array)}
    for sharding in shardings:
        if sharding.num_devices > 1:
            raise _sharded(function, sharding.num_devices)
    if len(shardings) > 1:
        arrays = _together(arrays)
    results = function.run(arrays, outer)
    device = next((array.device for array in arrays if isinstance(array, jax.Array)), None)
    if device is None or device.platform == "cpu":
        return results
    return [jax.device_put(result, device) for result in results]


def _together(arrays: Sequence[Any]) -> Sequence[Any]:
    """Arrays on one device, as in JAX's own functions: one not put on a device goes to the others'.

    Arrays that were put on different devices stay there: the function may know what to do with
    them. See https://docs.jax.dev/en/latest/faq.html (controlling data and computation placement on
    devices).
    """
    chosen = {array.device for array in arrays if isinstance(array, jax.Array) and array.committed}
    if len(chosen) != 1:
        return arrays
    (device,) = chosen
    return [
        jax.device_put(array, device) if isinstance(array, jax.Array) else array for array in arrays
    ]


def _sharded(function: Function, count: int) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"An argument of {function.flat.source.name} is on {count} devices, "
        "and the function is called on one.",
        Hint(hints.code("jax.device_put(x, jax.devices()[0])"), " first"),
    )


def _filling_function(
    function: Function, specs: Sequence[Spec]
) -> Callable[[list[Any], list[Any]], None]:
    """A function for XLA's threads: calls it with lent NumPy arrays, writes results into others."""
    if function.flat.source.dtype:
        want = [name for _, name in specs]
    else:
        want = None
    return subnormals.unflushed_callback(function.filler(want))


def _returning_callback(
    function: Function, avals: Sequence[Any], specs: Sequence[Spec]
) -> Callable[..., tuple[Any, ...]]:
    """XLA's callback that takes and returns arrays without packed elements: see `_unpacked`."""
    _refuse_narrowing(function, specs)
    fill = _filling_function(function, specs)
    given_dtypes, kinds = (
        [np.dtype(aval.dtype) for aval in avals],
        [numpy_dtype(name) for _, name in specs],
    )
    returned = [_unpacked(kind) for kind in kinds]

    def callback(*arrays: Any) -> tuple[Any, ...]:
        outs = [np.empty(shape, kind) for (shape, _), kind in zip(specs, kinds, strict=True)]
        try:
            fill(
                [
                    np.asarray(x).astype(kind, copy=False)
                    for x, kind in zip(arrays, given_dtypes, strict=True)
                ],
                outs,
            )
        except Exception as error:
            raise RuntimeError(function.keep_exception(error)) from error
        return tuple([x.astype(kind, copy=False) for x, kind in zip(outs, returned, strict=True)])

    return callback


def _unpacked(dtype: Any) -> Any:
    """The dtype as which elements cross to a callback that takes arrays and returns arrays.

    On a GPU, JAX hands packed elements to a callback as if each had a byte, so that the callback
    gets other numbers (measured on JAX 0.11.2 with int4).
    """
    name = _NAMES.get(np.dtype(dtype))
    if name not in PACKED:
        return np.dtype(dtype)
    return np.dtype({"int": "int8", "uint": "uint8", "float": "float32"}[dtypes.find(name).kind])


def _filling_callback(
    function: Function, specs: Sequence[Spec], count: int
) -> Callable[..., tuple[()]]:
    """XLA's callback that takes its lent memory, of `count` arguments and of the results."""
    fill = _filling_function(function, specs)

    def callback(_: Any, *buffers: Any) -> tuple[()]:
        # `np.asarray` would take twice as long.
        arrays = [buffer.__array__() for buffer in buffers]
        try:
            fill(arrays[:count], arrays[count:])
        except Exception as error:
            raise RuntimeError(function.keep_exception(error)) from error
        return ()

    return callback


def _refuse_narrowing(function: Function, specs: Sequence[Spec]) -> None:
    """Raise for 64-bit results if only this thread has x64: JAX's callback threads narrow them."""
    everywhere = import_module("jax._src.config").enable_x64.get_global()
    if jax.config.jax_enable_x64 and not everywhere and any(name in _WIDE for _, name in specs):
        raise LossyCastError(
            f"{function.flat.source.name} gives 64-bit numbers, which this JAX narrows on its "
            "callback threads, as "
            "only this thread has them.",
            'jax.config.update("jax_enable_x64", True)',
        )


# -- the primitive ---------------------------------------------------------------------------------


class _Primitive:
    """The primitive and its rules, for the installed version of JAX.

    Raises:
        ImportError, AttributeError, TypeError: JAX has other interfaces.
    """

    remarks: tuple[str, ...] = ()

    def __init__(self, outer: Outer) -> None:
        primitive_of: Any = import_module("jax.extend.core").Primitive
        ad, batching, mlir = (
            import_module(f"jax.interpreters.{name}") for name in ("ad", "batching", "mlir")
        )
        self.ad, self.mlir = ad, mlir
        self.emit = mlir.emit_python_callback
        known = inspect.signature(self.emit).parameters
        if "returns_token" in known:
            self.options = {"returns_token": False}
        else:
            self.options = {}
        if not {"ctx", "callback", "token", "operands", "operand_avals", "result_avals"} <= set(
            known
        ):
            raise TypeError("emit_python_callback takes other arguments")
        self.by_buffer = _by_buffer(mlir)
        self.call = primitive_of("tensorferry_call")
        self.call.multiple_results = True
        mlir.register_lowering(self.call, self._lower)
        self.call.def_impl(lambda *arrays, function: _run_here(function, arrays, outer))
        self.call.def_abstract_eval(self._abstract)
        ad.primitive_jvps[self.call] = self._jvp
        ad.primitive_transposes[self.call] = self._transpose
        batching.primitive_batchers[self.call] = self._batch

    def __call__(self, function: Function, arrays: Sequence[Any]) -> Sequence[Any]:
        return self.call.bind(*arrays, function=function)  # type: ignore[no-any-return]

    def _abstract(self, *avals: Any, function: Function) -> list[Any]:
        return [
            jax.core.ShapedArray(shape, numpy_dtype(name))
            for shape, name in _result_specs(function, avals)
        ]

    def _jvp(self, primals: Sequence[Any], tangents: Sequence[Any], *, function: Function) -> Any:
        zero, float0 = self.ad.Zero, jax.dtypes.float0
        outputs = self.call.bind(*primals, function=function)
        wrt = tuple(i for i, t in enumerate(tangents) if type(t) is not zero and t.dtype != float0)
        outs = tuple(o for o, y in enumerate(outputs) if _is_inexact(y.dtype))
        pushed = iter(())
        if wrt and outs:
            kept = function.kept(primals, outputs)
            derived = function.derived(Jvp(wrt, outs, len(kept)))
            pushed = iter(self.call.bind(*kept, *(tangents[i] for i in wrt), function=derived))
        return outputs, [
            next(pushed) if wrt and index in outs else zero(_aval(y).to_tangent_aval())
            for index, y in enumerate(outputs)
        ]

    def _transpose(
        self, cotangents: Sequence[Any], *arguments: Any, function: Function
    ) -> list[Any]:
        ad = self.ad
        linear = tuple(i for i, x in enumerate(arguments) if ad.is_undefined_primal(x))
        outs = tuple(o for o, ct in enumerate(cotangents) if type(ct) is not ad.Zero)
        gradients: list[Any] = [None] * len(arguments)
        adjoint = function.adjoint(linear, outs)
        results = self.call.bind(
            *(arguments[i] for i in adjoint.known),
            *(_conj(cotangents[o]) for o in outs),
            function=adjoint.function,
        )
        for index, result, axis in zip(linear, results, adjoint.axes, strict=True):
            gradients[index] = _conj(_unbatched(result, axis))
        return gradients

    def _batch(self, arguments: Sequence[Any], dims: Sequence[Any], *, function: Function) -> Any:
        size = next(
            x.shape[axis] for x, axis in zip(arguments, dims, strict=True) if axis is not None
        )
        results = self.call.bind(*arguments, function=function.derived(Vmap(tuple(dims), size)))
        return results, [0] * len(results)

    def _lower(self, ctx: Any, *operands: Any, function: Function) -> Any:
        module = ctx.module_context
        devices = getattr(module.axis_context, "num_devices", 1)
        if devices > 1:
            raise _sharded(function, devices)
        specs = _result_specs(function, ctx.avals_in)
        # XLA makes no call whose results it takes to be empty. But they may depend on values: only
        # the call says.
        must_run = any(0 in shape for shape, _ in specs)
        function.native  # noqa: B018 - a derivative that is not there is refused before anything is run
        if self.by_buffer is not None and tuple(module.platforms) == ("cpu",):
            module.add_host_callback(_filling_callback(function, specs, len(operands)))
            lowering = self.by_buffer[must_run]
            return lowering(ctx, *operands, index=np.uint64(len(module.host_callbacks) - 1))
        callback = _returning_callback(function, ctx.avals_in, specs)
        before, after = (
            list(map(_unpacked_aval, avals)) for avals in (ctx.avals_in, ctx.avals_out)
        )
        operands_recast = [*map(partial(self._recast, ctx), ctx.avals_in, before, operands)]
        results, _, keep = self.emit(
            ctx.replace(avals_in=before, avals_out=after),
            callback,
            None,
            operands_recast,
            before,
            after,
            has_side_effect=must_run,
            **self.options,
        )
        if keep is not None and hasattr(module, "add_keepalive"):
            module.add_keepalive(keep)
        return [*map(partial(self._recast, ctx), after, ctx.avals_out, results)]

    def _recast(self, ctx: Any, before: Any, after: Any, operand: Any) -> Any:
        """An operand of a lowering with another dtype, if that is asked."""
        if before.dtype == after.dtype:
            return operand
        cast = self.mlir.lower_fun(lambda x: x.astype(after.dtype), multiple_results=False)
        (recast,) = cast(ctx.replace(primitive=None, avals_in=[before], avals_out=[after]), operand)
        return recast


def _unpacked_aval(aval: Any) -> Any:
    return jax.core.ShapedArray(aval.shape, _unpacked(aval.dtype))


def _by_buffer(mlir: Any) -> Any:
    """Lowerings to a callback with XLA's own memory, also for results; ``None`` if JAX has none.

    The second is for a call that must be made, even if XLA does not need its results.

    See
    https://docs.jax.dev/en/latest/_autosummary/jax.experimental.buffer_callback.buffer_callback.html
    """
    try:
        import_module("jax.experimental.buffer_callback")
    except ImportError:  # before 0.6.1
        return None
    # The interface for the lowering is private.
    if not hasattr(getattr(mlir, "ModuleContext", None), "add_host_callback"):
        return None
    lowering = import_module("jax.ffi").ffi_lowering
    return [
        lowering("xla_buffer_python_cpu_callback", has_side_effect=effect)
        for effect in (False, True)
    ]


def _aval(x: Any) -> Any:
    if hasattr(jax, "typeof"):
        return jax.typeof(x)
    return jax.core.get_aval(x)


# -- where the primitive cannot be made ------------------------------------------------------------


class _Fallback:
    """The primitive by `jax.pure_callback` and `jax.custom_vjp`: no forward mode, and it may hang.

    Args:
        why: What this JAX does not have.
    """

    def __init__(self, why: Exception) -> None:
        told = (
            f"this JAX ({jax.__version__}) has other interfaces than "
            "tensorferry's primitive was written for "
            f"({type(why).__name__}: {why}), so jax.pure_callback is used: no forward mode (jvp, "
            "jacfwd, hessian), and "
            "large arrays can wait for ever (https://github.com/jax-ml/jax/issues/24255)"
        )
        self.remarks = (told,)
        warnings.warn(
            told
            + '; jax.config.update("jax_cpu_enable_async_dispatch", False), before the first array is '
            "made, keeps it from waiting",
            UserWarning,
            stacklevel=2,
        )

    def __call__(self, function: Function, arrays: Sequence[Any]) -> Sequence[Any]:
        @jax.custom_vjp  # type: ignore[untyped-decorator]
        def call(*arrays: Any) -> Any:
            specs = _result_specs(function, arrays)
            if any(0 in shape for shape, _ in specs):
                raise UnsupportedTypeError(
                    f"{function.flat.source.name} gives an empty result, and this JAX would not "
                    "call it to see that.",
                    "pip install -U jax",
                )
            kinds = [numpy_dtype(name) for _, name in specs]
            shapes = [
                jax.ShapeDtypeStruct(shape, _unpacked(kind))
                for (shape, _), kind in zip(specs, kinds, strict=True)
            ]
            callback, given_dtypes = (
                _returning_callback(function, arrays, specs),
                [x.astype(_unpacked(x.dtype)) for x in arrays],
            )
            results = jax.pure_callback(
                callback, tuple(shapes), *given_dtypes, vmap_method="sequential"
            )
            return tuple([x.astype(kind) for x, kind in zip(results, kinds, strict=True)])

        def forward(*arrays: Any) -> Any:
            outputs = call(*arrays)
            return outputs, (arrays, outputs)

        def backward(kept: Any, cotangents: Any) -> Any:
            arrays, outputs = kept
            wrt = tuple(i for i, x in enumerate(arrays) if _is_inexact(x.dtype))
            outs = tuple(o for o, y in enumerate(outputs) if _is_inexact(y.dtype))
            kept = function.kept(arrays, outputs)
            derived = function.derived(Vjp(wrt, outs, len(kept)))
            gradients = iter(
                self(derived, [*kept, *(_conj(cotangents[o]) for o in outs)])
                if wrt and outs
                else ()
            )
            return tuple(
                _conj(next(gradients))
                if outs and i in wrt
                else np.zeros(x.shape, jax.dtypes.float0)
                for i, x in enumerate(arrays)
            )

        call.defvjp(forward, backward)
        return call(*arrays)  # type: ignore[no-any-return]


class JaxOuter(Outer):
    """Makes functions part of JAX."""

    name = "jax"
    modes = ("jit", "vmap", "grad", "jvp", "linearize", "scan", "cond", "checkpoint")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._call: Any = None

    @property
    def call(self) -> Any:
        """See `call_for`. It is made and tested at the first use."""
        if self._call is None:
            with self._lock:
                if self._call is None:
                    self._call = call_for(self)
        return self._call

    def spec(self, tensor: Any) -> Spec:
        return spec_of(tensor)

    def apply(self, function: Function, tensors: Sequence[Any]) -> Sequence[Any]:
        return self.call(function, tensors)  # type: ignore[no-any-return]

    def remarks(self) -> Sequence[str]:
        return self.call.remarks  # type: ignore[no-any-return]


OUTER = JaxOuter()
