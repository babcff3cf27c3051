"""Rows of files that are not Parquet, and of standard input, batch by batch, as pyarrow reads them.

All files have the columns of the first one, in its types: pyarrow's data sets would leave out, and
not tell of, what only others have.
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

from intarsia.dataset.partitioning import folder_of, hive_types
from intarsia.errors import FormatError, name_of_several, unknown_column
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
"""Of text that is read at a time; types are those of the values in the first block."""
_MAGIC = b"ARROW1\0\0"
"""What Arrow's files begin with; what follows is as in a stream."""
_HINTS = {
    "conversion error": "--type COLUMN=TYPE says what a column holds",
    "couldn't parse": "--type COLUMN=TYPE says what a column holds",
    "straddl": "a row may have 16 MB of text",
    "unexpected field": "--type COLUMN=TYPE tells of one that the first rows lack",
}
"""What to do about pyarrow's refusals, by a part of what it says."""


@dataclass(frozen=True, slots=True)
class Text:
    """How rows are written as text."""

    delimiter: str | None = None
    """Of CSV; by the file's name where it is not said."""
    has_header: bool = True
    null: str | None = None
    """What stands for NULL, also in texts."""
    types: Mapping[str, pa.DataType] = field(default_factory=dict)


class Incoming(NamedTuple):
    """Rows of all files, and the columns they have."""

    schema: pa.Schema
    tables: Iterator[pa.Table]
    files: Sequence[str]
    annotations: Annotations = MappingProxyType({})
    """What Parquet files say of these columns that Arrow's types do not."""


class _File(NamedTuple):
    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]


def format_of_name(name: str) -> str | None:
    """The format that a name's extension says, be it compressed."""
    stem, end = os.path.splitext(name)
    if end.lower() in _COMPRESSED:
        end = os.path.splitext(stem)[1]
    return _FORMAT_OF.get(end[1:].lower())


def format_of(path: str, said: str | None, table_format: TableFormatOption = "auto") -> str:
    """The format of a file, or of all files of a folder, glob or URI: ``said``, or by their names.

    Parquet where these do not tell. Raises ``UsageError`` where they tell of several, and for what
    is no file and no folder.
    """
    if path == STDIN and said is not None:
        return said
    if path == STDIN:
        raise click.UsageError("standard input is read with --from csv, json or arrow")
    on, at = resolve(path)
    is_local = isinstance(on, pafs.LocalFileSystem)
    if is_local and os.path.exists(at) and not (os.path.isfile(at) or os.path.isdir(at)):
        raise click.UsageError(f"{path} is a device or a pipe: - reads standard input")
    found = said or format_of_name(path)
    if found is not None:
        return found
    _, files = data_files(path, table_format=table_format)
    names = dict.fromkeys(map(format_of_name, files))
    forms = [form for form in names if form is not None]
    if len(forms) > 1:
        raise click.UsageError(
            f"{path} holds files of {', '.join(forms)}: --from says which are read"
        )
    return forms[0] if forms else "parquet"


def read(path: str, form: str, text: Text, table_format: TableFormatOption = "auto") -> Incoming:
    """The rows of the files of ``path``, or of standard input, that are of the format ``form``.

    Of several files, those whose names say so, where any do. Raises ``FormatError`` for what
    pyarrow cannot read, and for files whose columns are not those of the first.
    """
    if path == STDIN:
        if form == "orc":
            raise click.UsageError("standard input is read with --from csv, json or arrow")
        with _telling("standard input"):
            lone = _of_stream(_standard_input(), path, form, text, None)
            _check_names(lone.schema)
        return Incoming(lone.schema, _tables("standard input", lone, lone.schema), ())
    on, files = data_files(path, table_format=table_format)
    files = [file for file in files if format_of_name(file) == form] or files
    at = resolve(path)[1].rstrip("/")
    base = folder_of(path) or (None if files == [at] else at)
    keys = pads.HivePartitioning(hive_types(files, base, "hive"))
    with _telling(files[0]):
        first = _opened(on, files[0], form, text, None)
        _check_names(first.schema)
    own = [key for key in keys.schema if key.name not in first.schema.names]
    schema = pa.schema([*first.schema, *own], first.schema.metadata)

    def tables() -> Iterator[pa.Table]:
        for file in files:
            if file == files[0]:
                held = first
            else:
                with _telling(file):
                    held = _opened(on, file, form, text, first.schema)
                _check_columns(file, held.schema, files[0], first.schema)
            said = pads.get_partition_keys(keys.parse(file.removeprefix(base or "")))
            for table in _tables(file, held, first.schema):
                yield _with_keys(table, own, said).replace_schema_metadata(schema.metadata)

    return Incoming(schema, tables(), files)


