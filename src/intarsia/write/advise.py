"""Advice: which indexes pay for a list of filters, found by building them over a sample.

Kinds are asked nothing but what they are always asked: each that may answer a filter is built over
some row groups with the code that builds it in files, and the planner says what it leaves there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow.compute as pc

from intarsia.data.asked import request_of
from intarsia.data.discover import dataset
from intarsia.errors import IndexSpecError, PredicateError, UnsupportedError
from intarsia.index.kind import Inverted
from intarsia.index.registry import IndexSpec, spec_name
from intarsia.index.standard import PageIndex, Standard
from intarsia.plan.advice import Advice, FilterAdvice, Proposal
from intarsia.predicate.expression import shown
from intarsia.read.columns import roots_to_read
from intarsia.read.figures import plan_reads
from intarsia.read.opened import OpenedFile
from intarsia.read.planner import BLOOM_FILTERS, Constants, plan_rows
from intarsia.read.request import FilterLike, Request, expression_of
from intarsia.read.selection import groups_of
from intarsia.storage import PathLike
from intarsia.write import present
from intarsia.write.candidates import answers, as_text, indexes_for, page_index_for, tests_in
from intarsia.write.embed import standard_of
from intarsia.write.sample import indexed, page_rows, sample_of
from intarsia.write.spill import Workspace

_MOST_FILES, _MOST_ROWS = 64, 400_000
"""Files whose footers are looked at, and rows of the sample, but for one row group a filter."""
_GROUPS = 4
"""Row groups that are sampled for each filter, of those its statistics leave."""
_LEAST_CUT = 0.2
"""The share of the bytes a filter reads that an index has to spare it."""
_ALIKE = 0.05
"""Indexes whose cuts differ by no more are as good: then their sizes count, as long as"""
_ALIKE_READS = 1.5
"""no more than this many times as much is read."""
_MANY_VALUES, _MOST_VALUES = 0.5, 1_000_000
"""Of exact keys: the share of rows from which they are many, and how many an index may have."""


@dataclass(frozen=True, slots=True)
class _Member:
    """A file of the data set, and which of its row groups each filter leaves.

    Files of one ``writer`` are taken to be alike: their row groups and pages are as long.
    """

    file: OpenedFile
    constants: Constants
    left: tuple[tuple[int, ...], ...]

    @property
    def writer(self) -> str:
        return (self.file.metadata.created_by or "").partition(" version ")[0]


@dataclass(frozen=True, slots=True)
class _View:
    """A sample of a file, perhaps with indexes."""

    file: OpenedFile
    member: _Member


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
    views: tuple[_View, ...]
    bytes: int


def advise(
    path: PathLike | Sequence[PathLike],
    filters: Sequence[FilterLike] | pc.Expression | str,
    *,
    filesystem: Any = None,
) -> Advice:
    """Which indexes would pay for ``filters`` on the Parquet files under ``path``.

    A filter is an Expression, a SQL condition, or tuples as a data set takes them. What is weighed
    is how many bytes of its own columns a filter has to read: those of other columns are read where
    rows match, with or without indexes. Indexes are built in memory over a few row groups, the same
    ones every time; no file is changed. Indexes that files have already count as they are. An index
    is proposed where it spares a filter a fifth of that at least. Raises ``PredicateError`` for a
    filter that does not fit, ``PathError`` and ``FormatError`` as ``dataset`` does.
    """
    source = dataset(path, filesystem=filesystem)
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
        members.append(_Member(file, one.constants, left))
    with Workspace() as work:
        adviser = _Adviser(members, requests, work)
        chosen, before, tried = adviser.choose()
    share = len(source._files) / len(members)
    rows = sum(m.file.num_rows for m in members) * share
    proposals = []
    for index, size, served in chosen:
        whole = round(size * rows / max(adviser.sampled_rows, 1))
        proposals.append(Proposal(as_text(index), whole, served))
    told = []
    for number, condition in enumerate(asked):
        now, then = before[number], adviser.reads[number]
        total = adviser.totals[number]
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
                then < now and adviser.is_guess(number),
            )
        )
    return Advice(
        str(path[0] if isinstance(path, list | tuple) else path),
        len(source._files),
        round(rows),
        round(sum(m.file.source.size for m in members) * share),
        round(sum(len(m.file.metadata.row_groups) for m in members) * share),
        adviser.sampled_groups,
        tuple(proposals),
        tuple(told),
        adviser.page_rows(),
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

    def __init__(
        self, members: Sequence[_Member], requests: Sequence[Request], work: Workspace
    ) -> None:
        self._requests, self._work, self._members = requests, work, members
        sampled = self._sampled()
        self.sampled_groups = sum(map(len, sampled.values()))
        views = [
            _View(sample_of(members[at].file, groups), members[at])
            for at, groups in sampled.items()
        ]
        self.sampled_rows = sum(view.file.num_rows for view in views)
        numbers = range(len(requests))
        every = [range(len(member.file.metadata.row_groups)) for member in members]
        self.totals = [sum(self._bytes(number, every).values()) for number in numbers]
        self._all_left = [
            self._bytes(number, [member.left[number] for member in members]) for number in numbers
        ]
        chosen = [sampled.get(at, ()) for at in range(len(members))]
        self._in_sample = [
            self._bytes(
                number,
                [set(own) & set(m.left[number]) for own, m in zip(chosen, members, strict=True)],
            )
            for number in numbers
        ]
        self._tried: dict[tuple[str, ...], _Option | None] = {}
        groups = sum(map(len, every))
        self._group = [total / max(groups, 1) for total in self.totals]
        self._views = self._with(views, self._there(views))
        self._scales = [1.0 for _ in numbers]
        told, self._least = self._measure(self._views)
        self.reads = tuple(map(self._planned, numbers))
        self._scales = [
            now / one if one else 0.0 for now, one in zip(self.reads, told, strict=True)
        ]

    def _sampled(self) -> dict[int, list[int]]:
        """Row groups by file: for each filter some of those left of each writer, evenly spread."""
        found: dict[int, set[int]] = {}
        rows = 0
        writers = dict.fromkeys(member.writer for member in self._members)
        every = [
            [
                (at, group)
                for at, member in enumerate(self._members)
                for group in member.left[number]
                if member.writer == writer
            ]
            for writer in writers
            for number in range(len(self._requests))
        ]
        for i in range(_GROUPS):  # the first for every filter, then the second, …
            for left in every:
                count = min(_GROUPS, len(left))
                if i >= count or (i and rows >= _MOST_ROWS):
                    continue
                at, group = left[(2 * i + 1) * len(left) // (2 * count)]
                if group not in found.get(at, ()):
                    rows += self._members[at].file.num_rows_in(group)
                    found.setdefault(at, set()).add(group)
        return {at: sorted(groups) for at, groups in sorted(found.items())}

    def _bytes(self, number: int, groups: Sequence[Any]) -> Counter[str]:
        """Of the filter's columns in some row groups of each file, by the files' writers."""
        size = Counter[str]()
        for member, own in zip(self._members, groups, strict=True):
            roots = roots_to_read(member.file, self._requests[number], member.constants)
            size[member.writer] += sum(
                member.file.chunk(group, leaf).total_compressed_size
                for group in own
                for root in roots
                for leaf in root.leaves
            )
        return size

    def _planned(self, number: int) -> float:
        """How many bytes of its columns a filter reads of the files as they are."""
        size, request = 0, self._requests[number]
        for member in self._members:
            left = plan_rows(member.file, request.pruning, member.constants, request.schema)
            roots = roots_to_read(member.file, request, member.constants)
            size += plan_reads(
                member.file, roots, left, member.constants, 0, count_pages=False
            ).figures.bytes.selected
        return size

    def is_guess(self, number: int) -> bool:
        """Might no row of the sample match a filter, of the files of one writer?"""
        request, found = self._requests[number], Counter[str]()
        for view in self._views:
            left = plan_rows(view.file, request.pruning, view.member.constants, request.schema)
            found[view.member.writer] += left.rows.num_rows
        sampled = self._in_sample[number]
        return any(sampled[writer] and not found[writer] for writer in sampled)

    def page_rows(self) -> int:
        """The most rows that a page of the filters' columns has, on average of a file's first row
        group in the sample.
        """
        found = [0]
        for view in self._views:
            asked = (roots_to_read(view.file, r, view.member.constants) for r in self._requests)
            roots = [root for of_one in asked for root in of_one]
            found.append(page_rows(view.file, {leaf for root in roots for leaf in root.leaves}))
        return max(found)

    def _measure(self, views: Sequence[_View]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """About how many bytes of its columns each filter reads, and the least it can.

        What the sample tells is in proportion to what is read of the files as they are.
        """
        found, units = [], []
        rows = Counter[str]()
        for view in views:
            rows[view.member.writer] += view.file.num_rows
        for number, request in enumerate(self._requests):
            selected, by_bloom, page = Counter[str](), False, 0.0
            left_now, in_sample = self._all_left[number], self._in_sample[number]
            whole = sum(left_now.values())
            for view in views:
                writer = view.member.writer
                constants = view.member.constants
                left = plan_rows(view.file, request.pruning, constants, request.schema)
                if not left.rows and left.steps[-1].source.startswith(BLOOM_FILTERS):
                    by_bloom = True
                roots = roots_to_read(view.file, request, constants)
                plan = plan_reads(view.file, roots, left, constants, 0)
                selected[writer] += plan.figures.bytes.selected
                pages = (c.bytes.total / max(c.pages.total, 1) for c in plan.columns)
                share = left_now[writer] / whole if whole else 0.0
                page += share * sum(pages) * view.file.num_rows / rows[writer]
            read = sum(
                size * min(1.0, selected[writer] / in_sample[writer])
                for writer, size in left_now.items()
                if in_sample[writer]
            )
            # A value that is in no sampled row group may be in another: in one unit of the index.
            units.append(self._group[number] if by_bloom and not selected.total() else page)
            found.append(self._scales[number] * max(read, min(whole, units[-1])))
        return tuple(found), tuple(units)

    def _there(self, views: Sequence[_View]) -> list[IndexSpec]:
        """The indexes on what is asked about that files have now, of kinds known here."""
        found: dict[str, IndexSpec] = {}
        terms = {test.term for test in tests_in(self._requests)}
        for view in views:
            for term in terms:
                for index in view.member.file.sections.about(term):
                    found.setdefault(index.entry.name, index.kind)
        return list(found.values())

    def _with(self, views: Sequence[_View], indexes: Sequence[IndexSpec]) -> tuple[_View, ...]:
        if not indexes:
            return tuple(views)
        due = [present.choose(view.file, indexes, anew=True, beside=False) for view in views]
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
            self._views, self.reads, self._least = won.views, won.reads, won.least
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
        if not self._views:
            return []
        each = (indexes_for(v.file, self._requests, v.member.constants) for v in self._views)
        found = list({spec_name(index): index for own in each for index in own}.values())
        paged = self._page_index()
        return found if paged is None else [paged, *found]

    def _page_index(self) -> PageIndex | None:
        return page_index_for([view.file for view in self._views], self._requests)

    def _served_by(self, index: IndexSpec) -> list[int]:
        """The filters it might answer."""
        files = [view.file for view in self._views]
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
            views = self._with(self._views if before is None else before.views, added[-1:])
        except (IndexSpecError, UnsupportedError):
            return None
        rows = max(member.file.num_rows for member in self._members)
        share = self._share_of_values(views, added[-1])
        if share > _MANY_VALUES and share * rows > _MOST_VALUES:
            return None
        size = sum(self._size(views, one) for one in added)
        return _Option(added, *self._measure(views), views, size)

    def _cut(self, number: int, read: float) -> float:
        """The share of what a filter reads now that it then does not."""
        now = self.reads[number]
        return 1 - read / now if now else 0.0

    def _gain(self, reads: Sequence[float]) -> float:
        cuts = (self._cut(number, read) for number, read in enumerate(reads))
        return sum(cut for cut in cuts if cut >= _LEAST_CUT)

    def _size(self, views: Sequence[_View], index: IndexSpec) -> int:
        name = spec_name(index)
        if not isinstance(index, Standard):
            return sum(e.length for v in views for e in v.file.sections.entries if e.name == name)
        return sum(r.bytes for v in views for r in standard_of(v.file) if r.name == name)

    def _share_of_values(self, views: Sequence[_View], index: IndexSpec) -> float:
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
