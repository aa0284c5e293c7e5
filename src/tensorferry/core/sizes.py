"""Numbers of bytes for people."""

from __future__ import annotations

__all__ = ["size_text"]


def size_text(nbytes: int) -> str:
    """A number of bytes for people: ``24 B``, ``1.5 KiB``, ``400 MiB``.

    >>> size_text(24), size_text(1536), size_text(400 << 20)
    ('24 B', '1.5 KiB', '400 MiB')
    """
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < 1024:
            if size < 1000:
                return f"{size:.3g} {unit}"
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:,.0f} EiB"
