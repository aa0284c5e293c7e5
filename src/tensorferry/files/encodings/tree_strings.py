"""A tree and ties among strings that are not all tensorferry's own, as formats with attributes have them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..tree import TIES, TREE, pack, unpack

if TYPE_CHECKING:
    from ..contents import Contents

__all__ = ["packed", "unpacked"]


def packed(contents: Contents, *, ties: bool = True) -> dict[str, str]:
    """As `pack` gives them, without the strings by which safetensors.torch names ties.

    Args:
        contents: What is to be written.
        ties: Whether to have the string of the ties; not for formats that tie tensors by themselves.

    Raises:
        FormatLimitError: As for `pack`.
    """
    wanted = {TREE, TIES} if ties else {TREE}
    return {key: text for key, text in pack(contents).items() if key in wanted or key in contents.metadata}


def unpacked(contents: Contents) -> Contents:
    """As `unpack` gives it; a string that happens to be a tensor's name stays a string.

    Raises:
        FileFormatError: As for `unpack`.
    """
    own = {key: text for key, text in contents.metadata.items() if key in (TREE, TIES)}
    rest = {key: text for key, text in contents.metadata.items() if key not in own}
    return replace(unpack(replace(contents, metadata=own)), metadata=rest) if own else contents
