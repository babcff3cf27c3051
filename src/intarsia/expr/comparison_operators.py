"""Comparison operators, and the functions of Arrow that stand for them."""

from __future__ import annotations

from enum import Enum


class Op(Enum):
    """Comparisons of values that are neither NULL nor NaN with constants."""

    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IN = "IN"
    NOT_IN = "NOT IN"
    ANY = "ANY"
    """Every value passes."""
    NONE = "NONE"
    """No value passes."""


MIRRORED = {Op.LT: Op.GT, Op.GT: Op.LT, Op.LE: Op.GE, Op.GE: Op.LE}
"""The operator for swapped operands: ``a < b`` is ``b > a``."""
COMPARISONS = {
    "equal": Op.EQ,
    "not_equal": Op.NE,
    "less": Op.LT,
    "less_equal": Op.LE,
    "greater": Op.GT,
    "greater_equal": Op.GE,
}
"""The operator for each Arrow function."""
