"""Modules that import libraries which `make converters` alone installs are no tests."""

from __future__ import annotations

from collections import Counter

collect_ignore_glob = ["from_*.py"]


def pytest_terminal_summary(terminalreporter):
    """How much was tried: converters, their outputs, and how many of these are what."""
    counts = Counter()
    for report in terminalreporter.stats.get("passed", ()):
        counts.update(dict(report.user_properties))
    if counts:
        said = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        terminalreporter.write_line(f"Traced: {said}")
