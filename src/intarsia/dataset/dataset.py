"""``Dataset``: a ``pyarrow.dataset.Dataset`` that reads only the pages that can match.

It is a ``FileSystemDataset`` with a C++ object, so pyarrow's functions for data sets work with it.
pyarrow itself scans without a filter. A scan with a filter is planned and read by page here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs

import intarsia.memory as memory
from intarsia.catalog.catalog import Catalog
from intarsia.dataset.batch_stream import scanner_of
from intarsia.dataset.explain import (
    engine_of,
    explain_query,
    explanation_of,
    plan_files,
    plan_files_left,
    planned_request,
)
from intarsia.dataset.footer_freshness import Footers
from intarsia.dataset.fragment import (
    PlannedFragment,
    check_is_whole,
    fragments_left,
    to_pyarrow_fragment,
    without_footer,
)
from intarsia.dataset.page_scan import needs_page_reader, parts_from, scan_pages
from intarsia.dataset.pyarrow_choice import must_read_pages, pyarrow_may_scan
from intarsia.dataset.pyarrow_columns import scan_scanner_columns
from intarsia.dataset.pyarrow_options import check_counts, check_scan_options, verifies_checksums
from intarsia.dataset.pyarrow_scan import (
    count_matching,
    reads_stored_columns,
    table_of_matching,
)
from intarsia.dataset.record_batches import as_table, batches_of, or_empty_batch
from intarsia.dataset.request_builder import (
    Columns,
    check_columns,
    check_scanner_columns,
    request_of,
    scan_request,
    uses_scanner_columns,
)
from intarsia.dataset.row_count_check import (
    FAILURES,
    completed_scan,
    fits_in_memory,
    may_miss_rows,
    naming_damage,
    reads_repetition,
    shortage,
)
from intarsia.dataset.row_numbers import check_within, parts_together, row_numbers
from intarsia.dataset.scan_source import ScanSource
from intarsia.dataset.take import take_rows
from intarsia.deadline import (
    Stop,
    active,
    as_timeout_error,
    current,
    iterate_active,
    shown,
    stop_after,
    time_limited,
)
from intarsia.errors import public
from intarsia.expr.filterable_types import filterable_schema, restorer_of, taken
from intarsia.expr.tree import shown as shown_expression
from intarsia.file.corrupt_data import CorruptData
from intarsia.file.open_file import retry_while_replaced
from intarsia.file.read_options import ReadOptions
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.index.directory import without_pointer
from intarsia.plan.explanation import Explanation
from intarsia.plan.file_account import ENGINE, EngineReads, QueryRun
from intarsia.plan.plan import Plan
from intarsia.redaction import shown_redacted
from intarsia.row_ranges import RowRanges
from intarsia.scan.count import count_rows
from intarsia.scan.files.file_cache import FileCache
from intarsia.scan.request import FilterLike, expression_of, without_rows
from intarsia.scan.scan import Part

_BATCH_ROWS = 131_072


@shown_redacted
@public
class Dataset(pads.FileSystemDataset):  # type: ignore[misc]  # pyarrow is not typed
    """Parquet files as a data set. ``intarsia.dataset`` opens one.

    It has all methods of ``pyarrow.dataset.Dataset``. Filters are pyarrow's Expressions or SQL
    conditions.

    Its methods compare the number of rows with the footers.
    ``pyarrow.dataset.Scanner.from_dataset``, Acero and unions scan in C++ and do not compare: see
    ``docs/pushdown.md``.

    Parameters
    ----------
    fragments : sequence of pyarrow.dataset.Fragment
        The files.
    schema : pyarrow.Schema
        The schema that all files are read as.
    format : pyarrow.dataset.ParquetFileFormat
        The format of the files, with its read options.
    filesystem : pyarrow.fs.FileSystem, optional
        Where the files are. By default that of the fragments.
    root_partition : pyarrow.dataset.Expression, optional
        A condition that is true for all rows.

    Raises
    ------
    UnsupportedError
        If a fragment has only some of its file's row groups.

    Examples
    --------
    >>> logs = ia.dataset("lake")
    >>> logs.count_rows("status = 500")
    100
    >>> logs.head(2, columns=["trace_id", "service"]).to_pylist()
    [{'trace_id': 't0', 'service': 'api'}, {'trace_id': 't1', 'service': 'api'}]
    """

    scan_source: ScanSource
    """The files, and how scans open and read them."""
    _partitioning: Any
    _scans_once = False
    """True if every scanner is consumed once.

    Then the rows of each can be compared with the footers.
    """

    def __init__(
        self,
        fragments: Sequence[pads.Fragment],
        schema: pa.Schema,
        format: pads.FileFormat,  # noqa: A002 # pyarrow's name for it
        filesystem: pafs.FileSystem | None = None,
        root_partition: pc.Expression | None = None,
    ) -> None:
        fragments = list(map(to_pyarrow_fragment, fragments))
        for fragment in fragments:
            check_is_whole(fragment)
        if filesystem is None and not fragments:  # else pyarrow gives the data set none
            filesystem = pafs.LocalFileSystem()
        self._initialize(fragments, schema, format, filesystem, root_partition)

    def _initialize(
        self,
        fragments: Sequence[pads.Fragment],
        schema: pa.Schema,
        *others: Any,
        source: ScanSource | None = None,
    ) -> None:
        """Initializes the data set as ``__init__`` does, for fragments of whole files."""
        super().__init__(fragments, schema, *others)
        if source is None:
            cache = FileCache.of(self.filesystem, self.format)
            source = ScanSource.of(fragments, schema, self.filesystem, cache)
        self.scan_source = source
        self._footers = Footers()
        self._partitioning = None

    def __repr__(self) -> str:
        files = self.scan_source.files
        shown = f"{len(files):,} files, the first {files[0].path}" if files else "none"
        return f"<intarsia.Dataset of {shown}>"

    @classmethod
    def wrap(cls, base: pads.FileSystemDataset, schema: pa.Schema | None = None) -> Dataset:
        """Returns a data set of the files and the filter of ``base``.

        The schema is ``schema``, by default that of ``base``.
        """
        schema = without_pointer(base.schema if schema is None else schema)
        fragments = list(base._get_fragments(None))
        others = base.format, base.filesystem, base.partition_expression
        if isinstance(base, Dataset):  # its fragments are checked already
            cache = base.scan_source.cache
            source = ScanSource.of(fragments, schema, base.filesystem, cache)
            made = cls.__new__(cls)
            made._initialize(fragments, schema, *others, source=source)
            made._footers = base._footers
        else:
            made = cls(fragments, schema, *others)
        made._set_filter(base._scan_options.get("filter"))
        made._partitioning = base.partitioning
        return made

    def _set_filter(self, condition: pc.Expression | None) -> None:
        """Sets the data set's own filter, for pyarrow's scans and for ours."""
        self._scan_options = {} if condition is None else {"filter": condition}
        self.scan_source = replace(self.scan_source, filter=condition)

    @property
    def _may_use_pyarrow(self) -> bool:
        """True if pyarrow may scan by itself. Raises as ``pyarrow_may_scan`` does."""
        get_fragments = partial(self._get_fragments, None)
        return pyarrow_may_scan(self.scan_source, self._footers, get_fragments)

    @classmethod
    def _of_source(cls, fragments: Sequence[pads.Fragment], source: ScanSource) -> Dataset:
        """Returns a data set of ``fragments``, whose files are those of ``source``."""
        made = cls.__new__(cls)
        others = fragments[0].format, source.filesystem
        made._initialize(fragments, source.schema, *others, source=source)
        return made

    def with_options(self, **changes: Any) -> Dataset:
        """Returns the same data set with other ``ReadOptions``: ``changes``, by name."""
        source = self.scan_source
        options = source.options.changed(**changes)
        if options == source.options:
            return self
        made = self.wrap(self)
        made.scan_source = made.scan_source.with_cache(source.cache.anew(options))
        return made

    @property
    def corrupt(self) -> list[CorruptData]:
        """The damaged places that scans have found so far, with the rows that were left out.

        Empty unless the data set was opened with ``on_corrupt="skip"``. Only scans of the damaged
        column leave the rows out.
        """
        return self.scan_source.cache.health.corrupt

    def with_catalog(self, root: str | None) -> Dataset:
        """Returns this data set, which now uses the catalog of the folder ``root``, if not None."""
        if root is not None:
            source = self.scan_source
            source.cache.catalog = Catalog(self.filesystem, root, source.options)
        return self

    @classmethod
    def from_paths(cls, *args: Any, **kwargs: Any) -> Dataset:
        """Returns a data set of paths as ``pyarrow.dataset.FileSystemDataset.from_paths`` does."""
        return cls.wrap(pads.FileSystemDataset.from_paths(*args, **kwargs))

    def __reduce__(self) -> tuple[Any, ...]:
        fragments = [without_footer(fragment) for fragment in self._get_fragments(None)]
        parts = (fragments, self.schema, self.format, self.filesystem, self.partition_expression)
        source = self.scan_source
        root = None if source.catalog is None else source.catalog.root
        sidecars = source.cache.places.folder
        state = source.filter, self._partitioning, source.options, sidecars, root
        return _rebuild, (type(self), parts, *state)

    @property
    def partitioning(self) -> Any:
        """The partitioning the data set was opened with."""
        return self._partitioning

    # --- derived data sets ----------------------------------------------------------------------

    def filter(self, expression: FilterLike) -> Dataset:
        """Returns a data set of the rows for which ``expression`` and any earlier filter are TRUE.

        ``expression`` is an Expression or a SQL condition. Raises ``PredicateError`` if it does not
        fit the schema.
        """
        condition = expression_of(expression, self.schema)
        if condition is None:
            raise TypeError("a filter is an Expression or a SQL condition, not None")
        made = self.wrap(self)
        earlier = self.scan_source.filter
        made._set_filter(condition if earlier is None else earlier & condition)
        return made

    def join(self, right_dataset: pads.Dataset, *args: Any, **options: Any) -> pads.InMemoryDataset:
        """Joins two data sets as ``pyarrow.dataset.Dataset.join`` does."""
        right = _evaluated(right_dataset)
        return pads.Dataset.join(_evaluated(self), right, *args, **options)

    def join_asof(
        self, right_dataset: pads.Dataset, *args: Any, **options: Any
    ) -> pads.InMemoryDataset:
        """Joins two data sets as ``pyarrow.dataset.Dataset.join_asof`` does."""
        right = _evaluated(right_dataset)
        return pads.Dataset.join_asof(_evaluated(self), right, *args, **options)

    def sort_by(self, sorting: Any, **options: Any) -> pads.InMemoryDataset:
        """Returns the sorted rows as ``pyarrow.dataset.Dataset.sort_by`` does."""
        sortable = filterable_schema(self.schema)
        if sortable.equals(self.schema):
            return pads.Dataset.sort_by(_evaluated(self), sorting, **options)
        table = self.to_table()
        ordered = pads.Dataset.sort_by(pads.dataset(table.cast(sortable)), sorting, **options)
        return pads.InMemoryDataset(restorer_of(self.schema)(ordered.to_table()))

    def replace_schema(self, schema: pa.Schema) -> Dataset:
        """Returns a data set of the same files that are read as another schema."""
        made = self.wrap(super().replace_schema(schema))
        made._partitioning = self._partitioning
        made.scan_source = made.scan_source.with_cache(self.scan_source.cache)
        made._footers = self._footers
        return made

    def get_fragments(
        self,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
    ) -> Iterator[PlannedFragment]:
        """Yields the files as fragments. With a filter, only files in which rows may match.

        The fragments have pyarrow's interface, and scan as a data set does. Functions of pyarrow
        that take fragments, such as ``Scanner.from_fragment``, need their ``pyarrow_fragment``.

        Raises ``ValueError`` if the data set has a filter of its own.
        """
        source = self.scan_source
        fragments = super().get_fragments()
        is_known = self._footers.are_current(self.files, self.filesystem)
        if filter is not None or must_read_pages(source):
            fragments = fragments_left(source, fragments, filter)
        for fragment in fragments:
            own = fragment if is_known else without_footer(fragment)
            yield PlannedFragment(own, source, type(self)._of_source)

    # --- scanning -------------------------------------------------------------------------------

    def scanner(
        self,
        columns: Columns = None,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
        batch_size: int = _BATCH_ROWS,
        *,
        timeout: float | None = None,
        memory_limit: int | str | None = None,
        **options: Any,
    ) -> pads.Scanner:
        """Returns a scanner over the matching rows. The parameters are those of ``to_table``.

        A scanner with a filter, a ``timeout`` or a ``memory_limit``, or one that reads lists or
        maps, can be consumed once, as one of ``Scanner.from_batches``. Other scanners are pyarrow's
        own. If a chunk has pages without values, these give fewer rows, without an error;
        ``to_table`` gives all of them.

        ``timeout`` is the time from this call to the last batch, in seconds.

        Further ``options`` are pyarrow's. Options of threads, read-ahead and memory apply only to
        scans without a filter. Scans with a filter use only one of ``fragment_scan_options``:
        ``page_checksum_verification``.
        """
        stop = stop_after(timeout, f"reading {shown(self)}", memory_limit)
        options |= {"batch_size": batch_size}
        if stop is None:
            scan = self._scan_for_scanner(columns, filter, options)
        else:
            with active(stop), as_timeout_error(stop):
                scan = self._scan_for_scanner(columns, filter, options)
            assert scan is not None
            scan = scan[0], _in_time(stop, scan[1])
        if scan is None:
            return self._pyarrow_scanner(columns, options)
        return scanner_of(*scan, None if columns is None else list(columns), batch_size)

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

    @time_limited("reading")
    def to_table(
        self,
        columns: Columns = None,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
        *,
        timeout: float | None = None,
        memory_limit: int | str | None = None,
        **options: Any,
    ) -> pa.Table:
        """Returns the matching rows as a table.

        Parameters
        ----------
        columns : list of str or dict, optional
            Names of columns, dotted paths of structs' fields, or Expressions by name. By default
            all columns.
        filter : pyarrow.dataset.Expression or str, optional
            Rows for which this is TRUE match.
        timeout : float, optional
            The most seconds that the scan may take.
        memory_limit : int or str, optional
            The most bytes of memory, in the form that ``intarsia.set_memory_limit`` takes.
        **options
            pyarrow's options of scans.

        Raises
        ------
        PredicateError
            If the filter or the columns do not fit the schema.
        QueryTimeoutError
            After ``timeout`` seconds.
        OutOfMemoryError
            If the table takes more than half of ``memory_limit``. ``to_batches`` gives the same
            rows in less memory.
        FormatError
            If a file is damaged.

        Examples
        --------
        >>> logs = ia.dataset("logs.parquet")
        >>> logs.to_table(columns=["msg"], filter="trace_id = 't42'").to_pylist()
        [{'msg': 'request 42 done'}]
        """
        scan = self._scan(columns, filter, options)
        if scan is None and not self.scan_source.cache.is_local:
            # pyarrow does not close files that Python opened.
            scan = self._scan_rest(0, columns, options)
        if scan is None:
            error: Exception | None
            try:
                table = _table_of(self._pyarrow_scanner(columns, options))
                error = shortage(table.num_rows, self._get_fragments(None))
            except FAILURES as failure:
                error = failure
            if error is None:
                return table
            scan = self._scan_rest(0, columns, options)
            if scan is None:
                raise error
        return as_table(*scan)

    def to_batches(
        self,
        columns: Columns = None,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
        *,
        timeout: float | None = None,
        memory_limit: int | str | None = None,
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the matching rows as record batches. Each is read when the caller asks for it.

        The parameters are those of ``to_table``. ``timeout`` is the time from this call to the last
        batch, in seconds. It includes the time that the caller takes between batches.
        """
        stop = stop_after(timeout, f"reading {shown(self)}", memory_limit)
        if stop is not None:
            with active(stop), as_timeout_error(stop):
                batches = self.to_batches(columns, filter, **options)
            return _in_time(stop, batches)
        scan = self._scan(columns, filter, options, in_batches=True)
        if scan is None:
            scanner = self._pyarrow_scanner(columns, options)
            return self._completed_batches(scanner, columns, options)
        return or_empty_batch(scan[0], batches_of(scan[1], options.get("batch_size", _BATCH_ROWS)))

    @time_limited("reading")
    def head(
        self,
        num_rows: int,
        columns: Columns = None,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
        *,
        timeout: float | None = None,
        memory_limit: int | str | None = None,
        **options: Any,
    ) -> pa.Table:
        """Returns the first ``num_rows`` matching rows. Reading ends when there are enough.

        The other parameters are those of ``to_table``. Raises ``ValueError`` if ``num_rows`` is
        negative.
        """
        if int(num_rows) < 0:
            raise ValueError(f"num_rows is 0 at least, not {num_rows}")
        scan = self._scan(columns, filter, options, limit=int(num_rows))
        if scan is None:
            return super().head(num_rows, columns, expression_of(filter, self.schema), **options)
        return as_table(*scan)

    @time_limited("reading")
    def take(
        self,
        indices: Any,
        columns: Columns = None,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
        *,
        timeout: float | None = None,
        memory_limit: int | str | None = None,
        **options: Any,
    ) -> pa.Table:
        """Returns the rows at ``indices`` among the matching rows, in that order.

        Without a filter, only pages with one of these rows are read, and the rows of all pages
        count. If damaged pages are skipped, their rows count but are left out of the result.

        Parameters
        ----------
        indices : array of int, shape (n,)
            Numbers of rows, from 0.
        columns : list of str or dict, optional
            Names of columns, dotted paths of structs' fields, or Expressions by name. By default
            all columns.
        filter : pyarrow.dataset.Expression or str, optional
            Rows for which this is TRUE match.
        timeout : float, optional
            The most seconds that the scan may take.
        memory_limit : int or str, optional
            The most bytes of memory, in the form that ``intarsia.set_memory_limit`` takes.
        **options
            pyarrow's options of scans.

        Raises
        ------
        IndexError
            If an index is negative or past the last row.
        ValueError
            If an index is NULL or no integer.

        Examples
        --------
        >>> ia.dataset("logs.parquet").take([5, 3], columns=["trace_id"])["trace_id"].to_pylist()
        ['t5', 't3']
        """
        numbers = row_numbers(indices)
        source = self._with_checksums(options)
        if source is not self:
            return source.take(indices, columns, filter, **options)
        check_scan_options(options)
        if self.scan_source.filter_with(filter) is not None or uses_scanner_columns(
            columns, self.schema
        ):
            table = self.to_table(columns, filter, **options)
            check_within(numbers, table.num_rows)
            return taken(table, pa.array(numbers))
        # If a file is replaced, the rows of all files after it get other numbers: start anew.
        scan_rows = partial(self._scan_rows, options=options)
        return retry_while_replaced(
            repr(self), partial(take_rows, self.scan_source, scan_rows, numbers, columns)
        )

    def _scan_rows(
        self, columns: Columns, *, options: Mapping[str, Any], **selection: Any
    ) -> tuple[pa.Schema, Iterable[pa.Table]]:
        """Returns the schema and the rows of a scan by page.

        ``selection`` has the rows, the parts or the limit.
        """
        scan = self._scan(columns, None, options, **selection)
        assert scan is not None
        return scan

    @time_limited("counting rows of")
    def count_rows(
        self,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
        *,
        timeout: float | None = None,
        memory_limit: int | str | None = None,
        **options: Any,
    ) -> int:
        """Returns how many rows match.

        Reads only the filter's columns, and only where statistics and page indexes do not decide.
        If damaged pages are skipped, the rows count that a scan of these columns gives. Without a
        filter, all rows count.

        Parameters
        ----------
        filter : pyarrow.dataset.Expression or str, optional
            Rows for which this is TRUE match.
        timeout : float, optional
            The most seconds that the scan may take.
        memory_limit : int or str, optional
            The most bytes of memory, in the form that ``intarsia.set_memory_limit`` takes.
        **options
            pyarrow's options of scans.

        Raises
        ------
        PredicateError
            If the filter or the columns do not fit the schema.
        QueryTimeoutError
            After ``timeout`` seconds.

        Examples
        --------
        >>> ia.dataset("logs.parquet").count_rows("status = 500 AND msg LIKE '%7 done'")
        100
        """
        check_scan_options(options)
        condition = self.scan_source.filter_with(filter)
        if condition is None and self._may_use_pyarrow:
            with naming_damage(lambda: self._scan_rest(0, [], options)):
                return int(self._pyarrow_scanner([], options).count_rows())
        request = request_of(self.schema, [], condition)
        use_threads = options.get("use_threads", True)
        checked = self._with_checksums(options)
        source = checked.scan_source
        if use_threads and condition is not None and checked._may_filter_by_pyarrow:
            count = count_matching(checked, source, request)
            if count is not None:
                return count
        parts = source.parts(request, use_threads=use_threads)
        is_far = not source.cache.is_local
        count = count_rows(parts, request, use_threads=use_threads, is_far=is_far)
        source.cache.health.tell()
        return count

    @property
    def _may_filter_by_pyarrow(self) -> bool:
        return self.scan_source.options.reader != "pages" and self._may_use_pyarrow

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
        check_columns(self.schema, columns)
        if uses_scanner_columns(columns, self.schema):
            limited = source.options.page_size_limit is not None
            check_scanner_columns(columns, condition, limited=limited)
            if condition is None:
                return None
            unfiltered = self.wrap(self)
            unfiltered._set_filter(None)
            return scan_scanner_columns(unfiltered, columns, condition, limit, dict(options))
        by_page = any(one is not None for one in (condition, limit, parts, rows))
        by_page = by_page or needs_page_reader(columns, self.schema)
        if in_batches and not by_page and may_miss_rows(source, columns):
            by_page = not fits_in_memory(source)
        if not by_page and self._may_use_pyarrow:
            return None
        checked = self._with_checksums(options)
        source = checked.scan_source
        request, project = scan_request(self.schema, columns, condition)
        use_threads = options.get("use_threads", True)
        schema = project(without_rows(request.output)).schema
        is_whole = not in_batches and all(one is None for one in (limit, parts, rows))
        is_simple = condition is not None and use_threads and not isinstance(columns, dict)
        if is_whole and is_simple and reads_stored_columns(source, request):
            table = None
            if checked._may_filter_by_pyarrow:
                table = table_of_matching(checked, source, request)
            if table is not None:
                return schema, [project(table)]
        if rows is not None:
            parts = parts_together(source.cache, source.files, rows, request)
        tables = scan_pages(
            source, request, project, parts=parts, limit=limit, use_threads=use_threads
        )
        return schema, tables

    def _pyarrow_scanner(self, columns: Columns, options: Mapping[str, Any]) -> pads.Scanner:
        """Returns pyarrow's own scanner, without a filter."""
        return pads.FileSystemDataset.scanner(self, columns, **options)

    def _completed_batches(
        self, scanner: pads.Scanner, columns: Columns, options: Mapping[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        """Yields the batches of pyarrow's scanner, and by page the rows after one that fails."""

        def rest(given: int) -> Iterator[pa.RecordBatch] | None:
            scan = self._scan_rest(given, columns, options)
            size = options.get("batch_size", _BATCH_ROWS)
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
        fragments, use_threads = self._get_fragments(None), options.get("use_threads", True)
        parts = parts_from(source, given, fragments, use_threads=use_threads)
        return self._scan(columns, None, options, parts=parts)

    def _with_checksums(self, options: Mapping[str, Any]) -> Dataset:
        """Returns this data set, which checks checksums if ``fragment_scan_options`` say so.

        Raises ``TypeError`` for options of other formats.
        """
        is_checked = verifies_checksums(options)
        return self.with_options(page_checksum_verification=True) if is_checked else self

    # --- planning -------------------------------------------------------------------------------

    def plan(
        self,
        columns: Columns = None,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
    ) -> Plan:
        """Returns the rows and byte ranges of all files that a query needs. A plan can be pickled.

        Files in folders that cannot match are not opened. The totals of the figures leave them out.
        The plan's bytes are the candidate rows' pages in all columns of the query. A scan may read
        fewer, because it reads the filter's columns first.

        Parameters
        ----------
        columns : list of str or dict, optional
            Names of columns, dotted paths of structs' fields, or Expressions by name. By default
            all columns.
        filter : pyarrow.dataset.Expression or str, optional
            Rows for which this is TRUE match.

        Examples
        --------
        >>> plan = ia.dataset("logs.parquet").plan(filter="trace_id = 'absent'")
        >>> plan.figures.rows.selected, plan.figures.rows.total
        (0, 1000)
        """
        return plan_files(self.scan_source, planned_request(self.scan_source, columns, filter))

    def plan_of_left(self, columns: Sequence[str], filter_: pc.Expression | None) -> Plan:
        """Returns a plan as ``plan`` does, of only the files that are left after pruning."""
        request = planned_request(self.scan_source, columns, filter_)
        return plan_files_left(self.scan_source, request)

    def explain(
        self,
        columns: Columns = None,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
        *,
        analyze: bool = False,
        maps: int = 0,
    ) -> Explanation:
        """Returns what a query would read, and what each index leaves out.

        Files are opened anew, so the figures are those of a first query. Unless the query is run,
        ``Explanation.reader`` says which reader an engine such as DuckDB would use.

        Parameters
        ----------
        columns : list of str or dict, optional
            Names of columns, dotted paths of structs' fields, or Expressions by name. By default
            all columns.
        filter : pyarrow.dataset.Expression or str, optional
            Rows for which this is TRUE match.
        analyze : bool, default False
            Runs the query as well, as ``to_table`` does, and adds what it read.
        maps : int, default 0
            The number of files whose pages are all listed, for pictures: the first files in which
            rows are left.

        Examples
        --------
        >>> explanation = ia.dataset("logs.parquet").explain(filter="status = 500")
        >>> explanation.reader
        'engine'
        """
        source = self.scan_source
        request = planned_request(source, columns, filter)
        text = filter if isinstance(filter, str) and source.filter is None else None
        if text is None:
            condition = None if request.filter is None else request.filter.condition.expression
            text = "none" if condition is None else shown_expression(condition)
        run = partial(self._run, columns, filter) if analyze else None
        explanation = explain_query(source, request, text, run=run, maps=maps)
        if analyze:
            return explanation
        reader, reason = engine_of(source, request)
        return replace(explanation, reader=reader, reason=reason)

    def profiled(self) -> Dataset:
        """Returns this data set with files that are opened anew, and record what is read."""
        made, source = self.wrap(self), self.scan_source
        made.scan_source = source.with_cache(source.cache.anew(is_profiled=True))
        return made

    def explain_profiled(
        self, seconds: float, engine_reads: EngineReads | None = None
    ) -> Explanation:
        """Returns the explanation of the scans of a data set that is ``profiled``.

        ``seconds`` is their elapsed time. ``engine_reads`` are those that an engine reports.
        """
        source = self.scan_source
        requests = source.cache.requests or [planned_request(source, [], None)]
        conditions = dict.fromkeys(
            shown_expression(request.filter.condition.expression)
            for request in requests
            if request.filter is not None
        )
        files = source.cache.profiled.values()
        run = QueryRun(sum(opened[-1].profile.num_matches for opened in files), seconds)
        text = ", ".join(conditions) or "none"
        return explanation_of(source, requests[-1], text, run, engine_reads=engine_reads)

    def _run(self, columns: Columns, filter_: FilterLike, source: ScanSource) -> QueryRun:
        """Runs a query as ``to_table`` does, on the files of ``source``."""
        made = self.wrap(self)
        made.scan_source = source
        start = time.perf_counter()
        scan = made._scan(columns, filter_, {})
        if scan is not None:
            num_rows, reader = sum(table.num_rows for table in scan[1]), ""
        else:
            num_rows = sum(batch.num_rows for batch in made.to_batches(columns))
            reader = ENGINE
        return QueryRun(num_rows, time.perf_counter() - start, reader)


def _table_of(scanner: pads.Scanner) -> pa.Table:
    """Returns all rows of pyarrow's scanner. A time limit stops it between batches only."""
    if not memory.is_limited():
        return scanner.to_table()
    batches = list(iterate_active(current(), scanner.to_batches()))
    return pa.Table.from_batches(batches, scanner.projected_schema)


def _in_time(stop: Stop, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with as_timeout_error(stop):
        yield from iterate_active(stop, batches)


def _evaluated(data: pads.Dataset) -> pads.Dataset:
    """Returns ``data``, read into memory if pyarrow's own scan might give other rows.

    With a filter pyarrow may lose rows with NaN, and it does not check pages.
    """
    if not isinstance(data, Dataset):
        return data
    is_ours = data.scan_source.filter is not None or not data._may_use_pyarrow
    is_ours = is_ours or reads_repetition(data.schema, None)
    return pads.dataset(data.to_table()) if is_ours else data


def _rebuild(
    cls: type[Dataset],
    parts: tuple[Any, ...],
    condition: pc.Expression | None,
    partitioning: Any,
    options: ReadOptions,
    sidecar: str | None,
    catalog: str | None,
) -> Dataset:
    made = cls(*parts)
    cache = made.scan_source.cache.anew(options)
    if sidecar is not None:
        cache.places = Sidecars(made.filesystem, sidecar)
    made.scan_source = made.scan_source.with_cache(cache)
    made._set_filter(condition)
    made._partitioning = partitioning
    return made.with_catalog(catalog)
