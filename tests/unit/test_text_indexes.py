"""Indexes on strings: their answers, the bytes a probe reads, and the cost of building them."""

import shutil
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.expr.evaluate import evaluate
from intarsia.file.open_file import OpenedFile
from intarsia.index.base import Subject
from intarsia.index.indexed_type import order_of_type
from intarsia.index.key_formula import Keys
from intarsia.index.kinds.gram_keys import keys_of_strings
from intarsia.index.section.probe import InvertedSection
from intarsia.index.section.writer import (
    ENTRY_SCHEMA,
    STEP_SCHEMA,
    BuiltSection,
    entry_table,
    packed,
    write_section,
)
from intarsia.io.source import BufferSource
from intarsia.pruning.term import field_term
from intarsia.sql.where_clause import parse_where
from intarsia.strings import tokenizer
from intarsia.testing import CountingSource

ROWS = 20_000
RARE = "Disk full on /dev/sda1, trace 9f3a77bc"
T = pc.field("t")


def texts():
    """Words of two syllables, and one unique line in the middle."""
    random = np.random.default_rng(5)
    syllables = np.array([a + b for a in "bdfglmnprst" for b in "aeiou"])
    parts = syllables[random.integers(0, len(syllables), (ROWS, 10))]
    lines = [" ".join(a + b for a, b in zip(row[::2], row[1::2], strict=True)) for row in parts]
    lines[ROWS // 2] = RARE
    lines[7] = None
    return lines


@pytest.fixture(scope="module")
def table():
    return pa.table({"t": texts(), "n": range(ROWS)})


@pytest.fixture(scope="module")
def path(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "t.parquet"
    pq.write_table(
        table, path, use_dictionary=False, compression="none", max_rows_per_page=500,
        write_page_index=True, write_batch_size=500,
    )  # fmt: skip
    ia.add_indexes(path, "ngram(t, granule_rows=100)")
    ia.add_indexes(path, ia.Words("t", granule_rows=100))
    return path


def rows_left(path, table, filter_, kind):
    """The rows an index left; None if it was not used or could not decide."""
    source = ia.dataset(path)
    assert source.to_table(filter=filter_).equals(evaluate(filter_, table))
    steps = source.explain(filter=filter_).files[0].plan.steps
    return {step.source: step.rows for step in steps}.get(f"index t:{kind}")


@pytest.mark.parametrize(
    "filter_",
    [
        pc.match_substring(T, "full on"),
        pc.match_substring(T, "DEV", ignore_case=True),
        pc.match_like(T, "%full%trace%"),
        pc.match_like(T, "Disk_full%"),
        pc.match_like(pc.utf8_lower(T), "disk%"),
        pc.match_substring(pc.utf8_upper(T), "DISK"),
        pc.starts_with(T, "Disk "),
        pc.ends_with(T, "77bc"),
        pc.match_substring_regex(T, "(Disk|Disc) full"),
        pc.match_substring_regex(T, r"trace [0-9a-f]{8}$"),
        pc.match_substring_regex(T, "DISK +FULL", ignore_case=True),
        T == RARE,
        T.isin([RARE, "nothing of the kind"]),
    ],
    ids=str,
)
def test_grams_find_substrings(path, table, filter_):
    assert rows_left(path, table, filter_, "ngram") == 100


@pytest.mark.parametrize(
    "filter_",
    [
        pc.match_like(T, "%a_"),
        pc.match_substring(T, "fu"),
        pc.match_substring_regex(T, "[a-z]+ full|x*"),
        ~pc.match_substring(T, "full"),
        T > "Disk",
        T.is_null(),
        ia.contains_words(T, "full"),
    ],
    ids=str,
)
def test_grams_are_not_probed_for_predicates_that_they_cannot_answer(path, table, filter_):
    assert rows_left(path, table, filter_, "ngram") is None


@pytest.mark.parametrize("words", ["disk", "FULL disk", "sda1", "trace: 9F3A77BC!"])
def test_words_are_found_in_any_order_and_case(path, table, words):
    assert rows_left(path, table, ia.contains_words("t", words), "words") == 100
    assert ia.dataset(path).count_rows(filter=ia.contains_words("t", words)) == 1


@pytest.mark.parametrize(
    ("words", "is_match", "left"),
    [("dis", 0, 0), ("full xylophone", 0, 100), ("...", ROWS - 1, None)],
)
def test_parts_of_words_are_no_words(path, table, words, is_match, left):
    assert ia.dataset(path).count_rows(filter=ia.contains_words("t", words)) == is_match
    assert rows_left(path, table, ia.contains_words("t", words), "words") == left


def test_words_are_searched_in_sql(path, table):
    where = "CONTAINS_WORDS(t, 'disk full') AND n > 5"
    filter_ = parse_where(where, table.schema)
    assert filter_.equals(ia.contains_words("t", "disk full") & (pc.field("n") > 5))
    assert rows_left(path, table, filter_, "words") == 100
    for wrong in ("contains_words(n, 'a')", "contains_words(t, n)", "contains_words(t)"):
        with pytest.raises(ia.PredicateError, match=r"(?i)contains_words"):
            parse_where(wrong, table.schema)
    with pytest.raises(ia.PredicateError, match="is not a string type"):
        ia.dataset(path).to_table(filter=ia.contains_words("n", "a"))


def test_a_lookup_is_used_before_grams(path, tmp_path, table):
    both = tmp_path / "both.parquet"
    both.write_bytes(path.read_bytes())
    ia.add_indexes(both, ia.Lookup("t", granule_rows=100))
    assert rows_left(both, table, T == RARE, "lookup") == 100
    assert rows_left(both, table, T == RARE, "ngram") is None


def test_text_indexes_are_on_strings_only(path):
    for kind in (ia.NGram, ia.Words):
        with pytest.raises(ia.IndexSpecError, match="neither strings nor bytes"):
            ia.add_indexes(path, kind("n"))
    assert ia.verify(path) == []


# --- what a probe reads ---------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [RARE, "bada", "baba dudu rara", "ba"])
def test_a_probe_reads_a_tenth_of_the_column_at_most(path, table, pattern):
    source = CountingSource(path.read_bytes())
    file = OpenedFile(source, "t.parquet")
    (entry,) = (entry for entry in file.sections.entries if entry.kind == "ngram")
    pages = entry.offset, entry.offset + entry.length - entry.meta_length
    column = file.chunk(0, 0).total_compressed_size
    filter_ = pc.match_substring(T, pattern)
    assert ia.ParquetFile(source).read(filter=filter_).equals(evaluate(filter_, table))
    assert (source.bytes_within(*pages) > 0) == (len(pattern) > 2)
    assert source.bytes_within(*pages) <= column // 10


def section_of(schema, table, starts):
    out = pa.BufferOutputStream()
    write_section(out, schema, [table], starts, "f")
    return BuiltSection.of(memoryview(out.getvalue()))


def test_sections_without_steps_are_read():
    starts = np.arange(0, 110, 10)
    keys = np.array([3, 3, 5, 9, 9], np.uint32)
    granules = np.array([1, 4, 0, 2, 9], np.uint32)
    rows = pa.table([keys, granules], schema=ENTRY_SCHEMA)
    steps = entry_table(packed([(keys, granules)]))
    sections = [section_of(ENTRY_SCHEMA, rows, starts), section_of(STEP_SCHEMA, steps, starts)]
    kind = pa.string()
    of = Subject(field_term("t"), kind, order_of_type(kind))
    for built in sections:
        meta = built.meta_length, built.meta_crc32
        section = InvertedSection(BufferSource(built.data), *meta, "f", 100)
        actual = section.rows_of(Keys(np.array([3, 9], np.uint32)), of)
        assert (actual.starts // 10).tolist() == [1, 4, 9] or actual.num_rows == 40
        assert section.table()["granule"].to_pylist() == granules.tolist()


@pytest.fixture(scope="module")
def short(table, tmp_path_factory):
    """Pages of 100 rows; a granule of 1,000 rows would have ten pages."""
    path = tmp_path_factory.mktemp("short") / "t.parquet"
    pq.write_table(
        table, path, use_dictionary=False, max_rows_per_page=100, write_page_index=True,
        write_batch_size=100, row_group_size=7_000,
    )  # fmt: skip
    ia.add_indexes(path, [ia.NGram("t", granule_rows=1000), ia.Words("t", granule_rows=1000)])
    return path


@pytest.mark.parametrize(
    ("filter_", "kind", "left"),
    [
        (pc.match_substring(T, "full on"), "ngram", 100),
        (pc.match_substring(T, "Disk") | (T == "nothing of it"), "ngram", 100),
        (ia.contains_words(T, "full disk"), "words", 100),
        (ia.contains_words(T, "baba"), "words", None),
        (pc.match_substring(T, "baba"), "ngram", None),
    ],
    ids=str,
)
def test_a_rare_string_leaves_one_short_page_and_a_frequent_one_blocks(
    short, table, filter_, kind, left
):
    actual = rows_left(short, table, filter_, kind)
    assert actual == left if left else actual % 1000 == 0 and actual > 5_000


def test_frequent_keys_of_short_pages_take_no_more_than_those_of_long_ones(short, path, tmp_path):
    copy = tmp_path / "t.parquet"
    shutil.copy(short, copy)
    by_blocks = {one.kind: one.length for one in ia.list_indexes(short)[0].indexes}
    by_pages = [ia.NGram("t", granule_rows=100), ia.Words("t", granule_rows=100)]
    ia.add_indexes(copy, by_pages)
    sizes = {one.kind: one.length for one in ia.list_indexes(copy)[0].indexes}
    assert by_blocks["ngram"] < 0.6 * sizes["ngram"]
    assert by_blocks["words"] < 0.6 * sizes["words"]


@pytest.mark.parametrize(
    ("filter_", "kind"),
    [(pc.match_substring(T, "full on"), "ngram"), (ia.contains_words(T, "disk"), "words")],
)
def test_blocks_take_few_bytes(tmp_path, filter_, kind):
    table = pa.table({"t": [text + "x" * 60_000 for text in texts()[ROWS // 2 - 20 :][:40]]})
    path = tmp_path / "t.parquet"
    pq.write_table(
        table, path, use_dictionary=False, compression="none", max_rows_per_page=1,
        write_batch_size=1, write_page_index=True,
    )  # fmt: skip
    ia.add_indexes(path, [ia.NGram("t"), ia.Words("t")])
    assert rows_left(path, table, filter_, kind) == 1
    assert rows_left(path, table, pc.match_substring(T, "xxxx"), "ngram") in (None, 40)
    file = OpenedFile(BufferSource(path.read_bytes()), "t")
    sections = [file.sections.section(file.sections.resolved(e)) for e in file.sections.entries]
    assert [section.blocks.size for section in sections] == [8, 8]


@pytest.mark.parametrize("few", [0, 32])
def test_steps_continue_across_pages_and_row_groups(few, monkeypatch):
    monkeypatch.setattr("intarsia.index.section.probe._MAX_CACHED_PROBE_PAGES", few)
    random = np.random.default_rng(1)
    keys = np.sort(random.integers(0, 9, 40_000).astype(np.uint32) ** 7)
    granules = random.integers(0, 30_000, 40_000).astype(np.uint32)
    entries = entry_table(packed([(keys, granules)]))
    built = section_of(STEP_SCHEMA, entries, np.arange(30_001))
    meta = built.meta_length, built.meta_crc32
    section = InvertedSection(BufferSource(built.data), *meta, "f", 30_000)
    assert section.num_pages > 3
    expected = np.unique(keys.astype(np.uint64) << np.uint64(32) | granules)
    assert np.array_equal(section.entries(), expected)
    of = Subject(field_term("t"), pa.string(), order_of_type(pa.string()))
    for key in np.unique(keys):
        actual = section.rows_of(Keys(np.array([key])), of)
        assert actual.num_rows == len(np.unique(granules[keys == key]))
    for some in (keys[::9_000], keys[5_000::30_000], keys[-1:] + np.uint32(1)):
        actual = section.rows_of(Keys(some), of)
        assert np.array_equal(actual.rows(), np.unique(granules[np.isin(keys, some)]))


# --- what building takes --------------------------------------------------------------------------


@pytest.mark.parametrize("keys_of", [keys_of_strings, tokenizer.keys_of_strings])
def test_long_strings_take_little_memory(keys_of):
    letters = np.random.default_rng(0).integers(97, 123, 12_000_000).astype(np.uint8)
    letters[::6] = ord(" ")
    values = pa.array([letters.tobytes().decode()], pa.large_string())
    tracemalloc.start()
    try:
        keys_of(values, np.zeros(1, np.int64))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 15 * len(letters)
