"""`WeightMap`: weights under another model's names and layouts, as data that is checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import hints
from .core.info import TensorInfo
from .core.layout import size_text
from .errors import OutputExistsError, UnsupportedTypeError, shown
from .hints import Hint
from .maps.inverting import inverted
from .maps.lowering import Header
from .maps.table import Table

if TYPE_CHECKING:
    from typing import Literal

    from typing_extensions import Self

    from .maps.lowering import Lowered, MadeTensor
    from .maps.map_finding import MapFinding
    from .planning.pictures.canvas import Words
    from .typing import Unknown

__all__ = ["MapPlan", "WeightMap"]


class WeightMap(Table):
    """Which elements of which tensors of one model are those of another: a table, as TOML.

    >>> import numpy as np, tensorferry as ferry
    >>> table = ferry.WeightMap.parse('''
    ... [map]
    ... "layers.{i}.kv" = { concat = ["h.{i}.k", "h.{i}.v"], axis = 0 }
    ... "head" = "lm_head : a b -> b a"
    ... ''')
    >>> weights = {"h.0.k": np.zeros((2, 3)), "h.0.v": np.ones((2, 3)), "lm_head": np.ones((5, 3))}
    >>> table.check(weights)
    []
    >>> {name: x.shape for name, x in table.apply(weights).items()}
    {'layers.0.kv': (4, 3), 'head': (3, 5)}

    .. versionadded:: 0.1
    """

    # -- made ----------------------------------------------------------------------------------------

    @classmethod
    def of(cls, table: Table) -> Self:
        """The same table with these methods."""
        return cls(table.rules, table.drop, table.dims, table.about, table.words)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a table from text.

        Raises:
            FileFormatError: It is no TOML, or no table.
        """
        from .maps.language import read_table

        if not isinstance(text, str):
            raise UnsupportedTypeError(f"parse(text) takes text, not {shown(text)}.")
        return cls.of(read_table(text))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a table from a file.

        Raises:
            FileFormatError: It is no TOML, or no table.
            OSError: It cannot be read.
        """
        from .files.mapped import table_of

        return cls.of(table_of(path, "path"))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the table to a file.

        Args:
            path: The file.
            overwrite: Replace a file that exists.

        Raises:
            OutputExistsError: The file exists already.
            OSError: It cannot be written.
        """
        try:
            with Path(path).open("w" if overwrite else "x", encoding="utf-8") as file:
                file.write(self.text)
        except FileExistsError:
            hint = Hint(hints.keyword("overwrite", True))
            raise OutputExistsError(f"{path} exists already.", hint) from None

    @classmethod
    def trace(
        cls,
        convert: Callable[..., Any] | str,
        source: Any,
        *,
        framework: str | None = None,
        dims: Mapping[str, Any] | None = None,
        verify_with: Any = None,
        seconds: float = 600,
        memory: int | None = None,
    ) -> Self:
        """The table that says what somebody's converter does with weights.

        The converter runs some ten times in a process of its own, on dyed tensors: each element has
        its own number, so what comes out shows where each came from. Then the table is compared with
        the converter on random bits. What no table can say has a reason: ``"affine 1*x+1"``,
        ``"narrowed through float16"``, ``"arithmetic"``, ``"constant"``, ``"depends on values"``,
        ``"depends on chance"``, ``"not from the source"``. Only names, shapes and dtypes of `source` are needed.

        The converter has all rights of the caller. The process bounds time and memory; it is no
        sandbox. Reading, checking, inverting and applying the table run nothing.

        Args:
            convert: A function of a dict of tensors; or of a path, if its first parameter is
                annotated ``str`` or ``Path``: it gets a folder with the files of the source and
                their ``config.json``. It gives a dict, or an object with ``state_dict()``. Or
                where the function is: ``"package.module:function"``.
            source: A file, a folder, or a tree of tensors or of `TensorInfo`; or a list of several
                sizes of one architecture: then lengths have names, for a further size.
            framework: Whose tensors a function of a dict gets: by default those that `source` has,
                PyTorch's for files.
            dims: Lengths with their values, by name; for several sizes, a list of values for each.
            verify_with: Real weights, a file or a tree, on which table and converter are compared
                too: a converter may look at values.
            seconds: How long one run may take.
            memory: How many bytes one run may take; ``None`` for what is free.

        Raises:
            ConversionError: The converter fails, or gives no tensors.
            UnsupportedTypeError: Another process cannot get the function.
            NotEnoughMemoryError: The tensors are too many for this machine.
        """
        from .maps.tracing import trace

        real = None
        if verify_with is not None:
            real = {
                name: each.array() for name, each in _weights_of(verify_with, "verify_with").items()
            }
        several = isinstance(source, (list, tuple))
        sizes = [
            (headers_from(each, "source"), _config(each))
            for each in (source if several else [source])
        ]
        table = trace(
            convert,
            sizes if several else sizes[0][0],
            framework=framework or _framework_of(source[0] if several else source),
            config=None if several else sizes[0][1],
            files=_files_of(source[0] if several else source),
            dims=dims,
            verify_with=real,
            seconds=seconds,
            memory=memory,
        )
        return cls.of(table)

    @classmethod
    def infer(
        cls,
        source: Any,
        target: Any,
        *,
        dims: Mapping[str, int] | None = None,
        config: Mapping[str, int] | None = None,
    ) -> Self:
        """The table that makes one model's weights of another's, from two files of the same weights.

        >>> import numpy as np, tensorferry as ferry
        >>> weight = np.random.default_rng(0).random((4, 6))
        >>> print(ferry.WeightMap.infer({"fc.weight": weight}, {"dense.kernel": weight.T.copy()}))
        [map]
        "dense.kernel" = "fc.weight : a b -> b a"
        <BLANKLINE>

        Tensors are found by their values, whatever their names: whole, one behind another, in parts,
        with other axes, flattened, in another float dtype. Nothing is shown as found that all values do not
        confirm. What more than one tensor could be (zeros, ones, copies) is chosen by names and
        neighbours, and is marked as ``assumed``.
        """
        from .maps.inferring import inferred

        table = inferred(
            _weights_of(source, "source"),
            _weights_of(target, "target"),
            config=_numbers(source, config),
            dims=_lengths(dims),
        )
        return cls.of(table)

    # -- used ----------------------------------------------------------------------------------------

    def check(
        self,
        source: Any,
        target: Any = None,
        *,
        dims: Mapping[str, int] | None = None,
        config: Mapping[str, int] | None = None,
    ) -> list[MapFinding]:
        """What is wrong between the table, a source and a target, from shapes and dtypes alone."""
        from .maps.checking import findings

        headers = headers_from(source, "source")
        wanted = None if target is None else headers_from(target, "target")
        return findings(self._lowered(source, headers, dims, config), headers, wanted)

    def _lowered(
        self,
        source: Any,
        headers: Mapping[str, Header],
        dims: Mapping[str, int] | None,
        config: Mapping[str, int] | None,
    ) -> Lowered:
        from .maps.lowering import lower

        return lower(self, headers, config=_numbers(source, config), dims=_lengths(dims))

    def explain(
        self,
        source: Any,
        *,
        dims: Mapping[str, int] | None = None,
        config: Mapping[str, int] | None = None,
    ) -> MapPlan:
        """What becomes of each tensor of a source: nothing is read."""
        headers = headers_from(source, "source")
        return MapPlan(self._lowered(source, headers, dims, config), headers)

    def inverse(
        self,
        source: Any = None,
        *,
        dims: Mapping[str, int] | None = None,
        config: Mapping[str, int] | None = None,
    ) -> Self:
        """The table back: of what this one makes, what it is made of.

        >>> import numpy as np, tensorferry as ferry
        >>> table = ferry.WeightMap.parse('''
        ... [map]
        ... "kv" = { concat = ["k", "v"], axis = 0 }
        ... ''')
        >>> print(table.inverse())
        [dims]
        k_length = ""
        <BLANKLINE>
        [map]
        "k" = "kv[:k_length]"
        "v" = "kv[k_length:]"
        <BLANKLINE>

        What only shapes of the source tell, such as where one part ends and the next begins, gets a name,
        which `dims=` has to say later; or its number, if `source` is given. Then all that loses no
        element has an inverse, as moves if nothing else says it.

        Args:
            source: What the table is applied to: a file, a folder, or a tree of tensors or of
                `TensorInfo`. Only names, shapes and dtypes are needed.
            dims: Lengths that the table needs for this source.
            config: The numbers of ``config.json``, if it is not beside the source.

        Raises:
            FormatLimitError: Something cannot be inverted: it is dropped, cast to a dtype that loses
                values, computed, or not known. Or its shape has to be known, and there is no `source`.
            TreeError: Several things cannot.
        """
        if source is None:
            return type(self).of(inverted(self))
        headers = headers_from(source, "source")
        numbers = _numbers(source, config)
        return type(self).of(inverted(self, headers, config=numbers, dims=_lengths(dims)))

    def apply(
        self,
        tree: Any,
        to: str | None = None,
        *,
        dims: Mapping[str, int] | None = None,
        config: Mapping[str, int] | None = None,
        device: object = None,
        copy: bool | None = None,
        unknown: Unknown = "error",
    ) -> dict[str, Any]:
        """The tensors that the table makes of a tree.

        A tensor that only gets another name is converted as `convert_tree` would, and shares memory
        where that would. All others are made in memory of the host, in NumPy, and converted from there.
        What is no tensor is left out, with a warning that names it; `unknown` is as for `convert_tree`.
        """
        from .core.dtypes import find
        from .maps.checking import findings, refuse, refuse_growth
        from .maps.trees import applied, headers_of_tensors, named_tensors

        tensors = named_tensors(tree, unknown=unknown, warns=True)
        headers = headers_of_tensors(tensors)
        lowered = self._lowered(tree, headers, dims, config)
        refuse(findings(lowered, headers))
        sizes = [header.size * find(header.dtype).itemsize for header in headers.values()]
        refuse_growth(lowered, sum(sizes))
        return applied(lowered, tensors, to, device, copy)


