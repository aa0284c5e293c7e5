"""The rows: as one table for the terminal, and on a page for each group in the documentation."""

from __future__ import annotations

import platform
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .case import Measured, Unmeasured
    from .registered import Group

    Rows = Sequence[Measured | Unmeasured]
    Done = Mapping[str, Rows]

__all__ = ["HEADER", "PAGE", "TextTable", "about", "machine", "summary", "versions", "write_pages"]

HEADER = ("case: ours / theirs", "ours", "theirs", "ratio", "median", "target", "")
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- begin: written by `make bench` -->", "<!-- end: written by `make bench` -->"
LEAD = """<!-- written by `make bench` -->

What the columns mean, where it was measured, and why targets are missed: [benchmarks](../benchmarks.md)."""

_PACKAGES = ("tensorferry", "numpy", "ml_dtypes", "torch", "tensorflow", "jax")
_WIDTHS = (72, 8, 8, 8, 8, 8)


class TextTable:
    """The table as plain text, printed as it grows."""

    def head(self) -> str:
        """The line of column titles."""
        return self._line(HEADER)

    def title(self, text: str) -> str:
        """The line above a section."""
        return f"\n{text}"

    def row(self, row: Measured | Unmeasured) -> str:
        """One measured line."""
        return self._line(row.cells())

    def _line(self, cells: Sequence[str]) -> str:
        first, *numbers, last = cells
        if len(first) > _WIDTHS[0]:  # a long case has a line of its own
            return "\n".join([first, self._line(("", *numbers, last))])
        parts = [first.ljust(_WIDTHS[0])]
        parts += [cell.rjust(width) for cell, width in zip(numbers, _WIDTHS[1:], strict=True)]
        return "  ".join([*parts, last]).rstrip()


def machine() -> str:
    """The processor, its cores and the memory, without the machine's name."""
    model = platform.processor() or platform.machine()
    cores, memory = 0, ""
    if Path("/proc/cpuinfo").exists():
        lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
        models = [value.strip() for key, _, value in lines if key.strip() == "model name"]
        model, cores = (models[0] if models else model), len(models)
        kilobytes = Path("/proc/meminfo").read_text().split()[1]
        memory = f", {int(kilobytes) / 2**20:.0f} GiB"
    return f"{model}, {cores or '?'} cores{memory}{_gpu()}, {platform.system()}, Python {platform.python_version()}"


def _gpu() -> str:
    """The name of PyTorch's accelerator, if there is one."""
    import torch

    if not torch.accelerator.is_available():
        return ""
    found = torch.accelerator.current_accelerator()
    return f", {getattr(torch.get_device_module(found), 'get_device_name', lambda: found.type)()}"


def versions() -> str:
    """Everything that took part, with its version."""
    return ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)


def _version(name: str) -> str:
    # TensorFlow has several distributions, and tensorferry may not be installed.
    try:
        return (
            str(import_module(name).__version__)
            if name in ("tensorflow", "tensorferry")
            else version(name)
        )
    except ImportError:
        return "not installed"


def summary(rows: Rows) -> str:
    """How many targets are met."""
    met, missed = _kept(rows)
    verdicts = [row.cells()[-1] for row in rows]
    free = verdicts.count("")
    return (
        f"{met} of {met + missed} measured targets are met, {missed} are missed; {free} rows have no target, "
        f"{len(verdicts) - met - missed - free} were not measured."
    )


def _kept(rows: Rows) -> tuple[int, int]:
    """How many targets are met, and how many are missed."""
    verdicts = [row.cells()[-1] for row in rows]
    return verdicts.count("ok"), sum(verdict.startswith("MISS") for verdict in verdicts)


def about(rows: Rows) -> str:
    """What all pages have in common: where they were measured, and how many targets are met."""
    return f"Machine: {machine()}.\n\nVersions: {versions()}.\n\n{summary(rows)}"


def group_page(group: Group, done: Done) -> str:
    """The page of a group as Markdown: a table for each of its sections."""
    parts = [f"# {group.title}", LEAD]
    for section in group.sections:
        parts += [f"## {section.title}", _table(done[section.title])]
    return "\n\n".join(parts) + "\n"


def _table(rows: Rows) -> str:
    lines = ["{.figures}", _markdown_line(HEADER), "|---|---:|---:|---:|---:|---:|---|"]
    for row in rows:
        name, *rest = row.cells()
        lines.append(_markdown_line((f"`{name}`", *rest)))
    return "\n".join(lines)


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def contents(groups: Sequence[Group], done: Done) -> str:
    """The list of the pages as Markdown, with how many targets each meets."""
    lines = ["| page | rows | targets met | missed |", "|---|---:|---:|---:|"]
    for group in groups:
        rows = [row for section in group.sections for row in done[section.title]]
        met, missed = _kept(rows)
        link = f"[{group.title}]({PAGE.stem}/{group.name}.md)"
        lines.append(_markdown_line((link, str(len(rows)), str(met), str(missed))))
    names = "\n".join(f"{PAGE.stem}/{group.name}" for group in groups)
    return "\n".join([*lines, "", "```{toctree}", ":hidden:", "", names, "```"])


def write_pages(groups: Sequence[Group], done: Done, said: str, page: Path = PAGE) -> None:
    """Write the page of each group, and the list of them between the markers of the page above them.

    Args:
        groups: The pages.
        done: The rows of each section, by its title.
        said: What `about` gives.
        page: The page above them; they are in a folder of its name.

    Raises:
        ValueError: The page has lost its markers.
    """
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{page.name} has lost its markers {BEGIN} and {END}")
    folder = page.with_suffix("")
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.md"):
        old.unlink()
    for group in groups:
        (folder / f"{group.name}.md").write_text(group_page(group, done), encoding="utf-8")
    body = f"{BEGIN}\n{said}\n\n{contents(groups, done)}\n{END}"
    page.write_text(f"{before}{body}{after}", encoding="utf-8")
