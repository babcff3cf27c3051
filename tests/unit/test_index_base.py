"""Kinds of index: how they are built, where they are used, and how they are dropped."""

import json
import math
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import intarsia as ia
from intarsia.expr.evaluate import evaluate
from intarsia.file.open_file import OpenedFile
from intarsia.index import (
    How,
    Inverted,
    Keys,
    Op,
    Reads,
    SearchPredicate,
    Summary,
    fingerprints,
    registry,
)
from intarsia.index.registry import parse
from intarsia.index.section.writer import STEP_SCHEMA, entries_of
from intarsia.indexing import column_values, entry_collector
from intarsia.indexing.build import Builder
from intarsia.io import external_sort
from intarsia.io.external_sort import Workspace, merged_blocks
from intarsia.io.source import BufferSource
from intarsia.parquet.footer import framed, read_footer, with_key_values
from intarsia.parquet.footer_cache import FOOTER_KEY
from intarsia.plan import index_selection
from intarsia.pruning import term
from intarsia.pruning.term import field_term
from intarsia.row_ranges import RowRanges
from intarsia.testing import CountingSource

ROWS = 3000
TABLE = pa.table(
    {
        "k": [f"K{i * 7919 % 500:05}" for i in range(ROWS)],
        "n": range(ROWS),
        "x": [i % 60 for i in range(ROWS)],
        "status": ["ok"] * 2000 + ["bad"] * 10 + ["ok"] * 989 + [None],
        "s": [{"a": i % 500, "b": {"c": str(i)}} for i in range(ROWS)],
        "tags": [["a", f"t{i}"] if i % 3 else None for i in range(ROWS)],
        "map": pa.array(
            [[(f"m{i}", 1), ("m", 2)] if i % 3 else None for i in range(ROWS)],
            pa.map_(pa.string(), pa.int64()),
        ),
    }
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(
        TABLE, path, row_group_size=1000, max_rows_per_page=200, write_batch_size=10,
        write_page_index=True,
    )  # fmt: skip
    return path


def steps(path, filter_):
    """The rows left by each source; asserts that the answer is right."""
    source = ia.dataset(path)
    assert source.to_table(filter=filter_).num_rows == evaluate(filter_, TABLE).num_rows
    plan = source.explain(filter=filter_).files[0].plan
    return {step.source: step.rows for step in plan.steps}


def names(path):
    return [entry.name for entry in ia.list_indexes(path)[0].indexes]


# --- where they are used --------------------------------------------------------------------------


def test_distinct_answers_every_predicate_on_a_value(file):
    ia.add_indexes(file, ia.Distinct("status", granule_rows=10))
    status = pc.field("status")
    conditions = {
        "=": (status == "bad", 10),
        "IN": (status.isin(["bad", "none"]), 10),
        "<>": (status != "ok", 10),
        "<": (status < "c", 10),
        "NULL": (status.is_null(), 10),
        "prefix": (pc.starts_with(status, "ba"), 10),
        "LIKE": (pc.match_like(status, "%a_"), 10),
        "NOT LIKE": (~pc.match_like(status, "%k"), 10),
        "any case": (pc.match_substring(status, "BA", ignore_case=True), 10),
        "regex": (pc.match_substring_regex(status, "^b.d$"), 10),
        "lowered": (pc.match_like(pc.utf8_upper(status), "B%"), 10),
    }
    for what, (filter_, rows) in conditions.items():
        assert steps(file, filter_)["index status:distinct"] == rows, what
    assert ia.ParquetFile(file).distinct("status").to_pylist() == ["bad", "ok", None]
    assert ia.ParquetFile(file).distinct("k") is None


def test_granules_that_match_completely_by_distinct_are_counted_unread(file):
    ia.add_indexes(file, ia.Distinct("status", granule_rows=10))
    source = ia.dataset(file)
    opened = source.scan_source.cache.get(str(file))
    assert (source.count_rows(pc.field("status") == "bad"), opened.pages_read) == (10, 0)
    passing = ~pc.match_like(pc.field("status"), "b%")
    assert source.count_rows(passing) == 2989
    assert opened.pages_read == 1  # the one of the granule that has the NULL as well


def test_the_most_promising_index_is_used_first_and_others_only_if_needed(file, monkeypatch):
    ia.add_indexes(file, [ia.Distinct("status"), ia.Lookup("k", granule_rows=20)])
    both = (pc.field("status") == "ok") & (pc.field("k") == "K00007")
    assert list(steps(file, both)) == ["row-group statistics", "index k:lookup"]
    monkeypatch.setattr(index_selection, "COSTS", replace(index_selection.COSTS, probe_bytes=0))
    assert [*steps(file, both)][1:3] == ["index k:lookup", "index status:distinct"]


def test_two_bounds_indexes_with_small_granules_answer_a_box_query(file, monkeypatch):
    monkeypatch.setattr(index_selection, "COSTS", replace(index_selection.COSTS, probe_bytes=0))
    ia.add_indexes(file, [ia.MinMax("n", 20), ia.MinMax(pc.field("x") * 2, 4)])
    box = (pc.field("n") >= 900) & (pc.field("n") < 960) & (pc.field("x") * 2 > 110)
    actual = steps(file, box)
    assert {"index n:minmax", "index (x * 2):minmax"} <= actual.keys()
    assert list(actual.values())[-1] == 4


def test_a_function_is_looked_up_where_the_query_has_the_same_one(file):
    lowered = pc.utf8_lower(pc.field("k"))
    ia.add_indexes(file, [ia.Lookup(lowered, granule_rows=20), "lookup(UPPER(k), granule_rows=20)"])
    assert names(file) == ["lower(k):lookup", "upper(k):lookup"]
    assert steps(file, lowered == "k00123")["index lower(k):lookup"] == 120
    assert steps(file, pc.utf8_upper(pc.field("k")) == "K00123")["index upper(k):lookup"] == 120
    assert "index lower(k):lookup" not in steps(file, pc.field("k") == "K00123")
    assert "index lower(k):lookup" not in steps(file, pc.utf8_swapcase(pc.field("k")) == "k00123")
    assert ia.dataset(file).count_rows(lowered == "k00123") == 6
    ia.add_indexes(file, "lookup(Lower(K))")
    assert names(file) == ["upper(k):lookup", "lower(k):lookup"]


def test_an_index_with_other_case_tables_is_not_used(file, monkeypatch):
    lowered = pc.utf8_lower(pc.field("k"))
    ia.add_indexes(file, ia.Lookup(lowered, granule_rows=20))
    monkeypatch.setattr(term, "_case_tables", lambda: "00000000")
    with pytest.warns(ia.IntarsiaWarning, match=r"lower\(k\):lookup is ignored.*its functions"):
        assert "index lower(k):lookup" not in steps(file, lowered == "k00123")


def test_registering_a_kind_again_replaces_it(file, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})

    def registered(keys):
        class Own(ia.Lookup):
            kind = "own_lookup"

            def keys_for(self, predicate, of):
                return keys(super().keys_for(predicate, of))

        return ia.register_index_kind(Own)

    ia.add_indexes(file, registered(lambda actual: actual)("k", granule_rows=20))
    assert steps(file, pc.field("k") == "K00123")["index k:own_lookup"] < ROWS
    registered(lambda _: None)
    assert "index k:own_lookup" not in steps(file, pc.field("k") == "K00123")


