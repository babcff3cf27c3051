"""The description of a write job, checked before the job starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from intarsia.commit.job import Job, bytes_of, check_count, names_of
from intarsia.commit.storage import Place
from intarsia.dataset.spark_footer import collations_of
from intarsia.errors import IndexSpecError, PredicateError, unknown_column
from intarsia.expr.nested_types import nullable
from intarsia.index.index import Index
from intarsia.index.parquet_indexes import PageIndex
from intarsia.index.registry import parse_indexes, spec_name
from intarsia.io.glob import HIDDEN
from intarsia.spark.session_settings import or_session_setting
from intarsia.spark.types import arrow_schema
from intarsia.spark.write.space_filling_curve import check_curve
from intarsia.writer.defaults import DEFAULT_ROW_GROUP_ROWS, default_page_rows
from intarsia.writer.empty_file import check_fit
from intarsia.writer.policy_settings import settings_of
from intarsia.writer.row_sorting import FOLDER, stated_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_CODECS = {
    **{name: name for name in ("none", "snappy", "gzip", "lz4", "zstd")},
    "uncompressed": "none",
    "lz4_raw": "lz4",
}
"""pyarrow's names of the codecs that Spark can read, by pyarrow's and by Spark's names."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of rows in files, with the arguments of ``write``."""

    indexes: Sequence[Index | str] | None = ()
    """None stands for those of the policy, as for the other settings that are None or empty."""
    partition_by: Sequence[str] = ()
    cluster_by: Sequence[str] = ()
    curve: str | None = None
    sort_within: Sequence[str] = ()
    rows_per_page: int | None = None
    target_file_size: int | str | None = None
    checkpoint_row_groups: int | None = None
    keep_unfinished: bool = False
    compression: str | None = None
    row_group_rows: int = DEFAULT_ROW_GROUP_ROWS

    def by_policy(self, place: Place, schema: StructType) -> Layout:
        """Returns the layout of files in a folder: what is not set here is as its policy says."""
        folders = names_of(self.partition_by)
        stored = [one for one in arrow_schema(schema) if one.name not in folders]
        options = {"compression": self.compression, "max_rows_per_page": self.rows_per_page}
        settings = settings_of(
            place.filesystem,
            place.root,
            pa.schema([nullable(one) for one in stored]),
            self.indexes,
            None if not (self.cluster_by or self.sort_within) else (),
            {name: value for name, value in options.items() if value is not None},
        )
        return replace(
            self,
            indexes=settings.indexes,
            sort_within=self.sort_within or settings.sort_by,
            compression=settings.options.get("compression"),
            rows_per_page=settings.options.get("max_rows_per_page"),
            row_group_rows=settings.row_group_rows or DEFAULT_ROW_GROUP_ROWS,
        )

    def by_session(self, spark: SparkSession) -> Layout:
        """Returns the layout with settings of the session for what is not set here."""
        names = ("compression", "rows_per_page", "target_file_size")
        values = {name: or_session_setting(spark, name, getattr(self, name)) for name in names}
        return replace(self, **values)


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
    kinds = parse_indexes(layout.indexes or ())
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
        options={"compression": _codec_of(layout.compression or "zstd")},
        row_group_rows=layout.row_group_rows,
        checkpoint_row_groups=checkpoint_interval,
        keep_unfinished=layout.keep_unfinished,
    )


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


def _codec_of(name: str) -> str:
    """Returns pyarrow's name of a codec. Raises ``ValueError`` for an unknown codec."""
    codec = _CODECS.get(str(name).lower())
    if codec is None:
        raise ValueError(f"compression must be one of {', '.join(_CODECS)}, not {name!r}")
    return codec
