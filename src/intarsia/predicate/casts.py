"""Casts that keep every value, and so every comparison, in whatever engine."""

from __future__ import annotations

import pyarrow as pa

_MANTISSA = {16: 11, 32: 24, 64: 53}
"""Bits of integers that a float of so many bits holds exactly."""


def keeps_values(kind: pa.DataType, target: pa.DataType) -> bool:
    """Is a cast from ``kind`` to ``target`` exact for every value?

    Known of integers and floats that become wider, and of texts.
    """
    if kind == target:
        return True
    if pa.types.is_integer(kind):
        signed = pa.types.is_signed_integer(kind)
        bits = kind.bit_width - signed
        if pa.types.is_integer(target):
            to_signed = pa.types.is_signed_integer(target)
            return bool(target.bit_width - to_signed >= bits and (to_signed or not signed))
        return bool(pa.types.is_floating(target)) and bits <= _MANTISSA[target.bit_width]
    if pa.types.is_floating(kind):
        return bool(pa.types.is_floating(target)) and kind.bit_width <= target.bit_width
    return is_text(kind) and is_text(target)


def is_text(kind: pa.DataType) -> bool:
    """Is it text, of offsets of either size?"""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
