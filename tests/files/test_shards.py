"""Folders of shards: Hugging Face's convention both ways, and what happens when index and shards disagree."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from tests.files.support import arrays, contents, same_bits, sample

from tensorferry.errors import FileFormatError, FormatLimitError, UnsafeFileError
from tensorferry.files.base.contents import Contents, Ref
from tensorferry.files.base.limits import refuse_contents
from tensorferry.files.base.pump import Pump
from tensorferry.files.opening.paths import check_folder, format_of, formats, index_of, open_path
from tensorferry.files.opening.shard_files import index_name, index_text, pieces, shard_names

SHARDED = sorted(name for name, each in formats().items() if each.index_suffix)
SAFETENSORS = formats()["safetensors"]


def written(folder, held, nbytes, form=SAFETENSORS):
    """A folder of shards of at most so many bytes; the names of the shards."""
    folder.mkdir()
    parts = pieces(held, nbytes)
    names = shard_names(form, len(parts))
    for name, piece in zip(names, parts, strict=True):
        refuse_contents(form, piece)
        form.write(piece, folder / name, Pump())
    (folder / index_name(form)).write_text(index_text(held, dict(zip(names, parts, strict=True))))
    return names


def changed(folder, change):
    """Change the index of a folder."""
    index = index_of(folder)
    whole = json.loads(index.read_text())
    change(whole)
    index.write_text(json.dumps(whole))
    return index


def six():
    """Six tensors of 400 bytes."""
    return {f"t{n}": np.full(100, n, np.int32) for n in range(6)}


@pytest.mark.parametrize("name", SHARDED)
def test_every_dtype_survives_in_shards(tmp_path, name):
    """All tensors come back from several shards, in order, with every bit, whichever format the shards have."""
    form = formats()[name]
    held = {
        key: array for key, array in sample(form.dtypes).items() if key != "float4_e2m1fn.scalar"
    }
    names = written(tmp_path / "m", contents(held), 100_000, form)
    assert len(names) > 3
    for path in (tmp_path / "m", tmp_path / "m" / index_name(form)):
        found = open_path(path)
        assert found.format == name
        assert same_bits(arrays(found), held)
        assert [Path(each).name for each in found.paths] == [*names, index_name(form)]
    assert list(check_folder(tmp_path / "m" / index_name(form))) == []


def test_shards_hold_at_most_so_many_bytes():
    """A shard ends before it would be larger; a tensor that is larger by itself has a shard of its own."""
    held = contents(
        {"a": np.zeros(10, np.uint8), "b": np.zeros(90, np.uint8), "c": np.zeros(1, np.uint8)}
    )
    assert [list(piece.tensors) for piece in pieces(held, 100)] == [["a", "b"], ["c"]]
    assert [list(piece.tensors) for piece in pieces(held, 50)] == [["a"], ["b"], ["c"]]
    assert [list(piece.tensors) for piece in pieces(held, 1000)] == [["a", "b", "c"]]
    assert [list(piece.tensors) for piece in pieces(Contents("memory", ()), 10)] == [[]]


@pytest.mark.parametrize("name", SHARDED)
def test_ties_stay_together_and_keep_their_places(tmp_path, name):
    """All names of a tensor are in one shard, which holds it once, and all come back in the order of the whole."""
    form = formats()[name]
    shared = np.arange(100, dtype=np.float32)
    held = contents({"a": shared, **six(), "z": shared, "y": np.ones(3)})
    names = written(tmp_path / "m", held, 500, form)
    found = open_path(tmp_path / "m")
    assert same_bits(arrays(found), arrays(held))
    assert found.ties == {"z": "a"}
    assert list(form.read(tmp_path / "m" / names[0]).tensors) == ["a", "z"]
    assert sum(each.stat().st_size for each in (tmp_path / "m").iterdir()) < 20_000
    assert list(check_folder(index_of(tmp_path / "m"))) == []


def test_a_tree_and_metadata_of_the_whole_survive(tmp_path):
    """What is not a tensor comes back from the index; each shard has the metadata too, as readers expect."""
    tree = {
        "model": OrderedDict((name, Ref(f"model.{name}")) for name in six()),
        "epoch": 3,
        "total": {1: None},
    }
    held = contents(
        {f"model.{name}": array for name, array in six().items()},
        metadata={"format": "pt", "total_size": "not a number", "é": '"'},
        tree=tree,
    )
    names = written(tmp_path / "m", held, 1000)
    found = open_path(tmp_path / "m")
    assert (found.tree, found.metadata) == (tree, held.metadata)
    assert type(found.tree["model"]) is OrderedDict
    assert SAFETENSORS.read(tmp_path / "m" / names[1]).metadata["format"] == "pt"
    index = json.loads((tmp_path / "m" / index_name(SAFETENSORS)).read_text())
    assert index["metadata"]["total_size"] == 2400


def test_a_tree_that_no_index_can_hold_is_refused_before_anything_is_written():
    """A value that JSON cannot hold is refused when the shards are planned."""
    with pytest.raises(FormatLimitError, match="epoch"):
        pieces(
            contents(six(), tree={**{name: Ref(name) for name in six()}, "epoch": object()}), 500
        )


def test_the_official_splitter_and_loader_agree(tmp_path):
    """What huggingface_hub splits is read here; what is split here has its names, its index, and bytes torch reads."""
    hub = pytest.importorskip(
        "huggingface_hub", reason="compares with huggingface_hub, which is not installed"
    )
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    tensors = {name: torch.from_numpy(array) for name, array in six().items()}
    (tmp_path / "theirs").mkdir()
    hub.save_torch_state_dict(tensors, tmp_path / "theirs", max_shard_size=1000)
    found = open_path(tmp_path / "theirs")
    assert same_bits(dict(sorted(arrays(found).items())), six())
    assert len(found.paths) == 4
    assert list(check_folder(index_of(tmp_path / "theirs"))) == []
    written(tmp_path / "ours", contents(six(), metadata={"format": "pt"}), 1000)
    theirs = json.loads(index_of(tmp_path / "theirs").read_text())
    ours = json.loads(index_of(tmp_path / "ours").read_text())
    assert index_of(tmp_path / "ours").name == index_of(tmp_path / "theirs").name
    assert {each.name for each in (tmp_path / "ours").iterdir()} == {
        each.name for each in (tmp_path / "theirs").iterdir()
    }
    assert (ours["weight_map"], ours["metadata"]["total_size"]) == (
        theirs["weight_map"],
        theirs["metadata"]["total_size"],
    )
    read = {
        name: load_file(tmp_path / "ours" / file)[name] for name, file in ours["weight_map"].items()
    }
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())


def test_a_cache_of_links_is_read(tmp_path):
    """A folder whose index and shards are links into one other folder, as in the cache of a hub, is read."""
    names = written(tmp_path / "blobs", contents(six()), 1000)
    (tmp_path / "snapshot").mkdir()
    for name in (*names, index_name(SAFETENSORS)):
        (tmp_path / "snapshot" / name).symlink_to(tmp_path / "blobs" / name)
    assert same_bits(arrays(open_path(tmp_path / "snapshot")), six())


def test_a_folder_with_one_file_of_the_usual_name(tmp_path):
    """A folder without an index is its one file of the usual name; without that, an error that says what is due."""
    SAFETENSORS.write(contents(six()), tmp_path / "model.safetensors", Pump())
    assert same_bits(arrays(open_path(tmp_path)), six())
    (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    with pytest.raises(
        FileFormatError, match=r"folder without an index.*\*\.safetensors\.index\.json"
    ):
        open_path(tmp_path)


def test_an_index_of_another_name_is_found(tmp_path):
    """An index of any stem is found; of two, the one with the usual name; else it is an error."""
    written(tmp_path / "m", contents(six()), 1000)
    usual = tmp_path / "m" / index_name(SAFETENSORS)
    other = tmp_path / "m" / "model.fp16.safetensors.index.json"
    other.write_text(usual.read_text())
    assert index_of(tmp_path / "m") == usual
    usual.unlink()
    assert index_of(tmp_path / "m") == other
    assert same_bits(arrays(open_path(tmp_path / "m")), six())
    (tmp_path / "m" / "b.safetensors.index.json").write_text(other.read_text())
    with pytest.raises(FileFormatError, match="several indexes"):
        open_path(tmp_path / "m")


def test_a_file_is_opened_as_itself(tmp_path):
    """A single file of any format is opened by its bytes; what is not there, or of no format, is an error."""
    with (tmp_path / "a.bin.txt").open("wb") as file:
        np.save(file, np.ones(3))
    assert open_path(tmp_path / "a.bin.txt").format == "npy"
    with pytest.raises(FileNotFoundError):
        open_path(tmp_path / "absent.safetensors")
    (tmp_path / "a.unknown").write_bytes(b"who knows what this is")
    with pytest.raises(FileFormatError, match="no format"):
        open_path(tmp_path / "a.unknown")


def test_a_missing_shard_is_named(tmp_path):
    """A shard that is not there is an error with its name; check names its tensors, and looks at the others."""
    names = written(tmp_path / "m", contents(six()), 1000)
    (tmp_path / "m" / names[1]).unlink()
    with pytest.raises(FileFormatError, match=f"missing: {names[1]}"):
        open_path(tmp_path / "m")
    (finding,) = check_folder(index_of(tmp_path / "m"))
    assert names[1] in finding.message
    assert "t2, t3" in finding.message


def test_tensors_that_only_one_side_has_are_named(tmp_path):
    """Tensors that only the index or only a shard has, or that are elsewhere, are errors; check finds all of them."""
    names = written(tmp_path / "m", contents(six()), 1000)

    def change(index):
        del index["weight_map"]["t0"]
        index["weight_map"]["t9"] = names[0]
        index["weight_map"]["t5"] = names[0]

    changed(tmp_path / "m", change)
    with pytest.raises(FileFormatError, match="contradict each other"):
        open_path(tmp_path / "m")
    findings = list(check_folder(index_of(tmp_path / "m")))
    assert {finding.tensor for finding in findings} == {"t0", "t9", "t5"}
    assert all(finding.error for finding in findings)


def test_a_damaged_shard_is_found_by_its_own_rules(tmp_path):
    """Check looks at each shard by the rules of its format, and names file, tensor and byte."""
    names = written(tmp_path / "m", contents(six()), 1000)
    shard = tmp_path / "m" / names[2]
    shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.raises(FileFormatError, match="past the end"):
        open_path(tmp_path / "m")
    (finding,) = check_folder(index_of(tmp_path / "m"))
    assert (finding.path, finding.tensor) == (str(shard), "t5")
    assert finding.offset == shard.stat().st_size - 390


@pytest.mark.parametrize(
    "name",
    [
        "../evil.safetensors",
        "/etc/passwd",
        "..",
        ".",
        "",
        "a/b.safetensors",
        "a\\b.safetensors",
        "\0",
        "C:\\x",
    ],
)
def test_a_shard_outside_of_the_folder_is_refused(tmp_path, name):
    """An index that leads out of its folder is refused, whether there is such a file or not."""
    SAFETENSORS.write(contents({"t0": np.ones(2)}), tmp_path / "evil.safetensors", Pump())
    written(tmp_path / "m", contents(six()), 1000)
    index = changed(tmp_path / "m", lambda whole: whole["weight_map"].update(t0=name))
    for function in (open_path, lambda path: list(check_folder(path))):
        with pytest.raises(UnsafeFileError, match="leads out"):
            function(index)


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    """A shard that is a link to another folder is refused."""
    names = written(tmp_path / "m", contents(six()), 1000)
    (tmp_path / "m" / names[0]).rename(tmp_path / names[0])
    (tmp_path / "m" / names[0]).symlink_to(tmp_path / names[0])
    with pytest.raises(UnsafeFileError, match="a link that leads out"):
        open_path(tmp_path / "m")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "{",
        '{"weight_map": []}',
        '{"weight_map": {"a": 3}}',
        '{"weight_map": {"a": "x", "a": "y"}}',
        '{"weight_map": {"a": "x"}, "weight_map": {"a": "y"}}',
        '{"metadata": {"a": 1, "a": 2}, "weight_map": {}}',
        '{"metadata": [], "weight_map": {}}',
        '{"weight_map": {}} more',
        '{"weight_map": {"\\ud800": "x"}}',
        '{"weight_map": ' + '{"a":' * 10_000 + "}" * 10_000 + "}",
        '{"metadata": {"a": ' + "[" * 100_000 + "]" * 100_000 + '}, "weight_map": {}}',
        '{"metadata": {"a": ' + "[" + "0," * 100_000 + "0]" + '}, "weight_map": {}}',
        '{"weight_map": {"a": "' + "x" * 100_000,
    ],
    ids=lambda text: text[:40],
)
def test_an_index_that_is_none_is_an_error(tmp_path, text):
    """Whatever stands in an index, it is an error that says so, or the shards that it names are missing."""
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(text)
    with pytest.raises(FileFormatError, match="is not the index"):
        open_path(path)
    (finding,) = check_folder(path)
    assert "is not the index" in finding.message


def test_an_index_out_of_all_proportion_is_not_read(tmp_path):
    """An index of gigabytes is refused by its size."""
    path = tmp_path / "model.safetensors.index.json"
    with path.open("wb") as file:
        file.truncate(1 << 33)
    with pytest.raises(FileFormatError, match="no index needs"):
        open_path(path)


def test_metadata_of_any_kind_in_an_index_is_kept(tmp_path):
    """Numbers and nested values in an index's metadata are kept as text; what is counted anew is not."""
    written(tmp_path / "m", contents(six()), 1000)

    def change(index):
        index["metadata"] |= {
            "total_parameters": 600,
            "by": "hand",
            "list": [1, {"é": None}],
            "n": 1.5,
        }
        index["other"] = True

    changed(tmp_path / "m", change)
    assert open_path(tmp_path / "m").metadata == {
        "by": "hand",
        "list": json.dumps([1, {"é": None}]),
        "n": "1.5",
        "other": "true",
    }