def _config(source: Any) -> dict[str, Any]:
    """What is in ``config.json`` beside a source."""
    from .files.mapped import read_config

    return read_config([os.fspath(source)]) if isinstance(source, (str, os.PathLike)) else {}


def _framework_of(source: Any) -> str | None:
    """Whose tensors a source has; PyTorch's, where it is a file."""
    if isinstance(source, (str, os.PathLike)) or not isinstance(source, Mapping):
        return None
    infos = [info for info in source.values() if isinstance(info, TensorInfo)]
    if infos:
        return infos[0].framework
    from .maps.trees import framework_in

    return framework_in(source)


def _files_of(source: Any) -> dict[str, list[str]] | None:
    """The files of a source, each with the names of its tensors; ``None`` if it is no file."""
    if not isinstance(source, (str, os.PathLike)):
        return None
    from .files.api import open as open_file

    contents = open_file(source)
    by_file: dict[str, list[str]] = {}
    for name, stored in contents.tensors.items():
        path = str(getattr(stored, "path", contents.paths[0]))
        by_file.setdefault(Path(path).name, []).append(name)
    is_safe = all(name.endswith(".safetensors") for name in by_file)
    return by_file if is_safe else None


def _numbers(source: Any, config: Mapping[str, int] | None) -> dict[str, int]:
    """The numbers of ``config.json``, with those that are given."""
    from .files.mapped import config_beside

    numbers = dict(config or {})
    if isinstance(source, (str, os.PathLike)):
        numbers = {**config_beside([os.fspath(source)]), **numbers}
    return numbers


