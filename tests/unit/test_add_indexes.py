import decimal
import errno
import os
import stat

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.indexing import rewrite

TABLE = pa.table({"k": [f"k{i}" for i in range(1000)], "n": range(1000)})


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE, path)
    return path


def test_new_bytes_are_appended_to_the_unchanged_old_file(file):
    before = file.read_bytes()
    ia.add_indexes(file, [ia.Lookup("k")])
    assert file.read_bytes().startswith(before)
    assert pq.read_table(file).equals(TABLE)


@pytest.mark.skipif(not hasattr(os, "copy_file_range"), reason="the system copies no files here")
@pytest.mark.parametrize("steps", ["all", "some", "some, then none", "some, then an error", "none"])
def test_bytes_are_copied_in_python_if_the_system_does_not(file, monkeypatch, steps):
    calls, original = [], os.copy_file_range

    def copied(old, new, count, *offsets):
        calls.append(offsets[0])
        if steps == "none" or (len(calls) > 2 and steps == "some, then an error"):
            raise OSError(errno.EXDEV, "not here")
        if len(calls) > 2 and steps == "some, then none":
            return 0
        return original(old, new, count if steps == "all" else min(count, 1000), *offsets)

    monkeypatch.setattr(os, "copy_file_range", copied)
    before = file.read_bytes()
    ia.add_indexes(file, [ia.Lookup("k")])
    done = {"all": 1, "some": -(-len(before) // 1000), "none": 1}.get(steps, 3)
    assert calls == [1000 * number for number in range(done)]
    assert file.read_bytes()[: len(before)] == before
    assert ia.dataset(file).to_table(filter=pc.field("k") == "k7")["n"].to_pylist() == [7]
    assert not list(ia.verify(file))


def test_cutting_a_file_to_its_base_length_takes_every_index_off(file):
    before = file.read_bytes()
    ia.add_indexes(file, [ia.Lookup("k")])
    ia.add_indexes(file, [ia.Lookup("n")])
    base = ia.ParquetFile(file)._opened.directory.base_length
    os.truncate(file, base)
    assert file.read_bytes() == before


def test_an_index_of_the_same_name_is_replaced_and_others_stay(file):
    ia.add_indexes(file, [ia.Lookup("k"), ia.Lookup("n")])
    (report,) = ia.add_indexes(file, [ia.Lookup("k", granule_rows=10)])
    assert [entry.name for entry in report.indexes] == ["n:lookup", "k:lookup"]
    assert report.indexes[1].params == {"granule_rows": 10}
    assert ia.ParquetFile(file).read(filter=pc.field("k") == "k7").num_rows == 1
    assert ia.ParquetFile(file).read(filter=pc.field("n") == 7).num_rows == 1


def test_one_string_may_name_several_indexes(file):
    text = "lookup(lower(upper(k)), granule_rows=10), n:distinct , page_index(k, n),"
    (report,) = ia.add_indexes(file, text)
    assert [entry.name for entry in report.indexes] == ["lower(upper(k)):lookup", "n:distinct"]
    assert ia.ParquetFile(file).page_index(0, "k") is not None
    with pytest.raises(ia.IndexSpecError):
        ia.add_indexes(file, ", ")


def test_the_same_index_twice_in_one_call_is_refused(file):
    before = file.read_bytes()
    twice = r"k:lookup is asked for twice: Lookup\(.*8192\), Lookup\(.*10\)$"
    with pytest.raises(ia.IndexSpecError, match=twice):
        ia.add_indexes(file, [ia.Lookup("k"), ia.Lookup("k", granule_rows=10)])
    assert file.read_bytes() == before


def test_a_file_that_cannot_have_an_index_goes_without(tmp_path, file):
    other = tmp_path / "z.parquet"
    pq.write_table(pa.table({"k": [[1]], "n": [1]}), other)
    before = other.read_bytes()
    message = r"index k:lookup: 1 of 2 files cannot have it; .*z\.parquet: .*is nested"
    with pytest.warns(ia.IntarsiaWarning, match=message) as caught:
        first, second = ia.add_indexes(tmp_path, [ia.Lookup("k")])
    assert caught[0].filename == __file__
    assert (first.path, first.added, first.unfit) == (str(file), ("k:lookup", "page_index"), ())
    assert (second.path, second.added, second.unfit) == (str(other), (), ("k:lookup",))
    assert other.read_bytes() == before
    with pytest.warns(ia.IntarsiaWarning, match=message):
        reports = ia.add_indexes(tmp_path, ["n:lookup", "k:lookup"], replace=False)
    assert [report.added[0] for report in reports] == ["n:lookup", "n:lookup"]


def test_page_indexes_that_are_there_are_not_added(tmp_path):
    for name, has_index in (("a", True), ("b", False)):
        pq.write_table(pa.table({"n": [1]}), tmp_path / name, write_page_index=has_index)
    indexes = ["page_index", "n:bloom", "n:lookup"]
    first = [report.added for report in ia.add_indexes(tmp_path, indexes)]
    assert first == [("n:bloom", "n:lookup"), ("page_index", "n:bloom", "n:lookup")]
    (again, _) = [report.added for report in ia.add_indexes(tmp_path, indexes)]
    assert again == ("n:bloom", "n:lookup")
    assert [report.added for report in ia.add_indexes(tmp_path, ["page_index"])] == [(), ()]


def test_no_file_changes_where_none_can_have_the_index(tmp_path, file):
    pq.write_table(pa.table({"other": [1]}), tmp_path / "z.parquet")
    before = file.read_bytes()
    with pytest.raises(ia.IndexSpecError, match=r"column 'nowhere' is not there"):
        ia.add_indexes(tmp_path, [ia.Lookup("k"), ia.Lookup("nowhere")])
    assert file.read_bytes() == before


@pytest.mark.parametrize("names", ["lookup(K)", "minmax(K)", "ngram(S)", "bloom(K)", "K:distinct"])
def test_column_names_are_case_sensitive(names, tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": [1], "s": ["a"]}), path)
    before = path.read_bytes()
    with pytest.raises(ia.IndexSpecError, match=r"column '[KS]' is not there, '[ks]' is"):
        ia.add_indexes(path, [names])
    assert path.read_bytes() == before


class WriteError(Exception):
    pass


def test_a_failure_while_writing_leaves_the_old_file_and_no_debris(file, monkeypatch):
    before = file.read_bytes()

    def half_a_copy(source, out):
        out.write(before[: len(before) // 2])
        raise WriteError

    monkeypatch.setattr(rewrite, "copy_into", half_a_copy)
    with pytest.raises(WriteError):
        ia.add_indexes(file, [ia.Lookup("k")])
    assert file.read_bytes() == before
    assert os.listdir(file.parent) == [file.name]


def test_a_failure_while_writing_a_new_file_leaves_nothing(tmp_path):
    with pytest.raises(TypeError):
        ia.write_table(TABLE, tmp_path / "new.parquet", colour="red")
    with pytest.raises(ia.IndexSpecError):
        ia.write_table(TABLE, tmp_path / "new.parquet", indexes=[ia.Lookup("nosuch")])
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_replaced_keeps_its_permissions_and_its_links(tmp_path, file):
    file.chmod(0o640)
    link = tmp_path / "link.parquet"
    link.symlink_to(file)
    ia.add_indexes(link, [ia.Lookup("k")])
    assert link.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert len(ia.list_indexes(file)[0].indexes) == 1


def test_hadoops_checksum_of_the_old_file_is_removed(file):
    checksum = file.with_name(f".{file.name}.crc")
    checksum.write_bytes(b"crc\0")
    ia.add_indexes(file, [ia.Lookup("k")])
    assert not checksum.exists()


def test_a_reader_with_the_old_file_open_reads_on(file):
    source = ia.dataset(file)
    stream = source.to_batches(filter=pc.field("n") >= 0)
    ia.add_indexes(file, [ia.Lookup("k")])
    assert sum(batch.num_rows for batch in stream) == 1000
    assert source.to_table(filter=pc.field("k") == "k7").num_rows == 1
    assert "index k:lookup" in str(source.explain(filter=pc.field("k") == "k7"))


def test_files_of_an_fsspec_file_system_are_indexed_and_read(tmp_path, file):
    memory = fsspec.filesystem("memory")
    memory.pipe("/embed/day=1/t.parquet", file.read_bytes())
    ia.add_indexes("/embed", [ia.Lookup("k")], filesystem=memory)
    assert memory.find("/embed") == ["/embed/day=1/t.parquet"]
    assert memory.cat("/embed/day=1/t.parquet").startswith(file.read_bytes())
    source = ia.dataset("/embed", filesystem=memory)
    actual = source.to_table(filter=(pc.field("k") == "k7") & (pc.field("day") == 1))
    assert actual.to_pylist() == [{"k": "k7", "n": 7, "day": 1}]


def test_a_column_without_any_value_has_an_index_of_no_entries(tmp_path):
    path = tmp_path / "empty.parquet"
    table = pa.table({"k": pa.nulls(10, pa.string()), "x": [float("nan")] * 10})
    ia.write_table(table, path, indexes=[ia.Lookup("k"), ia.Lookup("x")])
    assert ia.ParquetFile(path).read(filter=pc.field("k") == "a").num_rows == 0
    assert ia.ParquetFile(path).read(filter=pc.field("x") == 1.0).num_rows == 0
    assert ia.ParquetFile(path).read(filter=pc.field("k").is_null()).num_rows == 10


def test_granules_are_the_pages_of_a_page_index_that_comes_with_them(tmp_path):
    path = tmp_path / "t.parquet"
    settings = {"max_rows_per_page": 100, "write_batch_size": 10, "use_dictionary": False}
    pq.write_table(TABLE, path, row_group_size=400, **settings)
    ia.add_indexes(path, [ia.Lookup("k"), ia.PageIndex()])
    assert ia.dataset(path).plan(filter=pc.field("k") == "k7").figures.rows.selected == 100
    assert ia.verify(path) == []


def test_progress_is_told_by_row_groups(tmp_path):
    for name, rows in (("a", 1000), ("b", 300)):
        pq.write_table(TABLE.slice(0, rows), tmp_path / f"{name}.parquet", row_group_size=250)
    reported = []
    kinds = [ia.Lookup("k"), ia.MinMax("n")]
    ia.add_indexes(
        tmp_path, kinds, progress=lambda path, *step: reported.append((path[-9:-8], *step))
    )
    # The last row group of a file is done when the file is in place.
    assert reported == [("a", i, 6) for i in range(4)] + [("b", 4, 6), ("b", 5, 6), ("b", 6, 6)]


def test_progress_is_told_file_by_file(tmp_path, file):
    pq.write_table(TABLE, tmp_path / "u.parquet")
    reported = []
    ia.add_indexes(tmp_path, [ia.Lookup("k")], progress=lambda *step: reported.append(step[1:]))
    assert reported == [(0, 2), (1, 2), (2, 2)]


def test_a_file_replaced_by_another_writer_is_not_overwritten(file, monkeypatch):
    other = pa.table({"k": ["theirs"], "n": [1]})
    copy = rewrite.copy_into

    def copy_while_they_write(source, out):
        copy(source, out)
        pq.write_table(other, file.with_name("new"))
        os.replace(file.with_name("new"), file)

    monkeypatch.setattr(rewrite, "copy_into", copy_while_they_write)
    with pytest.raises(ia.PathError, match="another writer"):
        ia.add_indexes(file, [ia.Lookup("k")])
    assert pq.read_table(file).equals(other)
    assert os.listdir(file.parent) == [file.name]


def test_an_index_on_a_column_with_a_dot_in_its_name_is_no_index_on_a_nested_one(tmp_path):
    nested = pa.array([{"b": 10}, {"b": 20}, {"b": 30}, {"b": 1}])
    table = pa.table({"a.b": [1, 2, 3, 4], "a": nested})
    ia.write_table(table, tmp_path / "t.parquet", indexes=[ia.Lookup("a.b", granule_rows=1)])
    source = ia.dataset(tmp_path / "t.parquet")
    assert source.count_rows(pc.field("a", "b") == 1) == 1
    assert source.count_rows(pc.field("a.b") == 1) == 1


@pytest.mark.parametrize("kind", [ia.Lookup, ia.Distinct, ia.MinMax])
def test_a_field_of_a_struct_is_not_mistaken_for_a_column_of_its_name(kind, tmp_path):
    path = tmp_path / "t.parquet"
    struct = pa.array([{"b": str(i)} for i in range(20)])
    pq.write_table(pa.table({"a.b": range(20), "a": struct}), path)
    before = path.read_bytes()
    with pytest.raises(ia.IndexSpecError, match="a column has the same name"):
        ia.add_indexes(path, [kind(pc.field("a", "b"))])
    assert path.read_bytes() == before
    ia.add_indexes(path, [kind(pc.field("a.b"))])
    assert "index a.b:" in str(ia.dataset(path).explain(filter=pc.field("a.b") == 7))


def test_an_index_impossible_for_the_values_is_an_error_that_names_the_file(tmp_path):
    paths = [tmp_path / f"{name}.parquet" for name in "ab"]
    for path, first in zip(paths, ("a", "a\nb"), strict=True):
        pq.write_table(pa.table({"s": [first, "b"]}), path)
    with pytest.raises(ia.IndexSpecError, match=r"^\S+/b\.parquet: no index .*line feed"):
        ia.add_indexes(paths, ["s:distinct_idx1"])
    assert [len(ia.ParquetFile(path).indexes) for path in paths] == [1, 0]


def test_only_indexes_can_be_dropped(file):
    with pytest.raises(ia.IndexSpecError, match="5 is not an index"):
        ia.drop_indexes(file, [5])


def test_only_tables_are_written(tmp_path):
    with pytest.raises(TypeError, match=r"data is a table, batches, .* or a relation, not int"):
        ia.write_table(5, tmp_path / "t.parquet")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ia.Bloom("k", ndv=True),
        lambda: ia.PageIndex(truncate_length=True),
        lambda: ia.PageIndex(columns=5),
        lambda: ia.PageIndex(columns=[5]),
    ],
)
def test_settings_of_the_wrong_type_are_refused(make):
    with pytest.raises(ia.IndexSpecError, match=r"not True|list of column names, not"):
        make()


def test_half_floats_are_refused_as_they_have_two_zeros(tmp_path):
    table = pa.table({"h": pa.array([0.0, -0.0], pa.float16())})
    with pytest.raises(ia.IndexSpecError, match="half floats"):
        ia.write_table(table, tmp_path / "t.parquet", indexes=[ia.Lookup("h")])


def test_no_bloom_filter_on_columns_that_duckdb_looks_up_as_doubles(tmp_path):
    """DuckDB would find none of the values in it."""
    path = tmp_path / "t.parquet"
    wide, known = pa.array([1, 2], pa.decimal256(39, 2)), pa.array([1, 2], pa.decimal128(38, 2))
    pq.write_table(pa.table({"d": wide, "e": known}), path)
    with pytest.raises(ia.IndexSpecError, match="no index d:bloom: DuckDB reads decimals of more"):
        ia.add_indexes(path, ia.Bloom("d"))
    ia.add_indexes(path, [ia.Lookup("d"), ia.Bloom("e")])
    assert ia.dataset(path).count_rows(pc.field("d") == decimal.Decimal(2)) == 1


def test_indexes_may_be_strings_or_a_single_one(file):
    assert ia.add_indexes(file, "k:lookup")[0].indexes[0].name == "k:lookup"
    (report,) = ia.add_indexes(file, ia.Lookup("n"))
    assert [entry.name for entry in report.indexes] == ["k:lookup", "n:lookup"]
    with pytest.raises(ia.IndexSpecError, match="7 is not an index"):
        ia.add_indexes(file, [7])
    with pytest.raises(ia.IndexSpecError, match="does not take granul_rows"):
        ia.add_indexes(file, "lookup(k, granul_rows=5)")


def test_a_file_with_a_long_name_is_indexed(tmp_path):
    path = tmp_path / f"{'n' * 240}.parquet"
    pq.write_table(TABLE, path)
    ia.add_indexes(path, [ia.Lookup("k")])
    assert len(ia.list_indexes(path)[0].indexes) == 1


def test_indexes_go_into_a_file_of_extensions_within_structs(tmp_path):
    kind = pa.struct([("id", pa.uuid())])
    ids = pa.array([b"0" * 16, b"1" * 16], pa.uuid())
    table = pa.table({"k": [1, 2], "s": pa.StructArray.from_arrays([ids], fields=list(kind))})
    path = tmp_path / "t.parquet"
    ia.write_table(table, path, indexes=[ia.Lookup("k")])
    assert ia.ParquetFile(path).read(filter=pc.field("k") == 2).num_rows == 1
    assert pq.read_table(path).equals(table)


@pytest.mark.parametrize(
    ("indexes", "options", "has_pages"),
    [
        (["k:lookup"], {}, True),
        (["k:lookup"], {"page_index": False}, False),
        (["k:bloom"], {}, False),
        (["k:lookup", "page_index"], {"page_index": False}, True),
        (["k:lookup"], {"sidecar": True}, False),
    ],
)
def test_a_file_without_a_page_index_gets_one_along_with_an_index_that_finds_rows(
    file, indexes, options, has_pages
):
    before = file.read_bytes()
    (report,) = ia.add_indexes(file, indexes, **options)
    assert ("page_index" in report.added) is has_pages
    column = pq.read_metadata(file).row_group(0).column(1)
    assert (column.has_offset_index, column.has_column_index) == (has_pages, has_pages)
    assert ia.dataset(file).to_table(filter=pc.field("k") == "k7")["n"].to_pylist() == [7]
    (again,) = ia.add_indexes(file, indexes, replace=False, **options)
    assert again.added == ()
    ia.drop_indexes(file, all=True, sidecar=options.get("sidecar", False))
    assert file.read_bytes() == before


def test_a_file_of_very_many_chunks_gets_a_page_index_only_if_asked_to(file, monkeypatch):
    chunks = pq.read_metadata(file).num_columns * pq.read_metadata(file).num_row_groups
    monkeypatch.setattr("intarsia.indexing.missing_indexes.MAX_CHUNKS", chunks - 1)
    assert ia.add_indexes(file, ["k:lookup"])[0].added == ("k:lookup",)
    assert ia.add_indexes(file, ["page_index"])[0].added == ("page_index",)
    ia.drop_indexes(file, all=True)
    monkeypatch.setattr("intarsia.indexing.missing_indexes.MAX_CHUNKS", chunks)
    assert set(ia.add_indexes(file, ["k:lookup"])[0].added) == {"k:lookup", "page_index"}


def test_a_file_indexed_without_pages_gets_its_page_index_later(file):
    ia.add_indexes(file, ["k:lookup"], page_index=False)
    (report,) = ia.add_indexes(file, ["k:lookup"], replace=False)
    assert (report.added, report.kept) == (("page_index",), ("k:lookup",))


def test_a_page_index_of_the_writer_is_kept_as_it_is(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE, path, write_page_index=True)
    (report,) = ia.add_indexes(path, ["k:lookup"])
    assert report.added == ("k:lookup",)


def test_a_column_that_cannot_be_decoded_costs_the_page_index_only(file):
    column = pq.read_metadata(file).row_group(0).column(1)
    data = bytearray(file.read_bytes())
    start = column.dictionary_page_offset
    data[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    file.write_bytes(data)
    with pytest.warns(ia.IntarsiaWarning, match="no page index"):
        (report,) = ia.add_indexes(file, ["k:lookup"])
    assert report.added == ("k:lookup",)
    assert ia.dataset(file).to_table(["k"], filter="k = 'k7'")["k"].to_pylist() == ["k7"]
