"""The page where memory can be seen: its answers are the planner's, its code runs, and what it says of writes is so."""

from __future__ import annotations

import inspect
import json
import random
import re
import string
import subprocess
import sys
import zipfile
from html import escape, unescape
from urllib.parse import parse_qsl

import numpy as np
import pytest
from examples.tour.cases import CASES as TOUR
from tests.support import ROOT, survives

import tensorferry as ferry
from tensorferry.backends.declared import explain

sys.path.insert(0, str(ROOT / "docs" / "_ext"))

import picture_words
from playground import answers, bundle, cases, sentences, settings
from playground.words import WORDS

BETWEEN = ("before", "after")
FOLDER = ROOT / "docs" / "_ext" / "playground"


def read(query):
    return settings.read(parse_qsl(query, keep_blank_values=True))


def some_setting(rng):
    """A setting with most controls as usual."""
    values = {
        name: rng.choice(choices)
        for name, choices in settings.CHOICES.items()
        if rng.random() < 0.25
    }
    shape = rng.choice(["3,4", "3,4", "7", "2,3,5", "", "0,3", "1000,1000", "3;4", "-1"])
    return settings.Setting(
        {**settings.DEFAULTS, "from": rng.choice([*settings.NAMES]), **values, "shape": shape}
    )


# -- the planner's answers -------------------------------------------------------------------------

ALIKE = f"""
import json, random, sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "docs" / "_ext")!r}]
import tensorferry as ferry
from html import escape
from playground import answers, settings
from playground.words import WORDS
from tests.documents.test_playground import some_setting

rng, plans, refusals, absent = random.Random(18), 0, 0, 0
for number in range(500):
    setting = some_setting(rng)
    shown = answers.answer(setting, WORDS)
    try:
        info = settings.tensor(setting)
    except settings.ImpossibleError as found:
        absent += 1
        told = [WORDS["absent"], WORDS[found.word].format(**found.facts)]
    except ferry.ConversionError as error:
        absent += 1
        told = [WORDS["absent"], error.message, error.hint]
    else:
        try:
            plan = ferry.explain(info, setting["to"], **settings.keywords(setting))
        except (ferry.ConversionError, TypeError, ValueError) as error:
            refusals += 1
            told = [WORDS["refused"], type(error).__name__, getattr(error, "message", str(error))]
            told += [getattr(error, "hint", None) or ""]
        else:
            plans += 1
            told = [plan.reason, plan.code, *plan.warnings]
            told += [word for step in plan.steps for word in (step.code, step.why)]
    for text in told:
        assert escape(text) in shown.html, (setting.query, text, shown.html)
    assert settings.read(dict(item.partition("=")[::2] for item in shown.query.split("&"))).items() >= {{
        name: value for name, value in setting.items() if name != "shape"
    }}.items()
assert not {{"torch", "tensorflow", "jax"}} & set(sys.modules)
print(json.dumps([plans, refusals, absent]))
"""


def test_random_settings_are_answered_as_explain_answers():
    """Reason, steps, code and warnings of the same plan, or the same error with its hint."""
    plans, refusals, absent = json.loads(survives(ALIKE).splitlines()[-1])
    assert plans > 100
    assert refusals > 30
    assert absent > 100


def test_the_planner_needs_its_archive_and_the_standard_library(tmp_path):
    """As in a browser: a Python that has nothing else gives the same answers."""
    archive = tmp_path / "sources.zip"
    bundle.bundle(archive)
    assert zipfile.ZipFile(archive).testzip() is None
    queries = [*cases.CASES.values(), "from=numpy&to=torch&shape=3;4", "from=torch&layout=reversed"]
    code = (
        "import json, sys\n"
        "for name in ('numpy', 'ml_dtypes', 'typing_extensions'):\n"
        "    sys.modules[name] = None  # an import of it raises\n"
        f"sys.path.insert(0, {str(archive)!r})\n"
        "from playground.answers import answer_json\n"
        f"print(json.dumps([answer_json(query, {json.dumps(WORDS)!r}) for query in {queries!r}]))\n"
    )
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert json.loads(done.stdout) == [
        answers.answer_json(query, json.dumps(WORDS)) for query in queries
    ]