def _with_keys(table: pa.Table, keys: Sequence[pa.Field], said: Mapping[str, Any]) -> pa.Table:
    for key in keys:
        value = pa.scalar(said.get(key.name), key.type)
        table = table.append_column(key, pa.repeat(value, table.num_rows))
    return table


def _tables(name: str, file: _File, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a file, in the columns and types of ``schema``."""
    batches = iter(file.batches)
    while True:
        with _telling(name):
            batch = next(batches, None)
            if batch is None:
                return
            table = pa.Table.from_batches([batch])
            if not table.schema.equals(schema):
                table = table.select(schema.names).cast(schema)
        yield table


@contextlib.contextmanager
def _telling(name: str) -> Iterator[None]:
    """Have an error of pyarrow's say which file it is of, and what to do."""
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
    """A file; what is text is read in the types of ``schema``."""
    if form == "orc" or (form == "arrow" and _is_arrow_file(on, path)):
        kind = "ipc" if form == "arrow" else form
        data = pads.dataset([path], filesystem=on, format=kind, partitioning=None)
        return _File(data.schema, data.to_batches(batch_readahead=4))
    return _of_stream(on.open_input_stream(path), path, form, text, schema)


def _is_arrow_file(on: pafs.FileSystem, path: str) -> bool:
    with on.open_input_stream(path) as stream:
        return bytes(stream.read(len(_MAGIC))) == _MAGIC


def _of_stream(stream: Any, path: str, form: str, text: Text, schema: pa.Schema | None) -> _File:
    is_valid = form != "json"  # whose texts pyarrow does not look at
    if form == "csv":
        reader = _csv(stream, path, text, schema)
    elif form == "json":
        reader = _json(stream, text, schema)
    else:
        if path == STDIN and stream.peek(len(_MAGIC)).startswith(_MAGIC):
            stream.read(len(_MAGIC))
        reader = paipc.open_stream(stream)
    for name in text.types:
        if name not in reader.schema.names:
            raise unknown_column(name, reader.schema.names)
    return _File(reader.schema, _batches(reader, stream, is_valid=is_valid))


def _batches(reader: Any, stream: Any, *, is_valid: bool) -> Iterator[pa.RecordBatch]:
    """The batches of a stream, which is closed behind them; checked but where it ``is_valid``."""
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


def _json(stream: Any, text: Text, schema: pa.Schema | None) -> Any:
    stated = schema or (pa.schema(list(text.types.items())) if text.types else None)
    unexpected = "infer" if schema is None else "error"
    return pajson.open_json(
        stream,
        pajson.ReadOptions(block_size=_BLOCK_BYTES),
        pajson.ParseOptions(explicit_schema=stated, unexpected_field_behavior=unexpected),
    )


def _check_names(schema: pa.Schema) -> None:
    """Raise ``ArrowInvalid`` for two columns of one name, or none at all, and ``UnicodeError`` for
    a name that is no UTF-8.
    """
    names = schema.names
    if not names:
        raise pa.ArrowInvalid("there is no column")
    twice = name_of_several(names)
    if twice is not None:
        raise pa.ArrowInvalid(f"two columns are called {twice}")


def _check_columns(path: str, schema: pa.Schema, first: str, wanted: pa.Schema) -> None:
    known = frozenset(schema.names)
    lacking = [name for name in wanted.names if name not in known]
    more = [name for name in schema.names if name not in wanted.names]
    if lacking or more or len(schema) != len(wanted):
        parts = [f"lacks {', '.join(lacking)}"] * bool(lacking)
        parts += [f"has {', '.join(more)} besides"] * bool(more)
        what = " and ".join(parts) or "has one of them twice"
        raise FormatError(f"{path}: its columns are not those of {first}: it {what}")
