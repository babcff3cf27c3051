"""Lays out the strip of a file's bytes: what they are, and which are read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from intarsia.io.source import ByteRange
from intarsia.plan.file_regions import Band, FileMap, Part
from intarsia.report.format import clip
from intarsia.report.page_lanes import Cell
from intarsia.row_ranges import RowRanges

MAX_PAGE_BANDS, MAX_STRIP_BANDS, MIN_STRIP_BANDS = 4_000, 400, 100
"""The most bands of a page, the most of one strip, and the least limit of a strip."""


@dataclass(frozen=True, slots=True)
class StripBand:
    """Bytes of one part, in shares of the file. Row groups alternate in two shades."""

    part: Part
    start: float
    width: float
    is_odd: bool
    text: str


@dataclass(frozen=True, slots=True)
class PartBytes:
    """All bytes of one part of files, and how many of them are read."""

    part: Part
    length: int
    selected: int


@dataclass(frozen=True, slots=True)
class Strip:
    """The bytes of a file. ``reads`` are the ranges that are read, if there is a query."""

    size: int
    bands: tuple[StripBand, ...]
    reads: tuple[Cell, ...]
    parts: tuple[PartBytes, ...]

    @property
    def is_sliced(self) -> bool:
        """True if there are too many ranges to draw each."""
        return any(cell.share < 1 for cell in self.reads)

    @property
    def selected(self) -> int:
        """The number of bytes to be read."""
        return sum(part_bytes.selected for part_bytes in self.parts)


def bands_in(strips: int) -> int:
    """Returns how many bands each of ``strips`` strips may have."""
    return max(MIN_STRIP_BANDS, min(MAX_STRIP_BANDS, MAX_PAGE_BANDS // max(strips, 1)))


def strip_of(
    file_map: FileMap, ranges: Sequence[ByteRange] = (), most: int = MAX_STRIP_BANDS
) -> Strip:
    """Returns the strip of a file: at most ``most`` bands, and as many ranges that are read."""
    size = file_map.size
    read = RowRanges.of(*((_within(at, size), _within(at + length, size)) for at, length in ranges))
    bands = [
        StripBand(
            band.part,
            band.offset / size,
            band.length / size,
            bool((band.row_group or 0) % 2),
            _text(band),
        )
        for band in _reduced(file_map.bands, most)
    ]
    return Strip(
        size,
        tuple(bands),
        tuple(_reads(read, size, most)),
        tuple(_bytes_by_part(file_map.bands, read)),
    )


def _within(place: int, size: int) -> int:
    """Returns a position within the file. Footers may claim others."""
    return min(max(place, 0), size)


def _text(band: Band) -> str:
    names = [band.part.value if not band.name else f"{clip(band.name, 80)}, {band.part.value}"]
    if band.row_group is not None:
        names.append(f"row group {band.row_group:,}")
    stop = band.offset + band.length
    return f"{', '.join(names)}: bytes {band.offset:,}–{stop - 1:,}, {band.length:,} in all"


def _reduced(bands: Sequence[Band], most: int) -> Sequence[Band]:
    """Returns at most ``most`` bands. Neighbours of one part are joined if there are too many."""
    for key in (attrgetter("part", "row_group"), attrgetter("part")):
        if len(bands) > most:
            bands = [_joined(list(run)) for _, run in itertools.groupby(bands, key)]
    if len(bands) > most:
        largest = sorted(bands, key=lambda band: band.length)[-most:]
        bands = sorted(largest, key=lambda band: band.offset)
    return bands


def _joined(run: Sequence[Band]) -> Band:
    first, last = run[0], run[-1]
    if first is last:
        return first
    group = first.row_group if first.row_group == last.row_group else None
    length = last.offset + last.length - first.offset
    return replace(first, length=length, row_group=group, name="")


def _reads(read: RowRanges, size: int, most: int) -> Iterable[Cell]:
    """Yields the ranges that are read, or shares of slices of the file if there are too many."""
    if len(read) <= most:
        for start, stop in read:
            text = f"bytes {start:,}–{stop - 1:,}, {stop - start:,} to be read"
            yield Cell(start / size, (stop - start) / size, 1.0, 0, text)
        return
    edges = np.linspace(0, size, most + 1).astype(np.int64).tolist()
    for start, stop in itertools.pairwise(edges):
        read_bytes = read.clip(start, stop).num_rows
        if read_bytes:
            share = read_bytes / (stop - start)
            text = f"bytes {start:,}–{stop - 1:,}, {read_bytes:,} of them to be read"
            yield Cell(start / size, (stop - start) / size, share, 0, text)


def _bytes_by_part(bands: Sequence[Band], read: RowRanges) -> Iterable[PartBytes]:
    """Yields the sums by part, in the order of ``Part``."""
    for part in Part:
        bands_of_part = [band for band in bands if band.part is part]
        if bands_of_part:
            places = _byte_ranges(bands_of_part)
            yield PartBytes(part, places.num_rows, (places & read).num_rows)


def _byte_ranges(bands: Iterable[Band]) -> RowRanges:
    """Returns the bytes of bands, as ranges of bytes."""
    return RowRanges.of(*((band.offset, band.offset + band.length) for band in bands))
