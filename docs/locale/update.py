"""Bring the catalogs of the translated pages up to date: `make translations`."""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from io import BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, unescape, write_po

LOCALE = Path(__file__).parent
DOCS = LOCALE.parent
sys.path.insert(0, str(DOCS / "_ext"))

from picture_words import CATALOGS  # noqa: E402 - one of the site's own modules

LANGUAGES = ("ko", "ja", "zh_CN")
# The pages that are wholly translated. The others stay English, and have no catalog.
PAGES = (
    "index.md",
    "tutorial/*.md",
    "explanation/memory.md",
    "reference/glossary.md",
    "playground/*.md",
)

# What the theme says, which Sphinx does not translate; written by hand.
THEME = "sphinx"


def pages() -> list[str]:
    """Return the translated pages, by their names without a suffix."""
    found = (page for pattern in PAGES for page in sorted(DOCS.glob(pattern)))
    return [page.relative_to(DOCS).with_suffix("").as_posix() for page in found]


def names() -> list[str]:
    """Return the names of all catalogs: those of pages, and those of words that are on no page of their own."""
    return [*pages(), *CATALOGS]


def messages(name: str) -> Catalog:
    """Return the messages of words that are on no page of their own."""
    catalog = Catalog()
    for message in CATALOGS[name]:
        catalog.add(message)
    return catalog


def catalog_path(language: str, page: str) -> Path:
    """Return where the translation of a page is."""
    return LOCALE / language / "LC_MESSAGES" / f"{page}.po"


def _options(block: re.Match[str]) -> str:
    """Return what is translated of a block: its caption, and the titles that it gives to pages."""
    return "\n".join(re.findall(r"^:caption:.*|^\S.* <\S+>$", block[0], re.MULTILINE))


def digest(page: str) -> str:
    """Return a digest of a page's words.

    Code and lists of pages are not translated: they do not change it.
    """
    if page in CATALOGS:
        return hashlib.sha256("\n".join(CATALOGS[page]).encode()).hexdigest()[:16]
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    words = re.sub(r"^```(?!\{glossary).*?^```$", _options, text, flags=re.MULTILINE | re.DOTALL)
    return hashlib.sha256(" ".join(words.split()).encode()).hexdigest()[:16]


def source_digest(path: Path) -> str:
    """Return the digest of the page that a catalog was made from."""
    return re.findall(
        r'^"X-Source-Digest: (\w+)\\n"$', path.read_text(encoding="utf-8"), re.MULTILINE
    )[0]


def read(path: Path, language: str) -> Catalog:
    """Return the catalog in a file, or an empty one where there is none yet."""
    if not path.exists():
        return Catalog(locale=language)
    with path.open("rb") as file:
        catalog = read_po(file, locale=language)
    # Babel writes what a message was before it changed, and reads it as a comment.
    for message in catalog:
        before = " ".join(
            comment[2:] for comment in message.user_comments if comment.startswith("| ")
        )
        message.user_comments = [
            comment for comment in message.user_comments if not comment.startswith("| ")
        ]
        message.previous_id = (
            [unescape(before.removeprefix("msgid "))] if before and message.fuzzy else []
        )
    return catalog


def text(catalog: Catalog, language: str, source: str) -> str:
    """Return a catalog as text: no dates, no line numbers, and no message broken into lines."""
    body = BytesIO()
    write_po(
        body,
        catalog,
        width=0,
        no_location=True,
        omit_header=True,
        ignore_obsolete=True,
        include_previous=True,
    )
    header = (
        f"Language: {language}",
        "Content-Type: text/plain; charset=UTF-8",
        "Content-Transfer-Encoding: 8bit",
    )
    lines = "".join(f'"{line}\\n"\n' for line in (*header, f"X-Source-Digest: {source}"))
    return f'msgid ""\nmsgstr ""\n{lines}\n{body.getvalue().decode().strip()}\n'


def with_code(translation: str, source: str) -> str:
    """Return a translated document with its source's blocks of code; unchanged where it has not as many."""
    block = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
    code = block.findall(source)
    if len(block.findall(translation)) != len(code):
        return translation
    blocks = iter(code)
    return block.sub(lambda _: next(blocks), translation)


def main() -> None:
    """Merge Sphinx's templates into the catalogs; a message that changed is marked as fuzzy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "templates", type=Path, help="the folder that `sphinx-build -b gettext` wrote"
    )
    templates = parser.parse_args().templates
    for language in LANGUAGES:
        kept = {catalog_path(language, THEME)}
        for page in names():
            path = catalog_path(language, page)
            catalog = read(path, language)
            before = {message.id: message.previous_id for message in catalog if message.fuzzy}
            if page in CATALOGS:
                template = messages(page)
            else:
                with (templates / f"{page}.pot").open("rb") as file:
                    template = read_po(file)
            catalog.update(template, update_header_comment=False)
            for message in catalog:
                if message.fuzzy and not message.previous_id:
                    message.previous_id = before.get(message.id, [])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text(catalog, language, digest(page)), encoding="utf-8")
            kept.add(path)
        for path in set((LOCALE / language).rglob("*.po")) - kept:
            path.unlink()
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    for path in DOCS.parent.glob("README.*.md"):
        path.write_text(with_code(path.read_text(encoding="utf-8"), readme), encoding="utf-8")


if __name__ == "__main__":
    main()
