"""Formulas that inverted indexes evaluate: ANDs and ORs over sets of keys, granule by granule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from intarsia.pruning.predicates import Predicate

FingerprintArray = NDArray[np.uint32]
KeyArray: TypeAlias = FingerprintArray | pa.Array
Granules = NDArray[np.uint32]
"""Numbers of granules, from 0."""
GranuleMask = NDArray[np.bool_]
"""True for each granule that is selected. Shape ``(granules,)``."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Selects granules that contain any of ``keys``.

    Parameters
    ----------
    keys : numpy.ndarray of uint32, shape ``(n,)``
        Fingerprints in any order.

    Examples
    --------
    >>> from intarsia.index import Keys, fingerprints
    >>> Keys(fingerprints(pa.array(["t7", "t8"]))).keys.shape
    (2,)
    """

    keys: FingerprintArray = field(compare=False)


@dataclass(frozen=True, slots=True)
class KeysWhere:
    """Selects granules that contain a key that passes ``predicate``. Keys are exact values.

    Parameters
    ----------
    predicate : Comparison or SearchPredicate
        Evaluated on each distinct key.

    Examples
    --------
    >>> from intarsia.index import KeysWhere, Op, Comparison
    >>> from intarsia.pruning.term import field_term
    >>> at_least_500 = Comparison(field_term("status"), Op.GE, pa.array([500], pa.int32()))
    >>> print(KeysWhere(at_least_500).predicate)
    status >= 500
    """

    predicate: Predicate


@dataclass(frozen=True, slots=True)
class Every:
    """Selects granules that pass every part.

    Parameters
    ----------
    parts : tuple of formulas
        At least one.

    Examples
    --------
    >>> from intarsia.index import Every, Keys, fingerprints
    >>> words = fingerprints(pa.array(["disk", "full"]))
    >>> len(Every((Keys(words[:1]), Keys(words[1:]))).parts)
    2
    """

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """Selects granules that pass at least one part.

    Parameters
    ----------
    parts : tuple of formulas
        An empty tuple selects no granule.

    Examples
    --------
    >>> from intarsia.index import Keys, Some, fingerprints
    >>> words = fingerprints(pa.array(["disk", "full"]))
    >>> len(Some((Keys(words[:1]), Keys(words[1:]))).parts)
    2
    """

    parts: tuple[Formula, ...]


Formula = Keys | KeysWhere | Every | Some


def leaves_of(formula: Formula) -> list[Keys | KeysWhere]:
    """Returns the leaves of a formula, in order. Raises ``TypeError`` for anything else."""
    match formula:
        case Every(parts) | Some(parts):
            return [leaf for part in parts for leaf in leaves_of(part)]
        case Keys() | KeysWhere():
            return [formula]
    name = type(formula).__name__
    raise TypeError(f"keys_for gave a {name}, not Keys, KeysWhere, Every or Some")


def granules_of(
    formula: Formula, granules_with: Callable[[Any], GranuleMask], num_granules: int
) -> GranuleMask:
    """Returns which granules pass ``formula``, asking ``granules_with`` as long as it matters."""
    match formula:
        case Every(parts):
            mask = np.ones(num_granules, dtype=np.bool_)
            for part in parts:
                mask = mask & granules_of(part, granules_with, num_granules)
                if not mask.any():
                    break
            return mask
        case Some(parts):
            mask = np.zeros(num_granules, dtype=np.bool_)
            for part in parts:
                mask = mask | granules_of(part, granules_with, num_granules)
            return mask
        case leaf:
            return granules_with(leaf)
