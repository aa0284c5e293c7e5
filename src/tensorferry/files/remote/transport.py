"""`ServerPlace`: a file on a server of http or https; and everything that an answer of one must be."""

from __future__ import annotations

import errno
import http.client
import os
import re
import socket
import ssl
import time
from collections import deque
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ...errors import FileFormatError
from ..base.urls import download_hint
from .addresses import address_of, origin_of, redirected
from .pins import Pin, RemotePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .addresses import Address

__all__ = [
    "MOST_AT_ONCE",
    "PATIENCE",
    "Patience",
    "ServerPlace",
    "document",
    "forget_connections",
    "run_all",
]

_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 5
_UNKNOWN_MATCH = (400, 501)
"""What servers answer that do not know If-Match."""
_PASSING = (408, 425, 429, 500, 502, 503, 504)
"""Answers that another try may not get."""
_RANGE = re.compile(r"\s*bytes\s+(\d{1,19})-(\d{1,19})/(\d{1,19}|\*)\s*", re.IGNORECASE)
_STEP = 256 << 10
"""How many bytes are taken from a connection at a time: so many are asked for again after a stall."""
_MOST_IDLE = 8
_MOST_REST = 64 << 10
"""A shorter rest of an answer is read, so that its connection can be used again."""
MOST_AT_ONCE = 8
"""How many requests are made at once: each of at most 8 MiB, so that 64 MiB are in flight."""


class Patience(NamedTuple):
    """How long is waited for a server.

    Args:
        stall: After so many seconds without a byte, the request is made again.
        tries: How often a request is made.
        first: How many seconds are before the second try; twice as many before each further one.
        most: The most seconds between two tries, if the server asks for no other number.
        longest: The most seconds that a server may ask for.
    """

    stall: float = 20.0
    tries: int = 5
    first: float = 0.5
    most: float = 8.0
    longest: float = 120.0


PATIENCE = Patience()


class ServerPlace(RemotePlace):
    """A file on a server of http or https.

    Args:
        address: Its address.
        pin: What it was; ``None`` before the first answer.
    """

    def __init__(self, address: Address, pin: Pin | None = None) -> None:
        super().__init__(address, pin)
        self.target: str | None = None
        # What the hub has of a commit never changes, and its own server knows other entity tags than
        # those that it sends the requests on to.
        self.sends_match = not address.is_of_hub

    @property
    def match(self) -> str:
        """The entity tag that the server compares; empty if it cannot."""
        if self.pin is None or not self.sends_match or self.pin.etag[:1] != '"':
            return ""
        return self.pin.etag

    def fetch(self, start: int, views: Sequence[memoryview], *, is_first: bool = False) -> int:
        """See `RemotePlace.fetch`.

        What has come stays if the connection breaks: only the rest is asked for again.

        Raises:
            FileFormatError: The file has changed; or the server gives no ranges of bytes, or others
                than those that were asked for.
            FileNotFoundError: There is no such file.
            PermissionError: The server wants other credentials, or does not give it.
            OSError: The server does not answer, also after several tries.
            UnsafeFileError: It sends the request on to what is no server of http or https.
        """
        wanted = sum(view.nbytes for view in views)
        done = 0

        def go_on(*, is_new: bool) -> int:
            nonlocal done, wanted
            answer = _asked(self, start + done, start + wanted, is_first=is_first, is_new=is_new)
            wanted = answer.stop - start
            for count in answer.fill(views, done, wanted):
                done += count
            answer.finish()
            return done

        return _tried(self, go_on)


