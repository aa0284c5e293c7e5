"""`Code` and `script`: the code for each step becomes the lines that a person would type; Python runs them."""

from __future__ import annotations

import ast
import copy
import itertools
import pickle
from contextlib import nullcontext

import pytest

import tensorferry as ferry
from tensorferry import TensorInfo
from tensorferry.backends.numpy.declared import DECLARED
from tensorferry.core.declaration import VALUE, Code, Declared, Details, VerbCall, code_of
from tensorferry.core.request import Request
from tensorferry.planning.plan import code_lines
from tensorferry.planning.planner import make_plan


class Counter:
    """Functions for lists, which count their calls."""

    def __init__(self):
        self.calls = 0

    def reversed(self, values):
        self.calls += 1
        return values[::-1]

    def joined(self, one, other):
        self.calls += 1
        return one + other


CODES = {
    "an expression": (Code(f"f.reversed({VALUE})"), lambda x: x[::-1]),
    "the value twice": (Code(f"f.joined({VALUE}, {VALUE})"), lambda x: x + x),
    "a statement": (Code(VALUE, ("y = f.joined(y, [7])",)), lambda x: [*x, 7]),
    "both": (Code(f"f.reversed({VALUE})", ("y.append(0)",)), lambda x: [*x[::-1], 0]),
    "a block": (Code(VALUE, ("with scope: y = f.reversed(y)",)), lambda x: x[::-1]),
    "a remark": (Code(f"f.reversed({VALUE})", remarks=("first;", "{x}")), lambda x: x[::-1]),
    "nothing": (Code(VALUE), lambda x: x),
}
"""Code, and a function that does the same."""
CALLS = {"nothing": 0}
"""How many functions each calls, if not one."""


def ran(lines, x):
    """What `y` is after the lines, and how many functions were called."""
    counter = Counter()
    names = {"x": x, "f": counter, "scope": nullcontext()}
    exec("\n".join(lines), names)  # noqa: S102 - that is what the code is for
    return names["y"], counter.calls


def test_code_is_made_when_somebody_reads_it():
    """A plan asks no framework for code until it is read, and then once for each step."""
    asked = []

    def snippet(call):
        asked.append(call.verb)
        return DECLARED.snippet(call)

    counted = Declared("numpy", DECLARED.capabilities, snippet, DECLARED.imports)
    request = Request("numpy", dtype="float64", copy=True)
    plan = make_plan(TensorInfo("numpy", (3,), "float32"), request, counted, counted, counted)
    assert plan.steps
    assert asked == []
    assert len(plan.code.splitlines()) == 1 + len(plan.imports)
    assert asked == [step.verb for step in plan.steps]
    assert all(step.code in str(plan) for step in plan.steps)
    assert plan == pickle.loads(pickle.dumps(plan)) == copy.deepcopy(plan)  # noqa: S301 - our own
    assert len({*plan.steps, *pickle.loads(pickle.dumps(plan.steps))}) == len(plan.steps)  # noqa: S301
    assert len(asked) == len(plan.steps)


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_the_lines_do_what_the_steps_do(length):
    """Any codes, one after the other: the value is what the functions give, and each is called once."""
    for chosen in itertools.product(CODES, repeat=length):
        x = expected = [1, 2]
        for name in chosen:
            expected = CODES[name][1](expected)
        calls = sum(CALLS.get(name, 1) for name in chosen)
        lines = code_lines(CODES[name][0] for name in chosen)
        assert ran(lines, x) == (expected, calls), lines
        assert x == [1, 2]


@pytest.mark.parametrize(("first", "second"), [*itertools.product(CODES, repeat=2)])
def test_two_codes_become_one(first, second):
    """It does the same as both, and its remarks are those of both, in this order."""
    (one, _), (other, _) = CODES[first], CODES[second]
    both = other.after(one)
    assert ran(code_lines([both]), [1, 2])[0] == ran(code_lines([one, other]), [1, 2])[0]
    assert both.remarks == one.remarks + other.remarks


@pytest.mark.parametrize("name", CODES)
def test_code_for_each_of_a_list(name):
    """A comprehension, or a loop, after other code and before it."""
    code, function = CODES[name]
    rows = [[1, 2], [3], []]
    before = Code(f"list({VALUE})")
    for codes in ([code.for_each()], [before, code.for_each()], [code.for_each(), before]):
        lines = code_lines(codes)
        assert ran(lines, rows)[0] == [function(list(row)) for row in rows], lines


