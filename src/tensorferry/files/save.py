"""Make the contents of a file from a tree of tensors in memory."""

from __future__ import annotations

import re
from collections import OrderedDict, defaultdict, deque
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends import registry
from ..backends.no_tensor import TAKEN, UNCALLED, has_no_numbers, state_of, takes_nothing
from ..backends.nodes import dotted, item
from ..core.names import EXCHANGE
from ..errors import ConversionError, UnsupportedTypeError, an
from ..execution.recipes import conversion_as
from ..execution.run import convert, prepare_unread
from ..trees.containers import openers_of
from ..trees.failures import hint_for_leaf
from ..trees.leaves import LeafRule
from .base.contents import NOTHING, Contents, Ref, Special
from .base.nesting import DEEPEST, names, relabel
from .base.objects import Placeholder
from .base.raw import mapped
from .base.stored import Stored, chunks
from .base.tree_json import FACTORIES, MOST_BITS
from .base.wording import strings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from mmap import mmap

    from ..backends.nodes import Node
    from ..hints import Hint

__all__ = ["contents_of", "places_in"]

_PLAIN = (str, bytes, int, float, complex, bool, type(None))


class Held(Stored):
    """A tensor of any framework, which is brought to the host only while its values are read."""

    __slots__ = ("_key", "dtype", "shape", "tensor")

    def __init__(self, tensor: Any) -> None:
        backend, info, handle = registry.backend_of(tensor).open(tensor)
        self.tensor = tensor
        self.dtype = info.dtype
        self.shape = info.shape
        if info.abstract is not None:
            # Refused now, when it is known where it is, and not while the file is written.
            prepare_unread(tensor, conversion_as(EXCHANGE))
        # Only a tensor's own memory still exists. The address of a temporary copy may be used
        # again.
        owns = handle is tensor and info.device == "cpu" and info.abstract is None
        pointer = backend.pointer(handle) if owns else None
        bits = info.swapped, info.conjugate, info.negative
        self._key: Hashable = (
            id(tensor) if not pointer else (pointer, info.shape, info.strides, info.dtype, *bits)
        )

    @property
    def key(self) -> Hashable:
        return self._key

    def blocks(self) -> Iterator[np.ndarray[Any, Any]]:
        for part in chunks(self.array()):
            yield np.ascontiguousarray(part).reshape(-1)

    def array(self, map_of: Callable[[str], mmap] = mapped) -> np.ndarray[Any, Any]:
        del map_of
        array: np.ndarray[Any, Any] = convert(self.tensor, conversion_as(EXCHANGE))
        return array


def contents_of(tree: Any, metadata: Mapping[str, str] | None, unknown: str) -> Contents:
    """The contents of a file for a tree.

    Raises:
        UnsupportedTypeError: Something in the tree is neither a tensor nor a plain value; the
            message says where. Or the metadata is not a mapping from strings to strings.
    """
    strings = strings_of(metadata)
    if tree is None:
        outline = NOTHING
    else:
        outline = _outline(tree, "$", 0, LeafRule("tensors", unknown=unknown))
    leaves_held: list[Held] = []
    relabel(outline, leaves_held.append, Held)
    named = names(outline, Held)
    tensors: dict[str, Stored] = dict(zip(named, leaves_held, strict=True))
    left = iter(named)
    return Contents(
        format="",
        paths=(),
        tensors=tensors,
        metadata=strings,
        tree=None
        if _is_flat(outline, named)
        else relabel(outline, lambda _: Ref(next(left)), Held),
    )


