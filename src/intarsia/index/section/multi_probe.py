"""Looks up keys in many sections at once, decoding their pages together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from intarsia.decode.splice import RowGroupBytes, decode_roots
from intarsia.decode.synthetic_footer import RootTemplate
from intarsia.errors import FormatError
from intarsia.index.key_formula import FingerprintArray
from intarsia.index.section.probe import InvertedSection, pages_with_keys


def have_any_key(probes: Sequence[tuple[InvertedSection, FingerprintArray]]) -> list[bool]:
    """Returns, for each section of fingerprints, whether it contains any of its keys.

    ``probes`` holds sections and their keys, which are distinct and sorted. Raises ``FormatError``
    if a page that has to be read is damaged.
    """
    has_key = [False] * len(probes)
    probes_by_template: dict[RootTemplate, list[tuple[int, list[RowGroupBytes]]]] = {}
    for number, (section, keys) in enumerate(probes):
        bounds = section.columns["key"].bounds if section.num_pages else None
        if bounds is not None:
            pages = pages_with_keys(bounds.low, bounds.high, keys)
            ends = np.concatenate((bounds.low[pages], bounds.high[pages]))
            has_key[number] = bool(np.isin(ends, keys).any())
            if len(pages) and not has_key[number]:  # then a key that exists is inside one page
                template, groups = section.fetched(["key"], pages)
                probes_by_template.setdefault(template, []).append((number, groups))
    for template, group_reads in probes_by_template.items():
        key_column = decode_roots(
            template,
            [group for _, own_groups in group_reads for group in own_groups],
            verify_checksums=True,
        ).column(0)
        if key_column.type != pa.uint32() or key_column.null_count:
            raise FormatError("a section's keys are no fingerprints")
        stored_keys, start = key_column.to_numpy(), 0
        for number, own_groups in group_reads:
            stop = start + sum(group.num_rows for group in own_groups)
            has_key[number] = _has_any_key(stored_keys[start:stop], probes[number][1])
            start = stop
    return has_key


def _has_any_key(stored_keys: FingerprintArray, keys: FingerprintArray) -> bool:
    if (stored_keys[1:] < stored_keys[:-1]).any():
        raise FormatError("the keys are not sorted")
    first = np.searchsorted(stored_keys, keys, side="left")
    return bool((first < np.searchsorted(stored_keys, keys, side="right")).any())
