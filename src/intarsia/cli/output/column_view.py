"""One column of a file, row group by row group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from intarsia.cli.output.file_view import problem
from intarsia.cli.output.labels import listed, value_column
from intarsia.cli.output.terminal import (
    NONE,
    Column,
    clean,
    left_out,
    line,
    more,
    numbers,
    say,
    tables,
)
from intarsia.errors import FormatError, Where
from intarsia.file.footer_summary import bloom_bytes, chunks_of, null_count
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.enum_names import codec_name, type_name, value_encodings
from intarsia.parquet.metadata import ColumnChunk, ColumnMetaData, SizeStatistics, Statistics
from intarsia.parquet.schema import Leaf
from intarsia.parquet.value_display import readable

_CHUNKS = 100
_NO_STATISTICS = Statistics()
_NO_SIZES = SizeStatistics()


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The facts about one chunk that are shown."""

    group: int
    rows: int
    column: ColumnChunk
    metadata: ColumnMetaData
    bloom: int | None

    @property
    def statistics(self) -> Statistics:
        return self.metadata.statistics or _NO_STATISTICS

    @property
    def sizes(self) -> SizeStatistics:
        return self.metadata.size_statistics or _NO_SIZES


def columns(file: OpenedFile, leaves: Sequence[Leaf], everything: bool) -> bool:
    """Prints a line for each row group of each column. Returns False if one cannot be decoded."""
    whole = True
    for leaf in leaves:
        if leaf is not leaves[0]:
            say()
        whole &= _column(file, leaf, everything)
    return whole


def _column(file: OpenedFile, leaf: Leaf, everything: bool) -> bool:
    line(clean(f"{leaf.name}: {type_name(leaf)}"), middle=True, style="bold")
    chunks, errors = _decoded(file, leaf)
    shown = chunks if everything else chunks[:_CHUNKS]
    if shown:
        key = numbers("row group", [chunk.group for chunk in shown], 0)
        left_out(tables(key, [_values(leaf, shown), _storage(shown), _indexes(shown)]))
    for error in errors:
        problem(error)
    more(len(chunks) - len(shown), "more row group")
    return not errors


def _decoded(file: OpenedFile, leaf: Leaf) -> tuple[list[_Chunk], list[FormatError]]:
    chunks, errors = [], []
    for group, chunk in chunks_of(file, leaf):
        where = Where(file.name, group, leaf.name)
        try:
            if isinstance(chunk, FormatError):
                raise chunk
            if chunk.meta_data is None:
                reason = "is encrypted" if chunk.crypto_metadata else "has no metadata"
                raise FormatError(f"the chunk {reason}")
            bloom = bloom_bytes(file, chunk.meta_data)
            chunks.append(_Chunk(group, file.num_rows_in(group), chunk, chunk.meta_data, bloom))
        except FormatError as error:
            errors.append(error.at(where))
    return chunks, errors


def _values(leaf: Leaf, chunks: list[_Chunk]) -> list[Column]:
    stats = [chunk.statistics for chunk in chunks]
    lows = [s.min if s.min_value is None else s.min_value for s in stats]
    highs = [s.max if s.max_value is None else s.max_value for s in stats]
    return [
        numbers("rows", [chunk.rows for chunk in chunks], 1),
        numbers("values", [chunk.metadata.num_values for chunk in chunks], 5),
        numbers("nulls", [null_count(leaf, chunk.metadata) for chunk in chunks], 4),
        numbers("distinct", [s.distinct_count for s in stats], 6),
        value_column("min", leaf, [readable(leaf.element, low) for low in lows], 2),
        value_column("max", leaf, [readable(leaf.element, high) for high in highs], 3),
    ]


def _storage(chunks: list[_Chunk]) -> list[Column]:
    known = [chunk.metadata for chunk in chunks]
    return [
        numbers("offset", [chunk.start for chunk in known], 2),
        numbers("bytes", [chunk.total_compressed_size for chunk in known], 1),
        numbers("uncompressed", [chunk.total_uncompressed_size for chunk in known], 3),
        Column("codec", [codec_name(chunk.codec) for chunk in known], 4, least=6),
        Column("encodings", [listed(value_encodings(chunk)) for chunk in known], 5, least=9),
    ]


def _indexes(chunks: list[_Chunk]) -> list[Column]:
    sizes = [chunk.sizes for chunk in chunks]
    repetition = [s.repetition_level_histogram for s in sizes]
    definition = [s.definition_level_histogram for s in sizes]
    return [
        numbers("offset index", [_length(chunk, "offset") for chunk in chunks], 1),
        numbers("column index", [_length(chunk, "column") for chunk in chunks], 2),
        numbers("bloom", [chunk.bloom for chunk in chunks], 3),
        numbers("unencoded", [s.unencoded_byte_array_data_bytes for s in sizes], 4),
        Column("rep. levels", [_histogram(counts) for counts in repetition], 6, least=11),
        Column("def. levels", [_histogram(counts) for counts in definition], 5, least=11),
    ]


def _length(chunk: _Chunk, kind: str) -> int | None:
    """Returns the bytes of an offset or column index. Returns None if there is none."""
    if getattr(chunk.column, f"{kind}_index_offset") is None:
        return None
    return getattr(chunk.column, f"{kind}_index_length") or 0


def _histogram(counts: list[int] | None) -> str:
    return " ".join(map(str, counts)) if counts else NONE
