"""Every error and warning that Intarsia raises, under one root.

::

    IntarsiaError
    ├── FormatError            the bytes are not valid Parquet; a ValueError
    │   └── UnsupportedError   valid, but encrypted, signed or too new; a NotImplementedError
    ├── OutOfMemoryError       memory is short, and the file perhaps valid; a MemoryError
    ├── PredicateError         a filter does not fit the schema; a ValueError
    ├── IndexSpecError         an index cannot be built as requested; a ValueError
    ├── PathError              a path cannot be read or written, or its file was replaced;
    │                          a FileNotFoundError
    ├── QueryTimeoutError      a call took longer than its ``timeout``; a TimeoutError
    └── MissingDependencyError an extra or Java is missing, or its version is not supported;
                               an ImportError

    IntarsiaWarning            a notice that is not an error; a UserWarning
    CorruptDataWarning         rows were left out, as the caller asked for; a UserWarning
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import difflib
import errno
import functools
import inspect
import os
import re
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType, ModuleType, TracebackType
from typing import Any, Self, TypeVar, cast

from intarsia.control_characters import shown_in_text
from intarsia.redaction import redacted, redacted_with

_redacted_path = functools.lru_cache(64)(redacted)
"""Each page that is read has a ``Where``."""


@dataclass(frozen=True, slots=True)
class Where:
    """A position in a file, as far as it is known. ``offset`` is in bytes from the file's start.

    ``file`` is shown in messages, so credentials of a URI are removed from it.
    """

    file: str | None = None
    row_group: int | None = None
    column: str | None = None
    page: int | None = None
    offset: int | None = None

    def __post_init__(self) -> None:
        if self.file is not None:
            object.__setattr__(self, "file", _redacted_path(self.file))

    def __str__(self) -> str:
        named = (
            ("", self.file),
            ("row group ", self.row_group),
            ("column ", self.column),
            ("page ", self.page),
            ("offset ", self.offset),
        )
        return ", ".join(f"{name}{value}" for name, value in named if value is not None)


class IntarsiaError(Exception):
    """Root of all errors that Intarsia raises on purpose.

    Control characters in the message are escaped. Credentials in URIs are redacted: in the message,
    and in the error that is being handled, which becomes the cause, and in its own causes.
    """

    def __init__(self, *args: Any) -> None:
        handled = sys.exception()
        shown = (
            shown_in_text(redacted_with(arg, handled)) if isinstance(arg, str) else arg
            for arg in args
        )
        super().__init__(*shown)


class _PlacedError(IntarsiaError):
    """An error at a position in a file."""

    def __init__(self, message: str, where: Where | None = None) -> None:
        super().__init__(message, where)
        self.message = str(self.args[0])
        self.where = where or Where()

    def __str__(self) -> str:
        place = shown_in_text(str(self.where))
        return f"{place}: {self.message}" if place else self.message

    def at(self, where: Where) -> Self:
        """Returns the same error, completed by the parts of ``where`` that it lacks."""
        mine, other = self.where, where
        merged = Where(
            *(
                getattr(mine, name) if getattr(mine, name) is not None else getattr(other, name)
                for name in Where.__slots__
            )
        )
        return type(self)(self.message, merged)


class FormatError(_PlacedError, ValueError):
    """The bytes do not follow the Parquet specification.

    Attributes
    ----------
    where : Where
        File, row group, column, page and offset, as far as they are known.
    message : str
        The message without the position.
    """


class OutOfMemoryError(_PlacedError, MemoryError):
    """Memory is short.

    This is not damage: no rows are skipped, and no file is reported as torn.
    """


class UnsupportedError(FormatError, NotImplementedError):
    """Valid Parquet that this version cannot read, or does not change."""


class PredicateError(IntarsiaError, ValueError):
    """A filter or query that is invalid, or that does not fit the schema."""


_SCAN_COLUMNS = ("__filename", "__row_number")
"""Columns that a scan provides. They can be selected, but not used in a filter."""


def unknown_column(name: str, known: Iterable[str]) -> PredicateError:
    """Returns the error for a column that does not exist."""
    return PredicateError(f"column {name!r} is not there{instead(name, known)}")


def first_duplicate(names: Iterable[str]) -> str | None:
    """Returns the first of ``names`` that occurs more than once, or None."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def instead(name: str, known: Iterable[str]) -> str:
    """Returns the end of a message that ``name`` does not exist.

    It suggests a similar name from ``known``, or else lists up to 20 of them.
    """
    if name in _SCAN_COLUMNS:
        return ": scans add it, but files do not contain it"
    known_names = list(known)
    similar = difflib.get_close_matches(
        name.lower(), [other.lower() for other in known_names], 1, 0.75
    )
    suggestions = [other for other in known_names if other.lower() in similar and other != name]
    return (
        f", {suggestions[0]!r} is" if suggestions else f"; there are: {', '.join(known_names[:20])}"
    )


