"""The values of a map's key: ``pyarrow.compute.map_lookup``, all rows at once.

pyarrow looks at one map after the other, which takes several times as long as this.
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

MAP_LOOKUP = "map_lookup"
_FIRST = 0
"""``MapLookupOptions.occurrence``."""


def is_first(options: Mapping[str, Any]) -> bool:
    """Does a call of ``MAP_LOOKUP`` give the first value of a key that is there twice?"""
    return bool(options["occurrence"].as_py() == _FIRST)


def first_key(options: Mapping[str, Any], kind: pa.DataType | None) -> pa.Scalar | None:
    """The key of maps of type ``kind`` of which a call of ``MAP_LOOKUP`` gives the first value.

    None where it gives another, where keys are no texts, or of another type than that key.
    """
    key = options["query_key"]
    if kind is None or not pa.types.is_map(kind) or not is_first(options) or not key.is_valid:
        return None
    known = without_dictionary(kind.key_type)
    return key if is_text(known) and key.type == known else None


def asks_for_values_only(node: Node, schema: pa.Schema) -> bool:
    """Is all that is asked of maps, fields of ``schema``, a ``first_key``'s value?"""
    pending, fields = [node], set()
    while pending:  # chains are as long as filters are
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
    """The value of the first entry with ``key`` of each map; NULL where there is none.

    Keys may be dictionaries of texts.
    """
    return pa.chunked_array([_first_values(m, key) for m in maps.chunks], maps.type.item_type)


def _first_values(maps: pa.MapArray, key: pa.Scalar) -> pa.Array:
    offsets = np.asarray(maps.offsets)
    start, stop = (int(offsets[0]), int(offsets[-1])) if len(maps) else (0, 0)
    places = start + np.flatnonzero(_are(maps.keys.slice(start, stop - start), key))
    rows = np.searchsorted(offsets, places, side="right") - 1
    is_first = np.diff(rows, prepend=-1) != 0
    places, rows = places[is_first], rows[is_first]
    found = np.zeros(len(maps), dtype=np.int64)
    found[rows] = places
    lacking = np.ones(len(maps), dtype=np.bool_)
    lacking[rows] = False
    if maps.null_count:
        lacking |= np.asarray(maps.is_null())
    return maps.items.take(pa.array(found, mask=lacking))


def _are(keys: pa.Array, key: pa.Scalar) -> Any:
    """Which of ``n`` keys are ``key``. Shape ``(n,)``, bool."""
    if not pa.types.is_dictionary(keys.type):
        return pc.equal(keys, key).to_numpy(zero_copy_only=False)
    codes = np.flatnonzero(pc.equal(keys.dictionary, key).to_numpy(zero_copy_only=False))
    known = keys.indices.to_numpy()
    return known == codes[0] if len(codes) == 1 else np.isin(known, codes)
