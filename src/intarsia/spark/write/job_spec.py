"""What is to be written, checked before a job starts."""

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
from intarsia.index.registry import IndexSpec, kinds_of, spec_name
from intarsia.io.glob import HIDDEN, is_glob
from intarsia.spark.commit.storage import Place
from intarsia.spark.read.spark_footer import collations_of
from intarsia.spark.types import arrow_schema
from intarsia.spark.write.row_sorting import FOLDER
from intarsia.spark.write.space_filling_curve import check_curve
from intarsia.writer.defaults import PAGE_ROWS
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
"""What pyarrow calls the codecs that Spark reads by itself, by that and by Spark's names."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows are laid out in files, as ``write`` is asked for it."""

    indexes: Sequence[IndexSpec | str] = ()
    partition_by: Sequence[str] = ()
    cluster_by: Sequence[str] = ()
    curve: str | None = None
    sort_within: Sequence[str] = ()
    rows_per_page: int = PAGE_ROWS
    target_file_size: int | str | None = None
    checkpoint_row_groups: int | None = None
    keep_unfinished: bool = False
    compression: str = "zstd"


@dataclass(frozen=True, slots=True)
class Job:
    """What every task needs to know; picklable."""

    place: Place
    name: str
    """Of the job: its files lie in ``_temporary-<name>`` until they are published."""
    schema: pa.Schema
    """Of the files: without the columns that folders fix."""
    indexes: tuple[IndexSpec, ...]
    partition_by: tuple[str, ...]
    sorted_by: tuple[str, ...]
    """Columns by which the rows of a file are sorted."""
    stated_order: tuple[str, ...]
    """The first of them, as far as other readers sort alike: what footers say of the order."""
    rows_per_page: int
    target_bytes: int | None
    time_zone: str
    """In which folders name timestamps."""
    sorts: bool = False
    """Do tasks sort rows themselves? Else they come sorted, by folders as well."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further ones of pyarrow's writer."""
    annotations: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Fields of the files' schema's elements that pyarrow does not write, by position."""
    checkpoint_row_groups: int | None = None
    keep_unfinished: bool = False
    """Does a job that fails leave what it has written so far in its folder?"""


def job_of(
    place: Place,
    name: str,
    schema: StructType,
    layout: Layout,
    time_zone: str,
    *,
    carries_folder: bool = False,
) -> Job:
    """The job of writing rows of ``schema``, which has a column ``FOLDER`` if it
    ``carries_folder``.

    Raises ``IndexSpecError`` or ``PredicateError`` for columns that are not there or cannot be
    used so, ``ValueError`` for numbers out of range.
    """
    check_count("rows_per_page", layout.rows_per_page)
    every = layout.checkpoint_row_groups
    if every is not None:
        check_count("checkpoint_row_groups", every)
    if (every or layout.keep_unfinished) and not place.is_shared_disk:
        raise ValueError(
            f"{place.root}: checkpoint_row_groups and keep_unfinished are for folders that drivers "
            "and tasks have in common; elsewhere unfinished files lie on the tasks' own disks"
        )
    folders, clusters = names_of(layout.partition_by), names_of(layout.cluster_by)
    within = names_of(layout.sort_within)
    if FOLDER in map(str.lower, schema.names) and not carries_folder:
        raise PredicateError(f"column {FOLDER!r} cannot be written: the name is taken")
    _check_columns(schema.names, folders, clusters, within)
    columns, collated = arrow_schema(schema), collations_of(schema.jsonValue())
    for column in folders:
        _check_key(columns.field(column), collated.get(column))
    files = [nullable(one) for one in columns if one.name not in folders]
    if not files:
        raise PredicateError("every column is in partition_by; nothing is left to write")
    if layout.curve is not None:
        check_curve(layout.curve, schema, clusters)
    kinds = kinds_of(layout.indexes)
    for index in kinds:
        columns = index.columns or () if isinstance(index, PageIndex) else (index.on,)
        if not set(columns).isdisjoint(folders):
            named = spec_name(index)
            raise IndexSpecError(f"{place.root}: no index {named}: folders fix its column already")
    check_fit(pa.schema(files), kinds, place.root)
    order = within or (() if layout.curve else clusters)
    return Job(
        place=place,
        name=name,
        schema=pa.schema(files),
        indexes=tuple(kinds),
        partition_by=folders,
        sorted_by=order,
        stated_order=stated_order(order, pa.schema(files), collated),
        rows_per_page=layout.rows_per_page,
        target_bytes=bytes_of(layout.target_file_size),
        time_zone=time_zone,
        options={"compression": _codec_of(layout.compression)},
        checkpoint_row_groups=every,
        keep_unfinished=layout.keep_unfinished,
    )


def stated_order(
    columns: Sequence[str], schema: pa.Schema, collated: Container[str] = ()
) -> tuple[str, ...]:
    """Those of the ``columns`` by which rows are sorted that footers may state.

    NaN and what is nested have no order that others know, and collations are Spark's alone.
    """

    def is_known(name: str) -> bool:
        kind = without_dictionary(schema.field(name).type)
        return not (pa.types.is_floating(kind) or pa.types.is_nested(kind) or name in collated)

    return tuple(takewhile(is_known, columns))


def check_count(name: str, count: object) -> None:
    """Raise ``ValueError`` where an argument is no whole number from 1 on."""
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
    """Raise ``PredicateError`` for a column whose values cannot be names of folders."""
    if column.name.startswith(HIDDEN) and column.name != FOLDER:
        raise PredicateError(
            f"column {column.name!r} cannot be in partition_by: folders that begin with "
            f"{column.name[0]!r} are passed over by readers"
        )
    if collation is not None:
        problem = f"texts that are equal by its collation {collation} have folders of other names"
        raise PredicateError(f"column {column.name!r} cannot be in partition_by: {problem}")
    if not column.name or pa.types.is_nested(column.type) or pa.types.is_duration(column.type):
        problem = f"it is {column.type}" if column.name else "folders need a name"
        raise PredicateError(f"column {column.name!r} cannot be in partition_by: {problem}")


def names_of(columns: Sequence[str]) -> tuple[str, ...]:
    """Column names; one name may stand alone. Raises ``TypeError`` for what is no name."""
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"columns are named by texts, not by {name!r}")
    return names


def bytes_of(size: int | str | None, name: str = "target_file_size") -> int | None:
    """A size in bytes, of a number or of text such as ``128 MB``: units are powers of 1,024.

    Raises ``ValueError`` for anything else, or less than one byte.
    """
    if size is None:
        return None
    found = _SIZE.fullmatch(str(size))
    unit = found.group(2).lower().rstrip("b").rstrip("i") if found else ""
    if not found or isinstance(size, bool) or unit not in _UNITS:
        raise ValueError(f"{name} is bytes, or text such as '128 MB', not {size!r}")
    count = int(float(found.group(1)) * _UNITS[unit])
    if count < 1:
        raise ValueError(f"{name} must be at least 1 byte, not {size!r}")
    return count


def _codec_of(name: str) -> str:
    """A codec as pyarrow calls it. Raises ``ValueError`` for one that nothing here writes."""
    found = _CODECS.get(str(name).lower())
    if found is None:
        raise ValueError(f"compression must be one of {', '.join(_CODECS)}, not {name!r}")
    return found


def check_place(place: Place) -> None:
    """Raise ``PathError`` where there is a file instead of a folder, a pattern is meant, or the
    folder is part of a table that others keep.
    """
    kind = place.kind()
    if kind == pafs.FileType.File:
        raise PathError(f"{place.root}: there is a file where the data set is to be")
    if kind == pafs.FileType.NotFound and is_glob(place.root):
        raise PathError(f"{place.root}: a data set is written to one folder, and this is a pattern")
    place.check_own()
