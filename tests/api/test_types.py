"""The types that checkers are told are those of what the calls give: each line that they check is run as well."""

from __future__ import annotations

import ast
import collections.abc
import types
import typing
from functools import cache

import numpy as np
import pytest
from tests.support import ROOT

import tensorferry as ferry
import tensorferry.typing

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
pytest.importorskip("tensorflow")
for _library in ("pandas", "polars", "pyarrow"):
    pytest.importorskip(_library)

PATH = ROOT / "tests" / "typing" / "checked_and_run.py"
TREE = ast.parse(PATH.read_text(encoding="utf-8"))
ASSERTS = [
    node.value
    for node in TREE.body
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
]


@cache
def names():
    """The module's names: everything in it that is no assertion."""
    found = {}
    rest = [
        node
        for node in TREE.body
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
    ]
    exec(compile(ast.Module(rest, []), str(PATH), "exec"), found)  # noqa: S102 - our own file
    return found


def is_of(value, told):
    """Whether a value is of a type, in each of its parts.

    Nothing is taken for `Any`, which says nothing.
    """
    if told is typing.Any:
        return True
    origin, parts = typing.get_origin(told), typing.get_args(told)
    if origin in (typing.Union, types.UnionType):
        return any(is_of(value, each) for each in parts)
    if origin is tuple:
        return type(value) is tuple and len(value) == len(parts) and all(map(is_of, value, parts))
    if origin is list:
        return type(value) is list and all(is_of(each, parts[0]) for each in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            is_of(k, parts[0]) and is_of(v, parts[1]) for k, v in value.items()
        )
    if origin is collections.abc.Callable:
        return callable(value)
    return isinstance(value, origin or told)


@pytest.mark.parametrize("told", ASSERTS, ids=lambda node: ast.unparse(node.args[0])[:70])
def test_a_call_gives_what_checkers_are_told(told):
    """`make types` has mypy and pyright compare the same line with the declaration."""
    assert told.func.id == "assert_type"
    call, kind = (
        eval(compile(ast.Expression(part), str(PATH), "eval"), names())  # noqa: S307
        for part in told.args
    )
    assert is_of(call, kind), f"{type(call)} is no {kind}"


def test_a_type_that_lies_is_found():
    """What was told before: a tuple for a list, a parameter for a tensor, an array for a pair and for a list."""
    parameter = torch.nn.Parameter(torch.ones(1))
    assert not is_of(ferry.convert([1], like=(1,)), tuple[int])
    assert not is_of(ferry.convert([1.0], like=parameter), torch.nn.Parameter)
    assert not is_of(ferry.to_numpy([1, None], nulls="mask"), np.ndarray)
    assert not is_of(ferry.to_numpy([[1], [2, 3]], ragged="rows"), np.ndarray)
    assert not is_of(ferry.snapshot({"w": parameter}), dict[str, torch.nn.Parameter])


@pytest.mark.parametrize("word", ["NumpyName", "TorchName", "TensorflowName", "JaxName"])
def test_a_name_that_has_a_type_is_a_name(word):
    """Each literal, and each alias of the framework, is in the other."""
    from tensorferry.backends import registry

    told = set(typing.get_args(getattr(ferry.typing, word)))
    (name,) = {registry.canonical(each) for each in told}
    backend = registry.backend_named(name)
    assert told == {backend.name, *backend.aliases}
