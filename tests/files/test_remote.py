"""Files on servers: what is asked is what the plan says, what comes is what was saved, and no server is believed."""

from __future__ import annotations

import base64
import gc
import json
import pickle
import struct
import warnings

import numpy as np
import pytest
from tests.files.servers import chain, holds_in_a_fork, serving

import tensorferry as ferry
from tensorferry.files.remote import transport
from tensorferry.files.remote.transport import Patience

ROWS, COLUMNS = 300, 200


@pytest.fixture
def server():
    with serving() as found:
        yield found
    transport.forget_connections()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """No test waits: the shortest times that a server may take."""
    monkeypatch.setattr(transport, "PATIENCE", Patience(first=0.0, most=0.0))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def tree():
    rng = np.random.default_rng(0)
    big = {f"layer.{n}": rng.standard_normal((ROWS, COLUMNS)).astype("float32") for n in range(3)}
    return {**big, "bias": np.arange(70, dtype="float16"), "empty": np.zeros((0, 4), "int8")}


def saved(tmp_path, name, of=None):
    """The bytes of a file with the tree."""
    ferry.save(tree() if of is None else of, tmp_path / name)
    return (tmp_path / name).read_bytes()


def same(found, wanted):
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.fixture
def model(server, tmp_path):
    server.files["/model.safetensors"] = saved(tmp_path, "model.safetensors")
    return server


def positions(plan):
    return sorted(place for runs in plan.requests for place in runs.positions())


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "pt", "gguf"])
@pytest.mark.parametrize(
    "slices",
    [
        None,
        {"layer.*": np.s_[10:60]},
        {"layer.*": np.s_[:, 5:9], "bias": np.s_[::3]},
        {"layer.1": np.s_[7, ..., -3]},
    ],
)
def test_a_load_asks_for_what_the_plan_says(server, tmp_path, suffix, slices):
    """To the byte, and gives what a local file gives."""
    path = f"/model.{suffix}"
    held = tree()
    if suffix == "gguf":
        del held["empty"]
    server.files[path] = saved(tmp_path, f"model.{suffix}", held)
    plan = ferry.explain_load(server.url(path), slices=slices)
    server.asked.clear()
    found = ferry.load(server.url(path), slices=slices)
    assert server.spans == positions(plan)
    assert plan.bytes_read == sum(stop - start for start, stop in server.spans)
    same(found, ferry.load(tmp_path / f"model.{suffix}", slices=slices))


def test_an_array_alone(server, tmp_path):
    """A .npy, of both orders of axes and with bytes swapped."""
    for number, array in enumerate(
        [
            np.arange(60.0).reshape(6, 10),
            np.asfortranarray(np.arange(60).reshape(6, 10)),
            np.arange(9, dtype=">i4"),
        ]
    ):
        np.save(tmp_path / "a.npy", array)
        server.files[f"/{number}.npy"] = (tmp_path / "a.npy").read_bytes()
        np.testing.assert_array_equal(ferry.load(server.url(f"/{number}.npy")), array)


def test_open_asks_once_for_a_short_header(model):
    contents = ferry.open(model.url())
    assert [each.span for each in model.asked] == [(0, 64 << 10)]
    assert contents.tensors["layer.0"].shape == (ROWS, COLUMNS)


def test_open_asks_twice_for_a_long_header(server, tmp_path):
    many = {f"a.rather.long.name.of.a.tensor.{n}": np.zeros(1, "int8") for n in range(2000)}
    server.files["/model.safetensors"] = saved(tmp_path, "model.safetensors", many)
    assert len(ferry.open(server.url()).tensors) == 2000
    assert len(server.asked) == 2


def test_columns_are_read_with_what_is_between_them(model):
    """One request, whose waste the plan tells, with what would be cheaper."""
    plan = ferry.explain_load(model.url(), names=["layer.1"], slices={"layer.1": np.s_[:, :4]})
    assert len(plan.requests) == 2
    assert plan.bytes_needed == ROWS * 4 * 4
    assert plan.bytes_wasted == plan.bytes_read - plan.bytes_needed
    assert "300 runs of 16 B, gaps of 784 B" in str(plan)


@pytest.mark.parametrize("to", ["torch", "jax", "tensorflow"])
def test_each_framework_gets_them(model, to):
    found = ferry.load(model.url(), to, names=["layer.*", "bias"])
    for name, array in found.items():
        np.testing.assert_array_equal(np.asarray(array), tree()[name])


