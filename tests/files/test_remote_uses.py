"""What else is done with files on servers: https, conversions that go on, by other processes, and shards of tensors."""

from __future__ import annotations

import errno
import ssl
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.files.servers import chain, serving
from tests.support import lives

import tensorferry as ferry
from tensorferry.files.opening.paths import format_named
from tensorferry.files.remote import transport
from tensorferry.files.remote.transport import Patience

CERTIFICATE = str(Path(__file__).with_name("servers.pem"))
"""Of localhost, by nobody: the tests' own, with its key. It ends in a hundred years."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(transport, "PATIENCE", Patience(first=0.0, most=0.0))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server():
    with serving() as found:
        yield found
    transport.forget_connections()


def tree():
    return {f"w{n}": np.arange(n, n + 3000.0) for n in range(5)}


@pytest.fixture
def model(server, tmp_path):
    ferry.save(tree(), tmp_path / "model.safetensors")
    server.files["/model.safetensors"] = (tmp_path / "model.safetensors").read_bytes()
    return server


def same(found, wanted):
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


# -- https -----------------------------------------------------------------------------------------


@pytest.fixture
def secure(model):
    """The server, behind TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    model.socket = context.wrap_socket(model.socket, server_side=True)
    return model


def test_https_with_a_certificate_that_the_environment_names(secure, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", CERTIFICATE)
    url = f"https://localhost:{secure.server_port}/model.safetensors"
    same(ferry.load(url), tree())
    assert len(secure.asked) > 1


def test_https_with_a_certificate_of_nobody(secure, monkeypatch):
    """It is refused at once, before anything is sent."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    url = f"https://me:SECRET@localhost:{secure.server_port}/model.safetensors?sig=SECRET"
    with pytest.raises(OSError, match="certificate is not accepted") as caught:
        ferry.load(url)
    assert not secure.asked
    assert "SECRET" not in chain(caught.value)


# -- conversions -----------------------------------------------------------------------------------


def stopped(monkeypatch, after):
    """Stop a conversion before a file is written; gives what was written."""
    writer, written = type(format_named("safetensors")), []
    write = writer.write

    def writing(self, piece, path, pump):
        if len(written) == after:
            raise OSError(errno.EIO, "stopped")
        written.append(path.name)
        write(self, piece, path, pump)

    monkeypatch.setattr(writer, "write", writing)
    return written


def interrupted(model, target, monkeypatch):
    """Convert into shards, and stop after three of five; gives what asks for it again."""
    ask = partial(
        ferry.convert_files, model.url(), target, to="safetensors", shard=25_000, resume=True
    )
    with monkeypatch.context() as patch:
        stopped(patch, 3)
        with pytest.raises(ferry.ResumableError):
            ask()
    return ask


def test_a_conversion_goes_on(model, tmp_path, monkeypatch):
    """What is written stays, and only what the rest needs is asked for; not if the file has changed."""
    ask = interrupted(model, tmp_path / "out", monkeypatch)
    model.asked.clear()
    with monkeypatch.context() as patch:
        written = stopped(patch, 9)
        report = ask()
    assert len(written) == 2
    assert len(report.skipped) == 3
    asked = sum(stop - start for start, stop in model.spans)
    assert asked <= 2 * 3000 * 8 + (64 << 10)
    same(ferry.load(tmp_path / "out"), tree())


def test_a_conversion_of_another_version_does_not_go_on(model, tmp_path, monkeypatch):
    ask = interrupted(model, tmp_path / "out", monkeypatch)
    model.tags["/model.safetensors"] = '"two"'
    other = {name: array + 1 for name, array in tree().items()}
    ferry.save(other, tmp_path / "other.safetensors")
    model.files["/model.safetensors"] = (tmp_path / "other.safetensors").read_bytes()
    written = stopped(monkeypatch, 9)
    ask()
    assert len(written) == 5
    same(ferry.load(tmp_path / "out"), other)


def test_other_processes_convert(model, tmp_path):
    url = model.url("/model.safetensors?sig=SECRET")
    keywords = {"to": "safetensors", "shard": 25_000, "jobs": 2, "engine": "processes"}
    ferry.convert_files(url, tmp_path / "out", verify=True, **keywords)
    same(ferry.load(tmp_path / "out"), tree())


# -- shards ----------------------------------------------------------------------------------------

SHARDS = """
import os, sys
sys.path.insert(0, sys.argv[1])
import numpy as np, jax, torch, torch.distributed as dist
import tensorferry as ferry
from jax.sharding import NamedSharding, PartitionSpec as P
from tests.files.servers import serving
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
    os.environ.pop(name, None)
values = np.arange(160 * 4096, dtype="float32").reshape(160, 4096)
ferry.save({"w": values}, f"{sys.argv[2]}/model.safetensors")
with serving() as server:
    server.files["/model.safetensors"] = open(f"{sys.argv[2]}/model.safetensors", "rb").read()

    def counted(*words, **keywords):
        plan = ferry.explain_load(server.url(), *words, **keywords)
        server.asked.clear()
        found = ferry.load(server.url(), *words, **keywords)["w"]
        assert server.spans == sorted(at for runs in plan.requests for at in runs.positions())
        return found, plan.bytes_read

    devices = np.array(jax.devices())
    assert len(devices) == 8
    mesh = jax.sharding.Mesh(devices, ("x",))
    for spec in (P("x"), P(None, "x"), P()):
        asked = NamedSharding(mesh, spec)
        found, read = counted("jax", device=asked)
        assert found.sharding == asked and np.array_equal(np.asarray(found), values)
        # What several devices of a process need, or lies between, is read once.
        assert read < values.nbytes + (65 << 10), (spec, read)
    rows, total = [], 0
    for rank in range(8):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=8)
        found, read = counted("torch", device=(init_device_mesh("cpu", (8,)), [Shard(0)]))
        rows.append(found.to_local().numpy())
        total += read
        dist.destroy_process_group()
    assert np.array_equal(np.concatenate(rows), values)
    assert total <= values.nbytes + 8 * (64 << 10), total
