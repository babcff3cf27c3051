"""The pages of a query's reads and of a file: what is drawn, that it is HTML, and that it is safe.

::

    row group    0              1
    id           ▯ ▯ ▮ ▯ ▯     ▯ ▯ ▯ ▯ ▯       ▮ to be read, ▯ skipped
"""

import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.errors import FormatError
from intarsia.file.byte_map import _disjoint
from intarsia.parquet.page_index import OffsetIndex
from intarsia.plan.explanation import Explanation
from intarsia.plan.file_account import FileAccount
from intarsia.plan.file_regions import Band, ChunkMap, FileMap, Part
from intarsia.plan.page_ranges import ChunkSelection
from intarsia.plan.plan import Amount, Figures, FilePlan, PlannedRead, Step
from intarsia.report import file_page as file_module
from intarsia.report import query_html
from intarsia.report.byte_strip import strip_of
from intarsia.report.format import begin, clip, condition, percent
from intarsia.report.page_lanes import MAX_LANE_CELLS, lane_of, rows_lane
from intarsia.report.query_page import MAX_SHOWN_FILES, report_of
from intarsia.report.render import file_html
from intarsia.report.row_axis import axis_of
from intarsia.row_ranges import RowRanges
from intarsia.scan.parquet_file import open_file

ROWS, GROUP, PAGE = 10_000, 5_000, 500
VOID = {"meta", "br", "col"}
HOSTILE = '"><img src=x onerror=alert(1)>'


class Page(HTMLParser):
    """The elements of a page, which must be closed in the order of opening."""

    def __init__(self, html):
        super().__init__()
        self.open, self.elements, self.texts = [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        assert len(dict(attributes)) == len(attributes), f"{tag} has an attribute twice"
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, tag, **attributes):
        """The attributes of those elements."""
        expected = {name.rstrip("_"): value for name, value in attributes.items()}
        return [a for t, a in self.elements if t == tag and expected.items() <= a.items()]

    @property
    def text(self):
        return "".join(self.texts)


def checked(html):
    """Asserts that a page is complete and valid, and that it runs and loads nothing."""
    page = Page(html)
    assert html.lstrip().startswith("<!DOCTYPE html>")
    assert page.all("html", lang="en")
    assert all(len(page.all(tag)) == 1 for tag in ("h1", "head", "body", "main"))
    names = {tag for tag, _ in page.elements}
    assert not names & {"script", "link", "img", "iframe", "object", "a", "form", "base", "embed"}
    assert page.all("meta", content="default-src 'none'; style-src 'unsafe-inline'")
    attributes = {name for _, given in page.elements for name in given}
    assert not [name for name in attributes if name in ("src", "href") or name.startswith("on")]
    assert "url(" not in html
    assert "@import" not in html
    for given in page.all("svg"):
        assert given["role"] == "img"
        assert given["aria-label"]
    for given in page.all("th"):
        assert given["scope"] in ("col", "row")
    for given in page.all("rect"):
        if "x" in given:
            assert 0 <= float(given["x"]) <= 1000
            assert float(given["x"]) + float(given["width"]) <= 1000.2
    return page


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """Two files of two row groups of ten pages; ``n`` is sorted, ``s`` has an index."""
    folder = tmp_path_factory.mktemp("lake")
    for i in range(2):
        rows = range(i * ROWS, (i + 1) * ROWS)
        table = pa.table(
            {
                "n": rows,
                "s": [f"s{n * 7919 % 20_011:05}" for n in rows],
                "point": [{"x": n, "tags": [n, n]} for n in rows],
            }
        )
        ia.write_table(
            table,
            folder / f"{i}.parquet",
            indexes=[ia.Lookup("s"), ia.Bloom("n")],
            row_group_size=GROUP,
            max_rows_per_page=PAGE,
            write_batch_size=100,
            use_dictionary=False,
        )
    return folder


def explained(path, columns=None, where=None, *, analyze=False):
    actual = ia.dataset(path).explain(columns, where, analyze=analyze, maps=MAX_SHOWN_FILES)
    return actual, checked(query_html(actual))


# --- queries ------------------------------------------------------------------------------------


