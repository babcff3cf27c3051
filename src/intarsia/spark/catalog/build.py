"""``build_catalog``: the catalog of a data set, built by the executors.

::

    tasks    files …  ─▶ ends of files, a table each ─▶ identities, bounds, keys ─▶ driver
    driver   numbers the files, sorts few keys itself
    tasks    many keys: indexes … ─▶ (index, key, granule) ─▶ range sort ─▶ tables of keys
    driver   small tables, then the pointer

Each attempt of a task gives its tables new random names. If a task runs twice, the pointer names
the tables of one attempt, and those of the other are removed.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from intarsia.catalog.build import (
    CatalogReport,
    Known,
    new_generation,
    published,
    read_facts,
    read_known_files,
)
from intarsia.catalog.file_facts import NO_KEYS, Facts, FileEntry, KeySpec, keys_of
from intarsia.catalog.location import Target
from intarsia.catalog.manifest import KeyPart, Segment, Table, TailPart
from intarsia.catalog.segment_reader import Identity
from intarsia.catalog.segment_writer import PART_ENTRIES, SegmentTables, SegmentWriter
from intarsia.catalog.tables import TAIL_ROWS, TAILS, build_table, new_name
from intarsia.errors import IntarsiaError, quiet
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.index.section.writer import STEP_SCHEMA, entry_table
from intarsia.io.external_sort import Workspace
from intarsia.io.storage import FileSource, PathLike
from intarsia.parquet.value_display import plural
from intarsia.row_ranges import UInt64Array
from intarsia.scan.parquet_file import open_source
from intarsia.spark.job_status import Progress, described
from intarsia.spark.session import require_pyspark
from intarsia.spark.task_error import raising_task_errors
from intarsia.spark.tasks import divided, map_tasks, results_of
from intarsia.tables.data_files import TableFormatOption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MAX_TASK_FILES = 256
"""Maximum files that one task opens."""
MAX_DRIVER_KEYS = 16 * 1024 * 1024
"""Maximum keys of new files that the driver sorts, 8 bytes each. Spark's sort of few keys takes
longer, and needs a second pass over all files."""
_KEYS = pa.schema([("index", pa.int32()), ("key", pa.int64()), ("granule", pa.int64())])
_BATCH_ENTRIES = 1 << 16
"""Entries of the record batches that tasks pass to Spark."""
_KEY_BITS = np.uint64(32)
_LOW_BITS = np.uint64(0xFFFFFFFF)
"""An entry is a key in its upper 32 bits, and a granule in the lower ones."""
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class _TaskFacts:
    """The facts that a task reads of its files, without the ends of files, which are in a table."""

    tails: Table | None
    files: list[Facts]
    has_keys: bool
    """False if the keys are too many for the driver; ``files`` then lack some of them."""


@dataclass(frozen=True, slots=True)
class _FileKeys:
    """A file whose keys are to be read, with its number in the segment."""

    number: int
    entry: FileEntry
    starts: dict[KeySpec, tuple[int, int, int]]
    """By index: its number, the number of the file's first granule, and the expected granules."""


def build_catalog(
    spark: SparkSession,
    path: PathLike,
    *,
    refresh: bool = False,
    filesystem: Any = None,
    progress: Progress | None = None,
    table_format: TableFormatOption = "auto",
) -> CatalogReport:
    """Builds the catalog of a data set by Spark's tasks, like ``intarsia.build_catalog``.

    This is for data sets of very many files. The driver holds facts about whole files, the bounds
    of their columns and up to 16,777,216 keys of new files, 8 bytes each. More keys, and footers,
    stay with the executors. Old segments to be merged are merged by the driver, on its disk.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        The session.
    path : str or path
        The folder of the data set.
    refresh : bool, default False
        As for ``intarsia.build_catalog``.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        Where ``path`` is; it must be picklable.
    progress : callable, optional
        Called as for ``add_indexes``.
    table_format : str, default "auto"
        The handling of Delta and Iceberg tables, as for ``intarsia.dataset``.

    Returns
    -------
    CatalogReport
        The number of files and what was read.

    Raises
    ------
    PathError
        As ``intarsia.build_catalog`` does.

    Other errors come from Spark if a task failed; the old catalog then stays.

    Examples
    --------
    ::

        ias.build_catalog(spark, "lake/logs")
    """
    require_pyspark()
    rebuild = partial(
        build_catalog,
        spark,
        path,
        filesystem=filesystem,
        progress=progress,
        table_format=table_format,
    )
    target = Target.of(path, filesystem)
    known = read_known_files(target, refresh=refresh, table_format=table_format)
    with new_generation(target) as generation:
        kept_segments = known.reusable_segments
        if known.is_worn:
            try:
                kept_segments = [_merged_segment(target, known, generation)]
            except (IntarsiaError, OSError):
                return rebuild()
        with raising_task_errors():
            num_files, segment = _new_segment(spark, target, known, generation, progress)
        segments = [*kept_segments, segment] if num_files or not kept_segments else kept_segments
        report = published(target, known, generation, segments, num_files)
    return rebuild() if report is None else report


