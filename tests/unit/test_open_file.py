import gc
import os
import weakref

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.file.open_file import OpenedFile
from intarsia.io.source import BufferSource
from intarsia.parquet.footer import framed, read_footer
from intarsia.parquet.metadata import FileMetaData, RowGroup
from intarsia.parquet.thrift import encode


def stored(table):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("rows", [2**40, 2**62, 2**63 - 1, 0, 7])
def test_rows_that_only_the_footer_claims_are_an_error(rows):
    data = stored(pa.table({"n": [1, 2, 3]}))
    footer = read_footer(BufferSource(data))
    (group,) = footer.metadata.row_groups
    claimed = RowGroup(columns=group.columns, total_byte_size=1, num_rows=rows)
    metadata = FileMetaData(
        version=2,
        schema=footer.metadata.schema,
        num_rows=rows,
        row_groups=[claimed, claimed, claimed],
    )
    with pytest.raises(ia.FormatError, match=r"3 values for .* rows|more rows than"):
        ia.ParquetFile(BufferSource(data[: footer.offset] + framed(encode(metadata))))


def test_a_column_may_have_the_internal_name_of_row_numbers(tmp_path):
    table = pa.table({"__intarsia_row": [5, 6, 7], "n": [1, 2, 3]})
    file = ia.ParquetFile(BufferSource(stored(table)))
    filter_ = pc.field("__intarsia_row") == 6
    assert file.read(filter=filter_).equals(table.filter(filter_))


def test_an_overwritten_object_is_read_in_its_new_version():
    memory = fsspec.filesystem("memory")
    memory.pipe("/overwritten/t.parquet", stored(pa.table({"n": [1, 2, 3]})))
    source = ia.dataset("/overwritten", filesystem=memory)
    assert source.count_rows(pc.field("n") > 0) == 3
    memory.pipe("/overwritten/t.parquet", stored(pa.table({"n": [7, 8, 9, 10, 11]})))
    assert source.count_rows(pc.field("n") > 0) == 5


def test_a_filter_may_be_sql():
    file = ia.ParquetFile(BufferSource(stored(pa.table({"n": [1, 2, 3]}))))
    assert file.read(filter="n >= 2 AND n <> 3").to_pydict() == {"n": [2]}
    with pytest.raises(ia.PredicateError, match="cannot parse the condition 'n >'"):
        file.read(filter="n >")


def test_a_filter_may_be_tuples_as_pyarrow_takes_them(tmp_path):
    table = pa.table({"n": [1, 2, 3, None], "s": ["a", "b", "a", "b"]})
    pq.write_table(table, tmp_path / "t.parquet")
    for filters in (
        [("n", ">=", 2), ("s", "=", "a")],
        [[("n", "==", 1)], [("s", "in", {"b"}), ("n", "!=", 2)]],
        [("n", "not in", [1, 3])],
    ):
        expected = pq.read_table(tmp_path / "t.parquet", filters=filters)
        assert ia.dataset(tmp_path).to_table(filter=filters) == expected
        assert ia.ParquetFile(tmp_path / "t.parquet").read(filter=filters) == expected
    for filters in ([], [[]], [("n", "~", 1)], [("n", "=")], ["n = 1"]):
        with pytest.raises(ia.PredicateError, match="is no list of conditions"):
            ia.dataset(tmp_path).to_table(filter=filters)


@pytest.mark.parametrize("filter_", [("n", "=", 1), 7])
def test_a_filter_that_is_no_expression_is_refused_by_name(tmp_path, filter_):
    path = tmp_path / "t.parquet"
    path.write_bytes(stored(pa.table({"n": [1]})))
    for read in (ia.ParquetFile(path).read, ia.dataset(path).to_table):
        with pytest.raises(TypeError, match=r"an Expression, a SQL .* not (tuple|int)"):
            read(filter=filter_)
        with pytest.raises(TypeError, match="a list of names"):
            read(columns="n", filter=pc.field("n") == 1)


def test_errors_name_missing_columns_and_rows():
    file = ia.ParquetFile(BufferSource(stored(pa.table({"n": [1]}))))
    with pytest.raises(ia.PredicateError, match="'m' is not there; there are: n"):
        file.read(["m"])
    with pytest.raises(IndexError, match="row 4 of 1"):
        file.read(rows=ia.RowRanges.of((0, 5)))
    with pytest.raises(IndexError, match="column 'm' is not there"):
        file.page_index(0, "m")
    with pytest.raises(IndexError, match="1 row groups"):
        file.page_index(3, "n")


def test_columns_keep_their_types_if_the_stored_schema_has_only_some():
    """The first two columns have the same name and no field in it; the third has a time zone."""
    numbers = pa.array(range(100))
    zoned = numbers.cast(pa.timestamp("us", "Europe/Paris"))
    other = numbers.cast(pa.duration("us"))
    table = pa.table([numbers, numbers, zoned, other], ["a", "a", "z", "d"])
    file = ia.ParquetFile(BufferSource(memoryview(stored(table))))
    rows = ia.RowRanges.of((3, 5))
    assert file.read(rows=rows).equals(table.slice(3, 2))
    assert file.read(["z", "d"], rows=rows).equals(table.select(["z", "d"]).slice(3, 2))