def check_is_list(**named: object) -> None:
    """Raises ``TypeError`` if an argument is one name instead of a list of names."""
    for what, names in named.items():
        if isinstance(names, str):
            raise TypeError(f"{what} is a list of names, not one name")


class IndexSpecError(IntarsiaError, ValueError):
    """An index that cannot be built as requested."""


class PathError(IntarsiaError, FileNotFoundError):
    """A path cannot be read or written, or its file was replaced."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class QueryTimeoutError(IntarsiaError, TimeoutError):
    """A call was stopped because it took longer than its ``timeout``. It can be repeated safely."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class MissingDependencyError(IntarsiaError, ImportError):
    """A package is not installed, or its version is not supported."""


# --- out of memory --------------------------------------------------------------------------------

_SHORTAGE_MESSAGES = (
    "cannot allocate memory",
    "failed to map segment",
    "can't start new thread",
    "out of memory",
)
"""Parts of messages, in lower case, of errors that have no type of their own."""
_ADVICE = "ask for fewer columns or rows at a time, or give the process more memory"
_MAX_CAUSES = 20
"""Errors that are checked in one chain of causes."""
T = TypeVar("T")


def shortage_in(error: BaseException | None) -> BaseException | None:
    """Returns the error that reports a lack of memory: ``error``, one of its causes, or None."""
    for _ in range(_MAX_CAUSES):
        if error is None or _is_shortage(error):
            return error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def _is_shortage(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    if type(error).__name__ == "OutOfMemoryException":  # DuckDB's
        return True
    is_vague = isinstance(error, OSError | ImportError | RuntimeError)
    return is_vague and any(part in str(error).lower() for part in _SHORTAGE_MESSAGES)


def out_of_memory(error: BaseException) -> OutOfMemoryError | None:
    """Returns an ``OutOfMemoryError`` if ``error`` or a cause reports a lack of memory, else None.

    If one of them is an ``OutOfMemoryError`` already, that one is returned.
    """
    shortage = shortage_in(error)
    if shortage is None or isinstance(shortage, OutOfMemoryError):
        return shortage
    message = " ".join(str(shortage).split()).rstrip(".")
    return OutOfMemoryError(f"out of memory{': ' * bool(message)}{message}; {_ADVICE}")


class placed:  # noqa: N801 # used as a statement, like ``contextlib.suppress``
    """Adds ``where`` to errors in the block, as far as they do not name a position themselves.

    This applies to ``FormatError`` and its relatives. Errors from a lack of memory become
    ``OutOfMemoryError``.
    """

    __slots__ = ("_where",)

    def __init__(self, where: Where) -> None:
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, Exception):
            return
        raised = out_of_memory(error) or error
        if isinstance(raised, _PlacedError):
            raise _with_notes(raised.at(self._where), error) from error


def public(decorated: T) -> T:
    """Decorates a public function, or a class with public methods.

    When memory is short, they raise ``OutOfMemoryError``, as do generators that they return.
    """
    if not isinstance(decorated, type):
        return cast(T, _guarded(cast(Callable[..., Any], decorated)))
    for name, member in list(vars(decorated).items()):
        if name.startswith("_") and name not in _PUBLIC_METHODS:
            continue
        if isinstance(member, property):
            getter = None if member.fget is None else _guarded(member.fget)
            setattr(decorated, name, property(getter, member.fset, member.fdel, member.__doc__))
        elif isinstance(member, classmethod | staticmethod):
            setattr(decorated, name, type(member)(_guarded(member.__func__)))
        elif inspect.isfunction(member):
            setattr(decorated, name, _guarded(member))
    return decorated


