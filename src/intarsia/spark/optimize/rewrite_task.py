"""The work of tasks of ``optimize``: they read whole files, in Arrow's types or Spark's nearest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from intarsia.commit.job import Job
from intarsia.commit.storage import Place
from intarsia.errors import UnsupportedError, Where
from intarsia.rewrite.file_rows import Part, part_batches
from intarsia.rewrite.rewrite_plan import FileFormat, Folder
from intarsia.spark.read.variant_type import as_output
from intarsia.spark.types import arrow_schema, spark_schema
from intarsia.spark.write.task import write_task
from intarsia.spark.write.write import manifest
from intarsia.writer.row_sorting import FOLDER

_UNIT_BYTES = 64 * 1024 * 1024
"""Minimum bytes of the row groups that one task reads to put rows into a new order."""


def parts_of(folder: Folder) -> list[list[Part]]:
    """Returns tasks of about even size: parts of large files, or several small files."""
    tasks: list[list[Part]] = []
    task_bytes = _UNIT_BYTES
    for file in folder.files:
        groups: list[int] = []
        for group, size in enumerate(file.group_bytes):
            if task_bytes >= _UNIT_BYTES:
                if groups:
                    tasks[-1].append(Part(folder.name, file, tuple(groups)))
                tasks.append([])
                groups, task_bytes = [], 0
            groups.append(group)
            task_bytes += size
        if groups:
            tasks[-1].append(Part(folder.name, file, tuple(groups)))
    return tasks


def merge_run(run: tuple[Job, FileFormat, Sequence[Part]]) -> Iterator[pa.RecordBatch]:
    """Writes the rows of a run of files to one new file, and yields its report."""
    job, file_format, parts = run
    yield from manifest(write_task(_rows(job.place, file_format, parts), job))


def read_parts(
    place: Place, file_format: FileFormat, carried: pa.Schema, parts: Sequence[Part]
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of parts of files, each with its folder, in the types of ``carried``."""
    for rows in _rows(place, file_format, parts):
        yield from as_output(pa.Table.from_batches([rows]), carried, safe=True).to_batches()


def _rows(place: Place, file_format: FileFormat, parts: Sequence[Part]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of ``parts``, with the folder of each row."""
    for part in parts:
        for batch in part_batches(place, file_format, part):
            folders = pa.repeat(pa.scalar(part.folder), len(batch))
            yield batch.append_column(pa.field(FOLDER, pa.string(), nullable=False), folders)


def with_folder(schema: pa.Schema) -> pa.Schema:
    """Returns a schema with an additional column for the folder."""
    return schema.append(pa.field(FOLDER, pa.string(), nullable=False))


# --- types --------------------------------------------------------------------------------------


def carried_schema(schema: pa.Schema, where: str) -> pa.Schema:
    """Returns types that carry rows through Spark. Raises ``UnsupportedError`` for losses."""
    fields = [field.with_type(_as_integer(field.type)) for field in schema]
    for field in fields:
        if any(map(_is_finer_than_spark, _parts(field.type))):
            raise UnsupportedError(
                f"column {field.name!r} has nested nanoseconds, but Spark has microseconds: its "
                "rows cannot be put into a new order; files can be merged without cluster_by",
                Where(where),
            )
    try:
        carried = arrow_schema(spark_schema(pa.schema(fields)))
        pa.schema(list(carried)).empty_table().cast(schema)
    except (pa.ArrowException, UnsupportedError) as error:
        raise UnsupportedError(
            f"Spark cannot put rows of these columns into a new order; files can be merged without "
            f"cluster_by: {error}",
            Where(where),
        ) from error
    return with_folder(carried)


def _as_integer(kind: pa.DataType) -> pa.DataType:
    """Returns an integer type for a type that Spark lacks or has only in microseconds."""
    if pa.types.is_time32(kind):
        return pa.int32()
    if pa.types.is_time64(kind) or _is_finer_than_spark(kind):
        return pa.int64()
    return kind


def _is_finer_than_spark(kind: pa.DataType) -> bool:
    is_timed = pa.types.is_timestamp(kind) or pa.types.is_duration(kind)
    return is_timed and str(kind.unit) == "ns"


def _parts(kind: pa.DataType) -> Iterator[pa.DataType]:
    yield kind
    if pa.types.is_dictionary(kind):
        yield from _parts(kind.value_type)
    elif isinstance(kind, pa.BaseExtensionType):
        yield from _parts(kind.storage_type)
    else:
        for at in range(kind.num_fields):
            yield from _parts(kind.field(at).type)
