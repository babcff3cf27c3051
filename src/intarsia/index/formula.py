"""What a predicate asks of an inverted index: ANDs and ORs over sets of keys, granule by granule.

A granule passes ``Keys`` where it holds one of them, ``Every`` where it passes all parts, ``Some``
where it passes any. ``KeysWhere`` are the keys, exact values, that a predicate lets pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from intarsia.predicate.leaves import Predicate

FingerprintArray = NDArray[np.uint32]
KeyArray = FingerprintArray | pa.Array
Granules = NDArray[np.uint32]
"""Numbers of granules, sorted and distinct."""


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


def granules_of(formula: Formula, held: Callable[[Any], Granules]) -> Granules:
    """The granules that pass, by those ``held`` gives for each leaf."""
    match formula:
        case Every(parts):
            return reduce(np.intersect1d, (granules_of(part, held) for part in parts))
        case Some(parts):
            none = np.empty(0, dtype=np.uint32)
            return reduce(np.union1d, (granules_of(part, held) for part in parts), none)
        case leaf:
            return held(leaf)
