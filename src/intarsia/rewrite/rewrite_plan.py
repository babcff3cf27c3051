"""Which files of which folders are rewritten, and the layout of new ones.

Footers are read here, but no rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from intarsia.commit.storage import Place
from intarsia.dataset.partitioning import Rule, hive_types
from intarsia.dataset.schema_unification import (
    UNIFICATION_ERRORS,
    first_incompatible,
    keeps_meaning,
    united,
)
from intarsia.dataset.spark_footer import (
    Entries,
    calendars,
    entries_of,
    entries_of_all,
    has_dates_or_times,
)
from intarsia.errors import (
    FormatError,
    IndexSpecError,
    PathError,
    PredicateError,
    UnsupportedError,
    Where,
)
from intarsia.expr.evaluate import unused
from intarsia.expr.nested_types import leaves, nullable
from intarsia.file.open_file import OpenedFile
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.index.kinds.distinct_idx1 import KEY
from intarsia.index.parquet_indexes import Bloom
from intarsia.index.registry import IndexSpec, make, spec_name
from intarsia.indexing.add import parquet_index_reports
from intarsia.indexing.missing_indexes import choose
from intarsia.io.file_handle import Version, version_of
from intarsia.io.storage import FileSource
from intarsia.parquet.footer import check_editable
from intarsia.parquet.footer_cache import FOOTER_KEY
from intarsia.parquet.metadata import CompressionCodec, Type
from intarsia.scan.parquet_file import open_source
from intarsia.sql.where_clause import parse_where
from intarsia.threads import run_io_tasks
from intarsia.writer.empty_file import empty_file
from intarsia.writer.type_annotations import Annotations, agreed, annotations_of, placed

_CODECS = {
    CompressionCodec.UNCOMPRESSED: "none",
    CompressionCodec.SNAPPY: "snappy",
    CompressionCodec.GZIP: "gzip",
    CompressionCodec.BROTLI: "brotli",
    CompressionCodec.ZSTD: "zstd",
    CompressionCodec.LZ4: "lz4",
    CompressionCodec.LZ4_RAW: "lz4",
}
_OF_ONE_FILE = {FOOTER_KEY.encode(), KEY.encode(), b"ARROW:schema"}
"""Footer metadata that points into its own file, or that writers create themselves."""


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file to be rewritten, as it was when the driver opened it.

    ``path`` is relative to the data set's folder. ``group_bytes`` are the compressed bytes of each
    row group.
    """

    path: str
    bytes: int
    rows: int
    version: Version
    group_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FileFormat:
    """The layout of new files: their columns, indexes, and options of pyarrow's writer."""

    schema: pa.Schema
    indexes: tuple[IndexSpec, ...]
    options: Mapping[str, Any]
    annotations: Mapping[int, Mapping[str, Any]]
    """Fields of schema elements that pyarrow does not write, by position of the element."""
    read_schema: pa.Schema
    """The columns that are read: those of ``schema``, and columns that become folders."""

    @property
    def has_int96(self) -> bool:
        """True if timestamps are stored as INT96."""
        return bool(self.options.get("use_deprecated_int96_timestamps"))

    def is_same_as(self, other: FileFormat) -> bool:
        """True if files of both layouts can be written by one job."""
        is_same = (self.indexes, self.options, self.annotations) == (
            other.indexes,
            other.options,
            other.annotations,
        )
        return is_same and self.schema.equals(other.schema, check_metadata=True)


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, the number and bytes of all its files, and runs of files to be rewritten."""

    name: str
    num_files: int
    num_bytes: int
    runs: tuple[tuple[OldFile, ...], ...]
    file_format: FileFormat

    @property
    def files(self) -> list[OldFile]:
        return [file for run in self.runs for file in run]


def folders_of(place: Place, files: Sequence[str]) -> dict[str, dict[str, int]]:
    """Returns the sizes of ``files`` in bytes, by folder and then by path.

    Both are relative to the data set's folder.
    """
    sizes: dict[str, dict[str, int]] = {}
    for info in place.filesystem.get_file_info([place.path(file) for file in files]):
        if info.type == pafs.FileType.File:
            path = info.path.removeprefix(f"{place.root}/")
            sizes.setdefault(path.rpartition("/")[0], {})[path] = int(info.size)
    return sizes


def matching_folders(
    names: Iterable[str], where: pc.Expression | str | None, rule: Rule
) -> list[str]:
    """Returns the folders whose partition values, with types by ``rule``, satisfy ``where``.

    Raises ``PredicateError`` if the condition uses other columns.
    """
    names = sorted(names)
    if where is None:
        return names
    key_schema = hive_types([f"{name}/-" for name in names], None, rule)
    if isinstance(where, str):
        where = parse_where(where, key_schema)
    values = folder_values(names, key_schema)
    columns = [pa.array([row[key.name] for row in values], key.type) for key in key_schema]
    folder = unused("__folder", key_schema.names)
    table = pa.table([*columns, pa.array(names)], [*key_schema.names, folder])
    try:
        matching: list[str] = pads.dataset(table).to_table([folder], filter=where)[0].to_pylist()
    except (pa.ArrowException, KeyError) as error:
        raise PredicateError(f"where can use only partition columns: {error}") from error
    return matching


def folder_values(names: Iterable[str], keys: pa.Schema) -> list[dict[str, pa.Scalar]]:
    """Returns the partition values of folders. A key that a folder lacks is NULL."""
    folders = pads.HivePartitioning(keys)
    parsed = (pads.get_partition_keys(folders.parse(f"{name}/-")) for name in names)
    return [{key.name: pa.scalar(row.get(key.name), key.type) for key in keys} for row in parsed]


def small_runs(sizes: Mapping[str, int], target: int) -> list[list[str]]:
    """Returns runs of neighbouring small files that together have about ``target`` bytes.

    ::

        target 100    40 30 ▇ 20 │ 90 │ 60 30    ▇ is not small, and stays
                      └───────┘     ·   └───┘     · is alone, and stays too
    """
    runs: list[list[str]] = []
    run_bytes = target + 1
    for path, size in sorted(sizes.items()):
        if size >= target:
            continue
        if run_bytes + size > target:
            runs.append([])
            run_bytes = 0
        runs[-1].append(path)
        run_bytes += size
    return [run for run in runs if len(run) > 1]


def opened_folder(
    place: Place,
    name: str,
    sizes: Mapping[str, int],
    runs: Sequence[Sequence[str]],
    indexes: Sequence[IndexSpec] | None,
    *,
    keeps_empty: bool = False,
    keys: pa.Schema | None = None,
    partition_by: Sequence[str] = (),
) -> Folder | None:
    """Returns what to rewrite of a folder, or None if the files to be rewritten have no rows.

    With ``keeps_empty``, files without rows are rewritten too. New files also have the partition
    columns ``keys`` that no old file has, and lack the columns ``partition_by``.

    Raises ``FormatError`` for a file that is not Parquet or must not be rewritten.
    """
    places = Sidecars(place.filesystem)
    paths = [path for run in runs for path in run]
    tasks = (partial(_opened, place, path, places) for path in paths)
    is_local = isinstance(place.filesystem, pafs.LocalFileSystem)
    opened_files = [task() for task in tasks] if is_local else run_io_tasks(tasks)
    old_files = {}
    source_formats = []
    for path, (version, file) in zip(paths, opened_files, strict=True):
        groups = tuple(
            sum(file.chunk(group, leaf.index).total_compressed_size for leaf in file.schema.leaves)
            for group in range(len(file.metadata.row_groups))
        )
        old_files[path] = OldFile(path, sizes[path], file.num_rows, version, groups)
        source_formats.append(_SourceFormat.of(file, place))
    runs_with_rows = tuple(
        tuple(old_files[path] for path in run)
        for run in runs
        if keeps_empty or any(old_files[p].rows for p in run)
    )
    if not runs_with_rows:
        return None
    file_format = _common_format(source_formats, place.path(name), indexes, keys, partition_by)
    return Folder(name, len(sizes), sum(sizes.values()), runs_with_rows, file_format)


def _opened(place: Place, path: str, places: Sidecars) -> tuple[Version, OpenedFile]:
    source = FileSource(place.filesystem, place.path(path))
    version = source.version  # taken before any read, so that later changes are noticed
    file = open_source(source, places=places)
    try:
        check_editable(file.footer)
    except FormatError as error:
        raise error.at(Where(file.name)) from error
    source.suspend()
    return version, file


class OvertakenError(PathError):
    """Another writer changed or removed a file that was to be replaced."""


def changed_since(place: Place, files: Sequence[OldFile]) -> str | None:
    """Returns a message about the first of ``files`` that was removed or replaced, or None."""
    tasks = [partial(version_of, place.path(file.path), place.filesystem) for file in files]
    is_local = isinstance(place.filesystem, pafs.LocalFileSystem)
    versions = [task() for task in tasks] if is_local else list(run_io_tasks(tasks))
    for file, version in zip(files, versions, strict=True):
        if version is None or version != file.version:
            return f"{file.path} was {'changed' if version else 'removed'} meanwhile"
    return None


# --- file format --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SourceFormat:
    path: str
    schema: pa.Schema
    indexes: dict[str, IndexSpec]
    codecs: Mapping[int, int]
    has_int96: bool
    has_integer_decimals: bool
    entries: Entries
    calendars: tuple[bool, bool]
    annotations: Annotations

    @classmethod
    def of(cls, file: OpenedFile, place: Place) -> _SourceFormat:
        schema, has_int96 = file.schema_arrow, False
        old = sum(leaf.element.type == Type.INT96 for leaf in file.schema.leaves)
        if old:
            with _reader(place, file.name, has_int96=True) as reader:
                schema, has_int96 = reader.schema_arrow, True
            if old < sum(map(_num_timestamps, schema.types)):
                raise UnsupportedError(
                    "some timestamps are INT96 and some are not, but pyarrow writes all alike",
                    Where(file.name),
                )
        codecs: Counter[int] = Counter()
        for group in range(len(file.metadata.row_groups)):
            for leaf in file.schema.leaves:
                chunk = file.chunk(group, leaf.index)
                codecs[chunk.codec] += chunk.total_compressed_size
        indexes, entries = _indexes_of(file), entries_of(file)
        said = annotations_of(file.schema)
        dates = calendars(entries)
        has_integers = any(
            leaf.element.type in (Type.INT32, Type.INT64) and leaf.element.precision
            for leaf in file.schema.leaves
        )
        return cls(
            file.name, schema, indexes, codecs, has_int96, has_integers, entries, dates, said
        )


def _reader(place: Place, path: str, *, has_int96: bool) -> pq.ParquetFile:
    # INT96 values of distant years overflow nanoseconds, and pyarrow would not raise an error.
    return pq.ParquetFile(
        path,
        filesystem=place.filesystem,
        coerce_int96_timestamp_unit="us" if has_int96 else None,
        page_checksum_verification=True,
    )


def open_reader(place: Place, file: OldFile, file_format: FileFormat) -> pq.ParquetFile:
    """Returns pyarrow's reader of a file, with checksums verified."""
    return _reader(place, place.path(file.path), has_int96=file_format.has_int96)


