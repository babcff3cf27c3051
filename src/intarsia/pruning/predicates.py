"""Pruning trees: predicates on one term, joined by AND and OR, and their evaluation.

A ``Comparison`` is one with constants; bounds and indexes can evaluate it. A ``SearchPredicate``
searches in strings, lists or maps. Only some kinds of indexes can evaluate it: without one, any row
might match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import pyarrow as pa

from intarsia.expr.comparison_operators import Op
from intarsia.expr.scalar_format import readable, readable_values
from intarsia.pruning.term import Term
from intarsia.row_ranges import RowRanges


class How(Enum):
    """The way in which a ``SearchPredicate`` searches in a value."""

    LIKE = "LIKE"
    """The string matches the pattern of ``pyarrow.compute.match_like``."""
    SUBSTRING = "contains"
    STARTS_WITH = "starts with"
    ENDS_WITH = "ends with"
    REGEX = "matches"
    """A part of the string matches the RE2 pattern."""
    WORDS = "has the words of"
    LIST_ANY = "contains any of"
    LIST_ALL = "contains all of"
    MAP_ANY = "has any key of"
    MAP_VALUE = "has any value of"
    """The values of one key."""


_MAX_SHOWN_VALUES = 3


def _no_values() -> pa.Array:
    return pa.array([], pa.null())


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of one term with constants.

    Attributes
    ----------
    term : Term
        The field or function of fields that is compared.
    op : Op
        The comparison.
    values : pyarrow.Array
        The constants, of one type; none is NULL or NaN.
    nulls, nans : bool
        True if rows where the term is NULL, or NaN, pass as well.

    Examples
    --------
    >>> from intarsia.index import Op, Comparison
    >>> from intarsia.pruning.term import field_term
    >>> str(Comparison(field_term("status"), Op.GE, pa.array([500])))
    'status >= 500'
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

    def __reduce__(self) -> tuple[type[Comparison], tuple[object, ...]]:
        """Returns the fields without the hash, which differs between processes."""
        return Comparison, (self.term, self.op, self.values, self.nulls, self.nans)

    def __str__(self) -> str:
        if self.op is Op.NONE:
            passing = [
                word for word, passes in (("NULL", self.nulls), ("NAN", self.nans)) if passes
            ]
            return f"{self.term} IS {' OR '.join(passing)}" if passing else f"never {self.term}"
        if self.op is Op.ANY:
            return f"{self.term} IS NOT NULL"
        if self.op in (Op.IN, Op.NOT_IN):
            return f"{self.term} {self.op.value} ({_format_values(self.values)})"
        return f"{self.term} {self.op.value} {readable(self.values[0])}"


@dataclass(frozen=True, slots=True)
class SearchPredicate:
    """A search for strings, elements, keys or values in one term: a string, a list or a map.

    Attributes
    ----------
    term : Term
        The field or function of fields that is searched.
    how : How
        The kind of search.
    pattern : str or bytes
        The string or pattern to search for; empty if ``values`` are searched for.
    ignore_case : bool
        True if upper and lower case count as equal.
    values : pyarrow.Array
        The elements of a list, keys of a map, or values of its ``key`` to search for.
    key : pyarrow.Scalar or None
        The key of a map whose value is searched.
    through : str
        ``utf8_lower`` or ``utf8_upper`` if this function is applied to the term's string first.
    negated : bool
        True if the predicate is for rows where the search is FALSE.
    nulls : bool
        True if rows where the search is NULL pass as well.

    Examples
    --------
    >>> from intarsia.index import How, SearchPredicate
    >>> from intarsia.pruning.term import field_term
    >>> str(SearchPredicate(field_term("msg"), How.SUBSTRING, "timeout"))
    "msg contains 'timeout'"
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
            sought = f"({_format_values(self.values)})"
        else:
            sought = repr(self.pattern) + (" in any case" if self.ignore_case else "")
        subject = (
            f"{self.through.removeprefix('utf8_')}({self.term})" if self.through else self.term
        )
        at = f" for {readable(self.key)!r}" if self.key is not None else ""
        shown = f"{subject} {self.how.value} {sought}{at}"
        return f"NOT {shown}" if self.negated else shown


Predicate = Comparison | SearchPredicate
"""A condition that an index can evaluate."""


def seeks_values(predicate: Predicate) -> bool:
    """True if only values that equal one of the constants pass."""
    if isinstance(predicate, SearchPredicate):
        return predicate.how is How.MAP_VALUE
    return predicate.op in (Op.EQ, Op.IN) and not (predicate.nulls or predicate.nans)