"""


def test_each_process_asks_for_its_shards(tmp_path):
    """Eight devices of JAX in a process, and eight processes of PyTorch, one after the other."""
    pytest.importorskip("jax")
    pytest.importorskip("torch")
    root = str(Path(__file__).parents[2])
    lives(SHARDS, root, str(tmp_path), XLA_FLAGS="--xla_force_host_platform_device_count=8")


# -- storage_options -------------------------------------------------------------------------------


def test_headers_go_to_the_server_that_the_url_names(model):
    """And to no other that it sends the request on to; in no message, and in the pickle of a reference."""
    options = {"headers": {"X-Token": "SECRET"}}
    with serving() as other:
        other.behave = lambda handler: handler.answer(302, {"Location": model.url()}) or True
        lazy = ferry.load(other.url(), lazy=True, storage_options=options)
        assert "SECRET" not in f"{lazy!r}{lazy.reference()!r}"
        same(lazy.reference().open().read(), tree())
        assert other.asked[0].headers["X-Token"] == "SECRET"
    assert not any("X-Token" in each.headers for each in model.asked)


@pytest.mark.parametrize(
    "options",
    [
        {"token": "SECRET"},
        {"headers": "SECRET"},
        {"headers": {"X-Token": "SECRET\r\nX-Other: 1"}},
        {"headers": {"X Token": "SECRET"}},
        {"headers": {"X-Token": 3}, "SECRET": 1},
    ],
)
def test_options_that_no_server_gets(model, options):
    with pytest.raises(ferry.FileFormatError, match="have headers only") as caught:
        ferry.open(model.url(), storage_options=options)
    assert "SECRET" not in chain(caught.value)
    assert not model.asked


def test_the_hub_takes_no_options():
    with pytest.raises(ferry.FileFormatError, match="HF_TOKEN") as caught:
        ferry.open("hf://org/model", storage_options={"token": "SECRET"})
    assert "SECRET" not in chain(caught.value)
