"""The rows as one table: for the terminal, and for the documentation."""

from __future__ import annotations

import platform
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .case import Measured, Unmeasured

__all__ = ["HEADER", "PAGE", "TextTable", "machine", "versions", "write_page"]

HEADER = ("case: ours / theirs", "ours", "theirs", "ratio", "median", "target", "")
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- begin: written by `make bench` -->", "<!-- end: written by `make bench` -->"

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
        return str(import_module(name).__version__) if name in ("tensorflow", "tensorferry") else version(name)
    except ImportError:
        return "not installed"


def markdown(sections: Iterable[tuple[str, Sequence[Measured | Unmeasured]]]) -> str:
    """The table as Markdown, sections as rows of their own."""
    lines = [_markdown_line(HEADER), "|---|---:|---:|---:|---:|---:|---|"]
    for title, rows in sections:
        lines.append(_markdown_line((f"**{title}**", *[""] * 6)))
        for row in rows:
            name, *rest = row.cells()
            lines.append(_markdown_line((f"`{name}`", *rest)))
    return "\n".join(lines)


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def write_page(sections: Sequence[tuple[str, Sequence[Measured | Unmeasured]]], summary: str) -> None:
    """Put the table, the machine and the versions between the page's markers."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{PAGE.name} has lost its markers {BEGIN} and {END}")
    body = f"Machine: {machine()}.\n\nVersions: {versions()}.\n\n{summary}\n\n{markdown(sections)}"
    PAGE.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")
