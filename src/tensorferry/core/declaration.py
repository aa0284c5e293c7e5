"""What a framework declares for the planner, whether it is installed or not.

It declares its abilities, the code that a person would type for each of its verbs, and the layouts
over several devices that its objects ask for.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ..hints import Caller, Hint
from .generics import Protocol
from .named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .capabilities import Capabilities, DeviceFacts
    from .info import TensorInfo

__all__ = [
    "NO_DETAILS",
    "VALUE",
    "Code",
    "Declaration",
    "Declared",
    "Details",
    "Placement",
    "Snippet",
    "VerbCall",
    "caller_of",
    "code_of",
    "snippet_of",
    "with_capabilities_frozen",
]

VALUE = "\0"
"""Stands in `Code` for the value of a step, until the code is printed.

Only then is it known what the value is called. No code of Python has this character.
"""


class Details(NamedTuple):
    """What the code of a verb depends on besides what the verb itself gets.

    Args:
        newly_allocated: For ``adopt``: whether an earlier step has allocated the memory. A person's
            copy need not be aligned as ours is.
        read_only: For ``export``: whether the array is the result, and read-only.
        in_hint: For ``detach``: whether the code is for a hint, which a person types beforehand. A
            hint names functions without a module.
        caster: For ``cast`` of the backend's own tensors: who casts. ``"host"`` is NumPy,
            ``"graph"`` is NumPy as one operation of a graph, ``""`` is the framework.
        out: For ``write``: the description of what is written into.
        is_own: For ``write``: whether the value is a tensor of the backend, and not an array.
        dtype: For ``read`` of a column: the dtype that was asked for.
        casting: For ``read`` of a column: the ``casting=`` that was given.
        index_code: For ``label``: the code for the index; ``None`` if it is not set.
        names_code: For ``label``: the code for the names; ``None`` if they are not set.
    """

    newly_allocated: bool = False
    read_only: bool = False
    in_hint: bool = False
    caster: Literal["", "host", "graph"] = ""
    out: TensorInfo | None = None
    is_own: bool = False
    dtype: str | None = None
    casting: str | None = None
    index_code: str | None = None
    names_code: str | None = None


NO_DETAILS = Details()
"""For most verbs: their code depends on nothing else."""


class VerbCall(NamedTuple):
    """The call of a verb, whose code is asked for.

    Args:
        verb: The name of the verb.
        arguments: What the verb itself gets besides the value.
        info: The description of the value.
        x: The code for the value.
        details: What else the code depends on.
    """

    verb: str
    arguments: tuple[Any, ...]
    info: TensorInfo
    x: str = "x"
    details: Details = NO_DETAILS


class Code(NamedTuple):
    """The code that a person would type for a verb.

    >>> from tensorferry.core.declaration import VALUE, Code
    >>> code = Code(f"np.asarray({VALUE})", ("y.flags.writeable = False",))
    >>> print(code.of("x.data"))
    y = np.asarray(x.data); y.flags.writeable = False

    Args:
        expression: An expression for the result.
        then: Statements that follow ``y = expression``, if it takes more than an expression. In
            them, `y` is the result.
        remarks: What to say before it, as comments.
    """

    expression: str
    then: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def of(self, x: str) -> Code:
        """The code for a value that has this code."""
        return Code(self.expression.replace(VALUE, x), self.then, self.remarks)

    @property
    def uses(self) -> int:
        """How many times it has the value."""
        return self.expression.count(VALUE)

    def mentions(self, module: str) -> bool:
        """Whether it takes something from a module of this name.

        >>> code = Code("jnp.asarray(x)")
        >>> code.mentions("jnp"), code.mentions("np")
        (True, False)
        """
        # It begins a name: it is neither the end of a longer one, nor an attribute.
        begins = re.compile(rf"(?<![\w.]){re.escape(module)}\.")
        return any(begins.search(text) for text in (self.expression, *self.then))

    def after(self, first: Code) -> Code:
        """The code for both, one after the other."""
        remarks = first.remarks + self.remarks
        if not first.then:
            return Code(self.of(first.expression).expression, self.then, remarks)
        last = f"y = {self.of('y').expression}"
        return Code(first.expression, (*first.then, last, *self.then), remarks)

    def for_each(self) -> Code:
        """The code for a list of values: a loop if it takes more than an expression."""
        if not self.then:
            row = self.of("row").expression
            return Code(f"[{row} for row in {VALUE}]", remarks=self.remarks)
        body = [f"y = {self.of('y').expression}", *self.then, "rows.append(y)"]
        loop = ("rows = []", "for y in y:", *[f"    {line}" for line in body], "y = rows")
        return Code(VALUE, loop, self.remarks)

    def __str__(self) -> str:
        """In one line, without the remarks."""
        if not self.then:
            return self.expression
        lines = [line.strip() for line in self.then]
        if self.expression != "x":
            lines.insert(0, f"y = {self.expression}")
        return "; ".join(lines)


def code_of(declared: Declaration, call: VerbCall) -> Code:
    """The code that a framework gives for a verb; a text is an expression."""
    snippet = declared.snippet(call)
    if isinstance(snippet, Code):
        return snippet
    return Code(snippet)


class Snippet:
    """The code of a step, made when somebody reads it: most plans are run, and nobody reads them.

    >>> from tensorferry.core.declaration import Code, Snippet
    >>> Snippet(lambda: Code("np.asarray(x)")).code
    Code(expression='np.asarray(x)', then=(), remarks=())

    Args:
        make: Makes the code, always the same.
    """

    def __init__(self, make: Callable[[], Code]) -> None:
        self._make = make

    @cached_property
    def code(self) -> Code:
        """The code."""
        return self._make()

    def changed(self, change: Callable[[Code], Code]) -> Snippet:
        """The snippet of what `change` makes of its code."""
        return Snippet(lambda: change(self.code))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snippet) and self.code == other.code

    def __hash__(self) -> int:
        return hash(self.code)

    def __repr__(self) -> str:
        return f"<Snippet: {self.code}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _snippet_again, (self.code,)


def _snippet_again(code: Code) -> Snippet:
    return Snippet(lambda: code)


def snippet_of(declared: Declaration, call: VerbCall) -> Snippet:
    """The snippet of a verb's call, for which the framework gives the code."""
    return Snippet(lambda: code_of(declared, call))


