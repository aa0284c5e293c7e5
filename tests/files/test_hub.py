"""Models on the Hugging Face Hub: a commit is read, the token goes to the hub alone, and the cache is used."""

from __future__ import annotations

import json
import pickle
import re
import socket
import subprocess
import sys

import numpy as np
import pytest
from tests.files.servers import chain, serving

import tensorferry as ferry
from tensorferry.files.remote import transport
from tensorferry.files.remote.transport import Patience

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LATER = "f" * 40
TOKEN = "hf_thisIsTheSecret"  # noqa: S105 - it is no real one
HUB_VARIABLES = (
    "HF_TOKEN HUGGING_FACE_HUB_TOKEN HF_TOKEN_PATH HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_HUB_OFFLINE "
    "TRANSFORMERS_OFFLINE HF_HUB_DISABLE_IMPLICIT_TOKEN HTTP_PROXY HTTPS_PROXY http_proxy "
    "https_proxy all_proxy"
)


class Hub:
    """A hub of the tests' own: the API, and files that are on another server, at signed addresses."""

    def __init__(self, api, store):
        self.api, self.store = api, store
        self.files = {}
        self.revisions = {"main": COMMIT, COMMIT: COMMIT}
        self.prefix = "/org/model"
        self.refusal = None
        self.signature = 1
        api.behave = self.answer
        store.behave = self.give

    def answer(self, handler):
        """What the hub itself says."""
        path = handler.path
        if self.refusal is not None:
            status, code = self.refusal
            handler.answer(status, {"X-Error-Code": code})
            return True
        if path.startswith("/api/"):
            revision = path.rpartition("/revision/")[2].replace("%2F", "/")
            commit = self.revisions.get(revision)
            if commit is None:
                handler.answer(404, {"X-Error-Code": "RevisionNotFound"})
                return True
            names = [{"rfilename": name} for name in self.files]
            handler.answer(200, {}, json.dumps({"sha": commit, "siblings": names}).encode())
            return True
        signed = self.store.url(f"{path}?Signature=s3cret{self.signature}")
        handler.answer(302, {"Location": signed})
        return True

    def give(self, handler):
        """What the server of the bytes says."""
        path, _, query = handler.path.partition("?")
        if query != f"Signature=s3cret{self.signature}":
            handler.answer(403)
            return True
        for commit in (COMMIT, LATER):
            name = path.removeprefix(f"{self.prefix}/resolve/{commit}/").replace("%20", " ")
            if name in self.files:
                handler.ranged(self.files[name], {"ETag": f'"{len(self.files[name])}"'})
                return True
        handler.answer(404)
        return True

    @property
    def asked(self):
        return [each.path for each in self.api.asked]


@pytest.fixture(autouse=True)
def hub(monkeypatch, tmp_path):
    monkeypatch.setattr(transport, "PATIENCE", Patience(first=0.0, most=0.0))
    for name in HUB_VARIABLES.split():
        monkeypatch.delenv(name, raising=False)
    with serving() as api, serving() as store:
        monkeypatch.setenv("HF_ENDPOINT", api.url(""))
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        yield Hub(api, store)
    transport.forget_connections()


def tree():
    return {"a": np.arange(60000, dtype="float32"), "b": np.ones((3, 4), "float16")}


def model(tmp_path):
    ferry.save(tree(), tmp_path / "saved.safetensors")
    return (tmp_path / "saved.safetensors").read_bytes()


def sharded(tmp_path):
    """The files of a model in two shards."""
    files = {}
    for number, (name, array) in enumerate(tree().items()):
        shard = f"model-{number}.safetensors"
        ferry.save({name: array}, tmp_path / shard)
        files[shard] = (tmp_path / shard).read_bytes()
    where = {name: f"model-{number}.safetensors" for number, name in enumerate(tree())}
    files["model.safetensors.index.json"] = json.dumps({"weight_map": where}).encode()
    return files


