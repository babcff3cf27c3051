"""ANDs and ORs over tests and matches: what a filter becomes, and what pruning walks through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from intarsia.expr.comparison_operators import Op
from intarsia.pruning.predicates import Match, Predicate, Test


@dataclass(frozen=True, slots=True)
class And:
    """Rows that pass every part."""

    parts: tuple[Pruning, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Rows that pass any part."""

    parts: tuple[Pruning, ...]


@dataclass(frozen=True, slots=True)
class Maybe:
    """Not understood: any row might match."""


@dataclass(frozen=True, slots=True)
class Never:
    """No row can match."""


Pruning = Test | Match | And | Or | Maybe | Never


def tests_of(pruning: Pruning) -> list[Predicate]:
    """The distinct tests and matches of a pruning tree, in order of appearance."""
    match pruning:
        case Test() | Match():
            return [pruning]
        case And(parts) | Or(parts):
            return list(dict.fromkeys(test for part in parts for test in tests_of(part)))
        case _:
            return []


def all_of(*parts: Pruning) -> Pruning:
    """Rows that pass every part."""
    return _joined(parts, And, Maybe(), Never(), Op.NE, Op.NOT_IN)


def any_of(*parts: Pruning) -> Pruning:
    """Rows that pass any part."""
    return _joined(parts, Or, Never(), Maybe(), Op.EQ, Op.IN)


def _joined(
    parts: Sequence[Pruning],
    into: type[And] | type[Or],
    neutral: Pruning,
    decisive: Pruning,
    one: Op,
    many: Op,
) -> Pruning:
    """Parts as one: the ``decisive`` part where it is among them, and without ``neutral`` ones.

    Tests ``one`` by one for values of a term become a test for ``many``.
    """
    if decisive in parts:
        return decisive
    flat = [p for part in parts for p in (part.parts if isinstance(part, into) else (part,))]
    kept = _memberships([part for part in flat if part != neutral], one, many)
    return into(tuple(kept)) if len(kept) > 1 else kept[0] if kept else neutral


def _memberships(parts: Sequence[Pruning], one: Op, many: Op) -> list[Pruning]:
    """Parts, those about values of one term as one: ``a = 1 OR a = 2`` as ``a IN (1, 2)``."""
    kept: list[Pruning] = []
    alike: dict[object, list[Test]] = {}
    for part in parts:
        # Membership tells −0.0 from +0.0, comparison does not.
        if (
            isinstance(part, Test)
            and part.op in (one, many)
            and not pa.types.is_floating(part.values.type)
        ):
            key = (part.term, part.values.type, part.nulls, part.nans)
            alike.setdefault(key, []).append(part)
        else:
            kept.append(part)
    return kept + [_membership(tests, many) for tests in alike.values()]


def _membership(tests: list[Test], op: Op) -> Test:
    if len(tests) == 1:
        return tests[0]
    return replace(tests[0], op=op, values=pa.concat_arrays([test.values for test in tests]))
