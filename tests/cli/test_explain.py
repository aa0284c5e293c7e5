"""``tensorferry explain``: a plan for a tensor that need not exist, and wrong words are refused."""

from __future__ import annotations

import ast
import json
import re
import textwrap

import pytest

import tensorferry as ferry

for needed in ("typer", "rich"):
    pytest.importorskip(needed, reason=f"the command line needs {needed}, which is not installed")

CUDA = [
    "--from",
    "torch",
    "--to",
    "numpy",
    "--dtype",
    "bfloat16",
    "--device",
    "cuda:0",
    "--requires-grad",
]


def test_a_cuda_tensor_on_any_machine(cli):
    done = cli("explain", *CUDA, "--shape", "3,4", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    plan = json.loads(done.stdout)
    assert plan["source"]["device"] == "cuda:0"
    assert plan["source"]["requires_grad"] is True
    assert plan["source"]["shape"] == [3, 4]
    assert plan["result"]["framework"] == "numpy"
    assert plan["result"]["dtype"] == "bfloat16"
    assert plan["shares_memory"] is False
    assert [step["path"] for step in plan["steps"]].count("bus") == 1


def test_the_text_says_the_same_to_a_person(forked_cli):
    done = forked_cli("explain", *CUDA)
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("cuda:0", "bfloat16", "detach", "cpu", "24", "by hand"):
        assert word in done.stdout
    assert "\x1b" not in done.stdout


def test_code_is_never_broken_where_it_goes_to_a_file(forked_cli):
    """What stands by hand is the plan's code, line for line; with COLUMNS it is broken where Python allows it."""
    words = [
        "--from",
        "numpy",
        "--to",
        "tensorflow",
        "--dtype",
        "float64",
        "--shape",
        "4,4",
        "--strides",
        "8,32",
    ]
    words += ["--to-dtype", "bfloat16"]
    code = json.loads(forked_cli("explain", *words, "--json").stdout)["code"]
    assert max(map(len, code.splitlines())) > 40
    done = forked_cli("explain", *words)
    assert textwrap.dedent(done.stdout.partition("by hand")[2].lstrip("\n")).strip() == code
    narrow = (
        forked_cli("explain", *words, env={"COLUMNS": "40"})
        .stdout.partition("by hand")[2]
        .lstrip("\n")
    )
    assert ast.dump(ast.parse(textwrap.dedent(narrow))) == ast.dump(ast.parse(code))


def test_on_a_terminal_no_line_is_wider_and_no_token_broken(cli):
    """At 80 columns: each step has lines of its own, and what stands by hand is the plan's code."""
    words = ["tensorflow" if word == "numpy" else word for word in CUDA]
    told = json.loads(cli("explain", *words, "--json").stdout)
    env = {"FORCE_COLOR": "1", "COLUMNS": "80", "TERM": "xterm-256color"}
    shown = re.sub(r"\x1b\[[0-9;]*m", "", cli("explain", *words, env=env).stdout)
    lines = [line.rstrip() for line in shown.splitlines()]
    assert max(map(len, lines)) <= 80
    for number, step in enumerate(told["steps"], 1):
        assert f"{number}  {step['code']}" in lines
    code = textwrap.dedent("\n".join(lines[lines.index("by hand") + 1 :]))
    assert max(map(len, told["code"].splitlines())) > 80
    assert ast.dump(ast.parse(code)) == ast.dump(ast.parse(told["code"]))


def test_sizes_have_the_units_that_python_has(forked_cli):
    words = ["explain", "--from", "numpy", "--to", "torch", "--shape", "1024,1536", "--copy"]
    text = forked_cli(*words).stdout
    assert (
        ferry.explain(
            ferry.TensorInfo("numpy", (1024, 1536), "float32"), "torch", copy=True
        ).bytes_copied
        == 6 << 20
    )
    assert "[6 MiB through host memory]" in text
    assert ["copied", "6", "MiB"] in [line.split() for line in text.splitlines()]


@pytest.mark.parametrize(
    ("option", "value", "near"),
    [("--from", "numpi", "numpy"), ("--casting", "saefe", "safe"), ("--grad", "eror", "error")],
)
def test_a_word_that_is_nearly_right(forked_cli, option, value, near):
    given = {"--from": "numpy", "--to": "torch", option: value}
    done = forked_cli("explain", *(word for pair in given.items() for word in pair))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"'{near}'" in done.stderr


def test_no_color_wins_over_a_terminal(cli):
    done = cli("explain", *CUDA, env={"NO_COLOR": "1", "FORCE_COLOR": "1"})
    assert done.returncode == 0
    assert "\x1b[3" not in done.stdout


def test_colours_where_they_are_asked_for(cli):
    done = cli("explain", *CUDA, env={"FORCE_COLOR": "1", "TERM": "xterm-256color"})
    assert "\x1b[" in done.stdout


@pytest.mark.parametrize(
    ("options", "claims"),
    [
        ([], {"shares_memory": True}),
        (["--copy"], {"shares_memory": False}),
        (["--read-only"], {"shares_memory": False}),
        (["--read-only", "--no-copy"], {"shares_memory": True}),
        (["--to-dtype", "float64"], {"shares_memory": False, "keeps_dtype": False}),
        (["--shape", "4,3", "--strides", "4,16"], {"shares_memory": True}),
        (["--shape", "4,3", "--strides", "-12,4"], {"shares_memory": False}),
        (["--shape", ""], {"shares_memory": True}),
        (["--swapped"], {"shares_memory": False}),
        (["--to-device", "cuda:1"], {"shares_memory": False}),
        (["--misalignment", "2"], {"shares_memory": False}),
        (["--option", "pinned"], {"shares_memory": False}),
        (["--option", "pinned", "--pinned"], {"shares_memory": True}),
        (["--option", "pinned", "--option", "non_blocking"], {"shares_memory": False}),
    ],
)
def test_options_reach_the_plan(forked_cli, options, claims):
    done = forked_cli("explain", "--from", "numpy", "--to", "torch", *options, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    plan = json.loads(done.stdout)
    assert {name: plan[name] for name in claims} == claims


def test_the_options_of_a_target_and_the_kind_of_memory(forked_cli):
    """What is asked for in Python by keyword, and what decides how a large transfer goes, can be asked here too."""
    large = [
        "explain",
        "--from",
        "numpy",
        "--to",
        "torch",
        "--shape",
        "4096,4096",
        "--to-device",
        "cuda:0",
        "--json",
    ]
    steps = {}
    for marks in ((), ("--option", "non_blocking"), ("--memory-map",)):
        done = forked_cli(*large, *marks)
        assert (done.returncode, done.stderr) == (0, "")
        steps[marks] = tuple(step["why"] for step in json.loads(done.stdout)["steps"])
    assert len(set(steps.values())) == 3
    variable = forked_cli(
        "explain", "--from", "numpy", "--to", "tensorflow", "--option", "variable"
    )
    assert "tf.Variable" in variable.stdout


def test_a_list_and_a_typed_buffer_are_two_things(forked_cli):
    numbers = json.loads(forked_cli("explain", "--from", "list", "--to", "torch", "--json").stdout)
    assert numbers["shares_memory"] is False
    assert numbers["result"]["dtype"] == "float32"
    buffer = forked_cli("explain", "--from", "list", "--to", "torch", "--dtype", "int16", "--json")
    assert json.loads(buffer.stdout)["shares_memory"] is True


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--strides", "-16,4", "--no-copy"], "CopyRequiredError"),
        (["--to-dtype", "int8", "--casting", "safe"], "LossyCastError"),
    ],
)
def test_what_is_impossible_is_exit_code_1_with_the_reason(forked_cli, options, error):
    command = ["explain", "--from", "numpy", "--to", "torch", *options]
    done = forked_cli(*command)
    assert (done.returncode, done.stdout) == (1, "")
    assert error in done.stderr
    assert "Traceback" not in done.stderr
    told = json.loads(forked_cli(*command, "--json").stdout)
    assert told["error"]["type"] == error
    assert told["error"]["message"]


