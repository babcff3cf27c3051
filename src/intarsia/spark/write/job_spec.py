"""The description of a write job, checked before the job starts."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from numbers import Integral
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pafs

from intarsia.errors import IndexSpecError, PathError, PredicateError, unknown_column
from intarsia.expr.nested_types import nullable, without_dictionary
from intarsia.index.parquet_indexes import PageIndex
from intarsia.index.registry import IndexSpec, parse_indexes, spec_name
from intarsia.io.glob import HIDDEN, is_glob
from intarsia.spark.commit.storage import Place
from intarsia.spark.read.spark_footer import collations_of
from intarsia.spark.types import arrow_schema
from intarsia.spark.write.row_sorting import FOLDER
from intarsia.spark.write.space_filling_curve import check_curve
from intarsia.writer.defaults import default_page_rows
from intarsia.writer.parquet_writer import check_fit

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)\s*", re.IGNORECASE)
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_CODECS = {
    **{name: name for name in ("none", "snappy", "gzip", "lz4", "zstd")},
    "uncompressed": "none",
    "lz4_raw": "lz4",
}
"""pyarrow's names of the codecs that Spark can read, by pyarrow's and by Spark's names."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of rows in files, with the arguments of ``write``."""

    indexes: Sequence[IndexSpec | str] = ()
    partition_by: Sequence[str] = ()
    cluster_by: Sequence[str] = ()
    curve: str | None = None
    sort_within: Sequence[str] = ()
    rows_per_page: int | None = None
    target_file_size: int | str | None = None
    checkpoint_row_groups: int | None = None
    keep_unfinished: bool = False
    compression: str = "zstd"