def test_a_failing_kind_causes_a_warning_and_changes_no_answer(file, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    fails = []

    class Own(ia.Lookup):
        kind = "own_lookup"

        def unfit(self, of):
            return super().unfit(of) if not fails else fails[0] / 0

    ia.add_indexes(file, ia.register_index_kind(Own)("k"))
    fails.append(1)
    with pytest.warns(ia.IntarsiaWarning, match="k:own_lookup is ignored: .*ZeroDivisionError"):
        actual = ia.ParquetFile(file).read(filter=pc.field("k") == "K00123")
    assert actual.num_rows == TABLE.filter(pc.field("k") == "K00123").num_rows > 0
    (finding,) = ia.verify(file)
    assert "ZeroDivisionError" in finding.message


@pytest.mark.parametrize("serves", [5, "=", None])
def test_a_kind_declares_the_predicates_it_serves(serves):
    class Own(ia.Lookup):
        kind = "own_lookup"

    Own.serves = serves
    with pytest.raises(ia.IndexSpecError, match="does not say what it serves"):
        ia.register_index_kind(Own)


class WithoutKeys(Inverted):
    kind = "without_keys"
    serves = frozenset({Op.EQ})

    def keys_for(self, predicate, of):
        return None


class WithoutAnswers(Summary):
    kind = "without_answers"
    serves = frozenset({Op.EQ})

    def summarize(self, values, starts):
        return pa.record_batch({"n": np.diff(starts)})


class WithoutFields(ia.Lookup):
    kind = "without_fields"
    known: ClassVar[int] = 0
    bits: int = 8


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (WithoutKeys, "does not define keys_of_values"),
        (WithoutAnswers, "does not define might_match"),
        (WithoutFields, r"its parameter bits is not a field: it lacks @dataclass\(frozen=True\)"),
    ],
)
def test_an_invalid_kind_is_not_registered(kind, words):
    with pytest.raises(ia.IndexSpecError, match=words):
        ia.register_index_kind(kind)


