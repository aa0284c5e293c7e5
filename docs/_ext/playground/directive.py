"""The directive ``{playground}``: the page's HTML, and the files that it loads."""

from __future__ import annotations

import json
import subprocess
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import npm
import picture_words
from docutils import nodes
from examples.tour.cases import CASES as TOUR
from sphinx.addnodes import translatable
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

import tensorferry
from tensorferry.core.layout import size_text
from tensorferry.planning.pictures.canvas import STYLE

from .answers import Answer, answer
from .bundle import bundle
from .cases import CASES, FIRST
from .settings import CHOICES, KEYWORDS_OF, NAMES, OPTIONS, read
from .words import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata
    from sphinx.writers.html5 import HTML5Translator

PYODIDE = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)
"""The files of the package that a page loads; it is under the Mozilla Public License 2.0."""
SCRIPTS = "_static/playground"
ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
TITLES = {name: each.title[0].upper() + each.title[1:] for name, each in TOUR.items()}

_log = logging.getLogger(__name__)


class Playground(nodes.General, nodes.Element, translatable):
    """The page's words, of which the page is made when it is written."""

    def preserve_original_messages(self) -> None:
        """Keep the English words."""
        self["english"] = {**WORDS, **{f"title-{name}": title for name, title in TITLES.items()}}
        self["words"] = dict(self["english"])

    def apply_translated_message(self, original_message: str, translated_message: str) -> None:
        """Take the words of the reader's language."""
        for key, english in self["english"].items():
            if english == original_message:
                self["words"][key] = translated_message

    def extract_original_messages(self) -> Sequence[str]:
        """What is to be translated."""
        return list(dict.fromkeys(self["english"].values()))


class PlaygroundDirective(SphinxDirective):
    """``{playground}``, which takes nothing."""

    def run(self) -> list[nodes.Node]:
        """The node."""
        made = Playground()
        self.set_source_info(made)
        for path in (
            *picture_words.catalogs(self.config),
            *HERE.glob("*.py"),
            *Path(tensorferry.__file__).parent.glob("[cp]*/*.py"),
        ):
            self.env.note_dependency(str(path))
        return [made]


# -- what is built --------------------------------------------------------------------------------


def answers(words: Mapping[str, str]) -> dict[str, Answer]:
    """The answer to each of the 27 cases."""
    return {name: answer(read(parse_qsl(query)), words) for name, query in CASES.items()}


def _fetch(app: Sphinx) -> None:
    """Get what runs the planner in a page; where npm cannot, the page says that it has none."""
    app.env.playground_size = ""
    if app.builder.format != "html":
        return
    folder = Path(app.config.playground_pyodide)
    try:
        npm.fetch("pyodide", folder)
    except (OSError, subprocess.CalledProcessError) as error:
        _log.info("the playground is built without its planner: %s", error)
        return
    target = Path(app.outdir, SCRIPTS)
    target.mkdir(parents=True, exist_ok=True)
    for name in PYODIDE:
        (target / name).write_bytes((folder / name).read_bytes())
    bundle(target / "sources.zip")
    size = sum((target / name).stat().st_size for name in (*PYODIDE, "sources.zip"))
    app.env.playground_size = size_text(size)


# -- the page -------------------------------------------------------------------------------------


def visit(self: HTML5Translator, node: Playground) -> None:
    """Write the page, and beside it a script with the cases."""
    words = {
        **node["words"],
        **picture_words.of_playground(picture_words.messages_of(self.builder.config)),
    }
    found = answers(words)
    scripts = Path(self.builder.outdir, SCRIPTS)
    scripts.mkdir(parents=True, exist_ok=True)
    data = json.dumps({name: each._asdict() for name, each in found.items()}, ensure_ascii=False)
    (scripts / "cases.js").write_text(f"window.playgroundCases = {data};\n", encoding="utf-8")
    root = self.builder.get_relative_uri(self.builder.current_docname, "index").rpartition("/")[0]
    size = getattr(self.builder.env, "playground_size", "")
    self.body.append(page(found, words, at=f"{root or '.'}/{SCRIPTS}", size=size))
    raise nodes.SkipNode


def page(found: Mapping[str, Answer], words: Mapping[str, str], *, at: str, size: str) -> str:
    """The page's HTML.

    Args:
        found: The answers to the cases.
        words: The words of the reader's language.
        at: Where the scripts are, seen from the page.
        size: What has to be loaded for the planner; empty: it is not there.
    """
    first = found[FIRST]
    kept = json.dumps(
        {"words": words, "first": first._asdict(), "size": size}, ensure_ascii=False
    ).replace("</", "<\\/")
    return (
        f"<style>{STYLE}</style><link rel='stylesheet' href='{at}/playground.css'>"
        # What a link to a case leads to is the page's top.
        f"{''.join(f'<span id={name!r}></span>' for name in CASES)}"
        f"<div class='playground' data-at='{at}'>"
        f"{_cases(words)}<div class='pg-sides'>"
        f"<form class='pg-controls' autocomplete='off'>{_controls(first, words)}</form>"
        f"<div class='pg-shown'><p class='pg-status' role='status'>{escape(words['first'])}</p>"
        f"<noscript><p>{escape(words['no-script'])}</p></noscript><p class='pg-said' role='status'></p>"
        f"<div class='pg-answer'>{first.html}</div></div></div>"
        f"<button type='button' class='pg-bar'>{escape(first.said)}</button></div>"
        f"<script type='application/json' id='playground-kept'>{kept}</script>"
        f"<script defer src='{at}/playground.js'></script>"
    )


