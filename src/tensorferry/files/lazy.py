"""`LazyTree`: the contents of a file as a mapping, whose tensors are made when they are used."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..errors import FileFormatError
from ..hints import Hint
from .base.contents import Ref

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self

    from .base.raw import Fingerprint
    from .source import Source

__all__ = ["LazyReference", "LazyTree", "lazy_tree", "mapped_arrays"]

_SHOWN = 4
_WIDTH = 60
_NO_NAME = ""
"""The key of a value that is the whole file."""


class LazyTree(Mapping[Any, Any]):
    """What a file holds, as a read-only mapping; ``load(path, lazy=True)`` makes it.

    >>> import numpy as np, tempfile, tensorferry as ferry
    >>> path = f"{tempfile.mkdtemp()}/model.npz"
    >>> _ = ferry.save({"weight": np.ones(2), "step": 3}, path)
    >>> with ferry.load(path, lazy=True) as state:
    ...     sorted(state), state["weight"]
    (['step', 'weight'], array([1., 1.]))

    A tensor is made when it is used. As long as something refers to it, you get the same object
    again, under each of the names of tied weights. Later, and with ``to="python"``, a new object is
    made. It has the same memory, so what you wrote into it is still there, as long as this mapping
    exists. Mappings inside are of this kind too; lists and tuples are plain, and made when they are
    used.

    The elements of a list that is the whole file stand under their positions, a lone tensor under
    the name that `open` gives it. `read` gives the list or the tensor itself.

    At the end of a ``with`` block, and after `close`, no more tensors are made; those that were
    made do not change.

    What copies or pickles it (`copy.copy`, `copy.deepcopy`, `pickle`, ``torch.save``) reads
    everything, and gets plain containers whose tensors have memory of their own. For another
    process, `reference` is smaller.

    Args:
        source: Makes the tensors.
        node: The node of this mapping in the file's tree; ``None`` for the tree of a plain mapping.
        keys: The keys that lead to the node.
        whole: What `read` gives, if it is no mapping.

    .. versionadded:: 0.1
    """

    __slots__ = ("_keys", "_mapping", "_source", "_value")

    def __init__(
        self,
        source: Source,
        node: dict[Any, Any] | None,
        keys: tuple[Any, ...] = (),
        whole: Any = None,
    ) -> None:
        self._source = source
        self._mapping = node
        self._keys = keys
        self._value = whole

    @property
    def _node(self) -> dict[Any, Any]:
        return self._source.tree if self._mapping is None else self._mapping

    @property
    def _whole(self) -> Any:
        return self._node if self._value is None else self._value

    def __getitem__(self, key: Any) -> Any:
        node = self._node[key]
        if type(node) is Ref:
            return self._source.tensor(node.name)
        return self._made(node, key)

    def __contains__(self, key: object) -> bool:
        return key in self._node and not self._source.is_left_out(self._node[key])

    def __iter__(self) -> Iterator[Any]:
        if not self._source.others:
            return iter(self._node)
        return (key for key, child in self._node.items() if not self._source.is_left_out(child))

    def __len__(self) -> int:
        if self._source.others:
            return sum(1 for _ in self)
        return len(self._node)

    def __repr__(self) -> str:
        shown = [f"{_short(key)}: {self._look(self._node[key])}" for key in islice(self, _SHOWN)]
        shown += ["…"] if len(self) > _SHOWN else []
        text = f"<LazyTree of {len(self)}: {', '.join(shown)}"
        skipped = self.skipped
        if skipped:
            listed = [
                f"{_short(name)}: {_cut(why)}" for name, why in islice(skipped.items(), _SHOWN)
            ]
            text += f"; {len(skipped)} skipped: {', '.join(listed)}{', …' if len(skipped) > _SHOWN else ''}"
        return f"{text}>"

    def __copy__(self) -> Any:
        return self._own()

    def __deepcopy__(self, _memo: object) -> Any:
        return self._own()

    def __reduce_ex__(self, protocol: Any) -> Any:
        own = self._own()
        if type(own) is dict:
            # `torch.load` refuses the name of `dict` in a pickle, and takes that of an OrderedDict.
            return OrderedDict, (), None, None, iter(own.items())
        if type(own) in (list, tuple):
            return type(own), (own,)
        reduced = own.__reduce_ex__(max(protocol, 2))
        # What is made by its class alone is pickled as an argument, because this object has another
        # class.
        alone = isinstance(reduced, str) or getattr(reduced[0], "__name__", "") == "__newobj__"
        return (_itself, (own,)) if alone else reduced

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Make no more tensors, in this mapping and inside it; tensors held keep their memory."""
        self._source.close()

    @property
    def skipped(self) -> dict[str, str]:
        """Why something in the file cannot be loaded, by its name.

        Only ``strict=False`` leaves it out.
        """
        return self._source.left_out(self._whole)

    def read(self) -> Any:
        """Everything at once, as the plain dicts, lists and values that were saved.

        The tensors are those of this tree.

        Returns:
            What was saved, of its own container types as far as `save` keeps them.

        Warns:
            UserWarning: Something is left out, which plain containers have no place to list. In a
                list, ``None`` stands in its place.

        Raises:
            ValueError: The file has been closed.
            ConversionError: A tensor cannot be converted.
        """
        from .loading import together

        read = self._source.plain(self._whole, together(self._source, self._whole))
        self._source.warn_of_what_is_left_out(self._whole)
        return read

    def reference(self) -> LazyReference:
        """What another process opens this mapping by: the path of the file, and no tensors.

        It is what a worker of a data loader should get. `LazyReference.open` raises an error if the
        file has changed.
        """
        return LazyReference(self._source.load, self._source.asked, self._source.seen, self._keys)

    def _own(self) -> Any:
        from .loading import loaded

        return loaded(
            self._source,
            self._whole,
            lambda _: Hint("a part of it, or .reference() for another process"),
        )

    def _look(self, node: Any) -> str:
        """A description of a node, from the header."""
        if isinstance(node, Ref):
            stored = self._source.tensors[node.name]
            blocks = self._source.blocks.get(node.name)
            held = f"{stored.dtype}{list(stored.shape)}"
            if blocks is None:
                return held
            return f"{held}, {blocks.kind}{list(blocks.shape(stored.shape))}"
        if isinstance(node, dict):
            return f"{{{len(node)}}}"
        return _short(node)

    def _made(self, node: Any, *keys: Any) -> Any:
        if isinstance(node, dict):
            return LazyTree(self._source, node, (*self._keys, *keys))
        if type(node) in (list, tuple):
            from .base.nesting import are_plain  # here, because most trees are flat

            if are_plain(node):
                return type(node)(node)
            return type(node)(
                self._element(child, *keys, place) for place, child in enumerate(node)
            )
        if isinstance(node, Ref):
            return self._source.tensor(node.name)
        return self._source.value(node)

    def _element(self, node: Any, *keys: Any) -> Any:
        """An element of a list, in which ``None`` keeps the place of what cannot be loaded."""
        if self._source.is_left_out(node):
            return None
        return self._made(node, *keys)


