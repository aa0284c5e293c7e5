"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import typer
from reference import Generated

from tensorferry.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _rows(parameters: list[Any]) -> Iterator[str]:
    """A row for each argument or option."""
    for each in parameters:
        if each.param_type_name == "argument":
            written = f"`{each.metavar}`" + (" …" if each.nargs == -1 else "")
        else:
            value = f" {each.metavar or each.name.upper()}" if not each.is_flag else ""
            written = ", ".join(
                f"`{option}{value}`" for option in [*each.opts, *each.secondary_opts]
            )
        # What a flag does when it is left out goes without saying.
        silent = each.default is None or each.default is False or callable(each.default)
        default = "required" if each.required else "" if silent else f"`{each.default}`"
        yield f"| {_cell(written)} | {_cell(each.help or '')} | {default} |"


class Commands(Generated):
    """Every command: how it is written, what it does, its arguments and options."""

    def made(self) -> list[str]:
        """A section for each command, in the order of the help."""
        group: Any = typer.main.get_command(app)
        lines = []
        for name, command in group.commands.items():
            if command.hidden:
                continue
            with command.make_context(name, [], resilient_parsing=True) as context:
                usage = " ".join(command.collect_usage_pieces(context))
            lines += [f"## {name}", "", "```text", f"tensorferry {name} {usage}", "```", ""]
            lines += [inspect.cleandoc(command.help or ""), ""]
            panels: dict[str, list[Any]] = {}
            for each in command.params:
                if not getattr(each, "hidden", False):
                    panels.setdefault(each.rich_help_panel or "", []).append(each)
            for panel, parameters in panels.items():
                lines += [f"**{panel}**", ""] if panel else []
                lines += [
                    "| argument or option | meaning | default |",
                    "|---|---|---|",
                    *_rows(parameters),
                    "",
                ]
        return lines


class ExitCodes(Generated):
    """The exit codes, as the help has them."""

    def made(self) -> list[str]:
        """A row for each."""
        said = str(app.info.epilog).removeprefix("Exit codes: ").rstrip(".")
        pairs = [each.partition(", ") for each in said.split("; ")]
        return [
            "| code | meaning |",
            "|---|---|",
            *(f"| {code} | {_cell(what)} |" for code, _, what in pairs),
            "",
        ]


DIRECTIVES = {"commands": Commands, "exit-codes": ExitCodes}
