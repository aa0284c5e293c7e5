"""Links out of the site's folder to pages of the repository: the file itself is put beside the built pages.

A page links to ``../README.md`` or ``../examples/x.py`` relatively, which works where the
repository is looked at. MyST makes a download of the second by itself, and looks for a page of the
site behind the first.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from sphinx import addnodes
from sphinx.transforms import SphinxTransform

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata


class OutsidePages(SphinxTransform):
    """Make a download of every link to a Markdown file outside of the site's folder."""

    # After Sphinx has put in the translations, which have these links as well.
    default_priority = 25

    def apply(self, **_: object) -> None:
        """Replace the links."""
        root = Path(self.env.srcdir)
        for link in list(self.document.findall(addnodes.pending_xref)):
            file = root / f"{link['reftarget']}.md"
            if link.get("refdomain") == "doc" and not file.is_relative_to(root) and file.is_file():
                target = f"/{os.path.relpath(file, root)}"
                link.replace_self(
                    addnodes.download_reference(
                        "", "", *link.children, refdoc=link["refdoc"], reftarget=target
                    )
                )


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the transform."""
    app.add_transform(OutsidePages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
