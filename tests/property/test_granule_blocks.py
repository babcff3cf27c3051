"""Keys that occur in most small granules are stored for blocks of them; no granule is lost."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.errors import FormatError
from intarsia.index.base import Subject
from intarsia.index.indexed_type import order_of_type
from intarsia.index.key_formula import Every, Keys
from intarsia.index.section.granule_blocks import Blocks
from intarsia.index.section.probe import InvertedSection
from intarsia.index.section.writer import (
    CELL_SCHEMA,
    BuiltSection,
    entry_table,
    halves,
    packed,
    write_section,
)
from intarsia.io.source import BufferSource
from intarsia.pruning.term import field_term

OF = Subject(field_term("t"), pa.string(), order_of_type(pa.string()))


@st.composite
def cases(draw):
    """Blocks, and entries of a few keys, some of which are in most granules."""
    granules = draw(st.integers(3, 200))
    blocks = Blocks(draw(st.integers(2, granules - 1)), granules)
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    keys = draw(st.lists(st.integers(0, 2**32 - 1), max_size=8, unique=True))
    actual = []
    for key in keys:
        held = random.random(granules) < draw(st.sampled_from([0.01, 0.05, 0.3, 1.0]))
        at = np.flatnonzero(held).astype(np.uint32)
        actual.append((np.full(len(at), key, np.uint32), at))
    return blocks, packed(actual)


def expected(blocks, entries):
    """The granules that an index says each key is in, one by one."""
    actual = {}
    keys, granules = (part.tolist() for part in halves(entries))
    for key in set(keys):
        own = {granule for other, granule in zip(keys, granules, strict=True) if other == key}
        of = {granule // blocks.size for granule in own}
        if len(of) > max(1, -(-blocks.granules // blocks.size) // 16):
            own = {g for g in range(blocks.granules) if g // blocks.size in of}
        actual[key] = own
    return actual


@given(cases())
def test_rare_keys_have_granules_and_frequent_keys_have_blocks(case):
    blocks, entries = case
    cells = blocks.cells_of(entries)
    assert np.array_equal(cells, np.unique(cells))
    assert len(cells) <= len(entries)
    keys, granules = (part.tolist() for part in halves(blocks.entries_of(cells)))
    actual = {}
    for key, granule in zip(keys, granules, strict=True):
        actual.setdefault(key, set()).add(granule)
    assert actual == expected(blocks, entries)
    assert not len(np.setdiff1d(entries, blocks.entries_of(cells)))


@given(cases())
def test_a_section_of_cells_gives_the_granules_of_its_keys(case):
    blocks, entries = case
    out = pa.BufferOutputStream()
    rows = entry_table(blocks.cells_of(entries), CELL_SCHEMA)
    starts = np.arange(blocks.granules + 1)
    write_section(out, CELL_SCHEMA, [rows], starts, "f", block_size=blocks.size)
    built = BuiltSection.of(memoryview(out.getvalue()))
    section = InvertedSection(
        BufferSource(built.data), built.meta_length, built.meta_crc32, "f", blocks.granules
    )
    wanted = expected(blocks, entries)
    for key in wanted:
        leaf = Keys(np.array([key], np.uint32))
        rows = section.rows_of(leaf, OF)
        assert {g for a, b in rows for g in range(a, b)} == wanted[key]
        assert section.rows_of(leaf, OF, 1 << 20) == rows
    leaves = tuple(Keys(np.array([key], np.uint32)) for key in wanted)
    if leaves:
        rows = section.rows_of(Every(leaves), OF)
        assert {g for a, b in rows for g in range(a, b)} == set.intersection(*wanted.values())
    assert np.array_equal(section.entries(), blocks.entries_of(section.stored_entries()))


def test_too_large_blocks_are_refused():
    blocks = Blocks(2**21 - 1, 2**21)
    keys = np.arange(16_384, dtype=np.uint64) << np.uint64(32)
    with pytest.raises(FormatError, match="too many entries"):
        blocks.entries_of(keys)
