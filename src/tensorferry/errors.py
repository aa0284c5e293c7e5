"""Everything that tensorferry raises on purpose.

The tree, with the builtin that a caller of the frameworks would already catch::

    ConversionError                 (Exception)
    ├── CopyRequiredError           (ValueError, BufferError)   copy=False, and memory cannot be shared
    ├── LossyCastError              (TypeError)                 a value would not survive the dtype
    ├── GradientError               (RuntimeError)              grad="error", and there is a graph to leave
    ├── DeviceError                 (RuntimeError)              no such device, or nothing can live there
    ├── ShapeError                  (ValueError)                ragged input, or `out` of another shape
    ├── UnsupportedTypeError        (TypeError)                 no tensor, or one that has no memory to carry
    ├── UnknownFrameworkError       (ValueError)                no framework that is known has this name
    ├── FrameworkNotInstalledError  (ImportError)               the framework that was named is not here
    ├── FileFormatError             (ValueError)                a file that breaks its format's rules, or has none
    ├── TreeError                   (ExceptionGroup)            several leaves of a tree at once
    ├── UnsafeFileError             (pickle.UnpicklingError)    a file that asks for code to be run, or is a bomb
    ├── FormatLimitError            (TypeError)                 something that the format cannot hold
    ├── OutputExistsError           (FileExistsError)           the output is there, and nobody said to replace it
    ├── VerificationError           (RuntimeError)              what was written is not what was read
    └── ResumableError              (RuntimeError)              stopped in the middle; finished parts are kept

    PlanViolation                   (AssertionError)            a plan's claim was not what was observed: our bug

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

__all__ = [
    "ConversionError",
    "CopyRequiredError",
    "DeviceError",
    "FileFormatError",
    "FormatLimitError",
    "FrameworkNotInstalledError",
    "GradientError",
    "LossyCastError",
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
    short = (type(value) is str and len(value) <= 80) or (type(value) is int and value.bit_length() <= 64)
    plain = short or isinstance(value, type) or type(value) in (float, bool, type(None))
    return repr(value) if plain else f"an object of type {type(value).__qualname__}"


def validate_flags(**flags: object) -> None:
    """Raise for a keyword that is neither on nor off: ``"no"`` and ``[]`` are not what they look like.

    Raises:
        TypeError: The message names it.
    """
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, not {shown(value)}")


def validate_word(keyword: str, value: object, words: Sequence[str]) -> None:
    """Raise for a keyword's value that is none of a few words.

    Raises:
        TypeError: It is no word.
        ValueError: It is another one.
    """
    if not isinstance(value, str) or value not in words:
        *others, last = [f'"{word}"' for word in words]
        error = ValueError if isinstance(value, str) else TypeError
        raise error(f"{keyword} must be {', '.join(others)} or {last}, not {shown(value)}")


def an(noun: str, article: str = "a") -> str:
    """A name with the indefinite article before it, which is given as it stands before a consonant.

    >>> an("int"), an("uint8"), an("ndarray"), an("Array", "A")
    ('an int', 'a uint8', 'an ndarray', 'An Array')
    """
    start = noun.lower()
    vowel = start.startswith(("a", "e", "i", "o", "nd", "un", "up")) and not start.startswith(("one", "uni"))
    return f"{article}{'n' if vowel else ''} {noun}"


def frames_of_ours() -> int:
    """How many frames above the caller's the first one is that is not of this package: at whom a warning points."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - as the standard library does it
    count = 0
    ours = __name__.partition(".")[0] + "."
    while frame is not None and frame.f_globals.get("__name__", "").startswith(ours):
        frame, count = frame.f_back, count + 1
    return count


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was most likely meant, or ``None``.

    >>> nearest("devcie", ["device", "dtype"]), nearest("Torch", ["torch"]), nearest("x", ["y"])
    ('device', 'torch', None)
    """
    from difflib import get_close_matches

    found = get_close_matches(word.casefold(), sorted(set(known)), 1)
    return found[0] if found else None


class ConversionError(Exception):
    """A conversion that cannot be done as asked; the root of the tree.

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
    """

    # Read by AutoGraph, which would raise another type in place of an error that crosses what it has rewritten.
    ag_pass_through = True
    inside = ""
    """What leads from the leaf of a tree that it is about to what is meant in it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.message = message
        self.hint = hint
        super().__init__(message, hint)

    def said_of(self, function: str, target: str) -> None:
        """Let the hint name the function that was called, and the target that was asked for."""
        if isinstance(self.hint, Hint):
            self.hint = self.hint.said_of(function, target)
            self.args = (self.message, self.hint)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n\nHint: {self.hint}"


