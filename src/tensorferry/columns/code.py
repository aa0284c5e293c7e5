"""Code of pyarrow's in hints about columns, with ``{x}`` for the column.

Backends have their own instead of it.
"""

from __future__ import annotations

__all__ = ["DECODED", "DECODES", "FIELDS", "LIST", "STORAGE", "WITHOUT_NULLS", "WORDS", "is_number"]

LIST = "{x}.to_pylist()"
STORAGE = "{x}.cast({x}.type.storage_type)"
WITHOUT_NULLS = "{x}.drop_null(), which leaves those rows out"
FIELDS = "pa.Table.from_struct_array({x}), which has a column for each field"
DECODES = '[PIL.Image.open(io.BytesIO(each["bytes"]))'
DECODED = f"{DECODES} for each in {LIST}], which decodes images"
"""A list of the images in a column of files, as datasets stores them."""
WORDS = 'np.unique({x}.fill_null(""), return_inverse=True)[1], which numbers the words'
"""Integers for text."""


def is_number(text: object) -> bool:
    """Whether text is a number that is written out.

    >>> is_number("1.5"), is_number("one"), is_number(None)
    (True, False, False)
    """
    try:
        float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True
