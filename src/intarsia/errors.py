"""Every error and warning Intarsia raises, under one root.

::

    IntarsiaError
    ├── FormatError            the bytes are not (valid) Parquet; a ValueError
    │   └── UnsupportedError   valid, but encrypted, signed or too new; a NotImplementedError
    ├── OutOfMemoryError       memory is short, and the file perhaps sound; a MemoryError
    ├── PredicateError         a filter names or compares what is not there; a ValueError
    ├── IndexSpecError         an index cannot be built as asked; a ValueError
    ├── PathError              nothing (readable, writable) at a path, or another file by now;
    │                          a FileNotFoundError
    ├── QueryTimeoutError      a call took longer than its ``timeout``; a TimeoutError
    └── MissingDependencyError an extra is not installed, or another version, or no Java;
                               an ImportError

    IntarsiaWarning            something to know of that is no error; a UserWarning
    CorruptDataWarning         rows were left out, as asked for; a UserWarning
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
from types import ModuleType, TracebackType
from typing import Any, Self, TypeVar, cast

from intarsia.control_characters import shown_in_text
from intarsia.redaction import redacted, redacted_with


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a file: as much as is known. ``offset`` is in bytes from the file's start.

    ``file`` is shown to people: it lacks the credentials that a URI may have.
    """

    file: str | None = None
    row_group: int | None = None
    column: str | None = None
    page: int | None = None
    offset: int | None = None

    def __post_init__(self) -> None:
        if self.file is not None:
            object.__setattr__(self, "file", redacted(self.file))

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
    """Root of all errors raised on purpose.

    Control characters in the message are escaped. Credentials in URIs are redacted: in the message,
    and in the error that is handled at the time, which becomes the cause of this one, and in all
    that led to that.
    """

    def __init__(self, *args: Any) -> None:
        handled = sys.exception()
        shown = (
            shown_in_text(redacted_with(one, handled)) if isinstance(one, str) else one
            for one in args
        )
        super().__init__(*shown)


class _PlacedError(IntarsiaError):
    """An error at a place in a file."""

    def __init__(self, message: str, where: Where | None = None) -> None:
        super().__init__(message, where)
        self.message = str(self.args[0])
        self.where = where or Where()

    def __str__(self) -> str:
        place = shown_in_text(str(self.where))
        return f"{place}: {self.message}" if place else self.message

    def at(self, where: Where) -> Self:
        """The same error with the parts of ``where`` it did not know itself."""
        mine, other = self.where, where
        merged = Where(
            *(
                getattr(mine, name) if getattr(mine, name) is not None else getattr(other, name)
                for name in Where.__slots__
            )
        )
        return type(self)(self.message, merged)


class FormatError(_PlacedError, ValueError):
    """The bytes at hand are not what the Parquet specification asks for."""


class OutOfMemoryError(_PlacedError, MemoryError):
    """Memory is short. That is no damage, so nothing is skipped, and nothing is called torn."""


class UnsupportedError(FormatError, NotImplementedError):
    """Valid Parquet that this version does not read or will not change."""


class PredicateError(IntarsiaError, ValueError):
    """A filter that cannot be understood, or that does not fit the schema."""


_GIVEN = ("__filename", "__row_number")
"""Columns that are there to be asked for only."""


def unknown_column(name: str, known: Iterable[str]) -> PredicateError:
    """The error for a column that is not there."""
    return PredicateError(f"column {name!r} is not there{instead(name, known)}")


def name_of_several(names: Iterable[str]) -> str | None:
    """Returns the first of ``names`` that occurs more than once; None if all differ."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def instead(name: str, known: Iterable[str]) -> str:
    """How a message goes on that says ``name`` is not there: what is like it, or what is there."""
    if name in _GIVEN:
        return ": scans give it, and filter by what files hold"
    names = list(known)
    alike = difflib.get_close_matches(name.lower(), [other.lower() for other in names], 1, 0.75)
    meant = [other for other in names if other.lower() in alike and other != name]
    return f", {meant[0]!r} is" if meant else f"; there are: {', '.join(names[:20])}"


def check_several(**named: object) -> None:
    """Raise ``TypeError`` for one name where names are wanted; a text has letters."""
    for what, names in named.items():
        if isinstance(names, str):
            raise TypeError(f"{what} is a list of names, not one name")


class IndexSpecError(IntarsiaError, ValueError):
    """An index that cannot be built as it was asked for."""


class PathError(IntarsiaError, FileNotFoundError):
    """There is nothing, or nothing readable, where a path points, or no longer the same file."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class QueryTimeoutError(IntarsiaError, TimeoutError):
    """A call was stopped because it took longer than its ``timeout``. Calling it again is safe."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class MissingDependencyError(IntarsiaError, ImportError):
    """A package is not installed, or has a major version that is not supported."""


# --- memory that is short -------------------------------------------------------------------------

_SHORTAGES = (
    "cannot allocate memory",
    "failed to map segment",
    "can't start new thread",
    "out of memory",
)
"""Parts of messages of errors that have no type of their own, in lower case."""
_ADVICE = "ask for fewer columns or rows at a time, or give the process more memory"
_MOST_CAUSES = 20
"""Errors of one chain of causes that are looked at."""
T = TypeVar("T")


def shortage_in(error: BaseException | None) -> BaseException | None:
    """Returns the error that says memory is short: ``error`` or one that led to it, else None."""
    for _ in range(_MOST_CAUSES):
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
    return is_vague and any(part in str(error).lower() for part in _SHORTAGES)


def out_of_memory(error: BaseException) -> OutOfMemoryError | None:
    """Returns what to raise if memory is short, else None; an error that says it best itself."""
    found = shortage_in(error)
    if found is None or isinstance(found, OutOfMemoryError):
        return found
    said = " ".join(str(found).split()).rstrip(".")
    return OutOfMemoryError(f"out of memory{': ' * bool(said)}{said}; {_ADVICE}")


class placed:  # noqa: N801 # used as a statement, like ``contextlib.suppress``
    """A context whose errors name ``where`` as far as they do not name a place themselves.

    These are ``FormatError`` and its like. Any error for lack of memory becomes
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
        known = out_of_memory(error) or error
        if isinstance(known, _PlacedError):
            raise _with_notes(known.at(self._where), error) from error