def test_expressions_go_into_each_other():
    """A value has a name only where an expression cannot hold it."""
    one, twice = Code(f"np.asarray({VALUE})"), Code(f"both({VALUE}, {VALUE})")
    assert code_lines([]) == ["y = x"]
    assert code_lines([one, one]) == ["y = np.asarray(np.asarray(x))"]
    assert code_lines([twice]) == ["y = both(x, x)"]
    assert code_lines([one, twice]) == ["y = np.asarray(x)", "y = both(y, y)"]
    assert code_lines([Code(VALUE, ("write(y)", "y = out")), twice]) == [
        *("y = x", "write(y)", "y = out"),
        "y = both(y, y)",
    ]


def test_remarks_are_comments_before_their_code():
    """They stand above the line, also if the code goes into an expression."""
    codes = [Code(f"one({VALUE})", remarks=("of one",)), Code(f"two({VALUE})", remarks=("of two",))]
    assert code_lines(codes) == ["# of one", "# of two", "y = two(one(x))"]


def test_text_of_a_user_stays_as_it_is():
    """No text in an expression means anything: braces, semicolons, names."""
    text = "{x}; {y} = x\\n"
    code = Code(f"f({VALUE}, {text!r})")
    assert code_lines([code, code]) == [f"y = f(f(x, {text!r}), {text!r})"]
    assert str(code.of("x")) == f"f(x, {text!r})"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("jnp.asarray(x)", {"jnp"}),
        ("np.asarray(jnp.ones(2))", {"np", "jnp"}),
        ("x.np.y", set()),
        ("f(np.array)", {"np"}),
        ("[np.x]", {"np"}),
        ("npy.x + _np.x + np2.x", set()),
    ],
)
def test_code_mentions_a_module_by_its_whole_name(text, named):
    """`np.` in `jnp.` is no NumPy, and neither is an attribute of that name."""
    for code in (Code(text), Code("x", (text,))):
        assert {name for name in ("np", "jnp") if code.mentions(name)} == named


@pytest.mark.parametrize("copy", [None, True])
def test_a_plan_imports_what_its_code_names(copy):
    """Code with `jnp` alone does not import NumPy."""
    info = TensorInfo("jax", (2, 3), device="cuda:0")
    code = ferry.explain(info, "jax" if copy else "torch", copy=copy).code
    imported = {line.rpartition(" ")[2] for line in code.splitlines() if "import " in line}
    names = {each.id for each in ast.walk(ast.parse(code)) if isinstance(each, ast.Name)}
    assert imported == names - {"x", "y"}


def test_code_in_one_line():
    """The expression alone, or the assignment and what follows it."""
    assert str(Code(f"f({VALUE})").of("x")) == "f(x)"
    assert str(Code(VALUE, ("g(y)", "y = out")).of("x")) == "g(y); y = out"
    assert str(Code(f"f({VALUE})", ("g(y)",)).of("x")) == "y = f(x); g(y)"


def test_the_mark_for_the_value_is_in_no_code_of_python():
    """So it is never a part of what somebody writes: Python refuses it, and shows it otherwise."""
    with pytest.raises((SyntaxError, ValueError)):
        compile(f"'{VALUE}'", "code", "eval")
    assert VALUE not in repr(f"a {VALUE}")


class Mine:
    """A backend as somebody else writes it."""

    def __init__(self, given):
        self.given = given

    def snippet(self, call):
        return self.given(call)


def test_a_text_is_an_expression():
    """A backend gives a text or a `Code`, and gets what was asked for with names."""
    info = TensorInfo("numpy", (2,))
    call = VerbCall("adopt", (), info, VALUE, Details(newly_allocated=True))
    assert code_of(Mine(lambda call: f"{call.verb}({call.x})"), call) == Code(f"adopt({VALUE})")
    code = Code(VALUE, ("y = 1",), ("a remark",))
    assert code_of(Mine(lambda _: code), call) is code
    assert code_of(Mine(lambda call: str(call.details.newly_allocated)), call) == Code("True")
    assert VerbCall("detach", (), info).x == "x"


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_code_of_a_list_of_tensors_of_tensorflow(dtype):
    """An array of bfloat16 has to be made read-only, which is no expression: a loop does it."""
    tf = pytest.importorskip("tensorflow")
    x = [tf.constant([1, 2, 3], dtype), tf.constant([4, 5, 6], dtype)]
    names = {"x": x}
    exec(ferry.explain(x, "numpy").code, names)  # noqa: S102 - that is what the code is for
    assert str(names["y"].dtype) == dtype
    assert names["y"].tolist() == [[1, 2, 3], [4, 5, 6]]
