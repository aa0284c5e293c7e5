"""What a function does with autograd itself: the derivatives that it takes, the graphs that it leaves.

Force fields call ``x.requires_grad_()`` on an argument, and `torch.autograd.grad`. Modes of PyTorch
see that: see https://docs.pytorch.org/docs/stable/torch.overrides.html.
"""

from __future__ import annotations

from collections import deque
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .. import registry
from .tensors import BACKEND

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["AutogradUse", "Flow", "foreign_leaves", "leaves_of"]

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
"""What takes derivatives, and the position of ``retain_graph``, after which comes ``create_graph``."""


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
        """Whether it takes derivatives or sets ``requires_grad``, which the transformations of `torch.func` refuse."""
        self.switches_off = False
        """Whether it switches recording off. Forward mode takes no notice of that."""
        self.drops_graph = False
        """Whether it takes derivatives without their graph."""
        self.takes_values = ""
        """How it takes values out of PyTorch; if they are followed, only those that depend on its arguments."""
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
        made = args[0] if function == _FLAG else result
        if isinstance(made, torch.Tensor) and made.requires_grad and made.is_leaf and not before:
            self.steers = True
            self.made.append(made)
        return result

    def _derivative(self, at: int, args: Any, kwargs: Any) -> tuple[Any, Any]:
        self.drops_graph |= not (args[at + 1] if len(args) > at + 1 else kwargs.get("create_graph"))
        if not self._keeps_graphs:
            return args, kwargs
        if len(args) > at:
            return (*args[:at], True, *args[at + 1 :]), kwargs
        return args, {**kwargs, "retain_graph": True}


class Flow(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
    """Follows from which arguments the numbers of each tensor are computed, also where autograd does not.

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
        given = [
            x
            for x in torch.utils._pytree.tree_leaves((args, kwargs or {}))
            if isinstance(x, torch.Tensor)
        ]
        origins = frozenset[int]().union(*map(self.origins, given))
        result = function(*args, **(kwargs or {}))
        name = function.name().partition("::")[2]
        if origins and not name.partition(".")[0].endswith("_like") and not name.startswith("new_"):
            written = given if function._schema.is_mutable else []
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
    recorded = [each for each in results if isinstance(each, torch.Tensor) and each.requires_grad]
    found = [each for each in recorded if each.grad_fn is None]
    nodes = deque(each.grad_fn for each in recorded if each.grad_fn is not None)
    seen = set(nodes)
    while nodes:
        node = nodes.popleft()
        if hasattr(node, "variable"):
            found.append(node.variable)
        for each, _ in node.next_functions:
            if each is not None and each not in seen:
                seen.add(each)
                nodes.append(each)
    return found


def foreign_leaves(results: Iterable[Any], known: Iterable[Any]) -> list[Any]:
    """The tensors at the ends of the graphs of results that are none of the known ones."""
    ours = set(map(id, known))
    return [each for each in leaves_of(results) if id(each) not in ours]