class _PassingError(Exception):
    """A failure that another try may not have.

    Args:
        what: What happened, in a few words.
        wait: How many seconds the server asks to wait; ``None`` if it does not.
        at_once: Whether it is a connection that was left open too long.
    """

    def __init__(self, what: str, wait: float | None = None, *, at_once: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.wait = wait
        self.at_once = at_once


def document(place: ServerPlace, most: int) -> bytes:
    """A whole answer, such as a server gives about its files.

    Args:
        place: Its address.
        most: How many bytes it may have.

    Raises:
        FileFormatError: It is longer, or compressed.
        ConversionError: As for `fetch`.
        OSError: As for `fetch`.
    """

    def ask(*, is_new: bool) -> bytes:
        connection, response, url = _answered(place, None, is_new=is_new)
        try:
            if response.status != http.client.OK:
                _refuse(place, url, response)
            _validate_encoding(place, response)
            return _all_of(place, response, most)
        finally:
            _drop(connection, response)

    return _tried(place, ask)


def _all_of(place: ServerPlace, response: HTTPResponse, most: int) -> bytes:
    what = "the connection ended in the middle of an answer"
    data = None
    try:
        data = response.read(most + 1)
    except (OSError, HTTPException) as error:
        what = _said(error)
    if data is None or (response.length and len(data) <= most):
        raise _PassingError(what)
    if len(data) > most:
        raise FileFormatError(
            f"{place.address.shown}: the server's answer has over {most:,} bytes."
        )
    return data


_Result = TypeVar("_Result")
_Result_co = TypeVar("_Result_co", covariant=True)


class _Try(Protocol[_Result_co]):
    """One try of a request; over a new connection, or over one that was left open."""

    def __call__(self, *, is_new: bool) -> _Result_co:
        """Make it.

        Raises:
            _PassingError: Another try may succeed.
        """


def _tried(place: ServerPlace, attempt: _Try[_Result]) -> _Result:
    """What the first try gives that does not fail in passing.

    Raises:
        OSError: All of them fail so.
    """
    tries, is_new = 1, False
    while True:
        try:
            return attempt(is_new=is_new)
        except _PassingError as error:
            failed = error
        # Not in the `except`: what a library raises may have the whole URL.
        if failed.at_once:
            is_new = True
            continue
        if tries >= PATIENCE.tries:
            raise OSError(errno.EIO, f"{failed.what}, {tries} times", place.address.shown)
        _wait(failed, tries, place)
        tries += 1


def run_all(jobs: Sequence[Callable[[], object]]) -> None:
    """Run functions that wait for servers, several at once; the first error is raised."""
    if len(jobs) < 2:
        for job in jobs:
            job()
        return
    # Here, because it imports logging, which takes long.
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(min(MOST_AT_ONCE, len(jobs)), thread_name_prefix="tensorferry")
    try:
        for done in [pool.submit(job) for job in jobs]:
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _wait(failed: _PassingError, tries: int, place: ServerPlace) -> None:
    """Wait before the next try.

    Raises:
        OSError: The server asks to wait for too long.
    """
    asked = failed.wait
    if asked is not None and asked > PATIENCE.longest:
        what = f"{failed.what}, and asks to wait for {asked:,.0f} seconds"
        raise OSError(errno.EAGAIN, what, place.address.shown)
    usual = min(PATIENCE.first * 2 ** (tries - 1), PATIENCE.most)
    time.sleep(usual if asked is None else asked)


class _Answer:
    """An answer with bytes, of which none has been read.

    Args:
        connection: Its connection.
        response: The answer.
        stop: The end of the bytes.
    """

    def __init__(self, connection: _Connection, response: HTTPResponse, stop: int) -> None:
        self._connection = connection
        self._response = response
        self.stop = stop

    def fill(self, views: Sequence[memoryview], done: int, wanted: int) -> Iterator[int]:
        """Read into pieces of memory from a position on; yield how many bytes have come, each time.

        Raises:
            _PassingError: The connection broke.
        """
        begin = 0
        for view in views:
            end = min(begin + view.nbytes, wanted)
            while begin <= done < end:
                part = view[done - begin : min(done - begin + _STEP, end - begin)]
                count, what = 0, "the connection ended in the middle of an answer"
                try:
                    count = self._response.readinto(part)
                except (OSError, HTTPException) as error:
                    what = _said(error)
                if not count:
                    _drop(self._connection, self._response)
                    raise _PassingError(what)
                done += count
                yield count
            begin += view.nbytes

    def finish(self) -> None:
        """Keep the connection for the next request."""
        _let_go(self._connection, self._response)


class _Connection(NamedTuple):
    """A connection to a server or its proxy.

    Args:
        key: The process, the server and the proxy, of which it is used for the same again.
        open: The connection.
        headers: What the proxy needs with each request.
        is_whole: Whether it wants the whole URL.
        was_open: Whether it was used before.
    """

    key: tuple[object, ...]
    open: HTTPConnection
    headers: tuple[tuple[str, str], ...]
    is_whole: bool
    was_open: bool


_idle: dict[tuple[object, ...], deque[_Connection]] = {}
"""Connections that were left open. The process is in the key: those of a parent are its own."""


def forget_connections() -> None:
    """Close the connections that this process has left open."""
    for key in [key for key in _idle if key[0] == os.getpid()]:
        for connection in _idle.pop(key, ()):
            connection.open.close()


def _connection(url: str, *, is_new: bool) -> _Connection:
    scheme, host, port = origin_of(url)
    proxy = None if proxy_bypass(f"{host}:{port}") else getproxies().get(scheme)
    key = os.getpid(), scheme, host, port, proxy
    kept = _idle.setdefault(key, deque())
    while kept:
        with suppress(IndexError):
            connection = kept.pop()
            if not is_new:
                return connection._replace(was_open=True)
            connection.open.close()
    if scheme == "https":
        secure = _context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    else:
        secure = None
    if proxy is not None and "://" not in proxy:
        proxy = f"http://{proxy}"
    through = None if proxy is None else address_of(proxy)
    if through is None:
        return _Connection(key, _made(host, port, secure), (), is_whole=False, was_open=False)
    headers = tuple((f"Proxy-{name}", value) for name, value in through.headers)
    _, proxy_host, proxy_port = origin_of(through.url)
    made = _made(proxy_host, proxy_port, secure)
    if secure is None:
        return _Connection(key, made, headers, is_whole=True, was_open=False)
    made.set_tunnel(host, port, dict(headers))
    return _Connection(key, made, (), is_whole=False, was_open=False)


def _made(host: str, port: int, secure: ssl.SSLContext | None) -> HTTPConnection:
    if secure is None:
        return HTTPConnection(host, port, timeout=PATIENCE.stall)
    return HTTPSConnection(host, port, timeout=PATIENCE.stall, context=secure)


@lru_cache(maxsize=4)
def _context(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    """What verifies servers: the system's certificates, or those that the environment names."""
    return ssl.create_default_context()


def _drop(connection: _Connection, response: HTTPResponse) -> None:
    """Close a connection, also where the answer holds it: one after which the server closes it."""
    response.close()
    connection.open.close()


def _let_go(connection: _Connection, response: HTTPResponse) -> None:
    """Keep a connection for the next request, if little of its answer is left."""
    left = response.length
    kept = _idle.setdefault(connection.key, deque())
    if left is None or left > _MOST_REST or len(kept) >= _MOST_IDLE:
        _drop(connection, response)
        return
    try:
        response.read()
    except (OSError, HTTPException):
        _drop(connection, response)
        return
    if response.will_close:
        _drop(connection, response)
    else:
        kept.append(connection)


def _asked(place: ServerPlace, start: int, stop: int, *, is_first: bool, is_new: bool) -> _Answer:
    """The answer to a request of bytes.

    Raises:
        _PassingError: Another try may succeed.
        ConversionError: As for `fetch`.
        OSError: As for `fetch`.
    """
    connection, response, url = _answered(place, (start, stop), is_new=is_new)
    if response.status not in (http.client.OK, http.client.PARTIAL_CONTENT):
        _drop(connection, response)
        _refuse(place, url, response)
    try:
        end = _validated(place, response, start, stop, is_first=is_first)
    except BaseException:
        _drop(connection, response)
        raise
    place.target = None if url == place.address.url else url
    return _Answer(connection, response, end)


def _answered(
    place: ServerPlace, span: tuple[int, int] | None, *, is_new: bool
) -> tuple[_Connection, HTTPResponse, str]:
    """The answer to a request, of a range or of everything, and the URL that gave it.

    Raises:
        _PassingError: Another try may succeed.
        ConversionError: As for `fetch`.
        OSError: As for `fetch`.
    """
    address = place.address
    url = address.url if place.target is None else place.target
    may_have_expired = place.target is not None
    hops = 0
    while True:
        connection, response = _sent(place, url, span, is_new=is_new)
        status = response.status
        if status in _REDIRECTS:
            location = response.getheader("Location", "")
            _let_go(connection, response)
            hops += 1
            if hops > _MOST_REDIRECTS:
                raise FileFormatError(
                    f"{address.shown} sends the request on more than {_MOST_REDIRECTS} times."
                )
            url = redirected(address, url, location)
            continue
        if status == http.client.FORBIDDEN and may_have_expired:
            # The address that the server gave was for some time only.
            _drop(connection, response)
            place.target, may_have_expired, url, hops = None, False, address.url, 0
            continue
        if status in _UNKNOWN_MATCH and place.match:
            _drop(connection, response)
            place.sends_match = False
            continue
        return connection, response, url


def _sent(
    place: ServerPlace, url: str, span: tuple[int, int] | None, *, is_new: bool
) -> tuple[_Connection, HTTPResponse]:
    """Send a request; gives what came back."""
    own = _credentials(place, url)
    connection = _connection(url, is_new=is_new)
    headers = {"Accept-Encoding": "identity", **dict(connection.headers), **own}
    if span is not None:
        headers["Range"] = f"bytes={span[0]}-{span[1] - 1}"
    if place.match:
        headers["If-Match"] = place.match
    parts = urlsplit(url)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    failed: BaseException
    try:
        connection.open.request("GET", url if connection.is_whole else target, headers=headers)
        return connection, connection.open.getresponse()
    except (OSError, HTTPException) as error:
        failed = error
    connection.open.close()
    what = _said(failed)
    if isinstance(failed, ssl.SSLCertVerificationError):
        raise OSError(errno.EACCES, "the server's certificate is not accepted", place.address.shown)
    if place.pin is None and isinstance(failed, (ConnectionRefusedError, socket.gaierror)):
        raise ConnectionError(errno.ECONNREFUSED, what, place.address.shown)
    raise _PassingError(what, at_once=connection.was_open and not isinstance(failed, TimeoutError))


def _credentials(place: ServerPlace, url: str) -> dict[str, str]:
    """What is sent only to the server that a file is of."""
    address = place.address
    if address.is_of_hub:
        from .hub_access import credentials  # here, because most URLs are of other servers

        return credentials(address, url)
    return dict(address.headers) if origin_of(url) == origin_of(address.url) else {}


def _said(error: BaseException) -> str:
    """What went wrong, without anything of the URL."""
    if isinstance(error, TimeoutError):
        return f"the server sends nothing for {PATIENCE.stall:g} seconds"
    if isinstance(error, socket.gaierror):
        return "there is no such server"
    if isinstance(error, ConnectionRefusedError):
        return "the server takes no connections"
    if isinstance(error, (ConnectionError, IncompleteRead)):
        return "the connection broke"
    return f"the connection failed ({type(error).__name__})"


def _refuse(place: ServerPlace, url: str, response: HTTPResponse) -> NoReturn:
    """Raise for an answer without bytes."""
    shown = place.address.shown
    status = response.status
    if status in _PASSING:
        raise _PassingError(f"the server answers with {status}", _asked_wait(response))
    if place.address.is_of_hub:
        from .hub_access import refuse  # here, because most URLs are of other servers

        refuse(place.address, url, status, response.getheader("X-Error-Code", ""))
    if status == http.client.PRECONDITION_FAILED:
        place.refuse_changed()
    if status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
        if place.pin is not None:
            place.refuse_changed()
        raise FileFormatError(f"{shown} is empty: it has no bytes.", "get the file again")
    if status in (http.client.NOT_FOUND, http.client.GONE):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), shown)
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        what = f"the server does not give it without other credentials ({status})"
        raise PermissionError(errno.EACCES, what, shown)
    raise OSError(errno.EIO, f"the server answers with {status}", shown)