def _merged_segment(target: Target, known: Known, generation: str) -> Segment:
    with quiet(), Workspace() as work:
        writer = SegmentWriter(target.put_table, generation, work)
        for reader, numbers in known.alive:
            writer.absorb(reader, numbers)
        return writer.finish()


def _new_segment(
    spark: SparkSession,
    target: Target,
    known: Known,
    generation: str,
    progress: Progress | None,
) -> tuple[int, Segment]:
    """Returns the number of new files, and a segment about them."""
    identities = [(path, known.files[path]) for path in known.new]
    tasks = divided(spark, identities, _MAX_TASK_FILES)
    max_keys = MAX_DRIVER_KEYS // max(len(tasks), 1)
    description = f"catalog of {target.root}, {len(identities):,} of {len(known.files):,} files"
    read = partial(_facts_of_task, target, generation, max_keys)
    facts = results_of(spark, tasks, read, description, progress)
    num_files = sum(len(part.files) for part in facts)
    starts = itertools.accumulate((len(part.files) for part in facts), initial=0)
    tails = [
        TailPart(start, part.tails)
        for start, part in zip(starts, facts, strict=False)
        if part.tails is not None
    ]
    files = [file for part in facts for file in part.files]
    if not all(part.has_keys for part in facts):
        return num_files, _segment_of_many_keys(spark, target, generation, files, tails)
    with quiet(), Workspace() as work:
        writer = SegmentWriter(target.put_table, generation, work)
        for file in files:
            writer.add(file)
        return num_files, writer.finish(tails)


def _segment_of_many_keys(
    spark: SparkSession,
    target: Target,
    generation: str,
    files: Sequence[Facts],
    tails: Sequence[TailPart],
) -> Segment:
    """Returns a segment whose keys are read again by tasks, sorted by Spark and written by tasks.

    This is repeated without the keys of files whose keys turn out to be damaged.
    """
    damaged: set[str] = set()
    while True:
        tables = SegmentTables(target.put_table, generation)
        files_with_keys = [_add_facts(tables, file, file.entry.path in damaged) for file in files]
        with (
            described(spark, f"keys of {target.root}, {plural(len(files), 'file')}"),
            _gathered(spark, target, files_with_keys) as key_entries,
        ):
            damaged_numbers = [row["key"] for row in key_entries.where("index < 0").collect()]
            damaged |= {files_with_keys[number].entry.path for number in damaged_numbers}
            if not damaged_numbers:
                key_parts = _keys(key_entries, target, generation)
                break
    numbers = {id(index): position for position, index in enumerate(tables.indexes.values())}
    return tables.finish(lambda index: key_parts.get(numbers[id(index)], []), tails)


def _add_facts(tables: SegmentTables, file: Facts, is_damaged: bool) -> _FileKeys:
    """Adds a file's facts to ``tables``, and returns which of its keys are to be read."""
    number = tables.add(file.entry, file.bounds)
    starts = {}
    for spec, granules, _ in () if is_damaged else file.keys:
        index = tables.index(spec, file.entry.schema_hash)
        index_number = list(tables.indexes).index((spec, file.entry.schema_hash))
        starts[spec] = index_number, index.cover(number, granules), granules
    return _FileKeys(number, file.entry, starts)


def _facts_of_task(
    target: Target, generation: str, max_keys: int, files: Sequence[tuple[str, Identity]]
) -> _TaskFacts:
    with quiet():
        facts, has_keys = _read(target, dict(files), max_keys)
    if not facts:
        return _TaskFacts(None, [], has_keys)
    rows = pa.table([pa.array([f.tail for f in facts], pa.binary())], schema=TAILS)
    built = build_table(new_name(generation, "tails"), TAILS, [rows], TAIL_ROWS)
    target.put_table(built)
    return _TaskFacts(built.table, [replace(f, tail=None) for f in facts], has_keys)


def _read(target: Target, files: dict[str, Identity], max_keys: int) -> tuple[list[Facts], bool]:
    """Returns the facts of files, and whether all have their keys; then these are few."""
    facts: list[Facts] = []
    remaining, num_keys = list(files), 0
    for number, one in enumerate(read_facts(target, remaining, files)):
        if one is None:
            continue
        facts.append(one)
        num_keys += sum(len(entries) for *_, entries in one.keys)
        if num_keys > max_keys:
            remaining = remaining[number + 1 :]
            facts = [_without_keys(file) for file in facts]
            facts += filter(None, read_facts(target, remaining, files, with_keys=False))
            return facts, False
    return facts, True


