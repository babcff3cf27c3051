"""Compares embedded indexes with the values they index."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import FormatError, IndexSpecError, PathError, UnsupportedError, Where
from intarsia.file.embedded_indexes import IndexFile
from intarsia.file.index_subjects import can_have, subject_of
from intarsia.file.open_file import OpenedFile
from intarsia.index.directory import IndexEntry, StaleError, read_directory
from intarsia.index.kinds.distinct_idx1 import KEY, DistinctIDX1, IDX1Section
from intarsia.index.registry import known_version, make
from intarsia.index.section.probe import InvertedSection, SummarySection, open_section
from intarsia.index.section.writer import entries_of, packed
from intarsia.indexing.build import Due, cell_tables, gather
from intarsia.io.external_sort import Workspace
from intarsia.parquet.schema import Leaf
from intarsia.row_ranges import UInt64Array, distinct
from intarsia.verify.finding import Finding, error, warning

_NONE = np.empty(0, np.uint64)
_KEY_MASK, _END = np.uint64(0xFFFFFFFF << 32), np.uint64(2**64 - 1)
"""An entry has its key in the upper 32 bits, and its granule in the lower ones."""


def check_sections(file: OpenedFile) -> Iterator[Finding]:
    """Checks the directories of the file and its sidecar, and every section they list."""
    where = Where(file.name)
    yield from _check_foreign_list(file, where)
    try:
        directory = read_directory(file.metadata, file.source, file.footer_offset)
        if directory is not None:
            yield from _check_index_file(file, IndexFile(file.source, directory, False))
    except FormatError as problem:
        yield error(problem.at(where).where, f"embedded indexes are ignored: {problem.message}")
    try:
        sidecar = None if file.sidecar_finder is None else file.sidecar_finder.opened(file.footer)
        if sidecar is not None:
            yield from _check_index_file(file, IndexFile(sidecar.source, sidecar.directory, True))
    except StaleError as problem:
        yield warning(where, f"its sidecar is ignored: {problem.message}")
    except (FormatError, PathError) as problem:
        yield error(where, f"its sidecar is ignored: {problem}")


def _check_index_file(file: OpenedFile, index_file: IndexFile) -> Iterator[Finding]:
    for entry in index_file.directory.indexes:
        offset = None if index_file.is_sidecar else entry.offset
        place = Where(file.name, column=entry.on, offset=offset)
        if known_version(entry.kind) != entry.kind_version:
            yield warning(place, f"index {entry.name}: not checked: its kind is not known here")
            continue
        try:
            yield from _check_section(file, entry, index_file, place)
        except UnsupportedError as problem:
            yield warning(place, f"index {entry.name}: not checked: {problem.message}")
        except FormatError as problem:
            yield error(place, f"index {entry.name}: {problem.message}")
        except IndexSpecError as problem:
            yield error(place, f"index {entry.name}: {problem}")


def _check_section(
    file: OpenedFile, entry: IndexEntry, index_file: IndexFile, where: Where
) -> Iterator[Finding]:
    kind = make(entry.kind, entry.on, entry.params)
    try:
        of = subject_of(file.columns, kind, entry.meaning)
    except IndexSpecError as problem:
        if not (entry.meaning and can_have(file.columns, entry)):
            raise
        yield warning(where, f"index {entry.name}: not checked: {problem}")
        return
    section = open_section(
        kind,
        index_file.window(entry),
        entry.meta_length,
        entry.meta_crc32,
        index_file.directory.file_id,
        file.num_rows,
    )
    starts = np.array([0, file.num_rows])
    if not isinstance(section, IDX1Section):
        starts = section.granule_starts
    with Workspace() as work:
        (gathered,) = gather(file, [Due(kind, of, starts)], work)
        if isinstance(section, InvertedSection) and not section.exact:
            blocks = gathered.blocks()
            blocks = cell_tables(blocks, section.blocks) if section.blocks else blocks
            differing = _differing_entries(map(entries_of, blocks), section.stored_parts())
            yield from _of_entries(*differing, entry, where)
            return
        tables = list(gathered.blocks())
    if isinstance(section, SummarySection):
        expected = pa.concat_tables(tables).combine_chunks()
        wrong = _differing(section.summaries(np.arange(section.num_pages)), expected)
        if wrong:
            yield error(
                where, f"index {entry.name}: {wrong:,} of {len(expected):,} summaries are wrong"
            )
        return
    if isinstance(section, IDX1Section):
        yield from _check_list(section, pa.concat_tables(tables)["key"], entry, where)
        return
    due, stored = _entries(section, pa.concat_tables(tables).combine_chunks())
    yield from _of_entries(*_differing_entries(iter([due]), iter([stored])), entry, where)


def _of_entries(
    expected: int, missing: int, extra: int, entry: IndexEntry, where: Where
) -> Iterator[Finding]:
    if missing:
        message = f"index {entry.name}: {missing:,} of {expected:,} entries are missing"
        yield error(where, message)
    if extra:
        yield warning(where, f"index {entry.name}: {extra:,} entries that belong to no value")


def _differing_entries(
    expected: Iterator[UInt64Array], stored: Iterator[UInt64Array]
) -> tuple[int, int, int]:
    """Returns how many entries are expected, how many of them are missing, and how many are extra.

    Both arguments come in parts with ascending keys. A key may continue in the next part. Raises
    ``FormatError`` if the keys of a part come before those of the previous part.
    """
    pending, last = [_NONE, _NONE], [np.uint64(0), np.uint64(0)]
    total = missing = extra = 0
    compared = np.uint64(0)  # all entries below are done
    while compared < _END:
        side = int(last[1] < last[0])
        part = next((expected, stored)[side], None)
        if part is None:
            last[side] = _END
        elif len(part):
            pending[side] = distinct(np.concatenate([pending[side], part]))
            last[side] = pending[side][-1]
            if pending[side][0] < compared:
                raise FormatError("the keys are not sorted")
        end = min(last)
        compared = end if end == _END else end & _KEY_MASK  # the last key may continue
        cuts = [np.searchsorted(own, compared) for own in pending]
        due, present = (own[:cut] for own, cut in zip(pending, cuts, strict=True))
        pending = [own[cut:] for own, cut in zip(pending, cuts, strict=True)]
        total += len(due)
        missing += int(np.count_nonzero(~np.isin(due, present, assume_unique=True)))
        extra += int(np.count_nonzero(~np.isin(present, due, assume_unique=True)))
    return total, missing, extra


def _check_foreign_list(file: OpenedFile, where: Where) -> Iterator[Finding]:
    """Checks that the list of another writer has all values of at least one column."""
    try:
        foreign = file.sections.foreign_list()
        listed = set(foreign.values.to_pylist()) if foreign else set()
        if foreign and not any(_distinct(file, leaf) <= listed for leaf in file.schema.leaves):
            yield warning(where, f"the list at {KEY} lacks values of every string column")
    except (FormatError, IndexSpecError) as problem:
        yield warning(where, f"the list at {KEY} cannot be used: {problem}")


def _distinct(file: OpenedFile, leaf: Leaf) -> set[str | object]:
    """Returns the distinct lines of a column's strings; ``{None}`` if it has no strings."""
    index = DistinctIDX1(leaf.name)
    try:
        of = subject_of(file.columns, index)
    except IndexSpecError:
        return {None}
    with Workspace() as work:
        (gathered,) = gather(file, [Due(index, of, np.array([0, file.num_rows]))], work)
        values = pa.concat_tables(list(gathered.blocks()))["key"].to_pylist()
    return {line for value in values for line in value.split("\n")}


