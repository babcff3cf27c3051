"""Rows of files that are not Parquet, and of standard input, batch by batch, as pyarrow reads them.

All files must have the columns of the first one, in its types. A data set of pyarrow would silently
leave out columns that only other files have.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import click
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.ipc as paipc
import pyarrow.json as pajson

from intarsia.cli.input.json_types import converted, read_type, with_lists
from intarsia.dataset.partitioning import folder_of, hive_types
from intarsia.errors import FormatError, first_duplicate, unknown_column
from intarsia.io.storage import resolve
from intarsia.tables.data_files import TableFormatOption, data_files
from intarsia.writer.type_annotations import Annotations

STDIN = "-"
_EXTENSIONS = {
    "parquet": ("parquet", "parq", "pq"),
    "csv": ("csv", "tsv"),
    "json": ("json", "jsonl", "ndjson"),
    "arrow": ("arrow", "arrows", "feather", "ipc"),
    "orc": ("orc",),
}
_FORMAT_OF = {end: form for form, ends in _EXTENSIONS.items() for end in ends}
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")
_BLOCK_BYTES = 16 * 1024 * 1024
"""Bytes of text that are read at a time. The first block decides the types."""
_MAGIC = b"ARROW1\0\0"
"""The first bytes of an Arrow file. A stream follows them."""
_HINTS = {
    "conversion error": "--type COLUMN=TYPE says what a column holds",
    "couldn't parse": "--type COLUMN=TYPE says what a column holds",
    "straddl": "a row may have 16 MB of text",
    "unexpected field": "--type COLUMN=TYPE tells of one that the first rows lack",
}
"""Advice on errors of pyarrow, by a part of their message."""


@dataclass(frozen=True, slots=True)
class Text:
    """How rows are written as text."""

    delimiter: str | None = None
    """The delimiter of CSV. None takes the one that suits the file's name."""
    has_header: bool = True
    null: str | None = None
    """The string that stands for NULL, in columns of strings too."""
    types: Mapping[str, pa.DataType] = field(default_factory=dict)


class Incoming(NamedTuple):
    """Rows of all files, and the columns they have."""

    schema: pa.Schema
    tables: Iterator[pa.Table]
    files: Sequence[str]
    annotations: Annotations = MappingProxyType({})
    """Annotations of these columns in Parquet files that Arrow has no types for."""


class _File(NamedTuple):
    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]


def format_of_name(name: str) -> str | None:
    """Returns the format of a file's name, without the extension of its compression."""
    stem, end = os.path.splitext(name)
    if end.lower() in _COMPRESSED:
        end = os.path.splitext(stem)[1]
    return _FORMAT_OF.get(end[1:].lower())


def format_of(path: str, said: str | None, table_format: TableFormatOption = "auto") -> str:
    """Returns ``said``, or the format of a file, folder, glob or URI by its names.

    Unknown names count as Parquet. Raises ``UsageError`` for names of several formats, and for
    devices and pipes.
    """
    if path == STDIN and said is not None:
        return said
    if path == STDIN:
        raise click.UsageError("standard input is read with --from csv, json or arrow")
    on, at = resolve(path)
    is_local = isinstance(on, pafs.LocalFileSystem)
    if is_local and os.path.exists(at) and not (os.path.isfile(at) or os.path.isdir(at)):
        raise click.UsageError(f"{path} is a device or a pipe: - reads standard input")
    known = said or format_of_name(path)
    if known is not None:
        return known
    _, files = data_files(path, table_format=table_format)
    names = dict.fromkeys(map(format_of_name, files))
    forms = [form for form in names if form is not None]
    if len(forms) > 1:
        raise click.UsageError(
            f"{path} holds files of {', '.join(forms)}: --from says which are read"
        )
    return forms[0] if forms else "parquet"


def read(path: str, form: str, text: Text, table_format: TableFormatOption = "auto") -> Incoming:
    """Returns the rows of the files of ``path``, or of standard input, in the format ``form``.

    If some names have that format, other files are left out. Raises ``FormatError`` if pyarrow
    cannot read a file, or if its columns are not those of the first.
    """
    if path == STDIN:
        if form == "orc":
            raise click.UsageError("standard input is read with --from csv, json or arrow")
        with _naming_file("standard input"):
            lone = _of_stream(_standard_input(), path, form, text, None)
            _check_names(lone.schema)
        return Incoming(lone.schema, _tables("standard input", lone, lone.schema), ())
    on, files = data_files(path, table_format=table_format)
    files = [file for file in files if format_of_name(file) == form] or files
    at = resolve(path)[1].rstrip("/")
    base = folder_of(path) or (None if files == [at] else at)
    keys = pads.HivePartitioning(hive_types(files, base, "hive"))
    with _naming_file(files[0]):
        first = _opened(on, files[0], form, text, None)
        _check_names(first.schema)
    own = [key for key in keys.schema if key.name not in first.schema.names]
    schema = pa.schema([*first.schema, *own], first.schema.metadata)

    def tables() -> Iterator[pa.Table]:
        for file in files:
            if file == files[0]:
                opened = first
            else:
                with _naming_file(file):
                    opened = _opened(on, file, form, text, first.schema)
                check_same_columns(file, opened.schema, files[0], first.schema)
            said = pads.get_partition_keys(keys.parse(file.removeprefix(base or "")))
            for table in _tables(file, opened, first.schema):
                yield _with_keys(table, own, said).replace_schema_metadata(schema.metadata)

    return Incoming(schema, tables(), files)


def _with_keys(table: pa.Table, keys: Sequence[pa.Field], said: Mapping[str, Any]) -> pa.Table:
    for key in keys:
        value = pa.scalar(said.get(key.name), key.type)
        table = table.append_column(key, pa.repeat(value, table.num_rows))
    return table