# -- settings --------------------------------------------------------------------------------------


def is_there(setting):
    try:
        settings.tensor(setting)
    except (settings.ImpossibleError, ferry.ConversionError):
        return False
    return True


def test_what_is_disabled_says_why_and_is_refused():
    """Each possible choice gives a tensor; each that is not, the reason when the address asks for it."""
    rng = random.Random(3)  # noqa: S311 - settings, no secrets
    seen = set()
    for _ in range(30):
        setting = some_setting(rng)
        impossible = answers.answer(setting, WORDS).impossible
        for control in ("dtype", "layout", "device", "requires"):
            for choice in settings.CHOICES[control]:
                other = settings.Setting({**setting, control: choice})
                why = impossible.get(control, {}).get(choice)
                assert is_there(other) == (why is None)
                assert why is None or why == answers.refused(other, WORDS).message
                seen.add(control if why else "")
        for option in settings.OPTIONS:
            asked = settings.Setting({**settings.DEFAULTS, "to": setting["to"], option: "1"})
            found, why = answers.refused(asked, WORDS), impossible.get(option, {}).get("1")
            assert (found is not None and found.kind == "TypeError") == (why is not None)
            assert why is None or why == found.message
    assert seen == {"", "dtype", "layout", "device", "requires"}


def test_another_framework_leaves_no_setting_that_cannot_be():
    """What is impossible beside the control that a reader has changed is put right, and said; the change is kept."""
    rng = random.Random(4)  # noqa: S311
    changed = 0
    for _ in range(60):
        before = some_setting(rng)
        for name in ("from", "dtype", "layout", "device", "requires"):
            shown = answers.answer(before, WORDS, name)
            assert shown.values[name] == before[name]
            differs = [key for key in before if shown.values[key] != before[key]]
            assert bool(differs) == bool(shown.note)
            assert all(WORDS[key] in shown.note for key in differs)
            changed += bool(differs)
    assert changed > 30
    lost = answers.answer(read("from=jax&variable=1&to=tensorflow"), WORDS, "to")
    assert lost.values["variable"] == "1"
    assert not lost.note
    lost = answers.answer(read("from=jax&variable=1&to=torch"), WORDS, "to")
    assert lost.values["variable"] == ""
    assert "variable=" in lost.note


def test_what_had_to_be_put_aside_comes_back():
    """A look at another framework does not change what the reader had chosen; what is chosen there, does."""
    before = read("from=numpy&dtype=bfloat16&layout=transposed")
    listed = answers.answer(read(f"{before.query}&from=python"), WORDS, "from")
    assert (listed.values["dtype"], listed.values["layout"]) == ("float64", "plain")
    assert listed.wished == {"dtype": "bfloat16", "layout": "transposed"}
    shown = answers.answer(
        settings.read({**listed.values, "from": "torch"}), WORDS, "from", listed.wished
    )
    assert (shown.values["dtype"], shown.values["layout"], shown.wished) == (
        "bfloat16",
        "transposed",
        {},
    )
    chosen = answers.answer(
        settings.read({**listed.values, "dtype": "int64"}), WORDS, "dtype", listed.wished
    )
    assert chosen.wished == {"layout": "transposed"}
    shown = answers.answer(
        settings.read({**chosen.values, "from": "torch"}), WORDS, "from", chosen.wished
    )
    assert (shown.values["dtype"], shown.values["layout"]) == ("int64", "transposed")
    lost = answers.answer(read("from=numpy&to=jax&pinned=1"), WORDS, "to")
    assert (lost.values["pinned"], lost.wished) == ("", {"pinned": "1"})
    kept = answers.answer(settings.read({**lost.values, "shape": "5"}), WORDS, "shape", lost.wished)
    assert (kept.values["pinned"], kept.wished) == ("", {"pinned": "1"})
    told = json.loads(
        answers.answer_json("from=numpy&to=torch", json.dumps(WORDS), "to", json.dumps(kept.wished))
    )
    assert (told["values"]["pinned"], told["wished"]) == ("1", {})


