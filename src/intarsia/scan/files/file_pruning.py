"""Which files of a data set are worth planning, told from the footers of many at a time.

A condition is compared with the statistics of all row groups of some hundred files at once, which
takes little more than comparing it with those of one. What is left out here, ``planner`` would find
to hold no candidate; of what is left, small files are sifted. Files on far storage are opened, and
asked whether they were replaced, as many at a time as there are threads for waiting.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from intarsia.errors import IntarsiaError
from intarsia.file.open_file import READ_ERRORS, Lease, OpenedFile
from intarsia.pruning.bounds_comparison import rows_might_match
from intarsia.pruning.partition_pruning import Constants, constants_might_match
from intarsia.pruning.predicate_tree import Never, Pruning, tests_of
from intarsia.pruning.predicates import Predicate, Test
from intarsia.pruning.prune import rows_left
from intarsia.row_ranges import RowRanges
from intarsia.scan.file_planner import folder_might_match, leaf_of, missing_columns
from intarsia.scan.files.file_cache import FileCache
from intarsia.scan.files.index_pruning import hold_keys
from intarsia.scan.files.small_file_filter import LEAST_FILES, matching_rows
from intarsia.scan.files.small_file_reader import readers
from intarsia.scan.request import Request
from intarsia.scan.scan import Matching, Part
from intarsia.threads import waited_for

T = TypeVar("T")
BoolArray = NDArray[np.bool_]

_FIRST, _MOST = 8, 128
"""Files of the first survey, few because the first rows may be enough, and of later ones: no more
than a cache keeps open."""


class File(NamedTuple):
    """A file of a data set, and the columns its folder fixes."""

    path: str
    constants: Constants


class Kept(NamedTuple):
    """A file that might hold matching rows, and its part of the scan."""

    file: File
    part: Part


def files_left(
    cache: FileCache, files: Sequence[File], request: Request, *, by_footer: bool = False
) -> Iterator[Kept]:
    """Those of ``files`` that might hold matching rows, in their order.

    ``by_footer`` reads nothing else of the files, and tells no rows that match.

    Files of folders that cannot match are not opened; few files are not worth a survey, nor are
    those whose statistics may be damaged. A file that cannot be opened is kept: the error comes
    when its turn does.
    """
    if request.filter is None or len(files) < LEAST_FILES or cache.options.looks_for_damage:
        for file in in_folders(files, request.pruning):
            yield Kept(file, Part(partial(cache.lease, file.path), file.constants))
        return
    wanted, again = itertools.tee(unopened_left(cache, files, request))
    leases = each_of(cache, (partial(_lease, cache, file.path) for file in again))
    try:
        size = _FIRST
        while found := list(itertools.islice(zip(wanted, leases, strict=False), size)):
            yield from _kept(cache, found, request, by_footer)
            size = min(2 * size, _MOST)
    finally:
        leases.close()


def unopened_left(cache: FileCache, files: Sequence[File], request: Request) -> Iterator[File]:
    """Those of ``files`` that might hold matching rows, as far as folders and a catalog tell."""
    wanted = in_folders(files, request.pruning)
    if cache.catalog is None or request.filter is None:
        return wanted
    return iter(cache.catalog.left(wanted, request))


def in_folders(files: Iterable[File], pruning: Pruning) -> Iterator[File]:
    """Those of ``files`` whose folders might match."""
    tested = {path[0] for test in tests_of(pruning) for path in test.term.fields}
    key: tuple[tuple[str, pa.Scalar], ...]
    known: dict[tuple[tuple[str, pa.Scalar], ...], bool] = {(): not isinstance(pruning, Never)}
    for file in files:
        key = ()
        if file.constants:
            key = tuple(item for item in file.constants.items() if item[0] in tested)
        if key not in known:
            known[key] = folder_might_match(pruning, file.constants)
        if known[key]:
            yield file


def each_of(cache: FileCache, tasks: Iterable[Callable[[], T]]) -> Generator[T]:
    """What tasks about single files give, in order; as far as they wait, many at a time."""
    return (task() for task in tasks) if cache.is_local else waited_for(tasks)


def _lease(cache: FileCache, path: str) -> Lease | None:
    """None where that fails, as it will again in its turn."""
    try:
        return cache.lease(path)
    except (IntarsiaError, OSError):
        return None


def _kept(
    cache: FileCache,
    found: Sequence[tuple[File, Lease | None]],
    request: Request,
    by_footer: bool,
) -> Iterator[Kept]:
    opened = [(file, lease) for file, lease in found if lease is not None]
    verdicts = iter(_might_match(opened, request, by_footer))
    for file, lease in found:
        again = partial(cache.lease, file.path)
        might, matching = (True, None) if lease is None else next(verdicts)
        if lease is not None and might:
            yield Kept(file, Part(_first(lease, again), file.constants, matching=matching))
        elif lease is None or not lease.is_current():
            yield Kept(file, Part(again, file.constants))


def _first(lease: Lease, again: Callable[[], Lease]) -> Callable[[], Lease]:
    """Gives ``lease``, and whatever ``again`` does from the second time on."""
    left = [lease]
    return lambda: left.pop() if left else again()


def _might_match(
    opened: Sequence[tuple[File, Lease]], request: Request, by_footer: bool
) -> list[tuple[bool, Matching | None]]:
    """For each file: might it hold matching rows, and which are they, where that is known?

    Files of one shape are looked at together.
    """
    might = np.ones(len(opened), dtype=np.bool_)
    matching: dict[int, Matching] = {}
    for members in alike((at, lease.file, file) for at, (file, lease) in enumerate(opened)):
        files = [opened[at][1].file for at in members]
        constants = [opened[at][0].constants for at in members]
        try:
            might[members], rows = _verdicts(files, constants, request, by_footer)
        except READ_ERRORS:  # which file it is, and what is wrong, planning it will say
            continue
        reading = readers(files, constants, rows, request)
        for i, found in rows.items():
            matching[members[i]] = Matching(found, reading.get(i))
    return [(bool(held), matching.get(at)) for at, held in enumerate(might)]


def _verdicts(
    files: Sequence[OpenedFile],
    constants: Sequence[Constants],
    request: Request,
    by_footer: bool,
) -> tuple[BoolArray, dict[int, RowRanges]]:
    """By footers, then by values: of small files that might hold rows that match.

    Of those whose values were looked at, by position, the rows that match. Files that hold no
    others are looked into only where columns are asked for: the rows are then read together.
    """
    survey = Survey(files, constants, request.schema)
    might = survey.might_match(request.pruning)
    if by_footer or request.filter is None or files[0].request_bytes or might.sum() < LEAST_FILES:
        return might, {}
    unsure = might & survey.might_match(request.filter.escapes)
    asked = np.flatnonzero(might if request.columns else unsure).tolist()
    if len(asked) < LEAST_FILES:
        return might, {}
    chosen, folders = [files[i] for i in asked], [constants[i] for i in asked]
    sifted = matching_rows(chosen, folders, request.schema, request.filter)
    matching = {asked[i]: rows for i, rows in sifted.items()}
    might[list(matching)] = [bool(rows) for rows in matching.values()]
    large = [i for i in np.flatnonzero(unsure).tolist() if i not in matching]
    if len(large) >= LEAST_FILES:
        chosen, folders = [files[i] for i in large], [constants[i] for i in large]
        might[large] = hold_keys(chosen, folders, request.schema, request.pruning)
    return might, matching


def alike(numbered: Iterable[tuple[int, OpenedFile, File]]) -> list[list[int]]:
    """The numbers of files, those together that are of one shape, in folders of the same keys."""
    found: dict[tuple[int, tuple[str, ...]], list[int]] = {}
    for number, opened, file in numbered:
        found.setdefault((id(opened.shape), tuple(file.constants)), []).append(number)
    return [*found.values()]


class Survey:
    """Files of one shape, in folders of the same keys: their row groups, numbered through."""

    def __init__(
        self, files: Sequence[OpenedFile], constants: Sequence[Constants], schema: pa.Schema
    ) -> None:
        self._files, self._folders, self._schema = files, constants, schema
        self._counts = [len(file.metadata.row_groups) for file in files]
        self._num_groups = sum(self._counts)
        self._file_numbers = np.repeat(np.arange(len(files)), self._counts)

    def might_match(self, pruning: Pruning) -> BoolArray:
        """For each of ``n`` files: might any of its rows pass? Shape ``(n,)``, bool."""
        might = np.zeros(len(self._files), dtype=np.bool_)
        might[self._file_numbers[self.groups_left(pruning).rows()]] = True
        return might

    def groups_left(self, pruning: Pruning) -> RowRanges:
        """The row groups in which rows might pass, numbered through all files."""
        missing = missing_columns(self._files[0], pruning, self._folders[0], self._schema)
        self._constants = [{**folder, **missing} for folder in self._folders]
        return rows_left(pruning, RowRanges.all(self._num_groups), self._groups_left)

    def by_file(self, groups: RowRanges) -> dict[int, list[int]]:
        """The numbers that ``groups`` have within their files, by the files' positions."""
        found: dict[int, list[int]] = {}
        first = np.cumsum([0, *self._counts])
        for group in groups.rows().tolist():
            file = int(self._file_numbers[group])
            found.setdefault(file, []).append(group - int(first[file]))
        return found

    def num_rows(self, groups: RowRanges) -> int:
        """How many rows ``groups`` have, numbered through all files."""
        return sum(
            self._files[file].num_rows_in(group)
            for file, own in self.by_file(groups).items()
            for group in own
        )

    def _groups_left(self, test: Predicate) -> RowRanges:
        """The row groups in which a row might pass."""
        file, constants = self._files[0], self._constants[0]
        names = constants.keys() & {path[0] for path in test.term.fields}
        if names:
            might = self._by_constants(test, sorted(names))
            return RowRanges.from_mask(np.repeat(might, self._counts))
        leaf = leaf_of(file, test, constants, self._schema)
        if leaf is None or not isinstance(test, Test):
            return RowRanges.all(self._num_groups)
        chunks = [
            file.chunk(group, leaf.index)
            for file, count in zip(self._files, self._counts, strict=True)
            for group in range(count)
        ]
        return RowRanges.from_mask(rows_might_match(test, file.bounds_of(leaf.index, chunks)))

    def _by_constants(self, test: Predicate, names: Sequence[str]) -> list[bool]:
        """For each file: might a row pass, by the columns ``names`` that have one value in it?"""
        values = [tuple(constants[name] for name in names) for constants in self._constants]
        known = {
            key: constants_might_match(test, dict(zip(names, key, strict=True)))
            for key in set(values)
        }
        return [known[key] for key in values]
