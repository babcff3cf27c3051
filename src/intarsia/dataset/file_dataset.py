"""``FileDataset``: the files of a data set, its options, and how it is copied and pickled."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs

from intarsia.catalog.catalog import Catalog
from intarsia.dataset.closed_filesystem import closed_filesystem
from intarsia.dataset.footer_freshness import Footers
from intarsia.dataset.fragment import (
    check_is_whole,
    to_pyarrow_fragment,
    without_footer,
)
from intarsia.dataset.partition_values import constants_expression
from intarsia.dataset.scan_source import ScanSource
from intarsia.errors import public
from intarsia.file.corrupt_data import CorruptData
from intarsia.file.file_view import TableSnapshot
from intarsia.file.read_options import ReadOptions
from intarsia.file.sidecar_discovery import Sidecars, places_of
from intarsia.index.directory import without_pointer
from intarsia.io.storage import PathLike
from intarsia.notebook import notebook_html
from intarsia.redaction import shown_redacted
from intarsia.scan.files.file_cache import FileCache

D = TypeVar("D", bound="FileDataset")
INT96_UNIT = "us"
"""The unit of timestamps in Delta, Iceberg and Spark. Nanoseconds, pyarrow's default, begin in
1677.
"""


@shown_redacted
@public
class FileDataset(pads.FileSystemDataset):  # type: ignore[misc]  # pyarrow is not typed
    """Parquet files as a ``pyarrow.dataset.FileSystemDataset``, with the source of our scans."""

    scan_source: ScanSource
    """The files, and how scans open and read them."""
    _partitioning: Any

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
        files, table = self.scan_source.files, self.scan_source.cache.table
        shown = f"{len(files):,} files, the first {files[0].path}" if files else "none"
        return f"<intarsia.Dataset of {shown}{f', of {table.name}' if table else ''}>"

    def _repr_html_(self) -> str:
        columns = [(field.name, field.type) for field in self.schema]
        return notebook_html(repr(self), (("column", "type"), columns))

    @classmethod
    def wrap(cls, base: pads.FileSystemDataset, schema: pa.Schema | None = None) -> Self:
        """Returns a data set of the files and the filter of ``base``.

        The schema is ``schema``, by default that of ``base``.
        """
        is_same_schema = schema is None
        schema = without_pointer(base.schema if schema is None else schema)
        fragments = list(base._get_fragments(None))
        others = base.format, base.filesystem, base.partition_expression
        if isinstance(base, FileDataset):  # its fragments are checked already
            source = base.scan_source
            if not is_same_schema:
                source = ScanSource.of(fragments, schema, base.filesystem, source.cache)
            made = cls.__new__(cls)
            made._initialize(fragments, schema, *others, source=source)
            made._footers = base._footers
        else:
            made = cls(fragments, schema, *others)
        made._set_filter(base._scan_options.get("filter"))
        made._partitioning = base.partitioning
        return made

    @classmethod
    def of_table(
        cls,
        table: TableSnapshot,
        schema: pa.Schema,
        filesystem: pafs.FileSystem,
        *,
        sidecar: PathLike | None = None,
        **options: Any,
    ) -> Self:
        """Returns a data set of the rows of a table at one version, in the order of its views.

        ``schema`` is the table's. ``sidecar`` is the folder of the sidecars, if they are not beside
        the files. ``options`` are ``ReadOptions``, by name.
        """
        scan_options = pads.ParquetFragmentScanOptions(arrow_extensions_enabled=True)
        form = pads.ParquetFileFormat(
            default_fragment_scan_options=scan_options, coerce_int96_timestamp_unit=INT96_UNIT
        )
        closed = closed_filesystem(table.name)  # pyarrow's scans in C++ see fragments alone
        # Files share expressions: making one takes longer than making a fragment.
        expression_of = functools.cache(lambda items: constants_expression(dict(items)))
        fragments = [
            form.make_fragment(
                path,
                filesystem if view.is_plain else closed,
                expression_of((*view.constants_in(schema).items(),)),
            )
            for path, view in table.views.items()
        ]
        cache = FileCache.of(filesystem, form, places=places_of(filesystem, sidecar))
        cache.table = table
        source = ScanSource.of(fragments, schema, filesystem, cache)
        made = cls.__new__(cls)
        made._initialize(fragments, schema, form, filesystem, source=source)
        return made.with_options(**options)

    def _set_filter(self, condition: pc.Expression | None) -> None:
        """Sets the data set's own filter, for pyarrow's scans and for ours."""
        self._scan_options = {} if condition is None else {"filter": condition}
        self.scan_source = replace(self.scan_source, filter=condition)

    @classmethod
    def _of_source(cls, fragments: Sequence[pads.Fragment], source: ScanSource) -> Self:
        """Returns a data set of ``fragments``, whose files are those of ``source``."""
        made = cls.__new__(cls)
        others = fragments[0].format, source.filesystem
        made._initialize(fragments, source.schema, *others, source=source)
        return made

    def with_options(self, **changes: Any) -> Self:
        """Returns the same data set with other ``ReadOptions``: ``changes``, by name."""
        source = self.scan_source
        options = source.options.changed(**changes)
        if options == source.options:
            return self
        made = self.wrap(self)
        made.scan_source = made.scan_source.with_cache(source.cache.anew(options))
        return made

    @property
    def table_snapshot(self) -> TableSnapshot | None:
        """The table that the files are part of, at one version. None for plain files."""
        return self.scan_source.cache.table

    @property
    def corrupt(self) -> list[CorruptData]:
        """The damaged places that scans have found so far, with the rows that were left out.

        Empty unless the data set was opened with ``on_corrupt="skip"``. Only scans of the damaged
        column leave the rows out.
        """
        return self.scan_source.cache.health.corrupt

    def with_catalog(self, root: str | None) -> Self:
        """Returns this data set, which now uses the catalog of the folder ``root``, if not None."""
        if root is not None:
            source = self.scan_source
            source.cache.catalog = Catalog(self.filesystem, root, source.options)
        return self

    @classmethod
    def from_paths(cls, *args: Any, **kwargs: Any) -> Self:
        """Returns a data set of paths as ``pyarrow.dataset.FileSystemDataset.from_paths`` does."""
        return cls.wrap(pads.FileSystemDataset.from_paths(*args, **kwargs))

    def __reduce__(self) -> tuple[Any, ...]:
        fragments = [without_footer(fragment) for fragment in self._get_fragments(None)]
        parts = (fragments, self.schema, self.format, self.filesystem, self.partition_expression)
        source = self.scan_source
        root = None if source.catalog is None else source.catalog.root
        sidecars, table = source.cache.places.folder, source.cache.table
        own_table = None if table is None else table.only(file.path for file in source.files)
        state = source.filter, self._partitioning, source.options, sidecars, root, own_table
        return _rebuild, (type(self), parts, *state)

    @property
    def partitioning(self) -> Any:
        """The partitioning the data set was opened with."""
        return self._partitioning

    def replace_schema(self, schema: pa.Schema) -> Self:
        """Returns a data set of the same files that are read as another schema."""
        made = self.wrap(super().replace_schema(schema))
        made._partitioning = self._partitioning
        made.scan_source = made.scan_source.with_cache(self.scan_source.cache)
        made._footers = self._footers
        return made


def _rebuild(
    cls: type[D],
    parts: tuple[Any, ...],
    condition: pc.Expression | None,
    partitioning: Any,
    options: ReadOptions,
    sidecar: str | None,
    catalog: str | None,
    table: TableSnapshot | None = None,
) -> D:
    made = cls(*parts)
    cache = made.scan_source.cache.anew(options)
    cache.table = table
    if sidecar is not None:
        cache.places = Sidecars(made.filesystem, sidecar)
    made.scan_source = made.scan_source.with_cache(cache)
    made._set_filter(condition)
    made._partitioning = partitioning
    return made.with_catalog(catalog)
