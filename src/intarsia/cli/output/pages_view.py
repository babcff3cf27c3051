"""The pages of a file and the entries of its dictionaries, as a terminal shows them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click
import pyarrow as pa

from intarsia.cli.output.file_view import problem
from intarsia.cli.output.json_document import json_text
from intarsia.cli.output.labels import value_column
from intarsia.cli.output.terminal import (
    NONE,
    Column,
    clean,
    left_out,
    line,
    more,
    numbers,
    paragraph,
    say,
    table,
)
from intarsia.errors import FormatError, IntarsiaError, Where
from intarsia.expr.scalar_format import readable_values
from intarsia.file.chunk_reader import Chunk
from intarsia.file.file_footer import ChunkId
from intarsia.file.open_file import OpenedFile
from intarsia.file.page_listing import PageInfo, describe_pages
from intarsia.parquet.enum_names import encoding_name, page_name
from intarsia.parquet.schema import Leaf
from intarsia.redaction import redacted

_SHOWN = 100


def pages(file: OpenedFile, chunks: Sequence[ChunkId], everything: bool) -> bool:
    """Prints a line for each page. Returns False if one could not be decoded."""
    remaining = None if everything else _SHOWN
    whole, hidden, titles = True, 0, []
    if not chunks:
        paragraph("no pages")
    for id_ in chunks:
        if remaining == 0:
            hidden += _num_pages(file, id_)
            continue
        shown, error = _until_error(itertools.islice(describe_pages(file, *id_), remaining))
        if remaining is not None:
            remaining -= len(shown)
            hidden += 0 if remaining or error else max(_num_pages(file, id_) - len(shown), 0)
        _heading(file, id_)
        titles += table(_columns(file.schema.leaves[id_[1]], shown)) if shown else []
        if error:
            whole = False
            problem(error.at(_where(file, id_)))
    left_out(titles)
    more(hidden, "more page")
    return whole


def dictionaries(file: OpenedFile, chunks: Sequence[ChunkId], everything: bool) -> bool:
    """Prints a line for each entry. Returns False if a dictionary could not be decoded."""
    remaining = None if everything else _SHOWN
    whole, hidden, there = True, 0, False
    for id_ in chunks:
        if remaining == 0:
            hidden += _num_entries(file, id_)
            continue
        try:
            entries = Chunk(file, *id_).dictionary()
        except FormatError as error:
            whole = False
            _heading(file, id_)
            problem(error.at(_where(file, id_)))
            continue
        if entries is None:
            continue
        there = True
        shown = entries[:remaining]
        hidden += len(entries) - len(shown)
        remaining = None if remaining is None else remaining - len(shown)
        _heading(file, id_)
        table(_entry_columns(file.schema.leaves[id_[1]], readable_entries(shown)))
    if hidden:
        paragraph(f"… and {hidden:,} more: --all shows them.")
    if whole and not there:
        paragraph("no dictionaries")
    return whole


def as_json(
    files: Iterable[tuple[str, OpenedFile | IntarsiaError]],
    chunks: Callable[[OpenedFile], Sequence[ChunkId]],
    *,
    dictionary: bool,
    named: bool,
) -> bool:
    """Prints pages, or entries of dictionaries, as one JSON array.

    Each object has the name of its file if ``named``. Returns False if one cannot be decoded.
    """
    objects = _entry_objects if dictionary else _page_objects

    def items() -> Iterator[dict[str, Any]]:
        for name, file in files:
            label = {"file": redacted(name)} if named else {}
            if isinstance(file, IntarsiaError):
                yield {"file": redacted(name), "error": str(file)}
                continue
            for id_ in chunks(file):
                yield from (label | item for item in _or_error(file, id_, objects(file, id_)))

    return _array(items())


def file_heading(name: str) -> None:
    """Prints which of several files is shown."""
    line(clean(name), middle=True, style="bold")


# --- tables -------------------------------------------------------------------------------------


def _heading(file: OpenedFile, id_: ChunkId) -> None:
    group, leaf = id_
    name = clean(file.schema.leaves[leaf].name)
    say()
    line(f"row group {group}, column {name}", middle=True, style="bold")


def _columns(leaf: Leaf, infos: Sequence[PageInfo]) -> list[Column]:
    return [
        numbers("page", [page.number for page in infos], 0),
        Column("type", [page_name(page.type) for page in infos], 1),
        Column("encoding", [_encoding(page) for page in infos], 7, least=8),
        numbers("first row", [page.first_row for page in infos], 6),
        numbers("rows", [page.num_rows for page in infos], 2),
        numbers("values", [page.num_values for page in infos], 10),
        numbers("nulls", [page.null_count for page in infos], 8),
        numbers("offset", [page.offset for page in infos], 9),
        numbers("bytes", [page.compressed_size for page in infos], 5),
        numbers("uncompressed", [page.uncompressed_size for page in infos], 11),
        value_column("min", leaf, [page.min for page in infos], 3),
        value_column("max", leaf, [page.max for page in infos], 4),
        Column("CRC", [_crc(page) for page in infos], 12),
    ]


def _encoding(page: PageInfo) -> str:
    return NONE if page.encoding is None else encoding_name(page.encoding)


def _crc(page: PageInfo) -> str:
    return NONE if page.crc is None else f"{page.crc:08x}"


def _entry_columns(leaf: Leaf, values: list[Any]) -> list[Column]:
    return [numbers("index", range(len(values)), 0), value_column("value", leaf, values, 1)]


def _until_error(listing: Iterator[PageInfo]) -> tuple[list[PageInfo], FormatError | None]:
    """Returns the pages before the first that cannot be decoded, and its error."""
    pages = []
    try:
        for page in listing:
            pages.append(page)  # pages before an error are shown
    except FormatError as error:
        return pages, error
    return pages, None


def _num_pages(file: OpenedFile, id_: ChunkId) -> int:
    """Returns the number of pages of a chunk, by its footer or else by their headers."""
    try:
        chunk = Chunk(file, *id_)
        stats = chunk.metadata.encoding_stats
        return sum(s.count for s in stats) if stats else sum(1 for _ in chunk.pages())
    except FormatError:
        return 0


def _num_entries(file: OpenedFile, id_: ChunkId) -> int:
    """Returns the number of entries of a chunk's dictionary, by its header."""
    try:
        first = next(Chunk(file, *id_).pages(), None)
    except FormatError:
        return 0
    header = first.header.dictionary_page_header if first else None
    return header.num_values if header else 0