def _tables(name: str, file: _File, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yields the rows of a file in the columns and types of ``schema``."""
    batches = iter(file.batches)
    while True:
        with _naming_file(name):
            batch = next(batches, None)
            if batch is None:
                return
            table = pa.Table.from_batches([batch])
            if not table.schema.equals(schema):
                table = table.select(schema.names).cast(schema)
        yield table


@contextlib.contextmanager
def _naming_file(name: str) -> Iterator[None]:
    """Raises errors of pyarrow as ``FormatError`` with the file's name and advice."""
    try:
        yield
    except (OSError, UnicodeError, pa.ArrowException) as error:
        said = " ".join(str(error).split())
        hint = "".join(f"; {hint}" for part, hint in _HINTS.items() if part in said)
        raise FormatError(f"{name}: cannot be read: {said}{hint}") from error


def _standard_input() -> Any:
    if sys.stdin is None:  # it was closed
        return io.BufferedReader(io.BytesIO())
    return io.BufferedReader(sys.stdin.buffer)


def _opened(
    on: pafs.FileSystem, path: str, form: str, text: Text, schema: pa.Schema | None
) -> _File:
    """Opens a file. Text is read in the types of ``schema``."""
    if form == "orc" or (form == "arrow" and _is_arrow_file(on, path)):
        kind = "ipc" if form == "arrow" else form
        data = pads.dataset([path], filesystem=on, format=kind, partitioning=None)
        return _File(data.schema, data.to_batches(batch_readahead=4))
    return _of_stream(on.open_input_stream(path), path, form, text, schema)


def _is_arrow_file(on: pafs.FileSystem, path: str) -> bool:
    with on.open_input_stream(path) as stream:
        return bytes(stream.read(len(_MAGIC))) == _MAGIC


def _of_stream(stream: Any, path: str, form: str, text: Text, schema: pa.Schema | None) -> _File:
    if form == "csv":
        reader = _csv(stream, path, text, schema)
    elif form == "json":
        stated = schema or pa.schema(list(text.types.items()))
        return _of_json(stream, stated, infers=schema is None)
    else:
        if path == STDIN and stream.peek(len(_MAGIC)).startswith(_MAGIC):
            stream.read(len(_MAGIC))
        reader = paipc.open_stream(stream)
    for name in text.types:
        if name not in reader.schema.names:
            raise unknown_column(name, reader.schema.names)
    return _File(reader.schema, _batches(reader, stream, is_valid=True))


def _batches(reader: Any, stream: Any, *, is_valid: bool) -> Iterator[pa.RecordBatch]:
    """Yields the batches of a stream, checks them unless ``is_valid``, and closes it."""
    with contextlib.closing(stream):
        for batch in reader:
            if not is_valid:
                batch.validate(full=True)
            yield batch


def _csv(stream: Any, path: str, text: Text, schema: pa.Schema | None) -> Any:
    is_tabbed = ".tsv" in os.path.basename(path).lower()
    types = {} if schema is None else {f.name: f.type for f in schema}
    options: dict[str, Any] = {"column_types": {**types, **text.types}}
    if text.null is not None:
        options |= {
            "null_values": [text.null],
            "strings_can_be_null": True,
            "quoted_strings_can_be_null": False,
        }
    return pacsv.open_csv(
        stream,
        pacsv.ReadOptions(block_size=_BLOCK_BYTES, autogenerate_column_names=not text.has_header),
        pacsv.ParseOptions(
            delimiter=text.delimiter or ("\t" if is_tabbed else ","), newlines_in_values=True
        ),
        pacsv.ConvertOptions(**options),
    )


def _of_json(stream: Any, stated: pa.Schema, *, infers: bool) -> _File:
    """Opens JSON lines with columns of ``stated``, and others if ``infers`` is true."""
    read_as = pa.schema([field.with_type(read_type(field.type)) for field in stated])
    reader = pajson.open_json(
        with_lists(stream, stated),
        pajson.ReadOptions(block_size=_BLOCK_BYTES),
        pajson.ParseOptions(
            explicit_schema=read_as if len(read_as) else None,
            unexpected_field_behavior="infer" if infers else "error",
        ),
    )
    kinds = {field.name: field.type for field in stated}
    fields = [field.with_type(kinds.get(field.name, field.type)) for field in reader.schema]
    schema = pa.schema(fields)
    batches = _batches(reader, stream, is_valid=False)  # pyarrow does not check strings
    return _File(schema, (converted(batch, schema) for batch in batches))


def _check_names(schema: pa.Schema) -> None:
    """Raises ``ArrowInvalid`` for equal names or none, ``UnicodeError`` if one is not UTF-8."""
    names = schema.names
    if not names:
        raise pa.ArrowInvalid("there is no column")
    twice = first_duplicate(names)
    if twice is not None:
        raise pa.ArrowInvalid(f"two columns are called {twice}")


def check_same_columns(path: str, schema: pa.Schema, first: str, expected: pa.Schema) -> None:
    """Raises ``FormatError`` unless two schemas have the same columns, in any order."""
    known = frozenset(schema.names)
    lacking = [name for name in expected.names if name not in known]
    more = [name for name in schema.names if name not in expected.names]
    if lacking or more or len(schema) != len(expected):
        parts = [f"lacks {', '.join(lacking)}"] * bool(lacking)
        parts += [f"has {', '.join(more)} besides"] * bool(more)
        what = " and ".join(parts) or "has one of them twice"
        raise FormatError(f"{path}: its columns are not those of {first}: it {what}")
