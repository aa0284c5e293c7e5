"""The directive ``{moves}``: what a table of weights does, made when the site is built, as a picture.

Its body is Python code, as that of ``{memory}``, which ends in what `WeightMap.explain` gives::

    ```{moves}
    :caption: A transpose
    :colours: 2
    ferry.WeightMap.parse(text).explain({"x": ferry.TensorInfo("numpy", (2, 3), "float32")})
    ```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import picture_words
from docutils.parsers.rst import directives
from memory import Drawn

from tensorferry.planning.pictures.html import both_widths, html_page
from tensorferry.weight_map import MapPlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata


class Moves(Drawn):
    """The elements that a table moves."""

    option_spec: ClassVar[dict[str, Callable[[str], Any]]] = {
        **Drawn.option_spec,
        "colours": directives.positive_int,
    }

    def html(self, value: object) -> str:
        """The picture, once for a screen and once for a phone."""
        if not isinstance(value, MapPlan):
            raise TypeError(f"the last line must be a plan of a table, not {type(value).__name__}")
        words = picture_words.words(self.config)
        colours = self.options.get("colours")
        return html_page(
            [
                both_widths(
                    lambda width: value.picture(
                        colours=colours, width=width, styled=False, words=words
                    )
                )
            ]
        )


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directive."""
    app.add_directive("moves", Moves)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
