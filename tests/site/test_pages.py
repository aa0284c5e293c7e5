"""The built pages: nothing comes from elsewhere, and every link within them leads somewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.site import languages

LOADING = {
    "link": ("href",),
    "script": ("src",),
    "img": ("src", "srcset"),
    "iframe": ("src",),
    "source": ("src", "srcset"),
}


class _Page(HTMLParser):
    """The anchors of a page, its links, what it loads, and its styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors, self.links, self.loaded, self.styles, self._style = set(), [], [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors.update(attributes[name] for name in ("id", "name") if attributes.get(name))
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        self.loaded += [attributes[name] for name in LOADING.get(tag, ()) if attributes.get(name)]
        self.styles.append(attributes.get("style") or "")
        self._style = tag == "style"

    def handle_data(self, data):
        if self._style:
            self.styles.append(data)


def _pages(site):
    return {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def test_nothing_comes_from_elsewhere(site):
    """Scripts, styles, fonts and pictures are all part of the site."""
    loaded = [
        (path.name, address) for path, page in _pages(site).items() for address in page.loaded
    ]
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    styles += [style for page in _pages(site).values() for style in page.styles]

    assert len(loaded) > 100
    assert [(name, address) for name, address in loaded if re.match(r"(https?:)?//", address)] == []
    assert [
        found for style in styles for found in re.findall(r"(?:@import|url\()[^;)]*//[^;)]*", style)
    ] == []


def test_links_within_the_site_lead_somewhere(site):
    """Every link that is not to elsewhere names a file that was built, and an anchor that is in it.

    Those to another language are there if it was built: `make docs-test` builds all.
    """
    pages = _pages(site)
    lost, checked = [], 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            if not {*languages.NOT_BUILT}.isdisjoint(parts.path.split("/")):
                continue
            target = Path(path.parent, unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            checked += 1
            if not target.is_file() or (
                anchor and target in pages and anchor not in pages[target].anchors
            ):
                lost.append((str(path.relative_to(site)), link))

    assert checked > 1000
    assert lost == []
