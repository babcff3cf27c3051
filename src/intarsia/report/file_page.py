"""Computes the page of a file: its footer, its columns and where their pages are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from intarsia.errors import FormatError
from intarsia.file.byte_map import map_of
from intarsia.file.footer_summary import ColumnSummary, largest, problems_of, summary_of
from intarsia.file.open_file import OpenedFile
from intarsia.index.base import index_name
from intarsia.index.kinds.distinct_idx1 import DistinctIDX1
from intarsia.index.parquet_indexes import Bloom, PageIndex
from intarsia.parquet.enum_names import type_name, value_encodings
from intarsia.parquet.schema import Leaf
from intarsia.parquet.value_display import plural, readable
from intarsia.plan.file_regions import ChunkMap
from intarsia.report.byte_strip import Strip, strip_of
from intarsia.report.format import NAME, begin, clip, percent
from intarsia.report.page_lanes import Lane, cells_in, lane_of
from intarsia.report.row_axis import RowAxis, axis_of

_MAX_COLUMNS, _MAX_KEY_VALUES, _MAX_INDEXES = 40, 20, 100
"""Columns, keys and indexes that are shown."""
_MAX_PROBLEMS, _PROBLEM_CHARACTERS = 100, 500
"""Problems that are shown, and characters of each."""
_VALUE_CHARACTERS, _BOUND_CHARACTERS = 300, 40
"""Characters shown of a value of the footer's key/value metadata, and of a bound."""


@dataclass(frozen=True, slots=True)
class ColumnRow:
    """One column. ``share`` is of the bytes of the file, ``bar`` of those of the largest column."""

    name: str
    type: str
    codecs: str
    encodings: str
    nulls: str
    compressed: int
    share: str
    bar: float
    ratio: str
    indexes: str


@dataclass(frozen=True, slots=True)
class IndexRow:
    """The indexes of one name, and where they are. ``bits`` are bits per row."""

    name: str
    place: str
    length: int
    bits: str
    share: str


@dataclass(frozen=True, slots=True)
class FilePage:
    """All parts of the page. ``more`` columns are not shown: they are smaller."""

    name: str
    facts: tuple[tuple[str, str], ...]
    columns: tuple[ColumnRow, ...]
    more: int
    indexes: tuple[IndexRow, ...]
    more_indexes: int
    key_values: tuple[tuple[str, str], ...]
    more_key_values: int
    axis: RowAxis
    lanes: tuple[Lane, ...]
    strip: Strip
    problems: tuple[str, ...]
    more_problems: int

    @property
    def per_cell(self) -> int:
        """The most pages that are drawn as one."""
        return max((lane.per_cell for lane in self.lanes), default=1)


def file_page(file: OpenedFile, leaves: Sequence[Leaf]) -> FilePage:
    """Returns the page of a file and ``leaves``, whose page indexes are read."""
    summaries = [summary_of(file, leaf) for leaf in leaves]
    shown = largest(summaries, _MAX_COLUMNS)
    places = [summary.leaf.index for summary in shown]
    _load(file, places)
    file_map = map_of(file, places, with_indexes=True)
    entries = file.metadata.key_value_metadata or []
    indexes, problems = list(_indexes(file, summaries)), problems_of(summaries)
    return FilePage(
        file.name,
        tuple(_facts(file)),
        tuple(_columns(file, shown)),
        len(summaries) - len(shown),
        tuple(indexes[:_MAX_INDEXES]),
        max(len(indexes) - _MAX_INDEXES, 0),
        tuple(
            (clip(e.key, NAME), begin(e.value or "", _VALUE_CHARACTERS))
            for e in entries[:_MAX_KEY_VALUES]
        ),
        max(len(entries) - _MAX_KEY_VALUES, 0),
        axis_of(file_map.row_group_starts),
        tuple(_lanes(file, file_map.chunks)) if file_map.num_rows else (),
        strip_of(file_map),
        tuple(clip(str(problem), _PROBLEM_CHARACTERS) for problem in problems[:_MAX_PROBLEMS]),
        max(len(problems) - _MAX_PROBLEMS, 0),
    )


def _facts(file: OpenedFile) -> Iterator[tuple[str, str]]:
    groups = file.metadata.row_groups
    yield "rows", f"{file.num_rows:,}"
    if groups:
        counts = [group.num_rows for group in groups]
        low, high = min(counts), max(counts)
        rows = f"{low:,}" if low == high else f"{low:,}–{high:,}"
        yield "row groups", f"{len(groups):,}, of {rows} rows"
    yield "columns", f"{len(file.schema.leaves):,}"
    yield "bytes", f"{file.source.size:,}"
    yield "footer", f"{len(file.footer):,} bytes at {file.footer_offset:,}"
    writer = clip(file.metadata.created_by or "an unnamed writer", NAME)
    yield "written by", f"{writer}, format version {file.metadata.version}"


