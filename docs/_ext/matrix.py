"""What each pair of frameworks shares, as plans say; what each format of files holds, as it declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reference import Generated

import tensorferry as ferry
from tensorferry.backends import registry
from tensorferry.core.dtypes import DTYPES
from tensorferry.files.opening.paths import formats

if TYPE_CHECKING:
    from collections.abc import Iterator

SHAPE = (4, 6)


def _targets() -> list[str]:
    """Every framework that comes with tensorferry, and Python's lists."""
    return [*ferry.frameworks(), "python"]


def _sources() -> Iterator[tuple[str, ferry.TensorInfo]]:
    """A float32 tensor of each framework, and the tensors of each whose rules are others."""
    for name in _targets():
        info = ferry.TensorInfo(name, SHAPE)
        yield f"`{name}`", info
        declared = registry.backend_named(name).capabilities
        if declared.memory.read_only:
            yield (
                f"`{name}`, read-only",
                ferry.TensorInfo(name, SHAPE, writable=False, mutable=False),
            )
        if declared.gradients.graph:
            yield f"`{name}`, requires grad", ferry.TensorInfo(name, SHAPE, requires_grad=True)


def _outcome(info: ferry.TensorInfo, target: str) -> tuple[str, str]:
    """What becomes of the memory, in a word, and why."""
    try:
        plan = ferry.explain(info, target)
    except ferry.ConversionError as error:
        return "raises", error.message
    if not plan.shares_memory:
        return "copies", plan.reason
    writable = registry.backend_named(target).capabilities.memory.writable
    return "read-only view" if writable and not plan.result.writable else "shares", plan.reason


def _marked(outcome: str) -> str:
    return f"[{outcome}]{{.{outcome.replace(' ', '-')}}}"


def _head(corner: str, targets: list[str]) -> list[str]:
    return [
        "{.matrix}",
        f"| {corner} | {' | '.join(f'`{name}`' for name in targets)} |",
        "|---" * (len(targets) + 1) + "|",
    ]


class Pairs(Generated):
    """Every pair of source and target: whether memory is shared, and why."""

    def made(self) -> list[str]:
        """A table, and the pairs by reason."""
        targets = _targets()
        lines = _head("from, to", targets)
        reasons: dict[tuple[str, str], dict[str, list[str]]] = {}
        for label, info in _sources():
            outcomes = [_outcome(info, target) for target in targets]
            lines.append(f"| {label} | {' | '.join(_marked(outcome) for outcome, _ in outcomes)} |")
            for target, (outcome, why) in zip(targets, outcomes, strict=True):
                alike = why.replace(f" {target} ", " target's ").replace(
                    "a target's", "the target's"
                )
                reasons.setdefault((outcome, alike), {}).setdefault(label, []).append(target)
        lines += ["", "| memory | reason, as the plan says it | pairs |", "|---|---|---|"]
        for (outcome, why), pairs in sorted(reasons.items()):
            listed = "; ".join(f"{label} to {', '.join(to)}" for label, to in pairs.items())
            lines.append(f"| {_marked(outcome)} | {why} | {listed} |")
        return [*lines, ""]


class DtypesOfPairs(Generated):
    """For each source and dtype, what becomes of it in each target."""

    def made(self) -> list[str]:
        """A table for each source: a row for all dtypes that fare alike."""
        targets = _targets()
        lines = []
        for name in targets:
            held = registry.backend_named(name).capabilities.dtypes.held
            rows: dict[tuple[str, ...], list[str]] = {}
            for dtype in (each for each in DTYPES if each in held):
                info = ferry.TensorInfo(name, SHAPE, dtype)
                rows.setdefault(tuple(_outcome(info, target)[0] for target in targets), []).append(
                    f"`{dtype}`"
                )
            lines += [f"### From {name}", "", *_head("dtype", targets)]
            for outcomes, dtypes in rows.items():
                lines.append(f"| {', '.join(dtypes)} | {' | '.join(map(_marked, outcomes))} |")
            lines.append("")
        return lines


class Formats(Generated):
    """Every format of files with what it can hold, as it declares."""

    def made(self) -> list[str]:
        """A table of the formats, and one of the dtypes that each lacks."""
        lines = [
            "| `--to` | format | suffixes | install | values | metadata | writes |",
            "|---|---|---|---|---|---|---|",
        ]
        listed: list[Any] = sorted(
            formats().values(), key=lambda each: (bool(each.module), each.rank, each.name)
        )
        for each in listed:
            suffixes = " ".join(f"`{suffix}`" for suffix in each.suffixes) + (
                " (folders)" if each.is_folder else ""
            )
            marks = (
                "yes" if held else ""
                for held in (each.holds_tree, each.holds_metadata, each.writes)
            )
            install = f"`{each.module}`" if each.module else ""
            lines.append(
                f"| `{each.name}` | {each.title} | {suffixes} | {install} | {' | '.join(marks)} |"
            )
        lines += ["", "| format | dtypes that it does not hold |", "|---|---|"]
        for each in listed:
            lacking = [name for name in DTYPES if name not in each.dtypes]
            held = [name for name in DTYPES if name in each.dtypes]
            words = ", ".join(lacking) or "none"
            lines.append(
                f"| {each.title} | {words if len(lacking) <= len(held) else 'all but ' + ', '.join(held)} |"
            )
        return [*lines, ""]


DIRECTIVES = {"pairs": Pairs, "dtypes-of-pairs": DtypesOfPairs, "formats": Formats}
