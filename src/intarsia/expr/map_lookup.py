"""The values of one key in a column of maps: ``pyarrow.compute.map_lookup``, vectorized.

pyarrow searches one map after the other, which takes several times as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.casts import is_text
from intarsia.expr.nested_types import has_map, type_at, without_dictionary
from intarsia.expr.tree import Call, FieldRef, Node, Opaque

_FIRST = 0
"""The value of ``MapLookupOptions.occurrence`` for the first occurrence."""


def is_first(options: Mapping[str, Any]) -> bool:
    """True if a call of ``map_lookup`` gives the first value of a key that a map repeats."""
    return bool(options["occurrence"].as_py() == _FIRST)


def first_key(options: Mapping[str, Any], kind: pa.DataType | None) -> pa.Scalar | None:
    """Returns the key whose first value a call of ``map_lookup`` gives, in maps of type ``kind``.

    Returns None if the call gives another occurrence, or the keys are not strings of the key's
    type.
    """
    key = options["query_key"]
    if kind is None or not pa.types.is_map(kind) or not is_first(options) or not key.is_valid:
        return None
    key_type = without_dictionary(kind.key_type)
    return key if is_text(key_type) and key.type == key_type else None


def asks_for_values_only(node: Node, schema: pa.Schema) -> bool:
    """True if ``node`` uses the map fields of ``schema`` only through ``first_key`` lookups."""
    pending, fields = [node], set()
    while pending:  # no recursion: long filters are deep trees
        match pending.pop():
            case FieldRef(path):
                fields.add(path)
            case Call("map_lookup", (FieldRef(path),), options):
                if first_key(options, type_at(schema, path)) is None:
                    return False
            case Call(_, arguments):
                pending += arguments
            case Opaque():
                return False
    kinds = [type_at(schema, path) for path in fields]
    return all(kind is not None and not has_map(kind) for kind in kinds)


def first_values(maps: pa.ChunkedArray, key: pa.Scalar) -> pa.ChunkedArray:
    """Returns the value of the first entry with ``key`` of each map, NULL if it has none.

    Keys may be dictionary-encoded strings.
    """
    return pa.chunked_array(
        [_first_values(chunk, key) for chunk in maps.chunks], maps.type.item_type
    )


def _first_values(maps: pa.MapArray, key: pa.Scalar) -> pa.Array:
    offsets = np.asarray(maps.offsets)
    start, stop = (int(offsets[0]), int(offsets[-1])) if len(maps) else (0, 0)
    positions = start + np.flatnonzero(_matches(maps.keys.slice(start, stop - start), key))
    rows = np.searchsorted(offsets, positions, side="right") - 1
    is_first_of_row = np.diff(rows, prepend=-1) != 0
    positions, rows = positions[is_first_of_row], rows[is_first_of_row]
    value_positions = np.zeros(len(maps), dtype=np.int64)
    value_positions[rows] = positions
    has_no_value = np.ones(len(maps), dtype=np.bool_)
    has_no_value[rows] = False
    if maps.null_count:
        has_no_value |= np.asarray(maps.is_null())
    return maps.items.take(pa.array(value_positions, mask=has_no_value))


def _matches(keys: pa.Array, key: pa.Scalar) -> Any:
    """Returns which of ``n`` keys equal ``key``. Shape ``(n,)``, bool."""
    if not pa.types.is_dictionary(keys.type):
        return pc.equal(keys, key).to_numpy(zero_copy_only=False)
    matching_indices = np.flatnonzero(pc.equal(keys.dictionary, key).to_numpy(zero_copy_only=False))
    indices = keys.indices.to_numpy()
    return (
        indices == matching_indices[0]
        if len(matching_indices) == 1
        else np.isin(indices, matching_indices)
    )