@pytest.mark.parametrize(
    ("gives", "words"),
    [
        (lambda starts: pa.table({"n": np.diff(starts)}), "a Table, not a RecordBatch"),
        (
            lambda starts: pa.record_batch({"n": np.diff(starts)[1:]}),
            r"\d+ summaries of \d+ granules",
        ),
        (
            lambda starts: pa.record_batch({f"n{len(starts)}": np.diff(starts)}),
            "summaries of other columns",
        ),
    ],
)
def test_there_is_one_summary_per_granule(gives, words, file, monkeypatch):
    class Own(WithoutAnswers):
        kind = "own_summary"

        def summarize(self, values, starts):
            return gives(starts)

        def might_match(self, predicate, summaries, of):
            return None

    monkeypatch.setattr(registry, "_registered", {})
    before = Path(file).read_bytes()
    with pytest.raises(ia.IndexSpecError, match=f"'own_summary' gave {words}"):
        ia.add_indexes(file, ia.register_index_kind(Own)("k"))
    assert Path(file).read_bytes() == before


def test_a_function_of_a_column_that_is_read_in_another_type_is_not_looked_up(file):
    ia.add_indexes(file, [ia.Lookup(pc.field("n") + 1), ia.Lookup("n")])
    schema = TABLE.schema.set(1, pa.field("n", pa.int32()))
    source = ia.dataset(file, schema=schema)
    for filter_, used in ((pc.field("n") == 5, True), (pc.field("n") + 1 == 5, False)):
        plan = source.explain(filter=filter_).files[0].plan
        assert any("lookup" in step.source for step in plan.steps) == used


def test_leaves_of_structs_are_indexed(file):
    ia.add_indexes(file, ["lookup(s.b.c, granule_rows=10)", "distinct(s.a, granule_rows=10)"])
    leaf = pc.field("s", "b", "c")
    assert steps(file, leaf == "1234")["index s.b.c:lookup"] == 10
    assert steps(file, pc.field("s", "a") == 7)["index s.a:distinct"] == 60
    assert ia.verify(file) == []


@dataclass(frozen=True)
class Holds(Inverted):
    """The granules whose lists contain an element."""

    kind = "holds"
    reads = Reads.ELEMENTS
    serves = frozenset({How.LIST_ANY, How.MAP_ANY, Op.EQ})

    def keys_of_values(self, values):
        return fingerprints(values), np.arange(len(values))

    def keys_for(self, predicate, of):
        return Keys(fingerprints(predicate.values.cast(of.type)))


