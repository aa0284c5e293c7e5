"""`python -m examples.tour`, in a clone of the repository: all cases, or some (``C03 C26``)."""

from __future__ import annotations

import argparse

from tensorferry.cli.process import end_with

from .report import CASES, run, unknown_cases


def main() -> int:
    """Run the cases that the command line names; gives the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.tour",
        description="27 everyday cases, live; without a GPU, those that need one are shown as plans.",
    )
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help="only these cases, such as C03 C26"
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--brief", action="store_true", help="one line for each case")
    shown.add_argument("--json", action="store_true", help="print JSON, which is always whole")
    asked = parser.parse_args()
    unknown = unknown_cases(asked.cases)
    if unknown:
        parser.error(f"no case {', '.join(unknown)}; they are C01 to C{len(CASES):02d}")
    return run(asked.cases, brief=asked.brief, as_json=asked.json)


if __name__ == "__main__":
    end_with(main)
