"""Pickles by `pickle.dump` (https://docs.python.org/3/library/pickle.html), and files of joblib.

Arrays and tensors are read from the file. Everything that is not data is refused, and never made or
run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...core.dtypes import DTYPES
from ..base.contents import Contents
from ..base.format import Format
from ..pickles.bare import LEGACY, PICKLES, is_pickle

if TYPE_CHECKING:
    from pathlib import Path


class Pickle(Format):
    """Pickles of any protocol, and joblib's: https://joblib.readthedocs.io/en/stable/persistence.html."""

    name = "pickle"
    title = "Pickle, joblib"
    suffixes = PICKLES
    dtypes = frozenset(DTYPES)
    holds_tree = True
    writes = False
    rank = 90

    def recognises(self, path: Path, head: bytes) -> bool:
        return is_pickle(path, head) and not LEGACY.match(head)

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        return self._read(path, allow, partly=False)

    def read_partly(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        return self._read(path, allow, partly=True)

    def _read(self, path: Path, allow: frozenset[str], *, partly: bool) -> Contents:
        from ..pickles.in_file import read_pickle_file

        found, others = read_pickle_file(path, allow, partly=partly)
        return Contents(
            self.name, (os.fspath(path),), found.leaves, {}, found.tree, others, found.asks_for
        )

    def asks_for(self, path: Path) -> tuple[str, ...]:
        from ..pickles.in_file import asked_in_pickle

        return asked_in_pickle(path)


FORMAT = Pickle()