@pytest.mark.parametrize(
    ("column", "how", "sought", "row"),
    [("tags", How.LIST_ANY, "t1234", 1234), ("map", How.MAP_ANY, "m1001", 1001)],
)
def test_elements_are_indexed_at_the_rows_of_their_lists(
    column, how, sought, row, file, monkeypatch
):
    monkeypatch.setattr(registry, "_registered", {})
    ia.register_index_kind(Holds)
    ia.add_indexes(file, Holds(column, granule_rows=10))
    assert ia.verify(file) == []
    opened = ia.ParquetFile(file)._opened
    (index,) = opened.sections.about(field_term(column))
    match = SearchPredicate(field_term(column), how, values=pa.array([sought]))
    actual = opened.sections.rows_of(index, match, RowRanges.all(ROWS))
    assert actual == RowRanges.of((row // 10 * 10, row // 10 * 10 + 10))


def test_predicates_have_their_former_names_as_well():
    former, current = (ia.index.Test, ia.index.Match), (ia.index.Comparison, SearchPredicate)
    assert former == current


def test_negated_predicates_use_only_exact_kinds(file, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    ia.register_index_kind(Holds)
    ia.add_indexes(file, Holds("tags"))
    opened = ia.ParquetFile(file)._opened
    (index,) = opened.sections.about(field_term("tags"))
    match = SearchPredicate(field_term("tags"), How.LIST_ANY, values=pa.array(["a"]))
    predicates = [match, SearchPredicate(match.term, match.how, values=match.values, negated=True)]
    predicates.append(SearchPredicate(match.term, match.how, values=match.values, nulls=True))
    assert [index.may_answer(one) for one in predicates] == [True, False, False]


# --- how they are built ---------------------------------------------------------------------------


def test_several_indexes_read_each_column_once(file):
    source = CountingSource(memoryview(file.read_bytes()))
    opened = OpenedFile(source, "t.parquet", tail_bytes=12)
    lowered = ia.Lookup(pc.utf8_lower(pc.field("k")))
    expected = [ia.Lookup("k"), ia.Distinct("k"), ia.MinMax("k"), lowered, ia.Lookup("n")]
    with Workspace() as work:
        Builder().sections(opened, expected, "f" * 32, work)
    leaves = [opened.schema.leaf(name).index for name in ("k", "n")]
    for leaf in range(len(opened.schema.leaves)):
        chunk = opened.chunk(0, leaf)
        stop = chunk.start + chunk.total_compressed_size
        inside = [n for (at, _), n in Counter(source.ranges).items() if chunk.start <= at < stop]
        assert set(inside) == ({1} if leaf in leaves else set())


def entries(section):
    """All rows, of fingerprints as entries."""
    if section.schema_arrow != STEP_SCHEMA:
        return section.read().to_pylist()
    groups = [section.read_row_group(i) for i in range(section.num_row_groups)]
    return np.concatenate([entries_of(group) for group in groups]).tolist()


IN_PARTS = [
    ia.Lookup("k", 10), ia.Distinct("k", 10), ia.MinMax("k", 7), ia.NGram("k", 10),
    ia.Words("k", 10),
]  # fmt: skip


@pytest.mark.parametrize("index", IN_PARTS, ids=str)
def test_a_section_is_the_same_whether_it_fits_into_memory_or_not(index, file, monkeypatch):
    def built():
        with Workspace() as work:
            opened = OpenedFile(BufferSource(file.read_bytes()), "t")
            (made,) = Builder().sections(opened, [index], "f", work)
            whole = pa.BufferReader(bytes(made.section.data) + b"PAR1")
            return pq.ParquetFile(whole)

    at_once = built()
    monkeypatch.setattr(external_sort, "RUN_ENTRIES", 100)
    monkeypatch.setattr(external_sort, "BLOCK_ENTRIES", 30)
    monkeypatch.setattr(entry_collector, "BLOCK_ENTRIES", 30)
    monkeypatch.setattr(entry_collector, "_SLICE_BYTES", 500)
    monkeypatch.setattr(column_values, "PIECE_BYTES", 3000)
    in_parts = built()
    assert entries(in_parts) == entries(at_once)
    assert at_once.num_row_groups == 1
    assert in_parts.num_row_groups > 3 or isinstance(index, ia.MinMax)
    ia.add_indexes(file, index)
    for key in ("K00000", "K00123", "K00499"):
        condition = ia.contains_words("k", key) if index.kind == "words" else pc.field("k") == key
        assert f"index {index.on}:{index.kind}" in steps(file, condition)
    assert ia.verify(file) == []


@given(st.lists(st.lists(st.integers(0, 60)), max_size=5), st.integers(1, 9))
def test_merging_runs_equals_sorting_at_once(runs, block):
    arrays = [np.unique(np.array(run, dtype=np.uint64)) for run in runs]
    before, external_sort.BLOCK_ENTRIES = external_sort.BLOCK_ENTRIES, block
    try:
        merged = [number for part in merged_blocks(arrays) for number in part.tolist()]
    finally:
        external_sort.BLOCK_ENTRIES = before
    assert merged == sorted({number for run in runs for number in run})


def test_a_column_of_too_many_distinct_values_is_refused(file, monkeypatch):
    monkeypatch.setattr(entry_collector, "_MOST_VALUES", 499)
    before = file.read_bytes()
    with pytest.raises(ia.IndexSpecError, match="too many distinct values"):
        ia.add_indexes(file, ia.Distinct("k"))
    assert file.read_bytes() == before


REFUSED = [
    (ia.MinMax, pa.decimal64(12, 3)),
    (ia.MinMax, pa.string_view()),
    (ia.Distinct, pa.float16()),
    (ia.Distinct, pa.decimal32(7, 2)),
    (ia.Distinct, pa.binary_view()),
    (ia.DistinctIDX1, pa.string_view()),
]


@pytest.mark.parametrize(("kind", "of"), REFUSED, ids=lambda one: getattr(one, "kind", str(one)))
def test_types_that_pyarrow_lacks_functions_for_are_refused(kind, of, tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": pa.nulls(3, of)}), path)
    before = path.read_bytes()
    with pytest.raises(ia.IndexSpecError, match="pyarrow cannot do it: Function '"):
        ia.add_indexes(path, [kind("c")])
    assert path.read_bytes() == before


@pytest.mark.parametrize("of", [pa.string_view(), pa.binary_view()], ids=str)
def test_string_views_are_indexed(of, tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": pa.array(["red fox", None, "", "hen"], of)}), path)
    ia.add_indexes(path, [ia.NGram("c"), ia.Words("c"), ia.Lookup("c")])
    assert ia.verify(path) == []
    same = tmp_path / "b.parquet"
    pq.write_table(pa.table({"c": ["red fox", None, "", "hen"]}), same)
    ia.add_indexes(same, [ia.NGram("c"), ia.Words("c"), ia.Lookup("c")])
    sizes = [[entry.length for entry in ia.list_indexes(p)[0].indexes] for p in (path, same)]
    assert sizes[0] == sizes[1]


def test_a_function_that_fails_on_the_data_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"n": [2**62, 2**62]}), path)
    with pytest.raises(ia.IndexSpecError, match="cannot evaluate"):
        ia.add_indexes(path, ia.Lookup(pc.field("n") * 2))


# --- how they are dropped -------------------------------------------------------------------------


def test_replacing_an_index_reclaims_its_space(file):
    ia.add_indexes(file, [ia.Lookup("k"), ia.Lookup("n", 10), ia.Bloom("k")])
    size = file.stat().st_size
    for _ in range(3):
        ia.add_indexes(file, [ia.Lookup("n", 10), ia.Bloom("k")])
    assert abs(file.stat().st_size - size) < 100
    assert ia.verify(file) == []
    assert pq.read_table(file).equals(TABLE)


def test_dropping_all_indexes_restores_the_file(file):
    before = file.read_bytes()
    ia.add_indexes(file, [ia.Lookup("k"), ia.Distinct("status")])
    ia.add_indexes(file, ["bloom(k)", "n:minmax"])
    (report,) = ia.drop_indexes(file, ["k:lookup", ia.Bloom("k"), "distinct(status)"])
    assert [entry.name for entry in report.indexes] == ["n:minmax"]
    assert steps(file, pc.field("n") == 5)["index n:minmax"] == 200
    ia.drop_indexes(file, "n:minmax")
    assert file.read_bytes() == before


def test_dropping_a_missing_index_is_refused(file):
    ia.add_indexes(file, ["k:lookup"])
    before = file.read_bytes()
    for name in ("k:bloom", "n:lookup", "telepathy(k)", "k:telepathy"):
        with pytest.raises(ia.IndexSpecError):
            ia.drop_indexes(file, name)
    with pytest.raises(ia.IndexSpecError, match="those added are: k:lookup"):
        ia.drop_indexes(file, ["k:lookup", "k:bloom"])
    assert ia.drop_indexes(file, "page_index")[0].kept == ("page_index",)  # it existed before
    assert file.read_bytes() == before


def test_dropping_removes_the_indexes_that_each_file_has(tmp_path, file):
    bare = tmp_path / "u.parquet"
    pq.write_table(TABLE.select(["n"]), bare)
    ia.add_indexes(bare, ["page_index", "n:lookup"])
    ia.add_indexes(file, ["n:lookup", "lookup(lower(k))"])
    reported = []
    reports = ia.drop_indexes(
        tmp_path, ["n:lookup", "lookup(LOWER(k))"], progress=lambda *at: reported.append(at[1:])
    )
    assert [report.indexes for report in reports] == [(), ()]
    assert reported == [(0, 2), (1, 2), (2, 2)]
    assert [entry.name for entry in reports[1].standard] == ["page_index"]
    ia.drop_indexes(tmp_path, "page_index")
    assert ia.list_indexes(bare)[0].standard == ()


def test_files_are_not_reported_to_lack_an_index_of_an_unknown_kind(file, tmp_path):
    ia.add_indexes(file, ["k:lookup"])
    file.write_bytes(with_kind(file.read_bytes(), "soundex"))
    pq.write_table(TABLE, tmp_path / "u.parquet")
    report = ia.list_indexes(tmp_path)[-1]
    assert report.unfit == ("k:soundex",)
    assert report.reasons == ("its kind is not known here",)
    before = file.read_bytes()
    ia.drop_indexes(file, [])  # no index is not every index
    assert file.read_bytes() == before


def test_an_index_of_an_unknown_kind_is_carried_along_and_can_be_dropped(file):
    before = file.read_bytes()
    ia.add_indexes(file, ["k:lookup", "n:lookup"])
    file.write_bytes(with_kind(file.read_bytes(), "soundex"))
    ia.add_indexes(file, "n:lookup")
    assert names(file) == ["k:soundex", "n:lookup"]
    ia.drop_indexes(file, ["k:soundex", "n:lookup"])
    assert file.read_bytes() == before


def with_kind(stored, kind):
    """The file whose first index is declared to be of another kind."""
    footer = read_footer(BufferSource(stored))
    pointer = json.loads(footer.metadata.key_value(FOOTER_KEY))
    start, stop = pointer["offset"], pointer["offset"] + pointer["length"]
    document = json.loads(stored[start:stop])
    document["indexes"][0]["kind"] = kind
    text = json.dumps(document).encode()
    pointer |= {"length": len(text), "crc32": zlib.crc32(text)}
    raw = with_key_values(footer.raw, {FOOTER_KEY: json.dumps(pointer)})
    return stored[:start] + text + framed(raw)


# --- as strings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("lookup(a)", ia.Lookup("a")),
        ("a:lookup", ia.Lookup("a")),
        ("lower(a):lookup", ia.Lookup("lower(a)")),
        ("lookup(lower(a), granule_rows=5)", ia.Lookup("lower(a)", 5)),
        ('distinct(CAST("a, b" AS DATE))', ia.Distinct('CAST("a, b" AS DATE)')),
        ("MinMax(a * 2, granule_rows=7)", ia.MinMax("a * 2", 7)),
        ("lookup(m['a, b'], granule_rows=7)", ia.Lookup("m['a, b']", 7)),
        ("m['a:b']:lookup", ia.Lookup("m['a:b']")),
        ("lookup(coalesce(a, b, ''))", ia.Lookup("coalesce(a, b, '')")),
        ("bloom(a, fpp=0.5)", ia.Bloom("a", 0.5)),
        ('bloom("a, b")', ia.Bloom("a, b")),
        ('lookup(" a=b")', ia.Lookup(" a=b")),
        ('page_index("a""b", s."x, y")', ia.PageIndex(('a"b', "s.x, y"))),
        ('"a:b":lookup', ia.Lookup("a:b")),
        ("a, b:lookup", ia.Lookup("a, b")),
    ],
)
def test_indexes_are_parsed_from_strings(text, index):
    assert parse(text) == index


