"""`format` in the metadata of safetensors: there for every reader that asks for it, and nobody's difference."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.files.converting import SUFFIXES

import tensorferry as ferry
from tensorferry.files.base.contents import Contents
from tensorferry.files.base.format import Format
from tensorferry.files.base.limits import refuse_contents
from tensorferry.files.base.stored import InMemory
from tensorferry.files.opening.paths import format_named, formats
from tensorferry.files.opening.shard_files import pieces
from tensorferry.files.reports.diff import Change, diff

safetensors = pytest.importorskip(
    "safetensors", reason="compares with the official library, which is not installed"
)
from safetensors.numpy import save_file  # noqa: E402

READ = ("pt", "tf", "flax", "mlx")
"""What transformers 4.46 takes: https://github.com/huggingface/transformers/blob/v4.46.0/src/transformers/modeling_utils.py#L507"""
NAME = "dense.kernel"
"""A name that every format takes, Keras' too."""
X = np.arange(6, dtype=np.float32).reshape(2, 3)
WRITTEN = sorted(name for name, each in formats().items() if each.writes)


def told(path):
    """The metadata, as the official reader sees them."""
    with safetensors.safe_open(path, "np") as file:
        return file.metadata()


def theirs(path, tensors=None, **metadata):
    """A file of the official writer."""
    save_file({"w": X} if tensors is None else tensors, path, metadata or None)
    return path


def other(folder, to, name="other"):
    """A path for a file of a format, which needs a library that may be absent."""
    form = formats()[to]
    if form.module:
        pytest.importorskip(form.module, reason=f"{to} needs {form.module}, which is not installed")
    return folder / f"{name}{form.suffixes[0]}"


OURS = (
    *("tensorferry.tree", "tensorferry.ties", "tensorferry.name", "tensorferry.names"),
    *("tensorferry.dtype", "tensorferry.metadata", "tensorferry.metadata.json", "format"),
)
"""What formats of ours call the strings that they need."""


@pytest.mark.parametrize("key", OURS)
@pytest.mark.parametrize("to", WRITTEN)
def test_metadata_with_a_name_of_ours_are_kept_or_refused(tmp_path, to, key):
    """By every format: never a file that cannot be read, nor a string that is not there."""
    path = other(tmp_path, to)
    tree = X if formats()[to].holds_one else {NAME: X}
    form = formats()[to]
    # PyTorch's files hold trees and ties as they are.
    needed = {*form.reserved, *(() if to == "pytorch" else OURS[:2])}
    if not form.holds_metadata or key in needed:
        with pytest.raises(ferry.FormatLimitError, match="metadata"):
            ferry.save(tree, path, metadata={key: "a text"})
        assert not list(tmp_path.iterdir())
        return
    ferry.save(tree, path, metadata={key: "a text"})
    assert ferry.open(path).metadata[key] == "a text"
    found = ferry.load(path)
    assert np.array_equal(found if form.holds_one else found[NAME], X)


@pytest.mark.parametrize("frame", ["numpy", "torch", "tensorflow", "jax"])
def test_what_is_saved_has_it_whatever_made_the_tensors(tmp_path, frame):
    """Readers take it for names that are meant as usual."""
    pytest.importorskip(frame, reason=f"saves tensors of {frame}, which is not installed")
    ferry.save(
        {"w": ferry.convert(X, frame), "epoch": 3},
        tmp_path / "a.safetensors",
        metadata={"note": "n"},
        verify=True,
    )
    metadata = told(tmp_path / "a.safetensors")
    assert metadata.pop("format") == "pt"
    assert metadata.pop("tensorferry.tree")
    assert metadata == {"note": "n"}


@pytest.mark.parametrize("source", WRITTEN)
def test_what_is_converted_has_it_whatever_the_source_was(tmp_path, source):
    """From every format that can be written here, and back: nothing else comes to be there."""
    path = other(tmp_path, source, "in")
    ferry.save(X if formats()[source].holds_one else {NAME: X}, path)
    report = ferry.convert_files(path, tmp_path / "out.safetensors", verify=True)
    assert told(tmp_path / "out.safetensors")["format"] == "pt"
    assert report.warnings == ()


