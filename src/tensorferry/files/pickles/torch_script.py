"""The names of TorchScript in pickles: modules (objects with attributes), and typed lists and dicts.

https://github.com/pytorch/pytorch/blob/main/torch/csrc/jit/docs/serialization.md
"""

from __future__ import annotations

from typing import Any

from .standins import InstanceOf
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

    def knows(self, name: str) -> bool:
        return name.startswith(_OWN) or super().knows(name)

    def call(self, function: Any, arguments: Any, keywords: Any = None) -> Any:
        if type(function) is Global and function.name.startswith(_OWN):
            if arguments != () or keywords:
                raise self.wrong("makes a module of something")
            return InstanceOf(function.name, ())
        return super().call(function, arguments, keywords)

    def as_it_is(self, value: Any, _kind: Any = None) -> Any:
        """``restore_type_tag(value, type)``, and ``build_intlist(value)``."""
        if type(value) not in (list, dict, tuple):
            raise self.wrong("has a list or dict of another type")
        return value


ScriptNames.calls = Names.calls | dict.fromkeys(
    (
        f"torch.jit._pickle.{name}"
        for name in (
            "restore_type_tag",
            "build_intlist",
            "build_tensorlist",
            "build_doublelist",
            "build_boollist",
        )
    ),
    ScriptNames.as_it_is,
)
