"""The built pages in Chromium: they fit a phone and a desk, light and dark, can be searched and read aloud."""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil

import pytest
from tests.site import languages
from tests.support import ROOT

PAGES = [
    "index.html",
    "tutorial/01-first-conversion.html",
    "howto/pandas-to-pytorch.html",
    "explanation/memory.html",
    "reference/names.html",
    "reference/names/convert.html",
    "reference/errors.html",
    "reference/pairs.html",
    "reference/command-line.html",
    "playground/index.html",
    "benchmarks/small.html",
]
SCHEMES = ("light", "dark")
SMALL, PHONE, TABLET, DESK = (360, 800), (390, 844), (768, 1024), (1440, 900)
"""Widths and heights of windows."""
SCREENS = {PHONE: 40, DESK: 22}
"""How many screens a page may have at most: who has to scroll further does not."""
SEARCHED = {
    "resume optimizer": "How do I save an optimizer and resume the training?",
    "transformers files": "How do I read and write the files of transformers?",
    "predictions dataframe": "How do I put predictions back into a pandas or polars DataFrame?",
    "plot bfloat16": "How do I plot a bfloat16 tensor with Matplotlib?",
    "writable result": "Why is my result read-only, and how do I get a writable one?",
}
"""What people searched, and the page that answers."""


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


MEASURES = """() => ({
    width: document.documentElement.scrollWidth,
    height: document.documentElement.scrollHeight,
    tables: [...document.querySelectorAll('.table-wrapper')]
        .filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.textContent.slice(0, 40)),
    headings: [...document.querySelectorAll('article :is(h1, h2, h3, h4)')]
        .map(each => [each.textContent, each.offsetHeight, each.scrollWidth - each.clientWidth]),
})"""


@pytest.fixture(scope="module")
def measured(browser, site):
    """A function that says how large each page of a language and what is on it are, in each window."""

    @functools.cache
    def measure(language, scheme="light"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        found = {window: {} for window in (SMALL, PHONE, TABLET, DESK)}
        for path in sorted((site / language).rglob("*.html")):
            page.goto(path.as_uri())
            for window, pages in found.items():
                page.set_viewport_size({"width": window[0], "height": window[1]})
                pages[str(path.relative_to(site))] = page.evaluate(MEASURES)
        context.close()
        assert len(found[DESK]) > 60
        return found

    return measure


@pytest.mark.parametrize("window", [SMALL, TABLET, DESK], ids=lambda size: str(size[0]))
@pytest.mark.parametrize("language", languages.EACH)
def test_no_page_is_wider_than_its_window(measured, language, window):
    """Wide tables and lines of code scroll in their boxes; the page does not."""
    pages = measured(language)[window]

    assert {name: each["width"] for name, each in pages.items() if each["width"] > window[0]} == {}


@pytest.mark.parametrize("window", [SMALL, TABLET, DESK], ids=lambda size: str(size[0]))
def test_no_dark_page_is_wider_than_its_window(measured, window):
    """The colours of code may be other elements."""
    pages = measured("en", "dark")[window]

    assert {name: each["width"] for name, each in pages.items() if each["width"] > window[0]} == {}


@pytest.mark.parametrize("language", languages.EACH)
@pytest.mark.parametrize("window", SCREENS, ids=lambda size: str(size[0]))
def test_a_person_can_scroll_every_page(measured, language, window):
    """No page is longer than so many screens: what has more is a page for each group."""
    pages, most = measured(language)[window], SCREENS[window] * window[1]

    assert {name: each["height"] for name, each in pages.items() if each["height"] > most} == {}


@pytest.mark.parametrize("window", [TABLET, DESK], ids=lambda size: str(size[0]))
def test_tables_fit_a_desk(measured, window):
    """Every column of every table is seen beside both sidebars, of ten frameworks too; only a phone scrolls tables."""
    pages = measured("en")[window]

    assert {name: each["tables"] for name, each in pages.items() if each["tables"]} == {}


@pytest.mark.parametrize("language", languages.EACH)
def test_headings_fit_a_phone(measured, language):
    """A title takes less than a sixth of the screen, and a smaller heading no more; none is cut off."""
    headings = [
        (name, *each)
        for name, found in measured(language)[PHONE].items()
        for each in found["headings"]
    ]

    assert len(headings) > 200
    assert [each for each in headings if each[2] > PHONE[1] / 6 or each[3] > 1] == []


@pytest.mark.parametrize("language", languages.EACH)
@pytest.mark.parametrize(
    ("window", "screens"), [(DESK, (1, 1, 1)), (PHONE, (1, 2, 2))], ids=["desk", "phone"]
)
def test_the_start_page_shows_what_it_is(page, site, language, window, screens):
    """How to install it, a picture of memory and the way to the playground are in sight; there are few links."""
    page.set_viewport_size({"width": window[0], "height": window[1]})
    page.goto((site / language / "index.html").as_uri())
    install = page.locator("article pre", has_text="pip install")
    picture = page.locator("article .ferry figure:visible svg")
    playground = page.locator("article a[href='playground/index.html']")
    for found, many in zip((install, picture, playground), screens, strict=True):
        box = found.bounding_box()  # there is one of each

        assert box["y"] + box["height"] <= many * window[1]
    assert page.locator("article a:not(.headerlink)").count() <= 10


@pytest.mark.parametrize("language", languages.EACH)
def test_the_navigation_has_one_level_for_each_part(page, site, language):
    """A part is its own entry, in the reader's language, and no entry stands alone under another of its name."""
    page.goto((site / language / "index.html").as_uri())
    tops = page.locator(".sidebar-tree > ul > li > a").all_inner_texts()

    assert page.locator(".sidebar-tree .caption").count() == 0
    assert len(tops) == len(set(tops)) == 7
    assert all(text.isascii() or "…" in text for text in tops) == (language == "en")
    for index, top in enumerate(tops):
        below = (
            page.locator(".sidebar-tree > ul > li").nth(index).locator("li > a").all_text_contents()
        )

        assert top not in below
        assert len(below) != 1


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


@pytest.mark.parametrize("words", SEARCHED)
def test_what_people_search_has_a_page(page, address, words):
    """The page is among the first five."""
    page.goto(f"{address}/en/search.html?q={words.replace(' ', '+')}")
    page.get_by_text("Search finished").wait_for()  # results come one after the other

    assert SEARCHED[words] in page.locator("#search-results li > a").all_inner_texts()[:5]


def test_a_message_of_an_error_is_found(page, address):
    """Who searches for the words of a message comes to the error."""
    page.goto(f"{address}/en/search.html?q=cannot+share+this+memory")
    page.get_by_text("Search finished").wait_for()  # results come one after the other

    assert "Errors" in page.locator("#search-results li a").all_inner_texts()


@pytest.mark.skipif(
    bool(languages.NOT_BUILT), reason=f"not built: {' '.join(languages.NOT_BUILT)}; make docs-test"
)
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
    """Each how-to page, and each page of the reference, is linked from a page that the start page's text leads to."""

    def linked(address):
        page.goto(address)
        links = page.eval_on_selector_all("article a", "all => all.map(each => each.href)")
        return {
            link.partition("#")[0] for link in links if link.partition("#")[0].endswith(".html")
        }

    start = (site / "en" / "index.html").as_uri()
    parts = linked(start)
    found = parts.union(*(linked(part) for part in parts - {start}))
    pages = {
        path.as_uri()
        for folder in ("howto", "reference")
        for path in (site / "en" / folder).glob("*.html")
    }

    assert len(pages) > 25
    assert sorted(pages - found) == []
