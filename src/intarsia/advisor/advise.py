"""Advice: which indexes pay for a list of filters, found by building them over a sample.

Kinds are asked nothing but what they are always asked: each that may answer a filter is built over
some row groups with the code that builds it in files, and the planner says what it leaves there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow.compute as pc

from intarsia.advisor.advice import Advice, FilterAdvice, Proposal
from intarsia.advisor.candidates import answers, as_text, indexes_for, page_index_for, tests_in
from intarsia.advisor.read_cost import Gauge, Member, View
from intarsia.advisor.row_group_sample import indexed
from intarsia.dataset.discovery import dataset
from intarsia.dataset.request_builder import request_of
from intarsia.deadline import time_limited
from intarsia.errors import IndexSpecError, PredicateError, UnsupportedError, public
from intarsia.expr.tree import shown
from intarsia.file.open_file import OpenedFile
from intarsia.index.base import Inverted
from intarsia.index.parquet_indexes import PageIndex, Standard
from intarsia.index.registry import IndexSpec, spec_name
from intarsia.indexing import missing_indexes
from intarsia.indexing.add import standard_of
from intarsia.io.external_sort import Workspace
from intarsia.io.storage import PathLike
from intarsia.pruning.partition_pruning import Constants
from intarsia.scan.file_planner import plan_rows
from intarsia.scan.page_selection import groups_of
from intarsia.scan.request import FilterLike, Request, expression_of
from intarsia.tables.data_files import TableFormatOption

_MOST_FILES = 64
"""Files whose footers are looked at."""
_LEAST_CUT = 0.2
"""The share of the bytes a filter reads that an index has to spare it."""
_ALIKE = 0.05
"""Indexes whose cuts differ by no more are as good: then their sizes count, as long as"""
_ALIKE_READS = 1.5
"""no more than this many times as much is read."""
_MANY_VALUES, _MOST_VALUES = 0.5, 1_000_000
"""Of exact keys: the share of rows from which they are many, and how many an index may have."""


class Choice(NamedTuple):
    """Indexes with their bytes in the sample and the filters they serve; what each filter read
    before; and what it would read by each index that was tried.
    """

    indexes: list[tuple[IndexSpec, int, tuple[int, ...]]]
    before: tuple[float, ...]
    tried: list[dict[str, float]]


@dataclass(frozen=True, slots=True)
class _Option:
    """Indexes that were tried: what filters then read, or could, and the views that have them."""

    added: tuple[IndexSpec, ...]
    reads: tuple[float, ...]
    least: tuple[float, ...]
    views: tuple[View, ...]
    bytes: int


@public
@time_limited("advising on")
def advise(
    path: PathLike | Sequence[PathLike],
    filters: Sequence[FilterLike] | pc.Expression | str,
    *,
    filesystem: Any = None,
    table_format: TableFormatOption = "auto",
    timeout: float | None = None,
) -> Advice:
    """Which indexes would pay for ``filters`` on the Parquet files under ``path``.

    A filter is an Expression, a SQL condition, or tuples as a data set takes them. What is weighed
    is how many bytes of its own columns a filter has to read: those of other columns are read where
    rows match, with or without indexes. Indexes are built in memory over a few row groups, the same
    ones every time; no file is changed. Indexes that files have already count as they are. An index
    is proposed where it spares a filter a fifth of that at least. Raises ``PredicateError`` for a
    filter that does not fit, ``PathError`` and ``FormatError`` as ``dataset`` does, of
    which ``table_format`` is as well, and ``QueryTimeoutError`` after ``timeout`` seconds.
    """
    source = dataset(path, filesystem=filesystem, table_format=table_format)
    asked = [filters] if isinstance(filters, str | pc.Expression) else list(filters or ())
    found = [expression_of([f] if isinstance(f, tuple) else f, source.schema) for f in asked]
    parsed = [expression for expression in found if expression is not None]
    if not asked or len(parsed) < len(asked):
        raise PredicateError("no filter was given")
    requests = [request_of(source.schema, [], expression) for expression in parsed]
    step = -(-len(source._files) // _MOST_FILES)
    members = []
    for one in source._files[::step]:
        file = source._cache.as_opened(one.path)
        left = tuple(_left(file, request, one.constants) for request in requests)
        members.append(Member(file, one.constants, left))
    with Workspace() as work:
        gauge = Gauge(members, requests)
        adviser = _Adviser(gauge, requests, work)
        chosen, before, tried = adviser.choose()
    share = len(source._files) / len(members)
    rows = sum(m.file.num_rows for m in members) * share
    proposals = []
    for index, size, served in chosen:
        whole = round(size * rows / max(gauge.sampled_rows, 1))
        proposals.append(Proposal(as_text(index), whole, served))
    told = []
    for number, condition in enumerate(asked):
        now, then = before[number], adviser.reads[number]
        total = gauge.totals[number]
        terms = [test.term for test in tests_in([requests[number]])]
        is_indexed = any(m.file.sections.about(term) for m in members for term in terms)
        reason = _reason(number, proposals, now, total, tried[number], is_indexed=is_indexed)
        told.append(
            FilterAdvice(
                condition if isinstance(condition, str) else shown(parsed[number]),
                round(total * share),
                round(now * share),
                round(then * share),
                reason,
                then < now and gauge.is_guess(number, adviser.views),
            )
        )
    return Advice(
        str(path[0] if isinstance(path, list | tuple) else path),
        len(source._files),
        round(rows),
        round(sum(m.file.source.size for m in members) * share),
        round(sum(len(m.file.metadata.row_groups) for m in members) * share),
        gauge.sampled_groups,
        tuple(proposals),
        tuple(told),
        gauge.page_rows(),
    )


def _left(file: OpenedFile, request: Request, constants: Constants) -> tuple[int, ...]:
    found = plan_rows(file, request.pruning, constants, request.schema, by_footer=True)
    return tuple(int(group) for group in groups_of(file, found.rows))


def _reason(
    number: int,
    proposals: Sequence[Proposal],
    now: float,
    total: float,
    tried: Mapping[str, float],
    *,
    is_indexed: bool,
) -> str:
    serving = [proposal.index for proposal in proposals if number in proposal.filters]
    if serving:
        return ", ".join(serving)
    if not total:
        return "folders answer it"
    if now < _LEAST_CUT * total:
        return "what is there already leaves little"
    if not tried:
        return f"no {'other ' if is_indexed else ''}kind of index answers it"
    best = min(tried, key=lambda name: tried[name])
    return f"nothing pays: {best} would leave {tried[best] / total:.1%}"


def _where_they_differ(reads: Sequence[tuple[float, ...]]) -> list[list[float]]:
    """What options have filters read, without the filters that read as much by each of them."""
    differing = [
        number for number, of_one in enumerate(zip(*reads, strict=True)) if len({*of_one}) > 1
    ]
    return [[one[number] for number in differing] for one in reads]


class _Adviser:
    """Tries indexes on a sample, the best first, as long as one pays."""

    def __init__(self, gauge: Gauge, requests: Sequence[Request], work: Workspace) -> None:
        self._gauge, self._requests, self._work = gauge, requests, work
        self._tried: dict[tuple[str, ...], _Option | None] = {}
        self.views = self._with(gauge.views, self._there(gauge.views))
        self.reads, self._least = gauge.start(self.views)

    def _there(self, views: Sequence[View]) -> list[IndexSpec]:
        """The indexes on what is asked about that files have now, of kinds known here."""
        found: dict[str, IndexSpec] = {}
        terms = {test.term for test in tests_in(self._requests)}
        for view in views:
            for term in terms:
                for index in view.member.file.sections.about(term):
                    found.setdefault(index.entry.name, index.kind)
        return list(found.values())

    def _with(self, views: Sequence[View], indexes: Sequence[IndexSpec]) -> tuple[View, ...]:
        if not indexes:
            return tuple(views)
        due = [
            missing_indexes.choose(view.file, indexes, anew=True, beside=False) for view in views
        ]
        if not any(choice.due for choice in due):
            raise IndexSpecError("; ".join(dict.fromkeys(w for c in due for w in c.unfit.values())))
        return tuple(
            replace(view, file=indexed(view.file, choice.due, self._work)) if choice.due else view
            for view, choice in zip(views, due, strict=True)
        )

    def choose(self) -> Choice:
        """Add the best index, then the next one, as long as there is one that pays."""
        before = self.reads
        chosen: list[tuple[IndexSpec, int, tuple[int, ...]]] = []
        tried: list[dict[str, float]] = [{} for _ in self._requests]
        candidates = self._candidates()
        while candidates:
            options = [option for option in map(self._try, candidates) if option is not None]
            for option in options:
                for number in self._served_by(option.added[-1]):
                    tried[number][spec_name(option.added[-1])] = option.reads[number]
            options = [option for option in options if self._gain(option.reads) > 0]
            if not options:
                break
            best = max(self._gain(option.reads) for option in options)
            good = [o for o in options if self._gain(o.reads) >= best * (1 - _ALIKE)]
            reads = _where_they_differ([option.reads for option in good])
            most = _ALIKE_READS * min(map(sum, reads))
            good = [o for o, own in zip(good, reads, strict=True) if sum(own) <= most]
            won = min(good, key=self._rank)
            chosen += [
                (index, self._size(won.views, index), served) for index, served in self._for(won)
            ]
            self.views, self.reads, self._least = won.views, won.reads, won.least
            self._tried.clear()
            candidates = [o.added[-1] for o in options if o.added[-1] not in won.added]
        return Choice(chosen, before, tried)

    def _rank(self, option: _Option) -> tuple[bool, bool, int]:
        """Of options as good: what other readers use, then what suits the values, then size."""
        index = option.added[-1]
        is_unusual = self._share_of_values(option.views, index) > _MANY_VALUES
        return not isinstance(index, PageIndex), is_unusual, option.bytes

    def _for(self, option: _Option) -> Iterator[tuple[IndexSpec, tuple[int, ...]]]:
        """Which filters each of its indexes serves; a page index that only helps, the other's."""
        cut = [n for n, read in enumerate(option.reads) if self._cut(n, read) >= _LEAST_CUT]
        last = set(self._served_by(option.added[-1])) & set(cut)
        for index in option.added[:-1]:
            alone = self._option((index,))
            own = set() if alone is None else {n for n in cut if self._cut(n, alone.reads[n]) > 0}
            yield index, tuple(sorted(own | last))
        yield option.added[-1], tuple(sorted(last))

    def _candidates(self) -> list[IndexSpec]:
        if not self.views:
            return []
        each = (indexes_for(v.file, self._requests, v.member.constants) for v in self.views)
        found = list({spec_name(index): index for own in each for index in own}.values())
        paged = self._page_index()
        return found if paged is None else [paged, *found]

    def _page_index(self) -> PageIndex | None:
        return page_index_for([view.file for view in self.views], self._requests)

    def _served_by(self, index: IndexSpec) -> list[int]:
        """The filters it might answer."""
        files = [view.file for view in self.views]
        return [
            number
            for number, request in enumerate(self._requests)
            if any(answers(file, index, request) for file in files)
        ]

    def _try(self, index: IndexSpec) -> _Option | None:
        """The index by itself, or after a page index where it needs one; None where it cannot be,
        or where there is nothing left to spare.
        """
        paged = self._page_index()
        served = self._served_by(index)
        if paged is None and all(self.reads[n] <= 2 * self._least[n] for n in served):
            return None
        alone = self._option((index,))
        if alone is None or paged is None or isinstance(index, PageIndex):
            return alone
        first, both = self._option((paged,)), self._option((paged, index))
        if first is None or both is None:
            return alone
        apart = self._gain(first.reads) + self._gain(alone.reads)
        return both if self._gain(both.reads) > apart + _ALIKE else alone

    def _option(self, added: tuple[IndexSpec, ...]) -> _Option | None:
        """What comes of adding indexes to what was chosen; each is built once."""
        key = tuple(map(spec_name, added))
        if key not in self._tried:
            self._tried[key] = self._new_option(added)
        return self._tried[key]

    def _new_option(self, added: tuple[IndexSpec, ...]) -> _Option | None:
        before = self._option(added[:-1]) if added[:-1] else None
        try:
            views = self._with(self.views if before is None else before.views, added[-1:])
        except (IndexSpecError, UnsupportedError):
            return None
        rows = self._gauge.most_rows
        share = self._share_of_values(views, added[-1])
        if share > _MANY_VALUES and share * rows > _MOST_VALUES:
            return None
        size = sum(self._size(views, one) for one in added)
        return _Option(added, *self._gauge.measured(views), views, size)

    def _cut(self, number: int, read: float) -> float:
        """The share of what a filter reads now that it then does not."""
        now = self.reads[number]
        return 1 - read / now if now else 0.0

    def _gain(self, reads: Sequence[float]) -> float:
        cuts = (self._cut(number, read) for number, read in enumerate(reads))
        return sum(cut for cut in cuts if cut >= _LEAST_CUT)

    def _size(self, views: Sequence[View], index: IndexSpec) -> int:
        name = spec_name(index)
        if not isinstance(index, Standard):
            return sum(e.length for v in views for e in v.file.sections.entries if e.name == name)
        return sum(r.bytes for v in views for r in standard_of(v.file) if r.name == name)

    def _share_of_values(self, views: Sequence[View], index: IndexSpec) -> float:
        """How many keys an index of exact ones has in a sample, as a share of its rows."""
        if not (isinstance(index, Inverted) and index.exact):
            return 0.0
        shares = [0.0]
        for view in views:
            sections = view.file.sections
            own = next((e for e in sections.entries if e.name == spec_name(index)), None)
            resolved = None if own is None else sections.resolved(own)
            values = None if resolved is None else sections.values(resolved)
            shares.append(0.0 if values is None else len(values) / max(view.file.num_rows, 1))
        return max(shares)