def _num_timestamps(kind: pa.DataType) -> int:
    return sum(pa.types.is_timestamp(leaf) for leaf in leaves(kind))


def _indexes_of(file: OpenedFile) -> dict[str, IndexSpec]:
    """Returns the indexes of a file, embedded or in its sidecar, by name.

    Page indexes are left out, as they are always written.
    """
    indexes: dict[str, IndexSpec] = {}
    for entry in file.sections.entries:
        try:
            indexes.setdefault(entry.name, make(entry.kind, entry.on, entry.params))
        except IndexSpecError as error:
            raise IndexSpecError(
                f"{file.name}: index {entry.name} cannot be built again; pass the indexes of new "
                f"files as indexes=: {error}"
            ) from error
    for report in parquet_index_reports(file):
        column, _, kind = report.name.rpartition(":")
        if kind == Bloom.kind:
            indexes[report.name] = Bloom(column)
    return indexes


def _common_format(
    files: Sequence[_SourceFormat],
    where: str,
    indexes: Sequence[IndexSpec] | None,
    keys: pa.Schema | None,
    partition_by: Sequence[str],
) -> FileFormat:
    schema = _unified_schema(files)
    if len({file.calendars for file in files}) > 1 and any(map(has_dates_or_times, schema.types)):
        raise UnsupportedError(
            "dates and times are in an old Spark's calendar in some files and not in others",
            Where(where),
        )
    shared = entries_of_all([file.entries for file in files], files[0].calendars)
    entries = {key: value for key, value in shared.items() if key not in _OF_ONE_FILE}
    schema = schema.with_metadata(entries or None)
    codecs: Counter[int] = Counter()
    for file in files:
        codecs.update(file.codecs)
    if len({file.has_int96 for file in files}) > 1 and any(map(_num_timestamps, schema.types)):
        raise UnsupportedError("timestamps are INT96 in some files and not in others", Where(where))
    ((codec, _),) = codecs.most_common(1) or [(CompressionCodec.ZSTD, 0)]
    options: dict[str, Any] = {"compression": _CODECS.get(CompressionCodec(codec), "zstd")}
    if files[0].has_int96:
        options["use_deprecated_int96_timestamps"] = True
    if any(file.has_integer_decimals for file in files):
        options["store_decimal_as_integer"] = True
    common_annotations = agreed([(file.schema, file.annotations) for file in files], schema, where)
    read_schema = with_missing(schema, keys or ())
    schema = pa.schema(
        [field for field in read_schema if field.name not in partition_by], schema.metadata
    )
    if indexes is None:
        by_name = {name: one for file in reversed(files) for name, one in file.indexes.items()}
        indexes = list(by_name.values())
        if partition_by:  # these columns become folders, and indexes on them end
            new_file = empty_file(schema, where, {})
            indexes = list(choose(new_file, indexes, anew=True, in_sidecar=False).due)
    placed_annotations = placed(common_annotations, schema, options)
    if placed_annotations.ordered is not None:
        options["write_statistics"] = list(placed_annotations.ordered)
    return FileFormat(
        schema,
        tuple(sorted(indexes, key=spec_name)),
        options,
        placed_annotations.fields,
        read_schema.remove_metadata(),
    )


def with_missing(schema: pa.Schema, fields: Iterable[pa.Field]) -> pa.Schema:
    """Returns ``schema`` with those of ``fields`` that it lacks by name."""
    return pa.schema([*schema, *(f for f in fields if f.name not in schema.names)], schema.metadata)


def _unified_schema(files: Sequence[_SourceFormat]) -> pa.Schema:
    """Returns all columns of all files; columns that some files lack become nullable."""
    schemas = [file.schema.remove_metadata() for file in files]
    try:
        common = united(schemas, keeps_meaning)
    except UNIFICATION_ERRORS as error:
        unlike = files[first_incompatible(schemas, keeps_meaning)]
        problem = f"types of its columns differ from those of the files before it: {error}"
        raise UnsupportedError(problem, Where(unlike.path)) from error
    return pa.schema([f if all(_has(s, f) for s in schemas) else nullable(f) for f in common])


def _has(schema: pa.Schema, field: pa.Field) -> bool:
    """True if a schema has this column with all its nested fields."""
    position = schema.get_field_index(field.name)
    return position >= 0 and len(leaves(schema.field(position).type)) == len(leaves(field.type))
