"""`hub_file`: the file that a URL of ``hf://`` is of, pinned to a commit: on the hub, or in the local cache."""

from __future__ import annotations

import errno
import json
import re
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from ...errors import FileFormatError, UnsafeFileError
from ...hints import Hint, Spoken
from ..base.wording import named
from .addresses import USUAL_FILES, Address
from .files import RemoteFile
from .hub_access import cache_folder, endpoint, is_offline, refuse_offline
from .transport import ServerPlace, document

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

__all__ = ["hub_file"]

_WANTED = re.compile(
    r"(?:(datasets|spaces)/)?([\w.\-]+/[\w.\-]+)(?:@(refs/(?:pr|convert)/[^/@]+|[^/@]+))?(?:/(.*))?",
    re.DOTALL,
)
_KINDS = ("datasets", "spaces")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_INDEX = ".index.json"
_MOST_BYTES = 64 << 20
"""The longest answer of the hub about a repository, and the longest index."""
_MOST_TOLD = 10
_READABLE = (".safetensors", _INDEX, ".gguf", ".pt", ".pth", ".bin", ".npz", ".npy")


class _Wanted(NamedTuple):
    """What a URL asks for.

    Args:
        kind: ``models``, ``datasets`` or ``spaces``.
        repository: The organisation and the name.
        revision: A branch, a tag or a commit.
        path: The file or folder in it; empty for the whole repository.
    """

    kind: str
    repository: str
    revision: str
    path: str

    def shown(self, revision: str, path: str) -> str:
        """A URL of a file of the same repository."""
        kind = "" if self.kind == "models" else f"{self.kind}/"
        at = "" if revision == "main" else f"@{quote(revision, safe='')}"
        return f"hf://{kind}{self.repository}{at}{path and '/'}{path}"

    @property
    def is_commit(self) -> bool:
        """Whether the revision is a commit, which never changes."""
        return _COMMIT.fullmatch(self.revision) is not None

    @property
    def option(self) -> str:
        """What `hf download` needs beside the name of the repository."""
        kind = "" if self.kind == "models" else f" --repo-type {self.kind[:-1]}"
        revision = "" if self.revision == "main" else f" --revision {shlex.quote(self.revision)}"
        return kind + revision


def hub_file(url: str) -> Path | RemoteFile:
    """The file that a URL of the hub is of.

    Its revision is resolved to a commit once. If the cache of huggingface_hub has what is wanted of
    that commit, it is the file there; a commit that is named in full is looked for there first.

    Args:
        url: ``hf://org/model[@revision][/path]``, or ``hf://datasets/org/name…``.

    Raises:
        FileFormatError: It is no such URL; the repository has no file of a model; or the hub's
            answer cannot be understood.
        UnsafeFileError: The path leads out of the repository.
        FileNotFoundError: There is no such repository, revision or file; or no request may be made,
            and the cache has not all of it.
        PermissionError: The repository is gated or private.
        OSError: The hub does not answer.
    """
    wanted = _wanted(url)
    told = wanted.shown(wanted.revision, wanted.path)
    if wanted.is_commit or is_offline():
        cached = _cached(wanted, _known_commit(wanted))
        if cached is not None:
            return cached
    if is_offline():
        refuse_offline(told, wanted.repository, wanted.option)
    commit, names = _resolved(wanted, told)
    cached = None if wanted.is_commit else _cached(wanted, commit)
    if cached is not None:
        return cached
    name = _chosen(wanted, names, told)
    kind = "" if wanted.kind == "models" else f"{wanted.kind}/"
    place = f"{endpoint()}/{kind}{wanted.repository}/resolve/{commit}/{quote(name)}"
    return RemoteFile(ServerPlace(Address(place, (), wanted.shown(commit, name), is_of_hub=True)))


