"""Hostile files, built byte by byte: pickles that would run code, zip archives that lie, and bombs of both kinds.

Nothing here is dangerous to build. `code_pickles` would write a file, the canary, if
``pickle.loads`` read them.
"""

from __future__ import annotations

import struct
import zlib
from functools import cache

PROTO2, PROTO4 = b"\x80\x02", b"\x80\x04"
MARK, STOP, REDUCE, BUILD, PERSID = b"(", b".", b"R", b"b", b"Q"


def text(value):
    """BINUNICODE."""
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def short(value):
    """SHORT_BINUNICODE."""
    raw = value.encode()
    return b"\x8c" + bytes([len(raw)]) + raw


def number(value):
    """An integer."""
    if 0 <= value < 256:
        return b"K" + bytes([value])
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def named(module, name):
    """GLOBAL."""
    return f"c{module}\n{name}\n".encode()


def several(*values):
    """TUPLE."""
    return MARK + b"".join(values) + b"t"


EVIL = """
from pathlib import Path

class Evil:
    def __new__(cls, *arguments, **keywords):
        if arguments or keywords:
            Path(arguments[0] if arguments else keywords["path"]).touch()
        return object.__new__(cls)

    def __setstate__(self, state):
        Path(state).touch()

def touch(path):
    Path(path).touch()
    return {}

touch1 = touch2 = touch4 = touch
"""
"""The source of a module, ``evil``, whose class leaves a canary when it is made or given a state."""
EXTENSIONS = {1: 200, 2: 2_000, 4: 200_000}
"""Codes of ``evil.touch1`` and so on in the registry of `copyreg`, by the bytes of the opcode's argument."""


def code_pickles(canary):
    """Pickles by the route on which each would run code, and the name that a refusal has to mention.

    Args:
        canary: The file that they would make.
    """
    path = text(str(canary))
    touch, evil = named("evil", "touch"), named("evil", "Evil")
    calls = {
        "GLOBAL": (touch + path + b"\x85R", "evil.touch"),
        "STACK_GLOBAL": (short("evil") + short("touch") + b"\x93" + path + b"\x85R", "evil.touch"),
        "STACK_GLOBAL dotted": (
            short("evil") + short("Evil.__new__") + b"\x93" + evil + path + b"\x86R",
            "evil.Evil",
        ),
        "INST": (MARK + path + b"ievil\ntouch\n", "evil.touch"),
        "OBJ": (MARK + touch + path + b"o", "evil.touch"),
        "NEWOBJ": (evil + path + b"\x85\x81", "evil.Evil"),
        "NEWOBJ_EX": (evil + b")}" + text("path") + path + b"s\x92", "evil.Evil"),
        "REDUCE of a class": (evil + path + b"\x85R", "evil.Evil"),
        "BUILD": (evil + b")R" + path + BUILD, "evil.Evil"),
        "memoized": (touch + b"q\x00" + b"0" + b"h\x00" + path + b"\x85R", "evil.touch"),
        "copyreg._reconstructor": (
            named("copy_reg", "_reconstructor")
            + several(evil, named("__builtin__", "object"), b"N")
            + b"R"
            + path
            + BUILD,
            "evil.Evil",
        ),
        "copyreg.__newobj__": (
            named("copy_reg", "__newobj__") + several(evil, path) + b"R",
            "evil.Evil",
        ),
        "builtins.eval": (
            named("__builtin__", "eval")
            + text(f"__import__('pathlib').Path({str(canary)!r}).touch()")
            + b"\x85R",
            "builtins.eval",
        ),
        "builtins.map": (
            named("__builtin__", "list")
            + named("__builtin__", "map")
            + touch
            + b"("
            + path
            + b"l\x86R"
            + b"\x85R",
            "builtins.map",
        ),
        "posix.system": (
            named("posix", "system") + text(f"touch '{canary}'") + b"\x85R",
            "posix.system",
        ),
        "functools.partial": (
            named("functools", "partial") + touch + path + b"\x86R" + b")R",
            "functools.partial",
        ),
        "in a key": (b"}" + touch + path + b"\x85R" + b"0" + text("k") + b"Ns", "evil.touch"),
        "in a list": (b"](" + touch + path + b"\x85R" + b"e", "evil.touch"),
        "popped": (touch + path + b"\x85R0N", "evil.touch"),
        "hooks": (tensor(hooks=touch + path + b"\x85R"), "evil.touch"),
        "tensor of a class": (
            named("torch._tensor", "_rebuild_from_type_v2")
            + several(touch, evil, path + b"\x85", b"N")
            + b"R",
            "evil.touch",
        ),
        "state of an OrderedDict": (
            named("collections", "OrderedDict") + b")R}" + text("x") + touch + path + b"\x85Rsb",
            "evil.touch",
        ),
        "dtype of NumPy": (
            named("numpy", "dtype") + touch + path + b"\x85R" + b"\x85R",
            "evil.touch",
        ),
    }
    found = {}
    for route, (body, name) in calls.items():
        found[route] = ((PROTO4 if "dotted" in route else PROTO2) + body + STOP, name)
    for nbytes, code in EXTENSIONS.items():
        opcode = {1: b"\x82", 2: b"\x83", 4: b"\x84"}[nbytes]
        body = opcode + code.to_bytes(nbytes, "little") + path + b"\x85R"
        found[f"EXT{nbytes}"] = (PROTO2 + body + STOP, f"copyreg extension {code}")
    return found