# --- columns and indexes ------------------------------------------------------------------------


def _columns(file: OpenedFile, summaries: Sequence[ColumnSummary]) -> Iterator[ColumnRow]:
    most = max((summary.compressed for summary in summaries), default=0)
    for summary in summaries:
        packed, unpacked = summary.compressed, summary.uncompressed
        yield ColumnRow(
            clip(summary.leaf.name, NAME),
            type_name(summary.leaf),
            ", ".join(sorted(summary.codecs)),
            ", ".join(summary.encodings),
            _nulls(summary),
            packed,
            percent(packed, file.source.size),
            packed / most if most > 0 else 0.0,
            f"{unpacked / packed:.2f}" if packed > 0 else "",
            ", ".join(_indexes_on(file, summary)),
        )


def _nulls(summary: ColumnSummary) -> str:
    known = summary.null_counts
    if not known:
        return "unknown"
    return f"{'' if len(known) == summary.chunks else '≥ '}{sum(known):,}"


def _indexes_on(file: OpenedFile, summary: ColumnSummary) -> Iterator[str]:
    if summary.page_indexes:
        yield "page" if summary.column_indexes else "offset"
    if summary.bloom_filters:
        yield Bloom.kind
    for entry in file.sections.entries:
        if file.schema.leaf(entry.on) is summary.leaf:
            yield entry.kind


def _indexes(file: OpenedFile, summaries: Sequence[ColumnSummary]) -> Iterator[IndexRow]:
    sections, rows, size = file.sections, max(file.num_rows, 1), file.source.size

    def row(name: str, place: str, length: int) -> IndexRow:
        return IndexRow(
            clip(name, NAME), place, length, f"{length * 8 / rows:.1f}", percent(length, size)
        )

    for entry in sections.entries:
        yield row(
            entry.name,
            "in its sidecar" if sections.is_in_sidecar(entry) else "embedded",
            entry.length,
        )
    lengths = [length for summary in summaries for length in summary.page_indexes]
    if lengths:
        yield row(
            PageIndex.kind, f"Parquet’s own, on {plural(len(lengths), 'chunk')}", sum(lengths)
        )
    for summary in summaries:
        filters = summary.bloom_filters
        if filters:
            place = f"Parquet’s own, on {plural(len(filters), 'chunk')}"
            yield row(index_name(summary.leaf.name, Bloom.kind), place, sum(filters))
    try:
        stray = file.sections.foreign_list()
    except FormatError:
        return  # ``verify`` says what is wrong
    if stray is not None:
        yield row(DistinctIDX1.kind, "of an unknown column", stray.place[1])


# --- pages --------------------------------------------------------------------------------------


def _load(file: OpenedFile, leaves: Sequence[int]) -> None:
    """Loads the page indexes of the columns, for chunks that can be decoded."""
    chunk_ids = []
    for group in range(len(file.metadata.row_groups)):
        for leaf in leaves:
            try:
                file.chunk(group, leaf)
            except FormatError:
                continue
            chunk_ids.append((group, leaf))
    file.page_indexes.load(chunk_ids, chunk_ids)


def _lanes(file: OpenedFile, chunks: Sequence[ChunkMap]) -> Iterator[Lane]:
    by_leaf: dict[int, list[ChunkMap]] = {}
    for chunk in chunks:
        by_leaf.setdefault(chunk.leaf, []).append(chunk)
    max_cells = cells_in(len(by_leaf))

    def note(chunk: ChunkMap, page: int) -> str:
        return _note(file, chunk, page)

    for leaf in sorted(by_leaf):
        column_chunks = by_leaf[leaf]
        yield lane_of(
            clip(column_chunks[0].column, NAME), column_chunks, None, file.num_rows, max_cells, note
        )


def _note(file: OpenedFile, chunk: ChunkMap, page: int) -> str:
    """Returns the encodings of a page's chunk, and what the column index says of the page."""
    group, leaf = chunk.row_group, chunk.leaf
    note = f", {'/'.join(value_encodings(file.chunk(group, leaf)))}"
    index = file.page_indexes.columns(group, leaf) if chunk.index is not None else None
    if index is None:
        return note
    if index.null_counts is not None:
        note += f", {plural(int(index.null_counts[page]), 'NULL')}"
    if index.null_pages[page]:
        return note
    element = file.schema.leaves[leaf].element
    low, high = (
        clip(str(readable(element, values[page])), _BOUND_CHARACTERS)
        for values in (index.min_values, index.max_values)
    )
    return f"{note}, from {low} to {high}"