def same(found):
    assert list(found) == list(tree())
    for name, array in tree().items():
        np.testing.assert_array_equal(found[name], array)


def keep(tmp_path, files, commit=COMMIT, refs=("main",), kind="models"):
    """Files in the cache, as huggingface_hub keeps them: links to blobs."""
    folder = tmp_path / "home/hub" / f"{kind}--org--model"
    for name, data in files.items():
        blob = folder / "blobs" / name.replace("/", "-")
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        link = folder / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    for ref in refs:
        place = folder / "refs" / ref
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(commit)


# -- on the hub ------------------------------------------------------------------------------------


def test_a_model_is_read_at_a_commit(hub, tmp_path):
    """The revision is asked for once, and the address of the bytes once."""
    hub.files["model.safetensors"] = model(tmp_path)
    same(ferry.load("hf://org/model"))
    assert hub.asked == [
        "/api/models/org/model/revision/main",
        f"/org/model/resolve/{COMMIT}/model.safetensors",
    ]
    assert {each.path for each in hub.store.asked} == {
        f"/org/model/resolve/{COMMIT}/model.safetensors?Signature=s3cret1"
    }


def test_a_branch_that_moves_is_not_mixed(hub, tmp_path):
    hub.files["model.safetensors"] = model(tmp_path)
    with ferry.load("hf://org/model", lazy=True) as lazy:
        hub.revisions["main"] = LATER
        same(lazy.read())
    assert all(LATER not in each for each in hub.asked)


def test_a_plan_is_what_is_asked(hub, tmp_path):
    hub.files["model.safetensors"] = model(tmp_path)
    plan = ferry.explain_load("hf://org/model", slices={"a": np.s_[50000:]})
    planned = sorted(place for runs in plan.requests for place in runs.positions())
    hub.store.asked.clear()
    found = ferry.load("hf://org/model", slices={"a": np.s_[50000:]})
    assert hub.store.spans == planned
    np.testing.assert_array_equal(found["a"], tree()["a"][50000:])


def test_shards_of_an_index(hub, tmp_path):
    hub.files |= sharded(tmp_path)
    same(ferry.load("hf://org/model"))
    hub.store.asked.clear()
    assert list(ferry.load("hf://org/model", names=["b"])) == ["b"]
    assert not any("model-0" in each.path for each in hub.store.asked)


@pytest.mark.parametrize(
    ("url", "api", "name"),
    [
        (
            "hf://org/model@v1/model.safetensors",
            "models/org/model/revision/v1",
            "model.safetensors",
        ),
        (
            "hf://org/model@refs/pr/7",
            "models/org/model/revision/refs%2Fpr%2F7",
            "model.safetensors",
        ),
        ("hf://org/model@a%2Fb/", "models/org/model/revision/a%2Fb", "model.safetensors"),
        (
            "hf://org/model/in a/part",
            "models/org/model/revision/main",
            "in a/part/model.safetensors",
        ),
        ("hf://datasets/org/model", "datasets/org/model/revision/main", "model.safetensors"),
    ],
)
def test_what_a_url_names(hub, tmp_path, url, api, name):
    hub.revisions |= dict.fromkeys(["v1", "refs/pr/7", "a/b"], COMMIT)
    hub.prefix = "/datasets/org/model" if "datasets" in url else "/org/model"
    hub.files[name] = model(tmp_path)
    contents = ferry.open(url)
    assert hub.asked[0] == f"/api/{api}"
    kind = "datasets/" if "datasets" in url else ""
    assert [path[:] for path in contents.paths] == [f"hf://{kind}org/model@{COMMIT}/{name}"]
    same(ferry.load(contents.paths[0]))
    same(ferry.load(contents.paths[0][:]))


