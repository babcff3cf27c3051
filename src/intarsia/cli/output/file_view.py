"""One file on a terminal: its columns, row groups, key/values and indexes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from intarsia.cli.output import tables
from intarsia.cli.output.labels import listed
from intarsia.cli.output.terminal import (
    NONE,
    Column,
    clean,
    console,
    cut,
    escaped,
    left_out,
    line,
    more,
    numbers,
    paragraph,
    plural,
    say,
    table,
)
from intarsia.errors import FormatError, IntarsiaError
from intarsia.file.footer_summary import ColumnSummary, largest, problems_of, summary_of
from intarsia.file.open_file import OpenedFile
from intarsia.index.base import index_name
from intarsia.index.parquet_indexes import Bloom, PageIndex
from intarsia.indexing.add import StandardReport, strays
from intarsia.parquet.enum_names import type_name
from intarsia.parquet.metadata import RowGroup

_COLUMNS = 40
_ROW_GROUPS = 10
_KEY_VALUES = 20


def overview(file: OpenedFile, everything: bool) -> bool:
    """Prints a file, lists cut short unless ``everything``. Returns False if a part is damaged."""
    summaries = [summary_of(file, leaf) for leaf in file.schema.leaves]
    _file(file)
    _columns(file, summaries, everything)
    _row_groups(file, everything)
    _key_values(file, everything)
    _indexes(file, summaries)
    return not problems_of(summaries)


def problem(error: IntarsiaError) -> None:
    """Prints an error in its place."""
    paragraph(f"error: {clean(str(error))}")


def _file(file: OpenedFile) -> None:
    metadata = file.metadata
    groups = metadata.row_groups
    line(clean(file.name), middle=True, style="bold")
    paragraph(
        f"{file.source.size:,} bytes, {file.num_rows:,} rows, {plural(len(groups), 'row group')}"
        f"{_sizes(groups)}"
    )
    writer = cut(clean(metadata.created_by or "an unnamed writer"), 120)
    paragraph(f"written by {writer}, format version {metadata.version}")
    paragraph(f"footer at {file.footer_offset:,}, {len(file.footer):,} bytes")


def _sizes(groups: Sequence[RowGroup]) -> str:
    if not groups:
        return ""
    each = " each" if len(groups) > 1 else ""
    rows = _span([group.num_rows for group in groups])
    return f" of {rows} rows, {_span([_stored(group) for group in groups])} bytes{each}"


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _stored(group: RowGroup) -> int:
    """Returns the bytes of a row group in the file, as far as its chunks can be decoded."""
    if group.total_compressed_size is not None:
        return group.total_compressed_size
    total = 0
    for position in range(len(group.columns)):
        try:
            chunk = group.columns[position].meta_data
        except FormatError:
            continue
        total += chunk.total_compressed_size if chunk else 0
    return total


# --- columns ------------------------------------------------------------------------------------


def _columns(file: OpenedFile, summaries: Sequence[ColumnSummary], everything: bool) -> None:
    shown = summaries if everything else largest(summaries, _COLUMNS)
    if not summaries:
        paragraph("no columns")
        return
    say()
    titles = table(
        [
            Column("column", [clean(s.leaf.name) for s in shown], least=24, middle=True),
            Column("type", [type_name(s.leaf) for s in shown], 1),
            Column("codec", [listed(sorted(s.codecs)) for s in shown], 7, least=6),
            Column("encodings", [listed(s.encodings) for s in shown], 6, least=9),
            Column("nulls", [null_text(s.null_counts, s.chunks) for s in shown], 5, right=True),
            numbers("bytes", [s.compressed for s in shown], 2),
            Column("share", [_share(s, file.source.size) for s in shown], 3, right=True),
            Column("ratio", [_ratio(s.compressed, s.uncompressed) for s in shown], 8, right=True),
            Column("indexes", [_indexes_on(file, s) for s in shown], 4, least=18),
        ]
    )
    for error in problems_of(shown):
        problem(error)
    more(len(summaries) - len(shown), "smaller column")
    left_out(titles)


def null_text(counts: Sequence[int], chunks: int) -> str:
    """Returns the number of NULLs in a column, given the counts of the chunks that have one."""
    return f"{'' if len(counts) == chunks else '≥'}{sum(counts):,}" if counts else NONE


def _share(summary: ColumnSummary, size: int) -> str:
    return f"{summary.compressed / size:.1%}"


def _ratio(compressed: int, uncompressed: int) -> str:
    return f"{uncompressed / compressed:.2f}" if compressed > 0 else NONE


def _indexes_on(file: OpenedFile, summary: ColumnSummary) -> str:
    entries = file.sections.entries
    names = [entry.kind for entry in entries if file.schema.leaf(entry.on) is summary.leaf]
    if summary.bloom_filters:
        names.insert(0, f"bloom{_part(len(summary.bloom_filters), summary.chunks)}")
    if summary.page_indexes:
        kind = "page" if summary.column_indexes else "offset"
        names.insert(0, f"{kind}{_part(len(summary.page_indexes), summary.chunks)}")
    return clean(listed(names))


def _part(some: int, of: int) -> str:
    return "" if some == of else f" {some}/{of}"


# --- row groups, key/values, indexes ------------------------------------------------------------


def _row_groups(file: OpenedFile, everything: bool) -> None:
    groups = file.metadata.row_groups
    if not groups or (len(groups) > _ROW_GROUPS and not everything):
        return
    say()
    titles = table(
        [
            numbers("row group", range(len(groups))),
            numbers("rows", [group.num_rows for group in groups], 1),
            numbers("bytes", [_stored(group) for group in groups], 2),
            numbers("uncompressed", [g.total_byte_size for g in groups], 4),
            Column("sorted by", [_sorting(file, group) for group in groups], 3, least=16),
        ]
    )
    left_out(titles)


def _sorting(file: OpenedFile, group: RowGroup) -> str:
    leaves = file.schema.leaves
    keys = []
    for column in group.sorting_columns or ():
        known = 0 <= column.column_idx < len(leaves)
        name = clean(leaves[column.column_idx].name) if known else f"column {column.column_idx}"
        down = " descending" if column.descending else ""
        keys.append(f"{name}{down}{' nulls first' if column.nulls_first else ''}")
    return ", ".join(keys) or NONE


def _key_values(file: OpenedFile, everything: bool) -> None:
    entries = file.metadata.key_value_metadata or []
    if entries:
        say()
    for entry in entries if everything else entries[:_KEY_VALUES]:
        value = entry.value or ""
        note = f" ({plural(len(value), 'character')})"
        room = max(console.width - len(note), 0)
        start = cut(f"  key {clean(entry.key[:room])}", max(room // 2, 30), middle=True)
        say(cut(f"{start} = {escaped(value[:room])}{'…' * (len(value) > room)}", room) + note)
    if len(entries) > _KEY_VALUES and not everything:
        paragraph(f"… and {len(entries) - _KEY_VALUES:,} more: --all shows them.")


def _indexes(file: OpenedFile, summaries: Sequence[ColumnSummary]) -> None:
    entries = file.sections.entries
    standard = [*_standard(summaries), *strays(file)]
    if entries or standard:
        say()
    for entry in entries:
        paragraph(f"index {tables.embedded(entry, file.num_rows, file.source.size)}")
    for report in standard:
        paragraph(f"index {tables.own(report)}")


def _standard(summaries: Sequence[ColumnSummary]) -> Iterable[StandardReport]:
    lengths = [length for summary in summaries for length in summary.page_indexes]
    if lengths:
        yield StandardReport(PageIndex.kind, len(lengths), sum(lengths))
    for summary in summaries:
        if summary.bloom_filters:
            name = index_name(summary.leaf.name, Bloom.kind)
            yield StandardReport(name, len(summary.bloom_filters), sum(summary.bloom_filters))
