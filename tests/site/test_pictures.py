"""Pictures on pages: what a page's code says is drawn, what is wrong with it names its line, and it can be read."""

from __future__ import annotations

import importlib
import sys
from itertools import pairwise

import pytest
from tests.site.conftest import ROOT
from tests.support import python

import tensorferry as ferry

CONF = f"""
import sys
sys.path.insert(0, {str(ROOT / "docs" / "_ext")!r})
extensions = ["myst_parser", "memory", "timeline"]
"""
PAGE = """# A page

```{memory}
:caption: The *same* bytes
:alt: in other <words>
size = 6
ferry.explain(ferry.TensorInfo("torch", (size,), "float32"), "numpy")
```

```{timeline}
:batches: 3
ferry.explain(ferry.TensorInfo("numpy", (6,)), "torch", device="cuda", non_blocking=True)
```
"""


def built(folder, page):
    """What Sphinx makes of a page, and what it says."""
    pytest.importorskip("sphinx", reason="Sphinx is not installed: make docs-test does")
    (folder / "conf.py").write_text(CONF)
    (folder / "index.md").write_text(page)
    code = "import sys; from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:]))"
    done = python(code, "-q", "-W", "--keep-going", "-b", "html", str(folder), str(folder / "out"))
    return (folder / "out" / "index.html").read_text(encoding="utf-8"), done.returncode, done.stderr


def test_a_page_is_drawn(tmp_path):
    """Twice for each block, once for each width; the caption is the page's, and so are the words if it has some."""
    html, code, said = built(tmp_path, PAGE)
    assert (code, said) == (0, "")
    assert html.count("<svg ") == 4
    assert "<em>same</em>" in html
    assert (
        html.count("in other &lt;words&gt;</desc>")
        == html.count("aria-label='in other &lt;words&gt;'")
        == 2
    )
    assert html.count("source and result are") == 0
    assert html.count("<title>what crosses the bus while a loop works") == 2


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("x = 1", "SyntaxError: the last line must be an expression"),
        (
            "ferry.TensorInfo('torch', (3,))",
            "TypeError: the last line must be a plan, not TensorInfo",
        ),
        (
            "ferry.explain(ferry.TensorInfo('torch', (3,), abstract='meta'), 'numpy')",
            "UnsupportedTypeError",
        ),
    ],
)
def test_what_is_wrong_is_a_warning_with_its_line(tmp_path, body, said):
    """So that `make docs` fails, and says where."""
    _, code, words = built(tmp_path, f"# A page\n\nWords.\n\n```{{memory}}\n{body}\n```\n")
    assert code == 1
    assert "index.md:5: WARNING: {memory}: " in words
    assert said in words


def test_a_timeline_needs_a_bus(tmp_path):
    """What stays on the host crosses nothing."""
    _, code, words = built(tmp_path, "# A\n\n```{timeline}\nferry.explain([1.0], 'torch')\n```\n")
    assert code == 1
    assert "nothing of this plan crosses the bus" in words


@pytest.fixture(scope="module")
def timeline():
    """`docs/_ext/timeline.py`."""
    pytest.importorskip("sphinx", reason="Sphinx is not installed: make docs-test does")
    sys.path.insert(0, str(ROOT / "docs" / "_ext"))
    yield importlib.import_module("timeline")
    sys.path.remove(str(ROOT / "docs" / "_ext"))


@pytest.mark.parametrize("ways", [["bus"], ["host", "bus"], ["host", "bus", "device"]])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_order_is_one_that_prefetch_can_have(timeline, ways, depth):
    """One batch at a time on each lane, each batch on one lane after the other, and none beyond the depth."""
    lanes = [*ways, timeline.LOOP]
    pieces = timeline.ahead(ways, 9, depth)
    assert len(pieces) == 9 * len(lanes)
    for lane in lanes:
        on_it = [piece for piece in pieces if piece.lane == lane]
        assert [piece.batch for piece in on_it] == list(range(9))
        assert all(before.stop <= after.start for before, after in pairwise(on_it))
    for batch in range(9):
        assert all(
            a.stop <= b.start
            for a, b in pairwise([piece for piece in pieces if piece.batch == batch])
        )
    begun = [piece.start for piece in pieces if piece.lane == lanes[0]]
    taken = [piece.start for piece in pieces if piece.lane == timeline.LOOP]
    for now in range(taken[-1]):
        assert sum(each <= now for each in begun) - sum(each <= now for each in taken) <= depth
    assert pieces[-1].stop < timeline.in_turn(ways, 9)[-1].stop