@pytest.mark.parametrize(
    "text", ["lookup(a, b)", "lookup(a, granule_rows=x)", "minmax(a, colour='red')", "lookup(=)"]
)
def test_strings_that_are_no_index_are_refused(text):
    with pytest.raises(ia.IndexSpecError):
        parse(text)


@pytest.mark.parametrize("expression", [pc.field("k") / 2, pc.scalar(1)])
def test_an_expression_that_is_not_on_the_list_is_refused(expression):
    with pytest.raises(ia.IndexSpecError, match="indexes know: these are lower, upper"):
        ia.Lookup(expression)


def test_functions_that_depend_on_the_time_zone_are_not_indexed(tmp_path):
    path, moments = tmp_path / "z.parquet", pa.array([0, 10**15, None], pa.timestamp("us"))
    zones = {name: moments.cast(pa.timestamp("us", name)) for name in ("Europe/Berlin", "UTC")}
    berlin, utc = zones.values()
    times = pa.StructArray.from_arrays([berlin], ["ts"])
    table = pa.table({"berlin": berlin, "utc": utc, "times": times})
    pq.write_table(table, path)
    for on in (
        "CAST(berlin AS VARCHAR)",
        "lower(CAST(berlin AS VARCHAR))",
        "CAST(times.ts AS VARCHAR)",
    ):
        with pytest.raises(ia.IndexSpecError, match="the rules of its time zone"):
            ia.add_indexes(path, [ia.Lookup(on)])
    in_utc = ["hour(berlin)", "hour(times.ts)", "hour(utc)", "CAST(utc AS VARCHAR)"]
    (report,) = ia.add_indexes(path, [ia.Lookup(on) for on in in_utc])
    assert [entry.on for entry in report.indexes] == [
        "hour(CAST(berlin AS TIMESTAMPTZ))",
        "hour(CAST(times.ts AS TIMESTAMPTZ))",
        "hour(utc)",
        "CAST(utc AS VARCHAR)",
    ]
    for on in in_utc[:3]:
        assert ia.dataset(path).explain(filter=f"{on} = 5").planned.rows.selected == 0
        assert ia.dataset(path).count_rows(filter=f"{on} = 0") == 1
    local = pc.hour(pc.field("berlin")) == 1  # which is another question than hour(berlin)
    assert ia.dataset(path).count_rows(filter=local) == 1


