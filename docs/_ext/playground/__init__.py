"""The page where memory can be seen, as the directive ``{playground}``.

Its controls, the first picture and the 27 cases are made when the site is built, by the planner.
What a reader chooses besides, the planner answers in the page: Pyodide (https://pyodide.org) runs
it there, with our own sources. So nothing here but `directive` needs more than the standard
library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

__all__ = ["setup"]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directive, and what it needs."""
    from . import directive

    return directive.setup(app)
