"""`Address`: what a URL of a file says, and how messages show it: without passwords, tokens and queries."""

from __future__ import annotations

import base64
import re
from typing import NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

from ...errors import FileFormatError, UnsafeFileError

__all__ = ["Address", "address_of", "is_url", "origin_of", "redirected", "sibling"]

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://")
_ODD = re.compile(r"[\x00-\x20\x7f]")
_PORTS = {"http": 80, "https": 443}


class Address(NamedTuple):
    """A file on a server.

    Args:
        url: Its URL, without user, password and fragment.
        headers: What is sent with each request to its server: a password is in it.
        shown: The URL as messages show it.
        is_of_hub: Whether it is of the Hugging Face Hub, whose token is looked up for each request:
            it is in no pickle, and a plan can be sent to others.
    """

    url: str
    headers: tuple[tuple[str, str], ...]
    shown: str
    is_of_hub: bool = False

    def __repr__(self) -> str:
        return f"<Address {self.shown}>"

    @property
    def source(self) -> str:
        """The URL of which a hint downloads it."""
        return self.shown if self.is_of_hub else self.url

    @property
    def name(self) -> str:
        """The name of the file."""
        return unquote(urlsplit(self.url).path).rpartition("/")[2]


def is_url(path: object) -> bool:
    """Whether a path is a string that begins as a URL: a ``pathlib.Path`` never is one."""
    return isinstance(path, str) and _URL.match(path) is not None


def address_of(url: str) -> Address | None:
    """The address of a file on a server of http or https; ``None`` for URLs of other schemes.

    Raises:
        FileFormatError: It is no URL of a file.
    """
    scheme = url.partition("://")[0].lower()
    if scheme not in _PORTS:
        return None
    url = url.strip()
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
        parts = urlsplit(f"{scheme}://")
    if not host or _ODD.search(url.replace(" ", "")):
        raise FileFormatError(
            f"The URL of scheme {scheme} has no host, or a part that no URL has.",
            "a URL such as https://example.org/model.safetensors",
        )
    name = f"[{host}]" if ":" in host else host
    place = name if port in (None, _PORTS[scheme]) else f"{name}:{port}"
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~")
    whole = parts._replace(scheme=scheme, netloc=place, path=path, fragment="")
    headers: tuple[tuple[str, str], ...] = ()
    if parts.username is not None:
        user, password = unquote(parts.username), unquote(parts.password or "")
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        headers = (("Authorization", f"Basic {token}"),)
    return Address(whole.geturl(), headers, _shown(whole.geturl()))


def _shown(url: str) -> str:
    """A URL for messages."""
    parts = urlsplit(url)
    return parts._replace(query="…" if parts.query else "").geturl()


def origin_of(url: str) -> tuple[str, str, int]:
    """The scheme, the host and the port of a URL."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)


def redirected(address: Address, url: str, location: str) -> str:
    """Where a server sends a request on to.

    Raises:
        UnsafeFileError: That is no server of http or https, or not encrypted where this one is.
    """
    try:
        found = address_of(urljoin(url, location))
    except (ValueError, FileFormatError):
        found = None
    if found is None:
        raise UnsafeFileError(
            f"{address.shown} sends the request on to what is no URL of http or https."
        )
    if origin_of(url)[0] == "https" and origin_of(found.url)[0] != "https":
        raise UnsafeFileError(
            f"{address.shown} sends the request on from https to http, where anybody could change "
            "the file."
        )
    return found.url


def sibling(address: Address, name: str) -> Address:
    """The address of another file in the same folder; what follows the ``?`` stays.

    Raises:
        UnsafeFileError: The name could lead out of the folder.
    """
    if any(character in name for character in "/\\\0%?#:") or name in ("", ".", ".."):
        raise UnsafeFileError(
            f"{address.shown} names the shard {name[:200]!r}, which leads out of its folder."
        )
    parts = urlsplit(address.url)
    folder = parts.path.rpartition("/")[0]
    url = parts._replace(path=f"{folder}/{quote(name)}").geturl()
    if address.is_of_hub:
        shown = f"{address.shown.rpartition('/')[0]}/{name}"
    else:
        shown = _shown(url)
    return address._replace(url=url, shown=shown)
