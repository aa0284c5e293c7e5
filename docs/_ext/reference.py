"""The generated parts of the reference: from signatures, docstrings, commands, and what backends and formats declare.

A page says where each part stands, and in which order: ``{entries}`` with the names of functions
and classes, ``{keyword}`` and ``{error}`` with the name of one, ``{error-tree}``, ``{types}``,
``{commands}``, ``{exit-codes}``, ``{formats}``, ``{pairs}`` and ``{dtypes-of-pairs}``. What is
public and has no entry is an error.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives, roles
from sphinx import addnodes
from sphinx.errors import ExtensionError
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.util.docutils import SphinxDirective

import tensorferry
import tensorferry.typing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

PUBLIC = {*tensorferry.__all__, "open"}
_READABLE = Config(napoleon_use_ivar=False, napoleon_use_rtype=False)
_THEIRS = {
    "NumpyArray": "numpy.ndarray",
    "TorchTensor": "torch.Tensor",
    "TensorflowTensor": "tf.Tensor",
    "TensorflowVariable": "tf.Variable",
    "JaxArray": "jax.Array",
}
"""What a reader knows the types of frameworks as."""
_OURS = ("Casting", "Grad", "Leaves", "Target", "To", "Unknown")
_NAMES = {**_THEIRS, **{name: f"~tensorferry.typing.{name}" for name in _OURS}}


def _annotation(written: object) -> str:
    """An annotation as it stands in the source, with types under the names that readers know."""
    text = (
        written
        if isinstance(written, str)
        else getattr(written, "__forward_arg__", None) or str(written)
    )
    return re.sub(r"\w+", lambda name: _NAMES.get(name[0], name[0]), text)


def _parameters(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    """The parameters of a function, the keywords of a ``TypedDict`` one by one in the place of ``**options``."""
    defaults = inspect.signature(tensorferry.to_numpy).parameters
    for parameter in inspect.signature(function).parameters.values():
        spread = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
        if spread is None:
            yield parameter
            continue
        for name, kind in inspect.get_annotations(getattr(tensorferry.typing, spread[1])).items():
            default = defaults[name].default if name in defaults else False
            yield inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
            )


def _signature(function: Callable[..., Any]) -> str:
    """A signature with its types, and the result's."""
    words: list[str] = []
    keywords_only = False
    parameters = list(_parameters(function))
    for before, parameter in zip([None, *parameters], parameters, strict=False):
        if before is not None and before.kind == before.POSITIONAL_ONLY != parameter.kind:
            words.append("/")
        if parameter.kind == parameter.KEYWORD_ONLY and not keywords_only:
            words.append("*")
        keywords_only |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        words.append(f"{stars}{parameter.name}: {_annotation(parameter.annotation)}{default}")
    if parameters and parameters[-1].kind == inspect.Parameter.POSITIONAL_ONLY:
        words.append("/")
    result = inspect.signature(function).return_annotation
    return f"({', '.join(words)})" + (
        "" if result is inspect.Signature.empty else f" -> {_annotation(result)}"
    )


def _docstring(of: object, change: Callable[[str], str] = str) -> list[str]:
    """The lines of a docstring as reStructuredText."""
    text = change(inspect.getdoc(of) or "")
    return str(GoogleDocstring(text, _READABLE)).splitlines()


def _section(text: str, name: str) -> dict[str, str]:
    """The entries of a section of a docstring, such as ``Args:``."""
    found = re.search(rf"^{name}:\n((?:[ ]{{4}}.*\n?|\n)+)", text, re.MULTILINE)
    entries = re.findall(
        r"^    (\**\w+): ((?:.*\n?)(?:     .*\n?)*)", found[1] if found else "", re.MULTILINE
    )
    return {name: " ".join(said.split()) for name, said in entries}


def _described(
    kind: str, name: str, signature: str, body: list[str], options: tuple[str, ...] = ()
) -> list[str]:
    """A description of an object as reStructuredText."""
    return [
        f".. py:{kind}:: {name}{signature}",
        *(f"   {option}" for option in options),
        "",
        *(f"   {line}" for line in body),
        "",
    ]


