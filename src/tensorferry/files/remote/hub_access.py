"""The Hugging Face Hub as this machine uses it: its server, the token, the local cache, and what a refusal means."""

from __future__ import annotations

import errno
import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from .addresses import address_of, origin_of

if TYPE_CHECKING:
    from .addresses import Address

__all__ = ["cache_folder", "credentials", "endpoint", "is_offline", "refuse", "refuse_offline"]

_HUB = "https://huggingface.co"
_YES = ("1", "ON", "YES", "TRUE")
_LOGIN = "`hf auth login` (before huggingface_hub 1.0 `huggingface-cli login`) or set HF_TOKEN"


def endpoint() -> str:
    """The URL of the hub, without a user and a password.

    Raises:
        FileFormatError: HF_ENDPOINT is no URL of http or https.
    """
    return _server().url.rstrip("/")


def _server() -> Address:
    named = os.environ.get("HF_ENDPOINT", "").rstrip("/") or _HUB
    address = address_of(named)
    if address is None:
        from ...errors import FileFormatError  # here, because only an error needs it

        raise FileFormatError(
            "HF_ENDPOINT is no URL of http or https.", f'os.environ["HF_ENDPOINT"] = "{_HUB}"'
        )
    return address


def is_offline() -> bool:
    """Whether no request may be made."""
    return _is_set("HF_HUB_OFFLINE") or _is_set("TRANSFORMERS_OFFLINE")


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").upper() in _YES


def _home() -> Path:
    """The folder in which huggingface_hub keeps everything."""
    own = os.environ.get("HF_HOME")
    if own:
        return Path(os.path.expandvars(own)).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expandvars(caches)).expanduser() / "huggingface"


def cache_folder() -> Path:
    """The folder in which huggingface_hub keeps repositories."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        own = os.environ.get(name)
        if own:
            return Path(os.path.expandvars(own)).expanduser()
    return _home() / "hub"


def _token() -> str:
    """The token that is sent; empty if there is none.

    Raises:
        PermissionError: It has characters that no token has.
    """
    if _is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        return ""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        token = os.environ.get(name, "").strip()
        if token:
            break
    else:
        own = os.environ.get("HF_TOKEN_PATH")
        place = Path(os.path.expandvars(own)).expanduser() if own else _home() / "token"
        token = ""
        with suppress(OSError, UnicodeDecodeError):
            token = place.read_text("utf-8").strip()
    if not (token.isascii() and token.isprintable()) or " " in token:
        # Here, because http.client's own error would have it.
        what = f"the token for the hub has characters that no token has. Hint: {_LOGIN}"
        raise PermissionError(errno.EACCES, what)
    return token


def credentials(address: Address, url: str) -> dict[str, str]:
    """What is sent with a request for a file of the hub: the token, to the hub's own server only.

    Args:
        address: The file.
        url: Where the request goes, which may be a server that the hub names.

    Raises:
        FileNotFoundError: No request may be made.
        PermissionError: The token has characters that no token has.
    """
    if is_offline():
        refuse_offline(address.shown)
    server = _server()
    if origin_of(url) != origin_of(server.url):
        return {}
    token = _token()
    if token:
        return {"Authorization": f"Bearer {token}"}
    return dict(server.headers)


def refuse_offline(shown: str, repository: str = "", option: str = "") -> NoReturn:
    """Raise, because a file is not in the cache and no request may be made.

    Args:
        shown: The URL.
        repository: The repository, which the hint downloads.
        option: What else the command of the hint needs.
    """
    what = "HF_HUB_OFFLINE is set, and huggingface_hub's cache on this machine has not all of it"
    way = "unset HF_HUB_OFFLINE"
    if repository:
        way += f", then `hf download {shlex.quote(repository)}{option}` keeps it"
    raise FileNotFoundError(errno.ENOENT, f"{what}. Hint: {way}", shown)


def refuse(address: Address, url: str, status: int, code: str) -> None:
    """Raise for an answer of the hub that means more than its number says.

    Args:
        address: The file.
        url: Who answered; nothing is raised for another server.
        status: The number.
        code: What the hub calls it.

    Raises:
        PermissionError: It is gated or private, or the token is not accepted.
        FileNotFoundError: There is no such repository, revision or file.
    """
    server = _server()
    if origin_of(url) != origin_of(server.url) or status not in (401, 403, 404):
        return
    if status == 404:
        what = {
            "RepoNotFound": f"the hub has no such repository, or this account may not see it. Hint: "
            f"look for it at {_HUB}, or {_LOGIN}",
            "RevisionNotFound": "the repository has no such revision. Hint: leave out what follows "
            "the @ for the newest one",
        }.get(code, "the hub has no such repository, revision or file. Hint: check the spelling")
        raise FileNotFoundError(errno.ENOENT, what, address.shown)
    if code == "GatedRepo":
        what = "the repository is gated: its owner decides who reads it. Hint: ask for access on "
        what += f"its page, then {_LOGIN}"
    elif _token():
        what = f"the hub does not give it to the account of this token ({status}). Hint: {_LOGIN}, "
        what += "with a token that may read it"
    else:
        what = "the hub has no such repository, or it is private, and no token is sent "
        what += f"({status}). Hint: {_LOGIN}"
    raise PermissionError(errno.EACCES, what, address.shown)