def _lengths(dims: Mapping[str, int] | None) -> dict[str, int]:
    from .files.mapped import validated_dims

    return validated_dims(dims)


def _weights_of(given: Any, what: str) -> dict[str, Any]:
    """The tensors of a file or a tree, to be read.

    Raises:
        UnsupportedTypeError: It is neither.
    """
    from .files.mapped import FileWeights

    if isinstance(given, (str, os.PathLike)):
        from .files.api import open as open_file

        return dict(FileWeights(open_file(given).tensors).tensors)
    if hasattr(given, "tensors") and hasattr(given, "paths"):
        return dict(FileWeights(given.tensors).tensors)
    from .maps.trees import weights_in

    return dict(weights_in(given, what))


def headers_from(given: Any, what: str) -> dict[str, Header]:
    """The shapes and dtypes of what is a path, contents of a file, or a tree of tensors.

    Raises:
        UnsupportedTypeError: It is none of them.
    """
    from .files.mapped import headers_of

    if isinstance(given, (str, os.PathLike)):
        from .files.api import open as open_file

        return headers_of(open_file(given))
    if hasattr(given, "tensors") and hasattr(given, "paths"):
        return headers_of(given)
    if isinstance(given, Mapping) and all(
        isinstance(header, (Header, TensorInfo)) for header in given.values()
    ):
        return {name: Header(tuple(header.shape), header.dtype) for name, header in given.items()}
    from .maps.trees import headers_of_tensors, named_tensors

    return headers_of_tensors(named_tensors(given, what))


