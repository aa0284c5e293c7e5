"""The words in pictures of memory, as a table: English, unless a translation is given."""

from __future__ import annotations

from ..core.named_tuple import NamedTuple
from .step import WAYS, Path

__all__ = ["WORDS", "Words"]


class Words(NamedTuple):
    """Phrases with named gaps, which a translation may put in another order.

    >>> WORDS._replace(byte_count="{count} octets").byte_count.format(count=24)
    '24 octets'
    """

    # -- the two sides
    source: str = "source"
    result: str = "result"
    side: str = "{side}: {what}"
    may_write: str = "may write"
    read_only: str = "read-only"
    comma: str = ", "
    one_byte: str = "1 byte"
    byte_count: str = "{count} bytes"
    part_of: str = "{part} of {whole}"
    after_line: str = "{bytes} after a 64-byte line"
    strides: str = "strides {strides}"
    elements_share: str = "{count} elements share them"
    # -- the places
    on_host: str = "{device}: host memory"
    on_pinned: str = "{device}: page-locked host memory"
    on_device: str = "{device}: device memory"
    on_map: str = "{device}: a file that is mapped into memory"
    # -- the memory
    ruler: str = "byte"
    order: str = "Numbers: the order of reading."
    first_line: str = "the 64-byte line of its first element: number {number} of {count}"
    blocks: str = "all of it: {size} in each block"
    blocks_partly: str = "all of it: {size} in each block, full where all of it is touched"
    one_object: str = "1 object, in memory of its own"
    object_count: str = "{count} objects, each in memory of its own"
    one_part: str = "1 part, in memory of its own"
    part_count: str = "{count} parts, each in memory of its own"
    values: str = "values that are read, not one block of memory"
    no_memory: str = "no memory: {why}"
    no_elements: str = "no elements: no bytes"
    # -- what is copied
    over_host: str = f"{{size}} {WAYS[Path.HOST]}"
    over_bus: str = f"{{size}} {WAYS[Path.BUS]}"
    over_device: str = f"{{size}} {WAYS[Path.DEVICE]}"
    more_steps: str = "and {count} more steps"
    nothing: str = "nothing is copied"
    # -- the picture in words
    aloud: str = "{title}. {told}"
    title_shared: str = "{source} to {result}: one memory"
    title_copied: str = "{source} to {result}: a copy"
    told_empty: str = "There are no elements, so there are no bytes to share or to copy."
    told_same_bytes: str = "source and result are the same {bytes}; {writers}."
    told_same: str = "source and result are the same; {writers}."
    told_copied: str = (
        "The source is {source}. It is copied: {ways}. The result is {result}; {writers}."
    )
    told_apart: str = (
        "The source is {source}. Nothing is copied. The result is {result}; {writers}."
    )
    then: str = ", then "
    on: str = "{memory} on {device}"
    objects: str = "Python objects, each in memory of its own"
    none: str = "no memory"
    both_write: str = "both may write"
    source_writes: str = "only the source may write"
    result_writes: str = "only the result may write"
    neither_writes: str = "neither may write"
    # -- a write
    source_empty: str = "The source has no element to write."
    result_empty: str = "The result has no element to write."
    source_closed: str = "The source is read-only: nothing is written."
    result_closed: str = "The result is read-only: nothing is written."
    source_seen: str = "The first element of the source is written: the result has changed too."
    result_seen: str = "The first element of the result is written: the source has changed too."
    source_unseen: str = "The first element of the source is written: the result has not changed."
    result_unseen: str = "The first element of the result is written: the source has not changed."

    def way(self, path: Path, size: str) -> str:
        """A number of bytes, and the path that they take."""
        told = {Path.HOST: self.over_host, Path.BUS: self.over_bus, Path.DEVICE: self.over_device}[
            path
        ]
        return told.format(size=size)

    def bytes(self, number: int) -> str:
        """A number of bytes, written out."""
        return self.one_byte if number == 1 else self.byte_count.format(count=f"{number:,}")


WORDS = Words()
"""English."""
