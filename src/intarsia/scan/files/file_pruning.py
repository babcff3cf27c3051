"""Prunes files of a data set before they are planned, many at a time.

A condition is compared at once with the row-group statistics of some hundred files. This takes
little longer than for one file. Small files that are left pass the small-file filter. Files on
remote storage are opened by threads.
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
from intarsia.file.open_file import READ_ERRORS, OpenedFile, VersionedFile
from intarsia.pruning.bounds_comparison import rows_might_match
from intarsia.pruning.partition_pruning import Constants, constants_might_match
from intarsia.pruning.predicate_tree import Never, Pruning, predicates_of
from intarsia.pruning.predicates import Comparison, Predicate
from intarsia.pruning.prune import rows_left
from intarsia.row_ranges import RowRanges
from intarsia.scan.file_planner import (
    ROW_GROUP_STATISTICS,
    folder_might_match,
    leaf_of,
    missing_columns,
)
from intarsia.scan.files.file_cache import FileCache
from intarsia.scan.files.index_pruning import files_with_keys
from intarsia.scan.files.small_file_filter import LEAST_FILES, matching_rows, small_files_of
from intarsia.scan.files.small_file_reader import readers
from intarsia.scan.request import Request
from intarsia.scan.scan import Matching, Part
from intarsia.threads import run_io_tasks

T = TypeVar("T")
BoolArray = NDArray[np.bool_]

SMALL_FILE_FILTER, KEYS = "filter of small files", "keys of many files"
"""Names of the steps that examine many files together."""
_FIRST_BATCH_FILES, _MAX_BATCH_FILES = 8, 128
"""Files of the first batch, few because the first rows may be enough, and maximum of later ones.

The maximum is no more than a cache keeps open.
"""


class File(NamedTuple):
    """A file of a data set with its partition values."""

    path: str
    constants: Constants


class CandidateFile(NamedTuple):
    """A file that might hold matching rows, and its part of the scan."""

    file: File
    part: Part


def prune_files(
    cache: FileCache, files: Sequence[File], request: Request, *, by_footer: bool = False
) -> Iterator[CandidateFile]:
    """Yields the ``files`` that might hold matching rows, in order.

    ``by_footer`` uses only footers, and finds no matching rows. Files whose partition values cannot
    match are not opened. Few files, and files that are checked for damage, are not pruned further.
    A file that cannot be opened is yielded; reading it raises the error.
    """
    if request.filter is None or len(files) < LEAST_FILES or cache.options.looks_for_damage:
        for file in in_folders(files, request.pruning):
            yield CandidateFile(file, Part(partial(cache.lease, file.path), file.constants))
        return
    candidates, candidates_again = itertools.tee(prune_unopened(cache, files, request))
    leases = run_file_tasks(cache, (partial(_lease, cache, file.path) for file in candidates_again))
    try:
        size = _FIRST_BATCH_FILES
        while batch := list(itertools.islice(zip(candidates, leases, strict=False), size)):
            yield from _candidates(cache, batch, request, by_footer)
            size = min(2 * size, _MAX_BATCH_FILES)
    finally:
        leases.close()


def prune_unopened(cache: FileCache, files: Sequence[File], request: Request) -> Iterator[File]:
    """Returns the ``files`` that might match by partition values and the catalog."""
    candidates = in_folders(files, request.pruning)
    if cache.catalog is None or request.filter is None:
        return candidates
    return iter(cache.catalog.files_left(candidates, request))


def in_folders(files: Iterable[File], pruning: Pruning) -> Iterator[File]:
    """Yields the ``files`` that might match by partition values."""
    filter_columns = {path[0] for test in predicates_of(pruning) for path in test.term.fields}
    key: tuple[tuple[str, pa.Scalar], ...]
    verdicts: dict[tuple[tuple[str, pa.Scalar], ...], bool] = {(): not isinstance(pruning, Never)}
    for file in files:
        key = ()
        if file.constants:
            key = tuple(item for item in file.constants.items() if item[0] in filter_columns)
        if key not in verdicts:
            verdicts[key] = folder_might_match(pruning, file.constants)
        if verdicts[key]:
            yield file


def run_file_tasks(cache: FileCache, tasks: Iterable[Callable[[], T]]) -> Generator[T]:
    """Yields the results of tasks in order. On remote storage threads run them ahead."""
    return (task() for task in tasks) if cache.is_local else run_io_tasks(tasks)


def _lease(cache: FileCache, path: str) -> VersionedFile | None:
    """Returns the file's handle; None on failure, because reading the file raises the error."""
    try:
        return cache.lease(path)
    except (IntarsiaError, OSError):
        return None


