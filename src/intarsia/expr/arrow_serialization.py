"""An Expression's pickle state, taken apart: nodes in prefix order, and the values they point to.

That state is an Arrow IPC file: the schema's metadata lists the nodes in order, the columns of its
one record batch hold literals and function options. The metadata repeats keys, so it is read from
the exported C schema rather than through ``schema.metadata``, a dict.

Source: Arrow's C data interface, section "ArrowSchema"; ``Expression`` serialization in Arrow C++.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import PredicateError, check_version
from intarsia.limits import MAX_EXPRESSION_DEPTH

# All that reads, filters or indexes files imports this module. Another pyarrow may serialize
# Expressions in another form, and give its functions another meaning.
check_version(pa)

POINTING = ("literal", "options")
"""Kinds of nodes whose text is the number of a column."""


class Serialized(NamedTuple):
    """An Expression's pickle state: its nodes in prefix order, and the values these point to."""

    rebuild: Callable[[pa.Buffer], pc.Expression]
    nodes: list[tuple[str, str]]
    batch: pa.RecordBatch

    def part(self, nodes: list[tuple[str, str]]) -> pc.Expression:
        """The Expression of some of its nodes."""
        kept, columns = [], []
        for kind, value in nodes:
            if kind in POINTING:
                columns.append(self.batch.column(int(value)))
                value = str(len(columns) - 1)
            kept.append((kind, value))
        # Without any it would have no row, and not be taken back.
        batch = batch_of(columns or [pa.nulls(1)])
        batch = batch.replace_schema_metadata(pa.KeyValueMetadata(kept))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return self.rebuild(sink.getvalue())


def batch_of(columns: list[pa.Array]) -> pa.RecordBatch:
    """The values that nodes point to, by their numbers."""
    return pa.RecordBatch.from_arrays(columns, [""] * len(columns))


def serialized_of(expression: pc.Expression) -> Serialized | None:
    """An Expression taken apart; None where pyarrow cannot serialize it.

    Raises ``PredicateError`` for one that nests deeper than ``MAX_EXPRESSION_DEPTH``.
    """
    try:
        rebuild, (buffer,) = expression.__reduce__()
    except pa.ArrowNotImplementedError:
        return None
    with pa.ipc.open_file(buffer) as reader:
        nodes = _metadata_items(reader.schema)
        _check_depth(nodes)
        return Serialized(rebuild, nodes, reader.get_batch(0))


def _check_depth(nodes: list[tuple[str, str]]) -> None:
    """Raise ``PredicateError`` for calls so deep in others that pyarrow's stack may overflow."""
    if len(nodes) <= 2 * MAX_EXPRESSION_DEPTH:  # each call has an end
        return
    depth = deepest = 0
    for kind, _ in nodes:
        depth += (kind == "call") - (kind == "end")
        deepest = max(deepest, depth)
    if deepest > MAX_EXPRESSION_DEPTH:
        raise PredicateError(
            f"the Expression nests {deepest:,} calls; the limit is {MAX_EXPRESSION_DEPTH:,}: "
            "write long lists of alternatives with isin, or join them in pairs"
        )


def end_of(nodes: list[tuple[str, str]], at: int) -> int:
    """Where the node at ``at`` ends, with all that is under it."""
    depth = 0
    while True:
        kind, value = nodes[at]
        at += 1
        if kind == "nested_field_ref":
            at += int(value)
        depth += {"call": 1, "end": -1}.get(kind, 0)
        if not depth:
            return at


class _CSchema(ctypes.Structure):
    """``struct ArrowSchema`` as far as its metadata."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _metadata_items(schema: pa.Schema) -> list[tuple[str, str]]:
    """Key/value metadata in order, repeated keys included."""
    capsule = schema.__arrow_c_schema__()
    address = _CSchema.from_address(_capsule_pointer(capsule, b"arrow_schema")).metadata
    if not address:
        return []

    def number() -> int:
        nonlocal address
        address += 4
        return ctypes.c_int32.from_address(address - 4).value

    def text() -> str:
        nonlocal address
        size = number()
        address += size
        return ctypes.string_at(address - size, size).decode()

    return [(text(), text()) for _ in range(number())]
