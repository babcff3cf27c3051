"""``Entries``: fingerprints of what maps hold, of their keys and of keys with their values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.casts import is_text
from intarsia.expr.comparison_operators import Op
from intarsia.expr.functions import compares, held_constants
from intarsia.index.base import Inverted, Positions, Reads, Subject, as_bytes, fingerprints
from intarsia.index.indexed_type import order_of_type
from intarsia.index.key_formula import FingerprintArray, Formula, Keys
from intarsia.index.literal_encoding import exact_values, unfit_for_hashing
from intarsia.parquet.xxhash64 import hash_values
from intarsia.pruning.predicates import How, Match, Predicate, Test
from intarsia.row_ranges import UInt64Array


@dataclass(frozen=True)
class Entries(Inverted):
    """An index of maps: which granules have rows with a key, and with a value of a key.

    One index serves all keys: conditions on any value by ``=`` and ``IN``, and whether keys are
    there, which all other conditions on values need. A map's key has the fingerprint that
    ``Elements`` gives it; an entry the high 32 bits of XXH64 (seed 0) over two hashes, of the key
    and of the value as ``Lookup`` hashes it, each of 64 bits and little-endian. Of entries whose
    value is NULL or NaN, which equal nothing, only the key is indexed.

    ``on`` is the path of a column of maps, itself or within structs. Keys that are no texts are
    refused, as are values that ``Lookup`` does not take. Otherwise as ``Lookup``.
    """

    kind = "entries"
    reads = Reads.ENTRIES
    serves = frozenset({How.MAP_ANY, How.MAP_VALUE})

    def unfit(self, of: Subject) -> str | None:
        key, value = _types(of)
        if not is_text(key):
            return f"its keys, of type {key}, are no texts"
        if pa.types.is_nested(value):
            return f"its values, of type {value}, are nested"
        reason = unfit_for_hashing(order_of_type(value))
        return f"of its values, {reason}" if reason else None

    def keys_of_values(self, values: pa.Array) -> tuple[FingerprintArray, Positions]:
        keys, held = as_bytes(values.field("key")), values.field("value")
        positions = np.arange(len(values), dtype=np.int64)
        equal = pc.fill_null(pc.equal(held, held), False)  # NULL and NaN are not
        at = positions[equal.to_numpy(zero_copy_only=False)]
        entries = _of_entries(hash_values(keys)[at], hash_values(held.filter(equal)))
        return np.concatenate([fingerprints(keys), entries]), np.concatenate([positions, at])

    def keys_for(self, predicate: Predicate, of: Subject) -> Formula | None:
        assert isinstance(predicate, Match)
        key_type, value_type = _types(of)
        sought = predicate.values if predicate.key is None else pa.repeat(predicate.key, 1)
        if not compares(key_type, sought.type):
            return None
        keys = as_bytes(held_constants(sought, key_type)[0])
        if predicate.how is How.MAP_ANY or not len(keys):
            return Keys(np.unique(fingerprints(keys)))
        test = Test(of.term, Op.IN, predicate.values)
        values = exact_values(test, order_of_type(value_type))
        if values is None:
            return None
        hashes = hash_values(values)
        known = np.repeat(hash_values(keys), len(hashes))
        return Keys(np.unique(_of_entries(known, hashes)))


def _types(of: Subject) -> tuple[pa.DataType, pa.DataType]:
    """The types of keys and of values."""
    return of.type.field("key").type, of.type.field("value").type


def _of_entries(keys: UInt64Array, values: UInt64Array) -> FingerprintArray:
    """The fingerprints of ``n`` entries by the hashes of their keys and values. Shape ``(n,)``."""
    pairs = np.column_stack([keys, values]).astype("<u8", copy=False)
    buffers = [None, pa.py_buffer(np.ascontiguousarray(pairs))]
    return fingerprints(pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(pairs), buffers))
