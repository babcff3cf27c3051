"""Everything that relies on private or serialized state of pyarrow's objects.

``tests/unit/test_pyarrow_internals.py`` states the behaviour of pyarrow that each function relies
on, so that a new version of pyarrow shows what it changed.

An Expression's pickle state is an Arrow IPC file. The schema's metadata lists the nodes in prefix
order. The columns of its only record batch hold literals and function options. The metadata repeats
keys, so this module reads it from the exported C schema: ``schema.metadata`` is a dict and would
drop repeated keys.

Source: Arrow's C data interface, section "ArrowSchema"; ``Expression`` serialization in Arrow C++.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import PredicateError, check_version
from intarsia.limits import MAX_EXPRESSION_DEPTH

if TYPE_CHECKING:
    import pyarrow.dataset as pads
    import pyarrow.fs as pafs

# Everything that reads, filters or indexes files imports this module. Another version of pyarrow
# may serialize Expressions differently or change what a function means.
check_version(pa)


def call(
    function: str,
    arguments: Sequence[pc.Expression],
    options: Mapping[str, pa.Scalar] | None = None,
) -> pc.Expression:
    """Returns a call of a function by name, which pyarrow need not know before it evaluates it.

    ``options`` are the fields of its options in an Expression's pickle state.
    """
    return pc.Expression._call(function, list(arguments), _options_of(options) if options else None)


def _options_of(fields: Mapping[str, pa.Scalar]) -> pc.FunctionOptions:
    values = [pa.repeat(value, 1) for value in fields.values()]
    batch = pa.record_batch([pa.StructArray.from_arrays(values, list(fields))], [""])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pc.FunctionOptions.deserialize(sink.getvalue())


def row_groups_of(fragment: pads.ParquetFileFragment) -> list[int] | None:
    """Returns the row groups that a fragment is of. None if it has not read its footer yet."""
    _, (*_, row_groups) = fragment.__reduce__()
    return row_groups  # type: ignore[no-any-return]  # pyarrow is not typed


def s3_options_of(filesystem: pafs.S3FileSystem) -> dict[str, Any]:
    """Returns the arguments with which a file system was made, credentials included."""
    return filesystem.__reduce__()[1][0]  # type: ignore[no-any-return]  # pyarrow is not typed


Items = list[tuple[str, str]]
"""An Expression's nodes in prefix order: kind and value of each."""


class Serialized(NamedTuple):
    """An Expression's pickle state: its items, and the values that they point to by column."""

    items: Items
    batch: pa.RecordBatch


def serialized_of(expression: pc.Expression) -> Serialized | None:
    """Returns the pickle state of an Expression, or None if pyarrow cannot serialize it.

    Raises ``PredicateError`` if calls nest deeper than ``MAX_EXPRESSION_DEPTH``.
    """
    try:
        _, (buffer,) = expression.__reduce__()
    except pa.ArrowNotImplementedError:
        return None
    with pa.ipc.open_file(buffer) as reader:
        items = _metadata_items(reader.schema)
        _check_depth(items)
        return Serialized(items, reader.get_batch(0))


def _check_depth(items: Items) -> None:
    """Raises ``PredicateError`` if calls nest so deeply that pyarrow's stack may overflow."""
    if len(items) <= 2 * MAX_EXPRESSION_DEPTH:  # each call has an end
        return
    depth = max_depth = 0
    for kind, _ in items:
        depth += (kind == "call") - (kind == "end")
        max_depth = max(max_depth, depth)
    if max_depth > MAX_EXPRESSION_DEPTH:
        raise PredicateError(
            f"the Expression nests {max_depth:,} calls; the limit is {MAX_EXPRESSION_DEPTH:,}: "
            "write long lists of alternatives with isin, or join them in pairs"
        )


class _CSchema(ctypes.Structure):
    """The fields of ``struct ArrowSchema`` up to ``metadata``."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _metadata_items(schema: pa.Schema) -> Items:
    """Returns key/value metadata in order, repeated keys included."""
    capsule = schema.__arrow_c_schema__()
    address = _CSchema.from_address(_capsule_pointer(capsule, b"arrow_schema")).metadata
    if not address:
        return []

    def read_int32() -> int:
        nonlocal address
        address += 4
        return ctypes.c_int32.from_address(address - 4).value

    def read_string() -> str:
        nonlocal address
        size = read_int32()
        address += size
        return ctypes.string_at(address - size, size).decode()

    return [(read_string(), read_string()) for _ in range(read_int32())]
