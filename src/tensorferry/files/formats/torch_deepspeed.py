"""Read DeepSpeed's folders of ZeRO-1, 2 and 3, without it: whole parameters in master precision.

Each process has a file with its part of the optimizer, with flat vectors of parameters: in stages 1
and 2 the vectors of all processes together have all parameters; in stage 3 each has a part of each
parameter. ``*_model_states.pt`` has the order of the parameters, and everything that is not
distributed (see deepspeed/utils/zero_to_fp32.py).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.dtypes import DTYPES
from ...errors import FileFormatError, FormatLimitError
from ..base.contents import Contents, NotTensor
from ..base.format import Format
from ..base.nesting import relabel
from ..base.raw import read_at
from ..base.wording import named
from ..encodings.paths import is_entry, refuse_links_out
from ..pickles.standins import InstanceOf, TensorOf, TensorStandIn
from .torch_ranks import SavedFile, asked_by

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..encodings.array_parts import Region
    from ..pickles.torch import Names

_PARTS = re.compile(r"(?:[a-z0-9]+_)?zero_pp_rank_(\d{1,6})_mp_rank_(\d{1,6})_optim_states\.pt")
_LATEST = "latest"
_PACKAGES = ("deepspeed.", "torch.distributed.")
_LAYOUT = frozenset(
    {
        "param_shapes",
        "buffer_names",
        "frozen_param_shapes",
        "frozen_param_fragments",
        "shared_params",
        "module",
    }
    | {
        "base_optimizer_state",
        "optimizer_state_dict",
        "single_partition_of_fp32_groups",
        "fp32_flat_groups",
    }
    | {
        "zero_stage",
        "group_paddings",
        "param_alignment_paddings",
        "partition_count",
        "param_slice_mappings",
    }
)
"""Entries about the distribution of tensors, which do not apply to whole tensors."""


class DeepSpeed(Format):
    """ZeRO checkpoints: https://deepspeed.readthedocs.io/en/latest/model-checkpointing.html."""

    name = "deepspeed"
    title = "DeepSpeed ZeRO"
    dtypes = frozenset(DTYPES)
    is_folder = True
    holds_tree = True
    writes = False
    rank = 5

    def recognises(self, path: Path, head: bytes) -> bool:
        return (
            not head
            and path.is_dir()
            and (any(map(_PARTS.fullmatch, _listed(path))) or _latest(path) is not None)
        )

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        models, optimizers = _files(path)
        refuse_links_out(models[0].parent, models[0].name)
        saved = [
            [_ProcessFile(file, _names(os.fspath(file), allow)) for file in files]
            for files in (models, optimizers)
        ]
        return _DeepSpeedCheckpoint(os.fspath(path), *saved).contents()

    def asks_for(self, path: Path) -> tuple[str, ...]:
        return asked_by(chain(*_files(path)), _names)


def _listed(folder: Path) -> list[str]:
    return os.listdir(folder)  # noqa: PTH208 - names only


def _latest(folder: Path) -> Path | None:
    """The folder of the step that the file ``latest`` names."""
    marker = folder / _LATEST
    if not marker.is_file() or marker.stat().st_size > 1_000:
        return None
    name = read_at(os.fspath(marker), 0, marker.stat().st_size).decode(errors="replace").strip()
    if not is_entry(name) or not (folder / name).is_dir():
        return None
    if any(map(_PARTS.fullmatch, _listed(folder / name))):
        return folder / name
    return None


