"""Selects the keys of a formula that an index probe looks up, within a budget of bytes.

A string search requires many keys, and some of them are in every second granule. Looking up fewer
keys only lets more granules pass. So the rare keys of an AND are looked up first. The others follow
if more than a few granules remain and the budget allows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from intarsia.index.key_formula import Every, Formula, Keys, KeysWhere, Some

_ENOUGH_SELECTIVITY = 1e-6
"""Keys are added to the first lookup until this share of granules is expected to remain.

The estimate assumes that keys are independent.
"""


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of looking up keys, estimated from a section's column index.

    ``of`` returns the numbers of the pages that may hold the keys, and the share of granules, 0 to
    1, expected to contain one. ``sizes`` holds the bytes of each page.
    """

    of: Callable[[Keys], tuple[Sequence[int], float]]
    sizes: Sequence[int]


class ProbeBudget:
    """The bytes that a probe may still read for the keys of one formula."""

    def __init__(self, costs: Costs, max_bytes: int) -> None:
        self._costs, self._bytes_left = costs, max_bytes
        self._paid_pages: frozenset[int] = frozenset()
        self._costs_by_leaf: dict[int, tuple[Sequence[int], float]] = {}

    def first(self, formula: Formula) -> tuple[Formula | None, Every | None]:
        """Returns a formula to look up first, or None, and one if much remains."""
        if not isinstance(formula, Every):
            return self._affordable(formula)[0], None
        parts = sorted(_flatten(formula), key=self._selectivity)
        affordable, used = self._affordable_parts(parts, _ENOUGH_SELECTIVITY)
        return _make_every(affordable), Every(tuple(parts[used:])) if used < len(parts) else None

    def more(self, rest: Every) -> Formula | None:
        """Returns the affordable part of the second formula of ``first``, or None."""
        self._paid_pages = frozenset()
        return self._affordable(rest)[0]

    def _affordable(self, formula: Formula) -> tuple[Formula | None, float]:
        """Returns the part of a formula to look up, and the share of granules that then remain."""
        match formula:
            case Keys():
                return self._affordable_leaf(formula)
            case Every():
                parts = sorted(_flatten(formula), key=self._selectivity)
                affordable, _ = self._affordable_parts(parts, 0.0)
                selectivity = math.prod(map(self._selectivity, affordable))
                return _make_every(affordable), selectivity
            case Some(parts):
                return self._affordable_some(parts)
            case KeysWhere():
                return formula, 1.0

    def _affordable_leaf(self, leaf: Keys) -> tuple[Formula | None, float]:
        leaf_pages, share = self._cost_of(leaf)
        pages = frozenset(leaf_pages) - self._paid_pages
        size = sum(self._costs.sizes[page] for page in pages)
        if size > self._bytes_left:
            return None, 1.0
        self._bytes_left -= size
        self._paid_pages |= pages
        return leaf, share

    def _cost_of(self, leaf: Keys) -> tuple[Sequence[int], float]:
        if id(leaf) not in self._costs_by_leaf:
            self._costs_by_leaf[id(leaf)] = self._costs.of(leaf)
        return self._costs_by_leaf[id(leaf)]

    def _affordable_parts(
        self, parts: Sequence[Formula], enough: float
    ) -> tuple[list[Formula], int]:
        """Returns the affordable parts until they are selective enough, and how many it checked."""
        affordable: list[Formula] = []
        selectivity = 1.0
        for num_used, part in enumerate(parts, 1):
            affordable_part, share = self._affordable(part)
            if affordable_part is not None:
                affordable.append(affordable_part)
                selectivity *= share
            if selectivity < enough:
                return affordable, num_used
        return affordable, len(parts)

    def _affordable_some(self, parts: Sequence[Formula]) -> tuple[Formula | None, float]:
        before = self._bytes_left, self._paid_pages
        affordable: list[Formula] = []
        selectivity = 0.0
        for part in parts:
            affordable_part, share = self._affordable(part)
            if affordable_part is None:
                self._bytes_left, self._paid_pages = before
                return None, 1.0
            affordable.append(affordable_part)
            selectivity += share
        return Some(tuple(affordable)), min(selectivity, 1.0)

    def _selectivity(self, formula: Formula) -> float:
        """Returns the share of granules that are expected to pass."""
        match formula:
            case Keys():
                return self._cost_of(formula)[1]
            case Every(parts):
                return math.prod(map(self._selectivity, parts))
            case Some(parts):
                return min(sum(self._selectivity(part) for part in parts), 1.0)
            case KeysWhere():
                return 1.0


def _make_every(parts: Sequence[Formula]) -> Formula | None:
    return Every(tuple(parts)) if len(parts) > 1 else parts[0] if parts else None


def _flatten(formula: Every) -> list[Formula]:
    """Returns the parts, with nested ANDs flattened."""
    return [
        inner
        for part in formula.parts
        for inner in (_flatten(part) if isinstance(part, Every) else [part])
    ]
