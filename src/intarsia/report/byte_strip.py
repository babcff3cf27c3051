"""The strip of a file's bytes, from the first to the last: what they are, and which are read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from intarsia.io.source import ByteRange
from intarsia.plan.file_regions import Band, FileMap, Part
from intarsia.report.format import clip
from intarsia.report.page_lanes import Cell
from intarsia.row_ranges import RowRanges

ALL_BANDS, MOST_BANDS, LEAST_BANDS = 4_000, 400, 100
"""Bands of a page, of a strip, and of each strip where there are many; and so for ranges read."""


@dataclass(frozen=True, slots=True)
class StripBand:
    """Bytes of one sort: ``start`` and ``width`` are shares of the file.

    ``is_odd`` tells neighbouring row groups apart.
    """

    part: Part
    start: float
    width: float
    is_odd: bool
    text: str


@dataclass(frozen=True, slots=True)
class Sort:
    """All bytes of one sort, and how many of them are read."""

    part: Part
    length: int
    selected: int


@dataclass(frozen=True, slots=True)
class Strip:
    """The bytes of a file. ``reads`` are what is read of them, none where nothing is asked."""

    size: int
    bands: tuple[StripBand, ...]
    reads: tuple[Cell, ...]
    sorts: tuple[Sort, ...]

    @property
    def is_sliced(self) -> bool:
        """Are there too many ranges to be drawn one by one?"""
        return any(cell.share < 1 for cell in self.reads)

    @property
    def selected(self) -> int:
        return sum(sort.selected for sort in self.sorts)


def bands_in(strips: int) -> int:
    """How many bands each of so many strips may have."""
    return max(LEAST_BANDS, min(MOST_BANDS, ALL_BANDS // max(strips, 1)))


def strip_of(found: FileMap, ranges: Sequence[ByteRange] = (), most: int = MOST_BANDS) -> Strip:
    """The strip of a file in at most so many bands, with what is read of it in as many ranges."""
    size = found.size
    read = RowRanges.of(*((_within(at, size), _within(at + length, size)) for at, length in ranges))
    bands = [
        StripBand(
            band.part,
            band.offset / size,
            band.length / size,
            bool((band.row_group or 0) % 2),
            _text(band),
        )
        for band in _fewer(found.bands, most)
    ]
    return Strip(
        size, tuple(bands), tuple(_reads(read, size, most)), tuple(_sorts(found.bands, read))
    )


def _within(place: int, size: int) -> int:
    """A place in a file; footers may tell of others."""
    return min(max(place, 0), size)


def _text(band: Band) -> str:
    names = [band.part.value if not band.name else f"{clip(band.name, 80)}, {band.part.value}"]
    if band.row_group is not None:
        names.append(f"row group {band.row_group:,}")
    stop = band.offset + band.length
    return f"{', '.join(names)}: bytes {band.offset:,}–{stop - 1:,}, {band.length:,} in all"


def _fewer(bands: Sequence[Band], most: int) -> Sequence[Band]:
    """Bands that can be told apart: neighbours of a sort are one where they are too many."""
    for key in (_group_of, _part_of):
        if len(bands) > most:
            bands = [_joined(list(run)) for _, run in itertools.groupby(bands, key)]
    if len(bands) > most:
        largest = sorted(bands, key=lambda band: band.length)[-most:]
        bands = sorted(largest, key=lambda band: band.offset)
    return bands


def _group_of(band: Band) -> tuple[Part, int | None]:
    return band.part, band.row_group


def _part_of(band: Band) -> Part:
    return band.part


def _joined(run: Sequence[Band]) -> Band:
    first, last = run[0], run[-1]
    if first is last:
        return first
    group = first.row_group if first.row_group == last.row_group else None
    length = last.offset + last.length - first.offset
    return replace(first, length=length, row_group=group, name="")


def _reads(read: RowRanges, size: int, most: int) -> Iterable[Cell]:
    """The ranges that are read; where there are very many, the shares of slices of the file."""
    if len(read) <= most:
        for start, stop in read:
            text = f"bytes {start:,}–{stop - 1:,}, {stop - start:,} to be read"
            yield Cell(start / size, (stop - start) / size, 1.0, 0, text)
        return
    edges = np.linspace(0, size, most + 1).astype(np.int64).tolist()
    for start, stop in itertools.pairwise(edges):
        held = read.clip(start, stop).num_rows
        if held:
            share = held / (stop - start)
            text = f"bytes {start:,}–{stop - 1:,}, {held:,} of them to be read"
            yield Cell(start / size, (stop - start) / size, share, 0, text)


def _sorts(bands: Sequence[Band], read: RowRanges) -> Iterable[Sort]:
    """Sums by sort, in the order of ``Part``."""
    for part in Part:
        own = [band for band in bands if band.part is part]
        if own:
            places = _held(own)
            yield Sort(part, places.num_rows, (places & read).num_rows)


def _held(bands: Iterable[Band]) -> RowRanges:
    """The bytes of bands, as ranges of bytes."""
    return RowRanges.of(*((band.offset, band.offset + band.length) for band in bands))