def persistent_pickles(canary):
    """Pickles whose persistent ids are no storages, or ask for code while they are made."""
    path = text(str(canary))
    call = named("evil", "touch") + path + b"\x85R"
    storage = several(
        text("storage"), named("torch", "FloatStorage"), text("0"), text("cpu"), number(6)
    )
    return {
        "PERSID": (PROTO2 + b"P" + str(canary).encode() + b"\n" + STOP, "persistent id"),
        "BINPERSID of text": (PROTO2 + path + PERSID + STOP, "persistent id"),
        "BINPERSID of a call": (PROTO2 + call + PERSID + STOP, "evil.touch"),
        "BINPERSID of a module": (
            PROTO2 + several(text("module"), call, text("a"), text("b")) + PERSID + STOP,
            "evil.touch",
        ),
        "class of a storage": (
            PROTO2
            + several(text("storage"), named("evil", "Evil"), text("0"), text("cpu"), number(6))
            + PERSID
            + STOP,
            "evil.Evil",
        ),
        "BINPERSID of a BINPERSID": (PROTO2 + storage + PERSID + PERSID + STOP, "persistent id"),
    }


def tensor(
    storage=None,
    offset=0,
    size=(2, 3),
    stride=(3, 1),
    grad=b"\x89",
    hooks=None,
    kind="Float",
    key="0",
    numel=6,
):
    """The opcodes of a tensor of ``torch.save``; all of its numbers may lie."""
    if storage is None:
        storage = (
            several(
                text("storage"),
                named("torch", f"{kind}Storage"),
                text(key),
                text("cpu"),
                number(numel),
            )
            + PERSID
        )
    sizes = several(*(number(each) for each in size))
    strides = several(*(number(each) for each in stride))
    hooks = named("collections", "OrderedDict") + b")R" if hooks is None else hooks
    arguments = several(storage, number(offset), sizes, strides, grad, hooks)
    return named("torch._utils", "_rebuild_tensor_v2") + arguments + REDUCE


def state_dict(**tensors):
    """A pickle of a dict of tensors, from their opcodes."""
    return (
        PROTO2 + b"}(" + b"".join(text(name) + body for name, body in tensors.items()) + b"u" + STOP
    )


@cache
def bombs():
    """Small pickles that would take memory or time out of all proportion, by what they do."""
    lists = PROTO2 + b"]q\x00"
    for step in range(1, 30):
        lists += b"](" + b"h" + bytes([step - 1]) + b"h" + bytes([step - 1]) + b"eq" + bytes([step])
    doubled = PROTO2 + b")q\x00"
    for step in range(1, 60):
        doubled += b"h" + bytes([step - 1]) + b"h" + bytes([step - 1]) + b"\x86q" + bytes([step])
    # Every list so far stays on the stack: it is put into one.
    return {
        "lists that share": lists.replace(PROTO2, PROTO2 + MARK, 1) + b"l" + STOP,
        "key of doubled tuples": doubled.replace(PROTO2, PROTO2 + b"}", 1) + b"Ns" + b".",
        "key of deep tuples": PROTO2 + b"}" + b")" + b"\x85" * 600_000 + b"Ns" + STOP,
        "set of deep tuples": PROTO4 + b"\x8f(" + b")" + b"\x85" * 600_000 + b"\x90" + STOP,
        "deep lists": PROTO2 + b"]" * 100 + b"a" * 99 + STOP,
        "deeper lists": PROTO2 + b"]" * 600_000 + b"a" * 599_999 + STOP,
        "list in itself": PROTO2 + b"]q\x00h\x00a" + STOP,
        "marks": PROTO2 + MARK * 3_000_000 + STOP,
        "sets": PROTO4 + MARK + b"\x8f" * 6_000_000 + b"l" + STOP,
        "length of text": PROTO4 + b"\x8d" + struct.pack("<Q", 1 << 40) + b"abc" + STOP,
        "length of bytes": PROTO4 + b"\x8e" + struct.pack("<Q", 1 << 62) + b"abc" + STOP,
        "length of a bytearray": b"\x80\x05\x96" + struct.pack("<Q", (1 << 64) - 1) + b"abc" + STOP,
        "length of an integer": PROTO2 + b"\x8b" + struct.pack("<i", 1 << 30) + b"abc" + STOP,
        "negative length": PROTO2 + b"\x8b" + struct.pack("<i", -5) + b"abc" + STOP,
        "integer of digits": PROTO2 + b"L" + b"9" * 1_000_000 + b"L\n" + STOP,
        "frame": PROTO4 + b"\x95" + struct.pack("<Q", 1 << 50) + b"N" + STOP,
        "duplicates": PROTO2 + MARK + b"N" + b"2" * 21_000_000 + b"l" + STOP,
        "no end": PROTO2 + b"N" * 100,
        "empty": b"",
        "two values": PROTO2 + b"NN" + STOP,
        "no value": PROTO2 + STOP,
        "unknown opcode": PROTO2 + b"\xff" + STOP,
        "buffer": b"\x80\x05\x97" + STOP,
        "key that cannot be": PROTO2 + b"}" + b"]Ns" + STOP,
    }


