"""The words of pictures, and what the planner says in the playground, in the language of the site.

Pictures are on many pages, and the planner's sentences on none that Sphinx reads: both have a
catalog of their own, whose messages `docs/locale/update.py` takes from here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from playground.sentences import SENTENCES

from tensorferry.planning.pictures.canvas import WORDS, Words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sphinx.config import Config

__all__ = [
    "CATALOGS",
    "TIMELINE",
    "catalogs",
    "messages_of",
    "of_playground",
    "translated",
    "words",
]

SITE = Path(__file__).parents[1]
"""The folder of the pages, in which that of the translations is."""

TIMELINE = {
    "lane": "{way} for each batch",
    "loop": "your loop works on it",
    "in-turn": "convert in the loop: one after the other",
    "ahead": "prefetch: up to {depth} batches ahead of the loop",
    "scale": "Time goes to the right, not to scale. Numbers: the batches.",
    "title": "what crosses the bus while a loop works",
    "told": (
        "With convert, each of {batches} batches is transferred and then used, one after the other. "
        "With prefetch, the next batches are transferred while the loop works, so it ends sooner."
    ),
}
"""The words of a timeline, by their keys; those of memory are the renderer's."""

CATALOGS = {"pictures": tuple(dict.fromkeys((*WORDS, *TIMELINE.values()))), "plans": SENTENCES}
"""The messages of each catalog, by its name."""


def catalogs(config: Config) -> list[Path]:
    """The catalogs of the site's language that there are; English has none."""
    folders = [
        SITE / folder / str(config.language) / "LC_MESSAGES" for folder in config.locale_dirs
    ]
    return [
        path
        for folder in folders
        for path in (folder / f"{name}.po" for name in CATALOGS)
        if path.is_file()
    ]


def messages_of(config: Config) -> dict[str, str]:
    """The translation of each message; a message that has none is not there."""
    from babel.messages.pofile import read_po

    found: dict[str, str] = {}
    for path in catalogs(config):
        with path.open("rb") as file:
            found |= {
                each.id: each.string
                for each in read_po(file)
                if each.id and each.string and not each.fuzzy
            }
    return found


def translated(table: Mapping[str, str]) -> Words:
    """The renderer's words in another language, and in English where a table has none."""
    return Words(*(table.get(english, english) for english in WORDS))


def words(config: Config) -> Words:
    """The renderer's words in the language of the site."""
    return translated(messages_of(config))


def of_playground(table: Mapping[str, str]) -> dict[str, str]:
    """What the playground needs of a table: the renderer's words by their names, the planner's sentences."""
    pictures = {
        f"picture-{field}": table[text] for field, text in WORDS._asdict().items() if text in table
    }
    return {**pictures, **{each: table[each] for each in SENTENCES if each in table}}