class MapPlan:
    """What a table does with the tensors of a source.

    Args:
        lowered: The table for the source.
        source: The tensors of the source.
    """

    def __init__(self, lowered: Lowered, source: Mapping[str, Header]) -> None:
        self._lowered = lowered
        self._source = source

    @property
    def tensors(self) -> dict[str, MadeTensor]:
        """The tensors of the target, by name."""
        return self._lowered.tensors

    @property
    def bytes_moved(self) -> int:
        """The bytes of the tensors that are more than renamed."""
        return sum(_nbytes(made) for made in self.tensors.values() if not made.is_renamed)

    @property
    def dropped(self) -> tuple[str, ...]:
        """The names of the source of which something is dropped."""
        return tuple(self._lowered.dropped)

    def picture(
        self,
        *,
        colours: int | None = None,
        width: Literal[64, 32] = 64,
        styled: bool = True,
        words: Words | None = None,
    ) -> str:
        """Which element becomes which, as ``<svg>``: for small tensors.

        >>> import tensorferry as ferry
        >>> table = ferry.WeightMap.parse('''
        ... [map]
        ... "y" = "x : a b -> b a"
        ... ''')
        >>> svg = table.explain({"x": ferry.TensorInfo("numpy", (2, 3), "float32")}).picture()
        >>> "y: 0 3 1 4 2 5" in svg
        True

        Args:
            colours: In how many parts along its first axis a source is coloured.
            width: How wide it is: 64 for a screen, 32 for a phone.
            styled: Whether the style is in it.
            words: The words, in another language.

        Raises:
            FormatLimitError: There are too many elements.
        """
        from .maps.drawing import drawn

        style = {} if words is None else {"words": words}
        return drawn(self._lowered, self._source, colours, width=width, styled=styled, **style)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data for JSON."""
        return {
            "tensors": [
                {
                    "name": name,
                    "dtype": made.header.dtype,
                    "shape": list(made.header.shape),
                    "sources": list(made.sources),
                    "moves": 0 if made.is_renamed else len(made.moves),
                }
                for name, made in self.tensors.items()
            ],
            "dropped": list(self.dropped),
            "bytes_moved": self.bytes_moved,
        }

    def __str__(self) -> str:
        width = max(map(len, self.tensors), default=0)
        total = size_text(sum(map(_nbytes, self.tensors.values())))
        moved = size_text(self.bytes_moved)
        lines = [f"{len(self.tensors)} tensors, {total}, of which {moved} are moved"]
        lines += [f"   {name:<{width}}  {_said(made)}" for name, made in self.tensors.items()]
        if self.dropped:
            lines.append(f"   Dropped: {', '.join(self.dropped)}")
        return "\n".join(lines)


def _nbytes(made: MadeTensor) -> int:
    from .core.dtypes import find

    return made.header.size * find(made.header.dtype).itemsize


def _said(made: MadeTensor) -> str:
    shape = f"{made.header.dtype}{list(made.header.shape)}"
    sources = ", ".join(made.sources) or "a number"
    if made.is_renamed:
        return f"{shape} = {sources}"
    moves = "1 move" if len(made.moves) == 1 else f"{len(made.moves)} moves"
    return f"{shape} = {moves} out of {sources}"
