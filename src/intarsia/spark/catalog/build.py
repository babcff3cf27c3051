"""``build_catalog``: the catalog of a data set, made by the executors.

::

    tasks    files …  ─▶ ends of files, a table each ─▶ identities, bounds ─▶ driver: numbers them
    tasks    indexes … ─▶ (index, key, granule) ─▶ range sort ─▶ tables of keys
    driver   small tables, then the pointer

Names of tables are drawn anew in each attempt of a task, so that one that is run twice leaves two,
of which the pointer names one; the other is removed.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from intarsia.catalog.build import (
    CatalogReport,
    Known,
    each_fact,
    generation_of,
    published,
    read_known_files,
)
from intarsia.catalog.catalog import Identity
from intarsia.catalog.file_facts import FileEntry, KeySpec, LeafBounds, keys_of
from intarsia.catalog.location import Target
from intarsia.catalog.manifest import KeyPart, Segment, Table, TailPart
from intarsia.catalog.segment_writer import PART_ENTRIES, SegmentTables, SegmentWriter
from intarsia.catalog.tables import TAIL_ROWS, TAILS, build_table, new_name
from intarsia.errors import IntarsiaError, quiet
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.index.section.writer import STEP_SCHEMA, entry_table
from intarsia.io.external_sort import Workspace
from intarsia.io.storage import FileSource, PathLike
from intarsia.row_ranges import UInt64Array
from intarsia.scan.parquet_file import open_source
from intarsia.spark.session import parallelism_of, require_pyspark
from intarsia.spark.task_error import as_told
from intarsia.tables.data_files import TableFormatOption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TASK_FILES = 256
_KEYS = pa.schema([("index", pa.int32()), ("key", pa.int64()), ("granule", pa.int64())])
_BATCH = 1 << 16
_KEY_BITS = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class _File:
    """What a task found of one file; ``granules`` are those of its indexes."""

    entry: FileEntry
    bounds: list[LeafBounds]
    granules: list[tuple[KeySpec, int]]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One file whose keys are wanted: by index, its number and that of the file's first granule."""

    number: int
    entry: FileEntry
    starts: dict[KeySpec, tuple[int, int, int]]
    """With the number of granules that there have to be."""


def build_catalog(
    spark: SparkSession,
    path: PathLike,
    *,
    refresh: bool = False,
    filesystem: Any = None,
    table_format: TableFormatOption = "auto",
) -> CatalogReport:
    """As ``intarsia.build_catalog``, by Spark's tasks: for data sets of very many files.

    The driver holds what is known of files as a whole, and bounds of their columns; footers and
    keys stay with the executors. Segments that are made one are merged by the driver, on its disk.
    Raises ``PathError`` as that does, and whatever Spark raises for a task that failed: then the
    catalog is as it was.
    """
    require_pyspark()
    anew = partial(build_catalog, spark, path, filesystem=filesystem, table_format=table_format)
    target = Target.of(path, filesystem)
    known = read_known_files(target, refresh=refresh, table_format=table_format)
    with generation_of(target) as generation:
        kept = known.reusable_segments
        if known.is_worn:
            try:
                kept = [_merged(target, known, generation)]
            except (IntarsiaError, OSError):
                return anew()
        with as_told():
            read, segment = _read(spark, target, known, generation)
        segments = [*kept, segment] if read or not kept else kept
        report = published(target, known, generation, segments, read)
    return anew() if report is None else report


def _merged(target: Target, known: Known, generation: str) -> Segment:
    with quiet(), Workspace() as work:
        writer = SegmentWriter(target.put_table, generation, work)
        for reader, numbers in known.alive:
            writer.absorb(reader, numbers)
        return writer.finish()