@dataclass(frozen=True, slots=True)
class Job:
    """The part of a write job that all its tasks share; picklable."""

    place: Place
    name: str
    """The job's name: its files are in ``_temporary-<name>`` until they are published."""
    schema: pa.Schema
    """The schema of the files, without partition columns."""
    indexes: tuple[IndexSpec, ...]
    partition_by: tuple[str, ...]
    sorted_by: tuple[str, ...]
    """Columns by which the rows of a file are sorted."""
    stated_order: tuple[str, ...]
    """The leading part of ``sorted_by`` that footers state: columns that all readers sort alike."""
    rows_per_page: int
    target_bytes: int | None
    time_zone: str
    """The time zone of timestamps in names of folders."""
    sorts: bool = False
    """True if tasks sort rows. Else the rows come sorted, by folder first."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of pyarrow's writer."""
    annotations: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Fields of schema elements that pyarrow does not write, by position of the element."""
    checkpoint_row_groups: int | None = None
    keep_unfinished: bool = False
    """True if a failed job leaves in its folder what it has written so far."""


def job_of(
    place: Place,
    name: str,
    schema: StructType,
    layout: Layout,
    time_zone: str,
    *,
    carries_folder: bool = False,
) -> Job:
    """Returns the job of writing rows of ``schema``.

    With ``carries_folder`` the schema has a column ``FOLDER`` with the folder of each row. Raises
    ``IndexSpecError`` or ``PredicateError`` for columns that do not exist or cannot be used so, and
    ``ValueError`` for numbers out of range.
    """
    if layout.rows_per_page is not None:
        check_count("rows_per_page", layout.rows_per_page)
    checkpoint_interval = layout.checkpoint_row_groups
    if checkpoint_interval is not None:
        check_count("checkpoint_row_groups", checkpoint_interval)
    if (checkpoint_interval or layout.keep_unfinished) and not place.is_shared_disk:
        raise ValueError(
            f"{place.root}: checkpoint_row_groups and keep_unfinished need a local folder that "
            "driver and tasks share; elsewhere unfinished files are on the tasks' own disks"
        )
    partition_columns, cluster_columns = names_of(layout.partition_by), names_of(layout.cluster_by)
    sort_columns = names_of(layout.sort_within)
    if FOLDER in map(str.lower, schema.names) and not carries_folder:
        raise PredicateError(f"column {FOLDER!r} cannot be written: the name is taken")
    _check_columns(schema.names, partition_columns, cluster_columns, sort_columns)
    columns, collated = arrow_schema(schema), collations_of(schema.jsonValue())
    for column in partition_columns:
        _check_key(columns.field(column), collated.get(column))
    file_fields = [nullable(one) for one in columns if one.name not in partition_columns]
    if not file_fields:
        raise PredicateError("every column is in partition_by; nothing is left to write")
    if layout.curve is not None:
        check_curve(layout.curve, schema, cluster_columns)
    kinds = parse_indexes(layout.indexes)
    for index in kinds:
        columns = index.columns or () if isinstance(index, PageIndex) else (index.on,)
        if not set(columns).isdisjoint(partition_columns):
            named = spec_name(index)
            raise IndexSpecError(
                f"{place.root}: index {named} cannot be built: its column is in partition_by"
            )
    check_fit(pa.schema(file_fields), kinds, place.root)
    order = sort_columns or (() if layout.curve else cluster_columns)
    return Job(
        place=place,
        name=name,
        schema=pa.schema(file_fields),
        indexes=tuple(kinds),
        partition_by=partition_columns,
        sorted_by=order,
        stated_order=stated_order(order, pa.schema(file_fields), collated),
        rows_per_page=layout.rows_per_page or default_page_rows(kinds),
        target_bytes=bytes_of(layout.target_file_size),
        time_zone=time_zone,
        options={"compression": _codec_of(layout.compression)},
        checkpoint_row_groups=checkpoint_interval,
        keep_unfinished=layout.keep_unfinished,
    )


def stated_order(
    columns: Sequence[str], schema: pa.Schema, collated: Container[str] = ()
) -> tuple[str, ...]:
    """Returns the leading sort ``columns`` that footers may state.

    NaN and nested values have no order that other readers know, and collations are Spark's alone.
    """

    def has_common_order(name: str) -> bool:
        kind = without_dictionary(schema.field(name).type)
        return not (pa.types.is_floating(kind) or pa.types.is_nested(kind) or name in collated)

    return tuple(takewhile(has_common_order, columns))


def check_count(name: str, count: object) -> None:
    """Raises ``ValueError`` unless an argument is an integer from 1 on."""
    if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
        raise ValueError(f"{name} must be a whole number, at least 1, not {count!r}")


def _check_columns(
    known: Sequence[str], folders: Sequence[str], clusters: Sequence[str], within: Sequence[str]
) -> None:
    if not known:
        raise PredicateError("there are no columns to write")
    for column in known:
        if known.count(column) > 1:
            raise PredicateError(f"two columns are called {column!r}")
    for column in (*folders, *clusters, *within):
        if column not in known:
            raise unknown_column(column, [name for name in known if name != FOLDER])
        if [*folders, *clusters].count(column) > 1:
            raise PredicateError(f"column {column!r} is named twice in partition_by and cluster_by")
        if within.count(column) > 1 or (column in folders and column in within):
            raise PredicateError(f"column {column!r} is named twice in sort_within or folders")


def _check_key(column: pa.Field, collation: str | None) -> None:
    """Raises ``PredicateError`` for a column whose values cannot be names of folders."""
    if column.name.startswith(HIDDEN) and column.name != FOLDER:
        raise PredicateError(
            f"column {column.name!r} cannot be in partition_by: folders that begin with "
            f"{column.name[0]!r} are ignored by readers"
        )
    if collation is not None:
        problem = f"strings that are equal by its collation {collation} would get other folders"
        raise PredicateError(f"column {column.name!r} cannot be in partition_by: {problem}")
    if not column.name or pa.types.is_nested(column.type) or pa.types.is_duration(column.type):
        problem = f"it is {column.type}" if column.name else "folders need a name"
        raise PredicateError(f"column {column.name!r} cannot be in partition_by: {problem}")


def names_of(columns: Sequence[str]) -> tuple[str, ...]:
    """Returns column names; a single name may be passed alone.

    Raises ``TypeError`` for a name that is not a string.
    """
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"names of columns are strings, not {name!r}")
    return names


def bytes_of(size: int | str | None, name: str = "target_file_size") -> int | None:
    """Returns a size in bytes, from a number or text such as ``128 MB``.

    Units are powers of 1,024. Raises ``ValueError`` for other text and for less than one byte.
    """
    if size is None:
        return None
    match = _SIZE.fullmatch(str(size))
    unit = match.group(2).lower().rstrip("b").rstrip("i") if match else ""
    if not match or isinstance(size, bool) or unit not in _UNITS:
        raise ValueError(f"{name} is bytes, or text such as '128 MB', not {size!r}")
    count = int(float(match.group(1)) * _UNITS[unit])
    if count < 1:
        raise ValueError(f"{name} must be at least 1 byte, not {size!r}")
    return count


def _codec_of(name: str) -> str:
    """Returns pyarrow's name of a codec. Raises ``ValueError`` for an unknown codec."""
    codec = _CODECS.get(str(name).lower())
    if codec is None:
        raise ValueError(f"compression must be one of {', '.join(_CODECS)}, not {name!r}")
    return codec


def check_place(place: Place) -> None:
    """Raises ``PathError`` if no data set can be written to the folder.

    That is if there is a file, if the path is a pattern, or if the folder is in a table of another
    format.
    """
    kind = place.kind()
    if kind == pafs.FileType.File:
        raise PathError(f"{place.root}: there is a file where the data set is to be")
    if kind == pafs.FileType.NotFound and is_glob(place.root):
        raise PathError(f"{place.root}: a data set is written to one folder, and this is a pattern")
    place.check_own()