def test_an_address_that_makes_no_sense_is_as_usual():
    """What no control has is left out; a wrong shape gives a message."""
    assert read("from=julia&copy=maybe&colour=red") == settings.DEFAULTS
    assert read("shape=(3,+4,)")["shape"] == "3,4"
    shown = answers.answer(read("shape=<b>"), WORDS)
    assert "<b>" not in re.sub(r"<b>[A-Z]", "", shown.html)
    assert escape("'<b>' is no shape") in shown.html
    assert (
        escape("'3 4' is no shape") in answers.answer(read("shape=3+4"), WORDS).html
    )  # and not 34


# -- the 27 cases ----------------------------------------------------------------------------------


def test_the_cases_are_those_of_the_tour():
    """Each has a setting, and each its own, but that some are looked at in two ways."""
    assert sorted(cases.CASES) == sorted(TOUR)
    assert cases.FIRST in cases.CASES
    for query in cases.CASES.values():
        shown = answers.answer(read(query), WORDS)
        assert set(shown.query.split("&")) == set(query.split("&"))
        assert "pg-picture" in shown.html


@pytest.mark.parametrize("name", [name for name in cases.CASES if name != "C27"])
def test_a_case_makes_the_call_that_the_tour_makes(name):
    """The same function with the same keywords; C27 is a table of all pairs."""
    play = TOUR[name].play
    told = inspect.getsource(play)
    told += "".join(
        inspect.getsource(play.__globals__[each])
        for each in set(re.findall(r"\b_from_gpu\b", told))
    )
    setting = read(cases.CASES[name])
    function = re.match(r"y = ferry\.(\w+)\(", answers.call(setting))[1]
    assert f"ferry.{function}(" in told or f'ferry.explain(info, "{setting["to"]}"' in told
    for keyword, value in settings.keywords(setting).items():
        said = f'{keyword}="{value}"' if isinstance(value, str) else f"{keyword}={value}"
        assert said in told
    if setting["requires"]:
        assert re.search(r"scores|model\(|requires_grad=True", told)
    if setting["device"] != "cpu":
        assert re.search(r"gpu|cuda|\.cpu\(\)", told)


# -- what the code does ----------------------------------------------------------------------------

HERE = [name for name in settings.NAMES if name != "cupy"]
KINDS = (
    "",
    "dtype=bfloat16",
    "dtype=int8&shape=5",
    "layout=transposed",
    "layout=second",
    "layout=broadcast",
)
MORE = (
    "layout=reversed",
    "layout=off&shape=2,3,5",
    "requires=1",
    "layout=transposed&requires=1",
    "shape=0,3",
)


def possible(kinds):
    """Those of the settings of each framework that is here of which there is such a tensor."""
    queries = [f"from={source}&{kind}" for source in HERE for kind in kinds]
    listed = [
        query if "dtype" in query else query.replace("from=python", "from=python&dtype=float64")
        for query in queries
    ]
    return [query for query in listed if answers.refused(read(query), WORDS) is None]


def made(setting):
    """The tensor that the page's code makes."""
    names = {}
    exec(settings.given(setting), names)  # noqa: S102 - the page's own code, which is what is looked at
    return names


@pytest.mark.parametrize("query", possible([*KINDS, *MORE, "shape="]))
def test_the_code_makes_the_tensor_and_the_call_does_what_is_shown(query):
    """What is described is what is made; memory is shared where the page says so, and who may write is who may."""
    setting = read(query)
    names = made(setting)
    found, described = ferry.describe(names["x"]), settings.tensor(setting)
    # The allocator decides at which address within a line memory starts, but for frameworks that
    # align it.
    any_place = {"misalignment": 0, **({} if found.size else {"strides": ()})}
    assert found._replace(**any_place) == described._replace(**any_place)
    for target in HERE:
        asked = settings.Setting({**setting, "to": target})
        plan = explain(described, target)
        exec(answers.call(asked), {"ferry": ferry}, names)  # noqa: S102
        if target == "python":
            assert names["y"] == np.asarray(ferry.to_numpy(names["x"])).tolist()
            continue
        result = ferry.describe(names["y"])
        assert (result.dtype, result.shape, result.writable) == (
            plan.result.dtype,
            plan.result.shape,
            plan.result.writable,
        )
        if (
            found.misalignment == described.misalignment
            and setting["from"] != "python"
            and found.size
        ):
            assert ferry.shares_memory(names["x"], names["y"]) == plan.shares_memory, asked.query


