"""README.md in other languages: the same sections, the same code, and each names the others."""

import doctest
import hashlib
import re
from pathlib import Path

import pytest
from tests.support import run_examples

ROOT = Path(__file__).parents[2]
NAMES = {
    "README.md": "English",
    "README.ko.md": "한국어",
    "README.ja.md": "日本語",
    "README.zh.md": "简体中文",
}
TRANSLATED = [name for name in NAMES if name != "README.md"]


def _text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def _blocks(text):
    return re.findall(r"^```.*?^```$", text, re.MULTILINE | re.DOTALL)


def _outline(text):
    """What a translation keeps: where each heading, block of code, table row and item of a list comes."""
    for line in re.sub(r"^```.*?^```$", "```", text, flags=re.MULTILINE | re.DOTALL).splitlines():
        if mark := re.match(r"#+ |```|- ", line):
            yield mark[0]
        elif line.startswith("|"):
            yield "|" * (line.count("|") - line.count("\\|"))


def _code(text):
    """The pieces of code in the sentences; a translation may have them in another order."""
    return sorted(
        re.findall(r"`[^`\n]+`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    )


def _sections(text):
    """A digest of each section's sentences, and its heading."""
    prose = re.sub(r"^```.*?^```$", "```", text.partition("\n")[2], flags=re.MULTILINE | re.DOTALL)
    for section in re.split(r"^(?=#+ )", prose, flags=re.MULTILINE)[1:]:
        yield (
            hashlib.sha256(" ".join(section.split()).encode()).hexdigest()[:6],
            section.partition("\n")[0],
        )


def _links(text):
    return sorted(re.findall(r"\]\(([^)]+)\)", text.partition("\n")[2]))


@pytest.mark.parametrize("name", NAMES)
def test_the_top_line_leads_to_the_other_languages(name):
    """The first line of each README links to those in the other languages, by their own names."""
    first = _text(name).partition("\n")[0]

    assert first == " · ".join(
        f"[{language}]({other})" for other, language in NAMES.items() if other != name
    )


@pytest.mark.parametrize("name", TRANSLATED)
def test_the_code_is_that_of_the_readme(name):
    """Every block of code is that of README.md, in the same order, and so is the code within sentences."""
    assert _blocks(_text(name)) == _blocks(_text("README.md"))
    assert _code(_text(name)) == _code(_text("README.md"))


@pytest.mark.parametrize("name", TRANSLATED)
def test_the_code_runs(name, capsys):
    """The examples give what they show: no sentence of the translation is read as a part of one."""
    result = run_examples(ROOT / name)
    source = doctest.DocTestParser().get_examples(_text("README.md"))

    assert result == doctest.TestResults(failed=0, attempted=len(source)), capsys.readouterr().out


@pytest.mark.parametrize("name", TRANSLATED)
def test_nothing_is_left_out(name):
    """The same headings, tables, lists and blocks in the same order, and the same links."""
    assert list(_outline(_text(name))) == list(_outline(_text("README.md")))
    assert _links(_text(name)) == _links(_text("README.md"))


@pytest.mark.parametrize("name", TRANSLATED)
def test_the_translation_is_of_the_readme_as_it_is(name):
    """A section of README.md that changed has to be translated again; then its digest goes into the last line."""
    last = _text(name).splitlines()[-1]
    current = dict(_sections(_text("README.md")))
    changed = [heading for digest, heading in current.items() if digest not in last]

    assert changed == [], (
        f"translate these, then end {name} with: <!-- of README.md: {' '.join(current)} -->"
    )


@pytest.mark.parametrize("name", TRANSLATED)
def test_links_lead_somewhere(name):
    """Every relative link names a file that is there."""
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", _text(name))

    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