def _cases(words: Mapping[str, str]) -> str:
    links = "".join(
        f"<li><a href='#{name}'{' aria-current=true' if name == FIRST else ''}>"
        f"<b>{name}</b> <span>{escape(words[f'title-{name}'])}</span></a></li>"
        for name in CASES
    )
    return (
        f"<details class='pg-cases'><summary>{escape(words['cases'])}</summary>"
        f"<p>{escape(words['cases-help'])}</p><ul>{links}</ul></details>"
        f"<p class='pg-case'><b>{FIRST}</b> <span>{escape(words[f'title-{FIRST}'])}</span> <small></small></p>"
    )


def _controls(first: Answer, words: Mapping[str, str]) -> str:
    names = {**NAMES, "python": words["list"]}
    copies = [(each, f"copy={each}" if each else words["copy-none"]) for each in CHOICES["copy"]]
    return (
        f"<div class='pg-group'><h2>{escape(words['have'])}</h2>"
        f"{_radios('from', names.items(), first, words)}"
        f"{_select('dtype', [(each, each) for each in CHOICES['dtype']], first, words)}"
        f"{_text('shape', first, words)}"
        f"{_radios('layout', [(each, words[each]) for each in CHOICES['layout']], first, words)}"
        f"{_select('device', [(each, each) for each in CHOICES['device']], first, words)}"
        f"{_checks('requires', ('requires',), first, words)}</div>"
        f"<div class='pg-group'><h2>{escape(words['want'])}</h2>"
        f"{_radios('to', names.items(), first, words)}"
        f"{_radios('copy', copies, first, words)}"
        f"{_select('as', _named('as', words), first, words)}"
        f"<details class='pg-more'><summary>{escape(words['more'])}</summary><div>"
        f"{_select('casting', _named('casting', words), first, words)}"
        f"{_select('place', _named('place', words), first, words)}"
        f"{_select('grad', [(each, each) for each in CHOICES['grad']], first, words)}"
        f"{_checks('options', OPTIONS, first, words)}</div></details></div>"
    )


def _named(control: str, words: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(each, each or words[f"{control}-none"]) for each in CHOICES[control]]


def _label(control: str, words: Mapping[str, str]) -> str:
    return words.get(control) or f"{KEYWORDS_OF[control]}="


def _why(control: str, first: Answer) -> str:
    """Why some choices of a control are not there now."""
    whys = dict.fromkeys(first.impossible.get(control, {}).values())
    return f"<small class='pg-why' id='why-{control}' data-why='{control}'>{escape(' '.join(whys))}</small>"


def _radios(
    control: str, choices: Iterable[tuple[str, str]], first: Answer, words: Mapping[str, str]
) -> str:
    made = "".join(
        f"<label><input type='radio' name='{control}' value='{value}'{_state(control, value, first, 'checked')}>"
        f"<span>{escape(name)}</span></label>"
        for value, name in choices
    )
    return (
        f"<fieldset aria-describedby='why-{control}'><legend>{escape(words[control])}</legend>"
        f"<div class='pg-choices'>{made}</div>{_why(control, first)}</fieldset>"
    )


def _select(
    control: str, choices: Iterable[tuple[str, str]], first: Answer, words: Mapping[str, str]
) -> str:
    made = "".join(
        f"<option value='{value}'{_state(control, value, first, 'selected')}>{escape(name)}</option>"
        for value, name in choices
    )
    return (
        f"<p class='pg-line'><label for='pg-{control}'>{escape(_label(control, words))}</label>"
        f"<select id='pg-{control}' name='{control}'>{made}</select></p>"
    )


def _text(control: str, first: Answer, words: Mapping[str, str]) -> str:
    return (
        f"<p class='pg-line'><label for='pg-{control}'>{escape(words[control])}</label>"
        f"<input id='pg-{control}' name='{control}' value='{escape(first.values[control])}' size='10' "
        f"spellcheck='false' title='{escape(words[f'{control}-help'])}'></p>"
    )


def _checks(group: str, controls: Sequence[str], first: Answer, words: Mapping[str, str]) -> str:
    """Boxes to be checked; a name that is a keyword's is the same in every language."""
    made = "".join(
        f"<label><input type='checkbox' name='{name}' value='1'{_state(name, '1', first, 'checked')}>"
        f"<span>{escape(words.get(name, f'{name}=True'))}</span></label>{_why(name, first)}"
        for name in controls
    )
    if len(controls) == 1:
        return f"<div class='pg-checks'>{made}</div>"
    return f"<fieldset class='pg-checks'><legend>{escape(words[group])}</legend>{made}</fieldset>"


def _state(control: str, value: str, first: Answer, chosen: str) -> str:
    off = value in first.impossible.get(control, {}) and first.values[control] != value
    return (f" {chosen}" if first.values[control] == value else "") + (" disabled" if off else "")


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directive, and what it needs."""
    app.add_node(Playground, html=(visit, None), gettext=(_skip, None))
    app.add_directive("playground", PlaygroundDirective)
    app.add_config_value("playground_pyodide", str(ROOT / "build" / "pyodide"), "env", str)
    app.connect("builder-inited", _fetch)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _skip(_self: object, _node: Playground) -> None:
    raise nodes.SkipNode