def write(x):
    """Write to the first element; whether that was allowed."""
    import torch

    first = (0,) * len(ferry.describe(x).shape)
    try:
        if isinstance(x, torch.Tensor):
            with torch.no_grad():
                x[first] = 1
        elif isinstance(x, list):
            at = x
            for _ in first[:-1]:
                at = at[0]
            at[0] = 1
        else:
            x[first] = 1
    except (TypeError, ValueError):
        return False
    return True


WRITTEN = (
    "",
    "copy=True",
    "layout=transposed",
    "layout=broadcast",
    "layout=reversed",
    "requires=1",
)


@pytest.mark.parametrize("query", possible(WRITTEN))
def test_what_is_said_of_a_write_is_what_a_write_does(query):
    """To either side, in fresh tensors: it is allowed if the page says so, and seen on the other side likewise."""
    setting = read(query)
    for target in HERE:
        asked = settings.Setting({**setting, "to": target})
        said = answers.said_of_writes(
            explain(settings.tensor(asked), target, **settings.keywords(asked)), WORDS
        )
        for side, other, told in (("x", "y", said["source"]), ("y", "x", said["result"])):
            names = made(asked)
            exec(answers.call(asked), {"ferry": ferry}, names)  # noqa: S102
            allowed = write(names[side])
            seen = bool(np.any(ferry.to_numpy(names[other]) == 1))
            shows = any(WORDS[key] in told for key in (f"{side}-shows", "x-shows-through"))
            stays = WORDS[f"{side}-stays"] in told
            assert allowed == (shows or stays), (asked.query, side, told)
            assert seen == shows, (asked.query, side, told)
            assert ("use the same bytes: " in told) is False
            many = re.search(r"One write changes (\d+) elements", told)
            if side == "x" and allowed:
                assert int(many[1] if many else 1) == np.count_nonzero(
                    ferry.to_numpy(names["x"]) == 1
                ), told


# -- words -----------------------------------------------------------------------------------------


def test_every_word_is_used_and_every_gap_is_filled():
    """A word that nothing says is not left for translators."""
    code = "".join(
        path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py") if path.name != "words.py"
    )
    code += (ROOT / "docs" / "_static" / "playground" / "playground.js").read_text(encoding="utf-8")
    controls = {*settings.CHOICES, *settings.LAYOUTS, *cases.CASES}
    derived = {f"{name}-none" for name in settings.CHOICES} | {"shape-help"}
    derived |= {
        f"{side}-{end}" for side in "xy" for end in ("closed", "immutable", "shows", "stays")
    }
    derived |= {
        "shared",
        "same",
        "copied",
        *(f"copied-{path}" for path in ("host", "bus", "device")),
    }
    unused = [
        key
        for key in WORDS
        if key not in controls | derived and not re.search(rf"[\"'.]{key}\b", code)
    ]
    assert unused == []
    gaps = {
        gap for text in WORDS.values() for _, gap, _, _ in string.Formatter().parse(text) if gap
    }
    assert gaps == {
        "framework",
        "dtype",
        "shape",
        "size",
        "count",
        "reason",
        "number",
        "what",
        "why",
        *BETWEEN,
    }


def sayings(query):
    """What the planner says of a setting that has a plan, and why some of its controls' choices are not there."""
    setting = read(query)
    shown = answers.answer(setting, WORDS)
    told = {why for choices in shown.impossible.values() for why in choices.values()}
    if answers.refused(setting, WORDS) is None:
        plan = explain(settings.tensor(setting), setting["to"], **settings.keywords(setting))
        told |= {plan.reason, *plan.warnings, *(step.why for step in plan.steps)}
    return {text for text in told if not any(re.fullmatch(pattern, text) for pattern in OWN_WORDS)}


OWN_WORDS = [re.sub(r"\\\{\w+\\\}", ".+", re.escape(text)) for text in WORDS.values()]


