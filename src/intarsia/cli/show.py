"""How things look in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from intarsia.format.metadata import CompressionCodec, Encoding, Type
from intarsia.read.file import ParquetFile
from intarsia.write.embed import IndexReport

console = Console(highlight=False, soft_wrap=True)
errors = Console(stderr=True)
_VALUE_WIDTH = 60


def file(file: ParquetFile, name: str) -> None:
    """What a file holds."""
    metadata = file.metadata
    console.print(escape(name))
    console.print(f"  {file.num_rows:,} rows, {len(metadata.row_groups)} row groups")
    console.print(f"  written by {escape(metadata.created_by or 'an unnamed writer')}")
    _columns(file)
    for entry in metadata.key_value_metadata or []:
        value = entry.value or ""
        shown = value if len(value) <= _VALUE_WIDTH else f"{value[:_VALUE_WIDTH]}…"
        console.print(f"  key {escape(entry.key)} = {escape(shown)} ({len(value):,} characters)")
    for index in file.indexes:
        console.print(f"  index {escape(index.name)}: {index.length:,} bytes")


def _columns(file: ParquetFile) -> None:
    table = Table("column", "type", "codec", "encodings", "page index", box=None)
    table.add_column("bytes", justify="right")
    for leaf in file.schema.leaves:
        chunks = [group.columns[leaf.index] for group in file.metadata.row_groups]
        known = [chunk.meta_data for chunk in chunks if chunk.meta_data]
        paged = sum(chunk.offset_index_offset is not None for chunk in chunks)
        encodings = sorted({encoding for chunk in known for encoding in chunk.encodings})
        table.add_row(
            escape(leaf.name),
            _name(Type, leaf.element.type),
            ", ".join(sorted({_name(CompressionCodec, chunk.codec) for chunk in known})),
            ", ".join(_name(Encoding, encoding) for encoding in encodings),
            "yes" if paged == len(chunks) and paged else "no" if not paged else "in part",
            f"{sum(chunk.total_compressed_size for chunk in known):,}",
        )
    console.print(table)


def _name(names: type[Type] | type[CompressionCodec] | type[Encoding], value: int | None) -> str:
    try:
        return names(value).name  # type: ignore[arg-type]  # None is unknown as well
    except ValueError:
        return f"unknown ({value})"


def indexes(reports: Sequence[IndexReport]) -> None:
    """The indexes of files, and what they take."""
    for report in reports:
        console.print(escape(report.path))
        for entry in report.indexes:
            bits = entry.length * 8 / max(report.rows, 1)
            share = entry.length / report.file_bytes
            console.print(
                f"  {escape(entry.name)}: {entry.length:,} bytes, {bits:.1f} bits a row, "
                f"{share:.1%} of the file"
            )
        if not report.indexes:
            console.print("  no index")


def rows(table: pa.Table, more: bool) -> None:
    """Rows of data."""
    shown = Table(*(escape(name) for name in table.column_names), box=None)
    for row in table.to_pylist():
        values = row.values()
        shown.add_row(*("NULL" if value is None else escape(str(value)) for value in values))
    console.print(shown)
    console.print(f"{table.num_rows:,} rows{', and there are more' if more else ''}")
