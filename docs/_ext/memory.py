"""The directive ``{memory}``: a plan, made when the site is built, as a picture of its memory.

Its body is Python code that ends in an expression whose value is a plan; ``ferry`` is there without
an import::

    ```{memory}
    :caption: A transposed view touches the same bytes
    ferry.explain(ferry.TensorInfo("torch", (3, 2), "float32", strides=(4, 12)), "numpy")
    ```
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, ClassVar

import picture_words
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

import tensorferry as ferry
from tensorferry.planning.pictures.canvas import xml_text
from tensorferry.planning.pictures.html import both_widths, html_page
from tensorferry.planning.pictures.memory import memory_picture
from tensorferry.planning.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

_log = logging.getLogger(__name__)


class Drawn(SphinxDirective):
    """A figure that Python code says."""

    has_content = True
    option_spec: ClassVar[dict[str, Callable[[str], Any]]] = {
        "caption": directives.unchanged_required,
        "alt": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        """The figure; what is wrong with the code is a warning that names the page and the line."""
        code = "\n".join(self.content)
        try:
            html = self.html(value_of(code))
        except Exception as error:  # noqa: BLE001 - whatever the page's code raises
            _log.warning(
                "{%s}: %s: %s", self.name, type(error).__name__, error, location=self.get_location()
            )
            return []
        if "alt" in self.options:
            told = xml_text(self.options["alt"])
            html = re.sub(r"<desc>[^<]*", lambda _: f"<desc>{told}", html)
            html = re.sub(r"aria-label='[^']*'", lambda _: f"aria-label='{told}'", html)
        for path in picture_words.catalogs(self.config):
            self.env.note_dependency(str(path))
        figure = nodes.figure("", nodes.raw("", html, format="html"), classes=["ferry-figure"])
        self.set_source_info(figure)
        if "caption" not in self.options:
            return [figure]
        inline, messages = self.parse_inline(self.options["caption"])
        caption = nodes.caption(self.options["caption"], "", *inline)
        self.set_source_info(caption)
        figure += caption
        return [figure, *messages]

    def html(self, value: object) -> str:
        """What is drawn of the value of the code.

        Raises:
            TypeError: It cannot be drawn.
        """
        raise NotImplementedError


class Memory(Drawn):
    """The memory of a plan."""

    def html(self, value: object) -> str:
        """The picture, once for a screen and once for a phone."""
        if not isinstance(value, Plan):
            raise TypeError(f"the last line must be a plan, not {type(value).__name__}")
        words = picture_words.words(self.config)
        return html_page(
            [
                both_widths(
                    lambda width: memory_picture(value, width=width, styled=False, words=words)
                )
            ]
        )


def value_of(code: str) -> object:
    """The value of the expression that code ends in.

    Raises:
        SyntaxError: It is no Python, or ends in no expression.
    """
    tree = ast.parse(code)
    if not tree.body or not isinstance(tree.body[-1], ast.Expr):
        raise SyntaxError("the last line must be an expression")
    last = tree.body.pop()
    names = {"ferry": ferry}
    exec(compile(tree, "<memory>", "exec"), names)  # noqa: S102 - the page's own code
    return eval(compile(ast.Expression(last.value), "<memory>", "eval"), names)  # noqa: S307 - likewise


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directive."""
    app.add_directive("memory", Memory)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
