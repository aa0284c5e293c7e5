"""safetensors: a JSON header, then the bytes of tensors without gaps.

The format is described at https://huggingface.co/docs/safetensors/index#format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ....errors import FileFormatError
from ...base.contents import Contents, FileFinding
from ...base.format import Format
from .header import HEADER_LIMIT, NAMES, Scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ....errors import ConversionError
    from ...base.pump import Pump


class _Safetensors(Format):
    """The format of Hugging Face: https://huggingface.co/docs/safetensors/index."""

    name = "safetensors"
    title = "safetensors"
    suffixes = (".safetensors",)
    dtypes = frozenset(NAMES)
    holds_tree = True
    holds_metadata = True
    own_metadata: ClassVar[Mapping[str, tuple[str, ...]]] = {"format": ("pt", "tf", "flax", "mlx")}
    """How names and shapes of weights are meant; "pt" is as usual, whatever made the tensors.
    transformers before 5 and accelerate refuse a file without it, and accelerate all but "pt"."""
    ties = "own"
    unicode_only = True
    index_suffix = ".index.json"
    rank = 10
    first_class = True

    def recognises(self, path: Path, head: bytes) -> bool:
        length = int.from_bytes(head[:8], "little")
        return head[8:].lstrip(b" \t\n\r")[:1] == b"{" and length <= HEADER_LIMIT

    def is_named(self, path: Path, head: bytes) -> bool:
        return path.name.lower().endswith(self.suffixes)

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        scan = Scan(path)
        if scan.findings:
            from shlex import quote  # here, because only an error needs it

            first = scan.findings[0]
            if first.tensor is not None:
                concerned = f"{first.tensor!r}: "
            else:
                concerned = ""
            if len(scan.findings) > 1:
                more = f" ({len(scan.findings) - 1} more)"
            else:
                more = ""
            raise FileFormatError(
                f"{path} breaks the rules of safetensors at byte {first.offset}: "
                f"{concerned}{first.message}{more}.",
                f"tensorferry check {quote(str(path))}",
            )
        return self._unpacked(path, scan)

    def _unpacked(self, path: Path, scan: Scan) -> Contents:
        contents = Contents(self.name, (str(path),), scan.tensors, scan.metadata, None, scan.others)
        if scan.metadata.keys() <= self.own_metadata.keys():
            return contents
        from ...base.tree_strings import unpack  # here, because most files have no such strings

        return unpack(contents)

    def refuse(self, contents: Contents) -> None:
        from .writer import refuse  # here and below, because a file is read without it

        refuse(self, contents)

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        from .writer import write

        write(contents, path, pump)

    def check(
        self,
        path: Path,
        *,
        allow: frozenset[str] = frozenset(),
        found: Contents | ConversionError | None = None,
    ) -> Iterator[FileFinding]:
        if isinstance(found, Contents):
            return  # `read` raises for everything that can be wrong with a header
        scan = Scan(path)
        yield from scan.findings
        try:
            self._unpacked(path, scan)
        except FileFormatError as error:
            if not scan.findings:
                yield FileFinding(str(path), 8, None, error.message)


FORMAT = _Safetensors()