def _check_list(
    section: IDX1Section, values: pa.ChunkedArray, entry: IndexEntry, where: Where
) -> Iterator[Finding]:
    listed, expected = (set(array.to_pylist()) for array in (section.listed, values))
    if expected - listed:
        message = (
            f"index {entry.name}: {len(expected - listed):,} of {len(expected):,} values are "
            "missing"
        )
        yield error(where, message)
    if listed - expected - {""}:
        message = f"index {entry.name}: {len(listed - expected):,} values that no row has"
        yield warning(where, message)


def _entries(section: InvertedSection, expected: pa.Table) -> tuple[UInt64Array, UInt64Array]:
    """Returns the expected and the stored entries, with keys numbered alike in both."""
    stored = section.table()
    if stored.schema.types != expected.schema.types:
        raise FormatError(
            f"keys are {stored.schema.field(0).type}, not {expected.schema.field(0).type}"
        )
    keys = pa.chunked_array(
        [*expected["key"].chunks, *stored["key"].chunks], expected.schema.field(0).type
    )
    known = keys.unique()
    entries = []
    for table in (expected, stored):
        numbers = pc.index_in(table["key"], value_set=known)
        entries.append(packed([(numbers.to_numpy(), table["granule"].to_numpy())]))
    return entries[0], entries[1]


def _differing(stored: pa.RecordBatch, expected: pa.Table) -> int:
    """Returns the number of rows that differ. NaN equals NaN."""
    if stored.schema.types != expected.schema.types or stored.schema.names != expected.schema.names:
        raise FormatError("the summaries have other columns")
    wrong = np.zeros(len(expected), dtype=np.bool_)
    for name in stored.schema.names:
        one, other = stored.column(name), expected.column(name).combine_chunks()
        if pa.types.is_float16(one.type):  # pyarrow cannot compare it
            one, other = one.cast(pa.float32()), other.cast(pa.float32())
        equal = pc.fill_null(pc.equal(one, other), False)
        both = pc.and_(one.is_null(nan_is_null=True), other.is_null(nan_is_null=True))
        wrong |= ~pc.or_(equal, both).to_numpy(zero_copy_only=False)
    return int(wrong.sum())
