"""Counts by pyarrow's own reader, for files in which no index can skip much.

pyarrow decodes many files, and large chunks, with less processor time than our reader, and in
threads that do not wait for the interpreter. It reads the row groups that footers leave, without a
filter, because its statistics leave NaN out. The filter is then evaluated on all of their rows.

::

    footers ──► all rows of a row group match: counted, not read
            ──► no row matches:                skipped
            ──► else: do indexes of a few files leave less than a third of the rows?
                      ──yes──► our reader
                      ──no───► pyarrow
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from intarsia.dataset.row_count_check import FAILURES
from intarsia.dataset.scan_source import ScanSource
from intarsia.errors import IntarsiaError
from intarsia.expr.tree import calls_in
from intarsia.file.open_file import OpenedFile
from intarsia.memory import is_limited
from intarsia.plan.cost_model import COSTS
from intarsia.plan.file_group import file_groups
from intarsia.plan.planner import plan_group, plan_rows
from intarsia.pruning.partition_pruning import Constants
from intarsia.pruning.predicates import predicates_of
from intarsia.row_ranges import RowRanges
from intarsia.scan.files.file_pruning import File, in_log, prune_files
from intarsia.scan.request import Request
from intarsia.scan.unit_reader import fits

_MATCHES = "matches"
_MAX_CALLS = 2000
"""Calls in a filter. pyarrow's scans nest all conditions of AND and OR in each other. With 10,000
conditions they overflow the stack.
"""


class RowGroups(NamedTuple):
    """The row groups of a file that pyarrow reads, and their rows. None means all row groups."""

    file: File
    groups: Sequence[int] | None
    num_rows: int


class WholeScan(NamedTuple):
    """The row groups that pyarrow reads, and the number of rows of others that certainly match."""

    proven: int
    parts: Sequence[RowGroups]


def whole_scan(source: ScanSource, request: Request) -> WholeScan | None:
    """Plans a count by pyarrow's own reader, by footers alone.

    Rows that match for certain are left out. Returns None if our reader may be faster, or if
    pyarrow may fail at rows that do not match. Returns None as well for small files that are not
    open yet, and if a footer cannot be read. pyarrow cannot follow time and memory limits, so with
    these it returns None too.
    """
    cache, files = source.cache, source.files
    if not cache.is_local or cache.catalog is not None or not _is_plain(request) or is_limited():
        return None
    assert request.filter is not None
    tests = predicates_of(request.pruning)
    proven, parts, indexed = 0, dict[int, RowGroups](), list[_IndexedFile]()
    try:
        left = [*in_log(cache, files, request)]
        is_known = cache.num_kept >= len(files)
        sample = left[: 0 if is_known else COSTS.pyarrow_sample_files]
        if any(cache.get(file.path).source.size < COSTS.opened_file_bytes for file in sample):
            return None
        opened = [cache.get(file.path) for file in left]
        constants = [file.constants for file in left]
        for members, group in file_groups(opened, constants, request.schema):
            if not _may_be_decoded(group.file, group.constants[0], request):
                return None
            possible = plan_group(group, request.pruning, by_footer=True).rows
            escapes = request.filter.escapes
            unsure = plan_group(group, escapes, within=possible, by_footer=True).rows
            proven += possible.num_rows - unsure.num_rows
            for i, groups in group.row_groups_by_file(unsure).items():
                file, at = group.files[i], members[i]
                is_whole = len(groups) == len(file.metadata.row_groups)
                if group.has_indexes(tests, i, groups[0], COSTS.indexed_chunk_bytes):
                    rows = group.rows_in_file(i, unsure)
                    indexed.append(_IndexedFile(file, group.constants[i], rows))
                num_rows = file.num_rows if is_whole else sum(map(file.num_rows_in, groups))
                parts[at] = RowGroups(left[at], None if is_whole else groups, num_rows)
        if 0 < len(indexed) <= COSTS.pyarrow_sample_files or _indexes_skip_much(indexed, request):
            return None
    except (IntarsiaError, OSError):  # our reader reports the file and the error
        return None
    return WholeScan(proven, [parts[at] for at in sorted(parts)])


def _is_plain(request: Request) -> bool:
    """True if the filter only compares columns that are not nested, and no part of one is read."""
    condition = request.filter
    if condition is None or condition.condition.comparison is None or condition.pruned:
        return False
    if sum(1 for _ in itertools.islice(calls_in(condition.node), _MAX_CALLS)) == _MAX_CALLS:
        return False
    types = [request.schema.field(name).type for name in condition.columns or ()]
    return bool(types) and not any(map(pa.types.is_nested, types))


def _may_be_decoded(file: OpenedFile, constants: Constants, request: Request) -> bool:
    """True if all values of the columns of such a file have one in the data set's type.

    False if the filter compares strings or bytes: our reader compares each in a dictionary once.
    """
    stored = file.schema_arrow
    for name in request.filter_columns:
        places = [] if name in constants else stored.get_all_field_indices(name)
        kind = request.schema.field(name).type
        if places and not pa.types.is_primitive(kind):
            return False
        if len(places) > 1 or not all(fits(stored.field(at).type, kind) for at in places):
            return False
    return True


class _IndexedFile(NamedTuple):
    """A file with indexes of columns in the filter, and the rows that may match by the footer."""

    file: OpenedFile
    constants: Constants
    rows: RowRanges


def _indexes_skip_much(files: Sequence[_IndexedFile], request: Request) -> bool:
    """True if indexes leave few rows to read, by a sample of the files."""
    assert request.filter is not None
    left = 0
    sample = files[:: -(-len(files) // COSTS.pyarrow_sample_files) or 1]
    for file, constants, rows in sample:
        for pruning in (request.pruning, request.filter.escapes):
            rows = plan_rows(file, pruning, constants, request.schema, within=rows).rows
        left += rows.num_rows
    return bool(sample) and COSTS.page_cost * left < sum(rows.num_rows for *_, rows in sample)


def count_matching(
    data: pads.FileSystemDataset, source: ScanSource, request: Request
) -> int | None:
    """Returns how many rows match, by pyarrow's own scan. None if our reader is to count them.

    ``data`` is pyarrow's view of the source's files.
    """
    if not footers_leave_most(source, request):
        return None
    planned = whole_scan(source, request)
    source.cache.health.tell()
    if planned is None:
        return None
    by_file = zip(source.files, data._get_fragments(None), strict=True)
    fragments = {id(file): fragment for file, fragment in by_file}
    return count_by_pyarrow(data, fragments, planned, request)


def count_by_pyarrow(
    data: pads.FileSystemDataset,
    fragments: Mapping[int, pads.ParquetFileFragment],
    planned: WholeScan,
    request: Request,
) -> int | None:
    """Returns how many of the ``planned`` rows match. Returns None if pyarrow fails.

    ``fragments`` are those of ``data``, by the ``id`` of their ``File``.
    """
    assert request.filter is not None
    if not planned.parts:
        return planned.proven
    matches = {_MATCHES: request.filter.condition.expression}
    try:
        source = _dataset_of(data, fragments, planned.parts)
        matches_by_row = source.scanner(columns=matches).to_table().column(0)
    except FAILURES:  # our reader reports the file and the error
        return None
    if len(matches_by_row) != sum(part.num_rows for part in planned.parts):
        return None  # pyarrow stopped at a page without values
    return planned.proven + int(pc.sum(matches_by_row).as_py() or 0)


def footers_leave_most(source: ScanSource, request: Request) -> bool:
    """True if there are few files, or if footers leave most files of a sample."""
    files = source.files
    if len(files) < COSTS.pyarrow_files:
        return True
    sample = files[:: len(files) // COSTS.pyarrow_first_files]
    return 2 * len([*prune_files(source.cache, sample, request, by_footer=True)]) > len(sample)


def _dataset_of(
    data: pads.FileSystemDataset,
    fragments: Mapping[int, pads.ParquetFileFragment],
    parts: Sequence[RowGroups],
) -> pads.FileSystemDataset:
    """Returns pyarrow's own data set of some row groups of ``data``."""
    chosen = []
    for part in parts:
        fragment = fragments[id(part.file)]
        if part.groups is not None:
            fragment = fragment.subset(row_group_ids=part.groups)
        chosen.append(fragment)
    others = data.format, data.filesystem, data.partition_expression
    return pads.FileSystemDataset(chosen, data.schema, *others)