@pytest.mark.parametrize("analyze", [False, True])
@pytest.mark.parametrize(
    "where",
    [
        "n = 7",
        "n BETWEEN 4000 AND 6000",
        "s = 's00001' OR n > 19000",
        "n IN (3, 8000, 12345)",
        None,
    ],
    ids=str,
)
def test_cells_are_the_pages_that_the_explanation_counts(lake, where, analyze):
    actual, page = explained(lake, ["n", "s"], where, analyze=analyze)
    drawn = [file.plan.figures.pages for file in actual.files if file.plan.rows]
    selected = sum(pages.selected for pages in drawn)
    assert len(page.all("rect", class_="f")) == selected
    assert len(page.all("rect", class_="o")) == sum(p.total for p in drawn) - selected
    for file in actual.files:
        for lane, column in zip(*lanes_and_columns(actual, file), strict=True):
            assert (lane.selected, lane.total) == (column.pages.selected, column.pages.total)


def lanes_and_columns(explanation, file):
    if file.map is None:
        return (), ()
    reports = [r for r in report_of(explanation).files if file.plan.path.endswith(r.name)]
    return reports[0].picture.lanes, file.plan.columns


def test_the_picture_marks_the_pages_that_the_plan_reads(lake):
    actual, page = explained(lake, ["n"], "n = 7003")
    (report,) = report_of(actual).files
    (lane,) = report.picture.lanes
    read = [cell for cell in lane.cells if cell.share]
    assert [(cell.start, cell.width) for cell in read] == [(0.7, 0.05)]
    assert read[0].text.startswith("row group 1, page 4: rows 7,000–7,499, ")
    assert read[0].text.endswith(" bytes, to be read")
    assert [mark.label for mark in report.picture.axis.groups] == ["0", "1"]
    assert report.picture.axis.edges == (0.5,)
    (range_,) = report.picture.strip.reads
    planned = actual.files[0].plan
    (part,) = planned.reads[0].selection.parts
    size = planned.figures.bytes.total
    assert (range_.start, range_.width) == (part[0] / size, part[1] / size)
    assert report.picture.strip.selected == planned.figures.bytes.selected
    assert "1 file without a row that might match" in page.text
    assert "1 file by row-group statistics" in page.text


def test_nested_columns_have_a_lane_for_each_leaf(lake):
    actual, page = explained(lake, ["point"], "n = 7003")
    (report,) = report_of(actual).files
    names = {lane.name for lane in report.picture.lanes}
    assert {"n", "point.x", "point.tags.list.element"} <= names
    assert len(page.all("rect", class_="f")) == actual.planned.pages.selected


def test_an_analyzed_report_shows_where_the_time_went(lake):
    _, page = explained(lake, ["n"], "s = 's00001' AND n > 5", analyze=True)
    assert "Where the time went" in page.text
    for activity in ("planning", "reading", "decoding", "filtering", "other"):
        assert activity in page.texts
    assert "Where the time went" not in explained(lake, ["n"], "n = 7")[1].text


def test_the_report_and_the_text_have_the_same_figures(lake):
    actual, page = explained(lake, ["n"], "s = 's00001' AND n > 5")
    assert actual.filter in page.text
    for file in actual.files:
        for step in file.plan.steps:
            assert step.source in page.texts
        for remark in file.remarks:
            assert remark in page.texts
    for amount in (actual.planned.pages, actual.planned.rows, actual.planned.bytes):
        assert f"{amount.selected:,}" in page.texts
        assert f"{amount.total:,}" in page.texts