def _format_values(values: pa.Array) -> str:
    shown = ", ".join(map(str, readable_values(values[:_MAX_SHOWN_VALUES])))
    more = f", … {len(values)} values" if len(values) > _MAX_SHOWN_VALUES else ""
    return shown + more


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
    """A condition that is not understood: any row might match."""


@dataclass(frozen=True, slots=True)
class Never:
    """A condition that no row can match."""


Pruning = Comparison | SearchPredicate | And | Or | Maybe | Never


def predicates_of(pruning: Pruning) -> list[Predicate]:
    """Returns the distinct predicates of a pruning tree, in order of appearance."""
    match pruning:
        case Comparison() | SearchPredicate():
            return [pruning]
        case And(parts) | Or(parts):
            return list(dict.fromkeys(one for part in parts for one in predicates_of(part)))
        case _:
            return []


def all_of(*parts: Pruning) -> Pruning:
    """Returns the tree for rows that pass every part."""
    return _joined(parts, And, Maybe(), Never(), Op.NE, Op.NOT_IN)


def any_of(*parts: Pruning) -> Pruning:
    """Returns the tree for rows that pass any part."""
    return _joined(parts, Or, Never(), Maybe(), Op.EQ, Op.IN)


def _joined(
    parts: Sequence[Pruning],
    into: type[And] | type[Or],
    neutral: Pruning,
    decisive: Pruning,
    one: Op,
    many: Op,
) -> Pruning:
    """Returns the parts joined as one ``into``.

    The result is ``decisive`` if that is among the parts; ``neutral`` parts are dropped. Several
    ``one`` comparisons of one term become one ``many`` comparison.
    """
    if len(parts) == 1:
        return parts[0]
    if decisive in parts:
        return decisive
    flat = [p for part in parts for p in (part.parts if isinstance(part, into) else (part,))]
    merged = _merge_value_comparisons([part for part in flat if part != neutral], one, many)
    return into(tuple(merged)) if len(merged) > 1 else merged[0] if merged else neutral


def _merge_value_comparisons(parts: Sequence[Pruning], one: Op, many: Op) -> list[Pruning]:
    """Merges comparisons of one term, such as ``a = 1 OR a = 2`` to an IN."""
    other_parts: list[Pruning] = []
    by_key: dict[object, list[Comparison]] = {}
    for part in parts:
        # IN tells −0.0 from +0.0, a comparison does not.
        if (
            isinstance(part, Comparison)
            and part.op in (one, many)
            and not pa.types.is_floating(part.values.type)
        ):
            key = (part.term, part.values.type, part.nulls, part.nans)
            by_key.setdefault(key, []).append(part)
        else:
            other_parts.append(part)
    return other_parts + [_merged_comparison(comparisons, many) for comparisons in by_key.values()]


def _merged_comparison(comparisons: list[Comparison], op: Op) -> Comparison:
    if len(comparisons) == 1:
        return comparisons[0]
    return replace(
        comparisons[0], op=op, values=pa.concat_arrays([one.values for one in comparisons])
    )


Leaf = Callable[[Predicate], RowRanges]
"""Returns the rows that might pass one predicate, according to one source of information."""


def rows_left(pruning: Pruning, rows: RowRanges, leaf: Leaf) -> RowRanges:
    """Returns the part of ``rows`` that might match ``pruning``. ``leaf`` evaluates its predicates.

    The result never leaves out a row that matches, provided that ``leaf`` does not.
    """
    match pruning:
        case Never():
            return RowRanges.none()
        case Maybe():
            return rows
        case Comparison() | SearchPredicate():
            return rows & leaf(pruning)
        case And(parts):
            for part in parts:
                rows = rows_left(part, rows, leaf)
                if not rows:
                    break
            return rows
        case Or(parts):
            return RowRanges.union(rows_left(part, rows, leaf) for part in parts)


def might_pass(pruning: Pruning, leaf: Callable[[Predicate], bool]) -> bool:
    """True if one row might match ``pruning``. ``leaf`` evaluates its predicates for that row."""
    match pruning:
        case Never():
            return False
        case Maybe():
            return True
        case Comparison() | SearchPredicate():
            return leaf(pruning)
        case And(parts):
            return all(might_pass(part, leaf) for part in parts)
        case Or(parts):
            return any(might_pass(part, leaf) for part in parts)