@pytest.mark.parametrize(
    "url",
    [
        "hf://",
        "hf://gpt2",
        "hf://datasets/one",
        "hf://org/model@",
        "hf://a b/c",
        "hf://../model",
        "hf://org/model/../x",
        "hf://org/model@%2E%2E/x",
        "hf://org/model//x",
        "hf://org/..",
    ],
)
def test_urls_of_nothing_ask_for_nothing(hub, url):
    with pytest.raises(ferry.ConversionError, match=r"names no organisation|leads out of"):
        ferry.open(url)
    assert not hub.asked


def test_a_repository_without_a_model_says_what_it_has(hub):
    hub.files |= {"README.md": b"", "weights.gguf": b""}
    with pytest.raises(ferry.FileFormatError, match=r"'README.md', 'weights.gguf'") as caught:
        ferry.open("hf://org/model")
    assert "hf://org/model/weights.gguf" in str(caught.value)
    with pytest.raises(FileNotFoundError, match=r"no such file: it has 'README.md'"):
        ferry.open("hf://org/model/other.gguf")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"{}",
        b'{"sha": "main", "siblings": []}',
        b'{"sha": 1, "siblings": []}',
        b"[" * 9999,
        f'{{"sha": "{COMMIT}", "siblings": [{{"rfilename": 1}}]}}'.encode(),
    ],
)
def test_a_hub_that_talks_nonsense(hub, answer):
    hub.api.behave = lambda handler: handler.answer(200, {}, answer) or True
    with pytest.raises(ferry.FileFormatError, match="does not say which commit"):
        ferry.open("hf://org/model")


def test_an_answer_of_the_hub_has_an_end(hub, monkeypatch):
    monkeypatch.setattr("tensorferry.files.remote.hub._MOST_BYTES", 1000)
    hub.api.behave = lambda handler: handler.answer(200, {}, b"x" * 1001) or True
    with pytest.raises(ferry.FileFormatError, match="over 1,000 bytes"):
        ferry.open("hf://org/model")


def test_an_answer_that_breaks_off_is_asked_for_again(hub, tmp_path):
    hub.files["model.safetensors"] = model(tmp_path)
    broken = []

    def once(handler):
        if broken:
            return hub.answer(handler)
        broken.append(True)
        handler.answer(200, {}, b'{"sha"', length=1000)
        handler.close_connection = True
        return True

    hub.api.behave = once
    same(ferry.load("hf://org/model"))


def test_a_signed_address_that_expires_is_asked_for_once_more(hub, tmp_path):
    hub.files["model.safetensors"] = model(tmp_path)
    with ferry.load("hf://org/model", lazy=True) as lazy:
        hub.signature = 2
        same(lazy.read())
        assert len(hub.asked) == 3
    hub.store.behave = lambda handler: handler.answer(403) or True
    hub.store.asked.clear()
    with pytest.raises(PermissionError):
        ferry.load("hf://org/model")
    assert len(hub.store.asked) == 1


# -- the token -------------------------------------------------------------------------------------


def give_token(monkeypatch, tmp_path, how):
    """A token where huggingface_hub looks for it."""
    if how == "variable":
        monkeypatch.setenv("HF_TOKEN", f" {TOKEN}\n")
    elif how == "path":
        monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "mine"))
        (tmp_path / "mine").write_text(f"{TOKEN}\n")
    else:
        (tmp_path / "home").mkdir()
        (tmp_path / "home/token").write_text(TOKEN)


@pytest.mark.parametrize("how", ["variable", "path", "home"])
def test_the_token_goes_to_the_hub_alone(hub, tmp_path, monkeypatch, how):
    give_token(monkeypatch, tmp_path, how)
    hub.files["model.safetensors"] = model(tmp_path)
    same(ferry.load("hf://org/model"))
    assert {each.headers.get("Authorization") for each in hub.api.asked} == {f"Bearer {TOKEN}"}
    assert not any("Authorization" in each.headers for each in hub.store.asked)
    hub.api.asked.clear()
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    ferry.open("hf://org/model")
    assert not any("Authorization" in each.headers for each in hub.api.asked)