def _without_keys(file: Facts) -> Facts:
    return replace(file, keys=[(spec, granules, NO_KEYS) for spec, granules, _ in file.keys])


# --- keys ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def _gathered(
    spark: SparkSession, target: Target, files: Sequence[_FileKeys]
) -> Iterator[DataFrame]:
    """Yields all entries, unsorted. Index −1 marks the number of a file that cannot be read."""
    tasks = divided(spark, [file for file in files if file.starts], _MAX_TASK_FILES)
    schema = "index int, key long, granule long"
    entries = map_tasks(spark, tasks, partial(_entries_of_files, target), schema)
    entries = entries.persist()  # read three times: for damage, for the count, by the sort
    try:
        yield entries
    finally:
        entries.unpersist()


def _keys(entries: DataFrame, target: Target, generation: str) -> dict[int, list[KeyPart]]:
    """Returns the parts of each index's table, by the number of the index."""
    count = -(-entries.count() // PART_ENTRIES)
    if not count:
        return {}
    order = ["index", "key", "granule"]
    ranges = entries.repartitionByRange(count, *order) if count > 1 else entries.coalesce(1)
    tables = ranges.sortWithinPartitions(*order).mapInArrow(
        _write_keys(target, generation), "task long, found binary"
    )
    parts_of_index: dict[int, list[KeyPart]] = {}
    for row in tables.collect():
        index, part = pickle.loads(row["found"])
        parts_of_index.setdefault(index, []).append(part)
    return {
        i: sorted(parts, key=lambda part: (part.low, part.high))
        for i, parts in parts_of_index.items()
    }


def _entries_of_files(target: Target, files: Sequence[_FileKeys]) -> Batches:
    places = Sidecars(target.filesystem)
    for file in files:
        with quiet():
            yield from _entries(target, file, places)


def _entries(target: Target, file: _FileKeys, places: Sidecars) -> Batches:
    """Yields the keys of one file."""
    source = FileSource(target.filesystem, f"{target.root}/{file.entry.path}")
    read_indexes = set()
    try:
        for spec, granules, entries in keys_of(open_source(source, places=places)):
            index, start, count = file.starts.get(spec, (0, 0, -1))
            if granules == count:
                read_indexes.add(spec)
                for position in range(0, len(entries), _BATCH_ENTRIES):
                    yield _batch(index, entries[position : position + _BATCH_ENTRIES], start)
    except (IntarsiaError, OSError):
        read_indexes.clear()
    source.close()
    if read_indexes != file.starts.keys():
        file_number = np.array([file.number << int(_KEY_BITS)], dtype=np.uint64)
        yield _batch(-1, file_number, 0)


def _batch(index: int, entries: UInt64Array, start: int) -> pa.RecordBatch:
    keys, granules = (entries >> _KEY_BITS).astype(np.int64), (entries & _LOW_BITS).astype(np.int64)
    numbers = np.full(len(entries), index, dtype=np.int32)
    columns = [pa.array(numbers), pa.array(keys), pa.array(granules + start)]
    return pa.RecordBatch.from_arrays(columns, schema=_KEYS)


def _write_keys(target: Target, generation: str) -> Callable[[Batches], Batches]:
    """Writes sorted entries as tables of one index each, and yields their parts for the pointer."""

    def run(batches: Batches) -> Batches:
        for index, entries in _runs_of_one_index(batches):
            name = new_name(generation, "keys")
            built = build_table(name, STEP_SCHEMA, [entry_table(entries)])
            target.put_table(built)
            low, high = (int(entries[position] >> _KEY_BITS) for position in (0, -1))
            pickled_part = pickle.dumps((index, KeyPart(low, high, built.table)))
            yield pa.record_batch(
                [pa.array([index], pa.int64()), pa.array([pickled_part], pa.binary())],
                names=["task", "found"],
            )

    return run


def _runs_of_one_index(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, UInt64Array]]:
    """Yields runs of entries of one index, each up to the size of a table."""
    pending: list[UInt64Array] = []
    current, count = -1, 0
    for index, entries in _by_index(batches):
        if pending and (index != current or count >= PART_ENTRIES):
            yield current, np.concatenate(pending)
            pending, count = [], 0
        current = index
        pending.append(entries)
        count += len(entries)
    if pending:
        yield current, np.concatenate(pending)


def _by_index(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, UInt64Array]]:
    for batch in batches:
        index, key, granule = (batch.column(n).to_numpy() for n in ("index", "key", "granule"))
        entries = key.astype(np.uint64) << _KEY_BITS | granule.astype(np.uint64)
        edges = [0, *(np.flatnonzero(np.diff(index)) + 1).tolist(), len(index)]
        for start, stop in itertools.pairwise(edges):
            if start < stop:
                yield int(index[start]), entries[start:stop]