def _wanted(url: str) -> _Wanted:
    match = _WANTED.fullmatch(url.partition("://")[2].rstrip("/"))
    if match is None or (not match[1] and match[2].partition("/")[0] in _KINDS):
        raise FileFormatError(
            f"{url[:200]!r} names no organisation and model of the Hugging Face Hub.",
            Hint(
                Spoken(
                    'load("hf://openai-community/gpt2")',
                    "tensorferry inspect hf://openai-community/gpt2",
                )
            ),
        )
    kind, repository, revision, path = match.groups()
    wanted = _Wanted(kind or "models", repository, unquote(revision or "main"), path or "")
    words = [*repository.split("/"), *wanted.revision.split("/")]
    if path:
        words += path.split("/")
    if any(word in ("", ".", "..") or "\\" in word or "\0" in word for word in words):
        raise UnsafeFileError(f"{url[:200]!r} leads out of the repository.")
    return wanted


def _resolved(wanted: _Wanted, told: str) -> tuple[str, frozenset[str]]:
    """The commit of a revision, and the files that it has.

    Raises:
        FileFormatError: The hub's answer cannot be understood.
    """
    revision = quote(wanted.revision, safe="")
    url = f"{endpoint()}/api/{wanted.kind}/{wanted.repository}/revision/{revision}"
    # A place of its own: what the hub says of a repository is not what it says of a file.
    answer = document(ServerPlace(Address(url, (), told, is_of_hub=True)), _MOST_BYTES)
    commit, names = "", frozenset[str]()
    try:
        info: Any = json.loads(answer)
        commit, names = str(info["sha"]), frozenset(file["rfilename"] for file in info["siblings"])
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    is_known = _COMMIT.fullmatch(commit) and all(isinstance(name, str) for name in names)
    if not is_known or (wanted.is_commit and commit != wanted.revision):
        raise FileFormatError(
            f"{told}: the hub does not say which commit and files this revision has.",
            "check HF_ENDPOINT, which names the server of the hub",
        )
    return commit, names


def _chosen(wanted: _Wanted, names: Collection[str], told: str) -> str:
    """The file of a repository that is opened.

    Raises:
        FileNotFoundError: It has neither a file nor a folder of that name.
        FileFormatError: The folder has no model.
    """
    if wanted.path in names:
        return wanted.path
    folder = f"{wanted.path}/" if wanted.path else ""
    for usual in USUAL_FILES:
        if folder + usual in names:
            return folder + usual
    there = sorted(name for name in names if name.startswith(folder))
    if not there and folder:
        what = f"the repository has no such file: it has {_listed(sorted(names))}"
        raise FileNotFoundError(errno.ENOENT, what, told)
    readable = next((name for name in there if name.endswith(_READABLE)), None)
    if readable is None:
        hint: str | Hint = "name a repository that has a model.safetensors"
    else:
        url = wanted.shown(wanted.revision, readable)
        hint = Hint(Spoken(f"load({url!r})", f"tensorferry inspect {shlex.quote(url)}"))
    raise FileFormatError(
        f"{told} has no {' and no '.join(USUAL_FILES)}: it has {_listed(there)}.", hint
    )


def _listed(names: list[str]) -> str:
    """Names for a message."""
    if not names:
        return "no files"
    return named([repr(name[:200]) for name in names], _MOST_TOLD)


# -- the cache of huggingface_hub ------------------------------------------------------------------


def _folder(wanted: _Wanted) -> Path:
    return cache_folder() / f"{wanted.kind}--{wanted.repository.replace('/', '--')}"


def _known_commit(wanted: _Wanted) -> str | None:
    """The commit that a revision was when it was last asked for; ``None`` if it never was."""
    if wanted.is_commit:
        return wanted.revision
    try:
        commit = (_folder(wanted) / "refs" / wanted.revision).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return commit if _COMMIT.fullmatch(commit) else None


def _cached(wanted: _Wanted, commit: str | None) -> Path | None:
    """What is wanted in the cache, if all of it is there."""
    if commit is None:
        return None
    snapshot = _folder(wanted) / "snapshots" / commit
    asked = snapshot / wanted.path
    candidates = [asked] if wanted.path else []
    candidates += [asked / usual for usual in USUAL_FILES]
    file = next((path for path in candidates if path.is_file()), None)
    if file is None or (file.name.endswith(_INDEX) and not _has_shards(file)):
        return None
    return file


def _has_shards(index: Path) -> bool:
    """Whether all shards of an index are beside it."""
    try:
        with index.open("rb") as file:
            names = set(json.loads(file.read(_MOST_BYTES))["weight_map"].values())
        return all((index.parent / name).is_file() for name in names)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False
