"""Files cut at every byte, or at many: as many of the first rows as possible are recovered.

::

    PAR1 footer │ g0 │ footer │ g1 │ footer │ …      a cut here gives back
                                 ^                    group 0, by the footer before it
                                        ^             groups 0 and 1
"""

import io
import os
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cutting import group_ends, recovered, rows_after, rows_within, template

import intarsia as ia
from intarsia.io.source import BufferSource
from intarsia.parquet.footer import read_footer
from intarsia.recovery.byte_scan import walk_tiles

ROWS, GROUP = 12, 4
STEP = int(os.environ.get("INTARSIA_CUT_STEP", "3"))
"""Distance in bytes between cuts of other writers' files."""


def flat(rows=ROWS):
    texts = pa.array([None if n % 5 == 0 else f"x{n % 3}" for n in range(rows)])
    return pa.table({"n": range(rows), "s": texts})


def nested(rows=ROWS):
    structs = [{"a": n, "b": [f"v{n}"] * (n % 3)} for n in range(rows)]
    return pa.table({"st": structs, "n": range(rows)})


SHORT = {"store_schema": False}
"""Options for files cut at every byte. The Arrow schema would be a third of a small file."""


def written(table, group=GROUP, **options):
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=group, **options)
    return sink.getvalue()


def checkpointed(path, table, every, group=GROUP, **options):
    with ia.ParquetWriter(path, table.schema, checkpoint_row_groups=every, **options) as writer:
        writer.write_table(table, group)
    return path.read_bytes()


@pytest.mark.parametrize("every", [1, 2])
def test_every_cut_keeps_what_is_before_the_last_checkpoint(tmp_path, every):
    table = flat()
    data = checkpointed(tmp_path / "t.parquet", table, every, **SHORT)
    footers = walk_tiles(BufferSource(data)).footers
    checkpoints = [(tile.metadata.num_rows, tile.stop) for tile in footers]
    assert [rows for rows, _ in checkpoints] == ([0, 4, 8, 12, 12] if every == 1 else [0, 8, 12])
    ends = group_ends(data)
    for cut in range(len(data) + 1):
        rows = rows_after(data, cut, table)
        safe = max((rows for rows, stop in checkpoints if stop <= cut), default=None)
        assert (rows or 0) >= (safe or 0)
        if safe is not None:  # and row groups after it, located by their pages
            assert rows == max(safe, rows_within(ends, cut))


V2 = {"data_page_version": "2.0", "compression": "zstd", "write_page_checksum": True}


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (flat, {}),
        (flat, {"compression": "none", "use_dictionary": False}),
        (nested, V2 | {"write_statistics": False}),
    ],
    ids=["dictionaries", "plain", "nested V2"],
)
def test_every_cut_of_a_file_without_checkpoints_keeps_all_whole_row_groups(make, options):
    table = make()
    data = written(table, **SHORT, **options)
    ends, whole = group_ends(data), template(data)
    for cut in range(len(data) + 1):
        assert (rows_after(data, cut, table, whole) or 0) == rows_within(ends, cut)


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_codecs_are_determined_by_trial(codec):
    table = flat(1000)
    data = written(table, 300, compression=codec)
    ends = group_ends(data)
    for rows, end in ends:
        assert rows_after(data, end, table, table.schema) == rows


def test_the_last_row_of_a_possibly_unfinished_list_is_left_out():
    table = pa.table({"n": range(6), "l": [[n] * n for n in range(6)]})
    data = written(table, 3)
    first, second = (end for _, end in group_ends(data))
    whole = template(data)
    assert rows_after(data, second, table, whole) == 3  # a V1 page of the list may follow
    assert rows_after(data, first, table, whole) is None
    assert rows_after(data, read_footer(BufferSource(data)).offset + 200, table, whole) == 6


@pytest.mark.parametrize("names", [["n", "l"], ["l"]])
def test_a_dictionary_that_is_cut_ends_the_list_before_it(names):
    table = pa.table({"n": range(6), "l": [[n] * n for n in range(6)]}).select(names)
    data = written(table, 3)
    first = group_ends(data)[0][1]
    pages = walk_tiles(BufferSource(data)).pages
    (at,) = np.flatnonzero(pages.offset == first)
    assert pages.is_dictionary[at]
    body = first + int(pages.header_size[at])
    for cut in range(first, int(pages.stop[at])):
        # As soon as the bytes that identify a dictionary are there.
        assert rows_after(data, cut, table, template(data)) == (3 if cut >= body else None)