@pytest.mark.parametrize("name", cases.CASES)
def test_what_the_planner_says_of_a_case_can_be_translated(name):
    """Every sentence is an instance of one that the catalogs have, and that instance is the sentence again."""
    told = sayings(cases.CASES[name])
    assert [text for text in told if sentences.found(text) is None] == []
    assert all(
        sentences.said(text, {each: each for each in sentences.SENTENCES}) == text for text in told
    )


def test_no_sentence_is_taken_for_another():
    """Each is found as itself, whatever stands in its gaps."""
    for sentence in sentences.SENTENCES:
        gaps = re.findall(r"\{(\w+)\}", sentence)
        values = {"strides": "(8, 4)", "shape": "(2, 3)", "why": "there are no elements"}
        text = sentence.format(**{gap: values.get(gap, gap) for gap in gaps})
        assert sentences.found(text) == (sentence, {gap: values.get(gap, gap) for gap in gaps})


def test_an_answer_in_another_language_keeps_the_sentences_that_can_be_searched():
    """Pictures and the planner's sentences are translated; the planner's own stand in the titles."""
    table = {**{text: f"<{text}>" for text in (*picture_words.WORDS, *sentences.SENTENCES)}}
    shown = answers.answer(
        read(cases.CASES["C03"]), {**WORDS, **picture_words.of_playground(table)}
    )
    reason, inner = (
        "read-only: a write would bypass autograd's version check",
        "<a write would bypass",
    )
    assert f"title='{escape(reason)}'>{escape('<read-only: ' + inner)}" in shown.html
    assert escape("<may write>") in shown.html
    assert ">may write<" not in shown.html
    assert inner in shown.said
    assert answers.answer(read(cases.CASES["C03"]), WORDS).html.count(" title=") == 0


def test_the_text_of_an_answer_is_escaped():
    """No message of the planner's is markup."""
    shown = answers.answer(read("from=numpy&to=torch&layout=reversed&copy=False"), WORDS)
    plain = unescape(re.sub(r"<[^>]*>", "", shown.html))
    assert "negative stride on axis 0" in plain
    assert "&lt;" not in plain


CONF = """
import sys
sys.path.insert(0, {ext!r})
extensions = ["myst_parser", "playground"]
playground_pyodide = "absent"
locale_dirs = ["locale"]
gettext_compact = False
"""

PO = """
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

msgid "Write to the source, x"
msgstr "Schreibe <x>"

msgid "Framework"
msgstr "Rahmen"
"""


def test_without_npm_the_page_is_built_and_says_that_it_has_no_planner(tmp_path):
    """And in another language: its words come from the catalog of its page, and English where that has none."""
    pytest.importorskip("myst_parser", reason="Sphinx is not installed: make docs installs it")
    source, built = tmp_path / "docs", tmp_path / "site"
    catalog = source / "locale" / "de" / "LC_MESSAGES" / "index.po"
    catalog.parent.mkdir(parents=True)
    catalog.write_text(PO, encoding="utf-8")
    (source / "conf.py").write_text(CONF.format(ext=str(ROOT / "docs" / "_ext")), encoding="utf-8")
    (source / "index.md").write_text("# A page\n\n```{playground}\n```\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "-q",
        "-b",
        "html",
        "-D",
        "language=de",
        str(source),
        str(built),
    ]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": str(tmp_path)}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    page = (built / "index.html").read_text(encoding="utf-8")
    kept = json.loads(re.search(r"id='playground-kept'>(.*?)</script>", page, re.DOTALL)[1])

    assert kept["size"] == ""
    assert not list(built.rglob("pyodide*"))
    assert kept["words"] == {
        **kept["words"],
        **WORDS,
        "write-x": "Schreibe <x>",
        "from": "Rahmen",
        "to": "Rahmen",
    }
    assert f">{escape('Schreibe <x>')}</button>" in page
    assert "<legend>Rahmen</legend>" in page
    script = (built / "_static" / "playground" / "cases.js").read_text(encoding="utf-8")
    found = json.loads(script.partition(" = ")[2].rstrip(";\n"))
    assert sorted(found) == sorted(cases.CASES)
    assert all(escape("Schreibe <x>") in case["html"] for case in found.values())
