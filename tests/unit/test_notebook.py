"""Results show themselves in notebooks: whole, escaped, and without credentials."""

from html.parser import HTMLParser

import pyarrow as pa
import pytest

import intarsia as ia
from intarsia.errors import Where
from intarsia.notebook import notebook_html


class Cells(HTMLParser):
    """The rows of all tables, and whether each element is closed."""

    def __init__(self, html):
        super().__init__()
        self.rows, self.open = [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag != "script"
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def rows_of(result):
    return Cells(result._repr_html_()).rows


@pytest.fixture
def lake(tmp_path):
    table = pa.table({"id": [f"k{n * 7 % 4096}" for n in range(4096)], "<b>": range(4096)})
    ia.write_dataset(table, tmp_path / "lake", indexes=["id:lookup"], max_rows_per_page=512)
    return tmp_path / "lake"


def test_a_data_set_shows_its_columns(lake):
    html = ia.dataset(lake)._repr_html_()
    assert Cells(html).rows == [["column", "type"], ["id", "string"], ["<b>", "int64"]]
    assert "&lt;intarsia.Dataset of 1 files" in html


def test_an_explanation_shows_amounts_and_readers(lake):
    data = ia.dataset(lake)
    planned = data.explain(filter="id = 'k7'")
    assert ["rows", "4,096", "512"] in rows_of(planned)
    analyzed = data.explain(filter="id = 'k7'", analyze=True)
    assert rows_of(analyzed)[0] == ["", "of", "planned", "read"]
    assert ["rows", "4,096", "512", "1"] in rows_of(analyzed)
    assert "index id:lookup decided" in analyzed._repr_html_()
    query = ia.explain_sql("SELECT * FROM t WHERE id = 'k7'", t=data)
    assert rows_of(query)[1][0] == "t"


def test_advice_shows_proposals_and_filters(lake):
    ia.drop_indexes(lake, all=True)
    advice = ia.advise(lake, ["id = 'k7'"])
    rows = rows_of(advice)
    assert [row[0] for row in rows if row[0] in advice.indexes] == advice.indexes
    assert rows[-1][0] == "id = 'k7'"


def test_a_finding_says_where():
    where = Where(file="a.parquet", row_group=3, column="id")
    finding = ia.Finding(ia.Severity.ERROR, where, "a < b")
    assert rows_of(finding)[1:] == [["file", "a.parquet"], ["row group", "3"], ["column", "id"]]
    assert "Error: a &lt; b" in finding._repr_html_()


def test_job_results_show_what_was_done(lake):
    status = ia.status(lake)
    assert ["id:lookup", "100.0%", "1"] in [row[:3] for row in rows_of(status)]
    report = ia.rewrite(lake, indexes=["id:lookup"], keep=True)
    assert ["rows", "4,096"] in rows_of(report)
    maintained = ia.maintain(lake)
    assert "changed 0 of 1 file;" in maintained._repr_html_()
    recovery = ia.recover(next(lake.glob("*.parquet")), lake.parent / "whole.parquet")
    assert ["rows", "4,096"] in rows_of(recovery)


def test_names_are_escaped_redacted_and_cut():
    html = notebook_html("s3://key:secret@bucket/<x>\x1b", (("n",), [[n] for n in range(1500)]))
    assert "secret" not in html
    assert "&lt;x&gt;\\x1b" in html
    assert Cells(html).rows[-2:] == [["99"], ["… and 1,400 more"]]
    assert notebook_html("none", (("n",), [])) == "<div><strong>none</strong></div>"
