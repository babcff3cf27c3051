"""Which keys of a formula are looked for, where all of them would cost more than they save.

What a text must contain are many keys, some of which are in every other granule. Fewer keys only
let more granules through, so the rare ones of a conjunction are looked for first. The others follow
where these have left more than a few granules, as far as they may be read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from intarsia.index.key_formula import Every, Formula, Keys, KeysWhere, Some

_ENOUGH = 1e-6
"""Keys that leave this part of the granules, were they independent, are looked for first."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What looking for keys takes, as a section's column index tells it.

    ``of`` gives the numbers of the pages that keys may be on, and the part of all granules, 0 to
    1, that are expected to have one; ``sizes`` are the bytes of all pages.
    """

    of: Callable[[Keys], tuple[Sequence[int], float]]
    sizes: Sequence[int]


class Purse:
    """What may be spent on looking for the keys of one formula."""

    def __init__(self, costs: Costs, most_bytes: int) -> None:
        self._costs, self._left = costs, most_bytes
        self._read: frozenset[int] = frozenset()
        self._known: dict[int, tuple[Sequence[int], float]] = {}

    def first(self, formula: Formula) -> tuple[Formula | None, Every | None]:
        """What is to be looked for first, and what besides if that leaves more than a few granules.

        Both hold wherever ``formula`` does; the first is ``None`` where nothing is affordable.
        """
        if not isinstance(formula, Every):
            return self._taken(formula)[0], None
        parts = sorted(_flat(formula), key=self._expected)
        found, used = self._parts(parts, _ENOUGH)
        return _every(found), Every(tuple(parts[used:])) if used < len(parts) else None

    def more(self, rest: Every) -> Formula | None:
        """What is affordable of the second of ``first``; None where that is nothing."""
        self._read = frozenset()
        return self._taken(rest)[0]

    def _taken(self, formula: Formula) -> tuple[Formula | None, float]:
        """What is looked for of a formula, and the part of granules that are then left."""
        match formula:
            case Keys():
                return self._leaf(formula)
            case Every():
                parts = sorted(_flat(formula), key=self._expected)
                found, _ = self._parts(parts, 0.0)
                left = math.prod(map(self._expected, found))
                return _every(found), left
            case Some(parts):
                return self._some(parts)
            case KeysWhere():
                return formula, 1.0

    def _leaf(self, leaf: Keys) -> tuple[Formula | None, float]:
        on, share = self._of(leaf)
        pages = frozenset(on) - self._read
        size = sum(self._costs.sizes[page] for page in pages)
        if size > self._left:
            return None, 1.0
        self._left -= size
        self._read |= pages
        return leaf, share

    def _of(self, leaf: Keys) -> tuple[Sequence[int], float]:
        if id(leaf) not in self._known:
            self._known[id(leaf)] = self._costs.of(leaf)
        return self._known[id(leaf)]

    def _parts(self, parts: Sequence[Formula], enough: float) -> tuple[list[Formula], int]:
        """Those of parts that are affordable, until enough are; and how many were gone through."""
        found: list[Formula] = []
        left = 1.0
        for used, part in enumerate(parts, 1):
            kept, share = self._taken(part)
            if kept is not None:
                found.append(kept)
                left *= share
            if left < enough:
                return found, used
        return found, len(parts)

    def _some(self, parts: Sequence[Formula]) -> tuple[Formula | None, float]:
        before = self._left, self._read
        found: list[Formula] = []
        left = 0.0
        for part in parts:
            kept, share = self._taken(part)
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
                return math.prod(map(self._expected, parts))
            case Some(parts):
                return min(sum(self._expected(part) for part in parts), 1.0)
            case KeysWhere():
                return 1.0


def _every(parts: Sequence[Formula]) -> Formula | None:
    return Every(tuple(parts)) if len(parts) > 1 else parts[0] if parts else None


def _flat(formula: Every) -> list[Formula]:
    """The parts, and those of parts that are ANDs themselves."""
    return [
        inner
        for part in formula.parts
        for inner in (_flat(part) if isinstance(part, Every) else [part])
    ]
