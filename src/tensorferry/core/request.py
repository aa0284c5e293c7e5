"""`Request`: the target and the keywords of a call, in canonical names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .. import hints
from ..errors import (
    ConversionError,
    DeviceError,
    UnsupportedTypeError,
    nearest,
    shown,
    validate_word,
)
from ..hints import Hint
from . import names
from .devices import HOST, device_name, host_index
from .dtype_names import asked_dtype
from .dtypes import CASTINGS, FIT
from .leaf_dtypes import DtypeRule, is_of_its_kind, rule_of
from .named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .declaration import Declaration, Placement
    from .info import TensorInfo
    from .labels import Wanted

__all__ = [
    "COLUMN_KEYWORDS",
    "LABEL_KEYWORDS",
    "LEAVE",
    "OVERLAPS",
    "PINNED",
    "Request",
    "make_request",
    "refuse_index",
    "refuse_option",
    "refuse_unknown",
]


LEAVE = "leave"
"""A `Request.grad` for internal use: the result leaves the graph, also within one framework."""


PINNED, OVERLAPS = "pinned", "non_blocking"
"""Options: a result in page-locked memory; transfers through it that run beside the host's work."""


COLUMN_KEYWORDS = frozenset({"nulls", "pad", "ragged"})
"""Keywords for nulls and unequal rows in columns of tables."""


LABEL_KEYWORDS = frozenset({"columns", "index"})
"""Keywords for the labels of one result: see `capabilities.Options`."""


class Request(NamedTuple):
    """The target and the keywords of a call, in canonical names."""

    target: str
    copy: bool | None = None
    dtype: str | None = None
    casting: str | None = None
    device: str | None = None
    grad: str = "detach"
    out: TensorInfo | None = None
    options: tuple[str, ...] = ()
    present: tuple[str, ...] | None = None
    """The target's devices on this machine, if the plan depends on them; otherwise ``None``."""
    placement: Placement | None = None
    """How the result is laid out over devices, if ``device=`` was the target's object for that."""
    like: str | None = None
    """The dtype of the tensor in ``like=``, unless a dtype is named: see `asked_by`."""
    labels: Wanted | None = None
    """The labels for the rows and columns of the result, if there are any."""

    @property
    def is_ordinary(self) -> bool:
        """Whether no keyword was given."""
        return self == Request(self.target)

    @property
    def asks_nothing_else(self) -> bool:
        """Whether a column already in the target, in one of its dtypes, is the result itself."""
        return self.copy is not True and self.dtype in (None, FIT) and self.out is None

    def asked_by(self, info: TensorInfo) -> Request:
        """The request of one tensor: the dtype of ``like=`` is asked for if it is of the same kind.

        Python numbers have no dtype of their own, so they take that dtype, whatever its kind is.
        """
        if self.like is None:
            return self
        takes = info.weak_dtype is not None or is_of_its_kind(info.dtype, self.like)
        return self._replace(dtype=self.like if takes else None, like=None)

    def is_for_host(self, target: Declaration) -> bool:
        """Whether plans for tensors in host memory do not depend on the target's devices."""
        return self.device in (None, HOST) and HOST in target.capabilities.devices.kinds

    @property
    def needs_description(self) -> bool:
        """Whether plans depend on more than signatures: on exact sizes, or page-locked memory."""
        return self.depends_on_lengths or not {PINNED, OVERLAPS}.isdisjoint(self.options)

    @property
    def depends_on_lengths(self) -> bool:
        """Whether plans depend on the lengths of the axes."""
        return self.placement is not None or self.labels is not None


def make_request(
    target: Declaration,
    copy: bool | None,
    dtype: object,
    casting: str | None,
    device: object,
    grad: str,
    options: tuple[tuple[str, object], ...],
    like: str | None = None,
) -> Request:
    """The request for the keywords of a call.

    Args:
        target: What the target declares.
        copy: This and the other keywords are those of `tensorferry.convert`.
        dtype: See there.
        casting: See there.
        device: See there.
        grad: See there.
        options: Keywords of one framework, and their values.
        like: The dtype of the tensor in ``like=``; a `dtype` wins.

    Raises:
        TypeError, ValueError: A keyword has a value that it does not take.
        UnsupportedTypeError: No such dtype.
        DeviceError: No device has this name, or it is a CPU device other than the first.
    """
    for option, on in options:
        if option in COLUMN_KEYWORDS:
            raise TypeError(
                f"{option}= is not taken here: convert_tree(x, to, {option}=…) before it does that"
            )
        if option in LABEL_KEYWORDS:
            refuse_option(target, option)
            raise TypeError(
                f"{option}= is for one tensor: to_{target.name}(leaf, "
                f"{option}=…) labels one leaf, and like= all"
            )
        if not isinstance(on, bool):  # checked before the cache, in which 1 and True are equal
            raise TypeError(f"{option} must be True or False, not {shown(on)}")
    try:
        return _canonical_request(target, copy, dtype, casting, device, grad, options, like)
    except ConversionError:
        raise
    except TypeError:
        pass
    # A value that cannot be hashed fails in the cache. Without the cache, the check of the keywords
    # refuses it.
    return _canonical_request.__wrapped__(target, copy, dtype, casting, device, grad, options, like)


