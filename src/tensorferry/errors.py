"""Everything that tensorferry raises on purpose.

The tree, with the builtin that a caller of the frameworks would already catch::

    ConversionError                 (Exception)
    ├── CopyRequiredError           (ValueError, BufferError)   copy=False, but cannot share memory
    ├── LossyCastError              (TypeError)                 the dtype cannot hold a value
    ├── GradientError               (RuntimeError)              grad="error", and the graph is left
    ├── DeviceError                 (RuntimeError)              no such device, or it cannot be used
    ├── ShapeError                  (ValueError)                unequal lengths, `out` does not fit
    ├── UnsupportedTypeError        (TypeError)                 not a tensor, or one without memory
    ├── UnknownFrameworkError       (ValueError)                not the name of a framework
    ├── FrameworkNotInstalledError  (ImportError)               the framework is not installed
    ├── FileFormatError             (ValueError)                a damaged file, or an unknown format
    ├── TreeError                   (ExceptionGroup)            several leaves cannot be converted
    ├── UnsafeFileError             (pickle.UnpicklingError)    it asks to run code, or is a bomb
    ├── FormatLimitError            (TypeError)                 what the format cannot hold
    ├── NotEnoughMemoryError        (MemoryError)               too little free memory; nothing read
    ├── OutputExistsError           (FileExistsError)           the output exists already
    ├── VerificationError           (RuntimeError)              the output reads back differently
    └── ResumableError              (RuntimeError)              stopped; finished parts are kept

    PlanViolation                   (AssertionError)            a wrong plan: a bug in tensorferry

A message says what could not be done and why, then, after a blank line, ``Hint:`` and the code to
type. It never contains a tensor's values: formatting them could wait for a device.
"""

from __future__ import annotations

import pickle
import sys
from typing import TYPE_CHECKING, Any

from .hints import Hint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import FrameType

    from typing_extensions import Self

    from .hints import Caller

__all__ = [
    "ConversionError",
    "CopyRequiredError",
    "DeviceError",
    "FileFormatError",
    "FormatLimitError",
    "FrameworkNotInstalledError",
    "GradientError",
    "LossyCastError",
    "NotEnoughMemoryError",
    "OutputExistsError",
    "PlanViolation",
    "ResumableError",
    "ShapeError",
    "TreeError",
    "UnknownFrameworkError",
    "UnsafeFileError",
    "UnsupportedTypeError",
    "VerificationError",
]


def shown(value: object) -> str:
    """A value for a message: as Python writes it if that is short and safe, else its type.

    >>> shown("gpu"), shown([1.5])
    ("'gpu'", 'an object of type list')

    To write a tensor could wait for a device.
    """
    short = (type(value) is str and len(value) <= 80) or (
        type(value) is int and value.bit_length() <= 64
    )
    plain = short or isinstance(value, type) or type(value) in (float, complex, bool, type(None))
    if plain:
        return repr(value)
    return f"an object of type {type(value).__qualname__}"


def validate_flags(**flags: object) -> None:
    """Raise for a keyword that is not on or off: ``"no"`` and ``[]`` are not what they look like.

    Raises:
        TypeError: The message names it.
    """
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, not {shown(value)}")


def validate_word(keyword: str, value: object, words: Sequence[str], other: str = "") -> None:
    """Raise for a keyword's value that is not one of a few words.

    Args:
        keyword: The keyword.
        value: Its value.
        words: The words.
        other: What else it may be, for the message.

    Raises:
        TypeError: It is not a string.
        ValueError: It is another string.
    """
    if not isinstance(value, str) or value not in words:
        *others, last = [*(f'"{word}"' for word in words), *([other] if other else [])]
        if others:
            listed = f"{', '.join(others)} or {last}"
        else:
            listed = last
        error = ValueError if isinstance(value, str) else TypeError
        raise error(f"{keyword} must be {listed}, not {shown(value)}")


def an(noun: str, article: str = "a") -> str:
    """A name with the indefinite article before it, which is given as it stands before a consonant.

    >>> an("int"), an("uint8"), an("ndarray"), an("Array", "A")
    ('an int', 'a uint8', 'an ndarray', 'An Array')
    """
    start = noun.lower()
    vowel = start.startswith(("a", "e", "i", "o", "nd", "un", "up")) and not start.startswith(
        ("one", "uni")
    )
    return f"{article}{'n' if vowel else ''} {noun}"