def test_metadata_that_differs_between_shards_is_kept_with_the_shards_name(tmp_path):
    """Where two shards say different things under one name, neither is lost."""
    names = written(tmp_path / "m", contents(six()), 1000)
    held = SAFETENSORS.read(tmp_path / "m" / names[0])
    for name, text in zip(names[:2], "xy", strict=True):
        held = SAFETENSORS.read(tmp_path / "m" / name)
        held.metadata["who"] = text
        SAFETENSORS.write(held, tmp_path / "new", Pump())
        (tmp_path / "new").rename(tmp_path / "m" / name)
    assert open_path(tmp_path / "m").metadata == {"who": "x", f"who ({names[1]})": "y"}


def test_what_is_no_file_is_not_opened(tmp_path):
    """A pipe is refused by name: to open it would be to wait for who writes into it."""
    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(FileFormatError, match=r"pipe\.safetensors is neither a file nor a folder"):
        open_path(tmp_path / "pipe.safetensors")


def test_a_file_that_appears_while_it_is_looked_for_is_not_there(tmp_path, monkeypatch):
    """It was not looked at, so nothing is said of its format."""
    monkeypatch.setattr("tensorferry.files.opening.paths.recognised", lambda path, *_: path.touch())
    with pytest.raises(FileNotFoundError):
        format_of(tmp_path / "a")
