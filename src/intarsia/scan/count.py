"""Counts matching rows. Rows that metadata or indexes prove to match are not read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import intarsia.usage_counts.usage as usage
from intarsia.file.open_file import OpenedFile, as_current_version, read_one_version
from intarsia.memory import has_limit
from intarsia.plan.plan import ScanPlan
from intarsia.plan.planner import plan_group
from intarsia.pruning.partition_pruning import folder_might_match
from intarsia.row_ranges import RowRanges
from intarsia.scan.request import Request
from intarsia.scan.scan import Part, files_ahead, has_known_matches, scan
from intarsia.scan.unit_reader import ScanStatistics
from intarsia.threads import in_order


def count_rows(
    parts: Iterable[Part], request: Request, *, use_threads: bool = True, is_far: bool = False
) -> int:
    """Returns how many rows of ``parts`` match the request's filter.

    Rows that must match by statistics or page indexes are not read.
    """
    # With a memory limit, the units of a local file are read ahead, not those of several files.
    ahead = files_ahead(is_far) if use_threads and (is_far or not has_limit()) else 0
    count = partial(
        _count, request=request, use_threads=use_threads, scan_statistics=ScanStatistics()
    )
    counts = (partial(count, part) for part in parts)

    def is_little(task: partial[int]) -> bool:
        return has_known_matches(task) or _all_rows_match(task.args[0], request)

    return sum(in_order(counts, ahead, is_far=is_far, is_little=is_little))


def _all_rows_match(part: Part, request: Request) -> bool:
    """True if all rows of a part match because of its partition values."""
    if request.filter is None or not part.constants:
        return False
    return not folder_might_match(request.filter.escapes, part.constants)


def _count(part: Part, request: Request, use_threads: bool, scan_statistics: ScanStatistics) -> int:
    if part.matches is not None:
        if part.get().is_current():
            return part.matches.num_rows
        part = replace(part, planned=None, read=None)
    count_in_file = partial(_counted, part, request, use_threads, scan_statistics)
    return read_one_version(part.get, count_in_file)


def _counted(
    part: Part,
    request: Request,
    use_threads: bool,
    scan_statistics: ScanStatistics,
    file: OpenedFile,
) -> int:
    def count_matching(part: Part) -> int:
        tables = scan([part], request, use_threads=use_threads, scan_statistics=scan_statistics)
        return sum(table.num_rows for table in tables)

    if file.options.skips_corrupt:  # rows in damaged pages are not counted, as in a read
        rest_of_part = replace(part, get=partial(as_current_version, file))
        return count_matching(rest_of_part)
    if request.filter is None or _all_rows_match(part, request):
        return file.rows.num_rows
    while True:
        distrusted = file.page_indexes.distrusted
        proven, unsure = _proven(file, part, request)
        rest_of_part = replace(
            part, get=partial(as_current_version, file), rows=unsure, planned=ScanPlan(unsure)
        )
        num_matching = count_matching(rest_of_part)
        if file.page_indexes.distrusted == distrusted:  # else the proven rows may be wrong too
            return int(proven + num_matching)


def _proven(file: OpenedFile, part: Part, request: Request) -> tuple[int, RowRanges]:
    """Returns how many rows certainly match, and which other rows might.

    The footer is used first, then indexes.
    """
    assert request.filter is not None
    escapes = request.filter.escapes
    group, known = part.known(file, request)
    match = plan_group(group, request.pruning, by_footer=True) if known is None else known
    fail = plan_group(group, escapes, within=match.rows, by_footer=True)
    proven = match.rows.num_rows - fail.rows.num_rows
    if not fail.rows:
        return proven, fail.rows
    possible = plan_group(group, request.pruning, within=fail.rows, after=match)
    file.profile.planned(possible)
    usage.count(request.filter, request.all_columns, file, possible.steps)
    unsure = plan_group(group, escapes, within=possible.rows, after=fail).rows
    return proven + possible.rows.num_rows - unsure.num_rows, unsure