def test_the_substitute_for_null_has_the_type_of_the_other_argument(tmp_path):
    path = tmp_path / "c.parquet"
    floats = pa.array([0.5, None, 1.5], pa.float32())
    words = pa.array(["a", None, "b"]).dictionary_encode()
    pq.write_table(pa.table({"f": floats, "w": words}), path, row_group_size=1)
    ia.add_indexes(path, ["minmax(coalesce(f, 0.25))", "lookup(coalesce(w, 'none'))"])
    assert ia.verify(path) == []
    for filter_ in ("coalesce(f, 0.25) = 0.25", "coalesce(w, 'none') = 'none'"):
        assert ia.dataset(path).count_rows(filter_) == 1
        assert ia.dataset(path).explain(filter=filter_).planned.rows.selected == 1


def test_map_values_are_looked_up_where_their_keys_are(tmp_path):
    path = tmp_path / "m.parquet"
    maps = [[("rare", f"v{n}")] if 40 <= n < 50 else [("k", "v")] * (n % 2) for n in range(90)]
    pq.write_table(
        pa.table({"n": range(90), "m": pa.array(maps, pa.map_("string", "string"))}), path
    )
    ia.add_indexes(path, ia.Elements("m", 10))
    source = ia.dataset(path)
    for filter_, rows in {
        "m['rare'] = 'v44'": [44],
        "lower(m['rare']) LIKE 'v4%' AND n <> 40": [*range(41, 50)],
        "NOT m['rare'] = 'v44'": [*range(40, 44), *range(45, 50)],
        "m['rare'] IS NOT NULL OR m['nothing'] > 'a'": [*range(40, 50)],
    }.items():
        assert source.to_table(["n"], filter_)["n"].to_pylist() == rows
        assert source.explain(filter=filter_).planned.rows.selected == 10
    assert source.count_rows("m['rare'] IS NULL") == 80
    assert source.count_rows("coalesce(m['rare'], 'v') = 'v'") == 80


