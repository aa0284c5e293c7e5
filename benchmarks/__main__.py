"""Measure everything and print one table; ``--only WORD`` measures the sections with that word."""

from __future__ import annotations

import argparse
import gc
import os
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Frameworks share one GPU: none may take all of its memory when it starts.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

from . import report
from .registered import GROUPS, SECTIONS


def main() -> None:
    """Print the table, and write it into the documentation when it is whole."""
    options = _options()
    # torch.tensor warns that it is slow on a list of arrays: that is what is measured.
    warnings.filterwarnings("ignore", message="Creating a tensor from a list of numpy.ndarrays")
    chosen = [each for each in SECTIONS if options.only.lower() in each.title.lower()]
    table = report.TextTable()
    print(f"{report.machine()}\n{report.versions()}\n")
    print(table.head())
    done = {}
    for section in chosen:
        print(table.title(section.title), flush=True)
        rows = []
        for row in section.rows():
            rows.append(row)
            print(table.row(row), flush=True)
        done[section.title] = rows
        gc.collect()
    everything = [row for rows in done.values() for row in rows]
    print(f"\n{report.summary(everything)}")
    if len(chosen) == len(SECTIONS) and not options.no_page:
        report.write_pages(GROUPS, done, report.about(everything))
        print(f"written to docs/{report.PAGE.name} and docs/{report.PAGE.stem}/")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", default="", metavar="WORD", help="sections whose title has this word"
    )
    parser.add_argument(
        "--no-page", action="store_true", help="leave the pages of the documentation as they are"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
