"""What Typer says of a command's arguments and options, without what nobody types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Command", "CommandGroup"]


class Command(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its arguments and options, as its help shows them."""
        return _untyped(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read what was typed; of ``IN... OUT`` one path alone is IN, and it is OUT that is missing."""
        typed = [word for word in args if not word.startswith("-")]
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            missing: Any = error
            arguments = [param for param in self.params if param.param_type_name == "argument"]
            if typed and type(error) is not typer.BadParameter and missing.param in arguments[:-1]:
                missing.param = arguments[-1]
            raise


class CommandGroup(TyperGroup):
    """The command that has the others."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options, as its help shows them."""
        return _untyped(super().get_params(ctx))


def _untyped(params: Iterable[Any]) -> list[Any]:
    """Flags without ``<bool>`` behind them, since nothing is typed there; arguments without the type of their list."""
    shown = list(params)
    for param in shown:
        if param.param_type_name == "argument":
            param.display_type_rich = _nothing
        elif param.is_flag and param.metavar is None:
            param.metavar = ""
    return shown


def _nothing(ctx: Any) -> str:
    """What Typer asks for by the name of its argument."""
    del ctx
    return ""