def _read(
    spark: SparkSession, target: Target, known: Known, generation: str
) -> tuple[int, Segment]:
    """A segment about the files that are new, and how many these are."""
    looked = list(_collected(_look(spark, target, known.files, known.new, generation)))
    damaged: set[str] = set()
    while True:  # a second time where keys turn out to be damaged: these files do without
        tables = SegmentTables(target.put_table, generation)
        tails: list[TailPart] = []
        wanted: list[_Wanted] = []
        for table, files in looked:
            if table is not None:
                tails.append(TailPart(len(wanted), table))
            wanted += [_added(tables, file, file.entry.path in damaged) for file in files]
        with _gathered(spark, target, wanted) as gathered:
            bad = [row["key"] for row in gathered.where("index < 0").collect()]
            damaged |= {wanted[number].entry.path for number in bad}
            if not bad:
                parts = _keys(gathered, target, generation)
                break
    numbers = {id(index): at for at, index in enumerate(tables.indexes.values())}
    return len(wanted), tables.finish(lambda index: parts.get(numbers[id(index)], []), tails)


def _added(tables: SegmentTables, file: _File, is_damaged: bool) -> _Wanted:
    """A file's facts, put into ``tables``, and the keys that are wanted of it."""
    number = tables.add(file.entry, file.bounds)
    starts = {}
    for spec, granules in () if is_damaged else file.granules:
        index = tables.index(spec, file.entry.form)
        at = list(tables.indexes).index((spec, file.entry.form))
        starts[spec] = at, index.cover(number, granules), granules
    return _Wanted(number, file.entry, starts)


def _numbered(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count, numPartitions=max(count, 1))