def test_a_lazy_tree_asks_when_a_tensor_is_used(model):
    """And reads all that is left by one plan."""
    with ferry.load(model.url(), lazy=True) as lazy:
        assert len(model.asked) == 1
        one = lazy["layer.1"]
        assert len(model.asked) == 2
        found = lazy.read()
        assert found["layer.1"] is one
        assert len(model.asked) == 4
        same(found, tree())


def test_a_reference_opens_what_was_seen(model):
    """Pickled, it has the whole URL, and shows nothing of it."""
    reference = ferry.load(model.url("/model.safetensors?sig=SECRET"), lazy=True).reference()
    assert "SECRET" not in repr(reference)
    same(pickle.loads(pickle.dumps(reference)).open().read(), tree())  # noqa: S301 - its own
    model.tags["/model.safetensors"] = '"two"'
    with pytest.raises(ferry.FileFormatError, match="has changed"):
        pickle.loads(pickle.dumps(reference)).open()  # noqa: S301 - its own


def test_two_urls_that_are_shown_alike_are_two_files(server, tmp_path):
    """What follows the ? is in no message, and still tells them apart."""
    one = saved(tmp_path, "one.safetensors", {"a": np.zeros(9)})
    other = saved(tmp_path, "other.safetensors", {"b": np.ones(9)})
    server.behave = lambda handler: handler.ranged(one if "v=1" in handler.path else other) or True
    urls = [server.url(f"/m.safetensors?v={n}") for n in (1, 2)]
    ferry.convert_files(urls, tmp_path / "both.npz")
    same(ferry.load(tmp_path / "both.npz"), {"a": np.zeros(9), "b": np.ones(9)})


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "pt", "gguf"])
def test_a_conversion_streams(server, tmp_path, suffix):
    held = tree()
    del held["empty"]
    path = f"/model.{suffix}"
    server.files[path] = saved(tmp_path, f"model.{suffix}", held)
    ferry.convert_files(server.url(path), tmp_path / "out.safetensors", verify=True)
    same(ferry.load(tmp_path / "out.safetensors"), held)


def test_a_conversion_compares_checksums_on_the_way(server, tmp_path):
    data = bytearray(saved(tmp_path, "model.npz"))
    data[200_000] ^= 1
    server.files["/model.npz"] = bytes(data)
    with pytest.raises(ferry.FileFormatError, match="CRC-32"):
        ferry.convert_files(server.url("/model.npz"), tmp_path / "out.safetensors")
    assert not (tmp_path / "out.safetensors").exists()


def test_a_map_takes_tensors_of_servers(model):
    table = ferry.WeightMap.parse("""
drop = ["layer.2", "bias", "empty"]
[map]
"first" = "layer.0"
"turned" = "layer.1 : a b -> b a"
""")
    plan = ferry.explain_load(model.url(), map=table)
    model.asked.clear()
    found = ferry.load(model.url(), map=table)
    assert model.spans == positions(plan)
    same(found, {"first": tree()["layer.0"], "turned": tree()["layer.1"].T})


def test_shards_of_an_index(server, tmp_path):
    """All of them, or only those that have what is named."""
    parts = {"a": np.arange(9), "b": np.ones(5)}
    for name, array in parts.items():
        server.files[f"/m/{name}.safetensors"] = saved(
            tmp_path, f"{name}.safetensors", {name: array}
        )
    where = {name: f"{name}.safetensors" for name in parts}
    server.files["/m/model.safetensors.index.json"] = json.dumps({"weight_map": where}).encode()
    url = server.url("/m/model.safetensors.index.json?token=SECRET")
    same(ferry.load(url), parts)
    assert {each.path for each in server.asked} >= {"/m/a.safetensors?token=SECRET"}
    server.asked.clear()
    same(ferry.load(url, names=["b"]), {"b": parts["b"]})
    assert not [each for each in server.asked if "/a." in each.path]


@pytest.mark.parametrize(
    "name", ["../a.safetensors", "a%2fb", "http://x/y", "a?b", "a#b", "..", "c:d", "a\\b"]
)
def test_an_index_leads_nowhere_else(server, name):
    index = json.dumps({"weight_map": {"a": name}}).encode()
    server.files["/m/model.safetensors.index.json"] = index
    with pytest.raises(ferry.UnsafeFileError, match="leads out of its folder"):
        ferry.load(server.url("/m/model.safetensors.index.json"))
    assert len(server.asked) == 1


# -- servers that are not to be believed -----------------------------------------------------------


def test_a_server_without_ranges_is_refused(model):
    """Before its body is read: the error says what it is about, and how to download."""
    data = bytes(1 << 20)
    model.behave = lambda handler: handler.answer(200, data=data) or True
    with pytest.raises(ferry.FileFormatError, match="range") as caught:
        ferry.load(model.url())
    assert "urlretrieve" in str(caught.value)