def test_a_framework_that_has_no_place_on_the_host(forked_cli):
    """Its tensor is on a GPU unless it is said to be elsewhere; a place that cannot be is refused with the reason."""
    done = forked_cli("explain", "--from", "cupy", "--to", "torch", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["source"]["device"] == "cuda"
    for options in (["--from", "cupy", "--device", "cpu"], ["--from", "numpy", "--device", "cuda"]):
        refused = forked_cli("explain", *options, "--to", "torch")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "DeviceError" in refused.stderr
        assert "does not support" in refused.stderr
        assert "Hint:" in refused.stderr


def test_code_of_several_lines_is_code(forked_cli):
    """A step that takes a statement names the value, here and in the code."""
    for target, line in (
        ("tensorflow", 'with tf.device("/device:GPU:1"): y = tf.identity(y)'),
        ("cupy", "with cupy.cuda.Device(1): y = cupy.asarray(y)"),
    ):
        done = forked_cli("explain", "--from", "numpy", "--to", target, "--to-device", "cuda:1")
        assert done.returncode == 0
        assert line in done.stdout
        assert "{" not in done.stdout


def test_a_gradient_that_may_not_be_lost(forked_cli):
    done = forked_cli("explain", *CUDA, "--grad", "error")
    assert done.returncode == 1
    assert "GradientError" in done.stderr
    assert "Hint:" in done.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--from", "caffe"),
        ("--to", "caffe"),
        ("--shape", "3,x"),
        ("--shape", "3,-1"),
        ("--shape", "3,,4"),
        ("--dtype", "float33"),
        ("--device", "the moon"),
        ("--strides", "4"),
        ("--strides", "a,b"),
        ("--misalignment", "64"),
        ("--casting", "brave"),
        ("--grad", "keep"),
        ("--to-dtype", "float33"),
        ("--to-device", "the moon"),
        ("--option", "variable"),
        ("--option", "tied"),
    ],
)
def test_words_that_mean_nothing_are_wrong_usage(forked_cli, option, value):
    done = forked_cli("explain", "--from", "numpy", "--to", "torch", option, value)
    assert (done.returncode, done.stdout) == (2, "")
    assert option in done.stderr
    assert "Traceback" not in done.stderr