class CopyRequiredError(ConversionError, ValueError, BufferError):
    """``copy=False`` was asked for, and the two sides cannot share this memory.

    The Array API standard names both builtins for this case, hence both bases:
    https://data-apis.org/array-api/latest/API_specification/generated/array_api.from_dlpack.html
    """


class LossyCastError(ConversionError, TypeError):
    """A dtype that cannot hold what the source holds; values would change in silence."""

    instead: tuple[str, str] | None = None
    """The tensor's dtype, and what the hint asks for, which begins with it: in a tree other leaves are asked more."""


class GradientError(ConversionError, RuntimeError):
    """``grad="error"`` was asked for, and the conversion would leave the autograd graph."""


class DeviceError(ConversionError, RuntimeError):
    """A device that is not there, or on which the target framework cannot live."""


class ShapeError(ConversionError, ValueError):
    """Rows of unequal lengths, leaves of unequal shapes, or an ``out`` of another shape."""


class UnsupportedTypeError(ConversionError, TypeError):
    """Not a tensor, or one that has no memory to carry (a tracer, a deleted array, a meta tensor)."""


class UnknownFrameworkError(ConversionError, ValueError):
    """No framework that is known here has the name that was given; `FrameworkNotInstalledError`: it is known."""


class FrameworkNotInstalledError(ConversionError, ImportError):
    """The framework that was named is not installed, or fails when it is imported."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        ConversionError.__init__(self, message, hint)


class FileFormatError(ConversionError, ValueError):
    """A file that breaks the rules of its format (truncated, overlapping, corrupt), or that no format knows."""


class UnsafeFileError(ConversionError, pickle.UnpicklingError):
    """A file that asks for code to be run, or that would take memory or time out of all proportion.

    ``torch.load(weights_only=True)`` raises the same builtin: https://docs.pytorch.org/docs/stable/notes/serialization.html
    """


class FormatLimitError(ConversionError, TypeError):
    """A dtype, a structure or a value that the format asked for cannot hold; nothing was written."""


class OutputExistsError(ConversionError, FileExistsError):
    """The output exists, and replacing it was not asked for; nothing was written."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        ConversionError.__init__(self, message, hint)


class VerificationError(ConversionError, RuntimeError):
    """What was written does not read back as what was to be written; nothing was published."""


class ResumableError(ConversionError, RuntimeError):
    """A conversion that stopped in the middle; the parts that are finished are kept for ``resume=True``."""


if sys.version_info >= (3, 11):
    _Group = ExceptionGroup[ConversionError]  # noqa: F821 - a linter for 3.10 does not know it
else:

    class _Group(Exception):  # noqa: N818 - what Python 3.11 brings
        """As much of an exception group as is used here."""

        def __new__(cls, message: str, exceptions: Sequence[Exception]) -> Self:
            made: Any = super().__new__(cls, message, exceptions)
            made.message, made.exceptions = message, tuple(exceptions)
            return made  # type: ignore[no-any-return]


class TreeError(ConversionError, _Group):
    """Several leaves of a tree that cannot be converted as asked; each of `exceptions` ends in its path.

    A group for ``except*`` from Python 3.11 on; before, an ordinary error with the same text and the same
    `exceptions`. One failing leaf alone raises its own error, whose message ends in the path too.

    Args:
        message: What cannot be done.
        exceptions: The error of each leaf, in the tree's order.
    """

    exceptions: tuple[ConversionError, ...]

    def __new__(cls, message: str, exceptions: Sequence[ConversionError] = ()) -> Self:  # noqa: D102 - with the class
        # PyTorch makes an error of a DataLoader's worker anew, of its words alone.
        return super().__new__(cls, message, exceptions or [ConversionError(message)])

    def __init__(self, message: str, exceptions: Sequence[ConversionError] = ()) -> None:
        self.hint = None
        Exception.__init__(self, message, exceptions or [ConversionError(message)])

    def said_of(self, function: str, target: str) -> None:
        """The same for each of the errors."""
        for error in self.exceptions:
            error.said_of(function, target)

    def derive(self, exceptions: Sequence[ConversionError]) -> TreeError:
        """A group of some of the errors, as ``except*`` makes it."""
        return TreeError(self.message, exceptions)

    def __reduce__(self) -> tuple[Any, ...]:
        return TreeError, (self.message, list(self.exceptions))

    def __str__(self) -> str:
        each = "\n".join(f"  {type(error).__name__}: {error.message}" for error in self.exceptions)
        hints = dict.fromkeys(error.hint for error in self.exceptions if error.hint is not None)
        return "\n\nHint: ".join([f"{self.message}\n{each}", *hints])


class PlanViolation(AssertionError):  # noqa: N818 - not an error of the caller's: a broken promise of ours
    """What was observed after a conversion is not what its plan claimed."""