def _asked_wait(response: HTTPResponse) -> float | None:
    """How many seconds a server asks to wait."""
    text = response.getheader("Retry-After", "").strip()
    if text.isdecimal():
        return float(text[:9])
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None


def _validate_encoding(place: ServerPlace, response: HTTPResponse) -> None:
    """Refuse an answer that is compressed."""
    encoding = response.getheader("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise FileFormatError(
            f"{place.address.shown} comes compressed ({encoding[:20]!r}), so that no byte has its "
            "place.",
            download_hint(place.address.source),
        )


def _validated(
    place: ServerPlace, response: HTTPResponse, start: int, stop: int, *, is_first: bool
) -> int:
    """The end of the bytes of an answer, which is what was asked for.

    Raises:
        FileFormatError: It is not; or the file has changed.
    """
    shown = place.address.shown
    _validate_encoding(place, response)
    tag, modified = response.getheader("ETag", ""), response.getheader("Last-Modified", "")
    if response.status == http.client.OK:
        length = response.length
        if not is_first or start or length is None or not 0 < length <= stop:
            raise FileFormatError(
                f"{shown} comes whole where a range of its bytes was asked for: its server has no "
                "ranges.",
                download_hint(place.address.source),
            )
        place.check(Pin(length, tag, modified))
        return length
    match = _RANGE.fullmatch(response.getheader("Content-Range", ""))
    if match is None or match[3] == "*":
        raise FileFormatError(
            f"{shown}: the server does not say which range of how many bytes it sends.",
            download_hint(place.address.source),
        )
    first, last, total = int(match[1]), int(match[2]), int(match[3])
    place.check(Pin(total, tag, modified))
    end = min(stop, total) if is_first else stop
    is_asked = (first, last + 1) == (start, end) and end <= total
    if not is_asked or response.length not in (None, end - start):
        raise FileFormatError(
            f"{shown}: the server sends bytes {first} to {last} of {total}, and {start} to "
            f"{end - 1} were asked for in this range request."
        )
    return end
