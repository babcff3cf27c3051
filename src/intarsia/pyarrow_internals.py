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
import threading
from collections.abc import Callable, Container, Sequence
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

NODES_WITH_COLUMN = ("literal", "options")
"""Kinds of nodes whose value is the number of a column."""


def call(function: str, arguments: Sequence[pc.Expression]) -> pc.Expression:
    """Returns a call of a function by name, which pyarrow need not know before it evaluates it."""
    return pc.Expression._call(function, list(arguments))


def row_groups_of(fragment: pads.ParquetFileFragment) -> list[int] | None:
    """Returns the row groups that a fragment is of. None if it has not read its footer yet."""
    _, (*_, row_groups) = fragment.__reduce__()
    return row_groups  # type: ignore[no-any-return]  # pyarrow is not typed


def s3_options_of(filesystem: pafs.S3FileSystem) -> dict[str, Any]:
    """Returns the arguments with which a file system was made, credentials included."""
    return filesystem.__reduce__()[1][0]  # type: ignore[no-any-return]  # pyarrow is not typed


Nodes = list[tuple[str, str]]
"""Nodes of an Expression in prefix order: kind and value of each."""


class Serialized(NamedTuple):
    """An Expression's pickle state: its nodes in prefix order, and the values they point to."""

    rebuild: Callable[[pa.Buffer], pc.Expression]
    nodes: Nodes
    batch: pa.RecordBatch

    def part(self, nodes: Nodes) -> pc.Expression:
        """Returns the Expression made of some of the nodes."""
        renumbered, columns = [], []
        for kind, value in nodes:
            if kind in NODES_WITH_COLUMN:
                columns.append(self.batch.column(int(value)))
                value = str(len(columns) - 1)
            renumbered.append((kind, value))
        # pyarrow rejects a batch without rows, so a batch without columns gets one.
        batch = batch_of(columns or [pa.nulls(1)])
        batch = batch.replace_schema_metadata(pa.KeyValueMetadata(renumbered))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return self.rebuild(sink.getvalue())


def batch_of(columns: list[pa.Array]) -> pa.RecordBatch:
    """Returns a record batch of the values that nodes point to, by column number."""
    return pa.RecordBatch.from_arrays(columns, [""] * len(columns))


def serialized_of(expression: pc.Expression) -> Serialized | None:
    """Returns the pickle state of an Expression, or None if pyarrow cannot serialize it.

    Several steps of a query ask for the same Expression: each thread keeps the state of the last
    short one. Raises ``PredicateError`` if calls nest deeper than ``MAX_EXPRESSION_DEPTH``.
    """
    if _last.expression is expression:
        return _last.serialized
    try:
        rebuild, (buffer,) = expression.__reduce__()
    except pa.ArrowNotImplementedError:
        return None
    with pa.ipc.open_file(buffer) as reader:
        nodes = _metadata_items(reader.schema)
        _check_depth(nodes)
        serialized = Serialized(rebuild, nodes, reader.get_batch(0))
    if buffer.size <= _MAX_KEPT_BYTES:
        _last.expression, _last.serialized = expression, serialized
    return serialized


class _LastSerialized(threading.local):
    expression: pc.Expression | None = None
    serialized: Serialized | None = None


_last = _LastSerialized()
_MAX_KEPT_BYTES = 16 * 1024
"""Bytes of the longest state that is kept. Longer ones have lists of values."""


def _check_depth(nodes: Nodes) -> None:
    """Raises ``PredicateError`` if calls nest so deeply that pyarrow's stack may overflow."""
    if len(nodes) <= 2 * MAX_EXPRESSION_DEPTH:  # each call has an end
        return
    depth = max_depth = 0
    for kind, _ in nodes:
        depth += (kind == "call") - (kind == "end")
        max_depth = max(max_depth, depth)
    if max_depth > MAX_EXPRESSION_DEPTH:
        raise PredicateError(
            f"the Expression nests {max_depth:,} calls; the limit is {MAX_EXPRESSION_DEPTH:,}: "
            "write long lists of alternatives with isin, or join them in pairs"
        )


def end_of(nodes: Nodes, at: int) -> int:
    """Returns the index after the node at ``at`` and everything below it."""
    depth = 0
    while True:
        kind, value = nodes[at]
        at += 1
        if kind == "nested_field_ref":
            at += int(value)
        depth += {"call": 1, "end": -1}.get(kind, 0)
        if not depth:
            return at


def operands_of(nodes: Nodes, functions: Container[str]) -> list[Nodes]:
    """Returns the nodes of each operand of a chain of ``functions``, or ``nodes`` alone."""
    operands, at = [], 0
    while at < len(nodes):
        kind, value = nodes[at]
        stop = at + 1
        if kind != "end" and (kind != "call" or value not in functions):
            stop = end_of(nodes, at)
            operands.append(nodes[at:stop])
        at = stop
    return operands


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


def _metadata_items(schema: pa.Schema) -> Nodes:
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
