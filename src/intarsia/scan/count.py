"""Counting the rows that match, without reading where metadata and indexes prove it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from intarsia.file.open_file import OpenedFile, lease_of, of_one_version
from intarsia.memory import has_limit
from intarsia.pruning.partition_pruning import Constants
from intarsia.pruning.predicate_tree import Maybe
from intarsia.row_ranges import RowRanges
from intarsia.scan.file_planner import folder_might_match, plan_rows
from intarsia.scan.request import Request
from intarsia.scan.scan import Part, files_ahead, is_settled, scan
from intarsia.scan.unit_reader import Trend
from intarsia.threads import in_order


def count_rows(
    parts: Iterable[Part], request: Request, *, use_threads: bool = True, is_far: bool = False
) -> int:
    """How many rows of ``parts`` match the request's filter.

    Rows that can match and cannot fail to, by statistics and page indexes, are not read.
    """
    # With a memory limit, the units of a local file are read ahead, not those of several files.
    ahead = files_ahead(is_far) if use_threads and (is_far or not has_limit()) else 0
    count = partial(_count, request=request, use_threads=use_threads, trend=Trend())
    counts = (partial(count, part) for part in parts)

    def is_little(task: partial[int]) -> bool:
        return is_settled(task) or _are_all(task.args[0], request)

    return sum(in_order(counts, ahead, is_far=is_far, is_little=is_little))


def _are_all(part: Part, request: Request) -> bool:
    """Do all rows of a part match, whatever they are, by what its folder fixes?"""
    if request.filter is None or not part.constants:
        return False
    return not folder_might_match(request.filter.escapes, part.constants)


def _count(part: Part, request: Request, use_threads: bool, trend: Trend) -> int:
    if part.matching is not None:
        if part.get().is_current():
            return part.matching.rows.num_rows
        part = replace(part, matching=None)
    counted = partial(_counted, part, request, use_threads, trend)
    return of_one_version(part.get, counted)


def _counted(
    part: Part, request: Request, use_threads: bool, trend: Trend, file: OpenedFile
) -> int:
    def found_in(part: Part) -> int:
        tables = scan([part], request, use_threads=use_threads, trend=trend)
        return sum(table.num_rows for table in tables)

    if file.options.skips_corrupt:  # what can be read is counted, as reading would give it
        rest = replace(part, get=partial(lease_of, file))
        return found_in(rest)
    if _are_all(part, request):
        return file.num_rows
    while True:
        distrusted = file.page_indexes.distrusted
        proven, unsure = _proven(file, part.constants, request)
        rest = replace(part, get=partial(lease_of, file), rows=unsure, planned=unsure)
        found = found_in(rest)
        if file.page_indexes.distrusted == distrusted:  # else what was proven may be wrong as well
            return int(proven + found)


def _proven(file: OpenedFile, constants: Constants, request: Request) -> tuple[int, RowRanges]:
    """How many rows match for certain, and which others might: by the footer, then by indexes."""
    escapes = Maybe() if request.filter is None else request.filter.escapes
    proven, rows = 0, RowRanges.all(file.num_rows)
    for by_footer in (True, False):
        if not rows:
            break
        plan = partial(plan_rows, file, constants=constants, schema=request.schema)
        possible = plan(request.pruning, within=rows, by_footer=by_footer).rows
        rows = plan(escapes, within=possible, by_footer=by_footer).rows
        proven += (possible - rows).num_rows
    return proven, rows