def test_the_token_is_told_nowhere(hub, tmp_path, monkeypatch):
    """Neither it nor a signed address, in a plan, a tree's reference, a pickle or a message."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.files["model.safetensors"] = model(tmp_path)
    contents = ferry.open("hf://org/model")
    plan = ferry.explain_load("hf://org/model")
    told = [repr(contents), repr(plan), str(plan), repr(contents.paths), repr(plan.requests)]
    told += [repr(pickle.dumps(contents.paths)), repr(pickle.dumps(contents.tensors["a"]))]
    hub.api.behave = lambda handler: handler.answer(500) or True
    with pytest.raises(OSError, match="500") as caught:
        ferry.load("hf://org/model")
    told.append(chain(caught.value))
    hub.api.behave = hub.answer
    hub.store.behave = lambda handler: handler.answer(404) or True
    with pytest.raises(OSError, match="hf://org/model") as caught:
        ferry.load("hf://org/model")
    told.append(chain(caught.value))
    assert not any(TOKEN in each or "s3cret" in each for each in told)


def test_a_token_that_is_none_is_told_nowhere(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", f"{TOKEN}\r\nX-Other: 1")
    with pytest.raises(PermissionError, match="characters that no token has") as caught:
        ferry.open("hf://org/model")
    assert TOKEN not in chain(caught.value)
    assert not hub.asked


@pytest.mark.parametrize(
    ("status", "code", "kind", "said"),
    [
        (
            401,
            "RepoNotFound",
            PermissionError,
            "no such repository, or it is private.*hf auth login",
        ),
        (401, "GatedRepo", PermissionError, "is gated.*ask for access.*HF_TOKEN"),
        (403, "GatedRepo", PermissionError, "is gated.*huggingface-cli login"),
        (403, "", PermissionError, "HF_TOKEN"),
        (404, "RepoNotFound", FileNotFoundError, "no such repository"),
        (404, "RevisionNotFound", FileNotFoundError, "no such revision"),
        (404, "EntryNotFound", FileNotFoundError, "no such repository, revision or file"),
    ],
)
def test_refusals_say_what_to_do(hub, status, code, kind, said):
    hub.refusal = status, code
    with pytest.raises(kind, match=said):
        ferry.open("hf://org/model")
    assert len(hub.asked) == 1


def test_a_token_that_is_not_accepted(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.refusal = 401, ""
    with pytest.raises(PermissionError, match="account of this token") as caught:
        ferry.open("hf://org/model")
    assert TOKEN not in chain(caught.value)


# -- the cache and HF_HUB_OFFLINE ------------------------------------------------------------------


def test_a_commit_in_the_cache_needs_no_request(hub, tmp_path):
    keep(tmp_path, {"model.safetensors": model(tmp_path)})
    same(ferry.load(f"hf://org/model@{COMMIT}"))
    assert not hub.asked


def test_a_branch_is_asked_for_and_then_read_from_the_cache(hub, tmp_path):
    """One request: if the branch has moved, the cache has not what is wanted."""
    files = {"model.safetensors": model(tmp_path)}
    keep(tmp_path, files)
    hub.files |= files
    same(ferry.load("hf://org/model"))
    assert hub.asked == ["/api/models/org/model/revision/main"]
    hub.revisions["main"] = LATER
    same(ferry.load("hf://org/model"))
    assert f"/org/model/resolve/{LATER}/model.safetensors" in hub.asked


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_is_the_cache_alone(hub, tmp_path, monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    with pytest.raises(FileNotFoundError, match=r"HF_HUB_OFFLINE is set.*hf download org/model"):
        ferry.open("hf://org/model")
    keep(tmp_path, sharded(tmp_path), refs=["main", "refs/pr/1"])
    same(ferry.load("hf://org/model"))
    same(ferry.load("hf://org/model@refs/pr/1/model.safetensors.index.json"))
    with pytest.raises(FileNotFoundError, match="--revision other"):
        ferry.open("hf://org/model@other")
    assert not hub.asked


def test_offline_what_was_opened_is_not_read(hub, tmp_path, monkeypatch):
    hub.files["model.safetensors"] = model(tmp_path)
    with ferry.load("hf://org/model", lazy=True) as lazy:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        count = len(hub.store.asked)
        with pytest.raises(FileNotFoundError, match="HF_HUB_OFFLINE"):
            lazy.read()
    assert len(hub.store.asked) == count


def test_a_cache_that_lacks_a_shard_is_not_used(hub, tmp_path, monkeypatch):
    files = sharded(tmp_path)
    hub.files |= files
    keep(tmp_path, {name: data for name, data in files.items() if "model-1" not in name})
    same(ferry.load(f"hf://org/model@{COMMIT}"))
    assert hub.asked
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FileNotFoundError, match="has not all of it"):
        ferry.open("hf://org/model")


def test_the_cache_is_where_the_variables_say(hub, tmp_path, monkeypatch):
    keep(tmp_path, {"model.safetensors": model(tmp_path)}, kind="datasets")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "home/hub"))
    same(ferry.load(f"hf://datasets/org/model@{COMMIT}"))
    assert not hub.asked


# -- everything else -------------------------------------------------------------------------------


def test_the_command_line_and_conversions(hub, tmp_path):
    """Each asks for the revision once, so that what it reads is of one commit."""
    from typer.testing import CliRunner

    from tensorferry.cli.app import app

    hub.files["model.safetensors"] = model(tmp_path)
    local, out = str(tmp_path / "saved.safetensors"), str(tmp_path / "made.npz")
    for words in (
        ["inspect", "hf://org/model"],
        ["diff", "hf://org/model", local],
        ["convert", "hf://org/model", out, "--verify"],
    ):
        hub.api.asked.clear()
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        assert sum(each.startswith("/api/") for each in hub.asked) == 1
    same(ferry.load(tmp_path / "made.npz"))


@pytest.mark.parametrize("command", ["inspect", "diff", "convert"])
@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("hf://org/model@none", "no such revision"),
        ("simplecache::https://host/m.npz", "chain of file systems"),
        ("file:///tmp/m.npz?key=word", "behind . or #"),
    ],
)
def test_what_is_refused_is_told_in_json_too(hub, tmp_path, command, url, told):
    """In the words that Python has, with the code for it; nothing is written."""
    from typer.testing import CliRunner

    from tensorferry.cli.app import app

    model(tmp_path)
    rest = {"diff": [str(tmp_path / "saved.safetensors")], "convert": [str(tmp_path / "out.npz")]}
    words = [command, url, *rest.get(command, []), "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2, done.output
    data = json.loads(done.stdout)
    error = data["error"] or data["files"][0]["error"]
    assert re.search(told, error["message"])
    assert "word" not in error["message"]
    assert not (tmp_path / "out.npz").exists()


def test_local_files_import_nothing_of_it(tmp_path):
    """Neither the hub's modules nor those of other servers."""
    model(tmp_path)
    code = f"""
import sys, tensorferry
tensorferry.load({str(tmp_path / "saved.safetensors")!r})
print([name for name in sys.modules if "files.remote" in name or name == "http.client"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_the_real_hub(monkeypatch):
    monkeypatch.delenv("HF_ENDPOINT")
    try:
        socket.create_connection(("huggingface.co", 443), 5).close()
    except OSError as error:
        pytest.skip(f"huggingface.co cannot be reached: {error}")
    contents = ferry.open("hf://openai-community/gpt2")
    assert contents.tensors["wte.weight"].shape == (50257, 768)
    found = ferry.load("hf://openai-community/gpt2", names=["ln_f.bias"])
    assert found["ln_f.bias"].shape == (768,)