def test_ambiguous_columns_are_not_guessed():
    numbers = np.arange(4000)
    table = pa.table({"a": numbers, "b": numbers + 1_000_000})
    options = {"max_rows_per_page": 100, "write_batch_size": 100, "use_dictionary": False}
    data = written(table, 1000, **options)
    end = group_ends(data)[2][1]
    for cut in range(100, end, 1777):
        assert recovered(data[:cut], template(data))[0] is None
    # The footer's schema alone does not help. Once its row groups are complete, all rows are found.
    footer = read_footer(BufferSource(data)).offset
    assert rows_after(data, footer + 10, table, template(data)) is None
    assert rows_after(data, len(data) - 8, table) == 4000


def test_a_cut_footer_describes_the_row_groups_before_the_cut():
    table = flat()
    data = written(table)
    footer = read_footer(BufferSource(data))
    rows = [rows_after(data, cut, table) for cut in range(footer.offset, len(data) + 1)]
    assert rows[-1] == 12
    assert {rows for rows in rows if rows is not None} == {12}
    assert sum(actual is not None for actual in rows) > len(footer.raw) * 0.7


@pytest.mark.parametrize("options", [{}, V2, {"compression": "none", "use_dictionary": False}])
def test_random_cuts_of_a_large_file(options):
    numbers = np.arange(200_000)
    text = pa.array([f"text {n % 1000}" for n in numbers])
    table = pa.table({"n": numbers, "s": text, "x": numbers * 0.1, "even": numbers % 2 == 0})
    data = written(table, 30_000, max_rows_per_page=5000, write_batch_size=1000, **options)
    ends = group_ends(data)
    chance = random.Random(5)
    for cut in [chance.randrange(len(data)) for _ in range(12)]:
        rows = rows_after(data, cut, table, template(data)) or 0
        assert rows <= rows_within(ends, cut)
        if not options.get("use_dictionary", True):
            continue  # the end of a column's pages may be unknown
        assert rows == rows_within(ends, cut)


SMALL = [
    "apache-parquet-testing__data-byte_array_decimal.parquet",
    "apache-parquet-testing__data-null_list.parquet",
    "apache-parquet-testing__data-old_list_structure.parquet",
    "apache-impala__testdata-data-date_tbl.parquet",
    "apache-impala__testdata-multi_compression_parquet_data-tinytable_0_gzip_snappy.parq.parquet",
    "hyparam-hyparquet__test-files-hyparquet_struct.parquet",
]


@pytest.mark.parametrize("name", SMALL)
def test_cuts_of_other_writers_files(corpus, name):
    data = (corpus / "files" / name).read_bytes()
    table = pq.read_table(io.BytesIO(data))
    actual = [rows_after(data, cut, table, template(data)) for cut in range(0, len(data), STEP)]
    assert actual[0] is None
    assert actual[-1] == table.num_rows
    assert rows_after(data, len(data), table) == table.num_rows
    assert len(group_ends(data)) == 1
    assert set(actual) == {None, table.num_rows}


def test_a_page_without_its_bytes_loses_only_its_row_group(tmp_path):
    table = flat()
    data = bytearray(checkpointed(tmp_path / "t.parquet", table, 1))
    start = group_ends(data)[0][1]
    page = data.index(b"x", group_ends(data)[1][1] - 60)
    assert start < page
    data[group_ends(data)[1][1] - 1] ^= 0xFF  # the last byte of the second row group's last page
    actual, salvaged = recovered(bytes(data))
    assert actual.equals(pa.concat_tables([table.slice(0, 4), table.slice(8)]))
    (lost,) = salvaged.lost
    assert (lost.row_group, lost.rows) == (1, 4)
    assert "does not match its checksum" in lost.reason


def test_flipped_bytes_lose_whole_row_groups_and_invent_no_row(tmp_path):
    table = flat(40)
    data = checkpointed(tmp_path / "t.parquet", table, 2, group=10)
    groups = [table.slice(start, 10).to_pylist() for start in range(0, 40, 10)]
    stop = walk_tiles(BufferSource(data)).footers[-1].offset
    chance = random.Random(9)
    complete = 0
    for _ in range(120):
        damaged = bytearray(data)
        damaged[chance.randrange(stop)] ^= 1 << chance.randrange(8)
        actual, _ = recovered(bytes(damaged))
        if actual is None:
            continue
        rows = actual.to_pylist()
        kept = [rows[start : start + 10] for start in range(0, len(rows), 10)]
        assert kept == [group for group in groups if group in kept]
        complete += len(kept) == 4
    assert complete > 5