def _files(path: Path) -> tuple[list[Path], list[Path]]:
    """The files with the model's states (one, or one per process), and with the optimizer's."""
    folder = path if any(map(_PARTS.fullmatch, _listed(path))) else _latest(path)
    if folder is None:
        raise FileFormatError(f"{path} has no file of a ZeRO optimizer.")
    entries = _listed(folder)
    ranks: dict[int, str] = {}
    for name in entries:
        match = _PARTS.fullmatch(name)
        if (
            (match is not None and int(match[2]))
            or "expert_" in name
            or re.match(r"layer_\d+", name)
        ):
            raise FormatLimitError(
                f"{folder} is of a model that is itself in parts ({name}), by tensors, experts or "
                "stages: how they go "
                "together is not said there.",
                "python -m deepspeed.checkpoint.ds_to_universal",
            )
        if match is not None and ranks.setdefault(int(match[1]), name) != name:
            raise FileFormatError(
                f"{folder} has two optimizers of process {int(match[1])}: "
                f"{ranks[int(match[1])]}, {name}."
            )
    missing = sorted({*range(min(max(ranks) + 1, 100_000))} - ranks.keys())
    if missing:
        raise FileFormatError(
            f"{folder} lacks the optimizers of processes {named(missing)}.", "get them too"
        )
    own = [f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt" for rank in sorted(ranks)]
    if own[0] in entries:
        models = own
    else:
        models = ["mp_rank_00_model_states.pt"]
    missing_files = [name for name in models if name not in entries]
    if missing_files:
        raise FileFormatError(f"{folder} lacks {named(missing_files)}.", "get them too")
    return [folder / name for name in models], [folder / ranks[rank] for rank in sorted(ranks)]


def _names(path: str, allow: frozenset[str]) -> Names:
    from ..pickles.torch_distributed import DistributedNames

    return DistributedNames(path, allow, _PACKAGES)


@dataclass(slots=True, eq=False)
class _Whole(TensorStandIn):
    """A whole tensor, or why it cannot be loaded."""

    stored: Any


class _ProcessFile(SavedFile):
    """The file of one process."""

    def __init__(self, path: Path, vocabulary: Names) -> None:
        super().__init__(path, vocabulary)
        if not isinstance(self.root, dict):
            raise FileFormatError(f"{path} holds no dict, as DeepSpeed saves it.")

    def part(self, holder: Any, key: str, kind: type) -> Any:
        """A required entry of a dict, with a check of its type."""
        if isinstance(holder, dict):
            value = holder.get(key)
        else:
            value = None
        if not isinstance(value, kind):
            raise FileFormatError(f"{self.path} has no {key}, as DeepSpeed saves it.")
        return value

    def vector(self, leaf: Any, name: str) -> Any:
        """A flat vector without gaps."""
        from ..base.stored import Packed

        if type(leaf) is TensorOf and len(leaf.view.shape) == 1:
            stored = self.resolve(name, leaf)
        else:
            stored = None
        if not isinstance(stored, Packed):
            raise FileFormatError(f"{self.path}: {name} is no flat vector.")
        return stored


class _Slice(NamedTuple):
    """A parameter's place in the vectors: the group, its first element's position, its shape."""

    group: int
    offset: int
    shape: tuple[int, ...]


class _DeepSpeedCheckpoint:
    """The files of all processes: the states of the model, and the parts of the optimizer."""

    def __init__(
        self, where: str, models: list[_ProcessFile], optimizers: list[_ProcessFile]
    ) -> None:
        self._where = where
        self._models = models
        self._optimizers = optimizers
        self._states = [
            optimizer.part(optimizer.root, "optimizer_state_dict", dict) for optimizer in optimizers
        ]
        stage = self._states[0].get("zero_stage")
        if type(stage) is InstanceOf and len(stage.arguments) == 1:
            stage = stage.arguments[0]
        if stage not in (1, 2, 3) or type(stage) is not int:
            raise FileFormatError(
                f"{optimizers[0].path} is of no stage of ZeRO that is known: {str(stage)[:50]}."
            )
        self._is_third = stage == 3
        counts = self._states[0].get("partition_count")
        if isinstance(counts, list) and counts:
            most = max(counts)
        else:
            most = counts
        if most != len(optimizers):
            raise FileFormatError(
                f"{where} is of {str(most)[:50]} processes, and has the optimizers of "
                f"{len(optimizers)}.",
                "get them too",
            )
        if self._is_third and len(models) != len(optimizers):
            raise FileFormatError(
                f"{where} has the model's states of {len(models)} processes, of {len(optimizers)}."
            )
        if self._is_third:
            key = "fp32_flat_groups"
        else:
            key = "single_partition_of_fp32_groups"
        self._vectors = [
            [
                saved.vector(leaf, f"{key}.{group}")
                for group, leaf in enumerate(saved.part(state, key, list))
            ]
            for saved, state in zip(optimizers, self._states, strict=True)
        ]
        self._places = dict(self._placed())

    def _placed(self) -> Iterator[tuple[str, _Slice]]:
        """Yield the place of each parameter. In stage 3, each process has an equal part of each."""
        first = self._models[0]
        groups = first.part(first.root, "param_shapes", list)
        paddings = self._states[0].get("param_alignment_paddings")
        offset = 0
        for group, shapes in enumerate(groups):
            offset = offset if self._is_third else 0
            if isinstance(paddings, list) and group < len(paddings):
                padding = paddings[group]
            else:
                padding = ()
            for index, (name, shape) in enumerate(self._shapes(shapes)):
                yield name, _Slice(group, offset, shape)
                if self._is_third:
                    offset += -(-prod(shape) // len(self._optimizers))
                else:
                    offset += prod(shape)
                if not self._is_third and index < len(padding) and type(padding[index]) is int:
                    offset += max(padding[index], 0)

    def _shapes(self, shapes: Any) -> list[tuple[str, tuple[int, ...]]]:
        from ..pickles.torch_distributed import lengths

        named_shapes = []
        for name, told in shapes.items() if isinstance(shapes, dict) else [("", None)]:
            shape = lengths(told)
            if type(name) is not str or shape is None or len(shape) > 64:
                raise FileFormatError(
                    f"{self._models[0].path} does not say of what shape {str(name)[:100]!r} is."
                )
            named_shapes.append((name, shape))
        return named_shapes

    def _whole(self, name: str, place: _Slice, vectors: list[list[Any]]) -> _Whole:
        """A whole parameter, from the vectors of all processes."""
        from ..encodings.array_parts import joined, runs

        count = prod(place.shape)
        regions: list[Region] = []
        if self._is_third:
            part = -(-count // len(vectors))
            for rank, groups in enumerate(vectors):
                begin = rank * part
                regions += runs(groups, place.offset, max(min(part, count - begin), 0), begin)
        elif place.group < len(vectors[0]):
            regions += runs([groups[place.group] for groups in vectors], place.offset, count, 0)
        if vectors[0]:
            dtype = vectors[0][0].dtype
        else:
            dtype = "float32"
        return _Whole(joined(self._where, name, dtype, place.shape, regions, flat=True))

    def contents(self) -> Contents:
        """The contents: whole tensors, and other values."""
        first, others = self._models[0], dict[str, str]()
        tree: dict[Any, Any] = {
            "module": self._module(others),
            "optimizer": self._optimizer(others),
        }
        tree["optimizer"] |= self._values(self._optimizers[0], self._states[0])
        tree |= self._values(
            first, {key: value for key, value in first.root.items() if key != "optimizer"}
        )
        unpickled = first.described(tree)
        self._compare("values", self._optimizers, self._states, others)
        self._compare("values", self._models, [saved.root for saved in self._models], others)
        tensors = {}
        for name, leaf in unpickled.leaves.items():
            if type(leaf) is _Whole:
                stored = leaf.stored
            else:
                stored = "it stands in an object"
            if isinstance(stored, str):
                others[name] = stored
            else:
                tensors[name] = stored
        paths = tuple(saved.path for saved in (*self._models, *self._optimizers))
        asked = tuple(
            dict.fromkeys(
                name
                for saved in (*self._models, *self._optimizers)
                for name in saved.vocabulary.asked
            )
        )
        return Contents("deepspeed", paths, tensors, {}, unpickled.tree, others, asked)

    def _compare(
        self,
        what: str,
        files: list[_ProcessFile],
        holders: list[dict[Any, Any]],
        others: dict[str, str],
    ) -> None:
        """Add to `others` the files with other values (not distributed ones) than the file used."""
        from ..encodings.array_parts import differ

        plain, tensors = self._beside(files[0], holders[0])
        for saved, holder in zip(files[1:], holders[1:], strict=True):
            own, leaves = self._beside(saved, holder)
            same = own == plain and leaves.keys() == tensors.keys()
            if not same or any(differ(tensors[name], leaf) for name, leaf in leaves.items()):
                name = os.path.basename(saved.path)  # noqa: PTH119 - a plain string
                others[f"{what} ({name})"] = NotTensor("its values are not those of process 0")

    def _beside(self, saved: _ProcessFile, holder: dict[Any, Any]) -> tuple[str, dict[str, Any]]:
        """The values of a file that are not distributed, as text; and the tensors among them."""
        from ..encodings.array_parts import values_of

        kept = self._values(
            saved, {key: value for key, value in holder.items() if key != "optimizer"}
        )
        unpickled = saved.described(kept)
        return values_of(unpickled.tree), {
            name: getattr(leaf, "stored", None) for name, leaf in unpickled.leaves.items()
        }

    def _values(self, saved: _ProcessFile, holder: dict[Any, Any]) -> dict[Any, Any]:
        """The entries of a dict, without those about the distribution."""
        kept = {key: value for key, value in holder.items() if key not in _LAYOUT}
        made: dict[Any, Any] = relabel(
            kept, lambda leaf: _Whole(saved.resolve("a value", leaf)), TensorStandIn
        )
        return made

    def _module(self, others: dict[str, str]) -> dict[str, Any]:
        """The state dict: parameters in optimizer precision, and all that is not distributed."""
        first = self._models[0]
        module = first.part(first.root, "module", dict)
        made = {
            name: self._whole(name, place, self._vectors) for name, place in self._places.items()
        }
        made |= self._frozen()
        shared = first.root.get("shared_params")
        if not isinstance(shared, dict):
            shared = {}
        for name, other in shared.items():
            if type(name) is str and type(other) is str and other in made:
                made[name] = made[other]
        # Tensors that are tied in the file.
        known = {
            _identity(leaf): made[name]
            for name, leaf in module.items()
            if name in made and _identity(leaf)
        }
        ordered: dict[str, Any] = {}
        for name, leaf in module.items():
            if name in made or _identity(leaf) in known:
                ordered[name] = made.get(name) or known[_identity(leaf)]
            elif self._is_third and type(leaf) is TensorOf and leaf.view.shape == (0,):
                others[f"module.{name}"] = NotTensor(
                    "its place is empty: most likely it is tied to another parameter"
                )
            elif isinstance(leaf, TensorStandIn):
                ordered[name] = _Whole(first.resolve(str(name), leaf))
            else:
                ordered[name] = leaf
        return ordered | {name: leaf for name, leaf in made.items() if name not in ordered}

    def _frozen(self) -> dict[str, Any]:
        """Frozen parameters, which the optimizer does not have."""
        from ..encodings.array_parts import joined, runs

        shapes = self._models[0].root.get("frozen_param_shapes")
        made: dict[str, Any] = {}
        if not shapes:
            return made
        for name, shape in self._shapes(shapes):
            regions: list[Region] = []
            if not self._is_third:
                fragments = self._models[0].part(
                    self._models[0].root, "frozen_param_fragments", dict
                )
                made[name] = _Whole(
                    self._models[0].resolve(name, self._models[0].part(fragments, name, TensorOf))
                )
                continue
            dtype, done = "float32", 0
            for saved in self._models:
                stored = saved.vector(
                    saved.part(saved.root, "frozen_param_fragments", dict).get(name), name
                )
                regions += runs([stored], 0, min(stored.size, prod(shape) - done), done)
                dtype, done = stored.dtype, min(done + stored.size, prod(shape))
            made[name] = _Whole(joined(self._where, name, dtype, shape, regions, flat=True))
        return made

    def _optimizer(self, others: dict[str, str]) -> dict[str, Any]:
        """The optimizer's states by parameter, as whole tensors; the rest is that of process 0."""
        if self._is_third:
            key = "optimizer_state_dict"
        else:
            key = "base_optimizer_state"
        bases = [state.get(key) for state in self._states]
        held = [base.get("state") if isinstance(base, dict) else None for base in bases]
        states = [state for state in held if isinstance(state, dict)]
        if len(states) != len(held):
            others["optimizer.state"] = "it is not kept as one dict for each process"
            return {}
        made: dict[str, Any] = {}
        kinds = dict.fromkeys(
            kind
            for one_state in states[0].values()
            if isinstance(one_state, dict)
            for kind in one_state
        )
        for kind in kinds:
            leaves = [
                [one_state.get(kind) for one_state in state.values() if isinstance(one_state, dict)]
                for state in states
            ]
            flat = all(
                type(leaf) is TensorOf and len(leaf.view.shape) == 1
                for own in leaves
                for leaf in own
            )
            if flat and all(len(own) == len(self._vectors[0]) for own in leaves):
                vectors = [
                    [saved.vector(leaf, str(kind)) for leaf in own]
                    for saved, own in zip(self._optimizers, leaves, strict=True)
                ]
                made[kind] = {
                    name: self._whole(name, place, vectors) for name, place in self._places.items()
                }
            else:
                single = [dict(enumerate(own)) for own in leaves]
                made[kind] = self._values(self._optimizers[0], single[0])
                self._compare(f"optimizer.{kind}", self._optimizers, single, others)
        rest = [
            {name: value for name, value in (base or {}).items() if name != "state"}
            for base in bases
        ]
        self._compare("optimizer", self._optimizers, rest, others)
        return made | self._values(self._optimizers[0], rest[0])


def _identity(leaf: Any) -> Any:
    """A key that tied tensors of a file share; ``None`` for an empty tensor."""
    if type(leaf) is not TensorOf or not prod(leaf.view.shape):
        return None
    return leaf.storage.key, leaf.view.offset, leaf.view.shape, leaf.view.strides


FORMAT = DeepSpeed()
