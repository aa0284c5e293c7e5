"""A machine that runs a pickle's program safely: it calls and imports nothing, and makes no object.

It knows the opcodes that data needs (all are described in
https://github.com/python/cpython/blob/main/Lib/pickletools.py) and refuses the others by name. A
call that a pickle asks for goes to a `Vocabulary`, as a name and arguments.

`pickle.Unpickler` is not safe, even with another ``find_class``: it hashes keys of any depth (which
may end the process or never return), a few bytes can make its memo arbitrarily large, and it sets
attributes of the objects that it finds.
"""

from __future__ import annotations

from codecs import escape_decode
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...errors import FileFormatError, UnsafeFileError

if TYPE_CHECKING:
    from collections.abc import Callable
    from mmap import mmap

    from ..base.nesting import Keys

__all__ = [
    "LINE",
    "MOST_BYTES",
    "MOST_STEPS",
    "Global",
    "Machine",
    "Ordered",
    "Tape",
    "UnreadBytes",
    "Vocabulary",
    "integer_of",
    "modern",
    "text_of",
]

_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}
_NAMES = {
    "__builtin__.long": "builtins.int",
    "__builtin__.unicode": "builtins.str",
    "__builtin__.xrange": "builtins.range",
    "__builtin__.reduce": "functools.reduce",
}
"""Names in protocols below 3.

See https://docs.python.org/3/library/pickle.html#pickle.Pickler (fix_imports).
"""


def modern(module: str, name: str) -> str:
    """The name in Python 3, with the module, of a class or function in a pickle."""
    return _NAMES.get(f"{module}.{name}") or f"{_MODULES.get(module, module)}.{name}"


class Global(NamedTuple):
    """The name of a class or function in a pickle."""

    name: str


class Ordered(dict[Any, Any]):
    """An ``OrderedDict`` of a pickle, or a ``defaultdict``.

    Args:
        factory: The name of the default factory; ``None`` for an ``OrderedDict``.
    """

    __slots__ = ("attributes", "factory")

    def __init__(self, factory: str | None = None) -> None:
        super().__init__()
        self.attributes: Any = None
        self.factory = factory


class UnreadBytes(NamedTuple):
    """Bytes of a pickle that are not read into memory, because there may be many.

    Args:
        start: The position of the first.
        nbytes: The number of bytes.
        kind: ``bytes`` or ``bytearray``.
    """

    start: int
    nbytes: int
    kind: type


class Vocabulary(Protocol):
    """Defines the meaning of a pickle's names.

    Its methods raise `UnsafeFileError` for everything that they refuse.
    """

    def find(self, name: str) -> Any:
        """The stand-in for a global, mostly a `Global`."""

    def call(self, function: Any, arguments: Any, keywords: Any = None) -> Any:
        """The stand-in for the result of a call (REDUCE, NEWOBJ, NEWOBJ_EX)."""

    def build(self, instance: Any, state: Any) -> Any:
        """The stand-in after its state was set (BUILD)."""

    def load(self, key: Any) -> Any:
        """The stand-in for a persistent id."""

    keys: Keys
    """Decides which keys dicts may have."""

    machine: Any
    """The machine that runs the pickle, if bytes may be left in the file."""

    span_from: int
    """From this size on, bytes are left in the file, as `UnreadBytes`."""

    def fill(self, instance: Any, values: list[Any]) -> None:
        """Add items to a stand-in that is not a list or set (APPENDS, ADDITEMS)."""

    def put(self, instance: Any, values: list[Any]) -> None:
        """Add keys and values, in turn, to a stand-in that is not a dict (SETITEMS)."""

    def refuse(self, demand: str) -> Any:
        """Note what data does not need, and what makes the whole pickle unsafe."""

    def odd(self, key: Any) -> str:
        """What a key is that no dict may have, for messages."""
        ...  # for pyright, which otherwise takes it for a function that returns None


MOST_BYTES = 128 << 20
"""The most bytes of a pickle that are read into memory."""
LINE = 1_000
"""The most bytes of a line. From this size on, sizes are checked against the length of the file."""


