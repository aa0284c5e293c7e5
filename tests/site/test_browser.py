"""The built pages in Chromium: they fit a phone and a desk, light and dark, can be searched and read aloud."""

from __future__ import annotations

import importlib.util
import re
import shutil

import pytest
from tests.support import ROOT

PAGES = [
    "index.html",
    "tutorial/01-first-conversion.html",
    "howto/pandas-to-pytorch.html",
    "explanation/memory.html",
    "reference/names.html",
    "reference/errors.html",
    "reference/pairs.html",
    "reference/command-line.html",
    "playground/index.html",
]
SCHEMES = ("light", "dark")


@pytest.fixture(scope="session")
def axe():
    """The checker's script, of the version that is pinned."""
    if shutil.which("npm") is None:
        pytest.skip("axe-core comes from npm, which is not installed (Debian: apt-get install npm)")
    spec = importlib.util.spec_from_file_location("npm", ROOT / "docs" / "_ext" / "npm.py")
    npm = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(npm)
    folder = ROOT / "build" / "axe-core"
    npm.fetch("axe-core", folder)
    return (folder / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible(page, address, axe, name, scheme):
    """What axe finds on a page is neither serious nor critical; contrast is measured, light and dark."""
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{address}/en/{name}")
    page.evaluate(axe)
    found = page.evaluate("axe.run()")

    assert len(found["passes"]) > 10
    assert [
        (each["id"], each["help"], [node["html"][:160] for node in each["nodes"]][:3])
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ] == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [360, 1440])
def test_no_page_is_wider_than_its_window(page, site, width, scheme):
    """Wide tables and lines of code scroll in their boxes; the page does not."""
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    names = [str(path.relative_to(site)) for path in sorted((site / "en").rglob("*.html"))]
    wide = []
    for name in names:
        page.goto((site / name).as_uri())
        if page.evaluate("document.documentElement.scrollWidth") > width:
            wide.append(name)

    assert len(names) > 20
    assert wide == []


def test_the_page_is_as_dark_as_the_system(page, site):
    """The background follows the system's setting."""
    shades = []
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        page.goto((site / "en" / "index.html").as_uri())
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        shades.append(sum(map(int, re.findall(r"\d+", colour)[:3])))

    assert shades[0] > 3 * 200
    assert shades[1] < 3 * 60


def test_the_search_finds_a_word(page, address):
    """A word that is on many pages is found, and a result leads to its page."""
    page.goto(f"{address}/en/index.html")
    page.fill("input[name=q]", "bfloat16")
    page.press("input[name=q]", "Enter")
    page.get_by_text("Search finished").wait_for()  # results come one after the other
    found = page.locator("#search-results li a").all_inner_texts()
    page.locator("#search-results li a").first.click()
    page.wait_for_selector("article h1")

    assert len(found) >= 5
    assert "bfloat16" in page.inner_text("article")


def test_a_message_of_an_error_is_found(page, address):
    """Who searches for the words of a message comes to the error."""
    page.goto(f"{address}/en/search.html?q=cannot+share+this+memory")
    page.get_by_text("Search finished").wait_for()  # results come one after the other

    assert "Errors" in page.locator("#search-results li a").all_inner_texts()


@pytest.mark.parametrize("name", ["index.html", "reference/names.html"])
def test_the_language_can_be_switched(page, site, name):
    """The switch leads to the same page in each language, and says which one is shown."""
    page.goto((site / "en" / name).as_uri())
    for language in page.locator(".languages a").all_inner_texts()[1:]:
        page.locator(".languages a", has_text=language).click()
        page.wait_for_load_state()
        folder = page.url.removeprefix(site.as_uri()).split("/")[1]

        assert page.url.endswith(name)
        assert page.get_attribute("html", "lang") == folder.replace("_", "-")
        assert page.inner_text(".languages [aria-current]") == language


def test_the_root_leads_to_english(page, site):
    """The folder's own page goes on to the English one."""
    page.goto((site / "index.html").as_uri())
    page.wait_for_url("**/en/index.html")

    assert "tensorferry" in page.title()


def test_questions_are_two_clicks_away(page, site):
    """Each how-to page, and each page of the reference, is linked from the start page's own text."""
    page.goto((site / "en" / "index.html").as_uri())
    links = page.eval_on_selector_all("article a", "all => all.map(each => each.href)")
    pages = {path.as_uri() for folder in ("howto", "reference") for path in (site / "en" / folder).glob("*.html")}

    assert len(pages) > 25
    assert sorted(pages - {link.partition("#")[0] for link in links}) == []
