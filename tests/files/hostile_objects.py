"""Hostile pickles that try what is read of objects: names that stand alone, rows of the table, and their arguments.

Each is built byte by byte, and says what becomes of it: the error and a part of its message, or the
tree.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

from tests.files.hostile import (
    BUILD,
    PERSID,
    PROTO2,
    PROTO4,
    REDUCE,
    STOP,
    named,
    number,
    several,
    short,
    tensor,
    text,
)

from tensorferry.errors import FileFormatError, UnsafeFileError

UNSAFE, WRONG = UnsafeFileError, FileFormatError
EVIL, TOUCH = named("evil", "Evil"), named("evil", "touch")
NDARRAY = named("numpy", "ndarray")


class Case(NamedTuple):
    """A pickle, the error that is due, and a regular expression of a part of its message."""

    data: bytes
    error: type[Exception]
    what: str


def long_text(value):
    """BINUNICODE8, of any length."""
    raw = value.encode("utf-8", "surrogatepass")
    return b"\x8d" + struct.pack("<Q", len(raw)) + raw


def called(module, name, *arguments):
    """REDUCE of a name with arguments."""
    return named(module, name) + several(*arguments) + REDUCE


def stacked(module, name):
    """STACK_GLOBAL with texts of any length."""
    return long_text(module) + long_text(name) + b"\x93"


def raw(value):
    """SHORT_BINBYTES."""
    return b"C" + bytes([len(value)]) + value


def doubled(begin, step, count):
    """A value that holds itself twice, again and again: each `step` has the one before, which is popped, twice."""
    body = begin + b"q\x00"
    for place in range(1, count):
        body += step(b"h" + bytes([place - 1])) + b"q" + bytes([place])
    return body


def placeholders(canary):
    """A name that stands alone, where it would be called, made, filled, looked up or hashed."""
    path = text(str(canary))
    stored = TOUCH + b"q\x01" + b"0"
    again = b"h\x01"
    class_again = EVIL + b"q\x02" + b"0h\x02"
    names_evil, names_touch = r"evil\.Evil", r"evil\.touch"
    ordered = named("collections", "OrderedDict")
    storage = several(text("storage"), EVIL, text("0"), text("cpu"), number(6)) + PERSID
    from_type = named("torch._tensor", "_rebuild_from_type_v2")
    size = several(number(6)), several(number(1))
    numpy_array = named("numpy._core.multiarray", "_reconstruct")
    return {
        "called through the memo": (stored + again + path + b"\x85R", UNSAFE, names_touch),
        "made through the memo": (class_again + path + b"\x85\x81", UNSAFE, names_evil),
        "made with keywords": (
            class_again + b")}" + text("path") + path + b"s\x92",
            UNSAFE,
            names_evil,
        ),
        "made by OBJ": (b"(" + class_again + path + b"o", UNSAFE, names_evil),
        "made by INST": (b"(" + path + b"ievil\nEvil\n", UNSAFE, names_evil),
        "given a state": (EVIL + path + BUILD, UNSAFE, names_evil),
        "given a state through the memo": (
            class_again + path + BUILD + b"0h\x02",
            UNSAFE,
            names_evil,
        ),
        "given keys": (TOUCH + b"(" + text("a") + b"Nu", UNSAFE, names_touch),
        "given elements": (TOUCH + b"(NNe", UNSAFE, names_touch),
        "given elements of a set": (TOUCH + b"(N\x90", UNSAFE, names_touch),
        "a key": (b"}" + TOUCH + b"Ns", UNSAFE, rf"dict with a key.*{names_touch}"),
        "a part of a key": (b"}" + TOUCH + b"\x85Ns", UNSAFE, "dict with a key"),
        "an element of a set": (
            b"\x8f(" + TOUCH + b"\x90",
            UNSAFE,
            rf"set with an element.*{names_touch}",
        ),
        "an element of a frozenset": (
            b"(" + TOUCH + b"\x91",
            UNSAFE,
            rf"set with an element.*{names_touch}",
        ),
        "an element of a list for a set": (
            called("__builtin__", "set", b"](" + TOUCH + b"e"),
            WRONG,
            "set of what are no plain values",
        ),
        "a key of pairs": (
            ordered + several(b"](" + several(TOUCH, b"N") + b"e") + REDUCE,
            WRONG,
            "dict of what are no pairs",
        ),
        "a factory": (called("collections", "defaultdict", TOUCH), UNSAFE, names_touch),
        "a factory that is partial": (
            called("collections", "defaultdict", called("functools", "partial", TOUCH, path)),
            UNSAFE,
            r"functools\.partial",
        ),
        "a persistent id": (TOUCH + PERSID, UNSAFE, "persistent id that is no storage"),
        "the class of a storage": (storage, UNSAFE, names_evil),
        "a storage": (
            called(
                "torch._utils",
                "_rebuild_tensor_v2",
                TOUCH,
                number(0),
                *size,
                b"\x89",
                ordered + b")R",
            ),
            UNSAFE,
            names_touch,
        ),
        "the hooks of a tensor": (tensor(hooks=TOUCH), UNSAFE, names_touch),
        "the function of a tensor's class": (
            from_type + several(TOUCH, named("torch", "Tensor"), path + b"\x85", b"N") + REDUCE,
            UNSAFE,
            names_touch,
        ),
        "the class of a tensor": (
            from_type
            + several(named("torch._utils", "_rebuild_tensor_v2"), EVIL, b")", path)
            + REDUCE,
            UNSAFE,
            names_evil,
        ),
        "the class of a tensor without memory": (
            called("torch._utils", "_rebuild_wrapper_subclass", EVIL, b"N"),
            UNSAFE,
            names_evil,
        ),
        "a parameter": (
            called("torch._utils", "_rebuild_parameter", EVIL, b"\x88", b")"),
            UNSAFE,
            names_evil,
        ),
        "a dtype": (called("numpy", "dtype", EVIL), UNSAFE, names_evil),
        "the class of an array": (
            numpy_array + several(EVIL, several(number(0)), text("b")) + REDUCE,
            UNSAFE,
            names_evil,
        ),
        "an object of protocol 0": (
            called("copy_reg", "_reconstructor", EVIL, named("__builtin__", "object"), b"N")
            + path
            + BUILD,
            UNSAFE,
            names_evil,
        ),
        "an object of a function of copyreg": (
            called("copy_reg", "__newobj__", *([named("copy_reg", "__newobj__")] * 1000)),
            WRONG,
            "what is no class",
        ),
        "an object with keywords of copyreg": (
            called("copy_reg", "__newobj_ex__", EVIL, b")", b"}" + text("path") + path + b"s"),
            UNSAFE,
            names_evil,
        ),
        "an attribute of a dict": (
            ordered + b")R}" + text("items") + TOUCH + b"sb",
            UNSAFE,
            "replaces",
        ),
        "an attribute for copies": (
            ordered + b")R}" + text("__deepcopy__") + text("x") + b"sb",
            UNSAFE,
            "replaces",
        ),
        "an attribute that is called": (
            ordered + b")R}" + text("x") + TOUCH + path + b"\x85Rsb",
            UNSAFE,
            names_touch,
        ),
        "a name that is called": (text("evil") + TOUCH + path + b"\x85R\x93", UNSAFE, names_touch),
        "a name that is a name": (text("evil") + TOUCH + b"\x93", WRONG, "damaged"),
        "a name through an attribute": (
            called("__builtin__", "getattr", EVIL, text("__new__")) + several(EVIL, path) + REDUCE,
            UNSAFE,
            r"builtins\.getattr",
        ),
        "a name of ten million characters": (
            stacked("evil", "x" * 10_000_000),
            UNSAFE,
            "10,000,004 characters",
        ),
        "a name of ten million bytes in a line": (
            b"cevil\n" + b"x" * 10_000_000 + b"\n",
            WRONG,
            "name without an end",
        ),
        "a name with control characters that is called": (
            stacked("evil", "a\x1b[2J\n\ud800") + path + b"\x85R",
            UNSAFE,
            r"evil\.a\\x1b\[2J\\n\\ud800",
        ),
    }


def rows(canary):
    """Rows of the table, with arguments that are wrong, huge, many, or hold themselves."""
    path = text(str(canary))
    getitem = named("_operator", "getitem")
    jax = named("jax._src.array", "_reconstruct_array")
    state = several(number(1), b")", b"N", b"\x89", b"N")
    kept = b"}" + text("weak_type") + b"\x89s"
    uuid = named("uuid", "UUID") + b")\x81"
    many = (
        text("part")
        + b"q\x00"
        + b"0"
        + named("pathlib", "PosixPath")
        + b"("
        + b"h\x00" * 1_000_000
        + b"tR"
    )
    long = (
        text("x" * 20_000)
        + b"q\x00"
        + b"0"
        + named("pathlib", "PosixPath")
        + b"("
        + b"h\x00" * 9
        + b"tR"
    )
    pair = (
        named("typing", "Dict")
        + b"q\x20"
        + b"0"
        + getitem
        + b"q\x21"
        + b"0"
        + named("__builtin__", "int")
    )
    union = named("_functools", "reduce")
    or_ = named("_operator", "or_")
    namespace = named("argparse", "Namespace") + b")\x81"
    moment = bytes([0x07, 0xE4, 13, 40, 25, 61, 61, 0, 0, 0])
    deltas = [
        called("datetime", "timedelta", number(days), number(0), number(0)) for days in (2, 1 << 40)
    ]
    return {
        "range without a step": (
            called("__builtin__", "range", number(1), number(2), number(0)),
            WRONG,
            "step is 0",
        ),
        "range of texts": (called("__builtin__", "range", text("a")), UNSAFE, r"builtins\.range"),
        "Decimal of no number": (called("decimal", "Decimal", text("1.2.3")), WRONG, "no number"),
        "Decimal of a million digits": (
            called("decimal", "Decimal", text("1" * 1_000_000)),
            UNSAFE,
            "1,000,000 digits",
        ),
        "Decimal of a tuple": (called("decimal", "Decimal", b")"), UNSAFE, r"decimal\.Decimal"),
        "Fraction of nothing": (
            called("fractions", "Fraction", number(1), number(0)),
            WRONG,
            "Fraction",
        ),
        "Fraction of text of nothing": (
            called("fractions", "Fraction", text("1/0")),
            WRONG,
            "Fraction",
        ),
        "Fraction of a million digits": (
            called("fractions", "Fraction", text("1" * 1_000_000)),
            WRONG,
            "Fraction",
        ),
        "timedelta that overflows": (deltas[1], WRONG, "damaged"),
        "timedelta of texts": (
            called("datetime", "timedelta", text("a")),
            UNSAFE,
            r"datetime\.timedelta",
        ),
        "datetime of no date": (called("datetime", "datetime", raw(moment)), WRONG, "damaged"),
        "datetime of nine bytes": (
            called("datetime", "datetime", raw(moment[:9])),
            UNSAFE,
            r"datetime\.datetime",
        ),
        "datetime in a zone of a class": (
            called("datetime", "datetime", raw(moment), EVIL + b")R"),
            UNSAFE,
            r"evil\.Evil",
        ),
        "date of the year 0": (
            called("datetime", "date", raw(bytes([0, 0, 1, 1]))),
            WRONG,
            "damaged",
        ),
        "time of 99 hours": (
            called("datetime", "time", raw(bytes([99, 0, 0, 0, 0, 0]))),
            WRONG,
            "damaged",
        ),
        "zone of two days": (called("datetime", "timezone", deltas[0]), WRONG, "damaged"),
        "zone of a number": (
            called("datetime", "timezone", number(3)),
            UNSAFE,
            r"datetime\.timezone",
        ),
        "path of a million parts": (many, UNSAFE, r"pathlib\.PosixPath"),
        "path of 180,000 characters": (long, UNSAFE, "path of more than"),
        "path of numbers": (
            called("pathlib", "PosixPath", number(1)),
            UNSAFE,
            r"pathlib\.PosixPath",
        ),
        "path as a key": (
            b"}" + called("pathlib", "PosixPath", text("a")) + b"Ns",
            UNSAFE,
            r"pathlib\.PosixPath",
        ),
        "UUID that is negative": (
            uuid + b"}" + text("int") + number(-1) + b"sb",
            WRONG,
            "128 bits",
        ),
        "UUID of 129 bits": (
            uuid + b"}" + text("int") + number(1 << 128) + b"sb",
            WRONG,
            "128 bits",
        ),
        "UUID with more": (uuid + b"}" + text("x") + number(1) + b"sb", WRONG, "128 bits"),
        "UUID without a state": (uuid, WRONG, r"uuid\.UUID without a state"),
        "UUID with two states": (
            uuid + (b"}" + text("int") + number(1) + b"sb") * 2,
            UNSAFE,
            r"state of uuid\.UUID",
        ),
        "UUID of arguments": (called("uuid", "UUID", text("0" * 32)), UNSAFE, r"uuid\.UUID"),
        "slices in slices": (
            called(
                "__builtin__", "slice", called("__builtin__", "slice", b"N", b"N", b"N"), b"N", b"N"
            ),
            UNSAFE,
            r"builtins\.slice",
        ),
        "Namespace of arguments": (
            called("argparse", "Namespace", path),
            UNSAFE,
            r"argparse\.Namespace",
        ),
        "Namespace in itself": (
            namespace + b"q\x00}" + text("self") + b"h\x00sb",
            UNSAFE,
            "64 levels",
        ),
        "Namespace with two states": (namespace + b"}b}b", WRONG, "twice"),
        "Namespace with a list as key": (namespace + b"(" + b"]Nu", UNSAFE, "no plain value"),
        "object in itself": (
            EVIL + b")\x81q\x00}" + text("self") + b"h\x00sb",
            UNSAFE,
            r"evil\.Evil",
        ),
        "Counter of a list": (
            called("collections", "Counter", b"]"),
            UNSAFE,
            r"collections\.Counter",
        ),
        "deque of a text": (
            called("collections", "deque", text("a")),
            UNSAFE,
            r"collections\.deque",
        ),
        "type that is made": (
            called("__builtin__", "type", text("X"), b")", b"}"),
            UNSAFE,
            r"builtins\.type",
        ),
        "type of a class": (called("__builtin__", "type", EVIL), UNSAFE, r"builtins\.type"),
        "int of a text": (
            called("__builtin__", "int", text("1" * 100_000)),
            UNSAFE,
            r"builtins\.int",
        ),
        "JAX with another function": (
            jax + several(TOUCH, path + b"\x85", state, kept) + REDUCE,
            UNSAFE,
            r"evil\.touch",
        ),
        "JAX with a function of the table": (
            jax + several(named("_codecs", "encode"), path + b"\x85", state, kept) + REDUCE,
            UNSAFE,
            r"jax\._src\.array\._reconstruct_array",
        ),
        "JAX without a state": (
            jax
            + several(named("numpy._core.multiarray", "_reconstruct"), b")", b")", kept)
            + REDUCE,
            UNSAFE,
            r"jax\._src",
        ),
        "JAX of a state that lies": (
            jax
            + several(
                named("numpy._core.multiarray", "_reconstruct"),
                several(NDARRAY, several(number(0)), text("b")),
                several(
                    number(1),
                    several(number(9)),
                    called("numpy", "dtype", text("f4")),
                    b"\x89",
                    raw(b"abcd"),
                ),
                kept,
            )
            + REDUCE,
            WRONG,
            "do not fit",
        ),
        "item of a dict": (
            getitem + several(b"}", text("a")) + REDUCE,
            UNSAFE,
            r"_operator\.getitem",
        ),
        "item of a class": (
            getitem + several(EVIL, text("a")) + REDUCE,
            UNSAFE,
            r"_operator\.getitem",
        ),
        "type of a type, doubled": (
            pair + doubled(b"", lambda last: b"h\x21h\x20" + last + last + b"\x86\x86R", 30),
            UNSAFE,
            "1,000 characters",
        ),
        "type of a million types": (
            getitem + named("typing", "Union") + b"(" + b"N" * 1_000_000 + b"t\x86R",
            UNSAFE,
            r"_operator\.getitem",
        ),
        "reduce with another function": (
            union + several(TOUCH, several(path, path)) + REDUCE,
            UNSAFE,
            r"_functools\.reduce",
        ),
        "reduce of numbers": (
            union + several(or_, several(number(1), number(2))) + REDUCE,
            UNSAFE,
            r"_functools\.reduce",
        ),
        "operator that is called": (
            or_ + several(number(1), number(2)) + REDUCE,
            UNSAFE,
            r"_operator\.or_",
        ),
    }


@cache
def bombs():
    """A large value that a few bytes copy again and again."""
    items = b"](" + b"N" * 1_000_000 + b"eq\x00"
    numbers = (
        b"](" + b"".join(struct.pack("<BI", 0x4A, place) for place in range(500_000)) + b"eq\x00"
    )
    pairs = b"](" + b")\x86".replace(b")", b"NN") * 300_000 + b"eq\x00"
    words = text("x" * 50_000_000) + b"q\x00"
    parts = text("x" * 90_000) + b"q\x00"
    repeated = {
        "deques": (items, named("collections", "deque")),
        "sets": (numbers, named("__builtin__", "set")),
        "ordered dicts": (pairs, named("collections", "OrderedDict")),
        "encoded texts": (words, named("_codecs", "encode")),
        "paths": (parts, named("pathlib", "PosixPath")),
    }
    found = {}
    for name, (large, function) in repeated.items():
        calls = b"h\x01h\x02R" * 100_000
        begin = large + b"\x85q\x02" + function + b"q\x01"
        found[name] = PROTO2 + b"(" + begin + calls + b"l" + STOP
    return found


LARGE = b"\x8b" + struct.pack("<i", 1_000) + b"\x7f" * 1_000
"""An integer of 8,000 bits: the time for its text grows with the square of its length."""


def used_again(count):
    """Values and keys that are in the memo, each used so many times, by what takes memory or time.

    A name of a tensor has all keys that lead to it, and a file of another format has a value once
    for each use.
    """
    long = long_text("x" * 1_000_000)
    path = called("pathlib", "PosixPath", long_text("x" * 90_000))
    scalar = called(
        "numpy.core.multiarray",
        "scalar",
        called("numpy", "dtype", text("S900000"), number(0), number(1)),
        b"\x8e" + struct.pack("<Q", 900_000) + b"b" * 900_000,
    )
    nested = b")"
    for place in range(4):
        nested = (nested if place else b"N") + b"q\x00" + b"0(" + b"h\x00" * 16 + b"t"
    values = {
        "text": long,
        "bytes": b"\x8e" + struct.pack("<Q", 1_000_000) + b"b" * 1_000_000,
        "path": path,
        "set": b"\x8f(" + long + b"\x90",
        "text of NumPy": scalar,
        "large integer": LARGE,
    }
    uses = b"h\x00" * count
    many = {f"values: {name}": made + b"q\x000(" + uses + b"l" for name, made in values.items()}
    keys = {"text": long, "large integer": LARGE}
    many |= {
        f"keys: {name}": key + b"q\x000(" + b"}h\x00Ns" * count + b"l" for name, key in keys.items()
    }
    many |= {
        f"keys over tensors: {name}": tensor() + b"q\x000}" + key + b"(" + uses + b"ls"
        for name, key in keys.items()
    }
    many["large keys in large keys over tensors"] = (
        tensor() + b"q\x000" + LARGE + b"q\x010" + b"}h\x01" * 50 + b"(" + uses + b"l" + b"s" * 50
    )
    many["key of many elements"] = nested + b"q\x000}(" + b"h\x00N" * count + b"u"
    calls = {
        "Fraction": named("fractions", "Fraction")
        + b"q\x010"
        + b"("
        + b"h\x01h\x00h\x02\x86R" * count,
        "range": named("__builtin__", "range") + b"q\x010(" + b"h\x01h\x00\x85R" * count,
        "slice": named("__builtin__", "slice") + b"q\x010(" + b"h\x01h\x00NN\x87R" * count,
    }
    other = LARGE[:-1] + b"\x7e"
    for name, made in calls.items():
        many[f"text of a {name}"] = LARGE + b"q\x00" + other + b"q\x0200" + made + b"l"
    return {name: PROTO4 + body + STOP for name, body in many.items()}


@cache
def cases(canary):
    """All, by what they try."""
    found = {**placeholders(canary), **rows(canary)}
    return {
        name: Case(PROTO4 + body + STOP, error, what) for name, (body, error, what) in found.items()
    }


__all__ = ["Case", "bombs", "cases", "long_text", "placeholders", "rows", "short", "stacked"]
__all__ += ["used_again"]
