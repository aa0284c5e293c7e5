"""A server that answers as Google Cloud Storage does: each request is for the generation that was opened."""

from __future__ import annotations

import json
import sys
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from tests.files.servers import serving
from tests.files.test_storage import positions, same, tree

import tensorferry as ferry

gcsfs = pytest.importorskip(
    "gcsfs.core", reason="gcsfs is not installed: pip install tensorferry[gcs]"
)


@pytest.fixture(autouse=True)
def without_grpc(monkeypatch):
    """The class that asks by HTTP alone: what gcsfs registers first asks by gRPC what a bucket is."""
    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "gs", gcsfs.GCSFileSystem)


@pytest.fixture
def store(tmp_path):
    """A bucket with one file, of which `generations` has all versions."""
    with serving() as server:
        server.generations = {}

        def behave(handler):
            parts = urlsplit(handler.path)
            asked = parse_qs(parts.query)
            newest = max(server.generations, default=0)
            if not unquote(parts.path).endswith("/b/bucket/o/m.safetensors") or not newest:
                handler.answer(404, {"Content-Type": "application/json"}, b'{"error": {}}')
                return True
            number = int(asked.get("generation", [newest])[0])
            data = server.generations.get(number)
            if data is None:
                handler.answer(404, {"Content-Type": "application/json"}, b'{"error": {}}')
            elif handler.span is not None or asked.get("alt") == ["media"]:
                handler.span = handler.span or (0, len(data))
                handler.ranged(data)
            else:
                told = {"name": "m.safetensors", "bucket": "bucket", "size": str(len(data))}
                told |= {"generation": str(number), "updated": f"2026-01-0{number}T00:00:00Z"}
                handler.answer(200, {"Content-Type": "application/json"}, json.dumps(told).encode())
            return True

        server.behave = behave
        yield server


def saved(tmp_path, name, held):
    ferry.save(held, tmp_path / name)
    return (tmp_path / name).read_bytes()


def test_the_generation_that_was_opened_is_read(store, tmp_path):
    """Also while a newer one is written; if it is no longer kept, that is an error."""
    options = {"token": "anon", "endpoint_url": store.url("")}
    store.generations[1] = saved(tmp_path, "one.safetensors", tree())
    url = "gs://bucket/m.safetensors"
    plan = ferry.explain_load(url, storage_options=options)
    store.asked.clear()
    same(ferry.load(url, storage_options=options), tree())
    data = [each for each in store.asked if each.span is not None]
    assert sorted(each.span for each in data) == positions(plan)
    assert all("generation=1" in each.path for each in data)
    lazy = ferry.load(url, lazy=True, storage_options=options)
    other = {name: array + 1 for name, array in tree().items()}
    store.generations[2] = saved(tmp_path, "two.safetensors", other)
    same(lazy.read(), tree())
    lazy = ferry.load(url, lazy=True, storage_options=options)
    store.generations[3] = store.generations.pop(2)
    with pytest.raises(ferry.FileFormatError, match="has changed"):
        _ = lazy["layer.1"]
    store.generations.clear()
    with pytest.raises(FileNotFoundError):
        ferry.load(url, storage_options=options)