def _candidates(
    cache: FileCache,
    batch: Sequence[tuple[File, VersionedFile | None]],
    request: Request,
    by_footer: bool,
) -> Iterator[CandidateFile]:
    opened = [(file, lease) for file, lease in batch if lease is not None]
    verdicts = iter(_might_match(opened, request, by_footer))
    for file, lease in batch:
        again = partial(cache.lease, file.path)
        might_match, matching = (True, None) if lease is None else next(verdicts)
        if lease is not None and might_match:
            yield CandidateFile(file, Part(_first(lease, again), file.constants, matching=matching))
        elif lease is None or not lease.is_current():
            yield CandidateFile(file, Part(again, file.constants))


def _first(lease: VersionedFile, again: Callable[[], VersionedFile]) -> Callable[[], VersionedFile]:
    """Returns a function that returns ``lease`` once, and calls ``again`` after that."""
    leases = [lease]
    return lambda: leases.pop() if leases else again()


def _might_match(
    opened: Sequence[tuple[File, VersionedFile]], request: Request, by_footer: bool
) -> list[tuple[bool, Matching | None]]:
    """Returns for each file whether it might match, and its matching rows if they are known.

    Files of one schema group are examined together.
    """
    verdicts = np.ones(len(opened), dtype=np.bool_)
    matching: dict[int, Matching] = {}
    for positions in alike((at, lease.file, file) for at, (file, lease) in enumerate(opened)):
        files = [opened[at][1].file for at in positions]
        constants = [opened[at][0].constants for at in positions]
        try:
            verdicts[positions], rows = _verdicts(files, constants, request, by_footer)
        except READ_ERRORS:  # planning the files one by one reports the error
            continue
        reading = readers(files, constants, rows, request)
        for i, matching_rows_ in rows.items():
            matching[positions[i]] = Matching(matching_rows_, reading.get(i))
    return [(bool(might_match), matching.get(at)) for at, might_match in enumerate(verdicts)]


def _verdicts(
    files: Sequence[OpenedFile],
    constants: Sequence[Constants],
    request: Request,
    by_footer: bool,
) -> tuple[BoolArray, dict[int, RowRanges]]:
    """Returns a mask of the files that might match, and matching rows by position.

    Footers are used first, then the values of small files. Files in which all rows match are
    decoded only if columns are requested, because their rows are then read together.
    """
    group = SchemaGroup(files, constants, request.schema)
    might_match = group.might_match(request.pruning)
    _record(files, might_match, ROW_GROUP_STATISTICS)
    if request.filter is None or files[0].request_bytes or might_match.sum() < LEAST_FILES:
        return might_match, {}
    if by_footer and not files[0].profile.is_recording:
        return might_match, {}
    unsure = might_match & group.might_match(request.filter.escapes)
    candidates = np.flatnonzero(might_match if request.columns else unsure).tolist()
    if len(candidates) < LEAST_FILES:
        return might_match, {}
    chosen, folders = [files[i] for i in candidates], [constants[i] for i in candidates]
    if by_footer:
        for i in small_files_of(chosen, folders, request.filter):
            chosen[i].profile.together()
        return might_match, {}
    matching_by_position = matching_rows(chosen, folders, request.schema, request.filter)
    matching = {candidates[i]: rows for i, rows in matching_by_position.items()}
    might_match[list(matching)] = [bool(rows) for rows in matching.values()]
    for i, rows in matching.items():
        files[i].profile.together()
        files[i].profile.step(SMALL_FILE_FILTER, rows)
    large = [i for i in np.flatnonzero(unsure).tolist() if i not in matching]
    if len(large) >= LEAST_FILES:
        chosen, folders = [files[i] for i in large], [constants[i] for i in large]
        might_match[large] = files_with_keys(chosen, folders, request.schema, request.pruning)
        _record(chosen, might_match[large], KEYS)
    return might_match, matching


