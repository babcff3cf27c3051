"""The share of a file that a lookup of one row reads, by the footer and the page index."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.file.page_layout import page_layout

ROWS = 240_000
TABLE = pa.table({"k": [f"k{i * 7919 % ROWS:06}" for i in range(ROWS)], "n": range(ROWS)})


def written(path, **options):
    pq.write_table(TABLE, path, **{"use_dictionary": False, "data_page_size": 1 << 30} | options)
    return path


def counted(path):
    """Returns what ``page_layout`` computes, from the headers of all pages of a row group."""
    file, rows, num_bytes = ia.ParquetFile(path), 0.0, 0
    group = pq.read_metadata(path).row_group(0)
    for number in range(group.num_columns):
        pages = [page for page in file.pages(0, number) if page.type.startswith("DATA_PAGE")]
        size = group.column(number).total_compressed_size
        rows += size * group.num_rows / len(pages)
        num_bytes += size
    return rows / num_bytes, rows / num_bytes / ROWS


@pytest.mark.parametrize(
    "options",
    [
        {"max_rows_per_page": 50_000, "row_group_size": 120_000},
        {"max_rows_per_page": 1_000},
        {"max_rows_per_page": ROWS, "row_group_size": 80_000, "use_dictionary": True},
        {"max_rows_per_page": 7_000, "write_page_index": True},
    ],
)
def test_the_layout_agrees_with_the_headers_of_all_pages(tmp_path, options):
    path = written(tmp_path / "t.parquet", **options)
    layout = page_layout(ia.ParquetFile(path)._opened)
    rows, share = counted(path)
    assert layout.page_rows == round(rows)
    assert layout.lookup_share == pytest.approx(share)
    assert layout.is_coarse == (rows >= 32_768)


def test_a_file_without_rows_has_no_layout(tmp_path):
    pq.write_table(TABLE.slice(0, 0), tmp_path / "t.parquet")
    assert page_layout(ia.ParquetFile(tmp_path / "t.parquet")._opened) is None


def test_indexes_on_long_pages_warn_before_any_file_is_changed(tmp_path):
    path = written(tmp_path / "long.parquet", max_rows_per_page=ROWS, row_group_size=60_000)
    written(tmp_path / "short.parquet", max_rows_per_page=2_000)
    before = path.read_bytes()
    states = []

    def progress(*_):
        states.append(path.read_bytes() == before)

    message = r"long.*pages of 60,000 rows: a lookup of one row reads 1/4 of the file; .*\(1 of 2"
    with pytest.warns(ia.IntarsiaWarning, match=message):
        ia.add_indexes(tmp_path, ["k:lookup"], progress=progress)
    assert states[0]
    assert "pages of 60,000 rows" in str(ia.dataset(path).explain(filter="k = 'k000007'"))
    advice = ia.advise(path, ["k = 'k000007'"])
    assert (advice.page_rows, advice.layout.page_rows) == (60_000, 2048)
    assert "A page has up to 60,000 rows" in str(advice)


@pytest.mark.filterwarnings("error")
def test_short_pages_and_bloom_filters_do_not_warn(tmp_path):
    ia.add_indexes(written(tmp_path / "a.parquet", max_rows_per_page=2_000), ["k:lookup"])
    ia.add_indexes(written(tmp_path / "b.parquet", max_rows_per_page=ROWS), ["k:bloom"])