def test_a_short_file_may_come_whole(server, tmp_path):
    data = saved(tmp_path, "model.safetensors", {"a": np.arange(9)})
    server.behave = lambda handler: handler.answer(200, data=data) or True
    same(ferry.load(server.url()), {"a": np.arange(9)})


@pytest.mark.parametrize("bounds", ["bytes 1-{}/{}", "bytes 0-{}/*", "lines 0-{}/{}", ""])
def test_another_range_than_was_asked_for_is_refused(model, bounds):
    data = model.files["/model.safetensors"]
    said = {"Content-Range": bounds.format((64 << 10) - 1, len(data))}
    model.behave = lambda handler: handler.answer(206, said, data[: 64 << 10]) or True
    with pytest.raises(ferry.FileFormatError, match="range"):
        ferry.load(model.url())


def test_compressed_bytes_are_refused(model):
    data = model.files["/model.safetensors"]
    model.behave = lambda handler: handler.ranged(data, {"Content-Encoding": "gzip"}) or True
    with pytest.raises(ferry.FileFormatError, match="compressed"):
        ferry.load(model.url())
    assert model.asked[0].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("what", ["tag", "size", "date", "match"])
def test_a_file_that_changes_is_never_mixed(model, what):
    """By its tag, its size, its date, or because the server says so."""
    lazy = ferry.load(model.url(), lazy=True)
    data = model.files["/model.safetensors"]
    if what == "tag":
        model.behave = lambda handler: handler.ranged(data, {"ETag": '"two"'}) or True
    elif what == "size":
        model.behave = lambda handler: handler.ranged(data + b"0") or True
    elif what == "match":
        model.tags["/model.safetensors"] = '"two"'
    else:
        model.behave = lambda handler: handler.ranged(data, {"Last-Modified": "x"}) or True
        lazy = ferry.load(model.url(), lazy=True)
        model.behave = lambda handler: handler.ranged(data, {"Last-Modified": "y"}) or True
    with pytest.raises(ferry.FileFormatError, match="has changed"):
        _ = lazy["layer.1"]


def test_a_connection_that_breaks_goes_on_at_the_byte(model):
    """Nothing that has come is asked for again."""
    data = model.files["/model.safetensors"]
    broken = []

    def breaks(handler):
        start, stop = handler.span
        if start == 0 or len(broken) > 2:
            return False
        broken.append(start)
        said = {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}", "ETag": '"one"'}
        half = data[start : start + 50_000]
        handler.answer(206, said, half, length=stop - start)
        handler.close_connection = True
        return True

    model.behave = breaks
    same(ferry.load(model.url()), tree())
    assert broken == [broken[0], broken[0] + 50_000, broken[0] + 100_000]


def test_a_server_that_says_nothing_is_asked_again(model, monkeypatch):
    monkeypatch.setattr(transport, "PATIENCE", Patience(stall=0.3, tries=50, first=0.0, most=0.0))
    stalled = []

    def stalls(handler):
        if handler.span[0] and not stalled:
            # Until the client gives up, and closes the connection.
            stalled.append("asked")
            stalled.append(handler.connection.recv(1))
            handler.close_connection = True
            return True
        return False

    model.behave = stalls
    same(ferry.load(model.url()), tree())
    assert stalled == ["asked", b""]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_what_passes_is_tried_again(model, status):
    answered = []

    def busy(handler):
        if len(answered) < 2:
            answered.append(1)
            handler.answer(status, {"Retry-After": "0"})
            return True
        return False

    model.behave = busy
    same(ferry.load(model.url()), tree())


def test_five_tries_are_made(model):
    model.behave = lambda handler: handler.answer(503) or True
    with pytest.raises(OSError, match="503, 5 times"):
        ferry.load(model.url())
    assert len(model.asked) == 5


def test_a_server_that_asks_to_wait_for_too_long(model):
    model.behave = lambda handler: handler.answer(429, {"Retry-After": "86400"}) or True
    with pytest.raises(OSError, match="wait for 86,400 seconds"):
        ferry.load(model.url())
    assert len(model.asked) == 1


def test_as_long_as_a_server_asks_is_waited(model, monkeypatch):
    waited = []
    monkeypatch.setattr(transport.time, "sleep", waited.append)
    answers = iter([{"Retry-After": "7"}, {}])

    def busy(handler):
        said = next(answers, None)
        if said is None:
            return False
        handler.answer(429, said)
        return True

    model.behave = busy
    ferry.open(model.url())
    assert waited[0] == 7


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, PermissionError),
        (403, PermissionError),
        (404, FileNotFoundError),
        (410, FileNotFoundError),
        (405, OSError),
    ],
)
def test_what_does_not_pass_is_asked_once(model, status, kind):
    model.behave = lambda handler: handler.answer(status) or True
    with pytest.raises(kind):
        ferry.load(model.url())
    assert len(model.asked) == 1