def test_H103_a_dtype_with_two_meanings_is_refused_with_both(forked_cli):
    """As in Python; with the name of a framework it has one."""
    done = forked_cli("explain", "--from", "numpy", "--to", "torch", "--to-dtype", "float")
    assert done.returncode == 2
    assert "--to-dtype float32 or --to-dtype float64" in " ".join(
        done.stderr.replace("│", "").split()
    )
    done = forked_cli(
        "explain",
        "--from",
        "numpy",
        "--dtype",
        "torch.float",
        "--to",
        "torch",
        "--to-dtype",
        "torch.int",
    )
    assert done.returncode == 0
    assert "numpy float32" in done.stdout
    assert "torch int32" in done.stdout


def test_html(forked_cli, tmp_path):
    page = tmp_path / "plan.html"
    done = forked_cli("explain", *CUDA, "--html", str(page))
    assert done.returncode == 0
    assert str(page) in done.stderr.replace("\n", "")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "detach" in text


def test_html_that_cannot_be_written(forked_cli, tmp_path):
    done = forked_cli("explain", *CUDA, "--html", str(tmp_path / "absent" / "plan.html"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such file" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_framework_is_needed(cli, absent):
    done = cli("explain", *CUDA, "--json", shadows=absent("torch", "tensorflow", "jax"))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_framework_is_what_people_call_it(forked_cli):
    """As in Python: the plan is of the framework that is meant; lists are Python's."""
    for names in (("pt", "np"), ("list", "tf")):
        done = forked_cli("explain", "--from", names[0], "--to", names[1], "--json")
        usual = {"pt": "torch", "np": "numpy", "tf": "tensorflow", "list": "python"}
        same = forked_cli("explain", "--from", usual[names[0]], "--to", usual[names[1]], "--json")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == same.stdout
