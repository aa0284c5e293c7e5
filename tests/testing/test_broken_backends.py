"""A suite must be able to fail: real backends, each broken in one way, are caught by the conformance suite.

Every mutant is caught twice: with the verifying mode on, and by the suite's own eyes alone, with
the check of `tensorferry.execution.run` taken out. That the same cells pass without the mutant is
asserted too.
"""

from __future__ import annotations

import contextlib

import ml_dtypes
import numpy as np
import pytest

from tensorferry import testing
from tensorferry.backends import fast_paths, registry
from tensorferry.execution import recipes, run
from tensorferry.host import memory

MUTANTS = {}


def mutant(source, target, *, about=None):
    """Register a mutant: a function that patches a backend, and between whom it must be noticed."""

    def add(function):
        MUTANTS[function.__name__] = (function, source, target, about)
        return function

    return add


def backend(name):
    return registry.ready(name)


def as_bits(array):
    """The same memory as unsigned integers."""
    return array.view(f"u{array.itemsize}")


def has(array, kinds):
    return array.dtype.kind in kinds and array.size and array.dtype.isnative


def redeclare(monkeypatch, name, group, **changes):
    """A backend that declares something else than what it can do."""
    found = backend(name)
    declared = found.capabilities._replace(
        **{group: getattr(found.capabilities, group)._replace(**changes)}
    )
    monkeypatch.setattr(type(found), "capabilities", declared)


# -- a silent copy, a silent alias --------------------------------------------------------------


@mutant("numpy", "torch")
def torch_adopts_a_copy(monkeypatch):
    """Memory that should be shared is copied without a word."""
    true = backend("torch").adopt
    monkeypatch.setattr(backend("torch"), "adopt", lambda array: true(array.copy()))


@mutant("numpy", "jax")
def jax_adopts_a_copy(monkeypatch):
    """The same in a framework whose memory must be 64-byte aligned."""
    true = backend("jax").adopt
    monkeypatch.setattr(backend("jax"), "adopt", lambda array: true(backend("numpy").copy(array)))


@mutant("tensorflow", "numpy")
def tensorflow_exports_a_copy(monkeypatch):
    """What comes out of a framework is a copy."""
    monkeypatch.setattr(backend("tensorflow"), "export", np.array)


@mutant("numpy", "torch", about="address")
def the_copy_is_an_alias(monkeypatch):
    """copy=True gives the same memory again."""
    monkeypatch.setattr(backend("numpy"), "copy", lambda x, *_: x)


@mutant("torch", "torch")
def torch_clones_nothing(monkeypatch):
    """Within one framework, copy=True of a leaf gives a view."""
    monkeypatch.setattr(backend("torch"), "copy", lambda x: x.view_as(x))


# -- layout -------------------------------------------------------------------------------------


@mutant("torch", "numpy", about="values")
def torch_exports_wrong_strides(monkeypatch):
    """Every row is the first one."""
    true = backend("torch").export

    def export(x):
        array = true(x)
        if array.ndim < 2:
            return array
        return np.lib.stride_tricks.as_strided(array, strides=(0, *array.strides[1:]))

    monkeypatch.setattr(backend("torch"), "export", export)


@mutant("numpy", "torch", about="values")
def torch_reads_rows_backwards(monkeypatch):
    """A copy has the right shape and the elements of the wrong places."""
    true = backend("numpy").copy
    monkeypatch.setattr(
        backend("numpy"), "copy", lambda x, *rest: true(x[::-1] if x.ndim else x, *rest)
    )


@mutant("numpy", "jax")
def a_shape_loses_its_axes(monkeypatch):
    """Axes of length 1 are squeezed away."""
    true = backend("jax").adopt
    monkeypatch.setattr(backend("jax"), "adopt", lambda array: true(array.squeeze()))


@mutant("jax", "numpy")
def a_shape_of_no_axes_gets_one(monkeypatch):
    """A 0-d array comes as one of length 1."""
    true = backend("jax").export
    monkeypatch.setattr(backend("jax"), "export", lambda x: np.atleast_1d(true(x)))


@mutant("numpy", "numpy", about="values")
def bytes_are_not_swapped(monkeypatch):
    """Big-endian bytes are taken for native ones."""
    true = backend("numpy").copy

    def copy(x, *rest):
        return true(x if x.dtype.isnative else x.view(x.dtype.newbyteorder("=")), *rest)

    monkeypatch.setattr(backend("numpy"), "copy", copy)


