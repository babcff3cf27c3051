"""Advises which indexes pay for a list of filters, by building them over a sample.

Each index that may answer a filter is built over some row groups with the code that builds it in
files. The planner then says how much a filter would read. Index kinds need no code of their own for
this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow.compute as pc

from intarsia.advisor.advice import MIN_ROWS_TO_REWRITE, Advice, FilterAdvice, Layout, Proposal
from intarsia.advisor.candidates import answers, indexes_for, page_index_for, tests_in
from intarsia.advisor.read_cost import Member, ReadCostEstimator, View
from intarsia.advisor.row_group_sample import indexed, with_short_pages
from intarsia.dataset.dataset import Dataset
from intarsia.dataset.discovery import dataset
from intarsia.dataset.request_builder import request_of
from intarsia.deadline import time_limited
from intarsia.errors import IndexSpecError, PredicateError, UnsupportedError, public
from intarsia.expr.tree import shown
from intarsia.file.open_file import OpenedFile
from intarsia.index.base import Inverted
from intarsia.index.parquet_indexes import PageIndex, Standard
from intarsia.index.registry import IndexSpec, spec_name, spec_text
from intarsia.indexing import missing_indexes
from intarsia.indexing.add import parquet_index_reports
from intarsia.io.external_sort import Workspace
from intarsia.io.storage import PathLike
from intarsia.plan.planner import plan_rows
from intarsia.pruning.partition_pruning import Constants
from intarsia.scan.page_selection import groups_of
from intarsia.scan.request import FilterLike, Request, expression_of
from intarsia.tables.data_files import TableFormatOption, data_folder
from intarsia.usage_counts.usage_file import usage_of
from intarsia.writer.defaults import INDEXED_PAGE_ROWS

_MAX_FILES = 64
"""The most files whose footers are read."""
_MIN_SAVED_SHARE = 0.2
"""Share of the bytes a filter reads that an index must save."""
_GAIN_TOLERANCE = 0.05
"""Relative difference of gains up to which indexes are equally good. Then their sizes decide."""
_MAX_READ_RATIO = 1.5
"""Ratio of bytes read up to which indexes with similar gains are equally good."""
_MIN_PART = 0.01
"""Share of the bytes of a filter's columns that a rewrite must save."""
_REWRITTEN_ROWS = 128 * 1024
"""Rows of the sample that are written with short pages."""
_MANY_VALUES_SHARE, _MAX_VALUES = 0.5, 1_000_000
"""Share of distinct values in rows above which they are many; the most an index may have."""


class Choice(NamedTuple):
    """The indexes that pay, each with its bytes in the sample and the filters that it serves.

    ``before`` are the bytes that each filter read at first. ``tried`` maps the name of each index
    that was tried to the bytes that a filter would read with it, for each filter. ``paying`` are
    the names of the indexes that would pay without the others.
    """

    indexes: list[tuple[IndexSpec, int, tuple[int, ...]]]
    before: tuple[float, ...]
    tried: list[dict[str, float]]
    paying: Collection[str]


@dataclass(frozen=True, slots=True)
class _Option:
    """Indexes that were tried: the bytes that each filter reads then, and the fewest it could."""

    added: tuple[IndexSpec, ...]
    reads: tuple[float, ...]
    least: tuple[float, ...]
    views: tuple[View, ...]
    bytes: int


