"""URLs and buffers where a path is meant: what they are, and the code that makes a file of them."""

from __future__ import annotations

import io
import os
import re
import shlex
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from ...errors import FileFormatError, UnsupportedTypeError, shown
from ...hints import Hint, Spoken

__all__ = [
    "download_hint",
    "path_hint",
    "refuse_no_path",
    "refuse_options",
    "refuse_target",
    "refuse_url",
    "url_told",
]

# A Path has one slash in the place of two. A drive of Windows has one letter.
_URL = re.compile(r"(file):/{1,3}|([A-Za-z][A-Za-z0-9+.\-]+):/{1,2}(?=[^/])")
_HUB = "huggingface.co"


def path_hint(path: Path) -> Hint:
    """The hint to read another path.

    Args:
        path: The path.
    """
    command = f"tensorferry inspect {shlex.quote(str(path))}"
    return Hint(Spoken(f"load({str(path)!r})", command))


def refuse_url(path: str | Path, *, is_target: bool = False) -> None:
    """Raise for a URL in the place of a path.

    Args:
        path: The path, which is no URL if something of this name exists.
        is_target: Whether it is to be written.

    Raises:
        FileFormatError: It is a URL. The hint is the code that downloads it, or uploads what was
            written.
    """
    text = os.fspath(path)
    match = _URL.match(text)
    if match is None or os.path.lexists(text) or os.path.lexists(text.partition("/")[0]):
        return
    _refuse(text, match, is_target=is_target)


def refuse_target(url: str) -> NoReturn:
    """Raise for a URL to which nothing is written.

    Args:
        url: The URL.

    Raises:
        FileFormatError: Always. The hint is the code that uploads what was written.
    """
    match = _URL.match(url)
    if match is None:
        raise FileFormatError(f"{url_told(url)[:200]} is no URL of a file.", "another target")
    _refuse(url, match, is_target=True)


def _refuse(text: str, match: re.Match[str], *, is_target: bool) -> NoReturn:
    scheme = (match[1] or match[2]).lower()
    url = f"{scheme}://{'/' if match[1] else ''}{text[match.end() :]}"
    told, is_secret = _without_secrets(url)
    if scheme == "file":
        said = _local(url)
    elif is_target:
        said = _uploaded(scheme, url)
    else:
        said = _downloaded(scheme, url)
    if is_secret:
        said = _unsaid(said, url)
    # Some calls read some URLs, if they are strings; a file that was downloaded is good for all.
    if is_target:
        what = "files are written to this machine, s3://, gs:// and memory:// only"
    else:
        what = "a path of this machine is needed here"
    raise FileFormatError(f"{told} is a URL, and {what}.", Hint(said))


def download_hint(url: str) -> Hint:
    """The hint to download a file; of a query, which may be a token, it has nothing.

    Args:
        url: Its URL.
    """
    said = _downloaded(url.partition("://")[0].lower(), url)
    return Hint(_unsaid(said, url) if _without_secrets(url)[1] else said)


def url_told(url: str) -> str:
    """A URL as messages show it: without user, password, query and what follows a ``#``."""
    try:
        return _without_secrets(url)[0]
    except ValueError:
        return f"{url.partition('://')[0]}://…"


def refuse_options(path: str | Path) -> NoReturn:
    """Raise for ``storage_options`` beside a path that is of no file system that has any.

    Raises:
        FileFormatError: Always.
    """
    text = os.fspath(path)
    if text[:5].lower() == "hf://":
        why = "the Hugging Face Hub takes its token from HF_TOKEN, or from `hf auth login`"
    else:
        why = "they are for files of other places, such as s3://bucket/model.safetensors"
    raise FileFormatError(
        f"storage_options say nothing about {url_told(text)[:200]}: {why}.",
        "leave storage_options out",
    )


def _unsaid(said: Spoken, url: str) -> Spoken:
    """A hint without a URL that has a password or a token."""
    python = said.python.replace(repr(url), "url")
    shell = said.shell.replace(shlex.quote(url), '"$URL"')
    return Spoken(f"with the whole URL in url: {python}", f"with the whole URL in URL: {shell}")


def refuse_no_path(given: object, call: str) -> None:
    """Raise for a buffer or open file in place of a path, with the code that makes a file of it.

    Raises:
        UnsupportedTypeError: It is one.
    """
    message = f"the path in {call} must be a string or a pathlib.Path, not {shown(given)}"
    is_target = call.startswith(("save", "the target"))
    name = getattr(given, "name", None)
    if isinstance(name, str) and Path(name).exists():
        raise UnsupportedTypeError(message, f"file.name: {name!r}")
    if is_target and isinstance(given, io.IOBase):
        copied = 'import pathlib; buffer.write(pathlib.Path("model.safetensors").read_bytes())'
        raise UnsupportedTypeError(message, f'"model.safetensors" as the path, and then: {copied}')
    if isinstance(given, io.BytesIO):
        raise UnsupportedTypeError(message, _bytes_to_file("buffer.getvalue()"))
    if isinstance(given, (bytes, bytearray, memoryview)) and not is_target:
        raise UnsupportedTypeError(message, _bytes_to_file("data"))
    if callable(getattr(given, "read", None)) and not is_target:
        raise UnsupportedTypeError(message, _bytes_to_file("file.read()"))