# -- dtype --------------------------------------------------------------------------------------


@mutant("numpy", "torch")
def uint8_becomes_int8(monkeypatch):
    """The bytes are right, and their meaning is another."""
    true = backend("torch").adopt
    monkeypatch.setattr(
        backend("torch"),
        "adopt",
        lambda array: true(array.view("int8") if array.dtype == "uint8" else array),
    )


@mutant("torch", "numpy")
def bfloat16_comes_as_float32(monkeypatch):
    """A dtype is widened on the way, exactly, and yet it is not the source's."""
    true = backend("torch").export

    def export(x):
        array = true(x)
        return array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array

    monkeypatch.setattr(backend("torch"), "export", export)


@mutant("numpy", "tensorflow")
def float8_is_taken_for_its_sibling(monkeypatch):
    """One 8-bit float is taken for another of the same width."""
    true = backend("tensorflow").adopt

    def adopt(array):
        return true(
            array.view(ml_dtypes.float8_e5m2) if array.dtype == ml_dtypes.float8_e4m3fn else array
        )

    monkeypatch.setattr(backend("tensorflow"), "adopt", adopt)


# -- values -------------------------------------------------------------------------------------


@mutant("torch", "numpy", about="values")
def the_negative_bit_is_dropped(monkeypatch):
    """Memory is given with the sign that the lazy bit should have flipped."""
    import torch

    monkeypatch.setattr(
        backend("torch"),
        "resolve",
        lambda x: (torch._neg_view(x) if x.is_neg() else x.resolve_conj()).clone(),
    )


@mutant("torch", "jax", about="values")
def the_conjugate_bit_is_dropped(monkeypatch):
    """The same for conjugates."""
    monkeypatch.setattr(
        backend("torch"),
        "resolve",
        lambda x: (x.conj() if x.is_conj() else x).resolve_neg().clone(),
    )


@mutant("numpy", "torch", about="values")
def minus_zero_loses_its_sign(monkeypatch):
    """A copy that goes through arithmetic: -0.0 + 0.0 is 0.0."""
    true = backend("numpy").copy
    monkeypatch.setattr(
        backend("numpy"), "copy", lambda x, *rest: true(x + 0 if has(x, "fc") else x, *rest)
    )


@mutant("numpy", "jax", about="values")
def the_payload_of_a_nan_is_dropped(monkeypatch):
    """Every NaN becomes the same one."""
    true = backend("numpy").copy

    def copy(x, *rest):
        result = true(x, *rest)
        if has(result, "f"):
            result[np.isnan(result)] = np.nan
        return result

    monkeypatch.setattr(backend("numpy"), "copy", copy)


@mutant("numpy", "tensorflow", about="values")
def a_signalling_nan_becomes_quiet(monkeypatch):
    """One bit of a NaN is set, as an operation of the processor does."""
    true = backend("numpy").copy

    def copy(x, *rest):
        result = true(x, *rest)
        if has(result, "f") and result.dtype == np.float32:
            bits = as_bits(result)
            bits[np.isnan(result)] |= np.uint32(1 << 22)
        return result

    monkeypatch.setattr(backend("numpy"), "copy", copy)


@mutant("numpy", "torch", about="values")
def subnormals_are_flushed(monkeypatch):
    """What is smaller than the smallest normal number becomes zero."""
    true = backend("numpy").copy

    def copy(x, *rest):
        result = true(x, *rest)
        if has(result, "f"):
            result[np.abs(result) < np.finfo(result.dtype).tiny] = 0
        return result

    monkeypatch.setattr(backend("numpy"), "copy", copy)


@mutant("numpy", "python", about="values")
def a_list_goes_through_float32(monkeypatch):
    """float64 loses half its digits on its way into a list."""
    true = backend("python").adopt

    def adopt(array):
        with np.errstate(all="ignore"):
            return true(array.astype(np.float32) if array.dtype == np.float64 else array)

    monkeypatch.setattr(backend("python"), "adopt", adopt)


@mutant("numpy", "numpy", about="values")
def the_last_element_is_forgotten(monkeypatch):
    """One element in twenty-four is wrong."""
    true = backend("numpy").copy

    def copy(x, *rest):
        result = true(x, *rest)
        if result.size:
            result[(-1,) * result.ndim] = result[(0,) * result.ndim]
        return result

    monkeypatch.setattr(backend("numpy"), "copy", copy)


