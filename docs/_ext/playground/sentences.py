"""What the planner says, as sentences with gaps: in the page, and only there, they are told in the reader's language.

The library says them in English, as it does its errors. `said` looks for the sentence that a text
is an instance of.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SENTENCES", "found", "said"]

SENTENCES = (
    # -- why memory is shared
    "both sides know that writes show",
    "neither side can write",
    "copy=False consents to share",
    "the same object: there is nothing to do",
    "read-only: {why}",
    "a write would bypass autograd's version check",
    "the source does not permit writes",
    "elements lie in one place (expanded, or windows overlap): one write would change several",
    # -- why it is copied
    "{framework} values have no memory to share",
    "{framework} has no read-only tensors: {why}",
    "a write would change the source",
    "a later write to the source would change a {framework} constant",
    "a later write to the source would change an {framework} constant",
    "copy=True asks for independent memory",
    "pinned=True asks for page-locked memory",
    "variable=True has memory of its own",
    "there are no elements",
    "the dtype changes from {before} to {after}",
    "the source is on {before}, the result on {after}",
    "Python numbers are objects: they are read into an array in one pass",
    "Python numbers are objects: they are read and given back part by part",
    "{framework} stores {dtype} in another form",
    "{frameworks} cannot name {dtype} to another framework on a device",
    "negative stride on axis {axis}",
    "strides {strides} bytes of shape {shape} are not compact",
    "a result of one's own is writable",
    # -- the steps
    "an array over the same memory",
    "a tensor over the array's memory",
    "Python scalars, one by one",
    "gradients do not cross",
    "the cast stays in the graph",
    "the dtype that was asked for",
    "{framework} has no {dtype} here",
    "{why}; each value is compared",
    "{why}; each value is looked at",
    "Python numbers take {framework}'s own dtype",
    "from {device}",
    "from {before} to {after}",
    "from {before} to {after}: along an axis, all elements share this memory",
    "from {device} straight into page-locked memory",
    "one copy between the devices",
    "the same device: no bytes move",
    "{framework} cannot say on which stream it reads",
    "a transfer that overlaps reads page-locked memory",
    "narrower before the bus: fewer bytes cross",
    "wider after the bus: fewer bytes cross",
    "the bus takes packed memory only",
    "along an axis, all elements share this memory",
    "each element in memory of its own: less has crossed the bus",
    # -- what to be careful of
    "a write to the {framework} tensor changes memory that the source does not permit to write",
    "a later write to the source shows in the {framework} tensor, a constant",
    "a {tape} does not record what is done here: no gradient flows through the result",
    # -- why a choice cannot be made
    "{framework} has no {dtype} before {release}.",
    "{framework} has no {dtype}.",
    "{framework} does not support {device}, only {devices}.",
    "{framework} tensors are in no autograd graph.",
    "{framework} has no option {option}: {others} and {other} have it",
    "{framework} has no option {option}: {other} has it",
)

_LONG = {
    "why": ".+",
    "strides": r"\(.*\)",
    "shape": r"\(.*\)",
    "frameworks": ".+",
    "devices": ".+",
    "others": ".+",
}
"""What stands in a gap, where that is not one word."""


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Each sentence with what its instances look like; those with a gap for words come last."""
    parts = {
        each: re.split(r"\{(\w+)\}", each)
        for each in sorted(SENTENCES, key=lambda each: "{why}" in each)
    }
    return tuple(
        (
            sentence,
            re.compile(
                "".join(
                    f"(?P<{part}>{_LONG.get(part, r'[^ ]+')})" if at % 2 else re.escape(part)
                    for at, part in enumerate(split)
                )
            ),
        )
        for sentence, split in parts.items()
    )


def found(text: str) -> tuple[str, dict[str, str]] | None:
    """The sentence that a text is an instance of, with what stands in its gaps."""
    for sentence, pattern in _patterns():
        match = pattern.fullmatch(text)
        if match:
            return sentence, match.groupdict()
    return None


def said(text: str, words: Mapping[str, str]) -> str:
    """What the planner says, in the reader's language; as it is, where that has no such sentence."""
    instance = found(text)
    if instance is None or instance[0] not in words:
        return text
    sentence, gaps = instance
    return words[sentence].format(**{name: said(gap, words) for name, gap in gaps.items()})
