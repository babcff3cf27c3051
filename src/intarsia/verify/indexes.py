"""Embedded indexes against the values they index."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import FormatError, IndexSpecError, PathError, UnsupportedError, Where
from intarsia.file.embedded_indexes import Holder
from intarsia.file.index_subjects import subject_of
from intarsia.file.open_file import OpenedFile
from intarsia.index.directory import IndexEntry, StaleError, read_directory
from intarsia.index.kinds.distinct_idx1 import KEY, DistinctIDX1, IDX1Section
from intarsia.index.registry import known_version, make
from intarsia.index.section.probe import InvertedSection, SummarySection, open_section
from intarsia.index.section.writer import distinct, entries_of, packed
from intarsia.indexing.build import Due, cell_tables, gather
from intarsia.io.external_sort import Workspace
from intarsia.parquet.schema import Leaf
from intarsia.row_ranges import UInt64Array
from intarsia.verify.finding import Finding, error, warning

_NONE = np.empty(0, np.uint64)
_KEYS, _END = np.uint64(0xFFFFFFFF << 32), np.uint64(2**64 - 1)


def check_sections(file: OpenedFile) -> Iterator[Finding]:
    """The directory, its binding to the file, and every section it lists."""
    where = Where(file.name)
    yield from _check_stray(file, where)
    try:
        directory = read_directory(file.metadata, file.source, file.footer_offset)
        if directory is not None:
            yield from _check_holder(file, Holder(file.source, directory, False))
    except FormatError as problem:
        yield error(problem.at(where).where, f"embedded indexes are ignored: {problem.message}")
    try:
        sidecar = None if file.beside is None else file.beside.opened(file.footer)
        if sidecar is not None:
            yield from _check_holder(file, Holder(sidecar.source, sidecar.directory, True))
    except StaleError as problem:
        yield warning(where, f"its sidecar is ignored: {problem.message}")
    except (FormatError, PathError) as problem:
        yield error(where, f"its sidecar is ignored: {problem}")


def _check_holder(file: OpenedFile, holder: Holder) -> Iterator[Finding]:
    for entry in holder.directory.indexes:
        offset = None if holder.is_sidecar else entry.offset
        place = Where(file.name, column=entry.on, offset=offset)
        if known_version(entry.kind) != entry.kind_version:
            yield warning(place, f"index {entry.name}: not checked: its kind is not known here")
            continue
        try:
            yield from _check_section(file, entry, holder, place)
        except UnsupportedError as problem:
            yield warning(place, f"index {entry.name}: not checked: {problem.message}")
        except FormatError as problem:
            yield error(place, f"index {entry.name}: {problem.message}")
        except IndexSpecError as problem:
            yield error(place, f"index {entry.name}: {problem}")


def _check_section(
    file: OpenedFile, entry: IndexEntry, holder: Holder, where: Where
) -> Iterator[Finding]:
    kind = make(entry.kind, entry.on, entry.params)
    of = subject_of(file.columns, kind, entry.meaning)
    section = open_section(
        kind,
        holder.window(entry),
        entry.meta_length,
        entry.meta_crc32,
        holder.directory.file_id,
        file.num_rows,
    )
    starts = np.array([0, file.num_rows])
    if not isinstance(section, IDX1Section):
        starts = section.granule_starts
    with Workspace() as work:
        (gathered,) = gather(file, [Due(kind, of, starts)], work)
        if isinstance(section, InvertedSection) and not section.exact:
            given = gathered.blocks()
            given = cell_tables(given, section.blocks) if section.blocks else given
            differing = _differing_entries(map(entries_of, given), section.stored_parts())
            yield from _of_entries(*differing, entry, where)
            return
        tables = list(gathered.blocks())
    if isinstance(section, SummarySection):
        due = pa.concat_tables(tables).combine_chunks()
        wrong = _differing(section.summaries(np.arange(section.num_pages)), due)
        if wrong:
            yield error(where, f"index {entry.name}: {wrong:,} of {len(due):,} summaries are wrong")
        return
    if isinstance(section, IDX1Section):
        yield from _check_list(section, pa.concat_tables(tables)["key"], entry, where)
        return
    wanted, held = _entries(section, pa.concat_tables(tables).combine_chunks())
    yield from _of_entries(*_differing_entries(iter([wanted]), iter([held])), entry, where)


def _of_entries(
    due: int, missing: int, beyond: int, entry: IndexEntry, where: Where
) -> Iterator[Finding]:
    if missing:
        message = f"index {entry.name}: {missing:,} of {due:,} entries are missing"
        yield error(where, message)
    if beyond:
        yield warning(where, f"index {entry.name}: {beyond:,} entries that no value asks for")


def _differing_entries(
    due: Iterator[UInt64Array], held: Iterator[UInt64Array]
) -> tuple[int, int, int]:
    """Returns how many entries are due, how many of these are missing, and how many others held.

    Both are given in parts, whose keys ascend; a key may go on in the next part. Raises
    ``FormatError`` if keys of a part come before those of the part before.
    """
    left, last = [_NONE, _NONE], [np.uint64(0), np.uint64(0)]
    total = missing = beyond = 0
    compared = np.uint64(0)  # all entries below
    while compared < _END:
        side = int(last[1] < last[0])
        part = next((due, held)[side], None)
        if part is None:
            last[side] = _END
        elif len(part):
            left[side] = distinct(np.concatenate([left[side], part]))
            last[side] = left[side][-1]
            if left[side][0] < compared:
                raise FormatError("the keys are not sorted")
        end = min(last)
        compared = end if end == _END else end & _KEYS  # the last key may go on
        cuts = [np.searchsorted(own, compared) for own in left]
        wanted, found = (own[:cut] for own, cut in zip(left, cuts, strict=True))
        left = [own[cut:] for own, cut in zip(left, cuts, strict=True)]
        total += len(wanted)
        missing += int(np.count_nonzero(~np.isin(wanted, found, assume_unique=True)))
        beyond += int(np.count_nonzero(~np.isin(found, wanted, assume_unique=True)))
    return total, missing, beyond


def _check_stray(file: OpenedFile, where: Where) -> Iterator[Finding]:
    """A list that another writer left: is there a column of which it holds all values?"""
    try:
        found = file.sections.foreign_list()
        held = set(found.values.to_pylist()) if found else set()
        if found and not any(_distinct_texts(file, leaf) <= held for leaf in file.schema.leaves):
            yield warning(where, f"the list at {KEY} is not of all values of any column of text")
    except (FormatError, IndexSpecError) as problem:
        yield warning(where, f"the list at {KEY} cannot be used: {problem}")


def _distinct_texts(file: OpenedFile, leaf: Leaf) -> set[str | object]:
    """A column's values, in lines; what no list holds where they are no texts."""
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
    held, wanted = (set(found.to_pylist()) for found in (section.listed, values))
    if wanted - held:
        message = (
            f"index {entry.name}: {len(wanted - held):,} of {len(wanted):,} values are missing"
        )
        yield error(where, message)
    if held - wanted - {""}:
        message = f"index {entry.name}: {len(held - wanted):,} values that no row has"
        yield warning(where, message)