# -- harm to the source -------------------------------------------------------------------------


@mutant("numpy", "jax", about="source")
def the_source_is_written(monkeypatch):
    """The copy is right, and the source is cleared afterwards."""
    true = backend("numpy").copy

    def copy(x, *rest):
        result = true(x, *rest)
        if x.flags.writeable:
            as_bits(x)[...] = 0
        return result

    def as_bits(x):
        return np.lib.stride_tricks.as_strided(x)

    monkeypatch.setattr(backend("numpy"), "copy", copy)


@mutant("torch", "numpy", about="source")
def the_source_leaves_its_graph(monkeypatch):
    """detach in place: the caller's own tensor no longer requires grad."""
    monkeypatch.setattr(
        backend("torch"), "detach", lambda x: x.detach_() if not x._is_view() else x.detach()
    )


@mutant("numpy", "torch", about="source")
def the_source_becomes_read_only(monkeypatch):
    """A flag of the caller's own array is changed."""

    def copy(x, *_):
        result = x.astype(x.dtype.newbyteorder("="), order="K", copy=True)
        x.flags.writeable = False
        return result

    monkeypatch.setattr(backend("numpy"), "copy", copy)


# -- what is said -------------------------------------------------------------------------------


@mutant("numpy", "torch")
def torch_lies_about_its_pointer(monkeypatch):
    """Shared memory is said to lie elsewhere."""
    true = backend("torch").pointer
    monkeypatch.setattr(backend("torch"), "pointer", lambda x: true(x) + (1 << 20))


@mutant("numpy", "jax")
def a_pointer_is_that_of_the_source(monkeypatch):
    """Separate memory is said to be the source's."""
    seen = []
    true = backend("numpy").pointer

    def remember(x):
        seen[:] = [true(x)]
        return seen[0]

    monkeypatch.setattr(backend("numpy"), "pointer", remember)
    monkeypatch.setattr(backend("jax"), "pointer", lambda x: seen[0])


@mutant("numpy", "jax")
def an_address_is_said_to_be_aligned(monkeypatch):
    """describe says 64-byte aligned of every address, so that the plan promises what cannot be."""
    true = backend("numpy").describe
    monkeypatch.setattr(backend("numpy"), "describe", lambda x: true(x)._replace(misalignment=0))


@mutant("numpy", "tensorflow")
def a_view_is_said_to_be_immutable(monkeypatch):
    """A read-only view of writable memory is shared with a constant."""
    true = backend("numpy").describe

    def describe(x):
        info = true(x)
        return info if info.writable else info._replace(mutable=False)

    monkeypatch.setattr(backend("numpy"), "describe", describe)


@mutant("torch", "numpy")
def a_gradient_is_not_seen(monkeypatch):
    """describe says that nothing requires grad."""
    true = backend("torch").describe
    monkeypatch.setattr(
        backend("torch"), "describe", lambda x: true(x)._replace(requires_grad=False)
    )


@mutant("torch", "numpy")
def a_lazy_bit_is_not_seen(monkeypatch):
    """describe says that no bit is set."""
    true = backend("torch").describe
    monkeypatch.setattr(
        backend("torch"), "describe", lambda x: true(x)._replace(conjugate=False, negative=False)
    )


@mutant("numpy", "torch")
def torch_declares_read_only_tensors(monkeypatch):
    """A capability that the framework does not have: immutable memory becomes writable by default."""
    redeclare(monkeypatch, "torch", "memory", read_only=True)


@mutant("numpy", "torch")
def torch_declares_any_strides(monkeypatch):
    """A capability that the framework does not have: negative strides."""
    redeclare(monkeypatch, "torch", "memory", strides="any")


@mutant("numpy", "jax")
def jax_declares_any_alignment(monkeypatch):
    """A capability that the framework does not have: it copies misaligned memory in silence."""
    redeclare(monkeypatch, "jax", "memory", alignment=1)


@mutant("numpy", "torch")
def torch_declares_a_dtype_too_many(monkeypatch):
    """A dtype that is declared and cannot be adopted."""
    redeclare(
        monkeypatch, "torch", "dtypes", held=backend("torch").capabilities.dtypes.held | {"int4"}
    )


# -- who may write ------------------------------------------------------------------------------