class LazyReference:
    """A file's path and `load`'s arguments: a lazy tree for another process, in some hundred bytes.

    >>> import numpy as np, pickle, tempfile, tensorferry as ferry
    >>> path = f"{tempfile.mkdtemp()}/model.npz"
    >>> _ = ferry.save({"encoder": {"weight": np.ones(2)}}, path)
    >>> reference = ferry.load(path, lazy=True)["encoder"].reference()
    >>> pickle.loads(pickle.dumps(reference)).open()["weight"]
    array([1., 1.])

    `LazyTree.reference` makes it.

    Args:
        load: The function that opens it.
        asked: Its arguments.
        seen: The fingerprints of the files.
        keys: The keys that lead to the mapping.

    .. versionadded:: 0.1
    """

    __slots__ = ("_asked", "_keys", "_load", "_seen")

    def __init__(
        self,
        load: Callable[..., Any],
        asked: dict[str, Any],
        seen: tuple[Fingerprint, ...],
        keys: tuple[Any, ...],
    ) -> None:
        self._load = load
        self._asked = asked
        self._seen = seen
        self._keys = keys

    def __repr__(self) -> str:
        inside = "".join(f"[{_short(key)}]" for key in self._keys)
        return f"<LazyReference to {self._asked['path']!r}{inside}>"

    def open(self) -> LazyTree:
        """The lazy tree, with maps of this process.

        Raises:
            FileFormatError: The file has changed since the reference was made.
            ConversionError: As for `load`.
            OSError: The file cannot be read.
        """
        path = self._asked["path"]
        opened: Any = self._load(
            path, **{key: value for key, value in self._asked.items() if key != "path"}, lazy=True
        )
        if opened._source.seen != self._seen:  # noqa: SLF001 - its own module
            hint = f"load({path!r}, lazy=True).reference() again"
            raise FileFormatError(f"{path} has changed since the reference was made.", hint)
        for key in self._keys:
            opened = opened[key]
        return opened  # type: ignore[no-any-return]


def _itself(value: Any) -> Any:
    return value


def _short(value: Any) -> str:
    """A key, or a value that is not a tensor, as short Python code."""
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}[{len(value)}]"
    return _cut(repr(value))


def _cut(text: str) -> str:
    if len(text) <= _WIDTH:
        return text
    return f"{text[: _WIDTH - 1]}…"


def lazy_tree(source: Source) -> LazyTree:
    """The whole of a file.

    What is no mapping is put into one: elements of a list or tuple under their positions, a lone
    tensor under the name that `open` gives it, a lone value under an empty name.
    """
    if source.is_flat:
        return LazyTree(source, None)
    tree = source.tree
    if isinstance(tree, dict):
        return LazyTree(source, tree)
    if type(tree) in (list, tuple):
        return LazyTree(source, dict(enumerate(tree)), (), tree)
    return LazyTree(source, {tree.name if isinstance(tree, Ref) else _NO_NAME: tree}, (), tree)


def mapped_arrays(tree: LazyTree) -> dict[str, Any]:
    """Arrays over the same memory map as the tensors of a mapping, by name."""
    source = tree._source  # noqa: SLF001 - its own module
    return {name: stored.array(source.map_of) for name, stored in source.tensors.items()}
