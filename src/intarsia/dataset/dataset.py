"""``Dataset``: a ``pyarrow.dataset.Dataset`` that reads only the pages that can match.

It is a true ``FileSystemDataset``, C++ object included, so that whatever pyarrow does with a data
set works. A scan without a filter is pyarrow's own; one with a filter is planned and read by page
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs

from intarsia import memory
from intarsia.catalog.catalog import Catalog
from intarsia.dataset.batch_stream import scanner_of
from intarsia.dataset.explain import explain_query, plan_files, plan_files_left, planned_request
from intarsia.dataset.footer_freshness import Footers
from intarsia.dataset.fragment import (
    PlannedFragment,
    check_is_whole,
    fragments_left,
    pyarrows,
    unread,
)
from intarsia.dataset.page_scan import needs_page_reader, parts_from, scan_pages
from intarsia.dataset.pyarrow_choice import must_read_pages, pyarrow_may_scan
from intarsia.dataset.pyarrow_columns import special_scan
from intarsia.dataset.pyarrow_options import check_counts, check_scan_options, verifies_checksums
from intarsia.dataset.pyarrow_scan import (
    count_matching,
    reads_stored_columns,
    table_of_matching,
)
from intarsia.dataset.record_batches import as_table, batches_of, or_empty
from intarsia.dataset.request_builder import (
    Columns,
    asked,
    check_columns,
    check_is_pyarrows,
    is_special,
    request_of,
)
from intarsia.dataset.row_count_check import (
    FAILURES,
    completed_scan,
    fits_in_memory,
    has_repeated,
    may_miss_rows,
    naming_damage,
    shortage,
)
from intarsia.dataset.row_numbers import check_within, parts_together, row_numbers
from intarsia.dataset.scan_source import ScanSource
from intarsia.dataset.take import take_rows
from intarsia.deadline import (
    Stop,
    active,
    current,
    each_active,
    shown,
    stop_after,
    telling_of,
    time_limited,
)
from intarsia.errors import public
from intarsia.expr.filterable_types import filterable_schema, restorer_of, taken
from intarsia.file.corrupt_rows import CorruptData
from intarsia.file.open_file import until_whole
from intarsia.file.read_options import ReadOptions
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.index.directory import without_pointer
from intarsia.plan.explanation import Explanation
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
    """Parquet files as a data set; ``intarsia.dataset`` opens one.

    All of ``pyarrow.dataset.Dataset`` works: ``to_table``, ``to_batches``, ``scanner``, ``head``,
    ``take``, ``count_rows``, ``filter``, ``join``, ``sort_by``, … . Filters are Expressions or SQL
    conditions. Raises ``UnsupportedError`` for fragments of some of a file's row groups.

    These methods compare the rows with the footers. ``pyarrow.dataset.Scanner.from_dataset``, Acero
    and unions scan in C++ and do not: see ``docs/pushdown.md``.
    """

    scan_source: ScanSource
    """The files, and how scans open and read them."""
    _partitioning: Any
    _scans_once = False
    """True if every scanner is consumed once: then each can be compared with the footers."""

    def __init__(
        self,
        fragments: Sequence[pads.Fragment],
        schema: pa.Schema,
        format: pads.FileFormat,  # noqa: A002 # pyarrow's name for it
        filesystem: pafs.FileSystem | None = None,
        root_partition: pc.Expression | None = None,
    ) -> None:
        fragments = list(map(pyarrows, fragments))
        for fragment in fragments:
            check_is_whole(fragment)
        if filesystem is None and not fragments:  # of which pyarrow would have none at all
            filesystem = pafs.LocalFileSystem()
        self._begin(fragments, schema, format, filesystem, root_partition)

    def _begin(
        self,
        fragments: Sequence[pads.Fragment],
        schema: pa.Schema,
        *others: Any,
        source: ScanSource | None = None,
    ) -> None:
        """As ``__init__``, of fragments that are known to be of whole files."""
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
        """The same files and filter as ``base``, and its schema, unless another is given."""
        schema = without_pointer(base.schema if schema is None else schema)
        fragments = list(base._get_fragments(None))
        others = base.format, base.filesystem, base.partition_expression
        if isinstance(base, Dataset):  # whose fragments were looked at
            cache = base.scan_source.cache
            source = ScanSource.of(fragments, schema, base.filesystem, cache)
            made = cls.__new__(cls)
            made._begin(fragments, schema, *others, source=source)
            made._footers = base._footers
        else:
            made = cls(fragments, schema, *others)
        made._set_filter(base._scan_options.get("filter"))
        made._partitioning = base.partitioning
        return made

    def _set_filter(self, condition: pc.Expression | None) -> None:
        """Make ``condition`` the data set's own filter, for pyarrow's scans and for ours."""
        self._scan_options = {} if condition is None else {"filter": condition}
        self.scan_source = replace(self.scan_source, filter=condition)

    @property
    def _is_pyarrows(self) -> bool:
        """True if pyarrow may scan by itself. Raises as ``pyarrow_may_scan`` does."""
        get_fragments = partial(self._get_fragments, None)
        return pyarrow_may_scan(self.scan_source, self._footers, get_fragments)

    @classmethod
    def _of_source(cls, fragments: Sequence[pads.Fragment], source: ScanSource) -> Dataset:
        """Returns a data set of ``fragments``, whose files are those of ``source``."""
        made = cls.__new__(cls)
        others = fragments[0].format, source.filesystem
        made._begin(fragments, source.schema, *others, source=source)
        return made

    def with_options(self, **changes: Any) -> Dataset:
        """The same data set, whose files are read with other ``ReadOptions``."""
        source = self.scan_source
        options = source.options.changed(**changes)
        if options == source.options:
            return self
        made = self.wrap(self)
        made.scan_source = made.scan_source.with_cache(source.cache.anew(options))
        return made

    @property
    def corrupt(self) -> list[CorruptData]:
        """The damaged places that scans came upon so far, and the rows that were left out.

        Empty unless the data set was opened with ``on_corrupt="skip"``. Rows are lost to scans of
        the place's column; those of other columns read them.
        """
        return self.scan_source.cache.health.corrupt

    def with_catalog(self, root: str | None) -> Dataset:
        """This data set, which asks the catalog of the folder ``root``, if there is one."""
        if root is not None:
            source = self.scan_source
            source.cache.catalog = Catalog(self.filesystem, root, source.options)
        return self

    @classmethod
    def from_paths(cls, *args: Any, **kwargs: Any) -> Dataset:
        """As ``pyarrow.dataset.FileSystemDataset.from_paths``."""
        return cls.wrap(pads.FileSystemDataset.from_paths(*args, **kwargs))

    def __reduce__(self) -> tuple[Any, ...]:
        fragments = [unread(fragment) for fragment in self._get_fragments(None)]
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
        """A data set of the rows for which ``expression``, and any earlier filter, holds."""
        found = expression_of(expression, self.schema)
        if found is None:
            raise TypeError("a filter is an Expression or a SQL condition, not None")
        made = self.wrap(self)
        earlier = self.scan_source.filter
        made._set_filter(found if earlier is None else earlier & found)
        return made

    def join(self, right_dataset: pads.Dataset, *args: Any, **options: Any) -> pads.InMemoryDataset:
        """As ``pyarrow.dataset.Dataset.join``."""
        right = _evaluated(right_dataset)
        return pads.Dataset.join(_evaluated(self), right, *args, **options)

    def join_asof(
        self, right_dataset: pads.Dataset, *args: Any, **options: Any
    ) -> pads.InMemoryDataset:
        """As ``pyarrow.dataset.Dataset.join_asof``."""
        right = _evaluated(right_dataset)
        return pads.Dataset.join_asof(_evaluated(self), right, *args, **options)

    def sort_by(self, sorting: Any, **options: Any) -> pads.InMemoryDataset:
        """As ``pyarrow.dataset.Dataset.sort_by``."""
        sortable = filterable_schema(self.schema)
        if sortable.equals(self.schema):
            return pads.Dataset.sort_by(_evaluated(self), sorting, **options)
        table = self.to_table()
        ordered = pads.Dataset.sort_by(pads.dataset(table.cast(sortable)), sorting, **options)
        return pads.InMemoryDataset(restorer_of(self.schema)(ordered.to_table()))

    def replace_schema(self, schema: pa.Schema) -> Dataset:
        """The same files seen through another schema."""
        made = self.wrap(super().replace_schema(schema))
        made._partitioning = self._partitioning
        made.scan_source = made.scan_source.with_cache(self.scan_source.cache)
        made._footers = self._footers
        return made

    def get_fragments(
        self,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
    ) -> Iterator[PlannedFragment]:
        """The files as fragments; with a filter, those that might hold matching rows.

        They behave as pyarrow's fragments do, and are scanned as a data set is. Functions of
        pyarrow that take fragments, as ``Scanner.from_fragment`` does, need their
        ``pyarrow_fragment``. Raises ``ValueError`` on a filtered data set.
        """
        source = self.scan_source
        fragments = super().get_fragments()
        is_known = self._footers.are_of(self.files, self.filesystem)
        if filter is not None or must_read_pages(source):
            fragments = fragments_left(source, fragments, filter)
        for fragment in fragments:
            own = fragment if is_known else unread(fragment)
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
        """A scanner. One with a filter, or of lists or maps, can be consumed once, as
        ``Scanner.from_batches`` can. Other scanners are pyarrow's own, which gives fewer rows
        without an error if a chunk has pages without values; ``to_table`` reads these.

        ``timeout`` is counted from this call to the last batch; such a scanner, and one with a
        ``memory_limit``, is consumed once.

        Further ``options`` are pyarrow's; those about threads, read-ahead and memory apply to scans
        without a filter, as do all ``fragment_scan_options`` but that checksums are compared.
        """
        stop = stop_after(timeout, f"reading {shown(self)}", memory_limit)
        options |= {"batch_size": batch_size}
        if stop is None:
            scan = self._tables(columns, filter, options)
        else:
            with active(stop), telling_of(stop):
                scan = self._tables(columns, filter, options)
            assert scan is not None
            scan = scan[0], _in_time(stop, scan[1])
        if scan is None:
            return self._pyarrows(columns, options)
        return scanner_of(*scan, None if columns is None else list(columns), batch_size)

    def _tables(
        self, columns: Columns, filter_: FilterLike, options: Mapping[str, Any]
    ) -> tuple[pa.Schema, Iterable[pa.Table]] | None:
        """The rows that a scanner gives, and their schema; None where pyarrow's own will do.

        It never does with a time limit.
        """
        scan = self._scan(columns, filter_, options, in_batches=True)
        if scan is not None:
            return scan
        reads_some = columns is None or len(columns) > 0
        is_checked = has_repeated(self.schema, columns) or (self._scans_once and reads_some)
        if not is_checked and not memory.is_limited():
            return None
        scanner = self._pyarrows(columns, options)
        batches = self._completed(scanner, columns, options)
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
        """The matching rows as a table.

        Raises ``QueryTimeoutError`` after ``timeout`` seconds, as the other methods that have it,
        and ``OutOfMemoryError`` if the table takes more than half of ``memory_limit``, which is as
        for ``intarsia.set_memory_limit``: ``to_batches`` gives the same rows in little memory.
        """
        scan = self._scan(columns, filter, options)
        if scan is None and not self.scan_source.cache.is_local:
            scan = self._rest(0, columns, options)  # pyarrow leaves files that Python opened open
        if scan is None:
            error: Exception | None
            try:
                table = _table_of(self._pyarrows(columns, options))
                error = shortage(table.num_rows, self._get_fragments(None))
            except FAILURES as failure:
                error = failure
            if error is None:
                return table
            scan = self._rest(0, columns, options)
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
        """The matching rows as record batches, read as they are asked for.

        ``timeout`` is counted from this call to the last batch, what the caller does between
        batches included.
        """
        stop = stop_after(timeout, f"reading {shown(self)}", memory_limit)
        if stop is not None:
            with active(stop), telling_of(stop):
                batches = self.to_batches(columns, filter, **options)
            return _in_time(stop, batches)
        scan = self._scan(columns, filter, options, in_batches=True)
        if scan is None:
            scanner = self._pyarrows(columns, options)
            return self._completed(scanner, columns, options)
        return or_empty(scan[0], batches_of(scan[1], options.get("batch_size", _BATCH_ROWS)))

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
        """The first ``num_rows`` matching rows; reading ends when they are found.

        Raises ``ValueError`` for less than none.
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
        """The rows at ``indices`` among the matching ones, in that order.

        Without a filter, only pages that hold one of them are read, and rows count as they do in
        the files: those of damaged pages, where these are skipped, are left out. Raises
        ``IndexError`` for an index that is not there; otherwise as ``row_numbers`` does.
        """
        numbers = row_numbers(indices)
        source = self._with_checksums(options)
        if source is not self:
            return source.take(indices, columns, filter, **options)
        check_scan_options(options)
        if self.scan_source.filter_with(filter) is not None or is_special(columns, self.schema):
            found = self.to_table(columns, filter, **options)
            check_within(numbers, found.num_rows)
            return taken(found, pa.array(numbers))
        # Where a file was replaced, the rows of all files after it have other numbers by now.
        scan_rows = partial(self._scan_rows, options=options)
        return until_whole(
            repr(self), partial(take_rows, self.scan_source, scan_rows, numbers, columns)
        )

    def _scan_rows(
        self, columns: Columns, *, options: Mapping[str, Any], **selection: Any
    ) -> tuple[pa.Schema, Iterable[pa.Table]]:
        """A scan by page, of the rows, the parts or the limit that ``selection`` names."""
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
        """How many rows match.

        Reads the filter's columns only, where statistics and page indexes leave it open. Where
        damaged pages are skipped, rows count that a scan of these columns gives: without a filter,
        all of them.
        """
        check_scan_options(options)
        wanted = self.scan_source.filter_with(filter)
        if wanted is None and self._is_pyarrows:
            with naming_damage(partial(self._rest, 0, [], options)):
                return int(self._pyarrows([], options).count_rows())
        request = request_of(self.schema, [], wanted)
        use_threads = options.get("use_threads", True)
        checked = self._with_checksums(options)
        source = checked.scan_source
        if use_threads and wanted is not None and checked._may_filter_by_pyarrow:
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
        return self.scan_source.options.reader != "pages" and self._is_pyarrows

    def _scanner_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """As in pyarrow, which calls this for each of its own scans. Raises as ``check_counts``."""
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
        """The matching rows, and their schema; None for a scan that is pyarrow's own.

        ``in_batches``: the first rows are used before the last ones are read.

        ``parts`` are what is scanned, all that might match by default; or it is ``rows``, by their
        numbers.
        """
        check_scan_options(options)
        source = self.scan_source
        wanted = source.filter_with(filter_)
        check_columns(self.schema, columns)
        if is_special(columns, self.schema):
            limited = source.options.page_size_limit is not None
            check_is_pyarrows(columns, wanted, limited=limited)
            if wanted is None:
                return None
            unfiltered = self.wrap(self)
            unfiltered._set_filter(None)
            return special_scan(unfiltered, columns, wanted, limit, dict(options))
        by_page = any(one is not None for one in (wanted, limit, parts, rows))
        by_page = by_page or needs_page_reader(columns, self.schema)
        if in_batches and not by_page and may_miss_rows(source, columns):
            by_page = not fits_in_memory(source)
        if not by_page and self._is_pyarrows:
            return None
        checked = self._with_checksums(options)
        source = checked.scan_source
        request, project = asked(self.schema, columns, wanted)
        use_threads = options.get("use_threads", True)
        schema = project(without_rows(request.output)).schema
        is_whole = not in_batches and all(one is None for one in (limit, parts, rows))
        is_simple = wanted is not None and use_threads and not isinstance(columns, dict)
        if is_whole and is_simple and reads_stored_columns(source, request):
            found = None
            if checked._may_filter_by_pyarrow:
                found = table_of_matching(checked, source, request)
            if found is not None:
                return schema, [project(found)]
        if rows is not None:
            parts = parts_together(source.cache, source.files, rows, request)
        tables = scan_pages(
            source, request, project, parts=parts, limit=limit, use_threads=use_threads
        )
        return schema, tables

    def _pyarrows(self, columns: Columns, options: Mapping[str, Any]) -> pads.Scanner:
        """Returns pyarrow's own scanner, without a filter."""
        return pads.FileSystemDataset.scanner(self, columns, **options)

    def _completed(
        self, scanner: pads.Scanner, columns: Columns, options: Mapping[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        """Yields the batches of pyarrow's scanner, and by page the rows after one that fails."""

        def rest(given: int) -> Iterator[pa.RecordBatch] | None:
            scan = self._rest(given, columns, options)
            size = options.get("batch_size", _BATCH_ROWS)
            return None if scan is None else batches_of(scan[1], size)

        get_fragments = partial(self._get_fragments, None)
        with naming_damage(partial(self._rest, 0, [], options)):
            yield from completed_scan(self.scan_source, scanner, columns, get_fragments, rest)

    def _rest(
        self, given: int, columns: Columns, options: Mapping[str, Any]
    ) -> tuple[pa.Schema, Iterable[pa.Table]] | None:
        """The rows after the first ``given``, read by page, which names what cannot be read.

        None for columns that only pyarrow's scan knows.
        """
        source = self._with_checksums(options).scan_source
        fragments, use_threads = self._get_fragments(None), options.get("use_threads", True)
        parts = parts_from(source, given, fragments, use_threads=use_threads)
        return self._scan(columns, None, options, parts=parts)

    def _with_checksums(self, options: Mapping[str, Any]) -> Dataset:
        """This data set, which compares checksums if a scan's ``fragment_scan_options`` say so.

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
        """Which rows and byte ranges of which files answer a query: data that can be pickled.

        Files of folders that cannot match are not opened, nor counted in the figures' totals. The
        plan's bytes are those of the candidate rows in all columns involved; a scan reads the
        filter's columns first, and less of the rest.
        """
        return plan_files(self.scan_source, planned_request(self.scan_source, columns, filter))

    def plan_of_left(self, columns: Sequence[str], filter_: pc.Expression | None) -> Plan:
        """As ``plan``, of the files that are left, where what it would be of all is not asked."""
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
        """What a query would touch, and which index cut what; with ``analyze``, what it did touch.

        Files are opened afresh, so that what is read is what a first query reads. With ``analyze``
        they are read one after the other, and so are their units of rows: that takes longer than a
        scan by several threads, and shows what the time is spent on. ``maps`` is of how many files
        in which rows are left the accounts are to tell where all pages are, for pictures.
        ``Explanation.reader`` says which reader an engine such as DuckDB would use.
        """
        return explain_query(self.scan_source, columns, filter, analyze=analyze, maps=maps)


def _table_of(scanner: pads.Scanner) -> pa.Table:
    """All rows of pyarrow's scanner, which a time limit stops between batches only."""
    if not memory.is_limited():
        return scanner.to_table()
    batches = list(each_active(current(), scanner.to_batches()))
    return pa.Table.from_batches(batches, scanner.projected_schema)


def _in_time(stop: Stop, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with telling_of(stop):
        yield from each_active(stop, batches)


def _evaluated(data: pads.Dataset) -> pads.Dataset:
    """``data``, in memory where it has a filter, by which pyarrow's own scan may lose rows with
    NaN, or where that would not check pages.
    """
    if not isinstance(data, Dataset):
        return data
    is_ours = data.scan_source.filter is not None or not data._is_pyarrows
    is_ours = is_ours or has_repeated(data.schema, None)
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
