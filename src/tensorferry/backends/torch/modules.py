"""A PyTorch module as a function of its parameters and buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import UnsupportedTypeError
from .. import registry
from .tensors import BACKEND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["opened"]

torch: Any = registry.load(BACKEND).torch  # type: ignore[attr-defined]


def opened(module: Any, state: bool) -> tuple[Callable[..., Any], Sequence[dict[str, Any]]]:
    """A module as a function of its trainable parameters (with `state`, also of its buffers), and these, by name."""
    trained = {name: each for name, each in module.named_parameters() if each.requires_grad}
    buffers = dict(module.named_buffers())
    name = type(module).__qualname__

    def apply(params: Any, /, *args: Any, **keywords: Any) -> Any:
        # In training mode, a module may write into its buffers, so it gets copies.
        copies = {key: each.clone() for key, each in module.named_buffers()}
        tensors = {**params, **copies}
        before = {key: each._version for key, each in copies.items()}
        result = torch.func.functional_call(module, tensors, args, keywords)
        changed = [
            key
            for key, each in copies.items()
            if tensors[key] is not each or each._version != before[key]
        ]
        if changed:
            raise UnsupportedTypeError(
                f"{name} changes its buffers when it is called ({changed[0]}), which a pure function must not.",
                "apply, params, state = wrap_module(module, state=True), or module.eval()",
            )
        return result

    def apply_with_state(params: Any, state: Any, /, *args: Any, **keywords: Any) -> Any:
        copies = {key: each.clone() for key, each in state.items()}
        tensors = {**params, **copies}
        result = torch.func.functional_call(module, tensors, args, keywords)
        return result, {key: tensors[key].detach() for key in copies}

    chosen = apply_with_state if state else apply
    chosen.__qualname__ = chosen.__name__ = name
    return chosen, [trained, buffers] if state else [trained]
