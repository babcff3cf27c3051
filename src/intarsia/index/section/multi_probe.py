"""Which of many sections hold a key: the pages it would be on, decoded together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from intarsia.decode.splice import RowGroupBytes, decode_roots
from intarsia.decode.synthetic_footer import RootTemplate
from intarsia.errors import FormatError
from intarsia.index.key_formula import FingerprintArray
from intarsia.index.section.probe import InvertedSection, pages_with_keys


def are_held(asked: Sequence[tuple[InvertedSection, FingerprintArray]]) -> list[bool]:
    """For each section, of fingerprints: does it hold any of its keys, distinct and sorted?

    Raises ``FormatError`` where a page that has to be read is damaged.
    """
    held = [False] * len(asked)
    alike: dict[RootTemplate, list[tuple[int, list[RowGroupBytes]]]] = {}
    for at, (section, keys) in enumerate(asked):
        bounds = section.columns["key"].bounds if section.num_pages else None
        if bounds is not None:
            pages = pages_with_keys(bounds.low, bounds.high, keys)
            ends = np.concatenate((bounds.low[pages], bounds.high[pages]))
            held[at] = bool(np.isin(ends, keys).any())
            if len(pages) and not held[at]:  # then each key is within one page, if anywhere
                template, groups = section.fetched(["key"], pages)
                alike.setdefault(template, []).append((at, groups))
    for template, members in alike.items():
        found = decode_roots(
            template, [group for _, own in members for group in own], verify_checksums=True
        ).column(0)
        if found.type != pa.uint32() or found.null_count:
            raise FormatError("a section's keys are no fingerprints")
        known, start = found.to_numpy(), 0
        for at, own in members:
            stop = start + sum(group.num_rows for group in own)
            held[at] = _holds(known[start:stop], asked[at][1])
            start = stop
    return held


def _holds(known: FingerprintArray, keys: FingerprintArray) -> bool:
    if (known[1:] < known[:-1]).any():
        raise FormatError("the keys are not sorted")
    first = np.searchsorted(known, keys, side="left")
    return bool((first < np.searchsorted(known, keys, side="right")).any())
