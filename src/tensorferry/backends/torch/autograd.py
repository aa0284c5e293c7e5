"""Call a function of PyTorch, and take its derivatives: by `torch.func`, or by autograd alone.

A call is watched for what it must not do: draw random numbers, use tensors that require grad. A
function may also use autograd itself: force fields call ``x.requires_grad_()`` on an argument, and
`torch.autograd.grad`. Modes of PyTorch see that: see
https://docs.pytorch.org/docs/stable/torch.overrides.html.

The transformations of `torch.func` refuse a function that takes derivatives by `torch.autograd`.
Autograd takes it: a batch is then one call after the other, and forward mode is the gradient of a
gradient.

A result without a graph has zeros as its gradient. That is right if it does not depend on the
arguments. If it does, the graph was lost on the way: PyTorch itself raises an error then, and so
does `derived`.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import hints
from ...core.derivations import Jvp, Vjp, Vmap, of_chosen
from ...errors import GradientError, UnsupportedTypeError
from ...hints import Hint
from .. import registry
from .tensors import BACKEND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ...core.derivations import Rule
    from ..functions import TensorFunction

    Derived = Callable[..., Sequence[Any]]

__all__ = [
    "AutogradUse",
    "Flow",
    "Watch",
    "called_again",
    "closed_over",
    "derived",
    "foreign_leaves",
    "forward",
    "leaves_of",
    "steers",
    "with_autograd",
]

torch: Any = registry.load(BACKEND).torch  # type: ignore[attr-defined]
_storage_reference: Any = import_module("torch.multiprocessing.reductions").StorageWeakRef
_FLAG = torch.Tensor.requires_grad.__set__
_STEERS = {
    torch.Tensor.requires_grad_,
    torch.Tensor.detach_,
    torch.Tensor.retain_grad,
    torch.Tensor.data.__get__,
}
_TAKES_VALUES = {
    torch.Tensor.numpy: "numpy()",
    torch.Tensor.__array__: "numpy.asarray",
    torch.Tensor.tolist: "tolist()",
    torch.Tensor.item: "item()",
    torch.Tensor.__float__: "float",
    torch.Tensor.__complex__: "complex",
    torch.Tensor.__dlpack__: "DLPack",
}
_ENGINE = {torch.autograd.grad: 3, torch.Tensor.backward: 2, torch.autograd.backward: 2}
"""What takes derivatives, and the position of ``retain_graph``, just before ``create_graph``."""


# -- what a function does with autograd ------------------------------------------------------------


class AutogradUse(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
    """Notes what the function that runs in it does with autograd.

    Args:
        flow: What its tensors are computed from, if that is followed.
        keeps_graphs: Whether a graph is kept of which it has taken a derivative, because another
            one is to be taken.
    """

    def __init__(self, flow: Flow | None = None, *, keeps_graphs: bool = False) -> None:
        super().__init__()
        self._flow = flow
        self._keeps_graphs = keeps_graphs
        self.steers = False
        """Whether it takes derivatives or sets ``requires_grad``, which `torch.func` refuses."""
        self.switches_off = False
        """Whether it switches recording off. Forward mode takes no notice of that."""
        self.drops_graph = False
        """Whether it takes derivatives without their graph."""
        self.takes_values = ""
        """How it takes values out of PyTorch; if followed, only those that depend on arguments."""
        self.made: list[Any] = []
        """The tensors that it made require grad."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        # A transformation of `torch.func` that the function itself uses takes derivatives in its
        # own way.
        if torch._C._functorch.peek_interpreter_stack() is not None:
            return function(*args, **kwargs)
        before = args[0].requires_grad if args and isinstance(args[0], torch.Tensor) else None
        if function == _FLAG and before and args[1]:
            return None  # PyTorch sets it only of leaves, also where it is set
        if function in _ENGINE:
            self.steers = True
            args, kwargs = self._derivative(_ENGINE[function], args, kwargs)
        elif (
            function in _STEERS
            or function == _FLAG
            or (before is not None and function is torch.tensor)
        ):
            self.steers = True
        elif function is torch._C._set_grad_enabled:
            self.switches_off |= not args[0]
        elif function in _TAKES_VALUES and (self._flow is None or self._flow.origins(args[0])):
            self.takes_values = self.takes_values or _TAKES_VALUES[function]
        result = function(*args, **kwargs)
        leaf = args[0] if function == _FLAG else result
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.is_leaf and not before:
            self.steers = True
            self.made.append(leaf)
        return result

    def _derivative(self, at: int, args: Any, kwargs: Any) -> tuple[Any, Any]:
        self.drops_graph |= not (args[at + 1] if len(args) > at + 1 else kwargs.get("create_graph"))
        if not self._keeps_graphs:
            return args, kwargs
        if len(args) > at:
            return (*args[:at], True, *args[at + 1 :]), kwargs
        return args, {**kwargs, "retain_graph": True}