def test_each_shard_has_it_and_the_index_is_as_theirs(tmp_path):
    """transformers reads the metadata of each shard; the index has what huggingface_hub writes, and no more."""
    torch = pytest.importorskip(
        "torch", reason="writes shards of torch's tensors, which is not installed"
    )
    hub = pytest.importorskip(
        "huggingface_hub", reason="compares with huggingface_hub, which is not installed"
    )
    tensors = {f"layer{number}": torch.full((100,), float(number)) for number in range(6)}
    torch.save(tensors, tmp_path / "in.bin")
    (tmp_path / "theirs").mkdir()
    hub.save_torch_state_dict(tensors, tmp_path / "theirs", max_shard_size=1000)
    ferry.convert_files(
        tmp_path / "in.bin", tmp_path / "converted", to="safetensors", shard=1000, verify=True
    )
    ferry.save(tensors, tmp_path / "saved", to="safetensors", shard=1000, verify=True)
    ferry.convert_files(tmp_path / "converted", tmp_path / "again", to="safetensors", verify=True)
    index = json.loads((tmp_path / "theirs" / "model.safetensors.index.json").read_text())
    for folder in ("converted", "saved", "again"):
        shards = sorted((tmp_path / folder).glob("*.safetensors"))
        assert [told(shard) for shard in shards] == [{"format": "pt"}] * 3
        assert json.loads((tmp_path / folder / "model.safetensors.index.json").read_text()) == index
    assert diff(ferry.open(tmp_path / "converted"), ferry.open(tmp_path / "in.bin")).equal


@pytest.mark.parametrize("value", READ)
@pytest.mark.parametrize("keywords", [{}, {"tensors_only": True}, {"shard": 100}], ids=str)
def test_a_value_that_readers_take_is_kept(tmp_path, value, keywords):
    """It says how the weights are laid out, so it stays with the tensors alone, too; a converted file says the same."""
    source = theirs(tmp_path / "in.safetensors", format=value, note="n")
    target = tmp_path / ("out" if "shard" in keywords else "out.safetensors")
    ferry.convert_files(source, target, to="safetensors", verify=True, **keywords)
    for path in sorted(target.glob("*.safetensors")) or [target]:
        assert told(path) == (
            {"format": value} if "tensors_only" in keywords else {"format": value, "note": "n"}
        )


@pytest.mark.parametrize("to", [name for name in WRITTEN if name != "safetensors"])
@pytest.mark.parametrize("value", [*READ, None])
def test_it_is_no_difference_between_formats(tmp_path, to, value):
    """What every file has is left behind; another value comes back; `diff` takes the files for equal all the way.

    A format without a place for metadata leaves every value behind.
    """
    kept = value if format_named(to).holds_metadata else None
    source = theirs(tmp_path / "in.safetensors", {NAME: X}, **({"format": value} if value else {}))
    path = other(tmp_path, to)
    assert ferry.convert_files(source, path, verify=True).warnings == ()
    ferry.convert_files(path, tmp_path / "back.safetensors", verify=True)
    assert told(tmp_path / "back.safetensors") == {"format": kept or "pt"}
    opened = [ferry.open(each) for each in (source, path, tmp_path / "back.safetensors")]
    assert "format" not in opened[1].metadata or value in READ[1:]
    pairs = [(one, two) for one in opened for two in opened]
    if kept != value:
        pairs = [pair for pair in pairs if opened[1] in pair]
    if not formats()[to].holds_one:
        assert all(diff(one, two).equal for one, two in pairs)


def test_diff_tells_two_values_and_what_the_user_stored(tmp_path):
    """Two files that say different things differ; one that says nothing does not differ from one that says it."""
    one, two, none = (tmp_path / f"{name}.safetensors" for name in ("one", "two", "none"))
    theirs(one, format="pt")
    theirs(two, format="tf")
    theirs(none)
    ferry.save({"w": X}, tmp_path / "user.npz", metadata={"format": "mine"})
    a, b, c, d = map(ferry.open, (one, two, none, tmp_path / "user.npz"))
    assert [each.metadata for each in (a, b, c, d)] == [
        {"format": "pt"},
        {"format": "tf"},
        {},
        {"format": "mine"},
    ]
    assert diff(a, b).metadata == (Change("format", "'pt'", "'tf'"),)
    assert diff(a, c).equal
    assert diff(c, b).equal
    assert diff(a, d).metadata == (Change("format", "'pt'", "'mine'"),)
    assert diff(c, d).metadata == (Change("format", None, "'mine'"),)