def test_an_empty_file(server):
    server.files["/model.safetensors"] = b""
    with pytest.raises(ferry.FileFormatError, match="empty"):
        ferry.load(server.url())


# -- where requests are sent on to -----------------------------------------------------------------


def to(location, status=302):
    def behave(handler):
        if handler.path.startswith("/from"):
            handler.answer(status, {"Location": location})
            return True
        return False

    return behave


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed_once(model, status):
    """Later requests go to its target."""
    model.behave = to("/model.safetensors?sig=SECRET", status)
    same(ferry.load(model.url("/from.safetensors")), tree())
    assert len([each for each in model.asked if each.path.startswith("/from")]) == 1


def test_no_password_goes_to_another_server(model):
    with serving() as other:
        other.behave = to(model.url())
        ferry.load(other.url("/from.safetensors", user="me:SECRET@"))
        assert (
            other.asked[0].headers["Authorization"]
            == "Basic " + base64.b64encode(b"me:SECRET").decode()
        )
    assert not any("Authorization" in each.headers for each in model.asked)


@pytest.mark.parametrize("location", ["/from.safetensors", "file:///etc/passwd", "ftp://x/y", ""])
def test_redirects_that_lead_nowhere(model, location):
    model.behave = to(location)
    with pytest.raises((ferry.FileFormatError, ferry.UnsafeFileError)):
        ferry.load(model.url("/from.safetensors"))
    assert len(model.asked) <= 6


def test_no_redirect_from_https_to_http():
    from tensorferry.files.remote.addresses import address_of, redirected

    address = address_of("https://example.org/a")
    with pytest.raises(ferry.UnsafeFileError, match="from https to http"):
        redirected(address, address.url, "http://example.org/a?sig=SECRET")


def test_a_target_that_has_expired_is_asked_for_once_more(model):
    """Signed addresses are for some time; a refusal that stays is an error."""
    targets = iter([1, 2])

    def behave(handler):
        if handler.path.startswith("/from"):
            handler.answer(302, {"Location": f"/model.safetensors?sig={next(targets)}"})
            return True
        if handler.path.endswith("sig=1") and handler.span[0]:
            handler.answer(403)
            return True
        return False

    model.behave = behave
    same(ferry.load(model.url("/from.safetensors")), tree())


# -- secrets ---------------------------------------------------------------------------------------


def test_no_connection_is_left_behind(model):
    """Where the server closes it after an answer that is not read to its end: Python would warn of it."""
    said = {"Connection": "close", "Location": "/model.safetensors"}
    for status in (200, 302, 401, 404, 412, 416, 503):
        model.behave = lambda handler, status=status: (
            handler.answer(status, said, bytes(1 << 17)) or True
        )
        with pytest.raises((OSError, ferry.ConversionError)):
            ferry.load(model.url())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        gc.collect()
    assert [each.message for each in caught if each.category is ResourceWarning] == []


@pytest.mark.parametrize("status", [200, 302, 401, 404, 412, 416, 503])
def test_no_message_has_a_secret(model, status):
    """Not those behind an error either, nor what is printed of contents and plans."""
    url = model.url("/model.safetensors?sig=SECRET", user="me:SECRET@")
    contents, plan = ferry.open(url), ferry.explain_load(url)
    assert (
        "SECRET"
        not in f"{contents!r}{contents.paths}{contents.tensors}{plan}{plan!r}{plan.requests}"
    )
    said = {"Location": "ftp://SECRET/"}
    model.behave = lambda handler: handler.answer(status, said, bytes(1 << 17)) or True
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of many types
        ferry.load(url)
    assert "SECRET" not in chain(caught.value)


def test_no_server_at_all_has_no_secret(server):
    url = server.url("/model.safetensors?sig=SECRET", user="me:SECRET@")
    server.server_close()
    with pytest.raises(OSError, match="takes no connections") as caught:
        ferry.load(url)
    assert "SECRET" not in chain(caught.value)


# -- hostile files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<Q", 1 << 62) + b"{}",
        struct.pack("<Q", 99_000_000) + b"{" + b" " * 1000,
        struct.pack("<Q", 70)
        + b'{"a":{"dtype":"F32","shape":[1000000],"data_offsets":[0,4000000]}}    ',
        b"PK\x03\x04" + bytes(500),
        b"GGUF\x03\0\0\0" + struct.pack("<QQ", 1 << 40, 1 << 40),
        b"\x93NUMPY\x01\x00\xff\xff{",
        b"nothing that is known",
        bytes(2000),
    ],
)
def test_headers_that_lie(server, data):
    """An error, after a few requests of at most the whole file."""
    server.files["/model.bin"] = data
    with pytest.raises(ferry.ConversionError):
        ferry.load(server.url("/model.bin"))
    assert len(server.asked) <= 3