def _outline(node: Any, path: str, depth: int, rule: LeafRule) -> Any:
    """The tree in plain containers, with a reference in place of each tensor."""
    if depth > DEEPEST:
        raise UnsupportedTypeError(
            f"This tree is nested deeper than {DEEPEST} levels, or contains itself."
        )
    if type(node) in _PLAIN or isinstance(node, (np.generic, Special)):
        return node
    if type(node) is set and all(map(_is_plain, node)):
        return node
    if isinstance(node, _PLAIN):
        base = next(kind.__name__ for kind in _PLAIN if isinstance(node, kind))
        raise UnsupportedTypeError(
            f"{an(type(node).__name__, 'A')} is no plain {base}, "
            f"and would be loaded as one - at {path}",
            f"{base}({_code(path)}) in its place",
        )
    if isinstance(node, Mapping) and registry.backend_that_knows(type(node)) is None:
        result: dict[Any, Any] = _container(node, path)
        for key, child in node.items():
            if isinstance(key, int) and key.bit_length() > MOST_BITS:
                raise UnsupportedTypeError(
                    f"A key is an integer of {key.bit_length()} bits, "
                    f"and {MOST_BITS} is the most - at {path}"
                )
            result[key] = _outline(child, f"{path}{item(key)}", depth + 1, rule)
        return result
    if isinstance(node, (list, tuple, deque)):
        return _outline_of_sequence(node, path, depth, rule)
    if isinstance(node, Placeholder):
        raise UnsupportedTypeError(
            f"A file can hold a name as text, but not what has it: {node.name}, which was only "
            f"named - at {path}",
            f"{_code(path)}.name in its place, which is a text",
        )
    opened = _open_container(node)
    if opened is not None:
        inside = [
            _outline(child, f"{path}{entry}", depth + 1, rule)
            for entry, child in zip(opened.entries, opened.values, strict=True)
        ]
        return _plain_container(node, opened, inside)
    try:
        return Held(node)
    except ConversionError as error:
        special = _special(node)
        if special is not None:
            return special
        # A mapping has a message of its own below.
        held = None if isinstance(node, Mapping) else rule.tensor_inside(node)
        if held is None:
            raise _refusal(error, node, path) from error
        name = type(node).__name__
        raise UnsupportedTypeError(
            f"{an(name, 'A')} holds a tensor, and a file holds tensors, plain values, dicts, lists "
            "and tuples of them, "
            f"but no other objects - at {path}{held}",
            hint_for_leaf(rule.hint_of(node), path, _dotted(path)) or _attributes(node, path),
        ) from error


def _plain_container(node: Any, opened: Node, inside: list[Any]) -> list[Any] | dict[str, Any]:
    """What is in another container, as a list or a dict.

    Its type decides, and not its names, which may be "0" and "1", or none.
    """
    if isinstance(node, Sequence):
        return inside
    return dict(zip(map(_name_of, opened.entries), inside, strict=True))


def _refusal(error: ConversionError, node: Any, path: str) -> ConversionError:
    """The error for something that is neither a tensor nor a plain value, with its place."""
    message = error.message
    hint: str | Hint | None = None
    if error.advice != TAKEN and not isinstance(node, UNCALLED) and not has_no_numbers(node):
        hint = hint_for_leaf(error.advice, path, _dotted(path))
    elif path != "$" or isinstance(node, UNCALLED):
        hint = _instead(node, path) or hint_for_leaf(error.advice, path, _dotted(path))
    else:
        message += " A file holds tensors, plain values, and dicts, lists and tuples of them."
    return type(error)(message if path == "$" else f"{message} - at {path}", hint)


def _outline_of_sequence(node: Any, path: str, depth: int, rule: LeafRule) -> Any:
    """As `_outline`, for a list, a deque or a tuple; one with fields becomes a dict of them."""
    if type(node) in (list, tuple):
        special = None
    else:
        special = _special(node)
    if special is not None:
        return special
    fields = _fields(node)
    if fields is not None:
        if getattr(node, "__dict__", None):
            raise UnsupportedTypeError(
                f"{an(type(node).__name__, 'A')} has attributes beside its fields, which would be "
                f"lost - at {path}",
                f"{_code(path)}._asdict() in its place, or a dict with them too",
            )
        pairs = zip(fields, node, strict=True)
        return {name: _outline(child, f"{path}.{name}", depth + 1, rule) for name, child in pairs}
    children = [
        _outline(child, f"{path}[{index}]", depth + 1, rule) for index, child in enumerate(node)
    ]
    if isinstance(node, tuple):
        return tuple(children)
    return children


def _is_plain(value: Any) -> bool:
    """Whether it is a plain value, or a tuple of such."""
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return type(value) in _PLAIN


def _dotted(path: str) -> str:
    """The dotted name of a leaf, from its path."""
    steps = re.findall(r'\["(?:[^"\\]|\\.)*"\]|\[[^]]*\]|\.[^.[]+', path)
    return "".join(map(dotted, steps)).removeprefix(".")


def _code(path: str) -> str:
    """The code for the value at a path of the tree `x`."""
    return f"x{path[1:]}"


def _special(node: Any) -> Special | None:
    """A framework's dtype, device, layout or size in plain values; ``None`` for other objects."""
    for backend in registry.imported():
        with registry.outside.guard(backend.name):
            told = backend.plain_value(node)
            if told is not None:
                return Special(*told)
    return None


