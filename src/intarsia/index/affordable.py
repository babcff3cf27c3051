"""Which keys of a formula are looked for, where all of them would cost more than they save.

What a text must contain are many keys, some of which are in every other granule. Fewer keys only
let more granules through, so the frequent ones of a conjunction are left out first: those beyond
what may be read, and those that come after enough others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from intarsia.index.formula import Every, Formula, Keys, KeysWhere, Some
from intarsia.ranges import Int64Array

_ENOUGH = 1e-12
"""Of this part of the granules, were keys independent of each other, no more are ruled out."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What looking for keys takes, as a section's column index tells it.

    ``of`` gives the numbers of the pages that keys may be on, and the part of all granules, 0 to
    1, that are expected to have one; ``sizes`` are the bytes of all pages.
    """

    of: Callable[[Keys], tuple[Int64Array, float]]
    sizes: Int64Array


def affordable(formula: Formula, costs: Costs, most_bytes: int) -> Formula | None:
    """What can be told of ``formula`` by reading ``most_bytes``: it holds wherever that one does.

    None where that is nothing.
    """
    found, _ = _Purse(costs, most_bytes).taken(formula)
    return found


class _Purse:
    def __init__(self, costs: Costs, most_bytes: int) -> None:
        self._costs, self._left = costs, most_bytes
        self._read: frozenset[int] = frozenset()
        self._known: dict[int, tuple[Int64Array, float]] = {}

    def taken(self, formula: Formula) -> tuple[Formula | None, float]:
        """What is looked for of ``formula``, and the part of granules that are then left."""
        match formula:
            case Keys():
                return self._leaf(formula)
            case Every():
                return self._every(formula)
            case Some(parts):
                return self._some(parts)
            case KeysWhere():
                return formula, 1.0

    def _leaf(self, leaf: Keys) -> tuple[Formula | None, float]:
        on, share = self._of(leaf)
        pages = frozenset(on.tolist()) - self._read
        size = int(self._costs.sizes[sorted(pages)].sum())
        if size > self._left:
            return None, 1.0
        self._left -= size
        self._read |= pages
        return leaf, share

    def _of(self, leaf: Keys) -> tuple[Int64Array, float]:
        if id(leaf) not in self._known:
            self._known[id(leaf)] = self._costs.of(leaf)
        return self._known[id(leaf)]

    def _every(self, formula: Every) -> tuple[Formula | None, float]:
        parts = sorted(_flat(formula), key=self._expected)
        found: list[Formula] = []
        left = 1.0
        for part in parts:
            kept, share = self.taken(part)
            if kept is not None:
                found.append(kept)
                left *= share
            if left < _ENOUGH:
                break
        if not found:
            return None, 1.0
        return (Every(tuple(found)) if len(found) > 1 else found[0]), left

    def _some(self, parts: Sequence[Formula]) -> tuple[Formula | None, float]:
        before = self._left, self._read
        found: list[Formula] = []
        left = 0.0
        for part in parts:
            kept, share = self.taken(part)
            if kept is None:
                self._left, self._read = before
                return None, 1.0
            found.append(kept)
            left += share
        return Some(tuple(found)), min(left, 1.0)

    def _expected(self, formula: Formula) -> float:
        """The part of granules that are expected to pass."""
        match formula:
            case Keys():
                return self._of(formula)[1]
            case Every(parts):
                return float(np.prod([self._expected(part) for part in parts]))
            case Some(parts):
                return min(sum(self._expected(part) for part in parts), 1.0)
            case KeysWhere():
                return 1.0


def _flat(formula: Every) -> list[Formula]:
    """The parts, and those of parts that are ANDs themselves."""
    return [
        inner
        for part in formula.parts
        for inner in (_flat(part) if isinstance(part, Every) else [part])
    ]
