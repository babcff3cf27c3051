"""JSON lines in types that pyarrow's reader of JSON does not know, such as maps and dates.

An object of a map column is rewritten before pyarrow reads it, as a list of keys and values::

    {"attrs": {"a": 1, "b": 2}}
    {"attrs": [{"key": "a", "value": 1}, {"key": "b", "value": 2}]}

Other types are read as strings or numbers and cast.
"""

from __future__ import annotations

import io
import json
import re
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from intarsia.expr.filterable_types import filterable_type
from intarsia.expr.nested_types import has_map, with_children, without_dictionary

_BLOCK_BYTES = 1024 * 1024
_NUMBER = secrets.token_hex(8)
"""Marks numbers with a point or exponent, which keep their text, until a line is complete."""
_MARKED_NUMBERS = re.compile(rf'"{_NUMBER}([^"]*)"')
_DECODER = json.JSONDecoder(parse_float=lambda text: _NUMBER + text)
_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def read_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type in which pyarrow reads a column that becomes ``kind`` by ``converted``."""
    kind = without_dictionary(filterable_type(kind))
    if pa.types.is_map(kind):
        return read_type(_as_list(kind))
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_duration(kind):
        return pa.int64()
    kind = with_children(kind, lambda field: field.with_type(read_type(field.type)))
    is_list = pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return pa.list_(kind.value_field) if is_list else kind


def _as_list(kind: pa.DataType) -> pa.DataType:
    """Returns the type of a map's layout: a list of keys, which are strings in JSON, and values."""
    return pa.list_(pa.struct([("key", pa.string()), ("value", kind.item_type)]))


def converted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns a batch whose columns have the types ``read_type`` gives, in those of ``schema``.

    Raises ``ArrowInvalid`` for a value that does not fit.
    """
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        if has_map(field.type):
            column = column.cast(_with_lists(field.type)).view(field.type)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _with_lists(kind: pa.DataType) -> pa.DataType:
    """Returns the type with lists of structs in place of maps, which have the same layout."""
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.list_(pa.struct([key, item.with_type(_with_lists(item.type))]))
    return with_children(kind, lambda field: field.with_type(_with_lists(field.type)))


def with_lists(stream: Any, schema: pa.Schema) -> Any:
    """Returns JSON lines with lists of keys and values in place of maps' objects."""
    change = _rewriter(pa.struct(schema))
    if change is None:
        return stream
    return io.BufferedReader(_Lines(map(partial(_rewritten, change), _lines(stream))))


def _rewritten(change: Callable[[Any], Any], line: bytes) -> bytes:
    try:
        row = _DECODER.decode(line.decode())
    except (ValueError, RecursionError):
        return line
    return _MARKED_NUMBERS.sub(r"\1", _ENCODER.encode(change(row))).encode() + b"\n"


def _rewriter(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Returns what changes a parsed value of ``kind``, or None if nothing is to be changed."""
    if pa.types.is_map(kind):
        of_item = _rewriter(kind.item_type) or _same
        return lambda value: (
            [{"key": key, "value": of_item(item)} for key, item in value.items()]
            if isinstance(value, dict)
            else value
        )
    if pa.types.is_struct(kind):
        known = {field.name: _rewriter(field.type) for field in kind}
        changes = {name: change for name, change in known.items() if change is not None}
        if not changes:
            return None
        return lambda value: (
            value | {name: changes[name](value[name]) for name in changes.keys() & value.keys()}
            if isinstance(value, dict)
            else value
        )
    of_value = _rewriter(kind.value_type) if pa.types.is_nested(kind) else None
    if of_value is None:
        return None
    return lambda value: [*map(of_value, value)] if isinstance(value, list) else value


def _same(value: Any) -> Any:
    return value


def _lines(stream: Any) -> Iterator[bytes]:
    rest = b""
    while block := stream.read(_BLOCK_BYTES):
        *lines, rest = (rest + bytes(block)).splitlines(keepends=True) or [b""]
        if rest.endswith(b"\n"):
            lines, rest = [*lines, rest], b""
        yield from lines
    if rest:
        yield rest


class _Lines(io.RawIOBase):
    """The bytes of an iterator of lines."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            line = next(self._lines, None)
            if line is None:
                return 0
            self._rest = memoryview(line)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