INFO = ferry.TensorInfo
PLANS = {
    "shared": (INFO("torch", (2, 3)), "numpy", {}),
    "transposed": (INFO("torch", (3, 2), strides=(4, 12)), "numpy", {}),
    "every second": (INFO("numpy", (8,), strides=(8,)), "torch", {}),
    "reversed": (INFO("numpy", (6,), strides=(-4,), misalignment=20), "torch", {}),
    "broadcast": (INFO("numpy", (4, 6), strides=(0, 4)), "torch", {}),
    "misaligned": (INFO("numpy", (30,), "int8", misalignment=40), "torch", {}),
    "over the bus": (
        INFO("torch", (1024, 1000), device="cuda:0", requires_grad=True),
        "numpy",
        {"dtype": "bfloat16"},
    ),
    "a list": (INFO("python", (2, 300), "float64"), "torch", {}),
    "empty": (INFO("torch", (0, 3)), "numpy", {}),
    "long": (INFO("torch", (1,) * 40, strides=(123456789,) * 40, kind="Parameter"), "numpy", {}),
}

OUTSIDE = """() => [...document.querySelectorAll('svg text')].filter(text => {
    const box = text.getBBox(), view = text.ownerSVGElement.viewBox.baseVal;
    return box.width && (box.x < 0 || box.y < 0 || box.x + box.width > view.width || box.y + box.height > view.height);
}).map(text => text.textContent)"""
SMALL = """() => Math.min(...[...document.querySelectorAll('svg text')].filter(text => text.getBBox().width).map(
    text => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a))"""
FILLS = """() => [...new Set([...document.querySelectorAll('svg .shared, svg .source, svg .result')].map(
    part => getComputedStyle(part).fill))].sort()"""


def pages():
    """Plans as notebooks show them, on one page."""
    plans = [ferry.explain(info, to, **asked) for info, to, asked in PLANS.values()]
    whole = ferry.TensorInfo("torch", (64, 32))
    plans.append(
        ferry.explain_tree({"a": whole, "b": {"c": INFO("numpy", (7,), strides=(8,))}}, "numpy")
    )
    return "<!doctype html><html lang='en'><title>plans</title><body>" + "".join(
        plan._repr_html_() for plan in plans
    )


@pytest.mark.parametrize("width", [360, 1440])
def test_plans_can_be_read_on_any_screen(browser, width):
    """Nothing leaves its picture, no letter is smaller than 9 pixels, no page is wider than its screen."""
    fills = []
    for scheme in ("light", "dark"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        page.set_content(pages().replace("<body>", "<body style='margin:8px'>"))
        assert page.evaluate(OUTSIDE) == []
        assert page.evaluate(SMALL) >= 9
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert (
            page.evaluate(
                "[...document.querySelectorAll('figure')].filter(f => f.offsetWidth).length"
            )
            == 11
        )
        fills.append(page.evaluate(FILLS))
        context.close()
    assert len(fills[0]) == len(fills[1]) == 3
    assert not set(fills[0]) & set(fills[1])


@pytest.mark.parametrize(
    ("attribute", "dark"),
    [
        ("data-theme='dark'", True),
        ("data-theme='light'", False),
        ("data-jp-theme-light='false'", True),
    ],
)
def test_a_theme_that_a_reader_chose_counts_more_than_the_systems(browser, attribute, dark):
    """Furo's switch and JupyterLab's, whatever the system prefers."""
    found = []
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        page.set_content(pages().replace("<body>", f"<body {attribute}>"))
        found.append(page.evaluate(FILLS))
        context.close()
    assert found[0] == found[1]
    assert ("rgb(37, 99, 235)" in found[0]) is not dark