@lru_cache(maxsize=1024, typed=True)
def _canonical_request(
    target: Declaration,
    copy: bool | None,
    dtype: object,
    casting: str | None,
    device: object,
    grad: str,
    options: tuple[tuple[str, object], ...],
    like: str | None,
) -> Request:
    if copy is not None and not isinstance(copy, bool):
        raise TypeError(f"copy must be True, False or None, not {shown(copy)}")
    if casting is not None:
        validate_word("casting", casting, CASTINGS, "None")
    validate_word("grad", grad, ("detach", "error"))
    if device is None or isinstance(device, str):
        placement = None
    else:
        placement = target.placement(device)
    if placement is None:
        refuse_index(device)
    for option, _ in options:
        refuse_option(target, option)
    return Request(
        target=target.name,
        copy=copy,
        dtype=_of_one(dtype),
        casting=casting,
        device=None if device is None or placement is not None else device_name(device),
        grad=grad,
        options=tuple(sorted(option for option, on in options if on)),
        placement=placement,
        like=like if dtype is None else None,
    )


def _of_one(dtype: object) -> str | None:
    """The value of ``dtype=`` for one tensor.

    Raises:
        UnsupportedTypeError: It is not a dtype, or it is a mapping for the leaves of a tree.
    """
    if dtype is None:
        return None
    if isinstance(dtype, (Mapping, DtypeRule)):
        raise UnsupportedTypeError(
            "dtype= of one tensor is one dtype; a mapping says which each leaf of a tree takes.",
            Hint(hints.tree(dtype=rule_of(dtype).as_mapping())),
        )
    return asked_dtype(dtype)


def refuse_option(target: Declaration, option: str) -> None:
    """Raise for a keyword of some frameworks that the target does not have.

    Raises:
        TypeError: It is not one of the target's; the message says whose it is.
    """
    if option not in _options_of(target):
        raise TypeError(f"{target.name} has no option {option}=: {_who_has(option)}")


_SAME_KEYWORD = {
    "allow_copy": "copy",
    "fill_value": "nulls",
    "fillna": "nulls",
    "na_value": "nulls",
    "padding_value": "pad",
    "pin_memory": PINNED,
    "zero_copy_only": "copy",
}
"""Keywords of frameworks for which ours have another name that is not similar."""


def refuse_unknown(function: Callable[..., Any], keywords: Iterable[str]) -> None:
    """Raise for a keyword that neither the function nor a framework has.

    A function with a fixed target declares all its keywords, so there the options of frameworks are
    refused too.

    Raises:
        TypeError: There is such a keyword. The message names the function and a similar keyword.
    """
    own = set(function.__kwdefaults__ or ())
    takes_options = "like" in own  # its target is not fixed
    options = _all_options(names.known())
    if not {*keywords} <= {*own, *options, *COLUMN_KEYWORDS}:
        options = _all_options(names.found())
    if takes_options:
        known = {*own, *options, *COLUMN_KEYWORDS}
    else:
        known = own
    for keyword in keywords:
        if keyword in known:
            continue
        refused = f"{function.__name__}() got an unexpected keyword argument {keyword!r}"
        if keyword in options:
            raise TypeError(f"{refused}: {_who_has(keyword)}") from None
        instead = _done_otherwise(function, keyword)
        if instead:
            raise TypeError(f"{refused}. Write {instead}") from None
        meant = nearest(
            _SAME_KEYWORD.get(keyword, keyword), {*known, "to"} if takes_options else known
        )
        raise TypeError(
            refused if meant is None else f"{refused}. Did you mean {meant!r}?"
        ) from None


def _done_otherwise(function: Callable[..., Any], keyword: str) -> str:
    """Code for what a keyword would do, if it is another call or a result's method; else empty."""
    called = function.__name__
    target = names.known().get(called.removeprefix("to_"))
    if target is None:
        return ""
    if keyword == "like":
        return "convert(x, like=like)"
    if keyword == "requires_grad" and target.capabilities.gradients.graph:
        return f"{called}(x).requires_grad_()"
    if keyword == "name" and target.capabilities.options.labels:
        return f"{called}(x).rename(name)"
    return ""


# torch.compile reads this attribute, and does not trace the function.
refuse_unknown.__dict__["_torchdynamo_disable"] = True


def _options_of(target: Declaration) -> frozenset[str]:
    return frozenset().union(*target.capabilities.options)


def _all_options(among: Mapping[str, Declaration]) -> set[str]:
    return {name for backend in list(among.values()) for name in _options_of(backend)}


def _who_has(option: str) -> str:
    having = [backend.name for backend in names.known().values() if option in _options_of(backend)]
    return f"{' and '.join(having) or 'no framework'} {'have' if len(having) > 1 else 'has'} it"


def refuse_index(device: object) -> None:
    """Raise for a CPU device other than the first: tensorferry does not distinguish them."""
    if device is not None and host_index(device):
        raise DeviceError(
            f"cpu:{host_index(device)} cannot be asked for: on the host, "
            "results are on its first device, cpu.",
            Hint(hints.keyword("device", "cpu"), ", then to the other with its own framework"),
        )
