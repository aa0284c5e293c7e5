"""What people type: contradictory options, completion in a real Bash, and URLs in the place of paths."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.cli.usage import CONTRADICTIONS

SOURCE = Path(__file__).resolve().parents[2] / "src"
NEEDED = {
    "convert": ["a.npz", "b.npz"],
    "explain": ["--from", "numpy", "--to", "torch"],
}
VALUES = {"--pad": ["0"], "--ragged": ["rows"]}
SINGLE = [
    ("explain", "--to", "torch"),
    ("explain", "--dtype", "float32"),
    ("convert", "--to", "npz"),
    ("convert", "--shard", "5GB"),
    ("convert", "--overflow", "nan"),
]


@pytest.mark.parametrize(
    ("command", "one", "other"),
    [(command, one, other) for command, pairs in CONTRADICTIONS.items() for one, other, _ in pairs],
)
def test_contradictory_options_are_refused(forked_cli, command, one, other):
    """Each pair, in both orders, with both names in the error; each alone is taken."""
    for first, second in ((one, other), (other, one)):
        words = [first, *VALUES.get(first, []), second, *VALUES.get(second, [])]
        done = forked_cli(command, *NEEDED[command], *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert first in done.stderr
        assert second in done.stderr
        assert "contradict" in done.stderr


@pytest.mark.parametrize(("command", "option", "value"), SINGLE)
def test_an_option_with_one_value_is_given_once(forked_cli, command, option, value):
    """The last does not win in silence."""
    done = forked_cli(command, *NEEDED[command], option, value, option, value)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{option} is there twice" in done.stderr


def test_the_short_option_for_the_version(forked_cli):
    done = forked_cli("-V")
    assert (done.returncode, done.stdout) == (0, f"tensorferry {ferry.__version__}\n")


def test_a_folder_of_shards_takes_the_format_of_its_source(forked_cli, tmp_path):
    """PyTorch reads what was a file of PyTorch, in shards."""
    import torch

    torch.save({f"w{n}": torch.full((8,), float(n)) for n in range(4)}, tmp_path / "a.pt")
    done = forked_cli("convert", str(tmp_path / "a.pt"), str(tmp_path / "shards"), "--shard", "64")
    assert done.returncode == 0, done.stderr
    held = {}
    for path in sorted((tmp_path / "shards").glob("*.pt")):
        held |= torch.load(path, weights_only=True)
    assert {name: float(value[0]) for name, value in held.items()} == {
        f"w{n}": float(n) for n in range(4)
    }


_BASH = r"""
source "$1"
shift
words=("$@")
COMP_WORDS=("${words[@]}")
COMP_CWORD=$((${#words[@]} - 1))
COMPREPLY=()
function_name=$(complete -p tensorferry | sed 's/.*-F \([^ ]*\) .*/\1/')
"$function_name" tensorferry
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def bash(tmp_path_factory):
    """What a real Bash offers for the last of some words, by the script that the command prints for it."""
    folder = tmp_path_factory.mktemp("bash")
    program = folder / "tensorferry"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tensorferry "$@"\n')
    program.chmod(0o755)
    environment = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        "PATH": f"{folder}:{os.environ['PATH']}",
    }
    script = folder / "completion.sh"
    asked = {**environment, "_TENSORFERRY_COMPLETE": "source_bash"}
    script.write_bytes(subprocess.run([program], env=asked, capture_output=True, check=True).stdout)

    def offered(*words):
        done = subprocess.run(
            ["bash", "-c", _BASH, "bash", script, "tensorferry", *words],
            env=environment, capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        return done.stdout.split()

    return offered


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["explain", "--to", "to"], {"torch"}),
        (["explain", "--from", "pa"], {"pandas"}),
        (["explain", "--dtype", "bf"], {"bfloat16"}),
        (["explain", "--to-dtype", "fi"], {"fit"}),
        (["explain", "--casting", "same"], {"same_value", "same_kind"}),
        (["explain", "--grad", "d"], {"detach"}),
        (["convert", "a", "b", "--to", "safe"], {"safetensors"}),
        (["convert", "a", "b", "--dtype", "=", "bf"], {"bfloat16"}),
        (["convert", "a", "b", "--dtype", "float", "=", "bf"], {"bfloat16"}),
        (["convert", "a", "b", "--engine", "p"], {"processes"}),
    ],
)  # fmt: skip
def test_bash_completes_values(bash, words, expected):
    assert set(bash(*words)) == expected


URLS = {
    "https://host/x/m.safetensors": "curl -fL -o m.safetensors https://host/x/m.safetensors",
    "hf://org/model/m.safetensors": "hf download org/model m.safetensors",
    "s3://bucket/deep/m.npz": "aws s3 cp s3://bucket/deep/m.npz m.npz",
    "gs://bucket/m.npz": "gcloud storage cp gs://bucket/m.npz m.npz",
}


@pytest.mark.parametrize("url", URLS)
def test_a_url_is_named_with_the_command_that_downloads_it(forked_cli, url):
    """By a command that reads a file so often that it is better here; the others read from servers."""
    done = forked_cli("roundtrip", url)
    assert done.returncode == 2
    assert f"{url} is a URL" in done.stdout + done.stderr
    assert f"Hint: {URLS[url]}\n" in done.stderr


@pytest.mark.parametrize("url", [url for url in URLS if url.startswith(("https", "hf"))])
def test_a_url_as_a_target_is_refused_before_anything_is_written(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", x=np.ones(1))
    for call in (
        lambda: ferry.save({"x": np.ones(1)}, url),
        lambda: ferry.convert_files("a.npz", url),
    ):
        with pytest.raises(ferry.FileFormatError, match="is a URL"):
            call()
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


@pytest.mark.parametrize(
    "call", [ferry.load, ferry.open, lambda path: ferry.convert_files(path, "out.npz")]
)
def test_the_hints_for_buffers_and_urls_work_pasted(tmp_path, monkeypatch, call):
    """NumPy wrote the file; what the hint makes of it is loaded."""
    monkeypatch.chdir(tmp_path)
    buffer = io.BytesIO()
    np.savez(buffer, x=np.arange(3).astype(ml_dtypes.bfloat16).astype(np.float32))
    with pytest.raises(ferry.UnsupportedTypeError) as refused:
        call(buffer)
    names = {"buffer": buffer}
    exec(refused.value.hint, names)  # noqa: S102 - the hint of this package
    assert ferry.load(names["path"])["x"].tolist() == [0, 1, 2]
    with pytest.raises(ferry.UnsupportedTypeError) as refused:
        call(buffer.getvalue())
    names = {"data": buffer.getvalue()}
    exec(refused.value.hint, names)  # noqa: S102 - the hint of this package
    assert call(names["path"]) is not None


def test_the_hint_for_a_url_downloads_it(tmp_path, monkeypatch):
    """From a server of this machine, with Python's own tools."""
    import threading
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    # This server has no ranges; a file of one window would be taken whole.
    np.savez(tmp_path / "there" / "m.npz", x=np.arange(30_000))
    monkeypatch.chdir(tmp_path / "here")
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "there"))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(ferry.FileFormatError) as refused:
            ferry.load(f"http://127.0.0.1:{server.server_port}/m.npz")
        names = {}
        exec(refused.value.hint, names)  # noqa: S102 - the hint of this package
        server.shutdown()
    assert ferry.load(names["path"])["x"].tolist() == [*range(30_000)]


def test_what_a_url_has_of_secrets_is_in_no_message():
    with pytest.raises(ferry.FileFormatError) as refused:
        ferry.load("nothing://user:geheim@host/m.npz?token=geheim")
    assert "geheim" not in str(refused.value)