class Placement(NamedTuple):
    """How a target lays out one tensor over several devices.

    Args:
        device: The canonical name of the device, or the kind of the devices.
        shards: How many different parts there are; 1 if each device has the whole tensor.
        layout: The framework's object for the layout. Two placements are compared by it.
        lies: Whether the source has this layout already.
    """

    device: str
    shards: int
    layout: object
    lies: bool = False


class Declaration(Protocol):
    """What the planner needs to know about a framework. Every `Backend` is a `Declaration`."""

    @property
    def name(self) -> str:
        """Its canonical name."""

    @property
    def module(self) -> str:
        """The module to import."""

    @property
    def owns(self) -> tuple[str, ...]:
        """The top-level modules whose types belong to the framework."""

    @property
    def imports(self) -> Mapping[str, str]:
        """For each module name that its snippets use, the import line."""

    @property
    def capabilities(self) -> Capabilities:
        """What the framework can do."""

    def __hash__(self) -> int:
        """By identity, because recipes are cached by their backends."""

    def snippet(self, call: VerbCall, /) -> Code | str:
        """The code that a person would type for a verb. A text is an expression."""

    def remark(self, info: TensorInfo, /) -> str:
        """A warning for the plan if such numbers are unexpected (counts of days, for example)."""

    def device_facts(self, kind: str, /) -> DeviceFacts:
        """What the framework can do on a kind of device."""

    def placement(self, device: object, /) -> Placement | None:
        """The placement in ``device=``, if it is the framework's object for that; else ``None``."""

    def misfit(
        self, placement: Placement, shape: tuple[int, ...], /
    ) -> tuple[str, str | Hint] | None:
        """Why a tensor of this shape cannot have the placement, what to do; ``None`` if it can."""


class Declared:
    """A declaration without a backend.

    It makes plans where neither the framework nor NumPy can be imported.

    >>> from tensorferry.backends.torch.declared import DECLARED
    >>> DECLARED.name, "bfloat16" in DECLARED.capabilities.dtypes.held
    ('torch', True)

    Args:
        name: Its canonical name.
        capabilities: What the framework can do.
        snippet: The code for a verb; see `Declaration.snippet`.
        imports: For each module name that its snippets use, the import line.
        facts: What it can do on kinds of device that it need not see, if that is known.
    """

    module = ""
    owns: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        capabilities: Capabilities,
        snippet: Callable[[VerbCall], Code | str],
        imports: Mapping[str, str],
        facts: Mapping[str, DeviceFacts] | None = None,
    ) -> None:
        self.name = name
        self.capabilities = capabilities
        self.snippet = snippet
        self.imports = imports
        self.facts = facts or {}

    def remark(self, _info: TensorInfo, /) -> str:
        """No warning."""
        return ""

    def device_facts(self, kind: str, /) -> DeviceFacts:
        """What is declared, or else the defaults, because the framework cannot be asked."""
        from .capabilities import DeviceFacts

        return self.facts.get(kind) or DeviceFacts()

    def placement(self, _device: object, /) -> Placement | None:
        """``None``, because only the framework has objects for placements."""
        return None

    def misfit(
        self, _placement: Placement, _shape: tuple[int, ...], /
    ) -> tuple[str, str | Hint] | None:
        """``None``, because there are no placements."""
        return None


class _AsNow:
    """See `with_capabilities_frozen`."""

    __slots__ = (
        *("capabilities", "device_facts", "imports", "misfit", "module"),
        *("name", "owns", "placement", "remark", "snippet"),
    )

    def __init__(self, declared: Declaration) -> None:
        # Written out, because a plan begins with it.
        self.capabilities = declared.capabilities
        self.device_facts = declared.device_facts
        self.imports = declared.imports
        self.misfit = declared.misfit
        self.module = declared.module
        self.name = declared.name
        self.owns = declared.owns
        self.placement = declared.placement
        self.remark = declared.remark
        self.snippet = declared.snippet


def with_capabilities_frozen(declarations: Sequence[Declaration]) -> list[Declaration]:
    """The declarations with their capabilities now, one for each; equal ones stay the same object.

    Some backends ask their framework for its settings at each look, and a plan looks thirty times.

    >>> from tensorferry.backends.torch.declared import DECLARED
    >>> source, target = with_capabilities_frozen([DECLARED, DECLARED])
    >>> source is target, source.capabilities is DECLARED.capabilities
    (True, True)
    """
    frozen: dict[int, Any] = {}
    return [
        frozen.get(id(declaration)) or frozen.setdefault(id(declaration), _AsNow(declaration))
        for declaration in declarations
    ]


def caller_of(function: str, target: Declaration) -> Caller:
    """The call of a function with a target, for hints: with the dtypes that the target has now."""
    dtypes = target.capabilities.dtypes
    return Caller(function, target.name, dtypes.held, dtypes.absent_hint)