@mutant("jax", "numpy", about="writable")
def jax_memory_becomes_writable(monkeypatch):
    """A writable view of memory that must not change."""
    true = backend("jax").export

    def export(x):
        array = true(x)
        return array if array.flags.owndata or not array.size else memory.over(array)

    monkeypatch.setattr(backend("jax"), "export", export)


@mutant("tensorflow", "numpy", about="writable")
def tensorflow_memory_becomes_writable(monkeypatch):
    """The same for TensorFlow, whose own view is writable for some dtypes."""
    true = backend("tensorflow").export
    monkeypatch.setattr(
        backend("tensorflow"),
        "export",
        lambda x: memory.over(true(x)) if true(x).size else true(x),
    )


@mutant("torch", "numpy", about="writable")
def a_tensor_in_a_graph_becomes_writable(monkeypatch):
    """A view that bypasses autograd's version check."""
    monkeypatch.setattr(backend("numpy"), "read_only", lambda x: x)


@mutant("numpy", "numpy", about="writable")
def a_copy_cannot_be_written(monkeypatch):
    """copy=True gives memory of one's own that is read-only."""
    true = backend("numpy").copy

    def copy(x, *rest):
        result = true(x, *rest)
        result.flags.writeable = False
        return result

    monkeypatch.setattr(backend("numpy"), "copy", copy)


# -- errors -------------------------------------------------------------------------------------


@mutant("numpy", "torch", about="raises")
def a_framework_fails_in_its_own_words(monkeypatch):
    """An adoption that fails although the plan said that it works."""

    def adopt(array):
        raise TypeError("given numpy array has byte order different from the native byte order")

    monkeypatch.setattr(backend("torch"), "adopt", adopt)


@mutant("numpy", "jax", about="raises")
def a_warning_escapes(monkeypatch):
    """Something on the way warns; a warning is a finding."""
    true = backend("jax").adopt

    def adopt(array):
        np.float32(3e38) * np.float32(10)
        return true(array)

    monkeypatch.setattr(backend("jax"), "adopt", adopt)


# -- the hunt -----------------------------------------------------------------------------------


@contextlib.contextmanager
def broken(mutate, *, checked):
    """A backend broken for a while; without the verifying mode's check, if so asked."""
    recipes.forget_recipes()
    with pytest.MonkeyPatch.context() as monkeypatch:
        mutate(monkeypatch)
        if not checked:
            monkeypatch.setattr(run, "verify_result", lambda *_: None)
        yield
    recipes.forget_recipes()


def first_found(source, target, about):
    """The first group with a finding, and what was found in that cell."""
    for group in testing.groups():
        if (group.source, group.target) == (source, target):
            for outcome in testing.outcomes(group):
                seen = [each for each in outcome.findings if about in (None, each.about)]
                if seen:
                    return group, seen
    return None, []


@pytest.mark.parametrize("checked", [True, False], ids=["verifying", "suite alone"])
@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_caught(name, checked):
    """The conformance suite finds the mutant, and finds nothing in the same cells without it."""
    mutate, source, target, about = MUTANTS[name]
    backend(source), backend(target)
    with broken(mutate, checked=checked):
        # The verifying mode may be first to see it, and raises.
        group, found = first_found(source, target, None if checked else about)
    assert found, mutate.__doc__
    assert testing.check(group)


@pytest.mark.parametrize("target", ["numpy", "python"])
def test_a_broken_fast_path_is_caught(monkeypatch, target):
    """Only a call without keywords takes it: `groups(paths=True)` makes such calls, the other groups do not."""
    kind = type(testing.witness_for("torch").make("aligned", "float32").x)
    backend("torch"), backend(target)
    of_torch = fast_paths._by_backend["torch"]
    broken_paths = {**of_torch.paths, (kind, target): lambda x: "wrong"}
    monkeypatch.setitem(fast_paths._by_backend, "torch", of_torch._replace(paths=broken_paths))
    group = testing.Group("torch", "aligned", target)
    assert testing.check(group)
    with pytest.raises(testing.NonConformance, match="is not the right type"):
        testing.check(group._replace(paths=True))


def test_a_result_of_none_is_caught(monkeypatch):
    """It cannot be read, but it is no reason to skip the checks."""
    monkeypatch.setattr(testing.suite.api, "convert", lambda *_, **__: None)
    with pytest.raises(testing.NonConformance, match="convert returned None"):
        testing.check(testing.Group("numpy", "aligned", "numpy"))
