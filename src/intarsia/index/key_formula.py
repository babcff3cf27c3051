"""What a predicate asks of an inverted index: ANDs and ORs over sets of keys, granule by granule.

A granule passes ``Keys`` where it holds one of them, ``Every`` where it passes all parts, ``Some``
where it passes any. ``KeysWhere`` are the keys, exact values, that a predicate lets pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from intarsia.pruning.predicates import Predicate

FingerprintArray = NDArray[np.uint32]
KeyArray = FingerprintArray | pa.Array
Granules = NDArray[np.uint32]
"""Numbers of granules."""
GranuleMask = NDArray[np.bool_]
"""For each granule there is, whether it is meant."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Granules that hold any of ``keys``: fingerprints, in any order, of shape ``(n,)``."""

    keys: FingerprintArray = field(compare=False)


@dataclass(frozen=True, slots=True)
class KeysWhere:
    """Granules that hold a key, itself a value, which passes ``predicate``."""

    predicate: Predicate


@dataclass(frozen=True, slots=True)
class Every:
    """Granules that pass every part; there is at least one."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """Granules that pass any part."""

    parts: tuple[Formula, ...]


Formula = Keys | KeysWhere | Every | Some


def leaves_of(formula: Formula) -> list[Keys | KeysWhere]:
    """The leaves of a formula, in order."""
    match formula:
        case Every(parts) | Some(parts):
            return [leaf for part in parts for leaf in leaves_of(part)]
        case _:
            return [formula]


def granules_of(
    formula: Formula, held: Callable[[Any], GranuleMask], num_granules: int
) -> GranuleMask:
    """Which of ``num_granules`` pass, by those ``held`` gives for each leaf.

    Leaves that can change nothing any more are not asked for.
    """
    match formula:
        case Every(parts):
            found = np.ones(num_granules, dtype=np.bool_)
            for part in parts:
                found = found & granules_of(part, held, num_granules)
                if not found.any():
                    break
            return found
        case Some(parts):
            found = np.zeros(num_granules, dtype=np.bool_)
            for part in parts:
                found = found | granules_of(part, held, num_granules)
            return found
        case leaf:
            return held(leaf)
