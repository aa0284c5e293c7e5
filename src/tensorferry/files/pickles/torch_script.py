"""The names of TorchScript in pickles: modules (objects with attributes), and typed lists and dicts.

https://github.com/pytorch/pytorch/blob/main/torch/csrc/jit/docs/serialization.md
"""

from __future__ import annotations

from typing import Any

from .standins import OPAQUE, InstanceOf
from .torch import Names
from .words import Global

__all__ = ["ScriptNames"]

_OWN = "__torch__."
"""The prefix of classes whose code is in the archive."""


class ScriptNames(Names):
    """The vocabulary of TorchScript. A module becomes a dict of its attributes.

    Args:
        where: The file, for messages.
        allow: As for `Names`.
    """

    def find(self, name: str) -> Any:
        if name.startswith(_OWN):
            self.asked[name] = None
            return Global(name)
        return super().find(name)

    def call(self, function: Any, arguments: Any) -> Any:
        if type(function) is Global and function.name.startswith(_OWN):
            if type(arguments) is not tuple or arguments:
                raise self.wrong("makes a module of something")
            return InstanceOf(function.name, ())
        return super().call(function, arguments)

    def as_it_is(self, value: Any, _kind: Any = None) -> Any:
        """``restore_type_tag(value, type)``, and ``build_intlist(value)``."""
        if value is not OPAQUE and type(value) not in (list, dict, tuple):
            raise self.wrong("has a list or dict of another type")
        return value


ScriptNames.calls = Names.calls | dict.fromkeys(
    (
        f"torch.jit._pickle.{name}"
        for name in ("restore_type_tag", "build_intlist", "build_tensorlist", "build_doublelist", "build_boollist")
    ),
    ScriptNames.as_it_is,
)
