"""`Address`: what a URL of a file says, and how messages show it: without passwords, tokens and queries."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

from ...errors import FileFormatError, UnsafeFileError

__all__ = [
    "USUAL_FILES",
    "Address",
    "address_of",
    "is_url",
    "origin_of",
    "redirected",
    "scheme_of",
    "takes_options",
    "validate_sibling",
]

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_ONE_LINE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_ODD = re.compile(r"[\x00-\x20\x7f]")
_PORTS = {"http": 80, "https": 443}
_NONE: Mapping[str, Any] = MappingProxyType({})
USUAL_FILES = ("model.safetensors.index.json", "model.safetensors")
"""What of a folder is opened: the first that there is."""


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

    def sibling(self, name: str) -> Address:
        """The address of another file in the same folder; what follows the ``?`` stays.

        Raises:
            UnsafeFileError: The name could lead out of the folder.
        """
        validate_sibling(name, self.shown)
        parts = urlsplit(self.url)
        folder = parts.path.rpartition("/")[0]
        url = parts._replace(path=f"{folder}/{quote(name)}").geturl()
        if self.is_of_hub:
            shown = f"{self.shown.rpartition('/')[0]}/{name}"
        else:
            shown = _shown(url)
        return self._replace(url=url, shown=shown)


def is_url(path: object) -> bool:
    """Whether a path is a string that begins as a URL: a ``pathlib.Path`` never is one."""
    return isinstance(path, str) and _URL.match(path) is not None


def scheme_of(url: str) -> str:
    """What is before the ``://`` of a URL."""
    return url.partition("://")[0].lower()


def takes_options(path: object) -> bool:
    """Whether a path is a URL for which ``storage_options`` can say something."""
    return is_url(path) and scheme_of(str(path)) not in ("file", "hf")


def headers_of(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The headers that ``storage_options`` of http and https have.

    Raises:
        FileFormatError: They have something else, or headers that cannot be sent.
    """
    headers = options.get("headers", {})
    pairs = tuple(headers.items()) if isinstance(headers, Mapping) else None
    # Here, because http.client's own error would have the value.
    if set(options) != {"headers"} or pairs is None or not all(map(_is_header, pairs)):
        raise FileFormatError(
            "storage_options of http:// and https:// have headers only, with names and values that "
            "are strings of one line.",
            '{"headers": {"Authorization": "Bearer …"}} as storage_options',
        )
    return pairs


def _is_header(pair: tuple[Any, Any]) -> bool:
    name, value = pair
    if not (isinstance(name, str) and isinstance(value, str)):
        return False
    return _TOKEN.fullmatch(name) is not None and _ONE_LINE.fullmatch(value) is not None


def address_of(url: str, options: Mapping[str, Any] = _NONE) -> Address | None:
    """The address of a file on a server of http or https; ``None`` for URLs of other schemes.

    Args:
        url: The URL.
        options: Its ``storage_options``.

    Raises:
        FileFormatError: It is no URL of a file.
    """
    scheme = scheme_of(url)
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
    if options:
        own = headers_of(options)
        names = {name.lower() for name, _ in own}
        headers = (*(pair for pair in headers if pair[0].lower() not in names), *own)
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
        target = address_of(urljoin(url, location))
    except (ValueError, FileFormatError):
        target = None
    if target is None:
        raise UnsafeFileError(
            f"{address.shown} sends the request on to what is no URL of http or https."
        )
    if origin_of(url)[0] == "https" and origin_of(target.url)[0] != "https":
        raise UnsafeFileError(
            f"{address.shown} sends the request on from https to http, where anybody could change "
            "the file."
        )
    return target.url


def validate_sibling(name: str, shown: str) -> None:
    """Raise for a name in an index that could lead out of its folder.

    Args:
        name: The name.
        shown: The index.

    Raises:
        UnsafeFileError: It could.
    """
    if any(character in name for character in "/\\\0%?#:") or name in ("", ".", ".."):
        raise UnsafeFileError(
            f"{shown} names the shard {name[:200]!r}, which leads out of its folder."
        )