class Flow(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
    """Follows from which arguments each tensor's numbers come, also where autograd does not.

    Integers and booleans have no derivative, so it is not followed further through them.

    Args:
        tensors: The arguments.
    """

    def __init__(self, tensors: Sequence[Any]) -> None:
        super().__init__()
        self._origins: dict[int, tuple[Any, frozenset[int]]] = {}
        for index, x in enumerate(tensors):
            self._mark(x, frozenset({index}))

    def origins(self, x: Any) -> frozenset[int]:
        """The positions of the arguments from which a tensor is computed."""
        if not _is_inexact(x) or not _has_storage(x):
            return frozenset()
        return self._origins.get(x.untyped_storage()._cdata, (None, frozenset()))[1]

    def _mark(self, x: Any, origins: frozenset[int]) -> None:
        if origins and _is_inexact(x) and _has_storage(x):
            storage = x.untyped_storage()
            # A weak reference keeps its address from being used again.
            self._origins[storage._cdata] = _storage_reference(storage), origins | self.origins(x)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        taken = [
            x
            for x in torch.utils._pytree.tree_leaves((args, kwargs or {}))
            if isinstance(x, torch.Tensor)
        ]
        origins = frozenset[int]().union(*map(self.origins, taken))
        result = function(*args, **(kwargs or {}))
        name = function.name().partition("::")[2]
        if origins and not name.partition(".")[0].endswith("_like") and not name.startswith("new_"):
            if function._schema.is_mutable:
                written = taken
            else:
                written = []
            for x in (*torch.utils._pytree.tree_leaves(result), *written):
                if isinstance(x, torch.Tensor):
                    self._mark(x, origins)
        return result


def _is_inexact(x: Any) -> bool:
    return x.is_floating_point() or x.is_complex()  # type: ignore[no-any-return]


def _has_storage(x: Any) -> bool:
    return x.layout is torch.strided and not torch._C._functorch.is_functorch_wrapped_tensor(x)


def leaves_of(results: Iterable[Any]) -> list[Any]:
    """The tensors at the ends of the graphs of results."""
    recorded = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
    leaves = [x for x in recorded if x.grad_fn is None]
    nodes = deque(x.grad_fn for x in recorded if x.grad_fn is not None)
    seen = set(nodes)
    while nodes:
        node = nodes.popleft()
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        for next_node, _ in node.next_functions:
            if next_node is not None and next_node not in seen:
                seen.add(next_node)
                nodes.append(next_node)
    return leaves


def foreign_leaves(results: Iterable[Any], known: Iterable[Any]) -> list[Any]:
    """The tensors at the ends of the graphs of results that are none of the known ones."""
    ours = set(map(id, known))
    return [leaf for leaf in leaves_of(results) if id(leaf) not in ours]


_UNLIKELY_SEED = 0x7E6A5EED5EED5EED
_CLOSED_OVER = (
    "pass them as arguments; the parameters of a module: apply, params = wrap_module(module), or "
    "module.requires_grad_(False) if they are constants"
)
_RANDOM = "without generator=, they differ at each call, also when its gradient is computed"


# -- calls -----------------------------------------------------------------------------------------


def steers(flat: TensorFunction) -> bool:
    """Whether a function uses autograd itself, or may: not for transformations of `torch.func`."""
    return flat.steers_autograd or flat.checks_each_call


def forward(flat: TensorFunction, *tensors: Any) -> Sequence[Any]:
    """Call a function for its values.

    Raises:
        GradientError: It uses tensors that require grad and are not among its arguments.
        UnsupportedTypeError: It uses random numbers.
    """
    if steers(flat):
        with torch.inference_mode(False), torch.enable_grad():
            mine = [x.clone() if x.is_inference() else x for x in tensors]
            results = with_autograd(flat, mine, plain=True)
        return [y.detach() if isinstance(y, torch.Tensor) else y for y in results]
    results = flat.plain(*tensors)
    for y in results:
        if isinstance(y, torch.Tensor) and y.requires_grad:
            raise closed_over(flat)
    return results


def with_autograd(
    flat: TensorFunction, tensors: Sequence[Any], *, plain: bool = False
) -> Sequence[Any]:
    """Call a function that may use autograd itself.

    Args:
        flat: The function.
        tensors: Its arguments, which are only for this call.
        plain: Whether numbers of Python's stay what they are.

    Raises:
        GradientError: It uses tensors that require grad and are not among its arguments.
        UnsupportedTypeError: It uses random numbers.
    """
    before = [x for x in tensors if x.requires_grad]
    for x in before:
        # So that `backward` fills ``x.grad``, as for a leaf.
        x.retain_grad()
    with AutogradUse(keeps_graphs=bool(before)) as use:
        call = partial(_watched, flat) if flat.checks_each_call else _call
        results = call(flat.plain if plain else flat, tensors)
    if not flat.makes_leaves and not before and foreign_leaves(results, [*tensors, *use.made]):
        raise closed_over(flat)
    for x in tensors:
        # A gradient with a graph refers to the tensor that has it.
        x.grad = None
    return results


def _watched(
    flat: TensorFunction, function: Callable[..., Sequence[Any]], tensors: Sequence[Any]
) -> Sequence[Any]:
    with Watch(flat) as watch:
        results = function(*tensors)
    watch.refuse()
    return results


def called_again(flat: TensorFunction, tensors: Sequence[Any]) -> Sequence[Any]:
    """Call the function again, for its derivative. It must give the same results.

    Raises:
        GradientError: It uses random numbers.
    """
    call = partial(with_autograd if steers(flat) else _call, flat)
    if not flat.generators:
        return call(tensors)
    known = (reference() for reference in flat.generators)
    before = {generator: generator.get_state() for generator in known if generator is not None}
    try:
        seeded = {
            generator: generator.manual_seed(_UNLIKELY_SEED).get_state() for generator in before
        }
        results = call(tensors)
        if any(
            generator.initial_seed() == _UNLIKELY_SEED
            and not torch.equal(generator.get_state(), state)
            for generator, state in seeded.items()
        ):
            raise GradientError(
                f"{flat.source.name} draws random numbers from a generator without setting its "
                "seed, and would draw "
                "others for its derivative.",
                "generator.manual_seed(int(seed)) in the function, with the seed as an argument",
            )
    finally:
        for generator, state in before.items():
            generator.set_state(state)
    return results


def _call(function: Callable[..., Sequence[Any]], tensors: Sequence[Any]) -> Sequence[Any]:
    return function(*tensors)


def closed_over(flat: TensorFunction) -> GradientError:
    """The error for a function that uses tensors that require grad and are not its arguments."""
    return GradientError(
        f"{flat.source.name} uses tensors that require grad and are not among its arguments: no "
        "gradient would "
        "reach them.",
        _CLOSED_OVER,
    )


class _Reference:
    """Stands for a weak reference to a generator: gives it as long as something else has it too.

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
        return (
            isinstance(other, _Reference)
            and self._generator is not None
            and self._generator is other._generator
        )

    def __hash__(self) -> int:
        return self._identity


# Generators of PyTorch 2.11 take no weak references.
if torch.Generator.__weakrefoffset__:
    _reference: Any = weakref.ref
else:
    _reference = _Reference


class Watch(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
    """Finds out whether the default random generators are used."""

    def __init__(self, flat: TensorFunction) -> None:
        super().__init__()
        self._flat = flat
        self._random_operator = ""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        arguments = (*args, *(kwargs or {}).values())
        if torch.Tag.nondeterministic_seeded in function.tags:
            generators = {x for x in arguments if isinstance(x, torch.Generator)}
            alive = {generator for generator in self._flat.generators if generator() is not None}
            self._flat.generators = frozenset(alive.union(map(_reference, generators)))
            self._random_operator = self._random_operator or ("" if generators else str(function))
        return function(*args, **(kwargs or {}))

    def refuse(self) -> None:
        """Raise if one was used."""
        if self._random_operator:
            raise UnsupportedTypeError(
                f"{self._flat.source.name} draws random numbers "
                f"({self._random_operator}): {_RANDOM}.",
                "draw them outside and pass them as an argument; "
                "module.eval() switches dropout off",
            )


_here = threading.local()


# -- derivatives -----------------------------------------------------------------------------------


def derived(flat: TensorFunction, rules: tuple[Rule, ...]) -> Derived:
    """A function of tensors: `flat`, with the rules applied in order."""
    first = next((index for index, rule in enumerate(rules) if not isinstance(rule, Vmap)), None)
    ways = _by_transformations(flat, rules, first), _by_autograd(flat, rules, first)
    forward_mode = any(isinstance(rule, Jvp) for rule in rules)
    transforms = not all(isinstance(rule, Vjp) for rule in rules)

    def call(*tensors: Any) -> Sequence[Any]:
        # Forward mode of PyTorch does not notice that recording is off.
        alone = steers(flat) or (flat.switches_autograd_off and forward_mode)
        before, _here.lost = getattr(_here, "lost", None), None
        try:
            try:
                results = ways[alone](*tensors)
            except RuntimeError:
                if alone or not transforms:
                    raise
                # The transformations also refuse operations and functions without rules for them.
                alone, _here.lost = True, None
                results = ways[alone](*tensors)
                flat.steers_autograd = True
            if _here.lost is not None:
                _refuse_lost(flat, rules, _here.lost, tensors)
        finally:
            _here.lost = before
        if alone:
            return [y.detach() for y in results]
        return results

    return call


# -- by the transformations of torch.func ----------------------------------------------------------


def _by_transformations(
    flat: TensorFunction, rules: tuple[Rule, ...], first: int | None
) -> Derived:
    """Gradients use autograd, unless a later transformation of `torch.func` needs its own."""
    function: Derived = lambda *tensors: called_again(flat, tensors)  # noqa: E731 - it is replaced in the loop
    last = max((index for index, rule in enumerate(rules) if not isinstance(rule, Vjp)), default=-1)
    for index, rule in enumerate(rules):
        if isinstance(rule, Vmap):
            function = _vmap(function, rule)
        elif isinstance(rule, Jvp):
            function = _jvp(function, rule, index == first)
        elif index > last:
            function = _vjp_by_autograd(function, rule, index == first, lambda: flat.changes_inputs)
        else:
            function = _vjp(function, rule, index == first)
    return function


def _vjp(function: Derived, rule: Vjp, is_first: bool) -> Derived:
    def gradients(*tensors: Any) -> Sequence[Any]:
        inputs, cotangents = tensors[: rule.kept], tensors[rule.kept :]
        only = of_chosen(function, inputs, rule)
        watched = _noting(only, rule, _has_graph) if is_first else None
        with torch.inference_mode(False), torch.enable_grad():
            differentiated = watched or only
            pulled: Any = torch.func.vjp(differentiated, *(inputs[index] for index in rule.wrt))
            pulled_back: Sequence[Any] = pulled[1](tuple(cotangents))
        return pulled_back

    return gradients


def _jvp(function: Derived, rule: Jvp, is_first: bool) -> Derived:
    def tangents(*tensors: Any) -> Sequence[Any]:
        inputs, input_tangents = tensors[: rule.kept], tensors[rule.kept :]
        primals = tuple(inputs[index] for index in rule.wrt)
        only = of_chosen(function, inputs, rule)
        watched = _noting(only, rule, _has_tangent) if is_first else None
        differentiated = watched or only
        pushed: Any = torch.func.jvp(differentiated, primals, tuple(input_tangents))
        return pushed[1]  # type: ignore[no-any-return]

    return tangents


def _vmap(function: Derived, rule: Vmap) -> Derived:
    def batch(*tensors: Any) -> Sequence[Any]:
        batched: Any = torch.vmap(lambda *parts: tuple(function(*parts)), in_dims=tuple(rule.dims))(
            *tensors
        )
        return batched  # type: ignore[no-any-return]

    return batch


def _noting(
    function: Callable[..., Any], rule: Vjp | Jvp, is_linked: Callable[[Any], bool]
) -> Callable[..., Any]:
    """The function, which notes the results that have no derivative."""

    def noting(*some: Any) -> Any:
        results = function(*some)
        _note_lost([out for out, y in zip(rule.outs, results, strict=True) if not is_linked(y)])
        return results

    return noting


def _has_graph(y: Any) -> bool:
    level = torch._C._functorch.maybe_current_level()
    return torch._C._functorch._unwrap_for_grad(y, level).requires_grad  # type: ignore[no-any-return]


def _has_tangent(y: Any) -> bool:
    return torch.autograd.forward_ad.unpack_dual(y).tangent is not None


# -- by autograd alone -----------------------------------------------------------------------------


def _by_autograd(flat: TensorFunction, rules: tuple[Rule, ...], first: int | None) -> Derived:
    function: Derived = partial(_apart, flat)
    for index, rule in enumerate(rules):
        if isinstance(rule, Vmap):
            function = _one_by_one(function, rule)
        elif isinstance(rule, Jvp):
            function = _jvp_by_autograd(function, rule, index == first)
        else:
            function = _vjp_by_autograd(function, rule, index == first, lambda: False)
    return partial(_recorded, function)


def _recorded(function: Derived, *tensors: Any) -> Sequence[Any]:
    with torch.inference_mode(False), torch.enable_grad():
        return function(*tensors)


def _apart(flat: TensorFunction, *tensors: Any) -> Sequence[Any]:
    """Call a function with copies: it may write to them, make them require grad, fill ``grad``."""
    return called_again(flat, [x.clone() for x in tensors])


def _one_by_one(function: Derived, rule: Vmap) -> Derived:
    def batch(*tensors: Any) -> Sequence[Any]:
        pairs = list(zip(tensors, rule.dims, strict=True))
        rows = [
            function(*(x if axis is None else x.select(axis, i) for x, axis in pairs))
            for i in range(rule.size)
        ]
        return [torch.stack(column) for column in zip(*rows, strict=True)]

    return batch


class _Started(NamedTuple):
    """A call whose derivative is to be computed.

    Args:
        wrt: The inputs for which it is computed.
        results: The results of the call.
        around: Whether its derivative is differentiated again.
    """

    wrt: list[Any]
    results: Sequence[Any]
    around: bool


def _start(
    function: Derived, tensors: Sequence[Any], rule: Vjp | Jvp, copies: bool = False
) -> _Started:
    inputs = list(tensors[: rule.kept])
    around = any(tensor.requires_grad for tensor in tensors)
    for index in rule.wrt:
        x = inputs[index]
        if x.is_inference():
            x = x.clone()
        inputs[index] = x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
    wrt = [inputs[index] for index in rule.wrt]
    if copies:
        inputs = [x.clone() if x.requires_grad else x for x in inputs]
    return _Started(wrt, function(*inputs), around)


def _vjp_by_autograd(
    function: Derived, rule: Vjp, is_first: bool, copies: Callable[[], bool]
) -> Derived:
    def gradients(*tensors: Any) -> Sequence[Any]:
        cotangents = tensors[rule.kept :]
        with torch.inference_mode(False), torch.enable_grad():
            wrt, results, around = _start(function, tensors, rule, copies())
            lost = [out for out in rule.outs if not results[out].requires_grad]
            if is_first and lost:
                _note_lost(lost)
            pairs = [
                (results[o], ct)
                for o, ct in zip(rule.outs, cotangents, strict=True)
                if o not in lost
            ]
            if not pairs:
                return [torch.zeros_like(x, requires_grad=False) for x in wrt]
            pulled_back: Sequence[Any] = torch.autograd.grad(
                [y for y, _ in pairs],
                wrt,
                [ct for _, ct in pairs],
                create_graph=around,
                allow_unused=True,
            )
            if is_first and any(x is None for x in pulled_back):
                _note_detached(rule, pulled_back, [y for y, _ in pairs], wrt)
            return [
                torch.zeros_like(x) if y is None else y
                for x, y in zip(wrt, pulled_back, strict=True)
            ]

    return gradients


def _jvp_by_autograd(function: Derived, rule: Jvp, is_first: bool) -> Derived:
    """The gradient is linear in the cotangents, so its own gradient, of a tangent, is a tangent."""

    def tangents(*tensors: Any) -> Sequence[Any]:
        input_tangents = tensors[rule.kept :]
        wrt, results, around = _start(function, tensors, rule)
        lost = [out for out in rule.outs if not results[out].requires_grad]
        if is_first and lost:
            _note_lost(lost)
        by_output = {out: torch.zeros_like(results[out], requires_grad=False) for out in rule.outs}
        linked = [out for out in rule.outs if out not in lost]
        if not linked:
            return list(by_output.values())
        cotangents = [torch.zeros_like(results[out]).detach().requires_grad_() for out in linked]
        pulled = torch.autograd.grad(
            [results[out] for out in linked], wrt, cotangents, create_graph=True, allow_unused=True
        )
        if is_first and any(x is None for x in pulled):
            _note_detached(rule, pulled, [results[out] for out in linked], wrt)
        pairs = [
            (x, t)
            for x, t in zip(pulled, input_tangents, strict=True)
            if x is not None and x.requires_grad
        ]
        if pairs:
            pushed = torch.autograd.grad(
                [x for x, _ in pairs],
                cotangents,
                [t for _, t in pairs],
                create_graph=around,
                allow_unused=True,
                materialize_grads=True,
            )
            by_output.update(zip(linked, pushed, strict=True))
        return list(by_output.values())

    return tangents


# -- derivatives that are zeros, though the results depend on the arguments ------------------------


class _Lost:
    """What has no derivative in a call.

    Args:
        outs: The results without a graph.
        wrt: The inputs that no graph reaches, though it ends in other tensors than the inputs.
    """

    def __init__(self) -> None:
        self.outs: set[int] = set()
        self.wrt: set[int] = set()


def _lost() -> _Lost:
    if _here.lost is None:
        _here.lost = _Lost()
    return _here.lost  # type: ignore[no-any-return]


def _note_lost(outs: Sequence[int]) -> None:
    if outs:
        _lost().outs.update(outs)


def _note_detached(
    rule: Vjp | Jvp, gradients: Sequence[Any], results: Sequence[Any], wrt: Sequence[Any]
) -> None:
    ours = set(map(id, wrt))
    if any(id(leaf) not in ours for leaf in leaves_of(results)):
        _lost().wrt.update(index for index, x in zip(rule.wrt, gradients, strict=True) if x is None)


def _refuse_lost(
    flat: TensorFunction, rules: Sequence[Rule], lost: _Lost, tensors: Sequence[Any]
) -> None:
    """Raise if derivatives are zero only because a graph was lost; forward mode: warn if some are.

    Raises:
        GradientError: They are. PyTorch itself raises an error where no result has a graph.
    """
    rule = next(rule for rule in rules if not isinstance(rule, Vmap))
    extra = tensors[rule.kept : rule.kept + len(rule.outs if isinstance(rule, Vjp) else rule.wrt)]
    asked = set(rule.outs)
    if isinstance(rule, Vjp):
        asked = {out for out, ct in zip(rule.outs, extra, strict=True) if not _is_zero(ct)}
        moved = set(rule.wrt)
    else:
        moved = {i for i, tangent in zip(rule.wrt, extra, strict=True) if not _is_zero(tangent)}
    outs, wrt = lost.outs & asked, lost.wrt & moved
    if not moved or not asked or not (outs or wrt):
        return
    inputs = _sample(tensors[: flat.tensors], rules)
    if inputs is None:
        return
    with torch.inference_mode(False), torch.enable_grad():
        leaves = [
            x.clone().requires_grad_() if i in moved else x.clone() for i, x in enumerate(inputs)
        ]
        copies = [x.clone() for x in leaves]
        flow = Flow(copies)
        with flow, AutogradUse(flow) as use:
            results = called_again(flat, copies)
    origins = {
        out: flow.origins(results[out]) & moved for out in outs if not results[out].requires_grad
    }
    depends = any(origins.values()) or bool(use.takes_values)
    if depends and (outs == asked or use.drops_graph):
        raise _without_graph(flat, use)
    constant = [out for out, is_constant in origins.items() if is_constant or use.takes_values]
    if constant and isinstance(rule, Jvp):
        flat.warn_of_zeros(constant)
    ends = frozenset[int]().union(
        *(flow.origins(leaf) for leaf in leaves_of(results) if leaf not in _Same(leaves))
    )
    if wrt & ends:
        raise GradientError(
            f"{flat.source.name} differentiates a copy of {flat.path(min(wrt & ends))} that is "
            "detached from it, so that no gradient would reach it.",
            Hint(hints.code("x.requires_grad_()"), " of the argument itself, without a detach")
            | flat.hint_of_zeros(),
        )


class _Same:
    """Tensors, to look for one of them by identity."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self._ids = set(map(id, tensors))

    def __contains__(self, x: object) -> bool:
        return id(x) in self._ids


def _without_graph(flat: TensorFunction, use: AutogradUse) -> GradientError:
    if use.drops_graph:
        why = "takes derivatives without a graph"
        hint = "torch.autograd.grad(y, x, create_graph=True), or torch.func.grad"
    elif use.takes_values:
        why = f"takes values out of PyTorch ({use.takes_values})"
        hint = "tensors of PyTorch from argument to result"
    elif use.switches_off:
        why = "computes under torch.no_grad()"
        hint = "torch.enable_grad(), or the function without torch.no_grad()"
    else:
        why = "detaches its result (detach(), .data, inference_mode)"
        hint = "the function without a detach"
    return GradientError(
        f"{flat.source.name} {why}, so that the gradient of its result would be zeros, though it "
        "depends on the arguments.",
        f"{hint}; or {flat.hint_of_zeros()}",
    )


def _is_zero(x: Any) -> bool:
    return not x.to(torch.complex128 if x.is_complex() else torch.float64).any()


def _sample(inputs: Sequence[Any], rules: Sequence[Rule]) -> list[Any] | None:
    """The first of a batch of inputs; ``None`` if there is none."""
    samples = list(inputs)
    for rule in reversed(rules):
        if not isinstance(rule, Vmap):
            continue
        if not rule.size:
            return None
        pairs = zip(samples, rule.dims, strict=False)
        samples = [x if axis is None else x.select(axis, 0) for x, axis in pairs]
    return samples