def frames_of_ours() -> int:
    """How far above the caller's frame the first outside this package is, for a warning."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - as the standard library does it
    count = 0
    ours = __name__.partition(".")[0] + "."
    while frame is not None and frame.f_globals.get("__name__", "").startswith(ours):
        frame, count = frame.f_back, count + 1
    return count


def nearest(word: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """The known word that was most likely meant, or ``None``.

    It is at least so similar, from 0 to 1.

    >>> nearest("devcie", ["device", "dtype"]), nearest("Torch", ["torch"]), nearest("x", ["y"])
    ('device', 'torch', None)
    """
    from difflib import get_close_matches

    close = get_close_matches(word.casefold(), sorted(set(known)), 1, least)
    return close[0] if close else None


class ConversionError(Exception):
    """A conversion is impossible as you asked for it. All other errors are derived from this one.

    >>> import tensorferry as ferry
    >>> try:
    ...     ferry.to_numpy({1, 2})
    ... except ferry.ConversionError as error:
    ...     print(error)
    A set is not a tensor: it has no order.
    <BLANKLINE>
    Hint: to_numpy(sorted(x)) or to_numpy(list(x))

    Args:
        message: What could not be done, and why.
        hint: The code to type instead, or ``None``.

    .. versionadded:: 0.1
    """

    # Read by AutoGraph, which would raise another type in place of an error that crosses what it
    # has rewritten.
    ag_pass_through = True
    inside = ""
    """The path inside the leaf of a tree, if the error is about a part of the leaf."""

    def __init__(self, message: str, hint: str | Hint | None = None) -> None:
        self.message = message
        super().__init__(message, hint)
        self.advise(hint)

    def advise(self, hint: str | Hint | None) -> None:
        """Give the error another hint."""
        self.advice = None if hint is None else Hint.of(hint)
        """The hint as data, which can still be put at another place, and told of the call."""
        self.args = (self.message, hint)

    @property
    def hint(self) -> str | None:
        """The code to type instead; ``None`` if there is none."""
        return None if self.advice is None else str(self.advice) or None

    def complete_hint(self, caller: Caller) -> None:
        """Put the function that was called, and its target, into the hint."""
        if self.advice is not None:
            self.advise(self.advice.for_call(caller))

    def __str__(self) -> str:
        hint = self.hint
        return self.message if hint is None else f"{self.message}\n\nHint: {hint}"


class CopyRequiredError(ConversionError, ValueError, BufferError):
    """You used ``copy=False``, and the two frameworks cannot share this memory.

    The Array API standard names both builtins for this case, hence both bases:
    https://data-apis.org/array-api/latest/API_specification/generated/array_api.from_dlpack.html

    .. versionadded:: 0.1
    """


class LossyCastError(ConversionError, TypeError):
    """The dtype cannot hold a value of the source, or the target does not have the dtype.

    .. versionadded:: 0.1
    """

    instead: tuple[str, str] | None = None
    """The tensor's dtype, and the ``dtype=`` of the hint.

    In a tree, entries for other leaves are added.
    """
    is_of_value = False
    """Whether a single value does not fit. The hint is then for a tensor in memory."""
    read_as: str | None = None
    """The dtype by which a rule for trees decides, if values are unreadable without a named one."""


class GradientError(ConversionError, RuntimeError):
    """With ``grad="error"``, the autograd graph would be left; or a function has no such gradient.

    .. versionadded:: 0.1
    """


class DeviceError(ConversionError, RuntimeError):
    """The device does not exist, or the target framework cannot use it.

    .. versionadded:: 0.1
    """


class ShapeError(ConversionError, ValueError):
    """Rows have unequal lengths, leaves have unequal shapes, or ``out`` has another shape.

    .. versionadded:: 0.1
    """


class UnsupportedTypeError(ConversionError, TypeError):
    """The object is no tensor, or one without memory (a tracer, a deleted array, a meta tensor).

    .. versionadded:: 0.1
    """


class UnknownFrameworkError(ConversionError, ValueError):
    """The name is not that of a framework.

    If it is, but the framework is missing: `FrameworkNotInstalledError`.

    .. versionadded:: 0.1
    """


class FrameworkNotInstalledError(ConversionError, ImportError):
    """The framework is not installed, or its import fails.

    .. versionadded:: 0.1
    """

    def __init__(self, message: str, hint: str | Hint | None = None) -> None:
        ConversionError.__init__(self, message, hint)


class FileFormatError(ConversionError, ValueError):
    """The file breaks its format's rules (it is cut off or damaged), or its format is not known.

    .. versionadded:: 0.1
    """


class UnsafeFileError(ConversionError, pickle.UnpicklingError):
    """The file asks for code to run, or would need far more memory or time than its size explains.

    ``torch.load(weights_only=True)`` raises the same builtin:
    https://docs.pytorch.org/docs/stable/notes/serialization.html

    .. versionadded:: 0.1
    """


class FormatLimitError(ConversionError, TypeError):
    """The format cannot hold a dtype, a structure or a value; nothing was written.

    .. versionadded:: 0.1
    """


class NotEnoughMemoryError(ConversionError, MemoryError):
    """What should be loaded is larger than the memory that is free; nothing was read.

    .. versionadded:: 0.1
    """


class OutputExistsError(ConversionError, FileExistsError):
    """The output exists already, and ``overwrite=True`` was not used; nothing was written.

    .. versionadded:: 0.1
    """

    def __init__(self, message: str, hint: str | Hint | None = None) -> None:
        ConversionError.__init__(self, message, hint)


class VerificationError(ConversionError, RuntimeError):
    """The output does not read back the same; there is no output then.

    .. versionadded:: 0.1
    """


class ResumableError(ConversionError, RuntimeError):
    """A conversion of files stopped in the middle.

    Finished parts are kept, and ``resume=True`` continues it.

    .. versionadded:: 0.1
    """


if sys.version_info >= (3, 11):
    _ExceptionGroup = ExceptionGroup[ConversionError]  # noqa: F821 - a linter for 3.10 does not know it
else:

    class _ExceptionGroup(Exception):  # noqa: N818 - what Python 3.11 brings
        """As much of an exception group as is used here."""

        def __new__(cls, message: str, exceptions: Sequence[Exception]) -> Self:
            made: Any = super().__new__(cls, message, exceptions)
            made.message, made.exceptions = message, tuple(exceptions)
            return made  # type: ignore[no-any-return]


class TreeError(ConversionError, _ExceptionGroup):
    """Several leaves of a tree cannot be converted.

    Each error in `exceptions` ends in the path of its leaf.

    From Python 3.11 on it is a group for ``except*``; before, an ordinary error with the same text
    and the same `exceptions`. If only one leaf fails, its own error is raised, whose message ends
    in the path too.

    Args:
        message: What cannot be done.
        exceptions: The error of each leaf, in the tree's order.

    .. versionadded:: 0.1
    """

    exceptions: tuple[ConversionError, ...]

    def __new__(cls, message: str, exceptions: Sequence[ConversionError] = ()) -> Self:  # noqa: D102 - with the class
        # PyTorch makes an error of a DataLoader's worker anew, of its words alone.
        return super().__new__(cls, message, exceptions or [ConversionError(message)])

    def __init__(self, message: str, exceptions: Sequence[ConversionError] = ()) -> None:
        Exception.__init__(self, message, exceptions or [ConversionError(message)])

    @property
    def hint(self) -> str | None:
        """The hints of all errors, each once; ``None`` if there is none."""
        return "; or ".join(self._hints()) or None

    def _hints(self) -> dict[str, Hint]:
        """The hint of each error by its text, each once."""
        return {
            str(error.advice): error.advice for error in self.exceptions if error.advice is not None
        }

    @property
    def advice(self) -> Hint | None:  # type: ignore[override]
        """The hints of all errors as one."""
        hints = [*self._hints().values()]
        if not hints:
            return None
        return Hint.of_ways((way for hint in hints for way in hint.ways), hints[0].caller)

    def complete_hint(self, caller: Caller) -> None:
        """Put the function that was called, and its target, into the hints of all errors."""
        for error in self.exceptions:
            error.complete_hint(caller)

    def derive(self, exceptions: Sequence[ConversionError]) -> TreeError:
        """A group of some of the errors, as ``except*`` makes it."""
        return TreeError(self.message, exceptions)

    def __reduce__(self) -> tuple[Any, ...]:
        return TreeError, (self.message, list(self.exceptions))

    def __str__(self) -> str:
        one_per_line = "\n".join(
            f"  {type(error).__name__}: {error.message}" for error in self.exceptions
        )
        return "\n\nHint: ".join([f"{self.message}\n{one_per_line}", *self._hints()])


class PlanViolation(AssertionError):  # noqa: N818 - not an error of the caller's: a broken promise of ours
    """After a conversion, the result was not as its plan had said.

    .. versionadded:: 0.1
    """
