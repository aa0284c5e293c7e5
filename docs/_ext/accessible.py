"""What the theme and Sphinx leave out of a page's HTML for people who use a keyboard or a screen reader."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata


def _readable(text: str) -> str:
    """The same HTML, with the attributes that it lacks."""
    # What scrolls has to be reached by keyboard.
    text = re.sub(r"<pre(?=[ >])", '<pre tabindex="0"', text)
    text = text.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')
    text = text.replace(
        'class="caption" role="heading"', 'class="caption" role="heading" aria-level="2"'
    )
    # A signature of several lines is no list of definitions.
    return re.sub(r"<dl>\n((?:<dd><em class=\"sig-param\">.*</dd>\n)+)</dl>", _lines, text)


def _lines(found: re.Match[str]) -> str:
    return found[1].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")


def _improve(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: object
) -> None:
    """Change what goes into the page's template."""
    for part in ("body", "furo_navigation_tree"):
        if context.get(part):
            # What scripts keep is not the page's HTML, though it may look so.
            parts = re.split(r"(<script\b.*?</script>)", context[part], flags=re.DOTALL)
            context[part] = "".join(
                _readable(each) if index % 2 == 0 else each for index, each in enumerate(parts)
            )


def setup(app: Sphinx) -> ExtensionMetadata:
    """Come after the theme, which makes the navigation."""
    app.connect("html-page-context", _improve, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