_PUBLIC_METHODS = frozenset({"__init__", "__iter__", "__enter__", "__exit__"})


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def guarded(*args: Any, **options: Any) -> Any:
        try:
            result = function(*args, **options)
        except Exception as error:
            _raise_if_short(error)
            raise
        return guarded_items(result) if inspect.isgenerator(result) else result

    return guarded


def guarded_items(items: Iterable[T]) -> Generator[T]:
    """Yields ``items``. Raises ``OutOfMemoryError`` when memory is short."""
    try:
        yield from items
    except Exception as error:
        _raise_if_short(error)
        raise


def _raise_if_short(error: Exception) -> None:
    """Raises ``OutOfMemoryError`` if memory is short, unless ``error`` is one already."""
    short = out_of_memory(error)
    if short is not None and short is not error:
        raise _with_notes(short, error) from error


def _with_notes(new_error: _PlacedError, error: BaseException) -> _PlacedError:
    for note in getattr(error, "__notes__", ()):
        new_error.add_note(note)
    return new_error


# --- missing packages -----------------------------------------------------------------------------


@contextlib.contextmanager
def optional(message: str, *packages: str) -> Iterator[None]:
    """Raises ``MissingDependencyError`` if an import in the block lacks one of ``packages``.

    Other import errors are raised unchanged: an installed package may lack memory, or one of its
    own dependencies.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        raise MissingDependencyError(message) from error


OLDEST = {"duckdb": "2.0.1", "polars": "2.1", "pyarrow": "26"}
"""Oldest supported version of each package. The next major version is not supported."""


def check_version(package: ModuleType) -> None:
    """Raises ``MissingDependencyError`` if the version of a package is not supported.

    Other versions are not tested: a function may have another meaning there, and give wrong
    answers.

    Example::

        check_version(duckdb)  # DuckDB 3: "duckdb 3.0.0 is not supported: install duckdb>=2.0.1,<3"
    """
    name, version = package.__name__, str(package.__version__)
    oldest, numbers = (
        [int(number) for number in re.findall(r"\d+", text)[:3]] for text in (OLDEST[name], version)
    )
    if not oldest <= numbers < [oldest[0] + 1]:
        raise MissingDependencyError(
            f"{name} {version} is not supported: install {name}>={OLDEST[name]},<{oldest[0] + 1}"
        )


# --- warnings -------------------------------------------------------------------------------------


class IntarsiaWarning(UserWarning):
    """A notice that is not an error.

    Examples are an ignored index (answers stay right), an index that some files cannot have, and
    dates of an old calendar. Others are appended rows with different columns, and an interrupted
    write.
    """


class CorruptDataWarning(UserWarning):
    """Rows were left out because their bytes are damaged, as ``on_corrupt="skip"`` requests."""


_OWN_FILES = (os.path.join(os.path.dirname(__file__), ""), contextlib.__file__)
_THREAD_FILES = (threading.__file__, os.path.dirname(concurrent.futures.__file__))
_is_quiet = ContextVar("_is_quiet", default=False)


def warn(message: str) -> None:
    """Issues an ``IntarsiaWarning``, unless the context is ``quiet``."""
    if not _is_quiet.get():
        tell(message)


def tell(message: str, category: type[Warning] = IntarsiaWarning) -> None:
    """Issues a warning for the line outside of this package that led to it.

    In a thread of a pool there is no such line; then the caller of this function is named.
    """
    frame, level = caller_frame()
    has_caller = not frame.f_code.co_filename.startswith((*_OWN_FILES, *_THREAD_FILES))
    warnings.warn(shown_in_text(redacted(message)), category, stacklevel=level if has_caller else 2)


def caller_frame() -> tuple[FrameType, int]:
    """Returns the innermost frame outside of this package.

    Also returns its ``stacklevel`` for a warning by the function that calls this one.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_code.co_filename.startswith(_OWN_FILES) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return frame, level


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses ``IntarsiaWarning`` in this thread and in tasks that it starts.

    The filters of ``warnings`` would apply to all threads.
    """
    before = _is_quiet.set(True)
    try:
        yield
    finally:
        _is_quiet.reset(before)
