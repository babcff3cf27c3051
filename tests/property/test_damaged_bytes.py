"""With ``on_corrupt="skip"`` the answer equals brute force over the rows of undamaged pages."""

import functools
import io
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.io.source import BufferSource

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ROWS, GROUP_ROWS, PAGE_ROWS = 400, 200, 25
COLUMNS = ("a", "b", "w", "l")
LEAVES = {"l": "l.list.element"}


@functools.cache
def table():
    rng = np.random.default_rng(3)
    return pa.table(
        {
            "a": rng.integers(0, 40, ROWS),
            "b": pa.array(rng.random(ROWS).round(2), mask=rng.random(ROWS) < 0.1),
            "w": [f"word {i}" for i in rng.integers(0, 9, ROWS)],
            "l": pa.array([[int(i)] * (i % 4) for i in rng.integers(0, 50, ROWS)]),
        }
    )


@functools.cache
def stored(version, has_index, has_embedded):
    """The file, and for each page its column, the rows lost with it, and its body's position."""
    options = {
        "row_group_size": GROUP_ROWS,
        "max_rows_per_page": PAGE_ROWS,
        "write_batch_size": PAGE_ROWS,
        "use_dictionary": ["w"],
        "data_page_version": version,
        "compression": "zstd",
    }
    if has_embedded:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "t.parquet"
            indexes = [ia.Lookup("a"), ia.NGram("w")]
            ia.write_table(table(), path, indexes=indexes, **options)
            data = path.read_bytes()
    else:
        out = io.BytesIO()
        pq.write_table(
            table(), out, write_page_checksum=True, write_page_index=has_index, **options
        )
        data = out.getvalue()
    file = ia.ParquetFile(BufferSource(data))
    pages = []
    for group in range(ROWS // GROUP_ROWS):
        start = group * GROUP_ROWS
        for column in COLUMNS:
            for page in file.pages(group, LEAVES.get(column, column)):
                rows = (start, start + GROUP_ROWS)
                is_followed = has_index or has_embedded or column != "l"
                if page.first_row is not None and is_followed:
                    rows = (start + page.first_row, start + page.first_row + page.num_rows)
                pages.append((column, rows, page.offset + page.header_size, page.compressed_size))
    return data, pages


FILTERS = (
    (None, ()),
    (pc.field("a") == 7, ("a",)),
    (pc.field("a") < 12, ("a",)),
    (pc.field("b") > 0.4, ("b",)),
    (pc.field("b").is_null(), ("b",)),
    (pc.field("w") == "word 3", ("w",)),
    (pc.match_substring(pc.field("w"), "rd 5"), ("w",)),
    ((pc.field("a") > 20) & (pc.field("w") != "word 1"), ("a", "w")),
    ((pc.field("a") == 3) | (pc.field("b") < 0.1), ("a", "b")),
)


@SETTINGS
@given(data=st.data())
def test_the_answer_is_that_of_the_undamaged_rows(data):
    has_embedded = data.draw(st.booleans(), "embedded indexes")
    version = data.draw(st.sampled_from(["1.0", "2.0"]), "pages")
    has_index = data.draw(st.booleans(), "page index")
    whole, pages = stored(version, has_index, has_embedded)
    hit = data.draw(st.lists(st.sampled_from(pages), max_size=4, unique=True), "pages hit")
    damaged = bytearray(whole)
    for _, _, start, size in hit:
        at = start + data.draw(st.integers(0, size - 1), "byte") if size else None
        if at is not None:
            damaged[at] ^= data.draw(st.integers(1, 255), "mask")
    asked = []
    for _ in range(data.draw(st.integers(1, 3), "queries")):
        columns = data.draw(st.lists(st.sampled_from(COLUMNS), unique=True), "columns")
        asked.append((columns, *data.draw(st.sampled_from(FILTERS), "filter")))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        path.write_bytes(damaged)
        source = ia.dataset(path, on_corrupt="skip")
        for columns, filter_, used in asked:
            lost = {
                row
                for column, rows, _, size in hit
                if size and column in {*columns, *used}
                for row in range(*rows)
            }
            numbered = table().append_column("__row_number", pa.array(np.arange(ROWS)))
            left = numbered.filter(pa.array([row not in lost for row in range(ROWS)]))
            expected = left if filter_ is None else left.filter(filter_)
            wanted = [*columns, "__row_number"]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ia.CorruptDataWarning)
                assert source.to_table(wanted, filter_).equals(expected.select(wanted))
                assert source.head(7, wanted, filter_).equals(expected.select(wanted)[:7])
                if set(columns) <= set(used) and filter_ is not None:
                    assert source.count_rows(filter=filter_) == expected.num_rows
        named = {(actual.where.column.split(".")[0]) for actual in source.corrupt}
        assert named <= {column for column, _, _, _ in hit}