def _members(cls: type) -> Iterator[str]:
    """The public methods and properties of a class and of those of ours that it is made from."""
    seen = set()
    for each in cls.__mro__:
        if not each.__module__.startswith("tensorferry"):
            continue
        for name, member in vars(each).items():
            if name.startswith("_") or name in seen or not inspect.getdoc(member):
                continue
            seen.add(name)
            if isinstance(member, property):
                kind = inspect.get_annotations(member.fget).get("return", "")
                options = (f":type: {_annotation(kind)}", ":no-contents-entry:")
                yield from _described("property", name, "", _docstring(member), options)
            elif inspect.isfunction(member):
                signature = re.sub(r"^\(self: [^,)]*(, )?(/(, )?)?", "(", _signature(member))
                yield from _described(
                    "method", name, signature, _docstring(member), (":no-contents-entry:",)
                )


def _class(cls: type) -> list[str]:
    """A class: what makes it if people do, else what its fields are."""
    if cls is tensorferry.TensorInfo:
        signature = re.sub(r" -> .*", "", _signature(cls))
        return _described("class", cls.__name__, signature, [*_docstring(cls), "", *_members(cls)])
    fields = set(getattr(cls, "_fields", ())) | set(getattr(cls, "__dataclass_fields__", ()))

    def read(text: str) -> str:
        if fields:
            return re.sub(r"^Args:$", "Attributes:", text, flags=re.MULTILINE)
        # Nobody but tensorferry makes one.
        return re.sub(r"^Args:\n(?:[ ]{4}.*\n?|\n)+", "", text, flags=re.MULTILINE)

    body = []
    for line in _docstring(cls, read):
        body += [line, "   :no-contents-entry:"] if line.startswith(".. attribute::") else [line]
    return _described("class", cls.__name__, "", [*body, "", *_members(cls)])


class Generated(SphinxDirective):
    """A part of a page that is made when the page is read."""

    has_content = True

    def made(self) -> list[str]:
        """The part as Markdown."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """Parse it in its place; the page is read again when a module of ours has changed."""
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            if module.__name__.startswith("tensorferry") and file:
                self.env.note_dependency(file)
        for file in Path(__file__).parent.glob("*.py"):
            self.env.note_dependency(str(file))
        return self.parse_text_to_nodes("\n".join(self.made()), allow_section_headings=True)


def restructured(lines: list[str]) -> list[str]:
    """Lines of reStructuredText within Markdown."""
    return ["````{eval-rst}", ".. py:currentmodule:: tensorferry", "", *lines, "````", ""]


GROUPS = {
    "convert": "to_numpy to_torch to_tensorflow to_jax to_cupy to_list to_arrow to_pandas to_polars convert",
    "look": "describe explain shares_memory is_tensor frameworks TensorInfo Plan Step FrameworkStatus",
    "trees": "convert_tree describe_tree explain_tree collate explain_collate snapshot TreePlan BatchPlan",
    "functions": "wrap wrap_module explain_wrap WrapPlan",
    "transfers": "start prefetch Transfer Prefetch transfers.prefetch.PrefetchStats",
    "files": "open load explain_load save convert_files WeightMap files.base.contents.Contents LazyTree LazyReference "
    "Report LoadPlan files.load_plan.LoadedTensor files.ranges.runs.ByteRuns",
}
"""The functions and classes that have a page together."""


def _of_group(name: str) -> Iterator[tuple[str, Any]]:
    """The functions and classes of a page, by their names."""
    for each in GROUPS[name].split():
        yield each, _found(each)


def _found(name: str) -> Any:
    """What has this name in the package."""
    if name in PUBLIC:
        return getattr(tensorferry, name)
    # What functions give and the package does not name: ``files.base.contents.Contents``.
    module, _, last = name.rpartition(".")
    __import__(f"tensorferry.{module}")
    return getattr(sys.modules[f"tensorferry.{module}"], last)


def _first_lines(group: str) -> list[str]:
    """A table of a group's names, each with what it is for."""
    lines = ["| name | what it is for |", "|---|---|"]
    for name, found in _of_group(group):
        first = (inspect.getdoc(found) or "").partition("\n\n")[0].replace("\n", " ")
        lines.append(
            f"| {{py:obj}}`~tensorferry.{name.rpartition('.')[2]}` | {_as_markdown(first)} |"
        )
    return lines


