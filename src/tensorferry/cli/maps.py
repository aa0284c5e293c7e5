"""``tensorferry map``: check, explain, invert, infer and trace tables of weights."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ..errors import ConversionError
from ..files.base.wording import named
from .console import EXIT_FAILED, paragraph, printable, rows
from .outcome import counted, failed, result, show_note, writing
from .usage import Command, CommandGroup, StorageOption, files_or_urls, path_or_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..maps.map_finding import MapFinding
    from ..weight_map import WeightMap

__all__ = ["app", "dims_of"]

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    help="Weights under another name: tables that say which elements of which tensors become which.",
)

_Table = Annotated[
    Path, typer.Argument(readable=False, metavar="TABLE", help="A table of weights, as TOML.")
]
_Source = Annotated[
    Path,
    typer.Argument(
        parser=path_or_url,
        metavar="SOURCE",
        help="A file, a folder of shards, or its index.json.",
    ),
]
_Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=N",
        help="A length that no shape tells; config.json beside SOURCE has others.",
    ),
]
_Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", help="Where to write the table; stdout by default."
    ),
]
_Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace FILE if it exists.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


@app.command(cls=Command)
def check(
    table: _Table,
    source: _Source,
    against: Annotated[
        Path | None,
        typer.Option(
            parser=path_or_url,
            metavar="TARGET",
            help="A file with the names, shapes and dtypes that the table has to make.",
        ),
    ] = None,
    dim: _Dims = None,
    storage_option: StorageOption = None,
    json: _Json = False,
) -> None:
    """Whether a table makes each element once and uses all of SOURCE, from headers alone."""
    given = [source] if against is None else [source, against]
    places, _ = files_or_urls(given, storage_option)

    def run(read: WeightMap) -> int:
        findings = read.check(*places, dims=dims_of(dim))
        with writing():
            if json:
                result("map check", {"findings": [finding._asdict() for finding in findings]})
            else:
                _print_findings(findings, table)
        return EXIT_FAILED if findings else 0

    raise typer.Exit(_done("map check", table, run, as_json=json))


@app.command(cls=Command)
def explain(
    table: _Table,
    source: _Source,
    dim: _Dims = None,
    storage_option: StorageOption = None,
    json: _Json = False,
) -> None:
    """What becomes of each tensor of SOURCE: how many bytes are moved, and what is dropped."""
    (place,), _ = files_or_urls([source], storage_option)

    def run(read: WeightMap) -> int:
        plan = read.explain(place, dims=dims_of(dim))
        with writing():
            if json:
                result("map explain", plan.to_dict())
            else:
                head, *lines = str(plan).splitlines()
                paragraph(printable(head))
                rows([(printable(line.strip()),) for line in lines], styles=("",))
        return 0

    raise typer.Exit(_done("map explain", table, run, as_json=json))


@app.command(cls=Command)
def invert(
    table: _Table,
    source: Annotated[
        Path | None,
        typer.Argument(
            parser=path_or_url,
            metavar="[SOURCE]",
            help="What the table is for: a file, a folder of shards, or its index.json, whose shapes "
            "tell the lengths that the table does not.",
        ),
    ] = None,
    output: _Output = None,
    overwrite: _Overwrite = False,
    dim: _Dims = None,
    storage_option: StorageOption = None,
) -> None:
    """The table back, or what of it cannot be inverted."""
    places, _ = files_or_urls([] if source is None else [source], storage_option)

    def run(read: WeightMap) -> int:
        inverted = read.inverse(*places, dims=dims_of(dim))
        _write(inverted, output, overwrite=overwrite)
        undecided = [
            name for name, ways in inverted.dims.items() if ways == ("",) and name not in read.dims
        ]
        if undecided:
            show_note(f"to be given with --dim, or told by SOURCE: {named(undecided, 20)}")
        return 0

    raise typer.Exit(_done("map invert", table, run))


@app.command(cls=Command)
def infer(
    source: Annotated[
        Path, typer.Argument(parser=path_or_url, metavar="A", help="A file of weights.")
    ],
    target: Annotated[
        Path,
        typer.Argument(
            parser=path_or_url, metavar="B", help="A file with the same weights, of any format."
        ),
    ],
    output: _Output = None,
    overwrite: _Overwrite = False,
    dim: _Dims = None,
    storage_option: StorageOption = None,
) -> None:
    """The table that makes B of A, by their values: what they are guessed from is marked."""
    from ..weight_map import WeightMap

    (a, b), _ = files_or_urls([source, target], storage_option)

    def run() -> int:
        table = WeightMap.infer(a, b, dims=dims_of(dim))
        _write(table, output, overwrite=overwrite)
        return _say_what_is_missing(table)

    raise typer.Exit(_made("map infer", run))


@app.command(cls=Command)
def trace(
    convert: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="A converter: a function of a dict of tensors, or of a path. It runs with your rights.",
        ),
    ],
    sources: Annotated[
        list[Path],
        typer.Argument(
            parser=path_or_url,
            metavar="SOURCE",
            help="A model to convert: headers and config.json are read. Three sizes give lengths names.",
        ),
    ],
    output: _Output = None,
    overwrite: _Overwrite = False,
    framework: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Whose tensors the converter gets; PyTorch's by default."
        ),
    ] = None,
    verify_with: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Real weights, on which table and converter are compared too."
        ),
    ] = None,
    dim: _Dims = None,
    storage_option: StorageOption = None,
) -> None:
    """The table that says what a converter does, read off what it does with dyed tensors."""
    from ..weight_map import WeightMap

    places, _ = files_or_urls(sources, storage_option)

    def run() -> int:
        source: Any = places if len(places) > 1 else places[0]
        table = WeightMap.trace(
            convert,
            source,
            framework=framework,
            dims=dims_of(dim) or None,
            verify_with=verify_with,
        )
        _write(table, output, overwrite=overwrite)
        return _say_what_is_missing(table)

    raise typer.Exit(_made("map trace", run))


def _made(command: str, run: Callable[[], int]) -> int:
    """Make a table; gives the exit code."""
    try:
        return run()
    except (ConversionError, OSError) as error:
        return failed(command, {}, error, as_json=False)


def _say_what_is_missing(table: WeightMap) -> int:
    """Say what is not known, or guessed; gives the exit code."""
    missing = [str(rule.target) for rule in table.rules if rule.expression is None]
    assumed = [str(rule.target) for rule in table.rules if rule.assumed]
    if missing:
        show_note(f"not known, with the reason in the table: {printable(named(missing, 20))}")
    if assumed:
        show_note(f"guessed, and marked as assumed: {printable(named(assumed, 20))}")
    return EXIT_FAILED if missing else 0


def _done(
    command: str, table: Path, run: Callable[[WeightMap], int], *, as_json: bool = False
) -> int:
    """Read a table, and do something with it; gives the exit code."""
    from ..weight_map import WeightMap

    try:
        return run(WeightMap.read(table))
    except (ConversionError, OSError) as error:
        return failed(command, {"table": str(table)}, error, as_json=as_json)


def _write(table: WeightMap, output: Path | None, *, overwrite: bool) -> None:
    if output is None:
        with writing():
            sys.stdout.write(table.text)
        return
    table.save(output, overwrite=overwrite)
    show_note(f"{output}: {counted(len(table.rules), 'rule')}")


def _print_findings(findings: Iterable[MapFinding], table: Path) -> None:
    lines = [
        (finding.kind, printable(finding.tensor), printable(finding.message))
        for finding in findings
    ]
    rows(lines, styles=("warn", "name", ""))
    verdict = ("failed", "bad") if lines else ("ok", "ok")
    told = f", {counted(len(lines), 'finding')}" if lines else ""
    paragraph(Text.assemble(f"{printable(str(table))}: ", verdict, told))


def dims_of(words: Iterable[str] | None) -> dict[str, int]:
    """Lengths as they are typed: ``h=32``.

    Raises:
        typer.BadParameter: One is typed in another way.
    """
    sizes = {}
    for word in words or ():
        name, mark, number = word.partition("=")
        if not mark or not name or not number.isdecimal():
            raise typer.BadParameter(f"{word!r} is not like h=32", param_hint="--dim")
        sizes[name] = int(number)
    return sizes
