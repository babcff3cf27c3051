"""Filters made of a prepared condition and its values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date
from typing import NamedTuple

import pyarrow as pa

from intarsia.expr.comparison_operators import COMPARISONS
from intarsia.expr.nested_types import type_at
from intarsia.expr.tree import ANDS, Call, FieldRef, Literal, Node, conjuncts, joined
from intarsia.scan.request import Filter
from intarsia.sql.query.condition_template import ConditionTemplate

_CLASSES: tuple[tuple[Callable[[pa.DataType], bool], type], ...] = (
    (pa.types.is_string, str),
    (pa.types.is_large_string, str),
    (pa.types.is_integer, int),
    (pa.types.is_float64, float),
    (pa.types.is_date32, date),
)
"""The class of Python values that a SQL constant of a type can be made of without SQL."""


class _Slot(NamedTuple):
    """A comparison of a column with a parameter: ``function``, and the constant's type."""

    field: FieldRef
    function: str
    type: pa.DataType
    value_class: type
    parameter: int

    def takes(self, value: object) -> bool:
        """True if ``value`` becomes the constant as it is. SQL has none for NaN and infinity."""
        if isinstance(value, float) and not math.isfinite(value):
            return False
        return type(value) is self.value_class


class PreparedFilter:
    """Makes a filter of each set of values for the parameters of a condition. Threads may share it.

    The first values are translated as SQL constants. Where columns are only compared with
    parameters, later values of the same classes take the place of the first ones in the filter's
    tree.
    """

    def __init__(self, condition: ConditionTemplate) -> None:
        self.condition = condition
        self._compared = condition.compared_parameters()
        self._slots: tuple[tuple[_Slot, ...], pa.Schema] | None = None

    def bind(self, values: Sequence[object]) -> Filter:
        """Returns the filter with ``values``. Raises as ``ConditionTemplate.expression`` does."""
        self.condition.check(values)
        filter_ = self._fast_filter(values)
        if filter_ is None:
            filter_ = Filter.of(self.condition.expression(values), self.condition.schema)
            if self._compared and self._slots is None:
                slots = self._slots_of(filter_, self._compared, values)
                self._slots = None if slots is None else (slots, filter_.schema)
        return filter_

    def _slots_of(
        self, filter_: Filter, compared: Sequence[int], values: Sequence[object]
    ) -> tuple[_Slot, ...] | None:
        """Returns the slots of a filter whose tree has a comparison for each of its ``values``."""
        parts = conjuncts(filter_.node)
        if len(parts) != len(compared):
            return None
        slots = []
        for part, parameter in zip(parts, compared, strict=True):
            slot = _slot(part, parameter, self.condition.schema)
            if slot is None or not slot.takes(values[parameter]):
                return None
            slots.append(slot)
        return tuple(slots)

    def _fast_filter(self, values: Sequence[object]) -> Filter | None:
        """Returns the filter, made without SQL; None if a value is not like the first one."""
        if self._slots is None:
            return None
        slots, schema = self._slots
        nodes: list[Node] = []
        for slot in slots:
            value = values[slot.parameter]
            if not slot.takes(value):
                return None
            try:
                scalar = pa.scalar(value, slot.type)
            except (OverflowError, ValueError):
                return None
            nodes.append(Call(slot.function, (slot.field, Literal(scalar))))
        return Filter.of_tree(joined(ANDS[0], nodes), schema)


def _slot(node: Node, parameter: int, schema: pa.Schema) -> _Slot | None:
    match node:
        case Call(function, (FieldRef(path) as field, Literal(value))) if function in COMPARISONS:
            kind = type_at(schema, path)
            for is_kind, value_class in _CLASSES:
                if kind is not None and is_kind(kind) and is_kind(value.type):
                    return _Slot(field, function, value.type, value_class, parameter)
    return None