def _record(files: Sequence[OpenedFile], might_match: BoolArray, source: str) -> None:
    """Records in the profiles of ``files`` that ``source`` excluded some of them."""
    for i in np.flatnonzero(~might_match).tolist():
        files[i].profile.step(source, RowRanges.none())


def alike(numbered: Iterable[tuple[int, OpenedFile, File]]) -> list[list[int]]:
    """Groups the numbers of files by schema group and partition keys."""
    groups: dict[tuple[int, tuple[str, ...]], list[int]] = {}
    for number, opened, file in numbered:
        groups.setdefault((id(opened.shape), tuple(file.constants)), []).append(number)
    return [*groups.values()]


class SchemaGroup:
    """Files of one schema group with the same partition keys.

    Their row groups are numbered across all files.
    """

    def __init__(
        self, files: Sequence[OpenedFile], constants: Sequence[Constants], schema: pa.Schema
    ) -> None:
        self._files, self._folders, self._schema = files, constants, schema
        self._counts = [len(file.metadata.row_groups) for file in files]
        self._num_groups = sum(self._counts)
        self._file_numbers = np.repeat(np.arange(len(files)), self._counts)

    def might_match(self, pruning: Pruning) -> BoolArray:
        """Returns a mask of the ``n`` files that might hold a passing row: shape ``(n,)``, bool."""
        might_match_ = np.zeros(len(self._files), dtype=np.bool_)
        might_match_[self._file_numbers[self.groups_left(pruning).rows()]] = True
        return might_match_

    def groups_left(self, pruning: Pruning) -> RowRanges:
        """Returns the row groups, numbered in all files, that might hold passing rows."""
        missing = missing_columns(self._files[0], pruning, self._folders[0], self._schema)
        self._constants = [{**folder, **missing} for folder in self._folders]
        return rows_left(pruning, RowRanges.all(self._num_groups), self._groups_left)

    def by_file(self, groups: RowRanges) -> dict[int, list[int]]:
        """Returns the numbers of ``groups`` in their files, by the position of the file."""
        groups_by_file: dict[int, list[int]] = {}
        first = np.cumsum([0, *self._counts])
        for group in groups.rows().tolist():
            file = int(self._file_numbers[group])
            groups_by_file.setdefault(file, []).append(group - int(first[file]))
        return groups_by_file

    def num_rows(self, groups: RowRanges) -> int:
        """Returns the number of rows in ``groups``, which are numbered in all files."""
        return sum(
            self._files[file].num_rows_in(group)
            for file, own in self.by_file(groups).items()
            for group in own
        )

    def _groups_left(self, test: Predicate) -> RowRanges:
        """Returns the row groups that might hold a row that passes ``test``."""
        file, constants = self._files[0], self._constants[0]
        names = constants.keys() & {path[0] for path in test.term.fields}
        if names:
            might_match = self._by_constants(test, sorted(names))
            return RowRanges.from_mask(np.repeat(might_match, self._counts))
        leaf = leaf_of(file, test, constants, self._schema)
        if leaf is None or not isinstance(test, Comparison):
            return RowRanges.all(self._num_groups)
        chunks = [
            file.chunk(group, leaf.index)
            for file, count in zip(self._files, self._counts, strict=True)
            for group in range(count)
        ]
        return RowRanges.from_mask(rows_might_match(test, file.bounds_of(leaf.index, chunks)))

    def _by_constants(self, test: Predicate, names: Sequence[str]) -> list[bool]:
        """Returns for each file whether a row might pass, by the constant columns ``names``."""
        values = [tuple(constants[name] for name in names) for constants in self._constants]
        verdicts = {
            key: constants_might_match(test, dict(zip(names, key, strict=True)))
            for key in set(values)
        }
        return [verdicts[key] for key in values]
