"""``PlannedFragment``: a file of a data set, which scans as the data set does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.dataset as pads

from intarsia.dataset.footer_freshness import Footers
from intarsia.dataset.request_builder import Columns, request_of
from intarsia.dataset.scan_plan import each_planned
from intarsia.dataset.scan_source import ScanSource
from intarsia.errors import UnsupportedError, Where
from intarsia.pyarrow_internals import row_groups_of
from intarsia.redaction import shown_redacted
from intarsia.scan.request import FilterLike, expression_of

OpenFiles: TypeAlias = Callable[[Sequence[pads.Fragment], ScanSource], pads.FileSystemDataset]
"""Makes the ``Dataset`` of some fragments; it reads them as a source says."""


def without_footer(fragment: pads.ParquetFileFragment) -> pads.ParquetFileFragment:
    """Returns the same fragment without the footer that pyarrow may have cached."""
    place = fragment.path, fragment.filesystem, fragment.partition_expression
    return fragment.format.make_fragment(*place)


def check_is_whole(fragment: pads.ParquetFileFragment) -> None:
    """Raises ``UnsupportedError`` if a fragment has only some of its file's row groups."""
    row_groups = row_groups_of(fragment)
    if row_groups is not None and len(row_groups) < fragment.metadata.num_row_groups:
        message = f"a data set is of whole files, not of row groups {row_groups} alone"
        raise UnsupportedError(message, Where(fragment.path))


def to_pyarrow_fragment(fragment: Any) -> pads.ParquetFileFragment:
    """Returns pyarrow's own fragment for a fragment of either class."""
    return fragment.pyarrow_fragment if isinstance(fragment, PlannedFragment) else fragment


def fragments_left(
    source: ScanSource, fragments: Iterable[pads.ParquetFileFragment], filter_: FilterLike
) -> Iterator[pads.ParquetFileFragment]:
    """Yields the ``fragments`` in which rows may match. They are those of the source's files.

    Issues the warnings about the files.
    """
    request = request_of(source.schema, [], expression_of(filter_, source.schema))
    by_file = {id(file): one for one, file in zip(list(fragments), source.files, strict=True)}
    for file, has_rows in each_planned(
        source, request, lambda file, _, left: (file, bool(left.rows)), only_left=True
    ):
        if has_rows:
            yield by_file[id(file)]
    source.cache.health.tell()


@shown_redacted
class PlannedFragment:
    """One file of a data set, as a fragment.

    It has all attributes of the ``pyarrow.dataset.ParquetFileFragment`` that it wraps, but scans as
    ``Dataset`` does. ``subset`` and ``split_by_row_group`` give pyarrow's own fragments.
    """

    def __init__(
        self, fragment: pads.ParquetFileFragment, source: ScanSource, open_files: OpenFiles
    ) -> None:
        self._fragment, self._source, self._open_files = fragment, source, open_files
        self._note_version()

    def _note_version(self) -> None:
        """Notes the version of the file, to notice if it is replaced."""
        self._footers = Footers()
        self._is_current()

    def _is_current(self) -> bool:
        return self._footers.are_current([self._fragment.path], self._source.filesystem)

    def __repr__(self) -> str:
        return f"<intarsia.PlannedFragment path={self._fragment.path}>"

    def __reduce__(self) -> tuple[Any, ...]:
        fragment = without_footer(self._fragment)
        return _rebuild, (fragment, self._open_alone(fragment, self._source.schema))

    @property
    def pyarrow_fragment(self) -> pads.ParquetFileFragment:
        """pyarrow's own fragment of the file, for functions that take no other.

        pyarrow's scans of it may leave rows out: see ``docs/pushdown.md``.
        """
        return self._fragment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fragment, name)

    def scanner(
        self,
        schema: pa.Schema | None = None,
        columns: Columns = None,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
        **options: Any,
    ) -> pads.Scanner:
        """Returns a scanner over the file's matching rows, as ``Dataset.scanner`` does."""
        return self._alone(schema).scanner(columns, filter, **options)

    def _alone(self, schema: pa.Schema | None = None) -> pads.FileSystemDataset:
        """Returns a data set of this file."""
        if schema is None:
            is_own = self._source.cache.table is None
            schema = self._fragment.physical_schema if is_own else self._source.schema
        if not self._is_current():
            self._fragment = without_footer(self._fragment)
            self._note_version()
        return self._open_alone(self._fragment, schema)

    def _open_alone(
        self, fragment: pads.ParquetFileFragment, schema: pa.Schema
    ) -> pads.FileSystemDataset:
        cache = self._source.cache
        source = ScanSource.of([fragment], schema, self._source.filesystem, cache)
        return self._open_files([fragment], source)

    def to_table(
        self,
        schema: pa.Schema | None = None,
        columns: Columns = None,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
        **options: Any,
    ) -> pa.Table:
        """Returns the matching rows as a table."""
        return self._alone(schema).to_table(columns, filter, **options)

    def to_batches(
        self,
        schema: pa.Schema | None = None,
        columns: Columns = None,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
        **options: Any,
    ) -> Any:
        """Yields the matching rows as record batches."""
        return self._alone(schema).to_batches(columns, filter, **options)

    def count_rows(
        self,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
        **options: Any,
    ) -> int:
        """Returns how many rows match."""
        return int(self._alone().count_rows(filter, **options))

    def head(
        self,
        num_rows: int,
        columns: Columns = None,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
        **options: Any,
    ) -> pa.Table:
        """Returns the first ``num_rows`` matching rows."""
        return self._alone().head(num_rows, columns, filter, **options)

    def take(
        self,
        indices: Any,
        columns: Columns = None,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
        **options: Any,
    ) -> pa.Table:
        """Returns the rows at ``indices`` among the matching rows."""
        return self._alone().take(indices, columns, filter, **options)


def _rebuild(fragment: pads.ParquetFileFragment, alone: Any) -> PlannedFragment:
    """Returns a fragment from its pickled state: ``alone`` is the ``Dataset`` of its file."""
    return PlannedFragment(fragment, alone.scan_source, type(alone)._of_source)