def test_the_error_says_why_a_map_value_is_not_indexed(tmp_path):
    path = tmp_path / "m.parquet"
    far = pa.map_(pa.string(), pa.timestamp("us", "Europe/Berlin"))
    numbered = pa.map_(pa.int32(), pa.string())
    table = pa.table({"far": pa.nulls(1, far), "numbered": pa.nulls(1, numbered)})
    pq.write_table(table, path)
    for on, why in (("far['a']", "rules of its time zone"), ("numbered['a']", "int32")):
        with pytest.raises(ia.IndexSpecError, match=why):
            ia.add_indexes(path, [ia.Lookup(on)])


@pytest.mark.parametrize("kind", [ia.Distinct, ia.MinMax])
def test_nans_with_other_bits_are_not_members(kind, tmp_path):
    path, column = tmp_path / "n.parquet", pa.array([1.5, -math.nan, math.nan, -math.nan])
    pq.write_table(pa.table({"x": column}), path, row_group_size=1)
    ia.add_indexes(path, [kind("x", 1)])
    source = ia.dataset(path)
    for members in ([math.nan], [1.5, math.nan], [1.5, -math.nan]):
        is_in = pc.field("x").isin(pa.array(members))
        count = pc.sum(pc.is_in(column, pa.array(members))).as_py()
        for filter_, rows in ((is_in, count), (~is_in, 4 - count)):
            assert source.count_rows(filter_) == rows
            assert source.to_table(filter=filter_).num_rows == rows


def test_values_of_maps_are_looked_up(tmp_path):
    path = tmp_path / "m.parquet"
    maps = [[("k", f"v{n}"), ("y", "v44")] if n % 3 else [("x", "v1")] for n in range(90)]
    table = pa.table(
        {"n": range(90), "m": pa.array([*maps[:-1], None], pa.map_("string", "string"))}
    )
    pq.write_table(table, path)
    ia.add_indexes(path, [ia.Lookup("m['k']", 10), ia.NGram("m['k']", granule_rows=10)])
    assert ia.verify(path) == []
    source = ia.dataset(path)
    for filter_, rows in {
        "m['k'] = 'v44'": [44],
        "m['k'] IN ('v44', 'v1', 'v3')": [1, 44],
        "m['k'] LIKE '%v77%'": [77],
        "m['k'] = 'nothing'": [],
    }.items():
        assert source.to_table(["n"], filter_)["n"].to_pylist() == rows
        assert source.explain(filter=filter_).planned.rows.selected <= 10 * len(rows)
        assert ia.sql(f"SELECT n FROM t WHERE {filter_}", t=source)["n"].to_pylist() == rows