def _open_container(node: Any) -> Node | None:
    """A container of `convert_tree`; ``None`` if it is none, or has attributes besides values."""
    opened = _open_any(node)
    if opened is None or opened.static or opened.registered is not None:
        return None
    return opened


def places_in(node: Any) -> list[tuple[str, str, Any]] | None:
    """The name, the place and the value of each child of such a container."""
    opened = _open_container(node)
    if opened is None:
        return None
    return [
        (dotted(entry)[1:], entry, child)
        for entry, child in zip(opened.entries, opened.values, strict=True)
    ]


def _open_any(node: Any) -> Node | None:
    """A container of `convert_tree`; ``None`` if it is not one."""
    # A container of a library may have names and attributes besides its values, and is refused with
    # its own message.
    openers = (
        ()
        if registry.backend_that_knows(type(node)) is not None
        else openers_of(type(node), [node])
    )
    return next((opened for opener in openers if (opened := opener(node)) is not None), None)


def _fields(node: Any) -> tuple[str, ...] | None:
    """Field names of a named tuple, or C result type (`torch.return_types`); ``None`` without."""
    kind = type(node)
    field_names = getattr(kind, "_fields", None)
    if hasattr(kind, "n_sequence_fields"):
        field_names = getattr(kind, "__match_args__", ())[: kind.n_sequence_fields]
    if (
        not isinstance(field_names, tuple)
        or len(field_names) != len(node)
        or isinstance(node, list)
    ):
        return None
    if all(isinstance(name, str) for name in field_names):
        return field_names
    return None


def _name_of(entry: str) -> str:
    return dotted(entry)[1:]


def _instead(node: Any, path: str) -> str | None:
    """The hint for what is neither tensor nor container; ``None`` for a lone class or function."""
    if path == "$":
        return None
    code = _code(path)
    if isinstance(node, type):
        return f"{code}.__name__ in its place, which is text"
    if isinstance(node, UNCALLED):
        text = f"{code}.__name__ in its place, which is text"
        if takes_nothing(node):
            return f"{code}() in its place; or {text}"
        return text
    if isinstance(node, np.ndarray):
        made = "{}.tolist()"  # objects, each of which is plain, or is refused with its own place
    elif isinstance(node, Enum):
        made = "{}.value"
    elif state_of(type(node)):
        made = "{}.state_dict()"
    elif getattr(node, "__dict__", None):
        made = "vars({})"
    else:
        made = "str({})"
    return f"{made.format(code)} in its place"


def _attributes(node: Any, path: str) -> str | None:
    """The hint for an unknown object: save its attributes, of a container only its values."""
    opened = _open_any(node)
    if opened is None:
        entries = []
    else:
        entries = [entry for entry in opened.entries if entry.startswith(".")]
    if opened is not None and entries and len(entries) == len(opened.entries):
        pairs = zip(opened.entries, opened.values, strict=True)
        held = ", ".join(
            f'"{entry[1:]}": {_value_code(value, path + entry)}' for entry, value in pairs
        )
        return f"{{{held}}} in its place: a dict of its values"
    some = f"vars({_code(path)}) in its place: a dict of its attributes"
    return some if getattr(node, "__dict__", None) else None


def _value_code(value: Any, path: str) -> str:
    """The code for a value at a path; for a tensor without numbers (random key), its own hint's."""
    if not registry.is_tensor(type(value)):
        return _code(path)
    try:
        Held(value)
    except ConversionError as error:
        return str(hint_for_leaf(error.advice, path, _dotted(path)) or _code(path))
    return _code(path)


def _container(node: Mapping[Any, Any], path: str) -> dict[Any, Any]:
    """An empty dict of a type that the tree can keep."""
    if isinstance(node, OrderedDict):
        result: dict[Any, Any] = OrderedDict()
        vars(result).update(vars(node))  # the `_metadata` of a state dict
        return result
    if not isinstance(node, defaultdict):
        return {}
    factory = node.default_factory
    if factory is not None and factory not in FACTORIES.values():
        raise UnsupportedTypeError(
            f"This defaultdict makes its missing values by {factory!r:.200}, "
            f"which is code - at {path}",
            f"dict({_code(path)}) in its place",
        )
    return defaultdict(factory)


def _is_flat(outline: Any, named: list[str]) -> bool:
    """Whether the tree is a plain mapping of names to tensors, which files have without a tree."""
    return (
        isinstance(outline, dict)
        and not isinstance(outline, defaultdict)
        and list(outline) == named
        and all(isinstance(child, Held) for child in outline.values())
        and not getattr(outline, "__dict__", None)
    )