def impossible_tensors():
    """Pickles of tensors that cannot be, over a storage of six floats, by what is wrong."""
    big = 1 << 62
    return {
        "past its storage": tensor(offset=1),
        "stride past its storage": tensor(stride=(4, 1)),
        "negative size": tensor(size=(-2, 3)),
        "negative stride": tensor(stride=(-3, 1)),
        "negative offset": tensor(offset=-1),
        "size that overflows": tensor(size=(big, big), stride=(0, 0)),
        "size that wraps to nothing": tensor(size=(1 << 32, 1 << 32), stride=(0, 0)),
        "stride that overflows": tensor(size=(2, 2), stride=(1 << 63, 1 << 63)),
        "offset that overflows": tensor(offset=1 << 64),
        "sizes without strides": tensor(stride=(1,)),
        "axes": tensor(size=(1,) * 65, stride=(1,) * 65),
        "element repeated": tensor(size=(1 << 40,), stride=(0,)),
        "storage longer than its member": tensor(size=(7,), stride=(1,), numel=7),
        "storage shorter than its member": tensor(size=(5,), stride=(1,), numel=5),
        "storage of no member": tensor(key="1"),
        "storage of a path": tensor(key="../../data.pkl"),
        "negative storage": tensor(numel=-6),
        "size of a float": tensor(size=()).replace(
            b"(t(t", b"(G" + struct.pack(">d", 2.0) + b"t(K\x01t"
        ),
        "two storages of one name": several(tensor(), tensor(kind="Int")),
    }


class Lies:
    """What a member of a zip archive says of itself that is not so; ``None``: the truth.

    Args:
        local: Fields that only its local header has otherwise, by name.
        fields: Fields that the directory has otherwise (and the local header too, but for
            ``offset``).
    """

    def __init__(self, local=None, **fields):
        self.local = local or {}
        self.fields = fields


def zip_bytes(
    members,
    *,
    extra=b"",
    count=None,
    directory_offset=None,
    directory_size=None,
    comment=b"",
    cut=None,
):
    """A zip archive of stored members.

    Args:
        members: Name, data and `Lies` of each, in order; a name may be there twice.
        extra: Bytes before the first member.
        count: The number of members that the end of the directory claims.
        directory_offset: Where it claims that the directory begins.
        directory_size: How long it claims that it is.
        comment: The archive's comment.
        cut: Leave off everything from this byte.
    """
    out = bytearray(extra)
    directory = bytearray()
    for name, data, lies in members:
        truth = {
            "name": name.encode(),
            "flags": 0,
            "method": 0,
            "crc": zlib.crc32(data),
            "packed": len(data),
            "size": len(data),
            "offset": len(out),
            "extra": b"",
        }
        said = {**truth, **lies.fields}
        here = {**said, **lies.local}
        out += struct.pack(
            "<IHHHHHIIIHH",
            0x04034B50,
            20,
            here["flags"],
            here["method"],
            0,
            33,
            here["crc"],
            here["packed"],
            here["size"],
            len(here["name"]),
            len(here["extra"]),
        )
        out += here["name"] + here["extra"] + data
        directory += struct.pack(
            "<IHHHHHHIIIHHHHHII",
            0x02014B50,
            20,
            20,
            said["flags"],
            said["method"],
            0,
            33,
            said["crc"],
            said["packed"],
            said["size"],
            len(said["name"]),
            len(said["extra"]),
            0,
            0,
            0,
            0,
            said["offset"],
        )
        directory += said["name"] + said["extra"]
    count = len(members) if count is None else count
    begin = len(out) if directory_offset is None else directory_offset
    size = len(directory) if directory_size is None else directory_size
    out += directory
    out += (
        struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, count, count, size, begin, len(comment))
        + comment
    )
    return bytes(out[:cut])


FLOATS = struct.pack("<6f", *range(6))
"""The bytes of the storage that `tensor` means."""


def torch_zip(pickle, members=(), **options):
    """A file of ``torch.save`` around a pickle, with one storage of six floats and more members (name, data, lies)."""
    lies = Lies()
    return zip_bytes(
        [
            ("archive/data.pkl", pickle, lies),
            ("archive/byteorder", b"little", lies),
            ("archive/data/0", FLOATS, lies),
            ("archive/version", b"3\n", lies),
            *members,
        ],
        **options,
    )