def _where(file: OpenedFile, id_: ChunkId) -> Where:
    return Where(file.name, id_[0], file.schema.leaves[id_[1]].name)


# --- JSON ---------------------------------------------------------------------------------------


def _array(items: Iterable[dict[str, Any]]) -> bool:
    """Prints one object a line. Returns False if one of them is an error."""
    before, whole = "[", True
    for item in items:
        whole = whole and "error" not in item
        text = json_text(item)
        click.echo(f"{before}\n{text}", nl=False)
        before = ","
    click.echo("\n]" if before == "," else "[]")
    return whole


def _or_error(
    file: OpenedFile, id_: ChunkId, items: Iterable[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yields ``items``, and an object with the error if they break off."""
    try:
        yield from items
    except FormatError as error:
        where = _where(file, id_)
        yield {"row_group": id_[0], "column": where.column, "error": str(error.at(where))}


def _page_objects(file: OpenedFile, id_: ChunkId) -> Iterator[dict[str, Any]]:
    for page in describe_pages(file, *id_):
        yield dataclasses.asdict(page)


def _entry_objects(file: OpenedFile, id_: ChunkId) -> Iterator[dict[str, Any]]:
    entries = Chunk(file, *id_).dictionary()
    name = file.schema.leaves[id_[1]].name
    for index, value in enumerate([] if entries is None else readable_entries(entries)):
        yield {"row_group": id_[0], "column": name, "index": index, "value": value}


def readable_entries(entries: pa.Array) -> list[Any]:
    """Returns values of a dictionary as bounds are shown: bytes as hexadecimal digits."""
    if pa.types.is_timestamp(entries.type) or pa.types.is_time(entries.type):
        entries = entries.cast(pa.string())  # Python's types lack nanoseconds
    values = readable_values(entries)
    return [f"0x{value.hex()}" if isinstance(value, bytes) else value for value in values]
