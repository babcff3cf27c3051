"""Pages are skipped only if no value can match, for every way of storing strings."""

from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import intarsia as ia
from intarsia.expr.functions import contains_words
from intarsia.expr.tree import read_expression
from intarsia.scan import unit_reader
from intarsia.scan.filter import page_text_filter
from intarsia.scan.filter.substring import SubstringSearch, required_text_of

F = pc.field("f")
TEXTS = st.text("abä%", max_size=4) | st.none()


@st.composite
def written(draw, folder):
    """A file of strings in small pages."""
    kind = draw(st.sampled_from([pa.string(), pa.large_string(), pa.binary()]))
    values = pa.array(draw(st.lists(TEXTS, min_size=1, max_size=60)), pa.string()).cast(kind)
    plain = draw(st.sampled_from([None, "PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]))
    path = folder / "t.parquet"
    pq.write_table(
        pa.table({"f": values, "n": range(len(values))}),
        path,
        row_group_size=draw(st.integers(5, 60)),
        max_rows_per_page=draw(st.integers(1, 9)),
        write_batch_size=1,
        use_dictionary=["f"] if plain is None else False,
        column_encoding=None if plain is None else {"f": plain},
        compression=draw(st.sampled_from(["zstd", "snappy", "none", "gzip", "lz4"])),
        data_page_version=draw(st.sampled_from(["1.0", "2.0"])),
        write_page_index=draw(st.booleans()),
    )
    return path


def conditions(text):
    return [
        pc.equal(F, text),
        pc.match_substring(F, text),
        pc.starts_with(F, text),
        pc.ends_with(F, text),
        pc.match_like(F, f"%{text}_"),
        pc.match_like(F, f"{text}%a"),
        pc.match_substring(F, text, ignore_case=True),
        pc.match_like(F, f"%{text}%b", ignore_case=True),
        pc.match_substring_regex(F, f"{text}|[aä]b+A"),
        pc.match_substring(pc.utf8_upper(F), text),
        pc.equal(F, text) | (pc.field("n") == 3),
        pc.starts_with(F, text) & (pc.field("n") > 3),
    ]


@given(st.data())
def test_answers_are_those_of_pyarrow(tmp_path_factory, data):
    path = data.draw(written(tmp_path_factory.mktemp("sieve")))
    condition = data.draw(st.sampled_from(conditions(data.draw(st.text("abä", max_size=3)))))
    ds = ia.dataset(path)
    if ds.schema.field("f").type == pa.binary() and "match" in str(condition):
        condition = F == b"ab"
    with (
        mock.patch.object(unit_reader, "STAGED_ROWS", 0),
        mock.patch.object(page_text_filter, "_MIN_TRIED_PAGES", 1000),
    ):
        actual = ds.to_table(filter=condition)
    assert actual.equals(pads.dataset(path).to_table().filter(condition))


ROWS, PAGE = 200_000, 1000


class AnyCase(bytes):
    """A string with letters in either case."""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("sieve") / "t.parquet"
    texts = [f"message {i * 7919 % ROWS:06d}" for i in range(ROWS)]
    pq.write_table(
        pa.table({"f": texts, "n": range(ROWS)}),
        path,
        row_group_size=ROWS // 2,
        max_rows_per_page=PAGE,
        write_batch_size=PAGE,
        use_dictionary=False,
        write_page_index=True,
    )
    return path


@pytest.mark.parametrize(
    "condition",
    [
        F == "message 012345",
        pc.match_like(F, "m%12345"),
        pc.ends_with(F, "12345"),
        pc.match_like(F, "M%12345", ignore_case=True),
        pc.match_substring_regex(F, "0(1)2345"),
        contains_words(F, "012345"),
    ],
)
def test_only_pages_that_contain_the_string_are_decoded(large, condition):
    read = ia.dataset(large).explain(filter=condition, columns=["f"], analyze=True).read
    assert read.rows.selected <= 2
    assert 0 < read.pages.selected <= 12  # ten other strings have these digits at another position


@pytest.fixture(scope="module")
def unindexed(tmp_path_factory):
    """A file without page indexes, whose row groups are one page each, as DuckDB writes them."""
    path = tmp_path_factory.mktemp("sieve") / "t.parquet"
    texts = [f"message {i * 7919 % ROWS:06d}" for i in range(ROWS)]
    size = {"row_group_size": ROWS // 4, "max_rows_per_page": ROWS, "data_page_size": 1 << 30}
    pq.write_table(pa.table({"f": texts}), path, use_dictionary=False, **size)
    return path


def test_pages_are_skipped_without_a_page_index(unindexed):
    with mock.patch.object(unit_reader, "STAGED_ROWS", 0):
        read = ia.dataset(unindexed).explain(filter=F == "message 012345", analyze=True).read
    assert (read.rows.selected, read.pages.selected) == (1, 1)


def test_the_search_for_a_frequent_string_stops_after_few_large_pages(unindexed):
    decompressed = page_text_filter._decompressed
    with (
        mock.patch.object(unit_reader, "STAGED_ROWS", 0),
        mock.patch.object(page_text_filter, "_USUAL_PAGE_ROWS", ROWS // 40),
        mock.patch.object(page_text_filter, "_decompressed", side_effect=decompressed) as pages,
    ):
        table = ia.dataset(unindexed).to_table(
            filter=pc.match_substring(F, "message"), use_threads=False
        )
    assert table.num_rows == ROWS
    assert pages.call_count == 2, "each page counts as ten"


def test_the_search_for_a_frequent_string_stops_early(large):
    with mock.patch.object(
        page_text_filter.PageTextFilter, "_holds", autospec=True, return_value=True
    ) as holds:
        assert ia.dataset(large).to_table(filter=F == "message 1").num_rows == 0
    assert holds.call_count <= page_text_filter._MIN_TRIED_PAGES + 4


@pytest.mark.parametrize("use_dictionary", [False, True])
@pytest.mark.parametrize("every", [1, 12])
def test_searched_pages_are_not_read_again(tmp_path, use_dictionary, every):
    """All pages contain the string, or all but a few, so chunks are read whole."""
    texts = [f"{'other' if i // PAGE % 12 == every else 'message'} {i % 9999}" for i in range(ROWS)]
    path = tmp_path / "t.parquet"
    options = {"max_rows_per_page": PAGE, "write_batch_size": PAGE, "write_page_index": True}
    pq.write_table(pa.table({"f": texts}), path, use_dictionary=use_dictionary, **options)
    asked = pc.match_substring(F, "message")
    explained = ia.dataset(path).explain(filter=asked, columns=["f"], analyze=True)
    assert explained.read.rows.selected == sum("message" in text for text in texts)
    footers = 20_000
    assert explained.read.bytes.selected < explained.planned.bytes.selected + footers


def test_a_string_frequent_in_other_files_is_searched_in_few_pages(tmp_path):
    count = 20_000
    for number in range(6):
        texts = [f"message {i}" if number < 4 else f"other {i}" for i in range(count)]
        pq.write_table(
            pa.table({"f": texts}),
            tmp_path / f"{number}.parquet",
            max_rows_per_page=PAGE,
            write_batch_size=PAGE,
            use_dictionary=False,
            write_page_index=True,
        )
    data, condition = ia.dataset(tmp_path), pc.match_substring(F, "message")
    looked = []
    holds = page_text_filter.PageTextFilter._holds

    def counting(self, page, codec):
        looked.append(self._file.name[-9:])
        return holds(self, page, codec)

    with (
        mock.patch.object(unit_reader, "STAGED_ROWS", 0),
        mock.patch.object(page_text_filter.PageTextFilter, "_holds", counting),
    ):
        assert data.to_table(filter=condition, use_threads=False).num_rows == 4 * count
    actual = [looked.count(f"{number}.parquet") for number in range(6)]
    assert actual[:4] == [page_text_filter._MIN_TRIED_PAGES, 2, 2, 2]
    assert actual[4:] == [count // PAGE] * 2, "where the text is not, it is looked for all the same"


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (F == "ab", b"ab"),
        (F == "", None),
        (F != "ab", None),
        (pc.match_like(F, "ab%abc_d"), b"abc"),
        (pc.match_like(F, "%_"), None),
        (pc.match_like(F, r"a\%b"), AnyCase(b"a%b")),
        (pc.match_like(F, "ab", ignore_case=True), None),
        (pc.match_substring(F, "abc", ignore_case=True), AnyCase(b"abc")),
        (pc.match_substring(F, "ABç-Def", ignore_case=True), AnyCase(b"-def")),
        (pc.match_substring(F, "disk", ignore_case=True), None),
        (pc.match_like(F, "a%Bcd_ä", ignore_case=True), AnyCase(b"bcd")),
        (pc.match_substring_regex(F, "x?CVE-20[0-9]{2}"), AnyCase(b"cve-20")),
        (pc.match_substring_regex(F, "abc|bcd"), None),
        (pc.match_substring(pc.utf8_lower(F), "abc"), AnyCase(b"abc")),
        (~pc.match_substring(F, "abc", ignore_case=True), None),
        (contains_words(F, "a Zebra"), AnyCase(b"zebra")),
        (contains_words(F, "disk"), None),
        (pc.starts_with(F, "ä"), "ä".encode()),
        (pc.match_substring(F, "ab", ignore_case=True), None),
        (pc.equal(F, pa.scalar(None, pa.string())), None),
    ],
)
def test_the_required_string_of_a_condition(condition, text):
    schema = pa.schema([("f", pa.string())])
    actual = required_text_of(read_expression(condition), schema)
    any_case = isinstance(text, AnyCase)
    assert actual == (None if text is None else SubstringSearch("f", bytes(text), any_case))
    other = pa.schema([("f", pa.dictionary(pa.int32(), pa.string()))])
    assert required_text_of(read_expression(condition), other) is None
