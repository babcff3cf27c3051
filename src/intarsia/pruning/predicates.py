"""The leaves of a pruning tree: what can be asked of one term.

A ``Test`` compares with constants, which bounds can answer as well as indexes. A ``Match`` looks
into texts or lists, which only indexes of some kinds can answer: without one, any row might match.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa

from intarsia.expr.comparison_operators import Op
from intarsia.expr.scalar_format import readable, readable_values
from intarsia.pruning.term import Term


class How(Enum):
    """How a match looks into a value."""

    LIKE = "LIKE"
    """The text is as the pattern of ``pyarrow.compute.match_like`` says."""
    SUBSTRING = "contains"
    STARTS_WITH = "starts with"
    ENDS_WITH = "ends with"
    REGEX = "matches"
    """A part of the text is as the RE2 pattern says."""
    WORDS = "has the words of"
    LIST_ANY = "contains any of"
    LIST_ALL = "contains all of"
    MAP_ANY = "has any key of"
    MAP_VALUE = "has any value of"
    """Of one key."""


_SHOWN = 3


def _no_values() -> pa.Array:
    return pa.array([], pa.null())


@dataclass(frozen=True, slots=True)
class Test:
    """One term against constants, ``values``, which are neither NULL nor NaN and of one type.

    ``nulls`` and ``nans`` say whether those rows pass as well.
    """

    term: Term
    op: Op
    values: pa.Array = field(default_factory=_no_values)
    nulls: bool = False
    nans: bool = False
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        first = self.values[0] if len(self.values) else None
        facts = (self.term, self.op, len(self.values), first, self.nulls, self.nans)
        object.__setattr__(self, "_hash", hash(facts))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Test], tuple[object, ...]]:
        """Without the hash, which is another one in every process."""
        return Test, (self.term, self.op, self.values, self.nulls, self.nans)

    def __str__(self) -> str:
        if self.op is Op.NONE:
            wanted = [word for word, asked in (("NULL", self.nulls), ("NAN", self.nans)) if asked]
            return f"{self.term} IS {' OR '.join(wanted)}" if wanted else f"never {self.term}"
        if self.op is Op.ANY:
            return f"{self.term} IS NOT NULL"
        if self.op in (Op.IN, Op.NOT_IN):
            return f"{self.term} {self.op.value} ({_shown(self.values)})"
        return f"{self.term} {self.op.value} {readable(self.values[0])}"


@dataclass(frozen=True, slots=True)
class Match:
    """One term that is a text, or a list, or a map, and what is looked for in it.

    ``pattern`` is a text, or ``values`` what a list, a map's keys, or the values of its ``key`` are
    to hold. ``through`` is ``utf8_lower`` or ``utf8_upper`` where the term's text goes through that
    function first. Where ``negated``, the rows asked for are those of which the match is FALSE;
    where ``nulls``, those of which it is NULL as well.
    """

    term: Term
    how: How
    pattern: str | bytes = ""
    ignore_case: bool = False
    values: pa.Array = field(default_factory=_no_values, hash=False)
    key: pa.Scalar | None = None
    through: str = ""
    negated: bool = False
    nulls: bool = False

    def __str__(self) -> str:
        if len(self.values):
            sought = f"({_shown(self.values)})"
        else:
            sought = repr(self.pattern) + (" in any case" if self.ignore_case else "")
        subject = (
            f"{self.through.removeprefix('utf8_')}({self.term})" if self.through else self.term
        )
        at = f" for {readable(self.key)!r}" if self.key is not None else ""
        shown = f"{subject} {self.how.value} {sought}{at}"
        return f"NOT {shown}" if self.negated else shown


Predicate = Test | Match
"""What can be asked of an index."""


def seeks_values(predicate: Predicate) -> bool:
    """Does only what equals a constant, or one of several, pass?"""
    if isinstance(predicate, Match):
        return predicate.how is How.MAP_VALUE
    return predicate.op in (Op.EQ, Op.IN) and not (predicate.nulls or predicate.nans)


def _shown(values: pa.Array) -> str:
    shown = ", ".join(map(str, readable_values(values[:_SHOWN])))
    more = f", … {len(values)} values" if len(values) > _SHOWN else ""
    return shown + more