def public(what: T) -> T:
    """Decorates a public function, or a class with public methods.

    Wherever memory is short, they raise ``OutOfMemoryError``, and so do generators that they
    return.
    """
    if not isinstance(what, type):
        return cast(T, _guarded(cast(Callable[..., Any], what)))
    for name, member in list(vars(what).items()):
        if name.startswith("_") and name not in _PUBLIC_METHODS:
            continue
        if isinstance(member, property):
            getter = None if member.fget is None else _guarded(member.fget)
            setattr(what, name, property(getter, member.fset, member.fdel, member.__doc__))
        elif isinstance(member, classmethod | staticmethod):
            setattr(what, name, type(member)(_guarded(member.__func__)))
        elif inspect.isfunction(member):
            setattr(what, name, _guarded(member))
    return what


_PUBLIC_METHODS = frozenset({"__init__", "__iter__", "__enter__", "__exit__"})


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def guarded(*args: Any, **options: Any) -> Any:
        try:
            found = function(*args, **options)
        except Exception as error:
            _raise_if_short(error)
            raise
        return guarded_items(found) if inspect.isgenerator(found) else found

    return guarded


def guarded_items(items: Iterable[T]) -> Generator[T]:
    """Yields ``items``. Raises ``OutOfMemoryError`` wherever memory is short."""
    try:
        yield from items
    except Exception as error:
        _raise_if_short(error)
        raise


def _raise_if_short(error: Exception) -> None:
    """Raises ``OutOfMemoryError`` if memory is short, unless ``error`` is one."""
    short = out_of_memory(error)
    if short is not None and short is not error:
        raise _with_notes(short, error) from error


def _with_notes(made: _PlacedError, error: BaseException) -> _PlacedError:
    for note in getattr(error, "__notes__", ()):
        made.add_note(note)
    return made


# --- packages that are missing --------------------------------------------------------------------


@contextlib.contextmanager
def optional(message: str, *packages: str) -> Iterator[None]:
    """A context of an import. Raises ``MissingDependencyError`` if one of ``packages`` is missing.

    Any other error of an import is raised as it is: a package that is there may lack memory, or
    something that it needs itself.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        raise MissingDependencyError(message) from error


OLDEST = {"duckdb": "2.0.1", "polars": "2.1", "pyarrow": "26"}
"""The oldest supported version of each package. The next major version is not supported."""


def check_version(package: ModuleType) -> None:
    """Raises ``MissingDependencyError`` if the version of a package is not supported.

    Others are not tested: they may give another meaning to a function, and wrong answers unnoticed.

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
    """Something to know of that is no error.

    An index that was ignored (answers stay right) or that some files cannot have, dates of an old
    calendar, rows appended with other columns, a write that was interrupted.
    """


class CorruptDataWarning(UserWarning):
    """Rows were left out because their bytes are damaged, as ``on_corrupt="skip"`` asks for."""


_WITHIN = (os.path.join(os.path.dirname(__file__), ""), contextlib.__file__)
_OF_THREADS = (threading.__file__, os.path.dirname(concurrent.futures.__file__))
_is_quiet = ContextVar("_is_quiet", default=False)


def warn(message: str) -> None:
    """Give an ``IntarsiaWarning``, unless quiet."""
    if not _is_quiet.get():
        tell(message)


def tell(message: str, category: type[Warning] = IntarsiaWarning) -> None:
    """Give a warning of the line outside of this package that led to it.

    Of a line in here where that is in another thread.
    """
    level, frame = 1, sys._getframe()
    while frame.f_code.co_filename.startswith(_WITHIN) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    is_known = not frame.f_code.co_filename.startswith((*_WITHIN, *_OF_THREADS))
    warnings.warn(shown_in_text(redacted(message)), category, stacklevel=level if is_known else 2)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """A context without ``IntarsiaWarning``: of this thread, and of tasks it has others do.

    The filters of ``warnings`` are every thread's.
    """
    before = _is_quiet.set(True)
    try:
        yield
    finally:
        _is_quiet.reset(before)
