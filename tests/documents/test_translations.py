"""The catalogs in docs/locale: nothing missing, a term translated one way, code and links as in English."""

import csv
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
LOCALE = DOCS / "locale"
_SPEC = importlib.util.spec_from_file_location("update_catalogs", LOCALE / "update.py")
update = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(update)

CATALOGS = [(language, name) for language in update.LANGUAGES for name in update.names()]
catalogs = pytest.mark.parametrize(
    ("language", "page"), CATALOGS, ids=["-".join(each) for each in CATALOGS]
)


def _rows(name):
    with (LOCALE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _messages(language, page):
    """Each message with its translation, those that are marked as fuzzy without."""
    catalog = update.read(update.catalog_path(language, page), language)
    return [
        (message.id, "" if message.fuzzy else message.string) for message in catalog if message.id
    ]


def _translated(language, page):
    return [(source, text) for source, text in _messages(language, page) if text]


def _words(message):
    """A message without its code (copy=True too), placeholders, and the targets of its links and roles."""
    return re.sub(r"`+[^`]*`+|\]\([^)]*\)|<[^>]*>|\{\w+\}|\w+=\S*", " ", message)


def _marks(message):
    """What a translation has to keep: code, links, roles, footnotes, HTML and placeholders."""
    message = re.sub(r"(\{[\w:-]+\}`)[^`<]*<([^`>]*)>`", r"\1\2`", message)
    patterns = (
        r"(?:\{[\w:-]+\})?`+[^`]+`+",
        r"\]\([^)]*\)",
        r"\[\^?\w+\](?!\()",
        r"</?\w+[^>]*>",
        r"(?<!`)\{\w+\}(?!`)",
        r"%\(\w+\)s",
    )
    return sorted(mark for pattern in patterns for mark in re.findall(pattern, message))


def test_every_catalog_belongs_to_a_page():
    """A page that was removed or renamed leaves no catalog behind."""
    found = {path for language in update.LANGUAGES for path in (LOCALE / language).rglob("*.po")}

    theme = {update.catalog_path(language, update.THEME) for language in update.LANGUAGES}
    assert found == {update.catalog_path(*each) for each in CATALOGS} | theme


def test_the_words_of_the_theme_are_translated():
    """The same words in each language, none of them missing."""
    words = {language: dict(_translated(language, update.THEME)) for language in update.LANGUAGES}

    assert words["ko"]
    assert words["ko"].keys() == words["ja"].keys() == words["zh_CN"].keys()


@catalogs
def test_the_catalog_has_the_words_of_its_page(language, page):
    """The English page has not changed since its messages were taken; else: make translations."""
    assert update.source_digest(update.catalog_path(language, page)) == update.digest(page)


def test_the_catalogs_have_every_message_that_sphinx_finds(tmp_path):
    """The messages of each page, those of its pictures and of the playground too; else: make translations."""
    pytest.importorskip("sphinx", reason="Sphinx is not installed: make docs installs it")
    subprocess.run(
        [sys.executable, "-m", "sphinx", "-Q", "-b", "gettext", DOCS, tmp_path], check=True
    )
    found = {page: update.read(tmp_path / f"{page}.pot", "en") for page in update.pages()}
    found |= {name: update.messages(name) for name in update.CATALOGS}

    assert {each: {source for source, _ in _messages(*each)} for each in CATALOGS} == {
        each: {message.id for message in found[each[1]] if message.id} for each in CATALOGS
    }


@catalogs
def test_nothing_is_missing_or_fuzzy(language, page):
    """Every message of the page is translated, and none is a guess from a similar message."""
    assert [source for source, text in _messages(language, page) if not text.strip()] == []


@catalogs
def test_the_catalog_is_as_it_is_written(language, page):
    """`make translations` changes nothing but messages: no dates, no lines wrapped otherwise."""
    path = update.catalog_path(language, page)
    written = update.text(update.read(path, language), language, update.source_digest(path))

    assert path.read_text(encoding="utf-8") == written


@catalogs
def test_code_links_and_roles_stay(language, page):
    """A translation has the code, the links and the roles of its message, and no others."""
    changed = [
        (source, text)
        for source, text in _translated(language, page)
        if _marks(source) != _marks(text)
    ]

    assert changed == []


@catalogs
def test_a_translation_is_one_paragraph(language, page):
    """Sphinx leaves a message in English whose translation is read as a list or a heading; "1\\." is no list."""
    block = re.compile(r"\s|\d+[.)] |[-+*>#|] |#+ |```|:::|---|===")

    assert [text for _, text in _translated(language, page) if block.match(text)] == []


@catalogs
def test_a_term_is_translated_one_way(language, page):
    """Where a message has a term of terms.csv, its translation has the term's translation."""
    exceptions = [
        (row["term"], row["message begins with"])
        for row in _rows("exceptions.csv")
        if row["language"] in {language, "all"}
    ]
    otherwise = []
    for row in _rows("terms.csv"):
        term = re.compile(rf"(?<![\w-])(?:{row['term']})(?![\w-])", re.IGNORECASE)
        forms = row[language].split("|")
        name = row["term"].partition("|")[0]
        for source, text in _translated(language, page):
            if term.search(_words(source)) and not any(form in _words(text) for form in forms):
                if any(name == each and source.startswith(begin) for each, begin in exceptions):
                    continue
                otherwise.append((name, row[language], source, text))

    assert otherwise == []


def test_code_is_copied_into_a_translated_document():
    """Blocks are replaced in order, and only where there are as many: an added block needs a place."""
    source = "one\n\n```python\n>>> 2\n2\n\n```\n\ntwo\n\n```sh\nls\n```\n"
    translated = "eins\n\n```python\n>>> 1\n1\n\n```\n\nzwei\n\n```sh\ndir\n```\n"

    assert update.with_code(translated, source) == source.replace("one", "eins").replace(
        "two", "zwei"
    )
    assert update.with_code(translated + "\n```sh\n```\n", source) == translated + "\n```sh\n```\n"


def test_the_table_of_terms_has_no_gaps():
    """Every term has a translation in every language, and is there once."""
    terms = [form for row in _rows("terms.csv") for form in row["term"].split("|")]

    assert len(terms) > 100
    assert len(set(terms)) == len(terms)
    assert [
        row["term"]
        for row in _rows("terms.csv")
        for language in update.LANGUAGES
        if not row[language]
    ] == []


def test_every_exception_is_needed():
    """An exception names a message that is there and has the term, and says why."""
    terms = {row["term"].partition("|")[0]: row["term"] for row in _rows("terms.csv")}
    unused = []
    for row in _rows("exceptions.csv"):
        term = re.compile(rf"(?<![\w-])(?:{terms[row['term']]})(?![\w-])", re.IGNORECASE)
        found = [
            source
            for page in update.names()
            for source, _ in _messages("ko" if row["language"] == "all" else row["language"], page)
            if source.startswith(row["message begins with"]) and term.search(_words(source))
        ]
        if not found or not row["reason"]:
            unused.append(row)

    assert unused == []
