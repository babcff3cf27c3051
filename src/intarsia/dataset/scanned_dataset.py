"""``ScannedDataset``: how the scans of a data set are divided between pyarrow and our reader."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Self

import pyarrow as pa
import pyarrow.dataset as pads

import intarsia.memory as memory
from intarsia.dataset.file_dataset import FileDataset
from intarsia.dataset.pyarrow_choice import pyarrow_may_scan
from intarsia.dataset.pyarrow_columns import scan_scanner_columns
from intarsia.dataset.record_batches import BATCH_ROWS, batches_of
from intarsia.dataset.request_builder import (
    Columns,
    check_columns,
    check_scanner_columns,
    needs_page_reader,
    request_of,
    scan_request,
    used_columns,
    uses_scanner_columns,
)
from intarsia.dataset.row_count_check import (
    completed_scan,
    fits_in_memory,
    may_miss_rows,
    naming_damage,
    num_rows,
    reads_repetition,
)
from intarsia.dataset.row_numbers import parts_at, parts_together
from intarsia.row_ranges import RowRanges
from intarsia.scan.request import FilterLike, without_rows
from intarsia.scan.scan import Part

_SCAN_OPTIONS = {
    "batch_size",
    "batch_readahead",
    "fragment_readahead",
    "fragment_scan_options",
    "use_threads",
    "cache_metadata",
    "memory_pool",
}
_MIN_COUNTS = {"batch_size": 1, "batch_readahead": 0, "fragment_readahead": 1}
"""The smallest value of each count. With ``fragment_readahead=0``, pyarrow waits forever."""


def check_scan_options(options: Mapping[str, Any]) -> None:
    """Checks the options of a scan, by pyarrow or by our reader.

    Raises ``TypeError`` for an unknown option, and otherwise as ``check_counts`` does.
    """
    unknown = set(options) - _SCAN_OPTIONS
    if unknown:
        hint = "; conditions are given as filter" if unknown & {"where", "filters"} else ""
        raise TypeError(f"unknown options: {', '.join(sorted(unknown))}{hint}")
    check_counts(options)


def check_counts(options: Mapping[str, Any]) -> None:
    """Checks the options of a scan that are counts. Other options are ignored.

    Raises ``TypeError`` for a count that is no integer, ``ValueError`` for one that is too small.
    """
    for name, least in _MIN_COUNTS.items():
        if name in options and operator.index(options[name]) < least:
            never_ends = name == "fragment_readahead" and options[name] == 0
            why = ": pyarrow's scan of no fragments ahead never ends" if never_ends else ""
            raise ValueError(f"{name} is {least} at least, not {options[name]}{why}")


def verifies_checksums(options: Mapping[str, Any]) -> bool:
    """True if a scan's ``fragment_scan_options`` ask for checks of the pages' checksums.

    Raises ``TypeError`` for options of other formats.
    """
    given = options.get("fragment_scan_options")
    if given is None:
        return False
    if not isinstance(given, pads.ParquetFragmentScanOptions):
        kind = type(given).__name__
        raise TypeError(f"fragment_scan_options are ParquetFragmentScanOptions, not {kind}")
    return bool(given.page_checksum_verification)


class ScannedDataset(FileDataset):
    """A data set whose scans go by page, or by pyarrow where that gives the same rows as fast."""

    _scans_once = False
    """True if every scanner is consumed once.

    Then the rows of each can be compared with the footers.
    """

    @property
    def _may_use_pyarrow(self) -> bool:
        """True if pyarrow may scan by itself. Raises as ``pyarrow_may_scan`` does."""
        get_fragments = partial(self._get_fragments, None)
        return pyarrow_may_scan(self.scan_source, self._footers, get_fragments)

    def _scanner_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the options of a scan. pyarrow calls this for each of its own scans.

        Raises as ``check_counts`` does.
        """
        check_counts(options)
        return dict(super()._scanner_options(options))

    def _scan(
        self,
        columns: Columns,
        filter_: FilterLike,
        options: Mapping[str, Any],
        *,
        limit: int | None = None,
        parts: Iterable[Part] | None = None,
        rows: RowRanges | None = None,
        in_batches: bool = False,
    ) -> tuple[pa.Schema, Iterable[pa.Table]] | None:
        """Returns the schema and the matching rows. Returns None if pyarrow may scan by itself.

        The scan reads ``parts`` or, by number, ``rows``; by default all files in which rows may
        match. With ``in_batches`` the caller uses the first rows before the last ones are read.
        """
        check_scan_options(options)
        source = self.scan_source
        condition = source.filter_with(filter_)
        schema = used_columns(
            self.schema, columns, condition, (file.constants for file in source.files)
        )
        check_columns(schema, columns)
        if uses_scanner_columns(columns, schema):
            is_limited = source.options.page_size_limit is not None
            obstacle = "page_size_limit" if is_limited else source.cache.table_view
            check_scanner_columns(columns, condition, obstacle)
            if condition is None:
                return None
            unfiltered = self.wrap(self)
            unfiltered._set_filter(None)
            return scan_scanner_columns(unfiltered, columns, condition, limit, dict(options))
        by_page = any(one is not None for one in (condition, limit, parts, rows))
        by_page = by_page or needs_page_reader(columns, schema)
        if in_batches and not by_page and may_miss_rows(source, columns):
            by_page = not fits_in_memory(source)
        if not by_page and self._may_use_pyarrow:
            return None
        request, project = scan_request(schema, columns, condition)
        use_threads = options.get("use_threads", True)
        source = self._with_checksums(options).scan_source
        if rows is not None:
            parts = parts_together(source.cache, source.files, rows, request)
        tables = source.scan(request, project, parts=parts, limit=limit, use_threads=use_threads)
        return project(without_rows(request.output)).schema, tables

    def _pyarrow_scanner(self, columns: Columns, options: Mapping[str, Any]) -> pads.Scanner:
        """Returns pyarrow's own scanner, without a filter."""
        return pads.FileSystemDataset.scanner(self, columns, **options)

    def _scan_for_scanner(
        self, columns: Columns, filter_: FilterLike, options: Mapping[str, Any]
    ) -> tuple[pa.Schema, Iterable[pa.Table]] | None:
        """Returns the schema and the rows of a scanner. Returns None if pyarrow's own may scan.

        It may not if there is a time limit or a memory limit.
        """
        scan = self._scan(columns, filter_, options, in_batches=True)
        if scan is not None:
            return scan
        reads_some = columns is None or len(columns) > 0
        is_checked = reads_repetition(self.schema, columns) or (self._scans_once and reads_some)
        if not is_checked and not memory.is_limited():
            return None
        scanner = self._pyarrow_scanner(columns, options)
        batches = self._completed_batches(scanner, columns, options)
        return scanner.projected_schema, (pa.Table.from_batches([batch]) for batch in batches)

    def _completed_batches(
        self, scanner: pads.Scanner, columns: Columns, options: Mapping[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        """Yields the batches of pyarrow's scanner, and by page the rows after one that fails."""

        def rest(given: int) -> Iterator[pa.RecordBatch] | None:
            scan = self._scan_rest(given, columns, options)
            size = options.get("batch_size", BATCH_ROWS)
            return None if scan is None else batches_of(scan[1], size)

        get_fragments = partial(self._get_fragments, None)
        with naming_damage(lambda: self._scan_rest(0, [], options)):
            yield from completed_scan(self.scan_source, scanner, columns, get_fragments, rest)

    def _scan_rest(
        self, given: int, columns: Columns, options: Mapping[str, Any]
    ) -> tuple[pa.Schema, Iterable[pa.Table]] | None:
        """Returns the rows after the first ``given``, read by page, so that errors name the place.

        Returns None for columns that only pyarrow's scan has.
        """
        source = self._with_checksums(options).scan_source
        parts: Iterable[Part]
        if given:  # pyarrow has read the footers
            total = num_rows(self._get_fragments(None))
            rows = RowRanges.all(total).clip(given, total)
            parts = (part for _, part in parts_at(source.cache, source.files, rows))
        else:
            use_threads = options.get("use_threads", True)
            parts = source.parts(request_of(source.schema, [], None), use_threads=use_threads)
        return self._scan(columns, None, options, parts=parts)

    def _scan_rows(
        self, columns: Columns, *, options: Mapping[str, Any], **selection: Any
    ) -> tuple[pa.Schema, Iterable[pa.Table]]:
        """Returns the schema and the rows of a scan by page.

        ``selection`` has the rows, the parts or the limit.
        """
        scan = self._scan(columns, None, options, **selection)
        assert scan is not None
        return scan

    def _with_checksums(self, options: Mapping[str, Any]) -> Self:
        """Returns this data set, which checks checksums if ``fragment_scan_options`` say so.

        Raises ``TypeError`` for options of other formats.
        """
        is_checked = verifies_checksums(options)
        return self.with_options(page_checksum_verification=True) if is_checked else self