def _entries(section: InvertedSection, due: pa.Table) -> tuple[UInt64Array, UInt64Array]:
    """The entries of values that are due and those that are held, as numbers that compare."""
    held = section.table()
    if held.schema.types != due.schema.types:
        raise FormatError(f"keys are {held.schema.field(0).type}, not {due.schema.field(0).type}")
    keys = pa.chunked_array([*due["key"].chunks, *held["key"].chunks], due.schema.field(0).type)
    known = keys.unique()
    found = []
    for table in (due, held):
        numbers = pc.index_in(table["key"], value_set=known)
        found.append(packed([(numbers.to_numpy(), table["granule"].to_numpy())]))
    return found[0], found[1]


def _differing(held: pa.RecordBatch, due: pa.Table) -> int:
    """How many rows differ, NaN counting as equal to NaN."""
    if held.schema.types != due.schema.types or held.schema.names != due.schema.names:
        raise FormatError("the summaries have other columns")
    wrong = np.zeros(len(due), dtype=np.bool_)
    for name in held.schema.names:
        one, other = held.column(name), due.column(name).combine_chunks()
        if pa.types.is_float16(one.type):  # which pyarrow does not compare
            one, other = one.cast(pa.float32()), other.cast(pa.float32())
        equal = pc.fill_null(pc.equal(one, other), False)
        both = pc.and_(one.is_null(nan_is_null=True), other.is_null(nan_is_null=True))
        wrong |= ~pc.or_(equal, both).to_numpy(zero_copy_only=False)
    return int(wrong.sum())
