"""The page where memory can be seen, in Chromium: every control, the 27 links, writes, and the planner in the page."""

from __future__ import annotations

import json
import random
import re
import sys
from html import unescape
from urllib.parse import urlencode

import pytest
from tests.support import ROOT, survives

sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from playground import cases, settings
from playground.words import WORDS

LOADS = 120_000
"""Milliseconds in which the planner is loaded, also where many tests run at once."""
SETTINGS = 200


@pytest.fixture
def playground(page, address):
    """The page, over HTTP."""
    page.set_default_timeout(LOADS)
    page.goto(f"{address}/en/playground/index.html")
    return page


@pytest.fixture(scope="module")
def live(browser, address):
    """The page with its planner loaded, and no network any more."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    made = context.new_page()
    errors = []
    made.on("pageerror", lambda error: errors.append(str(error)))
    made.on(
        "console",
        lambda said: (
            errors.append((said.text, said.location["url"])) if said.type == "error" else None
        ),
    )
    # The browser may ask for it whenever the address changes.
    icon = "<svg xmlns='http://www.w3.org/2000/svg'/>"
    made.route("**/favicon.*", lambda route: route.fulfill(content_type="image/svg+xml", body=icon))
    made.set_default_timeout(LOADS)
    made.goto(f"{address}/en/playground/index.html")
    if not made.evaluate("JSON.parse(document.getElementById('playground-kept').textContent).size"):
        pytest.skip("the site was built without Pyodide, which comes from npm")
    choose(made, "copy", "True")
    context.set_offline(True)
    yield made
    context.close()
    assert errors == []


def settled(page):
    """Wait until the planner has answered."""
    page.wait_for_function("!document.querySelector('.playground').hasAttribute('aria-busy')")


def choose(page, control, value):
    """Use a control as a reader would, and wait for the answer."""
    found = page.locator(f".pg-controls [name='{control}']")
    kind = found.first.evaluate("each => each.type")
    if kind == "radio":
        page.locator(f".pg-controls label:has([name='{control}'][value='{value}'])").click()
    elif kind == "checkbox":
        found.set_checked(bool(value))
    elif kind == "text":
        found.fill(value)
        found.press("Enter")
    else:
        found.select_option(value)
    settled(page)


def values(page):
    """What the controls show."""
    shown = page.evaluate(
        "Object.fromEntries(new FormData(document.querySelector('.pg-controls')))"
    )
    return {**dict.fromkeys(settings.CHOICES, ""), **shown}


def go(page, query):
    """Follow a link to a setting."""
    page.evaluate("query => { location.hash = query; }", query)
    settled(page)


def open_case(page, name):
    """Follow the link to a case; what is read aloud says when it is shown."""
    page.evaluate(
        "name => { document.querySelector('.pg-said').textContent = ''; location.hash = name; }",
        name,
    )
    page.wait_for_function("document.querySelector('.pg-said').textContent")
    assert text(page, ".pg-case b") == [name]


def text(page, selector):
    """The text of what is there, as it stands in the page."""
    return page.locator(selector).evaluate_all("all => all.map(each => each.textContent)")


# -- without the planner ---------------------------------------------------------------------------


def test_an_address_of_no_case_says_so(playground):
    """What is shown stays."""
    playground.evaluate("location.hash = '#C99'")
    playground.wait_for_function("document.querySelector('.pg-status').textContent.includes('C99')")
    assert playground.locator(".pg-status").text_content() == WORDS["no-case"].format(what="C99")
    assert playground.locator(".pg-case").is_visible()


def test_a_look_at_a_list_leaves_the_dtype_as_it_was(live):
    """Its numbers are float64; those of the tensor before and after are not."""
    choose(live, "from", "numpy")
    choose(live, "dtype", "bfloat16")
    choose(live, "from", "python")
    assert live.locator("#pg-dtype").input_value() == "float64"
    choose(live, "from", "numpy")
    assert live.locator("#pg-dtype").input_value() == "bfloat16"


def test_the_first_picture_needs_no_planner(playground):
    """It is in the page's HTML, which is small, and nothing that is large is fetched before it is asked for."""
    playground.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
    paint = playground.evaluate(
        "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    )
    fetched = playground.evaluate("performance.getEntriesByType('resource').map(each => each.name)")
    print(f"the first picture after {paint:.0f} ms")  # noqa: T201 - shown by -s; how long it takes is the machine's

    assert len(playground.content()) < 150_000
    assert playground.locator(".pg-figure.wide:visible svg").count() == 1
    assert [
        name for name in fetched if re.search(r"pyodide|cases\.js|\.wasm|sources\.zip", name)
    ] == []
    assert text(playground, ".pg-verdict")[0].startswith(WORDS["shared"])


def test_the_picture_is_in_the_page_without_scripts(browser, address):
    """What is rendered when the site is built can be read where JavaScript is off."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/en/playground/index.html")
    assert page.locator(".pg-figure:visible svg").count() == 1
    assert f"<noscript><p>{WORDS['no-script']}</p></noscript>" in page.request.get(page.url).text()
    context.close()


def test_each_case_is_a_link(playground):
    """Its setting is in the controls, its title above, its answer below; the planner is not loaded for it."""
    for name, query in cases.CASES.items():
        playground.locator(".pg-cases summary").click()
        playground.locator(f".pg-cases a[href='#{name}']").click()
        playground.wait_for_function(
            "name => document.querySelector('.pg-case b').textContent === name", arg=name
        )
        setting = settings.read(dict(item.partition("=")[::2] for item in query.split("&")))

        assert playground.url.endswith(f"#{name}")
        assert values(playground) == setting
        assert playground.locator(".pg-figure:visible svg").count() == 1
        assert playground.locator(f"#{name}").count() == 1
        assert not playground.locator(".pg-cases ul").is_visible()
    playground.go_back()
    playground.wait_for_function("document.querySelector('.pg-case b').textContent === 'C26'")
    assert values(playground) == settings.read(
        {"from": "torch", "to": "numpy", "shape": "8,10", "requires": "1"}
    )
    assert (
        playground.evaluate(
            "performance.getEntriesByType('resource').filter(e => /wasm/.test(e.name)).length"
        )
        == 0
    )


def test_a_link_from_elsewhere_shows_its_case(page, address):
    """With the page's top in sight."""
    page.goto(f"{address}/en/playground/index.html#C15")
    page.wait_for_function("document.querySelector('.pg-case b').textContent === 'C15'")
    assert text(page, ".pg-reason span") == ["negative stride on axis 0"]
    assert page.locator(".pg-verdict").evaluate("each => each.getBoundingClientRect().top") < 600


@pytest.mark.parametrize(
    ("name", "side", "drawn"),
    [
        ("C13", "source", 1),
        ("C13", "result", 1),
        ("C14", "source", 1),
        ("C11", "source", 0),
        ("C11", "result", 0),
    ],
)
def test_a_write_is_drawn_and_said(playground, name, side, drawn):
    """The element that is written is marked, or it is said why nobody may write; again, and the mark is gone."""
    open_case(playground, name)
    button = playground.locator(f"[data-write={side}]")
    button.click()

    assert button.get_attribute("aria-pressed") == "true"
    assert playground.locator(".pg-figure:visible").get_attribute("data-written") == side
    assert playground.locator(".pg-figure:visible .written").count() == drawn
    said = text(playground, ".pg-write [role=status]")[0]
    assert said == button.get_attribute("data-said")
    assert said != WORDS["write-start"]
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert playground.locator(".pg-figure:visible .written").count() == 0
    assert text(playground, ".pg-write [role=status]") == [WORDS["write-start"]]


def test_the_steps_are_walked(playground):
    """Forward to the last and back before the first; each shows the code up to itself."""
    open_case(playground, "C21")
    back, forward = playground.locator("[data-walk='-1']"), playground.locator("[data-walk='1']")
    count = playground.locator(".pg-steps li").count()
    seen = []
    assert count == 3
    assert back.is_disabled()
    for number in range(1, count + 1):
        forward.click()
        assert text(playground, ".pg-walk [role=status]") == [
            WORDS["step-of"].format(number=number, count=count)
        ]
        assert playground.locator(".pg-steps li[aria-current]").count() == 1
        seen += text(playground, ".pg-steps pre:not([hidden])")
    assert forward.is_disabled()
    assert seen[0] == "y = torch.from_numpy(x)"
    assert text(playground, ".pg-paste:last-child pre")[0].endswith(seen[-1])
    for _ in range(count):
        back.click()
    assert back.is_disabled()
    assert text(playground, ".pg-walk [role=status]") == [WORDS["before"]]
    assert playground.locator(".pg-steps pre:visible").count() == 0


def test_code_is_copied(playground):
    """The button puts the block into the clipboard, and says so for a while."""
    playground.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = playground.locator("[data-paste]").nth(1)
    button.click()
    named = "word => document.querySelectorAll('[data-paste]')[1].textContent === word"
    playground.wait_for_function(named, arg=WORDS["pasted"])
    assert (
        playground.evaluate("navigator.clipboard.readText()")
        == "import tensorferry as ferry\ny = ferry.to_torch(x)"
    )
    playground.wait_for_function(named, arg=WORDS["paste"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_it_fits_and_can_be_read(playground, width, scheme):
    """At a phone's width nothing is cut off and one picture is drawn, of shorter rows; text is of a size to be read."""
    playground.set_viewport_size({"width": width, "height": 800})
    playground.emulate_media(color_scheme=scheme)
    for name in ("C13", "C08", "C21", "C11"):
        open_case(playground, name)
        assert playground.evaluate("document.documentElement.scrollWidth") == width
        figure = playground.locator(".pg-figure:visible")
        assert figure.count() == 1
        assert ("narrow" in figure.get_attribute("class")) == (width == 360)
        scale = "svg => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width"
        assert figure.locator("svg").evaluate(scale) > 0.85
    assert playground.locator(".pg-bar").is_visible() == (width == 360)
    tops = [
        playground.locator(part).bounding_box()["y"] for part in (".pg-picture", ".pg-controls")
    ]
    assert (tops[0] < tops[1]) == (width == 360)


def test_a_page_that_is_a_file_says_why_it_has_no_planner(browser, site):
    """The cases work; a change is answered with what to do."""
    context = browser.new_context()
    page = context.new_page()
    page.goto((site / "en" / "playground" / "index.html").as_uri() + "#C15")
    page.wait_for_function("document.querySelector('.pg-case b').textContent === 'C15'")
    page.locator(".pg-controls label:has([name=copy][value=True])").click()
    size = page.evaluate("JSON.parse(document.getElementById('playground-kept').textContent).size")
    assert text(page, ".pg-status") == [WORDS["from-file" if size else "left-out"]]
    context.close()


@pytest.mark.parametrize("lost", ["pyodide.asm.wasm", "sources.zip", "worker.js"])
def test_what_cannot_be_loaded_is_said_and_tried_again(browser, address, lost):
    """Without one of its files the page goes on with the cases; the next change asks for the planner anew."""
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(LOADS)
    page.goto(f"{address}/en/playground/index.html")
    if not page.evaluate("JSON.parse(document.getElementById('playground-kept').textContent).size"):
        pytest.skip("the site was built without Pyodide, which comes from npm")
    context.route(f"**/{lost}", lambda route: route.abort())
    choose(page, "copy", "True")
    assert text(page, ".pg-status")[0].startswith(WORDS["failed"].partition("{")[0])
    open_case(page, "C15")
    context.unroute(f"**/{lost}")
    choose(page, "copy", "True")
    assert text(page, ".pg-status")[0].startswith(WORDS["ready"])
    assert values(page)["layout"] == "reversed"
    context.close()


# -- with the planner ------------------------------------------------------------------------------


def test_every_control_changes_the_answer(live):
    """One after the other, from the same setting: the address, the controls and the call say what was chosen."""
    chosen = {
        "from": "torch", "dtype": "bfloat16", "shape": "2,5", "layout": "transposed", "device": "cuda:0",
        "requires": "1", "to": "jax", "copy": "True", "as": "float32", "casting": "unsafe", "place": "cpu",
        "grad": "error", "pinned": "1", "non_blocking": "1", "variable": "1",
    }  # fmt: skip
    assert set(chosen) == set(settings.DEFAULTS)
    for control, value in chosen.items():
        start = {"from": "torch", "to": "tensorflow" if control == "variable" else "numpy"}
        if control == "from":
            start["from"] = "numpy"
        go(live, urlencode({**start, "shape": "4,4"}))
        before = live.inner_html(".pg-answer")
        live.locator(".pg-more").evaluate("each => { each.open = true; }")
        choose(live, control, value)

        assert f"{control}={value.replace(',', '%2C')}" in live.url.replace("%3A", ":").replace(
            ",", "%2C"
        )
        assert values(live)[control] == value
        assert live.inner_html(".pg-answer") != before
        assert text(live, ".pg-said") != [""]


def test_what_cannot_be_is_put_right_and_said(live):
    """From a tensor with negative strides to a framework that has none: the layout is plain again, and this is said."""
    go(live, "from=numpy&to=jax&layout=reversed")
    choose(live, "from", "torch")
    assert values(live)["layout"] == "plain"
    assert WORDS["layout"] in text(live, ".pg-status")[0]
    assert live.locator("[name=layout][value=reversed]").is_disabled()
    assert text(live, "#why-layout") == [WORDS["no-negative"].format(framework="PyTorch")]


def test_what_is_typed_before_the_answer_is_there_stays(live):
    """The answer to what was asked is shown, and the next one when what is typed is finished."""
    go(live, "from=numpy&to=jax")
    live.evaluate(
        "(() => { const e = document.querySelector('[name=shape]'); const done = new Event('change', {bubbles: true});"
        " e.value = '5,6'; e.dispatchEvent(done); e.value = '5,6,7'; })()"
    )
    settled(live)
    assert (values(live)["shape"], "shape=5,6" in live.url, "5,6,7" in live.url) == (
        "5,6,7",
        True,
        False,
    )
    live.locator("[name=shape]").dispatch_event("change")
    settled(live)
    assert (values(live)["shape"], "shape=5,6,7" in live.url) == ("5,6,7", True)


def test_back_and_forward_follow_the_settings(live):
    """Each change is a place in the history."""
    go(live, "from=numpy&to=jax")
    choose(live, "to", "torch")
    choose(live, "copy", "True")
    for to, copy in (("torch", ""), ("jax", "")):
        live.go_back()
        live.wait_for_function(
            "to => document.querySelector('.pg-controls').to.value === to", arg=to
        )
        settled(live)
        assert (values(live)["to"], values(live)["copy"]) == (to, copy)
    live.go_forward()
    live.wait_for_function("document.querySelector('.pg-controls').to.value === 'torch'")
    assert text(live, ".pg-code pre")[1].endswith("y = ferry.to_torch(x)")


def test_the_keyboard_is_enough(live):
    """From control to control by Tab, choices by arrows, buttons by the space bar; the focus is seen all the way."""
    go(live, "from=numpy&to=jax")
    live.locator("[name=from]:checked").focus()
    live.keyboard.press("ArrowRight")
    settled(live)
    assert values(live)["from"] == "torch"
    visited = []
    for _ in range(40):
        live.keyboard.press("Tab")
        focus = live.evaluate(
            "(() => { const e = document.activeElement; const s = e.matches('.pg-choices input') ? e.nextSibling : e;"
            " return [e.name || e.dataset.write || e.dataset.walk || e.className || e.tagName,"
            " getComputedStyle(s).outlineStyle]; })()"
        )
        visited.append(focus[0])
        assert focus[1] != "none", focus
        if focus[0] == "source":
            break
    assert {"dtype", "shape", "layout", "device", "requires", "to", "copy", "as"} <= set(visited)
    live.keyboard.press("Space")
    assert live.locator("[data-write=source]").get_attribute("aria-pressed") == "true"
    live.keyboard.press("Tab")
    live.keyboard.press("Tab")
    live.keyboard.press("Enter")
    assert live.locator(".pg-steps li[aria-current]").count() == 1


SAID = f"""
import json, sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "docs" / "_ext")!r}]
import tensorferry as ferry
from playground import settings

found = []
for values in json.load(open(sys.argv[1])):
    setting = settings.Setting(values)
    try:
        plan = ferry.explain(settings.tensor(setting), setting["to"], **settings.keywords(setting))
    except settings.ImpossibleError as error:
        found.append({{"word": error.word, "facts": error.facts}})
    except (ferry.ConversionError, TypeError, ValueError) as error:
        found.append({{"error": getattr(error, "message", str(error)), "hint": getattr(error, "hint", None)}})
    else:
        found.append({{**plan.to_dict(), "warnings": list(plan.warnings)}})
print(json.dumps(found))
"""


def test_random_settings_are_answered_as_explain_answers(live, tmp_path):
    """The planner in the page, on its own Python, and `explain` on this one: reason, steps, code, warnings, errors."""
    rng = random.Random(7)  # noqa: S311 - settings, no secrets
    asked = []
    for _ in range(SETTINGS):
        chosen = {
            name: rng.choice(choices)
            for name, choices in settings.CHOICES.items()
            if rng.random() < 0.2
        }
        shape = rng.choice(["3,4", "7", "2,3,5", "", "0,3", "1000,1000"])
        asked.append(
            {**settings.DEFAULTS, "from": rng.choice([*settings.NAMES]), **chosen, "shape": shape}
        )
    path = tmp_path / "asked.json"
    path.write_text(json.dumps(asked), encoding="utf-8")
    expected = json.loads(survives(SAID, path).splitlines()[-1])
    plans = 0
    for setting, said in zip(asked, expected, strict=True):
        go(live, settings.Setting(setting).query)
        shown = unescape(live.evaluate("document.querySelector('.pg-answer').textContent"))
        if "word" in said:
            told = [WORDS["absent"], WORDS[said["word"]].format(**said["facts"])]
        elif "error" in said:
            told = [said["error"], said["hint"] or ""]
        else:
            plans += 1
            told = [said["reason"], *said["warnings"], said["code"]]
            assert text(live, ".pg-steps li > code") == [step["code"] for step in said["steps"]]
            assert text(live, ".pg-steps li > span") == [step["why"] for step in said["steps"]]
        for words in told:
            assert words in shown, setting
    assert plans > SETTINGS // 4


def test_nothing_is_fetched_once_the_planner_is_there(live):
    """All of this has gone on without a network."""
    assert live.evaluate("navigator.onLine") is False
    choose(live, "copy", "")
    choose(live, "copy", "False")
    assert text(live, ".pg-status")[0].startswith(WORDS["ready"])
