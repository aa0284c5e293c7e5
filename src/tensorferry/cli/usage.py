"""Typer's help for arguments and options, without parts that nobody types."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Command", "CommandGroup"]


class Command(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its arguments and options, as its help shows them."""
        return _untyped(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help. It is not an error if the reader of stdout stops early."""
        with _unread():
            super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments. If only one path is given for ``IN... OUT``, OUT is the missing one."""
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

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help. It is not an error if the reader of stdout stops early."""
        with _unread():
            super().format_help(ctx, formatter)


@contextmanager
def _unread() -> Iterator[None]:
    """A context that changes the exit code to 0 if Rich ends the process because of a broken pipe."""
    try:
        yield
    except SystemExit:
        raise SystemExit(0) from None


def _untyped(params: Iterable[Any]) -> list[Any]:
    """Remove ``<bool>`` after flags, which take no value, and the type of lists after arguments."""
    shown = list(params)
    for param in shown:
        if param.param_type_name == "argument":
            param.display_type_rich = _nothing
        elif param.is_flag and param.metavar is None:
            param.metavar = ""
    return shown


def _nothing(ctx: Any) -> str:
    """A function for Typer that needs the name of this argument."""
    del ctx
    return ""
