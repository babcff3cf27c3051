"""Operators that compare values with constants, and the functions of Arrow that stand for them."""

from __future__ import annotations

from enum import Enum


class Op(Enum):
    """Operators of comparisons with values that are neither NULL nor NaN."""

    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IN = "IN"
    NOT_IN = "NOT IN"
    ANY = "ANY"
    NONE = "NONE"


MIRRORED = {Op.LT: Op.GT, Op.GT: Op.LT, Op.LE: Op.GE, Op.GE: Op.LE}
"""The operator for exchanged operands: ``a < b`` is ``b > a``."""
COMPARISONS = {
    "equal": Op.EQ,
    "not_equal": Op.NE,
    "less": Op.LT,
    "less_equal": Op.LE,
    "greater": Op.GT,
    "greater_equal": Op.GE,
}
"""The operator by the name of its Arrow function."""
