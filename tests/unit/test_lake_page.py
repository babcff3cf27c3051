"""The map of a lake: a cell for each file, legible from three files to ten thousand."""

import re
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from click.testing import CliRunner

import intarsia as ia
from intarsia.cli.command_line import cli
from intarsia.report.lake_page import LakeFile, lake_page
from intarsia.report.page_lanes import MAX_PAGE_CELLS
from intarsia.report.render import lake_html

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def files_of(count, folders):
    """Returns files that differ in age and size; those of the first half of folders are indexed."""
    for i in range(count):
        folder = i * folders // count
        path = f"/lake/day={folder:03}/part-{i}.parquet"
        changed = NEW_YEAR + timedelta(hours=count - i)  # by name the newest first
        yield LakeFile(
            path, 1000 * 2 ** (i % 8), 10, 1024 * 2 ** (i % 8), changed, folder < folders / 2
        )


def test_each_of_a_few_files_has_a_cell():
    page = lake_page("lake", [], list(files_of(3, 2)))
    coverage, pages, sizes = page.maps
    assert [(lane.name, lane.files) for lane in coverage.lanes] == [("day=000", 2), ("day=001", 1)]
    assert [cell.share for lane in coverage.lanes for cell in lane.cells] == [1, 1, 0]
    assert [cell.start for cell in coverage.lanes[0].cells] == [0, 0.5]
    first, second = coverage.lanes[0].cells
    assert first.text.startswith("part-1.parquet: 2026-01-01, 100% covered, pages of 2,048 rows")
    assert second.text.startswith("part-0.parquet")
    assert [round(cell.share, 2) for cell in pages.lanes[0].cells] == [0.14, 0]
    assert (sizes.pale, sizes.dark) == ("1,000 bytes", "4,000 bytes")


def test_ten_thousand_files_share_cells_and_lanes():
    page = lake_page("lake", [], list(files_of(10_000, 300)))
    for one in page.maps:
        assert len(one.lanes) == 60
        assert sum(lane.files for lane in one.lanes) == 10_000
        for lane in one.lanes:
            assert sum(cell.pages for cell in lane.cells) == lane.files
            assert lane.cells[-1].start + lane.cells[-1].width <= 1.0001
        assert max(lane.cells[-1].start + lane.cells[-1].width for lane in one.lanes) > 0.99
    assert page.maps[0].lanes[0].name == "day=000 … day=004"
    assert sum(len(lane.cells) for one in page.maps for lane in one.lanes) <= MAX_PAGE_CELLS
    assert len(lake_html("lake", [], list(files_of(10_000, 300)))) < 4_000_000


@pytest.mark.parametrize("files", [[], list(files_of(1, 1))])
def test_names_are_escaped_and_there_is_no_script(files):
    html = lake_html("<script>", [("policy", "<b>")], files)
    assert "&lt;script&gt;" in html
    assert "&lt;b&gt;" in html
    assert "<script" not in html


def test_status_draws_the_files_by_the_policy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for day in (1, 2):
        folder = tmp_path / "lake" / f"day={day}"
        folder.mkdir(parents=True)
        ia.write_table(pa.table({"id": [str(n) for n in range(100)]}), folder / "a.parquet")
    ia.add_indexes("lake/day=1", ["id:lookup"])
    state = ia.status("lake", indexes=["id:lookup"])
    by_path = {file.path.split("/")[-2]: file for file in state.lake_files}
    assert by_path["day=1"].covered > by_path["day=2"].covered
    assert all(file.changed is not None for file in state.lake_files)
    assert "lake_files" not in state.to_dict()
    done = CliRunner().invoke(cli, ["status", "lake", "--html", "map.html"])
    assert (done.exit_code, done.output) == (0, "")
    html = (tmp_path / "map.html").read_text()
    assert re.findall(r'<th scope="row" title="([^"]*)">', html) == ["day=1", "day=2"] * 3
    assert "policy</dt><dd>none" in html
    both = CliRunner().invoke(cli, ["status", "lake", "--html", "map.html", "--json"])
    assert both.exit_code == 2
