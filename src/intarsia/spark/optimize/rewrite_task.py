"""What tasks of ``optimize`` do: read whole files, in any type of Arrow or in Spark's nearest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from intarsia.errors import FormatError, PathError, UnsupportedError, Where
from intarsia.spark.column_names import Act
from intarsia.spark.commit.storage import Place
from intarsia.spark.optimize.rewrite_plan import Folder, Form, OldFile, changed_since, open_reader
from intarsia.spark.read.variant_type import as_output
from intarsia.spark.types import arrow_schema, spark_schema
from intarsia.spark.write.job_spec import Job
from intarsia.spark.write.row_sorting import FOLDER
from intarsia.spark.write.task import write_task
from intarsia.spark.write.write import manifest

_UNIT_BYTES = 64 * 1024 * 1024
"""Of the row groups that one task reads, at least, where rows are put into a new order."""
_BATCH_ROWS = 64 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """Row groups of a file in a folder."""

    folder: str
    file: OldFile
    groups: tuple[int, ...]


def parts_of(folder: Folder) -> list[list[Part]]:
    """The files of a folder for tasks of about even size: parts of big ones, several small ones."""
    tasks: list[list[Part]] = []
    held = _UNIT_BYTES
    for file in folder.files:
        groups: list[int] = []
        for group, size in enumerate(file.group_bytes):
            if held >= _UNIT_BYTES:
                if groups:
                    tasks[-1].append(Part(folder.name, file, tuple(groups)))
                tasks.append([])
                groups, held = [], 0
            groups.append(group)
            held += size
        if groups:
            tasks[-1].append(Part(folder.name, file, tuple(groups)))
    return tasks


def merger(runs: Sequence[tuple[Job, Form, Sequence[Part]]]) -> Act:
    """Writes the rows of a run of files, as they are, to a new file; a run is a task."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in batch.column(0).to_pylist():
                job, form, parts = runs[at]
                yield from manifest(write_task(_rows(job.place, form, parts), job))

    return run


def reader(place: Place, form: Form, tasks: Sequence[Sequence[Part]], carried: pa.Schema) -> Act:
    """Reads parts of files, in the types of ``carried``, each row with its folder."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in batch.column(0).to_pylist():
                for rows in _rows(place, form, tasks[at]):
                    yield from as_output(
                        pa.Table.from_batches([rows]), carried, safe=True
                    ).to_batches()

    return run


def _rows(place: Place, form: Form, parts: Sequence[Part]) -> Iterator[pa.RecordBatch]:
    schema = with_folder(form.schema.remove_metadata())
    for part in parts:
        if not part.groups:
            continue
        with open_reader(place, part.file, form) as file:
            changed = changed_since(place, [part.file])  # asked once it is open
            if changed:
                raise PathError(f"{place.root}: {changed}")
            batches = file.iter_batches(_BATCH_ROWS, row_groups=list(part.groups))
            for batch in _naming(place.path(part.file.path), batches):
                yield _conformed(batch, schema, part.folder)


def _naming(path: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """``batches``; what pyarrow cannot read of them is a ``FormatError`` that names the file."""
    try:
        yield from batches
    except (OSError, pa.ArrowException) as error:
        raise FormatError(str(error), Where(path)) from error


def with_folder(schema: pa.Schema) -> pa.Schema:
    """A schema with one more column, for the folder."""
    return schema.append(pa.field(FOLDER, pa.string(), nullable=False))


def _conformed(batch: pa.RecordBatch, schema: pa.Schema, folder: str) -> pa.RecordBatch:
    columns = []
    for field in list(schema)[:-1]:
        at = batch.schema.get_field_index(field.name)
        column = pa.nulls(len(batch), field.type) if at < 0 else batch.column(at)
        columns.append(column if column.type == field.type else column.cast(field.type))
    columns.append(pa.repeat(pa.scalar(folder), len(batch)))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# --- types --------------------------------------------------------------------------------------


def carried_schema(schema: pa.Schema, where: str) -> pa.Schema:
    """Types of Spark's in which rows of ``schema`` travel, and come back as they were.

    Raises ``UnsupportedError`` for a column that would come back changed.
    """
    fields = [field.with_type(_countable(field.type)) for field in schema]
    for field in fields:
        if any(map(_is_finer_than_spark, _parts(field.type))):
            raise UnsupportedError(
                f"column {field.name!r} holds nanoseconds within it, and Spark has microseconds: "
                "its rows cannot be put into a new order; files can be merged without cluster_by",
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


def _countable(kind: pa.DataType) -> pa.DataType:
    """What Spark has only in microseconds, or not at all, as the integers that it is."""
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