def _bytes_to_file(code: str) -> str:
    return f'import pathlib; path = pathlib.Path("model.file"); path.write_bytes({code})'


def _without_secrets(url: str) -> tuple[str, bool]:
    """A URL for a message, without user, password and query; and whether it had any of these."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    if parts.query in ("", "download=true"):
        query = parts.query
    else:
        query = "…"
    told = parts._replace(netloc=place, query=query, fragment="").geturl()
    return told, place != parts.netloc or query == "…"


def _name(url: str) -> str:
    """The name of the file that a URL is of."""
    last = unquote(urlsplit(url).path).rstrip("/").rpartition("/")[2]
    return re.sub(r"[^\w.\-]", "_", last).lstrip("-.") or "model"


def _local(url: str) -> Spoken:
    place = unquote(urlsplit(url).path)
    return Spoken(repr(place), shlex.quote(place))


def _downloaded(scheme: str, url: str) -> Spoken:
    name = _name(url)
    quoted, file = shlex.quote(url), shlex.quote(name)
    of_hub = _hub_file(scheme, url)
    if of_hub is not None:
        return of_hub
    if scheme in ("http", "https", "ftp"):
        python = f"import urllib.request; path, _ = urllib.request.urlretrieve({url!r}, {name!r})"
        return Spoken(python, f"curl -fL -o {file} {quoted}")
    if scheme in ("s3", "s3a", "s3n"):
        parts = urlsplit(url)
        bucket, key = parts.netloc, parts.path.lstrip("/")
        python = f'import boto3; path = {name!r}; boto3.client("s3").download_file({bucket!r}, {key!r}, path)'
        return Spoken(python, f"aws s3 cp {shlex.quote(f's3://{bucket}/{key}')} {file}")
    python = f"import fsspec; path = {name!r}; fsspec.filesystem({scheme!r}).get({url!r}, path)"
    shell = f"python -c {shlex.quote(python)}"
    if scheme in ("gs", "gcs"):
        shell = f"gcloud storage cp {shlex.quote('gs://' + url.partition('://')[2])} {file}"
    return Spoken(python, shell)


def _hub_file(scheme: str, url: str) -> Spoken | None:
    """The hint for a file or whole repository of the Hugging Face Hub; ``None`` for other URLs."""
    parts = urlsplit(url)
    words = [unquote(word) for word in (parts.netloc + parts.path).split("/") if word]
    if scheme == "hf":
        if words[:1] and words[0] in ("datasets", "spaces"):
            kind = words.pop(0)
        else:
            kind = ""
        repository, rest = words[:2], words[2:]
        if repository:
            revision = repository[-1].partition("@")[2]
        else:
            revision = ""
        repository = [word.partition("@")[0] for word in repository]
    elif parts.netloc == _HUB and len(words) > 5 and words[3] in ("resolve", "blob"):
        kind, repository, revision, rest = "", words[1:3], words[4], words[5:]
    else:
        return None
    if len(repository) != 2:
        return None
    name = "/".join(repository)
    python = [repr(name)]
    shell = f"hf download {shlex.quote(name)}"
    if rest:
        python.append(repr("/".join(rest)))
        shell += f" {shlex.quote('/'.join(rest))}"
    if kind:
        python.append(f"repo_type={kind[:-1]!r}")
        shell += f" --repo-type {kind[:-1]}"
    if revision and revision != "main":
        python.append(f"revision={revision!r}")
        shell += f" --revision {shlex.quote(revision)}"
    call = "hf_hub_download" if rest else "snapshot_download"
    return Spoken(f"from huggingface_hub import {call}; path = {call}({', '.join(python)})", shell)


def _uploaded(scheme: str, url: str) -> Spoken:
    """The hint for a target: a file here, which another tool uploads."""
    name = _name(url)
    file, quoted = shlex.quote(name), shlex.quote(url)
    parts = urlsplit(url)
    if scheme in ("s3", "s3a", "s3n"):
        bucket, key = parts.netloc, parts.path.lstrip("/")
        call = f'import boto3; boto3.client("s3").upload_file({name!r}, {bucket!r}, {key!r})'
        shell = f"aws s3 cp {file} {shlex.quote(f's3://{bucket}/{key}')}"
    elif scheme == "hf" and len((parts.netloc + parts.path).split("/")) > 2:
        words = [unquote(word) for word in (parts.netloc + parts.path).split("/")]
        repository, place = "/".join(words[:2]), "/".join(words[2:])
        call = (
            f"from huggingface_hub import upload_file; upload_file(path_or_fileobj={name!r}, "
            f"path_in_repo={place!r}, repo_id={repository!r})"
        )
        shell = f"hf upload {shlex.quote(repository)} {file} {shlex.quote(place)}"
    elif scheme in ("http", "https", "ftp"):
        return Spoken(
            f"the path of a file here, such as {name!r}", f"the path of a file here, such as {file}"
        )
    else:
        call = f"import fsspec; fsspec.filesystem({scheme!r}).put({name!r}, {url!r})"
        shell = f"python -c {shlex.quote(call)}"
        if scheme in ("gs", "gcs"):
            shell = f"gcloud storage cp {file} {quoted}"
    return Spoken(
        f"{name!r} as the path, and then: {call}", f"{file} as the path, and then: {shell}"
    )
