"""``Dataset``: a ``pyarrow.dataset.Dataset`` that reads only the pages that can match.

It is a ``FileSystemDataset`` with a C++ object, so pyarrow's functions for data sets work with it.
pyarrow itself scans without a filter. A scan with a filter is planned and read by page here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

import intarsia.memory as memory
from intarsia.dataset.batch_stream import scanner_of
from intarsia.dataset.explain import explain_query, explanation_of
from intarsia.dataset.fragment import (
    PlannedFragment,
    fragments_left,
    without_footer,
)
from intarsia.dataset.key_lookup import Order, rows_of_keys
from intarsia.dataset.prepared_query import PreparedQuery
from intarsia.dataset.pyarrow_choice import must_read_pages
from intarsia.dataset.pyarrow_scan import (
    count_matching,
)
from intarsia.dataset.record_batches import BATCH_ROWS, as_table, batches_of, or_empty_batch
from intarsia.dataset.request_builder import (
    Columns,
    request_of,
    uses_scanner_columns,
)
from intarsia.dataset.row_count_check import (
    FAILURES,
    naming_damage,
    reads_repetition,
    shortage,
)
from intarsia.dataset.row_numbers import check_within, row_numbers
from intarsia.dataset.scan_plan import plan_files, planned_request
from intarsia.dataset.scan_source import ScanSource
from intarsia.dataset.scanned_dataset import ScannedDataset, check_scan_options
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
from intarsia.errors import optional, public
from intarsia.expr.filterable_types import filterable_schema, restorer_of, taken
from intarsia.expr.tree import shown as shown_expression
from intarsia.file.open_file import retry_while_replaced
from intarsia.plan.explanation import Explanation
from intarsia.plan.file_account import EngineReads, QueryRun
from intarsia.plan.plan import ENGINE, Plan
from intarsia.redaction import shown_redacted
from intarsia.scan.count import count_rows
from intarsia.scan.request import FilterLike, Request, expression_of

if TYPE_CHECKING:
    import pandas
    import polars


@shown_redacted
@public
class Dataset(ScannedDataset):
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

    # --- derived data sets ----------------------------------------------------------------------

    def filter(self, expression: FilterLike) -> Dataset:
        """Returns a data set of the rows for which ``expression`` and any earlier filter are TRUE.

        ``expression`` is an Expression or a SQL condition. Raises ``PredicateError`` if it does not
        fit the schema.

        Examples
        --------
        >>> errors = ia.dataset("logs.parquet").filter("status = 500")
        >>> errors.count_rows("msg LIKE '%17 done'")
        10
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

    def get_fragments(
        self,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
    ) -> Iterator[PlannedFragment]:
        """Yields the files as fragments. With a ``filter``, only files in which rows may match.

        The fragments have pyarrow's interface, and scan as a data set does. Functions of pyarrow
        that take fragments, such as ``Scanner.from_fragment``, need their ``pyarrow_fragment``.

        Raises ``ValueError`` if the data set has a filter of its own.

        Examples
        --------
        >>> fragments = ia.dataset("lake").get_fragments("trace_id = 't42'")
        >>> [fragment.path.split("/")[-2] for fragment in fragments]
        ['service=api']
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
        batch_size: int = BATCH_ROWS,
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

        ``timeout`` is the time from this call to the last batch, in seconds. ``batch_size`` is the
        largest number of rows in a batch.

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

    def to_pandas(
        self,
        columns: Columns = None,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
        **options: Any,
    ) -> pandas.DataFrame:
        """Returns the matching rows as a frame of pandas. The parameters are those of ``to_table``.

        Types are converted as by ``pyarrow.Table.to_pandas``. Raises the errors of ``to_table``,
        and ``MissingDependencyError`` without pandas.

        Examples
        --------
        >>> ia.dataset("logs.parquet").to_pandas(["msg"], "trace_id = 't42'")
                           msg
        0  request 42 done
        """
        with optional("pandas is not installed", "pandas"):
            import pandas  # noqa: F401 # it takes long, so it is checked before the scan
        return self.to_table(columns, filter, **options).to_pandas()

    def to_polars(
        self,
        columns: Columns = None,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
        **options: Any,
    ) -> polars.DataFrame:
        """Returns the matching rows as a frame of Polars. The parameters are those of ``to_table``.

        ``intarsia.polars.scan`` gives a lazy frame. Raises the errors of ``to_table``, and
        ``MissingDependencyError`` without Polars.

        Examples
        --------
        >>> ia.dataset("logs.parquet").to_polars(["msg"], "trace_id = 't42'").item()
        'request 42 done'
        """
        with optional("Polars is not installed: install the extra, intarsia[polars]", "polars"):
            import polars
        return polars.DataFrame(polars.from_arrow(self.to_table(columns, filter, **options)))

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

        Examples
        --------
        >>> logs = ia.dataset("logs.parquet")
        >>> sum(batch.num_rows for batch in logs.to_batches(["msg"], "status = 500", batch_size=64))
        100
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
        return or_empty_batch(scan[0], batches_of(scan[1], options.get("batch_size", BATCH_ROWS)))

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

        Examples
        --------
        >>> ia.dataset("logs.parquet").head(2, ["trace_id"], "status = 500")["trace_id"].to_pylist()
        ['t7', 't17']
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
        return self._with_checksums(options).count_requested(request, use_threads=use_threads)

    def count_requested(self, request: Request, *, use_threads: bool = True) -> int:
        """Returns how many rows pass the filter of a request for no column."""
        source = self.scan_source
        is_forced = source.options.reader == "pages"
        if use_threads and request.filter and not is_forced and self._may_use_pyarrow:
            count = count_matching(self, source, request)
            if count is not None:
                return count
        parts = source.parts(request, use_threads=use_threads)
        is_far = not source.cache.is_local
        count = count_rows(parts, request, use_threads=use_threads, is_far=is_far)
        source.cache.health.tell()
        return count

    def prepare(self, condition: str) -> PreparedQuery:
        """Returns a query whose condition has parameters. Its values are given when it runs.

        Parameters
        ----------
        condition : str
            A SQL condition with parameters: ``?``, or ``$1``, ``$2`` and so on.

        Returns
        -------
        PreparedQuery
            The query. It can be pickled, and threads may share it.

        Raises
        ------
        PredicateError
            If this is no condition over the schema.

        Examples
        --------
        >>> by_trace = ia.dataset("logs.parquet").prepare("trace_id = ?")
        >>> by_trace.to_table("t42", columns=["msg"]).to_pylist()
        [{'msg': 'request 42 done'}]
        >>> by_trace.count_rows("absent")
        0
        """
        return PreparedQuery(self, condition)

    @time_limited("looking up keys in")
    def lookup(
        self,
        on: str | pc.Expression,
        keys: Any,
        columns: Columns = None,
        *,
        order: Order = "keys",
        timeout: float | None = None,
        memory_limit: int | str | None = None,
    ) -> pa.Table:
        """Returns the rows in which a value is one of many keys, with the position of its key.

        All keys are looked up by one scan, which reads the pages that may have one of them.

        Parameters
        ----------
        on : str or pyarrow.compute.Expression
            The value: a column, the dotted path of a struct's field, or a function of columns as
            indexes take it, such as ``lower(msg)`` or ``payload->>'$.id'``.
        keys : array-like, shape ``(n,)``
            Values of its type. NULL and NaN equal no row.
        columns : list of str or dict, optional
            Names of columns, dotted paths of structs' fields, or Expressions by name. By default
            all columns.
        order : {"keys", "storage"}, default "keys"
            Rows come in the order of their keys, or in that of the files. Rows of one key are in
            the files' order.
        timeout : float, optional
            The most seconds that the scan may take.
        memory_limit : int or str, optional
            The most bytes of memory, in the form that ``intarsia.set_memory_limit`` takes.

        Returns
        -------
        pyarrow.Table
            The columns, then ``__key_number`` (int64): the position of the row's key in ``keys``,
            from 0. A key that occurs twice gives its rows twice.

        Raises
        ------
        PredicateError
            If there is no such column or function, or if a key does not fit its type.

        Examples
        --------
        >>> ia.dataset("logs.parquet").lookup("trace_id", ["t9", "-", "t3"], ["msg"]).to_pydict()
        {'msg': ['request 9 done', 'request 3 done'], '__key_number': [0, 2]}
        """
        return rows_of_keys(self.schema, partial(self._scan, options={}), on, keys, columns, order)

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
        return plan_files(self.scan_source, request, only_left=True)

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
        run = partial(self._run, columns, filter) if analyze else None
        return explain_query(source, request, text, run=run, maps=maps)

    def profiled(self) -> Dataset:
        """Returns this data set with files that are opened anew, and record what is read."""
        made = self.wrap(self)
        made.scan_source = self.scan_source.profiled()
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