class FirstLines(Generated):
    """The functions and classes of a group, each with what it is for."""

    required_arguments = 1

    def made(self) -> list[str]:
        """A table."""
        return _first_lines(self.arguments[0])


class Entries(Generated):
    """The functions and classes of a group, each with its signature, arguments and errors."""

    required_arguments = 1

    def made(self) -> list[str]:
        """A table of their first lines, and each."""
        group = self.arguments[0]
        lines: list[str] = []
        for name, found in _of_group(group):
            if isinstance(found, type):
                lines += _class(found)
            else:
                lines += _described("function", name, _signature(found), _docstring(found))
        return [*_first_lines(group), "", *restructured(lines)]


def _as_markdown(text: str) -> str:
    """The little reStructuredText of a docstring's line."""
    return re.sub(r"``(.*?)``|`(.*?)`", lambda found: f"`{found[1] or found[2]}`", text).replace(
        "|", r"\|"
    )


class Keyword(Generated):
    """What a keyword does, its type and default, and which functions take it."""

    required_arguments = 1
    option_spec: ClassVar = {"from": directives.unchanged}

    def made(self) -> list[str]:
        """The words of the function that explains it, and the functions."""
        name = self.arguments[0]
        model = getattr(tensorferry, self.options.get("from", "to_numpy"))
        said = _section(inspect.getdoc(model) or "", "Args")[name]
        (parameter,) = (each for each in _parameters(model) if each.name == name)
        takes = [each for each in tensorferry.__all__ if name in takes_keywords(each)]
        functions = ", ".join(f":py:func:`{each}`" for each in takes)
        kind = f"*Type:* ``{parameter.annotation}``. *Default:* ``{parameter.default!r}``."
        return restructured([said, "", kind, "", f"*Taken by:* {functions}."])


def takes_keywords(name: str) -> list[str]:
    """The names of the keywords of a public function."""
    found = getattr(tensorferry, name)
    if isinstance(found, type):
        return []
    return [each.name for each in _parameters(found) if each.kind == each.KEYWORD_ONLY]


class Error(Generated):
    """An error with the builtins that it is too, and when it is raised."""

    required_arguments = 1

    def made(self) -> list[str]:
        """Its description, under a heading of the page's."""
        error = getattr(tensorferry, self.arguments[0])
        ours, theirs = _bases(error)
        bases = [*([f":py:exc:`{ours}`"] if ours else []), *(f"``{name}``" for name in theirs)]
        body = [f"*Derived from* {', '.join(bases)}.", "", *_docstring(error, _without_example)]
        return restructured(
            _described("exception", error.__name__, "", body, (":no-contents-entry:",))
        )


def errors() -> list[type[BaseException]]:
    """Every public error, the root first, in the order of the source."""
    found = [getattr(tensorferry, name) for name in tensorferry.__all__]
    found = [each for each in found if isinstance(each, type) and issubclass(each, BaseException)]
    return sorted(found, key=lambda each: inspect.getsourcelines(each)[1])


def _bases(error: type[BaseException]) -> tuple[str | None, list[str]]:
    """The error of ours that one is, and the others: an exception group under the name that users know it by."""
    ours = [each.__name__ for each in error.__bases__ if each.__name__ in PUBLIC]
    theirs = [each.__name__ for each in error.__bases__ if each.__name__ not in PUBLIC]
    named = {"_Group": "ExceptionGroup", "UnpicklingError": "pickle.UnpicklingError"}
    return (ours[0] if ours else None), [named.get(name, name) for name in theirs]


