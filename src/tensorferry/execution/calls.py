"""Decorators of public conversions: try the fast path, read the keywords, keep tracers out."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, cast

from .. import hints
from ..backends import fast_paths, registry, tracers
from ..core.generics import TypeVar
from ..core.request import COLUMN_KEYWORDS, LABEL_KEYWORDS, refuse_unknown
from ..errors import ConversionError, UnsupportedTypeError
from .named_arguments import refuse_beyond
from .recipes import conversion_as
from .run import convert as convert_one
from .target import known_like, name_like_device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..core.labels import Labels
    from .recipes import Conversion

    LabelsBySource = Mapping[str, Labels | None]

__all__ = ["converts", "converts_to"]

Function = TypeVar("Function", bound="Callable[..., Any]")


def converts_to(name: str) -> Callable[[Function], Function]:
    """Make the declaration of a conversion to the framework `name` the function that converts.

    It takes ``**keywords``: with the declared ones in its code, Python would fill in each default,
    and the call would take twice as long. `inspect.signature` shows those of the declaration.
    """
    paths, not_accepted = fast_paths.paths_to(name), fast_paths.NOT_ACCEPTED

    def decorate(function: Function) -> Function:
        @wraps(function)
        def conversion(x: Any, /, *beyond: Any, **keywords: Any) -> Any:
            if keywords or beyond:
                if beyond:
                    refuse_beyond(function, (x,), beyond)
                return _convert_for(function, x, name, keywords)
            try:
                result = paths[type(x)](x)
            except not_accepted:
                result = None
            if result is not None:
                return result
            if type(x) not in paths:
                return _convert_first(function, x, name)
            return _convert_for(function, x, name, {})

        return cast("Function", conversion)

    return decorate


def converts(function: Function) -> Function:
    """Make the declaration of a conversion whose target is an argument the function that converts."""
    paths_to, not_accepted = fast_paths.PATHS, fast_paths.NOT_ACCEPTED

    @wraps(function)
    def conversion(x: Any, /, to: Any = None, *beyond: Any, **keywords: Any) -> Any:
        if beyond:
            refuse_beyond(function, (x, to), beyond)
        if not keywords:
            try:
                result = paths_to[to][type(x)](x)
            except not_accepted:
                result = None
            if result is not None:
                return result
            if type(to) is str and to in paths_to and type(x) not in paths_to[to]:
                return _convert_first(function, x, to)
        return _convert_to(function, x, to, keywords)

    return cast("Function", conversion)


def _convert_to(function: Callable[..., Any], x: Any, to: object, keywords: dict[str, Any]) -> Any:
    """Convert for a function whose target is given as `to`, or as a tensor in ``like=``."""
    if "like" in keywords:
        like = keywords.pop("like")
        if to is None and not keywords and (known := known_like(like)) is not None:
            _, conversion = known
            return _convert_for(function, x, "", keywords, conversion)
        name, theirs, keywords["device"] = name_like_device(to, like, keywords.get("device"))
        return _convert_for(function, x, name, keywords, None, theirs, _labels_like(name, like))
    return _convert_for(function, x, name_like_device(to, None, None)[0], keywords)


def _labels_like(name: str, like: object) -> LabelsBySource | None:
    """The labels of the tensor in ``like=``, for a target."""
    from .target import labels_like

    labels = labels_like(name, like)
    return None if labels is None else {"like": labels}


@tracers.untraced
def _convert_for(
    function: Callable[..., Any],
    x: Any,
    name: str,
    keywords: dict[str, Any],
    conversion: Conversion | None = None,
    like: str | None = None,
    labels: LabelsBySource | None = None,
) -> Any:
    """Convert for a public function.

    Args:
        function: The function.
        x: The tensor.
        name: The name of the target.
        keywords: The keywords of the call.
        conversion: The conversion, if it is already known.
        like: The dtype of the tensor in ``like=``.
        labels: The labels for the result, besides those in the keywords, by where they come from:
            see `Wanted`.
    """
    if not tracers.all_kept_out and tracers.may_be_active():
        shielded = tracers.shield(_convert_for)
        if shielded is not _convert_for:
            return shielded(function, x, name, keywords, conversion, like, labels)
    try:
        if labels is not None or not _OF_THE_CALL.isdisjoint(keywords):
            return _convert_with(function, x, name, keywords, like, labels or {})
        if conversion is None:
            conversion = _conversion_as(name, keywords, like)
        return convert_one(x, conversion)
    except ConversionError as error:
        target = name if conversion is None else conversion.target.name
        error.complete_hint(registry.caller(function.__name__, target))
        raise
    except TypeError:
        refuse_unknown(function, keywords)
        raise


@tracers.untraced
def _convert_first(function: Callable[..., Any], x: Any, name: str) -> Any:
    """Convert without keywords, where no tensor of this type was converted to the target before.

    If the type has a fast path, it comes with the frameworks. The planner need not be imported
    then.
    """
    if not tracers.all_kept_out and tracers.may_be_active():
        shielded = tracers.shield(_convert_first)
        if shielded is not _convert_first:
            return shielded(function, x, name)
    try:
        result = registry.first_path(x, name)(x)
    except fast_paths.NOT_ACCEPTED:
        result = None
    if result is None:
        return _convert_for(function, x, name, {})
    return result


_OF_THE_CALL = COLUMN_KEYWORDS | LABEL_KEYWORDS | {"out"}
"""The keywords that belong to one call, and not to the conversion that is kept for all calls."""


def _convert_with(
    function: Callable[..., Any],
    x: Any,
    name: str,
    keywords: dict[str, Any],
    like: str | None,
    labels: LabelsBySource,
) -> Any:
    """Convert with ``out=``, with labels, or with keywords for columns."""
    out = None
    if not LABEL_KEYWORDS.isdisjoint(keywords):
        labels = _with_given(function, name, keywords, labels)
    if "out" in keywords:
        if "out" not in (function.__kwdefaults__ or ()):
            refuse_unknown(function, keywords)
        out = keywords.pop("out")
    if not COLUMN_KEYWORDS.isdisjoint(keywords):
        from .column_keywords import Masked, Rows, apply_column_keywords, take_column_keywords

        asked = keywords.get("dtype"), keywords.get("casting")
        x = apply_column_keywords(x, *asked, like=like, **take_column_keywords(keywords))
        if isinstance(x, (Masked, Rows)):
            return _convert_several(function, x, name, keywords, like, labels, out)
    return convert_one(x, _conversion_as(name, keywords, like).labelled(**labels), out)


def _with_given(
    function: Callable[..., Any], name: str, keywords: dict[str, Any], labels: LabelsBySource
) -> LabelsBySource:
    """The labels, with those in the keywords of the call, which are taken out of them."""
    from .target import take_labels

    own = function.__kwdefaults__ or {}
    if not LABEL_KEYWORDS.intersection(keywords) <= own.keys():
        refuse_unknown(function, keywords)
    return {**labels, "given": take_labels(name, keywords)}


def _conversion_as(name: str, keywords: dict[str, Any], like: str | None) -> Conversion:
    try:
        return conversion_as(name, like, **keywords)
    except ConversionError:
        raise
    except TypeError:
        pass
    # A value that cannot be hashed fails in the cache. Without the cache, the check of the keywords
    # refuses it.
    return conversion_as.__wrapped__(name, like, **keywords)


def _convert_several(
    function: Callable[..., Any],
    x: Any,
    name: str,
    keywords: dict[str, Any],
    like: str | None,
    labels: LabelsBySource,
    out: Any = None,
) -> Any:
    """Convert values and their mask, as a pair; or rows, as a list.

    The mask keeps its own dtype.
    """
    if out is not None:
        raise UnsupportedTypeError(
            "out= is one tensor, and this gives several.", hints.without("out")
        )
    from .column_keywords import Rows, full_mask

    if isinstance(x, Rows):
        _refuse_of_rows(labels)
        return [
            _convert_row(function, source, f"x[{index}]", name, keywords, like)
            for index, source in enumerate(x)
        ]
    if isinstance(x.values, Rows):
        values = _convert_several(function, x.values, name, dict(keywords), like, labels)
    else:
        values = _convert_for(function, x.values, name, dict(keywords), None, like, labels)
    mask = full_mask(values) if x.mask is None else x.mask
    kept = {
        key: value for key, value in keywords.items() if key not in ("dtype", "casting", "copy")
    }
    if isinstance(mask, Rows):
        return values, _convert_several(function, mask, name, kept, None, labels)
    target = registry.ready(name)
    if target.capabilities.options.labels:
        own = target.labels_of(values)
    else:
        own = None
    return values, _convert_for(function, mask, name, kept, None, None, {**labels, "own": own})


def _convert_row(
    function: Callable[..., Any],
    row: Any,
    path: str,
    name: str,
    keywords: Mapping[str, Any],
    like: str | None,
) -> Any:
    """A row as a tensor; the error for a row of a list is about its place in the list."""
    try:
        return _convert_for(function, row, name, dict(keywords), None, like)
    except ConversionError as error:
        if not isinstance(row, (list, tuple)):
            raise
        from ..sequences.diagnostics import at_member  # here, because only an error needs it

        raise at_member(error, path) from error


def _refuse_of_rows(labels: LabelsBySource) -> None:
    """Raise for labels of one result where each row becomes one.

    Raises:
        UnsupportedTypeError: There are such labels.
    """
    labels_given = labels.get("given")
    if labels_given is not None:
        keyword = "columns" if labels_given.index is None else "index"
        raise UnsupportedTypeError(
            f'{keyword}= labels one result, and ragged="rows" gives several.',
            hints.without(keyword),
        )


# torch.compile reads this attribute if it comes here before the tracers are kept out.
for _function in (_convert_to, tracers.shield):
    _function.__dict__["_torchdynamo_disable"] = True