def _divided(spark: SparkSession, items: Sequence[Any]) -> list[Sequence[Any]]:
    """Items in runs, one a task: enough of them for all cores."""
    size = max(1, min(_TASK_FILES, -(-len(items) // parallelism_of(spark))))
    return [items[at : at + size] for at in range(0, len(items), size)]


def _look(
    spark: SparkSession,
    target: Target,
    known: dict[str, Identity],
    new: Sequence[str],
    generation: str,
) -> DataFrame:
    """A row a task, in order: a table of ends of files, and what was found of these files."""
    tasks = [{path: known[path] for path in paths} for paths in _divided(spark, new)]
    looked = _numbered(spark, len(tasks)).mapInArrow(
        _on_each(tasks, partial(_look_at, target, generation)), "task long, found binary"
    )
    return looked.orderBy("task")


def _collected(rows: DataFrame) -> Iterator[tuple[Table | None, list[_File]]]:
    for row in rows.collect():
        yield pickle.loads(row["found"])


def _on_each(tasks: Sequence[Any], work: Callable[[Any], Any]) -> Callable[[Batches], Batches]:
    """Gives, for each task's number, that and what work on it makes, as bytes."""

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                found = pickle.dumps(work(tasks[number]))
                yield pa.record_batch(
                    [pa.array([number], pa.int64()), pa.array([found], pa.binary())],
                    names=["task", "found"],
                )

    return run


def _look_at(
    target: Target, generation: str, files: dict[str, Identity]
) -> tuple[Table | None, list[_File]]:
    with quiet():
        facts = [f for f in each_fact(target, list(files), files, with_keys=False) if f is not None]
    if not facts:
        return None, []
    rows = pa.table([pa.array([f.tail for f in facts], pa.binary())], schema=TAILS)
    built = build_table(new_name(generation, "tails"), TAILS, [rows], TAIL_ROWS)
    target.put_table(built)
    return built.table, [_File(f.entry, f.bounds, [k[:2] for k in f.keys]) for f in facts]


# --- keys ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def _gathered(
    spark: SparkSession, target: Target, wanted: Sequence[_Wanted]
) -> Iterator[DataFrame]:
    """All entries, in no order; index -1 stands for a file whose keys cannot be read, by number."""
    tasks = _divided(spark, [file for file in wanted if file.starts])
    made = _numbered(spark, len(tasks)).mapInArrow(
        _gather(tasks, target), "index int, key long, granule long"
    )
    made = made.persist()  # it is looked at for damage, counted, and sampled for the range sort
    try:
        yield made
    finally:
        made.unpersist()


def _keys(gathered: DataFrame, target: Target, generation: str) -> dict[int, list[KeyPart]]:
    """The parts of each index's table, by its number."""
    count = -(-gathered.count() // PART_ENTRIES)
    if not count:
        return {}
    order = ["index", "key", "granule"]
    ranged = gathered.repartitionByRange(count, *order) if count > 1 else gathered.coalesce(1)
    written = ranged.sortWithinPartitions(*order).mapInArrow(
        _write_keys(target, generation), "task long, found binary"
    )
    found: dict[int, list[KeyPart]] = {}
    for row in written.collect():
        index, part = pickle.loads(row["found"])
        found.setdefault(index, []).append(part)
    return {i: sorted(parts, key=lambda part: (part.low, part.high)) for i, parts in found.items()}


def _gather(tasks: Sequence[Sequence[_Wanted]], target: Target) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        places = Sidecars(target.filesystem)
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for file in tasks[task]:
                    with quiet():
                        yield from _entries(target, file, places)

    return run


def _entries(target: Target, file: _Wanted, places: Sidecars) -> Batches:
    """The keys of one file."""
    source = FileSource(target.filesystem, f"{target.root}/{file.entry.path}")
    found = set()
    try:
        for spec, granules, entries in keys_of(open_source(source, places=places)):
            index, start, count = file.starts.get(spec, (0, 0, -1))
            if granules == count:
                found.add(spec)
                for at in range(0, len(entries), _BATCH):
                    yield _batch(index, entries[at : at + _BATCH], start)
    except (IntarsiaError, OSError):
        found.clear()
    source.close()
    if found != file.starts.keys():
        nothing = np.array([file.number << int(_KEY_BITS)], dtype=np.uint64)
        yield _batch(-1, nothing, 0)


def _batch(index: int, entries: UInt64Array, start: int) -> pa.RecordBatch:
    keys, granules = (entries >> _KEY_BITS).astype(np.int64), (entries & _LOW).astype(np.int64)
    numbers = np.full(len(entries), index, dtype=np.int32)
    columns = [pa.array(numbers), pa.array(keys), pa.array(granules + start)]
    return pa.RecordBatch.from_arrays(columns, schema=_KEYS)


def _write_keys(target: Target, generation: str) -> Callable[[Batches], Batches]:
    """Writes sorted entries as tables of one index each; gives what the pointer says of these."""

    def run(batches: Batches) -> Batches:
        for index, entries in _parts(batches):
            name = new_name(generation, "keys")
            built = build_table(name, STEP_SCHEMA, [entry_table(entries)])
            target.put_table(built)
            low, high = (int(entries[at] >> _KEY_BITS) for at in (0, -1))
            found = pickle.dumps((index, KeyPart(low, high, built.table)))
            yield pa.record_batch(
                [pa.array([index], pa.int64()), pa.array([found], pa.binary())],
                names=["task", "found"],
            )

    return run


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, UInt64Array]]:
    """Runs of entries of one index, no longer than a table is to be."""
    held: list[UInt64Array] = []
    current, count = -1, 0
    for index, entries in _by_index(batches):
        if held and (index != current or count >= PART_ENTRIES):
            yield current, np.concatenate(held)
            held, count = [], 0
        current = index
        held.append(entries)
        count += len(entries)
    if held:
        yield current, np.concatenate(held)


def _by_index(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, UInt64Array]]:
    for batch in batches:
        index, key, granule = (batch.column(n).to_numpy() for n in ("index", "key", "granule"))
        entries = key.astype(np.uint64) << _KEY_BITS | granule.astype(np.uint64)
        edges = [0, *(np.flatnonzero(np.diff(index)) + 1).tolist(), len(index)]
        for start, stop in itertools.pairwise(edges):
            if start < stop:
                yield int(index[start]), entries[start:stop]