def _without_example(text: str) -> str:
    """A docstring without its example: the page has one of its own."""
    return re.sub(r"^>>> (?:.+\n)+\n?", "", text, flags=re.MULTILINE)


class ErrorTree(Generated):
    """The errors as the tree that they are, drawn by the style sheet."""

    def made(self) -> list[str]:
        """Lists in lists, of links."""
        lines: list[str] = []

        def draw(parent: str | None, depth: int) -> None:
            for error in errors():
                ours, theirs = _bases(error)
                if ours == parent:
                    builtins = f" ({', '.join(f'`{name}`' for name in theirs)})"
                    lines.append(
                        f"{'  ' * depth}- [`{error.__name__}`](#{error.__name__.lower()}){builtins}"
                    )
                    draw(error.__name__, depth + 1)

        draw(None, 0)
        return lines

    def run(self) -> list[nodes.Node]:
        """Mark it for the style sheet, which draws the branches."""
        made = super().run()
        for each in made:
            if isinstance(each, nodes.bullet_list):
                each["classes"].append("tree")
        return made


class Types(Generated):
    """The names that annotations have for several words or types."""

    def made(self) -> list[str]:
        """Each with what it stands for."""
        lines = []
        for name in _aliases():
            value = str(getattr(tensorferry.typing, name))
            value = re.sub(
                r"\b(?:typing|collections\.abc|types)\.", "", value.replace("typing.Union", "Union")
            )
            lines += _described(
                "data",
                name,
                "",
                [f"``{value}``"],
                (":module: tensorferry.typing", ":no-contents-entry:"),
            )
        return restructured(lines)


def _aliases() -> list[str]:
    """The aliases of `tensorferry.typing` that signatures of public functions have in them."""
    text = " ".join(
        _signature(getattr(tensorferry, name))
        for name in PUBLIC
        if not isinstance(getattr(tensorferry, name), type)
    )
    used = re.findall(r"tensorferry\.typing\.(\w+)", text)
    return sorted(set(used))


def named(
    _name: str,
    rawtext: str,
    text: str,
    _line: int,
    inliner: Any,
    _options: object = None,
    _content: object = None,
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """What stands between single backticks in a docstring: a link where it is a public name, code all the same."""
    code = nodes.literal(rawtext, text)
    if text.partition(".")[0] not in PUBLIC:
        return [code], []
    environment = inliner.document.settings.env
    link = addnodes.pending_xref(
        rawtext,
        code,
        refdomain="py",
        reftype="obj",
        reftarget=f"tensorferry.{text}",
        refdoc=environment.docname,
    )
    return [link], []


def _linked(
    app: Sphinx, env: Any, node: addnodes.pending_xref, shown: nodes.Element
) -> nodes.Node | None:
    """What stands in signatures: our aliases, which are no classes; types of other libraries have no page here."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or target in PUBLIC:
        return None
    if target.startswith("tensorferry."):
        found: nodes.Node | None = env.get_domain("py").resolve_xref(
            env, node.get("refdoc"), app.builder, "obj", target, node, shown
        )
        return found
    return shown


def _checked(app: Sphinx, _env: object) -> None:
    """Every public name has its entry."""
    known = app.env.get_domain("py").objects
    lost = sorted(name for name in PUBLIC if f"tensorferry.{name}" not in known)
    if lost:
        raise ExtensionError(f"not in the reference: {', '.join(lost)}")


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directives."""
    import commands
    import matrix

    roles.register_canonical_role("named", named)
    made = {
        "entries": Entries,
        "error": Error,
        "error-tree": ErrorTree,
        "first-lines": FirstLines,
        "keyword": Keyword,
        "types": Types,
    }
    for name, directive in {**made, **commands.DIRECTIVES, **matrix.DIRECTIVES}.items():
        app.add_directive(name, directive)
    app.connect("missing-reference", _linked)
    app.connect("env-check-consistency", _checked)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
