"""``on_corrupt``: damage raises an error that names it, or loses only the rows of its page."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.scan import units

ROWS, GROUP_ROWS, PAGE_ROWS = 4000, 2000, 500


def table():
    return pa.table(
        {
            "a": np.arange(ROWS),
            "b": np.random.default_rng(1).random(ROWS),
            "w": [f"word {i % 7}" for i in range(ROWS)],
            "l": pa.array([[i] * (i % 3) for i in range(ROWS)], pa.list_(pa.int64())),
        }
    )


def write(path, **options):
    """Pages of 500 rows: ``b`` plain, ``w`` with a dictionary."""
    pq.write_table(
        table(),
        path,
        row_group_size=GROUP_ROWS,
        max_rows_per_page=PAGE_ROWS,
        write_batch_size=PAGE_ROWS,
        **{
            "write_page_checksum": True,
            "use_dictionary": ["w"],
            "write_page_index": True,
            **options,
        },
    )


def flip(path, at, mask=0x10):
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


def page_of(path, column, row_group=0, number=1):
    return ia.ParquetFile(path).pages(row_group, column)[number]


def body_of(path, column, row_group=0, number=1):
    page = page_of(path, column, row_group, number)
    return page.offset + page.header_size + 20


def without(*ranges):
    kept = (ia.RowRanges.all(ROWS) - ia.RowRanges.of(*ranges)).rows()
    return table().take(pa.array(kept))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "t.parquet"
    write(path)
    return path


@pytest.fixture
def damaged(path):
    """Rows 500 to 1000 of column ``b`` are damaged."""
    flip(path, body_of(path, "b"))
    return path


def skipping(path):
    return ia.dataset(path, on_corrupt="skip")


@pytest.mark.parametrize("filter_", [None, pc.field("a") >= 0])
def test_a_damaged_page_loses_its_rows_of_every_column(damaged, filter_):
    data = skipping(damaged)
    with pytest.warns(ia.CorruptDataWarning, match=r"column b, page 1.*500 rows lost"):
        assert data.to_table(filter=filter_).equals(without((500, 1000)))
    (actual,) = data.corrupt
    assert isinstance(actual, ia.CorruptData)
    assert (actual.where.file, actual.where.row_group) == (str(damaged), 0)
    assert (actual.where.column, actual.where.page) == ("b", 1)
    assert actual.rows == ia.RowRanges.of((500, 1000))
    assert "checksum" in actual.message


def test_damage_is_reported_once(damaged):
    data = skipping(damaged)
    with pytest.warns(ia.CorruptDataWarning):
        data.to_table()
    assert data.to_table().equals(without((500, 1000)))
    assert len(data.filter(pc.field("a") > 0).corrupt) == 1


def test_columns_without_damage_keep_their_rows(damaged):
    data = skipping(damaged)
    with pytest.warns(ia.CorruptDataWarning):
        data.to_table()
    assert data.to_table(["a", "w"]).equals(table().select(["a", "w"]))
    assert data.to_table(["a"], filter=pc.field("w") == "word 3").num_rows == ROWS // 7


def test_what_is_not_read_is_not_lost(damaged):
    data = skipping(damaged)
    actual = data.to_table(["a"], filter=pc.field("a") < 700)
    assert actual.num_rows == 700
    assert not data.corrupt
    indexed = skipping(damaged).to_table(filter=(pc.field("a") < 400))
    assert indexed.num_rows == 400


def test_rows_that_might_match_are_lost_with_the_column_of_the_filter(damaged):
    whole = table()
    with pytest.warns(ia.CorruptDataWarning):
        actual = skipping(damaged).to_table(["a"], filter=pc.field("b") < 0.3)
    rows = np.flatnonzero(whole["b"].to_numpy() < 0.3)
    assert actual["a"].to_pylist() == rows[(rows < 500) | (rows >= 1000)].tolist()


@pytest.mark.parametrize("rows", [None, (600, 601), (100, 1900)])
def test_raise_names_the_page(damaged, rows):
    page = page_of(damaged, "b")
    file = ia.ParquetFile(damaged, on_corrupt="raise")
    with pytest.raises(ia.FormatError, match="checksum") as caught:
        file.read(rows=None if rows is None else ia.RowRanges.of(rows))
    where = caught.value.where
    assert (where.row_group, where.column, where.page) == (0, "b", 1)
    assert where.offset == page.offset
    for filter_ in (None, pc.field("a") == 600):
        with pytest.raises(ia.FormatError, match=r"column b, page 1"):
            ia.dataset(damaged, on_corrupt="raise").to_table(filter=filter_)


def test_a_single_file_skips_damage(damaged):
    file = ia.ParquetFile(damaged, on_corrupt="skip")
    with pytest.warns(ia.CorruptDataWarning):
        assert file.read().equals(without((500, 1000)))
    assert [actual.num_rows for actual in file.corrupt] == [500]
    some = file.read(["b"], rows=ia.RowRanges.of((900, 1100)))
    assert some.num_rows == 100


def test_row_numbers_head_take_and_count_skip_damage(damaged):
    data = skipping(damaged)
    left = [*range(500), *range(1000, ROWS)]
    with pytest.warns(ia.CorruptDataWarning):
        actual = data.to_table(["b", "__row_number"])
    assert actual["__row_number"].to_pylist() == left
    assert data.head(600, ["a", "b"])["a"].to_pylist() == left[:600]
    taken = data.take([3000, 700, 20, 1000, 20])
    assert taken.equals(table().take([3000, 20, 1000, 20]))
    assert data.take([700]).num_rows == 0
    assert data.take([]).num_rows == 0
    computed = data.take(
        [1, 600, 1500], {"__intarsia_place": pc.field("b") * 2, "a": pc.field("a")}
    )
    assert computed["a"].to_pylist() == [1, 1500]
    with pytest.raises(IndexError):
        data.take([ROWS])
    assert data.count_rows(filter=pc.field("b") >= 0.0) == ROWS - 500
    assert data.count_rows(filter=pc.field("a") >= 0) == ROWS
    assert data.count_rows() == ROWS


@pytest.mark.parametrize("use_threads", [True, False])
def test_units_in_threads_leave_out_the_same_rows(path, monkeypatch, use_threads):
    monkeypatch.setattr(units, "COSTS", replace(units.COSTS, unit_rows=300))
    monkeypatch.setattr(units, "COSTS", replace(units.COSTS, first_unit_rows=300))
    for column, row_group, number in [("b", 0, 0), ("a", 0, 3), ("b", 1, 1), ("w", 1, 3)]:
        flip(path, body_of(path, column, row_group, number))
    left = without((0, 500), (1500, 2000), (2500, 3000), (3000, 3500))
    data = skipping(path)
    with pytest.warns(ia.CorruptDataWarning):
        assert data.to_table(use_threads=use_threads).equals(left)
    assert sorted(actual.num_rows for actual in data.corrupt) == [500] * 4
    with pytest.warns(ia.CorruptDataWarning):
        actual = skipping(path).to_table(filter=pc.field("b") >= 0.5, use_threads=use_threads)
    assert actual.equals(left.filter(pc.field("b") >= 0.5))
    with pytest.warns(ia.CorruptDataWarning):
        assert skipping(path).head(1200).equals(left.slice(0, 1200))


def test_fields_of_the_same_name_are_told_apart(tmp_path):
    path, places = tmp_path / "a.parquet", [{"x": i} for i in range(20)]
    pq.write_table(pa.table({"from": places, "to": places[::-1]}), path, write_page_checksum=True)
    expected = ["from.x", "to.x", "__row_number"]
    taken = skipping(path).take([7, 3], expected)
    assert taken.equals(ia.dataset(path).take([7, 3], expected))
    assert [column.to_pylist() for column in taken.columns] == [[7, 3], [12, 16], [7, 3]]


def test_row_numbers_continue_across_files(tmp_path):
    for name in ("1", "2"):
        write(tmp_path / f"{name}.parquet")
    flip(tmp_path / "1.parquet", body_of(tmp_path / "1.parquet", "b", 1, 3))
    data = skipping(tmp_path)
    with pytest.warns(ia.CorruptDataWarning):
        taken = data.take([ROWS + 3700, 3700, 3499, ROWS])
    assert taken["a"].to_pylist() == [3700, 3499, 0]
    assert data.to_table().num_rows == 2 * ROWS - 500


def test_a_damaged_dictionary_loses_its_row_group(path):
    flip(path, body_of(path, "w", 1, 0))
    with pytest.warns(ia.CorruptDataWarning, match=r"row group 1, column w, page 0"):
        assert skipping(path).to_table().equals(without((2000, 4000)))


def test_a_nested_column_loses_its_page_too(path):
    flip(path, body_of(path, "l.list.element", 0, 2))
    with pytest.warns(ia.CorruptDataWarning):
        assert skipping(path).to_table().equals(without((1000, 1500)))


@pytest.mark.parametrize("column", ["a", "b", "w"])
@pytest.mark.parametrize("has_index", [True, False])
def test_any_byte_of_a_page_header_loses_its_page(tmp_path, column, has_index):
    path = tmp_path / "t.parquet"
    write(path, write_page_index=has_index)
    whole = path.read_bytes()
    number = 2 if column == "w" else 1
    page = page_of(path, column, 0, number)
    for at in range(page.offset, page.offset + page.header_size, 1):
        flip(path, at, 0x08)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            actual = skipping(path).to_table()
        # Without an offset index, a wrong number of values may belong to any page: the row group is
        # lost.
        if actual.num_rows == ROWS - GROUP_ROWS and not has_index:
            assert actual.equals(without((0, GROUP_ROWS)))
        elif actual.num_rows < ROWS:
            assert actual.equals(without((500, 1000)))
        else:
            assert actual.equals(table())  # statistics of the page, or fields that nobody reads
        assert bool(said) or actual.num_rows == ROWS
        path.write_bytes(whole)


def test_without_a_page_index_a_page_loses_its_rows_all_the_same(tmp_path):
    path = tmp_path / "t.parquet"
    write(path, write_page_index=False)
    flip(path, body_of(path, "b", 0, 2))
    with pytest.warns(ia.CorruptDataWarning):
        assert skipping(path).to_table().equals(without((1000, 1500)))


def test_damaged_compressed_bytes_without_a_checksum_lose_their_page(tmp_path):
    path = tmp_path / "t.parquet"
    write(path, write_page_checksum=False, compression="zstd")
    page = page_of(path, "b")
    data = bytearray(path.read_bytes())
    body = page.offset + page.header_size
    data[body : body + 40] = bytes(40)
    path.write_bytes(data)
    with pytest.warns(ia.CorruptDataWarning, match="column b, page 1"):
        assert skipping(path).to_table().equals(without((500, 1000)))


def test_a_wrong_offset_index_loses_nothing(path):
    column = ia.ParquetFile(path).metadata.row_groups[0].columns[0]
    whole = path.read_bytes()
    noticed = 0
    for at in range(column.offset_index_offset, column.offset_index_offset + 12):
        flip(path, at, 0x02)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            data = skipping(path)
            actual = data.to_table(filter=pc.field("a") == 700)
        assert actual.equals(table().slice(700, 1))
        assert not data.corrupt
        noticed += bool(said)
        path.write_bytes(whole)
    assert noticed > 5


def test_a_damaged_index_loses_nothing(path):
    ia.add_indexes(path, [ia.Lookup("a")])
    (entry,) = ia.ParquetFile(path).indexes
    flip(path, entry.offset + entry.length // 2)
    with pytest.warns(ia.IntarsiaWarning, match="index a:lookup is ignored"):
        actual = skipping(path).to_table(filter=pc.field("a") == 700)
    assert actual.equals(table().slice(700, 1))


def test_bounds_are_used_if_they_have_a_checksum(path):
    value = pc.field("a") == 700
    before = skipping(path).explain(filter=value)
    assert before.planned.rows.selected == ROWS
    ia.add_indexes(path, [ia.Lookup("b")])
    after = skipping(path).explain(filter=value)
    assert after.planned.rows.selected == PAGE_ROWS


def test_a_damaged_bound_loses_nothing(path):
    ia.add_indexes(path, [ia.Lookup("b")])
    column = ia.ParquetFile(path).metadata.row_groups[0].columns[0]
    whole = path.read_bytes()
    for at in range(column.column_index_offset, column.column_index_offset + 60, 3):
        flip(path, at)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ia.IntarsiaWarning)
            actual = skipping(path).to_table(filter=pc.field("a") == 700)
        assert actual.equals(table().slice(700, 1))
        path.write_bytes(whole)


def test_a_damaged_footer_is_refused(path):
    ia.add_indexes(path, [ia.Lookup("b")])
    file = ia.ParquetFile(path)
    start, whole = file._opened.footer_offset, path.read_bytes()
    pointer = whole.index(b"intarsia", start)
    for at in range(start, pointer, 37):
        flip(path, at)
        with pytest.raises((ia.FormatError, ia.PredicateError, OSError)):
            skipping(path).to_table()
        path.write_bytes(whole)
    assert skipping(path).to_table().equals(table())


def test_verify_compares_what_the_directory_has_checksums_of(path):
    ia.add_indexes(path, [ia.Lookup("b")])
    assert not ia.verify(path)
    column = ia.ParquetFile(path).metadata.row_groups[0].columns[0]
    flip(path, column.column_index_offset + column.column_index_length - 3)
    assert any("does not match its checksum" in actual.message for actual in ia.verify(path))


def test_checksums_are_those_of_the_rewritten_file(path):
    for change in (
        lambda: ia.add_indexes(path, [ia.Lookup("a"), ia.Bloom("a")]),
        lambda: ia.add_indexes(path, [ia.DistinctIDX1("w")]),
        lambda: ia.add_indexes(path, [ia.Lookup("a"), ia.NGram("w")]),
        lambda: ia.drop_indexes(path, ["a:lookup"]),
    ):
        change()
        file = ia.ParquetFile(path, on_corrupt="raise")._opened
        assert file.trusts_bounds
        assert len(file.page_indexes._checksums) == 2 * 2 * len(file.schema.leaves)
        assert file.page_indexes.columns(1, 0) is not None
        assert not ia.verify(path)


def test_page_indexes_that_are_added_have_checksums(tmp_path):
    path = tmp_path / "t.parquet"
    write(path, write_page_index=False)
    ia.add_indexes(path, [ia.PageIndex()])
    for _ in range(2):
        actual = skipping(path).explain(filter=pc.field("a") == 700)
        assert actual.planned.rows.selected == PAGE_ROWS
        ia.add_indexes(path, [ia.Lookup("b")])


def test_explain_lists_lost_rows(damaged):
    with pytest.warns(ia.CorruptDataWarning):
        told = skipping(damaged).explain(filter=pc.field("b") >= 0.0, analyze=True)
    assert "500 rows lost" in str(told)
    assert told.read.rows.selected == ROWS - 500


def test_derived_data_sets_and_fragments_skip_damage_as_well(damaged):
    data = skipping(damaged)
    with pytest.warns(ia.CorruptDataWarning):
        assert pickle.loads(pickle.dumps(data)).to_table().num_rows == ROWS - 500
    with pytest.warns(ia.CorruptDataWarning):
        assert data.filter(pc.field("a") >= 0).to_table().num_rows == ROWS - 500
    assert data.replace_schema(data.schema).to_table().num_rows == ROWS - 500
    assert data.scanner().to_table().num_rows == ROWS - 500
    assert data.sort_by([("a", "descending")]).to_table().num_rows == ROWS - 500
    keys = pads.dataset(pa.table({"a": [1, 600, 1200]}))
    flat = data.replace_schema(pa.schema([f for f in data.schema if f.name != "l"]))
    assert flat.join(keys, "a", join_type="inner").to_table().num_rows == 2
    assert sum(f.to_table().num_rows for f in data.get_fragments()) == ROWS - 500
    sunk = sum(batch.num_rows for batch in data.to_batches(batch_size=100))
    assert sunk == ROWS - 500


def test_damage_is_forgotten_once_the_file_is_repaired(damaged):
    data = skipping(damaged)
    with pytest.warns(ia.CorruptDataWarning):
        data.to_table()
    write(damaged)
    assert data.to_table().equals(table())
    assert not data.corrupt


def test_on_corrupt_takes_only_raise_and_skip(path):
    with pytest.raises(ValueError, match="on_corrupt"):
        ia.dataset(path, on_corrupt="ignore")
    with pytest.raises(ValueError, match="on_corrupt"):
        ia.ParquetFile(path, on_corrupt=True)


def test_nothing_is_checked_by_default(damaged):
    assert ia.dataset(damaged).to_table(filter=pc.field("a") >= 0).num_rows == ROWS