@pytest.mark.parametrize("name", ["m.h5", "m.pkl", "m.onnx", "m.parquet"])
def test_other_formats_are_refused_with_the_way_out(server, name):
    server.files[f"/{name}"] = {"m.h5": b"\x89HDF\r\n\x1a\n", "m.pkl": pickle.dumps({}, 2)}.get(
        name, b"x"
    ) + bytes(999)
    with pytest.raises(ferry.FileFormatError, match="urlretrieve"):
        ferry.load(server.url(f"/{name}"))


def test_compressed_members_are_refused(server, tmp_path):
    np.savez_compressed(tmp_path / "m.npz", a=np.arange(9))
    server.files["/m.npz"] = (tmp_path / "m.npz").read_bytes()
    with pytest.raises(ferry.FileFormatError, match="compressed"):
        ferry.load(server.url("/m.npz"))


# -- on the command line ---------------------------------------------------------------------------


def test_the_command_line_reads_urls(model, tmp_path, capsys):
    """To look into a file, to compare one, to convert one; no password is printed."""
    from typer.testing import CliRunner

    from tensorferry.cli.app import app

    (tmp_path / "same.safetensors").write_bytes(model.files["/model.safetensors"])
    url = model.url("/model.safetensors?sig=SECRET", user="me:SECRET@")
    local, out = str(tmp_path / "same.safetensors"), str(tmp_path / "out.npz")
    said = ""
    for words in (
        ["inspect", url],
        ["inspect", "--json", url],
        ["diff", url, local],
        ["convert", url, out],
    ):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        said += done.output
    assert "layer." in said
    assert "SECRET" not in said
    same(ferry.load(out), tree())


# -- what a URL is ---------------------------------------------------------------------------------


def test_a_file_url_is_a_path(tmp_path):
    ferry.save({"a": np.arange(3)}, tmp_path / "a b.npz")
    same(ferry.load((tmp_path / "a b.npz").as_uri()), {"a": np.arange(3)})


def test_a_folder_whose_name_is_a_scheme_is_a_folder(tmp_path, monkeypatch):
    """For a `pathlib.Path`, which is never a URL."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "http:" / "host").mkdir(parents=True)
    ferry.save({"a": np.arange(3)}, "http:/host/a.npz")
    from pathlib import Path

    same(ferry.load(Path("http:/host/a.npz")), {"a": np.arange(3)})


@pytest.mark.parametrize(
    "url", ["http://", "http:///a", "https://[::1/a", "http://h:port/a", "http://h/a\nb"]
)
def test_urls_of_nothing(url):
    with pytest.raises(ferry.FileFormatError):
        ferry.load(url)


@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_forked_process_has_connections_of_its_own(model):
    """It reads on, and the parent's connections stay as they are."""
    contents = ferry.open(model.url())
    assert holds_in_a_fork(
        lambda: np.array_equal(contents.tensors["layer.2"].load(), tree()["layer.2"])
    )
    np.testing.assert_array_equal(contents.tensors["layer.2"].load(), tree()["layer.2"])


def test_a_proxy_is_asked(model, monkeypatch):
    """With the whole URL; hosts of NO_PROXY are not."""
    data = model.files["/model.safetensors"]
    model.behave = lambda handler: handler.ranged(data) or True
    monkeypatch.setenv("http_proxy", model.url("", user="me:word@"))
    same(ferry.load("http://no.such.host/model.safetensors"), tree())
    assert model.asked[0].path == "http://no.such.host/model.safetensors"
    assert model.asked[0].headers["Proxy-Authorization"].startswith("Basic ")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    model.asked.clear()
    ferry.open(model.url())
    assert model.asked[0].path == "/model.safetensors"


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("file://me:word@host/m.npz", "of another machine"),
        ("file:///tmp/m.npz?key=word", "behind . or #"),
        ("file:///tmp/m.npz#word", "behind . or #"),
        ("simplecache::https://me:word@host/m.npz", "chain of file systems"),
    ],
)
def test_what_a_url_has_besides_its_path_is_not_left_out(url, match):
    """It would be another file than the one that was meant. No message has a secret."""
    with pytest.raises(ferry.FileFormatError, match=match) as caught:
        ferry.open(url)
    assert "word" not in chain(caught.value)
