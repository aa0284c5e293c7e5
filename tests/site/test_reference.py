"""The generated reference has every function, keyword, error, command and pair, with what the code says of each."""

from __future__ import annotations

import inspect
import re
from html import unescape

import pytest
import typer

import tensorferry
from tensorferry import typing as names
from tensorferry.cli.app import app

ERRORS = [name for name in tensorferry.__all__ if name.endswith(("Error", "Violation"))]
FUNCTIONS = [
    name
    for name in [*tensorferry.__all__, "open"]
    if inspect.isfunction(getattr(tensorferry, name))
]


def _read(site, page):
    return (site / "en" / "reference" / f"{page}.html").read_text(encoding="utf-8")


def _page_of(site, name):
    """The page of the group that has a function or class; there is one."""
    pages = [
        path.read_text(encoding="utf-8")
        for path in (site / "en" / "reference" / "names").glob("*.html")
    ]
    (found,) = (page for page in pages if f'id="tensorferry.{name}"' in page)
    return found


def _words(html):
    return unescape(re.sub(r"<[^>]*>", "", html))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_its_signature_and_errors(site, name):
    """Each parameter is there with its default; keywords that are declared together stand one by one."""
    text = _page_of(site, name)
    shown = _words(text.partition(f'id="tensorferry.{name}"')[2].partition("</dt>")[0])
    parameters = inspect.signature(getattr(tensorferry, name)).parameters.values()

    assert "Unpack" not in shown
    for each in parameters:
        if "Unpack" in str(each.annotation):
            for option in inspect.get_annotations(names.Options):
                assert f"{option}: bool = False" in shown
        else:
            default = "" if each.default is each.empty else f" = {each.default!r}"
            assert re.search(rf"\b{each.name}: [^\n]*{re.escape(default)}", shown), each


def test_the_page_of_groups_leads_to_every_name(site):
    """Each public function and class is linked from the page above, with what it is for, and the errors from theirs."""
    text = _read(site, "names")
    linked = set(re.findall(r'href="names/\w+\.html#tensorferry\.(\w+)"', text))
    public = {name for name in tensorferry.__all__ if callable(getattr(tensorferry, name))} - set(
        ERRORS
    )

    assert len(public) > 30
    assert sorted(public - linked) == []


def test_shared_keywords_are_explained(site):
    """Each keyword that conversions share has its place on the page of keywords."""
    text = _read(site, "keywords")
    shared = {**inspect.get_annotations(names.Keywords), **inspect.get_annotations(names.Options)}

    assert len(shared) > 8
    assert [name for name in shared if f'id="{name.replace("_", "-")}"' not in text] == []


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_has_an_anchor_and_a_place_in_the_tree(site, name):
    """It is in the tree, it can be linked to by its name, and it says which builtins it is."""
    text = _read(site, "errors")
    said = _words(text.partition(f'id="tensorferry.{name}"')[2].partition("<section")[0])
    bases = {
        base.__name__
        for base in getattr(tensorferry, name).__bases__
        if not base.__module__.startswith("tensor")
    }

    assert f'href="#{name.lower()}"' in text.partition("<section")[2].partition("</article>")[0]
    assert f'id="{name.lower()}"' in text
    assert [base for base in bases if base not in said] == []


def test_every_command_and_option_is_there(site):
    """Each command has a section, with its arguments and options."""
    text = _words(_read(site, "command-line"))
    commands = typer.main.get_command(app).commands

    assert len(commands) > 6
    for name, command in commands.items():
        section = text.partition(f"tensorferry {name} ")[2].partition("\ntensorferry ")[0]
        for each in command.params:
            options = [each.metavar] if each.param_type_name == "argument" else each.opts
            assert [option for option in options if option not in section] == [], name


@pytest.mark.parametrize(
    ("source", "target", "outcome"),
    [
        ("numpy", "torch", "shares"),
        ("torch", "numpy", "shares"),
        ("torch, requires grad", "numpy", "read-only view"),
        ("jax", "numpy", "read-only view"),
        ("jax", "tensorflow", "shares"),
        ("jax", "torch", "copies"),
        ("numpy", "jax", "copies"),
        ("cupy", "torch", "shares"),
        ("cupy", "numpy", "copies"),
        ("python", "numpy", "copies"),
    ],
)
def test_the_matrix_says_what_the_contract_says(site, source, target, outcome):
    """Rows of the sharing rule, as the README has them, are found in the generated table."""
    table = re.search(r"<table.*?</table>", _read(site, "pairs"), re.DOTALL)[0]
    head, *rows = [
        [
            " ".join(_words(cell).split())
            for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)
        ]
        for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)
    ]
    (row,) = (row for row in rows if row[0] == source)

    assert row[head.index(target)] == outcome
