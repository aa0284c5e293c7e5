"""A local S3: what is asked of it, that it never gives another version, and that uploads are complete or absent."""

from __future__ import annotations

import numpy as np
import pytest
from tests.files.servers import chain
from tests.files.test_storage import opened_elsewhere, positions, run, same, tree

import tensorferry as ferry
from tensorferry.files.conversion import uploads

s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed: pip install tensorferry[s3]")
moto_server = pytest.importorskip("moto.server", reason="moto is not installed")

SECRET = "SECRET-KEY"  # noqa: S105 - no password


@pytest.fixture(scope="module")
def endpoint():
    """The URL of a local S3, which takes any key."""
    server = moto_server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def options(endpoint):
    return {"key": "a", "secret": SECRET, "endpoint_url": endpoint}


@pytest.fixture
def bucket(options, request):
    """A bucket of its own."""
    system = s3fs.S3FileSystem(**options, skip_instance_cache=True)
    name = f"bucket-{abs(hash(request.node.name))}"
    system.mkdir(name)
    yield f"s3://{name}"
    system.invalidate_cache()
    system.rm(name, recursive=True)


@pytest.fixture
def asked(monkeypatch):
    """What is asked of the store: the name of the call, with its arguments."""
    calls = []
    call = s3fs.S3FileSystem._call_s3

    async def counted(self, method, *words, **given):
        calls.append((method, given))
        return await call(self, method, *words, **given)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", counted)
    return calls


def spans(asked):
    found = (given["Range"][6:].split("-") for name, given in asked if name == "get_object")
    return sorted((int(first), int(last) + 1) for first, last in found)


@pytest.mark.parametrize("slices", [None, {"layer.*": np.s_[:, 5:9], "bias": np.s_[::3]}])
def test_a_load_asks_for_what_the_plan_says(bucket, options, asked, slices):
    """To the byte, each request for the version that was opened; what is there is asked once."""
    url = f"{bucket}/model.safetensors"
    report = ferry.save(tree(), url, storage_options=options, verify=True)
    assert report.target == url
    plan = ferry.explain_load(url, slices=slices, storage_options=options)
    assert plan.unpinned == ()
    asked.clear()
    found = ferry.load(url, slices=slices, storage_options=options)
    assert spans(asked) == positions(plan)
    assert all("IfMatch" in given for name, given in asked if name == "get_object")
    assert [name for name, _ in asked if name != "get_object"] == ["head_object"]
    if slices is None:
        same(found, tree())
        return
    wanted = {name: array[:, 5:9] for name, array in tree().items() if name != "bias"}
    same(found, {**wanted, "bias": tree()["bias"][::3]})


def use_one(lazy):
    return lazy["layer.1"]


@pytest.mark.parametrize("is_pickled", [False, True])
def test_another_version_is_refused(bucket, options, is_pickled):
    url = f"{bucket}/model.safetensors"
    ferry.save(tree(), url, storage_options=options)
    lazy = ferry.load(url, lazy=True, storage_options=options)
    other = {name: array + 1 for name, array in tree().items()}
    ferry.save(other, url, storage_options=options, overwrite=True)
    with pytest.raises(ferry.FileFormatError, match="has changed") as caught:
        (opened_elsewhere if is_pickled else use_one)(lazy)
    assert SECRET not in chain(caught.value)


def test_a_folder_with_an_index(bucket, options):
    ferry.save(tree(), f"{bucket}/m", to="safetensors", shard=300_000, storage_options=options)
    same(ferry.load(f"{bucket}/m", storage_options=options), tree())
    with pytest.raises(ferry.OutputExistsError, match="exists already"):
        ferry.save(tree(), f"{bucket}/m", to="safetensors", shard=300_000, storage_options=options)


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_upload_that_fails_leaves_nothing(bucket, options, monkeypatch, overwrite):
    """In the middle of its parts: no part of it stays either, and what was there is as it was."""
    monkeypatch.setattr(uploads, "_PART_BYTES", 5 << 20)
    url = f"{bucket}/big.npz"
    if overwrite:
        ferry.save({"a": np.arange(3)}, url, storage_options=options)
    call, parts = s3fs.core.S3File._call_s3, []

    def failing(self, method, *words, **given):
        if method == "upload_part":
            parts.append(given["PartNumber"])
            if len(parts) > 1:
                raise RuntimeError(SECRET)
        return call(self, method, *words, **given)

    monkeypatch.setattr(s3fs.core.S3File, "_call_s3", failing)
    big = {"a": np.arange(2 << 20, dtype="float64")}
    with pytest.raises(OSError, match="RuntimeError") as caught:
        ferry.save(big, url, storage_options=options, overwrite=overwrite)
    assert SECRET not in chain(caught.value)
    assert len(parts) > 1
    monkeypatch.setattr(s3fs.core.S3File, "_call_s3", call)
    system = s3fs.S3FileSystem(**options, skip_instance_cache=True)
    assert not system.list_multipart_uploads(bucket[5:])
    if overwrite:
        same(ferry.load(url, storage_options=options), {"a": np.arange(3)})
    else:
        assert not system.exists(url)
    ferry.save(big, url, storage_options=options, overwrite=True)
    same(ferry.load(url, storage_options=options), big)


def test_what_is_there_by_now_is_not_replaced(bucket, options, monkeypatch):
    """Somebody else writes the same file while this one is made."""
    url = f"{bucket}/m.npz"
    in_parts = uploads._in_parts

    def late(*given):
        monkeypatch.setattr(uploads, "_in_parts", in_parts)
        ferry.save({"a": np.arange(3)}, url, storage_options=options)
        in_parts(*given)

    monkeypatch.setattr(uploads, "_in_parts", late)
    with pytest.raises(ferry.OutputExistsError, match="exists already"):
        ferry.save({"a": np.arange(9)}, url, storage_options=options)
    same(ferry.load(url, storage_options=options), {"a": np.arange(3)})


def test_without_credentials(bucket, options, monkeypatch):
    """Refused, with the way to read what is public; no key in any message."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    ferry.save(tree(), f"{bucket}/m.npz", storage_options=options)
    endpoint = {"endpoint_url": options["endpoint_url"]}
    with pytest.raises(PermissionError, match="anon"):
        ferry.load(f"{bucket}/m.npz", storage_options=endpoint)
    with pytest.raises(FileNotFoundError):
        ferry.load(f"{bucket}/none.npz", storage_options=options)


def test_the_command_line_converts_from_one_bucket_to_another(bucket, options):
    words = [
        word for key, value in options.items() for word in ("--storage-option", f"{key}={value}")
    ]
    ferry.save(tree(), f"{bucket}/m.safetensors", storage_options=options)
    done = run("convert", f"{bucket}/m.safetensors", f"{bucket}/m.npz", "--verify", *words)
    assert done.exit_code == 0, done.output
    done = run("diff", f"{bucket}/m.safetensors", f"{bucket}/m.npz", *words)
    assert done.exit_code == 0, done.output
    assert SECRET not in done.output
