"""ANDs and ORs over tests and matches: what a filter becomes, and what pruning walks through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from intarsia.predicate.leaves import Match, Op, Predicate, Test


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
    if any(isinstance(part, Never) for part in parts):
        return Never()
    flat = [p for part in parts for p in (part.parts if isinstance(part, And) else (part,))]
    known = [part for part in flat if not isinstance(part, Maybe)]
    kept = _memberships(known, Op.NE, Op.NOT_IN)
    return And(tuple(kept)) if len(kept) > 1 else kept[0] if kept else Maybe()


def any_of(*parts: Pruning) -> Pruning:
    """Rows that pass any part."""
    if any(isinstance(part, Maybe) for part in parts):
        return Maybe()
    flat = [p for part in parts for p in (part.parts if isinstance(part, Or) else (part,))]
    possible = [part for part in flat if not isinstance(part, Never)]
    kept = _memberships(possible, Op.EQ, Op.IN)
    return Or(tuple(kept)) if len(kept) > 1 else kept[0] if kept else Never()


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
