"""How Sphinx builds the site: `make docs`."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from pygments.lexers.special import TextLexer

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]  # the second for the cases of the tour

project = "tensorferry"
author = "The tensorferry developers"
project_copyright = "The tensorferry developers"
release = version = metadata.version("tensorferry")
language = "en"

extensions = ["myst_parser", "sphinx_copybutton"]
extensions += ["accessible", "memory", "moves", "playground", "reference", "repository", "timeline"]

exclude_patterns = ["_ext", "_templates", "locale"]
templates_path = ["_templates"]
myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "fieldlist"]
# GitHub makes an anchor of every heading; so do we, that a link works in both places.
myst_heading_anchors = 6
nitpicky = True
default_role = "named"
maximum_signature_line_length = 80
add_module_names = False
toc_object_entries_show_parents = "hide"
# Code that leaves something out has an ellipsis, which is not Python.
suppress_warnings = ["misc.highlighting_failure"]

# What a reader does not type is not copied: prompts, and what comes out.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

locale_dirs = ["locale"]
gettext_compact = False
gettext_uuid = False
gettext_location = False
gettext_additional_targets = ["image"]

html_theme = "furo"
html_title = "tensorferry"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/languages.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_context = {
    "languages": [("en", "English"), ("ko", "한국어"), ("ja", "日本語"), ("zh_CN", "简体中文")]
}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


def end_without_a_blank_line(_app: Sphinx, tree: nodes.document) -> None:
    """Doctest needs a blank line at the end of an example; a reader does not."""
    for block in tree.findall(nodes.literal_block):
        text = block.astext().rstrip()
        block.rawsource, block.children = text, [nodes.Text(text)]


def setup(app: Sphinx) -> None:
    """Know the drawing of the floors in architecture.md as text."""
    app.add_lexer("floors", TextLexer)
    app.connect("doctree-read", end_without_a_blank_line)