def test_scans_without_columns_or_rows_have_a_report(lake, tmp_path):
    explained(lake, [], "n = 7")
    explained(lake, ["n"], "n < 0", analyze=True)
    pq.write_table(pa.table({"k": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    explained(tmp_path / "a.parquet", analyze=True)
    explained(tmp_path / "a.parquet", where="k = 1")


def test_chunks_without_a_page_index_are_one_cell(tmp_path):
    pq.write_table(pa.table({"k": range(1000)}), tmp_path / "a.parquet", row_group_size=250)
    actual, page = explained(tmp_path / "a.parquet", where="k = 300")
    assert len(page.all("rect", class_="f")) == actual.planned.pages.selected == 1
    assert len(page.all("rect", class_="o")) == 3
    assert "k: 4 chunks without a page index" in page.text


def test_maps_are_made_of_the_requested_files(lake):
    data = ia.dataset(lake)
    for maps, expected in ((0, [False, False]), (1, [True, False]), (20, [True, True])):
        actual = data.explain(filter="s > 's'", maps=maps)
        assert [file.map is not None for file in actual.files] == expected
        assert str(actual) == str(data.explain(filter="s > 's'"))
    actual = data.explain(filter="n > 15000", maps=1)
    assert [file.map is not None for file in actual.files] == [False, True]


def test_a_map_takes_no_more_requests(lake, monkeypatch):
    read = []

    def counted(source, ranges):
        read.extend(ranges)
        return originally(source, ranges)

    originally = ia.io.storage.FileSource.read
    monkeypatch.setattr(ia.io.storage.FileSource, "read", counted)
    for where in ("s = 's00001'", "n > 7", None):
        taken = []
        for maps in (0, 20):
            read.clear()
            ia.dataset(lake).explain(["n"], where, maps=maps)
            taken.append(list(read))
        assert taken[0] == taken[1]


# --- files --------------------------------------------------------------------------------------


def test_the_report_of_a_file_shows_every_page_and_index(lake):
    file = open_file(lake / "0.parquet")
    html, whole = file_html(file, file.schema.leaves)
    page = checked(html)
    assert whole
    pages = [
        ia.ParquetFile(lake / "0.parquet").page_index(group, leaf).offset_index
        for group in range(2)
        for leaf in range(len(file.schema.leaves))
    ]
    cells = page.all("rect", class_="p") + page.all("rect", class_="q")
    assert len(cells) == sum(map(len, pages))
    assert {"s:lookup", "n:bloom", "page_index", "point.x", "10,000"} <= set(page.texts)
    assert "row group 0, page 1: rows 500–999, " in page.text
    assert ", PLAIN, 0 NULLs, from 500 to 999" in page.text


def test_bands_cover_a_file_from_its_first_to_its_last_byte(lake):
    file = open_file(lake / "0.parquet")
    html, _ = file_html(file, file.schema.leaves)
    checked(html)
    actual = ia.dataset(lake / "0.parquet").explain(filter="n = 7", maps=1).files[0].map
    at = 4
    for band in actual.bands:
        assert band.offset == at
        at += band.length
    assert at == actual.size
    parts = {part: [b for b in actual.bands if b.part is part] for part in Part}
    assert [band.name for band in parts[Part.SECTION]] == ["s:lookup"]
    assert len(parts[Part.CHUNK]) == 2 * len(file.schema.leaves)
    assert [len(parts[p]) for p in (Part.DIRECTORY, Part.OLD_FOOTER, Part.FOOTER)] == [1, 1, 1]
    assert not parts[Part.OTHER]


def test_files_without_rows_or_columns_have_a_report(tmp_path):
    pq.write_table(pa.table({"k": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({}), tmp_path / "b.parquet")
    for name in ("a", "b"):
        file = open_file(tmp_path / f"{name}.parquet")
        checked(file_html(file, file.schema.leaves)[0])


def test_forty_columns_are_shown(tmp_path):
    table = pa.table({f"c{i:02}": range(10 * i) for i in range(1)} | {})
    table = pa.table({f"c{i:02}": [f"{i}" * i for _ in range(100)] for i in range(45)})
    pq.write_table(table, tmp_path / "a.parquet", write_page_index=True)
    file = open_file(tmp_path / "a.parquet")
    page = checked(file_html(file, file.schema.leaves)[0])
    assert "5 smaller columns not shown" in page.text
    assert len(page.all("svg", class_="lane")) == 40


def test_a_footer_may_claim_more_bytes_than_the_file_has():
    band = Band(Part.CHUNK, 4, 96, 0, "k")
    strip = strip_of(
        FileMap(100, np.array([0, 1]), (), (band,)), [(-5, 2**63), (50, 2**62), (-(2**63), -7)]
    )
    assert [(cell.start, cell.width) for cell in strip.reads] == [(0, 1)]
    assert strip.selected == 96


def test_bytes_that_two_parts_claim_belong_to_the_first():
    claims = [Band(Part.CHUNK, 4, 50, 0, "a"), Band(Part.CHUNK, 10, 20), Band(Part.FOOTER, 40, 900)]
    file = SimpleNamespace(source=SimpleNamespace(size=100))
    actual = [(band.offset, band.length) for band in _disjoint(file, claims)]
    assert actual == [(4, 50), (54, 46)]


def test_row_groups_without_rows_have_no_cells(tmp_path):
    path, table = tmp_path / "a.parquet", pa.table({"k": range(3)})
    with pq.ParquetWriter(path, table.schema, write_page_index=True) as writer:
        for part in (table, table.slice(0, 0), table):
            writer.write_table(part)
    html, is_whole = file_html(open_file(path), open_file(path).schema.leaves)
    assert is_whole
    assert "rows 3–2" not in html
    assert html.count("page 0: rows") == 2


def test_many_long_problems_are_shortened(lake, monkeypatch):
    actual = [FormatError("x" * 10_000)] * 250
    monkeypatch.setattr(file_module, "problems_of", lambda summaries: actual)
    file = open_file(next(iter(lake.glob("*.parquet"))))
    html, is_whole = file_html(file, file.schema.leaves)
    assert not is_whole
    assert "… and 150 more" in html
    assert html.count("x" * 100) <= 1000
    assert len(html) < 300_000


# --- foreign names ------------------------------------------------------------------------------


def test_names_and_values_are_escaped(tmp_path):
    folder = tmp_path / "<script>alert(1)<"
    folder.mkdir()
    path = folder / "a&b'<b>\x1b[2J.parquet"
    table = pa.table({HOSTILE: [HOSTILE, "</style>", "\x1b]0;"], "{{ 7 * 7 }}": [1, 2, 3]})
    table = table.replace_schema_metadata({"<svg onload=alert(1)>": "</code><script>"})
    ia.write_table(table, path, indexes=[ia.Lookup(HOSTILE)])
    file = open_file(path)
    page = checked(file_html(file, file.schema.leaves)[0])
    assert page.all("th", title=HOSTILE)
    assert "<svg onload=alert(1)>" in page.texts
    assert f"{HOSTILE}:lookup" in page.texts
    assert "{{ 7 * 7 }}" in page.texts
    assert "\x1b" not in page.text
    assert any("\\x1b[2J.parquet" in text for text in page.texts)
    for analyze in (False, True):
        where = pc.field(HOSTILE) == '</code><script>alert("\x1b\u202e")</script>'
        _, page = explained(folder, where=where | pc.field(HOSTILE).is_valid(), analyze=analyze)
        assert page.all("th", title=HOSTILE)
        assert "<script>alert(1)<" in page.text
        assert not re.search("[\x1b\u202e]", page.text)


def test_lone_surrogates_can_be_written():
    plan = FilePlan("lake/\udcff.parquet", "", RowRanges.none(), {}, (), (Step("folders", 0, 0),),
                    Figures(files=Amount(0, 1)), ())  # fmt: skip
    actual = Explanation((FileAccount(plan),), '(x == "\udcff")', ("x",))
    assert "\\udcff.parquet" in query_html(actual).encode().decode()


def test_long_strings_are_cut():
    assert clip("abcdefghij", 5) == "ab…ij"
    assert clip("abc", 3) == begin("abc", 3) == "abc"
    assert begin("abcdef", 3) == "abc… (6 characters)"
    assert len(condition("x" * 10**6)) < 5_000
    assert condition("is_in(x, {value_set=int64:[\n  1,\n  2\n]})") == (
        "is_in(x, {value_set=int64:[1, 2]})"
    )
    shares = [(0, 9), (9, 9), (1, 3), (1, 30), (99.6, 100), (99.99, 100), (1, 10**9), (1, 0)]
    assert [percent(*share) for share in shares] == [
        *("0%", "100%", "33.3%", "3.33%", "99.6%", ">99.9%", "<0.01%", "")
    ]


# --- many pages ---------------------------------------------------------------------------------


def many(pages, columns, page_rows=1000, every=1000):
    """A file of very many pages; a row might match in each ``every``-th page."""
    firsts = np.arange(pages, dtype=np.int64) * page_rows
    sizes = np.full(pages, 100, dtype=np.int64)
    rows = pages * page_rows
    expected = np.arange(0, pages, every)
    chunks, reads, bands = [], [], []
    for leaf in range(columns):
        start = 4 + leaf * pages * 100
        index = OffsetIndex(start + firsts // page_rows * 100, sizes, firsts)
        chunks.append(ChunkMap(0, leaf, f"column {leaf}", 0, rows, pages * 100, index))
        bands.append(Band(Part.CHUNK, start, pages * 100, 0, f"column {leaf}"))
        parts = tuple((int(index.offset[page]), 100) for page in expected)
        page_rows_ = RowRanges(expected * page_rows, expected * page_rows + page_rows)
        selection = ChunkSelection(None, parts, page_rows_, (page_rows,) * len(expected))
        reads.append(PlannedRead(0, leaf, f"column {leaf}", selection))
    size = 4 + columns * pages * 100
    candidates = RowRanges(expected * page_rows, expected * page_rows + 1)
    figures = Figures(
        Amount(1, 1),
        Amount(1, 1),
        Amount(columns * len(expected), columns * pages),
        Amount(len(expected), rows),
        Amount(columns * len(expected) * 100, size),
        Amount(columns * len(expected)),
    )
    plan = FilePlan("a.parquet", "", candidates, {}, tuple(reads),
                    (Step("page index", len(expected), 1),), figures, ())  # fmt: skip
    actual = FileMap(size, np.array([0, rows]), tuple(chunks), tuple(bands))
    return Explanation((FileAccount(plan, map=actual),), "(x == 1)", ("x",))


def test_a_report_of_a_million_pages_takes_two_megabytes_and_seconds():
    actual = many(pages=50_000, columns=20)
    since = time.process_time()
    html = query_html(actual)
    assert time.process_time() - since < 10
    assert len(html) < 2_000_000
    page = checked(html)
    assert "Up to 100 neighbouring pages are drawn together" in page.text
    assert len(page.all("rect", class_="f")) + len(page.all("rect", class_="o")) <= 10_000
    (report,) = report_of(actual).files
    for lane in report.picture.lanes:
        assert (lane.selected, lane.total) == (50, 50_000)
        assert sum(round(cell.share * cell.pages) for cell in lane.cells) == lane.selected
        assert sum(cell.pages for cell in lane.cells) == lane.total


def test_a_report_of_many_files_and_columns_takes_megabytes():
    one = many(pages=600, columns=25, every=2).files[0]
    actual = Explanation((one,) * 30, "(x == 1)", ("x",))
    html = query_html(actual)
    assert len(html) < 4_000_000
    page = checked(html)
    assert "And 10 more files with rows that might match" in page.text
    assert page.text.count("5 more columns, with fewer bytes to be read") == 20


def test_one_page_among_very_many_is_visible():
    index = OffsetIndex(*(np.arange(100_000, dtype=np.int64) for _ in range(3)))
    chunk = ChunkMap(0, 0, "k", 0, 100_000, 100_000, index)
    selection = ChunkSelection(None, ((77_777, 1),), RowRanges.of((77_777, 77_778)), (1,))
    lane = lane_of("k", [chunk], {(0, 0): selection}, 100_000, MAX_LANE_CELLS)
    (cell,) = [cell for cell in lane.cells if cell.share]
    assert (cell.start, cell.share) == (0.776, 1 / 200)
    assert cell.text == "row group 0, pages 77,600–77,799: rows 77,600–77,799, " + (
        f"{sum(range(77_600, 77_800)):,} bytes, 1 of 200 to be read"
    )


def test_very_many_row_ranges_are_drawn_as_shares_of_slices():
    mask = np.random.default_rng(1).random(100_000) < 0.3
    rows = RowRanges.from_mask(mask)
    lane = rows_lane(rows, len(mask), 100)
    assert len(lane.cells) == 100
    expected = mask.reshape(100, -1).mean(axis=1)
    assert [cell.share for cell in lane.cells] == pytest.approx(expected.tolist())
    few = rows_lane(RowRanges.of((0, 3), (50, 51)), 100, 100)
    assert [(cell.start, cell.width, cell.share) for cell in few.cells] == [
        (0, 0.03, 1),
        (0.5, 0.01, 1),
    ]


def test_very_many_chunks_are_drawn_as_a_few_hundred_bands():
    bands = [Band(Part.CHUNK, 4 + i, 1, i // 10, f"c{i % 10}") for i in range(20_000)]
    actual = FileMap(20_004, np.array([0, 1]), (), tuple(bands))
    strip = strip_of(actual, [(4 + i, 1) for i in range(0, 20_000, 2)])
    assert len(strip.bands) <= 400
    assert len(strip.reads) <= 400
    assert sum(band.width for band in strip.bands) == pytest.approx(20_000 / 20_004)
    assert strip.selected == 10_000


def test_the_axis_has_round_numbers():
    axis = axis_of(np.array([0, 1_234_567]))
    assert [mark.label for mark in axis.ticks] == ["0", "500,000", "1,000,000"]
    assert [mark.label for mark in axis_of(np.array([0, 3])).ticks] == ["0", "1", "2"]
    assert axis_of(np.array([0])).ticks == axis_of(np.array([0, 0])).ticks == ()
    assert axis_of(np.arange(101)).groups == ()


# --- the command line ---------------------------------------------------------------------------


def test_explain_writes_a_report(say, lake, tmp_path):
    out = tmp_path / "page.html"
    said = say("explain", lake, "--where", "n = 7", "--analyze", "--html", out)
    assert tuple(said) == ("", "", 0)
    assert "What the query read" in checked(out.read_text()).text
    assert say("explain", lake, "--columns", "n", "--html", out).code == 0
    assert "What the query would read" in checked(out.read_text()).text
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_inspect_writes_a_report_of_all_columns_or_some(say, lake, tmp_path):
    out = tmp_path / "page.html"
    assert tuple(say("inspect", lake / "0.parquet", "--html", out)) == ("", "", 0)
    whole = checked(out.read_text())
    assert tuple(say("inspect", lake / "0.parquet", "-c", "n", "--html", out)) == ("", "", 0)
    some = checked(out.read_text())
    lanes = [len(page.all("svg", class_="lane")) for page in (whole, some)]
    assert lanes == [4, 1]


@pytest.mark.parametrize("command", ["explain", "inspect"])
def test_a_report_that_cannot_be_written_is_an_error_of_one_sentence(say, lake, tmp_path, command):
    file = lake / "0.parquet"
    before = file.read_bytes()
    nowhere, folder = tmp_path / "nowhere" / "page.html", tmp_path / "folder"
    folder.mkdir()
    for out, words in (
        (nowhere, "there is no such folder"),
        (folder, "there is a folder"),
        (file, "it is a Parquet file"),
        ("", "the path is empty"),
    ):
        said = say(command, file, "--html", out)
        assert (said.code, said.out, len(said.err.splitlines())) == (5, "", 1)
        assert words in said.err
    assert file.read_bytes() == before
    assert say(command, file, "--json", "--html", tmp_path / "page.html").code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_an_existing_report_stays_if_a_new_one_fails(say, tmp_path):
    (tmp_path / "page.html").write_text("old")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing else")
    assert say("inspect", tmp_path / "a.parquet", "--html", tmp_path / "page.html").code == 4
    assert (tmp_path / "page.html").read_text() == "old"


def test_without_jinja2_only_reports_are_refused(lake, tmp_path):
    code = """
import sys
sys.modules["jinja2"] = None
from intarsia.cli import main
main()
"""

    def ran(*arguments):
        command = [sys.executable, "-c", code, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert ran("inspect", lake / "0.parquet").returncode == 0
    refused = ran("inspect", lake / "0.parquet", "--html", tmp_path / "page.html")
    assert refused.returncode == 1
    assert refused.stderr.strip() == (
        "intarsia: pages need jinja2, which is not installed: install the extra, intarsia[cli]"
    )


def test_jinja2_is_imported_for_reports_only():
    code = "import sys, intarsia.cli.command_line; print('jinja2' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
