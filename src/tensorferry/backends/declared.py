"""Make plans only from frameworks' declarations: without a framework or NumPy, in a browser.

The playground in the documentation uses this.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from ..core import names
from ..core.declaration import caller_of
from ..core.names import EXCHANGE
from ..core.request import make_request
from ..errors import ConversionError, UnknownFrameworkError
from ..planning.builder import as_of_object
from ..planning.planner import make_plan
from ..planning.preconditions import refuse_place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from ..core.declaration import Declared
    from ..core.info import TensorInfo
    from ..planning.plan import Plan
    from ..typing import Casting, Grad, Options

__all__ = ["declarations", "explain", "stand_in"]


@cache
def declarations() -> Mapping[str, Declared]:
    """What each framework with a folder here declares, by its name.

    >>> sorted(declarations())[:3]
    ['array-like', 'arrow', 'cupy']
    """
    import pkgutil

    from .. import backends as package

    folders = [module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg]
    all_declared = [
        import_module(f"{package.__name__}.{name}.declared").DECLARED for name in folders
    ]
    return {declaration.name: declaration for declaration in all_declared}


def explain(
    info: TensorInfo,
    to: str,
    *,
    copy: bool | None = None,
    dtype: object = None,
    casting: Casting | None = None,
    device: object = None,
    grad: Grad = "detach",
    **options: Unpack[Options],
) -> Plan:
    """The plan of `tensorferry.explain` for a description, without importing any framework.

    >>> from tensorferry import TensorInfo
    >>> explain(TensorInfo("torch", (3, 4), device="cuda:0", requires_grad=True), "numpy").code
    'y = x.detach().cpu().numpy()'

    Args:
        info: The tensor, which need not exist.
        to: The canonical name of the target.
        copy: As for `tensorferry.convert`.
        dtype: As for `tensorferry.convert`.
        casting: As for `tensorferry.convert`.
        device: As for `tensorferry.convert`.
        grad: As for `tensorferry.convert`.
        **options: As for `tensorferry.convert`.

    Raises:
        TypeError, ValueError: A keyword's value is not one of those that it takes, or the target
            has no such option.
        ConversionError: There is no such framework, no such tensor, or no such plan; the message
            says why.
    """
    target = _named(to)
    try:
        request = make_request(target, copy, dtype, casting, device, grad, tuple(options.items()))
        source = _named(info.framework)
        refuse_place(info, source)
        info = as_of_object(info, request, source, target)
        return make_plan(info, request, source, target, _named(EXCHANGE))
    except ConversionError as error:
        error.complete_hint(caller_of("explain", target))
        raise


def stand_in() -> None:
    """Make the declarations known to `TensorInfo`, if the registry of backends is not loaded."""
    if not names.LOOKUPS:
        names.LOOKUPS.append(
            names.Lookup(lambda name: _named(name).name, _named, declarations, declarations)
        )


def _named(name: object) -> Declared:
    if isinstance(name, str):
        declaration = declarations().get(name)
    else:
        declaration = None
    if declaration is None:
        raise UnknownFrameworkError(
            f"{name!r} is not the name of a framework.", f"one of {', '.join(declarations())}"
        )
    return declaration
