"""What a shell offers for the values of options, when the Tab key is pressed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, MutableMapping

__all__ = [
    "any_dtypes",
    "bash_words",
    "dtypes",
    "formats",
    "options_of_target",
    "sources",
    "targets",
]
__all__ += ["target_dtypes", "words"]


def words(*offered: str) -> Callable[[str], list[str]]:
    """A function for Typer that offers these words."""

    def offer(incomplete: str) -> list[str]:
        return _starting(offered, incomplete)

    return offer


def sources(incomplete: str) -> list[str]:
    """The frameworks that a tensor can come from."""
    from ..backends.registry import backends

    return _starting(backends(), incomplete)


def targets(incomplete: str) -> list[str]:
    """The frameworks that a tensor can go to."""
    from ..backends.registry import backends

    return _starting(
        (name for name, backend in backends().items() if backend.capabilities.dtypes.held),
        incomplete,
    )


def options_of_target(ctx: Any, incomplete: str) -> list[str]:
    """The options of the framework in ``--to``."""
    from ..backends.registry import backends

    backend = backends().get(ctx.params.get("target") or "")
    if backend is None:
        own = []
    else:
        own = [*backend.capabilities.options.names, *backend.capabilities.options.finishers]
    return _starting(sorted(own), incomplete)


def dtypes(incomplete: str) -> list[str]:
    """The names of dtypes."""
    from ..core.dtypes import DTYPES

    return _starting(DTYPES, incomplete)


def target_dtypes(incomplete: str) -> list[str]:
    """The names of dtypes, and the words in their place."""
    from ..core.dtypes import DTYPES, KEYWORDS

    return _starting([*KEYWORDS, *DTYPES], incomplete)


def any_dtypes(incomplete: str) -> list[str]:
    """What ``convert --dtype`` takes: a dtype, or KEY=dtype."""
    from ..core.dtypes import DTYPES, FIT

    key, mark, name = incomplete.rpartition("=")
    return [f"{key}{mark}{dtype}" for dtype in _starting([FIT, *DTYPES], name)]


def formats(incomplete: str) -> list[str]:
    """The formats that can be written."""
    from ..files.opening.paths import formats as every

    return _starting((name for name, form in every().items() if form.writes), incomplete)


def _starting(offered: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in offered if word.startswith(incomplete)]


def bash_words(environment: MutableMapping[str, str]) -> None:
    r"""Join what Bash separates at ``=``, so that ``--to=np`` completes as ``--to np`` does.

    >>> environment = {"COMP_WORDS": "tensorferry\nconvert\n--dtype\n=\nbf", "COMP_CWORD": "4"}
    >>> bash_words(environment)
    >>> environment["COMP_WORDS"].split(), environment["COMP_CWORD"]
    (['tensorferry', 'convert', '--dtype', 'bf'], '3')

    Args:
        environment: The variables that Bash has set.
    """
    line, place = environment.get("COMP_WORDS", "").split("\n"), environment.get("COMP_CWORD", "")
    if not place.isdecimal():
        return
    cursor = min(int(place), len(line))
    before, after = line[:cursor], line[cursor:]
    if after and after[0] == "=":
        before, after = [*before, "="], ["", *after[1:]]
    kept: list[str] = []
    for word in before:
        if word != "=" or not kept:
            kept.append(word)
        elif not kept[-1].startswith("-"):
            kept.pop()  # the KEY of --dtype KEY=NAME, of which NAME is completed
    environment["COMP_WORDS"] = "\n".join([*kept, *after])
    environment["COMP_CWORD"] = str(len(kept))