class Tape:
    """The input of a machine.

    Args:
        data: Bytes that contain the pickle.
        where: The file, for messages.
        begin: The position of the pickle in `data`.
    """

    def __init__(self, data: bytes | mmap, where: str, begin: int) -> None:
        self.data = data
        self.where = where
        self.begin = self.at = begin
        self.left = 0

    def bomb(self, what: str) -> UnsafeFileError:
        """The error for a pickle that needs too much memory or time."""
        return UnsafeFileError(f"{self.where}: its pickle {what}, out of all proportion.")

    def take(self, nbytes: int) -> bytes:
        """Read the next bytes."""
        start = self.at
        self.at = end = start + nbytes
        if nbytes > LINE or end > len(self.data):
            self.reach(start, nbytes)
        return self.data[start:end]

    def leave(self, nbytes: int) -> int:
        """Skip bytes, which stay in the file; gives the position of the first."""
        start = self.at
        if start + nbytes > len(self.data):
            self.reach(start, nbytes)
        self.at += nbytes
        self.left += nbytes
        return start

    def take_left(self, span: UnreadBytes) -> bytes:
        """Read bytes that were skipped."""
        self.left -= span.nbytes
        self.weigh(self.at)
        return self.data[span.start : span.start + span.nbytes]

    def reach(self, start: int, nbytes: int) -> None:
        """Raise if a read would go past the end, or take too much memory."""
        if start + nbytes > len(self.data):
            raise FileFormatError(
                f"{self.where}: its pickle is cut off: {nbytes:,} bytes at {start:,} reach past "
                f"its {len(self.data):,}."
            )
        self.weigh(start + nbytes)

    def weigh(self, end: int) -> None:
        """Raise if more is in memory than a pickle of data up to this position needs."""
        if end - self.begin - self.left > MOST_BYTES:
            raise self.bomb(f"has more than {MOST_BYTES:,} bytes beside those of arrays")

    def line(self, encoding: str = "utf-8", most: int = LINE) -> str:
        """Read the next line, without its end."""
        end = self.data.find(b"\n", self.at, self.at + most)
        if end < 0:
            raise FileFormatError(
                f"{self.where}: its pickle has a name without an end at byte {self.at}."
            )
        start, self.at = self.at, end + 1
        return self.data[start:end].decode(encoding)

    def unpack(self, kind: Struct) -> Any:
        """Read the next number."""
        return kind.unpack(self.take(kind.size))[0]


def integer_of(line: str) -> int | bool:
    """The integer in a line of protocols 0 and 1, in which bools are ``00`` and ``01``."""
    if line in ("00", "01"):
        return line == "01"
    return int(line.removesuffix("L"))


def text_of(line: str) -> str:
    """The text in a line of Python 2, which is between quotes, with escapes."""
    if len(line) < 2 or line[0] != line[-1] or line[0] not in "'\"":
        raise ValueError("text without quotes")
    return escape_decode(line[1:-1])[0].decode("latin-1")


MOST_STEPS = 3_500_000
"""The most steps, which take a second or two. A hundred thousand tensors take thirty steps each."""
_MOST_CONTAINERS = 2_000_000
_WORK = 4  # a name counts as this many containers, and a call as half as many
_MOST_MARKS, _MOST_INTEGER = 1_000, 1_024
_ROUND = 1 << 14
_ALIKE = ", or with many that were made to have one hash"

_U16, _I32, _U32, _U64, _DOUBLE = (Struct(code) for code in ("<H", "<i", "<I", "<Q", ">d"))