def test_metadata_that_are_given_go_first(tmp_path):
    """In `save` and in `convert_files`, into safetensors and others, over the source's own of the same key only."""
    source = theirs(tmp_path / "in.safetensors", format="tf", note="old", kept="k")
    given = {"format": "flax", "note": "new", "more": "=é"}
    for name in ("out.safetensors", "out.npz"):
        report = ferry.convert_files(source, tmp_path / name, metadata=given, verify=True)
        assert ferry.open(tmp_path / name).metadata == {**given, "kept": "k"}
        assert report.warnings == ()
    ferry.convert_files(
        source, tmp_path / "alone.safetensors", metadata={"note": "new"}, tensors_only=True
    )
    assert told(tmp_path / "alone.safetensors") == {"format": "tf", "note": "new"}
    ferry.convert_files(
        source, tmp_path / "shards", to="safetensors", shard=100, metadata={"format": "mlx"}
    )
    assert [told(path)["format"] for path in (tmp_path / "shards").glob("*.safetensors")] == ["mlx"]
    ferry.save({"w": X}, tmp_path / "saved.safetensors", metadata={"format": "odd"}, verify=True)
    assert told(tmp_path / "saved.safetensors") == {"format": "odd"}


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".gguf"])
def test_metadata_that_are_no_unicode_are_told_apart_from_names(tmp_path, suffix):
    """The hint names `metadata`, not the keywords for names of tensors, and without it the file is written."""
    ferry.save({NAME: X}, tmp_path / "a.npz")
    target = tmp_path / f"b{suffix}"
    for write in (
        lambda **keywords: ferry.save({NAME: X}, target, overwrite=True, **keywords),
        lambda **keywords: ferry.convert_files(
            tmp_path / "a.npz", target, overwrite=True, **keywords
        ),
    ):
        with pytest.raises(ferry.FormatLimitError, match="holds metadata in UTF-8") as refused:
            write(metadata={"note": "\ud800"})
        assert refused.value.hint.endswith("metadata=None")
        assert "rename" not in refused.value.hint
        write(metadata={})
        assert ferry.load(target)[NAME].tobytes() == X.tobytes()


def test_other_processes_write_the_same(tmp_path):
    """What is given goes with the job of each shard."""
    source = theirs(tmp_path / "in.safetensors", {f"t{number}": X for number in range(3)})
    options = {"to": "safetensors", "shard": X.nbytes, "metadata": {"note": "n"}}
    ferry.convert_files(source, tmp_path / "out", engine="processes", jobs=2, **options)
    shards = sorted((tmp_path / "out").glob("*.safetensors"))
    assert [told(shard) for shard in shards] == [{"format": "pt", "note": "n"}] * 3


@pytest.mark.parametrize("metadata", [[("a", "b")], {"a": 1}, {1: "a"}, "a=b"])
def test_metadata_that_are_no_strings_are_refused(tmp_path, metadata):
    """Before anything is written, as `save` refuses them."""
    source = theirs(tmp_path / "in.safetensors")
    with pytest.raises(ferry.UnsupportedTypeError, match=r"of strings|have to be strings"):
        ferry.convert_files(source, tmp_path / "out.safetensors", metadata=metadata)
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize("value", ["safetensors", "foo", "np", "", "PT"])
@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_a_value_that_readers_refuse_is_told_and_does_not_stay(tmp_path, value, suffix):
    """The report says what it was; given again, it stays; other formats keep it, as what a user stored."""
    source = theirs(tmp_path / "in.safetensors", format=value)
    if suffix == ".npz":
        source = tmp_path / "in.npz"
        ferry.save({"w": X}, source, metadata={"format": value})
    report = ferry.convert_files(source, tmp_path / "out.safetensors", verify=True)
    assert told(tmp_path / "out.safetensors") == {"format": "pt"}
    (warning,) = report.warnings
    assert repr(value) in warning
    assert "'pt'" in warning
    kept = ferry.convert_files(
        source, tmp_path / "kept.safetensors", metadata={"format": value}, verify=True
    )
    assert told(tmp_path / "kept.safetensors") == {"format": value}
    assert kept.warnings == ()
    report = ferry.convert_files(source, tmp_path / "out.pt", verify=True)
    assert ferry.open(tmp_path / "out.pt").metadata == {"format": value}
    assert report.warnings == ()
    report = ferry.convert_files(source, tmp_path / "bare.safetensors", tensors_only=True)
    assert told(tmp_path / "bare.safetensors") == {"format": "pt"}
    assert "format" in str(report.warnings)


