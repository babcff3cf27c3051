"""``Entries``: fingerprints of the keys of maps, and of keys with their values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.casts import is_text
from intarsia.expr.comparison_operators import Op
from intarsia.expr.functions import compares, representable_constants
from intarsia.index.base import Inverted, Positions, Reads, Subject, fingerprints
from intarsia.index.indexed_type import order_of_type
from intarsia.index.key_formula import FingerprintArray, Formula, Keys
from intarsia.index.literal_encoding import as_bytes, exact_values, unfit_for_hashing
from intarsia.parquet.xxhash64 import hash_values
from intarsia.pruning.predicates import Comparison, How, Predicate, SearchPredicate
from intarsia.row_ranges import UInt64Array, distinct


@dataclass(frozen=True)
class Entries(Inverted):
    """An index of map entries, for rows with a key, and with a value of a key.

    One index serves all keys: ``=`` and ``IN`` on a key's value, and the existence of a key, which
    all other conditions on its value require.

    A map's key has the fingerprint that ``Elements`` gives it. An entry has the high 32 bits of
    XXH64 (seed 0) over two hashes of 64 bits, little-endian: that of its key, and that of its value
    as ``Lookup`` hashes it. If the value is NULL or NaN, only the key is indexed.

    Parameters
    ----------
    on : str or pyarrow.compute.Expression
        Path of a column of maps, at the top level or within structs. Keys that are not strings are
        refused, and values that ``Lookup`` refuses.
    granule_rows : int, default 8192
        Most rows per granule, 1 to 2**31 - 1. A column's longer pages are divided.

    Raises
    ------
    IndexSpecError
        If ``granule_rows`` is out of range, or the Expression cannot be indexed.

    Examples
    --------
    >>> attrs = pa.array([[("host", "a")], [("host", "b")]], pa.map_(pa.string(), pa.string()))
    >>> reports = ia.write_table(
    ...     pa.table({"attrs": attrs}), "maps.parquet", indexes=[ia.Entries("attrs")]
    ... )
    >>> ia.dataset("maps.parquet").to_table(filter="attrs['host'] = 'b'").num_rows
    1
    """

    kind = "entries"
    reads = Reads.ENTRIES
    serves = frozenset({How.MAP_ANY, How.MAP_VALUE})

    def unfit(self, of: Subject) -> str | None:
        key, value = _types(of)
        if not is_text(key):
            return f"its keys, of type {key}, are not strings"
        if pa.types.is_nested(value):
            return f"its values, of type {value}, are nested"
        reason = unfit_for_hashing(order_of_type(value))
        return f"of its values, {reason}" if reason else None

    def keys_of_values(self, values: pa.Array) -> tuple[FingerprintArray, Positions]:
        keys, map_values = as_bytes(values.field("key")), values.field("value")
        positions = np.arange(len(values), dtype=np.int64)
        has_value = pc.fill_null(pc.equal(map_values, map_values), False)  # false for NULL and NaN
        valued_positions = positions[has_value.to_numpy(zero_copy_only=False)]
        entries = _entry_fingerprints(
            hash_values(keys)[valued_positions], hash_values(map_values.filter(has_value))
        )
        return np.concatenate([fingerprints(keys), entries]), np.concatenate(
            [positions, valued_positions]
        )

    def keys_for(self, predicate: Predicate, of: Subject) -> Formula | None:
        assert isinstance(predicate, SearchPredicate)
        key_type, value_type = _types(of)
        search_keys = predicate.values if predicate.key is None else pa.repeat(predicate.key, 1)
        if not compares(key_type, search_keys.type):
            return None
        keys = as_bytes(representable_constants(search_keys, key_type)[0])
        if predicate.how is How.MAP_ANY or not len(keys):
            return Keys(distinct(fingerprints(keys)))
        comparison = Comparison(of.term, Op.IN, predicate.values)
        values = exact_values(comparison, order_of_type(value_type))
        if values is None:
            return None
        hashes = hash_values(values)
        key_hashes = np.repeat(hash_values(keys), len(hashes))
        return Keys(distinct(_entry_fingerprints(key_hashes, hashes)))


def _types(of: Subject) -> tuple[pa.DataType, pa.DataType]:
    """Returns the types of keys and values."""
    return of.type.field("key").type, of.type.field("value").type


def _entry_fingerprints(keys: UInt64Array, values: UInt64Array) -> FingerprintArray:
    """Returns the fingerprints of ``n`` entries by hashes of keys and values. Shape ``(n,)``."""
    pairs = np.column_stack([keys, values]).astype("<u8", copy=False)
    buffers = [None, pa.py_buffer(np.ascontiguousarray(pairs))]
    return fingerprints(pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(pairs), buffers))