class Machine(Tape):
    """Runs a pickle, opcode by opcode.

    Args:
        data: See `Tape`.
        vocabulary: Defines the meaning of its names.
        where: See `Tape`.
        begin: See `Tape`. After the run, `at` is the end of the pickle.
        most: About how many steps it may take.
    """

    def __init__(
        self,
        data: bytes | mmap,
        vocabulary: Vocabulary,
        where: str,
        begin: int = 0,
        most: int = MOST_STEPS,
    ) -> None:
        super().__init__(data, where, begin)
        self.vocabulary = vocabulary
        self.most = most
        if vocabulary.span_from < 1 << 62:
            vocabulary.machine = self
        self.stack: list[Any] = []
        self.marked: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.containers = 0
        self.steps = 0
        self.done = False

    def run(self) -> Any:
        """The result of the pickle, in plain values and stand-ins of the vocabulary.

        Raises:
            FileFormatError: It is not a pickle, or is cut off.
            UnsafeFileError: It uses an opcode that data does not need, or needs far too much memory
                or time.
        """
        data, handlers, start = self.data, _HANDLERS, 0
        try:
            while self.steps < self.most:
                self.steps += _ROUND
                for _ in range(_ROUND):
                    start = self.at
                    self.at = start + 1
                    handlers[data[start]](self)
                    if self.done:
                        return self.stack[-1]
                self.weigh(self.at)
        except (
            IndexError,
            KeyError,
            TypeError,
            ValueError,
            OverflowError,
            AttributeError,
            StructError,
        ) as error:
            if isinstance(error, UnsafeFileError | FileFormatError):
                raise
            # Python's message about wrong arguments would contain internal names.
            fits = not isinstance(error, TypeError | AttributeError)
            if fits:
                what = f"{type(error).__name__}: {error}"
            else:
                what = "a value is not what is done with it"
            raise FileFormatError(
                f"{self.where}: its pickle is damaged at byte {start} ({what})."
            ) from None
        raise self.bomb(f"takes more than {self.most:,} steps")

    def contain(self, weight: int = 1) -> None:
        self.containers += weight
        if self.containers > _MOST_CONTAINERS:
            raise self.bomb(
                f"makes more than {_MOST_CONTAINERS:,} containers (a call counts as {_WORK // 2})"
            )

    def items(self) -> list[Any]:
        items, self.stack = self.stack, self.marked.pop()
        return items

    # Values.

    def push_unicode(self) -> None:
        data, start = self.data, self.at + 4
        nbytes = _U32.unpack_from(data, start - 4)[0]
        self.at = end = start + nbytes
        if nbytes > LINE or end > len(data):
            self.reach(start, nbytes)
        self.stack.append(data[start:end].decode("utf-8", "surrogatepass"))

    def push_text(self, nbytes: int) -> None:
        self.stack.append(self.take(nbytes).decode("utf-8", "surrogatepass"))

    def push_bytes(self, kind: Struct, made: type = bytes) -> None:
        count = self.unpack(kind)
        leave = count >= self.vocabulary.span_from
        self.stack.append(
            UnreadBytes(self.leave(count), count, made) if leave else made(self.take(count))
        )

    def push_latin(self, nbytes: int) -> None:
        self.stack.append(self.take(nbytes).decode("latin-1"))

    def push_long(self, nbytes: int) -> None:
        if not 0 <= nbytes <= _MOST_INTEGER:
            raise self.bomb(f"has an integer of {nbytes:,} bytes")
        self.stack.append(int.from_bytes(self.take(nbytes), "little", signed=True))

    def push_short_long(self) -> None:
        data, start = self.data, self.at + 1
        self.at = end = start + data[start - 1]
        if end > len(data):
            self.reach(start, end - start)
        self.stack.append(int.from_bytes(data[start:end], "little", signed=True))

    def push_line(self, read: Callable[[str], Any]) -> None:
        self.contain()
        self.stack.append(read(self.line()))

    def push_unicode_line(self) -> None:
        self.contain(2)
        self.stack.append(self.line("raw-unicode-escape", MOST_BYTES))

    def push_new(self, make: Callable[[], Any], weight: int) -> None:
        self.contain(weight)
        self.stack.append(make())

    def frame(self) -> None:
        if self.unpack(_U64) > len(self.data) - self.at:
            raise FileFormatError(
                f"{self.where}: its pickle is cut off: a frame at {self.at} reaches past its end."
            )

    # The stack and the memo.

    def mark(self) -> None:
        if len(self.marked) > _MOST_MARKS:
            raise self.bomb(f"nests more than {_MOST_MARKS:,} marks")
        self.marked.append(self.stack)
        self.stack = []

    def pop(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.items()

    def get(self, index: int) -> None:
        """Push the value in the memo at an index."""
        self.stack.append(self.memo[index])

    def put(self, index: int) -> None:
        """Store the top of the stack in the memo at an index."""
        self.memo[index] = self.stack[-1]

    def put_far(self) -> None:
        self.at += 4
        self.put(_U32.unpack_from(self.data, self.at - 4)[0])

    def memoize(self) -> None:
        """Store the top of the stack in the memo at the next index."""
        self.put(len(self.memo))

    # Containers.

    def tuple_of(self, length: int) -> None:
        self.contain()
        if len(self.stack) < length:
            raise IndexError(f"a tuple of {length} of {len(self.stack)}")
        self.stack[-length:] = [tuple(self.stack[-length:])]

    def tuple_marked(self) -> None:
        self.list_marked()
        self.stack[-1] = tuple(self.stack[-1])

    def list_marked(self) -> None:
        self.contain()
        items = self.items()
        self.stack.append(items)

    def dict_marked(self) -> None:
        self.contain()
        items = self.items()
        self.stack.append({})
        self.set_items(items)

    def frozenset_marked(self) -> None:
        self.contain(4)
        items = self.items()
        self.stack.append(frozenset(self.keys(items)))

    def append(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is list:
            target.extend(items)
        else:
            self.vocabulary.fill(target, items)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if len(items) % 2:
            raise IndexError("a key without a value")
        if type(target) is not dict and type(target) is not Ordered:
            self.vocabulary.put(target, items)
            return
        keys = iter(items)
        for key in keys:
            if type(key) is not str and not self.vocabulary.keys.takes(key):
                raise self.wrong_key("a dict with a key", key)
            target[key] = next(keys)

    def wrong_key(self, what: str, key: Any) -> UnsafeFileError:
        """The error for a key that no dict or set may have."""
        told = self.vocabulary.odd(key)
        of = f" ({told})" if told else ""
        return UnsafeFileError(
            f"{self.where}: its pickle has {what} that is no plain value{of}{_ALIKE}.",
            "a file with text or numbers in its place, such as the weights alone",
        )

    def add_items(self) -> None:
        items = self.items()
        target = self.stack[-1]
        if type(target) is set:
            target.update(self.keys(items))
        else:
            self.vocabulary.fill(target, items)

    def keys(self, items: list[Any]) -> list[Any]:
        takes = self.vocabulary.keys.takes
        for item in items:
            if not takes(item):
                # At the first, because each that was made to collide takes longer than the one
                # before.
                raise self.wrong_key("a set with an element", item)
        return items

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.set_items([key, value])

    # What it asks for.

    def find(self, module: str, name: str) -> Any:
        self.contain(_WORK)
        length = len(module) + len(name)
        if length > 2 * LINE:
            raise self.bomb(f"names something with {length:,} characters")
        return self.vocabulary.find(modern(module, name))

    def push_global(self) -> None:
        module = self.line()
        self.stack.append(self.find(module, self.line()))

    def push_stacked_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if type(name) is not str or type(module) is not str:
            raise TypeError("a global whose name is no text")
        self.stack.append(self.find(module, name))

    def call(self) -> None:
        self.contain(_WORK // 2)
        arguments, function = self.stack.pop(), self.stack.pop()
        self.stack.append(self.vocabulary.call(function, arguments))

    def call_with_keywords(self) -> None:
        keywords, arguments, function = self.stack.pop(), self.stack.pop(), self.stack.pop()
        self.stack.append(self.vocabulary.call(function, arguments, keywords))

    def instance(self) -> None:
        global_ = self.find(self.line(), self.line())
        arguments = tuple(self.items())
        self.stack.append(self.vocabulary.call(global_, arguments))

    def object_marked(self) -> None:
        function, *arguments = self.items()
        self.stack.append(self.vocabulary.call(function, tuple(arguments)))

    def build(self) -> None:
        state = self.stack.pop()
        self.stack[-1] = self.vocabulary.build(self.stack[-1], state)

    def persistent(self) -> None:
        self.contain(_WORK // 2)
        self.stack[-1] = self.vocabulary.load(self.stack[-1])

    def persistent_text(self) -> None:
        self.stack.append(self.vocabulary.refuse(f"the persistent id {self.line()!r}"))

    def extension(self, nbytes: int) -> None:
        code = int.from_bytes(self.take(nbytes), "little")
        self.stack.append(self.vocabulary.refuse(f"copyreg extension {code}"))

    def stop(self) -> None:
        self.done = len(self.stack) == 1 and not self.marked
        if not self.done:
            raise IndexError(f"{len(self.stack)} values at the end")

    def unknown(self) -> None:
        opcode = self.data[self.at - 1]
        name = _UNUSED.get(opcode)
        if name is None:
            raise ValueError(f"no opcode is {opcode:#04x}")
        raise UnsafeFileError(
            f"{self.where}: its pickle uses {name} at byte {self.at - 1}, which no data needs."
        )


def _fixed(kind: Struct) -> _Handler:
    read, width = kind.unpack_from, kind.size

    def push(machine: Machine) -> None:
        machine.stack.append(read(machine.data, machine.at)[0])
        machine.at += width

    return push


def _constant(value: Any) -> _Handler:
    return lambda machine: machine.stack.append(value)


_UNUSED = {0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER"}
"""Opcodes for external buffers, which are refused."""

_KNOWN: dict[int, _Handler] = {
    0x80: lambda m: m.take(1) and None,
    0x95: Machine.frame,
    ord("."): Machine.stop,
    ord("N"): _constant(None),
    0x88: _constant(True),
    0x89: _constant(False),
    ord("K"): lambda m: m.stack.append(m.take(1)[0]),
    ord("M"): _fixed(_U16),
    ord("J"): _fixed(_I32),
    ord("G"): _fixed(_DOUBLE),
    0x8A: Machine.push_short_long,
    0x8B: lambda m: m.push_long(m.unpack(_I32)),
    0x8C: lambda m: m.push_text(m.take(1)[0]),
    ord("X"): Machine.push_unicode,
    0x8D: lambda m: m.push_text(m.unpack(_U64)),
    ord("U"): lambda m: m.push_latin(m.take(1)[0]),
    ord("T"): lambda m: m.push_latin(m.unpack(_U32)),
    ord("C"): lambda m: m.stack.append(m.take(m.take(1)[0])),
    ord("B"): lambda m: m.push_bytes(_U32),
    0x8E: lambda m: m.push_bytes(_U64),
    0x96: lambda m: m.push_bytes(_U64, bytearray),
    ord("F"): lambda m: m.push_line(float),
    ord("I"): lambda m: m.push_line(integer_of),
    ord("L"): lambda m: m.push_line(integer_of),
    ord("S"): lambda m: m.push_line(text_of),
    ord("V"): Machine.push_unicode_line,
    ord("g"): lambda m: m.get(int(m.line())),
    ord("p"): lambda m: m.put(int(m.line())),
    ord(")"): _constant(()),
    ord("]"): lambda m: m.push_new(list, 1),
    ord("}"): lambda m: m.push_new(dict, 1),
    0x8F: lambda m: m.push_new(set, 4),
    ord("t"): Machine.tuple_marked,
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    ord("l"): Machine.list_marked,
    ord("d"): Machine.dict_marked,
    0x91: Machine.frozenset_marked,
    ord("a"): lambda m: m.append([m.stack.pop()]),
    ord("e"): lambda m: m.append(m.items()),
    ord("s"): Machine.set_item,
    ord("u"): lambda m: m.set_items(m.items()),
    0x90: Machine.add_items,
    ord("("): Machine.mark,
    ord("0"): Machine.pop,
    ord("1"): lambda m: m.items() and None,
    ord("2"): lambda m: m.stack.append(m.stack[-1]),
    ord("h"): lambda m: m.get(m.take(1)[0]),
    ord("j"): lambda m: m.get(m.unpack(_U32)),
    ord("q"): lambda m: m.put(m.take(1)[0]),
    ord("r"): Machine.put_far,
    0x94: lambda m: m.memoize(),
    ord("c"): Machine.push_global,
    0x93: Machine.push_stacked_global,
    ord("R"): Machine.call,
    0x81: Machine.call,
    0x92: Machine.call_with_keywords,
    ord("i"): Machine.instance,
    ord("o"): Machine.object_marked,
    ord("b"): Machine.build,
    ord("Q"): Machine.persistent,
    ord("P"): Machine.persistent_text,
    0x82: lambda m: m.extension(1),
    0x83: lambda m: m.extension(2),
    0x84: lambda m: m.extension(4),
}

_HANDLERS: list[_Handler] = [_KNOWN.get(opcode, Machine.unknown) for opcode in range(256)]


if TYPE_CHECKING:
    _Handler = Callable[["Machine"], Any]