@pytest.mark.parametrize("to", ["safetensors", "npz"])
def test_sources_that_differ_in_it_go_together(tmp_path, to):
    """The first is taken, and the report says so; what a user stored goes first; equal ones are not told."""
    one = theirs(tmp_path / "one.safetensors", {"a": X}, format="tf")
    two = theirs(tmp_path / "two.safetensors", {"b": X}, format="pt")
    bare = theirs(tmp_path / "bare.safetensors", {"c": X})
    ferry.save({"d": X}, tmp_path / "user.npz", metadata={"format": "mine"})
    ferry.save({"e": X}, tmp_path / "plain.npz")

    def together(*sources, **keywords):
        target = tmp_path / f"out{SUFFIXES[to]}"
        report = ferry.convert_files(sources, target, overwrite=True, verify=True, **keywords)
        return ferry.open(target).metadata.get("format"), report.warnings

    value, warnings = together(one, two, bare)
    assert value == "tf"
    assert "'tf', 'pt'" in warnings[0]
    assert "'tf' is taken" in warnings[0]
    assert together(one, two, metadata={"format": "flax"}) == ("flax", ())
    assert together(bare, one) == ("tf", ())
    assert together(tmp_path / "plain.npz", one) == ("tf", ())
    value, warnings = together(two, tmp_path / "user.npz")
    assert value == ("pt" if to == "safetensors" else "mine")
    assert bool(warnings) is (to == "safetensors")


def test_a_format_without_metadata_does_not_refuse_it():
    """It belongs to a file of safetensors, so there is nothing to refuse; what a user stored is refused as before."""

    class Bare(Format):
        name = "bare"
        dtypes = frozenset({"float32"})

        def recognises(self, path, head):
            return False

        def read(self, path, *, allow=frozenset()):
            raise NotImplementedError

    for value in READ:
        held = Contents(
            "safetensors",
            (),
            {"w": InMemory(X, "float32", 0)},
            {"format": value},
            own={"format": "pt"},
        )
        (piece,) = pieces(held, None, Bare())
        refuse_contents(Bare(), piece)
    held = Contents("npz", (), {"w": InMemory(X, "float32", 0)}, {"format": "pt"})
    (piece,) = pieces(held, None, Bare())
    with pytest.raises(ferry.FormatLimitError, match="no place for metadata: format"):
        refuse_contents(Bare(), piece)


def test_tensors_that_are_named_so_are_told_from_it(tmp_path):
    """A tied tensor named format, and a tensor named as its value: neither takes the other's place."""
    for number, tensors in enumerate(
        ({"w": X, "format": X}, {"pt": X, "format": X}, {"pt": X, "other": X + 1})
    ):
        path = tmp_path / f"{number}.safetensors"
        ferry.save(tensors, path, verify=True)
        assert told(path)["format"] == "pt"
        found = ferry.load(path)
        assert list(found) == list(tensors)
        assert all(np.array_equal(found[name], tensors[name]) for name in tensors)
        ferry.save(tensors, tmp_path / f"{number}", to="safetensors", shard="1MB", verify=True)
        assert list(ferry.load(tmp_path / f"{number}")) == list(tensors)


def test_safetensors_module_declares_it():
    """The first is that of a new file, and the four are all."""
    assert format_named("safetensors").own_metadata == {"format": READ}


@pytest.fixture
def tied():
    """A small model of transformers with tied weights."""
    pytest.importorskip("torch", reason="a model of torch is loaded, which is not installed")
    transformers = pytest.importorskip(
        "transformers", reason="its models are loaded, which is not installed"
    )
    shape = {"n_embd": 8, "n_layer": 2, "n_head": 2, "vocab_size": 11, "n_positions": 16}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape)).eval()


@pytest.mark.parametrize("how", ["save", "convert", "shards"])
def test_transformers_loads_the_folder(tmp_path, tied, how):
    """Nothing is missing, nothing unexpected, and every bit is that of the model."""
    import torch
    import transformers

    folder = tmp_path / "model"
    state = tied.state_dict()
    torch.save(state, tmp_path / "pytorch_model.bin")
    if how == "shards":
        ferry.convert_files(tmp_path / "pytorch_model.bin", folder, to="safetensors", shard="2KB")
        assert len(list(folder.glob("*.safetensors"))) > 2
    else:
        folder.mkdir()
    if how == "save":
        ferry.save(state, folder / "model.safetensors")
    if how == "convert":
        ferry.convert_files(tmp_path / "pytorch_model.bin", folder / "model.safetensors")
    tied.config.save_pretrained(folder)
    assert all(told(path)["format"] in READ for path in folder.glob("*.safetensors"))
    loaded, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True
    )
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    found = loaded.state_dict()
    assert list(found) == list(state)
    assert all(torch.equal(found[name], state[name]) for name in state)