@pytest.mark.parametrize("step", [50_000, 500])
def test_few_rows_do_not_keep_the_memory_of_their_pages(step):
    table = pa.table({"text": [f"{i:0100d}" for i in range(100_000)]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_page_index=True, max_rows_per_page=20_000)
    file = ia.ParquetFile(BufferSource(sink.getvalue().to_pybytes()))
    rows = ia.RowRanges.from_rows(np.arange(7, 100_000, step))
    before = pa.total_allocated_bytes()
    actual = file.read(rows=rows)
    assert actual["text"].to_pylist() == [f"{i:0100d}" for i in range(7, 100_000, step)]
    assert pa.total_allocated_bytes() - before < 1_000_000  # of 10,000,000


@pytest.mark.parametrize("page_index", [True, False])
def test_texts_are_read_as_dictionaries_where_asked(tmp_path, page_index):
    words = [f"w{i // 300}" for i in range(3000)]
    table = pa.table({"k": range(3000), "word": words, "plain": words})
    path = tmp_path / "t.parquet"
    pq.write_table(
        table,
        path,
        row_group_size=1000,
        max_rows_per_page=100,
        write_batch_size=50,
        write_page_index=page_index,
        use_dictionary=["word"],
    )
    whole = pq.ParquetFile(path, read_dictionary=["word"]).read()
    assert pa.types.is_dictionary(whole.schema.field("word").type)
    file = ia.ParquetFile(path, read_dictionary=["word"])
    ds = ia.dataset(path, read_dictionary=["word"])
    assert file.schema_arrow == whole.schema
    assert file.read().equals(whole)
    for condition in (pc.field("word") == "w3", (pc.field("k") > 950) & (pc.field("k") < 1050)):
        expected = whole.filter(condition)
        actual = file.read(filter=condition)
        assert actual.schema == expected.schema
        assert actual.to_pylist() == expected.to_pylist()
        lean = ds.to_table(["word", "k"], filter=condition)
        assert lean.schema.field("word").type == pa.dictionary(pa.int32(), pa.string())
        assert lean.to_pylist() == expected.select(["word", "k"]).to_pylist()
    if page_index:
        explained = ds.explain(filter=pc.field("word") == "w3", analyze=True)
        assert explained.read.pages.selected < explained.read.pages.total / 5


USES = {
    "file": lambda path, condition: ia.ParquetFile(path).read(filter=condition),
    "table": lambda path, condition: ia.dataset(path).to_table(filter=condition),
    "count": lambda path, condition: ia.dataset(path).count_rows(condition),
    "batch": lambda path, condition: next(ia.dataset(path).to_batches(filter=condition)),
    "rows": lambda path, condition: ia.dataset(path).take([5]),
    "explain": lambda path, condition: ia.dataset(path).explain(filter=condition, analyze=True),
    "verify": lambda path, condition: ia.verify(path),
    "list": lambda path, condition: ia.list_indexes(path),
    "add": lambda path, condition: ia.add_indexes(path, ["n:minmax"]),
    "drop": lambda path, condition: ia.drop_indexes(path, ["s:lookup"]),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_files_are_released_without_the_garbage_collector(use, tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    table = pa.table({"n": range(100), "s": [f"x{n}" for n in range(100)]})
    ia.write_table(table, path, indexes=["s:lookup"], row_group_size=10)

    alive, made = weakref.WeakSet(), []
    real = OpenedFile.__init__

    def init(file, *arguments, **options):
        real(file, *arguments, **options)
        alive.add(file)
        made.append(None)

    monkeypatch.setattr(OpenedFile, "__init__", init)
    gc.disable()
    try:
        use(path, pc.field("s") == "x7")
        assert made
        assert not list(alive)
    finally:
        gc.enable()


def test_batches_are_what_is_read_in_parts(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"a": range(5000), "b": [str(n) for n in range(5000)]})
    ia.write_table(table, path, row_group_size=2000)
    file = ia.ParquetFile(path)
    assert file.num_row_groups == 3
    request = {"columns": ["b"], "rows": ia.RowRanges.of((10, 4000)), "filter": pc.field("a") > 500}
    for options in ({}, request):
        batches = list(file.iter_batches(700, **options))
        assert pa.Table.from_batches(batches) == file.read(**options)
        assert max(batch.num_rows for batch in batches) <= 700
    assert sum(batch.num_rows for batch in file.iter_batches(columns=[])) == 5000
    with pytest.raises(ValueError, match="batch_size is 1 at least, not 0"):
        file.iter_batches(0)
    with pytest.raises(IndexError, match="row 5000 of 5000"):
        file.iter_batches(rows=ia.RowRanges.of((0, 5001)))


def test_a_closed_file_raises_an_error(tmp_path):
    path = tmp_path / "a.parquet"
    ia.write_table(pa.table({"a": [1]}), path)
    before = len(os.listdir("/dev/fd"))
    with ia.ParquetFile(path) as file:
        assert file.read().num_rows == 1
        assert len(os.listdir("/dev/fd")) == before + 1
    assert len(os.listdir("/dev/fd")) == before
    file.close()
    with pytest.raises(ValueError, match="the file is closed"):
        file.read()
