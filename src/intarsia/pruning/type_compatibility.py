"""Whether values of a file's type and of a data set's type compare alike.

A filter is evaluated on values in the data set's type. Bounds and indexes hold values in the file's
type. They can be used if the conversion from one to the other keeps every value and every
comparison.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from intarsia.expr.casts import without_extension
from intarsia.expr.functions import is_list
from intarsia.expr.nested_types import without_dictionary

_RANK_BY_UNIT = {"s": 0, "ms": 1, "us": 2, "ns": 3}


def types_agree_at(
    stored: pa.DataType, seen: pa.DataType, path: Sequence[str], *, exactly: bool = False
) -> bool:
    """True if the types at ``path``, through structs, agree.

    With ``exactly``, they must agree for any function of the values: they are one type, or two
    string types.
    """
    for name in path:
        if not (pa.types.is_struct(stored) and pa.types.is_struct(seen)):
            break
        places = stored.get_field_index(name), seen.get_field_index(name)
        if min(places) < 0:
            return False
        stored, seen = stored.field(places[0]).type, seen.field(places[1]).type
    if exactly:
        stored, seen = without_extension(stored), without_extension(seen)
        return bool(stored.equals(seen) or (_is_text(stored) and _is_text(seen)))
    return types_agree(stored, seen)


def types_agree(stored: pa.DataType, seen: pa.DataType) -> bool:
    """True if reading ``stored`` as ``seen`` is exact for every value that it does not reject."""
    stored, seen = without_extension(stored), without_extension(seen)
    if stored.equals(seen):
        return True
    if pa.types.is_dictionary(stored) or pa.types.is_dictionary(seen):
        return types_agree(without_dictionary(stored), without_dictionary(seen))
    if is_list(stored) and is_list(seen):
        return types_agree(stored.value_type, seen.value_type)
    if pa.types.is_map(stored) and pa.types.is_map(seen):
        return types_agree(stored.key_type, seen.key_type) and types_agree(
            stored.item_type, seen.item_type
        )
    if pa.types.is_integer(stored) and pa.types.is_integer(seen):
        return True
    if pa.types.is_floating(stored) and pa.types.is_floating(seen):
        return bool(stored.bit_width <= seen.bit_width)
    if pa.types.is_decimal(stored) and pa.types.is_decimal(seen):
        return bool(stored.scale <= seen.scale)
    if pa.types.is_timestamp(stored) and pa.types.is_timestamp(seen):
        zoned = (stored.tz is None) == (seen.tz is None)
        return zoned and _RANK_BY_UNIT[stored.unit] <= _RANK_BY_UNIT[seen.unit]
    return _is_text(stored) and _is_text(seen)


def _is_text(kind: pa.DataType) -> bool:
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(check(kind) for check in checks)