@public
@time_limited("advising on")
def advise(
    path: PathLike | Sequence[PathLike] | Dataset,
    filters: Sequence[FilterLike] | pc.Expression | str,
    *,
    filesystem: Any = None,
    table_format: TableFormatOption = "auto",
    timeout: float | None = None,
) -> Advice:
    """Advises which indexes would pay for filters on the Parquet files under a path.

    Indexes are built in memory over a few row groups, the same ones every time. No file is changed.
    The measure is the bytes that a filter reads of its own columns. Other columns are read where
    rows match, with or without indexes. Existing indexes count as they are. An index is proposed if
    it saves some filter at least a fifth of these bytes.

    Parameters
    ----------
    path : str, path-like, sequence of them or Dataset
        Files, folders, globs or URIs, or a data set.
    filters : filter or sequence of filters
        Each is a pyarrow Expression, a SQL condition, or tuples as a data set takes them.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        The file system of ``path``. By default it is taken from the URI; other paths are local.
    table_format : {"auto", "ignore"}, default "auto"
        How files of Delta Lake, Iceberg and Hudi tables are treated, as for ``intarsia.dataset``.
    timeout : float, optional
        Seconds after which ``QueryTimeoutError`` is raised.

    Returns
    -------
    Advice
        The proposed indexes, and the bytes that each filter reads now and with them.

    Raises
    ------
    PredicateError
        If there is no filter, or one does not fit the columns.
    PathError
        If there is no file, or one cannot be read.
    FormatError
        If a file is not Parquet.
    QueryTimeoutError
        If ``timeout`` has passed.

    Examples
    --------
    >>> table = pa.table({"id": [f"u{n * 7919 % 100_000}" for n in range(100_000)]})
    >>> ia.write_table(table, "users.parquet")
    >>> advice = ia.advise("users.parquet", ["id = 'u17'"])
    >>> advice.indexes
    ['id:lookup']
    >>> advice.filters[0].then < advice.filters[0].now / 5
    True
    """
    source = (
        path
        if isinstance(path, Dataset)
        else dataset(path, filesystem=filesystem, table_format=table_format)
    )
    filter_list = [filters] if isinstance(filters, str | pc.Expression) else list(filters or ())
    expressions = [
        expression_of([f] if isinstance(f, tuple) else f, source.schema) for f in filter_list
    ]
    parsed = [expression for expression in expressions if expression is not None]
    if not filter_list or len(parsed) < len(filter_list):
        raise PredicateError("no filter was given")
    requests = [request_of(source.schema, [], expression) for expression in parsed]
    step = -(-len(source.scan_source.files) // _MAX_FILES)
    members: list[Member] = []
    for listed_file in source.scan_source.files[::step]:
        file = source.scan_source.cache.as_opened(listed_file.path)
        remaining_groups = tuple(
            _remaining_groups(file, request, listed_file.constants) for request in requests
        )
        members.append(Member(file, listed_file.constants, remaining_groups))
    estimator = ReadCostEstimator(members, requests)
    page_rows = estimator.page_rows()
    with Workspace() as work:
        rewritten = None
        if page_rows >= MIN_ROWS_TO_REWRITE:
            rewritten = _chosen_after_rewrite(estimator, requests, work)
        adviser = _Adviser(estimator, requests, work)
        # An index that saves nothing with short pages saves nothing with long ones.
        names = None if rewritten is None else rewritten.choice.paying
        chosen, before, tried, _ = adviser.choose(names)
    for number, shares in enumerate(rewritten.choice.tried if rewritten is not None else ()):
        tried[number] = dict.fromkeys(shares, before[number]) | tried[number]
    share = len(source.scan_source.files) / len(members)
    rows = sum(m.file.num_rows for m in members) * share
    proposals = _proposals(chosen, rows / max(estimator.sampled_rows, 1))
    file_bytes = round(sum(m.file.source.size for m in members) * share)
    layout = None
    if rewritten is not None:
        reads = rewritten.reads(estimator)
        saved = [then - read for then, read in zip(adviser.reads, reads, strict=True)]
        pays = [
            number
            for number, then in enumerate(adviser.reads)
            if saved[number] >= max(_MIN_SAVED_SHARE * then, _MIN_PART * estimator.totals[number])
            and saved[number] > 0
        ]
        if pays:
            indexes = _proposals(rewritten.choice.indexes, rows / max(rewritten.num_rows, 1))
            least = tuple(round(min(read, before[n]) * share) for n, read in enumerate(reads))
            layout = Layout(INDEXED_PAGE_ROWS, file_bytes, tuple(pays), tuple(indexes), least)
    filter_advice = []
    for number, condition in enumerate(filter_list):
        now, then = before[number], adviser.reads[number]
        total = estimator.totals[number]
        terms = [test.term for test in tests_in([requests[number]])]
        is_indexed = any(m.file.sections.about(term) for m in members for term in terms)
        reason = _reason(number, proposals, now, total, tried[number], is_indexed=is_indexed)
        filter_advice.append(
            FilterAdvice(
                condition if isinstance(condition, str) else shown(parsed[number]),
                round(total * share),
                round(now * share),
                round(then * share),
                reason,
                then < now and estimator.is_guess(number, adviser.views),
            )
        )
    used, _ = usage_of(data_folder(path, filesystem), source.filesystem)
    return Advice(
        str(path[0] if isinstance(path, list | tuple) else path),
        len(source.scan_source.files),
        round(rows),
        file_bytes,
        round(sum(len(m.file.metadata.row_groups) for m in members) * share),
        estimator.sampled_groups,
        tuple(proposals),
        tuple(filter_advice),
        page_rows,
        layout,
        used,
    )


class _Rewritten(NamedTuple):
    """The indexes that pay after the sample was written with short pages."""

    choice: Choice
    shares: list[float]
    """For each filter, the share of its columns' bytes that it then reads."""
    num_rows: int

    def reads(self, estimator: ReadCostEstimator) -> list[float]:
        """Returns the bytes that each filter would read of all files, at least a page a column."""
        page_share = INDEXED_PAGE_ROWS / max(estimator.num_rows, 1)
        sizes = zip(self.shares, estimator.matching_totals, estimator.totals, strict=True)
        return [max(share * matching, page_share * total) for share, matching, total in sizes]


def _chosen_after_rewrite(
    estimator: ReadCostEstimator, requests: Sequence[Request], work: Workspace
) -> _Rewritten:
    """Chooses indexes for rows of the sample that are written anew, with short pages."""
    num_rows = max(_REWRITTEN_ROWS // max(len(estimator.views), 1), 2 * INDEXED_PAGE_ROWS)
    members = []
    for view in estimator.views:
        file, constants = with_short_pages(view.file, requests, num_rows), view.member.constants
        groups = tuple(_remaining_groups(file, request, constants) for request in requests)
        members.append(Member(file, constants, groups))
    short = ReadCostEstimator(members, requests)
    adviser = _Adviser(short, requests, work)
    choice = adviser.choose()
    sizes = zip(adviser.reads, short.matching_totals, strict=True)
    shares = [read / matching if matching else 0.0 for read, matching in sizes]
    return _Rewritten(choice, shares, short.sampled_rows)


def _proposals(
    chosen: Sequence[tuple[IndexSpec, int, tuple[int, ...]]], scale: float
) -> list[Proposal]:
    """Returns the proposals of indexes. ``scale`` is the number of rows for each sampled row."""
    return [
        Proposal(spec_text(index), round(size * scale), served) for index, size, served in chosen
    ]


def _remaining_groups(file: OpenedFile, request: Request, constants: Constants) -> tuple[int, ...]:
    planned = plan_rows(file, request.pruning, constants, request.schema, by_footer=True)
    return tuple(int(group) for group in groups_of(file, planned.rows))


def _reason(
    number: int,
    proposals: Sequence[Proposal],
    current_bytes: float,
    total: float,
    tried: Mapping[str, float],
    *,
    is_indexed: bool,
) -> str:
    serving = [proposal.index for proposal in proposals if number in proposal.filters]
    if serving:
        return ", ".join(serving)
    if not total:
        return "partition values answer it"
    if current_bytes < _MIN_SAVED_SHARE * total:
        return "statistics and existing indexes leave little to read"
    if not tried:
        return f"no {'other ' if is_indexed else ''}kind of index answers it"
    best = min(tried, key=lambda name: tried[name])
    return f"no index pays: {best} would still read {tried[best] / total:.1%}"


def _differing_reads(reads: Sequence[tuple[float, ...]]) -> list[list[float]]:
    """Returns what filters read by each option, without filters that read the same by all."""
    differing = [
        number
        for number, filter_reads in enumerate(zip(*reads, strict=True))
        if len({*filter_reads}) > 1
    ]
    return [[option_reads[number] for number in differing] for option_reads in reads]


class _Adviser:
    """Tries indexes on a sample and adds the best one, as long as one pays."""

    def __init__(
        self, estimator: ReadCostEstimator, requests: Sequence[Request], work: Workspace
    ) -> None:
        self._estimator, self._requests, self._work = estimator, requests, work
        self._tried: dict[tuple[str, ...], _Option | None] = {}
        self.views = self._with_indexes(estimator.views, self._existing_indexes(estimator.views))
        self.reads, self._least = estimator.start(self.views)

    def _existing_indexes(self, views: Sequence[View]) -> list[IndexSpec]:
        """Returns the files' indexes of registered kinds on terms of the filters."""
        index_of: dict[str, IndexSpec] = {}
        terms = {test.term for test in tests_in(self._requests)}
        for view in views:
            for term in terms:
                for index in view.member.file.sections.about(term):
                    index_of.setdefault(index.entry.name, index.kind)
        return list(index_of.values())

    def _with_indexes(
        self, views: Sequence[View], indexes: Sequence[IndexSpec]
    ) -> tuple[View, ...]:
        if not indexes:
            return tuple(views)
        choices = [
            missing_indexes.choose(view.file, indexes, anew=True, in_sidecar=False)
            for view in views
        ]
        if not any(choice.due for choice in choices):
            raise IndexSpecError(
                "; ".join(dict.fromkeys(w for c in choices for w in c.unfit.values()))
            )
        return tuple(
            replace(view, file=indexed(view.file, choice.due, self._work)) if choice.due else view
            for view, choice in zip(views, choices, strict=True)
        )

    def choose(self, names: Collection[str] | None = None) -> Choice:
        """Adds the best index, of these ``names``, then the next, as long as one pays."""
        before = self.reads
        chosen: list[tuple[IndexSpec, int, tuple[int, ...]]] = []
        tried: list[dict[str, float]] = [{} for _ in self._requests]
        candidates = [
            index
            for index in self._candidates()
            if names is None or isinstance(index, PageIndex) or spec_name(index) in names
        ]
        paying: set[str] = set()
        while candidates:
            options = [option for option in map(self._try, candidates) if option is not None]
            for option in options:
                for number in self._filters_served_by(option.added[-1]):
                    tried[number][spec_name(option.added[-1])] = option.reads[number]
            options = [option for option in options if self._own_gain(option) > 0]
            paying.update(spec_name(option.added[-1]) for option in options)
            if not options:
                break
            best_gain = max(self._gain(option.reads) for option in options)
            good_options = [
                o for o in options if self._gain(o.reads) >= best_gain * (1 - _GAIN_TOLERANCE)
            ]
            reads = _differing_reads([option.reads for option in good_options])
            max_read_bytes = _MAX_READ_RATIO * min(map(sum, reads))
            good_options = [
                o
                for o, option_reads in zip(good_options, reads, strict=True)
                if sum(option_reads) <= max_read_bytes
            ]
            winner = self._without_needless_page_index(min(good_options, key=self._rank))
            chosen += [
                (index, self._size(winner.views, index), served)
                for index, served in self._served_filters(winner)
            ]
            self.views, self.reads, self._least = winner.views, winner.reads, winner.least
            self._tried.clear()
            candidates = [o.added[-1] for o in options if o.added[-1] not in winner.added]
        return Choice(chosen, before, tried, paying)

    def _rank(self, option: _Option) -> tuple[bool, bool, int]:
        """Returns the order of equally good options: shared with readers, suited, small."""
        index = option.added[-1]
        is_unusual = self._share_of_values(option.views, index) > _MANY_VALUES_SHARE
        return not isinstance(index, PageIndex), is_unusual, option.bytes

    def _served_filters(self, option: _Option) -> Iterator[tuple[IndexSpec, tuple[int, ...]]]:
        """Yields an option's indexes with the filters that each serves."""
        helped = [
            n
            for n, read in enumerate(option.reads)
            if self._saved_share(n, read) >= _MIN_SAVED_SHARE
        ]
        helped_by_last = set(self._filters_served_by(option.added[-1])) & set(helped)
        for index in option.added[:-1]:
            alone = self._option((index,))
            helped_alone = (
                set()
                if alone is None
                else {n for n in helped if self._saved_share(n, alone.reads[n]) > 0}
            )
            yield index, tuple(sorted(helped_alone | helped_by_last))
        yield option.added[-1], tuple(sorted(helped_by_last))

    def _candidates(self) -> list[IndexSpec]:
        if not self.views:
            return []
        indexes_by_file = (
            indexes_for(v.file, self._requests, v.member.constants) for v in self.views
        )
        candidates = list(
            {
                spec_name(index): index
                for file_indexes in indexes_by_file
                for index in file_indexes
            }.values()
        )
        page_index = self._page_index()
        return candidates if page_index is None else [page_index, *candidates]

    def _page_index(self) -> PageIndex | None:
        return page_index_for([view.file for view in self.views], self._requests)

    def _filters_served_by(self, index: IndexSpec) -> list[int]:
        """Returns the numbers of the filters that an index might answer."""
        files = [view.file for view in self.views]
        return [
            number
            for number, request in enumerate(self._requests)
            if any(answers(file, index, request) for file in files)
        ]

    def _try(self, index: IndexSpec) -> _Option | None:
        """Returns the option of adding the index. None if it fails or saves nothing."""
        page_index = self._page_index()
        served_filters = self._filters_served_by(index)
        if page_index is None and all(self.reads[n] <= 2 * self._least[n] for n in served_filters):
            return None
        if page_index is None or isinstance(index, PageIndex):
            return self._option((index,))
        return self._option((page_index, index))

    def _without_needless_page_index(self, option: _Option) -> _Option:
        """Returns the option without its page index, if the other index saves as much alone."""
        if len(option.added) == 1:
            return option
        page_index_only, alone = self._option(option.added[:1]), self._option(option.added[1:])
        if page_index_only is None or alone is None or not self._gain(alone.reads):
            return option
        separate_gain = self._gain(page_index_only.reads) + self._gain(alone.reads)
        needs_both = self._gain(option.reads) > separate_gain + _GAIN_TOLERANCE
        return option if needs_both else alone

    def _option(self, added: tuple[IndexSpec, ...]) -> _Option | None:
        """Returns the option of adding indexes to those chosen so far. Each is built once."""
        key = tuple(map(spec_name, added))
        if key not in self._tried:
            self._tried[key] = self._new_option(added)
        return self._tried[key]

    def _new_option(self, added: tuple[IndexSpec, ...]) -> _Option | None:
        before = self._option(added[:-1]) if added[:-1] else None
        try:
            views = self._with_indexes(self.views if before is None else before.views, added[-1:])
        except (IndexSpecError, UnsupportedError):
            return None
        rows = self._estimator.most_rows
        share = self._share_of_values(views, added[-1])
        if share > _MANY_VALUES_SHARE and share * rows > _MAX_VALUES:
            return None
        size = sum(self._size(views, added_index) for added_index in added)
        return _Option(added, *self._estimator.measured(views), views, size)

    def _saved_share(self, number: int, read: float) -> float:
        """Returns the share of the bytes a filter reads now that it would no longer read."""
        current_bytes = self.reads[number]
        return 1 - read / current_bytes if current_bytes else 0.0

    def _gain(self, reads: Sequence[float]) -> float:
        saved_shares = (self._saved_share(number, read) for number, read in enumerate(reads))
        return sum(share for share in saved_shares if share >= _MIN_SAVED_SHARE)

    def _own_gain(self, option: _Option) -> float:
        """Returns the gain of an option, without that of the page index alone that it includes."""
        first = self._option(option.added[:1]) if len(option.added) > 1 else None
        return self._gain(option.reads) - (0.0 if first is None else self._gain(first.reads))

    def _size(self, views: Sequence[View], index: IndexSpec) -> int:
        name = spec_name(index)
        if not isinstance(index, Standard):
            return sum(e.length for v in views for e in v.file.sections.entries if e.name == name)
        return sum(r.bytes for v in views for r in parquet_index_reports(v.file) if r.name == name)

    def _share_of_values(self, views: Sequence[View], index: IndexSpec) -> float:
        """Returns the share of exact keys in the rows of a sample. 0 for other indexes."""
        if not (isinstance(index, Inverted) and index.exact):
            return 0.0
        shares = [0.0]
        for view in views:
            sections = view.file.sections
            entry = next((e for e in sections.entries if e.name == spec_name(index)), None)
            resolved = None if entry is None else sections.resolved(entry)
            values = None if resolved is None else sections.values(resolved)
            shares.append(0.0 if values is None else len(values) / max(view.file.num_rows, 1))
        return max(shares)
